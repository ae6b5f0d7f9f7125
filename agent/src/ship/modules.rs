//! Modules, their functions, and what could not be captured, cut to size.

use codec::{
    ModuleId,
    heph::{Encode, List},
    profile::{
        FunctionName, FunctionTableHasher, Functions, Limit, Limits, Module, ProfileOption, SourceLine, Sources,
    },
};

use super::{
    HEAD_BYTES, Shipper,
    text::{cut, shorten},
};

/// The longest name of a function that is told, and less where datagrams are small. The collector cuts there too.
const MOST_NAME_BYTES: usize = 4 << 10;

/// The longest path, reason and detail.
const MOST_PATH_BYTES: usize = 900;
const MOST_REASON_BYTES: usize = 64;
const MOST_DETAIL_BYTES: usize = 512;
const MOST_BUILD_ID_BYTES: usize = 64;

/// What stands beside the name of a function.
const FUNCTION_BYTES: usize = 10;

impl Shipper {
    /// Tells of a module and its functions, by index. To be told again, with all of its functions, when it was unloaded:
    /// what is the same as before is not sent again.
    ///
    /// A name that does not fit a datagram, or has more than 4 KiB, is cut and ends in `…`. How many functions there are
    /// and the table's hash, that of the names as they are told, are filled in here.
    pub fn module(&mut self, module: &Module<'_>, functions: &[FunctionName<'_>]) {
        let datagram_bytes = self.datagram_bytes();
        // The mark at the end of a name that was cut has three bytes of its own.
        let most = MOST_NAME_BYTES.min(datagram_bytes.saturating_sub(HEAD_BYTES + FUNCTION_BYTES));
        let short: Vec<_> = functions.iter().map(|function| shorten(function.name, most)).collect();
        let named = functions.iter().zip(&short).map(|(function, name)| FunctionName { name, ..*function });
        let functions: Vec<_> = named.collect();
        let mut hasher = FunctionTableHasher::new();
        functions.iter().for_each(|function| hasher.add(function.offset, function.name));
        let module = Module {
            function_count: functions.len() as u32,
            table_hash: hasher.finish(),
            build_id: module.build_id.get(..MOST_BUILD_ID_BYTES).unwrap_or(module.build_id),
            path: cut(module.path, MOST_PATH_BYTES),
            ..*module
        };
        self.option(module.into());
        let mut first_index = 0;
        for part in List::parts(&functions, datagram_bytes.saturating_sub(HEAD_BYTES)) {
            self.option(Functions { module: module.id, first_index, functions: part.into() }.into());
            first_index += part.len() as u32;
        }
    }

    /// Tells where functions of a module are in one of its source files.
    pub fn sources(&mut self, module: ModuleId, file: &str, lines: &[SourceLine]) {
        let file = cut(file, MOST_PATH_BYTES.min(self.datagram_bytes() / 2));
        for part in List::parts(lines, self.datagram_bytes().saturating_sub(HEAD_BYTES + file.len())) {
            self.option(Sources { module, file, lines: part.into() }.into());
        }
    }

    /// Tells what could not be captured. A limit replaces an earlier one with the same module, reason and detail.
    pub fn limits(&mut self, limits: &[Limit<'_>]) {
        let short = limits.iter().map(|limit| Limit {
            reason: cut(limit.reason, MOST_REASON_BYTES),
            detail: cut(limit.detail, MOST_DETAIL_BYTES),
            ..*limit
        });
        let limits: Vec<_> = short.collect();
        for part in List::parts(&limits, self.datagram_bytes().saturating_sub(HEAD_BYTES)) {
            let option = ProfileOption::from(Limits { limits: part.into() });
            debug_assert!(option.encoded_len().is_ok(), "every limit fits");
            self.option(option);
        }
    }
}
