//! Who a session is on the host, and whose its files are.

use crate::bench::{
    Room, as_everybody, as_root, as_user, ask, grant, grant_of, new_plan, new_request, plan_of,
    status_of,
};
use cowork_api::keeper::{FailureCode, Grade, LayerState, Reply, Request};
use cowork_api::plan::{Access, Layer, SessionPlan};
use cowork_policy::HostPath;
use cowork_policy::plan::{Home, SessionRequest};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// The four user ids of a process on the host.
fn users(pid: i32) -> Vec<u32> {
    let status = status_of(pid);
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("it runs");
    line.split_whitespace().map(|id| id.parse().expect("a number")).collect()
}

#[test]
fn each_session_of_root_is_a_user_of_its_own() {
    as_root(|bench| {
        let (mut keeper, mut one) = bench.room();
        let other = Room::make(&mut keeper, new_plan());
        let (_third_keeper, third) = bench.room();
        let sleeper = one.start(&["/bin/sleep", "1000"]);
        let all = [&one, &other, &third].map(|room| users(room.status.init));
        for ids in &all {
            assert!((1_900_000_000..1_900_065_536).contains(&ids[0]), "{all:?}");
            assert!(ids.iter().all(|id| *id == ids[0]), "{all:?}");
        }
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
        assert_eq!(users(one.host_pid(sleeper.pid)), all[0]);
    });
}

#[test]
fn a_session_of_a_user_is_that_user_without_any_capability() {
    as_user(|bench| {
        let (_keeper, room) = bench.room();
        assert_eq!(users(room.status.init), [bench.person.uid(); 4]);
        let status = status_of(room.status.init);
        let capabilities: Vec<_> = status.lines().filter(|line| line.starts_with("Cap")).collect();
        assert_eq!(capabilities.len(), 5);
        assert!(capabilities.iter().all(|line| line.ends_with("\t0000000000000000")), "{status}");
    });
}

#[test]
fn files_of_another_user_stay_that_users() {
    as_root(|bench| {
        let folder = bench.folder("project");
        let old = folder.write("old", "old\n");
        for path in [folder.path(), &old] {
            chown(path, Some(12345), Some(12345)).expect("root can");
        }
        let (mut keeper, mut room) = bench.room();
        grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Write))
            .expect("granted");
        let at = room.granted("project");
        let said = room.shell(&format!("stat -c '%u %g' {at}/old; echo new > {at}/new; mkdir {at}/d; echo more >> {at}/old; stat -c %u {at}/new"));
        assert_eq!(said, "1000 1000\n1000\n");
        for name in ["old", "new", "d"] {
            let metadata = std::fs::metadata(folder.path().join(name)).expect("it is there");
            assert_eq!((metadata.uid(), metadata.gid()), (12345, 12345), "{name}");
        }
        assert_eq!(folder.read("old").as_deref(), Some("old\nmore\n"));
    });
}

#[test]
fn files_of_others_in_a_granted_folder_are_nobodys_in_the_session() {
    as_root(|bench| {
        let folder = bench.folder("project");
        chown(folder.path(), Some(12345), Some(12345)).expect("root can");
        let roots = folder.write("roots", "root alone may read this\n");
        std::fs::set_permissions(&roots, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let (mut keeper, mut room) = bench.room();
        grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Write))
            .expect("granted");
        let at = room.granted("project");
        let said = room.shell(&format!("cat {at}/roots 2>&1; stat -c %u {at}/roots"));
        assert!(said.contains("Permission denied") && said.ends_with("\n65534\n"), "{said}");
    });
}

fn plan_with_home(home: &Path) -> SessionPlan {
    let home = Home::Folder(HostPath::new(home).expect("it is a path"));
    plan_of(&SessionRequest { home, ..new_request() })
}

#[test]
fn a_home_on_disk_is_kept_and_is_nobodys_there() {
    as_everybody(|bench| {
        let root = bench.person == cowork_testbed::Person::Root;
        let (first, second) = (bench.folder("first"), bench.folder("second"));
        let mut keeper = bench.keeper();
        {
            let mut room = Room::make(&mut keeper, plan_with_home(first.path()));
            assert_eq!(room.shell("echo kept > ~/file; mkdir ~/d; stat -c %u ~/file"), "1000\n");
        }
        let expected = if root { 65_534 } else { bench.person.uid() };
        let metadata = std::fs::metadata(first.path().join("file")).expect("it was kept");
        assert_eq!(metadata.uid(), expected);
        let mut again = Room::make(&mut keeper, plan_with_home(first.path()));
        assert_eq!(again.shell("cat ~/file; ls -A ~"), "kept\nd\nfile\nmnt\n");
        let mut other = Room::make(&mut keeper, plan_with_home(second.path()));
        let seen = other.shell("ls -A ~; cat /sessions/*/file 2>/dev/null");
        assert_eq!(seen, "mnt\n");
        if root {
            // Not even by its path, were it visible: the folder is open to its owner alone.
            let mode = std::fs::metadata(first.path()).expect("ours").mode() & 0o777;
            assert_eq!(mode, 0o700);
        }
    });
}

#[test]
fn a_home_that_belongs_to_somebody_is_refused_and_not_touched() {
    as_root(|bench| {
        let folder = bench.folder("home");
        folder.write("file", "somebody's");
        let mut keeper = bench.keeper();
        let plan = plan_with_home(folder.path());
        let refused = ask(&mut keeper, Request::Create(Box::new(plan))).expect_err("not empty");
        assert_eq!(refused.code, FailureCode::FolderRefused);
        let metadata = std::fs::metadata(folder.path()).expect("ours");
        assert_eq!(metadata.uid(), 0);
        assert_eq!(folder.read("file").as_deref(), Some("somebody's"));
    });
}

#[test]
fn a_floor_that_is_not_there_makes_no_session_and_leaves_nothing() {
    as_user(|bench| {
        let request = new_request();
        let mut plan = plan_of(&request);
        plan.floor.push(Layer::OwnUser);
        let id = plan.id.clone();
        let mut keeper = bench.keeper();
        let refused =
            ask(&mut keeper, Request::Create(Box::new(plan))).expect_err("below the floor");
        assert_eq!(refused.code, FailureCode::LayerMissing);
        let sentence = format!(
            "the layer `user id of its own` is not in force here, and no session starts without \
             it (runs as user {} of the host)",
            bench.person.uid()
        );
        let fix = "run cowork as root: only root gives sessions user ids of their own";
        assert_eq!((refused.sentence.as_str(), refused.hint.as_str()), (sentence.as_str(), fix));
        let status = ask(&mut keeper, Request::Status { session: id });
        assert_eq!(status.expect_err("there is none").code, FailureCode::NoSession);
        assert_eq!(crate::bench::processes_of(&keeper), Vec::<i32>::new());
        // Its id is free again.
        let mut room = Room::make(&mut keeper, plan_of(&request));
        assert_eq!(room.shell("echo well"), "well\n");
    });
}

#[test]
fn the_floor_of_root_has_a_user_of_its_own() {
    as_root(|bench| {
        let mut plan = new_plan();
        plan.floor.push(Layer::OwnUser);
        let mut keeper = bench.keeper();
        let room = Room::make(&mut keeper, plan);
        let own = room.status.enforcement.iter().find(|entry| entry.layer == Layer::OwnUser);
        assert_eq!(own.map(|entry| entry.state), Some(LayerState::InForce));
    });
}

#[test]
fn landlock_rules_that_were_left_out_are_missed() {
    as_everybody(|bench| {
        let mut plan = new_plan();
        // Without walls the rules for files are not in force, and the floor asks for them.
        plan.walls.clear();
        let mut keeper = bench.keeper();
        let refused =
            ask(&mut keeper, Request::Create(Box::new(plan))).expect_err("below the floor");
        assert_eq!(refused.code, FailureCode::LayerMissing);
        let said = refused.sentence.starts_with("the layer `Landlock: files` is not in force here");
        assert!(said && refused.hint.contains("CONFIG_SECURITY_LANDLOCK"), "{refused:?}");
    });
}

/// What is told of the host is what happens when it is tried.
#[test]
fn the_survey_tells_what_was_tried() {
    as_everybody(|bench| {
        let folder = bench.folder("state");
        let mut keeper = bench.keeper();
        // It need not be there yet.
        let state = folder.path().join("to/be/made").as_os_str().as_bytes().to_vec();
        let Ok(Reply::Surveyed(facts)) = ask(&mut keeper, Request::SurveyFor { state }) else {
            panic!("no survey");
        };
        let grade = |name| facts.iter().find(|fact| fact.name == name).map(|fact| fact.grade);
        let kept = keeper.create(plan_with_home(folder.path())).is_ok();
        let expected = if kept { Grade::Good } else { Grade::Reduced };
        let is_root = bench.person == cowork_testbed::Person::Root;
        assert_eq!(grade("state folder"), is_root.then_some(expected), "{facts:?}");
        let (_keeper, mut room) = bench.nested_room();
        let nests = room.shell("unshare -Ur unshare -Ur true && echo done") == "done\n";
        let expected = if nests { Grade::Good } else { Grade::Reduced };
        assert_eq!(grade("nested sandboxes"), Some(expected), "{facts:?}");
    });
}
