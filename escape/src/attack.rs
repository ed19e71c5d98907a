//! The table's type: an attack is data around one function.

use crate::attacks;
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use std::process::Command;

/// Layers that stop attacks, as the table names them.
pub(crate) mod layer {
    pub(crate) const FILTER: &str = "filter of system calls";
    pub(crate) const LANDLOCK: &str = "Landlock";
    pub(crate) const MOUNTS: &str = "mount namespace: it is not there";
    pub(crate) const LOCKED: &str = "locked mounts";
    pub(crate) const READ_ONLY: &str = "read-only mount";
    pub(crate) const MOUNT_FLAGS: &str = "nosuid, nodev";
    pub(crate) const TWO_MOUNTS: &str = "two mounts, no link between them";
    pub(crate) const PROCESSES: &str = "pid namespace";
    pub(crate) const HIDDEN: &str = "hidden PID 1";
    pub(crate) const NETWORK: &str = "network namespace";
    pub(crate) const OBJECTS: &str = "ipc namespace";
    pub(crate) const NO_PRIVILEGE: &str = "no capabilities";
    pub(crate) const BROKER: &str = "broker";
    pub(crate) const EGRESS: &str = "egress";
    pub(crate) const PLACEHOLDER: &str = "placeholder";
    pub(crate) const STREAMS: &str = "streams are copied";
    pub(crate) const REPLIES: &str = "the terminal's answers are thrown away";
    pub(crate) const HANDLES: &str = "descriptors are closed";
    pub(crate) const VARIABLES: &str = "list of variables";
    pub(crate) const LIMIT: &str = "limit";
}

/// Who runs the bare control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The person who makes the session.
    Person,
    /// The super-user, because nobody else could ever win.
    Root,
}

/// Who says whether an attack won.
#[derive(Clone, Copy)]
pub(crate) enum Judge {
    /// The attack, about an effect on itself.
    Attack,
    /// The host, about an effect on itself.
    Host(fn(&Stage, &Shot) -> Option<String>),
}

/// Whether a session may do it after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permitted {
    /// Never.
    Nowhere,
    /// In profile `nested`, for this reason.
    Nested(&'static str),
    /// In every session, for this reason.
    Everywhere(&'static str),
    /// For an ordinary user, whose limits a host without delegated cgroups can only approximate.
    Approximate(&'static str),
    /// For whoever makes sessions without `CAP_SYS_RESOURCE`, for this reason.
    WithoutResources(&'static str),
    /// It must work: the attack is a control that shows that not everything is refused.
    Required,
}

/// Which process an attack aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// None.
    None,
    /// A process of the same person; in a session its PID 1.
    First,
    /// A process of the same person on the host.
    HostProcess,
    /// A process of the same person; for a session one in another session.
    Neighbour,
}

/// Whether every host has what an attack needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Every host has it: a bare control that loses is a failure.
    Everywhere,
    /// Some hosts do without it, for this reason: then the attack is shown as not run.
    OnSomeHosts(&'static str),
}

/// What an attack's sessions may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing.
    Nothing,
    /// One port of the host.
    OnePort,
    /// Some hosts of the small internet, which the attack is made in.
    Town,
}

/// Who makes an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// One session.
    Alone,
    /// Two at the same time.
    Partner,
}

/// Whether something is part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It is not.
    No,
    /// It is.
    Yes,
}

/// Puts things there for a run, which has this token.
pub(crate) type Prepare = fn(&Stage, &str) -> Result<(), Lost>;

/// What the host does with the session of a run after the attack, by its token and the session's
/// number; what it saw that must not be.
pub(crate) type Afterwards = fn(&Stage, &str, &str) -> Result<Vec<String>, Lost>;

/// How the program is started, bare and as `cowork`.
#[derive(Clone, Copy)]
pub(crate) enum Launch {
    /// With a closed input and pipes.
    Plain,
    /// With this changed.
    With(fn(&Stage, &mut Command)),
    /// On a terminal of its own.
    Terminal,
}

/// One attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub class: &'static str,
    pub name: &'static str,
    pub act: fn(&Scene) -> Outcome,
    /// A word for the function, where several attacks share it.
    pub word: &'static str,
    pub control: Control,
    pub judge: Judge,
    pub permitted: Permitted,
    pub target: Target,
    pub launch: Launch,
    pub found: Found,
    /// Further options of `cowork run`.
    pub options: &'static [&'static str],
    /// Further options of `cowork run` whose value is a folder of the stand.
    pub folders: &'static [(&'static str, &'static str)],
    /// What its sessions may reach.
    pub reach: Reach,
    /// Names that its sessions may not change in the writable folder. Where there are some, the
    /// session is one of profile `strict`, the only one in which changes are judged.
    pub refused: &'static [&'static str],
    /// Whether a second session of the same kind makes the attack at the same time, as its partner.
    pub company: Company,
    /// The folder of the stand that `cowork` is started from, instead of where it is installed.
    pub installed: Option<&'static str>,
    /// What the host puts there before each run.
    pub prepare: Option<Prepare>,
    /// What the host does with the session afterwards.
    pub afterwards: Option<Afterwards>,
    /// Whether what was seen on the bare host is shown beside what was seen in the session.
    pub control_shown: Shown,
    /// How a refusal begins, and the layer that refuses so: in both profiles, or in `strict` and,
    /// after a bar, in `nested`.
    pub refusals: &'static [(&'static str, &'static str)],
}

impl Attack {
    /// An attack that a person makes and reports itself.
    pub(crate) const fn new(
        class: &'static str,
        name: &'static str,
        act: fn(&Scene) -> Outcome,
        refusals: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            class,
            name,
            act,
            word: "",
            control: Control::Person,
            judge: Judge::Attack,
            permitted: Permitted::Nowhere,
            target: Target::None,
            launch: Launch::Plain,
            found: Found::Everywhere,
            options: &[],
            folders: &[],
            reach: Reach::Nothing,
            refused: &[],
            company: Company::Alone,
            installed: None,
            prepare: None,
            afterwards: None,
            control_shown: Shown::No,
            refusals,
        }
    }

    pub(crate) const fn word(self, word: &'static str) -> Self {
        Self { word, ..self }
    }

    pub(crate) const fn as_root(self) -> Self {
        Self { control: Control::Root, ..self }
    }

    pub(crate) const fn judged(self, by: fn(&Stage, &Shot) -> Option<String>) -> Self {
        Self { judge: Judge::Host(by), ..self }
    }

    pub(crate) const fn permitted(self, permitted: Permitted) -> Self {
        Self { permitted, ..self }
    }

    pub(crate) const fn nested(self, reason: &'static str) -> Self {
        Self { permitted: Permitted::Nested(reason), ..self }
    }

    pub(crate) const fn at(self, target: Target) -> Self {
        Self { target, ..self }
    }

    pub(crate) const fn launched(self, launch: Launch) -> Self {
        Self { launch, ..self }
    }

    pub(crate) const fn options(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// In sessions that may reach one port of the host.
    pub(crate) const fn online(self) -> Self {
        Self { reach: Reach::OnePort, ..self }
    }

    /// In the small internet, see [`crate::town`].
    pub(crate) const fn in_town(self) -> Self {
        Self { reach: Reach::Town, ..self }
    }

    /// In sessions that may not change these names.
    pub(crate) const fn refusing(self, refused: &'static [&'static str]) -> Self {
        Self { refused, ..self }
    }

    /// By two sessions together.
    pub(crate) const fn with_partner(self) -> Self {
        Self { company: Company::Partner, ..self }
    }

    /// With cowork's own programs in this folder of the stand.
    pub(crate) const fn installed(self, folder: &'static str) -> Self {
        Self { installed: Some(folder), ..self }
    }

    /// On things that the host puts there anew for each run; it is told the run's token.
    pub(crate) const fn prepared(self, prepare: Prepare) -> Self {
        Self { prepare: Some(prepare), ..self }
    }

    /// In a session with which the host does something afterwards.
    pub(crate) const fn afterwards(self, afterwards: Afterwards) -> Self {
        Self { afterwards: Some(afterwards), ..self }
    }

    /// Shown beside what was seen on the bare host.
    pub(crate) const fn compared(self) -> Self {
        Self { control_shown: Shown::Yes, ..self }
    }

    pub(crate) const fn on_some_hosts(self, why: &'static str) -> Self {
        Self { found: Found::OnSomeHosts(why), ..self }
    }

    pub(crate) const fn folders(self, folders: &'static [(&'static str, &'static str)]) -> Self {
        Self { folders, ..self }
    }

    /// The layer behind what was seen in a session of a profile.
    pub(crate) fn layer(&self, seen: &str, profile: &str) -> Option<&'static str> {
        let fits = |(pattern, _): &&(&str, &str)| seen.starts_with(pattern);
        let (_, layer) = self.refusals.iter().find(fits)?;
        let (strict, nested) = layer.split_once(" | ").unwrap_or((layer, layer));
        Some(if profile == "nested" { nested } else { strict })
    }

    /// The attack of a name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|attack| attack.name == name)
    }

    /// Every attack.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        attacks::TABLES.iter().flat_map(|table| table.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_attacks_share_a_name() {
        let mut names = BTreeSet::new();
        for attack in Attack::all() {
            assert!(names.insert(attack.name), "{}", attack.name);
        }
    }

    #[test]
    fn every_attack_says_which_refusal_it_expects() {
        for attack in Attack::all() {
            let allowed =
                matches!(attack.permitted, Permitted::Required | Permitted::Everywhere(_));
            assert!(allowed || !attack.refusals.is_empty(), "{}", attack.name);
        }
    }
}
