//! The sessions of a directory, and which process made which.

mod label;
mod meant;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs,
    io::BufReader,
    path::{Path, PathBuf},
};

use codec::{
    BirthKind, SessionId, SessionNs,
    atf::{BirthEntry, ManifestHead},
    profile::Birth,
};

pub use label::how_and_when;

/// Sessions that are beside one another, each with its parent and its children.
#[derive(Debug, Default)]
pub struct Family {
    /// The sessions.
    pub members: Vec<Member>,
}

/// A session.
#[derive(Debug)]
pub struct Member {
    /// Its directory.
    pub dir: PathBuf,
    /// What its manifest says first.
    pub head: ManifestHead,
    /// Its id, if it has one.
    pub id: Option<SessionId>,
    /// How it was made, where it says so.
    pub birth: Option<Birth>,
    /// The one that made it.
    pub parent: Parent,
    /// In the order in which they were made.
    pub children: Vec<usize>,
}

/// The session that made another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// It has not said that there is one.
    None,
    /// Its place in the family.
    Known(usize),
    /// It is not beside it.
    Missing,
    /// It would be its own ancestor.
    Circular,
}

/// What a command is to show: some sessions of a family, and all that came from them.
#[derive(Debug)]
pub struct Chosen {
    /// All that are beside it.
    pub family: Family,
    /// Where to begin: several only where a session was split into parts.
    pub first: Vec<usize>,
    /// What was asked for.
    dir: PathBuf,
    /// Which was taken, where the directory has several.
    pub note: Option<String>,
}

impl Family {
    /// The family of these sessions.
    pub fn of(sessions: impl IntoIterator<Item = PathBuf>) -> Self {
        let sessions: Vec<_> = sessions.into_iter().collect();
        let mut family = Self { members: storage::each(&sessions, |dir| Member::read(dir.into())) };
        family.find_parents();
        family.cut_circles();
        for child in 0..family.members.len() {
            if let Some(parent) = family.parent(child)
                && let Some(parent) = family.members.get_mut(parent)
            {
                parent.children.push(child);
            }
        }
        let at: Vec<_> = family.members.iter().map(|member| member.birth.map(|birth| birth.at)).collect();
        for member in &mut family.members {
            member.children.sort_by_key(|child| (at.get(*child).copied().flatten(), *child));
        }
        family
    }

    /// A session with those that are beside it, and its place among them.
    pub fn beside(session: &Path) -> (Self, usize) {
        let full = fs::canonicalize(session).unwrap_or_else(|_| session.into());
        let beside = full.parent().and_then(|folder| sinks::disk::sessions_in(folder).ok()).unwrap_or_default();
        match beside.iter().position(|dir| *dir == full) {
            Some(place) => {
                // As the user wrote it, and others in the same way where that ends with a name.
                let written = |dir: PathBuf| match (session.file_name(), dir.file_name()) {
                    _ if dir == full => session.into(),
                    (Some(_), Some(name)) => session.with_file_name(name),
                    _ => dir,
                };
                (Self::of(beside.into_iter().map(written)), place)
            }
            None => (Self::of([session.into()]), 0),
        }
    }

    /// The place of the parent, where it is there.
    pub fn parent(&self, member: usize) -> Option<usize> {
        match self.members.get(member)?.parent {
            Parent::Known(parent) => Some(parent),
            _ => None,
        }
    }

    /// The earliest ancestor that is there.
    pub fn root_of(&self, member: usize) -> usize {
        std::iter::successors(Some(member), |member| self.parent(*member)).last().unwrap_or(member)
    }

    /// Those that none of the others made.
    pub fn roots(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|member| self.parent(*member).is_none())
    }

    /// Whether one of them was made by another process.
    pub fn has_births(&self) -> bool {
        self.members.iter().any(|member| member.birth.is_some())
    }

    /// These members and all that came from them, each before its children, and how many processes are above it.
    pub fn below(&self, first: impl IntoIterator<Item = usize, IntoIter: DoubleEndedIterator>) -> Vec<(usize, usize)> {
        let mut rest: Vec<_> = first.into_iter().rev().map(|member| (member, 0)).collect();
        let mut found = Vec::new();
        while let Some((member, level)) = rest.pop() {
            found.push((member, level));
            let children = self.members.get(member).map_or(&[][..], |member| &member.children);
            rest.extend(children.iter().rev().map(|child| (*child, level + 1)));
        }
        found
    }

    fn find_parents(&mut self) {
        let mut by_id: HashMap<SessionId, Vec<usize>> = HashMap::new();
        for (place, member) in self.members.iter().enumerate() {
            by_id.entry(member.id.unwrap_or(SessionId::NONE)).or_default().push(place);
        }
        by_id.remove(&SessionId::NONE);
        let found: Vec<_> = self.members.iter().map(|member| self.find_parent(member, &by_id)).collect();
        self.members.iter_mut().zip(found).for_each(|(member, parent)| member.parent = parent);
    }

    /// Of a parent that was split, the part that was being written then.
    fn find_parent(&self, member: &Member, by_id: &HashMap<SessionId, Vec<usize>>) -> Parent {
        let Some(birth) = member.birth else { return Parent::None };
        if member.id == Some(birth.parent) {
            return Parent::Circular;
        }
        let parts = by_id.get(&birth.parent).map_or(&[][..], Vec::as_slice);
        let had_begun = |place: &&usize| {
            self.members.get(**place).is_some_and(|part| {
                let at_ns = part.head.clock_zero_ns.unwrap_or(0).saturating_add(birth.at.0);
                part.head.time_start_ns <= at_ns
            })
        };
        let part = parts.iter().rfind(had_begun).or(parts.first());
        part.map_or(Parent::Missing, |part| Parent::Known(*part))
    }

    /// Takes the parent from the first of those that would be their own ancestors.
    fn cut_circles(&mut self) {
        let mut is_done = vec![false; self.members.len()];
        for start in 0..self.members.len() {
            let mut path = Vec::new();
            let mut next = Some(start);
            while let Some(member) = next.filter(|member| !is_done.get(*member).copied().unwrap_or(true)) {
                if let Some(done) = is_done.get_mut(member) {
                    *done = true;
                }
                path.push(member);
                next = self.parent(member);
            }
            let circle = next.and_then(|member| path.iter().position(|on_path| *on_path == member));
            let first = circle.and_then(|from| path.iter().skip(from).min());
            if let Some(member) = first.and_then(|first| self.members.get_mut(*first)) {
                member.parent = Parent::Circular;
            }
        }
    }
}

impl Chosen {
    /// A session, or the latest family of a directory of sessions, from its first process on.
    pub fn open(dir: &Path) -> Self {
        // Whoever opens what is no session says so.
        let sessions = sinks::disk::sessions_in(dir).unwrap_or_else(|_| vec![dir.into()]);
        if sessions.first().is_some_and(|session| session == dir) {
            let (family, place) = Family::beside(dir);
            return Self { family, first: vec![place], dir: dir.into(), note: None };
        }
        let family = Family::of(sessions);
        let root = family.root_of(family.members.len().saturating_sub(1));
        let id = family.members.get(root).and_then(|member| member.id);
        let is_part = |place: &usize| {
            *place == root || id.is_some() && family.members.get(*place).is_some_and(|member| member.id == id)
        };
        // The parts of one session are one process.
        let first: Vec<_> = match family.has_births() {
            true => family.roots().filter(is_part).collect(),
            false => vec![root],
        };
        let mut chosen = Self { family, first, dir: dir.into(), note: None };
        chosen.note = Some(chosen.describe(root));
        chosen
    }

    /// All that are chosen, each before its children, and how many processes are above it.
    pub fn all(&self) -> Vec<(usize, usize)> {
        self.family.below(self.first.iter().copied())
    }

    /// The directory of the first one.
    pub fn dir(&self) -> &Path {
        let first = self.first.first().and_then(|first| self.family.members.get(*first));
        first.map_or(&self.dir, |member| &member.dir)
    }

    fn describe(&self, root: usize) -> String {
        let name = self.family.members.get(root).and_then(|member| member.dir.file_name()).unwrap_or_default();
        let (name, all, count) = (name.to_string_lossy(), self.all().len(), self.family.members.len());
        let which = match all {
            1 => format!("the latest of {count}"),
            _ => format!("the first of the latest family, which are {all} of {count}"),
        };
        format!("{}: session {name}, {which}", self.dir.display())
    }
}

impl Member {
    fn read(dir: PathBuf) -> Self {
        let file = storage::open(&dir.join("manifest.json"));
        let head = |file: storage::File| ManifestHead::read(BufReader::new(file.reader()));
        let head = file.map_or_else(|_| ManifestHead::default(), head);
        let id = head.session.as_deref().and_then(|id| id.parse().ok());
        let zero_ns = head.clock_zero_ns.unwrap_or(0);
        let birth = head.birth.as_ref().and_then(|entry| birth(entry, zero_ns));
        Self { dir, head, id, birth, parent: Parent::None, children: Vec::new() }
    }

    /// The name of its directory.
    pub fn name(&self) -> String {
        self.dir.file_name().unwrap_or(self.dir.as_os_str()).to_string_lossy().into_owned()
    }
}

fn birth(entry: &BirthEntry, zero_ns: u64) -> Option<Birth> {
    let how = [BirthKind::Forked, BirthKind::Replaced, BirthKind::Spawned].into_iter();
    let how = how.clone().find(|how| how.name() == entry.how).unwrap_or(BirthKind::Other(0));
    let at = SessionNs(entry.at_ns.saturating_sub(zero_ns));
    Some(Birth { parent: entry.parent.parse().ok()?, how, tid: entry.tid.unwrap_or(0), at })
}
