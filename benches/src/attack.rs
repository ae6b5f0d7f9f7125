//! Senders that have a collector remember as much as it will.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use codec::{
    Arch, Counter, EventKind, FunctionId, ModuleId, Os, SessionId, SessionNs, StreamId, SubstreamId,
    heph::{Attribute, Attributes, Encode, Stamp, Value},
    profile::{FunctionEvent, FunctionName, Functions, Key, ProfileOption, RuntimeEvent, Session},
};

/// What a sender sends without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Calls within calls that never return.
    Nested,
    /// The same on ten thousand threads by turns.
    Threads,
    /// Returns of functions that were entered long ago, and overlap.
    Overlapping,
    /// Blocks that are submitted to queues and never run.
    Blocks,
    /// Tasks that are created and never run.
    Tasks,
    /// Functions with long names, each called once.
    Names,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Nested, Self::Threads, Self::Overlapping, Self::Blocks, Self::Tasks, Self::Names];

    /// Attacks over as many connections as there are attacks, until the time is over. Nobody ends a session.
    pub fn all(attacks: &[Self], to: SocketAddr, time: Duration) {
        let end = Instant::now() + time;
        thread::scope(|scope| {
            for (number, attack) in (1..).zip(attacks) {
                scope.spawn(move || attack.run(number, to, end));
            }
        });
    }

    fn run(self, number: u8, to: SocketAddr, end: Instant) {
        let mut stream = TcpStream::connect(to).expect("the collector accepts");
        stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let mut packets = session(number);
        let mut next = 0;
        while Instant::now() < end {
            while packets.len() < 1 << 18 {
                self.add(next, &mut packets);
                next += 1;
            }
            // A collector that does not read any more has enough.
            if stream.write_all(&packets).is_err() {
                return;
            }
            packets.clear();
        }
    }

    /// Adds what comes at this place.
    fn add(self, at: u32, to: &mut Vec<u8>) {
        let now = u64::from(at) * 1_000 + 1_000_000;
        let stamp = |stream: u32, counter: u32, start: u64| Stamp {
            stream: StreamId(stream),
            counter: Counter(counter),
            substream: SubstreamId(0),
            start: SessionNs(start),
            end: SessionNs(now),
        };
        let function = |stamp, kind, depth, index| FunctionEvent {
            stamp,
            kind,
            function: Some(FunctionId::new(ModuleId(1), index)),
            ip: None,
            depth,
            detail: None,
            extra: Attributes::default(),
        };
        let runtime = |name: &'static str, keys: &[(Key, u64)], to: &mut Vec<u8>| {
            let keys: Vec<_> =
                keys.iter().map(|(key, value)| Attribute { name: key.name(), value: Value::U64(*value) }).collect();
            let keys = keys.as_slice().into();
            RuntimeEvent { stamp: stamp(0, at, now), function: name, phase: EventKind::Call, keys }.encode(to)
        };
        let key = u64::from(at);
        let encoded = match self {
            Self::Nested => function(stamp(0, at, now), EventKind::Call, at, 1).encode(to),
            Self::Threads => {
                let (stream, counter) = (at % 10_000, at / 10_000);
                function(stamp(stream, counter, now), EventKind::Call, counter, 1).encode(to)
            }
            Self::Overlapping => {
                let start = now / 2 - u64::from(at.wrapping_mul(2_654_435_769) >> 24);
                function(stamp(0, at, start), EventKind::Return, at % 7, 1).encode(to)
            }
            Self::Blocks => runtime("dispatch_async", &[(Key::Block, key), (Key::Queue, key)], to),
            Self::Tasks => runtime("swift_task_create", &[(Key::Task, key)], to),
            Self::Names => {
                let name = format!("{at:0>200}");
                let names = [FunctionName { offset: 1, name: &name }];
                let functions = Functions { module: ModuleId(1), first_index: at, functions: (&names).into() };
                ProfileOption::from(functions).encode(to).expect("it fits a packet");
                function(stamp(0, at, now), EventKind::Call, at % 40, at).encode(to)
            }
        };
        encoded.expect("it fits a packet");
    }
}

fn session(number: u8) -> Vec<u8> {
    let session = Session {
        id: SessionId([number; 16]),
        profile: 1,
        arch: Arch::X86_64,
        os: Os::Linux,
        pid: 1,
        agent_version: "hostile",
        host: "host",
        executable: "program",
        argument_count: 0,
        arguments: (&[]).into(),
    };
    let mut packet = Vec::new();
    ProfileOption::from(session).encode(&mut packet).expect("it fits a packet");
    packet
}
