//! What was delivered, of one session or of all sessions of a program and what it has started.

use std::{collections::BTreeMap, fmt::Display};

use agent::{drain::Counts, plan::Reason, ship};
use codec::profile::EndReason;

use crate::{
    install::Hooked,
    settings::Settings,
    summary::{Summary, Traced},
};

/// What was delivered.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) sessions: usize,
    pub(super) counts: Counts,
    pub(super) report: ship::Report,
    pub(super) hooked: usize,
    /// How many functions were left out by rules.
    pub(super) left_out: usize,
    /// How many programs and processes came from it that are not traced.
    pub(crate) unfollowed: u64,
    /// What is followed least, of the program or of one of its libraries.
    pub(super) least: ModuleCode,
    /// Who was traced, and how that ended: of several, the first.
    pub(super) traced: Traced,
    pub(super) end: EndReason,
}

/// How much of a module could be hooked.
#[derive(Debug, Clone, Default)]
pub(super) struct ModuleCode {
    path: String,
    hooked: usize,
    /// How many of its functions no unwind entry describes: those of languages that have their own ways to unwind.
    undescribed: usize,
}

impl ModuleCode {
    fn of(module: &Hooked) -> Self {
        let undescribed = module.left.get(Reason::NoUnwindEntry.as_str()).map_or(0, |left| left.count);
        Self { path: module.path.clone(), hooked: module.hooked + module.probed.len(), undescribed }
    }

    /// Of modules the one that is followed least, by how much of it is not.
    pub(super) fn least<'a>(modules: impl Iterator<Item = &'a Hooked>) -> Self {
        let hardly = modules.map(Self::of).filter(Self::is_hardly_followed);
        hardly.max_by_key(|module| module.undescribed).unwrap_or_default()
    }

    /// Whether next to nothing of it is followed. Of a few functions that says nothing.
    fn is_hardly_followed(&self) -> bool {
        self.undescribed >= 20 && self.undescribed > 9 * self.hooked
    }
}

/// How many functions of a module were left out by rules.
pub(super) fn left_out(module: &Hooked) -> usize {
    let reasons = [Reason::Excluded, Reason::Small];
    reasons.iter().filter_map(|reason| module.left.get(reason.as_str())).map(|left| left.count).sum()
}

impl Outcome {
    /// Whether the collector has confirmed everything.
    pub(crate) fn is_complete(&self) -> bool {
        self.report.complete
    }

    /// The same for scripts.
    pub(crate) fn summary(&self, let_go: usize) -> Summary<'_> {
        let Self { sessions, counts, report, hooked, unfollowed, traced, end, .. } = self;
        let mut summary = Summary::new(traced, *end, report, counts.threads, *hooked, self.passed());
        (summary.sessions, summary.not_followed, summary.let_go) = (*sessions, *unfollowed, let_go);
        (summary.left_out, summary.brief) = (counts.left_out, counts.brief);
        summary.not_kept_ns = counts.not_kept_ns;
        summary.counted = counts.turned_down.counted;
        summary
    }

    /// How many calls were passed through.
    fn passed(&self) -> u64 {
        self.counts.too_deep + self.counts.interrupted + self.counts.unplaced
    }

    /// Adds that of another session.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.hooked += other.hooked;
        self.left_out += other.left_out;
        self.unfollowed += other.unfollowed;
        let (counts, more) = (&mut self.counts, &other.counts);
        counts.threads += more.threads;
        counts.too_deep += more.too_deep;
        counts.interrupted += more.interrupted;
        counts.unplaced += more.unplaced;
        counts.left_out += more.left_out;
        counts.not_kept_ns = counts.not_kept_ns.max(more.not_kept_ns);
        counts.brief += more.brief;
        counts.turned_down += more.turned_down;
        counts.spent += more.spent;
        let (report, more) = (&mut self.report, &other.report);
        report.events += more.events;
        report.unsettled += more.unsettled;
        report.complete &= more.complete;
        more.dropped.iter().for_each(|(reason, count)| *report.dropped.entry(reason).or_default() += count);
        more.lost.iter().for_each(|(cause, count)| *report.lost.entry(cause.clone()).or_default() += count);
        if other.least.undescribed > self.least.undescribed {
            self.least = other.least.clone();
        }
    }

    /// Says what came of it.
    pub(crate) fn print(&self, settings: &Settings) {
        let Self { sessions, counts, report, hooked, unfollowed, least, .. } = self;
        let to = &settings.collector.name;
        let dropped = report.dropped_in_all();
        let lost: u64 = report.lost.values().sum();
        let (events, threads) = (many(report.events, "event"), many(counts.threads, "thread"));
        let sessions = if *sessions == 1 { String::new() } else { format!("{sessions} sessions, ") };
        let functions = many(*hooked as u64, "function");
        let mut line = format!("{events} of {sessions}{threads} and {functions} sent to {to}");
        if dropped > 0 {
            line += &format!(", {dropped} dropped ({})", list(&report.dropped));
        }
        if lost > 0 {
            line += &format!(", {lost} lost by the collector ({})", list(&report.lost));
        }
        if counts.brief > 0 {
            line += &format!(", {} shorter than --slower-than left out", many(counts.brief, "call"));
        }
        if counts.left_out > 0 {
            line += &format!(", {} left out that were not asked for", many(counts.left_out, "event"));
            if report.events == 0 && settings.selected.wanted.is_waiting() {
                line += ": nothing was seen that starts sending";
            }
        }
        let passed = self.passed();
        if passed > 0 {
            line += &format!(", {} not recorded (`collector info` says why)", many(passed, "call"));
        }
        if dropped == 0
            && lost == 0
            && report.unsettled == 0
            && passed == 0
            && *unfollowed == 0
            && least.undescribed == 0
            && counts.turned_down.off == 0
            && counts.not_kept_ns == 0
        {
            line += ", nothing lost";
        }
        if counts.not_kept_ns > 0 {
            let missing = counts.not_kept_ns as f64 / 1e9;
            line += &format!(
                "; {missing:.1} s of what --keep was to keep are missing: there was no memory for more (`--keep 10s,4GiB` takes more)"
            );
        }
        if self.left_out > 0 {
            line += &format!("; {} left out by rules", many(self.left_out as u64, "function"));
        }
        if *unfollowed > 0 {
            let what = if *unfollowed == 1 {
                "1 process or program that came from it is"
            } else {
                &format!("{unfollowed} processes or programs that came from it are")
            };
            line += &format!("; {what} not traced (`collector info` says why)");
        }
        if least.undescribed > 0 {
            let ModuleCode { path, hooked, undescribed } = least;
            let all = hooked + undescribed;
            line += &format!(
                "; only {hooked} of {all} functions of {path} could be hooked: {}",
                Reason::NoUnwindEntry.explain()
            );
        }
        if report.unsettled > 0 {
            let waited = settings.linger.as_secs_f64();
            line += &format!(
                "; the collector has not confirmed that it keeps {} of them within {waited} s (--linger waits longer)",
                report.unsettled
            );
        } else if !report.complete {
            line += "; the collector has all events, but went away before it confirmed the rest";
        }
        if let Some(down) = counts.turned_down.line() {
            line += &format!("; {down}");
        }
        if let Some(excess) = counts.spent.excess() {
            line += &format!("; {excess}");
        }
        say!("{line}");
        if report.dropped.contains_key("ring-full") {
            let ways = match settings.detail {
                true => "--complete, a larger --ring-bytes, --no-detail, or --exclude what is called most",
                false => "--complete, a larger --ring-bytes, or --exclude what is called most",
            };
            say!("rings were full: to lose less, use {ways}");
        }
    }
}

/// So many of these, without separators.
pub(crate) fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn list(counts: &BTreeMap<impl Display, u64>) -> String {
    let each: Vec<_> = counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    each.join(", ")
}
