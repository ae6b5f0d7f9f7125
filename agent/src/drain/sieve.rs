//! What of a thread's records is passed on, where not everything is asked for.

use std::time::Instant;

use codec::SessionNs;

use super::{
    Drain, GLANCE,
    backlog::Backlog,
    brief::Brief,
    ring::{DrainContext, Ring, Taken, each_record},
    selection::{Intervals, Mark},
};
use crate::{
    shared::{Kind, RUNTIME_FUNCTIONS, Record, header},
    ship::Shipper,
};

/// What is known of a thread's records that are not passed on, or not yet.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// The function inside of which everything is asked for.
    inside: Option<Inside>,
    /// How many functions were open on the stack that was run on last, and whether events are missing since one was inside.
    open: u32,
    has_gap: bool,
    pub(super) brief: Brief,
    pub(super) backlog: Backlog,
    /// Whether there was more in the ring than could be taken out of it, and when the last record was that was.
    pub(super) is_behind: bool,
    read_up_to: u64,
}

/// A call of a function inside of which everything is asked for.
#[derive(Debug, Clone, Copy)]
struct Inside {
    entered: u64,
    function: u32,
    depth: u32,
}

/// How far records are passed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Release<'a> {
    pub(super) intervals: &'a Intervals,
    /// Up to when it is known what has happened.
    pub(super) up_to: SessionNs,
    /// What is older may go, if nothing has happened.
    pub(super) oldest: SessionNs,
}

impl Sieve {
    /// Whether a record is inside of a function that is asked for. Its call and its return are, and what it ends in.
    fn is_inside(&mut self, record: &Record<'_>, is_around: bool) -> bool {
        let Record { kind, depth, time, function, rest } = *record;
        // What is called at the depth of the innermost function has taken its place.
        let is_tail = kind == Kind::Call && self.open == depth + 1;
        match kind {
            Kind::Call => self.open = depth + 1,
            Kind::Return | Kind::Exception => self.open = depth,
            // What did not fit may have been inside, and its end, too.
            Kind::Dropped => self.has_gap = true,
            _ => {}
        }
        if let Some(inside) = self.inside
            && self.has_gap
            && kind == Kind::Call
            && depth <= inside.depth
        {
            self.inside = None;
        }
        let call = Inside { entered: time, function, depth };
        match self.inside {
            None if kind == Kind::Call && is_around => {
                (self.inside, self.has_gap) = (Some(call), false);
                true
            }
            None => !kind.is_event(),
            Some(inside) => {
                if is_tail && inside.depth == depth {
                    self.inside = Some(call);
                } else if rest.first() == Some(&inside.entered)
                    && matches!(kind, Kind::Return | Kind::Exception)
                    && inside.function == function
                {
                    self.inside = None;
                }
                true
            }
        }
    }
}

impl Ring {
    /// Takes the records at the start of these words, of which not all are asked for.
    pub(super) fn sift(&mut self, words: &[u64], context: &mut DrainContext<'_>) -> Taken {
        let mut passed = Vec::new();
        let taken = each_record(words, |record, words| {
            match record.kind {
                // They say something whatever becomes of the rest.
                Kind::Label | Kind::Name | Kind::Level => return self.record(record, context),
                Kind::Dropped if !self.note_dropped(record) => return false,
                Kind::Runtime if RUNTIME_FUNCTIONS.get(record.function as usize).is_none() => return false,
                _ => self.sift_one(record, words, &mut passed, context),
            }
            true
        });
        self.pass_on(&passed, context);
        taken
    }

    fn sift_one(&mut self, record: &Record<'_>, words: &[u64], passed: &mut Vec<u64>, context: &mut DrainContext<'_>) {
        self.note(record, context);
        if context.depths.is_on() && self.is_too_deep(record, context) {
            return;
        }
        self.sieve.read_up_to = record.time;
        let is_of_function = matches!(record.kind, Kind::Call | Kind::Return | Kind::Exception);
        if is_of_function {
            // So that it is known.
            context.function(record.function);
        }
        let Some(selection) = context.selection.as_deref_mut() else { return };
        selection.read(context.clock.at(record.time.min(context.now)));
        let mark = if is_of_function { selection.mark(record.function, context.known) } else { Mark::default() };
        if is_of_function {
            selection.watch(record, mark, context.clock);
        }
        if selection.is_around() && !self.sieve.is_inside(record, mark.is_around && !mark.is_entry_only) {
            context.counts.left_out += u64::from(record.kind.is_event());
            return;
        }
        match selection.slower_than_ns() {
            None => passed.extend_from_slice(words),
            Some(least_ns) => {
                let clock = context.clock;
                let elapsed = |from, to| clock.at(to).0.saturating_sub(clock.at(from).0);
                self.sieve.brief.take(record, words, mark.is_entry_only, least_ns, elapsed, passed);
            }
        }
    }

    /// Passes on calls that have lasted long enough by now. To be said when everything has been taken out of the ring.
    pub(super) fn pass_on_long(&mut self, context: &mut DrainContext<'_>) {
        let Some(least_ns) = context.selection.as_ref().and_then(|selection| selection.slower_than_ns()) else {
            return;
        };
        let (clock, mut passed) = (context.clock, Vec::new());
        let now = clock.at(context.now).0;
        self.sieve.brief.pass_on_long(|entered| now.saturating_sub(clock.at(entered).0) >= least_ns, &mut passed);
        self.pass_on(&passed, context);
    }

    /// The thread has ended, or the session does: passes on the calls that are not over, and tells of events that did not
    /// fit after the last record.
    pub(super) fn pass_on_rest(&mut self, dropped: u64, context: &mut DrainContext<'_>) {
        let mut passed = Vec::new();
        self.sieve.brief.pass_on_all(&mut passed);
        let tail = self.take_tail(dropped);
        if tail > 0 {
            passed.extend([context.now, header(Kind::Dropped, 3, 0, 0), tail]);
        }
        self.pass_on(&passed, context);
    }

    /// Sends records, or has them wait for what happens.
    fn pass_on(&mut self, words: &[u64], context: &mut DrainContext<'_>) {
        let waits = context.selection.as_ref().is_some_and(|selection| selection.has_triggers());
        each_record(words, |record, words| {
            match waits {
                true => self.sieve.backlog.push(words),
                false => drop(self.record(record, context)),
            }
            true
        });
    }

    /// Sends what waits and is asked for, and lets go of what will not be. Whether it came as far as is known what happens.
    pub(super) fn release(&mut self, release: Release<'_>, context: &mut DrainContext<'_>) -> bool {
        let mut backlog = std::mem::take(&mut self.sieve.backlog);
        let is_done = loop {
            let Some(record) = backlog.first() else { break true };
            let at = context.clock.at(record.time);
            match release.intervals.find(at) {
                _ if record.kind == Kind::Substream => drop(self.record(&record, context)),
                Ok(()) if at > release.up_to => break true,
                Ok(()) if !context.shipper.has_room() => break false,
                Ok(()) => drop(self.record(&record, context)),
                Err(_) if at >= release.oldest => break true,
                Err(next) => {
                    let end = context.clock.at(backlog.chunk_end());
                    if end < release.oldest && next.is_none_or(|start| end < start) {
                        context.counts.left_out += backlog.pop_chunk();
                        continue;
                    }
                    context.counts.left_out += u64::from(record.kind.is_event());
                }
            }
            backlog.pop();
        };
        self.sieve.backlog = backlog;
        is_done
    }

    /// Counts what waits and is asked for as not kept.
    pub(super) fn give_up_backlog(&mut self, intervals: &Intervals, context: &mut DrainContext<'_>) {
        let mut events = 0;
        while let Some(record) = self.sieve.backlog.first() {
            if record.kind.is_event() {
                match intervals.find(context.clock.at(record.time)) {
                    Ok(()) => events += 1,
                    Err(_) => context.counts.left_out += 1,
                }
            }
            self.sieve.backlog.pop();
        }
        self.drop_events(events, "not-sent", context);
    }
}

impl Drain {
    /// Whether more can be taken out of rings.
    pub(super) fn has_room(&self, shipper: &Shipper) -> bool {
        match self.selection.as_ref().filter(|selection| selection.has_triggers()) {
            Some(selection) => self.waiting_bytes <= selection.most_bytes(),
            None => shipper.has_room(),
        }
    }

    /// Everything has been taken out of a ring.
    pub(super) fn is_emptied(&mut self, ring: usize, shipper: &mut Shipper) {
        if self.selection.is_some()
            && let Some(mut state) = self.rings[ring].take()
        {
            state.sieve.is_behind = false;
            self.with_context(shipper, |context| state.pass_on_long(context));
            self.rings[ring] = Some(state);
        }
    }

    /// Sends what waits and is asked for, and lets go of what will not be: as far as is known what has happened, which is
    /// what was in the rings when `begun` was now.
    pub(super) fn settle(&mut self, begun: u64, shipper: &mut Shipper) {
        let behind = self.rings.iter().flatten().filter(|ring| ring.sieve.is_behind).map(|ring| ring.sieve.read_up_to);
        let up_to = self.clock.at(behind.min().unwrap_or(begun).min(begun));
        self.release(up_to, false, shipper);
    }

    /// The same for everything: nothing more will happen. What cannot be sent until then is reported as dropped.
    pub(super) fn settle_all(&mut self, deadline: Instant, shipper: &mut Shipper) {
        let now = self.clock.now();
        while !self.release(now, true, shipper) && Instant::now() < deadline && !shipper.is_forsaken() {
            shipper.flush();
            shipper.turn(GLANCE);
        }
        let Some(mut selection) = self.selection.take() else { return };
        let (_, intervals) = selection.settle(now);
        for mut ring in std::mem::take(&mut self.waiting) {
            self.with_context(shipper, |context| ring.give_up_backlog(intervals, context));
            self.tell_end(ring, shipper);
        }
        self.selection = Some(selection);
    }

    /// Whether everything has been sent that could be. For the last time, nothing waits for what may happen.
    fn release(&mut self, up_to: SessionNs, is_last: bool, shipper: &mut Shipper) -> bool {
        let Some(mut selection) = self.selection.take() else { return true };
        let most = selection.most_bytes();
        let mut fits = SessionNs(0);
        let (usual, intervals) = selection.settle(up_to);
        let release = match is_last {
            true => Release { intervals, up_to: SessionNs(u64::MAX), oldest: SessionNs(u64::MAX) },
            false => {
                fits = self.oldest_that_fits(most);
                Release { intervals, up_to, oldest: usual.max(fits) }
            }
        };
        let mut is_done = true;
        for place in 0..self.rings.len() {
            let Some(mut ring) = self.rings[place].take() else { continue };
            is_done &= self.with_context(shipper, |context| ring.release(release, context));
            self.rings[place] = Some(ring);
        }
        for mut ring in std::mem::take(&mut self.waiting) {
            is_done &= self.with_context(shipper, |context| ring.release(release, context));
            match ring.sieve.backlog.is_empty() {
                true => self.tell_end(ring, shipper),
                false => self.waiting.push(ring),
            }
        }
        if fits > usual {
            selection.forget(fits);
        }
        self.counts.not_kept_ns = selection.missing_ns();
        self.selection = Some(selection);
        let all = self.rings.iter().flatten().chain(&self.waiting);
        self.waiting_bytes = all.map(|ring| ring.sieve.backlog.bytes()).sum();
        is_done
    }

    /// Where more waits than there is memory for: what is older than this must go, whatever may be found out to have happened
    /// then, so that there is room for a while.
    fn oldest_that_fits(&self, most_bytes: usize) -> SessionNs {
        let room = most_bytes / 8 * 7;
        if self.waiting_bytes <= room {
            return SessionNs(0);
        }
        let rings = self.rings.iter().flatten().chain(&self.waiting);
        let mut chunks: Vec<_> = rings.flat_map(|ring| ring.sieve.backlog.chunks()).collect();
        chunks.sort_unstable();
        let mut left = self.waiting_bytes;
        let fits = chunks.iter().find(|(_, bytes)| {
            left = left.saturating_sub(*bytes);
            left <= room
        });
        fits.map_or(SessionNs(0), |(end, _)| SessionNs(self.clock.at(*end).0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_ends_with_what_the_function_ends_in() {
        use Kind::{Call, Dropped, Exception, Return};
        const AROUND: u32 = 7;
        let mut sieve = Sieve::default();
        let mut is_inside = |kind, depth, function, time, entered| {
            let rest = [entered];
            let rest = if kind == Call { &[][..] } else { &rest };
            sieve.is_inside(&Record { time, kind, depth, function, rest }, function == AROUND)
        };
        // It calls another, calls itself, returns.
        assert!(!is_inside(Call, 0, 1, 1, 0) && is_inside(Call, 1, AROUND, 2, 0) && is_inside(Call, 2, AROUND, 3, 0));
        assert!(is_inside(Return, 2, AROUND, 4, 3) && is_inside(Call, 2, 2, 5, 0) && is_inside(Return, 2, 2, 6, 5));
        assert!(is_inside(Return, 1, AROUND, 7, 2) && !is_inside(Call, 1, 2, 8, 0) && !is_inside(Return, 1, 2, 9, 8));
        // It ends in a call of another, which throws.
        assert!(
            is_inside(Call, 1, AROUND, 10, 0) && is_inside(Call, 1, 3, 11, 0) && is_inside(Exception, 1, 3, 12, 11)
        );
        assert!(!is_inside(Call, 1, 2, 13, 0) && !is_inside(Return, 1, 2, 14, 13));
        // Its return is missing.
        assert!(is_inside(Call, 1, AROUND, 15, 0) && is_inside(Dropped, 0, 0, 16, 3) && is_inside(Call, 2, 2, 17, 0));
        assert!(!is_inside(Call, 1, 2, 18, 0) && !is_inside(Call, 2, 2, 19, 0));
    }
}
