//! `agent ctl`: asks a running agent what it traces, and has it record more or less.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{
    args::{CtlAction, CtlArgs},
    control::{DONE, REFUSED, Status},
    manual::print,
    quantity::count,
    run_folder,
};

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &CtlArgs) -> Result<ExitCode> {
    let pid = args.pid;
    let request = match &args.action {
        None => format!("{pid} status"),
        Some(CtlAction::Level { level, glob }) => format!("{pid} level {} {glob}", level.as_str()),
        Some(CtlAction::Budget { budget }) => format!("{pid} budget {budget}"),
        Some(CtlAction::Dump | CtlAction::Start) => format!("{pid} start"),
        Some(CtlAction::Stop) => format!("{pid} stop"),
    };
    if request.contains('\n') {
        bail!("a pattern has one line");
    }
    let answer = ask_all(pid, &request)?;
    let text = match (&args.action, args.json) {
        (None, false) => describe(&serde_json::from_str(&answer).context("the agent is of another version")?),
        _ => format!("{answer}\n"),
    };
    print(text.as_bytes())
}

/// Asks all agents of this user, until one knows the process.
fn ask_all(pid: i32, request: &str) -> Result<String> {
    for socket in run_folder::sockets(&run_folder::path())? {
        let answer = match ask(&socket, request) {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                // Its agent was killed.
                let _ = fs::remove_file(&socket);
                continue;
            }
            // It has just ended.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(anyhow!("the agent at {} does not answer: {error}", socket.display())),
        };
        match answer.split_once(' ') {
            Some((DONE, text)) => return Ok(text.trim_end().into()),
            Some((REFUSED, why)) => bail!("{}", why.trim_end()),
            _ => {}
        }
    }
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { bail!("there is no process {pid}") };
    let (own, other) = (rustix::process::geteuid().as_raw(), process.uid());
    match own == other {
        true => bail!("no agent of this user traces process {pid}"),
        false => bail!("no agent of this user traces process {pid}, which is user {other}'s: ask as who traces it"),
    }
}

fn ask(socket: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{request}")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What is known of a session, for people.
fn describe(status: &Status) -> String {
    let Status { pid, program, session, agent, sessions, threads, events, events_per_second, budget, .. } = status;
    let functions = &status.functions;
    let list = |counts: &std::collections::BTreeMap<String, u64>| match counts.is_empty() {
        true => "nothing".into(),
        false => counts.iter().map(|(why, number)| format!("{} {why}", count(*number))).collect::<Vec<_>>().join(", "),
    };
    format!(
        "{program}, process {pid}, session {session}, traced by agent {agent} ({sessions} in all)\n\
         events       {} of {threads} threads, {} a second, {} not confirmed yet\n\
         budget       {budget}\n\
         functions    {} full, {} counted, {} off; set by hand: {}\n\
         dropped      {}\n\
         lost         {}\n",
        count(*events),
        count(*events_per_second),
        count(status.unconfirmed),
        count(functions.full),
        count(functions.counted),
        count(functions.off),
        count(functions.set),
        list(&status.dropped),
        list(&status.lost),
    )
}
