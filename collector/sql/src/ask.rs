//! A question, and how it is answered.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use datafusion::{
    common::DataFusionError,
    execution::{memory_pool::FairSpillPool, runtime_env::RuntimeEnvBuilder},
    physical_plan::SendableRecordBatchStream,
    prelude::{SQLOptions, SessionConfig, SessionContext},
};
use futures_util::StreamExt;
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use crate::{
    archive::Archive,
    form::Form,
    listing::{Kind, Listing},
    notes::Notes,
    spans::Spans,
};

/// How deep queries may be nested goes with this.
const STACK_BYTES: usize = 16 << 20;

/// What is asked, and of which sessions.
#[derive(Debug, Clone)]
pub struct Question {
    /// One statement of SQL that only reads.
    pub query: String,
    /// A session directory, or a directory of sessions, also in a bucket.
    pub place: PathBuf,
    /// How much memory sorts, joins and groups may take. What does not fit goes to temporary files.
    pub memory: u64,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// There are no sessions, or the answer cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The question makes no sense, or cannot be answered.
    #[error("{0}")]
    Query(String),
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl From<DataFusionError> for AskError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::IoError(error) => Self::Io(error),
            error => Self::Query(clear(&error.strip_backtrace())),
        }
    }
}

/// An error for people: without what only those understand who made it, and not too long.
fn clear(error: &str) -> String {
    const MOST: usize = 600;
    let mut text = error.trim();
    if ["DDL not supported", "DML not supported", "Statement not supported"].iter().any(|head| text.contains(head)) {
        return format!("a query can only read: {}", text.rsplit(": ").next().unwrap_or(text));
    }
    if text.contains("only supports a single SQL statement") {
        return "expected one statement".into();
    }
    for head in ["Error during planning: ", "Schema error: ", "SQL error: ", "External error: ", "Execution error: "] {
        text = text.strip_prefix(head).unwrap_or(text);
    }
    let inner = text.strip_prefix("ParserError(\"").and_then(|text| text.strip_suffix("\")"));
    let text = inner.unwrap_or(text);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = answers::printable(&lines.join(" "));
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Answers a question, and tells what the answer lacks. Whoever reads it may stop early.
pub fn ask(question: &Question, form: Form, out: &mut (dyn Write + Send)) -> Result<Notes, AskError> {
    let mut out = Watched { out, is_closed: false };
    let archive = Archive::open(&question.place).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot look into {}: {error}", question.place.display()))
    })?;
    let archive = Arc::new(archive);
    let runtime = Builder::new_multi_thread().enable_all().thread_stack_size(STACK_BYTES).build()?;
    let answered = runtime.block_on(async {
        tokio::select! {
            answered = answer(question, &archive, form, &mut out) => answered,
            _ = tokio::signal::ctrl_c() => Err(AskError::Interrupted),
        }
    });
    end(runtime);
    if !out.is_closed {
        answered?;
    }
    let notes = Arc::into_inner(archive).map(|archive| archive.notes);
    notes.ok_or_else(|| AskError::Query("a part of the query goes on".into()))
}

/// Waits for what was begun, which has to let go of its files, but not for long.
fn end(runtime: Runtime) {
    runtime.shutdown_timeout(Duration::from_secs(2));
}

async fn answer(
    question: &Question,
    archive: &Arc<Archive>,
    form: Form,
    out: &mut (dyn Write + Send),
) -> Result<(), AskError> {
    let context = context(question.memory)?;
    if let Some((store, _)) = &archive.bucket {
        context.register_object_store(archive.url()?.as_ref(), Arc::clone(store));
    }
    context.register_table("spans", Arc::new(Spans::new(Arc::clone(archive))))?;
    for kind in Kind::ALL {
        context.register_table(kind.name(), Arc::new(Listing::new(Arc::clone(archive), kind)))?;
    }
    let reading = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let frame = context.sql_with_options(&question.query, reading).await?;
    write(frame.execute_stream().await?, form, out).await
}

fn context(memory: u64) -> Result<SessionContext, AskError> {
    let pool = FairSpillPool::new(usize::try_from(memory).unwrap_or(usize::MAX));
    let env = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?;
    // What is asked for first is what is most, and not what is not known.
    let config = SessionConfig::new()
        .with_information_schema(true)
        .set_str("datafusion.sql_parser.default_null_ordering", "nulls_last");
    Ok(SessionContext::new_with_config_rt(config, env))
}

async fn write(mut rows: SendableRecordBatchStream, form: Form, out: &mut (dyn Write + Send)) -> Result<(), AskError> {
    let mut writer = form.begin(&rows.schema(), out)?;
    while let Some(rows) = rows.next().await {
        writer.rows(&rows?)?;
    }
    writer.finish()?;
    Ok(out.flush()?)
}

/// Notices when nobody reads any more, whatever becomes of the error.
struct Watched<'a> {
    out: &'a mut (dyn Write + Send),
    is_closed: bool,
}

impl Watched<'_> {
    fn watch<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_closed |= matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.watch(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.watch(flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_line_and_not_too_long() {
        assert_eq!(clear("Error during planning: table 'x'\n  not found\n"), "table 'x' not found");
        assert_eq!(clear("SQL error: ParserError(\"Expected: a word\")"), "Expected: a word");
        assert_eq!(clear("Error during planning: DDL not supported: X"), "a query can only read: X");
        let long = clear(&format!("SQL error: {}", "ä".repeat(10_000)));
        assert_eq!((long.chars().count(), long.chars().last()), (601, Some('…')));
    }
}
