//! Reading and exporting: exactly the wanted records, from the files that can hold them.

use crate::bench::{files, fill, open, time};
use cowork_audit::{Filter, LedgerError, Record, export_csv, export_jsonl, read};
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::io::{self, Write};

const RECORDS: u64 = 60;

fn filled() -> Folder {
    let folder = Folder::new(Person::Root, "audit");
    fill(&mut open(folder.path()), RECORDS);
    folder
}

#[track_caller]
fn check(folder: &Folder, filter: &Filter, wanted: impl Fn(&Record) -> bool) {
    let all = read(folder.path(), &Filter::default()).unwrap();
    let expected: Vec<Record> = all.into_iter().filter(wanted).take(filter.limit).collect();
    assert!(!expected.is_empty(), "the test wants something");
    assert_eq!(read(folder.path(), filter).unwrap(), expected);
    let mut exported = Vec::new();
    let count = export_jsonl(folder.path(), filter, &mut exported).unwrap();
    let exported = String::from_utf8(exported).unwrap();
    let exported: Vec<Record> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((exported.len(), exported), (usize::try_from(count).unwrap(), expected));
}

#[test]
fn every_part_of_a_filter_applies() {
    let folder = filled();
    let everything = Filter::default();
    check(&folder, &everything, |record| record.seq <= RECORDS);
    let session = Filter { session: Some("busy-otter".into()), ..Filter::default() };
    check(&folder, &session, |record| record.session.as_deref() == Some("busy-otter"));
    let kind = Filter { kind: Some("grant".into()), ..Filter::default() };
    check(&folder, &kind, |record| record.kind == "grant.added");
    let exact = Filter { kind: Some("command.ended".into()), ..Filter::default() };
    check(&folder, &exact, |record| record.kind == "command.ended");
    let between = Filter { since: Some(time(10)), until: Some(time(20)), ..Filter::default() };
    check(&folder, &between, |record| (10..=20).contains(&record.seq));
    let all = Filter {
        session: Some("calm-heron".into()),
        kind: Some("grant".into()),
        since: Some(time(5)),
        until: Some(time(55)),
        after: 20,
        limit: 2,
    };
    check(&folder, &all, |record| {
        record.session.as_deref() == Some("calm-heron")
            && record.kind == "grant.added"
            && (21..=55).contains(&record.seq)
    });
}

#[test]
fn pages_are_read_one_after_another_without_gaps() {
    let folder = filled();
    for limit in [1, 7, 59, 60, 61] {
        let mut seen = Vec::new();
        loop {
            let after = seen.last().copied().unwrap_or(0);
            let page = read(folder.path(), &Filter { after, limit, ..Filter::default() }).unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            seen.extend(page.iter().map(|record| record.seq));
        }
        assert!(seen.into_iter().eq(1..=RECORDS), "pages of {limit}");
    }
    let none = Filter { limit: 0, ..Filter::default() };
    assert_eq!(read(folder.path(), &none).unwrap(), []);
    let far = Filter { after: u64::MAX, ..Filter::default() };
    assert_eq!(read(folder.path(), &far).unwrap(), []);
}

/// Files that are not needed are garbage here: reading one would be an error.
#[test]
fn files_that_cannot_hold_a_wanted_record_are_not_read() {
    let folder = filled();
    let names: Vec<String> = files(folder.path()).into_keys().collect();
    let start = |name: &str| name.trim_end_matches(".jsonl").parse::<u64>().unwrap();
    let (third, fourth) = (&names[2], &names[3]);
    for name in names.iter().filter(|name| *name != third) {
        folder.write(name, "garbage\n");
    }
    let limit = usize::try_from(start(fourth) - start(third)).unwrap();
    let wanted = Filter { after: start(third) - 1, limit, ..Filter::default() };
    let records = read(folder.path(), &wanted).unwrap();
    assert!(records.iter().map(|record| record.seq).eq(start(third)..start(fourth)));
    let more = Filter { limit: limit + 1, ..wanted.clone() };
    let error = read(folder.path(), &more).unwrap_err();
    let file = folder.path().join(fourth);
    assert!(matches!(error, LedgerError::Broken { file: at, line: 1 } if at == file));
    let fewer = Filter { after: start(third) - 2, ..wanted };
    assert!(read(folder.path(), &fewer).is_err());
}

#[test]
fn a_line_on_its_way_is_not_read() {
    let folder = filled();
    let (name, mut bytes) = files(folder.path()).into_iter().next_back().unwrap();
    bytes.extend_from_slice(b"{\"seq\":61,\"time\":\"2026");
    folder.write(&name, bytes);
    assert_eq!(read(folder.path(), &Filter::default()).unwrap().len(), 60);
}

#[test]
fn a_folder_that_is_not_there_has_no_records() {
    let folder = Folder::new(Person::Root, "audit");
    let nowhere = folder.path().join("nowhere");
    assert_eq!(read(&nowhere, &Filter::default()).unwrap(), []);
    assert_eq!(cowork_audit::verify(&nowhere, None).unwrap().problems, []);
}

#[test]
fn a_table_has_what_the_record_has_and_no_formula() {
    let folder = Folder::new(Person::Root, "audit");
    let mut ledger = open(folder.path());
    let head = ledger.append(&time(1), "=cmd", Some("@x"), &json!({"a": "b, \"c\"\r\nd"})).unwrap();
    let last = ledger.append(&time(2), "plain", None, &json!(-5)).unwrap();
    let mut table = Vec::new();
    assert_eq!(export_csv(folder.path(), &Filter::default(), &mut table).unwrap(), 2);
    let zeros = cowork_audit::GENESIS;
    let expected = format!(
        "seq,time,type,session,data,previous,hash\r\n\
         1,2026-01-01T00:00:01Z,'=cmd,'@x,\"{{\"\"a\"\":\"\"b, \\\"\"c\\\"\"\\r\\nd\"\"}}\",{zeros},{one}\r\n\
         2,2026-01-01T00:00:02Z,plain,,'-5,{one},{two}\r\n",
        one = head.hash,
        two = last.hash,
    );
    assert_eq!(String::from_utf8(table).unwrap(), expected);
}

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_export_that_cannot_be_passed_on_is_an_error() {
    let folder = filled();
    for export in [export_csv, export_jsonl] {
        let error = export(folder.path(), &Filter::default(), &mut Full).unwrap_err();
        assert!(matches!(error, LedgerError::Output { .. }));
    }
}
