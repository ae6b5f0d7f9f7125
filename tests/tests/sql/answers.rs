//! What is written, and what is refused.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use tests::{Folder, collector::binary};

use crate::recorded::{ask, ingest, json, rows, shared};

#[test]
fn an_answer_has_the_same_rows_in_every_form() {
    let query = "select session, function, threads, duration_ns from spans where host = 'pi' order by id, kind";
    let expected = rows(shared(), query);
    assert_eq!(expected.len(), 6);
    let csv = ask(shared(), query, &["--format", "csv"]).success();
    let lines: Vec<_> = csv.text().split_terminator("\r\n").collect();
    assert_eq!((lines.len(), lines[0]), (7, "session,function,threads,duration_ns"));
    let most = rows(shared(), "select duration_ns from spans where host = 'pi' order by duration_ns desc limit 1");
    assert_eq!(most[0]["duration_ns"].as_u64(), Some(8000), "what has none comes last");
    let table = ask(shared(), query, &[]).success();
    assert_eq!(table.text().lines().count(), 7);
    for (row, line) in expected.iter().zip(table.text().lines().skip(1)) {
        assert!(line.contains(row["function"].as_str().expect("a name")), "{line}");
    }
    let folder = Folder::new("sql-output");
    let file = folder.join("answer.parquet");
    ask(shared(), query, &["--format", "parquet", "--output", &file.display().to_string()]).success();
    let bytes = fs::read(&file).expect("it was written");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert_eq!(ask(shared(), query, &["--format", "parquet"]).success().stdout.get(..4), Some(&b"PAR1"[..]));
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let folder = Folder::new("sql-whole");
    let file = folder.join("answer.csv");
    fs::write(&file, "before").expect("there is room");
    let name = file.display().to_string();
    assert_eq!(ask(shared(), "select 1 / (start_ns - start_ns) from spans", &["--output", &name]).code, Some(1));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "before");
    ask(shared(), "select 1 as one", &["--output", &name, "--format", "csv"]).success();
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "one\r\n1\r\n");
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1, "nothing is left beside it");
}

#[test]
fn queries_only_read_the_tables_and_errors_are_short() {
    let folder = Folder::new("sql-refused");
    ingest(folder.path());
    let stolen = folder.join("stolen.csv");
    for (query, said) in [
        ("create table x as select 1", "can only read"),
        ("create external table x stored as csv location '/etc/passwd'", "can only read"),
        ("insert into spans select * from spans", "can only read"),
        ("set datafusion.execution.batch_size = 1", "can only read"),
        (&format!("copy (select 1) to '{}'", stolen.display()), "can only read"),
        ("select * from '/etc/passwd'", "not found"),
        ("select nothing from spans", "No field named nothing"),
        ("selec 1", "Expected: an SQL statement"),
        ("select 1; select 2", "expected one statement"),
        ("", ""),
    ] {
        let exit = ask(folder.path(), query, &[]);
        assert_eq!((exit.code, exit.text()), (Some(1), ""), "{query}");
        let lines = exit.stderr.lines().count();
        assert!(exit.stderr.contains(said) && lines <= 2, "{query}: {}", exit.stderr);
    }
    assert!(!stolen.exists());
    assert_eq!(ask(folder.path(), "select 1", &["--format", "tables"]).code, Some(2));
    let nowhere = ask(&folder.join("nowhere"), "select 1", &[]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("nowhere"), "{}", nowhere.stderr);
}

#[test]
fn a_query_comes_from_a_file_or_from_standard_input() {
    let folder = Folder::new("sql-input");
    let (file, place) = (folder.join("query.sql"), shared().display().to_string());
    fs::write(&file, "select count(*) as sessions\nfrom sessions -- all\n").expect("there is room");
    let sessions = rows(shared(), "select count(*) as sessions from sessions");
    let from_file = tests::collector::run(&["sql", "--file", &file.display().to_string(), &place, "--format", "json"]);
    assert_eq!(json(&from_file.success()), sessions);
    let mut command = Command::new(binary());
    command.args(["sql", "-", &place, "--format", "json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("it has one").write_all(b"select count(*) as sessions from sessions").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON"), sessions[0]);
}

#[test]
fn whoever_reads_may_stop_and_little_memory_is_enough() {
    let place = shared().display().to_string();
    let query = "select a.id, b.id from spans a, (select id from spans limit 1000) b";
    let mut command = Command::new(binary());
    command.args(["sql", query, &place, "--format", "csv"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("it has one"));
    reader.read_line(&mut line).expect("it writes");
    drop(reader);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(line, "id,id\r\n");
    let sorted =
        "select count(*) as rows from (select *, row_number() over (order by function, id, session) from spans)";
    let little = json(&ask(shared(), sorted, &["--format", "json", "--memory", "64MiB"]).success());
    assert_eq!(little, rows(shared(), "select count(*) as rows from spans"));
}
