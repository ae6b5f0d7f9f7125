//! Turning functions down and up at random while a program runs, as anybody can who has the agent's memory.

use std::{
    fs::{self, OpenOptions},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use real_agent::shared::{Arena, Level, set_slot};

use crate::Random;

/// How often levels change.
const EVERY: Duration = Duration::from_micros(500);

/// Gives functions of all programs that an agent traces other levels, again and again, until it is stopped.
#[derive(Debug)]
pub struct Shaker {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

/// All levels, and those with which every call is told or counted.
pub const ALL_LEVELS: &[Level] = &[Level::Full, Level::Counted, Level::Off];
/// See [`ALL_LEVELS`].
pub const EXACT_LEVELS: &[Level] = &[Level::Full, Level::Counted];

impl Shaker {
    /// Begins to, with these levels.
    pub fn start(agent: u32, seed: u64, levels: &'static [Level]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut random = Random::new(seed);
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                let arenas = arenas(agent);
                for _ in 0..50 {
                    changes += arenas.iter().map(|arena| shake(arena, levels, &mut random)).sum::<u64>();
                    thread::sleep(EVERY);
                }
            }
            changes
        });
        Self { is_over, thread }
    }

    /// Stops that. How many levels were set.
    pub fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only stores words")
    }
}

/// The memory that an agent shares with the programs that it traces.
fn arenas(agent: u32) -> Vec<Arena> {
    let open = fs::read_dir(format!("/proc/{agent}/fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_shared = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:spoor"))
    };
    let shared = open.filter(is_shared);
    shared.filter_map(|path| Arena::map(OpenOptions::new().read(true).write(true).open(path).ok()?).ok()).collect()
}

/// Gives one function in sixteen another level.
fn shake(arena: &Arena, levels: &[Level], random: &mut Random) -> u64 {
    let used = arena.control().slots_used.load(Ordering::Relaxed);
    let set = (0..used / 16).filter(|_| {
        let level = levels[random.below(levels.len() as u64) as usize];
        arena.slot(random.below(used) as u32).is_some_and(|slot| set_slot(slot, level))
    });
    set.count() as u64
}
