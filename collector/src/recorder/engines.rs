//! The span engines of one recorder's sessions.

use std::collections::HashMap;

use codec::{
    Position, SessionNs,
    atf::LimitEntry,
    heph::{MAX_PACKET_BYTES, Packets},
    profile::Message,
    span::Span,
};
use collector_core::{
    Ended, Output,
    spans::{Engine, Finish, SpanConfig, SpanCounts},
};

use super::session_of;
use crate::notices::Notices;

/// One engine for each session, for all sinks that want spans.
#[derive(Debug)]
pub(super) struct Engines {
    config: SpanConfig,
    engines: HashMap<String, Engine>,
    /// How many spans are open in all of them, and events wait.
    open: usize,
}

impl Engines {
    /// `max_open` of the configuration is for all sessions together.
    pub(super) fn new(config: SpanConfig) -> Self {
        Self { config, engines: HashMap::new(), open: 0 }
    }

    /// Forgets everything: nobody wants spans any more.
    pub(super) fn forget(&mut self) {
        self.engines.clear();
        self.open = 0;
    }

    /// Puts the spans that an output completes into `spans`, which is empty. Adds to the end of a session what was given
    /// up on the way.
    pub(super) fn take(
        &mut self,
        output: &Output,
        ended: Option<&mut Ended>,
        spans: &mut Vec<Span>,
        notices: &Notices,
    ) {
        let session = session_of(output);
        if !self.engines.contains_key(&session.name) {
            self.engines.insert(session.name.clone(), Engine::new(self.config.clone()));
        }
        let Some(engine) = self.engines.get_mut(&session.name) else { return };
        let others = self.open.saturating_sub(held(engine));
        engine.set_max_open(self.config.max_open.saturating_sub(others));
        feed(engine, output, ended.as_deref());
        std::mem::swap(engine.spans(), spans);
        self.open = others.saturating_add(held(engine));
        if let Some(ended) = ended {
            let SpanCounts { evicted, orphans, .. } = engine.counts();
            if evicted > 0 {
                ended.limits.push(LimitEntry {
                    reason: "collector:spans-evicted".into(),
                    detail: "spans given up while they were open, so that memory stays bounded".into(),
                    count: evicted,
                    ..LimitEntry::default()
                });
                let name = &session.name;
                notices.say(format!("session {name}: {evicted} spans were given up, so that memory stays bounded"));
            }
            if orphans > 0 {
                let name = &session.name;
                notices.say(format!("session {name}: {orphans} tasks were resumed that nobody saw suspended"));
            }
            self.engines.remove(&session.name);
        }
    }
}

/// How much an engine holds: spans that are open, and events that wait for others.
fn held(engine: &Engine) -> usize {
    let SpanCounts { open, waiting, .. } = engine.counts();
    usize::try_from(open.saturating_add(waiting)).unwrap_or(usize::MAX)
}

fn feed(engine: &mut Engine, output: &Output, ended: Option<&Ended>) {
    match output {
        Output::Started(_) | Output::Resumed(_) | Output::Ending(..) => {}
        Output::Options(_, packets) => {
            let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
            while let Some(Ok(message)) = packets.next_with(Message::decode) {
                if let Message::Option(known) = message {
                    engine.option(&known.option);
                }
            }
        }
        Output::Events(batch) => {
            let catalog = batch.session.catalog();
            for run in batch.iter() {
                let (stream, first) = (run.run.stream, run.run.first.0);
                for (position, message) in (first..=u64::MAX).zip(run) {
                    engine.event(stream, Position(position), &message, &catalog);
                }
            }
        }
        Output::Gap(_, gap) => engine.gap(gap.stream, gap.first, gap.count, gap.cause.as_str()),
        Output::Ended(session, _) => {
            let Some(Ended { end, .. }) = ended else { return };
            let zero = session.catalog().clock().map_or(0, |clock| clock.zero_ns);
            let at = end.at_ns.map(|at| SessionNs(at.saturating_sub(zero)));
            engine.finish(Finish::of(&end.how, end.code), at);
        }
    }
}
