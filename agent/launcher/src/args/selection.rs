//! Arguments that select which recorded events are sent.

use std::str::FromStr;

use agent::drain::{Comparison, Condition, Keep, MOST_TRIGGERS, Trigger, Wanted};
use clap::Args;
use codec::text::Glob;

use super::{Period, Size};

/// What is kept back at most, where only a time is given.
const USUAL_KEEP: Size = Size(1 << 30);

#[derive(Debug, Args)]
#[command(next_help_heading = "What to send")]
pub(crate) struct SelectionArgs {
    /// Send only calls that take at least this long, and their callers
    ///
    /// The agent counts the other calls and sums up their time, by function.
    #[arg(long, value_name = "TIME")]
    pub(crate) slower_than: Option<Period>,
    /// Send only what runs inside functions whose names match. May be repeated
    #[arg(long, value_name = "GLOB", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) around: Vec<String>,
    /// Send nothing until this happens, such as a call of a function. May be repeated
    ///
    /// WHEN is one of:
    ///
    /// `GLOB`: a function whose name matches is called.
    ///
    /// `GLOB>10ms`: a call of such a function took at least that long; `>10ms`: any call.
    ///
    /// `GLOB:arg1=0x10`: such a function is called, and an argument from 1 to 6 is =, !=, < or > a number.
    ///
    /// `time:5s`: this time has passed since the start.
    ///
    /// `signal:USR1`: this command receives the signal, which it then does not pass on.
    #[arg(long, value_name = "WHEN")]
    pub(crate) start_on: Vec<When>,
    /// Stop sending when this happens, until a condition of --start-on happens again. May be repeated
    #[arg(long, value_name = "WHEN")]
    pub(crate) stop_on: Vec<When>,
    /// Keep the latest events in memory, for this long or in this size, and send them when something happens
    ///
    /// Give a time, a size or both: 10s, 256MiB, or 10s,4GiB. With only a time, the size is 1GiB. The agent sends the
    /// events before and after a condition of --start-on, and those before the program died of a signal.
    #[arg(long, value_name = "TIME|SIZE")]
    pub(crate) keep: Option<Kept>,
}

/// Something that may happen.
#[derive(Debug, Clone)]
pub(crate) struct When {
    what: What,
    /// The name that is in it.
    name: Option<String>,
}

#[derive(Debug, Clone)]
enum What {
    Trigger(Trigger),
    /// This command receives a signal.
    Signal(i32),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let call = |name: &str, condition| {
            let name = (!name.is_empty()).then(|| name.to_owned());
            let what = What::Trigger(Trigger::Call { name: name.as_deref().map(Glob::new), condition });
            Self { what, name }
        };
        let other = |what| Self { what, name: None };
        if let Some(time) = text.strip_prefix("time:") {
            let Period(time) = time.parse()?;
            return Ok(other(What::Trigger(Trigger::Time(time))));
        }
        if let Some(name) = text.strip_prefix("signal:") {
            return signal(name).map(|signal| other(What::Signal(signal)));
        }
        if let Some((name, argument)) = text.rsplit_once(":arg") {
            return argument_condition(argument).map(|condition| call(name, condition));
        }
        let slower = text.rsplit_once('>');
        match slower.map(|(name, time)| (name, time.parse::<Period>())) {
            Some((name, Ok(Period(time)))) => Ok(call(name, Condition::Slower(time))),
            // Names of C++ have that in them, too.
            Some((name, Err(why))) if !name.contains(['<', ':']) && !name.starts_with("operator") => Err(why),
            _ if text.is_empty() => Err("expected the name of a function, or a condition".into()),
            _ => Ok(call(text, Condition::None)),
        }
    }
}

/// What is said of an argument behind `:arg`.
fn argument_condition(text: &str) -> Result<Condition, String> {
    let wrong =
        || "expected an argument as arg1=5: a number from 1 to 6, then =, !=, < or >, then a number".to_string();
    let operator = text.find(['=', '!', '<', '>']).ok_or_else(wrong)?;
    let (index, rest) = text.split_at(operator);
    let operators =
        [("!=", Comparison::Unequal), ("=", Comparison::Equal), ("<", Comparison::Less), (">", Comparison::Greater)];
    let found = operators.iter().find_map(|(operator, comparison)| Some((rest.strip_prefix(operator)?, *comparison)));
    let (value, comparison) = found.ok_or_else(wrong)?;
    let index = index.parse::<u8>().ok().filter(|index| (1..=6).contains(index)).ok_or_else(wrong)?;
    let value = match (value.strip_prefix("0x"), value.strip_prefix('-')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (_, Some(_)) => value.parse::<i64>().ok().map(i64::cast_unsigned),
        _ => value.parse().ok(),
    };
    Ok(Condition::Argument(index - 1, comparison, value.ok_or_else(wrong)?))
}

fn signal(name: &str) -> Result<i32, String> {
    use signal_hook::consts::signal::{SIGUSR1, SIGUSR2};
    match name.strip_prefix("SIG").unwrap_or(name) {
        "USR1" => Ok(SIGUSR1),
        "USR2" => Ok(SIGUSR2),
        _ => Err("expected signal:USR1 or signal:USR2".into()),
    }
}

/// How much is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) Keep);

impl FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| "expected a time as 10s, a size as 256MiB, or both as 10s,256MiB".to_string();
        let (time, size) = match (text.split_once(','), text.parse::<Size>()) {
            (Some((time, size)), _) => (time.parse().map_err(wrong)?, size.parse().map_err(wrong)?),
            (None, Ok(size)) => (Period(Keep::LONGEST), size),
            (None, Err(_)) => (text.parse().map_err(wrong)?, USUAL_KEEP),
        };
        let (Period(time), Size(bytes)) = (time, size);
        if time.is_zero() || time > Keep::LONGEST || !((1 << 20)..=(1 << 40)).contains(&bytes) {
            return Err("expected a time up to 1d and a size from 1MiB to 1TiB".into());
        }
        Ok(Self(Keep { time, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }))
    }
}

/// What is to be sent, and which signals to this command start and stop that.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selected {
    pub(crate) wanted: Wanted,
    pub(crate) start_signals: Vec<i32>,
    pub(crate) stop_signals: Vec<i32>,
}

impl SelectionArgs {
    /// The options that name functions, and the names.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let around = self.around.iter().map(|glob| ("--around", glob.as_str()));
        let starts = self.start_on.iter().map(|when| ("--start-on", when));
        let all = starts.chain(self.stop_on.iter().map(|when| ("--stop-on", when)));
        around.chain(all.filter_map(|(option, when)| Some((option, when.name.as_deref()?))))
    }

    /// What is to be sent; what is wrong with it otherwise. `detail` says whether arguments are recorded.
    pub(crate) fn selected(&self, detail: bool) -> Result<Selected, String> {
        let whens = || self.start_on.iter().chain(&self.stop_on);
        let is_of_argument =
            |when: &When| matches!(when.what, What::Trigger(Trigger::Call { condition: Condition::Argument(..), .. }));
        if !detail && whens().any(is_of_argument) {
            return Err("with --no-detail no arguments are recorded that --start-on or --stop-on could look at".into());
        }
        if whens().count() > MOST_TRIGGERS {
            return Err(format!("--start-on and --stop-on can be given {MOST_TRIGGERS} times"));
        }
        let triggers = |whens: &[When]| {
            let trigger = |when: &When| match &when.what {
                What::Trigger(trigger) => Some(trigger.clone()),
                What::Signal(_) => None,
            };
            whens.iter().filter_map(trigger).collect()
        };
        let signals = |whens: &[When]| {
            let signal = |when: &When| match when.what {
                What::Signal(signal) => Some(signal),
                What::Trigger(_) => None,
            };
            whens.iter().filter_map(signal).collect()
        };
        Ok(Selected {
            wanted: Wanted {
                slower_than: self.slower_than.map(|Period(time)| time),
                around: self.around.iter().map(|glob| Glob::new(glob)).collect(),
                start_on: triggers(&self.start_on),
                stop_on: triggers(&self.stop_on),
                waits: !self.start_on.is_empty(),
                keep: self.keep.map(|Kept(keep)| keep),
            },
            start_signals: signals(&self.start_on),
            stop_signals: signals(&self.stop_on),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_may_happen_is_read() {
        let what = |text: &str| text.parse::<When>().map(|when| when.what);
        let read = |text: &str| match what(text) {
            Ok(What::Trigger(Trigger::Call { name, condition })) => {
                Ok((name.is_some_and(|name| name.matches("parse_header")), condition))
            }
            other => Err(format!("{other:?}")),
        };
        assert_eq!(read("parse_*"), Ok((true, Condition::None)));
        assert_eq!(read("parse_*>10ms"), Ok((true, Condition::Slower(Duration::from_millis(10)))));
        assert_eq!(read(">2s"), Ok((false, Condition::Slower(Duration::from_secs(2)))));
        assert_eq!(read("parse_*:arg1=0x10"), Ok((true, Condition::Argument(0, Comparison::Equal, 16))));
        assert_eq!(read("other:arg6!=-1"), Ok((false, Condition::Argument(5, Comparison::Unequal, u64::MAX))));
        // Names with an operator in them.
        assert_eq!(read("operator>"), Ok((false, Condition::None)));
        assert_eq!(read("map<int, long>"), Ok((false, Condition::None)));
        assert!(matches!(what("time:5s"), Ok(What::Trigger(Trigger::Time(time))) if time.as_secs() == 5));
        assert!(matches!(what("signal:SIGUSR2"), Ok(What::Signal(12))));
        for wrong in [
            "",
            "time:x",
            "signal:KILL",
            "f:arg0=1",
            "f:arg7=1",
            "f:arg1",
            "f:arg1=x",
            "f:arg1~3",
            ">",
            "f>",
            "f>10",
            ">10xs",
        ] {
            assert!(what(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_kept_is_a_time_a_size_or_both() {
        let keep = |text: &str| text.parse::<Kept>().map(|Kept(keep)| (keep.time.as_secs(), keep.bytes >> 20));
        assert_eq!(keep("10s"), Ok((10, 1_024)));
        assert_eq!(keep("256MiB"), Ok((86_400, 256)));
        assert_eq!(keep("1m,4GiB"), Ok((60, 4_096)));
        for wrong in ["", "10", "0s", "1KiB", "10s,", "4GiB,10s", "2d"] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
    }
}
