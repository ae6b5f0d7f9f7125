//! Which sessions a condition leaves, by what is known of them before their tables are opened.

use std::{collections::HashSet, sync::Arc};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringViewArray},
        datatypes::SchemaRef,
    },
    catalog::Session as Engine,
    common::{Column, DFSchema, Result, ScalarValue, pruning::PruningStatistics},
    logical_expr::{Expr, utils::conjunction},
    physical_optimizer::pruning::PruningPredicateBuilder,
};

use crate::{archive::Session, rows};

/// Columns of the table of spans that are the same in all rows of a session.
pub(crate) const SESSION: &str = "session";
pub(crate) const PROGRAM: &str = "program";
pub(crate) const HOST: &str = "host";
/// When a span began, by the clock that all sessions share.
pub(crate) const AT: &str = "at";

/// The sessions that may have rows for which all conditions hold. `schema` is that of the table.
pub(crate) fn choose(
    engine: &dyn Engine,
    schema: &SchemaRef,
    filters: &[Expr],
    sessions: &[Arc<Session>],
) -> Result<Vec<Arc<Session>>> {
    // Names come first: the manifests of other sessions need not be opened.
    let by_name = only(filters, &[SESSION]);
    let sessions = matching(engine, schema, by_name, sessions.to_vec(), &[SESSION])?;
    let by_head = only(filters, &[SESSION, PROGRAM, HOST]);
    let has = |name: &str| schema.column_with_name(name).is_some();
    if filters.is_empty() || !has(PROGRAM) || !has(AT) {
        return Ok(sessions);
    }
    let sessions = matching(engine, schema, by_head, sessions, &[SESSION, PROGRAM, HOST])?;
    let Some(filter) = conjunction(filters.iter().cloned()) else { return Ok(sessions) };
    let described = DFSchema::try_from(Arc::clone(schema))?;
    let filter = engine.create_physical_expr(filter, &described)?;
    let pruning = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema)).build(filter);
    let Some(pruning) = pruning else { return Ok(sessions) };
    let kept = pruning.prune(&Known(&sessions))?;
    Ok(sessions.into_iter().zip(kept).filter_map(|(session, kept)| kept.then_some(session)).collect())
}

/// The conditions on nothing but these columns.
fn only(filters: &[Expr], columns: &[&str]) -> Vec<Expr> {
    let is_only = |filter: &&Expr| {
        let used = filter.column_refs();
        !used.is_empty() && used.iter().all(|column| columns.contains(&column.name.as_str()))
    };
    filters.iter().filter(is_only).cloned().collect()
}

/// The sessions for which conditions on these columns hold.
fn matching(
    engine: &dyn Engine,
    schema: &SchemaRef,
    filters: Vec<Expr>,
    sessions: Vec<Arc<Session>>,
    columns: &[&str],
) -> Result<Vec<Arc<Session>>> {
    let Some(filter) = conjunction(filters) else { return Ok(sessions) };
    let places: Vec<_> = columns.iter().filter_map(|name| Some(schema.column_with_name(name)?.0)).collect();
    let schema = Arc::new(schema.project(&places)?);
    let filter = engine.create_physical_expr(filter, &DFSchema::try_from(Arc::clone(&schema))?)?;
    let values = schema.fields().iter().map(|field| column(field.name(), &sessions)).collect();
    let values = RecordBatch::try_new(schema, values)?;
    let holds = filter.evaluate(&values)?.into_array(sessions.len())?;
    let holds: &BooleanArray = holds.as_boolean();
    let is_kept = |place: usize| holds.is_valid(place) && holds.value(place);
    Ok(sessions.into_iter().enumerate().filter_map(|(place, session)| is_kept(place).then_some(session)).collect())
}

fn column(name: &str, sessions: &[Arc<Session>]) -> ArrayRef {
    let texts: StringViewArray = sessions.iter().map(|session| text(name, session)).collect();
    Arc::new(texts)
}

/// What a column says in all rows of a session.
pub(crate) fn text<'a>(column: &str, session: &'a Session) -> Option<&'a str> {
    let process = || session.head().process.as_ref();
    match column {
        SESSION => Some(session.name.as_str()),
        PROGRAM => process().map(|process| process.executable.as_str()),
        HOST => process().map(|process| process.host.as_str()),
        _ => None,
    }
}

/// What is known of the rows of each session.
struct Known<'a>(&'a [Arc<Session>]);

impl Known<'_> {
    fn times(&self, side: impl Fn((i64, i64)) -> i64) -> Vec<Option<i64>> {
        self.0.iter().map(|session| session.bounds_ns().map(&side)).collect()
    }

    fn side(&self, column: &Column, side: impl Fn((i64, i64)) -> i64, is_last: bool) -> Option<ArrayRef> {
        match column.name.as_str() {
            name @ (SESSION | PROGRAM | HOST) => Some(self::column(name, self.0)),
            "start_ns" => Some(Arc::new(Int64Array::from(self.times(side)))),
            // None ends before it begins, and one that goes on after the last event has no end.
            "end_ns" if !is_last => Some(Arc::new(Int64Array::from(self.times(side)))),
            AT => {
                let zeros = self.0.iter().map(|session| session.zero_unix_ns());
                let times = zeros.zip(self.times(side)).map(|(zero, time)| zero?.checked_add(time?));
                Some(rows::times(times))
            }
            _ => None,
        }
    }
}

impl PruningStatistics for Known<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.side(column, |(first, _)| first, false)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.side(column, |(_, last)| last, true)
    }

    fn num_containers(&self) -> usize {
        self.0.len()
    }

    fn null_counts(&self, _: &Column) -> Option<ArrayRef> {
        None
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        None
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
