//! `cowork explain`: the plan of a session step by step, and what would protect it.

use crate::arguments::Explain;
use crate::failure::{Failure, note};
use crate::network;
use crate::request::{self, Unnamed};
use crate::show::{self, neutral, progress};
use cowork_api::files::NamePolicy;
use cowork_api::keeper::{LayerState, Status, Strength};
use cowork_api::plan::{Access, Door, OwnStep, Right, RootStep, SessionPlan};
use cowork_client::types::{Enforced, Limit, Session};
use cowork_policy::files::Settings;
use cowork_policy::plan;
use cowork_policy::seccomp::{Arch, Policy};
use cowork_sandbox::client::Keeper;
use serde_json::json;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Prints the plan, makes a session from it, prints what is in force there, and ends it.
pub(crate) fn explain(options: &Explain) -> Result<ExitCode, Failure> {
    let policy = network::policy(&options.session.network)?;
    let request = request::build(&options.session, Unnamed::Here, &policy.files)?;
    let wanted = network::wanted(&options.session.network, &policy)?;
    let plan = plan::compile(&request, &cowork_sandbox::host::system());
    let filters = options.syscalls.then(|| {
        let guard = Policy::guard(request.profile, request.debugging);
        [
            ("refused or checked by the filter", guard),
            ("decided by the broker", Policy::door(plan.door)),
        ]
    });
    let mut steps = steps(&plan);
    let reached = network::plan(wanted.as_ref());
    let changed = about_names(&policy.files);
    steps.extend(changed.iter().chain(&reached).map(|line| neutral::line(line)));
    let title = format!("Plan of session {} (profile {:?})\n", plan.id, plan.profile);
    let status = progress::during("making a session to look at", || -> Result<_, Failure> {
        let mut keeper = Keeper::start()?;
        let (status, session) = keeper.create(plan)?;
        drop(session);
        drop(keeper);
        Ok(status)
    })?;
    let (layers, limits) = observed(&status);
    if options.output.json {
        let filters = filters.iter().flatten().flat_map(|(_, policy)| policy.rules());
        let rules = filters.map(|rule| json!({ "call": rule.call, "reason": rule.reason }));
        let rules: Vec<_> = rules.collect();
        let rules = options.syscalls.then_some(rules);
        return show::json(&json!({
            "session": status.session,
            "steps": steps,
            "network": wanted,
            "syscalls": rules,
            "enforcement": layers,
            "limits": limits,
        }));
    }
    let mut text = title.to_lowercase();
    for (number, step) in steps.iter().enumerate() {
        // Writing to a string cannot fail.
        cowork_sys::ignore(writeln!(text, "{:4}. {step}", number + 1));
    }
    for (title, policy) in filters.iter().flatten() {
        text.push_str(&system_calls(policy, title));
    }
    text.push_str(
        "\nIn force (observed in a session made from this plan, in which nothing was run)\n",
    );
    text.push_str(&in_force(&layers, &limits));
    show::print(text)
}

/// What a policy says about names in granted folders, a sentence each.
fn about_names(said: &Settings) -> Vec<String> {
    let names = said.names.iter().map(|rule| {
        let what = match rule.policy {
            NamePolicy::Allow => "let it change",
            NamePolicy::Flag => "mark when it changes",
            NamePolicy::Ask => "ask you before it changes",
            NamePolicy::Deny => "keep it from changing",
        };
        format!("{what} {} ({})", rule.pattern, rule.reason)
    });
    let block = said.block.iter().map(|ending| format!("keep it from making files in .{ending}"));
    let unblock = said.unblock.iter().map(|ending| format!("let it make files in .{ending}"));
    names.chain(block).chain(unblock).collect()
}

/// Says on standard error what is in force in a session of this process's own.
#[expect(clippy::print_stderr, reason = "asked for by --verbose; standard output is the command's")]
pub(crate) fn print_status(status: &Status) {
    let (layers, limits) = observed(status);
    eprint!("cowork: session {}\n{}", status.session, in_force(&layers, &limits));
}

/// Says on standard error what is in force in a session of the daemon's.
#[expect(clippy::print_stderr, reason = "asked for by --verbose; standard output is the command's")]
pub(crate) fn print_session(session: &Session) {
    let text = in_force(&session.enforcement, &session.limits);
    eprint!("cowork: session {}\n{text}", session.id);
}

fn text(bytes: &[u8]) -> String {
    neutral::line(&String::from_utf8_lossy(bytes))
}

fn steps(plan: &SessionPlan) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    steps.push(format!(
        "make a session `{}` with namespaces of its own: user, mount, pid, network, ipc, host name, \
         cgroup",
        plan.id
    ));
    steps.extend(plan.root.iter().map(root_step));
    steps.extend(plan.own.iter().map(own_step));
    for grant in &plan.grants {
        let access = match grant.access {
            Access::Read => "read only",
            Access::Write => {
                "read and write, by way of the broker; the daemon records every change for `cowork \
                 undo`, and with `--no-daemon` nothing is recorded"
            }
            Access::Direct => "read and write, without a record",
            Access::Staged => "changes stay beside it until they are applied",
        };
        steps.push(format!(
            "grant {} as /sessions/{}/mnt/{} ({access})",
            text(&grant.path),
            plan.id,
            neutral::line(&grant.name)
        ));
        let direct = grant.writing.iter().flat_map(|writing| &writing.direct);
        steps.extend(
            direct.map(|below| format!("let {} below it be written without a record", text(below))),
        );
    }
    steps.push("give up every capability, for good (no_new_privs, empty bounding set)".into());
    for wall in &plan.walls {
        let right = match wall.right {
            Right::List => "list",
            Right::Read => "read and execute",
            Right::Everything => "everything the mount allows",
        };
        steps.push(format!("by Landlock allow beneath {}: {right}", text(&wall.beneath)));
    }
    steps.push("by Landlock keep signals and abstract sockets inside the session".into());
    steps.push(filter_step(plan));
    steps.push(match plan.door {
        Door::Writes => {
            "hand connections to UNIX sockets in folders, and changes of files by name, \
                         to the broker"
                .into()
        }
        Door::Connections => "hand connections to UNIX sockets in folders to the broker".into(),
    });
    steps
}

fn filter_step(plan: &SessionPlan) -> String {
    let profile = match plan.profile {
        cowork_api::plan::Profile::Strict => cowork_policy::seccomp::Profile::Strict,
        cowork_api::plan::Profile::Nested => cowork_policy::seccomp::Profile::Nested,
    };
    let debugging = match plan.debugging {
        cowork_api::plan::Debugging::Forbidden => cowork_policy::seccomp::Debugging::Forbidden,
        cowork_api::plan::Debugging::Allowed => cowork_policy::seccomp::Debugging::Allowed,
    };
    let guard = Policy::guard(profile, debugging);
    let length = Arch::native().and_then(|arch| guard.assemble(arch).ok());
    let length = length.map_or(0, |program| program.instructions().len());
    format!(
        "filter system calls: {} rules in {length} instructions (list them with --syscalls)",
        guard.rules().count()
    )
}

fn root_step(step: &RootStep) -> String {
    match step {
        RootStep::Folder { at, mode } => format!("make the folder {} ({mode:o})", text(at)),
        RootStep::Link { at, to } => format!("link {} to {}", text(at), text(to)),
        RootStep::File { at, contents } => {
            format!("write {} ({} bytes of cowork's own)", text(at), contents.len())
        }
        RootStep::System { from, at } => {
            format!("show {} of the host as {}, read only", text(from), text(at))
        }
        RootStep::Device { from, at } => format!("show the device {} as {}", text(from), text(at)),
    }
}

fn own_step(step: &OwnStep) -> String {
    match step {
        OwnStep::Processes { at } => {
            format!("mount a view of the session's processes at {}", text(at))
        }
        OwnStep::Terminals { at } => {
            format!("mount terminals of the session's own at {}", text(at))
        }
        OwnStep::Scratch { at, access, .. } => {
            let access = match access {
                Access::Read => "read only",
                Access::Write | Access::Direct | Access::Staged => "writable",
            };
            format!("make {} in the session's memory, {access}", text(at))
        }
        OwnStep::Notes { at, files } => {
            let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
            format!("write {} in {}, read only", names.join(", "), text(at))
        }
        OwnStep::Home { from, at } => {
            format!("show {} of the host as {}, its home", text(from), text(at))
        }
        OwnStep::Blank { at } => format!("show nothing in {}", text(at)),
        OwnStep::Link { at, to } => format!("link {} to {}", text(at), text(to)),
        OwnStep::Grants { at, .. } => {
            format!("show granted folders, now and later, in {} (itself read only)", text(at))
        }
    }
}

fn system_calls(policy: &Policy, title: &str) -> String {
    let mut out = format!("\nSystem calls {title}\n");
    for rule in policy.rules() {
        cowork_sys::ignore(writeln!(out, "  {:<20} {}", rule.call, rule.reason));
    }
    out
}

/// What was observed, as the daemon tells it.
fn observed(status: &Status) -> (Vec<Enforced>, Vec<Limit>) {
    let layers = status.enforcement.iter().map(|layer| Enforced {
        layer: plan::layer_name(layer.layer).to_owned(),
        state: match layer.state {
            LayerState::InForce => "in force",
            LayerState::Absent => "absent",
            LayerState::LeftOut => "left out",
        }
        .to_owned(),
        observed: layer.observed.clone(),
    });
    let limits = status.limits.iter().map(|limit| Limit {
        limit: format!("{:?}", limit.limit).to_lowercase(),
        value: limit.value.clone(),
        strength: match limit.strength {
            Strength::Enforced => "enforced",
            Strength::BestEffort => "best-effort",
            Strength::None => "none",
        }
        .to_owned(),
        means: limit.means.clone(),
    });
    (layers.collect(), limits.collect())
}

/// Says on standard error what a session of this process's own is without.
pub(crate) fn note_absent_of_status(status: &Status) {
    note_absent(&observed(status).0);
}

/// Says on standard error which layers a session is without that its profile has. Those that no
/// session starts without are not among them.
pub(crate) fn note_absent(layers: &[Enforced]) {
    if let Some(text) = absent(layers) {
        note(&text);
    }
}

fn absent(layers: &[Enforced]) -> Option<String> {
    let absent = layers.iter().filter(|layer| layer.state == "absent");
    let absent: Vec<String> =
        absent.map(|layer| format!("`{}` ({})", layer.layer, layer.observed)).collect();
    (!absent.is_empty()).then(|| {
        let absent = absent.join(", ");
        format!("this session is without {absent}: `cowork doctor` says how to get it")
    })
}

fn in_force(layers: &[Enforced], limits: &[Limit]) -> String {
    let loud = |word: &str, bad: &str| {
        if word == bad { word.to_uppercase() } else { word.to_owned() }
    };
    let mut out = String::new();
    for layer in layers {
        let state = loud(&layer.state, "absent");
        let line = format!("  {:<34} {state:<9} {}", layer.layer, layer.observed);
        cowork_sys::ignore(writeln!(out, "{}", neutral::line(&line)));
    }
    for limit in limits {
        let name = format!("limit on {}", limit.limit);
        let strength = loud(&limit.strength, "none");
        let line = format!("  {name:<24} {:<9} {strength:<11} {}", limit.value, limit.means);
        cowork_sys::ignore(writeln!(out, "{}", neutral::line(&line)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::absent;
    use cowork_client::types::Enforced;

    fn layer(layer: &str, state: &str, observed: &str) -> Enforced {
        Enforced { layer: layer.into(), state: state.into(), observed: observed.into() }
    }

    #[test]
    fn a_layer_that_the_host_lacks_is_told() {
        let mut layers = vec![
            layer("user namespace", "in force", "user:[1]"),
            layer("Landlock: files", "left out", "ABI 2"),
        ];
        assert_eq!(absent(&layers), None);
        layers.push(layer("Landlock: signals", "absent", "ABI 2, a socket outside was passed"));
        let said = "this session is without `Landlock: signals` (ABI 2, a socket outside was \
                    passed): `cowork doctor` says how to get it";
        assert_eq!(absent(&layers).as_deref(), Some(said));
    }
}
