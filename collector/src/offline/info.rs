//! `collector info`: what a session directory holds.

mod relatives;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use answers::{
    family::{Family, Parent},
    scan::Scan,
    seconds,
    trace::{Trace, move_times},
};
use anyhow::{Context, Result};
use codec::{
    FunctionId, ModuleId,
    atf::ThreadEntry,
    text::{printable_json, shorten},
};

use crate::{
    args::InfoArgs,
    offline::{family_at, printable, tell},
    quantity::{Period, Size, count, counted},
};

/// How many modules, threads and gaps are listed one by one.
const LISTED: usize = 20;

/// How many bytes are printed of what was not captured. The manifest has the rest.
const LONGEST_DETAIL: usize = 160;

pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    let dir = &args.dir.dir;
    let sessions = sinks::disk::sessions_in(dir).with_context(|| format!("cannot look into {}", dir.display()))?;
    let (family, one) = family_at(dir, sessions);
    let places = one.map_or_else(|| (0..family.members.len()).collect(), |one| vec![one]);
    let mut out = io::stdout().lock();
    let whole = match one.is_none() && !args.json && family.has_births() {
        true => list_families(&family, &mut out),
        false => list(&family, &places, args.json, &mut out),
    };
    Ok(if whole.context("cannot write to standard output")? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells of each session. One that cannot be read keeps nobody from the others; then it is not true. The error is one
/// of writing.
fn list(family: &Family, places: &[usize], as_json: bool, out: &mut impl Write) -> io::Result<bool> {
    let mut whole = true;
    for place in places {
        let Some(member) = family.members.get(*place) else { continue };
        let text = Trace::open(&member.dir).and_then(|trace| {
            let text = if as_json { json(&trace, family, *place) } else { describe(&trace, family, *place) }?;
            let wrong = match Scan::open(&trace, &trace.threads()) {
                Ok(scan) => scan.wrong(),
                Err(error) => Some(format!("{error:#}")),
            };
            Ok((text, wrong))
        });
        let wrong = match text {
            Ok((text, wrong)) if tell(out, &text)? => wrong,
            Ok(_) => break,
            Err(error) => Some(format!("{error:#}")),
        };
        whole &= !complain(&member.dir, wrong);
    }
    Ok(whole)
}

/// The same in a line for each session, below the one that made it.
fn list_families(family: &Family, out: &mut impl Write) -> io::Result<bool> {
    let mut whole = true;
    for (place, level) in family.below(family.roots().collect::<Vec<_>>()) {
        let Some(member) = family.members.get(place) else { continue };
        let (text, wrong) = relatives::line(family, place, level);
        whole &= !complain(&member.dir, wrong);
        if !tell(out, &text)? {
            break;
        }
    }
    Ok(whole)
}

/// Says what is wrong with a session, if something is.
fn complain(session: &Path, wrong: Option<String>) -> bool {
    wrong.inspect(|wrong| note!("{}: {}", session.display(), printable(wrong))).is_some()
}

fn json(trace: &Trace, family: &Family, place: usize) -> Result<String> {
    let mut manifest = trace.manifest.clone();
    move_times(&mut manifest, trace.zero_ns(), 0);
    let mut value = serde_json::to_value(&manifest)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("directory".into(), trace.dir.display().to_string().into());
        object.insert("unfinished".into(), trace.is_unfinished.into());
        let member = family.members.get(place);
        let directory = |place: usize| family.members.get(place).map(|member| member.dir.display().to_string());
        if let Some(Parent::Known(parent)) = member.map(|member| member.parent) {
            object.insert("parent_directory".into(), directory(parent).into());
        }
        let children = member.map_or(&[][..], |member| &member.children);
        if !children.is_empty() {
            object.insert("children".into(), children.iter().copied().filter_map(directory).collect());
        }
    }
    Ok(format!("{}\n", printable_json(&value.to_string())))
}

fn describe(trace: &Trace, family: &Family, place: usize) -> Result<String> {
    let manifest = &trace.manifest;
    let mut out = format!("{}\n", trace.dir.display());
    if let Some(process) = &manifest.process {
        let more = u64::from(process.argument_count).saturating_sub(process.arguments.len() as u64);
        writeln!(
            out,
            "  program    {} (pid {}) on {}, {} {}",
            printable(&process.executable),
            process.pid,
            printable(&process.host),
            printable(&process.os),
            printable(&process.arch)
        )?;
        if !process.arguments.is_empty() {
            let left_out = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(out, "  arguments  {}{left_out}", printable(&process.arguments.join(" ")))?;
        }
        writeln!(out, "  agent      {}", printable(&process.agent_version))?;
    } else {
        writeln!(out, "  program    unknown: it has not said, as plain Heph does not")?;
    }
    if let Some(session) = &manifest.session {
        writeln!(out, "  session    {}", printable(session))?;
    }
    relatives::describe(trace, family, place, &mut out)?;
    if let Some(part) = manifest.part {
        writeln!(out, "  part       {part}")?;
    }
    let lasted = Period(Duration::from_nanos(manifest.time_end_ns.saturating_sub(manifest.time_start_ns)));
    match (manifest.time_start_ns, manifest.time_end_ns) {
        (0, 0) => writeln!(out, "  time       not known yet")?,
        (from, to) => {
            let [from, to] = [from, to].map(|time| seconds(time.saturating_sub(trace.zero_ns())));
            writeln!(out, "  time       {lasted}, from {from} to {to} s")?;
        }
    }
    if let (Some(clock), Some(zero)) = (&manifest.clock, manifest.clock_zero_ns) {
        writeln!(out, "  zero       {} s by {}", seconds(zero), printable(clock))?;
    }
    if let (Some(offset), Some(epoch)) = (manifest.offset, manifest.epoch_unix_ns) {
        let by = Period(Duration::from_nanos(offset.zero_unix_ns.abs_diff(epoch)));
        let what = if offset.zero_unix_ns >= epoch { "ahead of" } else { "behind" };
        let error = Period(Duration::from_nanos(offset.error_ns));
        writeln!(out, "  clocks     the collector's is {by} {what} the sender's, ± {error}")?;
    }
    writeln!(out, "  end        {}", printable(&end_of(trace)))?;
    describe_modules(trace, &mut out)?;
    describe_threads(trace, &mut out)?;
    describe_missing(trace, &mut out)?;
    writeln!(out, "  size       {}", Size(bytes(&trace.dir)))?;
    Ok(out)
}

/// How a session ended.
fn end_of(trace: &Trace) -> String {
    match &trace.manifest.end {
        Some(end) => end.code.map_or_else(|| end.how.clone(), |code| format!("{} ({code})", end.how)),
        None => "not finished: it is being written, or its collector was killed (see `collector repair`)".into(),
    }
}

/// How many events of a thread there are.
fn written_of(trace: &Trace, thread: &ThreadEntry) -> u64 {
    // A session that is being written says nothing of it yet, but its files do.
    thread.written.or_else(|| Scan::events_of(trace, thread)).unwrap_or(0)
}

/// How many events there are.
fn written(trace: &Trace) -> u64 {
    trace.threads().iter().map(|thread| written_of(trace, thread)).fold(0, u64::saturating_add)
}

/// How many functions each module has, how many of them have names, and of how many it is known where they are in their
/// sources.
fn describe_modules(trace: &Trace, out: &mut String) -> Result<()> {
    let manifest = &trace.manifest;
    let mut counts: BTreeMap<ModuleId, [u64; 3]> = BTreeMap::new();
    for function in &manifest.functions {
        let [all, named, sourced] = counts.entry(FunctionId(function.id).module()).or_default();
        *all += 1;
        *named += u64::from(!function.name.is_empty());
        *sourced += u64::from(function.source.is_some());
    }
    // Those of module 0 stand for other events.
    counts.remove(&ModuleId(0));
    let told = |[all, named, sourced]: [u64; 3]| {
        let lines = if sourced > 0 { format!(", {} with source lines", count(sourced)) } else { String::new() };
        format!("{}, {} with names{lines}", counted(all, "function"), count(named))
    };
    let sum = counts.values().fold([0; 3], |sum, one| [0, 1, 2].map(|at| sum[at] + one[at]));
    writeln!(out, "  modules    {}, with {}", count(manifest.modules.len() as u64), told(sum))?;
    for module in manifest.modules.iter().take(LISTED) {
        let functions = told(counts.get(&ModuleId(module.id)).copied().unwrap_or_default());
        writeln!(out, "    module {} {}: {functions}", module.id, printable(&module.path))?;
    }
    if manifest.modules.len() > LISTED {
        writeln!(out, "    … and {} more", count((manifest.modules.len() - LISTED) as u64))?;
    }
    Ok(())
}

fn describe_threads(trace: &Trace, out: &mut String) -> Result<()> {
    let threads = trace.threads();
    let total = written(trace);
    let missing = trace.manifest.missing().into_values().fold(0, u64::saturating_add);
    let threads_told = counted(threads.len() as u64, "thread");
    match trace.is_unfinished {
        true => {
            writeln!(
                out,
                "  events     {} written so far, of {threads_told}; what is missing is not known yet",
                count(total)
            )?;
        }
        false => writeln!(
            out,
            "  events     {} produced = {} written + {} missing, of {threads_told}",
            count(total.saturating_add(missing)),
            count(total),
            count(missing),
        )?,
    }
    for thread in threads.iter().take(LISTED) {
        let name = thread.name.as_deref().map_or_else(String::new, |name| format!(" {}", printable(name)));
        let os_id = thread.os_id.map_or_else(String::new, |id| format!(" tid {id}"));
        let detail = if thread.has_detail { ", with detail" } else { "" };
        writeln!(
            out,
            "    thread {}{os_id}{name}: {}{detail}",
            thread.id,
            counted(written_of(trace, thread), "event")
        )?;
    }
    if threads.len() > LISTED {
        writeln!(out, "    … and {} more", count((threads.len() - LISTED) as u64))?;
    }
    Ok(())
}

fn describe_missing(trace: &Trace, out: &mut String) -> Result<()> {
    let gaps = &trace.manifest.gaps;
    for gap in gaps.iter().take(LISTED) {
        let ranges = gap.ranges.map_or_else(String::new, |ranges| format!(" in {} places", count(ranges)));
        writeln!(
            out,
            "    missing of thread {}: {} from {} on{ranges}, {}",
            gap.thread,
            count(gap.count),
            gap.first,
            printable(&gap.cause)
        )?;
    }
    if gaps.len() > LISTED {
        writeln!(out, "    … and {} more gaps", count((gaps.len() - LISTED) as u64))?;
    }
    let mut limits: BTreeMap<_, (u64, BTreeSet<u32>)> = BTreeMap::new();
    for limit in &trace.manifest.limits {
        let (total, modules) = limits.entry((&limit.reason, &limit.detail)).or_default();
        *total = total.saturating_add(limit.count);
        modules.insert(limit.module);
    }
    for ((reason, detail), (total, modules)) in limits {
        let detail = shorten(detail, LONGEST_DETAIL);
        let detail = if detail.is_empty() { String::new() } else { format!(" ({})", printable(&detail)) };
        let modules = match modules.len() {
            1 => format!("module {}", modules.first().copied().unwrap_or_default()),
            several => format!("{several} modules"),
        };
        writeln!(out, "  not captured: {} × {}{detail}, {modules}", count(total), printable(reason))?;
    }
    Ok(())
}

/// The bytes of all files in a session directory.
fn bytes(dir: &Path) -> u64 {
    let entries = storage::entries(dir).into_iter().flatten();
    entries
        .map(|entry| match entry.metadata {
            Some(data) if data.is_dir => bytes(&entry.path),
            data => data.map_or(0, |data| data.len),
        })
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::PathBuf,
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::*;

    /// A directory with a session for each of these manifests; without one it has none.
    fn scene(manifests: &[&str]) -> (PathBuf, Family) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("spoor-info-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for (number, manifest) in manifests.iter().enumerate() {
            let session = dir.join(format!("20260101-000000-{number}"));
            fs::create_dir_all(&session).expect("made");
            if !manifest.is_empty() {
                fs::write(session.join("manifest.json"), manifest).expect("written");
            }
        }
        let sessions = sinks::disk::sessions_in(&dir).expect("they are there");
        (dir, Family::of(sessions))
    }

    fn all(family: &Family) -> Vec<usize> {
        (0..family.members.len()).collect()
    }

    const PLAIN: &str = r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "exited"}}"#;

    #[test]
    fn a_directory_that_cannot_be_read_keeps_nobody_from_the_others() {
        let (dir, family) = scene(&[PLAIN, "", PLAIN]);
        let mut out = Vec::new();
        assert!(!list(&family, &all(&family), false, &mut out).expect("it is written"), "it is told");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("20260101-000000-0") && text.contains("20260101-000000-2"), "{text}");
        fs::remove_dir_all(dir).expect("it is there");
    }

    /// Fails in this way.
    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
        let (dir, family) = scene(&[PLAIN, PLAIN]);
        assert!(
            list(&family, &all(&family), true, &mut Broken(io::ErrorKind::BrokenPipe)).expect("that is no failure")
        );
        assert!(list(&family, &all(&family), true, &mut Broken(io::ErrorKind::StorageFull)).is_err());
        fs::remove_dir_all(dir).expect("it is there");
    }

    #[test]
    fn a_hostile_manifest_moves_no_cursor_and_overflows_nothing() {
        let bad = r"x\u001b[2J\u009b\u0007";
        let most = u64::MAX;
        let thread = |id| format!(r#"{{"id": {id}, "has_detail": false, "name": "{bad}", "written": {most}}}"#);
        let gap = |thread| format!(r#"{{"thread": {thread}, "first": 0, "count": {most}, "cause": "{bad}"}}"#);
        let manifest = format!(
            r#"{{"threads": [{}, {}], "time_start_ns": 0, "time_end_ns": 0, "session": "{bad}", "clock": "{bad}",
            "process": {{"pid": 1, "host": "{bad}", "arch": "{bad}", "os": "{bad}", "executable": "{bad}",
            "arguments": ["{bad}"], "argument_count": 1, "agent_version": "{bad}"}}, "gaps": [{}, {}],
            "limits": [{{"module": 0, "reason": "{bad}", "detail": "{bad}", "count": {most}}}],
            "end": {{"how": "{bad}"}}}}"#,
            thread(1),
            thread(2),
            gap(1),
            gap(2),
        );
        let (dir, family) = scene(&[&manifest]);
        let mut out = Vec::new();
        assert!(!list(&family, &all(&family), false, &mut out).expect("it is written"), "its threads are not there");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        let mut out = Vec::new();
        assert!(!list_families(&family, &mut out).expect("it is written"), "its threads are not there");
        let text = text + &String::from_utf8(out).expect("text");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        fs::remove_dir_all(dir).expect("it is there");
    }
}
