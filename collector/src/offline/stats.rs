//! `collector stats`: how well the spans of a session fit together.

use std::{collections::BTreeMap, fmt::Write as _, io, process::ExitCode};

use answers::{
    duration,
    filter::Filter,
    loss::Loss,
    stats::{self, Stats},
    trace::Trace,
    turned_down::TurnedDown,
};
use anyhow::{Context, Result};
use codec::{
    span::{SpanRuntime, SpanStatus},
    text::printable_json,
};
use serde_json::{Map, Value as Json, json};

use super::{printable, tell};
use crate::{
    args::StatsArgs,
    quantity::{count, counted},
};

pub(crate) fn run(args: &StatsArgs) -> Result<ExitCode> {
    let trace = super::open_wanted(&args.session.dir, &args.filter)?;
    let filter = Filter::new(&trace, &args.filter.wanted())?;
    super::say_if_unfinished(&trace);
    let stats = stats::by_runtime(&trace, args.session.making.config(), &filter)?;
    super::say_if_nothing(&trace.dir, &filter, stats.is_empty());
    let text = if args.json {
        format!("{}\n", printable_json(&json(&trace, &stats).to_string()))
    } else {
        describe(&trace, &stats)?
    };
    tell(&mut io::stdout().lock(), &text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

const PERCENTILES: [(&str, u64); 3] = [("p50", 500), ("p95", 950), ("p99", 990)];

fn json(trace: &Trace, stats: &BTreeMap<SpanRuntime, Stats>) -> Json {
    let runtime = |stats: &Stats| {
        let mut object = Map::new();
        object.insert("spans".into(), stats.spans().into());
        for status in SpanStatus::ALL {
            object.insert(status.name().into(), stats.status(*status).into());
        }
        let kinds = stats.kinds().map(|(kind, count)| (kind.name().to_owned(), Json::from(count)));
        object.insert("kinds".into(), Json::Object(kinds.collect()));
        let reasons = stats.reasons().map(|(reason, count)| (reason.name().to_owned(), Json::from(count)));
        object.insert("reasons".into(), Json::Object(reasons.collect()));
        object.extend(stats.counts().map(|(name, count)| (name.to_owned(), count.into())));
        for (name, spread) in stats.spreads() {
            if spread.count() > 0 {
                let mut values: Map<String, Json> =
                    PERCENTILES.iter().map(|(name, at)| ((*name).to_owned(), spread.percentile(*at).into())).collect();
                values.insert("count".into(), spread.count().into());
                values.insert("max".into(), spread.max().into());
                object.insert(format!("{name}_ns"), Json::Object(values));
            }
        }
        Json::Object(object)
    };
    let runtimes: Map<_, _> = stats.iter().map(|(name, stats)| (name.name().to_owned(), runtime(stats))).collect();
    let gaps: Vec<Json> = trace
        .manifest
        .gaps
        .iter()
        .map(|gap| json!({"thread": gap.thread, "first": gap.first, "count": gap.count, "cause": gap.cause}))
        .collect();
    json!({"session": trace.name(), "unfinished": trace.is_unfinished, "runtimes": runtimes, "missing": Loss::of(trace).missing(), "turned_down": TurnedDown::of(&trace.catalog).count(), "gaps": gaps})
}

fn describe(trace: &Trace, stats: &BTreeMap<SpanRuntime, Stats>) -> Result<String> {
    let mut out = format!("{}\n", trace.dir.display());
    let loss = Loss::of(trace);
    if loss.is_any() {
        writeln!(out, "  {loss}")?;
    }
    let down = TurnedDown::of(&trace.catalog).count() as u64;
    if down > 0 {
        writeln!(out, "  {} turned down: numbers are of the calls that were followed", counted(down, "function"))?;
    }
    if stats.is_empty() {
        writeln!(out, "  no spans")?;
    }
    for (runtime, stats) in stats {
        let kinds: Vec<_> = stats.kinds().map(|(kind, number)| format!("{} {kind}", count(number))).collect();
        writeln!(out, "  {runtime}: {}: {}", counted(stats.spans(), "span"), kinds.join(", "))?;
        let statuses = SpanStatus::ALL.iter().map(|status| (status.name(), stats.status(*status)));
        let reasons = stats.reasons().map(|(reason, count)| (reason.name(), count));
        for (title, counts) in
            [("status", statuses.collect::<Vec<_>>()), ("reason", reasons.collect()), ("also", stats.counts().to_vec())]
        {
            let parts: Vec<_> = counts.iter().filter(|(_, number)| *number > 0).collect();
            let parts: Vec<_> = parts.iter().map(|(name, number)| format!("{} {name}", count(*number))).collect();
            if !parts.is_empty() {
                writeln!(out, "    {title:<10} {}", parts.join(", "))?;
            }
        }
        for (name, spread) in stats.spreads() {
            if spread.count() > 0 {
                let parts = PERCENTILES.map(|(name, at)| format!("{name} {}", duration(spread.percentile(at))));
                writeln!(out, "    {name:<10} {}, max {}", parts.join(", "), duration(spread.max()))?;
            }
        }
    }
    let mut gaps: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for gap in &trace.manifest.gaps {
        let (number, missing) = gaps.entry(&gap.cause).or_default();
        *number = number.saturating_add(gap.ranges.unwrap_or(1));
        *missing = missing.saturating_add(gap.count);
    }
    for (cause, (number, missing)) in gaps {
        let (number, missing) = (counted(number, "gap"), counted(missing, "event"));
        writeln!(out, "  missing    {missing} in {number}: {}", printable(cause))?;
    }
    if trace.is_unfinished {
        writeln!(out, "  not finished: it is being written, or its collector was killed (see `collector repair`)")?;
    }
    Ok(out)
}
