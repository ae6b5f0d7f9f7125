use codec::{FunctionId, span::What};

use super::*;
use crate::top::Function;

fn row(name: &str, module: &str, durations: &[u64]) -> Row {
    let mut function = Function { count: durations.len() as u64, ..Function::default() };
    for took in durations {
        function.spread.add(*took);
        function.self_spread.add(*took);
        function.total_ns += took;
        function.self_ns += took;
    }
    let what = What::Function(FunctionId(0));
    Row { name: name.into(), symbol: None, module: Some(module.into()), source: None, what, function }
}

fn ranked(a: Vec<Row>, b: Vec<Row>, by: Measure, all: bool) -> Vec<(String, i64, Option<char>)> {
    let mut changes = changes(&a, &b);
    rank(&mut changes, by, all, 100);
    changes.iter().map(|change| (change.name.clone(), change.value(by).change(), change.only_in())).collect()
}

#[test]
fn functions_are_matched_by_name_and_file() {
    let a = vec![row("f", "/old/prog", &[100, 100]), row("g", "/old/prog", &[50]), row("f", "/lib/x.so", &[7, 7])];
    let b = vec![row("f", "/new/prog", &[200, 200]), row("h", "/new/prog", &[30]), row("f", "/lib/x.so", &[7, 7])];
    let found = ranked(a, b, Measure::Total, false);
    let expected = [("f", 200, None), ("g", -50, Some('A')), ("h", 30, Some('B'))];
    assert_eq!(found, expected.map(|(name, change, only)| (name.to_owned(), change, only)));
}

#[test]
fn what_chance_makes_is_noise() {
    // About 100 ns each, by up to 50 more or less: a hundred of them are off by some 600.
    let spread = |offset: u64| (0..100).map(|number| 50 + offset + number * 37 % 101).collect::<Vec<_>>();
    let of = |durations: &[u64]| vec![row("f", "/prog", durations)];
    assert_eq!(ranked(of(&spread(0)), of(&spread(3)), Measure::Total, false), [], "300 more may be chance");
    assert_eq!(ranked(of(&spread(0)), of(&spread(3)), Measure::Total, true), [("f".into(), 300, None)]);
    assert_eq!(ranked(of(&spread(0)), of(&spread(30)), Measure::Own, false), [("f".into(), 3_000, None)]);
    // How often something is called is no matter of chance, unless events are missing.
    let more = [spread(0), vec![100]].concat();
    assert_eq!(ranked(of(&spread(0)), of(&more), Measure::Calls, false), [("f".into(), 1, None)]);
    let lossy = |durations: &[u64]| {
        let mut rows = of(durations);
        rows[0].function.estimate = durations.len() as f64 * 2.0;
        rows
    };
    assert_eq!(ranked(lossy(&spread(0)), lossy(&more), Measure::Calls, false), []);
    let change = changes(&of(&[5]), &of(&[50])).remove(0);
    assert_eq!(change.value(Measure::Total), Value { a: 5, b: 50, error: None }, "one call says nothing of others");
    assert!(!change.value(Measure::Total).is_noise());
}

#[test]
fn few_calls_say_little() {
    let of = |name: &str, durations: &[u64]| row(name, "/prog", durations);
    // Two or three that took about as long, once more and once less.
    assert_eq!(
        ranked(vec![of("f", &[100, 130])], vec![of("f", &[180, 240])], Measure::Total, false),
        [],
        "190 more may be chance where there are two"
    );
    assert_eq!(ranked(vec![of("f", &[100, 130, 110])], vec![of("f", &[120, 180, 150])], Measure::Own, false), []);
    let far = ranked(vec![of("f", &[100, 130, 110])], vec![of("f", &[900, 930, 890])], Measure::Own, false);
    assert_eq!(far, [("f".into(), 2_380, None)]);
    // Of one call nobody knows: that comes behind what is known.
    let a = vec![of("once", &[100]), of("often", &[100; 20]), of("gone", &[7; 9])];
    let b = vec![of("once", &[90_000]), of("often", &[105; 20])];
    let names: Vec<_> = ranked(a, b, Measure::Total, false).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["often", "gone", "once"]);
}
