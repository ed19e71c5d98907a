//! `cowork explain`: the plan of a session step by step, and what would protect it.

use crate::arguments::Explain;
use crate::failure::{self, Failure};
use crate::request;
use cowork_api::keeper::{LayerState, Status, Strength};
use cowork_api::plan::{Access, Layer, OwnStep, Right, RootStep, SessionPlan};
use cowork_policy::plan;
use cowork_policy::seccomp::{Arch, Policy};
use cowork_sandbox::client::Keeper;
use std::fmt::Write as _;

/// Prints the plan, makes a session from it, prints what is in force there, and ends it.
pub(crate) fn explain(options: &Explain) -> Result<(), Failure> {
    let request = request::build(&options.session)?;
    let plan = plan::compile(&request, &cowork_sandbox::host::system());
    let mut text = describe(&plan);
    if options.syscalls {
        text.push_str(&system_calls(
            &Policy::guard(request.profile, request.debugging),
            "refused or checked by the filter",
        ));
        text.push_str(&system_calls(&Policy::door(), "decided by the broker"));
    }
    let mut keeper = Keeper::start()?;
    let (status, session) = keeper.create(plan)?;
    drop(session);
    drop(keeper);
    text.push_str(
        "\nIn force (observed in a session made from this plan, in which nothing was run)\n",
    );
    text.push_str(&describe_status(&status));
    crate::print(text.as_bytes()).map(|_| ())
}

/// Says on standard error what is in force.
#[expect(clippy::print_stderr, reason = "asked for by --verbose; standard output is the command's")]
pub(crate) fn print_status(status: &Status) {
    eprint!("cowork: session {}\n{}", status.session, describe_status(status));
}

fn text(bytes: &[u8]) -> String {
    failure::plain(&String::from_utf8_lossy(bytes))
}

fn describe(plan: &SessionPlan) -> String {
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
            Access::Write => "read and write",
        };
        steps.push(format!(
            "grant {} as /sessions/{}/mnt/{} ({access})",
            text(&grant.path),
            plan.id,
            failure::plain(&grant.name)
        ));
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
    steps.push("hand connections to UNIX sockets in folders to the broker".into());
    let mut out =
        format!("Plan of session {} (profile {:?})\n", plan.id, plan.profile).to_lowercase();
    for (number, step) in steps.iter().enumerate() {
        // Writing to a string cannot fail.
        cowork_sys::ignore(writeln!(out, "{:4}. {step}", number + 1));
    }
    out
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
                Access::Write => "writable",
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

fn describe_status(status: &Status) -> String {
    let mut out = String::new();
    for layer in &status.enforcement {
        let state = match layer.state {
            LayerState::InForce => "in force",
            LayerState::Absent => "ABSENT",
            LayerState::LeftOut => "left out",
        };
        cowork_sys::ignore(writeln!(
            out,
            "  {:<34} {state:<9} {}",
            layer_name(layer.layer),
            layer.observed
        ));
    }
    for limit in &status.limits {
        let strength = match limit.strength {
            Strength::Enforced => "enforced",
            Strength::BestEffort => "best effort",
            Strength::None => "NONE",
        };
        let name = format!("limit on {:?}", limit.limit).to_lowercase();
        cowork_sys::ignore(writeln!(
            out,
            "  {name:<24} {:<9} {strength:<11} {}",
            limit.value, limit.means
        ));
    }
    out
}

fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::UserNamespace => "user namespace",
        Layer::MountNamespace => "mount namespace",
        Layer::PidNamespace => "pid namespace",
        Layer::NetworkNamespace => "network namespace",
        Layer::IpcNamespace => "ipc namespace",
        Layer::UtsNamespace => "host name namespace",
        Layer::CgroupNamespace => "cgroup namespace",
        Layer::NoCapabilities => "no capabilities",
        Layer::NoNewPrivileges => "no new privileges",
        Layer::SystemCalls => "filter of system calls",
        Layer::ConnectBroker => "broker for sockets in folders",
        Layer::LandlockFiles => "Landlock: files",
        Layer::LandlockScopes => "Landlock: signals, abstract sockets",
        Layer::SealedInit => "PID 1 sealed",
        Layer::OwnUser => "user id of its own",
    }
}
