//! What is promised about changes of files.

use super::calls::{MEMORY, PENDING, REFUSED, UNIT, creates, on_one_cpu};
use super::ground::Way;
use super::undo::of_deletes;
use super::{CARGO, COPY, GCC, GREP, REMOVE, STATUS, TITLE, UNTAR, row};
use crate::book::{Book, micros};
use crate::report::{Bound, Pair, Target};

/// All of them, by what was measured in the same turns.
pub(crate) fn promises(book: &Book) -> Vec<Target> {
    let time = |name: &str| {
        let summary = book.summary_in(TITLE, name);
        summary.map(|summary| (micros(summary.median), micros(summary.min)))
    };
    let over = |name: &str, base: &str| -> Pair {
        let ((median, min), (of_median, of_min)) = (time(name)?, time(base)?);
        Some((median / of_median, min / of_min))
    };
    let direct = |what: &str| over(&row(what, Way::Recorded), &row(what, Way::Direct));
    let call = |what: &str| direct(&format!("call: {what}"));
    let units = |what: &str| over(&row(&format!("call: {what}"), Way::Recorded), UNIT);
    let number = |name: &str| book.number(name).map(|number| (number, number));
    let seconds = |name: &str| time(name).map(|(median, min)| (median / 1e6, min / 1e6));
    let most = |name, bound, unit, pair| Target::new(name, Bound::AtMost(bound), unit, pair);
    let least = |name, bound, unit, pair| Target::new(name, Bound::AtLeast(bound), unit, pair);
    let times = "× direct";
    vec![
        most("rw: open read-only", 1.05, times, call("open read-only")),
        most("rw: stat", 1.05, times, call("stat")),
        most("rw: grep -r", 1.05, times, direct(GREP)),
        most("rw: git status", 1.05, times, direct(STATUS)),
        most("rw: gcc -j2", 1.1, times, direct(GCC)),
        most("rw: cargo build", 1.15, times, direct(CARGO)),
        most("rw: untar", 3.0, times, direct(UNTAR)),
        most("rw: rm -rf", 3.0, times, direct(REMOVE)),
        most("rw: cp -a", 2.5, times, direct(COPY)),
        most("rw: outside, /dev/null", 2.0, "round trips", units("outside: open /dev/null")),
        most("rw: outside, /tmp", 2.0, "round trips", units("outside: open in /tmp")),
        most("rw: unlink", 3.0, "round trips", units("unlink")),
        most("rw: mkdir", 3.0, "round trips", units("mkdir")),
        most("rw: chmod", 3.0, "round trips", units("chmod")),
        most("rw: access", 3.0, "round trips", units("access W_OK")),
        most("rw: create, on one CPU", 3.5, "round trips", units(&on_one_cpu("create"))),
        most(
            "rw: open for writing, on one CPU",
            3.5,
            "round trips",
            units(&on_one_cpu("open for writing")),
        ),
        least("rw: creates by 4 processes", 25_000.0, "/s", number(&creates(Way::Recorded))),
        most("undo of 10000 deletions", 0.5, "s", seconds(&of_deletes(10_000))),
        most("10000 calls that wait", 1.0, "s", seconds(PENDING)),
        most("10000 calls that wait: refused", 0.0, "calls", number(REFUSED)),
        most("memory of the broker", 1.0, "× allowed", number(MEMORY)),
    ]
}

#[cfg(test)]
mod tests {
    use super::promises;
    use crate::book::Book;
    use crate::files::TITLE;
    use std::time::Duration;

    #[test]
    fn a_promise_is_judged_by_what_a_plain_mount_took() {
        let mut book = Book::default();
        book.section(TITLE);
        book.took("untar: direct", Duration::from_millis(400));
        book.took("untar: rw", Duration::from_secs(1));
        book.took("rm -rf: direct", Duration::from_millis(100));
        book.took("rm -rf: rw", Duration::from_millis(310));
        book.took("undo of 10000 deletions", Duration::from_millis(420));
        let promises = promises(&book);
        let verdict = |name: &str| promises.iter().find(|it| it.name == name).unwrap().verdict();
        assert_eq!(verdict("rw: untar"), "met");
        assert_eq!(verdict("rw: rm -rf"), "MISSED");
        assert_eq!(verdict("undo of 10000 deletions"), "met");
        assert_eq!(verdict("rw: cp -a"), "not measured");
    }
}
