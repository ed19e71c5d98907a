//! Names that outlive the process which gave them an address: a file in memory, made by the daemon
//! and held by the keeper, with one place for each address.
//!
//! A name is in it before its address is told to anybody, by one write of one page: whoever comes after
//! a process that was killed finds every name that a program can have the address of. Its length is
//! sealed, so it cannot become larger than all names together.
//!
//! Whoever wrote it may have meant harm: what is read is a copy, and what is no name, stands at the
//! place of another one or does not fit its check is left out. Nothing is decided by it. What a name
//! may is asked of the rules each time.

use cowork_api::egress::KEPT_NAMES;
use cowork_policy::egress::HostName;
use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{SeekFrom, seek};

/// Bytes of one place: the length of the name, a check of both, and the name.
const SLOT: usize = 256;
/// Bytes that are read at a time.
const PART: usize = 256 * SLOT;

/// The file.
#[derive(Debug)]
pub(crate) struct Kept(OwnedFd);

impl Kept {
    /// Takes a file that has the length it should have.
    pub(crate) fn new(file: OwnedFd) -> Result<Self, Errno> {
        let length = rustix::fs::fstat(&file)?.st_size;
        if u64::try_from(length) == Ok(KEPT_NAMES) { Ok(Self(file)) } else { Err(Errno::INVAL) }
    }

    /// Writes down that an address is a name's.
    pub(crate) fn write(&self, place: u32, name: &str) -> Result<(), Errno> {
        let slot = slot(place, name).ok_or(Errno::NAMETOOLONG)?;
        // Within a page nothing stops a write in the middle.
        let written = rustix::io::pwrite(&self.0, &slot, u64::from(place) * SLOT as u64)?;
        if written == slot.len() { Ok(()) } else { Err(Errno::IO) }
    }

    /// Tells `found` every name that is there, with its place. Holes are stepped over: a file with few
    /// names is read fast.
    pub(crate) fn read(&self, mut found: impl FnMut(u32, HostName)) -> Result<(), Errno> {
        let mut part = vec![0; PART];
        let mut at = 0;
        while at < KEPT_NAMES {
            let data = match seek(&self.0, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            at = data - data % SLOT as u64;
            let read = rustix::io::pread(&self.0, &mut *part, at)?;
            for slot in part.get(..read).unwrap_or_default().chunks_exact(SLOT) {
                if let Ok(place) = u32::try_from(at / SLOT as u64)
                    && let Some(name) = name_in(place, slot)
                {
                    found(place, name);
                }
                at += SLOT as u64;
            }
            if read < SLOT {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What stands for a name at its place.
fn slot(place: u32, name: &str) -> Option<Vec<u8>> {
    let length = u8::try_from(name.len()).ok().filter(|length| *length > 0)?;
    let mut slot = vec![length];
    slot.extend_from_slice(&check(place, name.as_bytes()).to_le_bytes());
    slot.extend_from_slice(name.as_bytes());
    (slot.len() <= SLOT).then_some(slot)
}

/// The name at a place, if there is one and it is whole.
fn name_in(place: u32, slot: &[u8]) -> Option<HostName> {
    let (length, rest) = slot.split_first()?;
    let (known, rest) = rest.split_first_chunk::<2>()?;
    let name = rest.get(..usize::from(*length)).filter(|name| !name.is_empty())?;
    if u16::from_le_bytes(*known) != check(place, name) {
        return None;
    }
    let text = std::str::from_utf8(name).ok()?;
    // As it is kept it is in the form in which names are compared.
    text.parse::<HostName>().ok().filter(|name| name.as_str() == text)
}

/// Tells a whole entry from a part of one: FNV-1a, folded.
fn check(place: u32, name: &[u8]) -> u16 {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = place.to_le_bytes().iter().chain(name).fold(0x811c_9dc5, mix);
    let folded = (hash >> 16) ^ (hash & 0xffff);
    u16::try_from(folded).unwrap_or_default()
}

/// A file as the daemon makes it.
#[cfg(test)]
pub(crate) fn file() -> OwnedFd {
    let file = rustix::fs::memfd_create(c"names", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, KEPT_NAMES).unwrap();
    file
}

#[cfg(test)]
mod tests {
    use super::{Kept, SLOT, file, slot};
    use cowork_api::egress::KEPT_NAMES;
    use cowork_sys::Errno;
    use rustix::fd::OwnedFd;

    fn all(file: &OwnedFd) -> Vec<(u32, String)> {
        let mut all = Vec::new();
        let kept = Kept::new(file.try_clone().unwrap()).unwrap();
        kept.read(|place, name| all.push((place, name.as_str().to_owned()))).unwrap();
        all
    }

    #[test]
    fn what_was_written_is_read() {
        let file = file();
        assert_eq!(all(&file), []);
        let kept = Kept::new(file.try_clone().unwrap()).unwrap();
        let last = u32::try_from(KEPT_NAMES / SLOT as u64 - 1).unwrap();
        let long = vec!["a".repeat(61); 4].join(".") + ".b.cd";
        assert_eq!(long.len(), 252);
        let longest = format!("a{long}");
        let wanted = [(0, "a.b"), (7, long.as_str()), (70_000, "c.d"), (last, longest.as_str())];
        for (place, name) in wanted {
            kept.write(place, name).unwrap();
        }
        assert_eq!(all(&file), wanted.map(|(place, name)| (place, name.to_owned())));
        assert_eq!(kept.write(3, &format!("aa{long}")), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn a_file_of_another_length_is_not_taken() {
        let file = file();
        rustix::fs::ftruncate(&file, KEPT_NAMES + 1).unwrap();
        assert_eq!(Kept::new(file).unwrap_err(), Errno::INVAL);
    }

    /// As if whoever wrote was killed after any byte, also over what was there.
    #[test]
    fn a_part_of_an_entry_is_none() {
        let entry = slot(9, "example.com").unwrap();
        for before in ["", "old.example.org"] {
            for length in 0..entry.len() {
                let file = file();
                let kept = Kept::new(file.try_clone().unwrap()).unwrap();
                if !before.is_empty() {
                    kept.write(9, before).unwrap();
                }
                rustix::io::pwrite(&file, &entry[..length], 9 * SLOT as u64).unwrap();
                kept.write(10, "next.example").unwrap();
                let mut known = all(&file);
                assert_eq!(known.pop(), Some((10, "next.example".into())), "{length}");
                // Nothing, or what was there before the first byte.
                let old = length == 0 && !before.is_empty();
                assert_eq!(known.len(), usize::from(old), "{before} {length} {known:?}");
            }
        }
    }

    #[test]
    fn what_is_no_name_is_left_out() {
        for name in
            ["Upper.example", "127.0.0.1", "a..b", "dot.", "nul\0.example", "a b", "*.example"]
        {
            let file = file();
            let entry = slot(4, name).unwrap();
            rustix::io::pwrite(&file, &entry, 4 * SLOT as u64).unwrap();
            assert_eq!(all(&file), [], "{name}");
            // At the place of another it does not fit either.
            let entry = slot(4, "example.com").unwrap();
            rustix::io::pwrite(&file, &entry, 5 * SLOT as u64).unwrap();
            assert_eq!(all(&file), [], "{name}");
        }
        let file = file();
        let mut noise = 1u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            noise.to_le_bytes()[3]
        })
        .take(1024 * SLOT + 3)
        .collect();
        rustix::io::pwrite(&file, &bytes, 0).unwrap();
        assert_eq!(all(&file), []);
    }
}
