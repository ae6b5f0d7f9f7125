//! What is before the stub of a function that can be turned down: its gate, and the code that counts a call.
//!
//! That code is run in place of the stub, between a call and the function. What it needs it keeps below the stack pointer,
//! where nothing is that anybody needs when a function is entered, and handlers stay away from. A counter is one of the
//! calling thread alone, and is counted up by one instruction: a handler that comes before or behind it loses nothing. A thread
//! that is not known, one of a forked child for instance, takes the way of a full call, which finds out who it is.

use super::Stub;
use crate::{
    plan::Kind,
    shared::{
        BEFORE_CODE, BEFORE_HEADER, COUNTED, GATE, GATE_START, LOCAL_POINTER, LOCAL_STATE, MOST_SLOTS, OFF, PINNED,
        STATE_COUNTERS,
    },
};

/// What does nothing, where nobody comes.
const PAD: u8 = 0xCC;

/// The bytes before a stub, where its function can be turned down and there are slots. What is watched stays full: it joins
/// events together. So do functions whose return is not hooked: a hooked one may jump to them, as `_setjmp` does to
/// `__sigsetjmp`, and then it is their entry that puts the real return address back, before they look at it. And so do functions
/// that jump to their start: that is no call, and would be counted as one.
pub(super) fn of(stub: &Stub<'_>, slots: u64) -> Option<Vec<u8>> {
    let is_frame = stub.hook.is_some_and(|hook| hook.kind == Kind::Frame && !hook.loops) && stub.watched.is_none();
    let place = 8 * stub.number as usize;
    let slot = u32::try_from(slots + place as u64).ok().filter(|slot| *slot < 1 << 31)?;
    if !is_frame || slots == 0 || stub.number as usize >= MOST_SLOTS {
        return None;
    }
    let mut code = vec![PAD; BEFORE_HEADER - COUNTED];
    let mut outs = Vec::new();
    // mov [rsp-8], rax; mov [rsp-16], rcx; lahf; seto al
    code.extend([0x48, 0x89, 0x44, 0x24, 0xF8, 0x48, 0x89, 0x4C, 0x24, 0xF0, 0x9F, 0x0F, 0x90, 0xC0]);
    // mov rcx, fs:[0]; cmp rcx, gs:[pointer]; jne out
    code.extend([0x64, 0x48, 0x8B, 0x0C, 0x25, 0, 0, 0, 0, 0x65, 0x48, 0x3B, 0x0C, 0x25]);
    code.extend((LOCAL_POINTER as u32).to_le_bytes());
    code.extend([0x75, 0]);
    outs.push(code.len());
    // mov rcx, gs:[state]; cmp rcx, 1; jbe out
    code.extend([0x65, 0x48, 0x8B, 0x0C, 0x25]);
    code.extend((LOCAL_STATE as u32).to_le_bytes());
    code.extend([0x48, 0x83, 0xF9, 0x01, 0x76, 0]);
    outs.push(code.len());
    // mov rcx, [rcx + counters]; jrcxz out; inc qword ptr [rcx + place]
    code.extend([0x48, 0x8B, 0x89]);
    code.extend((STATE_COUNTERS as u32).to_le_bytes());
    code.extend([0xE3, 0]);
    outs.push(code.len());
    code.extend([0x48, 0xFF, 0x81]);
    code.extend((place as u32).to_le_bytes());
    // add al, 127; sahf; mov rcx, [rsp-16]; mov rax, [rsp-8]
    const RESTORE: [u8; 13] = [0x04, 0x7F, 0x9E, 0x48, 0x8B, 0x4C, 0x24, 0xF0, 0x48, 0x8B, 0x44, 0x24, 0xF8];
    code.extend(RESTORE);
    jump(&mut code, BEFORE_HEADER + OFF);
    for behind in outs {
        code[behind - 1] = (code.len() - behind) as u8;
    }
    code.extend(RESTORE);
    // nop
    code.resize(BEFORE_HEADER - PINNED, 0x90);
    jump(&mut code, BEFORE_HEADER + BEFORE_CODE);
    code.resize(BEFORE_HEADER - GATE, PAD);
    code.extend(GATE_START);
    code.extend(slot.to_le_bytes());
    code.resize(BEFORE_HEADER, PAD);
    Some(code)
}

/// A jump to a place that is so many bytes behind where the code starts.
fn jump(code: &mut Vec<u8>, to: usize) {
    code.push(0xE9);
    let distance = to as i32 - (code.len() as i32 + 4);
    code.extend(distance.to_le_bytes());
}
