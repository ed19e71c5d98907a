//! The measurements: what was seen, in the order in which it is printed.

use std::time::Duration;

/// All measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Book {
    section: String,
    pub(crate) rows: Vec<Row>,
}

/// One thing that was measured, or could not be.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) seen: Seen,
}

#[derive(Debug)]
pub(crate) enum Seen {
    /// How long it took, each time.
    Times(Vec<Duration>),
    /// A number, its unit, and how it was found.
    Value(f64, &'static str, String),
    /// Not measured, and why.
    Absent(String),
}

/// What is said of many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: Duration,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
}

impl Book {
    /// Begins a section; what is noted from now on belongs to it.
    pub(crate) fn section(&mut self, title: &str) {
        title.clone_into(&mut self.section);
    }

    /// Notes that something took so long.
    pub(crate) fn took(&mut self, name: &str, time: Duration) {
        self.note(name, |seen| match seen {
            Seen::Times(times) => times.push(time),
            Seen::Value(..) | Seen::Absent(_) => *seen = Seen::Times(vec![time]),
        });
    }

    /// Notes a number.
    pub(crate) fn value(&mut self, name: &str, number: f64, unit: &'static str, how: &str) {
        self.note(name, |seen| *seen = Seen::Value(number, unit, how.to_owned()));
    }

    /// Notes that something was not measured.
    pub(crate) fn absent(&mut self, name: &str, why: &str) {
        self.note(name, |seen| *seen = Seen::Absent(why.to_owned()));
    }

    fn note(&mut self, name: &str, change: impl FnOnce(&mut Seen)) {
        let known =
            self.rows.iter_mut().find(|row| row.section == self.section && row.name == name);
        if let Some(row) = known {
            change(&mut row.seen);
            return;
        }
        let mut seen = Seen::Times(Vec::new());
        change(&mut seen);
        self.rows.push(Row { section: self.section.clone(), name: name.to_owned(), seen });
    }

    /// The times of what has this name.
    pub(crate) fn summary(&self, name: &str) -> Option<Summary> {
        match &self.find(name)?.seen {
            Seen::Times(times) => Summary::of(times),
            Seen::Value(..) | Seen::Absent(_) => None,
        }
    }

    /// The median, in microseconds.
    pub(crate) fn median_us(&self, name: &str) -> Option<f64> {
        self.summary(name).map(|summary| micros(summary.median))
    }

    /// The times of what has this name in a section.
    pub(crate) fn summary_in(&self, section: &str, name: &str) -> Option<Summary> {
        let row = self.rows.iter().find(|row| row.section == section && row.name == name)?;
        match &row.seen {
            Seen::Times(times) => Summary::of(times),
            Seen::Value(..) | Seen::Absent(_) => None,
        }
    }

    /// The median that a row is compared with, in microseconds: that of its own section if there is
    /// one, because its turns were the same.
    pub(crate) fn base_us(&self, row: &Row, name: &str) -> Option<f64> {
        let own = self.summary_in(&row.section, name).map(|summary| micros(summary.median));
        own.or_else(|| self.median_us(name))
    }

    /// The number of what has this name.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        match self.find(name)?.seen {
            Seen::Value(number, ..) => Some(number),
            Seen::Times(_) | Seen::Absent(_) => None,
        }
    }

    fn find(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl Summary {
    /// `None` of no times.
    pub(crate) fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let n = sorted.len();
        // The smallest time that so many of a hundred do not exceed.
        let rank = |percent: usize| (n * percent).div_ceil(100).saturating_sub(1);
        Some(Self {
            n,
            min: *sorted.first()?,
            median: *sorted.get(rank(50))?,
            p99: *sorted.get(rank(99))?,
        })
    }
}

/// In microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::{Book, Summary};
    use std::time::Duration;

    #[test]
    fn a_summary_names_times_that_were_seen() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        let summary = Summary::of(&times).unwrap();
        let us = Duration::from_micros;
        assert_eq!(summary, Summary { n: 200, min: us(1), median: us(100), p99: us(198) });
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[us(3)]).unwrap().p99, us(3));
    }

    #[test]
    fn what_was_measured_after_all_is_not_absent() {
        let mut book = Book::default();
        book.absent("peer", "missing");
        assert_eq!(book.median_us("peer"), None);
        book.took("peer", Duration::from_micros(5));
        assert_eq!(book.median_us("peer"), Some(5.0));
    }
}
