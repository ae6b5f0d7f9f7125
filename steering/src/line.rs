//! The words between who asks and who answers, over a socket on this machine.
//!
//! Each connection is one request, in a line: whom it is for, a word, and what it is about. The answer is a word and, behind a
//! space, an object or a text, up to the end of the connection.

use std::{
    fmt, fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use codec::profile::MAX_REQUEST_BYTES;

/// The longest line, with whom it is for, and the longest answer that is read.
const MOST_LINE_BYTES: u64 = MAX_REQUEST_BYTES as u64 + 256;
const MOST_ANSWER_BYTES: u64 = 16 << 20;

/// How long somebody who has connected may take to ask, and to listen.
const PATIENCE: Duration = Duration::from_secs(2);

/// What answers begin with.
const DONE: &str = "done";
const REFUSED: &str = "refused";
const UNKNOWN: &str = "unknown";

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It was done, and this came of it.
    Done(String),
    /// It cannot be done, for this reason.
    Refused(String),
    /// Whoever was asked knows nothing of whom it is for. Others may.
    Unknown,
}

impl Reply {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end();
        match text.split_once(' ').unwrap_or((text, "")) {
            (DONE, text) => Some(Self::Done(text.into())),
            (REFUSED, why) => Some(Self::Refused(why.into())),
            (UNKNOWN, _) => Some(Self::Unknown),
            _ => None,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(text) => write!(f, "{DONE} {text}"),
            Self::Refused(why) => write!(f, "{REFUSED} {why}"),
            Self::Unknown => f.write_str(UNKNOWN),
        }
    }
}

/// Asks who is at a socket, and waits for the answer for so long. None where nobody is there any more: a socket that was left
/// behind is removed.
pub fn ask(socket: &Path, request: &str, patience: Duration) -> io::Result<Option<Reply>> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            // Whose it was has been killed.
            let _ = fs::remove_file(socket);
            return Ok(None);
        }
        // It has just ended.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    writeln!(stream, "{request}")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(MOST_ANSWER_BYTES).read_to_string(&mut answer).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            io::Error::new(ErrorKind::TimedOut, format!("nothing within {} s", patience.as_secs()))
        }
        _ => error,
    })?;
    let nothing = || io::Error::new(ErrorKind::UnexpectedEof, "it ended before it answered");
    Reply::parse(&answer).map(Some).ok_or_else(nothing)
}

/// Answers one request, of this user or of root. Others are not answered.
pub fn serve(mut stream: &UnixStream, answer: impl FnOnce(&str) -> Option<Reply>) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if peer != rustix::process::geteuid() && !peer.is_root() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_LINE_BYTES)).read_line(&mut line)?;
    let reply = match line.strip_suffix('\n') {
        Some(request) => answer(request),
        // A part of it would be something else.
        None => Some(Reply::Refused("the request is too long".into())),
    };
    match reply {
        Some(reply) => writeln!(stream, "{reply}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn answered(request: &str) -> (String, String) {
        let (mut one, other) = UnixStream::pair().expect("a pair");
        let mut asked = String::new();
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                serve(&other, |line| {
                    asked = line.into();
                    Some(Reply::Done("fine".into()))
                })
            });
            // What is not read is refused.
            let _ = one.write_all(request.as_bytes());
            let _ = one.shutdown(Shutdown::Write);
            let _ = serving.join();
        });
        drop(other);
        let mut answer = String::new();
        let _ = one.read_to_string(&mut answer);
        (asked, answer)
    }

    #[test]
    fn a_request_is_answered_whole_or_not_at_all() {
        assert_eq!(answered("5 level off a b\n"), ("5 level off a b".into(), "done fine\n".into()));
        let long = format!("5 level off {}\n", "a".repeat(5_000));
        for wrong in ["5 level off a", "", &long] {
            let (asked, answer) = answered(wrong);
            assert_eq!(asked, "", "nothing is done");
            assert!(answer.is_empty() || answer.starts_with("refused "), "{answer}");
        }
    }

    #[test]
    fn answers_read_as_they_are_written() {
        for reply in [Reply::Done("{\"a\": 1}".into()), Reply::Refused("no".into()), Reply::Unknown] {
            assert_eq!(Reply::parse(&format!("{reply}\n")), Some(reply));
        }
        assert_eq!((Reply::parse(""), Reply::parse("perhaps so")), (None, None));
    }
}
