//! Spans on the way to a sink.

use std::collections::HashMap;

use codec::{
    FunctionId, ModuleId, Position, SessionNs,
    atf::LimitEntry,
    heph::{MAX_PACKET_BYTES, Packets},
    profile::Message,
    span::Span,
};
use collector_core::spans::{Engine, Finish, Names, SpanConfig, SpanCounts};
use sinks::{Catalog, Session};

use super::Item;

/// Makes spans of what one sink is told, so that they agree with what the sink has: what it was not given is a gap
/// here too.
#[derive(Debug)]
pub(super) struct Spanner {
    config: SpanConfig,
    engines: HashMap<String, Engine>,
    /// How many spans are open in all of them, and events wait.
    open: usize,
}

/// What a session's catalog knows of names.
pub(crate) struct CatalogNames<'a>(pub(crate) &'a Catalog);

impl Names for CatalogNames<'_> {
    fn function(&self, function: FunctionId) -> Option<&str> {
        self.0.function_name(function)
    }

    fn module(&self, module: ModuleId) -> Option<&str> {
        self.0.module_path(module)
    }

    fn function_at(&self, address: u64, at: SessionNs) -> Option<FunctionId> {
        self.0.function_at(address, at)
    }
}

impl Spanner {
    /// `max_open` of the configuration is for all sessions together.
    pub(super) fn new(config: SpanConfig) -> Self {
        Self { config, engines: HashMap::new(), open: 0 }
    }

    /// Forgets everything: nobody wants spans any more.
    pub(super) fn forget(&mut self) {
        self.engines.clear();
        self.open = 0;
    }

    /// The spans that an item completes. The end of a session is told what was given up on the way; what people should
    /// know of it is said.
    pub(super) fn take(&mut self, item: &mut Item, say: impl Fn(String)) -> Vec<Span> {
        let session = item.session().clone();
        let engine = self.engines.entry(session.name.clone()).or_insert_with(|| Engine::new(self.config.clone()));
        let before = held(engine);
        let others = self.open.saturating_sub(before);
        engine.set_max_open(self.config.max_open.saturating_sub(others));
        let ended = feed(engine, &session, item);
        let spans = std::mem::take(engine.spans());
        self.open = others.saturating_add(held(engine));
        if ended {
            let SpanCounts { evicted, orphans, .. } = engine.counts();
            if evicted > 0 {
                say(format!("session {}: {evicted} spans were given up, so that memory stays bounded", session.name));
            }
            if orphans > 0 {
                say(format!("session {}: {orphans} tasks were resumed that nobody saw suspended", session.name));
            }
            self.engines.remove(&session.name);
        }
        spans
    }
}

/// How much an engine holds: spans that are open, and events that wait for others.
fn held(engine: &Engine) -> usize {
    let SpanCounts { open, waiting, .. } = engine.counts();
    usize::try_from(open.saturating_add(waiting)).unwrap_or(usize::MAX)
}

/// Gives an engine what an item says. Returns whether the session has ended.
fn feed(engine: &mut Engine, session: &Session, item: &mut Item) -> bool {
    match item {
        Item::Started(_) => {}
        Item::Options(_, packets) => {
            let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
            while let Some(Ok(message)) = packets.next_with(Message::decode) {
                if let Message::Option(known) = message {
                    engine.option(&known.option);
                }
            }
        }
        Item::Events(batch) => {
            let catalog = session.catalog();
            let names = CatalogNames(&catalog);
            for run in batch.iter() {
                let (stream, first) = (run.run.stream, run.run.first.0);
                for (position, message) in (first..=u64::MAX).zip(run) {
                    engine.event(stream, Position(position), &message, &names);
                }
            }
        }
        Item::Gap(_, gap) => engine.gap(gap.stream, gap.first, gap.count, &gap.cause),
        Item::Ended(_, ended) => {
            let zero = session.catalog().clock().map_or(0, |clock| clock.zero_ns);
            let at = ended.end.at_ns.map(|at| SessionNs(at.saturating_sub(zero)));
            engine.finish(Finish::of(&ended.end.how, ended.end.code), at);
            let evicted = engine.counts().evicted;
            if evicted > 0 {
                ended.limits.push(LimitEntry {
                    reason: "collector:spans-evicted".into(),
                    detail: "spans given up while they were open, so that memory stays bounded".into(),
                    count: evicted,
                    ..LimitEntry::default()
                });
            }
            return true;
        }
    }
    false
}
