//! The tail of a manifest: what is said of a session when it is finished, behind the long lists.

use serde::Deserialize;

use super::{EndEntry, Manifest, ManifestError, TableEntry, last_member};

/// What a manifest says behind its lists of modules and symbols, which are passed over.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct ManifestTail {
    /// How the session ended.
    pub end: Option<EndEntry>,
    /// When `spans.parquet` is made.
    pub spans: Option<String>,
    /// The table of spans.
    pub table: Option<TableEntry>,
}

impl ManifestTail {
    /// Reads it. Of the lists it is only known that they are JSON.
    pub fn read(json: &[u8]) -> Result<Self, ManifestError> {
        Ok(serde_json::from_slice(json)?)
    }

    /// The manifest that this is the tail of, with a table of spans.
    pub fn with_table(&self, json: &[u8], table: TableEntry) -> Result<Vec<u8>, ManifestError> {
        let end = json.len().saturating_sub(last_member(b"").len());
        // Where nothing has to be replaced, the lists need not be read and written anew.
        match json.get(..end).filter(|_| self.table.is_none() && matches!(Manifest::check_bytes(json), Ok(true))) {
            Some(before) => {
                let mut json = [before, b",\n  \"table\": ", &serde_json::to_vec(&table)?].concat();
                let last = last_member(&json);
                json.extend_from_slice(last.as_bytes());
                Ok(json)
            }
            None => Manifest { table: Some(table), ..Manifest::parse(json)? }.to_json(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atf::FunctionEntry;

    #[test]
    fn a_table_is_added_without_the_lists() {
        let functions = vec![FunctionEntry { name: "\"table\": {".into(), ..FunctionEntry::default() }];
        let end = Some(EndEntry { how: "exited".into(), ..EndEntry::default() });
        let manifest = Manifest { functions, end, spans: Some("after".into()), ..Manifest::default() };
        let json = manifest.to_json().expect("valid");
        let tail = ManifestTail::read(&json).expect("it is one");
        assert_eq!(tail, ManifestTail { end: manifest.end.clone(), spans: manifest.spans.clone(), table: None });
        for rows in [1, 2] {
            let table = TableEntry { rows, checksum: "0".into(), ..TableEntry::default() };
            let whole = Manifest { table: Some(table.clone()), ..manifest.clone() }.to_json().expect("valid");
            assert_eq!(tail.with_table(&json, table.clone()).expect("added"), whole);
            // Nothing of it can be relied on here, but that it is JSON.
            let changed: Vec<_> = json.iter().map(|byte| if *byte == b'e' { b'f' } else { *byte }).collect();
            assert!(tail.with_table(&changed, table.clone()).is_err(), "its members are others");
            let again = ManifestTail::read(&whole).expect("it is one");
            let other = TableEntry { rows: 7, ..table };
            let replaced = Manifest { table: Some(other.clone()), ..manifest.clone() }.to_json().expect("valid");
            assert_eq!(again.with_table(&whole, other).expect("replaced"), replaced);
        }
    }
}
