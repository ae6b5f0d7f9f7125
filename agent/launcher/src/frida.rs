//! Frida, at arm's length: a host attaches to the target, runs the bootstrap script in it, and hands calls on.
//!
//! Frida lives in a process of its own, [`helper`], so that whatever happens to it happens neither to this command nor
//! to the target; with the feature `frida-core` it is linked in, `core`. Both speak to the same script.

pub(crate) mod environment;
pub(crate) mod failure;
mod helper;
pub(crate) mod python;

#[cfg(feature = "frida-core")]
mod core;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use agent::registers::SignalMask;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::failure::Failure;
use self::helper::Helper;
use crate::{
    native,
    process::{self, Running},
    signals::Interrupted,
};

/// The version that the private environment has, and that everything is tested with.
pub(crate) const VERSION: &str = "17.24.3";
/// The script that runs in the target.
const BOOTSTRAP: &str = include_str!("frida/bootstrap.js");
/// How long a call takes at most that waits for nobody.
const QUICK: Duration = Duration::from_secs(10);
/// How often a wait looks whether somebody has asked to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// Every signal but those that cannot be blocked, the two that the C library keeps for itself, and the segmentation
/// fault, which Frida unblocks where it runs.
pub(crate) const NOT_FOR_FRIDA: SignalMask = SignalMask(0xffff_fffe_7ffb_fbff);

/// What may be used to get at Frida.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The Python to use, instead of looking for one.
    pub(crate) python: Option<PathBuf>,
    /// Let the helper's own messages through.
    pub(crate) verbose: bool,
}

impl Options {
    /// Whether Frida is there.
    pub(crate) fn is_there(&self) -> bool {
        cfg!(feature = "frida-core") || python::present(self).is_some()
    }
}

/// What happened without having been asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Frida is no longer in the program, and why, in Frida's words: `process-terminated`, `application-requested`, …
    Detached(String),
    /// The host itself has ended.
    Gone,
}

/// An answer that is still to come. To drop it is not to wait for it.
#[derive(Debug)]
pub(crate) struct Pending {
    call: String,
    target: Arc<Running>,
    answer: mpsc::Receiver<Result<Value, String>>,
}

impl Pending {
    /// Whether the answer has come, good or bad. It is taken: there is no waiting for it afterwards.
    pub(crate) fn is_done(&self) -> bool {
        !matches!(self.answer.try_recv(), Err(mpsc::TryRecvError::Empty))
    }

    /// Whether there is no more program that could answer.
    pub(crate) fn is_over(&self) -> bool {
        self.target.is_over()
    }

    /// Waits for the answer.
    pub(crate) fn wait(self, deadline: Instant) -> Result<Value, Failure> {
        let call = self.call;
        match receive_from(&self.target, &self.answer, deadline, || Ok(()))? {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(text)) if is_gone(&text) => Err(Failure::TargetEnded),
            Ok(Err(text)) => Err(Failure::Call { call, text }),
            Err(Missing::Late) => Err(Failure::Late { what: format!("its answer to {call}") }),
            Err(Missing::Ended) => Err(Failure::Ended { during: call, said: String::new() }),
        }
    }
}

/// Whether this is what Frida says when there is nothing left to run the script in.
fn is_gone(text: &str) -> bool {
    text.contains("script has been destroyed") || text.contains("session is gone")
}

/// Why nothing was received.
enum Missing {
    Late,
    Ended,
}

/// Waits for what comes out of a target, unless that ends, or this finds a reason to give up.
fn receive_from<T>(
    target: &Running,
    from: &mpsc::Receiver<T>,
    deadline: Instant,
    go_on: impl Fn() -> Result<(), Interrupted>,
) -> Result<Result<T, Missing>, Failure> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(GLANCE)) {
            Ok(received) => return Ok(Ok(received)),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(Err(Missing::Ended)),
            Err(mpsc::RecvTimeoutError::Timeout) if target.is_over() => return Err(Failure::TargetEnded),
            Err(mpsc::RecvTimeoutError::Timeout) if left <= GLANCE => return Ok(Err(Missing::Late)),
            Err(mpsc::RecvTimeoutError::Timeout) => go_on()?,
        }
    }
}

/// What stands between [`Host`] and Frida.
trait Link: Send + Sync {
    /// Calls a function that the script exports.
    fn begin(&self, call: &str, args: Value) -> Pending;
    /// The target is gone: do not try to let go of it.
    fn gone(&self);
}

/// A host on its way: Frida is being loaded while others prepare the target.
pub(crate) struct Starting {
    helper: Option<Helper>,
}

impl Starting {
    /// Starts loading Frida.
    pub(crate) fn launch(options: &Options) -> Result<Self, Failure> {
        if cfg!(feature = "frida-core") && options.python.is_none() {
            return Ok(Self { helper: None });
        }
        let python = python::find(options)?;
        Ok(Self { helper: Some(Helper::start(&python, options.verbose)?) })
    }

    /// Gets Frida into a process, and the library with it.
    pub(crate) fn attach(self, pid: i32, library: &Path, deadline: Instant) -> Result<Host, Failure> {
        let library = library.to_str().ok_or_else(|| Failure::Call {
            call: "load".into(),
            text: format!("{} is not valid UTF-8, which Frida needs", library.display()),
        })?;
        let target = Arc::new(Running::of(pid));
        let (events, received) = mpsc::channel();
        let link: Box<dyn Link> = match self.helper {
            Some(helper) => Box::new(helper.attach(target, BOOTSTRAP, library, events, deadline)?),
            #[cfg(feature = "frida-core")]
            None => Box::new(core::Core::attach(target, BOOTSTRAP, library, events, deadline)?),
            #[cfg(not(feature = "frida-core"))]
            None => unreachable!("without frida-core there is always a helper"),
        };
        Ok(Host { pid, link, events: Mutex::new(received) })
    }
}

/// Frida in a target, with the bootstrap script and the library loaded. When dropped, Frida leaves the target; the
/// library stays, since the program may be inside it.
pub(crate) struct Host {
    pid: i32,
    link: Box<dyn Link>,
    events: Mutex<mpsc::Receiver<Event>>,
}

/// A hook that Gum itself is to make: of the entry alone, the return address is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GumHook {
    /// The function.
    pub(crate) address: u64,
    /// What the library is handed with each call: the address of the function's header.
    pub(crate) header: u64,
}

impl Serialize for GumHook {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (format!("{:#x}", self.address), format!("{:#x}", self.header)).serialize(serializer)
    }
}

/// How Gum got on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GumReport {
    pub(crate) attached: u64,
    /// Addresses, in hexadecimal, and why each could not be hooked.
    pub(crate) failed: Vec<(String, String)>,
}

impl Host {
    /// Launches and attaches in one step.
    pub(crate) fn start(options: &Options, pid: i32, library: &Path, deadline: Instant) -> Result<Self, Failure> {
        Starting::launch(options)?.attach(pid, library, deadline)
    }

    /// Calls a function of the script without waiting for it.
    pub(crate) fn begin(&self, call: &str, args: Value) -> Pending {
        self.link.begin(call, args)
    }

    /// Calls a function of the script.
    pub(crate) fn call(&self, call: &str, args: Value, deadline: Instant) -> Result<Value, Failure> {
        self.begin(call, args).wait(deadline)
    }

    /// Has the library make the shared memory; its descriptor in the target.
    pub(crate) fn open(&self, ring_bytes: u64, rings: u64, stack_bytes: u32, flags: u32) -> Result<i32, Failure> {
        let args = json!([ring_bytes.to_string(), rings.to_string(), stack_bytes, flags]);
        let answer = self.quick("open", args)?;
        match answer.as_i64().and_then(|number| i32::try_from(number).ok()) {
            Some(descriptor) if descriptor >= 0 => Ok(descriptor),
            Some(error) => Err(Failure::Memory(std::io::Error::from_raw_os_error(-error))),
            None => Err(odd("open", &answer)),
        }
    }

    /// Has the library close that descriptor.
    pub(crate) fn close(&self, descriptor: i32) -> Result<(), Failure> {
        self.quick("close", json!([descriptor])).map(drop)
    }

    /// The addresses of the library's routines, in its order.
    pub(crate) fn routines(&self) -> Result<Vec<u64>, Failure> {
        let answer = self.quick("routines", json!([]))?;
        let address = |text: &Value| u64::from_str_radix(text.as_str()?.strip_prefix("0x")?, 16).ok();
        let addresses = answer.as_array().and_then(|list| list.iter().map(address).collect());
        addresses.ok_or_else(|| odd("routines", &answer))
    }

    /// Has the library serve requests, from one of Frida's threads, until it is told through shared memory to stop.
    pub(crate) fn serve(&self) -> Pending {
        self.begin("serve", json!([0]))
    }

    /// Has the library serve in every thread that loads or unloads a module, while it does. Says how many there are.
    pub(crate) fn watch_modules(&self) -> Result<u64, Failure> {
        let answer = self.quick("watch", json!([]))?;
        answer.as_u64().ok_or_else(|| odd("watch", &answer))
    }

    /// Stops doing so.
    pub(crate) fn unwatch_modules(&self) -> Pending {
        self.begin("unwatch", json!([]))
    }

    /// Has Gum hook functions.
    pub(crate) fn attach_gum(&self, hooks: &[GumHook], deadline: Instant) -> Result<GumReport, Failure> {
        let answer = self.call("attach", json!([hooks]), deadline)?;
        GumReport::deserialize(&answer).map_err(|_| odd("attach", &answer))
    }

    /// Has Gum take all its hooks out.
    pub(crate) fn detach_gum(&self, deadline: Instant) -> Result<(), Failure> {
        self.call("detach", json!([]), deadline).map(drop)
    }

    /// What has happened, waiting for it for at most so long.
    pub(crate) fn next_event(&self, timeout: Duration) -> Option<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(timeout).ok()
    }

    /// The target has ended: there is nothing to let go of.
    pub(crate) fn target_is_gone(&self) {
        self.link.gone();
    }

    fn quick(&self, call: &str, args: Value) -> Result<Value, Failure> {
        self.call(call, args, Instant::now() + QUICK)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if process::has_ended(self.pid) {
            self.target_is_gone();
        }
    }
}

/// Blocks signals in these threads of a target, which are Frida's: the program's handlers are to run in its own. Says in how many
/// that failed.
pub(crate) fn mask(threads: &[i32]) -> usize {
    let block =
        |thread: i32| native::while_stopped(thread, Instant::now() + QUICK, || Ok(NOT_FOR_FRIDA.write(thread)?));
    threads.iter().filter(|thread| block(**thread).is_err()).count()
}

fn odd(call: &str, answer: &Value) -> Failure {
    Failure::Call { call: call.into(), text: format!("expected another answer than {answer}") }
}
