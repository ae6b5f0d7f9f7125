//! Arguments that are rules. Their order counts, also of different ones.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use crate::quantity::Size;

/// Which functions are recorded: words and what each is about, in the order of the command line.
#[derive(Debug)]
pub(crate) struct RuleArgs(Vec<(usize, &'static str, String)>);

/// The arguments, and the words of rules that they are.
const WORDS: [(&str, &str); 4] =
    [("only", "only"), ("exclude", "exclude"), ("rules", "rules"), ("min_size", "min-size")];

#[derive(Debug, Args)]
#[command(next_help_heading = "What to record")]
struct Options {
    /// Record only functions that match. May be repeated
    ///
    /// A GLOB matches the name of a function, demangled or not, the file name of a module, or the path of a source file
    /// (src/net/*.c). * stands for any characters, ? for one. function:GLOB, module:GLOB and source:GLOB match only one of
    /// the three.
    ///
    /// Of --only and --exclude, the last one that matches a function decides. A function that none matches is recorded,
    /// unless the first of them is --only.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Do not record functions that match, as with --only. May be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Read rules from a file: one per line, such as `only GLOB`, `exclude GLOB`, `min-size 32` or `max-depth main:4`
    #[arg(long, value_name = "FILE")]
    rules: Vec<String>,
    /// Do not record functions with fewer bytes of code
    #[arg(long, value_name = "BYTES", value_parser = size)]
    min_size: Option<String>,
}

impl RuleArgs {
    /// The words, and what each is about.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(_, word, about)| (*word, about.as_str()))
    }
}

impl FromArgMatches for RuleArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut found = Vec::new();
        for (id, word) in WORDS {
            let values = matches.get_many::<String>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            found.extend(places.zip(values).map(|(at, about)| (at, word, about.clone())));
        }
        found.sort_unstable_by_key(|(at, ..)| *at);
        Ok(Self(found))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RuleArgs {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

/// A size, as text: that is what rules are made of.
fn size(text: &str) -> Result<String, String> {
    text.parse::<Size>().map(|_| text.into())
}

/// A depth, as text.
pub(super) fn depth(text: &str) -> Result<String, String> {
    crate::rules::depth(text).map(|_| text.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};

    #[test]
    fn rules_are_in_the_order_of_the_command_line() {
        let line = "agent list --exclude a --only b --rules c --exclude=d --min-size 2k --only e x";
        let Command::List(args) = Cli::parse_from(line.split(' ')).command else { panic!("it lists") };
        let list: Vec<_> = args.rules.list().collect();
        let expected =
            [("exclude", "a"), ("only", "b"), ("rules", "c"), ("exclude", "d"), ("min-size", "2k"), ("only", "e")];
        assert_eq!(list, expected);
    }
}
