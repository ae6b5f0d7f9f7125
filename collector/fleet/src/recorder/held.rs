//! One session that a recorder holds.

use std::{
    collections::hash_map::Entry,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use async_nats::jetstream::Message;
use codec::SessionId;
use tokio::{sync::Notify, time::sleep};
use tracing::{debug, warn};

use super::{Intake, Ready, Shared};
use crate::{
    FleetError, Record, State,
    reader::Reader,
    sink::{END_HEADER, ID_HEADER},
    turns::Turns,
};

/// How often it is written down how much of a session is in its files.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// The same where the stream has little room.
const TIGHT_CHECK_TIME: Duration = Duration::from_secs(1);

/// How long is waited for the files to have what was read.
const KEPT_PATIENCE: Duration = Duration::from_secs(2);

/// How long others may still be heard to have taken the same session.
const CONFIRM_TIME: Duration = Duration::from_millis(200);

/// After how much silence it is looked whether there is a message that servers have not told of. Each time after twice as much.
const LOOK_TIME: Duration = Duration::from_secs(10);

/// How far back a message is looked for, in messages of the stream. A cluster that lost its last messages with a server gives their
/// numbers to others.
const FAR: u64 = 5_000;

/// How often is tried again what a server or another process does not allow yet.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// A message by its number in the stream, and the id of the session's next.
type Mark = (u64, Option<String>);

/// A session that this recorder reads, and no other.
pub(super) struct Held<I> {
    shared: Arc<Shared<I>>,
    id: SessionId,
    record: Record,
    revision: u64,
    /// Whether nobody has had it before.
    is_new: bool,
    /// Told when the session is over, and complete in its files.
    over: Arc<Notify>,
    /// Up to this message, nothing of what was read waits for what has not come.
    settled: Mark,
    /// All messages up to this one were in the files at the last look; what they told beside events is by the next.
    checked: Mark,
    /// All messages up to this one have left the stream.
    left: u64,
    /// How often the lease was in doubt when it was last looked whether it still holds.
    lapses: u64,
}

impl<I: Intake> Held<I> {
    pub(super) fn new(
        shared: Arc<Shared<I>>,
        id: SessionId,
        (record, revision): (Record, u64),
        is_new: bool,
        over: Arc<Notify>,
    ) -> Self {
        let (kept, lapses) = ((record.kept, record.next.clone()), shared.lapses.load(Relaxed));
        Self { shared, id, record, revision, is_new, over, settled: kept.clone(), checked: kept, left: 0, lapses }
    }

    /// Reads the session until it is over, or silent for long. An error is that another recorder has it.
    pub(super) async fn run(mut self) -> Result<(), FleetError> {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        let is_confirmed = self.is_confirmed().await;
        match shared.sessions().entry(id) {
            Entry::Occupied(mut taken) if is_confirmed => taken.get_mut().is_read = true,
            Entry::Occupied(taken) => _ = taken.remove(),
            Entry::Vacant(_) => {}
        }
        if !is_confirmed {
            // It may be nobody's, and no entry tells that.
            shared.known().remove(&id);
            return Ok(());
        }
        if !self.is_new {
            self.find_files().await?;
        }
        let number = shared.next_number.fetch_add(1, Relaxed);
        shared.intake.open(number, format!("{} from {}", shared.link.address, self.record.from));
        let subject = shared.link.subject(id);
        let mut reader = Reader::new(shared.link.clone(), subject, self.record.kept + 1);
        let mut turns = match &self.record.next {
            Some(mark) => Turns::from_mark(mark),
            None if self.record.kept == 0 => Turns::from_beginning(),
            None => Turns::from_somewhere(),
        };
        let (mut checked, mut heard, mut look_time) = (Instant::now(), Instant::now(), LOOK_TIME);
        let result = loop {
            let mut messages = Vec::new();
            tokio::select! {
                biased;
                () = self.over.notified() => break self.finish().await,
                message = reader.next(), if turns.takes_more() => if let Some(message) = message {
                    if reader.starts_anew() {
                        self.forget_numbers();
                        messages = turns.release();
                        turns = Turns::from_somewhere();
                    }
                    (heard, look_time) = (Instant::now(), LOOK_TIME);
                    let (name, bytes) = (header(&message, ID_HEADER).map(String::from), message.payload.len());
                    messages.extend(turns.take(name.as_deref(), message, bytes));
                },
                () = sleep(RETRY_TIME), if !turns.takes_more() => {}
            }
            if turns.is_overdue() {
                warn!(
                    "session {id}: a message is missing in the stream; what its agent does not send again will be counted as missing"
                );
                messages.extend(turns.release());
                // What was not taken meanwhile comes again.
                reader.look_again(self.settled.0 + 1);
            }
            if (!messages.is_empty() || self.lapses != shared.lapses.load(Relaxed))
                && let Err(lost) = self.check_lease().await
            {
                break Err(lost);
            }
            for message in messages {
                shared.intake.room().await;
                if shared.intake.take(number, id, &message.payload) && turns.is_complete() {
                    self.settled = (reader.last(), turns.mark());
                }
                if header(&message, END_HEADER).is_some() {
                    shared.intake.close(number);
                }
                // It may have waited for long to be taken.
                heard = Instant::now();
            }
            // As long as the stream cannot be read, or takes nothing, an agent that is not heard of need not be silent.
            if reader.has_failed() || shared.since_beat() >= shared.lease.fence_time() {
                (heard, look_time) = (Instant::now(), LOOK_TIME);
            }
            if turns.wants_look() {
                let back = if turns.look() == 0 { 0 } else { FAR };
                debug!("session {id}: looking for a message that is missing");
                reader.look_again((self.settled.0 + 1).saturating_sub(back));
            }
            if heard.elapsed() >= look_time {
                look_time *= 2;
                if reader.is_behind().await == Some(true) {
                    reader.look_again(self.settled.0 + 1);
                }
            }
            let is_tight = shared.is_tight.load(Relaxed);
            let due = if is_tight { TIGHT_CHECK_TIME } else { CHECK_TIME };
            let is_behind = self.settled.0 > self.record.kept || (is_tight && self.record.kept > self.left);
            if checked.elapsed() >= due && is_behind {
                if let Err(lost) = self.checkpoint().await {
                    break Err(lost);
                }
                checked = Instant::now();
            }
            if heard.elapsed() >= shared.silence && turns.is_complete() {
                if reader.is_behind().await == Some(false) {
                    shared.intake.lose_contact(id);
                    break self.leave(&reader).await;
                }
                (heard, look_time) = (Instant::now(), LOOK_TIME);
            }
        };
        if result.is_ok() {
            shared.intake.close(number);
            shared.sessions().remove(&id);
            reader.close().await;
        }
        result
    }

    /// Whether the session is still this recorder's after a moment. Servers before 2.10 can let two write a record of several
    /// copies at the same time, and both hear that they could.
    async fn is_confirmed(&self) -> bool {
        sleep(CONFIRM_TIME).await;
        loop {
            match Record::find(&self.shared.link.records, self.id).await {
                Ok(found) => return found.is_some_and(|(_, revision)| revision == self.revision),
                Err(error) => {
                    debug!("session {}: {error}", self.id);
                    sleep(RETRY_TIME).await;
                }
            }
        }
    }

    /// Looks for the files of the session, and waits while another process writes them. Without any it starts from the
    /// beginning, if that is still in the stream.
    async fn find_files(&mut self) -> Result<(), FleetError> {
        let mut is_told = false;
        loop {
            match self.shared.intake.prepare(self.id) {
                Ready::Here => return Ok(()),
                Ready::Nowhere => {
                    if !self.record.is_cut {
                        self.forget_numbers();
                    }
                    return Ok(());
                }
                Ready::NotYet if is_told => {}
                Ready::NotYet => {
                    is_told = true;
                    warn!("session {} waits: another process still writes its files", self.id);
                }
            }
            sleep(RETRY_TIME).await;
            self.check_lease().await?;
        }
    }

    /// Nothing that is in the stream is known to be in the files.
    fn forget_numbers(&mut self) {
        (self.record.kept, self.record.next) = (0, None);
        (self.settled, self.checked, self.left) = ((0, None), (0, None), 0);
    }

    /// Makes sure that no other has the session.
    async fn check_lease(&mut self) -> Result<(), FleetError> {
        let lapses = self.shared.fence().await;
        while lapses != self.lapses {
            match self.look().await? {
                true => self.lapses = lapses,
                false => sleep(RETRY_TIME).await,
            }
        }
        Ok(())
    }

    /// Writes down how much of the session is in its files, and makes room in a stream that has little.
    async fn checkpoint(&mut self) -> Result<(), FleetError> {
        let settled = self.settled.clone();
        let started = Instant::now();
        while !self.shared.intake.is_kept(self.id) {
            if started.elapsed() >= KEPT_PATIENCE {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        let (kept, next) = std::mem::replace(&mut self.checked, settled);
        let is_tight = self.shared.is_tight.load(Relaxed);
        // What has just been written may be needed again: see `FAR`.
        let before = self.record.kept;
        let may_leave = is_tight && before > self.left;
        if kept > before {
            (self.record.kept, self.record.next) = (kept, next);
        } else if !may_leave {
            return Ok(());
        }
        self.record.is_cut |= may_leave;
        if !self.write().await? || !may_leave {
            return Ok(());
        }
        match self.shared.link.forget(self.id, Some(before + 1)).await {
            Ok(()) => self.left = before,
            Err(error) => debug!("session {}: {error}", self.id),
        }
        Ok(())
    }

    /// The session is over, and its files are complete: nobody needs its messages any more.
    async fn finish(&mut self) -> Result<(), FleetError> {
        self.record = Record { state: State::Over, owner: None, ..self.record.clone() };
        while !self.write().await? {
            sleep(RETRY_TIME).await;
        }
        while let Err(error) = self.shared.link.forget(self.id, None).await {
            debug!("session {}: {error}", self.id);
            sleep(RETRY_TIME).await;
        }
        Ok(())
    }

    /// Nothing has come for long. An edge says when something does; what came until the record said so is looked for here.
    async fn leave(&mut self, reader: &Reader) -> Result<(), FleetError> {
        self.record = Record { state: State::Silent, owner: None, ..self.record.clone() };
        while !self.write().await? {
            sleep(RETRY_TIME).await;
        }
        let is_behind = loop {
            match reader.is_behind().await {
                Some(is_behind) => break is_behind,
                None => sleep(RETRY_TIME).await,
            }
        };
        if is_behind {
            let from = self.record.from.clone();
            while let Err(error) = Record::announce(&self.shared.link.records, self.id, &from).await {
                debug!("session {}: {error}", self.id);
                sleep(RETRY_TIME).await;
            }
        }
        Ok(())
    }

    /// Looks whether the record is still this recorder's. What it wrote may be there though nothing was heard of it, and a
    /// record that somebody has removed is written again. Whether it could look; an error is that another has the session.
    async fn look(&mut self) -> Result<bool, FleetError> {
        let records = &self.shared.link.records;
        let revision = match Record::find(records, self.id).await {
            Ok(Some((found, revision))) if found == self.record || found.owner.as_ref() == Some(&self.shared.id) => {
                Ok(Some(revision))
            }
            // Of one that was removed an edge has made another, and nobody has it.
            Ok(Some((found, revision))) if found.owner.is_none() && found.storage.is_none() => Ok(Some(revision)),
            Ok(Some(_)) => return Err(FleetError::lost(self.id)),
            Ok(None) => self.record.create(records, self.id).await,
            Err(error) => Err(error),
        };
        match revision {
            Ok(Some(revision)) => {
                self.revision = revision;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                debug!("session {}: {error}", self.id);
                Ok(false)
            }
        }
    }

    /// Writes the record. Whether it could; an error is that another has written it.
    async fn write(&mut self) -> Result<bool, FleetError> {
        // The second time over the revision that was found.
        for _ in 0..2 {
            match self.record.replace(&self.shared.link.records, self.id, self.revision).await {
                Ok(Some(revision)) => {
                    self.revision = revision;
                    return Ok(true);
                }
                Ok(None) if self.look().await? => {}
                Ok(None) => break,
                Err(error) => {
                    debug!("session {}: {error}", self.id);
                    break;
                }
            }
        }
        Ok(false)
    }
}

/// What a message says under this name.
fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    Some(message.headers.as_ref()?.get(name)?.as_str())
}
