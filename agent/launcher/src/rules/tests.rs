use super::*;

fn rules(given: &[(&str, &str)]) -> Rules {
    Rules::new(given.iter().copied()).expect("rules")
}

fn error(given: &[(&str, &str)]) -> String {
    Rules::new(given.iter().copied()).expect_err("they are wrong").to_string()
}

/// Why a function of `/usr/lib/libx.so.1` with this name is left out.
fn left(rules: &Rules, name: &str) -> Option<Reason> {
    left_of(rules, "/usr/lib/libx.so.1", name, 100, None)
}

fn left_of(rules: &Rules, module: &str, name: &str, size: u64, source: Option<&str>) -> Option<Reason> {
    let function = Candidate { names: &[name], address: 1, size };
    rules.of_module(module).leave(&function, &|_| source.map(String::from))
}

#[track_caller]
fn kept(given: &[(&str, &str)], kept: &[&str], left_out: &[&str]) {
    let rules = rules(given);
    kept.iter().for_each(|name| assert_eq!(left(&rules, name), None, "{name}"));
    left_out.iter().for_each(|name| assert_eq!(left(&rules, name), Some(Reason::Excluded), "{name}"));
}

#[test]
fn the_last_rule_that_matches_decides() {
    kept(&[], &["main"], &[]);
    kept(&[("exclude", "my_hot")], &["main", "my_cold"], &["my_hot"]);
    kept(&[("only", "my_*"), ("exclude", "my_hot")], &["my_cold"], &["my_hot", "main"]);
    kept(&[("exclude", "*"), ("only", "main")], &["main"], &["my_hot"]);
    kept(&[("only", "a"), ("only", "b")], &["a", "b"], &["c"]);
    // One that is not the first takes back in what others have left out.
    kept(&[("exclude", "my_*"), ("only", "my_cold")], &["my_cold", "main"], &["my_hot"]);
    kept(&[("only", "my_*"), ("exclude", "my_*"), ("only", "my_cold")], &["my_cold"], &["my_hot", "main"]);
}

#[test]
fn a_rule_is_about_functions_modules_or_source_files() {
    kept(&[("exclude", "libx.so*")], &[], &["main"]);
    kept(&[("exclude", "module:libx*"), ("only", "function:ma*")], &["main"], &["f"]);
    kept(&[("exclude", "function:libx*"), ("exclude", "module:main")], &["main"], &[]);
    kept(&[("exclude", "module:/usr/*")], &[], &["main"]);
    kept(&[("exclude", "module:/opt/*")], &["main"], &[]);
    let from = |pattern: &str, path| left_of(&rules(&[("exclude", pattern)]), "x", "f", 9, Some(path)).is_some();
    for pattern in ["a.c", "src/a.c", "/home/*/a.c", "source:src/*", "source:a*", "src/*"] {
        assert!(from(pattern, "/home/me/src/a.c"), "{pattern}");
        assert!(!from(pattern, "/home/me/src2/b.c"), "{pattern}");
    }
    assert!(!from("function:a.c", "/home/me/src/a.c") && !from("a*", "/home/me/src/a.c"));
}

#[test]
fn source_files_are_read_only_where_a_rule_is_about_one() {
    for (pattern, expected) in [
        ("main", false),
        ("libc.so*", false),
        ("source:main", true),
        ("a.rs", true),
        ("net/*", true),
        ("module:/x", false),
    ] {
        let rules = rules(&[("only", pattern)]);
        let function = Candidate { names: &["f"], address: 1, size: 1 };
        let asked = std::cell::Cell::new(0);
        rules.of_module("x").leave(&function, &|_| {
            asked.set(asked.get() + 1);
            None
        });
        assert_eq!(asked.get(), i32::from(expected), "{pattern}");
    }
}

#[test]
fn names_match_as_they_are_and_as_people_write_them() {
    kept(&[("only", "ns::f(int)")], &["_ZN2ns1fEi"], &["_ZN2ns1gEi"]);
    kept(&[("only", "_ZN2ns*")], &["_ZN2ns1fEi"], &[]);
    // No module of that name.
    kept(&[("only", "module::f*")], &["_ZN6module1fEv"], &["main"]);
}

#[test]
fn what_joins_events_together_stays() {
    let nothing = rules(&[("exclude", "*"), ("min-size", "1MiB")]);
    for (module, name, stays) in [
        ("/lib/libc.so.6", "pthread_create", true),
        ("/lib/libc.so.6", "execve", true),
        ("/lib/ld.so", "_dl_debug_state", true),
        ("/bin/x", "make_fcontext", true),
        ("/bin/x", "syscall.runtime_BeforeExec", true),
        ("/bin/x", "pthread_create", false),
        ("/lib/libc.so.6", "malloc", false),
    ] {
        assert_eq!(left_of(&nothing, module, name, 9, None).is_none(), stays, "{module} {name}");
    }
}

#[test]
fn small_functions_are_left_out_unless_nobody_knows_how_small() {
    let rules = rules(&[("min-size", "32")]);
    for (size, left) in [(0, None), (1, Some(Reason::Small)), (31, Some(Reason::Small)), (32, None)] {
        assert_eq!(left_of(&rules, "x", "f", size, None), left, "{size}");
    }
}

#[test]
fn depths_are_of_all_or_below_functions() {
    let rules = rules(&[("only", "f"), ("max-depth", "9"), ("max-depth", "ns::g*:4"), ("max-depth", "main:0")]);
    assert_eq!(rules.max_depth, Some(9));
    let below = |name: &'static str| rules.depth_below([name].into_iter());
    assert_eq!((below("main"), below("_ZN2ns1gEi"), below("f")), (Some(0), Some(4), None));
    assert_eq!((left(&rules, "main"), left(&rules, "g")), (None, Some(Reason::Excluded)));
    for wrong in ["0", "", "x", "main:", ":4", "main:x", "-1"] {
        assert!(depth(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_file_has_one_rule_a_line() {
    let path = std::env::temp_dir().join(format!("spoor-rules-{}", std::process::id()));
    let name = path.to_str().expect("text");
    fs::write(&path, "# what is mine\nonly my_*\n\n  exclude   my hot\nmin-size 64B\nmax-depth main:2\n")
        .expect("written");
    let read = rules(&[("exclude", "*"), ("rules", name), ("only", "my hot")]);
    assert_eq!((left(&read, "my_cold"), left(&read, "my hot"), left(&read, "f")), (None, None, Some(Reason::Excluded)));
    assert_eq!((read.min_size, read.depths.len()), (64, 1));
    fs::write(&path, "only a\nonyl b\n").expect("written");
    assert_eq!(
        error(&[("rules", name)]),
        format!("{name}:2: expected only, exclude, min-size or max-depth, and not onyl")
    );
    fs::write(&path, "only").expect("written");
    assert_eq!(error(&[("rules", name)]), format!("{name}:1: expected a pattern behind only"));
    fs::remove_file(&path).expect("removed");
    assert!(error(&[("rules", name)]).contains("cannot read it"));
    assert!(error(&[("only", "source:")]).contains("--only source:: expected a pattern"));
}

#[test]
fn rules_that_match_nothing_are_known() {
    let rules = rules(&[("only", "main"), ("exclude", "no_such"), ("max-depth", "nobody:3")]);
    left(&rules, "main");
    let unmatched = |matched: &Matched| !matched.has_matched.load(Ordering::Relaxed);
    let unmatched: Vec<_> = rules.list.iter().map(|rule| unmatched(&rule.what)).collect();
    assert_eq!(unmatched, [false, true]);
    assert!(!rules.depths[0].0.has_matched.load(Ordering::Relaxed));
}
