//! Reading at any offset, while the output grows and in an index of a million records.

use crate::support::{Watched, folder, from, pieces, pipe, random, stream, write};
use cowork_session::output::{Pump, Reader, Stream};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::{Duration, Instant};

/// The merged output is the concatenation of the pieces.
fn joined(pieces: &[cowork_session::output::Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect()
}

#[test]
fn a_part_is_the_same_as_in_the_whole() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::add(&pump, folder.path(), sources);
    let (mut expected, mut state) = (Vec::<u8>::new(), 0x1234_5678_9ABC_DEF1);
    let mut reader = watched.log.reader().expect("it has a folder");
    for number in 0..2000_u64 {
        let end = if random(&mut state, 2) == 0 { &out_end } else { &err_end };
        let length = usize::try_from(random(&mut state, 300) + 1).expect("it is small");
        let piece: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(length).collect();
        write(end, &piece);
        expected.extend(&piece);
        watched.total(expected.len() as u64);
        // What was announced can be read, whether the index covers it or not.
        let at = expected.len().saturating_sub(700);
        let some = reader.read(at as u64, 10_000).expect("the index is whole");
        assert_eq!(joined(&some), &expected[at..]);
    }
    assert_eq!(joined(&pieces(folder.path(), 1 << 20)), expected);
    for _ in 0..2000 {
        let at = random(&mut state, expected.len() as u64 + 10);
        let max = usize::try_from(random(&mut state, 5000)).expect("it is small");
        let some = reader.read(at, max).expect("the index is whole");
        let start = usize::try_from(at).expect("it is small").min(expected.len());
        assert_eq!(joined(&some), &expected[start..expected.len().min(start + max)]);
        assert!(some.first().is_none_or(|piece| piece.offset == at));
    }
    let all = pieces(folder.path(), 1 << 20);
    for which in [Stream::Stdout, Stream::Stderr] {
        let whole = stream(&all, which);
        let part = reader.read_stream(which, 1000, 5000).expect("it is there").1;
        assert_eq!(part, &whole[1000..6000]);
        let end = whole.len() as u64;
        assert_eq!(reader.read_stream(which, end - 1, 10).expect("it is there").1.len(), 1);
        assert!(reader.read_stream(which, end + 5, 10).expect("it is there").1.is_empty());
    }
    assert!(reader.read_stream(Stream::Terminal, 0, 10).expect("it is not").1.is_empty());
}

#[test]
fn a_piece_says_when_it_came() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, out_end) = pipe();
    let watched = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    let now = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis();
    let started = now();
    for number in 1..=3 {
        write(&out_end, b"x");
        watched.total(number);
        std::thread::sleep(Duration::from_millis(1100));
    }
    let times: Vec<_> = pieces(folder.path(), 10).iter().map(|piece| piece.time_ms).collect();
    assert_eq!(times.len(), 3, "{times:?}");
    // The clock of files is coarser than the one that is asked here.
    let clock = 20;
    for (time, number) in times.iter().zip(0_u128..) {
        let time = u128::from(*time) + clock;
        assert!(time >= started + number * 1100 && time < now(), "{times:?}");
    }
}

#[test]
fn a_reader_beside_two_floods_never_sees_them_change() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::add(&pump, folder.path(), sources);
    let line = "yes out | head -c 3000000 & yes err | head -c 3000000 >&2; wait";
    let mut child = crate::support::shell(line, out_end, err_end);
    let mut reader = watched.log.reader().expect("it has a folder");
    let mut seen = Vec::new();
    loop {
        let finished = watched.log.progress().finished;
        let some = reader.read(seen.len() as u64, 100_000).expect("the index is whole");
        if finished && some.is_empty() {
            break;
        }
        for piece in some {
            assert_eq!(piece.offset, seen.len() as u64);
            seen.extend(piece.bytes.iter().map(|byte| (piece.stream, *byte)));
        }
    }
    assert!(child.wait().expect("it was started").success());
    let told: Vec<_> = pieces(folder.path(), 1 << 20)
        .iter()
        .flat_map(|piece| piece.bytes.iter().map(|byte| (piece.stream, *byte)))
        .collect();
    assert_eq!(seen.len(), 6_000_000);
    assert!(seen == told, "what was read while it grew is what is there in the end");
}

#[test]
fn a_reader_of_what_is_being_let_go_of_sees_no_nonsense() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::capped(&pump, folder.path(), sources, 100_000);
    let line = "yes 0123456 | head -c 300000000 & yes 0123456 | head -c 300000000 >&2; wait";
    let mut child = crate::support::shell(line, out_end, err_end);
    let mut reader = watched.log.reader().expect("it has a folder");
    let period = |offset: u64, bytes: &[u8]| {
        let skip = usize::try_from(offset % 8).expect("it is small");
        let mut expected = b"0123456\n".iter().cycle().skip(skip);
        assert!(bytes.iter().all(|byte| Some(byte) == expected.next()), "at {offset}");
    };
    let (mut last, mut reads) = (0, 0);
    while !watched.log.progress().finished {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let (start, bytes) = reader.read_stream(stream, 0, 10_000).expect("it is there");
            period(start, &bytes);
        }
        let pieces = reader.read(0, 10_000).expect("it is there");
        let start = pieces.first().map_or(last, |piece| piece.offset);
        assert!(start >= last, "what is gone does not come back");
        assert!(pieces.iter().all(|piece| !piece.bytes.contains(&0)), "no hole is read");
        last = start;
        reads += 1;
    }
    assert!(child.wait().expect("it was started").success());
    assert!(last > 0 && reads > 20, "{last}, {reads}");
}

#[test]
fn a_million_records_are_not_read_one_by_one() {
    const RECORDS: u64 = 1_000_000;
    let folder = folder();
    let open = |name: &str| {
        BufWriter::new(File::create(folder.path().join(name)).expect("the folder is ours"))
    };
    let (mut index, mut out, mut err) = (open("index"), open("stdout"), open("stderr"));
    index.write_all(b"cwoutput\x01").expect("there is room");
    index.write_all(&[0; 23]).expect("there is room");
    let (mut out_end, mut err_end) = (0_u64, 0_u64);
    for number in 0..RECORDS {
        let bytes = number.to_le_bytes();
        if number % 2 == 0 {
            out.write_all(&bytes).expect("there is room");
            out_end += 8;
        } else {
            err.write_all(&bytes).expect("there is room");
            err_end += 8;
        }
        for word in [1 + number % 2, out_end, err_end, 0] {
            index.write_all(&word.to_le_bytes()).expect("there is room");
        }
    }
    for mut file in [index, out, err] {
        file.flush().expect("there is room");
    }
    let mut reader = Reader::open(folder.path()).expect("it is an index");
    assert_eq!(reader.total().expect("it is whole"), RECORDS * 8);
    let (mut state, started) = (0xDEAD_BEEF_u64, Instant::now());
    for _ in 0..1000 {
        let number = random(&mut state, RECORDS - 10);
        let some = reader.read(number * 8, 80).expect("it is whole");
        let expected: Vec<u8> = (number..number + 10).flat_map(u64::to_le_bytes).collect();
        assert_eq!(joined(&some), expected);
    }
    // Reading the index from its start would take a thousand times 32 MB.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let some = reader.read(0, usize::MAX).expect("it is whole");
    assert_eq!(some.len(), 4096, "pieces are bounded");
}
