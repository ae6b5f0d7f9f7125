//! A manifest without its functions, which make up most of it.

use super::{Manifest, ManifestError};

/// How the list of functions begins and ends, in a manifest as it is written: with a line for each.
const BEGIN: &[u8] = b"  \"symbols\": [\n";
const END: &[u8] = b"  ]";

impl Manifest {
    /// Reads a manifest without its functions, for those who list many sessions. Where it is not known to be as it was written,
    /// all of it is read.
    pub fn outline(json: &[u8]) -> Result<Self, ManifestError> {
        match (Self::check_bytes(json), without_functions(json)) {
            (Ok(true), Some(outline)) => Self::parse(&outline),
            _ => Self::parse(json),
        }
    }
}

/// No string has a line break in it, so lines tell where the list is.
fn without_functions(json: &[u8]) -> Option<Vec<u8>> {
    let mut lines = json.split_inclusive(|byte| *byte == b'\n');
    let length = |lines: &mut dyn Iterator<Item = &[u8]>| lines.map(<[u8]>::len).sum::<usize>();
    let before = length(&mut lines.by_ref().take_while(|line| *line != BEGIN)).checked_add(BEGIN.len())?;
    let list = length(&mut lines.take_while(|line| !line.starts_with(END)));
    Some([json.get(..before)?, json.get(before.checked_add(list)?..)?].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atf::{EndEntry, FunctionEntry, TableEntry};

    #[test]
    fn all_but_the_functions_is_read() {
        let functions =
            |count| (0..count).map(|id| FunctionEntry { id, name: "  ]\n".into(), ..FunctionEntry::default() });
        let end = Some(EndEntry { how: "exited".into(), ..EndEntry::default() });
        let table = Some(TableEntry { rows: 7, ..TableEntry::default() });
        for count in [0, 1, 9] {
            let whole = Manifest {
                functions: functions(count).collect(),
                end: end.clone(),
                table: table.clone(),
                ..Manifest::default()
            };
            let json = whole.to_json().expect("valid");
            let outline = Manifest { functions: Vec::new(), ..whole.clone() };
            assert_eq!(Manifest::outline(&json).expect("it is one"), outline, "{count} functions");
            // Whoever wrote this may write lists in another way.
            let other = String::from_utf8(json).expect("text").replace("\"checksum\": \"", "\"was\": \"");
            assert_eq!(Manifest::outline(other.as_bytes()).expect("it is one").functions, whole.functions);
        }
        assert!(Manifest::outline(b"{").is_err());
    }
}
