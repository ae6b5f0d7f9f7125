//! Handing sessions on to JetStream.

use std::{
    collections::{HashMap, VecDeque},
    error::Error,
    io,
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use async_nats::{
    HeaderMap,
    jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind},
};
use bytes::Bytes;
use codec::{
    SessionId,
    heph::{MAX_PACKET_BYTES, Packets},
};
use sinks::{Batch, Ended, Gap, Session, Sink, SinkError, packets};
use tokio::{
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

use crate::{Access, Address, FleetError, Keeping, Link, Record, link::ANSWER_TIME, turns};

/// How large messages get. Pulls of many larger ones stall.
const MESSAGE_BYTES: usize = 60 << 10;

/// How many bytes may be underway without an acknowledgement.
const WINDOW_BYTES: u64 = 8 << 20;
const WINDOWS_PER_STREAM: u64 = 8;

/// How often it is looked whether the stream is full: before an eighth of it can have come, at this many bytes a second.
const MOST_RATE: u64 = 250_000_000;
const LEAST_LOOK_TIME: Duration = Duration::from_millis(100);
const MOST_LOOK_TIME: Duration = Duration::from_secs(2);

/// How long events may wait for others to make a message with.
const LINGER: Duration = Duration::from_millis(50);

/// How often a session that has nothing but its progress to tell does so.
const PROGRESS_TIME: Duration = Duration::from_secs(1);

/// After how much silence recorders may have left a session.
const SILENCE: Duration = Duration::from_secs(20);

/// What a message has that ends a session without a name, and how it ended.
pub(crate) const END_HEADER: &str = "Spoor-End";

/// What JetStream knows a message again by, and recorders its turn.
pub(crate) const ID_HEADER: &str = "Nats-Msg-Id";

/// What JetStream says of a full stream, and what is told of it.
const FULL_WORDS: &str = "maximum bytes exceeded";
const FULL: &str = "the stream is full";

/// What the client works on.
static RUNTIME: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).thread_name("nats").enable_all().build());

/// Hands every session's packets on to a stream. What was flushed JetStream has acknowledged.
#[derive(Debug)]
pub struct NatsSink {
    link: Link,
    runtime: &'static Runtime,
    window_bytes: usize,
    sessions: HashMap<String, Outgoing>,
    /// Messages that JetStream has not acknowledged, in order.
    unacknowledged: VecDeque<Message>,
    unacknowledged_bytes: usize,
    /// Whether the stream is full.
    is_full: Arc<AtomicBool>,
    /// Whether the last attempt failed.
    is_failing: bool,
    /// Whether the stream or the bucket may be gone.
    lacks_stream: bool,
    flushed: Instant,
}

/// A session on its way.
#[derive(Debug)]
struct Outgoing {
    session: Arc<Session>,
    id: SessionId,
    /// What tells its messages from those of others, and how many were made.
    sender: String,
    made: u64,
    /// Packets for the next message.
    packets: Vec<u8>,
    /// Whether they say more than how far the agent is.
    is_urgent: bool,
    /// When its last message was made.
    last: Instant,
    announced: Announced,
    /// Whether nothing more comes.
    has_ended: bool,
}

impl Outgoing {
    /// Tells recorders of it. Returns whether they have it complete.
    async fn announce(&self, link: &Link) -> Result<bool, FleetError> {
        let from = format!("{} through {}", self.session.source, host());
        Record::announce(&link.records, self.id, &from).await
    }
}

/// What recorders know of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    /// They may not know of it.
    No,
    /// They were told before its messages were in the stream: one may have left it meanwhile.
    Before,
    Yes,
    /// They have it complete: whatever else comes is known.
    Over,
}

#[derive(Debug)]
struct Message {
    session: String,
    subject: String,
    sender: String,
    turn: u64,
    renamed: u32,
    headers: HeaderMap,
    body: Bytes,
    acknowledgement: Option<PublishAckFuture>,
}

impl NatsSink {
    /// Connects, and opens so many sinks that share the connection.
    pub fn open_many(
        address: &Address,
        access: &Access,
        keeping: Keeping,
        count: usize,
    ) -> Result<Vec<Self>, SinkError> {
        let failed = |source: io::Error| SinkError::Failed { what: "NATS".into(), source };
        let runtime = RUNTIME.as_ref().map_err(|error| failed(io::Error::new(error.kind(), error.to_string())))?;
        // Whoever calls may run on another runtime, and must not wait on this one itself.
        let link = thread::scope(|scope| {
            scope
                .spawn(|| runtime.block_on(Link::connect(address, access, keeping)))
                .join()
                .unwrap_or_else(|_| Err(FleetError::new("the attempt to connect panicked")))
        });
        let link = link.map_err(|error| failed(io::Error::other(error)))?;
        let is_full = Arc::new(AtomicBool::new(false));
        runtime.spawn(look_for_room(link.clone(), Arc::downgrade(&is_full)));
        let sink = |_| Self {
            window_bytes: (link.most_bytes / WINDOWS_PER_STREAM).min(WINDOW_BYTES) as usize,
            link: link.clone(),
            runtime,
            sessions: HashMap::new(),
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            is_full: Arc::clone(&is_full),
            is_failing: false,
            lacks_stream: false,
            flushed: Instant::now(),
        };
        Ok((0..count).map(sink).collect())
    }

    fn outgoing(&mut self, session: &Arc<Session>) -> &mut Outgoing {
        let link = &self.link;
        self.sessions.entry(session.name.clone()).or_insert_with(|| Outgoing {
            session: Arc::clone(session),
            id: packets::id(session),
            sender: link.unique_name(),
            made: 0,
            packets: Vec::new(),
            is_urgent: false,
            last: Instant::now(),
            announced: Announced::No,
            has_ended: false,
        })
    }

    /// Takes packets for a session, and sends what makes full messages.
    fn take(&mut self, session: &Arc<Session>, is_urgent: bool, append: impl FnOnce(&mut Vec<u8>)) {
        let outgoing = self.outgoing(session);
        outgoing.has_ended = false;
        let before = outgoing.packets.len();
        append(&mut outgoing.packets);
        outgoing.is_urgent |= is_urgent && outgoing.packets.len() > before;
        if outgoing.packets.len() >= MESSAGE_BYTES {
            let name = &session.name;
            self.make_messages(name, None);
            self.send();
            if self.unacknowledged_bytes > self.window_bytes {
                // What fails is tried again with the next flush; until then nothing more is taken.
                if let Err(error) = self.settle(self.window_bytes / 2) {
                    self.fail(&error);
                }
            }
        }
    }

    /// Makes messages of what a session has, none larger than it has to be, each with whole packets.
    fn make_messages(&mut self, name: &str, end: Option<&str>) {
        let Some(outgoing) = self.sessions.get_mut(name) else { return };
        if outgoing.announced == Announced::Over {
            return outgoing.packets.clear();
        }
        if outgoing.last.elapsed() >= SILENCE {
            outgoing.announced = Announced::No;
        }
        (outgoing.last, outgoing.is_urgent) = (Instant::now(), false);
        let mut head = Vec::new();
        packets::session(&outgoing.session, &mut head);
        let bytes = std::mem::take(&mut outgoing.packets);
        let subject = self.link.subject(outgoing.id);
        let mut bodies = Vec::new();
        let mut body = head.clone();
        let mut rest = Packets::new(&bytes, MAX_PACKET_BYTES);
        while let Some(Ok(packet)) = rest.next_with(Ok::<&[u8], codec::heph::DecodeError>) {
            if body.len() + packet.len() > MESSAGE_BYTES && body.len() > head.len() {
                bodies.push(std::mem::replace(&mut body, head.clone()));
            }
            body.extend_from_slice(packet);
        }
        if body.len() > head.len() || end.is_some() {
            bodies.push(body);
        }
        let count = bodies.len();
        for (index, body) in bodies.into_iter().enumerate() {
            let mut headers = HeaderMap::new();
            let (sender, turn) = (outgoing.sender.clone(), outgoing.made);
            headers.insert(ID_HEADER, turns::id(&sender, turn, 0));
            outgoing.made += 1;
            if let Some(end) = end.filter(|_| index + 1 == count) {
                headers.insert(END_HEADER, end);
            }
            self.unacknowledged_bytes += body.len();
            let (session, subject, body) = (name.into(), subject.clone(), body.into());
            let message = Message { session, subject, sender, turn, renamed: 0, headers, body, acknowledgement: None };
            self.unacknowledged.push_back(message);
        }
    }

    /// Sends what has not been sent, as far as that goes.
    fn send(&mut self) {
        if !self.is_failing
            && let Err(error) = self.try_send(usize::MAX)
        {
            self.fail(&error);
        }
    }

    /// Sends no more than so many.
    fn try_send(&mut self, most: usize) -> Result<(), FleetError> {
        if self.is_full.load(Relaxed) {
            return Err(FleetError::new(FULL));
        }
        self.announce()?;
        let Self { link, runtime, unacknowledged, .. } = self;
        let unsent = unacknowledged.iter_mut().filter(|message| message.acknowledgement.is_none());
        for message in unsent.take(most) {
            let (subject, headers, body) = (message.subject.clone(), message.headers.clone(), message.body.clone());
            let sent = runtime.block_on(link.context.publish_with_headers(subject, headers, body));
            message.acknowledgement = Some(sent.map_err(|error| explain(&error))?);
        }
        Ok(())
    }

    /// Tells recorders of the sessions that have messages. Those that they have complete need none.
    fn announce(&mut self) -> Result<(), FleetError> {
        let mut is_any_over = false;
        for outgoing in self.sessions.values_mut().filter(|outgoing| outgoing.announced == Announced::No) {
            if !self.unacknowledged.iter().any(|message| message.session == outgoing.session.name) {
                continue;
            }
            let is_over = self.runtime.block_on(outgoing.announce(&self.link))?;
            outgoing.announced = if is_over { Announced::Over } else { Announced::Before };
            is_any_over |= is_over;
        }
        if is_any_over {
            let sessions = &self.sessions;
            let is_over = |one: &Outgoing| one.announced == Announced::Over;
            self.unacknowledged.retain(|message| !sessions.get(&message.session).is_some_and(is_over));
            self.count_bytes();
        }
        Ok(())
    }

    /// Tells of them again when JetStream has the messages: who leaves a session looks for those that came before it did.
    fn announce_again(&mut self) -> Result<(), FleetError> {
        for outgoing in self.sessions.values_mut().filter(|outgoing| outgoing.announced == Announced::Before) {
            let is_over = self.runtime.block_on(outgoing.announce(&self.link))?;
            outgoing.announced = if is_over { Announced::Over } else { Announced::Yes };
        }
        Ok(())
    }

    /// Counts again, after messages were taken out.
    fn count_bytes(&mut self) {
        self.unacknowledged_bytes = self.unacknowledged.iter().map(|message| message.body.len()).sum();
    }

    /// Sends everything, and waits until no more than so many bytes are unacknowledged.
    fn settle(&mut self, most: usize) -> Result<(), FleetError> {
        self.try_send(usize::MAX)?;
        self.wait_for(|sink| sink.unacknowledged_bytes > most || (most == 0 && !sink.unacknowledged.is_empty()))
    }

    /// Tries again with one message alone.
    fn probe(&mut self) -> Result<(), FleetError> {
        if std::mem::take(&mut self.lacks_stream) {
            self.runtime.block_on(self.link.restore())?;
        }
        self.try_send(1)?;
        let count = self.unacknowledged.len();
        self.wait_for(|sink| sink.unacknowledged.len() == count)
    }

    /// Waits for acknowledgements, in order, as long as there is reason to.
    fn wait_for(&mut self, has_reason: impl Fn(&Self) -> bool) -> Result<(), FleetError> {
        let mut contact = self.link.contact.clone();
        let count = contact.borrow_and_update().count;
        while has_reason(self) {
            let Some(message) = self.unacknowledged.front_mut() else { break };
            let Some(acknowledgement) = message.acknowledgement.take() else {
                return Err(FleetError::new("a message was not sent"));
            };
            let settled = self.runtime.block_on(async {
                let anew = contact.wait_for(|contact| contact.count != count);
                tokio::select! {
                    settled = timeout(ANSWER_TIME, acknowledgement) => match settled {
                        Ok(settled) => settled.map_err(|error| explain(&error)),
                        Err(_) => Err(no_answer()),
                    },
                    // What was underway over a connection that is gone may have been lost with it.
                    _ = anew => Err(FleetError::new("the connection was lost")),
                }
            });
            // A server that lost its lead knows a message by its id that it never stored, and has no number for it: a message
            // that is there twice does no harm, one that is not there does.
            if settled?.sequence == 0 {
                self.rename_unacknowledged();
                return Err(FleetError::new("messages were lost with the server that had taken them"));
            }
            self.unacknowledged_bytes -= message.body.len();
            self.unacknowledged.pop_front();
        }
        Ok(())
    }

    /// JetStream is not to know again what it has not acknowledged.
    fn rename_unacknowledged(&mut self) {
        for message in &mut self.unacknowledged {
            message.renamed += 1;
            message.headers.insert(ID_HEADER, turns::id(&message.sender, message.turn, message.renamed));
        }
    }

    /// Everything that JetStream has not acknowledged is sent again, in order: it knows what it has by the ids.
    fn fail(&mut self, error: &FleetError) -> SinkError {
        self.is_failing = true;
        self.lacks_stream = error.to_string() != FULL;
        // Whoever removed the stream may have removed what recorders know of sessions, too.
        let known = self.sessions.values_mut().filter(|outgoing| outgoing.announced != Announced::Over);
        known.for_each(|outgoing| outgoing.announced = Announced::No);
        self.unacknowledged.iter_mut().for_each(|message| message.acknowledgement = None);
        let kind = if error.to_string() == FULL { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        let words = match self.link.trouble() {
            Some(trouble) => format!("{error} ({trouble})"),
            None => error.to_string(),
        };
        let what = "JetStream takes no events, and agents keep them".into();
        SinkError::Failed { what, source: io::Error::new(kind, words) }
    }
}

/// Looks again and again whether the stream is full, which it is to a sink when three quarters of it are. The nodes of a cluster do
/// not agree on when there is no room at all: one that refuses what others take has lost it.
async fn look_for_room(link: Link, is_full: Weak<AtomicBool>) {
    let look_time = Duration::from_millis(link.most_bytes / 8 / (MOST_RATE / 1000));
    while is_full.strong_count() > 0 {
        // Where nobody answers, sending tells.
        if let (Ok((bytes, most)), Some(is_full)) = (link.fill().await, is_full.upgrade()) {
            is_full.store(bytes >= most - most / 4, Relaxed);
        }
        sleep(look_time.clamp(LEAST_LOOK_TIME, MOST_LOOK_TIME)).await;
    }
}

/// What this machine is called.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn no_answer() -> FleetError {
    FleetError::new(format!("no acknowledgement within {} s", ANSWER_TIME.as_secs()))
}

/// Why a message was not taken.
fn explain(error: &PublishError) -> FleetError {
    match error.kind() {
        PublishErrorKind::TimedOut => no_answer(),
        PublishErrorKind::StreamNotFound => FleetError::new("there is no such stream any more, or none that answers"),
        // JetStream has one code for all that keeps it from storing.
        _ if error.source().is_some_and(|said| said.to_string().contains(FULL_WORDS)) => FleetError::new(FULL),
        _ => FleetError::of("it was refused", error),
    }
}

impl Sink for NatsSink {
    fn start(&mut self, _: &Arc<Session>) -> Result<(), SinkError> {
        Ok(())
    }

    fn options(&mut self, session: &Arc<Session>, bytes: &[u8]) -> Result<(), SinkError> {
        let mut is_urgent = false;
        packets::for_each_named(bytes, |name, _| is_urgent |= name != "progress");
        self.take(session, is_urgent, |out| packets::options(session, bytes, out));
        Ok(())
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        self.take(&batch.session, true, |out| batch.iter().for_each(|run| packets::run(run, out)));
        Ok(())
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        // What the agent dropped it has said itself, in options that go on as they came. What was given up for now it still has.
        if gap.cause.agent_reason().is_none() && !gap.cause.is_provisional() {
            self.take(session, true, |out| packets::gap(gap, out));
        }
        Ok(())
    }

    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError> {
        // One that has a name says itself that it is over, or may go on.
        let end = session.id.is_none().then_some(ended.end.how.as_str());
        if end.is_some() {
            self.outgoing(session);
        }
        self.make_messages(&session.name, end);
        if let Some(outgoing) = self.sessions.get_mut(&session.name) {
            outgoing.has_ended = true;
        }
        self.send();
        Ok(())
    }

    fn leave(&mut self, session: &Arc<Session>) {
        self.sessions.remove(&session.name);
        self.unacknowledged.retain(|message| message.session != session.name);
        self.count_bytes();
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if !self.is_failing && self.flushed.elapsed() < LINGER {
            return Ok(());
        }
        self.flushed = Instant::now();
        let is_due = |outgoing: &Outgoing| {
            !outgoing.packets.is_empty() && (outgoing.is_urgent || outgoing.last.elapsed() >= PROGRESS_TIME)
        };
        let due: Vec<_> = self.sessions.iter().filter(|(_, one)| is_due(one)).map(|(name, _)| name.clone()).collect();
        due.iter().for_each(|name| self.make_messages(name, None));
        if self.is_failing {
            self.probe().map_err(|error| self.fail(&error))?;
            self.is_failing = false;
        }
        self.settle(0).and_then(|()| self.announce_again()).map_err(|error| self.fail(&error))?;
        self.sessions.retain(|_, outgoing| !outgoing.has_ended);
        Ok(())
    }

    fn takes_more(&self) -> bool {
        !self.is_failing
    }

    fn is_kept(&self) -> bool {
        self.unacknowledged.is_empty() && self.sessions.values().all(|outgoing| !outgoing.is_urgent)
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.flushed = Instant::now().checked_sub(LINGER).unwrap_or(self.flushed);
        self.flush()
    }
}
