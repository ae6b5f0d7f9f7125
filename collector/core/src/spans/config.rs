//! How spans are made.

use std::str::FromStr;

/// How an [`Engine`](super::Engine) makes spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanConfig {
    /// After how many nanoseconds a span that has not ended is reported to be open.
    pub timeout_ns: u64,
    /// How many spans may be open, and how many events may wait for others, at a time. What is more is evicted.
    pub max_open: usize,
    /// Which functions take callbacks.
    pub callbacks: Vec<CallbackRule>,
}

impl Default for SpanConfig {
    fn default() -> Self {
        Self { timeout_ns: 5_000_000_000, max_open: 4 << 20, callbacks: Vec::new() }
    }
}

/// A function that takes a callback: `register_cb:arg1`, or `register_cb:arg1:arg2` where the second one is the context
/// that the callback is given. Arguments are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackRule {
    /// The name of the function that takes the callback.
    pub function: String,
    /// Which argument is the callback.
    pub callback: usize,
    /// Which argument is the context, if any.
    pub context: Option<usize>,
}

/// How many arguments a call tells of.
const ARGUMENTS: usize = 6;

impl FromStr for CallbackRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected FUNCTION:argN or FUNCTION:argN:argM, N and M from 0 to {}", ARGUMENTS - 1);
        let argument = |text: &str| {
            let number = text.strip_prefix("arg").and_then(|number| number.parse().ok());
            number.filter(|number| *number < ARGUMENTS).ok_or_else(error)
        };
        // C++ names have colons of their own.
        let (rest, last) = text.rsplit_once(':').ok_or_else(error)?;
        let last = argument(last)?;
        let (function, callback, context) = match rest.rsplit_once(':') {
            Some((function, first)) if argument(first).is_ok() => (function, argument(first)?, Some(last)),
            _ => (rest, last, None),
        };
        if function.is_empty() {
            return Err(error());
        }
        Ok(Self { function: function.into(), callback, context })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule = |text: &str| text.parse::<CallbackRule>();
        let plain = CallbackRule { function: "register_cb".into(), callback: 1, context: None };
        assert_eq!(rule("register_cb:arg1"), Ok(plain));
        let with_context = CallbackRule { function: "a::b".into(), callback: 0, context: Some(5) };
        assert_eq!(rule("a::b:arg0:arg5"), Ok(with_context));
        for text in ["", "f", "f:", ":arg1", "f:arg6", "f:1", "f:arg-1", "f:arg1:"] {
            assert!(rule(text).is_err(), "{text}");
        }
    }
}
