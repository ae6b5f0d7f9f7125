//! dev
use std::sync::{Arc, Mutex, atomic::{AtomicBool, Ordering}};
use agent::shared::{Arena, parse, Kind};
use anyhow::Result;
use crate::{ending::Ending, install::Hooked, settings::Settings, signals::Signals};

#[derive(Debug, Default)]
pub(crate) struct Functions(Mutex<Vec<u64>>);
impl Functions {
    pub(crate) fn add(&self, module: u32, count: usize) -> u32 {
        let mut list = self.0.lock().unwrap();
        let first = list.len() as u32;
        list.extend((0..count as u64).map(|i| u64::from(module) << 32 | i));
        first
    }
}
pub(crate) enum End { Process(Ending), Replaced, Detached }
pub(crate) struct Delivery { functions: Arc<Functions>, names: Mutex<std::collections::HashMap<u32, Hooked>>, stop: Arc<AtomicBool>, thread: Mutex<Option<std::thread::JoinHandle<Vec<(u32, Kind, u32)>>>> }
impl Delivery {
    pub(crate) fn start(_: &Settings, _: i32) -> Result<Self> { Ok(Self { functions: Arc::default(), names: Mutex::default(), stop: Arc::default(), thread: Mutex::default() }) }
    pub(crate) fn functions(&self) -> Arc<Functions> { Arc::clone(&self.functions) }
    pub(crate) fn begin(&self, arena: Arc<Arena>) -> Result<()> {
        let stop = Arc::clone(&self.stop);
        *self.thread.lock().unwrap() = Some(std::thread::spawn(move || {
            let mut got = vec![]; let mut words = vec![];
            loop {
                let stopping = stop.load(Ordering::Relaxed);
                arena.heartbeat();
                let mut any = false;
                for ring in 0..arena.rings_used() {
                    let read = arena.copy(ring, 1 << 16, &mut words);
                    let mut taken = 0;
                    while let Some((r, n)) = match parse(&words[taken..]) { Ok(r) => r, Err(e) => { if words.get(taken) != Some(&0) { eprintln!("{e}"); } None } } { if words[taken] == 0 { break; } got.push((r.function, r.kind, r.depth)); taken += n; }
                    if taken > 0 { any = true; arena.advance(ring, read + 8 * taken as u64); }
                }
                if !any { if stopping { for ring in 0..arena.rings_used() { let h=arena.head(ring); let d = h.dropped.load(Ordering::Relaxed); if d > 0 { eprintln!("ring {ring} dropped {d}"); } } return got; } std::thread::sleep(std::time::Duration::from_micros(500)); }
            }
        }));
        Ok(())
    }
    pub(crate) fn limit(&self, reason: &str, count: u64, detail: &str) { if count > 0 { eprintln!("limit {reason} {count} {detail}"); } }
    pub(crate) fn hooked(&self, module: &Hooked) { eprintln!("module {} hooked {} probed {} left {:?}", module.path, module.hooked, module.probed, module.left.iter().map(|(k, v)| (*k, v.count)).collect::<Vec<_>>()); self.names.lock().unwrap().insert(module.id, module.clone()); }
    pub(crate) fn unloaded(&self, id: u32) { eprintln!("unloaded {id}"); }
    pub(crate) fn end(&mut self, _: End) {}
    pub(crate) fn finish(self, s: &Settings, _: &Signals) {
        self.stop.store(true, Ordering::Relaxed);
        let got = self.thread.into_inner().unwrap().unwrap().join().unwrap();
        let ids = self.functions.0.lock().unwrap(); let names = self.names.lock().unwrap();
        let mut counts = std::collections::BTreeMap::<(String, u8), u64>::new();
        for (f, k, _) in &got { if (*k as u8) > 3 { continue; } let id = ids[*f as usize]; let m = &names[&((id >> 32) as u32)]; let n = &m.functions[id as u32 as usize]; *counts.entry((format!("{}!{}", m.path.rsplit('/').next().unwrap(), n.1), *k as u8)).or_default() += 1; }
        eprintln!("records {}", got.len());
        if s.verbose { for ((n, k), c) in counts { eprintln!("{c} {k} {n}"); } }
    }
}
