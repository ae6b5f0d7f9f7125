//! The tables that manifests make up: sessions, threads, modules, functions, gaps.

mod kinds;

use std::{fmt, sync::Arc};

use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    catalog::{Session as Engine, TableProvider},
    common::Result,
    datasource::TableType,
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{Expr, TableProviderFilterPushDown},
    physical_plan::{
        ExecutionPlan,
        stream::RecordBatchStreamAdapter,
        streaming::{PartitionStream, StreamingTableExec},
    },
};
use futures_util::stream;

use crate::{
    archive::{Archive, Session},
    choice,
};

pub(crate) use kinds::Kind;

/// A table, of which each session has some rows.
pub(crate) struct Listing {
    archive: Arc<Archive>,
    kind: Kind,
    schema: SchemaRef,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Listing {
    pub(crate) fn new(archive: Arc<Archive>, kind: Kind) -> Self {
        Self { archive, kind, schema: kind.schema() }
    }
}

#[async_trait::async_trait]
impl TableProvider for Listing {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        engine: &dyn Engine,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let chosen = choice::choose(engine, &self.schema, filters, &self.archive.sessions)?;
        let share = chosen.len().div_ceil(engine.config().target_partitions()).max(1);
        let part = |sessions: &[Arc<Session>]| {
            let (archive, schema) = (Arc::clone(&self.archive), Arc::clone(&self.schema));
            Arc::new(Part { archive, kind: self.kind, schema, sessions: sessions.into() }) as Arc<dyn PartitionStream>
        };
        let mut parts: Vec<_> = chosen.chunks(share).map(part).collect();
        if parts.is_empty() {
            parts.push(part(&[]));
        }
        let schema = Arc::clone(&self.schema);
        Ok(Arc::new(StreamingTableExec::try_new(schema, parts, projection, [], false, limit)?))
    }
}

/// The rows of some sessions.
struct Part {
    archive: Arc<Archive>,
    kind: Kind,
    schema: SchemaRef,
    sessions: Arc<[Arc<Session>]>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} sessions", self.kind, self.sessions.len())
    }
}

impl Part {
    /// The rows of one session, if it can be read.
    fn rows(&self, session: &Session) -> Option<Result<RecordBatch>> {
        let columns = match (session.trace(self.kind == Kind::Functions), self.kind) {
            (Err(what), Kind::Sessions) => {
                self.archive.notes.damaged(&session.name, what);
                kinds::unreadable(session)
            }
            (Err(what), _) => {
                self.archive.notes.damaged(&session.name, what);
                return None;
            }
            (Ok(trace), kind) => kind.columns(session, &trace),
        };
        Some(RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(Into::into))
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (archive, schema) = (Arc::clone(&self.archive), Arc::clone(&self.schema));
        let part = Self { archive, kind: self.kind, schema: Arc::clone(&schema), sessions: Arc::clone(&self.sessions) };
        let count = part.sessions.len();
        let rows = (0..count).filter_map(move |at| part.rows(part.sessions.get(at)?));
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(rows)))
    }
}
