//! The calls and returns of a program that never was, nested as those of real ones are.

use codec::{
    EventKind, FunctionId, ModuleId, SessionId, SessionNs,
    heph::Encode,
    profile::{Detail, FunctionName, Functions, Module, ProfileOption, Registers},
};

use crate::load::{Carries, encode, function_event, opening, stamp};

/// How many functions the program has.
pub const FUNCTIONS: u32 = 2000;

/// What an agent says before its first event, as packets.
pub fn options(session: SessionId) -> Vec<Vec<u8>> {
    let names: Vec<String> = (0..FUNCTIONS).map(|index| format!("function_number_{index}")).collect();
    let functions: Vec<FunctionName<'_>> =
        (0..).zip(&names).map(|(index, name)| FunctionName { offset: index * 64, name }).collect();
    let module = Module {
        id: ModuleId(1),
        base: 0x10000,
        size: 0x100000,
        loaded: SessionNs(0),
        unloaded: None,
        function_count: FUNCTIONS,
        table_hash: 0,
        build_id: &[],
        path: "/usr/bin/program",
    };
    let mut all: Vec<ProfileOption<'_>> = vec![module.into()];
    for (part, first) in functions.chunks(100).zip((0..).step_by(100)) {
        all.push(Functions { module: ModuleId(1), first_index: first, functions: part.into() }.into());
    }
    [opening(session)].into_iter().chain(all.iter().map(encode)).collect()
}

/// A walk through a call tree: calls and returns, at depths up to 30.
#[derive(Debug)]
pub struct Walk {
    stream: u32,
    position: u64,
    at: u64,
    seed: u64,
    open: Vec<(FunctionId, u64)>,
    carries: Carries,
    /// Whether few functions are called from the same place, as in most programs.
    is_regular: bool,
}

impl Walk {
    /// Of one thread.
    pub fn new(stream: u32, carries: Carries) -> Self {
        let seed = 0x9E37_79B9_7F4A_7C15 ^ u64::from(stream);
        Self { stream, position: 0, at: 0, seed, open: Vec::new(), carries, is_regular: false }
    }

    /// The same, but some thousand different stacks are all there are.
    pub fn regular(stream: u32, carries: Carries) -> Self {
        Self { is_regular: true, ..Self::new(stream, carries) }
    }

    /// How many events were written.
    pub fn position(&self) -> u64 {
        self.position
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
            let any = u32::try_from(self.random() % u64::from(FUNCTIONS)).unwrap_or(0);
            let depth = u32::try_from(self.open.len()).unwrap_or(0);
            let index = if self.is_regular { depth * 2 + any % if depth < 8 { 2 } else { 1 } } else { any };
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
