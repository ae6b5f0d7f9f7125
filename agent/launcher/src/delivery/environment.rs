//! The environment that a process was started with.

/// How long a `traceparent` and a `tracestate` may be, as W3C Trace Context has it for now.
const MOST_PARENT_BYTES: usize = 128;
const MOST_STATE_BYTES: usize = 512;

/// What the environment that a process was started with says of the trace it is part of. Of all the rest nothing is told.
pub(super) fn trace_of(environment: &[u8]) -> (String, String) {
    let value = |name: &str, most: usize| {
        let is_named = |entry: &&[u8]| entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
        let entry = environment.split(|byte| *byte == 0).find(is_named)?;
        let text = entry.get(name.len() + 1..).and_then(|value| str::from_utf8(value).ok())?.trim();
        Some(text.to_owned()).filter(|text| !text.is_empty() && text.len() <= most)
    };
    let either = |upper, lower, most| value(upper, most).or_else(|| value(lower, most)).unwrap_or_default();
    match either("TRACEPARENT", "traceparent", MOST_PARENT_BYTES) {
        parent if parent.is_empty() => Default::default(),
        parent => (parent, either("TRACESTATE", "tracestate", MOST_STATE_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::trace_of;

    #[test]
    fn of_an_environment_nothing_but_the_trace_is_told() {
        let told = |environment: &[u8]| trace_of(environment);
        let pair = |parent: &str, state: &str| (parent.to_owned(), state.to_owned());
        assert_eq!(told(b""), pair("", ""));
        assert_eq!(told(b"PATH=/bin\0MY_TRACEPARENT=no\0TRACEPARENTS=no\0"), pair("", ""));
        assert_eq!(told(b"A=1\0TRACEPARENT=00-a-b-01\0TRACESTATE=x=1,y=2\0"), pair("00-a-b-01", "x=1,y=2"));
        assert_eq!(told(b"traceparent=one\0tracestate=\0TRACEPARENT=two"), pair("two", ""));
        assert_eq!(told(b"TRACESTATE=x=1\0"), pair("", ""), "a state of no trace");
        assert_eq!(told(&[b"TRACEPARENT=", &[b'0'; 129][..]].concat()), pair("", ""));
        assert_eq!(told(b"TRACEPARENT=\xff\0"), pair("", ""));
    }
}
