//! `collector view`: traces in a browser.

use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use view::Token;

use crate::{args::ViewArgs, door::Files, offline::ended_early, ui::Reach};

/// How long the end waits for what reads files: overviews that are being made are given up, and take what they have written
/// with them.
const LAST_TIME: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &ViewArgs) -> Result<ExitCode> {
    let files = Files::new(&args.certificate)?;
    let tls = files.map(Files::for_pages).transpose()?;
    if let Some((_, pin)) = &tls {
        note!("certificate {pin}");
    }
    let reach = Reach::new("--listen", args.listen, &args.names, tls.map(|(tls, _)| tls))?;
    let dir = &args.dir;
    // A directory that is to have sessions may be empty yet.
    if storage::is_remote(dir) {
        storage::metadata(dir).with_context(|| format!("cannot look into {}", dir.display()))?;
    } else if !dir.is_dir() {
        bail!("{} is no directory (give that of the sessions, or a session)", dir.display());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(serve(args, reach));
    runtime.shutdown_timeout(LAST_TIME);
    result.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &ViewArgs, reach: Reach) -> Result<()> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminations = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot serve on {} (is the port taken?)", args.listen))?;
    let token = Token::random()?;
    let address = reach.url(listener.local_addr()?, &token);
    let mut out = io::stdout();
    ended_early(writeln!(out, "{address}").and_then(|()| out.flush()))?;
    let _page = if args.no_open { None } else { open(&address) };
    let options = reach.options(args.dir.clone(), token, args.making.config());
    tokio::select! {
        served = view::serve(listener, options) => served.context("cannot serve any more").map(|never| match never {}),
        _ = interrupts.recv() => Ok(()),
        _ = terminations.recv() => Ok(()),
    }
}

/// A page that leads to the address, which is removed in the end.
struct Leading(PathBuf);

impl Drop for Leading {
    fn drop(&mut self) {
        // It is of no use any more, and nobody's loss.
        drop(fs::remove_file(&self.0));
    }
}

/// Opens a browser. Other users see the arguments of programs, so it is given a page that only this user can read, and that
/// leads to the address. Where there is no browser, the address is on the screen.
fn open(address: &str) -> Option<Leading> {
    let browser = env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let browser = browser.unwrap_or_else(|| OsString::from("xdg-open"));
    let opened = lead_to(address).and_then(|page| {
        let mut command = Command::new(browser);
        command.arg(&page.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        drop(thread::spawn(move || child.wait()));
        Ok(page)
    });
    opened.map_err(|error| note!("no browser could be opened ({error}): open this address in one")).ok()
}

fn lead_to(address: &str) -> io::Result<Leading> {
    let folder = env::var_os("XDG_RUNTIME_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let path = folder.join(format!("spoor-view-{}.html", std::process::id()));
    drop(fs::remove_file(&path));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let page = Leading(path);
    // The address has nothing in it that would be markup.
    writeln!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={address}\"><title>Spoor</title>")?;
    Ok(page)
}
