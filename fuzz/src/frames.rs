//! Frames of a stream: whatever the pieces are that it arrives in, the same messages are in it, and no
//! byte is in two of them or in none.

use crate::Reached;
use cowork_api::frame::{FrameError, Frames, frame};
use cowork_api::guest::ToInit;
use cowork_api::{MAX_MESSAGE, encode};

/// The first byte says how long the pieces are.
pub fn frames(input: &[u8]) -> Reached {
    let [length, stream @ ..] = input else { return Reached::NOTHING };
    let whole = read(stream, stream.len().max(1));
    assert_eq!(read(stream, usize::from(*length).max(1)), whole, "the pieces matter");
    let (packets, end) = &whole;
    let again = packets.iter().map(|packet| frame(packet).expect("it was in a frame"));
    let again = again.collect::<Vec<_>>().concat();
    assert!(stream.starts_with(&again), "bytes were lost");
    assert!(packets.iter().all(|packet| (1..=MAX_MESSAGE).contains(&packet.len())));
    assert!(end.is_err() || again.len() == stream.len(), "bytes were left over");
    let kind = match end {
        Ok(()) => 0,
        Err(FrameError::Empty) => 1,
        Err(FrameError::TooLong(_)) => 2,
        Err(FrameError::Cut) => 3,
    };
    Reached(kind).and(Reached(packets.len().min(8) as u64))
}

fn read(stream: &[u8], length: usize) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
    let mut frames = Frames::default();
    let mut packets = Vec::new();
    for mut piece in stream.chunks(length) {
        while !piece.is_empty() {
            match frames.next(&mut piece) {
                Ok(packet) => packets.extend(packet),
                Err(error) => return (packets, Err(error)),
            }
        }
    }
    (packets, frames.end())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ping = frame(&encode(&ToInit::Ping { nonce: 7 })).expect("it is a message");
    vec![
        [&[1][..], &ping, &ping].concat(),
        [&[7][..], &ping, &[0, 0, 0, 0]].concat(),
        vec![2, 0, 0x40, 0, 1],
    ]
}
