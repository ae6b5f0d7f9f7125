//! Both sides in one process: the test hooks functions of its own program, calls them, and reads the ring.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use agent::{
    plan::{Image, plan},
    shared::{Arena, Command, FLAG_DETAIL, Kind, Level, MailboxRequest, SKIP, Watched, parse, set_slot},
    stub::{Block, Routines, Stub},
};

unsafe extern "C" {
    fn spoor_open(ring_bytes: u64, rings: u64, stack_bytes: u32, flags: u32) -> i64;
    fn spoor_close(descriptor: i64);
    fn spoor_serve(subject: u32, module: u64);
    fn spoor_routines() -> *const u64;
}

/// What the command does with every thread from outside. Called before any other is started, which inherit it.
#[used]
#[unsafe(link_section = ".init_array")]
static POINT_GS: extern "C" fn() = point_gs;

extern "C" fn point_gs() {
    const SET_GS: libc::c_long = 0x1001;
    // SAFETY: a table of the agent's; nothing else here uses gs.
    unsafe {
        let table = spoor_routines();
        let gs = *table.add(*table as usize);
        libc::syscall(libc::SYS_arch_prctl, SET_GS, gs);
    }
}

/// What the whole process has: the memory, and which function has which number.
pub(crate) struct Engine {
    pub(crate) arena: Arena,
    names: Mutex<Vec<String>>,
    memory: File,
    routines: Routines,
}

/// A record, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) depth: u32,
    pub(crate) rest: Vec<u64>,
}

pub(crate) const STACK_BYTES: u32 = 64;

/// Tests take turns: each looks at what it has hooked and recorded itself.
pub(crate) fn engine() -> (MutexGuard<'static, ()>, &'static Engine) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, opened())
}

/// The same for what a test calls, which has the turn.
pub(crate) fn opened() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(Engine::open)
}

impl Engine {
    fn open() -> Self {
        // SAFETY: functions of the agent, called as the command has Frida call them.
        let (file, told) = unsafe {
            let descriptor = spoor_open(1 << 20, 64, STACK_BYTES, FLAG_DETAIL);
            assert!(descriptor >= 0, "{descriptor}");
            let file = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{descriptor}"));
            spoor_close(descriptor);
            let table = spoor_routines();
            (file.expect("the shared memory"), std::slice::from_raw_parts(table.add(1), *table as usize))
        };
        let arena = Arena::map(file).expect("the arena");
        arena.control().recording.store(1, Ordering::Relaxed);
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").expect("our own memory");
        let routines = Routines::new(told, true).expect("all routines");
        Self { arena, names: Mutex::new(Vec::new()), memory, routines }
    }

    /// Hooks the functions of a module that `wanted` says.
    pub(crate) fn hook(&self, module: &str, wanted: impl Fn(&str) -> bool) -> usize {
        let (path, base, end) = find_module(module);
        let image = Image::open(&path).expect("a module");
        let bias = base - image.link_base();
        let plan = plan(&image, None, &|_| None);
        let named = |function: &&agent::plan::Function| {
            [&function.name].into_iter().chain(&function.aliases).any(|name| wanted(name))
        };
        let functions: Vec<_> =
            plan.functions.iter().filter(named).filter(|function| function.hook().is_some()).collect();
        let address = self.map_near(end, Block::bytes_for(functions.len()) as u64);
        let slots = self.arena.control().slots.load(Ordering::Relaxed);
        assert_ne!(slots, 0, "there is memory below 2 GiB");
        let mut block = Block::new(address, bias, self.routines, slots);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for function in &functions {
            let watched = Watched::may_be_in(module).then(|| Watched::by_name(&function.name)).flatten();
            let (number, address) = (names.len() as u32, function.address + bias);
            names.push(function.name.clone());
            block.add(&Stub { number, address, watched, hook: function.hook() }).expect("a stub");
        }
        self.memory.write_all_at(block.bytes(), address).expect("stubs");
        for (number, full) in block.gates() {
            self.arena.slot(*number).expect("a slot").store(*full, Ordering::Relaxed);
        }
        for patch in block.patches() {
            self.memory.write_all_at(&patch.jump, patch.address).expect("a jump");
        }
        functions.len()
    }

    fn number(&self, name: &str) -> u32 {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().position(|hooked| hooked == name).expect("it is hooked") as u32
    }

    /// Gives a function another level. Whether it takes it.
    pub(crate) fn set_level(&self, name: &str, level: Level) -> bool {
        set_slot(self.arena.slot(self.number(name)).expect("a slot"), level)
    }

    /// How many calls of a function all threads have counted.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let number = self.number(name);
        let counter = |ring| self.arena.counter(ring, number).expect("a counter").load(Ordering::Relaxed);
        (0..self.arena.rings_used()).map(counter).sum()
    }

    /// Has this process map memory behind an address, through the mailbox: one thread asks, another serves.
    fn map_near(&self, end: u64, bytes: u64) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(10);
        std::thread::scope(|scope| {
            // SAFETY: it serves what is asked below, and then goes on.
            scope.spawn(|| unsafe { spoor_serve(0, 0) });
            assert_eq!(self.arena.wait_request(deadline), Some(MailboxRequest::Ready));
            let places = (1..2000).map(|step| (end + step * (1 << 20)) & !0xFFF);
            let mut free = places
                .filter(|place| self.arena.ask(Command::Map, &[*place, bytes], deadline).expect("an answer") == *place);
            let place = free.next().expect("memory near the module");
            self.arena.go_on(deadline).expect("the other thread goes on");
            place
        })
    }

    /// Everything that has been recorded since the last time, on all threads, ring by ring.
    pub(crate) fn take(&self) -> Vec<Event> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        let mut words = Vec::new();
        for ring in 0..self.arena.rings_used() {
            loop {
                let read = self.arena.copy(ring, 1 << 16, &mut words);
                let mut taken = 0;
                // Behind the last record before the ring's end there is none.
                while words.get(taken).is_some_and(|first| *first != SKIP)
                    && let Some((record, length)) = parse(&words[taken..]).expect("a record")
                {
                    let name = match record.kind {
                        Kind::Call | Kind::Return | Kind::Exception => names[record.function as usize].clone(),
                        Kind::Runtime => agent::shared::RUNTIME_FUNCTIONS[record.function as usize].into(),
                        _ => String::new(),
                    };
                    events.push(Event { kind: record.kind, name, depth: record.depth, rest: record.rest.to_vec() });
                    taken += length;
                }
                if taken == 0 {
                    break;
                }
                self.arena.advance(ring, read + 8 * taken as u64);
            }
        }
        events
    }
}

fn find_module(name: &str) -> (String, u64, u64) {
    let maps = fs::read_to_string("/proc/self/maps").expect("our own map");
    let own = fs::read_link("/proc/self/exe").expect("our own path");
    let wanted = |path: &str| if name.is_empty() { own.as_os_str() == path } else { path.contains(name) };
    let mut found: Option<(String, u64, u64)> = None;
    for line in maps.lines() {
        let Some(path) = line.split_whitespace().nth(5).filter(|path| wanted(path)) else { continue };
        let (start, end) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        let base = found.as_ref().map_or(number(start), |(_, base, _)| *base);
        found = Some((path.into(), base, number(end)));
    }
    found.unwrap_or_else(|| panic!("{name} is not loaded"))
}

/// Events as text, to compare: `> name depth`, `< name depth`, `x name depth`.
pub(crate) fn told(events: &[Event]) -> Vec<String> {
    let mark = |kind| match kind {
        Kind::Call => ">",
        Kind::Return => "<",
        Kind::Exception => "x",
        _ => "?",
    };
    events.iter().map(|event| format!("{} {} {}", mark(event.kind), event.name, event.depth)).collect()
}
