//! The secret that a browser shows.

use anyhow::{Result, anyhow};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// What only those know who were given the address: 32 random bytes, in hexadecimal.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("the system has no random numbers"))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// As it is in an address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether somebody has shown it. Takes as long whatever was shown.
    pub(crate) fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

/// Never printed by accident.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_only_by_itself() {
        let (one, other) = (Token::random().expect("random"), Token::random().expect("random"));
        assert!(one.is(one.text()) && !one.is(other.text()) && !one.is("") && one.text().len() == 64);
        assert_eq!(format!("{one:?}"), "Token(…)");
    }
}
