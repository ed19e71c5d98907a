//! Addresses that stand for names.
//!
//! A program that looks a name up gets an address out of a range that leads nowhere but here; the
//! connection that it then makes to it tells the name. A name has the same IPv4 and IPv6 address for
//! as long as its session runs: the process writes them down (`kept.rs`), and the next one begins
//! with what is written. Where a name is put depends on the name alone, and on the names before it only
//! where two would share a place.
//!
//! Deliberately absent: forgetting. A program may keep an address for ever, so an address never
//! stands for another name; when all places are taken, no name gets a new one. A secret in the choice
//! of places is absent too: it would change with the process, and an address that a program has kept
//! would then stand for another name. The session can therefore choose names that share a place; it
//! gets no address for those that find none nearby.

use crate::kept::Kept;
use cowork_api::egress::{SYNTHETIC_V4, SYNTHETIC_V6};
use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most names that have an address.
pub const MAX_NAMES: usize = 65_536;
/// How many addresses there are to put them at. The first and the last are no host's.
const PLACES: u32 = (1 << (32 - SYNTHETIC_V4.1)) - 2;

/// Most places that are tried for a name. As many as all names together need, unless they are chosen
/// to share their places.
const MAX_TRIES: usize = 256;

/// The addresses of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

/// All places are taken, or all those near the one that a name would like to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no address is left for the name")]
pub struct Exhausted;

/// Names and the addresses that stand for them.
#[derive(Debug, Default)]
pub struct Names {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_name: HashMap<Arc<str>, u32>,
    by_place: HashMap<u32, Arc<str>>,
    kept: Option<Kept>,
}

impl Table {
    fn put(&mut self, place: u32, name: Arc<str>) {
        self.by_name.insert(Arc::clone(&name), place);
        self.by_place.insert(place, name);
    }

    /// Takes over a name of an earlier process. Whoever wrote it down is not believed to have kept to
    /// what is written here.
    fn restore(&mut self, place: u32, name: &str) {
        let is_place = (1..=PLACES).contains(&place);
        let is_new = !self.by_place.contains_key(&place) && !self.by_name.contains_key(name);
        if is_place && is_new && self.by_name.len() < MAX_NAMES {
            self.put(place, name.into());
        }
    }
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses that stand for a name. It gets some if it has none.
    pub fn addresses(&self, name: &str) -> Result<Addresses, Exhausted> {
        let mut table = self.lock();
        if let Some(place) = table.by_name.get(name) {
            return Ok(at(*place));
        }
        if table.by_name.len() >= MAX_NAMES {
            return Err(Exhausted);
        }
        let tried = iter::successors(Some(wanted(name)), |place| Some(place % PLACES + 1));
        let mut free = tried.take(MAX_TRIES).filter(|place| !table.by_place.contains_key(place));
        let place = free.next().ok_or(Exhausted)?;
        if let Some(kept) = &table.kept {
            // The name is of use without that, for as long as this process lives.
            cowork_sys::ignore(kept.write(place, name));
        }
        table.put(place, name.into());
        Ok(at(place))
    }

    /// Begins with the names that earlier processes wrote down in a file, and goes on with it.
    pub fn keep_in(&self, file: OwnedFd) -> Result<(), Errno> {
        let kept = Kept::new(file)?;
        let mut table = self.lock();
        kept.read(|place, name| table.restore(place, name.as_str()))?;
        table.kept = Some(kept);
        Ok(())
    }

    /// The name that an address stands for.
    pub fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        self.lock().by_place.get(&place_of(address)?).cloned()
    }
}

/// Whether an address is one that could stand for a name.
pub fn is_synthetic(address: IpAddr) -> bool {
    place_of(address).is_some()
}

/// Where a name would like to be.
fn wanted(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let place = hasher.finish() % u64::from(PLACES) + 1;
    u32::try_from(place).unwrap_or(1)
}

fn first_v4() -> u32 {
    Ipv4Addr::from(SYNTHETIC_V4.0).into()
}

fn first_v6() -> u128 {
    Ipv6Addr::from(SYNTHETIC_V6.0).into()
}

fn at(place: u32) -> Addresses {
    Addresses {
        v4: Ipv4Addr::from(first_v4() + place),
        v6: Ipv6Addr::from(first_v6() + u128::from(place)),
    }
}

fn place_of(address: IpAddr) -> Option<u32> {
    let place = match address.to_canonical() {
        IpAddr::V4(address) => u32::from(address).checked_sub(first_v4())?,
        IpAddr::V6(address) => u32::try_from(u128::from(address).checked_sub(first_v6())?).ok()?,
    };
    (place <= PLACES + 1).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::{Exhausted, MAX_NAMES, MAX_TRIES, Names, PLACES, is_synthetic, wanted};
    use std::collections::HashSet;

    #[test]
    fn a_name_and_its_addresses_lead_to_each_other() {
        let names = Names::default();
        let addresses = names.addresses("example.com").unwrap();
        assert_eq!(names.addresses("example.com"), Ok(addresses));
        assert_eq!(names.name(addresses.v4.into()).as_deref(), Some("example.com"));
        assert_eq!(names.name(addresses.v6.into()).as_deref(), Some("example.com"));
        assert_eq!(
            names.name(addresses.v4.to_ipv6_mapped().into()).as_deref(),
            Some("example.com")
        );
        assert_eq!(names.name([198, 18, 0, 0].into()), None);
        assert_eq!(names.name([10, 0, 0, 1].into()), None);
    }

    #[test]
    fn another_table_puts_names_at_the_same_places() {
        let (one, other) = (Names::default(), Names::default());
        let first = one.addresses("a.example").unwrap();
        other.addresses("b.example").unwrap();
        assert_eq!(other.addresses("a.example"), Ok(first));
    }

    #[test]
    fn the_next_process_knows_what_the_last_one_told() {
        let file = crate::kept::file();
        let last = Names::default();
        last.keep_in(file.try_clone().unwrap()).unwrap();
        // One of them is not where it would be put first.
        last.lock().by_place.insert(wanted("b.example"), "crowd.example".into());
        let known = ["a.example", "b.example"].map(|name| last.addresses(name).unwrap());
        let next = Names::default();
        next.keep_in(file.try_clone().unwrap()).unwrap();
        for (name, known) in ["a.example", "b.example"].into_iter().zip(known) {
            assert_eq!(next.name(known.v4.into()).as_deref(), Some(name));
            assert_eq!(next.name(known.v6.into()).as_deref(), Some(name));
            assert_eq!(next.addresses(name), Ok(known));
        }
        next.addresses("c.example").unwrap();
        let after = Names::default();
        after.keep_in(file).unwrap();
        assert_eq!(after.lock().by_name.len(), 3);
    }

    #[test]
    fn what_was_written_with_harm_in_mind_is_left_out() {
        let file = crate::kept::file();
        let kept = crate::kept::Kept::new(file.try_clone().unwrap()).unwrap();
        // No host's, and beyond the last one; a name with two places.
        for place in [0, PLACES + 1, 5, 6] {
            kept.write(place, "a.example").unwrap();
        }
        let names = Names::default();
        names.keep_in(file).unwrap();
        assert_eq!(names.lock().by_place.keys().copied().collect::<Vec<_>>(), [5]);
        let file = crate::kept::file();
        let kept = crate::kept::Kept::new(file.try_clone().unwrap()).unwrap();
        for place in 1..=PLACES {
            kept.write(place, &format!("n{place}.example")).unwrap();
        }
        let names = Names::default();
        names.keep_in(file).unwrap();
        assert_eq!(names.lock().by_name.len(), MAX_NAMES);
        assert_eq!(names.addresses("one.more"), Err(Exhausted));
    }

    #[test]
    fn the_range_is_its_own() {
        for (address, inside) in [
            ("198.17.255.255", false),
            ("198.18.0.0", true),
            ("198.19.255.255", true),
            ("198.20.0.0", false),
            ("fd63:6f77:6f72:6b00::1", true),
            ("fd63:6f77:6f72:6b00::2:0", false),
            ("fd63:6f77:6f72:6b01::1", false),
        ] {
            assert_eq!(is_synthetic(address.parse().unwrap()), inside, "{address}");
        }
    }

    #[test]
    fn places_run_out_and_are_never_shared() {
        let names = Names::default();
        let mut seen = HashSet::new();
        for number in 0..MAX_NAMES {
            let addresses = names.addresses(&format!("n{number}.example")).unwrap();
            assert!(seen.insert(addresses.v4), "{number}");
        }
        assert_eq!(names.addresses("one.more"), Err(Exhausted));
        assert!(names.addresses("n7.example").is_ok());
    }

    #[test]
    fn a_crowded_place_is_given_up_soon() {
        let names = Names::default();
        let mut place = wanted("example.com");
        for _ in 1..MAX_TRIES {
            names.lock().by_place.insert(place, "crowd.example".into());
            place = place % PLACES + 1;
        }
        names.lock().by_place.insert(place, "crowd.example".into());
        assert_eq!(names.addresses("example.com"), Err(Exhausted));
        assert!(names.addresses("elsewhere.example").is_ok());
        names.lock().by_place.remove(&place);
        assert!(names.addresses("example.com").is_ok());
    }
}
