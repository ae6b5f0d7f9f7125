//! Completions and the manual page, made from the flags themselves.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;
use clap::CommandFactory;

use crate::{args::Cli, offline::ended_early};

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "collector", &mut script);
    print(&script)
}

pub(crate) fn man() -> Result<ExitCode> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands() {
        writeln!(page, ".SH \"COLLECTOR {}\"", subcommand.get_name().to_uppercase())?;
        let man = clap_mangen::Man::new(subcommand.clone());
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    print(&page)
}

fn print(bytes: &[u8]) -> Result<ExitCode> {
    ended_early(io::stdout().lock().write_all(bytes))?;
    Ok(ExitCode::SUCCESS)
}
