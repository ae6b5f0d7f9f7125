//! What tracing may cost.

use std::{fmt, str::FromStr};

/// How much processor time tracing may take besides the program's own: a part of that, or any.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget(pub Option<f64>);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<f64>().ok();
        let share = match text {
            "none" => return Ok(Self(None)),
            _ => match (text.strip_suffix('%'), text.strip_suffix('x')) {
                (Some(percent), _) => number(percent).map(|percent| percent / 100.0),
                (_, Some(times)) => number(times).map(|times| times - 1.0),
                _ => None,
            },
        };
        let share = share.filter(|share| (0.001..=100.0).contains(share));
        share.map(|share| Self(Some(share))).ok_or_else(|| "expected a share as 10%, a factor as 2x, or none".into())
    }
}

/// What becomes of a program that calls more than can be followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// It waits.
    Complete,
    /// Calls are left out.
    Lossy,
    /// Functions are turned down where calls would be left out.
    Rings,
    /// Functions are turned down, so that tracing takes no more than this part of the program's own time.
    Share(f64),
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "complete" => Ok(Self::Complete),
            "rings" => Ok(Self::Rings),
            _ => match text.parse::<Budget>() {
                Ok(Budget(share)) => Ok(share.map_or(Self::Lossy, Self::Share)),
                Err(error) => Err(format!("{error}, or rings, or complete")),
            },
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Lossy => f.write_str("none"),
            Self::Rings => f.write_str("rings"),
            Self::Share(share) if *share >= 1.0 => write!(f, "{}x", share + 1.0),
            Self::Share(share) => write!(f, "{}%", (share * 1e5).round() / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_share_a_factor_or_none() {
        let share =
            |text: &str| text.parse::<Budget>().map(|Budget(share)| share.map(|share| (share * 1000.0).round()));
        assert_eq!(share("10%"), Ok(Some(100.0)));
        assert_eq!((share("2x"), share("1.5x")), (Ok(Some(1000.0)), Ok(Some(500.0))));
        assert_eq!(share("none"), Ok(None));
        for wrong in ["", "10", "%", "x", "0%", "-5%", "1x", "0.5x", "NaN%", "infx", "100000%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paces_read_as_they_are_written() {
        for text in ["10%", "0.5%", "2x", "3.5x", "none", "rings", "complete"] {
            assert_eq!(text.parse::<Pace>().expect(text).to_string(), text);
        }
        assert!("fast".parse::<Pace>().is_err());
    }
}
