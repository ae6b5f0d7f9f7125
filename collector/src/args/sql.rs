//! Arguments of `collector sql`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{memory, place};
use crate::quantity::Size;

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// The query, or - to read it from standard input
    #[arg(value_name = "QUERY", required_unless_present = "file")]
    pub(crate) query: Option<String>,
    /// A directory of sessions, or one session; also in a bucket: s3://BUCKET/PREFIX [default: ./traces]
    #[arg(value_name = "WHERE", value_parser = place())]
    place: Option<PathBuf>,
    /// Read the query from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: SqlFormat,
    /// Write the answer to this file, which gets its name once all of it is written
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Memory for sorting, joining and grouping; data beyond it goes to temporary files
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory)]
    pub(crate) memory: Size,
}

impl SqlArgs {
    /// What is asked, where it is on the command line, and of what. With --file the first word is the place.
    pub(crate) fn query_and_place(&self) -> Result<(Option<&str>, PathBuf), String> {
        let default = || PathBuf::from("./traces");
        match (&self.file, &self.query, &self.place) {
            (None, query, place) => Ok((query.as_deref(), place.clone().unwrap_or_else(default))),
            (Some(_), place, None) => Ok((None, place.as_deref().map_or_else(|| Ok(default()), storage::place)?)),
            (Some(_), _, Some(_)) => Err("--file has the query: QUERY does not go with it".into()),
        }
    }
}

/// An output format of `sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SqlFormat {
    /// A table for people
    Table,
    /// Comma-separated values
    Csv,
    /// One JSON object a line
    Json,
    /// A Parquet file
    Parquet,
}
