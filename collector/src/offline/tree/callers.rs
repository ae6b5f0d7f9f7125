//! `collector tree --callers`: who called a function, and who called that.

use std::io::Write;

use answers::{
    callers::{Caller, Callers},
    calls::{Calls, Form},
    filter::Filter,
    loss::Loss,
    turned_down::TurnedDown,
};
use anyhow::Result;
use codec::{SessionNs, text::Glob};
use sinks::NameCache;

use super::{
    printer::{Call, Place, Printer, Standing},
    say_what_is_missing,
};
use crate::{
    args::TreeArgs,
    offline::{open_wanted, say_if_unfinished, say_nothing},
};

/// Prints who called the functions whose names match.
pub(super) fn print(args: &TreeArgs, function: &str, out: &mut impl Write) -> Result<()> {
    let trace = open_wanted(&args.session.dir, &args.filter)?.named();
    let filter = Filter::new(&trace, &args.filter.wanted())?;
    say_if_unfinished(&trace);
    let mut calls = Calls::new(&filter, Form::Tree);
    calls.read(&trace, args.session.making.config(), &filter, Form::Tree, |_| Ok(()))?;
    let (glob, mut names) = (Glob::new(function), NameCache::new());
    let turned_down = TurnedDown::of(&trace.catalog);
    let callers = Callers::of(&calls, &turned_down, |what| {
        let name = names.name(&trace.catalog, what, SessionNs(0));
        name.matches(&glob) && filter.has_name(name)
    });
    let mut printer = Printer::new(args, false, out);
    say_what_is_missing(&mut printer, args, &Loss::of(&trace), &turned_down)?;
    printer.enter(&trace);
    let mut left = filter.limit().unwrap_or(usize::MAX);
    if callers.roots().next().is_none() {
        say_nothing(&trace.dir);
    }
    for root in callers.roots() {
        let mut rest = vec![(root, 0, Place::default(), None)];
        while let Some((caller, level, place, inner)) = rest.pop() {
            let percent = match root.total_ns {
                0 => 0.0,
                whole => caller.total_ns as f64 * 100.0 / whole as f64,
            };
            let is_small = level > 0 && percent < args.min_percent && root.total_ns > 0;
            if is_small || filter.depth().is_some_and(|depth| level >= depth) {
                continue;
            }
            let Some(rest_of_limit) = left.checked_sub(1) else { return Ok(()) };
            left = rest_of_limit;
            // What was counted is the function that was asked for, whoever called it.
            let is_down = turned_down.has(&root.what);
            let standing = Standing { percent, is_down, has_called_down: caller.has_called_down };
            let (number, module) = printer.node(&trace, "callers", &call(caller), standing, place, inner)?;
            let below = place.below(number);
            let above = callers.callers(caller).rev();
            rest.extend(above.map(|caller| (caller, level + 1, below, module.clone())));
        }
    }
    Ok(())
}

fn call(caller: &Caller) -> Call<'_> {
    Call {
        what: &caller.what,
        kind: caller.kind,
        count: caller.count,
        total_ns: caller.total_ns,
        self_ns: caller.self_ns,
        untimed: caller.untimed,
    }
}
