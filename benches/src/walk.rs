//! The calls and returns of a program that never was, nested as those of real ones are.

use codec::{
    EventKind, FunctionId, ModuleId,
    heph::Encode,
    profile::{Detail, Registers},
};

use crate::load::{Carries, function_event, stamp};

/// How many functions the program has.
pub const FUNCTIONS: u32 = 2000;

/// A walk through a call tree: calls and returns, at depths up to 30.
#[derive(Debug)]
pub struct Walk {
    stream: u32,
    position: u64,
    at: u64,
    seed: u64,
    open: Vec<(FunctionId, u64)>,
    carries: Carries,
}

impl Walk {
    /// Of one thread.
    pub fn new(stream: u32, carries: Carries) -> Self {
        let seed = 0x9E37_79B9_7F4A_7C15 ^ u64::from(stream);
        Self { stream, position: 0, at: 0, seed, open: Vec::new(), carries }
    }

    /// How many functions are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.seed >> 33
    }

    /// Writes the next event.
    pub fn step(&mut self, out: &mut Vec<u8>) {
        self.at += 20 + self.random() % 100;
        // It climbs more often than not while it is low.
        let calls = self.open.is_empty() || (self.open.len() < 30 && self.random() % 32 >= self.open.len() as u64);
        let (kind, function, start) = if calls {
            let index = u32::try_from(self.random() % u64::from(FUNCTIONS)).unwrap_or(0);
            let function = FunctionId::new(ModuleId(1), index);
            self.open.push((function, self.at));
            (EventKind::Call, function, self.at)
        } else {
            let (function, start) = self.open.pop().expect("something is open");
            (EventKind::Return, function, start)
        };
        let depth = self.open.len() - usize::from(calls);
        self.write(kind, function, start, depth, out);
    }

    /// Writes the return of whatever is open.
    pub fn climb_down(&mut self, out: &mut Vec<u8>) {
        while let Some((function, start)) = self.open.pop() {
            self.at += 10;
            self.write(EventKind::Return, function, start, self.open.len(), out);
        }
    }

    fn write(&mut self, kind: EventKind, function: FunctionId, start: u64, depth: usize, out: &mut Vec<u8>) {
        let registers = Registers::default().to_words();
        let detail = (self.carries == Carries::Detail).then(|| Detail::new(&registers, &[0; 16]));
        let stamp = stamp(self.stream, self.position, start, self.at);
        let event = function_event(stamp, kind, function, u32::try_from(depth).unwrap_or(u32::MAX), detail);
        self.position += 1;
        event.encode(out).expect("it fits");
    }
}
