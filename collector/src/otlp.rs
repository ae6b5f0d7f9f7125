//! Spans on their way to a receiver of OpenTelemetry, over HTTP or gRPC.

mod answer;
mod client;
mod endpoint;
mod environment;
mod fields;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use sinks::{OtlpOptions, SinkError};
use tracing::{error, info};

pub(crate) use endpoint::Endpoint;
use environment::Environment;

use self::{
    answer::{Answer, Trouble},
    client::Client,
};
use crate::{
    notices::Notices,
    quantity::{count, counted},
};

/// How long is waited before a request is sent again: twice as long each time, up to a limit.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A receiver may ask for more, but not for any time.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// What became of spans. Each number is read alone.
#[derive(Debug, Default)]
pub(crate) struct OtlpCounters {
    /// Spans that were made to be sent.
    pub(crate) made: AtomicU64,
    /// Those that the receiver has.
    pub(crate) accepted: AtomicU64,
    /// Those that it did not take, and will not.
    pub(crate) refused: AtomicU64,
    /// Requests that were sent again.
    pub(crate) retries: AtomicU64,
}

impl OtlpCounters {
    /// Spans that are on their way.
    pub(crate) fn waiting(&self) -> u64 {
        let settled = self.accepted.load(Relaxed).saturating_add(self.refused.load(Relaxed));
        self.made.load(Relaxed).saturating_sub(settled)
    }

    /// Says what became of all spans, when nothing more is sent. What was not given to the sink, since it was full, it
    /// has never counted.
    pub(crate) fn tell(&self, sink: &str, not_given: u64) {
        let (refused, given_up) = (self.refused.load(Relaxed), self.waiting());
        let sent = count(self.accepted.load(Relaxed));
        if refused == 0 && given_up == 0 && not_given == 0 {
            return info!("sink {sink}: {sent} spans sent");
        }
        let (refused, given_up, not_given) = (count(refused), count(given_up), count(not_given));
        error!(
            "sink {sink}: {sent} spans sent, {refused} refused by the receiver, {given_up} given up, {not_given} not given \
             to it while it was full"
        );
    }
}

/// What is to be exported, as the arguments and the environment say it.
pub(crate) fn options(min: Duration) -> Result<OtlpOptions, SinkError> {
    environment::options(min).map_err(wrong)
}

fn wrong(error: anyhow::Error) -> SinkError {
    SinkError::from_io("the environment", io::Error::other(format!("{error:#}")))
}

/// Sends requests, each until it is answered. It is written to by the thread in the background, a request at a time.
pub(crate) struct Exporter {
    sink: String,
    client: Client,
    counters: Arc<OtlpCounters>,
    notices: Arc<Notices>,
    /// What has been said to be wrong, and is.
    trouble: Option<Trouble>,
}

impl Exporter {
    /// As the environment says it, which is checked before anything is sent.
    pub(crate) fn new(
        sink: &str,
        endpoint: &Endpoint,
        counters: &Arc<OtlpCounters>,
        notices: &Arc<Notices>,
    ) -> Result<Self, SinkError> {
        let environment = Environment::read().map_err(wrong)?;
        let client = Client::new(endpoint, environment).map_err(wrong)?;
        let (counters, notices) = (Arc::clone(counters), Arc::clone(notices));
        Ok(Self { sink: sink.into(), client, counters, notices, trouble: None })
    }

    /// Says what is wrong, once until something else is.
    fn complain(&mut self, trouble: Trouble) {
        if self.trouble.as_ref().is_none_or(|said| said.kind != trouble.kind) {
            self.notices.warn(format_args!("sink {}: {}", self.sink, trouble.what));
        }
        self.trouble = Some(trouble);
    }

    fn is_well(&mut self) {
        if self.trouble.take().is_some() {
            let refused = self.counters.refused.load(Relaxed);
            let lost = if refused > 0 { format!("; {} refused", counted(refused, "span")) } else { String::new() };
            self.notices.say(format_args!("sink {}: works again{lost}", self.sink));
        }
    }

    fn export(&mut self, spans: u64, request: &[u8]) {
        let body = self.client.encode(request);
        let mut wait = FIRST_WAIT;
        loop {
            match self.client.send(body.clone()) {
                Answer::Accepted { rejected, trouble } => {
                    let rejected = rejected.min(spans);
                    self.counters.refused.fetch_add(rejected, Relaxed);
                    self.counters.accepted.fetch_add(spans - rejected, Relaxed);
                    match trouble {
                        Some(trouble) => self.complain(trouble),
                        None => self.is_well(),
                    }
                    return;
                }
                Answer::Refused(trouble) => {
                    self.counters.refused.fetch_add(spans, Relaxed);
                    return self.complain(trouble);
                }
                Answer::Later { after, trouble } => {
                    self.complain(trouble);
                    self.counters.retries.fetch_add(1, Relaxed);
                    thread::sleep(after.map_or_else(|| jittered(wait), |after| after.min(LONGEST_ASKED)));
                    wait = LONGEST_WAIT.min(wait * 2);
                }
            }
        }
    }
}

impl Write for Exporter {
    /// Takes a request whole: how many spans are in it, and its bytes.
    fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
        if let Some((spans, request)) = batch.split_first_chunk() {
            self.export(u32::from_be_bytes(*spans).into(), request);
        }
        Ok(batch.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the spans that go into the background.
pub(crate) struct Counted<W>(pub(crate) W, pub(crate) Arc<OtlpCounters>);

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
        if let Some((spans, _)) = batch.split_first_chunk() {
            self.1.made.fetch_add(u32::from_be_bytes(*spans).into(), Relaxed);
        }
        self.0.write(batch)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Somewhere between half of a time and the whole of it, so that many who wait do not come back at once.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    wait / 2 + wait.mul_f64(random as f64 / 2000.0)
}
