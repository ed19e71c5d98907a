//! The hash by which OpenSSL finds an authority in a folder of certificates: of its subject, with
//! every text in it in lower case and its blanks made one.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8: u8 = 0x0c;
/// The kinds of text whose bytes are UTF-8 as they are: UTF-8 itself, printable, IA5, visible.
const TEXTS: [u8; 4] = [UTF8, 0x13, 0x16, 0x1a];
/// The kind of text whose bytes are the first 256 characters.
const LATIN: u8 = 0x14;
/// The version of a certificate, which may be left out.
const VERSION: u8 = 0xa0;

/// One value in DER, and what follows it.
struct Item<'d> {
    tag: u8,
    inner: &'d [u8],
    rest: &'d [u8],
}

fn item(der: &[u8]) -> Option<Item<'_>> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    let (inner, rest) = rest.split_at_checked(length)?;
    Some(Item { tag, inner, rest })
}

fn coded(tag: u8, inner: &[u8]) -> Vec<u8> {
    let mut all = vec![tag];
    match u8::try_from(inner.len()) {
        Ok(length) if length < 0x80 => all.push(length),
        Ok(length) => all.extend([0x81, length]),
        Err(_) => {
            let length = u16::try_from(inner.len()).unwrap_or(u16::MAX);
            all.push(0x82);
            all.extend(length.to_be_bytes());
        }
    }
    all.extend(inner);
    all
}

/// The subject of a certificate.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let body = item(item(certificate)?.inner)?;
    let mut next = item(body.inner)?;
    if next.tag == VERSION {
        next = item(next.rest)?;
    }
    // After the number: how it is signed, by whom, from when to when.
    for _ in 0..4 {
        next = item(next.rest)?;
    }
    (next.tag == SEQUENCE).then_some(next.inner)
}

/// The hash of a certificate's subject.
pub(crate) fn hash_of(certificate: &[u8]) -> Option<u32> {
    let mut rest = subject(certificate)?;
    let mut canonical = Vec::new();
    while !rest.is_empty() {
        let names = item(rest)?;
        let mut inner = names.inner;
        let mut all = Vec::new();
        while !inner.is_empty() {
            let pair = item(inner)?;
            let kind = item(pair.inner)?;
            let value = item(kind.rest)?;
            let mut both = coded(kind.tag, kind.inner);
            both.extend(match value.tag {
                tag if TEXTS.contains(&tag) => coded(UTF8, &plain(value.inner)),
                LATIN => {
                    let text: String = value.inner.iter().copied().map(char::from).collect();
                    coded(UTF8, &plain(text.as_bytes()))
                }
                tag => coded(tag, value.inner),
            });
            all.extend(coded(SEQUENCE, &both));
            inner = pair.rest;
        }
        canonical.extend(coded(SET, &all));
        rest = names.rest;
    }
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &canonical);
    let first = digest.as_ref().first_chunk::<4>()?;
    Some(u32::from_le_bytes(*first))
}

fn plain(text: &[u8]) -> Vec<u8> {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<Vec<u8>> = words.map(<[u8]>::to_ascii_lowercase).collect();
    words.join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::hash_of;
    use std::path::Path;

    #[test]
    fn it_is_the_hash_that_openssl_links_by() {
        let mut compared = 0;
        for entry in std::fs::read_dir("/etc/ssl/certs").unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let hash =
                name.split_once('.').and_then(|(hash, _)| u32::from_str_radix(hash, 16).ok());
            let Some(hash) = hash.filter(|_| name.len() == 10) else { continue };
            let pem = std::fs::read(Path::new("/etc/ssl/certs").join(&name)).unwrap();
            for der in super::super::trust::certificates(&pem) {
                assert_eq!(hash_of(&der), Some(hash), "{name}");
                compared += 1;
            }
        }
        assert!(compared > 0, "this host links no certificate by its hash");
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        for bad in [&b""[..], b"0", b"0\x82", b"no certificate", &[0x30, 0x84, 255, 255, 255, 255]]
        {
            assert_eq!(hash_of(bad), None);
        }
    }
}
