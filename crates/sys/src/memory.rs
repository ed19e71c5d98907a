//! Reading and writing the memory of another process, and giving back one's own.

use crate::{Errno, last_errno};

/// Gives memory that this process has freed back to the system, as far as its allocator knows how.
pub fn give_back() {
    // SAFETY: the call takes no pointer, and the allocator guards itself.
    unsafe { libc::malloc_trim(0) };
}

/// Copies up to `buffer.len()` bytes at `address` of process or thread `pid`; says how many came.
///
/// The copy is made once. Whoever decides on it must act on the copy, because the owner of the
/// memory can change it at any time.
pub fn read_process(pid: u32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_overflow| Errno::SRCH)?;
    let address = usize::try_from(address).map_err(|_overflow| Errno::FAULT)?;
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` describes `buffer`, borrowed mutably for the whole call; `remote` is an
    // address of another process, which the kernel checks and this process never dereferences.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_negative| last_errno())
}

/// Copies `bytes` to `address` of process or thread `pid`. All of it, or the errno.
pub fn write_process(pid: u32, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_overflow| Errno::SRCH)?;
    let address = usize::try_from(address).map_err(|_overflow| Errno::FAULT)?;
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: `local` describes `bytes`, which the call only reads; `remote` is an address of
    // another process, which the kernel checks and this process never dereferences.
    let written =
        unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(written) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::FAULT),
        Err(_negative) => Err(last_errno()),
    }
}
