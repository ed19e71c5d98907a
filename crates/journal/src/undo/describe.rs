//! Words for what is there and what was.

use crate::model::Present;
use crate::model::tree::kind;
use crate::record::{Meta, Why};
use cowork_api::files::{FileKind, Place};
use std::collections::BTreeSet;

/// What is done with a name that is new.
pub(super) const REMOVED: &str = "removed";

/// Leaves out that something was removed where something else came back: that is one name.
pub(super) fn tell_once(done: &mut Vec<(Place, String)>) {
    let comes_back = done.iter().filter(|(_, what)| what != REMOVED);
    let comes_back: BTreeSet<Place> = comes_back.map(|(at, _)| at.clone()).collect();
    done.retain(|(at, what)| what != REMOVED || !comes_back.contains(at));
}

/// What is under a name now.
pub(super) fn present(present: &Present) -> String {
    state(present.mode, present.size, present.mtime.0)
}

/// What was there.
pub(super) fn meta(meta: &Meta) -> String {
    state(meta.mode, meta.size, meta.mtime.0)
}

/// A name, for people.
pub(super) fn name(name: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(name))
}

/// Why something was not kept.
pub(crate) fn why(why: Why) -> &'static str {
    match why {
        Why::Large => "it was too large to be kept",
        Why::Full => "the session had kept all that it may",
        Why::Unreadable => "it could not be read, so it was not kept",
        Why::NoSpace => "the disk was full, so it was not kept",
    }
}

/// A number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("GiB", 30_u32), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in units {
        let whole = bytes >> shift;
        if whole > 0 {
            let tenths = ((bytes - (whole << shift)) * 10) >> shift;
            return if whole < 10 && tenths > 0 {
                format!("{whole}.{tenths} {unit}")
            } else {
                format!("{whole} {unit}")
            };
        }
    }
    format!("{bytes} B")
}

fn state(mode: u32, length: u64, changed: i64) -> String {
    let when = date(changed);
    match kind(mode) {
        FileKind::File => format!("file, {}, changed {when}", size(length)),
        FileKind::Folder => format!("folder, changed {when}"),
        FileKind::Link => format!("link, made {when}"),
        FileKind::Other => format!("special file, changed {when}"),
    }
}

/// A time in UTC. The calendar is counted from 1 March of the year 0, so that the leap day is the
/// last of a year.
fn date(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + later;
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{of_month:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::{date, size};

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(date(1_794_781_292), "2026-11-15 22:21:32");
        assert_eq!(date(-1), "1969-12-31 23:59:59");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(12 << 10), "12 KiB");
        assert_eq!(size(1_572_864), "1.5 MiB");
    }
}
