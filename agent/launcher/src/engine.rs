//! What gets into a program.

use std::fmt::Display;

use agent::plan::Image;
use clap::ValueEnum;

use crate::frida;

/// What gets into a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Frida's package for Python, which `agent setup` installs
    Frida,
    /// Nothing but this command: also into programs that are linked statically, and into those of Go
    Native,
}

/// An engine, and whether somebody has asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    engine: Engine,
    is_asked_for: bool,
    is_quiet: bool,
}

impl Choice {
    /// What was asked for; otherwise Frida where it is installed.
    pub(crate) fn new(asked_for: Option<Engine>, frida: &frida::Options, is_quiet: bool) -> Self {
        let choice = Self { engine: asked_for.unwrap_or(Engine::Frida), is_asked_for: asked_for.is_some(), is_quiet };
        if choice.is_asked_for || frida.is_there() {
            return choice;
        }
        choice.native("Frida is not installed (`agent setup` installs it)")
    }

    /// That one in any case.
    pub(crate) fn only(engine: Engine) -> Self {
        Self { engine, is_asked_for: true, is_quiet: true }
    }

    /// The same without a word.
    pub(crate) fn quietly(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    /// The engine for a program. Why the one that was asked for cannot get into it otherwise.
    pub(crate) fn suited_to(self, image: &Image) -> Result<Engine, &'static str> {
        match () {
            () if self.engine == Engine::Native => Ok(Engine::Native),
            () if image.is_static() => {
                self.without_frida("it is linked statically, and Frida cannot be loaded into it")
            }
            () if image.is_go() => self.without_frida("it is a program of Go, which Frida cannot be loaded into"),
            () => Ok(Engine::Frida),
        }
    }

    /// The native engine where Frida cannot be used, unless it was asked for.
    pub(crate) fn without_frida(self, why: &'static str) -> Result<Engine, &'static str> {
        if self.engine == Engine::Frida && self.is_asked_for { Err(why) } else { Ok(self.native(why).engine) }
    }

    fn native(self, why: impl Display) -> Self {
        if self.engine == Engine::Frida && !self.is_quiet {
            say!("using the native engine: {why}");
        }
        Self { engine: Engine::Native, ..self }
    }
}
