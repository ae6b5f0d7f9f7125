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
    pub fn parse(text: &str) -> Self {
        let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.trim().rsplit_once(' ')?;
            Some((name.to_string(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// The sum over all series of this name, whatever their labels; `None` where there is no such series.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let of = |series: &str| series.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
        let values: Vec<f64> = self.0.iter().filter(|(series, _)| of(series)).map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The sum over the series of this name that have this label.
    pub fn labelled(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let wanted = format!("{label}=\"{value}\"");
        let of =
            |series: &str| series.split_once('{').is_some_and(|(is, labels)| is == name && labels.contains(&wanted));
        let values: Vec<f64> = self.0.iter().filter(|(series, _)| of(series)).map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The series, for a message.
    pub fn series(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(series, value)| (series.as_str(), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_label() {
        let metrics = Metrics::parse(
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{kind=\"x\",b=\"1\"} 2\na_total{kind=\"y\"} 3\na_totals 9\nb 1.5\n",
        );
        assert_eq!(metrics.sum("a_total"), Some(5.0));
        assert_eq!(metrics.labelled("a_total", "kind", "x"), Some(2.0));
        assert_eq!(metrics.labelled("a_total", "kind", "z"), None);
        assert_eq!((metrics.sum("b"), metrics.sum("c")), (Some(1.5), None));
        assert_eq!(metrics.series().count(), 4);
    }
}
