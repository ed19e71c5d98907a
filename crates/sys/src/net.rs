//! Network calls with addresses that came from elsewhere, transparent sockets, and the loopback
//! device.

use crate::{Errno, check};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Connects `socket` to an address given as the bytes of a `sockaddr` of any family.
pub fn connect_raw(socket: BorrowedFd<'_>, address: &[u8]) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_overflow| Errno::INVAL)?;
    // SAFETY: the kernel reads `length` bytes from `address`, which is borrowed for the call and
    // exactly that long; it does not require alignment because it copies them first.
    let result = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Lets nobody send descriptors to `socket`, or to what it accepts: whoever drops one that was sent may
/// have to wait for what its sender prepared. Known to Linux 6.16 and later.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let no: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the kernel reads `length` bytes from `no`, a local of that size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            length,
        )
    };
    check(libc::c_long::from(result)).map(|_| ())
}

/// A family of addresses that a socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, with IPv4 where the socket takes both.
    V6,
}

/// Lets `socket` be the end of connections to addresses and ports that it is not bound to, where a
/// rule of the network leads them to it.
pub fn set_transparent(socket: BorrowedFd<'_>, family: Family) -> Result<(), Errno> {
    let (level, option) = match family {
        Family::V4 => (libc::SOL_IP, libc::IP_TRANSPARENT),
        Family::V6 => (libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
    };
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or_default();
    // SAFETY: both options read one `int`, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length)
    };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Brings `lo` up in the network namespace of this process.
pub fn bring_up_loopback() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: `ifreq` is plain old data of integers and byte arrays; all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives until the call returns.
    let result =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(libc::c_long::from(result)).map(|_| ())
}
