//! Orders carried out on real folders: what is staged is applied, and taken back again.

use super::{carry_out, staged};
use cowork_api::files::{
    Caps, ChangeKind, Choice, Kept, Mark, Order, Place, Report, Restored, Selection, SetKind, Sets,
    Work,
};
use cowork_api::plan::Identity;
use cowork_journal::hand::{By, Hand, Opened, Spot};
use cowork_journal::undo::{Manner, What, Wish};
use cowork_sys::Errno;
use cowork_testbed::{Folder, Person};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, XattrFlags, lgetxattr, lsetxattr};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder whose changes are staged in a store.
pub(super) struct Scene {
    pub(super) folder: Folder,
}

impl Scene {
    pub(super) fn new(name: &str) -> Self {
        let folder = Folder::new(Person::Root, name);
        for name in ["project", "seen", "store/staged/project/upper", "store/staged/project/work"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let scene = Self { folder };
        let own = crate::kernel::open_folder(&scene.path("store/staged/project")).unwrap();
        staged::note(own.as_fd(), &kept(&scene.path("project"))).unwrap();
        scene
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn project(&self, name: &str) -> PathBuf {
        self.path("project").join(name)
    }

    /// What is done in the session's view. Returns what the session sees then.
    pub(super) fn stage(&self, work: impl FnOnce(&Path)) -> BTreeMap<PathBuf, String> {
        let text = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off",
            text("project"),
            text("store/staged/project/upper"),
            text("store/staged/project/work"),
        );
        let options = CString::new(options).unwrap();
        let seen = self.path("seen");
        mount("overlay", &seen, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&seen);
            tree(&seen)
        }));
        unmount(&seen, UnmountFlags::DETACH).unwrap();
        outcome.unwrap()
    }

    fn order(&self, work: Work) -> Report {
        carry_out(&Order {
            store: kept(&self.path("store")),
            work,
            names: Vec::new(),
            types: Vec::new(),
        })
        .unwrap()
    }

    pub(super) fn apply(&self, choice: Choice, paths: &[&str]) -> Restored {
        let place = |path: &&str| Place { grant: "project".into(), path: path.as_bytes().into() };
        let paths = paths.iter().map(place).collect();
        match self.order(Work::Apply { paths, choice, rehearsal: false }) {
            Report::Restored(restored) => restored,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn undo(&self) -> Restored {
        let selection = Selection { sets: Sets::Last, paths: Vec::new() };
        let work = Work::Undo { selection, choice: Choice::Refuse, rehearsal: false };
        match self.order(work) {
            Report::Restored(restored) => restored,
            other => panic!("{other:?}"),
        }
    }

    fn changes(&self) -> Vec<(String, ChangeKind, Vec<u32>, bool)> {
        let Report::Changes { changes, .. } = self.order(Work::Changes(Selection::default()))
        else {
            panic!("no changes")
        };
        let changes = changes.into_iter().map(|change| {
            let conflict = change.marks.contains(&Mark::Conflict);
            let path = String::from_utf8(change.at.path).unwrap();
            (path, change.kind, change.sets, conflict)
        });
        changes.collect()
    }
}

pub(super) fn kept(path: &Path) -> Kept {
    use std::os::unix::ffi::OsStrExt;
    let stat = std::fs::metadata(path).unwrap();
    let folder = Identity { device: stat.dev(), inode: stat.ino() };
    Kept { path: path.as_os_str().as_bytes().to_vec(), folder }
}

/// Everything below a folder, with what matters of it.
pub(super) fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = std::fs::symlink_metadata(&path).unwrap();
            let mut about = vec![format!("{:o} {}:{}", stat.mode(), stat.uid(), stat.gid())];
            if stat.is_dir() {
                waiting.push(path.clone());
            } else {
                about.push(format!("{}.{}", stat.mtime(), stat.mtime_nsec()));
            }
            if stat.is_file() {
                about.push(std::fs::read_to_string(&path).unwrap());
                let mut note = [0; 100];
                let length = lgetxattr(&path, "user.note", &mut note).unwrap_or(0);
                about.push(String::from_utf8_lossy(&note[..length]).into_owned());
            }
            if stat.is_symlink() {
                about.push(format!("{:?}", std::fs::read_link(&path).unwrap()));
            }
            all.insert(path.strip_prefix(root).unwrap().to_path_buf(), about.join(" "));
        }
    }
    all
}

pub(super) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Longer than the kernel's clock for files goes without a step.
pub(super) fn wait_a_moment() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn applied_changes_are_what_the_session_sees_and_can_be_taken_back() {
    let scene = Scene::new("apply");
    for name in ["a", "b", "c", "d", "e", "f", "sub/x", "sub/y", "tree/1/2/3", "turned/in", "g/h"] {
        write(&scene.project(name), &format!("{name} before"));
    }
    symlink("a", scene.project("link")).unwrap();
    std::fs::hard_link(scene.project("sub/y"), scene.project("sub/y-too")).unwrap();
    std::os::unix::fs::chown(scene.project("a"), Some(1234), Some(1235)).unwrap();
    let before = tree(&scene.path("project"));
    wait_a_moment();
    let staged = scene.stage(|seen| {
        std::fs::write(seen.join("a"), "after").unwrap();
        std::fs::remove_file(seen.join("b")).unwrap();
        std::fs::set_permissions(seen.join("c"), std::fs::Permissions::from_mode(0o755)).unwrap();
        lsetxattr(seen.join("e"), "user.note", b"hello", XattrFlags::empty()).unwrap();
        std::fs::rename(seen.join("f"), seen.join("renamed")).unwrap();
        std::fs::remove_file(seen.join("link")).unwrap();
        symlink("b", seen.join("link")).unwrap();
        std::fs::remove_file(seen.join("sub/x")).unwrap();
        std::fs::remove_dir_all(seen.join("tree")).unwrap();
        write(&seen.join("tree/new"), "new");
        write(&seen.join("made/deep/file"), &"long ".repeat(100_000));
        std::fs::hard_link(seen.join("made/deep/file"), seen.join("made/again")).unwrap();
        std::os::unix::fs::chown(seen.join("made/deep"), Some(1234), Some(1235)).unwrap();
        std::fs::remove_dir_all(seen.join("turned")).unwrap();
        write(&seen.join("turned"), "now a file");
        std::fs::remove_dir_all(seen.join("g")).unwrap();
    });
    let rehearsal = Work::Apply { paths: Vec::new(), choice: Choice::Refuse, rehearsal: true };
    let Report::Restored(told) = scene.order(rehearsal) else { panic!("no report") };
    assert_eq!(tree(&scene.path("project")), before);

    let restored = scene.apply(Choice::Refuse, &[]);
    assert_eq!((restored.conflicts.len(), &restored.lost), (0, &Vec::new()));
    assert_eq!(restored.done, told.done);
    assert_eq!(tree(&scene.path("project")), staged);
    let made = std::fs::metadata(scene.project("made/again")).unwrap();
    assert_eq!(
        (made.nlink(), std::fs::metadata(scene.project("made/deep/file")).unwrap().ino()),
        (2, made.ino())
    );

    let again = scene.apply(Choice::Refuse, &[]);
    assert_eq!((again.set, again.done), (None, Vec::new()));

    let undone = scene.undo();
    assert_eq!((undone.conflicts.len(), &undone.lost), (0, &Vec::new()));
    assert_eq!(tree(&scene.path("project")), before);
    let linked = std::fs::metadata(scene.project("sub/y")).unwrap();
    assert_eq!(linked.nlink(), 2);

    let restored = scene.apply(Choice::Refuse, &[]);
    assert_eq!(restored.conflicts, [], "what an undo brought back is nobody's change");
    assert_eq!(tree(&scene.path("project")), staged);
}

#[test]
fn what_was_applied_and_staged_again_is_no_conflict() {
    let scene = Scene::new("again");
    write(&scene.project("file"), "one");
    write(&scene.project("linked"), "one");
    std::fs::hard_link(scene.project("linked"), scene.project("too")).unwrap();
    for text in ["two", "three"] {
        wait_a_moment();
        let staged = scene.stage(|seen| {
            std::fs::write(seen.join("file"), text).unwrap();
            std::fs::write(seen.join("linked"), text).unwrap();
        });
        assert_eq!(
            scene.changes().into_iter().filter(|change| change.2 == [0]).collect::<Vec<_>>(),
            [
                ("file".to_owned(), ChangeKind::Modified, vec![0], false),
                ("linked".to_owned(), ChangeKind::Modified, vec![0], false),
            ]
        );
        let restored = scene.apply(Choice::Refuse, &[]);
        assert_eq!((restored.conflicts, restored.lost), (Vec::new(), Vec::new()));
        let now = tree(&scene.path("project"));
        assert_eq!(now[Path::new("file")], staged[Path::new("file")]);
        // The file keeps its other name.
        assert_eq!(std::fs::read_to_string(scene.project("too")).unwrap(), text);
    }
    std::fs::write(scene.project("file"), "the user's").unwrap();
    scene.stage(|seen| std::fs::write(seen.join("file"), "four").unwrap());
    let restored = scene.apply(Choice::Refuse, &[]);
    assert_eq!(restored.conflicts.len(), 1);
    assert_eq!(restored.set, None);
    assert_eq!(std::fs::read_to_string(scene.project("file")).unwrap(), "the user's");
}

#[test]
fn the_user_decides_about_conflicts() {
    for choice in [Choice::Ours, Choice::Theirs, Choice::Both] {
        let scene = Scene::new("choice");
        write(&scene.project("edited"), "before");
        write(&scene.project("removed"), "before");
        write(&scene.project("free"), "before");
        wait_a_moment();
        scene.stage(|seen| {
            std::fs::write(seen.join("edited"), "staged").unwrap();
            std::fs::remove_file(seen.join("removed")).unwrap();
            std::fs::write(seen.join("free"), "staged").unwrap();
        });
        wait_a_moment();
        write(&scene.project("edited"), "the user's");
        write(&scene.project("removed"), "the user's");
        let before = tree(&scene.path("project"));
        let restored = scene.apply(choice, &[]);
        assert_eq!(restored.conflicts.len(), 2, "{choice:?}");
        assert_eq!(restored.lost, []);
        let read = |name: &str| std::fs::read_to_string(scene.project(name)).ok();
        assert_eq!(read("free").as_deref(), Some("staged"));
        let (edited, removed, kept) = match choice {
            Choice::Ours => (Some("the user's"), Some("the user's"), None),
            Choice::Theirs => (Some("staged"), None, None),
            _ => (Some("staged"), Some("the user's"), Some("the user's")),
        };
        assert_eq!(read("edited").as_deref(), edited, "{choice:?}");
        assert_eq!(read("removed").as_deref(), removed, "{choice:?}");
        assert_eq!(read("edited.yours-1").as_deref(), kept, "{choice:?}");
        if choice == Choice::Both {
            assert!(restored.conflicts.iter().any(|one| one.outcome == "kept as `edited.yours-1`"));
        }
        let undone = scene.undo();
        assert_eq!((undone.conflicts, undone.lost), (Vec::new(), Vec::new()));
        assert_eq!(tree(&scene.path("project")), before, "{choice:?}");
    }
}

#[test]
fn some_names_are_applied_with_the_folders_they_need() {
    let scene = Scene::new("some");
    write(&scene.project("a"), "before");
    write(&scene.project("b"), "before");
    wait_a_moment();
    scene.stage(|seen| {
        std::fs::write(seen.join("a"), "staged").unwrap();
        std::fs::write(seen.join("b"), "staged").unwrap();
        write(&seen.join("new/deep/one"), "1");
        write(&seen.join("new/deep/two"), "2");
        write(&seen.join("newer"), "3");
    });
    let restored = scene.apply(Choice::Refuse, &["b", "new/deep/two", "ne"]);
    let done: Vec<_> =
        restored.done.iter().map(|(place, _)| String::from_utf8_lossy(&place.path)).collect();
    assert_eq!(done, ["b", "new", "new/deep", "new/deep/two"]);
    assert_eq!(std::fs::read_to_string(scene.project("a")).unwrap(), "before");
    assert_eq!(tree(&scene.path("project")).len(), 5);
}

#[test]
fn a_folder_that_is_another_one_is_not_touched() {
    let scene = Scene::new("swapped");
    write(&scene.project("file"), "before");
    scene.stage(|seen| std::fs::write(seen.join("file"), "staged").unwrap());
    std::fs::rename(scene.path("project"), scene.path("elsewhere")).unwrap();
    write(&scene.project("file"), "another");
    let restored = scene.apply(Choice::Theirs, &[]);
    assert_eq!(restored.done, []);
    let [(_, why)] = restored.lost.as_slice() else { panic!("{restored:?}") };
    assert!(why.contains("no longer the folder"), "{why}");
    assert_eq!(std::fs::read_to_string(scene.project("file")).unwrap(), "another");

    let order = Order {
        store: Kept {
            path: kept(&scene.path("store")).path,
            folder: kept(&scene.path("seen")).folder,
        },
        work: Work::Sets,
        names: Vec::new(),
        types: Vec::new(),
    };
    let refusal = carry_out(&order).unwrap_err();
    assert!(refusal.sentence.contains("no longer the folder"), "{}", refusal.sentence);
}

#[test]
fn a_difference_is_shown_before_it_is_applied_and_after() {
    let scene = Scene::new("differences");
    write(&scene.project("text"), "one\ntwo\nthree\n");
    write(&scene.project("gone"), "bye\n");
    wait_a_moment();
    scene.stage(|seen| {
        std::fs::write(seen.join("text"), "one\n2\nthree\n").unwrap();
        std::fs::write(seen.join("binary"), [0, 1, 2]).unwrap();
        std::fs::remove_file(seen.join("gone")).unwrap();
    });
    let shown = || {
        let work = Work::Differences { selection: Selection::default(), most: 1 << 20 };
        let Report::Differences(differences) = scene.order(work) else { panic!("no report") };
        let shown = differences
            .into_iter()
            .map(|one| (String::from_utf8(one.change.at.path).unwrap(), one.text, one.note));
        shown.collect::<Vec<_>>()
    };
    let text = "--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    let gone = "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n";
    let expected = [
        ("binary".to_owned(), None, Some("binary, 3 B".to_owned())),
        ("gone".to_owned(), Some(gone.to_owned()), None),
        ("text".to_owned(), Some(text.to_owned()), None),
    ];
    assert_eq!(shown(), expected);
    scene.apply(Choice::Refuse, &[]);
    assert_eq!(shown(), expected, "now from the records");
}

impl Scene {
    /// What makes changes of the folder, as a broker has it.
    fn hand(&self) -> (Hand, u32) {
        let mut hand = Hand::open(Some(self.open("store"))).unwrap();
        let folder = hand.add_folder(self.granted()).unwrap();
        (hand, folder)
    }

    fn granted(&self) -> cowork_journal::hand::Folder {
        let Kept { path, folder } = kept(&self.path("project"));
        cowork_journal::hand::Folder {
            name: "project".into(),
            path,
            device: folder.device,
            inode: folder.inode,
            root: self.open("project"),
            trash: None,
            caps: Caps::default(),
            owner: None,
        }
    }

    fn open(&self, name: &str) -> OwnedFd {
        crate::kernel::open_folder(&self.path(name)).unwrap()
    }

    /// Overwrites files in a set.
    fn overwrite(&self, kind: SetKind, names: &[&str]) -> (Hand, u32) {
        let (mut hand, folder) = self.hand();
        let set = hand.begin(kind, 0, Vec::new()).unwrap();
        let root = self.open("project");
        for name in names {
            let text = CString::new(*name).unwrap();
            let parent = root.as_fd();
            let spot = Spot { folder, parent, name: &text, path: name.as_bytes() };
            let flags = OFlags::WRONLY | OFlags::TRUNC;
            let opened = hand.open_file(By { set, process: 1 }, spot, flags, Mode::empty());
            let Ok(Opened::File(file)) = opened else { panic!("{opened:?}") };
            rustix::io::write(&file, b"changed").unwrap();
        }
        (hand, set)
    }
}

#[test]
fn an_undo_that_was_interrupted_is_finished_first() {
    let scene = Scene::new("interrupted-undo");
    for name in ["a", "b", "c", "d"] {
        write(&scene.project(name), name);
    }
    let before = tree(&scene.path("project"));
    let (mut hand, set) = scene.overwrite(SetKind::Command, &["a", "b", "c", "d"]);
    hand.close(set).unwrap();
    drop(hand);
    let what = What::Changes(Selection::default());
    let wish = Wish { what, choice: Choice::Refuse, manner: Manner::Real };
    let folders = vec![scene.granted()];
    let cut = cowork_journal::undo::interrupted(scene.open("store"), folders, &wish, 3);
    assert_eq!(cut.unwrap_err(), Errno::CANCELED);
    let middle = tree(&scene.path("project"));
    assert_ne!(middle, before);

    let undone = scene.undo();
    assert_eq!((undone.conflicts, undone.lost), (Vec::new(), Vec::new()));
    assert_eq!(tree(&scene.path("project")), before);
    let told = undone.done.iter().any(|(_, how)| how.starts_with("finished what was interrupted"));
    assert!(told, "{:?}", undone.done);
}

#[test]
fn an_apply_that_was_interrupted_is_taken_back_first() {
    let scene = Scene::new("interrupted-apply");
    write(&scene.project("a"), "a");
    write(&scene.project("b"), "b");
    wait_a_moment();
    let staged = scene.stage(|seen| {
        std::fs::write(seen.join("a"), "staged").unwrap();
        std::fs::write(seen.join("b"), "staged").unwrap();
    });
    wait_a_moment();
    drop(scene.overwrite(SetKind::Apply, &["a"]));
    assert_eq!(std::fs::read_to_string(scene.project("a")).unwrap(), "changed");
    let restored = scene.apply(Choice::Refuse, &[]);
    assert_eq!((restored.conflicts, restored.lost), (Vec::new(), Vec::new()));
    assert_eq!(tree(&scene.path("project")), staged);
}

#[test]
fn an_undo_without_room_says_so_and_is_done_when_there_is_some() {
    let scene = Scene::new("full");
    let store = scene.path("store");
    mount("tmpfs", &store, "tmpfs", MountFlags::empty(), c"size=512k,mode=755").unwrap();
    write(&scene.project("a"), &"a".repeat(1000));
    let before = tree(&scene.path("project"));
    let (mut hand, set) = scene.overwrite(SetKind::Command, &["a"]);
    hand.close(set).unwrap();
    drop(hand);
    // The user's version is longer than what is left of a page.
    write(&scene.project("a"), &"b".repeat(60_000));
    let filler = store.join("filler");
    while std::fs::File::options()
        .append(true)
        .create(true)
        .open(&filler)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[1; 4096]))
        .is_ok()
    {}
    let selection = Selection::default();
    let work = Work::Undo { selection, choice: Choice::Theirs, rehearsal: false };
    let order = Order { store: kept(&store), work, names: Vec::new(), types: Vec::new() };
    let refusal = carry_out(&order).unwrap_err();
    assert_eq!(
        (refusal.sentence.as_str(), refusal.hint.as_str()),
        (
            "cannot bring back what was before: No space left on device (os error 28)",
            "make room on the disk and try again"
        )
    );
    assert_eq!(std::fs::read_to_string(scene.project("a")).unwrap().len(), 60_000);
    std::fs::remove_file(filler).unwrap();
    carry_out(&order).unwrap();
    assert_eq!(tree(&scene.path("project")), before);
    unmount(&store, UnmountFlags::DETACH).unwrap();
}
