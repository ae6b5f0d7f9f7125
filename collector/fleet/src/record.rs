//! What is known of a session beside its messages.

use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use bytes::Bytes;
use codec::SessionId;
use serde::{Deserialize, Serialize};

use crate::{FleetError, link::place};

/// Who records a session. It is changed only from the revision that was read, so that of two who want to only one can.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What it needs.
    pub state: State,
    /// Where the session comes from, for people.
    pub from: String,
    /// The recorder that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The storage where its files are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// All messages up to this number of the stream are in these files.
    #[serde(default)]
    pub kept: u64,
    /// The id of the message that follows, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether the stream may have lost some of them.
    #[serde(default)]
    pub is_cut: bool,
}

/// What a session needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A recorder.
    Open,
    /// Nothing, until its agent is heard of again.
    Silent,
    /// Nothing: it has ended, and its files are complete.
    Over,
}

/// What the keys of sessions and of recorders start with.
const SESSIONS: &str = "s.";

/// The key of a session's record.
pub(crate) fn key(id: SessionId) -> String {
    format!("{SESSIONS}{}", place(id))
}

/// The session that a key is of.
pub(crate) fn session_of(key: &str) -> Option<SessionId> {
    key.strip_prefix(SESSIONS)?.split_once('.')?.1.parse().ok()
}

impl Record {
    /// A session that somebody has heard of.
    pub(crate) fn new(from: &str) -> Self {
        Self { state: State::Open, from: from.into(), owner: None, storage: None, kept: 0, next: None, is_cut: false }
    }

    /// As it is in the bucket.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    fn bytes(&self) -> Bytes {
        // Strings and numbers always can be written.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// The record of a session, with its revision.
    pub(crate) async fn find(records: &Store, id: SessionId) -> Result<Option<(Self, u64)>, FleetError> {
        let entry = records.entry(key(id)).await;
        let entry = entry.map_err(|error| FleetError::of("cannot read the record of a session", &error))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        Ok(entry.and_then(|entry| Some((Self::read(&entry.value)?, entry.revision))))
    }

    /// Writes it over the revision that was read. Returns the new revision, or none where another was faster.
    pub(crate) async fn replace(
        &self,
        records: &Store,
        id: SessionId,
        revision: u64,
    ) -> Result<Option<u64>, FleetError> {
        match records.update(key(id), self.bytes(), revision).await {
            Ok(revision) => Ok(Some(revision)),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
            Err(error) => Err(FleetError::of("cannot write the record of a session", &error)),
        }
    }

    /// Writes it where there is none. Returns its revision, or none where there is one.
    pub(crate) async fn create(&self, records: &Store, id: SessionId) -> Result<Option<u64>, FleetError> {
        match records.create(key(id), self.bytes()).await {
            Ok(revision) => Ok(Some(revision)),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(FleetError::of("cannot write the record of a session", &error)),
        }
    }

    /// An edge has heard of a session: it needs a recorder, unless it is over. Returns whether it is.
    pub(crate) async fn announce(records: &Store, id: SessionId, from: &str) -> Result<bool, FleetError> {
        loop {
            match Self::find(records, id).await? {
                Some((record, _)) if record.state == State::Over => return Ok(true),
                Some((record, _)) if record.state == State::Open => return Ok(false),
                Some((record, revision)) => {
                    let record = Self { state: State::Open, ..record };
                    if record.replace(records, id, revision).await?.is_some() {
                        return Ok(false);
                    }
                }
                None => {
                    if Self::new(from).create(records, id).await?.is_some() {
                        return Ok(false);
                    }
                }
            }
        }
    }
}
