//! An index that is torn, cut, or says what is not so.

use crate::support::{Watched, counted, folder, from, pieces, pipe, same, stream, told, write};
use cowork_session::output::{Progress, Pump, Reader, Stream, repair};
use cowork_testbed::Folder;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;

const HEADER: u64 = 32;
const RECORD: u64 = 32;

/// An output of six pieces, the last one of `stdout`: `a0 e1 a2 e3 a4 e5 a6`, each twice as long.
fn written() -> Folder {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::add(&pump, folder.path(), sources);
    for number in 0..7_u8 {
        let end = if number % 2 == 0 { &out_end } else { &err_end };
        write(end, &[b'0' + number; 2]);
        watched.total(u64::from(number + 1) * 2);
    }
    drop((out_end, err_end));
    watched.finished();
    folder
}

fn index(folder: &Folder) -> File {
    let index = folder.path().join("index");
    File::options().read(true).write(true).open(index).expect("it was made")
}

const WHOLE: &str = "stdout:00stderr:11stdout:22stderr:33stdout:44stderr:55stdout:66";
const PROGRESS: Progress = Progress { total: 14, dropped: 0, finished: true };

#[test]
fn a_torn_record_is_cut_and_its_bytes_are_kept() {
    for torn in 1..=RECORD {
        let folder = written();
        index(&folder).set_len(HEADER + 7 * RECORD - torn).expect("it is ours");
        assert_eq!(told(folder.path()), WHOLE, "as it is, {torn}");
        assert_eq!(repair(folder.path()).expect("it can be repaired"), PROGRESS);
        assert_eq!(told(folder.path()), WHOLE, "repaired, {torn}");
        assert_eq!(index(&folder).metadata().expect("it is open").len(), HEADER + 7 * RECORD);
    }
}

#[test]
fn whatever_of_the_index_is_lost_no_byte_is() {
    for records in 0..7 {
        for header in [HEADER, 0, 5] {
            let length = if header == HEADER { HEADER + records * RECORD } else { header };
            let folder = written();
            index(&folder).set_len(length).expect("it is ours");
            assert_eq!(repair(folder.path()).expect("it can be repaired"), PROGRESS);
            let pieces = pieces(folder.path(), 5);
            assert_eq!(stream(&pieces, Stream::Stdout), b"00224466");
            assert_eq!(stream(&pieces, Stream::Stderr), b"113355");
        }
    }
}

#[test]
fn records_of_bytes_that_are_not_there_are_cut() {
    let folder = written();
    let stdout = File::options().write(true).open(folder.path().join("stdout"));
    stdout.expect("it was made").set_len(5).expect("it is ours");
    let progress = repair(folder.path()).expect("it can be repaired");
    assert_eq!(progress, Progress { total: 11, ..PROGRESS });
    assert_eq!(told(folder.path()), "stdout:00stderr:11stdout:22stderr:33stdout:4stderr:55");
}

#[test]
fn zeros_at_the_end_are_no_records() {
    let folder = written();
    index(&folder).write_all_at(&[0; 100], HEADER + 6 * RECORD).expect("it is ours");
    assert_eq!(repair(folder.path()).expect("it can be repaired"), PROGRESS);
    assert_eq!(told(folder.path()), WHOLE);
}

#[test]
fn a_record_in_the_middle_that_is_nonsense_is_an_error() {
    for (what, at) in [([9; 8], 0), ([0xFF; 8], 8), ([0; 8], 8), ([0xFF; 8], 16)] {
        let folder = written();
        index(&folder).write_all_at(&what, HEADER + 2 * RECORD + at).expect("it is ours");
        let mut reader = Reader::open(folder.path()).expect("the header is well");
        let outcomes = (0..14).map(|offset| reader.read(offset, 100));
        let errors: Vec<_> = outcomes.filter_map(Result::err).collect();
        assert!(!errors.is_empty(), "{what:?} at {at}");
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof));
        }
        assert_eq!(reader.read_stream(Stream::Stdout, 2, 4).expect("it is there").1, b"2244");
    }
}

#[test]
fn what_is_no_index_is_left_alone() {
    let folder = written();
    for (bytes, said) in [(&b"cwoutput\x02"[..], "version 2"), (&b"cWoutput\x01"[..], "no index")] {
        index(&folder).write_all_at(bytes, 0).expect("it is ours");
        let repaired = repair(folder.path()).expect_err("refused").to_string();
        let opened = Reader::open(folder.path()).expect_err("refused").to_string();
        assert!(repaired.contains(said) && opened.contains(said), "{repaired}, {opened}");
        assert_eq!(index(&folder).metadata().expect("it is open").len(), HEADER + 7 * RECORD);
    }
}

#[test]
fn a_folder_without_output_says_so() {
    let folder = folder();
    let error = Reader::open(folder.path()).expect_err("nothing there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let progress = repair(folder.path()).expect("an empty output");
    assert_eq!(progress, Progress { total: 0, ..PROGRESS });
}

/// What the streams of [`overflown`] have said in the end.
const SAID: usize = 100_000;

/// An output of which the oldest bytes are gone, and what both streams have said.
fn overflown() -> (Folder, [Vec<u8>; 2]) {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::capped(&pump, folder.path(), sources, 3 * SAID as u64);
    let (mut said, mut total) = ([Vec::new(), Vec::new()], 0);
    for number in 0..300 {
        let piece = counted(&format!("{number} "), 1000, "\n");
        let (end, said) =
            if number % 2 == 0 { (&out_end, &mut said[0]) } else { (&err_end, &mut said[1]) };
        write(end, &piece);
        said.extend(&piece);
        total += piece.len() as u64;
        watched.total(total);
    }
    drop((out_end, err_end));
    assert!(watched.finished().dropped > 0);
    (folder, said)
}

#[test]
fn what_is_kept_stays_whatever_of_the_index_is_lost() {
    let (folder, said) = overflown();
    let mut header = [0; 8];
    index(&folder).read_exact_at(&mut header, 24).expect("it has a header");
    let first = u64::from_le_bytes(header);
    let whole = index(&folder).metadata().expect("it is open").len();
    assert!(first > 1 && HEADER + first * RECORD < whole, "{first}, {whole}");
    let lengths = [whole - 1, whole - RECORD, whole - 2 * RECORD - 5];
    let lengths = lengths.into_iter().chain([first + 1, first, first - 1, 0].map(|number| {
        // The last of these say nothing about where the kept bytes begin.
        HEADER + number * RECORD
    }));
    for length in lengths {
        index(&folder).set_len(length).expect("it is ours");
        let progress = repair(folder.path()).expect("it can be repaired");
        assert_eq!(progress.total, said.iter().map(|said| said.len() as u64).sum::<u64>());
        let pieces = pieces(folder.path(), 1 << 20);
        let mut reader = Reader::open(folder.path()).expect("it is an index");
        for (which, said) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&said) {
            let kept = stream(&pieces, which);
            same(&kept[kept.len() - SAID..], &said[said.len() - SAID..]);
            let (start, alone) = reader.read_stream(which, 0, usize::MAX).expect("it is there");
            same(&alone, &kept);
            assert_eq!(start + kept.len() as u64, said.len() as u64);
        }
    }
}
