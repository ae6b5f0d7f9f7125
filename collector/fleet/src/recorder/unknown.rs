//! Sessions of which the watch does not tell.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use codec::SessionId;
use tokio::{sync::mpsc, time::sleep};
use tracing::warn;

use super::{Intake, Ready, Shared};
use crate::Record;

/// Looks again and again for sessions that are in the stream, and of whose records the watch has not told. It may follow a server
/// that lags behind: `tell` has what is written then. Where there is no record, somebody has removed it: who holds a session writes
/// it again, and has time enough to come first; then who has its files, and at last anybody.
pub(super) async fn look_for_unknown<I: Intake>(
    shared: Arc<Shared<I>>,
    tell: mpsc::UnboundedSender<(SessionId, Record, u64)>,
) {
    const OF_FILES: u32 = 4;
    let mut unknown: HashMap<SessionId, u32> = HashMap::new();
    loop {
        sleep(shared.lease.0).await;
        let Ok(mut found) = shared.link.sessions().await else { continue };
        found.retain(|id| !shared.known().contains(id));
        let all = found.len();
        found.retain(|id| !shared.sessions().contains_key(id));
        if found.len() < all {
            shared.lapses.fetch_add(1, Relaxed);
        }
        unknown = found.into_iter().map(|id| (id, unknown.get(&id).map_or(1, |times| times + 1))).collect();
        for (id, times) in &unknown {
            match Record::find(&shared.link.records, *id).await {
                Ok(Some((record, revision))) => _ = tell.send((*id, record, revision)),
                Ok(None) if *times >= OF_FILES => restore(&shared, *id, *times > OF_FILES).await,
                Ok(None) => {}
                // Nor would it tell of the others.
                Err(_) => break,
            }
        }
    }
}

/// Writes a record for a session that has none, if its files are here or it is for anybody.
async fn restore<I: Intake>(shared: &Shared<I>, id: SessionId, is_for_anybody: bool) {
    let anybody = Record::new("an edge that is not known any more");
    let record = match shared.intake.prepare(id) {
        // What is in the files may have left the stream.
        Ready::Here => Record { storage: Some(shared.storage.clone()), is_cut: true, ..anybody },
        Ready::Nowhere if is_for_anybody => anybody,
        Ready::Nowhere | Ready::NotYet => return,
    };
    if let Ok(Some(_)) = record.create(&shared.link.records, id).await {
        warn!("session {id} is in the stream, and its record was removed: it is recorded all the same");
    }
}
