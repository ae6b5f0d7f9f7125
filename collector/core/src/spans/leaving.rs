//! Why functions were left without returning.

use codec::span::Reason;

use super::{
    Names,
    stack::{Frame, Ran},
};

/// How far above a frame the function lies that leaves it: what unwinds calls others that are hooked too.
const REACH: usize = 24;

/// Why the frames above and including `left` are being left: by the innermost function that is known to do such things.
pub(super) fn reason(open: &[Frame], names: &dyn Names) -> Reason {
    let mut forced = false;
    for frame in open.iter().rev().take(REACH) {
        let Ran::Function(function) = frame.function else { continue };
        let Some(name) = names.function(function) else { continue };
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
        | "_rust_start_panic" => Role::Throws,
        _ if name.ends_with("longjmp") || name == "__longjmp_chk" || name == "setcontext" => Role::Jumps,
        _ => return None,
    })
}
