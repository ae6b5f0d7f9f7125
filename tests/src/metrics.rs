//! The collector's numbers, in the text format of Prometheus.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Every series and its value.
#[derive(Debug, Clone, Default)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Asks for the numbers over HTTP.
    pub fn fetch(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream
            .write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split_whitespace().nth(1) {
            Some("200") => Ok(Self::parse(body)),
            _ => Err(io::Error::other(format!("the answer was {head:?}"))),
        }
    }

    /// Reads the text format.
    fn parse(text: &str) -> Self {
        let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.trim().rsplit_once(' ')?;
            Some((name.to_string(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// The sum over all series of this name, whatever their labels; `None` where there is no such series.
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.sum_of(|series, _| series == name)
    }

    /// The sum over the series of this name that have this label.
    pub fn labelled(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let wanted = format!("{label}=\"{value}\"");
        self.sum_of(|series, labels| series == name && labels.contains(&wanted))
    }

    fn sum_of(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Option<f64> {
        let wanted = self.0.iter().filter(|(series, _)| {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            is_wanted(name, labels)
        });
        wanted.map(|(_, value)| *value).reduce(|sum, value| sum + value)
    }
}
