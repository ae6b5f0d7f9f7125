//! What the user wants to be recorded, and what not: rules, in order.
//!
//! A rule is a word and what it is about, on the command line (`--only GLOB`) as in a file of rules (`only GLOB`). Of the rules
//! `only` and `exclude` that match a function the last one decides. What none matches is recorded, unless the first of them
//! is an `only`.

mod pattern;

use std::{
    cell::OnceCell,
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use agent::plan::{Candidate, Reason};
use codec::demangle::demangle;

pub(crate) use self::pattern::Pattern;
use crate::{install::is_needed, quantity::Size, settings::SettingsError};

/// What the user wants to be recorded, and what not.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    list: Vec<Rule>,
    /// Functions of fewer bytes are left out.
    min_size: u64,
    /// Calls that are nested deeper are not recorded, nor those that are deeper below certain functions.
    pub(crate) max_depth: Option<u32>,
    depths: Vec<(Matched, u32)>,
    /// Something else depends on the calls of these functions.
    full: Vec<Matched>,
}

#[derive(Debug)]
struct Rule {
    keeps: bool,
    what: Matched,
}

/// A pattern, and whether anything was like it.
#[derive(Debug)]
struct Matched {
    /// The rule as the user has written it, and where.
    text: String,
    pattern: Pattern,
    has_matched: AtomicBool,
}

/// The rules for the functions of one module.
#[derive(Debug)]
pub(crate) struct ModuleRules<'a> {
    rules: &'a Rules,
    /// The name of its file.
    file: &'a str,
    /// Which of the rules are about all of it.
    whole: Vec<bool>,
}

/// How the words of rules begin on the command line.
const DASHES: &str = "--";

impl Rules {
    /// Those of a command line, each a word and what it is about.
    pub(crate) fn new<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, SettingsError> {
        let mut rules = Self::default();
        for (word, about) in given {
            let option = format!("{DASHES}{word} {about}");
            match word {
                "rules" => rules.read(about)?,
                _ => rules
                    .add(word, about, option.clone())
                    .map_err(|why| SettingsError::Usage(format!("{option}: {why}")))?,
            }
        }
        Ok(rules)
    }

    /// Adds those of a file: one a line. A line that begins with # says nothing.
    fn read(&mut self, path: &str) -> Result<(), SettingsError> {
        let text = fs::read_to_string(path)
            .map_err(|error| SettingsError::Machine(format!("{DASHES}rules {path}: cannot read it: {error}")))?;
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, about) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            self.add(word, about.trim(), format!("{path}:{number}: {line}"))
                .map_err(|why| SettingsError::Usage(format!("{path}:{number}: {why}")))?;
        }
        Ok(())
    }

    fn add(&mut self, word: &str, about: &str, text: String) -> Result<(), String> {
        let matched = |glob: &str| match glob {
            "" => Err(format!("expected a pattern behind {word}")),
            _ => Ok(Matched { text, pattern: Pattern::new(glob)?, has_matched: false.into() }),
        };
        match word {
            "only" | "exclude" => self.list.push(Rule { keeps: word == "only", what: matched(about)? }),
            "min-size" => self.min_size = about.parse::<Size>()?.0,
            "max-depth" => match depth(about)? {
                (None, levels) => self.max_depth = Some(levels),
                (Some(function), levels) => self.depths.push((matched(function)?, levels)),
            },
            _ => return Err(format!("expected only, exclude, min-size or max-depth, and not {word}")),
        }
        Ok(())
    }

    /// Has functions with such a name be hooked and stay full, whatever the others say: something depends on their calls.
    pub(crate) fn keep_full(&mut self, text: String, glob: &str) -> Result<(), String> {
        let pattern = Pattern::new(&format!("function:{glob}"))?;
        self.full.push(Matched { text, pattern, has_matched: false.into() });
        Ok(())
    }

    /// Those for the module at this path.
    pub(crate) fn of_module<'a>(&'a self, path: &'a str) -> ModuleRules<'a> {
        let whole = self.list.iter().map(|rule| rule.what.tell(rule.what.pattern.is_module(path))).collect();
        ModuleRules { rules: self, file: path.rsplit('/').next().unwrap_or(path), whole }
    }

    /// How many levels are recorded below a function with these names, where that is limited.
    pub(crate) fn depth_below<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Option<u32> {
        let of =
            |(matched, levels): &(Matched, u32)| matched.tell(matched.is_function(names.clone())).then_some(*levels);
        self.depths.iter().filter_map(of).min()
    }

    /// Whether a function with these names stays full because something else depends on its calls.
    pub(crate) fn is_full<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> bool {
        // Each is tried: one that others make needless has matched all the same.
        let is_named = |matched: &&Matched| matched.tell(matched.is_function(names.clone()));
        self.full.iter().filter(is_named).count() > 0
    }

    /// The functions that have to be hooked whatever the rules say.
    fn counted_on(&self) -> impl Iterator<Item = &Matched> {
        self.depths.iter().map(|(matched, _)| matched).chain(&self.full)
    }

    /// Says which rules are about nothing that was seen so far.
    pub(crate) fn warn_of_unmatched(&self) {
        let all = self.list.iter().map(|rule| &rule.what).chain(self.counted_on());
        // ORDERING: the threads that plan have been joined.
        for rule in all.filter(|rule| !rule.has_matched.load(Ordering::Relaxed)) {
            say!("{}: {}", rule.text, rule.pattern.missing());
        }
    }
}

impl Matched {
    /// Whether it is about a function with these names.
    fn is_function<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        names.any(|name| self.pattern.is_function(&Names::of(&[name])))
    }

    /// Notes that something is like it.
    fn tell(&self, matches: bool) -> bool {
        if matches {
            // ORDERING: read when all is planned.
            self.has_matched.store(true, Ordering::Relaxed);
        }
        matches
    }
}

impl ModuleRules<'_> {
    /// Why a function is left out, if it is. `source` is asked for the file that the function at an address is from.
    pub(crate) fn leave(&self, function: &Candidate<'_>, source: &dyn Fn(u64) -> Option<String>) -> Option<Reason> {
        let (names, file) = (Names::of(function.names), OnceCell::new());
        let from = || file.get_or_init(|| source(function.address)).as_deref();
        let Rules { list, min_size, .. } = self.rules;
        let mut is_kept = list.first().is_none_or(|first| !first.keeps);
        // Each is tried: one that others make needless has matched all the same.
        for (rule, whole) in list.iter().zip(&self.whole) {
            let pattern = &rule.what.pattern;
            let is_from = || pattern.is_of_sources() && from().is_some_and(|file| pattern.is_source(file));
            if rule.what.tell(*whole || pattern.is_function(&names) || is_from()) {
                is_kept = rule.keeps;
            }
        }
        let is_small = (1..*min_size).contains(&function.size);
        // What joins events together is needed by those that are recorded, and so is what depths are counted from.
        let is_needed = || {
            let is_named = |matched: &Matched| matched.pattern.is_function(&names);
            function.names.iter().any(|name| is_needed(self.file, name)) || self.rules.counted_on().any(is_named)
        };
        match (is_kept, is_small) {
            (true, false) => None,
            _ if is_needed() => None,
            (false, _) => Some(Reason::Excluded),
            (true, true) => Some(Reason::Small),
        }
    }
}

/// The names of a function, as they are and, where that is asked for, as people write them.
pub(crate) struct Names<'a> {
    raw: &'a [&'a str],
    demangled: OnceCell<Vec<String>>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(raw: &'a [&'a str]) -> Self {
        Self { raw, demangled: OnceCell::new() }
    }

    fn any(&self, mut matches: impl FnMut(&str) -> bool) -> bool {
        let demangled = || self.demangled.get_or_init(|| self.raw.iter().filter_map(|name| demangle(name)).collect());
        self.raw.iter().any(|name| matches(name)) || demangled().iter().any(|name| matches(name))
    }
}

/// A number of levels, and the function below which they are counted, if that is not the start of the thread.
pub(crate) fn depth(text: &str) -> Result<(Option<&str>, u32), String> {
    let (function, number) = match text.rsplit_once(':') {
        Some((function, number)) => (Some(function), number),
        None => (None, text),
    };
    match number.parse() {
        // Of the start of a thread there is nothing but what it calls.
        Ok(levels) if function.map_or(levels > 0, |function| !function.is_empty()) => Ok((function, levels)),
        _ => Err("expected a number from 1 on, or a function and a number as main:4".into()),
    }
}

#[cfg(test)]
mod tests;
