//! What was put is what is read: by its name, in its order, in pages, after a restart.

use crate::support::{Place, fill};
use cowork_session::catalogue::{
    Call, Catalogue, CatalogueError, EventFilter, EventRow, Remembered, Requests, Standing,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

const ALL: u32 = u32::MAX;

/// Checks the claim on a catalogue, and again after it was closed and opened.
fn check(fill: impl Fn(&Catalogue), claim: impl Fn(&Catalogue)) {
    let place = Place::new();
    let catalogue = place.open();
    fill(&catalogue);
    claim(&catalogue);
    drop(catalogue);
    claim(&place.open());
}

fn owned<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.into_iter().map(|(id, doc)| (id.to_owned(), doc.to_owned())).collect()
}

#[test]
fn sessions_are_in_the_order_in_which_they_were_made() {
    check(
        |catalogue| {
            for id in ["zeal", "apple", "middle"] {
                catalogue.put_session(id, "first").unwrap();
            }
            catalogue.put_session("zeal", "second").unwrap();
            catalogue.put_session("gone", "first").unwrap();
            catalogue.remove_session("gone").unwrap();
            catalogue.remove_session("never there").unwrap();
        },
        |catalogue| {
            let expected = owned([("zeal", "second"), ("apple", "first"), ("middle", "first")]);
            assert_eq!(catalogue.sessions().unwrap(), expected);
            assert_eq!(catalogue.session("zeal").unwrap().as_deref(), Some("second"));
            assert_eq!(catalogue.session("gone").unwrap(), None);
        },
    );
}

#[test]
fn documents_are_text_of_any_kind() {
    let texts = ["", "{}", "é \u{1F980} \" ' -- ; DROP TABLE session", "a\0b", "\u{1b}[0m\r\n"];
    check(
        |catalogue| texts.iter().for_each(|text| catalogue.put_session(text, text).unwrap()),
        |catalogue| {
            for text in texts {
                assert_eq!(catalogue.session(text).unwrap().as_deref(), Some(text));
            }
        },
    );
    let large = "x".repeat(3_000_000);
    check(
        |catalogue| catalogue.put_session("large", &large).unwrap(),
        |catalogue| assert!(catalogue.session("large").unwrap().as_ref() == Some(&large)),
    );
}

#[test]
fn commands_are_counted_for_each_session() {
    check(
        |catalogue| {
            catalogue.put_session("a", "").unwrap();
            catalogue.put_session("b", "").unwrap();
            for number in [3, 1, 2, 10, u32::MAX] {
                catalogue.put_command("a", number, &number.to_string()).unwrap();
            }
            catalogue.put_command("a", 2, "two").unwrap();
            catalogue.put_command("b", 7, "seven").unwrap();
        },
        |catalogue| {
            let numbers = |after, limit| {
                let commands = catalogue.commands("a", after, limit).unwrap();
                commands.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
            };
            assert_eq!(numbers(0, ALL), [1, 2, 3, 10, u32::MAX]);
            assert_eq!(numbers(0, 2), [1, 2]);
            assert_eq!(numbers(2, 2), [3, 10]);
            assert_eq!(numbers(0, 0), [0; 0]);
            assert_eq!(numbers(u32::MAX, ALL), [0; 0]);
            assert_eq!(catalogue.command("a", 2).unwrap().as_deref(), Some("two"));
            assert_eq!(catalogue.command("a", 7).unwrap(), None);
            assert_eq!(catalogue.last_command("a").unwrap(), u32::MAX);
            assert_eq!(catalogue.last_command("b").unwrap(), 7);
            assert_eq!(catalogue.last_command("none").unwrap(), 0);
        },
    );
}

/// Adds a request with a number of its own.
fn add_request(catalogue: &Catalogue, session: &str) -> u64 {
    let id = catalogue.number_request().unwrap();
    catalogue.add_request(id, session, &format!("request {id}")).unwrap();
    id
}

#[test]
fn requests_have_numbers_that_are_never_given_again() {
    check(
        |catalogue| {
            for session in ["a", "b"] {
                catalogue.put_session(session, "").unwrap();
                for _ in 0..3 {
                    add_request(catalogue, session);
                }
            }
            catalogue.put_request(2, Standing::Decided, "answered").unwrap();
            for standing in [Standing::Decided, Standing::Pending] {
                let error = catalogue.put_request(2, standing, "otherwise").unwrap_err();
                assert!(matches!(error, CatalogueError::NoRequest { id: 2 }), "{error:?}");
            }
            catalogue.put_request(5, Standing::Pending, "changed").unwrap();
            catalogue.put_session("c", "").unwrap();
            assert_eq!(add_request(catalogue, "c"), 7);
            catalogue.remove_session("c").unwrap();
            // Nor is one that came to nothing.
            assert_eq!(catalogue.number_request().unwrap(), 8);
            assert_eq!(add_request(catalogue, "a"), 9);
        },
        |catalogue| {
            let numbers = |wanted, session, after, limit| {
                let requests = catalogue.requests(wanted, session, after, limit).unwrap();
                requests.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
            };
            assert_eq!(numbers(Requests::All, None, 0, ALL), [1, 2, 3, 4, 5, 6, 9]);
            assert_eq!(numbers(Requests::Pending, None, 0, ALL), [1, 3, 4, 5, 6, 9]);
            assert_eq!(numbers(Requests::All, Some("a"), 0, ALL), [1, 2, 3, 9]);
            assert_eq!(numbers(Requests::Pending, Some("a"), 1, ALL), [3, 9]);
            assert_eq!(numbers(Requests::All, None, 2, 3), [3, 4, 5]);
            assert_eq!(numbers(Requests::All, None, u64::MAX, ALL), [0; 0]);
            assert_eq!(catalogue.request(1).unwrap().as_deref(), Some("request 1"));
            assert_eq!(catalogue.request(2).unwrap().as_deref(), Some("answered"));
            assert_eq!(catalogue.request(5).unwrap().as_deref(), Some("changed"));
            assert_eq!(catalogue.request(7).unwrap(), None);
            assert_eq!(catalogue.count_pending("a").unwrap(), 3);
            assert_eq!(catalogue.count_pending("b").unwrap(), 3);
            assert_eq!(catalogue.count_pending("c").unwrap(), 0);
        },
    );
}

#[test]
fn a_session_takes_its_commands_and_requests_along_but_not_its_events() {
    check(
        |catalogue| {
            fill(catalogue);
            catalogue.remove_session("calm-heron").unwrap();
        },
        |catalogue| {
            assert_eq!(catalogue.commands("calm-heron", 0, ALL).unwrap(), []);
            assert_eq!(catalogue.requests(Requests::All, Some("calm-heron"), 0, ALL).unwrap(), []);
            assert_eq!(catalogue.commands("zealous-otter", 0, ALL).unwrap().len(), 40);
            let about = EventFilter { session: Some("calm-heron".into()), kind: None };
            assert_eq!(catalogue.events(0, &about, ALL).unwrap().len(), 40);
        },
    );
}

#[test]
fn tasks_are_counted_for_each_session_and_messages_for_each_task() {
    check(
        |catalogue| {
            for session in ["a", "b", "gone"] {
                catalogue.put_session(session, "").unwrap();
                for task in 1..=3 {
                    catalogue.put_task(session, task, "first").unwrap();
                    for number in [2, 1, 3, 10] {
                        let doc = format!("{session} {task} {number}");
                        catalogue.put_message(session, task, number, &doc).unwrap();
                    }
                }
            }
            catalogue.put_task("a", 2, "second").unwrap();
            catalogue.put_message("a", 2, 10, "again").unwrap();
            catalogue.trim_messages("a", 2, 1).unwrap();
            catalogue.remove_task("b", 1).unwrap();
            catalogue.remove_task("b", 9).unwrap();
            catalogue.remove_session("gone").unwrap();
        },
        |catalogue| {
            assert_eq!(catalogue.task("a", 2).unwrap().as_deref(), Some("second"));
            assert_eq!(catalogue.task("a", 4).unwrap(), None);
            let tasks = |session, after, limit| -> Vec<u32> {
                let tasks = catalogue.tasks(session, after, limit).unwrap();
                tasks.into_iter().map(|(number, _)| number).collect()
            };
            assert_eq!(tasks("a", 0, ALL), [1, 2, 3]);
            assert_eq!(tasks("a", 1, 1), [2]);
            assert_eq!(tasks("b", 0, ALL), [2, 3]);
            assert_eq!(tasks("gone", 0, ALL), [0; 0]);
            assert_eq!(
                (catalogue.last_task("b").unwrap(), catalogue.last_task("c").unwrap()),
                (3, 0)
            );
            let messages = |session, task, after, limit| {
                catalogue.messages(session, task, after, limit).unwrap()
            };
            let said = |number, doc: &str| (number, doc.to_owned());
            let kept = [said(2, "a 2 2"), said(3, "a 2 3"), said(10, "again")];
            assert_eq!(messages("a", 2, 0, ALL), kept, "putting a task again keeps its messages");
            assert_eq!(messages("a", 2, 2, 1), [said(3, "a 2 3")]);
            assert_eq!(messages("b", 1, 0, ALL), [], "they go with their task");
            assert_eq!(messages("gone", 1, 0, ALL), [], "and with their session");
        },
    );
    let place = Place::new();
    let catalogue = place.open();
    assert!(catalogue.put_task("none", 1, "").is_err());
    catalogue.put_session("a", "").unwrap();
    assert!(catalogue.put_message("a", 1, 1, "").is_err());
}

#[test]
fn nothing_belongs_to_a_session_that_is_not_there() {
    let place = Place::new();
    let catalogue = place.open();
    let error = catalogue.put_command("none", 1, "").unwrap_err();
    assert!(matches!(error, CatalogueError::NoSession { .. }), "{error:?}");
    assert_eq!(error.to_string(), "cannot put a command: its session is not in the catalogue");
    let error = catalogue.add_request(1, "none", "").unwrap_err();
    assert!(matches!(error, CatalogueError::NoSession { .. }), "{error:?}");
    let error = catalogue.put_request(9, Standing::Decided, "").unwrap_err();
    assert_eq!(error.to_string(), "no request 9 waits for an answer in the catalogue");
    catalogue.put_session("a", "").unwrap();
    assert_eq!(add_request(&catalogue, "a"), 1);
}

fn event(id: u64, kind: &str, session: Option<&str>) -> EventRow {
    EventRow {
        id,
        time: format!("time {id}"),
        kind: kind.to_owned(),
        session: session.map(ToOwned::to_owned),
        data: format!("data {id}"),
    }
}

#[test]
fn events_are_numbered_without_gaps_and_found_by_what_they_are_about() {
    let rows = [
        event(1, "session.state", Some("a")),
        event(2, "grant.added", Some("b")),
        event(3, "grant", Some("a")),
        event(4, "grants.added", None),
        event(5, "grant.revoked", Some("a")),
        event(6, "grant/added", Some("a")),
    ];
    check(
        |catalogue| {
            for row in &rows {
                let EventRow { id, time, kind, session, data } = row;
                let added = catalogue.add_event(time, kind, session.as_deref(), data).unwrap();
                assert_eq!(added, *id);
            }
        },
        |catalogue| {
            let numbers = |session: Option<&str>, kind: Option<&str>, after, limit| {
                let (session, kind) = (session.map(Into::into), kind.map(Into::into));
                let found = catalogue.events(after, &EventFilter { session, kind }, limit).unwrap();
                found.into_iter().map(|row| row.id).collect::<Vec<_>>()
            };
            assert_eq!(catalogue.events(0, &EventFilter::default(), ALL).unwrap(), rows);
            assert_eq!(numbers(None, None, 2, 3), [3, 4, 5]);
            assert_eq!(numbers(Some("a"), None, 0, ALL), [1, 3, 5, 6]);
            assert_eq!(numbers(None, Some("grant"), 0, ALL), [2, 3, 5]);
            assert_eq!(numbers(Some("a"), Some("grant"), 0, ALL), [3, 5]);
            assert_eq!(numbers(Some("a"), Some("grant"), 3, 1), [5]);
            assert_eq!(numbers(None, Some("gran_"), 0, ALL), [0; 0]);
            assert_eq!(catalogue.event_range().unwrap(), (1, 6));
        },
    );
}

#[test]
fn old_events_are_dropped_and_their_numbers_are_not_given_again() {
    let place = Place::new();
    let catalogue = place.open();
    assert_eq!(catalogue.event_range().unwrap(), (1, 0));
    let add = |catalogue: &Catalogue| catalogue.add_event("", "", None, "").unwrap();
    (1..=10).for_each(|id| assert_eq!(add(&catalogue), id));
    catalogue.trim_events(20).unwrap();
    assert_eq!(catalogue.event_range().unwrap(), (1, 10));
    catalogue.trim_events(4).unwrap();
    assert_eq!(catalogue.event_range().unwrap(), (7, 10));
    let kept = catalogue.events(0, &EventFilter::default(), ALL).unwrap();
    assert!(kept.into_iter().map(|row| row.id).eq(7..=10));
    catalogue.trim_events(0).unwrap();
    assert_eq!(catalogue.event_range().unwrap(), (11, 10));
    drop(catalogue);
    let catalogue = place.open();
    assert_eq!(catalogue.event_range().unwrap(), (11, 10));
    assert_eq!(add(&catalogue), 11);
    assert_eq!(catalogue.event_range().unwrap(), (11, 11));
}

#[test]
fn answers_are_remembered_until_they_are_old() {
    let answer = |at: &str| Remembered {
        fingerprint: format!("asked {at}"),
        status: 201,
        body: "{\"é\":1}".to_owned(),
        at: at.to_owned(),
    };
    check(
        |catalogue| {
            for at in ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"] {
                catalogue.remember(at, &answer("replaced")).unwrap();
                catalogue.remember(at, &answer(at)).unwrap();
            }
            catalogue.forget_before("2026-01-02T00:00:00Z").unwrap();
        },
        |catalogue| {
            assert_eq!(catalogue.recall("2026-01-01T00:00:00Z").unwrap(), None);
            for at in ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"] {
                assert_eq!(catalogue.recall(at).unwrap(), Some(answer(at)));
            }
        },
    );
}

#[test]
fn values_are_set_by_name() {
    check(
        |catalogue| {
            catalogue.set("head", "1").unwrap();
            catalogue.set("head", "2").unwrap();
            catalogue.set("other", "").unwrap();
        },
        |catalogue| {
            assert_eq!(catalogue.get("head").unwrap().as_deref(), Some("2"));
            assert_eq!(catalogue.get("other").unwrap().as_deref(), Some(""));
            assert_eq!(catalogue.get("none").unwrap(), None);
        },
    );
}

#[test]
fn what_is_written_together_is_there_as_a_whole() {
    check(
        |catalogue| {
            let id = catalogue
                .together(|all| {
                    all.put_session("a", "{}")?;
                    all.put_command("a", 1, "{}")?;
                    assert_eq!(all.last_command("a")?, 1, "it sees what it wrote");
                    all.add_event("", "session.made", Some("a"), "")
                })
                .unwrap();
            assert_eq!(id, 1);
        },
        |catalogue| {
            assert_eq!(catalogue.last_command("a").unwrap(), 1);
            assert_eq!(catalogue.event_range().unwrap(), (1, 1));
        },
    );
}

#[test]
fn what_fails_together_leaves_nothing_behind() {
    check(
        |catalogue| {
            catalogue.put_session("before", "").unwrap();
            let error = catalogue.together(|all| {
                all.put_session("a", "")?;
                all.remove_session("before")?;
                all.add_event("", "", None, "")?;
                all.put_command("none", 1, "")
            });
            assert!(matches!(error, Err(CatalogueError::NoSession { .. })));
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                catalogue.together(|all| {
                    all.put_session("a", "").unwrap();
                    panic!("in the middle of it")
                })
            }));
            let panicked: Result<Result<(), CatalogueError>, _> = panicked;
            assert!(panicked.is_err());
            let undecided = catalogue.together(|all| {
                all.add_request(1, "before", "")?;
                Err::<(), _>(CatalogueError::NoRequest { id: 0 })
            });
            assert!(undecided.is_err());
        },
        |catalogue| {
            let sessions: Vec<String> =
                catalogue.sessions().unwrap().into_iter().map(|(id, _)| id).collect();
            assert_eq!(sessions, ["before"]);
            assert_eq!(catalogue.event_range().unwrap(), (1, 0));
            assert_eq!(catalogue.count_pending("before").unwrap(), 0);
        },
    );
    let place = Place::new();
    let catalogue = place.open();
    drop(catalogue.together(|all| {
        all.add_event("", "", None, "")?;
        Err::<(), _>(CatalogueError::NoRequest { id: 0 })
    }));
    assert_eq!(catalogue.add_event("", "", None, "").unwrap(), 1, "no number was used up");
}

#[test]
fn many_threads_use_one_catalogue() {
    let place = Place::new();
    let catalogue = place.open();
    catalogue.put_session("a", "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let catalogue = &catalogue;
            scope.spawn(move || {
                for number in 0..100 {
                    catalogue.add_event("", "", Some("a"), "").unwrap();
                    catalogue
                        .together(|all| {
                            all.put_command("a", thread * 100 + number, "")?;
                            all.add_event("", "", None, "")
                        })
                        .unwrap();
                    catalogue.events(0, &EventFilter::default(), 10).unwrap();
                }
            });
        }
    });
    assert_eq!(catalogue.event_range().unwrap(), (1, 800));
    let events = catalogue.events(0, &EventFilter::default(), ALL).unwrap();
    assert!(events.into_iter().map(|row| row.id).eq(1..=800));
    assert_eq!(catalogue.commands("a", 0, ALL).unwrap().len(), 399);
}

#[test]
fn a_call_is_known_with_what_it_made_as_long_as_that_is_there() {
    let call = |kind: Option<&str>, session: Option<&str>, number| Call {
        fingerprint: "print".into(),
        kind: kind.map(ToOwned::to_owned),
        session: session.map(ToOwned::to_owned),
        number,
    };
    check(
        |catalogue| {
            for session in ["kept", "gone", "never"] {
                catalogue.put_session(session, "").unwrap();
            }
            for key in ["new", "begun", "made", "number", "gone", "never", "dropped"] {
                catalogue.put_attempt(key, "print", "2026-01-02").unwrap();
            }
            catalogue.put_attempt("old", "print", "2026-01-01").unwrap();
            for kind in ["first", "second"] {
                catalogue.begin_attempt("begun", kind).unwrap();
                catalogue.begin_attempt("made", kind).unwrap();
            }
            catalogue.bind_attempt("made", "session", Some("kept"), None).unwrap();
            catalogue.bind_attempt("number", "command", Some("kept"), Some(7)).unwrap();
            catalogue.bind_attempt("gone", "session", Some("gone"), None).unwrap();
            catalogue.bind_attempt("never", "session", Some("never"), None).unwrap();
            assert!(catalogue.bind_attempt("new", "session", Some("none"), None).is_err());
            catalogue.remove_session("gone").unwrap();
            catalogue.drop_attempts_of("never").unwrap();
            catalogue.drop_attempt("dropped").unwrap();
            catalogue.forget_before("2026-01-02").unwrap();
        },
        |catalogue| {
            let known = |key| catalogue.attempt(key).unwrap();
            assert_eq!(known("new"), Some(call(None, None, None)));
            assert_eq!(known("begun"), Some(call(Some("first"), None, None)));
            assert_eq!(known("made"), Some(call(Some("session"), Some("kept"), None)));
            assert_eq!(known("number"), Some(call(Some("command"), Some("kept"), Some(7))));
            assert_eq!(known("gone"), Some(call(Some("session"), None, None)));
            for key in ["never", "dropped", "old", "unknown"] {
                assert_eq!(known(key), None, "{key}");
            }
        },
    );
}
