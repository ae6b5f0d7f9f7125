//! All counters as Prometheus text, over HTTP.

use std::{
    fmt::{Display, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use crate::{otlp::OtlpCounters, receiver::Receiver, recorder::SinkCounters};

/// How many may ask at a time.
const ASKERS: usize = 16;

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest request that is read.
const MAX_REQUEST: usize = 8 << 10;

/// Answers for ever.
pub(crate) async fn serve(receiver: Arc<Receiver>, listener: TcpListener) {
    let askers = Arc::new(Semaphore::new(ASKERS));
    loop {
        let Ok(permit) = askers.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let receiver = receiver.clone();
                tokio::spawn(async move {
                    // Whoever asks badly or leaves early gets no answer.
                    _ = timeout(PATIENCE, answer(&receiver, stream)).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn answer(receiver: &Receiver, mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await? {
            0 => break,
            read => request.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        }
    }
    let found = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, body) = if found { ("200 OK", text(receiver)) } else { ("404 Not Found", "see /metrics\n".into()) };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// All counters.
pub(crate) fn text(receiver: &Receiver) -> String {
    let (ledger, core) = (&receiver.ledger, receiver.ledger.core());
    let mut text = Text::default();
    text.gauge("sessions_open", "Sessions that have not ended.", core.sessions_open);
    text.counter("sessions_total", "Sessions that have started.", core.sessions);
    text.gauge("streams_open", "Streams of all open sessions.", core.streams_now);
    text.counter("events_produced_total", "Events settled: written and missing.", core.produced());
    text.counter("events_written_total", "Events passed on to the sinks.", core.written);
    text.family("events_missing_total", "counter", "Events missing, by cause.");
    for (cause, count) in &core.missing {
        text.sample("events_missing_total", &[("cause", &cause.to_string())], count);
    }
    text.counter("events_late_total", "Events that arrived after their gap was declared.", core.late);
    text.counter("options_late_total", "Options that arrived after their session ended.", core.late_options);
    text.counter("events_duplicate_total", "Events that arrived again.", core.duplicates);
    text.counter("events_untaken_total", "Events not taken while the recorders had no room.", core.untaken);
    text.counter("stream_restarts_total", "Counters that started anew.", core.restarts);
    text.counter("options_total", "Option packets that arrived.", core.options);
    text.counter("bad_options_total", "Options of the profile that could not be read.", core.bad_options);
    text.counter("datagrams_total", "Datagrams that arrived.", core.datagrams);
    text.counter("bad_datagrams_total", "Datagrams that could not be read to their end.", core.bad_datagrams);
    text.counter("skipped_bytes_total", "Bytes that were no packets.", core.skipped_bytes);
    text.counter("replies_total", "Acknowledgements and requests sent.", core.replies);
    text.gauge("held_bytes", "Bytes of events that wait for missing ones.", core.held_bytes_now);
    text.family("received_bytes_total", "counter", "Bytes that arrived.");
    for (transport, bytes) in [
        ("udp", &ledger.udp_bytes),
        ("tcp", &ledger.tcp_bytes),
        ("tls", &ledger.tls_bytes),
        ("quic", &ledger.quic_bytes),
        ("nats", &ledger.nats_bytes),
    ] {
        text.sample("received_bytes_total", &[("transport", transport)], bytes.load(Relaxed));
    }
    text.counter("receive_errors_total", "Times that receiving failed.", ledger.receive_errors.load(Relaxed));
    text.gauge("connections_open", "Open connections.", ledger.connections_open.load(Relaxed));
    text.counter("connections_total", "Connections accepted, TCP and QUIC.", ledger.connections.load(Relaxed));
    text.gauge("catalog_bytes", "Memory for names.", ledger.catalog_bytes.load(Relaxed));
    refused(&mut text, receiver);
    sinks(&mut text, receiver);
    text.0
}

fn refused(text: &mut Text, receiver: &Receiver) {
    let (ledger, core) = (&receiver.ledger, receiver.ledger.core());
    let catalogs = &core.refused_by_catalogs;
    text.family("refused_total", "counter", "What was refused: for a limit, or because a sender may not send.");
    let counts = [
        ("sessions", core.refused_sessions),
        ("claims", core.refused_claims),
        ("session_events", core.refused_session_events),
        ("datagrams", core.refused_datagrams),
        ("streams", core.refused_stream_events),
        ("connections", ledger.connections_refused.load(Relaxed)),
        ("plain_senders", ledger.refusals.plain.load(Relaxed)),
        ("encrypted_senders", ledger.refusals.encrypted.load(Relaxed)),
        ("handshakes", ledger.refusals.handshakes.load(Relaxed)),
        ("tokens", ledger.refusals.tokens.load(Relaxed)),
        ("functions", catalogs.functions),
        ("modules", catalogs.modules),
        ("threads", catalogs.threads),
        ("options", catalogs.others),
        ("name_ends", catalogs.names_cut),
    ];
    for (what, count) in counts {
        text.sample("refused_total", &[("what", what)], count);
    }
}

fn sinks(text: &mut Text, receiver: &Receiver) {
    let sinks = &receiver.ledger.sinks;
    let mut each = |name: &str, kind: &str, help: &str, value: &dyn Fn(&SinkCounters) -> u64| {
        text.family(name, kind, help);
        for (sink, counters) in sinks {
            text.sample(name, &[("sink", sink)], value(counters));
        }
    };
    each("sink_queue_bytes", "gauge", "Bytes that wait for a sink.", &|sink| receiver.ledger.waiting_bytes(sink));
    each("sink_events_total", "counter", "Events that a sink took.", &|sink| sink.events.load(Relaxed));
    each("sink_spans_total", "counter", "Spans that a sink took, notices of open ones included.", &|sink| {
        sink.spans.load(Relaxed)
    });
    each("sink_lost_spans_total", "counter", "Spans that a sink was not given, or could not keep.", &|sink| {
        sink.lost_spans.load(Relaxed)
    });
    each("sink_errors_total", "counter", "Calls of a sink that failed.", &|sink| sink.errors.load(Relaxed));
    each("sink_lost_option_bytes_total", "counter", "Options that a sink was not given, in bytes.", &|sink| {
        sink.lost_option_bytes.load(Relaxed)
    });
    each("sink_closed", "gauge", "Whether nobody reads a sink any more.", &|sink| sink.closed.load(Relaxed).into());
    text.family("sink_lost_events_total", "counter", "Events that a sink does not have.");
    for (sink, counters) in sinks {
        text.sample("sink_lost_events_total", &[("sink", sink)], receiver.ledger.lost_by(sink, counters));
    }
    let otlps = &receiver.ledger.otlps;
    let mut sent = |name: &str, kind: &str, help: &str, value: &dyn Fn(&OtlpCounters) -> u64| {
        text.family(name, kind, help);
        for (sink, counters) in otlps {
            text.sample(name, &[("sink", sink)], value(counters));
        }
    };
    sent("otlp_waiting_spans", "gauge", "Spans on their way to an OTLP receiver.", &OtlpCounters::waiting);
    sent("otlp_accepted_spans_total", "counter", "Spans that an OTLP receiver took.", &|otlp| {
        otlp.accepted.load(Relaxed)
    });
    sent("otlp_refused_spans_total", "counter", "Spans that an OTLP receiver refused.", &|otlp| {
        otlp.refused.load(Relaxed)
    });
    sent("otlp_retries_total", "counter", "Requests to an OTLP receiver that were sent again.", &|otlp| {
        otlp.retries.load(Relaxed)
    });
    if let Some(archive) = receiver.ledger.archive.get() {
        for (name, kind, help, count) in [
            ("archive_sessions_total", "counter", "Sessions that were archived.", &archive.sessions),
            ("archive_bytes_total", "counter", "Bytes that were sent to the archive.", &archive.bytes),
            ("archive_failures_total", "counter", "Times that a session could not be archived.", &archive.failures),
            (
                "archive_gone_sessions_total",
                "counter",
                "Sessions that were gone before they were archived.",
                &archive.gone,
            ),
            ("archive_waiting_sessions", "gauge", "Sessions that the archive has not taken.", &archive.waiting),
        ] {
            text.family(name, kind, help);
            text.sample(name, &[], count.load(Relaxed));
        }
    }
    let disks = &receiver.ledger.disks;
    text.family("disk_written_bytes_total", "counter", "Bytes written to files.");
    for (sink, disk) in disks {
        text.sample("disk_written_bytes_total", &[("sink", sink)], disk.bytes_written.get());
    }
    text.family("disk_lost_events_total", "counter", "Events that could not be written to disk.");
    for (sink, disk) in disks {
        text.sample("disk_lost_events_total", &[("sink", sink)], disk.lost_events.get());
    }
    text.family("disk_removed_bytes_total", "counter", "Bytes of sessions removed to keep within --max-bytes.");
    for (sink, disk) in disks {
        text.sample("disk_removed_bytes_total", &[("sink", sink)], disk.removed_bytes.get());
    }
}

/// Prometheus' text format, with the prefix of all our names.
#[derive(Debug, Default)]
struct Text(String);

impl Text {
    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = write!(self.0, "# HELP spoor_{name} {help}\n# TYPE spoor_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        _ = write!(self.0, "spoor_{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            _ = write!(self.0, "{}{label}=\"{text}\"", if index == 0 { "{" } else { "," });
        }
        _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}
