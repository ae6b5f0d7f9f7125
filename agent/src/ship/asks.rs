//! What the collector asks for while the session lasts, each once, and what was answered.
//!
//! The collector asks again until it has the answer, so that nothing here is sent by itself: a request that is known is
//! answered again, and is nothing to be done again.

use std::collections::VecDeque;

use codec::{
    SessionId,
    heph::Encode,
    profile::{Answer, AnswerKind, Ask, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, ProfileOption},
};

/// How many requests are remembered with their answers, and how many of them may be in somebody's hands.
const REMEMBERED: usize = 64;
const MOST_OPEN: usize = 16;

/// A request of the collector's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What the answer is known by.
    pub number: u64,
    /// A word, and what it is about. It is from outside, and may be anything.
    pub request: String,
}

/// What has been asked for, the latest last.
#[derive(Debug, Default)]
pub(super) struct Asks {
    known: VecDeque<Entry>,
    /// Those that nobody has taken yet.
    fresh: VecDeque<Asked>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// The packet that answers it.
    answer: Option<Box<[u8]>>,
    /// Whether that is to be sent.
    is_due: bool,
}

impl Asks {
    /// The collector asks for something, perhaps again.
    pub(super) fn hear(&mut self, ask: &Ask<'_>) {
        if let Some(entry) = self.known.iter_mut().find(|entry| entry.number == ask.number) {
            entry.is_due = entry.answer.is_some();
            return;
        }
        let open = self.known.iter().filter(|entry| entry.answer.is_none()).count();
        // What is not taken is asked for again.
        if open >= MOST_OPEN || ask.request.len() > MAX_REQUEST_BYTES {
            return;
        }
        if self.known.len() >= REMEMBERED
            && let Some(oldest) = self.known.iter().position(|entry| entry.answer.is_some())
        {
            self.known.remove(oldest);
        }
        self.known.push_back(Entry { number: ask.number, answer: None, is_due: false });
        self.fresh.push_back(Asked { number: ask.number, request: ask.request.into() });
    }

    /// The next that is to be done.
    pub(super) fn next(&mut self) -> Option<Asked> {
        self.fresh.pop_front()
    }

    /// What came of one. Only the first answer counts.
    pub(super) fn answer(&mut self, session: SessionId, number: u64, result: Result<&str, &str>) {
        let Some(entry) = self.known.iter_mut().find(|entry| entry.number == number) else { return };
        let (kind, text) = match result {
            Ok(text) if text.len() <= MAX_ANSWER_BYTES => (AnswerKind::Done, text),
            // Half of it would be something else.
            Ok(_) => (AnswerKind::Refused, "the answer is too long to be sent"),
            Err(why) => (AnswerKind::Refused, super::text::cut(why, MAX_ANSWER_BYTES)),
        };
        let mut packet = Vec::new();
        let encoded = ProfileOption::from(Answer { session, number, kind, text }).encode(&mut packet);
        if encoded.is_ok() && entry.answer.is_none() {
            (entry.answer, entry.is_due) = (Some(packet.into()), true);
        }
    }

    /// Passes on the answers that are due. One that cannot be sent now is left out: the collector asks again.
    pub(super) fn send(&mut self, mut send: impl FnMut(&[u8]) -> bool) {
        for entry in self.known.iter_mut().filter(|entry| entry.is_due) {
            entry.is_due = false;
            if let Some(answer) = &entry.answer {
                send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use codec::profile::{Known, Message};

    use super::*;

    const SESSION: SessionId = SessionId([9; 16]);

    fn ask(number: u64) -> Ask<'static> {
        Ask { session: SESSION, number, request: "status" }
    }

    /// The answers that are due: numbers, whether it was done, and texts.
    fn sent(asks: &mut Asks) -> Vec<(u64, bool, String)> {
        let mut sent = Vec::new();
        asks.send(|packet| {
            let Ok(Message::Option(Known { option: ProfileOption::Answer(answer), .. })) = Message::decode(packet)
            else {
                panic!("{packet:?}")
            };
            assert_eq!(answer.session, SESSION);
            sent.push((answer.number, answer.kind == AnswerKind::Done, answer.text.into()));
            true
        });
        sent
    }

    #[test]
    fn each_is_done_once_and_answered_as_often_as_it_is_asked() {
        let mut asks = Asks::default();
        asks.hear(&ask(5));
        asks.hear(&ask(5));
        assert_eq!(asks.next(), Some(Asked { number: 5, request: "status".into() }));
        assert_eq!(asks.next(), None, "it is the same request");
        assert_eq!(sent(&mut asks), []);
        asks.answer(SESSION, 5, Ok("fine"));
        asks.answer(SESSION, 5, Err("late"));
        asks.answer(SESSION, 6, Ok("nobody asked"));
        let fine = [(5, true, "fine".into())];
        assert_eq!(sent(&mut asks), fine);
        assert_eq!(sent(&mut asks), [], "not before it is asked for again");
        asks.hear(&ask(5));
        asks.hear(&ask(5));
        assert_eq!(sent(&mut asks), fine);
        assert_eq!(asks.next(), None);
    }

    #[test]
    fn what_is_remembered_and_in_hand_is_bounded() {
        let mut asks = Asks::default();
        (0..1_000).for_each(|number| asks.hear(&ask(number)));
        asks.hear(&Ask { request: &"a".repeat(5_000), ..ask(2_000) });
        assert_eq!(std::iter::from_fn(|| asks.next()).count(), MOST_OPEN);
        for number in 0..500 {
            asks.hear(&ask(number));
            while let Some(asked) = asks.next() {
                asks.answer(SESSION, asked.number, Ok("done"));
            }
            asks.answer(SESSION, number, Err("refused"));
        }
        assert_eq!(asks.known.len(), REMEMBERED);
        asks.hear(&ask(5_000));
        asks.answer(SESSION, 5_000, Ok(&"long ".repeat(4_000)));
        assert!(sent(&mut asks).contains(&(5_000, false, "the answer is too long to be sent".into())));
    }
}
