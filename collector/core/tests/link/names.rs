//! Sessions that another collector has called like one of this: both write to the same directory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use codec::SessionId;
use collector_core::{
    Catalog, CatalogLimits, Collector, Config, EarlierSession, Output, Peer, Session, SessionName, SessionNames,
};

use crate::agent::Agent;

/// The sessions of this number were recorded by another collector, which has counted from 1 as well.
const FOUND: [u8; 2] = [2, 3];

#[derive(Debug, Default)]
struct Numbers(u64);

impl SessionNames for Numbers {
    fn name(&mut self, _: &Peer) -> SessionName {
        self.0 += 1;
        SessionName { name: format!("s-{}", self.0), ..SessionName::default() }
    }

    fn earlier(&mut self, id: SessionId, _: &Peer, catalog: Catalog) -> Option<EarlierSession> {
        let number = FOUND.iter().position(|number| id.0 == [*number; 16])? + 1;
        let mut session = Session::new(format!("s-{number}"), Some(id), String::new(), 0, catalog);
        session.found = Some(session.name.clone().into());
        let (positions, kept) = (HashMap::new(), HashMap::new());
        Some(EarlierSession { session: Arc::new(session), positions, kept, written: 0, missing: BTreeMap::new() })
    }
}

#[test]
fn no_two_sessions_have_the_same_name() {
    for order in [[1, 2, 3, 4], [2, 1, 4, 3], [4, 3, 2, 1]] {
        let mut collector = Collector::new(Config::default(), CatalogLimits::default(), Numbers::default());
        let mut names = BTreeMap::new();
        for number in order {
            let agent = Agent::new(number, 5000 + u16::from(number));
            collector.datagram(Duration::from_secs(1), agent.peer, &agent.session());
            collector.flush(Duration::from_secs(1));
            while let Some(output) = collector.poll_output() {
                if let Output::Started(session) | Output::Resumed(session) = output {
                    assert_eq!(session.found.is_some(), FOUND.contains(&number), "{order:?}");
                    assert_eq!(names.insert(session.name.clone(), number), None, "{order:?}: {}", session.name);
                }
            }
        }
        assert_eq!(names.len(), order.len(), "{order:?}: {names:?}");
    }
}
