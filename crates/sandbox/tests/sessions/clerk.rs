//! Clerks: what was recorded or staged is looked at, undone, redone and applied, while the session
//! runs and after it ended.

use crate::bench::{
    Bench, Room, as_everybody, ask, event, eventually, grant, grant_of, new_plan, state_of,
};
use cowork_api::files::{
    Change, ChangeKind, Choice, Kept, Mark, NamePolicy, NameRule, Order, Place, Report, Restored,
    Rules, Selection, SetInfo, SetKind, Sets, Work,
};
use cowork_api::keeper::{Message, Reply, Request};
use cowork_api::plan::{Access, Door, Writing};
use cowork_journal::record::Record;
use cowork_sandbox::client::{ClientError, Keeper};
use cowork_testbed::Folder;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A session with one folder whose changes are recorded or staged.
pub(crate) struct Scene {
    pub(crate) keeper: Keeper,
    pub(crate) room: Room,
    pub(crate) project: Folder,
    store: Folder,
}

impl Scene {
    pub(crate) fn new(bench: &Bench, access: Access) -> Self {
        Self::with_rules(bench, access, Rules::default())
    }

    pub(crate) fn with_rules(bench: &Bench, access: Access, rules: Rules) -> Self {
        let project = bench.folder("project");
        let store = bench.folder("store");
        project.write("kept", "kept\n");
        project.write("edited", "before\n");
        project.write("removed", "removed\n");
        project.write("folder/inside", "inside\n");
        let mut keeper = bench.keeper();
        let mut plan = new_plan();
        plan.door = Door::Writes;
        let room = Room::make(&mut keeper, plan);
        let mut wanted = grant_of(project.path(), "project", access);
        wanted.writing =
            Some(Writing { store: Some(kept(store.path())), rules, ..Writing::default() });
        grant(&mut keeper, &room, wanted).expect("it is granted");
        Self { keeper, room, project, store }
    }

    /// What a command in the granted folder says.
    pub(crate) fn shell(&mut self, script: &str) -> String {
        let script = format!("cd {} && {{ {script}; }} 2>&1", self.room.granted("project"));
        self.room.shell(&script)
    }

    /// Ends the sets that are open, as at the end of a turn. Whoever has a file open is in another.
    pub(crate) fn boundary(&mut self) {
        let session = self.room.id();
        ask(&mut self.keeper, Request::Boundary { session }).expect("the session is there");
    }

    /// The same at a time when nobody has a file open.
    pub(crate) fn settle(&mut self) {
        self.boundary();
        let store = File::open(self.store.path()).expect("it is ours");
        let is_closed = || {
            let log = cowork_journal::log::read(store.as_fd()).expect("it is ours");
            let count = |wanted: fn(&Record) -> bool| {
                log.entries.iter().filter(|entry| wanted(&entry.record)).count()
            };
            count(|record| matches!(record, Record::Set { .. }))
                == count(|record| *record == Record::Closed)
        };
        assert!(eventually(is_closed), "a set stays open");
    }

    /// Other rules for the folder.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        let (session, grant) = (self.room.id(), "project".to_owned());
        ask(&mut self.keeper, Request::SetRules { session, grant, rules }).expect("it is granted");
    }

    pub(crate) fn tree(&self) -> BTreeMap<PathBuf, String> {
        tree(self.project.path())
    }

    fn order(&mut self, session: Option<String>, work: Work) -> Report {
        order(&mut self.keeper, session, &self.store, work)
    }

    fn restored(&mut self, work: Work) -> Restored {
        let id = self.room.id();
        match self.order(Some(id), work) {
            Report::Restored(restored) => restored,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn undo(&mut self, sets: Sets) -> Restored {
        self.restored(undo(sets))
    }

    pub(crate) fn redo(&mut self) -> Restored {
        self.restored(Work::Redo { choice: Choice::Refuse, rehearsal: false })
    }

    pub(crate) fn sets(&mut self) -> Vec<SetInfo> {
        match self.order(None, Work::Sets) {
            Report::Sets(sets) => sets,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn changes(&mut self) -> Vec<Change> {
        self.changes_of(Sets::All)
    }

    pub(crate) fn changes_of(&mut self, sets: Sets) -> Vec<Change> {
        match self.order(None, Work::Changes(Selection { sets, paths: Vec::new() })) {
            Report::Changes { changes, .. } => changes,
            other => panic!("{other:?}"),
        }
    }
}

fn undo(sets: Sets) -> Work {
    let selection = Selection { sets, paths: Vec::new() };
    Work::Undo { selection, choice: Choice::Refuse, rehearsal: false }
}

pub(crate) fn kept(path: &Path) -> Kept {
    let folder = cowork_sandbox::folder::Folder::open(path).expect("the folder is there");
    Kept { path: folder.path().as_os_str().as_bytes().to_vec(), folder: folder.identity() }
}

fn order(keeper: &mut Keeper, session: Option<String>, store: &Folder, work: Work) -> Report {
    let order =
        Box::new(Order { store: kept(store.path()), work, names: Vec::new(), types: Vec::new() });
    reported(keeper.call(Request::Clerk { session, order }))
}

fn reported(answer: Result<(Reply, Vec<OwnedFd>), ClientError>) -> Report {
    let (reply, handles) = answer.expect("the keeper answers");
    assert_eq!(reply, Reply::Reported);
    let [handle] = <[_; 1]>::try_from(handles).expect("one report");
    let mut file = File::from(handle);
    let mut bytes = Vec::new();
    file.rewind().expect("it is a file");
    file.read_to_end(&mut bytes).expect("it is a file");
    cowork_api::decode(&bytes).expect("it is a report")
}

/// Everything below a folder: mode, owner, time and contents.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).expect("it is ours") {
            let path = entry.expect("it is ours").path();
            let stat = std::fs::symlink_metadata(&path).expect("it is there");
            let time = (stat.mtime(), stat.mtime_nsec());
            let mut text = format!("{:o} {}:{} {time:?}", stat.mode(), stat.uid(), stat.gid());
            if stat.is_dir() {
                waiting.push(path.clone());
            }
            if stat.is_file() {
                text += &std::fs::read_to_string(&path).expect("it is text");
            }
            let below = path.strip_prefix(root).expect("it lies below");
            all.insert(below.to_path_buf(), text);
        }
    }
    all
}

/// What is listed, in short.
fn listed(changes: &[Change]) -> Vec<(String, ChangeKind)> {
    let name = |change: &Change| String::from_utf8_lossy(&change.at.path).into_owned();
    changes.iter().map(|change| (name(change), change.kind.clone())).collect()
}

const WORK: &str = "echo after > edited && rm removed && rm -r folder && mkdir made && \
                    echo new > made/file && mv kept moved && chmod 755 made/file";

#[test]
fn what_a_command_did_is_listed_undone_and_redone_while_the_session_runs() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        let before = scene.tree();
        assert_eq!(scene.shell(WORK), "");
        let after = scene.tree();
        assert_ne!(before, after);

        let sets = scene.sets();
        let [set] = sets.as_slice() else { panic!("{sets:?}") };
        assert_eq!((set.set, &set.kind, set.undone_by), (1, &SetKind::Command, None));
        assert!(set.records >= 7, "{set:?}");
        assert_eq!(set.folders.len(), 1);

        let changes = scene.changes();
        let expected = [
            ("edited", ChangeKind::Modified),
            ("folder", ChangeKind::Deleted),
            ("folder/inside", ChangeKind::Deleted),
            ("made", ChangeKind::Added),
            ("made/file", ChangeKind::Added),
            ("moved", ChangeKind::Renamed { from: b"kept".to_vec(), modified: false }),
            ("removed", ChangeKind::Deleted),
        ];
        assert_eq!(listed(&changes), expected.map(|(name, kind)| (name.to_owned(), kind)));
        let runs = changes.iter().find(|change| change.at.path == b"made/file");
        let runs = runs.expect("it is listed");
        assert!(matches!(runs.marks.as_slice(), [Mark::RunsHere(_)]), "{runs:?}");

        let selection = Selection::default();
        let work = Work::Undo { selection, choice: Choice::Refuse, rehearsal: true };
        let told = scene.restored(work);
        assert!(!told.done.is_empty());
        assert_eq!(scene.tree(), after, "a rehearsal changes nothing");

        let undone = scene.undo(Sets::Last);
        assert_eq!((undone.set, &undone.conflicts, &undone.lost), (Some(2), &vec![], &vec![]));
        assert_eq!(scene.tree(), before);
        assert_eq!(scene.changes(), []);

        let redone = scene.redo();
        assert_eq!((&redone.conflicts, &redone.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), after);

        // The session goes on, with another broker and in a set of its own.
        assert_eq!(scene.shell("echo more > more && cat edited"), "after\n");
        assert_eq!(scene.project.read("more").as_deref(), Some("more\n"));
        let undone = scene.undo(Sets::Last);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), after);
        let undone = scene.undo(Sets::All);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), before);
    });
}

#[test]
fn what_an_ended_session_did_is_undone_by_another_keeper() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        let before = scene.tree();
        assert_eq!(scene.shell(WORK), "");
        assert_eq!(scene.shell("echo again >> edited"), "");
        let Scene { keeper, room, project, store } = scene;
        drop((room, keeper));
        let mut keeper = bench.keeper();
        let report = order(&mut keeper, None, &store, undo(Sets::All));
        let Report::Restored(restored) = report else { panic!("{report:?}") };
        assert_eq!((&restored.conflicts, &restored.lost), (&vec![], &vec![]));
        assert_eq!(tree(project.path()), before);
    });
}

#[test]
fn every_change_is_told_in_order() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        assert_eq!(scene.shell("echo x > new && mv new newer && rm newer && echo y >> edited"), "");
        let all = Work::Mutations { after: 0, most: 100, looked: 0 };
        let Report::Mutations { mutations, left: 0, .. } = scene.order(None, all) else {
            panic!("no mutations")
        };
        let told: Vec<_> = mutations
            .iter()
            .map(|one| (one.operation.as_str(), String::from_utf8_lossy(&one.at.path)))
            .map(|(operation, path)| format!("{operation} {path}"))
            .collect();
        assert_eq!(told, ["create new", "rename new", "remove newer", "write edited"]);
        assert_eq!(mutations[1].to.as_deref(), Some(b"newer".as_slice()));
        assert!(mutations.iter().all(|one| one.set == 1 && one.process > 0 && one.time > 0));
        let some = Work::Mutations { after: mutations[0].seq, most: 2, looked: 0 };
        let Report::Mutations { mutations: page, left, .. } = scene.order(None, some) else {
            panic!("no mutations")
        };
        assert_eq!((page.as_slice(), left), (&mutations[1..3], 1));
    });
}

#[test]
fn each_change_is_told_with_the_program_that_made_it() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        assert_eq!(
            scene.shell("sed -i s/before/after/ edited; rm removed; echo x > new; true"),
            ""
        );
        let work = Work::Programs { after: 0, selection: Some(Selection::default()) };
        let Report::Programs { programs, changed } = scene.order(None, work) else {
            panic!("no programs")
        };
        let program = |place: &u32| {
            let argv = &programs[usize::try_from(*place).expect("it is small")].argv;
            String::from_utf8_lossy(&argv[0]).rsplit('/').next().unwrap_or_default().to_owned()
        };
        let told: Vec<_> = changed
            .iter()
            .map(|(at, by)| (String::from_utf8_lossy(&at.path), by.iter().map(program).collect()))
            .map(|(name, by): (_, Vec<String>)| format!("{name} by {}", by.join(", ")))
            .collect();
        assert_eq!(told, ["edited by sed", "new by sh", "removed by rm"]);
        let Report::Programs { programs: same, changed } =
            scene.order(None, Work::Programs { after: 0, selection: None })
        else {
            panic!("no programs")
        };
        assert_eq!((same, changed), (programs, vec![]));
    });
}

#[test]
fn a_session_stands_still_only_while_something_is_undone() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        let inside = scene.room.granted("project");
        let program = "import sys\nf = open(sys.argv[1] + '/ticks', 'w')\nprint('open')\n\
                       for line in sys.stdin:\n f.write(line); f.flush(); print('written')\n";
        let mut writer = scene.room.python(program, &[&inside]);
        writer.expect("open");
        writer.say("one");
        writer.expect("written");
        let before = scene.tree();
        assert_eq!(scene.shell("echo after > edited"), "");
        let undone = scene.undo(Sets::Last);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), before);
        writer.say("two");
        writer.expect("written");
        assert_eq!(scene.project.read("ticks").as_deref(), Some("one\ntwo\n"));

        // What stood still before stands still afterwards.
        let session = scene.room.id();
        let pid = scene.room.host_pid(writer.pid);
        ask(&mut scene.keeper, Request::Freeze { session: session.clone() }).expect("it freezes");
        scene.redo();
        writer.say("three");
        assert_eq!(writer.says_within(std::time::Duration::from_millis(200)), None);
        ask(&mut scene.keeper, Request::Thaw { session }).expect("it goes on");
        writer.expect("written");
        writer.input = None;
        assert!(eventually(|| state_of(pid).is_none_or(|state| state == 'Z')));
    });
}

#[test]
fn nothing_is_undone_under_a_program_that_waits_for_the_user() {
    as_everybody(|bench| {
        let rule = NameRule {
            pattern: "asked".into(),
            policy: NamePolicy::Ask,
            reason: "it is a test".into(),
        };
        let rules = Rules { names: vec![rule], ..Rules::default() };
        let mut scene = Scene::with_rules(bench, Access::Write, rules);
        assert_eq!(scene.shell("echo after > edited"), "");
        scene.settle();
        let file = format!("{}/asked", scene.room.granted("project"));
        let mut waiting = scene.room.start(&["/usr/bin/touch", &file]);
        let (question, session) = loop {
            if let Message::FileAsked { ask, session } = event(&mut scene.keeper) {
                break (ask, session);
            }
        };
        let order = Box::new(Order {
            store: kept(scene.store.path()),
            work: undo(Sets::All),
            names: Vec::new(),
            types: Vec::new(),
        });
        let request = Request::Clerk { session: Some(session.clone()), order };
        let refused = ask(&mut scene.keeper, request).expect_err("a program waits");
        assert!(refused.sentence.contains("in the middle of a change"), "{refused:?}");
        assert_eq!(scene.project.read("edited").as_deref(), Some("after\n"));

        let answer = Request::AnswerAsk { session, ask: question.ask, allowed: true };
        scene.keeper.post(answer).expect("the keeper hears");
        assert_eq!(waiting.rest(), "");
        assert_eq!(scene.project.read("asked").as_deref(), Some(""));
        let undone = scene.undo(Sets::All);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        assert_eq!(scene.project.read("asked"), None);
        assert_eq!(scene.project.read("edited").as_deref(), Some("before\n"));
    });
}

#[test]
fn a_conflict_is_told_and_decided() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        assert_eq!(scene.shell("echo after > edited && echo new > new"), "");
        scene.settle();
        scene.project.write("edited", "the user's\n");
        let refused = scene.undo(Sets::Last);
        assert_eq!((refused.set, refused.conflicts.len()), (None, 1));
        assert_eq!(scene.project.read("new").as_deref(), Some("new\n"));
        let marked = scene.changes();
        let marked = marked.iter().find(|change| change.at.path == b"edited").expect("listed");
        assert!(marked.marks.contains(&Mark::Conflict), "{marked:?}");
        let selection = Selection { sets: Sets::Last, paths: Vec::new() };
        let both = Work::Undo { selection, choice: Choice::Both, rehearsal: false };
        let restored = scene.restored(both);
        assert_eq!(restored.conflicts.len(), 1);
        assert_eq!(scene.project.read("edited").as_deref(), Some("before\n"));
        assert_eq!(scene.project.read("edited.yours-1").as_deref(), Some("the user's\n"));
        assert_eq!(scene.project.read("new"), None);
    });
}

#[test]
fn a_folder_that_is_another_one_by_now_is_left_alone() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        assert_eq!(scene.shell("echo after > edited"), "");
        let (path, aside) = (scene.project.path().to_path_buf(), bench.folder("aside"));
        let moved = aside.path().join("project");
        drop(scene.room);
        std::fs::rename(&path, &moved).expect("it is ours");
        std::fs::create_dir(&path).expect("it is ours");
        std::fs::write(path.join("edited"), "another\n").expect("it is ours");
        let report = order(&mut scene.keeper, None, &scene.store, undo(Sets::All));
        let Report::Restored(restored) = report else { panic!("{report:?}") };
        assert!(
            restored.lost.iter().any(|(_, why)| why.contains("no longer the folder")),
            "{restored:?}"
        );
        assert_eq!(std::fs::read_to_string(path.join("edited")).expect("there"), "another\n");
        let work = Work::Changes(Selection::default());
        let report = order(&mut scene.keeper, None, &scene.store, work);
        let Report::Changes { changes, .. } = report else { panic!("{report:?}") };
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(change.at.path, b"edited");
        assert!(change.marks.iter().any(|mark| matches!(mark, Mark::NotUndoable(_))));

        let wrong = Kept { path: kept(scene.store.path()).path, folder: kept(&path).folder };
        let wrong = Box::new(Order {
            store: wrong,
            work: Work::Sets,
            names: Vec::new(),
            types: Vec::new(),
        });
        let answer = scene.keeper.call(Request::Clerk { session: None, order: wrong });
        let Report::Failed { sentence, .. } = reported(answer) else { panic!("it was read") };
        assert!(sentence.contains("no longer the folder"), "{sentence}");
    });
}

#[test]
fn staged_changes_are_listed_applied_and_taken_back() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Staged);
        let before = scene.tree();
        assert_eq!(scene.shell(WORK.replace("mv kept moved", "cp -p kept moved").as_str()), "");
        assert_eq!(scene.tree(), before, "nothing reaches the folder");
        let changes = scene.changes();
        let expected = [
            ("edited", ChangeKind::Modified),
            ("folder", ChangeKind::Deleted),
            ("folder/inside", ChangeKind::Deleted),
            ("made", ChangeKind::Added),
            ("made/file", ChangeKind::Added),
            ("moved", ChangeKind::Added),
            ("removed", ChangeKind::Deleted),
        ];
        assert_eq!(listed(&changes), expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert!(changes.iter().all(|change| change.sets == [0]));

        let some = vec![Place { grant: "project".into(), path: b"made/file".to_vec() }];
        let apply = |paths| Work::Apply { paths, choice: Choice::Refuse, rehearsal: false };
        let restored = scene.restored(apply(some));
        assert_eq!((&restored.conflicts, &restored.lost), (&vec![], &vec![]));
        assert_eq!(scene.project.read("made/file").as_deref(), Some("new\n"));
        assert_eq!(scene.project.read("edited").as_deref(), Some("before\n"));
        let owner = std::fs::metadata(scene.project.path()).expect("there");
        let made = std::fs::metadata(scene.project.path().join("made/file")).expect("there");
        assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()));

        let restored = scene.restored(apply(Vec::new()));
        assert_eq!((&restored.conflicts, &restored.lost), (&vec![], &vec![]));
        assert_eq!(scene.project.read("edited").as_deref(), Some("after\n"));
        assert_eq!(scene.project.read("folder/inside"), None);
        let left: Vec<_> =
            scene.changes().into_iter().filter(|change| change.sets == [0]).collect();
        assert_eq!(left, []);

        // The session goes on, and what it stages next is no conflict.
        assert_eq!(scene.shell("echo later > edited && cat edited"), "later\n");
        let restored = scene.restored(apply(Vec::new()));
        assert_eq!((&restored.conflicts, &restored.lost), (&vec![], &vec![]));
        assert_eq!(scene.project.read("edited").as_deref(), Some("later\n"));

        let undone = scene.undo(Sets::All);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), before);
    });
}
