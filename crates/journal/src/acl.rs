//! Access control lists, as they are in extended attributes (`posix_acl_xattr.h`).
//!
//! The kernel shows the numbers of users and groups as whoever asks knows them. Where files are shown
//! with other owners than they have on disk, or to somebody who knows one user only, all other
//! numbers read as UNKNOWN, and no list with such a number can be set again.

use cowork_api::Text;

/// A number that whoever asked does not know.
const UNKNOWN: u32 = u32::MAX;
/// The only version there is.
const VERSION: u32 = 2;
/// `ACL_USER` and `ACL_GROUP`: entries with a number of their own.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
/// `ACL_USER_OBJ`, `ACL_MASK` and `ACL_OTHER`, which a file with a mask has as its mode.
const OF_MODE: [u16; 3] = [0x01, 0x10, 0x20];

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

/// Whether an extended attribute is an access control list.
pub fn is_list(name: &[u8]) -> bool {
    matches!(name, ACCESS | DEFAULT)
}

/// A list with the numbers of its users and groups replaced. `None` if it is malformed, or if a number
/// has nothing in its place.
pub fn translate(
    value: &[u8],
    user: impl Fn(u32) -> Option<u32>,
    group: impl Fn(u32) -> Option<u32>,
) -> Option<Vec<u8>> {
    let mut entries = parse(value)?;
    for entry in &mut entries {
        match entry.tag {
            USER => entry.id = user(entry.id)?,
            GROUP => entry.id = group(entry.id)?,
            _ => {}
        }
    }
    Some(write(&entries))
}

fn parse(value: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || rest.len() % 8 != 0 {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let (tag, rest) = bytes.split_first_chunk()?;
        let (rights, rest) = rest.split_first_chunk()?;
        Some(Entry {
            tag: u16::from_le_bytes(*tag),
            rights: u16::from_le_bytes(*rights),
            id: u32::from_le_bytes(*rest.first_chunk()?),
        })
    };
    rest.chunks_exact(8).map(entry).collect()
}

fn write(entries: &[Entry]) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in entries {
        value.extend(entry.tag.to_le_bytes());
        value.extend(entry.rights.to_le_bytes());
        value.extend(entry.id.to_le_bytes());
    }
    value
}

fn is_unknown(entry: Entry) -> bool {
    matches!(entry.tag, USER | GROUP) && entry.id == UNKNOWN
}

/// Whether a list names somebody whose number was not known.
pub(crate) fn has_unknown((name, value): &(Text, Vec<u8>)) -> bool {
    is_list(name) && parse(value).is_some_and(|entries| entries.into_iter().any(is_unknown))
}

/// What an attribute was, with what was not known of a list taken from what it is now, where that
/// names as many.
pub(crate) fn fill(then: &(Text, Vec<u8>), now: &[(Text, Vec<u8>)]) -> (Text, Vec<u8>) {
    let (name, value) = then;
    let filled = || {
        let (_, present) = now.iter().find(|(other, _)| other == name)?;
        let (mut entries, present) = (parse(value)?, parse(present)?);
        if entries.len() != present.len() {
            return None;
        }
        for (entry, present) in entries.iter_mut().zip(present) {
            if entry.tag != present.tag || !is_unknown(*entry) && entry.id != present.id {
                return None;
            }
            entry.id = present.id;
        }
        Some((name.clone(), write(&entries)))
    };
    if has_unknown(then) { filled().unwrap_or_else(|| then.clone()) } else { then.clone() }
}

/// Whether what a list was cannot be set again, and need not be: all that differs from what it is now
/// comes back with the mode.
pub(crate) fn comes_with_mode(then: &(Text, Vec<u8>), now: &[(Text, Vec<u8>)]) -> bool {
    let (name, value) = then;
    let present = now.iter().find(|(other, _)| other == name);
    has_unknown(then) && present.is_some_and(|(_, present)| differ_by_mode(name, value, present))
}

/// Whether two lists differ in no more than what a file has as its mode.
fn differ_by_mode(name: &[u8], one: &[u8], other: &[u8]) -> bool {
    let rest = |value: &[u8]| {
        let mut entries = parse(value)?;
        for entry in &mut entries {
            if OF_MODE.contains(&entry.tag) {
                entry.rights = 0;
            }
        }
        Some(entries)
    };
    name == ACCESS && rest(one).is_some_and(|one| Some(one) == rest(other))
}

#[cfg(test)]
mod tests {
    use super::{
        ACCESS, Entry, UNKNOWN, differ_by_mode, fill, has_unknown, parse, translate, write,
    };

    fn list(named: u32, rights: u16, mask: u16) -> Vec<u8> {
        let entry = |tag, rights, id| Entry { tag, rights, id };
        write(&[
            entry(0x01, 6, UNKNOWN),
            entry(0x02, rights, named),
            entry(0x04, 4, UNKNOWN),
            entry(0x10, mask, UNKNOWN),
            entry(0x20, 4, UNKNOWN),
        ])
    }

    #[test]
    fn numbers_are_translated_where_they_mean_somebody() {
        let seven = |id| (id == 1000).then_some(7);
        assert_eq!(translate(&list(1000, 6, 6), seven, seven), Some(list(7, 6, 6)));
        assert_eq!(translate(&list(1001, 6, 6), seven, seven), None);
        assert_eq!(translate(b"\x02\0\0\0odd", seven, seven), None);
        assert_eq!(translate(b"\x03\0\0\0", seven, seven), None);
        assert_eq!(parse(&list(1, 2, 3)).map(|entries| entries.len()), Some(5));
    }

    #[test]
    fn what_was_not_known_is_taken_from_what_is_there() {
        let of = |value: Vec<u8>| (ACCESS.to_vec(), value);
        let then = of(list(UNKNOWN, 6, 6));
        assert!(has_unknown(&then) && !has_unknown(&of(list(1001, 6, 6))));
        assert_eq!(fill(&then, &[of(list(1001, 6, 4))]), of(list(1001, 6, 6)));
        // What is known is not replaced, and nothing is taken from a list of others.
        assert_eq!(fill(&of(list(5, 6, 6)), &[of(list(1001, 6, 4))]), of(list(5, 6, 6)));
        assert_eq!(fill(&then, &[]), then);
    }

    #[test]
    fn a_mask_comes_back_with_the_mode() {
        assert!(differ_by_mode(ACCESS, &list(UNKNOWN, 6, 6), &list(UNKNOWN, 6, 4)));
        assert!(!differ_by_mode(ACCESS, &list(UNKNOWN, 6, 6), &list(UNKNOWN, 4, 6)));
        assert!(!differ_by_mode(b"system.posix_acl_default", &list(1, 6, 6), &list(1, 6, 4)));
    }
}
