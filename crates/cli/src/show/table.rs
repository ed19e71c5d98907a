//! Aligned columns, and colour where a person sees it.

use rustix::termios::isatty;

/// What a word means, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing in particular.
    Plain,
    /// A title.
    Strong,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Something is wrong.
    Bad,
}

/// Whether words are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    Off,
}

impl Colour {
    /// Only where a person looks at standard output and has not asked otherwise.
    pub(crate) fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let on = !refused && !dumb && isatty(rustix::stdio::stdout());
        if on { Self::On } else { Self::Off }
    }

    /// A word in its colour.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
        };
        match self {
            Self::On => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Self::Off => text.to_owned(),
        }
    }
}

/// A word in a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: super::neutral::line(text.as_ref()), tone }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Rows under titles.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    /// An empty table with its titles.
    pub(crate) fn new(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(|title| Cell::new(title, Tone::Strong))] }
    }

    pub(crate) fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// The lines, each with a line end.
    pub(crate) fn render(&self, colour: Colour) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.chars().count().max(*width);
            }
        }
        let mut out = String::new();
        for row in &self.rows {
            for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
                out.push_str(&colour.paint(&cell.text, cell.tone));
                if index + 1 < N {
                    let gap = width - cell.text.chars().count() + 2;
                    out.extend(std::iter::repeat_n(' ', gap));
                }
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Colour, Table, Tone};

    #[test]
    fn columns_are_aligned_and_rows_stay_rows() {
        let mut table = Table::new(["ID", "STATE", "LABELS"]);
        table.row(["one".into(), Cell::new("ready", Tone::Good), "".into()]);
        table.row(["größer\n".into(), "x".into(), "a=\u{1b}[2J".into()]);
        assert_eq!(
            table.render(Colour::Off),
            "ID        STATE  LABELS\none       ready\ngrößer\\n  x      a=\\u{1b}[2J\n"
        );
        assert!(table.render(Colour::On).contains("\u{1b}[32mready\u{1b}[0m"));
    }
}
