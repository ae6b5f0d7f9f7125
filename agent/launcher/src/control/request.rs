//! Doing what a request asks for.

use std::{
    collections::HashMap,
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

use agent::{drain::SetLevels, shared::Level};
use steering::{Pace, Status};

use super::Session;
use crate::{
    delivery::{Order, many},
    family::Family,
    rules::{Names, Pattern},
};

/// How long who empties the rings may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long events are counted to tell how many there are in a second.
const COUNTING: Duration = Duration::from_millis(250);

/// Why functions cannot be set.
const FIXED: &str = "not hooked, or needed to join events together";

/// Does what is asked for. What came of it, or why nothing did.
pub(super) fn answer(request: &str, session: &Session, family: &Family) -> Result<String, String> {
    let (word, about) = request.split_once(' ').unwrap_or((request, ""));
    match word {
        "status" => status(session, family),
        "budget" => {
            family.settings.pace.set(about.parse::<Pace>()?);
            family.sessions.tell(|| Order::Pace);
            Ok(format!("the budget is {}", family.settings.pace.get()))
        }
        "level" => {
            let (level, glob) = about.split_once(' ').ok_or("expected a level and a pattern")?;
            set_levels(session, level, glob)
        }
        "exclude" => set_levels(session, "off", about),
        "only" => keep_only(session, about),
        "start" | "stop" => {
            let is_start = word == "start";
            match ask(session, |done| Order::Trigger { is_start, done })? {
                true if is_start => Ok("what is asked for is sent".into()),
                true => Ok("nothing more is sent".into()),
                false => Err("everything is sent: the agent runs without --keep, --start-on and --stop-on".into()),
            }
        }
        _ => Err(format!("expected status, level, exclude, only, budget, start or stop, and not {word}")),
    }
}

/// Asks who empties the rings of a session.
fn ask<T>(session: &Session, order: impl FnOnce(Sender<T>) -> Order) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    let sent = session.orders.send(order(tell)).ok();
    sent.and_then(|()| told.recv_timeout(PATIENCE).ok())
        .ok_or_else(|| "the session has ended, or does not answer".into())
}

fn status(session: &Session, family: &Family) -> Result<String, String> {
    let (before, since) = (ask(session, Order::Status)?, Instant::now());
    thread::sleep(COUNTING);
    let now = ask(session, Order::Status)?;
    let rate = now.events.saturating_sub(before.events) as f64 / since.elapsed().as_secs_f64();
    let (sessions, budget) = (family.sessions.count(), family.settings.pace.get().to_string());
    let status = Status { sessions, budget, events_per_second: rate.round() as u64, ..now };
    serde_json::to_string(&status).map_err(|error| error.to_string())
}

fn functions(count: u64) -> String {
    many(count, "function")
}

fn set(session: &Session, functions: Vec<u32>, level: Option<Level>) -> Result<SetLevels, String> {
    ask(session, |done| Order::Levels { functions, level, done })
}

fn set_levels(session: &Session, word: &str, glob: &str) -> Result<String, String> {
    let level = match word {
        "full" => Some(Level::Full),
        "counted" => Some(Level::Counted),
        "off" => Some(Level::Off),
        "auto" => None,
        _ => return Err(format!("expected full, counted, off or auto, and not {word}")),
    };
    let (matching, _) = sort_out(session, glob)?;
    let result = set(session, matching, level)?;
    let fixed = match result.fixed {
        0 => String::new(),
        fixed => format!("; {fixed} others stay as they are: {FIXED}"),
    };
    match (level, result.set) {
        (Some(_), 0) => Err(format!("{glob}: {} cannot be set: {FIXED}", functions(result.fixed))),
        (Some(_), set) => Ok(format!("{}: {word}{fixed}", functions(set))),
        (None, set) => Ok(format!("{}: as the budget allows", functions(set))),
    }
}

/// Turns everything off but what a pattern is about. What was left out when the program was hooked stays so: that is told.
fn keep_only(session: &Session, glob: &str) -> Result<String, String> {
    let (matching, others) = sort_out(session, glob)?;
    let count = matching.len() as u64;
    let kept = set(session, matching, None)?;
    let followed = count.saturating_sub(kept.fixed);
    if followed == 0 {
        return Err(format!("{glob}: {} cannot be followed: not hooked", functions(count)));
    }
    let off = set(session, others, Some(Level::Off))?;
    let mut text = format!("{}: as the budget allows; {} others: off", functions(followed), off.set);
    if kept.fixed > 0 {
        text += &format!("; {} more of such names cannot be followed: not hooked", kept.fixed);
    }
    if off.fixed > 0 {
        text += &format!("; {} others stay as they are: {FIXED}", off.fixed);
    }
    Ok(text)
}

/// The functions that a pattern is about, and the others, by their numbers.
fn sort_out(session: &Session, glob: &str) -> Result<(Vec<u32>, Vec<u32>), String> {
    let pattern = Pattern::new(glob)?;
    if !pattern.is_of_names() {
        return Err(format!("{glob}: what source files functions are from is not known while the program runs"));
    }
    let modules = ask(session, Order::Modules)?;
    let modules: HashMap<_, _> =
        modules.iter().map(|module| (module.id, (pattern.is_module(&module.path), &module.functions))).collect();
    let is_meant = |id: &codec::FunctionId| {
        let Some((whole, functions)) = modules.get(&id.module().0) else { return false };
        let name = functions.get(id.index() as usize).map_or("", |(_, name)| name);
        *whole || !name.is_empty() && pattern.is_function(&Names::of(&[name]))
    };
    let (mut matching, mut others) = (Vec::new(), Vec::new());
    for (number, id) in (0..).zip(session.functions.ids()) {
        if is_meant(&id) { matching.push(number) } else { others.push(number) }
    }
    match matching.is_empty() {
        true => Err(format!("{glob}: no module and no function has such a name")),
        false => Ok((matching, others)),
    }
}
