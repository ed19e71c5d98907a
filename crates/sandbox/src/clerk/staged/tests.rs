//! Staged folders, made by hand and by the kernel.

use super::look::{Marking, enter};
use super::walk::{Since, Step, Walk, Walker};
use cowork_journal::record::State;
use cowork_testbed::{Folder, Person};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, makedev, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder, and a layer above it.
struct Scene {
    folder: Folder,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = Folder::new(Person::Root, name);
        for name in ["lower", "upper", "work", "seen"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn lower(&self, path: &str) -> PathBuf {
        self.folder.path().join("lower").join(path)
    }

    fn upper(&self, path: &str) -> PathBuf {
        self.folder.path().join("upper").join(path)
    }

    fn walk(&self, known: &HashMap<Vec<u8>, State>) -> Walk {
        let mut walker = Walker {
            marking: Marking::Trusted,
            known,
            is_meant: &|_, _, _| true,
            most: 1000,
            walk: Walk::default(),
        };
        let open = |name: &str| -> OwnedFd {
            let base = crate::kernel::open_folder(self.folder.path()).unwrap();
            enter(base.as_fd(), name.as_bytes()).unwrap()
        };
        walker.run(open("upper").as_fd(), open("lower").as_fd());
        assert_eq!(walker.walk.unknown, []);
        walker.walk
    }

    /// The differences, in order.
    fn steps(&self) -> Vec<(Step, String)> {
        let walk = self.walk(&HashMap::new());
        walk.items
            .into_iter()
            .map(|item| (item.step, String::from_utf8(item.path).unwrap()))
            .collect()
    }

    /// What is done in a real overlay of the two.
    fn in_overlay(&self, work: impl FnOnce(&Path)) {
        let path = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off",
            path("lower"),
            path("upper"),
            path("work")
        );
        let options = CString::new(options).unwrap();
        let seen = path("seen");
        mount("overlay", &seen, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(Path::new(&seen));
        }));
        unmount(&seen, UnmountFlags::DETACH).unwrap();
        outcome.unwrap();
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn whiteout(path: &Path) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)).unwrap();
}

fn named(steps: &[(Step, &str)]) -> Vec<(Step, String)> {
    steps.iter().map(|(step, path)| (*step, (*path).to_owned())).collect()
}

/// Longer than the kernel's clock for files goes without a step.
fn wait_a_moment() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn a_layer_made_by_hand_is_understood() {
    let scene = Scene::new("hand");
    write(&scene.lower("same"), "same");
    write(&scene.lower("gone"), "x");
    write(&scene.lower("folder/gone/deep"), "x");
    write(&scene.lower("other"), "one");
    write(&scene.lower("opaque/hidden"), "x");
    write(&scene.lower("opaque/same"), "s");
    write(&scene.lower("becomes-folder"), "x");
    write(&scene.lower("becomes-file/inside"), "x");
    wait_a_moment();
    write(&scene.upper("new/deep"), "new");
    whiteout(&scene.upper("gone"));
    whiteout(&scene.upper("never-was"));
    std::fs::create_dir(scene.upper("folder")).unwrap();
    whiteout(&scene.upper("folder/gone"));
    write(&scene.upper("other"), "two");
    write(&scene.upper("opaque/added"), "a");
    write(&scene.upper("opaque/same"), "s");
    lsetxattr(scene.upper("opaque"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    write(&scene.upper("becomes-folder/inside"), "x");
    write(&scene.upper("becomes-file"), "x");
    for name in ["same", "opaque/same"] {
        std::fs::copy(scene.lower(name), scene.upper(name)).unwrap();
        let time = std::fs::metadata(scene.lower(name)).unwrap().modified().unwrap();
        std::fs::File::open(scene.upper(name)).unwrap().set_modified(time).unwrap();
    }
    let expected = [
        (Step::Remove, "becomes-file/inside"),
        (Step::Remove, "becomes-file"),
        (Step::Add, "becomes-file"),
        (Step::Remove, "becomes-folder"),
        (Step::Add, "becomes-folder"),
        (Step::Add, "becomes-folder/inside"),
        (Step::Remove, "folder/gone/deep"),
        (Step::Remove, "folder/gone"),
        (Step::Remove, "gone"),
        (Step::Add, "new"),
        (Step::Add, "new/deep"),
        (Step::Add, "opaque/added"),
        (Step::Remove, "opaque/hidden"),
        (Step::Replace, "other"),
    ];
    assert_eq!(scene.steps(), named(&expected));
    let walk = scene.walk(&HashMap::new());
    assert!(walk.items.iter().all(|item| item.since == Since::Untouched), "{walk:?}");
}

#[test]
fn what_a_session_does_in_an_overlay_is_found() {
    let scene = Scene::new("overlay");
    for name in ["a", "b", "c", "d", "e", "f", "sub/x", "sub/y", "tree/1/2/3", "renamed/in"] {
        write(&scene.lower(name), "before");
    }
    symlink("a", scene.lower("link")).unwrap();
    wait_a_moment();
    scene.in_overlay(|seen| {
        std::fs::write(seen.join("a"), "after").unwrap();
        std::fs::remove_file(seen.join("b")).unwrap();
        std::fs::set_permissions(seen.join("c"), std::fs::Permissions::from_mode(0o755)).unwrap();
        // Copied up, and the same in the end.
        std::fs::OpenOptions::new().append(true).open(seen.join("d")).unwrap();
        lsetxattr(seen.join("e"), "user.note", b"hello", XattrFlags::empty()).unwrap();
        std::fs::rename(seen.join("f"), seen.join("g")).unwrap();
        std::fs::remove_file(seen.join("link")).unwrap();
        symlink("b", seen.join("link")).unwrap();
        std::fs::remove_file(seen.join("sub/x")).unwrap();
        std::fs::remove_dir_all(seen.join("tree")).unwrap();
        std::fs::create_dir(seen.join("tree")).unwrap();
        std::fs::write(seen.join("tree/new"), "").unwrap();
        std::fs::create_dir_all(seen.join("made/deep")).unwrap();
        std::fs::remove_dir_all(seen.join("renamed")).unwrap();
        std::fs::write(seen.join("renamed"), "now a file").unwrap();
        // Made and gone again.
        std::fs::write(seen.join("passing"), "").unwrap();
        std::fs::remove_file(seen.join("passing")).unwrap();
    });
    let expected = [
        (Step::Replace, "a"),
        (Step::Remove, "b"),
        (Step::Adjust, "c"),
        (Step::Adjust, "e"),
        (Step::Remove, "f"),
        (Step::Add, "g"),
        (Step::Replace, "link"),
        (Step::Add, "made"),
        (Step::Add, "made/deep"),
        (Step::Remove, "renamed/in"),
        (Step::Remove, "renamed"),
        (Step::Add, "renamed"),
        (Step::Remove, "sub/x"),
        (Step::Add, "tree/new"),
        (Step::Remove, "tree/1/2/3"),
        (Step::Remove, "tree/1/2"),
        (Step::Remove, "tree/1"),
    ];
    assert_eq!(scene.steps(), named(&expected));
    let walk = scene.walk(&HashMap::new());
    assert!(walk.items.iter().all(|item| item.since == Since::Untouched), "{walk:?}");
}

#[test]
fn what_the_user_changed_meanwhile_is_a_conflict_unless_it_was_an_apply() {
    let scene = Scene::new("conflict");
    for name in ["edited", "deleted", "untouched", "both-made", "vanished"] {
        if name != "both-made" {
            write(&scene.lower(name), "before");
        }
    }
    wait_a_moment();
    scene.in_overlay(|seen| {
        std::fs::write(seen.join("edited"), "staged").unwrap();
        std::fs::remove_file(seen.join("deleted")).unwrap();
        std::fs::write(seen.join("untouched"), "staged").unwrap();
        std::fs::write(seen.join("both-made"), "staged").unwrap();
        std::fs::write(seen.join("vanished"), "staged").unwrap();
    });
    wait_a_moment();
    for name in ["edited", "deleted", "both-made"] {
        std::fs::write(scene.lower(name), "the user's").unwrap();
    }
    std::fs::remove_file(scene.lower("vanished")).unwrap();
    let since = |known: &HashMap<_, _>| -> Vec<(String, Since)> {
        let items = scene.walk(known).items;
        items.into_iter().map(|item| (String::from_utf8(item.path).unwrap(), item.since)).collect()
    };
    let expected = [
        ("both-made", Since::Changed),
        ("deleted", Since::Changed),
        ("edited", Since::Changed),
        ("untouched", Since::Untouched),
        // Nothing of the user's is lost by bringing it back.
        ("vanished", Since::Untouched),
    ];
    let expected = expected.map(|(name, since)| (name.to_owned(), since));
    assert_eq!(since(&HashMap::new()), expected);

    let stat = std::fs::metadata(scene.lower("edited")).unwrap();
    let nanoseconds = |time: i64| u32::try_from(time).unwrap();
    let state = State {
        inode: stat.ino(),
        mode: stat.mode(),
        size: stat.size(),
        mtime: (stat.mtime(), nanoseconds(stat.mtime_nsec())),
        ctime: (stat.ctime(), nanoseconds(stat.ctime_nsec())),
    };
    let known = HashMap::from([(b"edited".to_vec(), state)]);
    let told = since(&known);
    assert!(told.contains(&("edited".to_owned(), Since::Untouched)), "{told:?}");
    assert!(told.contains(&("deleted".to_owned(), Since::Changed)), "{told:?}");
}
