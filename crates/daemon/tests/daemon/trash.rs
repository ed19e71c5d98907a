//! What is removed from folders on other mounts than the daemon's own: it is kept at the top of the
//! mount where that is safe, comes back as the same file, and nothing stays there afterwards.

use crate::for_everyone;
use crate::look::{names, until};
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::types::Restored;
use cowork_testbed::{Folder, Person};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use serde_json::json;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

for_everyone!(
    what_is_removed_on_another_mount_comes_back_as_the_same_file,
    without_a_trash_what_is_small_is_copied,
    a_trash_that_somebody_else_made_is_not_used,
    a_disk_that_is_away_is_told,
    what_is_forgotten_while_its_disk_is_away_is_removed_later,
);

/// Larger than what is copied.
const LARGE: u64 = 70 << 20;

/// A file system of its own with a folder `work`, mounted twice: once where the test uses it.
struct Disk {
    folder: Folder,
}

impl Disk {
    fn new(person: Person) -> Self {
        let folder = Folder::new(person, "disk");
        for name in ["kept", "top"] {
            std::fs::create_dir(folder.path().join(name)).expect("it is ours");
        }
        let disk = Self { folder };
        let options = Some(c"size=300m,mode=1777");
        mount("tmpfs", disk.kept(), "tmpfs", MountFlags::empty(), options).expect("we are root");
        std::fs::create_dir(disk.kept().join("work")).expect("it is ours");
        give(&disk.kept().join("work"), person);
        disk.plug();
        disk
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    fn top(&self) -> PathBuf {
        self.folder.path().join("top")
    }

    fn work(&self, name: &str) -> PathBuf {
        self.top().join("work").join(name)
    }

    fn plug(&self) {
        mount_bind(self.kept(), self.top()).expect("we are root");
    }

    fn unplug(&self) {
        unmount(self.top(), UnmountFlags::DETACH).expect("it is mounted");
    }

    /// A file without data but at its end. Its inode.
    fn large(&self, name: &str) -> u64 {
        use std::os::unix::fs::FileExt;
        let path = self.work(name);
        let file = std::fs::File::create(&path).expect("it is ours");
        file.write_all_at(name.as_bytes(), LARGE).expect("there is room");
        give(&path, self.folder.owner());
        inode(&path)
    }

    /// Whether a file is as `large` made it.
    #[track_caller]
    fn is_large(&self, name: &str) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(self.work(name)).expect("it is there");
        let mut end = vec![0; name.len() + 1];
        let read = file.read_at(&mut end, LARGE).expect("it is a file");
        assert_eq!(end.get(..read), Some(name.as_bytes()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for at in [self.top(), self.kept()] {
            cowork_sys::ignore(unmount(at, UnmountFlags::DETACH));
        }
    }
}

fn give(path: &Path, person: Person) {
    chown(path, Some(person.uid()), Some(person.uid())).expect("tests run as root");
}

#[track_caller]
fn inode(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).expect("it is there").ino()
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn trash(person: Person) -> String {
    format!(".Trash-{}", person.uid())
}

/// A session with a folder as `mnt/work`.
fn room<'s>(site: &'s Site, folder: &Path) -> Room<'s> {
    let room = site.room(&json!({ "writes": { "guards": { "removals": 0, "share": 0 } } }));
    let grant = json!({ "path": folder, "access": "rw", "name": "work" });
    site.post(room.at("/grants"), &grant);
    room
}

fn undo(room: Room<'_>) -> Restored {
    typed(room.site.post(room.at("/undo"), &json!({ "all": true })))
}

#[track_caller]
fn does(room: Room<'_>, line: &str) {
    let ran = room.run(line);
    assert_eq!(ran.code, 0, "{}", ran.text());
}

fn forgetful(person: Person) -> Site {
    Site::with_file(person, "COWORK_CHANGES_DAYS", PathBuf::from("0"))
}

fn what_is_removed_on_another_mount_comes_back_as_the_same_file(person: Person) {
    let site = forgetful(person);
    let disk = Disk::new(person);
    let inodes = [disk.large("one"), disk.large("two")];
    let is_back = || {
        for (name, number) in ["one", "two"].into_iter().zip(inodes) {
            disk.is_large(name);
            assert_eq!(inode(&disk.work(name)), number, "{name} is the same file");
        }
    };
    let room = room(&site, &disk.top().join("work"));
    does(room, "cd mnt/work; rm one; echo new > new; mv new two");
    let kept = disk.top().join(trash(person));
    let stat = std::fs::symlink_metadata(&kept).expect("there is a trash");
    assert_eq!((stat.uid(), stat.mode() & 0o7777), (person.uid(), 0o700));
    assert!(!room.run("ls -a mnt/work").text().contains("Trash"));
    let done = undo(room);
    assert!(done.lost.is_empty(), "{done:?}");
    is_back();
    // Also when neither the session nor its daemon is there any more.
    does(room, "cd mnt/work; rm one two");
    room.remove();
    let done = undo(room);
    assert!(done.lost.is_empty(), "{done:?}");
    is_back();
    assert!(is_there(&kept));
    // A daemon that was killed is followed by one that forgets.
    site.kill();
    site.start();
    until("nothing is left at the top", || !is_there(&kept));
    assert_eq!(names(&disk.top()), ["work".to_owned()].into());
    is_back();
}

fn without_a_trash_what_is_small_is_copied(person: Person) {
    let site = Site::new(person);
    let disk = Disk::new(person);
    let top = disk.top();
    // What is granted is the top, where the session would see it; or nobody else may write there.
    let folder = match person {
        Person::Root => top.clone(),
        Person::User => {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&top, mode).expect("it is ours");
            top.join("work")
        }
    };
    disk.large("large");
    std::fs::write(disk.work("small"), "small").expect("it is ours");
    give(&disk.work("small"), person);
    let room = room(&site, &folder);
    does(room, "cd mnt/work; if test -d work; then cd work; fi; rm large small");
    assert_eq!(names(&top), ["work".to_owned()].into());
    let done = undo(room);
    assert_eq!(done.lost.len(), 1, "{done:?}");
    assert_eq!(std::fs::read_to_string(disk.work("small")).ok().as_deref(), Some("small"));
    assert!(!is_there(&disk.work("large")));
    site.verify();
}

fn a_trash_that_somebody_else_made_is_not_used(person: Person) {
    let site = Site::new(person);
    let disk = Disk::new(person);
    let planted = disk.top().join(trash(person));
    let target = Folder::new(person, "target");
    symlink(target.path(), &planted).expect("it is ours");
    check_unused(&site, &disk, target.path());
    std::fs::remove_file(&planted).expect("it is ours");
    // A folder of somebody else's, in which everybody may write.
    std::fs::create_dir(&planted).expect("it is ours");
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o777)).expect("ours");
    chown(&planted, Some(65_432), Some(65_432)).expect("tests run as root");
    check_unused(&site, &disk, &planted);
    // One of this user's in which others may write.
    give(&planted, person);
    check_unused(&site, &disk, &planted);
    // One that was there already is used, and stays as it was.
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o700)).expect("ours");
    std::fs::create_dir(planted.join("files")).expect("it is ours");
    let number = disk.large("large");
    let used = room(&site, &disk.top().join("work"));
    does(used, "rm mnt/work/large");
    assert!(undo(used).lost.is_empty());
    assert_eq!(inode(&disk.work("large")), number);
    assert_eq!(names(&planted), ["cowork".to_owned(), "files".to_owned()].into());
    site.verify();
}

/// Checks that nothing is kept in a folder that is no trash of this user's.
#[track_caller]
fn check_unused(site: &Site, disk: &Disk, planted: &Path) {
    disk.large("large");
    let room = room(site, &disk.top().join("work"));
    does(room, "rm mnt/work/large");
    assert!(names(planted).is_empty(), "{:?}", names(planted));
    assert_eq!(undo(room).lost.len(), 1);
    room.remove();
}

fn a_disk_that_is_away_is_told(person: Person) {
    let site = Site::new(person);
    let disk = Disk::new(person);
    let number = disk.large("large");
    let room = room(&site, &disk.top().join("work"));
    does(room, "rm mnt/work/large");
    room.remove();
    // A keeper sees what is mounted when it starts, whatever the host tells it later.
    let again = || {
        site.leave();
        site.start();
    };
    disk.unplug();
    again();
    let done = undo(room);
    assert_eq!(done.lost.len(), 1, "{done:?}");
    assert!(done.lost[0].how.contains("is not mounted"), "{done:?}");
    disk.plug();
    again();
    assert!(undo(room).lost.is_empty());
    assert_eq!(inode(&disk.work("large")), number);
    site.verify();
}

fn what_is_forgotten_while_its_disk_is_away_is_removed_later(person: Person) {
    let site = forgetful(person);
    let disk = Disk::new(person);
    disk.large("large");
    let room = room(&site, &disk.top().join("work"));
    does(room, "rm mnt/work/large");
    room.remove();
    disk.unplug();
    site.leave();
    site.start();
    until("the store is gone", || names(&site.state().join("changes")).is_empty());
    let kept = disk.kept().join(trash(person));
    assert!(is_there(&kept));
    disk.plug();
    site.leave();
    site.start();
    until("nothing is left at the top", || !is_there(&kept));
    assert_eq!(names(&disk.top()), ["work".to_owned()].into());
    until("it is not remembered", || names(&site.state().join("away")).is_empty());
}
