//! Frida, linked in through its crate. Needs Frida's devkit to link.
//!
//! What the crate cannot do: tell why Frida left, or ask Frida to keep its hands off the program's signal handlers. [`super::helper`] can.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use ::frida::{DeviceManager, Frida, Message, ScriptHandler, ScriptOption, Session};
use serde_json::Value;

use super::{Event, Failure, Link, Pending, failure};
use crate::process::Running;

/// How often it is checked that Frida is still in the target.
const GLANCE: Duration = Duration::from_millis(200);
/// How long Frida has to leave the target.
const PATIENCE: Duration = Duration::from_secs(2);

/// A thread to which Frida belongs, since nothing of the crate may change threads.
pub(super) struct Core {
    target: Arc<Running>,
    /// None once the thread was told to end.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    gone: Arc<AtomicBool>,
    ended: Mutex<mpsc::Receiver<()>>,
}

struct Request {
    call: String,
    args: Value,
    answer: mpsc::Sender<Result<Value, String>>,
}

/// Without one the crate does not take the script's answers. Other messages mean nothing here.
struct Handler;

impl ScriptHandler for Handler {
    fn on_message(&mut self, _message: Message, _data: Option<Vec<u8>>) {}
}

impl Core {
    pub(super) fn attach(
        target: Arc<Running>,
        script: &'static str,
        library: &str,
        events: mpsc::Sender<Event>,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        let (requests, received) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let gone = Arc::new(AtomicBool::new(false));
        let is_gone = Arc::clone(&gone);
        let (pid, library) = (target.pid, library.to_owned());
        thread::spawn(move || {
            if let Err(failure) = serve(pid, script, &library, &ready, &received, &events, &is_gone) {
                let _ = ready.send(Err(failure));
            }
            let _ = events.send(Event::Gone);
            drop(end);
        });
        match is_ready.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => Ok(Self { target, requests: Mutex::new(Some(requests)), gone, ended: Mutex::new(ended) }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Late { what: "attaching".into() }),
        }
    }
}

fn serve(
    pid: i32,
    source: &str,
    library: &str,
    ready: &mpsc::Sender<Result<(), Failure>>,
    requests: &mpsc::Receiver<Request>,
    events: &mpsc::Sender<Event>,
    gone: &AtomicBool,
) -> Result<(), Failure> {
    // SAFETY: Frida is started once in this process and by this thread alone, to which all that comes of it belongs.
    #[allow(unsafe_code)]
    let frida = unsafe { Frida::obtain() };
    let manager = DeviceManager::obtain(&frida);
    let failed = |call: &str, error: ::frida::Error| Failure::Call { call: call.into(), text: error.to_string() };
    let device = manager.get_local_device().map_err(|error| failed("finding this machine", error))?;
    let id = u32::try_from(pid).unwrap_or_default();
    let keeper = Keeper::start(pid).map_err(|why| Failure::Attach { pid, why })?;
    // The crate does not say why; that it may not is the usual reason.
    let session = device.attach(id).map_err(|_| failure::attach(pid, "PermissionDeniedError", ""))?;
    let mut options = ScriptOption::new();
    let mut script =
        session.create_script(source, &mut options).map_err(|error| failed("loading the script", error))?;
    script.handle_message(Handler).map_err(|error| failed("loading the script", error))?;
    script.load().map_err(|error| failed("loading the script", error))?;
    let loaded = script.exports.call("load", Some(serde_json::json!([library])));
    loaded.map_err(|error| failed("loading the library", error))?;
    // Where the main thread ends while these are loaded, Frida finds no modules.
    drop(keeper);
    let _ = ready.send(Ok(()));

    while let Some(request) = next(requests, &session) {
        let answer = script.exports.call(&request.call, Some(request.args));
        let answer = answer.map(Option::unwrap_or_default).map_err(|error| error.to_string());
        // Nobody has to wait for an answer.
        let _ = request.answer.send(answer);
    }
    if session.is_detached() {
        let _ = events.send(Event::Detached("unknown".into()));
    }
    // ORDERING: a flag that guards nothing else.
    if !gone.load(Ordering::Relaxed) && !session.is_detached() {
        // A thread that cannot be kept out of the way is interrupted.
        let _keeper = Keeper::start(pid);
        session.detach().map_err(|error| failed("leaving the program", error))?;
    }
    Ok(())
}

/// A process that keeps the main thread out of Frida's way until this is dropped.
struct Keeper(Child);

impl Keeper {
    fn start(pid: i32) -> Result<Self, String> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["park", &pid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut keeper = Self(command.spawn().map_err(|error| error.to_string())?);
        let mut said = String::new();
        if let Some(says) = keeper.0.stdout.as_mut() {
            let _ = BufReader::new(says).read_line(&mut said);
        }
        match said.trim_end() {
            "parked" => Ok(keeper),
            why => Err(why.into()),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It waits for the end of its input, which this closes.
        let _ = self.0.wait();
    }
}

/// The next request. None when there will be none, or when Frida is no longer in the target.
fn next(requests: &mpsc::Receiver<Request>, session: &Session<'_>) -> Option<Request> {
    loop {
        match requests.recv_timeout(GLANCE) {
            Ok(request) => return Some(request),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) if session.is_detached() => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Link for Core {
    fn begin(&self, call: &str, args: Value) -> Pending {
        let (sender, answer) = mpsc::channel();
        if let Some(requests) = self.requests.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            // If nobody takes it, whoever waits sees that the sender is gone.
            let _ = requests.send(Request { call: call.into(), args, answer: sender });
        }
        Pending { call: call.into(), target: Arc::clone(&self.target), answer }
    }

    fn gone(&self) {
        // ORDERING: a flag that guards nothing else.
        self.gone.store(true, Ordering::Relaxed);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // The thread sends nothing: that its end is dropped is what is waited for.
        let _ = self.ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
    }
}
