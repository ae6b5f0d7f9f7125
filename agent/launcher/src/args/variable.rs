//! Variables of the environment that stand for options.

use std::{env, ffi::OsStr};

use clap::{
    Command, Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};

/// Names the variable that a wrong value came from: clap names only the option.
pub(super) fn name_in(mut error: Error, command: &Command) -> Error {
    if let Some(name) = variable_of(&error, command) {
        let tip: StyledStr = format!("the value is that of the environment variable {name}").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// The variable that has the value which an error is about, unless the option is on the command line.
fn variable_of(error: &Error, command: &Command) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    // Written as in the help: `--to <HOST:PORT>`.
    let long = option.split_whitespace().next()?;
    let mut arguments = command.get_subcommands().flat_map(Command::get_arguments);
    let argument = arguments.find(|argument| argument.get_long() == long.strip_prefix("--"))?;
    let name = argument.get_env()?;
    let is_typed = |typed: &OsStr| {
        let typed = typed.to_string_lossy();
        typed.strip_prefix(long).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let is_from_variable =
        env::var_os(name).is_some_and(|set| set == value) && !env::args_os().any(|typed| is_typed(&typed));
    is_from_variable.then(|| name.to_string_lossy().into_owned())
}
