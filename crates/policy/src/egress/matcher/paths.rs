//! The way from a path to the rules about it, where many rules are about one host.
//!
//! Every pattern begins with something that every path of it begins with. Those beginnings are kept in
//! order, each with the longest other one that it begins with itself: all beginnings of a path lie on
//! one chain of those, which is found by halving. Rules off that chain are not about the path.
//!
//! Deliberately absent: the decision. Whether a rule on the chain is about a request is asked of it.

use super::prepared::{Asked, Prepared};

/// A beginning of paths.
#[derive(Clone, Debug)]
struct Beginning {
    text: Box<[u8]>,
    /// The longest other one that this begins with.
    within: Option<usize>,
    /// The places in the list of the rules that have it.
    rules: Vec<usize>,
}

/// The beginnings of all paths that the rules of a list are about.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    /// In order.
    beginnings: Vec<Beginning>,
    /// Methods that rules name.
    methods: Vec<String>,
}

impl Paths {
    /// Of these rules, in the order of their list.
    pub(super) fn of<'a>(rules: impl Iterator<Item = &'a Prepared>) -> Self {
        let (mut all, mut methods) = (Vec::new(), Vec::new());
        for (place, rule) in rules.enumerate() {
            all.extend(rule.beginnings().map(|text| (text, place)));
            methods.extend(rule.methods().map(str::to_owned));
        }
        all.sort_unstable();
        all.dedup();
        methods.sort_unstable();
        methods.dedup();
        let (mut beginnings, mut chain): (Vec<Beginning>, Vec<usize>) = (Vec::new(), Vec::new());
        for (text, place) in all {
            if let Some(last) = beginnings.last_mut().filter(|last| *last.text == *text) {
                last.rules.push(place);
                continue;
            }
            let is_within = |known: &usize| {
                beginnings.get(*known).is_some_and(|known| text.starts_with(&known.text))
            };
            while chain.last().is_some_and(|last| !is_within(last)) {
                chain.pop();
            }
            let within = chain.last().copied();
            chain.push(beginnings.len());
            beginnings.push(Beginning { text: text.into(), within, rules: vec![place] });
        }
        Self { beginnings, methods }
    }

    /// The places of the rules that can be about a path, in no order, some more than once.
    pub(super) fn about<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        // Whatever the path begins with is not behind it, and what lies between both begins with it.
        let behind = self.beginnings.partition_point(|known| *known.text <= *path);
        let first = behind.checked_sub(1).and_then(|last| self.beginnings.get(last));
        let chain = std::iter::successors(first, |known| {
            known.within.and_then(|within| self.beginnings.get(within))
        });
        let begun = chain.skip_while(|known| !path.starts_with(&known.text));
        begun.flat_map(|known| known.rules.iter().copied())
    }

    /// Whether a request has the method of some rule in another case.
    pub(super) fn is_misspelled(&self, request: &Asked<'_>) -> bool {
        let method = request.method();
        self.methods.iter().any(|known| known != method && known.eq_ignore_ascii_case(method))
    }
}
