use std::collections::BTreeMap;

use codec::{EventKind, span::What};
use sinks::Sink;

use super::{super::tests::event, super::tests::make, *};
use crate::{
    overview::{Gap, RowKind, Slice, Sum},
    scene::{Random, Scene},
};

/// Threads that call at random, one of which begins late and one of which ends early.
struct Program {
    random: Random,
    scene: Scene,
    now: u64,
    stacks: [Vec<(u64, u64)>; 3],
    /// Of so many events one is lost, and of so many calls one is in the place of its caller; none where it is 0.
    loss: u64,
    jumps: u64,
    /// How many events there were, and how many there will be.
    done: u64,
    of: u64,
}

impl Program {
    fn new(seed: u64, of: u64, loss: u64, jumps: u64) -> Self {
        let (random, scene) = (Random(seed), Scene::new());
        Self { random, scene, now: 0, stacks: Default::default(), loss, jumps, done: 0, of }
    }

    /// So many events more.
    fn run(&mut self, events: u64) {
        for _ in 0..events {
            self.done += 1;
            self.now += 1 + self.random.below(40);
            let stream = match self.random.below(3) {
                1 if self.done < self.of / 3 => 0,
                2 if self.done > self.of / 2 => 0,
                stream => stream,
            };
            let stack = &mut self.stacks[stream as usize];
            let is_call = stack.len() < 2 || stack.len() < 9 && self.random.below(2) == 0;
            let message = if is_call {
                // It does not come back to what it jumped from.
                let is_jump = self.jumps > 0 && stack.len() > 2 && self.random.below(self.jumps) == 0;
                if is_jump {
                    stack.pop();
                }
                stack.push((self.random.below(6), self.now));
                let (function, start) = stack[stack.len() - 1];
                event(EventKind::Call, function, stack.len() - 1, (start, start))
            } else {
                let (function, start) = stack.pop().expect("there is one");
                event(EventKind::Return, function, stack.len(), (start, self.now))
            };
            let stream = u32::try_from(stream).expect("small");
            match self.loss > 0 && self.random.below(self.loss) == 0 {
                true => self.scene.lose(stream, 1 + self.done % 3 / 2),
                false => self.scene.send(stream, message),
            }
        }
        self.scene.sink.flush().expect("written");
    }

    fn trace(&self) -> Trace {
        Trace::open(&self.scene.folder()).expect("it is there")
    }
}

type Path = Vec<What>;

/// What a row is of, how many slices it has, and what is drawn of it, with who called whom.
type RowDrawn = (RowKind, u64, Vec<(Path, Slice)>);

fn path(overview: &Overview, node: u32) -> Path {
    let mut path = Vec::new();
    let mut next = Some(node);
    while let Some(node) = next.and_then(|node| overview.node(node)) {
        path.push(overview.whats()[node.what as usize].0.clone());
        next = node.parent;
    }
    path
}

fn sums(overview: &Overview, from: u64, to: u64) -> BTreeMap<String, Sum> {
    let nodes = overview.sums(from, to, None).expect("it can be read").nodes;
    nodes.into_iter().map(|(node, sum)| (format!("{:?}", path(overview, node)), sum)).collect()
}

/// What is drawn, by rows.
fn boxes(overview: &Overview, step: u64) -> Vec<RowDrawn> {
    let rows = (0..).zip(overview.rows());
    let drawn = |(number, row): (u32, &super::super::Row)| {
        let slices = overview.boxes(number, 0, u64::MAX, step).expect("it can be read");
        let slices = slices.into_iter().map(|slice| (path(overview, slice.node), Slice { node: 0, ..slice }));
        (row.kind, row.slices, slices.collect())
    };
    rows.map(drawn).collect()
}

fn gaps(overview: &Overview) -> Vec<Gap> {
    let mut gaps = overview.gaps().to_vec();
    gaps.sort_by_key(|gap| (gap.stream, gap.from, gap.to));
    gaps
}

fn compare(grown: &Overview, trace: &Trace, random: &mut Random) {
    let made = make(trace);
    let (first, last) = made.range();
    assert_eq!(grown.range(), (first, last));
    assert_eq!(gaps(grown), gaps(&made));
    assert_eq!(sums(grown, 0, u64::MAX), sums(&made, 0, u64::MAX));
    for _ in 0..3 {
        let from = first + random.below(last - first + 1);
        let to = from + random.below(last - from + 1);
        assert_eq!(sums(grown, from, to), sums(&made, from, to), "from {from} to {to} of {first} to {last}");
    }
    assert!(boxes(grown, 1) == boxes(&made, 1));
}

#[test]
fn one_that_grew_is_the_same_as_one_that_is_made_at_once() {
    for (seed, loss, jumps) in [(1, 0, 0), (2, 400, 0), (3, 0, 9), (4, 30, 50), (5, 5_000, 200), (6, 3, 0)] {
        let mut program = Program::new(seed, 60_000, loss, jumps);
        program.run(1);
        let mut growing = Growing::new(&program.trace(), SpanConfig::default()).expect("made").keeping(1);
        let mut random = Random(seed);
        while program.done < program.of {
            program.run(1 + random.below(20_000).min(program.of - program.done));
            growing = extend(growing, &program.trace(), &mut random);
        }
        let parts: usize = growing.gathered.rows.values().map(|row| row.parts()).sum();
        assert!(parts <= 3 * 2 * KEPT_OF_ONE, "most of it has its place: {parts}");
        program.scene.end();
        extend(growing, &program.trace(), &mut random);
    }
}

/// Extends it, and compares it.
fn extend(growing: Growing, trace: &Trace, random: &mut Random) -> Growing {
    let (growing, overview) = growing.extend(trace, &mut |_| Ok(())).expect("it can be read");
    compare(&overview, trace, random);
    growing
}

#[test]
fn only_what_is_new_is_read_and_all_of_another_session() {
    let mut program = Program::new(9, 40_000, 0, 20);
    program.run(30_000);
    let (mut random, mut batches) = (Random(1), 0);
    let growing = Growing::new(&program.trace(), SpanConfig::default()).expect("made").keeping(1);
    let growing = extend(growing, &program.trace(), &mut random);
    program.run(500);
    let mut count = |_| {
        batches += 1;
        Ok(())
    };
    let (growing, _) = growing.extend(&program.trace(), &mut count).expect("it can be read");
    assert_eq!(batches, 1, "few spans have ended");
    // Another has its name.
    let mut other = Program::new(10, 50_000, 90, 0);
    other.run(45_000);
    std::fs::remove_dir_all(program.scene.folder()).expect("it was there");
    assert!(Trace::open(&program.scene.folder()).is_err());
    std::fs::rename(other.scene.folder(), program.scene.folder()).expect("it has room");
    let growing = extend(growing, &program.trace(), &mut random);
    // It was cut off, and went on.
    let index = program.trace().thread_dir(0).join("index.atf");
    let file = File::options().write(true).open(index).expect("it is there");
    let length = file.metadata().expect("it is there").len();
    file.set_len(length - 16 * 2_000).expect("it is cut");
    extend(growing, &program.trace(), &mut random);
}
