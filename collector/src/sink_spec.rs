//! Sinks as they are named on the command line.

use std::{fmt, path::PathBuf, str::FromStr};

use fleet::Address;
use sinks::SpansWhen;

use crate::otlp::Endpoint;

/// A sink and how to treat it: `disk:DIR`, `disk:DIR,spans=live`, `disk:DIR,spans=no`, `stdout:events`, `stdout:spans`, `stdout:heph`,
/// `heph:FILE`, `heph:FILE,compat`, `perfetto:FILE`, `chrome:FILE`, `otlp:URL`, `otlp+grpc:URL`, `nats://HOST/STREAM`, each with
/// `,on-full=block` or `,on-full=drop` behind it if wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SinkSpec {
    pub(crate) target: Target,
    pub(crate) on_full: Option<OnFull>,
}

/// Where a sink writes, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Disk { dir: PathBuf, spans: SpansWhen },
    StdoutEvents,
    StdoutSpans,
    StdoutHeph,
    Heph { file: PathBuf, compat: bool },
    Perfetto(PathBuf),
    Chrome(PathBuf),
    Nats(Address),
    Otlp(Endpoint),
}

/// What to do when a sink's queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFull {
    /// Wait for it.
    Block,
    /// Leave events out, and say so.
    Drop,
}

impl OnFull {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Drop => "drop",
        }
    }
}

/// What says of a directory when spans are to be written to it.
const SPANS: &str = ",spans=";

const EXPECTED: &str = "expected disk:DIR, disk:DIR,spans=live, disk:DIR,spans=after, disk:DIR,spans=no, stdout:events, \
                        stdout:spans, stdout:heph, heph:FILE, heph:FILE,compat, perfetto:FILE, chrome:FILE, \
                        otlp:http://HOST:4318, otlp+grpc:http://HOST:4317 or nats://HOST[:PORT]/STREAM";

impl FromStr for SinkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut text, mut on_full) = (text, None);
        for choice in [OnFull::Block, OnFull::Drop] {
            if let Some(rest) = text.strip_suffix(&format!(",on-full={}", choice.name())) {
                (text, on_full) = (rest, Some(choice));
            }
        }
        if text.contains(",on-full=") || (text.starts_with("disk:") && text.ends_with(",compat")) {
            return Err("expected ,on-full=block or ,on-full=drop at the end; ,compat is for heph: alone".into());
        }
        if Address::is_one(text) {
            if on_full == Some(OnFull::Drop) {
                return Err("a nats: sink drops nothing: agents keep what it does not take".into());
            }
            return Ok(Self { target: Target::Nats(text.parse()?), on_full: Some(OnFull::Block) });
        }
        let target = match text.split_once(':') {
            Some(("disk", dir)) => {
                let (dir, spans) = match dir.rsplit_once(SPANS) {
                    Some((dir, name)) => (dir, SpansWhen::ALL.into_iter().find(|when| when.name() == name)),
                    None => (dir, Some(SpansWhen::default())),
                };
                let spans = spans.filter(|_| !dir.is_empty()).ok_or(EXPECTED)?;
                Target::Disk { dir: dir.into(), spans }
            }
            Some(("perfetto", file)) if !file.is_empty() => Target::Perfetto(file.into()),
            Some(("chrome", file)) if !file.is_empty() => Target::Chrome(file.into()),
            Some((name @ ("otlp" | "otlp+grpc"), url)) => Target::Otlp(Endpoint::parse(name != "otlp", url)?),
            Some(("stdout", "spans")) => Target::StdoutSpans,
            Some(("heph", file)) if !file.is_empty() && file != ",compat" => match file.strip_suffix(",compat") {
                Some(file) => Target::Heph { file: file.into(), compat: true },
                None => Target::Heph { file: file.into(), compat: false },
            },
            Some(("stdout", "events")) => Target::StdoutEvents,
            Some(("stdout", "heph")) => Target::StdoutHeph,
            None if text == "stdout" => Target::StdoutEvents,
            _ => return Err(EXPECTED.into()),
        };
        Ok(Self { target, on_full })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { dir, spans } if *spans == SpansWhen::default() => write!(f, "disk:{}", dir.display()),
            Self::Disk { dir, spans } => write!(f, "disk:{}{SPANS}{}", dir.display(), spans.name()),
            Self::StdoutSpans => f.write_str("stdout:spans"),
            Self::Perfetto(file) => write!(f, "perfetto:{}", file.display()),
            Self::Chrome(file) => write!(f, "chrome:{}", file.display()),
            Self::Otlp(endpoint) => endpoint.fmt(f),
            Self::StdoutEvents => f.write_str("stdout:events"),
            Self::StdoutHeph => f.write_str("stdout:heph"),
            Self::Heph { file, compat: false } => write!(f, "heph:{}", file.display()),
            Self::Heph { file, compat: true } => write!(f, "heph:{},compat", file.display()),
            Self::Nats(address) => address.fmt(f),
        }
    }
}

impl Target {
    /// Whether it is on a disk.
    pub(crate) fn is_file(&self) -> bool {
        !self.is_stdout() && !self.is_otlp() && !matches!(self, Self::Nats(_))
    }

    /// Whether it sends spans to a receiver of OpenTelemetry.
    pub(crate) fn is_otlp(&self) -> bool {
        matches!(self, Self::Otlp(_))
    }

    /// Whether it writes to standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Self::StdoutEvents | Self::StdoutSpans | Self::StdoutHeph)
    }

    /// Whether it writes spans as they are made.
    pub(crate) fn wants_spans(&self) -> bool {
        match self {
            Self::Disk { spans, .. } => *spans == SpansWhen::Live,
            Self::StdoutSpans | Self::Perfetto(_) | Self::Chrome(_) | Self::Otlp(_) => true,
            Self::StdoutEvents | Self::StdoutHeph | Self::Heph { .. } | Self::Nats(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_and_written() {
        for text in [
            "disk:./traces",
            "disk:a,spans=no",
            "disk:a,spans=live",
            "stdout:events",
            "stdout:spans",
            "stdout:heph",
            "heph:a b.heph",
            "heph:x,y,compat",
            "disk:a:b",
            "perfetto:trace.pftrace",
            "chrome:trace.json",
            "otlp:http://localhost:4318",
            "otlp+grpc:https://[::1]:4317",
        ] {
            let spec: SinkSpec = text.parse().expect(text);
            assert_eq!((spec.target.to_string().as_str(), spec.on_full), (text, None));
            let spec: SinkSpec = format!("{text},on-full=drop").parse().expect(text);
            assert_eq!((spec.target.to_string().as_str(), spec.on_full), (text, Some(OnFull::Drop)));
        }
        assert_eq!("stdout".parse::<SinkSpec>().map(|spec| spec.target), Ok(Target::StdoutEvents));
        for text in [
            "",
            "disk",
            "disk:",
            "heph:",
            "heph:,compat",
            "perfetto:",
            "chrome:",
            "otlp:",
            "otlp:localhost:4318",
            "disk:,spans=no",
            "disk:a,spans=maybe",
            "tape:x",
            "disk:x,on-full=maybe",
            "disk:x,compat",
        ] {
            assert!(text.parse::<SinkSpec>().is_err(), "{text}");
        }
    }
}
