//! Completions and the manual page, made from the flags themselves.

use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

use anyhow::Result;
use clap::CommandFactory;

use crate::args::Cli;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "agent", &mut script);
    print(&script)
}

pub(crate) fn man() -> Result<ExitCode> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        writeln!(page, ".SH \"AGENT {}\"", subcommand.get_name().to_uppercase())?;
        let man = clap_mangen::Man::new(subcommand.clone());
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    print(&page)
}

/// Writes to standard output. A reader that wants no more is no failure.
pub(crate) fn print(bytes: &[u8]) -> Result<ExitCode> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
