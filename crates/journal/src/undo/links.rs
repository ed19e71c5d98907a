//! Makes names of one file again of what were names of one file.
//!
//! Needed where names were brought back at different times, each from a copy.

use super::execute::Work;
use crate::model::names::{BodyId, Slot, ThingId};
use cowork_api::files::FileKind;
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;

impl Work<'_> {
    /// Gives names that were hard links of one file, and are back as several, one file again.
    pub(super) fn relink(&mut self) -> Result<(), Errno> {
        let mut bodies: BTreeMap<BodyId, Vec<ThingId>> = BTreeMap::new();
        for id in &self.plan.bodies {
            let names = &self.plan.names;
            if let Some(thing) = names.thing(*id)
                && thing.home == thing.now
                && thing.home != Slot::Gone
                && names.kind(*id) != FileKind::Folder
            {
                bodies.entry(thing.body).or_default().push(*id);
            }
        }
        for names in bodies.into_values() {
            let Some((first, others)) = names.split_first() else { continue };
            for other in others {
                let outcome = self.share(*first, *other);
                self.forgive(*other, outcome)?;
            }
        }
        Ok(())
    }

    fn share(&mut self, first: ThingId, other: ThingId) -> Result<(), Errno> {
        let names = &self.plan.names;
        let Some(thing) = names.thing(other) else { return Ok(()) };
        let (folder, now) = (thing.folder, thing.now.clone());
        let Some((from, to)) = names.path(first).zip(names.path(other)) else { return Ok(()) };
        let Some(one) = self.disk.present(folder, &from)? else { return Ok(()) };
        let Some(two) = self.disk.present(folder, &to)? else { return Ok(()) };
        if one.inode == two.inode || one.kind() != two.kind() {
            return Ok(());
        }
        let on_the_way = self.temporary(folder)?;
        self.link(folder, &from, &on_the_way)?;
        if let Slot::In(parent, _) = now {
            self.stir(parent)?;
        }
        self.rename(folder, &on_the_way, &to, RenameFlags::empty())
    }
}
