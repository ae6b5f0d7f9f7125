//! A network between agents and a collector that loses, doubles, delays and reorders datagrams, by a seed.

mod record;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::Random;
use record::Record;

/// How long a thread waits for a datagram before it looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(10);

/// What goes wrong, each with its probability for every datagram.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// It is lost.
    pub lose: f64,
    /// It and those after it are lost, as many as `burst_datagrams`.
    pub burst: f64,
    /// How many datagrams a burst takes.
    pub burst_datagrams: u32,
    /// It arrives twice.
    pub double: f64,
    /// It arrives late, behind others.
    pub delay: f64,
    /// How late it arrives at most.
    pub delay_at_most: Duration,
    /// Whether datagrams with options in them are spared from loss.
    pub spare_options: bool,
    /// What comes back from the collector is lost.
    pub lose_answers: f64,
    /// Whether an event that was lost once is lost whenever it is sent again.
    pub lose_for_good: bool,
}

impl Faults {
    /// A network that does no harm.
    pub const NONE: Self = Self {
        lose: 0.0,
        burst: 0.0,
        burst_datagrams: 0,
        double: 0.0,
        delay: 0.0,
        delay_at_most: Duration::ZERO,
        spare_options: false,
        lose_answers: 0.0,
        lose_for_good: false,
    };

    /// A network as bad as any.
    pub const BAD: Self = Self {
        lose: 0.1,
        burst: 0.01,
        burst_datagrams: 5,
        double: 0.05,
        delay: 0.1,
        delay_at_most: Duration::from_millis(20),
        lose_answers: 0.1,
        ..Self::NONE
    };
}

/// A relay. Agents send to its [`address`](Self::address).
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    faults: Mutex<Faults>,
    record: Mutex<Record>,
    stopped: AtomicBool,
    /// How often the agents or the collector were moved.
    moves: AtomicU32,
    collector: Mutex<SocketAddr>,
}

impl Shared {
    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        // ORDERING: nothing but the flag itself is told by it.
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Relay {
    /// A relay in front of a collector's UDP socket.
    pub fn start(collector: SocketAddr, seed: u64, faults: Faults) -> io::Result<Self> {
        let socket = UdpSocket::bind(local(collector))?;
        socket.set_read_timeout(Some(GLANCE))?;
        let address = socket.local_addr()?;
        let shared = Arc::new(Shared {
            faults: Mutex::new(faults),
            record: Mutex::new(Record::default()),
            stopped: AtomicBool::new(false),
            moves: AtomicU32::new(0),
            collector: Mutex::new(collector),
        });
        let mut forward = Forward {
            socket: Arc::new(socket),
            shared: Arc::clone(&shared),
            random: Random::new(seed),
            burst_left: 0,
            delayed: BinaryHeap::new(),
            upstream: HashMap::new(),
            seed,
        };
        let thread = thread::spawn(move || forward.run());
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where agents send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what goes wrong from now on.
    pub fn set(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// From now on the collector sees all agents come from other ports.
    pub fn move_agents(&self) {
        // ORDERING: nothing but the number itself is told by it.
        self.shared.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on everything goes to this collector.
    pub fn move_to(&self, collector: SocketAddr) {
        *self.shared.collector.lock().unwrap_or_else(PoisonError::into_inner) = collector;
        self.move_agents();
    }

    /// The events of which no copy went through, as stream and counter.
    pub fn lost(&self) -> BTreeSet<(u32, u32)> {
        self.shared.record().lost()
    }

    /// How many datagrams came from agents, and how many of them were lost.
    pub fn datagrams(&self) -> (u64, u64) {
        let record = self.shared.record();
        (record.datagrams, record.datagrams_lost)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // ORDERING: nothing but the flag itself is told by it.
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A free port on the side of the machine that this address is on.
fn local(to: SocketAddr) -> &'static str {
    if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }
}

/// When a datagram is due, how many came before it, who sent it, and what.
type Delayed = (Instant, u64, SocketAddr, Vec<u8>);

/// The way from agents to the collector.
struct Forward {
    socket: Arc<UdpSocket>,
    shared: Arc<Shared>,
    random: Random,
    burst_left: u32,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// A socket for every agent, and another after each move, so that the collector tells them apart.
    upstream: HashMap<(SocketAddr, u32), (Arc<UdpSocket>, JoinHandle<()>)>,
    seed: u64,
}

impl Forward {
    fn run(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        while !self.shared.is_stopped() {
            let due = self.delayed.peek().map(|Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
            let wait = due.unwrap_or(GLANCE).clamp(Duration::from_micros(100), GLANCE);
            let _ = self.socket.set_read_timeout(Some(wait));
            if let Ok((count, agent)) = self.socket.recv_from(&mut buffer) {
                self.take(&buffer[..count], agent);
            }
            while self.delayed.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
                let Some(Reverse((_, _, agent, datagram))) = self.delayed.pop() else { break };
                self.deliver(&datagram, agent);
            }
        }
        for (_, (_, thread)) in self.upstream.drain() {
            let _ = thread.join();
        }
    }

    fn take(&mut self, datagram: &[u8], agent: SocketAddr) {
        let faults = self.shared.faults();
        let rest = faults.lose_for_good.then(|| self.shared.record().without_lost(datagram));
        let datagram = rest.as_deref().unwrap_or(datagram);
        if datagram.is_empty() {
            return;
        }
        let has_options = self.shared.record().see(datagram);
        // Every datagram takes the same numbers from the generator, whatever becomes of it.
        let [burst, lose] = [faults.burst, faults.lose].map(|probability| self.random.chance(probability));
        let [double, delay] = [faults.double, faults.delay].map(|probability| self.random.chance(probability));
        let late = self.random.below(faults.delay_at_most.as_nanos() as u64 + 1);
        if burst && self.burst_left == 0 {
            self.burst_left = faults.burst_datagrams;
        }
        let in_burst = self.burst_left > 0;
        self.burst_left = self.burst_left.saturating_sub(1);
        if (lose || in_burst) && !(has_options && faults.spare_options) {
            self.shared.record().datagrams_lost += 1;
            return;
        }
        if double || !delay {
            self.deliver(datagram, agent);
        }
        if double || delay {
            let due = Instant::now() + Duration::from_nanos(late);
            let number = self.shared.record().datagrams;
            self.delayed.push(Reverse((due, number, agent, datagram.to_vec())));
        }
    }

    fn deliver(&mut self, datagram: &[u8], agent: SocketAddr) {
        // ORDERING: nothing but the number itself is told by it.
        let key = (agent, self.shared.moves.load(Ordering::Relaxed));
        if !self.upstream.contains_key(&key) {
            let Ok(opened) = self.open(agent) else { return };
            self.upstream.insert(key, opened);
        }
        let Some((socket, _)) = self.upstream.get(&key) else { return };
        if socket.send(datagram).or_else(|_| socket.send(datagram)).is_ok() {
            self.shared.record().pass(datagram);
        }
    }

    /// Opens the way for another agent, and the way back.
    fn open(&self, agent: SocketAddr) -> io::Result<(Arc<UdpSocket>, JoinHandle<()>)> {
        let collector = *self.shared.collector.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = UdpSocket::bind(local(collector))?;
        socket.connect(collector)?;
        socket.set_read_timeout(Some(GLANCE))?;
        let socket = Arc::new(socket);
        let (from, to, shared) = (Arc::clone(&socket), Arc::clone(&self.socket), Arc::clone(&self.shared));
        let mut random = Random::new(self.seed ^ (self.upstream.len() as u64 + 1) << 32);
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while !shared.is_stopped() {
                let Ok(count) = from.recv(&mut buffer) else { continue };
                if !random.chance(shared.faults().lose_answers) {
                    let _ = to.send_to(&buffer[..count], agent);
                }
            }
        });
        Ok((socket, thread))
    }
}
