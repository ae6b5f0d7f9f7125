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
    Row { name: name.into(), symbol: None, module: Some(module.into()), source: None, function }
}

fn ranked(a: Vec<Row>, b: Vec<Row>, by: Measure, all: bool) -> Vec<(String, i64, Option<char>)> {
    let mut changes = changes(a, b);
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
    let change = changes(of(&[5]), of(&[50])).remove(0);
    assert_eq!(change.value(Measure::Total), Value { a: 5, b: 50, error: None }, "one call says nothing of others");
    assert!(!change.value(Measure::Total).is_noise());
}
