//! Who called a function: the call tree from the function outwards.

use std::{cmp::Reverse, collections::HashMap};

use codec::span::{SpanKind, What};
use sinks::tree::Node;

use super::{calls::Calls, turned_down::TurnedDown};

/// How many callers of one call are followed outwards: programs recurse deeply.
const MOST_CHAIN: usize = 512;
/// How many different chains are told apart. What is beyond ends at the last caller that has room.
const MOST_NODES: usize = 1 << 20;

/// Functions, and below each who called it, and who called that.
#[derive(Debug, Default)]
pub struct Callers {
    nodes: Vec<Caller>,
    roots: Vec<usize>,
    by_key: HashMap<(Option<usize>, SpanKind, What), usize>,
}

/// A function that was asked for, or one in a chain of callers that leads to it.
#[derive(Debug, Clone)]
pub struct Caller {
    /// What it is: a frame, or what else may stand in a tree.
    pub kind: SpanKind,
    /// What ran.
    pub what: What,
    /// How many calls of the function that was asked for were made through this chain.
    pub count: u64,
    /// How long they took. Of the function itself, its calls within its own calls do not count again.
    pub total_ns: u64,
    /// How long they took themselves.
    pub self_ns: u64,
    /// Of how many of them nobody knows how long they took.
    pub untimed: u64,
    /// Whether they called functions that were turned down, so that their own time has calls that were not followed.
    pub has_called_down: bool,
    /// Who called it.
    callers: Vec<usize>,
}

impl Callers {
    /// Who called what is asked for in these calls.
    pub fn of(calls: &Calls, turned_down: &TurnedDown, mut is_asked_for: impl FnMut(&What) -> bool) -> Self {
        let mut callers = Self::default();
        let mut known: HashMap<What, bool> = HashMap::new();
        for (_, root) in calls.roots() {
            let mut path: Vec<Node<'_>> = Vec::new();
            let mut rest: Vec<_> = root.children().into_iter().map(|node| (node, 0)).collect();
            while let Some((node, depth)) = rest.pop() {
                path.truncate(depth);
                let is_call = node.kind() != SpanKind::Gap;
                if is_call && *known.entry(node.what().clone()).or_insert_with(|| is_asked_for(node.what())) {
                    let has_called_down = node.children().iter().any(|child| turned_down.has(child.what()));
                    callers.add(&node, &path, has_called_down);
                }
                path.push(node);
                rest.extend(node.children().into_iter().map(|child| (child, depth + 1)));
            }
        }
        callers.sort();
        callers
    }

    /// The functions that were asked for, those that took longest first.
    pub fn roots(&self) -> impl DoubleEndedIterator<Item = &Caller> {
        self.roots.iter().filter_map(|root| self.nodes.get(*root))
    }

    /// Who called one of them, those through whom it took longest first.
    pub fn callers(&self, of: &Caller) -> impl DoubleEndedIterator<Item = &Caller> {
        of.callers.iter().filter_map(|caller| self.nodes.get(*caller))
    }

    fn add(&mut self, node: &Node<'_>, path: &[Node<'_>], has_called_down: bool) {
        let is_inner = path.iter().any(|caller| caller.kind() == node.kind() && caller.what() == node.what());
        let mut at = None;
        for (distance, caller) in [node].into_iter().chain(path.iter().rev()).take(MOST_CHAIN).enumerate() {
            let Some(place) = self.place(at, caller) else { break };
            if let Some(known) = self.nodes.get_mut(place) {
                known.has_called_down |= has_called_down;
                known.count = known.count.saturating_add(node.count());
                known.self_ns = known.self_ns.saturating_add(node.self_ns());
                known.untimed = known.untimed.saturating_add(node.untimed());
                // Its outermost calls have the time of those inside.
                let total_ns = if is_inner && distance == 0 { 0 } else { node.total_ns() };
                known.total_ns = known.total_ns.saturating_add(total_ns);
            }
            at = Some(place);
        }
    }

    fn place(&mut self, above: Option<usize>, node: &Node<'_>) -> Option<usize> {
        let key = (above, node.kind(), node.what().clone());
        if let Some(known) = self.by_key.get(&key) {
            return Some(*known);
        }
        let place = self.nodes.len();
        if place >= MOST_NODES {
            return None;
        }
        let (kind, what) = (node.kind(), node.what().clone());
        self.nodes.push(Caller {
            kind,
            what,
            count: 0,
            total_ns: 0,
            self_ns: 0,
            untimed: 0,
            has_called_down: false,
            callers: Vec::new(),
        });
        self.by_key.insert(key, place);
        match above.and_then(|above| self.nodes.get_mut(above)) {
            Some(above) => above.callers.push(place),
            None => self.roots.push(place),
        }
        Some(place)
    }

    /// Puts those first that took longest.
    fn sort(&mut self) {
        let order: Vec<_> = self.nodes.iter().map(|node| (Reverse(node.total_ns), Reverse(node.count))).collect();
        let key = |place: &usize| (order.get(*place).copied(), *place);
        self.roots.sort_by_key(key);
        self.nodes.iter_mut().for_each(|node| node.callers.sort_by_key(key));
    }
}

#[cfg(test)]
mod tests {
    use codec::FunctionId;

    use super::*;
    use crate::{
        calls::Form,
        filter::{Filter, Wanted},
        scene::frame,
        trace::Trace,
    };

    #[test]
    fn chains_lead_from_the_function_outwards() {
        let dir = std::env::temp_dir().join(format!("spoor-callers-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let manifest = codec::atf::Manifest::default().to_json().expect("valid");
        std::fs::write(dir.join("manifest.json"), manifest).expect("written");
        let trace = Trace::open(&dir).expect("it is one");
        std::fs::remove_dir_all(&dir).expect("it is there");
        let filter = Filter::new(&trace, &Wanted::default()).expect("everything");
        let mut calls = Calls::new(&filter, Form::Tree);
        // 1 calls 9 (10), and 2 calls 9 (30), which calls itself (5); 1 calls 2.
        for span in [
            frame(1, Some(0), 9, 0, 10),
            frame(4, Some(3), 9, 25, 30),
            frame(3, Some(2), 9, 20, 50),
            frame(2, Some(0), 2, 20, 60),
            frame(0, None, 1, 0, 100),
        ] {
            calls.tree.add(&span);
        }
        calls.tree.finish();
        let callers = Callers::of(&calls, &TurnedDown::default(), |what| *what == What::Function(FunctionId(9)));
        let numbers = |caller: &Caller| {
            let What::Function(FunctionId(function)) = caller.what else { panic!("{caller:?}") };
            (function, caller.count, caller.total_ns, caller.self_ns)
        };
        let roots: Vec<_> = callers.roots().collect();
        assert_eq!(roots.iter().map(|root| numbers(root)).collect::<Vec<_>>(), [(9, 3, 40, 40)]);
        let below: Vec<_> = callers.callers(roots[0]).collect();
        let found: Vec<_> = below.iter().map(|caller| numbers(caller)).collect();
        assert_eq!(found, [(2, 1, 30, 25), (1, 1, 10, 10), (9, 1, 5, 5)]);
        let above: Vec<_> = callers.callers(below[2]).map(numbers).collect();
        assert_eq!(above, [(2, 1, 5, 5)], "it was called by itself, in 2");
        assert_eq!(callers.callers(below[1]).count(), 0, "nobody called 1");
    }
}
