//! One byte of generation, then the message in `postcard` encoding.

use serde::{Serialize, de::DeserializeOwned};

/// The generation of every message of this crate.
pub const GENERATION: u8 = 2;

/// Longest message that is accepted; the sender is told before it sends. Twice the kernel's limit
/// for the arguments and environment of a program, so that whatever can be executed can be asked.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// Why a packet is not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nothing was sent.
    #[error("the message is empty")]
    Empty,
    /// The other side speaks another generation of the protocol.
    #[error("the message is of generation {theirs}, this program speaks generation {GENERATION}")]
    Generation {
        /// What the message says.
        theirs: u8,
    },
    /// The bytes are not a message of the expected kind.
    #[error("the message is malformed")]
    Malformed,
    /// Something follows the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
}

/// The packet for `message`.
///
/// Encoding into memory cannot fail for the types of this crate: they hold no maps of unknown
/// length and no types that refuse to be encoded. Should it fail all the same, the packet is
/// empty, which every decoder refuses.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_extend(message, vec![GENERATION]).unwrap_or_default()
}

/// The message in `packet`, which must be one message and nothing else.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<T, DecodeError> {
    let (generation, body) = packet.split_first().ok_or(DecodeError::Empty)?;
    if *generation != GENERATION {
        return Err(DecodeError::Generation { theirs: *generation });
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(DecodeError::Trailing(rest.len())),
        Err(_malformed) => Err(DecodeError::Malformed),
    }
}

/// The number at the beginning of a message that is not understood, if one is there: whoever sent a
/// numbered one can be told.
pub fn number_of(packet: &[u8]) -> Option<u32> {
    let body = packet.strip_prefix(&[GENERATION])?;
    postcard::take_from_bytes(body).ok().map(|(number, _rest)| number)
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, GENERATION, decode, encode, number_of};
    use crate::{guest, keeper};
    use proptest::prelude::{any, proptest};

    #[test]
    fn a_message_survives_the_trip() {
        let sent = guest::ToInit::Ping { nonce: 7 };
        assert_eq!(decode::<guest::ToInit>(&encode(&sent)), Ok(sent));
    }

    #[test]
    fn another_generation_is_named() {
        let mut packet = encode(&guest::ToInit::Ping { nonce: 7 });
        packet[0] = GENERATION + 1;
        let refused = decode::<guest::ToInit>(&packet);
        assert_eq!(refused, Err(DecodeError::Generation { theirs: GENERATION + 1 }));
    }

    #[test]
    fn what_follows_a_message_is_refused() {
        let mut packet = encode(&guest::ToInit::Ping { nonce: 7 });
        packet.push(0);
        assert_eq!(decode::<guest::ToInit>(&packet), Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn what_is_not_understood_has_a_number_still() {
        let call = keeper::Call { number: 300, request: keeper::Request::Survey };
        let mut packet = encode(&call);
        assert_eq!(number_of(&packet), Some(300));
        // A variant of a later program.
        if let Some(request) = packet.last_mut() {
            *request = 0x7f;
        }
        assert_eq!(decode::<keeper::Call>(&packet), Err(DecodeError::Malformed));
        assert_eq!(number_of(&packet), Some(300));
        packet[0] = GENERATION + 1;
        assert_eq!(
            (number_of(&packet), number_of(&[GENERATION]), number_of(&[])),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn no_packet_of_any_bytes_does_harm(packet: Vec<u8>) {
            drop(decode::<guest::ToInit>(&packet));
            drop(decode::<guest::FromInit>(&packet));
            drop(decode::<keeper::Call>(&packet));
            drop(decode::<keeper::Message>(&packet));
        }

        #[test]
        fn truncated_messages_are_refused(arguments: Vec<Vec<u8>>, cut in any::<proptest::sample::Index>()) {
            let sent = guest::ToInit::Execute(guest::Execute { arguments, ..Default::default() });
            let packet = encode(&sent);
            let shorter = &packet[..cut.index(packet.len())];
            assert!(decode::<guest::ToInit>(shorter).is_err());
        }
    }
}
