//! `collector info`: what a session directory holds.

use std::{
    fmt::Write as _,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};

use super::trace::Trace;
use crate::{
    args::InfoArgs,
    offline::ended_early,
    quantity::{Period, Size, count},
};

/// How many threads and gaps are listed one by one.
const LISTED: usize = 20;

pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    let dir = &args.dir.dir;
    let sessions = sinks::disk::sessions_in(dir).with_context(|| format!("cannot look into {}", dir.display()))?;
    let mut out = io::stdout().lock();
    for session in sessions {
        let trace = Trace::open(&session)?;
        let text = if args.json { json(&trace)? } else { describe(&trace)? };
        if ended_early(out.write_all(text.as_bytes())).is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn json(trace: &Trace) -> Result<String> {
    let mut value = serde_json::to_value(&trace.manifest)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("directory".into(), trace.dir.display().to_string().into());
        object.insert("unfinished".into(), trace.is_unfinished().into());
    }
    Ok(format!("{value}\n"))
}

fn describe(trace: &Trace) -> Result<String> {
    let manifest = &trace.manifest;
    let mut out = format!("{}\n", trace.dir.display());
    if let Some(process) = &manifest.process {
        let more = u64::from(process.argument_count).saturating_sub(process.arguments.len() as u64);
        writeln!(
            out,
            "  program    {} (pid {}) on {}, {} {}",
            process.executable, process.pid, process.host, process.os, process.arch
        )?;
        if !process.arguments.is_empty() {
            let left_out = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(out, "  arguments  {}{left_out}", process.arguments.join(" "))?;
        }
        writeln!(out, "  agent      {}", process.agent_version)?;
    } else {
        writeln!(out, "  program    unknown: it sent plain Heph")?;
    }
    if let Some(session) = &manifest.session {
        writeln!(out, "  session    {session}")?;
    }
    if let Some(part) = manifest.part {
        writeln!(out, "  part       {part}")?;
    }
    let lasted = Period(Duration::from_nanos(manifest.time_end_ns.saturating_sub(manifest.time_start_ns)));
    let clock = manifest.clock.as_deref().unwrap_or("the sender's own clock");
    writeln!(out, "  time       {lasted}, from {} to {} ns by {clock}", manifest.time_start_ns, manifest.time_end_ns)?;
    let end = match &manifest.end {
        Some(end) => end.code.map_or_else(|| end.how.clone(), |code| format!("{} ({code})", end.how)),
        None => "not finished: it is being written, or its collector was killed (see `collector repair`)".into(),
    };
    writeln!(out, "  end        {end}")?;
    writeln!(
        out,
        "  modules    {}, with {} functions by name",
        count(manifest.modules.len() as u64),
        count(manifest.functions.len() as u64)
    )?;
    describe_threads(trace, &mut out)?;
    describe_missing(trace, &mut out)?;
    writeln!(out, "  size       {}", Size(bytes(&trace.dir)))?;
    Ok(out)
}

fn describe_threads(trace: &Trace, out: &mut String) -> Result<()> {
    let threads = trace.threads();
    let written = |thread: &codec::atf::ThreadEntry| {
        // A session that is being written says nothing of it yet, but its files do.
        let counted =
            || trace.thread_files(thread.id).ok().and_then(|files| Some(u64::from(files.reader().ok()??.index.len())));
        thread.written.or_else(counted).unwrap_or(0)
    };
    let total: u64 = threads.iter().map(written).sum();
    let missing: u64 = trace.manifest.missing().values().sum();
    writeln!(
        out,
        "  events     {} produced = {} written + {} missing, of {} threads",
        count(total + missing),
        count(total),
        count(missing),
        count(threads.len() as u64)
    )?;
    for thread in threads.iter().take(LISTED) {
        let name = thread.name.as_deref().unwrap_or("");
        let os_id = thread.os_id.map_or_else(String::new, |id| format!(" tid {id}"));
        let detail = if thread.has_detail { ", with detail" } else { "" };
        writeln!(out, "    thread {}{os_id} {name}: {} events{detail}", thread.id, count(written(thread)))?;
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
            gap.cause
        )?;
    }
    if gaps.len() > LISTED {
        writeln!(out, "    … and {} more gaps", count((gaps.len() - LISTED) as u64))?;
    }
    for limit in &trace.manifest.limits {
        let detail = if limit.detail.is_empty() { String::new() } else { format!(" ({})", limit.detail) };
        writeln!(out, "  not captured: {} × {}{detail}, module {}", count(limit.count), limit.reason, limit.module)?;
    }
    Ok(())
}

/// The bytes of all files in a session directory.
fn bytes(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes(&entry.path()),
            Ok(data) if data.is_file() => data.len(),
            _ => 0,
        })
        .sum()
}
