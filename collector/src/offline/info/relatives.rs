//! What `collector info` tells of the processes that a session came from and that came from it.

use std::fmt::Write as _;

use answers::{
    birth_call::BirthCall,
    family::{Family, Parent, how_and_when},
    scan::Scan,
    trace::Trace,
};
use anyhow::Result;
use codec::profile::Birth;

use super::{LISTED, end_of, written};
use crate::{
    offline::printable,
    quantity::{count, counted},
};

/// The parent and the children of a session, with the calls they were made in.
pub(super) fn describe(trace: &Trace, family: &Family, place: usize, out: &mut String) -> Result<()> {
    let Some(member) = family.members.get(place) else { return Ok(()) };
    if let Some(birth) = &member.birth {
        describe_parent(family, member.parent, birth, out)?;
    }
    let children: Vec<_> = member.children.iter().filter_map(|child| family.members.get(*child)).collect();
    if children.is_empty() {
        return Ok(());
    }
    writeln!(out, "  children   {}", count(children.len() as u64))?;
    let births: Vec<Birth> = children.iter().take(LISTED).filter_map(|child| child.birth).collect();
    let calls = BirthCall::find(trace, &births);
    for (child, (birth, call)) in children.iter().zip(births.iter().zip(calls)) {
        let made = how_and_when(birth, &call.words(trace));
        writeln!(out, "    {}, {}: {made}", child.label(), printable(&child.name()))?;
    }
    if children.len() > LISTED {
        writeln!(out, "    … and {} more", count((children.len() - LISTED) as u64))?;
    }
    Ok(())
}

fn describe_parent(family: &Family, parent: Parent, birth: &Birth, out: &mut String) -> Result<()> {
    let parent = match parent {
        Parent::Known(parent) => family.members.get(parent),
        Parent::Circular => {
            writeln!(out, "  parent     session {}: that is itself, or came from it, and cannot be", birth.parent)?;
            return Ok(());
        }
        Parent::None | Parent::Missing => None,
    };
    let Some(parent) = parent else {
        let made = how_and_when(birth, "");
        writeln!(out, "  parent     session {}, which is not beside this one: {made}", birth.parent)?;
        return Ok(());
    };
    // A parent that cannot be read says so where it is asked for itself.
    let call = Trace::open(&parent.dir).ok().map(|trace| {
        let calls = BirthCall::find(&trace, std::slice::from_ref(birth));
        calls.first().map_or_else(String::new, |call| call.words(&trace))
    });
    let made = how_and_when(birth, &call.unwrap_or_default());
    writeln!(out, "  parent     {}, {}: {made}", parent.label(), printable(&parent.name()))?;
    Ok(())
}

/// A line for a session in the tree of its family, and what is wrong with its files.
pub(super) fn line(family: &Family, place: usize, level: usize) -> (String, Option<String>) {
    let Some(member) = family.members.get(place) else { return Default::default() };
    let made = match (&member.birth, member.parent) {
        (Some(birth), Parent::Known(_)) => format!("{}, ", how_and_when(birth, "")),
        (Some(birth), Parent::Circular) => {
            format!("its parent {} would be itself or one that came from it, ", birth.parent)
        }
        (Some(birth), _) => format!("{}, its parent {} is not here, ", how_and_when(birth, ""), birth.parent),
        (None, _) => String::new(),
    };
    let head = format!("{:indent$}{}  {}: {made}", "", member.label(), printable(&member.name()), indent = 2 * level);
    let trace = match Trace::open(&member.dir) {
        Ok(trace) => trace,
        Err(error) => return (format!("{head}cannot be read\n"), Some(format!("{error:#}"))),
    };
    let (events, threads) = (written(&trace), trace.threads());
    let missing = trace.manifest.missing().into_values().fold(0, u64::saturating_add);
    let missing = match (trace.is_unfinished, missing) {
        (true, _) => " so far".into(),
        (false, 0) => String::new(),
        (false, missing) => format!(" and {} missing", count(missing)),
    };
    let (events, threads_told) = (counted(events, "event"), counted(threads.len() as u64, "thread"));
    let text = format!("{head}{events}{missing}, {threads_told}, {}\n", printable(&end_of(&trace)));
    let wrong = match Scan::open(&trace, &threads) {
        Ok(scan) => scan.wrong(),
        Err(error) => Some(format!("{error:#}")),
    };
    (text, wrong)
}
