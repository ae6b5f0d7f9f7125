//! The small enumerations that wire and disk share, numbered as ATF v2 numbers them, and how enumerations are declared.

/// Declares an enumeration whose values have names.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident: $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name, as it is written everywhere.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use named;

/// Declares an enumeration of numbers with names. A number that it does not know is kept as `Other`, so that a newer
/// sender is understood as far as possible.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident: $($(#[$variant_meta:meta])* $variant:ident = $number:literal $text:literal),+) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A number that has no name here. Use [`From`] to make one, so that known numbers get their names.
            Other(u8),
        }

        impl $name {
            /// The name, in the spelling used in manifests.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(_) => "unknown",
                }
            }
        }

        impl From<u8> for $name {
            fn from(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    other => Self::Other(other),
                }
            }
        }

        impl From<$name> for u8 {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => $number,)+
                    $name::Other(number) => number,
                }
            }
        }
    };
}

numbered! {
    /// The processor of the traced program.
    Arch:
    /// AMD64.
    X86_64 = 1 "x86_64",
    /// AArch64.
    Arm64 = 2 "arm64"
}

numbered! {
    /// The operating system of the traced program.
    Os:
    /// iOS.
    Ios = 1 "ios",
    /// Android.
    Android = 2 "android",
    /// macOS.
    MacOs = 3 "macos",
    /// Linux.
    Linux = 4 "linux",
    /// Windows.
    Windows = 5 "windows"
}

numbered! {
    /// The clock that a trace's timestamps were read from.
    ClockKind:
    /// Mach continuous time.
    MachContinuous = 1 "mach_continuous",
    /// Windows' performance counter.
    Qpc = 2 "qpc",
    /// `CLOCK_BOOTTIME`.
    Boottime = 3 "boottime"
}

numbered! {
    /// How a process came to be.
    BirthKind:
    /// By a fork: with a copy of its parent's memory.
    Forked = 1 "forked",
    /// By an `exec` in place: the same process goes on as another program.
    Replaced = 2 "replaced",
    /// By `vfork` or `posix_spawn`, and an `exec`.
    Spawned = 3 "spawned"
}

numbered! {
    /// How much of a function's calls is told.
    LevelKind:
    /// Every call, and its return.
    Full = 1 "full",
    /// How many calls each thread has made.
    Counted = 2 "counted",
    /// Nothing.
    Off = 3 "off"
}

numbered! {
    /// What became of a request to an agent.
    AnswerKind:
    /// It was done.
    Done = 1 "done",
    /// It was not, and the text says why.
    Refused = 2 "refused"
}

/// What a function event tells of: numbered as in ATF's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The function was entered.
    Call,
    /// The function returned.
    Return,
    /// The function was left by an exception.
    Exception,
}

impl EventKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Call, Self::Return, Self::Exception];

    /// The number on disk.
    pub fn number(self) -> u32 {
        match self {
            Self::Call => 1,
            Self::Return => 2,
            Self::Exception => 3,
        }
    }

    /// The kind with this number, if there is one.
    pub fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Call),
            2 => Some(Self::Return),
            3 => Some(Self::Exception),
            _ => None,
        }
    }

    /// The description that a function event of this kind has on the wire.
    pub fn description(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Return => "return",
            Self::Exception => "exception",
        }
    }

    /// The kind of function event with this description, if it is one.
    pub fn from_description(description: &str) -> Option<Self> {
        match description {
            "call" => Some(Self::Call),
            "return" => Some(Self::Return),
            "exception" => Some(Self::Exception),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_round_trip() {
        for number in 0..=u8::MAX {
            assert_eq!(u8::from(Arch::from(number)), number);
            assert_eq!(u8::from(Os::from(number)), number);
            assert_eq!(u8::from(ClockKind::from(number)), number);
            assert_eq!(u8::from(BirthKind::from(number)), number);
            assert_eq!(u8::from(LevelKind::from(number)), number);
            assert_eq!(u8::from(AnswerKind::from(number)), number);
        }
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_number(kind.number().into()), Some(kind));
            assert_eq!(EventKind::from_description(kind.description()), Some(kind));
        }
        assert_eq!(EventKind::from_number(0), None);
        assert_eq!(EventKind::from_description("calls"), None);
    }
}
