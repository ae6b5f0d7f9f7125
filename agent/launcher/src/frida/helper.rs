//! Frida in a process of its own, a Python with Frida's package.

use std::{
    collections::HashMap,
    env,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Event, Failure, Link, Missing, Pending, failure, is_gone, python::Python, receive_from};
use crate::{
    process::{self, Running},
    signals,
};

const HOST: &str = include_str!("host.py");
/// How long the helper has to let go of the target and end. A target whose thread it has borrowed would not survive its end.
const PATIENCE: Duration = Duration::from_secs(15);

/// The helper, before it has anything to attach to.
pub(super) struct Helper {
    python: PathBuf,
    // Before `child`, so that it is closed when `child` is waited for.
    input: ChildStdin,
    child: Reaped,
    lines: mpsc::Receiver<Line>,
    said: Arc<Mutex<String>>,
}

/// The helper, attached.
pub(super) struct Attached {
    target: Arc<Running>,
    /// Ended when this is dropped.
    _child: Reaped,
    /// None once the helper was told to end.
    input: Mutex<Option<ChildStdin>>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
}

/// Whoever waits for an answer. `None` when there will be no more.
type Waiting = Option<HashMap<u64, mpsc::Sender<Result<Value, String>>>>;

/// What the helper writes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    frida: Option<String>,
    ready: bool,
    failed: Option<Value>,
    detached: Option<String>,
    notice: Option<String>,
    id: Option<u64>,
    value: Value,
}

/// A process that is ended and waited for when it is no longer needed.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It is ours and has not been waited for, so that this ends no other process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Helper {
    pub(super) fn start(python: &Python, verbose: bool) -> Result<Self, Failure> {
        let mut command = Command::new(&python.command);
        command.args(["-u", "-c", HOST]).args(&python.packages);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(if verbose { Stdio::inherit() } else { Stdio::piped() });
        // Not in our group: what the terminal sends is for the program and for us.
        command.process_group(0);
        let start = |error| Failure::Start { python: python.command.clone(), error };
        let mut child = command.spawn().map_err(start)?;
        let missing = || start(std::io::Error::other("it has no pipes"));
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or_else(missing)?;
        let said = Arc::new(Mutex::new(String::new()));
        if let Some(errors) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || remember(errors, &said));
        }
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // What cannot be read is no answer to anything.
                let Ok(line) = serde_json::from_str::<Line>(&line) else { continue };
                if let Some(notice) = &line.notice {
                    say!("{notice}");
                }
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { python: python.command.clone(), child: Reaped(child), input, lines, said })
    }

    /// Waits until Frida is loaded, has it attach, and loads the script and the library.
    pub(super) fn attach(
        mut self,
        target: Arc<Running>,
        script: &str,
        library: &str,
        events: mpsc::Sender<Event>,
        deadline: Instant,
    ) -> Result<Attached, Failure> {
        let version = self.expect("its version", &target, deadline, |line| line.frida)?;
        if version.split('.').next() != Some("17") {
            return Err(Failure::Version { python: self.python, version });
        }
        // The path, since this process may be gone when it is used.
        let own = env::current_exe().map_err(|error| Failure::Start { python: self.python.clone(), error })?;
        let parameters = json!({ "pid": target.pid, "script": script, "library": library, "agent": own });
        if writeln!(self.input, "{parameters}").is_err() {
            return Err(self.ended("attach"));
        }
        let ready = self.expect("attaching", &target, deadline, |line| line.ready.then_some(()));
        if let Err(Failure::TargetEnded) = ready {
            // There is nothing to let go of, unless Frida has borrowed a thread of another program that the process runs.
            match process::has_ended(target.pid) {
                true => drop(self.child.0.kill()),
                false => drop(writeln!(self.input, "{}", json!({ "gone": true }))),
            }
        }
        ready?;

        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let answered = Arc::clone(&waiting);
        let lines = self.lines;
        thread::spawn(move || {
            for line in &lines {
                deliver(line, &answered, &events);
            }
            // Whoever still waits sees that the sender is gone.
            *lock(&answered) = None;
            let _ = events.send(Event::Gone);
        });
        Ok(Attached {
            target,
            _child: self.child,
            input: Mutex::new(Some(self.input)),
            waiting,
            next: AtomicU64::new(0),
        })
    }

    /// The next line that says what is waited for.
    fn expect<T>(
        &self,
        what: &str,
        target: &Running,
        deadline: Instant,
        take: impl Fn(Line) -> Option<T>,
    ) -> Result<T, Failure> {
        loop {
            match receive_from(target, &self.lines, deadline, signals::check)? {
                Ok(Line { failed: Some(failed), .. }) => return Err(self.failure(target.pid, &failed)),
                // The process has ended, or runs another program.
                Ok(Line { detached: Some(_), .. }) => return Err(Failure::TargetEnded),
                Ok(line) => {
                    if let Some(found) = take(line) {
                        return Ok(found);
                    }
                }
                Err(Missing::Late) => return Err(Failure::Late { what: what.into() }),
                Err(Missing::Ended) => return Err(self.ended(what)),
            }
        }
    }

    fn failure(&self, pid: i32, failed: &Value) -> Failure {
        let part = |name: &str| failed[name].as_str().unwrap_or_default();
        match part("stage") {
            "import" => Failure::Import { python: self.python.clone(), text: part("text").into() },
            "attach" => failure::attach(pid, part("kind"), part("text")),
            _ if is_gone(part("text")) => Failure::TargetEnded,
            stage => Failure::Call { call: format!("loading the {stage}"), text: part("text").into() },
        }
    }

    fn ended(&self, during: &str) -> Failure {
        let said = lock(&self.said);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).map(|line| format!(": {}", line.trim()));
        Failure::Ended { during: during.into(), said: last.unwrap_or_default() }
    }
}

impl Attached {
    fn request(&self, call: &str, mut request: Value) -> Pending {
        // ORDERING: only the numbers have to differ.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (sender, answer) = mpsc::channel();
        if let Some(waiting) = lock(&self.waiting).as_mut() {
            waiting.insert(id, sender);
        }
        let written = lock(&self.input).as_mut().is_some_and(|input| writeln!(input, "{request}").is_ok());
        if !written && let Some(waiting) = lock(&self.waiting).as_mut() {
            waiting.remove(&id);
        }
        Pending { call: call.into(), target: Arc::clone(&self.target), answer }
    }
}

impl Link for Attached {
    fn begin(&self, call: &str, args: Value) -> Pending {
        self.request(call, json!({ "call": call, "args": args }))
    }

    fn gone(&self) {
        let mut input = lock(&self.input);
        if let Some(input) = input.as_mut() {
            // If it cannot be told, it has ended.
            let _ = writeln!(input, "{}", json!({ "gone": true }));
        }
        *input = None;
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The end of its input is what ends the helper, for which is then waited.
        *lock(&self.input) = None;
    }
}

fn deliver(line: Line, waiting: &Mutex<Waiting>, events: &mpsc::Sender<Event>) {
    if let Some(id) = line.id {
        let answer = match line.failed {
            Some(text) => Err(text.as_str().unwrap_or_default().to_string()),
            None => Ok(line.value),
        };
        if let Some(sender) = lock(waiting).as_mut().and_then(|waiting| waiting.remove(&id)) {
            // Nobody has to wait for an answer.
            let _ = sender.send(answer);
        }
        return;
    }
    if let Some(reason) = line.detached {
        let _ = events.send(Event::Detached(reason));
    }
}

/// Keeps the end of what the helper writes to its standard error, to tell when it fails.
fn remember(mut errors: impl Read, said: &Mutex<String>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut buffer) {
        let mut said = lock(said);
        said.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if said.len() > 8192 {
            let cut = (said.len() - 4096..said.len()).find(|index| said.is_char_boundary(*index));
            said.drain(..cut.unwrap_or_default());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
