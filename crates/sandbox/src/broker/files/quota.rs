//! How much a session has added to a folder.
//!
//! Names are counted as they are made and removed. Bytes are written without the broker: the files
//! that were handed out are looked at again from time to time, so a session can go beyond its limit
//! by what it writes between two looks, and what it still has open.

use cowork_api::files::Quota;
use cowork_sys::Errno;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most files that are watched; beyond, what they grew is added up and they are forgotten.
const MAX_WATCHED: usize = 128;
/// How often the files are looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// What was added to one folder.
#[derive(Default)]
pub(super) struct Growth {
    names: AtomicI64,
    bytes: Mutex<Bytes>,
}

#[derive(Default)]
struct Bytes {
    /// Of files that are no longer watched.
    settled: i64,
    watched: HashMap<(u64, u64), (OwnedFd, i64)>,
    measured: i64,
    at: Option<Instant>,
}

impl Growth {
    pub(super) fn count(&self, names: i64) {
        self.names.fetch_add(names, Ordering::Relaxed);
    }

    /// Refuses a new name beyond the limit.
    pub(super) fn allow_name(&self, quota: &Quota) -> Result<(), Errno> {
        let names = self.names.load(Ordering::Relaxed);
        let full = quota.files.is_some_and(|most| i64::try_from(most).is_ok_and(|it| names >= it));
        if full { Err(Errno::DQUOT) } else { self.allow_bytes(quota) }
    }

    /// Refuses to write beyond the limit.
    pub(super) fn allow_bytes(&self, quota: &Quota) -> Result<(), Errno> {
        let Some(most) = quota.bytes else { return Ok(()) };
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = bytes.measure();
        if i64::try_from(most).is_ok_and(|most| grown >= most) { Err(Errno::DQUOT) } else { Ok(()) }
    }

    /// Watches a file that is handed out.
    pub(super) fn watch(&self, quota: &Quota, file: &OwnedFd, before: i64) {
        if quota.bytes.is_none() {
            return;
        }
        // A handle that can write would count as a writer of the folder.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(handle) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else { return };
        let Ok(stat) = rustix::fs::fstat(&handle) else { return };
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.watched.len() >= MAX_WATCHED {
            bytes.at = None;
            bytes.settled = bytes.measure();
            bytes.watched.clear();
        }
        bytes.watched.entry((stat.st_dev, stat.st_ino)).or_insert((handle, before));
    }
}

impl Bytes {
    fn measure(&mut self) -> i64 {
        if self.at.is_none_or(|at| at.elapsed() > PAUSE) {
            let grown = self.watched.values().map(|(handle, before)| {
                let stat = rustix::fs::fstat(handle);
                let size = stat.map_or(0, |stat| if stat.st_nlink == 0 { 0 } else { stat.st_size });
                size - before
            });
            self.measured = self.settled + grown.sum::<i64>();
            self.at = Some(Instant::now());
        }
        self.measured
    }
}
