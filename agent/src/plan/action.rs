//! What to do with a function, and why it is left alone.

use std::fmt::{self, Display, Formatter};

use super::prologue::Prologue;

/// What to do with a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Hook it.
    Hook(Hook),
    /// Leave it alone.
    Leave(Reason),
}

/// How to hook a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// What its hook does.
    pub kind: Kind,
    /// What its hook overwrites.
    pub prologue: Prologue,
    /// Whether it jumps to where the hook is.
    pub loops: bool,
}

/// What a hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Records the entry and the return.
    Frame,
    /// Records the entry and leaves the return address alone.
    Probe,
    /// Records the entry of a function of Go, on a stack of our own: goroutines have little.
    Go,
    /// Puts all return addresses of the thread back before the function looks at them.
    Unwinder,
}

impl Kind {
    /// The kind as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::Probe => "probe",
            Self::Go => "go",
            Self::Unwinder => "unwinder",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $explanation:literal;)*) => {
        /// Why a function is left alone. Its words are constant: they go over the wire and into listings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The reason as one word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The reason as one line for people.
            pub fn explain(self) -> &'static str {
                match self {
                    $(Self::$name => $explanation,)*
                }
            }
        }
    };
}

reasons! {
    /// The user's rules leave it out.
    Excluded = "excluded", "left out by the user's rules (--only, --exclude)";
    /// It has fewer bytes than the user wants.
    Small = "min-size", "has fewer bytes of code than --min-size";
    /// The address lies in no executable section of the file.
    NotCode = "not-code", "the address is in no executable section of the file, or its bytes are no instructions";
    /// A stub that the linker made.
    Plt = "plt", "an entry of the procedure linkage table, not a function of the program";
    /// No unwind entry covers it.
    NoUnwindEntry = "no-unwind-entry", "no unwind entry says what its stack looks like";
    /// The unwind entry that covers it begins elsewhere.
    InsideAnother = "inside-another-function", "a label inside a function that begins elsewhere";
    /// The unwind entry that starts here cannot be evaluated.
    BrokenUnwindEntry = "broken-unwind-entry", "its unwind entry cannot be evaluated";
    /// The kernel, not a call, brings a thread here.
    SignalFrame = "signal-frame", "entered by the kernel after a signal, not by a call";
    /// The part of a function that the compiler moved away.
    ColdPart = "cold-part", "a rarely used part of another function, entered by a jump";
    /// There is no return address on top of the stack at its entry.
    OddEntryFrame = "odd-entry-frame", "not entered with its return address on top of the stack";
    /// Its unwind entry begins with padding.
    PaddingFirst = "padding-first", "has no name, and padding before the instruction at which it may really begin";
    /// Memory differs from the file.
    AlreadyPatched = "already-patched", "its first bytes in memory differ from the file: somebody else has patched it";
    /// Fewer than five bytes can be overwritten.
    TooShort = "too-short", "ends, or another function begins, within the five bytes that the hook needs";
    /// A call would return into the overwritten bytes.
    CallInStart = "call-in-start", "a call in its first bytes would return into the middle of the hook";
    /// A branch would land in the overwritten bytes.
    BranchIntoStart = "branch-into-start", "something jumps into the middle of the bytes that the hook needs";
    /// A function of Go that keeps to no convention.
    GoAssembly = "go-assembly", "written in Go's assembly, so that nobody knows which registers it needs";
    /// A function of Go whose first instructions may make it panic.
    MayFault = "may-fault", "its first instructions may fail, and Go has to find them where they are";
    /// Programs cannot read their thread pointer.
    NoThreadPointer = "no-thread-pointer", "a function of Go, on a system that lets no program read its thread pointer (fsgsbase)";
    /// An instruction works only where it stands.
    CannotRelocate = "cannot-relocate", "one of its first instructions cannot be moved";
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
