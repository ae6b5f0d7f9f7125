//! Whether the collector can be reached.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::Finding::{self, Bad, Good};
use crate::settings::Collector;

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn check(name: &str) -> Finding {
    let collector = match Collector::resolve(name) {
        Ok(collector) => collector,
        Err(message) => return Bad(message),
    };
    let mut why = String::new();
    for address in &collector.addresses {
        match TcpStream::connect_timeout(address, PATIENCE) {
            Ok(_) => return Good(format!("{address} answers over TCP; whether UDP gets through, only a trace shows")),
            Err(error) => why = reason(address, error.kind(), &error.to_string()),
        }
    }
    Bad(why)
}

fn reason(address: &SocketAddr, kind: ErrorKind, text: &str) -> String {
    let remedy = match kind {
        ErrorKind::ConnectionRefused => "is a collector running there? `collector --listen 0.0.0.0:7000` starts one",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "does a firewall drop what is sent there?",
        _ => "is there a way to that network?",
    };
    format!("{address} cannot be reached: {text} ({remedy})")
}
