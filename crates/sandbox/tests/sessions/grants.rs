//! Making a folder visible in a running session.

use crate::bench::{
    Room, as_everybody, as_everybody_apart, grant, grant_of, new_plan, new_request, plan_of,
};
use cowork_api::keeper::{FailureCode, Reply};
use cowork_api::plan::{Access, Grant, Identity, RootStep};
use cowork_policy::HostPath;
use cowork_policy::plan::Home;
use cowork_testbed::Person;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_granted_folder_appears_in_a_running_session() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let at = room.granted("project");
        // Somebody who runs since before the grant sees it too.
        let mut waiting = room.start(&["/bin/sh", "-c", &format!("read x; cat {at}/file")]);
        let folder = bench.folder("project");
        folder.write("file", "granted\n");
        let granted = grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Read));
        assert_eq!(granted, Ok(Reply::Granted { submounts: Vec::new() }));
        waiting.say("now");
        assert_eq!(waiting.rest(), "granted\n");
    });
}

/// The first session of another root has the keeper build that beside the hub.
#[test]
fn folders_stay_while_sessions_with_another_root_are_made() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let folder = bench.folder("project");
        folder.write("file", "granted\n");
        grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Read))
            .expect("granted");
        let mut plan = new_plan();
        plan.root.push(RootStep::Folder { at: b"/other".into(), mode: 0o755 });
        let mut other = Room::make(&mut keeper, plan);
        assert_eq!(other.shell("ls -d /other"), "/other\n");
        let at = room.granted("project");
        assert_eq!(room.shell(&format!("cat {at}/file")), "granted\n");
    });
}

#[test]
fn a_folder_granted_to_read_cannot_be_changed_by_any_means() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let folder = bench.folder("project");
        folder.write("file", "as it was\n");
        grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Read))
            .expect("granted");
        let at = room.granted("project");
        let said = room.shell(&format!(
            "cat {at}/file; for try in 'echo x > {at}/file' 'rm -f {at}/file' 'touch {at}/new' \
             'mkdir {at}/d' 'mv {at}/file {at}/g' 'chmod 777 {at}/file' 'ln {at}/file {at}/h' \
             'truncate -s 0 {at}/file' 'mv {at} {at}2' 'rmdir {at}'; do \
             sh -c \"$try\" 2>/dev/null && echo \"done: $try\"; done; true"
        ));
        assert_eq!(said, "as it was\n");
        assert_eq!(folder.read("file").as_deref(), Some("as it was\n"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 1);
    });
}

#[test]
fn a_folder_granted_to_write_can_be_changed() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let folder = bench.folder("project");
        folder.write("old", "old\n");
        grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Write))
            .expect("granted");
        let at = room.granted("project");
        room.shell(&format!("echo new > {at}/new; echo more >> {at}/old; mkdir -p {at}/a/b"));
        assert_eq!(folder.read("new").as_deref(), Some("new\n"));
        assert_eq!(folder.read("old").as_deref(), Some("old\nmore\n"));
        let made = std::fs::metadata(folder.path().join("a/b")).expect("it was made");
        assert_eq!(made.uid(), bench.person.uid());
    });
}

#[test]
fn a_name_in_use_is_refused_and_what_has_it_stays() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let (first, second) = (bench.folder("first"), bench.folder("second"));
        first.write("which", "first\n");
        second.write("which", "second\n");
        grant(&mut keeper, &room, grant_of(first.path(), "project", Access::Read))
            .expect("granted");
        let again = grant(&mut keeper, &room, grant_of(second.path(), "project", Access::Read));
        assert_eq!(again.expect_err("the name is in use").code, FailureCode::GrantExists);
        let at = room.granted("project");
        assert_eq!(room.shell(&format!("cat {at}/which")), "first\n");
    });
}

#[test]
fn names_that_are_no_names_are_refused() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let folder = bench.folder("project");
        let long = "n".repeat(300);
        for name in ["", ".", "..", "a/b", "/", "../outputs", "a\0b", &long] {
            let refused = grant(&mut keeper, &room, grant_of(folder.path(), name, Access::Read));
            refused.expect_err("it is no name");
        }
        let listed = room.shell(&format!("ls -A {}", room.granted("")));
        assert_eq!(listed, "outputs\nskills\nuploads\n");
    });
}

#[test]
fn a_folder_replaced_after_it_was_named_is_not_granted() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let parent = bench.folder("parent");
        parent.write("project/which", "the one that was meant\n");
        parent.write("decoy/which", "another\n");
        let meant = parent.path().join("project");
        let named = grant_of(&meant, "project", Access::Read);
        std::fs::rename(&meant, parent.path().join("away")).expect("ours");
        let gone = grant(&mut keeper, &room, named.clone());
        assert_eq!(gone.expect_err("it is gone").code, FailureCode::FolderChanged);
        std::fs::rename(parent.path().join("decoy"), &meant).expect("ours");
        let replaced = grant(&mut keeper, &room, named.clone());
        assert_eq!(replaced.expect_err("it is another").code, FailureCode::FolderChanged);
        std::fs::rename(&meant, parent.path().join("decoy")).expect("ours");
        std::os::unix::fs::symlink("away", &meant).expect("ours");
        let linked = grant(&mut keeper, &room, named.clone());
        assert_eq!(linked.expect_err("it is a link").code, FailureCode::FolderChanged);
        std::fs::remove_file(&meant).expect("ours");
        std::fs::write(&meant, "a file").expect("ours");
        let file = grant(&mut keeper, &room, named.clone());
        assert_eq!(file.expect_err("it is a file").code, FailureCode::FolderChanged);
        std::fs::remove_file(&meant).expect("ours");
        std::fs::rename(parent.path().join("away"), &meant).expect("ours");
        grant(&mut keeper, &room, named).expect("it is the one again");
        let at = room.granted("project");
        assert_eq!(room.shell(&format!("cat {at}/which")), "the one that was meant\n");
    });
}

#[test]
fn a_link_anywhere_in_the_path_is_not_followed() {
    as_everybody(|bench| {
        let (mut keeper, room) = bench.room();
        let parent = bench.folder("parent");
        parent.write("real/project/file", "");
        std::os::unix::fs::symlink("real", parent.path().join("link")).expect("ours");
        let mut wanted = grant_of(&parent.path().join("real/project"), "project", Access::Read);
        wanted.path = parent.path().join("link/project").as_os_str().as_bytes().to_vec();
        let refused = grant(&mut keeper, &room, wanted).expect_err("there is a link in it");
        assert_eq!(refused.code, FailureCode::FolderChanged);
    });
}

#[test]
fn a_file_is_not_granted_even_by_its_identity() {
    as_everybody(|bench| {
        let (mut keeper, room) = bench.room();
        let folder = bench.folder("project");
        let file = folder.write("file", "");
        let metadata = std::fs::metadata(&file).expect("ours");
        let wanted = Grant {
            name: "file".into(),
            path: file.as_os_str().as_bytes().to_vec(),
            folder: Identity { device: metadata.dev(), inode: metadata.ino() },
            access: Access::Read,
            writing: None,
        };
        let refused = grant(&mut keeper, &room, wanted).expect_err("it is a file");
        assert_eq!(refused.code, FailureCode::FolderChanged);
    });
}

#[test]
fn a_folder_that_the_person_cannot_reach_is_not_granted() {
    crate::bench::as_user(|bench| {
        let (mut keeper, room) = bench.room();
        let wanted = Grant {
            name: "secrets".into(),
            path: b"/root/anything".to_vec(),
            folder: Identity { device: 1, inode: 1 },
            access: Access::Read,
            writing: None,
        };
        grant(&mut keeper, &room, wanted).expect_err("it is closed to users");
    });
}

#[test]
fn mounts_inside_a_folder_come_along_and_are_reported() {
    as_everybody_apart(|bench| {
        let inside = bench.submounted().join("inside");
        let (mut keeper, mut room) = bench.room();
        let wanted = grant_of(bench.submounted(), "project", Access::Read);
        let granted = grant(&mut keeper, &room, wanted);
        let submounts = vec![inside.as_os_str().as_bytes().to_vec()];
        assert_eq!(granted, Ok(Reply::Granted { submounts }));
        let at = room.granted("project");
        assert_eq!(room.shell(&format!("cat {at}/inside/secret")), "mounted inside\n");
        let refused = room.shell(&format!("touch {at}/inside/new 2>&1"));
        assert!(refused.contains("Read-only"), "{refused}");
    });
}

/// What a granted folder would show of the host is refused however the folder is granted.
#[test]
fn interfaces_of_the_kernel_inside_a_folder_are_refused() {
    as_everybody_apart(|bench| {
        let (mut keeper, mut room) = bench.room();
        let image = bench.image();
        for (folder, point, kind) in [
            (image.to_path_buf(), image.join("proc"), "proc"),
            (image.join("deep"), image.join("deep/sys"), "sysfs"),
        ] {
            for access in [Access::Read, Access::Write, Access::Direct] {
                let refused = grant(&mut keeper, &room, grant_of(&folder, "image", access));
                let refused = refused.expect_err("it shows the host");
                assert_eq!(refused.code, FailureCode::FolderRefused);
                let said = format!(
                    "`{}`, which is mounted inside `{}`, is an interface of the kernel ({kind}), not a \
                     folder of files",
                    point.display(),
                    folder.display()
                );
                assert_eq!(refused.sentence, said);
                assert_eq!(refused.hint, "unmount it, or grant a folder that it is not in");
            }
        }
        let within = grant(&mut keeper, &room, grant_of(&image.join("proc"), "proc", Access::Read));
        let said = within.expect_err("it is the host's").sentence;
        assert!(
            said.ends_with("is an interface of the kernel (proc), not a folder of files"),
            "{said}"
        );
        let listed = room.shell(&format!("ls -A {}", room.granted("")));
        assert_eq!(listed, "outputs\nskills\nuploads\n");
        // What has none inside is a folder like any other.
        grant(&mut keeper, &room, grant_of(&image.join("etc"), "etc", Access::Read))
            .expect("granted");
    });
}

#[test]
fn a_session_whose_folder_or_home_shows_the_host_is_not_made() {
    as_everybody_apart(|bench| {
        let mut granted = new_plan();
        granted.grants.push(grant_of(bench.image(), "image", Access::Read));
        let mut at_home = new_request();
        at_home.home = Home::Folder(HostPath::new(bench.image().join("deep")).expect("a path"));
        for plan in [granted, plan_of(&at_home)] {
            let mut keeper = bench.keeper();
            let request = cowork_api::keeper::Request::Create(Box::new(plan));
            let refused = crate::bench::ask(&mut keeper, request).expect_err("it shows the host");
            assert_eq!(refused.code, FailureCode::FolderRefused, "{refused:?}");
            // Root's home is to be empty beside that.
            let said = refused.sentence.contains("is an interface of the kernel");
            assert!(said || bench.person == Person::Root, "{refused:?}");
            assert_eq!(crate::bench::processes_of(&keeper), Vec::<i32>::new());
        }
    });
}

#[test]
fn grants_of_a_plan_are_there_from_the_start() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("file", "from the start\n");
        let mut plan = new_plan();
        plan.grants.push(grant_of(folder.path(), "project", Access::Read));
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan);
        let at = room.granted("project");
        assert_eq!(room.shell(&format!("cat {at}/file")), "from the start\n");
    });
}

#[test]
fn a_plan_with_a_grant_that_cannot_be_made_leaves_no_session() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        let mut plan = new_plan();
        let mut wrong = grant_of(folder.path(), "project", Access::Read);
        wrong.folder.inode += 1;
        plan.grants.push(wrong);
        let id = plan.id.clone();
        let mut keeper = bench.keeper();
        let request = cowork_api::keeper::Request::Create(Box::new(plan));
        let refused = crate::bench::ask(&mut keeper, request).expect_err("it is another folder");
        assert_eq!(refused.code, FailureCode::FolderChanged);
        let status = cowork_api::keeper::Request::Status { session: id };
        let none = crate::bench::ask(&mut keeper, status).expect_err("there is none");
        assert_eq!(none.code, FailureCode::NoSession);
        assert_eq!(crate::bench::processes_of(&keeper), Vec::<i32>::new());
    });
}
