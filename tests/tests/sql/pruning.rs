//! Only what a query asks about is opened.

use std::fs;

use tests::{Folder, collector::disk};

use crate::recorded::{ask, folder, ingest_to, json, names, rows, spoil};

#[test]
fn tables_of_other_sessions_are_not_opened() {
    let folder = folder("pruning");
    let place = folder.path();
    let sessions = names(place);
    let (first, others) = sessions.split_first().expect("there are some");
    let of_session = |session: &String| {
        let row = &rows(
            place,
            &format!(
                "select count(*) as spans, max(at) as last, max(host) as host, max(program) as program from spans where session = '{session}'"
            ),
        )[0];
        (row["spans"].as_u64().expect("a number"), row["last"].as_str().map(str::to_owned), row["program"].to_string())
    };
    let (spans, last, _) = of_session(first);
    assert!(spans > 0);
    let last = last.expect("its zero is known");
    for session in others {
        spoil(place, session);
    }
    let count = |condition: &str| {
        let row = &rows(place, &format!("select count(*) as spans from spans where {condition}"))[0];
        row["spans"].as_u64().expect("a number")
    };
    assert_eq!(count(&format!("session = '{first}'")), spans);
    assert_eq!(count(&format!("session in ('{first}', 'nobody')")), spans);
    assert_eq!(count(&format!("session like '{first}' and start_ns >= 0")), spans);
    assert_eq!(count("host = 'nowhere'"), 0);
    assert_eq!(count("program like '/nowhere/%'"), 0);
    assert_eq!(count("host <> 'pi' and at < '2001-01-01'"), 0);
    assert_eq!(count("start_ns > 9000000000000000"), 0);
    // The sessions of the others that know their zero began later; of one that does not, nothing is known.
    let known: Vec<_> = rows(place, "select session from sessions where host <> 'pi'");
    assert!(known.len() >= 3);
    assert_eq!(count(&format!("host <> 'pi' and at <= '{last}' and session < '{}'", sessions[1])), spans);
    let plan = ask(place, &format!("explain select * from spans where session = '{first}'"), &[]).success();
    assert!(plan.text().contains(&format!("{first}/spans.parquet")), "{}", plan.text());
    assert!(others.iter().all(|other| !plan.text().contains(&format!("{other}/spans.parquet"))), "{}", plan.text());
}

#[test]
fn sessions_of_another_time_are_not_opened() {
    let folder = folder("times");
    let place = folder.path();
    let started = rows(place, "select session, started, ended from sessions where host <> 'pi' order by started");
    let (first, second) = (&started[0], &started[1]);
    let spans = |condition: &str| {
        let exit = ask(place, &format!("select count(*) as spans from spans where {condition}"), &["--format", "json"]);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
        json(&exit)[0]["spans"].as_u64().expect("a number")
    };
    let until = format!("host <> 'pi' and at <= '{}'", first["ended"].as_str().expect("a time"));
    let all = spans(&until);
    assert!(all > 0 && first["ended"].as_str() < second["started"].as_str());
    for later in &started[1..] {
        spoil(place, later["session"].as_str().expect("a name"));
    }
    assert_eq!(spans(&until), all);
}

#[test]
fn what_is_damaged_or_not_there_is_told_and_the_rest_is_answered() {
    let folder = folder("damage");
    let place = folder.path();
    let sessions = names(place);
    let query = "select session, count(*) as spans from spans group by session order by session";
    let whole = rows(place, query);
    assert_eq!(whole.len(), sessions.len());
    spoil(place, &sessions[0]);
    fs::remove_file(place.join(&sessions[1]).join("spans.parquet")).expect("it was there");
    fs::write(place.join(&sessions[2]).join("manifest.json"), "{\"threads\": [").expect("there is room");
    let exit = ask(place, query, &["--format", "json"]);
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    assert_eq!(json(&exit), whole[3..]);
    for (session, what) in sessions.iter().zip([
        "spans.parquet: ",
        "spans.parquet is not there, and should have ",
        "manifest.json cannot be read",
    ]) {
        assert!(exit.stderr.contains(&format!("{session}: {what}")), "{session}: {}", exit.stderr);
    }
    assert!(exit.stderr.contains("3 events of 1 session are missing"), "{}", exit.stderr);
    let listed = ask(place, "select session, state from sessions where wrong is not null or state = 'unreadable'", &[]);
    assert!(listed.code == Some(1) && listed.text().contains(&sessions[2]), "{}", listed.text());
    // One that was to have no table is no failure.
    let without = Folder::new("sql-without");
    ingest_to(&format!("{},spans=no", disk(without.path())));
    let without = ask(without.path(), "select * from spans", &[]).success();
    assert!(without.stderr.contains("it has no table of spans"), "{}", without.stderr);
}
