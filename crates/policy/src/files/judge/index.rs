//! Which rules can be about a path at all.
//!
//! Every rule is filed under something that is in each path that it is about. A path has a handful
//! of components, and most of them are in no index.

use crate::files::pattern::{Folded, Key};
use std::collections::HashMap;

/// Rules by what must be in a path, each by its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// A component of this name.
    names: Table,
    /// A component with this after its last dot.
    endings: Table,
    /// A component that starts with this.
    starts: Vec<(Box<[u8]>, usize)>,
    /// Anything.
    always: Vec<usize>,
}

impl Index {
    pub(super) fn insert(&mut self, key: Key<'_>, rule: usize) {
        match key {
            Key::Name(text) => self.names.insert(text, rule),
            Key::Ending(text) => self.endings.insert(text, rule),
            Key::Start(text) => self.starts.push((text.into(), rule)),
            Key::None => self.always.push(rule),
        }
    }

    /// Calls `each` with every rule that can be about the path, some more than once.
    pub(super) fn candidates(&self, path: &Folded, mut each: impl FnMut(usize)) {
        self.always.iter().copied().for_each(&mut each);
        for name in path.components() {
            self.names.get(name).iter().copied().for_each(&mut each);
            if let Some(ending) = ending_of(name) {
                self.endings.get(ending).iter().copied().for_each(&mut each);
            }
            for (start, rule) in &self.starts {
                if name.starts_with(start) {
                    each(*rule);
                }
            }
        }
    }
}

/// What follows the last dot of a folded name.
pub(super) fn ending_of(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    name.get(dot + 1..)
}

/// Rules by a text.
#[derive(Clone, Debug)]
struct Table {
    rules: HashMap<Box<[u8]>, Vec<usize>>,
    /// How long the texts are that start with a byte: bit `n` for `n` bytes, the last for more.
    lengths: Box<[u64; 256]>,
}

impl Default for Table {
    fn default() -> Self {
        Self { rules: HashMap::new(), lengths: Box::new([0; 256]) }
    }
}

impl Table {
    fn insert(&mut self, text: &[u8], rule: usize) {
        self.rules.entry(text.into()).or_default().push(rule);
        if let Some(lengths) =
            text.first().and_then(|first| self.lengths.get_mut(usize::from(*first)))
        {
            *lengths |= length_bit(text);
        }
    }

    fn get(&self, text: &[u8]) -> &[usize] {
        let lengths = text.first().and_then(|first| self.lengths.get(usize::from(*first)));
        if lengths.is_none_or(|lengths| lengths & length_bit(text) == 0) {
            return &[];
        }
        self.rules.get(text).map_or(&[], Vec::as_slice)
    }
}

fn length_bit(text: &[u8]) -> u64 {
    1 << text.len().min(63)
}
