//! Sessions that a collector has recorded.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use codec::SessionId;

use crate::{
    load::ending,
    running::binary,
    walk::{Walk, options},
};

/// Has the collector record a session of so many events, made by these threads in turn.
pub fn record(folder: &Path, session: SessionId, mut walks: Vec<Walk>, events: u64) {
    let sink = format!("disk:{}", folder.display());
    let mut command = Command::new(binary());
    command.args(["ingest", "-", "--sink", &sink, "--log", "error"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().expect("the collector starts");
    let mut out = child.stdin.take().expect("a pipe");
    options(session).iter().for_each(|option| out.write_all(option).expect("it is taken"));
    let (mut left, mut bytes) = (events, Vec::new());
    while left > 0 {
        for walk in &mut walks {
            bytes.clear();
            let count = left.min(4096);
            (0..count).for_each(|_| walk.step(&mut bytes));
            left -= count;
            out.write_all(&bytes).expect("it is taken");
        }
    }
    bytes.clear();
    walks.iter_mut().for_each(|walk| walk.climb_down(&mut bytes));
    let positions: Vec<u64> = walks.iter().map(Walk::position).collect();
    bytes.extend_from_slice(&ending(&positions));
    out.write_all(&bytes).expect("it is taken");
    drop(out);
    assert!(child.wait().expect("it ends").success(), "all of it is recorded");
}
