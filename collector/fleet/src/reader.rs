//! Reading the messages of one session in their order.

use std::time::Duration;

use async_nats::jetstream::{
    Message,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
    stream::LastRawMessageErrorKind,
};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::{FleetError, Link};

/// How many messages are asked for at a time.
const PULL: usize = 64;

/// How long a server waits for the first of them.
const PULL_TIME: Duration = Duration::from_secs(1);

/// How long it may take beyond that to say that there are none.
const GRACE: Duration = Duration::from_secs(2);

/// How long is waited before a reader that failed starts anew.
const RETRY_TIME: Duration = Duration::from_millis(250);

/// After how much silence a server forgets a reader: those of a recorder that was killed, and those that were lost with a server.
/// One that lives asks every second, unless its disk is full; it starts anew then.
const FORGET_TIME: Duration = Duration::from_secs(30);

/// Reads the messages of a session. It starts anew behind the last one whenever a server or the connection fails.
pub(crate) struct Reader {
    link: Link,
    subject: String,
    /// The first message of the stream that has not been read.
    next: u64,
    consumer: Option<PullConsumer>,
    /// What the consumer calls the next message.
    number: u64,
    batch: Option<pull::Batch>,
    /// When the stream was made that is read, in nanoseconds since 1970.
    made: Option<i128>,
    /// Whether the stream is another than before, and that has not been told.
    is_anew: bool,
    /// Whether it could not be read, and that has not been told.
    has_failed: bool,
}

impl Reader {
    /// A reader of the messages with this subject, from this one of the stream on.
    pub(crate) fn new(link: Link, subject: String, next: u64) -> Self {
        Self {
            link,
            subject,
            next,
            consumer: None,
            number: 1,
            batch: None,
            made: None,
            is_anew: false,
            has_failed: false,
        }
    }

    /// The last message that was read, by its number in the stream.
    pub(crate) fn last(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Whether the stream was removed and made anew since this was last asked: its numbers start again.
    pub(crate) fn starts_anew(&mut self) -> bool {
        std::mem::take(&mut self.is_anew)
    }

    /// Whether the stream could not be read since this was last asked.
    pub(crate) fn has_failed(&mut self) -> bool {
        std::mem::take(&mut self.has_failed)
    }

    /// Reads again from this message of the stream on, perhaps from another server.
    pub(crate) fn look_again(&mut self, next: u64) {
        (self.next, self.consumer, self.batch) = (next.max(1), None, None);
    }

    /// Whether the stream has a message of the session behind the last one that was read. None where nobody answers.
    pub(crate) async fn is_behind(&self) -> Option<bool> {
        let stream = self.link.stream().await.ok()?;
        match stream.get_last_raw_message_by_subject(&self.subject).await {
            Ok(last) => Some(last.sequence > self.last()),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Some(false),
            Err(_) => None,
        }
    }

    /// The next message; none if there is none for a while. May be dropped while it waits, without a loss.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        match self.try_next().await {
            Ok(message) => message,
            Err(error) => {
                debug!("reading {}: {error}", self.subject);
                (self.consumer, self.batch, self.has_failed) = (None, None, true);
                sleep(RETRY_TIME).await;
                None
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<Message>, FleetError> {
        if self.batch.is_none() {
            let consumer = self.consumer().await?;
            let batch = consumer.batch().max_messages(PULL).expires(PULL_TIME).messages().await;
            self.batch = Some(batch.map_err(|error| FleetError::of("cannot ask for messages", &error))?);
        }
        let Some(batch) = &mut self.batch else { return Ok(None) };
        let message = match timeout(PULL_TIME + GRACE, batch.next()).await {
            Ok(Some(message)) => message.map_err(|error| FleetError::of("cannot receive messages", &*error))?,
            Ok(None) => {
                self.batch = None;
                return Ok(None);
            }
            Err(_) => return Err(FleetError::new("the server says nothing")),
        };
        let info = message.info().map_err(|error| FleetError::of("a message has no number", &*error))?;
        if info.consumer_sequence != self.number {
            return Err(FleetError::new("a message was left out"));
        }
        self.number += 1;
        self.next = info.stream_sequence + 1;
        Ok(Some(message))
    }

    async fn consumer(&mut self) -> Result<&PullConsumer, FleetError> {
        if self.consumer.is_none() {
            let stream = self.link.stream().await?;
            let info = stream.get_info().await.map_err(|error| FleetError::of("cannot look at the stream", &error))?;
            let made = info.created.unix_timestamp_nanos();
            let is_another = self.made.replace(made).is_some_and(|before| before != made);
            if is_another || info.state.last_sequence < self.last() {
                warn!("the stream {} was removed and made anew: what was in it is lost", self.link.address.stream);
                (self.next, self.is_anew) = (1, true);
            }
            let config = pull::Config {
                filter_subject: self.subject.clone(),
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next.max(1) },
                ack_policy: AckPolicy::None,
                inactive_threshold: FORGET_TIME,
                memory_storage: true,
                num_replicas: 1,
                ..pull::Config::default()
            };
            let consumer = stream.create_consumer(config).await;
            self.consumer = Some(consumer.map_err(|error| FleetError::of("cannot read the stream", &error))?);
            self.number = 1;
        }
        self.consumer.as_ref().ok_or_else(|| FleetError::new("there is no reader"))
    }

    /// Tells the server that nothing more is read.
    pub(crate) async fn close(self) {
        if let (Some(consumer), Ok(stream)) = (&self.consumer, self.link.stream().await) {
            // It forgets it by itself otherwise.
            _ = stream.delete_consumer(&consumer.cached_info().name).await;
        }
    }
}
