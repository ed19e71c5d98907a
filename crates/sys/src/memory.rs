//! Reading and writing the memory of another process, sharing some, and giving back one's own.

use crate::{Errno, last_errno};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives memory that this process has freed back to the system, as far as its allocator knows how.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and the allocator guards itself.
    unsafe {
        libc::malloc_trim(0)
    };
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

/// Numbers in a file that is mapped into memory: what is written is in the file at once, whatever
/// becomes of this process.
#[derive(Debug)]
pub struct Numbers {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to the value and not to a thread.
unsafe impl Send for Numbers {}
// SAFETY: everything in it is read and written as whole atomic numbers.
unsafe impl Sync for Numbers {}

impl Numbers {
    /// Maps the first `count` numbers of a file that has as many. Nobody must make it shorter.
    pub fn map(file: BorrowedFd<'_>, count: usize) -> Result<Self, Errno> {
        let size = count.checked_mul(size_of::<AtomicU64>()).ok_or(Errno::OVERFLOW)?;
        let has = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if size == 0 || has < size {
            return Err(Errno::INVAL);
        }
        // SAFETY: the kernel chooses a free address, so that nothing that is in use is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, count })
    }

    /// The number at a place; 0 beyond the last.
    pub fn get(&self, place: usize) -> u64 {
        self.at(place).map_or(0, |number| number.load(Ordering::SeqCst))
    }

    /// Writes the number at a place; nothing beyond the last.
    pub fn set(&self, place: usize, value: u64) {
        if let Some(number) = self.at(place) {
            number.store(value, Ordering::SeqCst);
        }
    }

    /// Writes 0 to the `count` numbers from a place on, as far as there are so many.
    pub fn clear(&self, place: usize, count: usize) {
        for number in place..place.saturating_add(count) {
            self.set(number, 0);
        }
    }

    /// Where the `count` numbers from a place on lie, for the kernel to write to; nothing if there are
    /// not so many.
    pub(crate) fn address(&self, place: usize, count: usize) -> Option<NonNull<AtomicU64>> {
        if place.checked_add(count)? > self.count {
            return None;
        }
        // SAFETY: the mapping has `count` numbers from `place` on.
        Some(unsafe { self.start.add(place) })
    }

    fn at(&self, place: usize) -> Option<&AtomicU64> {
        if place >= self.count {
            return None;
        }
        // SAFETY: the mapping has `count` numbers, and `place` is one of them.
        let number = unsafe { self.start.add(place) };
        // SAFETY: the mapping starts at a page, is there as long as `self`, and is only ever looked
        // at as atomic numbers.
        Some(unsafe { number.as_ref() })
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and size, and nothing borrows from it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;
    use rustix::fd::AsFd;

    #[test]
    fn what_is_written_is_in_the_file() {
        let file = rustix::fs::memfd_create(c"numbers", rustix::fs::MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&file, 16).unwrap();
        assert!(Numbers::map(file.as_fd(), 3).is_err(), "it is too short");
        let numbers = Numbers::map(file.as_fd(), 2).unwrap();
        numbers.set(1, 77);
        numbers.set(2, 99);
        let mut bytes = [0; 16];
        rustix::io::pread(&file, &mut bytes, 0).unwrap();
        assert_eq!(bytes[8..], 77_u64.to_ne_bytes());
        assert_eq!((numbers.get(0), numbers.get(1), numbers.get(2)), (0, 77, 0));
        assert!(numbers.address(1, 1).is_some() && numbers.address(1, 2).is_none());
        numbers.clear(0, 5);
        assert_eq!(numbers.get(1), 0);
    }
}
