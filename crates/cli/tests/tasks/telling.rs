//! What is told of a task: as it happens, and in the end.

use crate::for_everyone;
use crate::site::{Site, text};
use cowork_client::types::{
    ChangeKind, Page, PlanState, Task, TaskMessage, TaskMessageKind, TaskState,
};
use cowork_testbed::Person;
use serde_json::{Value, json};

for_everyone!(
    ask_prints_the_answer_and_tells_the_rest,
    ask_writes_json,
    messages_come_in_pages_and_events_in_order,
    places_are_told_at_the_start_of_each_task,
    a_task_is_done_in_the_folder_that_it_was_given_in,
    what_was_refused_is_in_the_summary,
    what_comes_of_a_task_is_seen_while_it_runs,
    a_folder_that_is_another_one_is_said_and_can_be_revoked,
);

fn ask_prints_the_answer_and_tells_the_rest(person: Person) {
    let site = Site::new(person);
    let prompt = "think about it\nplan read|write|test\nsay \u{1b}[31mworking\nsay \u{202e}kcab\n\
                  run cat here.txt; pwd\n\
                  write new.txt fresh\nrun false\nsay 42\nanswer 42";
    let said = site.ask(prompt, &[]);
    let err = said.err.clone();
    assert_eq!(said.good(), "42\n");
    for part in ["[x] read\n", "[>] write\n", "[ ] test\n", "> Bash: cat here.txt; pwd\n"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(err.contains("working\n") && !err.contains('\u{1b}'), "{err}");
    assert!(err.contains("kcab\n") && !err.contains('\u{202e}'), "{err}");
    assert!(err.contains("Bash failed"), "{err}");
    assert!(!err.contains("\n42\n"), "the answer is said once: {err}");
    let path = site.desk().join("new.txt");
    assert!(err.contains(&format!("added    {}", text(&path))), "{err}");
    let id = site.only_session();
    assert!(err.contains(&format!("cowork undo {id} --set ")), "{err}");
    assert!(err.contains("80 tokens in (70 cached), 20 out, $0.2500"), "{err}");
    let task = site.task(&id, 1);
    assert_eq!((task.state, task.answer.as_deref()), (TaskState::Done, Some("42")));
    assert_eq!(task.model.as_deref(), Some("script-1"));
    let states: Vec<PlanState> = task.plan.iter().map(|step| step.state).collect();
    assert_eq!(states, [PlanState::Done, PlanState::Active, PlanState::Pending]);
    let summary = task.summary.expect("it is over");
    assert_eq!((summary.tools, summary.failed_tools), (4, 1));
    let changes: Vec<_> =
        summary.changes.iter().map(|change| (change.path.lossy(), change.kind)).collect();
    assert_eq!(changes, [("new.txt".to_owned(), ChangeKind::Added)]);
    assert_eq!((summary.usage.cost_usd, summary.usage.output_tokens), (Some(0.25), 20));
    assert!(summary.unknown.is_empty(), "{:?}", summary.unknown);
    let sets: Vec<String> = summary.sets.iter().map(|set| format!("--set={set}")).collect();
    let undo: Vec<&str> =
        ["undo", &id].into_iter().chain(sets.iter().map(String::as_str)).collect();
    site.say(&undo).good();
    assert_eq!(site.read("new.txt"), None, "the task can be undone as a whole");
    let shown = site.say(&["task", "show", &id, "1"]).good();
    assert!(shown.contains("> Write: new.txt\n") && shown.contains(": done\n"), "{shown}");
    let listed = site.say(&["tasks"]).good();
    assert!(listed.contains("scripted") && listed.contains("think about it"), "{listed}");
    for kind in ["task.created", "task.started", "task.ended"] {
        assert_eq!(site.records(kind).len(), 1, "{kind}");
    }
    let listed = site.say(&["tasks", &id, "--json"]).good();
    let listed: Vec<Task> = serde_json::from_str(&listed).expect("it is JSON");
    assert_eq!(listed.len(), 1);
}

fn ask_writes_json(person: Person) {
    let site = Site::new(person);
    let said = site.ask("say hello\nanswer yes", &["--json"]).good();
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let (last, events) = lines.split_last().expect("there are some");
    let task = Task::deserialize_from(last);
    assert_eq!((task.state, task.answer.as_deref()), (TaskState::Done, Some("yes")));
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    for kind in ["task.state", "task.message", "task.usage"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let ids: Vec<u64> = events.iter().filter_map(|event| event["id"].as_u64()).collect();
    assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
}

trait FromValue {
    fn deserialize_from(value: &Value) -> Self;
}

impl FromValue for Task {
    fn deserialize_from(value: &Value) -> Self {
        serde_json::from_value(value.clone()).expect("it is a task")
    }
}

fn messages_come_in_pages_and_events_in_order(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    let many: Vec<String> = (0..30).map(|number| format!("say number {number}")).collect();
    let task = site.give(&id, &many.join("\n"));
    site.over(&id, task.number);
    let all = site.messages(&id, 1);
    assert_eq!(all[0].kind, TaskMessageKind::User);
    let said: Vec<&str> = all[1..].iter().map(|message| message.text.as_str()).collect();
    let expected: Vec<String> = (0..30).map(|number| format!("number {number}")).collect();
    assert_eq!(said, expected);
    let page: Page<TaskMessage> = site
        .get(format!("/v1/sessions/{id}/tasks/1/messages?after=5&limit=3"))
        .expect("it answers");
    let numbers: Vec<u64> = page.items.iter().map(|message| message.number).collect();
    assert_eq!((numbers, page.next.as_deref()), (vec![6, 7, 8], Some("8")));
    let told: Vec<String> = site
        .events("task.message")
        .iter()
        .map(|event| event.data["message"]["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told[1..], expected);
    let states: Vec<String> = site
        .events("task.state")
        .iter()
        .map(|event| event.data["to"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(states, ["running", "done"]);
}

/// A session that may reach a port of this host, and change all names but one.
fn walled(site: &Site, port: u16) -> String {
    let body = json!({
        "grants": [{ "path": site.desk(), "access": "rw", "name": "desk" }],
        "network": { "rules": [{ "host": format!("host.cowork.internal:{port}") }] },
        "protect": [{ "pattern": "kept", "policy": "deny", "reason": "it is kept" }],
    });
    let session: Value = site.post("/v1/sessions", &body).expect("it can be made");
    session["id"].as_str().expect("it has an id").to_owned()
}

/// A server on this host's loopback that says the same to everybody: its port.
fn server() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            // A client that breaks off is its own affair.
            drop(std::io::Read::read(&mut stream, &mut head));
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nhi\n";
            drop(std::io::Write::write_all(&mut stream, answer));
        }
    });
    port
}

fn what_was_refused_is_in_the_summary(person: Person) {
    let site = Site::new(person);
    let id = walled(&site, 9);
    let prompt = "run curl -s -m 20 http://refused.example/; curl -s http://refused.example/\n\
                  run echo x > free; echo x > kept; echo x > kept\nsleep 0.2";
    let said = site.ask(prompt, &["--session", &id]);
    for part in ["  refused  refused.example:80 (", "  refused  desk/kept (it is kept)\n"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    let summary = site.task(&id, 1).summary.expect("it is over");
    let hosts: Vec<_> =
        summary.refused.iter().map(|one| (one.target.host.as_str(), one.times)).collect();
    assert_eq!(hosts, [("refused.example", 2)]);
    let changes: Vec<_> = summary
        .refused_changes
        .iter()
        .map(|one| (one.grant.as_str(), one.path.lossy(), one.reason.as_str(), one.times))
        .collect();
    assert_eq!(changes, [("desk", "kept".to_owned(), "it is kept", 2)]);
    // The next task is not told what was refused to this one.
    site.ask("run true", &["--session", &id]).good();
    let next = site.task(&id, 2).summary.expect("it is over");
    assert!(next.refused.is_empty() && next.refused_changes.is_empty(), "{next:?}");
}

fn what_comes_of_a_task_is_seen_while_it_runs(person: Person) {
    let site = Site::new(person);
    let port = server();
    let id = walled(&site, port);
    let prompt = format!(
        "write new.txt fresh\nrun echo x > kept; curl -s http://host.cowork.internal:{port}/\n\
         say there\nhear"
    );
    site.give(&id, &prompt);
    site.said(&id, 1, "there");
    let path = format!("/v1/sessions/{id}/tasks/1");
    let so_far = site.until(|| {
        let task: Task = site.get(format!("{path}?so_far=true")).ok()?;
        let summary = task.summary.filter(|_| task.state == TaskState::Running)?;
        let all = !summary.reached.is_empty() && !summary.refused_changes.is_empty();
        all.then_some(summary)
    });
    assert_eq!(so_far.reached[0].host, "host.cowork.internal");
    let changes: Vec<_> =
        so_far.changes.iter().map(|change| (change.path.lossy(), change.kind)).collect();
    assert_eq!(changes, [("new.txt".to_owned(), ChangeKind::Added)]);
    assert_eq!(so_far.refused_changes[0].path.lossy(), "kept");
    // Nobody has to wait for it who does not ask.
    assert_eq!(site.task(&id, 1).summary, None);
    let shown = site.say(&["task", "show", &id]).good();
    for part in ["running\n", "  added    ", "  reached  host.cowork.internal ("] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    site.say(&["task", "steer", &id, "--say", "go on"]).good();
    let over = site.over(&id, 1).summary.expect("it is over");
    assert_eq!((over.changes, over.refused_changes), (so_far.changes, so_far.refused_changes));
}

fn a_folder_that_is_another_one_is_said_and_can_be_revoked(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.ask("run true", &["--session", &id]).good();
    // Somebody puts another folder in its place.
    let (desk, moved) = (site.desk(), site.desk().with_extension("moved"));
    std::fs::rename(&desk, &moved).expect("it is ours");
    std::fs::create_dir(&desk).expect("it is ours");
    std::os::unix::fs::chown(&desk, Some(person.uid()), Some(person.uid())).expect("it is root");
    let refused = site.ask("places", &["--session", &id]);
    assert_eq!(refused.code, 3, "{refused:?}");
    let path = text(&desk);
    for part in [
        format!("`{path}` is no longer the folder that was granted"),
        format!("revoke it with `cowork revoke {id} desk`"),
    ] {
        assert!(refused.err.contains(&part), "{part}: {refused:?}");
    }
    // What is advised helps, and the agent is told that the folder is gone.
    site.say(&["revoke", &id, "desk"]).good();
    let next = site.ask("places\nself", &["--session", &id]);
    for part in
        ["- folders of the user: none\n".to_owned(), format!("- current folder: /sessions/{id}\n")]
    {
        assert!(next.err.contains(&part), "{part}: {next:?}");
    }
    assert_eq!(next.code, 0, "{next:?}");
}

fn a_task_is_done_in_the_folder_that_it_was_given_in(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    let below = site.desk().join("below");
    std::fs::create_dir(&below).expect("it is ours");
    std::os::unix::fs::chown(&below, Some(person.uid()), Some(person.uid())).expect("it is root");
    let words = ["ask", "places\nself\nwrite new.txt x", "--agent", "scripted", "--session", &id];
    let output = site.cowork(&words).current_dir(&below).output().expect("the program is there");
    let said = cowork_testbed::Said::of(&output);
    let at = format!("/sessions/{id}/mnt/desk/below");
    assert!(said.err.contains(&format!("- current folder: {at}\n")), "{}", said.err);
    assert!(said.err.contains(&format!("cwd {at}\n")), "{}", said.err);
    said.good();
    assert_eq!(site.read("below/new.txt").as_deref(), Some("x"));
    // The next one is given in the folder itself: another process, in another place.
    let here = site.ask("self", &["--session", &id]);
    assert!(here.err.contains(&format!("cwd /sessions/{id}/mnt/desk\n")), "{}", here.err);
    // A folder that is none, that is a link, or that was not granted is refused by its name.
    std::os::unix::fs::symlink("/", site.desk().join("link")).expect("it is ours");
    for wrong in ["desk/missing", "desk/here.txt", "desk/link/etc", "desk/../..", "other"] {
        let cwd = format!("/sessions/{id}/mnt/{wrong}");
        let body = json!({ "prompt": "self", "agent": "scripted", "launch": { "cwd": cwd } });
        let task: Task =
            site.post(&format!("/v1/sessions/{id}/tasks"), &body).expect("it is taken");
        let task = site.over(&id, task.number);
        let reason = task.reason.expect("it failed");
        assert_eq!(task.state, TaskState::Failed, "{wrong}: {reason:?}");
        assert!(["no-folder", "bad-path"].contains(&reason.code.as_str()), "{wrong}: {reason:?}");
    }
}

fn places_are_told_at_the_start_of_each_task(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "places\nself");
    site.over(&id, 1);
    let said = site.texts(&id, 1).join("\n");
    let home = format!("/sessions/{id}");
    for part in [
        format!("- workspace: {home}/mnt/desk (you may change it)"),
        format!("- current folder: {home}/mnt/desk"),
        format!("- uploads: {home}/mnt/uploads"),
        format!("- outputs: {home}/mnt/outputs"),
        "- network: none".to_owned(),
        format!("cwd {home}/mnt/desk"),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert!(!said.contains("agent-scripted"), "{said}");
    // Grants change between tasks; what is told is what is.
    let other = site.desk().join("other");
    std::fs::create_dir(&other).expect("it is ours");
    let grant = json!({ "path": other, "access": "ro", "name": "more" });
    let _granted: Value =
        site.post(&format!("/v1/sessions/{id}/grants"), &grant).expect("it is granted");
    site.give(&id, "places");
    site.over(&id, 2);
    let said = site.texts(&id, 2).join("\n");
    assert!(said.contains(&format!("- folder of the user: {home}/mnt/more (read only)")), "{said}");
    let missing = json!({ "prompt": "x", "agent": "scripted", "attachments": ["a.txt"] });
    let refused = site.post::<Task>(&format!("/v1/sessions/{id}/tasks"), &missing);
    let problem = refused.expect_err("there is no such upload");
    assert_eq!(problem.problem().map(|problem| problem.code.as_str()), Some("no-attachment"));
    site.say(&["cp", "here.txt", &format!("{id}:uploads/a.txt")]).good();
    let _task: Task =
        site.post(&format!("/v1/sessions/{id}/tasks"), &missing).expect("it is there now");
    site.over(&id, 3);
}
