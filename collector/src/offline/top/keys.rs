//! Keys that are pressed while something is shown.

use std::{
    io::{self, IsTerminal, Read},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// What ends a terminal's input: Ctrl-C and Ctrl-D.
const ENDS: [u8; 3] = [b'q', 3, 4];

/// The keys of a terminal, one by one. When this is dropped the terminal is as it was.
pub(super) struct Keys {
    before: Option<Termios>,
    pressed: Option<Receiver<u8>>,
}

impl Keys {
    /// No keys.
    pub(super) fn none() -> Self {
        Self { before: None, pressed: None }
    }

    /// Those of standard input, if that is a terminal.
    pub(super) fn open() -> Self {
        let Ok(before) = tcgetattr(io::stdin()) else { return Self::none() };
        if !io::stdin().is_terminal() {
            return Self::none();
        }
        let mut raw = before.clone();
        // Ctrl-C comes as a key, so that nothing stays changed.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        if tcsetattr(io::stdin(), OptionalActions::Now, &raw).is_err() {
            return Self::none();
        }
        let (to, pressed) = mpsc::channel();
        let read = move || {
            for byte in io::stdin().lock().bytes().map_while(Result::ok) {
                if to.send(byte).is_err() {
                    break;
                }
            }
        };
        // Without a thread there are no keys, and Ctrl-C has to stay what it is.
        match thread::Builder::new().name("keys".into()).spawn(read) {
            Ok(_) => Self { before: Some(before), pressed: Some(pressed) },
            Err(_) => {
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
                Self::none()
            }
        }
    }

    /// Waits for so long, or until somebody wants to quit. Whether somebody does.
    pub(super) fn quit_within(&mut self, wait: Duration) -> bool {
        let Some(pressed) = &self.pressed else {
            thread::sleep(wait);
            return false;
        };
        match pressed.recv_timeout(wait) {
            Ok(key) => ENDS.contains(&key),
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                // Nobody can press anything any more.
                self.pressed = None;
                thread::sleep(wait);
                false
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
