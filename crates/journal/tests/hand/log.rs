//! A log that was torn or damaged ends at its last whole record.

use crate::bed::{Bed, CREATE, MODE, folder, opened};
use cowork_journal::hand::Hand;
use cowork_journal::log::{entries, read};
use cowork_journal::record::Entry;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// A store with some records: the bytes of its log, and where each record ends.
fn written(bed: &Bed) -> (Vec<u8>, Vec<usize>) {
    let (mut hand, by) = bed.hand();
    for name in ["a", "b", "c"] {
        drop(opened(hand.open_file(by, bed.name(name).spot(), CREATE, MODE)));
    }
    hand.close(by.set).unwrap();
    let bytes = std::fs::read(bed.store().join("log")).unwrap();
    let mut ends = vec![16];
    while let Some(head) = bytes.get(ends[ends.len() - 1]..).and_then(|rest| rest.first_chunk()) {
        ends.push(ends[ends.len() - 1] + 8 + u32::from_le_bytes(*head) as usize);
    }
    assert_eq!(ends.last(), Some(&bytes.len()));
    (bytes, ends)
}

#[test]
fn a_torn_log_ends_with_its_last_whole_record_wherever_it_is_torn() {
    let bed = Bed::new();
    let (bytes, ends) = written(&bed);
    let all = bed.entries();
    let path = bed.store().join("log");
    for length in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let log = read(folder(&bed.store()).as_fd()).unwrap();
        let whole = ends.iter().rposition(|end| *end <= length);
        let end = whole.map_or(0, |whole| ends[whole]);
        assert_eq!(log.entries, all[..whole.unwrap_or(0)], "{length}");
        assert_eq!((log.end, log.torn), (end as u64, length != end), "{length}");

        drop(Hand::open(Some(folder(&bed.store()))).unwrap());
        let cut = std::fs::metadata(&path).unwrap().len();
        assert_eq!(cut, end.max(16) as u64, "{length}");
        assert!(!read(folder(&bed.store()).as_fd()).unwrap().torn);
    }
}

#[test]
fn a_damaged_byte_ends_the_log_before_its_record() {
    let bed = Bed::new();
    let (bytes, ends) = written(&bed);
    let all = bed.entries();
    let path = bed.store().join("log");
    for place in 16..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x5a;
        std::fs::write(&path, &damaged).unwrap();
        let log = read(folder(&bed.store()).as_fd()).unwrap();
        let whole = ends.iter().rposition(|end| *end <= place).unwrap();
        assert_eq!(log.entries, all[..whole], "{place}");
        assert_eq!((log.end, log.torn), (ends[whole] as u64, true));
    }
}

#[test]
fn what_follows_a_cut_is_read_again() {
    let bed = Bed::new();
    let (bytes, _) = written(&bed);
    std::fs::write(bed.store().join("log"), &bytes[..bytes.len() - 3]).unwrap();
    let (mut hand, by) = bed.hand();
    drop(opened(hand.open_file(by, bed.name("d").spot(), CREATE, MODE)));
    let entries = bed.entries();
    assert!(entries.windows(2).all(|two| two[0].seq + 1 == two[1].seq));
    assert_eq!(by.set, 2);
}

#[test]
fn a_log_of_another_kind_is_refused() {
    let bed = Bed::new();
    let (mut bytes, _) = written(&bed);
    bytes[15] = 99;
    std::fs::write(bed.store().join("log"), &bytes).unwrap();
    let store = folder(&bed.store());
    assert_eq!(read(store.as_fd()).unwrap_err(), Errno::BADMSG);
    assert_eq!(Hand::open(Some(store)).unwrap_err(), Errno::BADMSG);
    let now = std::fs::read(bed.store().join("log")).unwrap();
    assert_eq!(now, bytes, "nothing of it is changed");
    std::fs::write(bed.store().join("log"), "other").unwrap();
    assert_eq!(read(folder(&bed.store()).as_fd()).unwrap_err(), Errno::BADMSG);
}

#[test]
fn a_store_without_a_log_has_an_empty_one() {
    let bed = Bed::new();
    let log = read(folder(&bed.store()).as_fd()).unwrap();
    assert_eq!((log.entries.len(), log.end, log.torn), (0, 0, false));
}

#[test]
fn records_are_read_one_by_one() {
    let bed = Bed::new();
    let (bytes, ends) = written(&bed);
    let mut reader = entries(folder(&bed.store()).as_fd()).unwrap();
    let mut seen = Vec::<Entry>::new();
    while let Some(entry) = reader.next() {
        seen.push(entry.unwrap());
        assert_eq!(reader.end(), ends[seen.len()] as u64);
    }
    assert!(!reader.torn());
    assert_eq!((seen, reader.end()), (bed.entries(), bytes.len() as u64));
}
