//! The functions that are watched: more is told of them than that they were called.

macro_rules! watched {
    ($($variant:ident = $name:literal,)+) => {
        /// A function that is watched, by the name it has in its library.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Watched {
            $($variant,)+
        }

        impl Watched {
            /// All of them. A record names one by its place here.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        /// Their names, in the same order.
        pub const RUNTIME_FUNCTIONS: &[&str] = &[$($name),+];
    };
}

watched! {
    PthreadCreate = "pthread_create",
    // No function of a library: the one that the program gave to `pthread_create`.
    PthreadStartRoutine = "pthread_start_routine",
    PthreadExit = "pthread_exit",
    PthreadJoin = "pthread_join",
    PthreadCancel = "pthread_cancel",
    PthreadDetach = "pthread_detach",
    // Of these nothing is told as such; they say what the names and stacks of threads are, and how the program ends.
    PthreadSetName = "pthread_setname_np",
    MakeContext = "makecontext",
    SigAltStack = "sigaltstack",
    Exit = "exit",
    ExitAtOnce = "_exit",
}

impl Watched {
    /// Whether such functions are looked for in a library: a program's own function may have the same name.
    pub fn may_be_in(library: &str) -> bool {
        const LIBRARIES: [&str; 7] =
            ["libc.so", "libc-2.", "libpthread", "ld-musl", "libdispatch", "libBlocksRuntime", "libswift_Concurrency"];
        LIBRARIES.iter().any(|known| library.starts_with(known))
    }

    /// The watched function with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        let at = RUNTIME_FUNCTIONS.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied().filter(|watched| *watched != Self::PthreadStartRoutine)
    }
}
