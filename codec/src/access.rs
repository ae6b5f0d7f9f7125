//! What senders and collectors know each other by: the token of the one, the certificate of the other.

use std::{fmt, str::FromStr};

#[cfg(feature = "claim")]
use sha2::Digest;

use crate::SessionId;

/// How long a token may be.
pub const MAX_TOKEN_BYTES: usize = 4096;

/// A secret that both sides have in a file. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// From the contents of a file and its permissions. One line end behind the token does not belong to it.
    pub fn from_file(contents: &[u8], mode: u32) -> Result<Self, String> {
        if mode & 0o077 != 0 {
            return Err(format!("others may read it (mode {:03o}): make it 600", mode & 0o777));
        }
        let token = contents.strip_suffix(b"\n").unwrap_or(contents);
        let token = token.strip_suffix(b"\r").unwrap_or(token);
        match token.len() {
            0 => Err("it is empty".into()),
            1..=MAX_TOKEN_BYTES => Ok(Self(token.into())),
            _ => Err(format!("it has more than {MAX_TOKEN_BYTES} bytes")),
        }
    }

    /// The token.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What ids begin with that are made of a secret.
const CLAIMED: [u8; 4] = *b"\xc1\xa1\x3e\xd0";

/// The id of the session whose sender has this secret: only who has that can claim the id.
#[cfg(feature = "claim")]
pub fn claimed_id(secret: &[u8]) -> SessionId {
    let mut id: [u8; 16] = sha2::Sha256::digest(secret).first_chunk().copied().unwrap_or_default();
    if let Some(start) = id.first_chunk_mut() {
        *start = CLAIMED;
    }
    SessionId(id)
}

/// Whether an id is made of a secret, so that its sender can be asked for that.
pub fn is_claimed(id: SessionId) -> bool {
    id.0.starts_with(&CLAIMED)
}

/// The SHA-256 of a certificate, by which it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin(pub [u8; 32]);

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Pin {
    type Err = String;

    /// As it is displayed, or as other tools display it: in capitals, with a colon after each byte.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).chars().filter(|c| *c != ':');
        let digits: Option<Vec<_>> =
            digits.map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 64).unwrap_or_default();
        let bytes = digits.chunks(2).map(|pair| pair.iter().fold(0_u8, |byte, digit| byte << 4 | digit));
        <[u8; 32]>::try_from(bytes.collect::<Vec<_>>()).map(Self).map_err(|_| {
            "expected the SHA-256 of a certificate in 64 hexadecimal digits, as the collector prints it".into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read() {
        let read = |contents: &[u8], mode| Secret::from_file(contents, mode).map(|secret| secret.0);
        for contents in [&b"open sesame"[..], b"open sesame\n", b"open sesame\r\n"] {
            assert_eq!(read(contents, 0o100_600), Ok(b"open sesame".to_vec()));
        }
        assert_eq!(read(b" \n\n", 0o400), Ok(b" \n".to_vec()), "only one line end is none of it");
        for (contents, mode, why) in [
            (&b"token"[..], 0o640, "mode 640"),
            (b"token", 0o604, "mode 604"),
            (b"", 0o600, "empty"),
            (b"\n", 0o600, "empty"),
            (&[b'x'; 4097], 0o600, "4096 bytes"),
        ] {
            assert!(read(contents, mode).is_err_and(|error| error.contains(why)), "{why}");
        }
        assert_eq!(format!("{:?}", Secret(b"token".to_vec())), "Secret");
    }

    #[cfg(feature = "claim")]
    #[test]
    fn an_id_tells_nothing_of_its_secret_and_belongs_to_it() {
        let id = claimed_id(&[7; 32]);
        assert_eq!(id.to_string(), "c1a13ed04e3a7715d201d573d0aa4237");
        assert!(is_claimed(id) && !is_claimed(SessionId([7; 16])) && id != claimed_id(&[8; 32]));
    }

    #[test]
    fn pins_are_read_as_they_are_shown() {
        let pin = Pin(std::array::from_fn(|at| at as u8 * 8));
        assert_eq!(pin.to_string().parse(), Ok(pin));
        let digits = pin.to_string().split_off(7);
        assert_eq!(digits.parse(), Ok(pin));
        let pairs: Vec<_> = digits.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair)).collect();
        assert_eq!(pairs.join(":").to_uppercase().parse(), Ok(pin));
        for wrong in ["", "sha256:", "abc", &digits[1..], &format!("{digits}0"), &digits.replace('0', "g")] {
            assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
        }
    }
}
