//! The connection to NATS, with the stream and the bucket that sessions go through.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event,
    jetstream::{
        self, Context,
        context::ContextBuilder,
        kv::Store,
        stream::{self, DiscardPolicy, RetentionPolicy, Stream},
    },
};
use codec::SessionId;
use futures_util::TryStreamExt;
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

use crate::{Address, FleetError};

/// How long is waited for an answer of a server.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(3);

/// How long is waited before a server that cannot be reached is tried again, and how often that is told.
const RETRY_TIME: Duration = Duration::from_millis(500);
const RETRIES_PER_LINE: u32 = 40;

/// How long JetStream knows a message again by its id: longer than any connection is tried with it.
const DUPLICATE_TIME: Duration = Duration::from_secs(120);

/// What a message may have: one packet, at worst.
const LEAST_MESSAGE_BYTES: i32 = 1 << 20;

/// How long records of sessions are kept that nobody writes any more.
const RECORD_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// What lets us in.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A file with a JWT and its key.
    pub creds: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// A user, where the address names none.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// Certificates that servers are trusted by.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The JetStream domain, behind a leaf node.
    pub domain: Option<String>,
}

/// What a stream that is not there yet is made with.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    /// How many nodes have a copy.
    pub replicas: usize,
    /// How large it may get. It takes nothing more then, until recorders have made room.
    pub max_bytes: u64,
    /// How long a message is kept at most, recorded or not.
    pub max_age: Option<Duration>,
}

/// Whether there is a connection, and how many there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Contact {
    pub(crate) is_up: bool,
    pub(crate) count: u64,
}

/// A connection to NATS.
#[derive(Debug, Clone)]
pub struct Link {
    /// Where that is.
    pub address: Address,
    keeping: Keeping,
    pub(crate) context: Context,
    pub(crate) records: Store,
    /// How large the stream may get.
    pub(crate) most_bytes: u64,
    pub(crate) contact: watch::Receiver<Contact>,
    /// When the bucket was made, in nanoseconds since 1970.
    made: Arc<AtomicI64>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Link {
    /// Connects, and makes the stream and the bucket where they are not there. Waits for servers that cannot be reached;
    /// fails where they do not let us in.
    pub async fn connect(address: &Address, access: &Access, keeping: Keeping) -> Result<Self, FleetError> {
        let (told, contact) = watch::channel(Contact::default());
        let trouble = Arc::new(Mutex::new(None));
        let client = client(address, access, &told, &trouble).await?;
        let builder = ContextBuilder::new().timeout(ANSWER_TIME).ack_timeout(ANSWER_TIME);
        let context = match &access.domain {
            Some(domain) => {
                let mut context = jetstream::with_domain(client, domain);
                context.set_timeout(ANSWER_TIME);
                context
            }
            None => builder.build(client),
        };
        let mut tries = 0;
        let (records, most_bytes) = loop {
            match make(&context, &address.stream, keeping).await {
                Ok(made) => break made,
                Err(Making::Never(error)) => return Err(error),
                Err(Making::NotNow(error)) => {
                    if tries % RETRIES_PER_LINE == 0 {
                        warn!("{address}: {error}; trying again");
                    }
                    tries += 1;
                    sleep(RETRY_TIME).await;
                }
            }
        };
        let made = Arc::new(AtomicI64::new(made_ns(&records)));
        Ok(Self { address: address.clone(), keeping, context, records, most_bytes, contact, made, trouble })
    }

    /// Makes the stream and the bucket again, where somebody has removed them.
    pub(crate) async fn restore(&self) -> Result<(), FleetError> {
        match make(&self.context, &self.address.stream, self.keeping).await {
            Ok((records, _)) => {
                let made = made_ns(&records);
                if self.made.swap(made, Relaxed) != made {
                    warn!("{}: somebody has removed the bucket {}, and it is made anew", self.address, records.name);
                }
                Ok(())
            }
            Err(Making::Never(error) | Making::NotNow(error)) => Err(error),
        }
    }

    /// The stream, without asking for it.
    pub(crate) async fn stream(&self) -> Result<Stream<()>, FleetError> {
        let stream = self.context.get_stream_no_info(&self.address.stream).await;
        stream.map_err(|error| FleetError::of("cannot use the stream", &error))
    }

    /// How many bytes are in the stream, and how many it may have.
    pub(crate) async fn fill(&self) -> Result<(u64, u64), FleetError> {
        let stream = self.stream().await?;
        let info = stream.get_info().await.map_err(|error| FleetError::of("cannot look at the stream", &error))?;
        Ok((info.state.bytes, u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX)))
    }

    /// The sessions that have messages in the stream.
    pub(crate) async fn sessions(&self) -> Result<Vec<SessionId>, FleetError> {
        let stream = self.stream().await?;
        let failed = |error| FleetError::of("cannot look at the stream", &error);
        let found = stream.info_with_subjects(format!("{}.>", prefix(&self.address.stream))).await.map_err(failed)?;
        let subjects: Vec<(String, usize)> = found.try_collect().await.map_err(failed)?;
        Ok(subjects.iter().filter_map(|(subject, _)| subject.rsplit('.').next()?.parse().ok()).collect())
    }

    /// The subject of a session's messages. Its second last part spreads sessions evenly over 256 shards, so that they can be
    /// split among streams.
    pub(crate) fn subject(&self, id: SessionId) -> String {
        format!("{}.{}", prefix(&self.address.stream), place(id))
    }

    /// Removes the messages of a session, all or those before this one of the stream.
    pub(crate) async fn forget(&self, id: SessionId, before: Option<u64>) -> Result<(), FleetError> {
        let stream = self.stream().await?;
        let purge = stream.purge().filter(self.subject(id));
        let purged = match before {
            Some(before) => purge.sequence(before).await,
            None => purge.await,
        };
        purged.map(drop).map_err(|error| FleetError::of("cannot remove messages", &error))
    }

    /// Whether there is a connection.
    pub fn is_up(&self) -> bool {
        self.contact.borrow().is_up
    }

    /// A name that nothing else has.
    pub(crate) fn unique_name(&self) -> String {
        self.context.client().new_inbox().replace("_INBOX.", "")
    }

    /// What the client last complained of.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all subjects of a stream start with.
fn prefix(stream: &str) -> String {
    format!("spoor.{stream}")
}

/// The shard of a session, and the session.
pub(crate) fn place(id: SessionId) -> String {
    let digits = id.to_string();
    format!("{}.{digits}", digits.get(..2).unwrap_or_default())
}

async fn client(
    address: &Address,
    access: &Access,
    told: &watch::Sender<Contact>,
    trouble: &Arc<Mutex<Option<String>>>,
) -> Result<Client, FleetError> {
    let mut tries = 0;
    loop {
        let options = options(address, access, told.clone(), Arc::clone(trouble))?;
        match options.connect(address.servers()).await {
            Ok(client) => {
                if tries > 0 {
                    info!("{address}: connected");
                }
                return Ok(client);
            }
            Err(error) => {
                let is_final = matches!(
                    error.kind(),
                    ConnectErrorKind::Authentication
                        | ConnectErrorKind::AuthorizationViolation
                        | ConnectErrorKind::ServerParse
                        | ConnectErrorKind::Tls
                );
                let error = FleetError::of("cannot connect", &error);
                if is_final {
                    return Err(error);
                }
                if tries % RETRIES_PER_LINE == 0 {
                    warn!("{address}: {error}; trying again");
                }
                tries += 1;
                sleep(RETRY_TIME).await;
            }
        }
    }
}

fn options(
    address: &Address,
    access: &Access,
    told: watch::Sender<Contact>,
    trouble: Arc<Mutex<Option<String>>>,
) -> Result<ConnectOptions, FleetError> {
    let read = |path: &PathBuf| {
        fs::read_to_string(path).map_err(|error| FleetError::new(format!("cannot read {}: {error}", path.display())))
    };
    let mut options = ConnectOptions::new()
        .name("spoor collector")
        .connection_timeout(ANSWER_TIME)
        .request_timeout(Some(ANSWER_TIME))
        .ping_interval(Duration::from_secs(5))
        .retain_servers_order()
        .reconnect_delay_callback(|tries| Duration::from_millis(50 * tries.min(20) as u64))
        .event_callback(move |event| {
            match &event {
                Event::Connected => told.send_modify(|contact| {
                    *contact = Contact { is_up: true, count: contact.count + 1 };
                }),
                Event::Disconnected | Event::Closed => told.send_modify(|contact| contact.is_up = false),
                _ => {}
            }
            let said = match &event {
                Event::ServerError(error) => Some(error.to_string()),
                Event::ClientError(error) => Some(error.to_string()),
                Event::Connected => None,
                Event::Disconnected => Some("no server can be reached".into()),
                _ => return std::future::ready(()),
            };
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = said;
            std::future::ready(())
        });
    match (address.secret(), &access.user) {
        (Some((user, Some(password))), _) => options = options.user_and_password(user.into(), password.into()),
        (Some((token, None)), _) => options = options.token(token.into()),
        (None, Some(user)) => {
            options = options.user_and_password(user.clone(), access.password.clone().unwrap_or_default());
        }
        (None, None) => {}
    }
    if let Some(file) = &access.creds {
        let creds = options.credentials(&read(file)?);
        options =
            creds.map_err(|error| FleetError::new(format!("{} holds no credentials: {error}", file.display())))?;
    }
    if let Some(file) = &access.nkey {
        options = options.nkey(read(file)?.trim().into());
    }
    if let Some(ca) = &access.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &access.identity {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options.require_tls(address.is_tls || access.ca.is_some() || access.identity.is_some()))
}

/// Why something cannot be made.
enum Making {
    Never(FleetError),
    /// A cluster may have no leader yet.
    NotNow(FleetError),
}

/// Makes the stream and the bucket where they are not there. Returns the bucket, and how large the stream may get.
async fn make(context: &Context, name: &str, keeping: Keeping) -> Result<(Store, u64), Making> {
    let subject = format!("{}.>", prefix(name));
    let config = stream::Config {
        name: name.into(),
        subjects: vec![subject.clone()],
        description: Some("sessions of Spoor on their way to recorders".into()),
        num_replicas: keeping.replicas,
        max_bytes: i64::try_from(keeping.max_bytes).unwrap_or(i64::MAX),
        max_age: keeping.max_age.unwrap_or_default(),
        discard: DiscardPolicy::New,
        duplicate_window: keeping.max_age.map_or(DUPLICATE_TIME, |age| age.min(DUPLICATE_TIME)),
        ..stream::Config::default()
    };
    let made = get_or_create(context, config).await?;
    let found = &made.cached_info().config;
    let most_bytes = found.max_bytes;
    if !found.subjects.contains(&subject) {
        let words = format!("the stream {name} is another's: it does not take {subject}");
        return Err(Making::Never(FleetError::new(words)));
    }
    let unfit = [
        (found.discard != DiscardPolicy::New, "drops what is oldest when it is full (discard: old)"),
        (found.retention != RetentionPolicy::Limits, "removes messages by itself (retention is not limits)"),
        (found.max_messages_per_subject > 0, "keeps only some messages of each subject (max_msgs_per_subject)"),
        (found.no_ack, "acknowledges nothing (no_ack)"),
        ((1..LEAST_MESSAGE_BYTES).contains(&found.max_message_size), "takes no message of 1 MiB (max_msg_size)"),
    ];
    if let Some((_, why)) = unfit.iter().find(|(is_unfit, _)| *is_unfit) {
        return Err(Making::Never(FleetError::new(format!("the stream {name} {why}: it would lose events"))));
    }
    // As clients make buckets. The one of this library asks servers for more than older ones tell.
    let bucket = format!("{name}-sessions");
    let config = stream::Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        description: Some("who records which session".into()),
        max_messages_per_subject: 1,
        max_age: RECORD_TIME,
        num_replicas: keeping.replicas,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        // Copies may lag behind, and who holds a session is asked of their leader.
        allow_direct: false,
        ..stream::Config::default()
    };
    get_or_create(context, config).await?;
    let records = context.get_key_value(&bucket).await;
    let records =
        records.map_err(|error| Making::NotNow(FleetError::of(&format!("cannot use the bucket {bucket}"), &error)))?;
    Ok((records, u64::try_from(most_bytes).unwrap_or(u64::MAX)))
}

/// When a bucket was made.
fn made_ns(records: &Store) -> i64 {
    i64::try_from(records.stream.cached_info().created.unix_timestamp_nanos()).unwrap_or(0)
}

async fn get_or_create(context: &Context, config: stream::Config) -> Result<Stream, Making> {
    use jetstream::{ErrorCode, context::CreateStreamErrorKind};
    let no_leader = [ErrorCode::CLUSTER_NOT_AVAILABLE, ErrorCode::CLUSTER_NOT_LEADER, ErrorCode::CLUSTER_NO_PEERS];
    let name = config.name.clone();
    context.get_or_create_stream(config).await.map_err(|error| {
        let words = FleetError::of(&format!("cannot use the stream {name}"), &error);
        match error.kind() {
            CreateStreamErrorKind::TimedOut | CreateStreamErrorKind::JetStreamUnavailable => {
                Making::NotNow(FleetError::new(format!("{words} (does the server run with JetStream?)")))
            }
            CreateStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED => {
                Making::Never(FleetError::new(format!("{words} (--nats-max-bytes makes it smaller)")))
            }
            CreateStreamErrorKind::JetStream(said) if no_leader.contains(&said.error_code()) => Making::NotNow(words),
            _ => Making::Never(words),
        }
    })
}
