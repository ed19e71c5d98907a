//! Messages over a stream of bytes, which has no packets: each comes behind its length, as four bytes
//! with the highest first.
//!
//! What a stream brings is untrusted. Nothing is reserved for a length that was only announced, no more
//! than one message is held, and a stream that broke the framing once has no further message in it.
//!
//! Deliberately absent: descriptors, for which a stream has no place (docs/compatibility.md), and the
//! reading itself.

use crate::MAX_MESSAGE;

/// Bytes that say how long a message is.
const HEADER: usize = 4;

/// Why bytes are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message has at least the byte of its generation.
    #[error("a frame is empty")]
    Empty,
    /// It is longer than any message.
    #[error("a frame of {0} bytes is longer than any message")]
    TooLong(usize),
    /// The stream ended within a message.
    #[error("the stream ended within a frame")]
    Cut,
}

/// The bytes that stand for a message on a stream.
pub fn frame(packet: &[u8]) -> Result<Vec<u8>, FrameError> {
    check(packet.len())?;
    let length =
        u32::try_from(packet.len()).map_err(|_overflow| FrameError::TooLong(packet.len()))?;
    Ok([&length.to_be_bytes(), packet].concat())
}

fn check(length: usize) -> Result<(), FrameError> {
    match length {
        0 => Err(FrameError::Empty),
        1..=MAX_MESSAGE => Ok(()),
        _ => Err(FrameError::TooLong(length)),
    }
}

/// Finds the messages in a stream, whose bytes arrive in pieces of any length.
#[derive(Debug, Default)]
pub struct Frames {
    /// The frame that has begun.
    begun: Vec<u8>,
    broken: Option<FrameError>,
}

impl Frames {
    /// Takes bytes from the front of `input` until a message is whole, which is returned, or none is
    /// left. What is not taken belongs to the next message.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        self.take(HEADER, input);
        let Some(header) = self.begun.first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        if let Err(error) = check(length) {
            self.begun = Vec::new();
            self.broken = Some(error);
            return Err(error);
        }
        self.take(HEADER + length, input);
        if self.begun.len() < HEADER + length {
            return Ok(None);
        }
        let packet = self.begun.split_off(HEADER);
        self.begun.clear();
        Ok(Some(packet))
    }

    /// The stream has ended.
    pub fn end(self) -> Result<(), FrameError> {
        match self.broken {
            Some(error) => Err(error),
            None if self.begun.is_empty() => Ok(()),
            None => Err(FrameError::Cut),
        }
    }

    /// Has that many bytes of the frame, or all that there are.
    fn take(&mut self, wanted: usize, input: &mut &[u8]) {
        let missing = wanted.saturating_sub(self.begun.len()).min(input.len());
        let (taken, left) = input.split_at(missing);
        self.begun.extend_from_slice(taken);
        *input = left;
    }
}

#[cfg(test)]
mod tests {
    use super::{FrameError, Frames, MAX_MESSAGE, frame};
    use crate::guest::ToInit;
    use crate::{decode, encode};
    use proptest::prelude::{any, proptest};

    /// What comes out of a stream in pieces of these lengths, and how it ends.
    fn read(stream: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
        let mut frames = Frames::default();
        let mut packets = Vec::new();
        let mut rest = stream;
        let mut lengths = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
        while !rest.is_empty() {
            let length = lengths.next().unwrap().clamp(1, rest.len());
            let (mut piece, after) = rest.split_at(length);
            rest = after;
            while !piece.is_empty() {
                match frames.next(&mut piece) {
                    Ok(Some(packet)) => packets.push(packet),
                    Ok(None) => assert!(piece.is_empty(), "it stopped early"),
                    Err(error) => {
                        assert_eq!(frames.next(&mut piece), Err(error), "it went on");
                        return (packets, Err(error));
                    }
                }
            }
        }
        (packets, frames.end())
    }

    #[test]
    fn a_message_is_these_bytes() {
        let packet = encode(&ToInit::Ping { nonce: 7 });
        let stream = frame(&packet).unwrap();
        assert_eq!(stream, [0, 0, 0, 3, 2, 0, 7]);
        let (packets, end) = read(&stream, &[]);
        assert_eq!((packets.as_slice(), end), ([packet].as_slice(), Ok(())));
        assert_eq!(decode(&packets[0]), Ok(ToInit::Ping { nonce: 7 }));
    }

    #[test]
    fn what_is_no_message_is_no_frame() {
        assert_eq!(frame(&[]), Err(FrameError::Empty));
        assert!(frame(&vec![0; MAX_MESSAGE]).is_ok());
        assert_eq!(frame(&vec![0; MAX_MESSAGE + 1]), Err(FrameError::TooLong(MAX_MESSAGE + 1)));
        assert_eq!(read(&[0, 0, 0, 0, 1], &[]), (vec![], Err(FrameError::Empty)));
        let longer = u32::try_from(MAX_MESSAGE + 1).unwrap().to_be_bytes();
        assert_eq!(read(&longer, &[]), (vec![], Err(FrameError::TooLong(MAX_MESSAGE + 1))));
        assert_eq!(read(&[0, 0, 1], &[]), (vec![], Err(FrameError::Cut)));
        assert_eq!(read(&[0, 0, 0, 2, 1], &[]), (vec![], Err(FrameError::Cut)));
    }

    /// A length costs nothing before the bytes are there.
    #[test]
    fn what_was_only_announced_takes_no_memory() {
        let mut frames = Frames::default();
        let announced = u32::try_from(MAX_MESSAGE).unwrap().to_be_bytes();
        assert_eq!(frames.next(&mut &announced[..]), Ok(None));
        assert!(frames.begun.capacity() < 64, "{}", frames.begun.capacity());
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            packets: Vec<Vec<u8>>,
            pieces: Vec<u8>,
            cut in any::<proptest::sample::Index>(),
        ) {
            let packets: Vec<_> =
                packets.into_iter().filter(|packet| !packet.is_empty()).collect();
            let framed = packets.iter().map(|packet| frame(packet).unwrap());
            let stream = framed.collect::<Vec<_>>().concat();
            let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
            assert_eq!(read(&stream, &pieces), (packets.clone(), Ok(())));
            let (fewer, end) = read(&stream[..cut.index(stream.len() + 1)], &pieces);
            assert!(packets.starts_with(&fewer) && matches!(end, Ok(()) | Err(FrameError::Cut)));
        }

        #[test]
        fn no_stream_of_any_bytes_depends_on_its_pieces(stream: Vec<u8>, pieces: Vec<u8>) {
            let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
            assert_eq!(read(&stream, &pieces), read(&stream, &[]));
        }
    }
}
