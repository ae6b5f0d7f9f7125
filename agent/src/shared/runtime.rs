//! The functions of runtimes whose calls are told with their keys.

/// Their names. A runtime record names one by its place.
pub const RUNTIME_FUNCTIONS: &[&str] = &[
    "pthread_create",
    // No function of the runtime's: the one that the program gave to `pthread_create`.
    "pthread_start_routine",
    "pthread_exit",
    "pthread_join",
    "pthread_cancel",
    "pthread_detach",
];
