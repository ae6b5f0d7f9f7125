//! Writing the jumps of functions to their stubs.

use std::io;

use agent::stub::Patch;
use anyhow::{Context, Result};

/// Has functions jump to their stubs, and does what has to be done before any of them runs. If either fails, all functions
/// are what they were: a thread may be in the middle of what a jump has replaced. Nothing else changes the code meanwhile, so
/// that what lies between two jumps is written again as it is, where that is less than a page.
pub(super) fn write_jumps(
    patches: &[&Patch],
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    write: impl Fn(u64, &[u8]) -> io::Result<()>,
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    const NEAR: u64 = 4096;
    let are_near = |one: &&Patch, next: &&Patch| (one.address..one.address + NEAR).contains(&next.address);
    let mut jumps = patches.chunk_by(are_near).map(|near| {
        let [first, .., last] = near else { return near.iter().try_for_each(|only| write(only.address, &only.jump)) };
        let mut code = vec![0; (last.address - first.address) as usize + last.jump.len()];
        read(first.address, &mut code)?;
        for patch in near {
            let at = (patch.address - first.address) as usize;
            code[at..at + patch.jump.len()].copy_from_slice(&patch.jump);
        }
        write(first.address, &code)
    });
    let jumps = jumps.try_for_each(|written| written);
    let done = jumps.context("cannot write to the memory of the program").and_then(|()| then());
    if done.is_err() {
        for patch in patches {
            // Where this fails too, there was no jump either.
            let _ = write(patch.address, &patch.original);
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::*;

    #[test]
    fn functions_are_what_they_were_if_one_cannot_be_written_to() {
        // Those of a page are written at once.
        const APART: u64 = 1000;
        let patch = |number: u64| Patch {
            address: number * APART,
            original: [number as u8; 5],
            jump: [0xE9; 5],
            unwinds: false,
            moves: Vec::new(),
            stub: 0..0,
        };
        let patches: Vec<_> = (0..10).chain(20..23).map(patch).collect();
        let patches: Vec<_> = patches.iter().collect();
        for (refused, fails_behind) in
            [(Some(0), false), (Some(6), false), (Some(21), false), (None, true), (None, false)]
        {
            let memory: Vec<_> =
                (0..23 * APART).map(|at| if at % APART < 5 { (at / APART) as u8 } else { 0xCC }).collect();
            let code = RefCell::new(memory.clone());
            let read = |address: u64, bytes: &mut [u8]| {
                bytes.copy_from_slice(&code.borrow()[address as usize..][..bytes.len()]);
                Ok(())
            };
            let write = |address: u64, bytes: &[u8]| {
                let there = address..address + bytes.len() as u64;
                if refused.is_some_and(|refused| there.contains(&(refused * APART))) {
                    return Err(io::Error::other("there is nothing"));
                }
                code.borrow_mut()[address as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            let then = || if fails_behind { bail!("it cannot be moved") } else { Ok(()) };
            let fails = refused.is_some() || fails_behind;
            assert_eq!(write_jumps(&patches, read, write, then).is_err(), fails);
            let (code, mut expected) = (code.into_inner(), memory);
            if !fails {
                patches.iter().for_each(|patch| expected[patch.address as usize..][..5].fill(0xE9));
            }
            assert!(code == expected, "{refused:?} {fails_behind}");
        }
    }
}
