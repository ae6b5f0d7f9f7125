//! Whether the table of spans is the one that was written.

use std::{io, path::Path};

use codec::atf::{Manifest, TableEntry};
use storage::File;

use super::{
    super::{SpansWhen, files::lock_dir, spans::SPANS},
    Verified, checksum,
};
use crate::parquet::table_rows;

/// Checks the table of spans against what the manifest says of it.
pub(super) fn verify_table(found: &mut Verified, manifest: &Manifest) -> io::Result<()> {
    let path = found.dir.join(SPANS);
    let mut file = open_if_there(&path)?;
    if file.is_none() && manifest.table.is_some() && !storage::is_remote(&path) {
        // The manifest lists it before it has its name: whoever is between the two holds the lock.
        let _locked = lock_dir(&found.dir)?;
        file = open_if_there(&path)?;
    }
    let is_after = manifest.spans.as_deref() == Some(SpansWhen::After.name()) && manifest.end.is_some();
    let (file, problem) = match (&manifest.table, file) {
        (Some(table), None) => {
            let rows = table.rows;
            (None, Some(format!("it is not there, and should have {rows} spans: a collector makes it again")))
        }
        (Some(table), Some(file)) => (Some(file), changed(&path, table)?),
        (None, Some(_)) if manifest.spans.as_deref() == Some(SpansWhen::Live.name()) => {
            (None, Some("the manifest does not know of it".into()))
        }
        (None, Some(file)) => {
            found.unchecked.push(format!("whether {SPANS} was changed: the manifest does not know of it"));
            (Some(file), None)
        }
        (None, None) => {
            if is_after {
                found.unchecked.push(format!("{SPANS}: it is not made yet"));
            }
            return Ok(());
        }
    };
    let problem = problem.or_else(|| match table_rows(file?) {
        Ok(rows) => {
            found.spans = rows;
            let expected = manifest.table.as_ref().map(|table| table.rows).filter(|expected| *expected != rows);
            expected.map(|expected| format!("it has {rows} spans, by the manifest {expected}"))
        }
        Err(error) => Some(error.to_string()),
    });
    if let Some(problem) = problem {
        found.problems.push(format!("{SPANS}: {problem}"));
    }
    Ok(())
}

fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match storage::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

/// What is wrong with the bytes of a file, if anything is.
fn changed(path: &Path, table: &TableEntry) -> io::Result<Option<String>> {
    let (bytes, checksum) = checksum(storage::open(path)?.reader())?;
    if bytes != table.bytes {
        return Ok(Some(format!("it has {bytes} bytes, by the manifest {}", table.bytes)));
    }
    let (found, expected) = (checksum.to_string(), &table.checksum);
    Ok((found != *expected).then(|| format!("it was changed: its checksum is {found}, by the manifest {expected}")))
}
