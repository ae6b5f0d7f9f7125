//! Where a stream is.

use std::{fmt, str::FromStr};

/// The address of a stream: `nats://HOST:4222/STREAM`, with several hosts of a cluster behind one another, and
/// `nats+tls:` where the server need not ask for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Each as `host:port`.
    hosts: Vec<String>,
    /// A user and a password, or a token.
    secret: Option<(String, Option<String>)>,
    /// Whether the connection is encrypted whatever the server says.
    pub(crate) is_tls: bool,
    /// The name of the stream.
    pub stream: String,
}

/// How addresses start.
const PLAIN: &str = "nats://";
const TLS: &str = "nats+tls://";

/// The port that servers listen on.
const PORT: &str = "4222";

const EXPECTED: &str =
    "expected nats://HOST[:PORT][,HOST[:PORT]…]/STREAM, where STREAM has letters, digits, - and _ only";

impl Address {
    /// Whether a text is meant to be one.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(PLAIN) || text.starts_with(TLS)
    }

    /// The servers, as the client wants them.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.hosts.iter().map(|host| format!("nats://{host}")).collect()
    }

    /// A user and a password, or a token alone.
    pub(crate) fn secret(&self) -> Option<(&str, Option<&str>)> {
        self.secret.as_ref().map(|(user, password)| (user.as_str(), password.as_deref()))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_tls, rest) = match (text.strip_prefix(PLAIN), text.strip_prefix(TLS)) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(EXPECTED.into()),
        };
        let (rest, stream) = rest.rsplit_once('/').ok_or(EXPECTED)?;
        let (secret, hosts) = match rest.rsplit_once('@') {
            Some((secret, hosts)) => (Some(secret), hosts),
            None => (None, rest),
        };
        let secret = secret.map(|secret| match secret.split_once(':') {
            Some((user, password)) => (user.to_string(), Some(password.to_string())),
            None => (secret.to_string(), None),
        });
        let hosts = hosts.split(',').map(|host| {
            let name_end = host.rfind(']').map_or(0, |end| end + 1);
            let has_port = host.get(name_end..).is_some_and(|rest| rest.contains(':'));
            if host.is_empty() || host.starts_with(':') || host.contains(['/', ' ', '?', '#']) {
                return Err(EXPECTED.to_string());
            }
            let host = if has_port { host.to_string() } else { format!("{host}:{PORT}") };
            let port = host.rsplit(':').next().unwrap_or_default();
            match port.parse::<u16>() {
                Ok(1..) => Ok(host),
                _ => Err(format!("{port:?} is no port: expected a number from 1 to 65535")),
            }
        });
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if stream.is_empty() || stream.len() > 200 || !stream.bytes().all(is_name) {
            return Err(EXPECTED.into());
        }
        Ok(Self { hosts, secret, is_tls, stream: stream.into() })
    }
}

/// Without the secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = if self.is_tls { TLS } else { PLAIN };
        write!(f, "{start}{}/{}", self.hosts.join(","), self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_without_secrets() {
        for (text, written) in [
            ("nats://a/T", "nats://a:4222/T"),
            ("nats://a:1,b,[::1]:3/T-1_x", "nats://a:1,b:4222,[::1]:3/T-1_x"),
            ("nats+tls://me:p:w@[::1]/T", "nats+tls://[::1]:4222/T"),
            ("nats://token@a/T", "nats://a:4222/T"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), written);
            assert!(Address::is_one(text));
        }
        let address: Address = "nats://me:p:w@a/T".parse().expect("good");
        assert_eq!(address.secret(), Some(("me", Some("p:w"))));
        for text in
            ["nats://", "nats://a", "nats:///T", "nats://a/", "nats://a/T.x", "nats://a/T>", "nats://a:x/T", "a/T"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        for (text, port) in [("nats://a:99999/T", "99999"), ("nats://a,b:0/T", "0"), ("nats://[::1]:x/T", "x")] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.starts_with(&format!("{port:?} is no port")), "{text}: {error}");
        }
    }
}
