//! `agent ctl`: asks a running agent what it traces, and has it record more or less.

use std::{fs, os::unix::fs::MetadataExt, process::ExitCode, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use steering::{Action, Reply, Role, Status};

use crate::{args::CtlArgs, manual::print};

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &CtlArgs) -> Result<ExitCode> {
    let action = args.action.as_ref().unwrap_or(&Action::Status);
    let request = action.request().map_err(anyhow::Error::msg)?;
    let answer = ask_all(args.pid, &request)?;
    let text = match (action, args.json) {
        (Action::Status, false) => Status::describe(&answer).context("the agent is of another version")?,
        _ => format!("{answer}\n"),
    };
    print(text.as_bytes())
}

/// Asks all agents of this user, until one knows the process.
fn ask_all(pid: i32, request: &str) -> Result<String> {
    for socket in steering::sockets(&steering::path(), Role::Agent)? {
        let reply = steering::ask(&socket, &format!("{pid} {request}"), PATIENCE)
            .map_err(|error| anyhow!("the agent at {} does not answer: {error}", socket.display()))?;
        match reply {
            Some(Reply::Done(text)) => return Ok(text),
            Some(Reply::Refused(why)) => bail!("{why}"),
            Some(Reply::Unknown) | None => {}
        }
    }
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { bail!("there is no process {pid}") };
    let (own, other) = (rustix::process::geteuid().as_raw(), process.uid());
    match own == other {
        true => bail!("no agent of this user traces process {pid}"),
        false => bail!("no agent of this user traces process {pid}, which is user {other}'s: ask as who traces it"),
    }
}
