//! What is kept, within which limits, and how it is read again.

use crate::bed::{Bed, MODE, WRITE, folder, opened, saved};
use cowork_api::files::{Beyond, Caps};
use cowork_journal::hand::{By, Hand, LinkSource, Saving};
use cowork_journal::record::{Record, Saved, Why};
use cowork_journal::save::contents;
use cowork_testbed::Person;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

fn touch(hand: &mut Hand, by: By, bed: &Bed, name: &str) -> Saved {
    drop(opened(hand.open_file(by, bed.name(name).spot(), WRITE, MODE)));
    saved(bed.changes().last().unwrap()).clone()
}

#[test]
fn small_contents_are_packed_and_larger_ones_are_files() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    for size in [0, 1, 65_536, 65_537, 1_000_000] {
        let name = format!("f{size}");
        let text = "abcdefg".chars().cycle().take(size).collect::<String>();
        bed.write(&name, &text);
        let kept = touch(&mut hand, by, &bed, &name);
        assert_eq!(matches!(kept, Saved::Pack { .. }), size <= 65_536, "{size}");
        assert_eq!(bed.kept(&kept), Some(text));
    }
    assert_eq!(hand.tally(by.set).copied, 1 + 65_536 + 65_537 + 1_000_000);
}

#[test]
fn kept_contents_are_copied_back_with_their_holes() {
    let bed = Bed::new();
    let file = File::create(bed.file("sparse")).unwrap();
    file.set_len(40 << 20).unwrap();
    file.write_all_at(b"middle", 20 << 20).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    bed.write("small", "little");
    let (mut hand, by) = bed.hand();
    for (name, length) in [("sparse", 40 << 20), ("small", 6)] {
        let kept = touch(&mut hand, by, &bed, name);
        let contents = contents(folder(&bed.store()).as_fd(), None, &kept).unwrap().unwrap();
        assert_eq!(contents.length(), length);
        let back = File::create_new(bed.file(&format!("{name}.back"))).unwrap();
        contents.copy_to(back.as_fd()).unwrap();
        let original = std::fs::read(bed.file(name)).unwrap();
        assert!(std::fs::read(bed.file(&format!("{name}.back"))).unwrap() == original);
        assert!(back.metadata().unwrap().blocks() < 1000);
    }
    let stored = std::fs::read_dir(bed.store()).unwrap().map(|entry| entry.unwrap());
    for copy in stored.filter(|entry| entry.file_name().to_string_lossy().starts_with('b')) {
        assert!(copy.metadata().unwrap().blocks() < 1000);
    }
}

#[test]
fn without_a_trash_things_are_copied() {
    let mut bed = Bed::new();
    bed.trash = false;
    bed.write("a", "text");
    bed.write("b", "other");
    bed.write("large", vec![b'x'; 100_000]);
    rustix::fs::mkfifoat(CWD, bed.file("pipe"), MODE).unwrap();
    let (mut hand, by) = bed.hand();
    for name in ["a", "large", "pipe"] {
        hand.remove(by, bed.name(name).spot()).unwrap();
    }
    let name = bed.name("c");
    hand.make_node(by, name.spot(), FileType::RegularFile, MODE).unwrap();
    hand.rename(by, name.spot(), bed.name("b").spot(), RenameFlags::empty()).unwrap();
    let changes = bed.changes();
    assert_eq!(bed.kept(saved(&changes[0])).as_deref(), Some("text"));
    assert!(matches!(saved(&changes[1]), Saved::Copy(_)));
    assert_eq!(bed.kept(saved(&changes[1])).map(|text| text.len()), Some(100_000));
    assert_eq!(*saved(&changes[2]), Saved::Empty);
    assert_eq!(bed.kept(saved(&changes[4])).as_deref(), Some("other"));
}

#[test]
fn limits_are_kept() {
    let mut bed = Bed::new();
    bed.caps = Caps { file: 100_000, session: 250_000, beyond: Beyond::Mark };
    for name in ["a", "b", "c"] {
        bed.write(name, vec![b'x'; 100_000]);
    }
    bed.write("large", vec![b'x'; 100_001]);
    bed.write("small", vec![b'x'; 50_001]);
    let (mut hand, by) = bed.hand();
    let large = bed.name("large");
    assert_eq!(hand.saving(by, large.spot()), Ok(Saving::Beyond(Why::Large)));
    assert_eq!(hand.saving_removal(by, large.spot()), Ok(Saving::Fits));
    assert_eq!(touch(&mut hand, by, &bed, "large"), Saved::Lost(Why::Large));
    assert_eq!(hand.saving(by, bed.name("a").spot()), Ok(Saving::Fits));
    assert_eq!(touch(&mut hand, by, &bed, "a"), Saved::Copy(bed.entries().len() as u64));
    assert_eq!(hand.saving(by, bed.name("a").spot()), Ok(Saving::Needless));
    assert!(matches!(touch(&mut hand, by, &bed, "b"), Saved::Copy(_)));
    assert_eq!(hand.saving(by, bed.name("c").spot()), Ok(Saving::Beyond(Why::Full)));
    assert_eq!(touch(&mut hand, by, &bed, "c"), Saved::Lost(Why::Full));
    assert_eq!(touch(&mut hand, by, &bed, "small"), Saved::Lost(Why::Full));
    assert_eq!(hand.saving(by, bed.name("missing").spot()), Ok(Saving::Needless));
    assert_eq!(hand.tally(by.set).lost, 3);
    drop(hand);

    let (mut hand, by) = bed.hand();
    assert_eq!(hand.saving(by, bed.name("c").spot()), Ok(Saving::Beyond(Why::Full)));
    hand.set_caps(1, Caps { session: 1 << 30, ..bed.caps });
    assert!(matches!(touch(&mut hand, by, &bed, "c"), Saved::Copy(_)));
}

#[test]
fn what_cannot_be_linked_is_moved_into_the_trash() {
    let bed = Bed::new();
    bed.write("a", "text");
    std::os::unix::fs::chown(bed.grant(), Some(Person::User.uid()), None).unwrap();
    std::os::unix::fs::chown(bed.trash(), Some(Person::User.uid()), None).unwrap();
    std::os::unix::fs::chown(bed.store(), Some(Person::User.uid()), None).unwrap();
    let protected = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap();
    let inode = std::fs::metadata(bed.file("a")).unwrap().ino();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let user = rustix::process::Uid::from_raw(Person::User.uid());
            rustix::thread::set_thread_uid(user).unwrap();
            let (mut hand, by) = bed.hand();
            hand.remove(by, bed.name("a").spot()).unwrap();
        });
    });
    let changes = bed.changes();
    let [Record::Remove { saved: Saved::Trash(seq), .. }] = changes.as_slice() else {
        panic!("{changes:?}, protected_hardlinks is {protected}")
    };
    let kept = std::fs::metadata(bed.trash().join(format!("t{seq}"))).unwrap();
    assert_eq!((kept.ino(), kept.nlink()), (inode, 1));
    assert_eq!(bed.read("a"), None);
}

#[test]
fn what_may_not_be_read_is_lost_and_said_so() {
    let bed = Bed::new();
    bed.write("a", "text");
    std::fs::set_permissions(bed.file("a"), std::os::unix::fs::PermissionsExt::from_mode(0o222))
        .unwrap();
    std::os::unix::fs::chown(bed.store(), Some(Person::User.uid()), None).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let user = rustix::process::Uid::from_raw(Person::User.uid());
            rustix::thread::set_thread_uid(user).unwrap();
            let (mut hand, by) = bed.hand();
            assert_eq!(touch(&mut hand, by, &bed, "a"), Saved::Lost(Why::Unreadable));
            assert_eq!(hand.tally(by.set).lost, 1);
        });
    });
}

#[test]
fn a_stale_file_in_the_trash_is_replaced() {
    let bed = Bed::new();
    bed.write("a", "text");
    let (mut hand, by) = bed.hand();
    for seq in 1..10 {
        std::fs::write(bed.trash().join(format!("t{seq}")), "stale").unwrap();
        std::fs::write(bed.store().join(format!("b{seq}")), "stale").unwrap();
    }
    hand.remove(by, bed.name("a").spot()).unwrap();
    bed.write("large", vec![b'y'; 100_000]);
    let kept = touch(&mut hand, by, &bed, "large");
    let changes = bed.changes();
    assert_eq!(bed.kept(saved(&changes[0])).as_deref(), Some("text"));
    assert_eq!(bed.kept(&kept).map(|text| text.len()), Some(100_000));
}

#[test]
fn many_attributes_are_kept() {
    let bed = Bed::new();
    bed.write("a", "text");
    let mut expected = Vec::new();
    for number in 0..40_u8 {
        let name = format!("user.attribute-with-a-long-name-{number:02}");
        let value = vec![number; 40];
        rustix::fs::setxattr(bed.file("a"), &*name, &value, XattrFlags::empty()).unwrap();
        expected.push((name.into_bytes(), value));
    }
    let (mut hand, by) = bed.hand();
    hand.remove(by, bed.name("a").spot()).unwrap();
    let changes = bed.changes();
    let [Record::Remove { before, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    let mut recorded = before.attributes.clone();
    recorded.sort();
    assert_eq!(recorded, expected);
}

#[test]
fn nothing_waits_for_a_pipe_that_took_the_place_of_a_file() {
    let bed = Bed::new();
    bed.write("a", "text");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rustix::fs::mkfifoat(CWD, bed.file("pipe"), MODE).unwrap();
            let swap = RenameFlags::EXCHANGE;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (a, pipe) = (bed.file("a"), bed.file("pipe"));
                rustix::fs::renameat_with(CWD, &a, CWD, &pipe, swap).unwrap();
            }
        });
        let (mut hand, by) = bed.hand();
        let name = bed.name("a");
        for _ in 0..15_000 {
            // Whichever it is at the moment, and never a wait.
            cowork_sys::ignore(hand.open_file(by, name.spot(), WRITE, MODE));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for record in bed.changes() {
        assert_eq!(bed.kept(saved(&record)).as_deref(), Some("text"));
    }
}

#[test]
fn what_is_opened_is_what_was_saved() {
    let bed = Bed::new();
    bed.write("a", "one");
    bed.write("b", "two");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let swap = RenameFlags::EXCHANGE;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, bed.file("a"), CWD, bed.file("b"), swap).unwrap();
            }
        });
        let mut hand = bed.reopen();
        let name = bed.name("a");
        let mut texts = Vec::new();
        for _ in 0..3000 {
            let by = crate::bed::begin(&mut hand);
            let Ok(file) = hand.open_file(by, name.spot(), OFlags::RDWR, Mode::empty()) else {
                continue;
            };
            let mut text = [0; 3];
            opened(Ok(file)).read_exact_at(&mut text, 0).unwrap();
            texts.push((by.set, text));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let writes = bed.entries().into_iter().filter_map(|entry| match entry.record {
            Record::Write { saved, .. } => Some((entry.set, saved)),
            _ => None,
        });
        let writes = writes.collect::<HashMap<_, _>>();
        for (set, text) in texts {
            assert_eq!(bed.kept(&writes[&set]).unwrap().as_bytes(), text);
        }
    });
}

#[test]
fn many_files_are_removed() {
    let bed = Bed::new();
    for number in 0..2500 {
        bed.write(&format!("d/{number}"), "x");
    }
    let (mut hand, by) = bed.hand();
    for number in 0..2500 {
        hand.remove(by, bed.name(&format!("d/{number}")).spot()).unwrap();
    }
    hand.remove_folder_entry(by, bed.name("d").spot()).unwrap();
    assert_eq!(hand.tally(by.set).removed, 2500);
    hand.close(by.set).unwrap();
    assert_eq!(bed.trashed().len(), 2500);
    let gone = bed.records().into_iter().filter(
        |record| matches!(record, Record::After { at, state: None } if at.path.starts_with(b"d")),
    );
    assert_eq!(gone.count(), 2501);
}

#[test]
fn a_store_belongs_to_whom_its_folder_belongs() {
    let bed = Bed::new();
    std::os::unix::fs::chown(bed.store(), Some(Person::User.uid()), Some(7)).unwrap();
    drop(bed.hand());
    for name in ["log", "pack"] {
        let look = std::fs::metadata(bed.store().join(name)).unwrap();
        assert_eq!((look.uid(), look.gid()), (Person::User.uid(), 7), "{name}");
    }
}

fn link(hand: &mut Hand, by: By, bed: &Bed, of: &str, name: &str) {
    let source = bed.name(of);
    hand.add_name(by, LinkSource::Name(source.spot()), bed.name(name).spot()).unwrap();
}

fn names(bed: &Bed, name: &str) -> u64 {
    std::fs::metadata(bed.file(name)).unwrap().nlink()
}

#[test]
fn a_name_that_the_set_added_goes_without_a_trace() {
    let bed = Bed::new();
    bed.write("a", "old");
    bed.write("clone/x", "old too");
    let (mut hand, by) = bed.hand();
    link(&mut hand, by, &bed, "a", "clone/b");
    link(&mut hand, by, &bed, "a", "clone/c");
    assert_eq!(names(&bed, "a"), 3);
    hand.remove(by, bed.name("clone/b").spot()).unwrap();
    assert_eq!(saved(bed.changes().last().unwrap()), &Saved::Same);
    let (from, to) = (bed.name("clone/x"), bed.name("clone/c"));
    hand.rename(by, from.spot(), to.spot(), RenameFlags::empty()).unwrap();
    assert_eq!((names(&bed, "a"), bed.trashed().len()), (1, 0));
    assert_eq!(hand.tally(by.set).removed, 0);
    // What is under the name now was there before.
    hand.remove(by, bed.name("clone/c").spot()).unwrap();
    assert_eq!((bed.trashed().len(), hand.tally(by.set).removed), (1, 1));
}

#[test]
fn an_added_name_is_kept_when_it_may_be_another_or_the_last() {
    let kept = |act: &dyn Fn(&Bed, &mut Hand, By)| {
        let bed = Bed::new();
        bed.write("a", "old");
        std::fs::hard_link(bed.file("a"), bed.file("second")).unwrap();
        let (mut hand, by) = bed.hand();
        hand.make_folder(by, bed.name("d").spot(), Mode::RWXU).unwrap();
        link(&mut hand, by, &bed, "a", "d/b");
        act(&bed, &mut hand, by);
        bed.trashed().len()
    };
    let rename = |bed: &Bed, hand: &mut Hand, by: By, from: &str, to: &str, flags: RenameFlags| {
        let (from, to) = (bed.name(from), bed.name(to));
        hand.rename(by, from.spot(), to.spot(), flags).unwrap();
    };
    let plain = RenameFlags::empty();
    let last = kept(&|bed, hand, by| {
        std::fs::remove_file(bed.file("a")).unwrap();
        std::fs::remove_file(bed.file("second")).unwrap();
        hand.remove(by, bed.name("d/b").spot()).unwrap();
    });
    let older_under_its_name = kept(&|bed, hand, by| {
        rename(bed, hand, by, "d/b", "d/c", plain);
        rename(bed, hand, by, "second", "d/b", plain);
        hand.remove(by, bed.name("d/b").spot()).unwrap();
    });
    let folder_moved = kept(&|bed, hand, by| {
        rename(bed, hand, by, "d", "e", plain);
        hand.make_folder(by, bed.name("d").spot(), Mode::RWXU).unwrap();
        rename(bed, hand, by, "second", "d/b", plain);
        hand.remove(by, bed.name("d/b").spot()).unwrap();
    });
    let another_set = kept(&|bed, hand, _| {
        hand.boundary().unwrap();
        let by = crate::bed::begin(hand);
        hand.remove(by, bed.name("d/b").spot()).unwrap();
    });
    assert_eq!((last, older_under_its_name, folder_moved, another_set), (1, 1, 1, 1));
}
