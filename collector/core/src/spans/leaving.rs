//! Why functions were left without returning.

use codec::span::Reason;

use super::stack::{Frame, Ran};
use crate::Catalog;

/// How far above a frame the function lies that leaves it: what unwinds calls others that are hooked too.
const REACH: usize = 24;

/// Why frames are being left: by the innermost function that is known to do such things. `probe` was entered last, and
/// is not among those that are open: of what unwinds, mostly only the entry is watched.
pub(super) fn reason(open: &[Frame], probe: Option<Ran>, names: &Catalog) -> Reason {
    let mut forced = false;
    for ran in probe.into_iter().chain(open.iter().rev().take(REACH).map(|frame| frame.function)) {
        let Ran::Function(function) = ran else { continue };
        let Some(name) = names.symbol(function) else { continue };
        match role(name) {
            Some(Role::Jumps) => return Reason::Longjmp,
            Some(Role::Throws) => return Reason::Exception,
            Some(Role::Exits) => return Reason::ThreadExit,
            // Both an exit and a cancellation are done by it: whoever called it says which.
            Some(Role::Forces) => forced = true,
            None => {}
        }
    }
    if forced { Reason::Canceled } else { Reason::Unwind }
}

enum Role {
    Jumps,
    Throws,
    Exits,
    Forces,
}

fn role(name: &str) -> Option<Role> {
    Some(match name {
        "_Unwind_ForcedUnwind" => Role::Forces,
        "pthread_exit" | "__pthread_exit" | "thrd_exit" => Role::Exits,
        "_Unwind_RaiseException"
        | "_Unwind_Resume"
        | "_Unwind_Resume_or_Rethrow"
        | "__cxa_throw"
        | "__cxa_rethrow"
        | "objc_exception_throw"
        | "rust_panic"
        | "__rust_start_panic" => Role::Throws,
        // Those of Rust have the name of their crate before them, mangled.
        _ if name.ends_with("___rustc10rust_panic") || name.ends_with("___rustc18___rust_start_panic") => Role::Throws,
        _ if name.ends_with("longjmp") || name == "__longjmp_chk" || name == "setcontext" => Role::Jumps,
        _ => return None,
    })
}
