//! What is really in force in a session, seen from outside, and compared with its floor.
//!
//! Everything but Landlock is read from the kernel's own account of the session's PID 1, not from
//! what that process says. Landlock has no such account; there, and for the filter, PID 1 tries
//! what must be refused before anything untrusted runs in it.

use crate::keeper::grounds::Standing;
use crate::kernel::read_at;
use cowork_api::guest::Probe;
use cowork_api::keeper::{Enforced, Failure, FailureCode, LayerState};
use cowork_api::plan::{Layer, Profile, SessionPlan};
use cowork_policy::plan;
use rustix::fs::readlink;

/// What init reported of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) landlock_abi: u32,
    pub(crate) canary: Probe,
    pub(crate) scopes: Probe,
    pub(crate) forbidden_call: Probe,
    pub(crate) listener: bool,
}

/// The namespaces that a session must not share.
#[derive(Debug)]
pub(crate) struct Own(Vec<(Layer, &'static str, Option<String>)>);

impl Own {
    /// Those of the keeper, which is in the hub. It may live in the network of the next session, so
    /// that there the host's counts, as the kernel names it.
    pub(crate) fn read(host_network: &str) -> Self {
        let layers = [
            (Layer::UserNamespace, "user"),
            (Layer::MountNamespace, "mnt"),
            (Layer::PidNamespace, "pid"),
            (Layer::NetworkNamespace, "net"),
            (Layer::IpcNamespace, "ipc"),
            (Layer::UtsNamespace, "uts"),
            (Layer::CgroupNamespace, "cgroup"),
        ];
        let links = layers.into_iter().map(|(layer, name)| {
            let link = match layer {
                Layer::NetworkNamespace => Some(host_network.to_owned()),
                _ => namespace("self", name),
            };
            (layer, name, link)
        });
        Self(links.collect())
    }
}

/// Looks at every layer. `seen` is what was found of the namespaces.
pub(crate) fn observe(
    pid: i32,
    mut seen: Vec<Enforced>,
    standing: Standing,
    profile: Profile,
    report: Report,
) -> Vec<Enforced> {
    let mut note = |layer, in_force: bool, observed: String| {
        let state = if in_force { LayerState::InForce } else { LayerState::Absent };
        seen.push(Enforced { layer, state, observed });
    };
    let status = read_at(rustix::fs::CWD, &format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(&field);
    let empty = sets.iter().all(|set| !set.is_empty() && set.bytes().all(|digit| digit == b'0'));
    note(Layer::NoCapabilities, empty, format!("capability sets {}", sets.join(" ")));
    note(
        Layer::NoNewPrivileges,
        field("NoNewPrivs") == "1",
        format!("NoNewPrivs {}", field("NoNewPrivs")),
    );
    let filters: u32 = field("Seccomp_filters").parse().unwrap_or(0);
    let filtered =
        field("Seccomp") == "2" && filters >= 2 && report.forbidden_call == Probe::Refused;
    note(
        Layer::SystemCalls,
        filtered,
        format!("{filters} filters, a forbidden call was {:?}", report.forbidden_call)
            .to_lowercase(),
    );
    note(
        Layer::ConnectBroker,
        report.listener,
        if report.listener { "the keeper holds the listener" } else { "no listener" }.into(),
    );
    let outcome = |probe: Probe| format!("{probe:?}").to_lowercase();
    note(
        Layer::LandlockFiles,
        report.landlock_abi > 0 && report.canary == Probe::Refused,
        format!("ABI {}, the canary was {}", report.landlock_abi, outcome(report.canary)),
    );
    note(
        Layer::LandlockScopes,
        report.scopes == Probe::Refused,
        format!("ABI {}, a socket outside was {}", report.landlock_abi, outcome(report.scopes)),
    );
    // The files of a process that is not dumpable belong to the root of its own namespace or of
    // the host, never to its user: its environment cannot even be opened.
    let sealed = rustix::fs::stat(format!("/proc/{pid}/environ")).ok().map(|stat| stat.st_uid);
    let user = own_user(&status);
    note(
        Layer::SealedInit,
        sealed.is_some() && sealed != user,
        format!(
            "its /proc entry belongs to user {}",
            sealed.map_or("?".into(), |uid| uid.to_string())
        ),
    );
    note(
        Layer::OwnUser,
        standing == Standing::Root && user.is_some_and(|uid| uid != 0),
        format!("runs as user {} of the host", user.map_or("?".into(), |uid| uid.to_string())),
    );
    for entry in &mut seen {
        let left_out = match entry.layer {
            Layer::LandlockFiles => profile == Profile::Nested,
            Layer::OwnUser => standing != Standing::Root,
            _ => false,
        };
        if left_out && entry.state == LayerState::Absent {
            entry.state = LayerState::LeftOut;
        }
    }
    seen
}

/// Which namespaces of the session are its own, once its first process is in all of them: it leaves
/// none of them any more, and has yet to lock itself down. One that the keeper could not read of itself is not
/// known to be another.
pub(crate) fn namespaces(pid: i32, own: &Own) -> Vec<Enforced> {
    let observed = own.0.iter().map(|(layer, name, ours)| {
        let theirs = namespace(&pid.to_string(), name);
        let differs = ours.is_some() && theirs.is_some() && theirs != *ours;
        let state = if differs { LayerState::InForce } else { LayerState::Absent };
        let observed = theirs.unwrap_or_else(|| "cannot be read".into());
        Enforced { layer: *layer, state, observed }
    });
    observed.collect()
}

fn namespace(process: &str, name: &str) -> Option<String> {
    let link = readlink(format!("/proc/{process}/ns/{name}"), Vec::new()).ok()?;
    link.into_string().ok()
}

fn own_user(status: &str) -> Option<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
}

/// Refuses a session in which a layer of its floor is not in force.
pub(crate) fn compare(plan: &SessionPlan, seen: &[Enforced]) -> Result<(), Failure> {
    for layer in &plan.floor {
        let found = seen.iter().find(|entry| entry.layer == *layer);
        if found.is_some_and(|entry| entry.state == LayerState::InForce) {
            continue;
        }
        let observed = found.map_or("nothing was observed", |entry| entry.observed.as_str());
        return Err(Failure {
            code: FailureCode::LayerMissing,
            sentence: format!(
                "the layer `{}` is not in force here, and no session starts without it ({observed})",
                plan::layer_name(*layer)
            ),
            errno: 0,
            hint: plan::layer_fix(*layer).into(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Layer, LayerState, Probe, Profile, Report, Standing, observe};

    /// What the kernel could do is not what was seen.
    #[test]
    fn scopes_that_were_left_out_are_missed() {
        let own = i32::try_from(std::process::id()).unwrap();
        for (scopes, state, said) in [
            (Probe::Refused, LayerState::InForce, "ABI 7, a socket outside was refused"),
            (Probe::Passed, LayerState::Absent, "ABI 7, a socket outside was passed"),
            (Probe::Untested, LayerState::Absent, "ABI 7, a socket outside was untested"),
        ] {
            let refused = Probe::Refused;
            let report = Report {
                landlock_abi: 7,
                canary: refused,
                scopes,
                forbidden_call: refused,
                listener: true,
            };
            let seen = observe(own, Vec::new(), Standing::Root, Profile::Strict, report);
            let found = seen.iter().find(|entry| entry.layer == Layer::LandlockScopes).unwrap();
            assert_eq!((found.state, found.observed.as_str()), (state, said));
        }
    }
}
