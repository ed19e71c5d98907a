//! Frames of a WebSocket, from the side of the server: what a client sends is read strictly, and
//! whatever does not fit ends the connection with a code that says why.

use std::future::poll_fn;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest contents of a control frame.
const MAX_CONTROL: usize = 125;

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The frame is the last one of its message.
const LAST: u8 = 0x80;
/// Bits for extensions, of which there are none.
const RESERVED: u8 = 0x70;
/// What follows is masked.
const MASKED: u8 = 0x80;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    /// Everything was said, or the client is done.
    Normal,
    /// The client broke the protocol.
    Protocol,
    /// A message of text.
    NotBinary,
    /// A message that means nothing here.
    Meaningless,
    /// A message that is too long.
    TooLong,
    /// The connection broke off: nobody is told.
    Gone,
}

impl Close {
    /// The code that says so.
    fn code(self) -> Option<u16> {
        match self {
            Self::Normal => Some(1000),
            Self::Protocol => Some(1002),
            Self::NotBinary => Some(1003),
            Self::Meaningless => Some(1008),
            Self::TooLong => Some(1009),
            Self::Gone => None,
        }
    }
}

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A whole message.
    Message(Vec<u8>),
    /// A question whether we are there, to be answered with the same bytes.
    Ping(Vec<u8>),
}

/// Reads what a client sends.
pub(super) struct Ears<R> {
    from: R,
    /// Longest message.
    most: usize,
    /// The message so far, if it comes in several frames.
    begun: Option<Vec<u8>>,
}

/// The head of a frame.
struct Head {
    code: u8,
    last: bool,
    length: u64,
    mask: [u8; 4],
}

impl<R: AsyncRead + Unpin> Ears<R> {
    pub(super) fn new(from: R, most: usize) -> Self {
        Self { from, most, begun: None }
    }

    /// The next message or question; an error at the end, which a client that is done brings about
    /// as well.
    pub(super) async fn hear(&mut self) -> Result<Heard, Close> {
        loop {
            let head = self.head().await?;
            match head.code {
                BINARY if self.begun.is_none() => self.begun = Some(Vec::new()),
                CONTINUED if self.begun.is_some() => {}
                PING => return Ok(Heard::Ping(self.control(&head).await?)),
                PONG => {
                    drop(self.control(&head).await?);
                    continue;
                }
                CLOSE => {
                    let said = self.control(&head).await?;
                    return Err(if said.len() == 1 { Close::Protocol } else { Close::Normal });
                }
                TEXT => return Err(Close::NotBinary),
                _ => return Err(Close::Protocol),
            }
            self.contents(&head).await?;
            if let Some(whole) = self.begun.take_if(|_| head.last) {
                return Ok(Heard::Message(whole));
            }
        }
    }

    async fn head(&mut self) -> Result<Head, Close> {
        let [first, second] = self.bytes().await?;
        if first & RESERVED != 0 || second & MASKED == 0 {
            return Err(Close::Protocol);
        }
        let length = match second & !MASKED {
            126 => u64::from(u16::from_be_bytes(self.bytes().await?)),
            127 => u64::from_be_bytes(self.bytes().await?),
            short => u64::from(short),
        };
        let mask = self.bytes().await?;
        Ok(Head { code: first & 0x0f, last: first & LAST != 0, length, mask })
    }

    async fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Close> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).await.map_err(|_ended| Close::Gone)?;
        Ok(bytes)
    }

    /// The contents of a control frame, which is short and whole.
    async fn control(&mut self, head: &Head) -> Result<Vec<u8>, Close> {
        let length = usize::try_from(head.length).ok().filter(|length| *length <= MAX_CONTROL);
        let length = length.filter(|_| head.last).ok_or(Close::Protocol)?;
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes).await.map_err(|_ended| Close::Gone)?;
        unmask(&mut bytes, head.mask);
        Ok(bytes)
    }

    /// Adds the contents of a frame to the message that has begun.
    async fn contents(&mut self, head: &Head) -> Result<(), Close> {
        let Some(begun) = &mut self.begun else { return Err(Close::Protocol) };
        let room = self.most.saturating_sub(begun.len());
        let length = usize::try_from(head.length).ok().filter(|length| *length <= room);
        let length = length.ok_or(Close::TooLong)?;
        let before = begun.len();
        begun.resize(before + length, 0);
        let Some(new) = begun.get_mut(before..) else { return Err(Close::Protocol) };
        self.from.read_exact(new).await.map_err(|_ended| Close::Gone)?;
        unmask(new, head.mask);
        Ok(())
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    for (byte, mask) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Sends to a client.
pub(super) struct Mouth<W>(pub(super) W);

impl<W: AsyncWrite + Unpin> Mouth<W> {
    /// Sends a message: a byte, and what follows it.
    pub(super) async fn message(&mut self, channel: u8, contents: &[u8]) -> std::io::Result<()> {
        let mut start = head(BINARY, contents.len() + 1);
        start.push(channel);
        self.0.write_all(&start).await?;
        self.0.write_all(contents).await
    }

    /// Answers a question whether we are there.
    pub(super) async fn pong(&mut self, contents: &[u8]) -> std::io::Result<()> {
        self.control(PONG, contents).await
    }

    /// Asks whether the client is there.
    pub(super) async fn ping(&mut self) -> std::io::Result<()> {
        self.control(PING, &[]).await
    }

    /// Says that nothing more comes, and why.
    pub(super) async fn close(&mut self, why: Close) -> std::io::Result<()> {
        let Some(code) = why.code() else { return Ok(()) };
        self.control(CLOSE, &code.to_be_bytes()).await?;
        self.0.flush().await
    }

    async fn control(&mut self, code: u8, contents: &[u8]) -> std::io::Result<()> {
        let mut frame = head(code, contents.len());
        frame.extend(contents);
        self.0.write_all(&frame).await
    }

    /// Sends what is still here.
    pub(super) async fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().await
    }

    /// Ends the connection on our side.
    pub(super) async fn shut(&mut self) {
        drop(poll_fn(|context| Pin::new(&mut self.0).poll_shutdown(context)).await);
    }
}

/// The head of a frame that is a whole message; a server masks nothing.
fn head(code: u8, length: usize) -> Vec<u8> {
    let mut head = vec![code | LAST];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => head.push(short),
        (_, Ok(middle)) => {
            head.push(126);
            head.extend(middle.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use super::{
        BINARY, CLOSE, CONTINUED, Close, Ears, Heard, LAST, Mouth, PING, PONG, TEXT, head,
    };

    /// Longest message of these tests.
    const MOST: usize = 70_000;

    /// A frame as a client sends it.
    fn sent(first: u8, contents: &[u8]) -> Vec<u8> {
        let mut frame = head(0, contents.len());
        frame[0] = first;
        frame[1] |= 0x80;
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        frame.extend(mask);
        frame.extend(contents.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// Everything that is heard, and why it ended.
    fn hear(bytes: &[u8]) -> (Vec<Heard>, Close) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut ears = Ears::new(bytes, MOST);
            let mut all = Vec::new();
            loop {
                match ears.hear().await {
                    Ok(heard) => all.push(heard),
                    Err(why) => return (all, why),
                }
            }
        })
    }

    #[test]
    fn messages_of_every_length_are_read_and_written() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, MOST] {
            let contents: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let (heard, why) = hear(&sent(BINARY | LAST, &contents));
            assert_eq!((heard, why), (vec![Heard::Message(contents)], Close::Gone), "{length}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (length, start) in
            [(0, vec![0x82, 1]), (124, vec![0x82, 125]), (125, vec![0x82, 126, 0, 126])]
        {
            let mut out = Vec::new();
            let contents = vec![7; length];
            runtime.block_on(Mouth(&mut out).message(3, &contents)).unwrap();
            assert!(out.starts_with(&start), "{length}");
            assert_eq!(out[start.len()], 3);
            assert_eq!(out.len(), start.len() + 1 + length);
        }
    }

    #[test]
    fn a_message_in_frames_is_one_and_questions_come_between() {
        let parts = [
            sent(BINARY, b"a"),
            sent(PING | LAST, b"there?"),
            sent(CONTINUED, b""),
            sent(PONG | LAST, b""),
            sent(CONTINUED | LAST, b"bc"),
            sent(CLOSE | LAST, &1000u16.to_be_bytes()),
        ];
        let (heard, why) = hear(&parts.concat());
        assert_eq!(heard, [Heard::Ping(b"there?".to_vec()), Heard::Message(b"abc".to_vec())]);
        assert_eq!(why, Close::Normal);
    }

    #[test]
    fn what_does_not_fit_ends_it() {
        let mut unmasked = sent(BINARY | LAST, b"");
        unmasked[1] &= 0x7f;
        let long = vec![0; MOST + 1];
        let mut endless = sent(BINARY | LAST, b"");
        endless[1] = 0xff;
        endless.splice(2..2, u64::MAX.to_be_bytes());
        let table = [
            (unmasked, Close::Protocol),
            (sent(BINARY | LAST | 0x40, b""), Close::Protocol),
            (sent(CONTINUED | LAST, b"x"), Close::Protocol),
            ([sent(BINARY, b"x"), sent(BINARY | LAST, b"y")].concat(), Close::Protocol),
            (sent(0x03 | LAST, b""), Close::Protocol),
            (sent(0x0b | LAST, b""), Close::Protocol),
            (sent(PING, b""), Close::Protocol),
            (sent(PING | LAST, &[0; 126]), Close::Protocol),
            (sent(CLOSE | LAST, b"x"), Close::Protocol),
            (sent(TEXT | LAST, b"{}"), Close::NotBinary),
            (sent(BINARY | LAST, &long), Close::TooLong),
            (endless, Close::TooLong),
            ([sent(BINARY, &long[1..]), sent(CONTINUED | LAST, b"x")].concat(), Close::TooLong),
            (sent(CLOSE | LAST, b""), Close::Normal),
        ];
        for (number, (bytes, expected)) in table.into_iter().enumerate() {
            assert_eq!(hear(&bytes), (vec![], expected), "row {number}");
        }
    }

    #[test]
    fn whatever_comes_it_ends() {
        let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..40 {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                bytes.push(dice.to_le_bytes()[0]);
            }
            // Half of them look like frames.
            if dice & 1 == 0 {
                bytes[0] &= 0x8f;
                bytes[1] = 0x80 | (bytes[1] & 0x0f);
            }
            drop(hear(&bytes));
        }
    }
}
