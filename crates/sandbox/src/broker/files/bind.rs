//! Sockets with a name in a granted folder.

use super::call::Call;
use super::judge::{permit, permit_type};
use super::locate::{Ending, Last, Place, Where, locate};
use super::mask::with_mask;
use super::{HERE, Outcome};
use cowork_api::files::FileKind;
use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix};

/// Longest address of a UNIX socket (`sizeof(struct sockaddr_un)`).
const LONGEST: usize = 110;
/// Bytes of the family at its start.
const FAMILY: usize = 2;

/// `bind(socket, address, length)`.
pub(super) fn bind(call: &Call<'_>) -> Result<Outcome, Errno> {
    let length = usize::try_from(call.number(2)).unwrap_or(usize::MAX);
    if length <= FAMILY || length > LONGEST {
        return Ok(Outcome::Continue);
    }
    let mut address = [0; LONGEST];
    let address = address.get_mut(..length).unwrap_or_default();
    call.bytes(call.long(1), address)?;
    let Some(path) = path_in(address) else { return Ok(Outcome::Continue) };
    let Where::At(place) = locate(call, HERE, path, Last::Name)? else {
        return Ok(Outcome::Continue);
    };
    let socket = call.file(call.descriptor(0))?;
    call.still_waits()?;
    if rustix::net::sockopt::socket_domain(&socket)? != AddressFamily::UNIX {
        return Ok(Outcome::Continue);
    }
    if place.ending != Ending::Name || place.slash || place.seen()?.is_some() {
        return Err(Errno::ADDRINUSE);
    }
    permit(call, &place, "create")?;
    permit_type(call, &place)?;
    place.folder.growth.allow_name(&place.folder.ruling().rules.quota)?;
    with_mask(call, || give_name(call, &place, &socket))?;
    place.folder.growth.count(1);
    Ok(Outcome::DONE)
}

/// The path in an address of a UNIX socket; `None` for other families and for abstract names.
fn path_in(address: &[u8]) -> Option<&[u8]> {
    let (family, name) = address.split_first_chunk::<FAMILY>()?;
    if u16::from_ne_bytes(*family) != AddressFamily::UNIX.as_raw() {
        return None;
    }
    let path = name.split(|byte| *byte == 0).next()?;
    (!path.is_empty()).then_some(path)
}

/// Binds the caller's socket, from the folder that the name is in: that is this thread's own
/// working directory meanwhile.
fn give_name(call: &Call<'_>, place: &Place, socket: &OwnedFd) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(&*place.name)?;
    call.act(&[place], |hand, by| {
        // Whoever takes the folder away asks for it: nobody else sees that a socket is of the folder.
        let number = rustix::fs::fstat(socket)?.st_ino;
        let noted = call.broker.note_socket(&place.folder.name, number);
        rustix::process::fchdir(&*place.parent)?;
        let bound = hand.announce(by, place.spot(), FileKind::Other).and_then(|intent| {
            let bound = rustix::net::bind(socket, &address);
            if bound.is_err() {
                hand.failed(intent)?;
            }
            bound
        });
        // A folder that this thread stands in could not be unmounted.
        rustix::process::chdir(c"/")?;
        if bound.is_ok()
            && let Ok(Some(file)) = place.seen()
        {
            call.broker.note_file(noted, (file.st_dev, file.st_ino));
        }
        bound
    })
}

#[cfg(test)]
mod tests {
    use super::path_in;

    #[test]
    fn only_names_in_the_file_system_are_looked_at() {
        let unix = 1_u16.to_ne_bytes();
        let address = |rest: &[u8]| [&unix[..], rest].concat();
        assert_eq!(path_in(&address(b"a/b\0junk")), Some(&b"a/b"[..]));
        assert_eq!(path_in(&address(b"whole")), Some(&b"whole"[..]));
        assert_eq!(path_in(&address(b"\0abstract")), None);
        assert_eq!(path_in(&[2_u16.to_ne_bytes().as_slice(), b"a"].concat()), None);
        assert_eq!(path_in(b"\x01"), None);
    }
}
