//! The process that somebody means.

use std::path::Path;

use anyhow::{Result, bail};
use sinks::file_name;

use super::{Chosen, Family, Member};

/// How many processes are listed where none is meant.
const LISTED: usize = 20;

impl Chosen {
    /// The process of a directory of sessions, or of a session and those that came from it, that is meant by the name of its
    /// session, its id, its process id, its label (`make (4711)`) or its program, in this order; of several, the latest.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn process(dir: &Path, wanted: &str) -> Result<Self> {
        let sessions = sinks::disk::sessions_in(dir).unwrap_or_else(|_| vec![dir.into()]);
        let (family, places) = if sessions.first().is_some_and(|session| session == dir) {
            let (family, place) = Family::beside(dir);
            let mut places: Vec<_> = family.below([place]).into_iter().map(|(place, _)| place).collect();
            places.sort_unstable();
            (family, places)
        } else {
            let places = (0..sessions.len()).collect();
            (Family::of(sessions), places)
        };
        let members = || places.iter().filter_map(|place| Some((*place, family.members.get(*place)?)));
        let ways: [fn(&Member) -> Option<String>; 5] = [
            |member| Some(member.name()),
            |member| member.head.session.clone(),
            |member| Some(member.pid()?.to_string()),
            |member| Some(member.label().to_string()),
            |member| Some(file_name(&member.head.process.as_ref()?.executable).to_owned()),
        ];
        let of_way = |way: &fn(&Member) -> Option<String>| -> Vec<usize> {
            members().filter(|(_, member)| way(member).as_deref() == Some(wanted)).map(|(place, _)| place).collect()
        };
        let Some(found) = ways.iter().map(of_way).find(|found| !found.is_empty()) else {
            let all: Vec<_> = members().map(|(_, member)| format!("{}, {}", member.label(), member.name())).collect();
            let rest = if all.len() > LISTED { "; …" } else { "" };
            let all = all.into_iter().take(LISTED).collect::<Vec<_>>().join("; ");
            bail!("{}: no process is {wanted:?}; there are: {all}{rest}", dir.display());
        };
        let (count, place) = (found.len(), found.last().copied().unwrap_or(0));
        let mut chosen = Self { family, first: vec![place], dir: dir.into(), note: None };
        if count > 1 {
            let name = chosen.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
            chosen.note = Some(format!("{}: session {name}, the latest of {count} that are {wanted:?}", dir.display()));
        }
        Ok(chosen)
    }
}
