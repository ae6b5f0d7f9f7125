//! Runtime events: what pthreads, Dispatch and Swift did, with the keys that join one event to another.

use bytes::BufMut;

use crate::{
    EventKind, Key,
    heph::{Attribute, Attributes, Encode, EncodeError, Event, Stamp, Value, event_size, wire::Wire, write_event},
};

/// The attribute that says whether a runtime function was entered or left.
const PHASE: &str = "phase";

/// A runtime function was entered or left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuntimeEvent<'a> {
    /// Where and when: from when the function was entered to when this happened.
    pub stamp: Stamp,
    /// The name of the runtime's function.
    pub function: &'a str,
    /// Whether it was entered or left.
    pub phase: EventKind,
    /// The keys, and any other attributes.
    pub keys: Attributes<'a>,
}

impl<'a> RuntimeEvent<'a> {
    /// The runtime.
    pub fn runtime(&self) -> Option<Runtime> {
        Runtime::of(self.function)
    }

    /// The value of a key, where the event has it.
    pub fn key(&self, key: Key) -> Option<u64> {
        self.keys.find_u64(key.name())
    }

    /// The runtime event that `event` is, if it is one.
    #[inline]
    pub(crate) fn of(event: &Event<'a>) -> Option<Self> {
        Runtime::of(event.description)?;
        let mut phases = event.attributes.iter().filter(|attribute| attribute.name == PHASE);
        let phase = match (phases.next().map(|attribute| attribute.value), phases.next()) {
            (None, _) => EventKind::Call,
            (Some(Value::U64(number)), None) => EventKind::from_number(number)?,
            _ => return None,
        };
        Some(Self { stamp: event.stamp, function: event.description, phase, keys: event.attributes.without(&[PHASE]) })
    }

    /// The attribute for the phase. A call has none.
    fn phase_attribute(&self) -> Option<Attribute<'static>> {
        let number = u64::from(self.phase.number());
        (self.phase != EventKind::Call).then_some(Attribute { name: PHASE, value: Value::U64(number) })
    }

    fn measure(&self) -> Result<usize, EncodeError> {
        if self.runtime().is_none() {
            return Err(EncodeError::Value { field: "function", expected: "a function of a known runtime" });
        }
        let phase = self.phase_attribute().map_or(Ok(0), |attribute| attribute.measure(PHASE))?;
        Ok(phase.saturating_add(self.keys.measure_beside(&[PHASE])?))
    }
}

impl Encode for RuntimeEvent<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        event_size(self.function, self.measure()?)
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        let attributes = self.measure()?;
        write_event(&self.stamp, self.function, attributes, out, |out| {
            if let Some(phase) = self.phase_attribute() {
                phase.write(out);
            }
            self.keys.write(out);
        })
    }
}

/// A runtime whose events are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runtime {
    /// POSIX threads.
    Pthread,
    /// Grand Central Dispatch.
    Dispatch,
    /// Swift concurrency.
    Swift,
}

impl Runtime {
    /// The runtime that a function belongs to, by the prefix of its name.
    pub fn of(function: &str) -> Option<Self> {
        const PREFIXES: [(&str, Runtime); 4] = [
            ("pthread_", Runtime::Pthread),
            ("dispatch_", Runtime::Dispatch),
            ("_dispatch_", Runtime::Dispatch),
            ("swift_", Runtime::Swift),
        ];
        PREFIXES.iter().find(|(prefix, _)| function.starts_with(prefix)).map(|(_, runtime)| *runtime)
    }
}
