//! Which functions tasks and jobs are named by.

use codec::{FunctionId, ModuleId};

use crate::Catalog;

/// Whether a function is the program's own, and not of a library that runs tasks.
pub(super) fn is_of_program(function: FunctionId, names: &Catalog) -> bool {
    const RUNTIMES: [&str; 8] =
        ["libswift", "libdispatch", "libc.so", "libc-", "libpthread", "ld-linux", "libBlocksRuntime", "libstdc++"];
    let Some(path) = names.module_path(function.module()) else { return false };
    let file = path.rsplit('/').next().unwrap_or(path);
    function.module() != ModuleId(0) && !RUNTIMES.iter().any(|runtime| file.starts_with(runtime))
}

/// Whether a function only passes arguments on in another form, as Swift's compiler makes them for closures.
pub(super) fn is_thunk(function: FunctionId, names: &Catalog) -> bool {
    let is_one = |name: &str| name.contains("Ie") && name.contains("TR") || name.ends_with("TA");
    swift_name(function, names).is_some_and(is_one)
}

/// The function that this one is a part of, where Swift's compiler has cut it up where it may be suspended. The parts lie behind
/// their beginning, and are called as it is, with `TQ0_` or `TY1_` at the end.
pub(super) fn whole(function: FunctionId, names: &Catalog) -> FunctionId {
    /// How many parts there may be.
    const PARTS: u32 = 512;
    let Some(part) = swift_name(function, names).and_then(|name| name.strip_suffix('_')) else { return function };
    let part = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let Some(name) = part.strip_suffix("TQ").or_else(|| part.strip_suffix("TY")) else { return function };
    let before = (1..=PARTS).map_while(|back| function.index().checked_sub(back));
    let mut before = before.map(|index| FunctionId::new(function.module(), index));
    before.find(|before| names.symbol(*before) == Some(name)).unwrap_or(function)
}

/// The mangled name of a function that Swift's compiler has made. Of several that are alike, all but one have a number behind it.
fn swift_name(function: FunctionId, names: &Catalog) -> Option<&str> {
    names.symbol(function)?.split('.').next().filter(|name| name.starts_with("$s"))
}
