//! A file of a table, wherever it is, as its reader wants it.

use std::{io, sync::Arc};

use bytes::Bytes;
use parquet::{
    errors::Result,
    file::reader::{ChunkReader, Length},
};
use storage::{File, Reader};

/// A file that is read in chunks.
pub(super) struct Chunks {
    file: Arc<File>,
    len: u64,
}

impl Chunks {
    pub(super) fn of(file: File) -> io::Result<Self> {
        Ok(Self { len: file.len()?, file: Arc::new(file) })
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Chunks {
    type T = Reader<Arc<File>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(Reader::new(Arc::clone(&self.file), start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}
