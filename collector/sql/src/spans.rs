//! The table `spans`: a row for each span of every session, from the `spans.parquet` of each.

use std::{fmt, sync::Arc};

use datafusion::{
    arrow::datatypes::{DataType, Field, Schema, SchemaRef},
    catalog::{Session as Engine, TableProvider},
    common::{DFSchema, Result, ScalarValue, Statistics, stats::Precision},
    datasource::{
        TableType,
        listing::PartitionedFile,
        physical_plan::{
            FileGroup, FileScanConfigBuilder, ParquetSource,
            parquet::{CachedParquetFileReaderFactory, metadata::DFParquetMetadata},
        },
        source::DataSourceExec,
        table_schema::TableSchema,
    },
    logical_expr::{Expr, Operator, TableProviderFilterPushDown, utils::conjunction},
    physical_expr::{
        PhysicalExpr,
        expressions::{BinaryExpr, CastExpr, Column},
    },
    physical_plan::{ExecutionPlan, empty::EmptyExec, projection::ProjectionExec},
};
use futures_util::{StreamExt, stream};
use sinks::SPAN_COLUMNS;

use crate::{
    archive::{Archive, Session, Table},
    choice::{self, AT, HOST, PROGRAM, SESSION},
    rows::{field, time_type},
};

/// The column of a file that says when the zero of its session was. It is not shown: [`AT`] is made of it.
const ZERO: &str = "zero_unix_ns";
/// How many files are looked at at once before they are read.
const AT_ONCE: usize = 16;

/// The table.
pub(crate) struct Spans {
    archive: Arc<Archive>,
    /// As it is shown.
    schema: SchemaRef,
    /// As files have it, with the columns that are the same in all rows of a file behind.
    stored: TableSchema,
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spans")
    }
}

impl Spans {
    pub(crate) fn new(archive: Arc<Archive>) -> Self {
        let stored: Vec<_> =
            SPAN_COLUMNS.iter().map(|column| field(column.name, data_type(column.type_name()))).collect();
        let added = [SESSION, PROGRAM, HOST].map(|name| field(name, DataType::Utf8View));
        let shown = added.iter().cloned().chain([field(AT, time_type())]).chain(stored.iter().cloned());
        let schema = Arc::new(Schema::new(shown.collect::<Vec<_>>()));
        let same: Vec<_> = added.into_iter().chain([field(ZERO, DataType::Int64)]).map(Arc::new).collect();
        Self {
            archive,
            schema,
            stored: TableSchema::builder(Arc::new(Schema::new(stored))).with_table_partition_cols(same).build(),
        }
    }

    /// The tables of these sessions. What cannot be opened is noted.
    async fn files(&self, engine: &dyn Engine, sessions: &[Arc<Session>]) -> Result<Vec<PartitionedFile>> {
        let notes = &self.archive.notes;
        let mut found = Vec::new();
        for session in sessions {
            match session.table() {
                Table::There(_) if !session.head().is_whole => {
                    notes.damaged(&session.name, "manifest.json cannot be read".into());
                }
                Table::There(file) => found.push((Arc::clone(session), file)),
                Table::Missing(why) => notes.without(&session.name, why),
                Table::Wrong(what) => notes.damaged(&session.name, what),
            }
        }
        let env = engine.runtime_env();
        let store = env.object_store(self.archive.url()?)?;
        let cache = env.cache_manager.get_file_metadata_cache();
        let (store, cache, schema) = (&store, &cache, self.stored.table_schema());
        let open = |(session, file): (Arc<Session>, _)| async move {
            let name = session.name.clone();
            let metadata =
                DFParquetMetadata::new(store.as_ref(), &file).with_file_metadata_cache(Some(Arc::clone(cache)));
            let rows = metadata.fetch_metadata().await.map(|metadata| metadata.file_metadata().num_rows());
            (name, rows, partitioned(&session, file, schema))
        };
        let opened: Vec<_> = stream::iter(found.into_iter().map(open)).buffered(AT_ONCE).collect().await;
        let mut files = Vec::with_capacity(opened.len());
        for (session, rows, file) in opened {
            match rows {
                Ok(rows) => {
                    let rows = Precision::Exact(usize::try_from(rows).unwrap_or(0));
                    let known = Statistics::new_unknown(self.stored.file_schema()).with_num_rows(rows);
                    files.push(file.with_statistics(Arc::new(known)));
                }
                Err(error) => notes.damaged(&session, format!("spans.parquet: {}", error.strip_backtrace())),
            }
        }
        Ok(files)
    }

    /// What a condition says of the times in the files themselves, so that parts of them can be passed over.
    fn stored_filter(
        &self,
        engine: &dyn Engine,
        filters: &[Expr],
        sessions: &[Arc<Session>],
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let is_stored = |filter: &&Expr| filter.column_refs().iter().all(|column| column.name != AT);
        let stored = filters.iter().filter(is_stored).cloned();
        let Some(filter) = conjunction(stored.chain(filters.iter().filter_map(|filter| since_zero(filter, sessions))))
        else {
            return Ok(None);
        };
        let schema = DFSchema::try_from(Arc::clone(self.stored.table_schema()))?;
        engine.create_physical_expr(filter, &schema).map(Some)
    }
}

#[async_trait::async_trait]
impl TableProvider for Spans {
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
        let all: Vec<_> = (0..self.schema.fields().len()).collect();
        let shown = Arc::new(self.schema.project(projection.unwrap_or(&all))?);
        let sessions = choice::choose(engine, &self.schema, filters, &self.archive.sessions)?;
        let files = self.files(engine, &sessions).await?;
        for session in &sessions {
            self.archive.notes.missing(&session.name, session.head().missing);
        }
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(shown)));
        }
        let stored = self.stored.table_schema();
        let wanted = read(stored, &shown)?;
        let env = engine.runtime_env();
        let url = self.archive.url()?;
        let cache = env.cache_manager.get_file_metadata_cache();
        let readers = CachedParquetFileReaderFactory::new(env.object_store(&url)?, cache);
        let mut source = ParquetSource::new(self.stored.clone())
            .with_parquet_file_reader_factory(Arc::new(readers))
            .with_enable_page_index(false);
        if let Some(filter) = self.stored_filter(engine, filters, &sessions)? {
            source = source.with_predicate(filter);
        }
        let rows = files.iter().filter_map(|file| file.statistics.as_ref()?.num_rows.get_value().copied()).sum();
        let known = Statistics::new_unknown(stored).with_num_rows(Precision::Exact(rows));
        let config = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(FileGroup::new(files).split_files(engine.config().target_partitions()))
            .with_statistics(known)
            .with_projection_indices(Some(wanted))?
            .with_limit(limit)
            .build();
        let files = DataSourceExec::from_data_source(config);
        let columns = files.schema();
        let shown = shown.fields().iter().map(|field| Ok((shown_column(field, &columns)?, field.name().clone())));
        Ok(Arc::new(ProjectionExec::try_new(shown.collect::<Result<Vec<_>>>()?, files)?))
    }
}

/// The columns of files that these columns are made of.
fn read(stored: &SchemaRef, shown: &SchemaRef) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    for field in shown.fields() {
        match field.name().as_str() {
            AT => places.extend([stored.index_of(ZERO)?, stored.index_of("start_ns")?]),
            name => places.push(stored.index_of(name)?),
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// A column as it is shown, of those that were read.
fn shown_column(field: &Field, read: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    if field.name() != AT {
        return Ok(Arc::new(Column::new_with_schema(field.name(), read)?));
    }
    let zero = Arc::new(Column::new_with_schema(ZERO, read)?);
    let start = Arc::new(Column::new_with_schema("start_ns", read)?);
    let since_1970 = Arc::new(BinaryExpr::new(zero, Operator::Plus, start));
    Ok(Arc::new(CastExpr::new(since_1970, time_type(), None)))
}

/// A file with what all its rows have in common.
fn partitioned(session: &Session, file: datafusion::object_store::ObjectMeta, stored: &SchemaRef) -> PartitionedFile {
    let same = stored.fields().iter().rev().take(4).rev().map(|field| match field.name().as_str() {
        ZERO => ScalarValue::Int64(session.zero_unix_ns()),
        name => ScalarValue::Utf8View(choice::text(name, session).map(Into::into)),
    });
    let same = same.collect();
    PartitionedFile::new_from_meta(file).with_partition_values(same)
}

/// What a condition on the time since 1970 says of the time since the zero of any of these sessions.
fn since_zero(filter: &Expr, sessions: &[Arc<Session>]) -> Option<Expr> {
    let Expr::BinaryExpr(comparison) = filter else { return None };
    let (operator, value) = match (comparison.left.as_ref(), comparison.right.as_ref()) {
        (Expr::Column(column), Expr::Literal(value, _)) if column.name == AT => (comparison.op, value),
        (Expr::Literal(value, _), Expr::Column(column)) if column.name == AT => (comparison.op.swap()?, value),
        _ => return None,
    };
    let ScalarValue::TimestampNanosecond(Some(at), _) = value else { return None };
    // Where one is not known, nothing is.
    let zeros: Vec<i64> = sessions.iter().map(|session| session.zero_unix_ns()).collect::<Option<_>>()?;
    let start = || datafusion::prelude::col("start_ns");
    let limit = |zero: &i64| at.checked_sub(*zero);
    match operator {
        Operator::Gt | Operator::GtEq => Some(start().gt_eq(datafusion::prelude::lit(limit(zeros.iter().max()?)?))),
        Operator::Lt | Operator::LtEq => Some(start().lt_eq(datafusion::prelude::lit(limit(zeros.iter().min()?)?))),
        _ => None,
    }
}

fn data_type(name: &str) -> DataType {
    match name {
        "UINT64" => DataType::UInt64,
        "INT64" => DataType::Int64,
        "UINT32" => DataType::UInt32,
        "LIST of UINT32" => DataType::List(Arc::new(Field::new("element", DataType::UInt32, false))),
        _ => DataType::Utf8View,
    }
}
