//! Names that a file system could take for one another.
//!
//! A folder of the user may lie on a file system that ignores case, composes or drops characters,
//! or gives every name a second one of eight letters and three. There `.GIT`, `.g<U+200C>it`,
//! `.git.` and `git~1` all are `.git`. [`fold`] maps a name to the plainest of those that could
//! mean the same; two names that are one file for such a file system fold to the same bytes.
//!
//! Deliberately absent: letters with marks written in one or in two characters. No protected name
//! has one.

/// Appends the folded form of one component.
pub(super) fn fold(name: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    if name.is_ascii() {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
    } else {
        for chunk in name.utf8_chunks() {
            chunk.valid().chars().for_each(|c| fold_char(c, out));
            out.extend_from_slice(chunk.invalid());
        }
    }
    let folded = out.get(start..).unwrap_or_default();
    let kept = without_stream(folded);
    // FAT drops dots and blanks at the end of a name.
    let blank = kept.iter().rev().take_while(|byte| matches!(byte, b'.' | b' ')).count();
    let end = start + kept.len() - blank;
    out.truncate(end);
}

/// NTFS takes `name::$DATA` and `name:$I30:$INDEX_ALLOCATION` for `name`.
fn without_stream(name: &[u8]) -> &[u8] {
    let colon = name.windows(2).position(|pair| matches!(pair, b"::" | b":$"));
    colon.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// Appends what is left of a character.
pub(super) fn fold_char(c: char, out: &mut Vec<u8>) {
    if c.is_ascii() {
        out.extend(u8::try_from(c).ok().map(|byte| byte.to_ascii_lowercase()));
        return;
    }
    if is_ignored(c) {
        return;
    }
    if let Some(plain) = plain(c) {
        out.extend_from_slice(plain.as_bytes());
        return;
    }
    for lower in c.to_lowercase() {
        out.extend_from_slice(lower.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Characters that become plain letters when case is ignored or characters are decomposed
/// (Unicode, `CaseFolding.txt`, full foldings, and `UnicodeData.txt`, canonical decompositions).
fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{00DF}' | '\u{1E9E}' => "ss",
        '\u{0130}' | '\u{0131}' => "i",
        '\u{017F}' => "s",
        '\u{037E}' => ";",
        '\u{1FEF}' => "`",
        '\u{212A}' => "k",
        '\u{FB00}' => "ff",
        '\u{FB01}' => "fi",
        '\u{FB02}' => "fl",
        '\u{FB03}' => "ffi",
        '\u{FB04}' => "ffl",
        '\u{FB05}' | '\u{FB06}' => "st",
        _ => return None,
    })
}

/// Characters that a comparison drops: HFS+ some of them, folders of ext4 and F2FS that ignore case
/// all (Unicode, `Default_Ignorable_Code_Point`).
fn is_ignored(c: char) -> bool {
    matches!(
        c,
        '\u{00AD}'
            | '\u{034F}'
            | '\u{061C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFF8}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}

/// Whether a folded name has the form of a second name, as `gitmod~1` or `mcp~1.jso`.
pub(super) fn is_short(name: &[u8]) -> bool {
    let tilde = name.iter().position(|byte| *byte == b'~');
    let digit = tilde.and_then(|at| name.get(at + 1));
    tilde.is_some_and(|at| (1..=6).contains(&at)) && digit.is_some_and(u8::is_ascii_digit)
}

/// Whether the folded name `short` can be a second name of the folded name `long`.
pub(super) fn is_short_of(short: &[u8], long: &[u8]) -> bool {
    if !is_short(short) || is_short_enough(long) {
        return false;
    }
    let (stem, ending) = split(short);
    let (base, number) = split_at(stem, b'~');
    let numbered = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let (long_stem, long_ending) = split(without_dots(long));
    let kept: Vec<u8> = long_stem.iter().copied().filter(|byte| !is_dropped(*byte)).collect();
    let same_ending =
        ending.get(..3).unwrap_or(ending) == long_ending.get(..3).unwrap_or(long_ending);
    // After a few names with the same start, two letters and a number made of the rest are left.
    let hashed = base.len() == 6
        && base.get(2..).is_some_and(|rest| rest.iter().all(u8::is_ascii_hexdigit))
        && base.get(..2) == kept.get(..2);
    let room = 7usize.saturating_sub(number.len()).min(6);
    let cut = kept.starts_with(base) && base.len() == kept.len().min(room);
    numbered && same_ending && (cut || hashed)
}

/// Whether a name fits into eight letters and three, and so has no second one.
fn is_short_enough(name: &[u8]) -> bool {
    let (stem, ending) = split(name);
    let fits = |part: &[u8], most| part.len() <= most && !part.iter().any(|byte| is_dropped(*byte));
    !stem.is_empty() && fits(stem, 8) && fits(ending, 3) && !stem.contains(&b'.')
}

fn is_dropped(byte: u8) -> bool {
    matches!(byte, b'.' | b' ')
}

fn without_dots(name: &[u8]) -> &[u8] {
    let dots = name.iter().take_while(|byte| is_dropped(**byte)).count();
    name.get(dots..).unwrap_or_default()
}

/// A name and what follows its last dot.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    dot.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?))).unwrap_or((name, &[]))
}

fn split_at(text: &[u8], mark: u8) -> (&[u8], &[u8]) {
    let at = text.iter().position(|byte| *byte == mark);
    at.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?))).unwrap_or((text, &[]))
}

#[cfg(test)]
mod tests {
    use super::{fold, is_short, is_short_of};

    fn folded(name: impl AsRef<[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        fold(name.as_ref(), &mut out);
        out
    }

    #[test]
    fn other_spellings_fold_to_the_plain_one() {
        for (name, plain) in [
            (".git", ".git"),
            (".GIT", ".git"),
            (".g\u{200C}it", ".git"),
            ("\u{FEFF}.git", ".git"),
            (".gi\u{00AD}t\u{200D}", ".git"),
            (".git.", ".git"),
            (".git . .", ".git"),
            (".git::$INDEX_ALLOCATION", ".git"),
            (".git:$I30:$INDEX_ALLOCATION", ".git"),
            ("pac\u{212A}age.json", "package.json"),
            ("hoo\u{212A}\u{017F}", "hooks"),
            (".con\u{FB01}g", ".config"),
            (".\u{00DF}h", ".ssh"),
            ("G\u{0130}T", "git"),
            ("\u{00C9}t\u{00C9}", "\u{00E9}t\u{00E9}"),
            ("a:b", "a:b"),
            ("...", ""),
        ] {
            assert_eq!(folded(name), plain.as_bytes(), "{name:?}");
        }
        assert_eq!(folded(b"\xFF.GIT\xE2\x80"), b"\xFF.git\xE2\x80");
    }

    #[test]
    fn folding_twice_changes_nothing() {
        let all = (0..0x2_0000).chain(0xE_0000..0xE_1000).filter_map(char::from_u32);
        for c in all {
            let once = folded(format!("a{c}b"));
            assert_eq!(folded(&once), once, "{c:?}");
        }
    }

    #[test]
    fn second_names_are_known_by_their_first_letters() {
        for (short, long) in [
            ("git~1", ".git"),
            ("git~9", ".git"),
            ("gitmod~1", ".gitmodules"),
            ("gitmo~12", ".gitmodules"),
            ("g~123456", ".gitmodules"),
            ("gi7eba~1", ".gitmodules"),
            ("bashrc~1", ".bashrc"),
            ("bash_p~1", ".bash_profile"),
            ("mcp~1.jso", ".mcp.json"),
            ("gitlab~1.yml", ".gitlab-ci.yml"),
        ] {
            assert!(is_short(short.as_bytes()), "{short}");
            assert!(is_short_of(short.as_bytes(), long.as_bytes()), "{short} {long}");
        }
        for (short, long) in [
            ("git~1", ".gitmodules"),
            ("hooks~1", "hooks"),
            ("config~1", "config"),
            ("git~", ".git"),
            ("git~x", ".git"),
            ("mcp~1.yml", ".mcp.json"),
            ("gi~1", ".git"),
            ("~1", ".git"),
            ("git~1234567890", ".git"),
            ("git~1it~1it~q", ".git"),
        ] {
            assert!(!is_short_of(short.as_bytes(), long.as_bytes()), "{short} {long}");
        }
    }
}
