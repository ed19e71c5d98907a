//! Bytes that the kernel keeps for a user until the last process of that user is gone.

use crate::{Errno, check};
use std::ffi::CStr;

/// Makes the user's keyring one that this thread possesses: what is in it can be read then.
fn possess() -> Result<(), Errno> {
    // SAFETY: KEYCTL_LINK takes two numbers that name keyrings, and no pointer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_LINK,
            libc::KEY_SPEC_USER_KEYRING,
            libc::KEY_SPEC_THREAD_KEYRING,
        )
    };
    check(result).map(|_| ())
}

/// Keeps bytes under a name in the user's keyring, in place of earlier ones.
pub fn keep(name: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: both texts end with a NUL and outlive the call, which reads `bytes` up to its length.
    let result = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            bytes.as_ptr(),
            bytes.len(),
            libc::KEY_SPEC_USER_KEYRING,
        )
    };
    check(result).map(|_| ())
}

/// The bytes that are kept under a name in the user's keyring, `N` of them; others are `EINVAL`.
pub fn kept<const N: usize>(name: &CStr) -> Result<[u8; N], Errno> {
    possess()?;
    // SAFETY: both texts end with a NUL and outlive the call; the last argument is no pointer.
    let key = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_SEARCH,
            libc::KEY_SPEC_USER_KEYRING,
            c"user".as_ptr(),
            name.as_ptr(),
            0,
        )
    };
    let key = check(key)?;
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most `N` bytes to an array of as many, and says how many there
    // are.
    let length = unsafe {
        libc::syscall(libc::SYS_keyctl, libc::KEYCTL_READ, key, bytes.as_mut_ptr(), bytes.len())
    };
    if usize::try_from(check(length)?) == Ok(N) { Ok(bytes) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::{keep, kept};
    use crate::Errno;

    #[test]
    fn what_is_kept_is_found_again_in_another_thread() {
        let name = c"cowork-test: keyring";
        keep(name, b"first").unwrap();
        keep(name, b"other").unwrap();
        let found = std::thread::spawn(move || kept::<5>(name)).join().unwrap();
        assert_eq!(found, Ok(*b"other"));
        assert_eq!(kept::<4>(name), Err(Errno::INVAL));
        assert!(kept::<4>(c"cowork-test: nothing").is_err());
    }
}
