//! The order in which an edge has sent the messages of a session, and whether one is missing.
//!
//! A cluster that loses its leader can store a message behind others that were sent after it: those before it were lost with the
//! leader, and are sent again. And a server that was away leaves out messages that it does not have yet, or has them under other
//! numbers: they are looked for again.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    ops::Range,
    time::{Duration, Instant},
};

/// How much may wait for messages that were sent before it. An edge has less than this underway.
const MOST_BYTES: usize = 16 << 20;

/// How long a message has been missing when it is looked for, the first time, the second and so on.
const LOOK_TIMES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];

/// How long it is waited for at all. An edge sends again what was lost as soon as there is a leader.
const MOST_TIME: Duration = Duration::from_secs(15);

/// How many senders are known that were followed by another.
const MOST_PAST: usize = 16;

/// The id of a message: what sends it, how many of the session were sent before it, and how often it had to be renamed.
pub(crate) fn id(sender: &str, turn: u64, renamed: u32) -> String {
    match renamed {
        0 => format!("{sender}-{turn}"),
        renamed => format!("{sender}-{turn}.{renamed}"),
    }
}

/// The sender and the turn of a message with this id.
fn turn_of(id: &str) -> Option<(&str, u64)> {
    let (sender, rest) = id.rsplit_once('-')?;
    let turn = rest.split_once('.').map_or(rest, |(turn, _)| turn);
    Some((sender, turn.parse::<u32>().ok()?.into()))
}

/// Puts the messages of a session in the order in which they were sent.
#[derive(Debug)]
pub(crate) struct Turns<M> {
    sender: String,
    /// Whose turn it is; none where that is whoever comes first.
    next: Option<u64>,
    /// Whether it is known who had their turns before that: all but these.
    is_known: bool,
    missing: Vec<Range<u64>>,
    /// Messages that came before their turn.
    early: BTreeMap<u64, (M, usize)>,
    early_bytes: usize,
    /// Since when one is missing, and how often it was looked for.
    since: Option<Instant>,
    looks: usize,
    /// Whether nothing more is taken until it is looked for again.
    is_blocked: bool,
    past: VecDeque<String>,
}

impl<M> Turns<M> {
    /// Of a session that is read from its beginning.
    pub(crate) fn from_beginning() -> Self {
        Self { next: Some(0), is_known: true, ..Self::from_somewhere() }
    }

    /// Of a session that is read from somewhere on.
    pub(crate) fn from_somewhere() -> Self {
        Self {
            sender: String::new(),
            next: None,
            is_known: false,
            missing: Vec::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            since: None,
            looks: 0,
            is_blocked: false,
            past: VecDeque::new(),
        }
    }

    /// Of a session that is read from where the message with this id is expected.
    pub(crate) fn from_mark(mark: &str) -> Self {
        match turn_of(mark) {
            Some((sender, turn)) => {
                Self { sender: sender.into(), next: Some(turn), is_known: true, ..Self::from_somewhere() }
            }
            None => Self::from_somewhere(),
        }
    }

    /// The id of the message that is expected.
    pub(crate) fn mark(&self) -> Option<String> {
        Some(id(&self.sender, self.next.filter(|_| !self.sender.is_empty())?, 0))
    }

    /// Takes a message with this id and so many bytes. Returns the messages whose turn it is.
    pub(crate) fn take(&mut self, id: Option<&str>, message: M, bytes: usize) -> Vec<M> {
        let Some((sender, turn)) = id.and_then(turn_of) else { return vec![message] };
        if self.past.iter().any(|past| past == sender) {
            return vec![message];
        }
        let mut ready = Vec::new();
        if sender != self.sender && self.since.is_some() {
            // It comes again when that has been looked for.
            self.is_blocked = true;
            return ready;
        }
        if sender != self.sender {
            // What was never stored of the one before its agent sends again, to this one.
            let before = mem::replace(&mut self.sender, sender.into());
            if !before.is_empty() {
                self.past.push_front(before);
                self.past.truncate(MOST_PAST);
                (self.next, self.is_known) = (Some(0), true);
                self.missing.clear();
            }
        }
        let next = self.next.unwrap_or(turn);
        self.next = Some(next);
        if turn < next {
            // It was stored twice, under two names, or is read again; or it comes late.
            let is_missing = !self.is_known || self.missing.iter().any(|turns| turns.contains(&turn));
            ready.extend(is_missing.then_some(message));
            return ready;
        }
        let before = self.early.insert(turn, (message, bytes));
        self.early_bytes = self.early_bytes + bytes - before.map_or(0, |(_, bytes)| bytes);
        if turn > next {
            self.since.get_or_insert_with(Instant::now);
            self.is_blocked |= self.early_bytes > MOST_BYTES;
            return ready;
        }
        while let Some((message, bytes)) = self.next.and_then(|next| self.early.remove(&next)) {
            self.early_bytes -= bytes;
            self.next = self.next.map(|next| next + 1);
            ready.push(message);
        }
        (self.since, self.looks) = ((!self.early.is_empty()).then(Instant::now), 0);
        ready
    }

    /// Whether it can take more before it is looked for a message that is missing.
    pub(crate) fn takes_more(&self) -> bool {
        !self.is_blocked
    }

    /// Whether it is time to look for a message that is missing.
    pub(crate) fn wants_look(&self) -> bool {
        let time = LOOK_TIMES.get(self.looks);
        self.since.zip(time).is_some_and(|(since, time)| since.elapsed() >= *time)
    }

    /// The session is read again from before the message that is missing. Returns how often it was so before.
    pub(crate) fn look(&mut self) -> usize {
        (self.early, self.early_bytes, self.is_blocked) = (BTreeMap::new(), 0, false);
        self.looks += 1;
        self.looks - 1
    }

    /// Whether it is time to go on without a message that is missing.
    pub(crate) fn is_overdue(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= MOST_TIME)
    }

    /// Whether none is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.since.is_none()
    }

    /// All that wait, in order, without those that they wait for.
    pub(crate) fn release(&mut self) -> Vec<M> {
        (self.early_bytes, self.since, self.looks, self.is_blocked) = (0, None, 0, false);
        let mut next = self.next.unwrap_or(0);
        let early = mem::take(&mut self.early).into_iter().map(|(turn, (message, _))| {
            self.missing.extend((next < turn).then_some(next..turn));
            next = turn + 1;
            message
        });
        let early = early.collect();
        self.next = self.next.map(|_| next);
        early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out where messages with these ids come in.
    fn order(turns: &mut Turns<String>, ids: &[&str]) -> Vec<String> {
        ids.iter().flat_map(|id| turns.take(Some(id), (*id).into(), 1)).collect()
    }

    #[test]
    fn what_was_stored_behind_others_comes_before_them() {
        let mut turns = Turns::from_beginning();
        assert_eq!(order(&mut turns, &["a-1", "a-2", "a-0", "a-3"]), ["a-0", "a-1", "a-2", "a-3"]);
        assert!(turns.is_complete());
    }

    #[test]
    fn what_was_stored_twice_comes_once() {
        assert_eq!(
            order(&mut Turns::from_beginning(), &["a-0", "a-1", "a-0.1", "a-1.1", "a-2"]),
            ["a-0", "a-1", "a-2"]
        );
        // Early, too.
        assert_eq!(order(&mut Turns::from_beginning(), &["a-1", "a-1.1", "a-0"]), ["a-0", "a-1.1"]);
    }

    #[test]
    fn another_sender_starts_anew() {
        let all = order(&mut Turns::from_beginning(), &["a-0", "a-1", "b-1", "a-2", "b-0"]);
        assert_eq!(all, ["a-0", "a-1", "a-2", "b-0", "b-1"]);
    }

    #[test]
    fn whoever_joins_leaves_nothing_out() {
        let ids = ["a-8", "a-7", "a-9", "b-0"];
        assert_eq!(order(&mut Turns::from_somewhere(), &ids), ids);
    }

    #[test]
    fn what_was_left_out_is_looked_for() {
        let mut turns = Turns::from_beginning();
        assert_eq!(order(&mut turns, &["a-0", "a-3"]), ["a-0"]);
        assert!(!turns.is_complete() && turns.takes_more());
        // What another sends comes after that.
        assert_eq!(order(&mut turns, &["b-0"]), [""; 0]);
        assert!(!turns.takes_more());
        // Read again from somewhere before it, it is there.
        assert_eq!(turns.look(), 0);
        assert_eq!(order(&mut turns, &["a-0", "a-1", "a-2", "a-3", "b-0"]), ["a-1", "a-2", "a-3", "b-0"]);
        assert!(turns.is_complete());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut turns = Turns::from_beginning();
        assert_eq!(turns.take(Some("a-5"), 5, MOST_BYTES), [0; 0]);
        assert!(turns.takes_more());
        assert_eq!(turns.take(Some("a-7"), 7, 1), [0; 0]);
        assert!(!turns.takes_more());
        // One that is never found does not keep the others for ever, and is not left out should it come after all.
        assert_eq!(turns.release(), [5, 7]);
        assert!(turns.takes_more() && turns.is_complete());
        assert_eq!((turns.take(Some("a-2"), 2, 1), turns.take(Some("a-6"), 6, 1)), (vec![2], vec![6]));
        assert_eq!((turns.take(Some("a-5"), 5, 1), turns.take(Some("a-7"), 7, 1)), (vec![], vec![]));
        assert_eq!((turns.take(Some("a-8"), 8, 1), turns.take(None, 0, 1)), (vec![8], vec![0]));
    }

    #[test]
    fn whoever_goes_on_knows_what_comes_next() {
        let mut turns = Turns::from_beginning();
        assert_eq!(turns.mark(), None);
        order(&mut turns, &["a-b-0", "a-b-1"]);
        let mark = turns.mark().expect("it has a sender");
        let mut turns = Turns::from_mark(&mark);
        assert_eq!(order(&mut turns, &["a-b-4", "a-b-1", "a-b-2", "a-b-3"]), ["a-b-2", "a-b-3", "a-b-4"]);
    }
}
