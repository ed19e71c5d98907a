//! What this host can do for sessions: probed, not guessed.

use crate::keeper::cgroup::{Cgroups, Controller};
use crate::keeper::grounds::{Grounds, Standing};
use crate::keeper::obstacles;
use crate::keeper::sockets::captures_all_ports;
use crate::keeper::trials;
use crate::kernel::Failed;
use cowork_api::keeper::{Fact, Failure, FailureCode, Grade};
use cowork_policy::Limits;
use cowork_sys::Errno;
use cowork_sys::process::SingleThreaded;
use cowork_sys::seccomp::Waiting;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Turns a failure to make the keeper's namespaces into the sentence and the fix for this host.
pub(crate) fn explain_grounds(failed: &Failed) -> Failure {
    let (hint, _) = namespace_fix();
    Failure {
        code: FailureCode::HostUnable,
        sentence: format!("this host does not let cowork {}", failed.step),
        errno: failed.errno.raw_os_error(),
        hint,
    }
}

/// What stands in the way of user namespaces here, and how to remove it.
fn namespace_fix() -> (String, &'static str) {
    let program = std::env::current_exe().ok();
    obstacles::to_namespaces(sysctl, program.as_deref())
}

fn sysctl(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_owned())
}

/// Looks at everything that decides how well sessions are kept here. `state` is the folder that they
/// are kept in.
pub(crate) fn survey(
    grounds: &mut Result<Grounds, Failure>,
    cgroups: &Cgroups,
    proof: &SingleThreaded,
    state: Option<&Path>,
) -> Vec<Fact> {
    let mut facts = vec![kernel(), identity(grounds, proof), namespaces(grounds)];
    if let (Ok(grounds), Some(state)) = (&mut *grounds, state)
        && grounds.mode() == Standing::Root
    {
        facts.push(homes(state, trials::map_folder(proof, grounds, state)));
    }
    facts.push(landlock(cowork_sys::identity::landlock_abi()));
    facts.push(seccomp());
    let waits = cowork_sys::seccomp::knows_killable_waiting();
    facts.push(changes(if waits { Waiting::Killable } else { Waiting::Interruptible }));
    facts.push(unix_sockets());
    facts.push(freezing(cgroups));
    facts.extend([
        limit(cgroups, Controller::Memory, "memory limit"),
        limit(cgroups, Controller::Cpu, "CPU limit"),
        limit(cgroups, Controller::Pids, "process limit"),
    ]);
    facts.extend([scratch(), open_files(), keyrings(), nested(trials::nest(proof))]);
    facts.push(capture(proof));
    facts.push(terminals());
    facts.push(foreign_calls());
    facts
}

fn fact(name: &str, value: impl Into<String>, grade: Grade, consequence: &str, fix: &str) -> Fact {
    Fact {
        name: name.into(),
        value: value.into(),
        grade,
        consequence: consequence.into(),
        fix: fix.into(),
    }
}

/// The version of the kernel, as it is spelled and as two numbers.
fn version() -> (String, (u32, u32)) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release, version)
}

fn kernel() -> Fact {
    let (release, version) = version();
    if version < (5, 15) {
        let fix = "boot Linux 5.15 or newer";
        return fact("kernel", release, Grade::Blocking, "too old for sessions", fix);
    }
    if version < (6, 12) {
        let fix = "boot Linux 6.12 or newer for every layer";
        return fact("kernel", release, Grade::Reduced, "some layers are not there yet", fix);
    }
    fact("kernel", release, Grade::Good, "new enough for every layer that cowork uses", "")
}

fn identity(grounds: &Result<Grounds, Failure>, proof: &SingleThreaded) -> Fact {
    match grounds.as_ref().map(Grounds::mode) {
        Ok(Standing::Root) => root_mode(trials::map_memory(proof)),
        Ok(Standing::User { uid, .. }) => fact(
            "identity",
            format!("user mode (uid {uid})"),
            Grade::Good,
            "sessions have your user id; namespaces, not ids, keep them apart from you",
            "",
        ),
        Err(_) => fact("identity", "unknown", Grade::Blocking, "see namespaces", ""),
    }
}

fn root_mode(mapped: Result<(), Failed>) -> Fact {
    let name = "identity";
    if let Err(failed) = mapped {
        return fact(
            name,
            format!("root mode (cannot {failed}: {})", failed.errno),
            Grade::Reduced,
            "folders on tmpfs cannot be granted, and no session can have its home there",
            "boot Linux 6.3 or newer, or keep them, and cowork's state folder, on a disk",
        );
    }
    let consequence = "each session has a user id of its own; granted files keep their owner";
    fact(name, "root mode", Grade::Good, consequence, "")
}

/// Whether sessions of root's can have homes where cowork keeps its state.
fn homes(state: &Path, mapped: Result<(), Failed>) -> Fact {
    let name = "state folder";
    match mapped {
        Ok(()) => {
            let consequence = "homes of sessions are kept there, as files of nobody";
            fact(name, state.display().to_string(), Grade::Good, consequence, "")
        }
        Err(failed) => fact(
            name,
            format!("cannot {failed} ({})", failed.errno),
            Grade::Reduced,
            "no session can have its home there",
            "set COWORK_STATE_DIR to a folder on a disk with ext4, XFS or Btrfs",
        ),
    }
}

fn namespaces(grounds: &Result<Grounds, Failure>) -> Fact {
    match grounds {
        Ok(_) => fact("namespaces", "made and entered", Grade::Good, "sessions can be made", ""),
        Err(failure) => fact(
            "namespaces",
            format!("{} ({})", failure.sentence, Errno::from_raw_os_error(failure.errno)),
            Grade::Blocking,
            "no session can be made",
            &failure.hint,
        ),
    }
}

fn landlock(abi: Option<u32>) -> Fact {
    match abi {
        None => fact(
            "Landlock",
            "absent",
            Grade::Reduced,
            "the second wall around files is missing: only sessions of profile `nested` start",
            "boot with `lsm=landlock,…` on the kernel command line, or use `--profile nested`",
        ),
        Some(abi) if abi < 6 => fact(
            "Landlock",
            format!("ABI {abi}"),
            Grade::Reduced,
            "file rules, without scopes for signals and abstract sockets",
            "boot Linux 6.12 or newer",
        ),
        Some(abi) => fact(
            "Landlock",
            format!("ABI {abi}"),
            Grade::Good,
            "file rules and scopes for signals and abstract sockets",
            "",
        ),
    }
}

fn seccomp() -> Fact {
    if cowork_sys::seccomp::knows_notifications() {
        fact("seccomp", "filters and listeners", Grade::Good, "system calls are filtered", "")
    } else {
        fact(
            "seccomp",
            "no listeners",
            Grade::Blocking,
            "connections to sockets in granted folders cannot be decided",
            "boot a kernel with CONFIG_SECCOMP_FILTER, 5.5 or newer",
        )
    }
}

fn changes(waiting: Waiting) -> Fact {
    let name = "recorded changes";
    if waiting == Waiting::Killable {
        let consequence = "folders can be granted `rw`: every change is recorded and can be undone";
        return fact(name, "calls wait for the broker", Grade::Good, consequence, "");
    }
    fact(
        name,
        "calls do not wait through signals",
        Grade::Reduced,
        "folders cannot be granted `rw`: grant them `direct` (no undo) or `staged`",
        "boot Linux 5.19 or newer",
    )
}

fn unix_sockets() -> Fact {
    let by_landlock = cowork_sys::identity::landlock_abi().is_some_and(|abi| abi >= 9);
    let value = if by_landlock { "Landlock and broker" } else { "broker" };
    fact(
        "sockets in folders",
        value,
        Grade::Good,
        "a UNIX socket of the host inside a granted folder cannot be reached",
        "",
    )
}

fn freezing(cgroups: &Cgroups) -> Fact {
    let value = format!("cgroup {}", cgroups.describe());
    if cgroups.freezes() {
        fact("freezing", value, Grade::Good, "a session stops between two instructions", "")
    } else {
        fact(
            "freezing",
            value,
            Grade::Reduced,
            "a session is stopped by signals, which its programs can notice",
            DELEGATE,
        )
    }
}

/// How an ordinary user gets cgroups.
const DELEGATE: &str = "start cowork where systemd delegates cgroups, e.g. `systemd-run --user \
                        --scope -p Delegate=yes cowork …`";

fn limit(cgroups: &Cgroups, controller: Controller, name: &str) -> Fact {
    if cgroups.offers(controller) {
        return fact(name, "cgroup", Grade::Good, "enforced for the session as a whole", "");
    }
    match controller {
        Controller::Pids => fact(
            name,
            "RLIMIT_NPROC",
            Grade::Good,
            "enforced, counted in the session's user namespace",
            "",
        ),
        Controller::Memory => fact(
            name,
            "RLIMIT_DATA",
            Grade::Reduced,
            "best effort: each process is limited, not their sum",
            DELEGATE,
        ),
        Controller::Cpu => fact(name, "none", Grade::Reduced, "not limited", DELEGATE),
    }
}

fn capture(proof: &SingleThreaded) -> Fact {
    let name = "capture of all ports";
    match captures_all_ports(proof) {
        Ok(()) => fact(
            name,
            "in force",
            Grade::Good,
            "a program of a session reaches an allowed host on any port without a proxy setting",
            "",
        ),
        Err(failure) => fact(
            name,
            format!("absent ({})", Errno::from_raw_os_error(failure.errno)),
            Grade::Reduced,
            "only the ports that rules name are reached without a proxy setting",
            "boot a kernel with nf_tables and CONFIG_NFT_TPROXY",
        ),
    }
}

fn terminals() -> Fact {
    let value = match sysctl("dev/tty/legacy_tiocsti").as_deref() {
        Some("0") => "the kernel refuses TIOCSTI",
        _ => "the kernel allows TIOCSTI",
    };
    fact(
        "terminal",
        value,
        Grade::Good,
        "sessions have terminals of their own and the call is refused in them",
        "",
    )
}

fn scratch() -> Fact {
    let size = crate::host::size();
    let scratch = Limits::scaled_to(&size).scratch.value();
    let value = format!("in memory, {scratch} of {} for a session by default", size.memory);
    let consequence =
        "homes without `--home`, /tmp and what is not kept count as memory of the host";
    fact("scratch", value, Grade::Good, consequence, "")
}

/// The keeper holds some files for each session, as many as for a hundred within this number.
const FILES: u64 = 4096;

fn open_files() -> Fact {
    let most = getrlimit(Resource::Nofile).maximum;
    let value = most.map_or("no limit".into(), |most| format!("at most {most}"));
    if most.is_some_and(|most| most < FILES) {
        let consequence = "a keeper has room for few sessions, and so have programs in them";
        let fix = "raise the hard limit on open files (`ulimit -Hn`, `LimitNOFILE=`)";
        return fact("open files", value, Grade::Reduced, consequence, fix);
    }
    let consequence = "there is room for sessions, and for programs with many files in them";
    fact("open files", value, Grade::Good, consequence, "")
}

fn keyrings() -> Fact {
    match sysctl("kernel/keys/maxkeys") {
        Some(most) => fact(
            "keyrings",
            format!("at most {most} keys for each user"),
            Grade::Good,
            "each session has a keyring of its own; what is in the user's is not there",
            "",
        ),
        None => fact(
            "keyrings",
            "not in this kernel",
            Grade::Blocking,
            "a session cannot be given a keyring of its own",
            "use a kernel with CONFIG_KEYS",
        ),
    }
}

fn nested(made: Result<(), Failure>) -> Fact {
    let name = "nested sandboxes";
    if let Err(failure) = made {
        let errno = Errno::from_raw_os_error(failure.errno);
        let consequence = "programs that bring their own sandbox cannot use it in a session";
        let value = format!("{} ({errno})", failure.sentence);
        return fact(name, value, Grade::Reduced, consequence, &namespace_fix().0);
    }
    let most = sysctl("user/max_user_namespaces").and_then(|most| most.parse::<u64>().ok());
    let value = most.map_or("no limit".into(), |most| format!("at most {most} user namespaces"));
    if most.is_some_and(|most| most < NAMESPACES) {
        let consequence = "profile `nested` has little room for sandboxes that programs bring";
        let fix = "`sudo sysctl -w user.max_user_namespaces=10000`";
        return fact(name, value, Grade::Reduced, consequence, fix);
    }
    let consequence = "programs that bring their own sandbox run with profile `nested`";
    fact(name, value, Grade::Good, consequence, "")
}

/// Chromium makes one for each of its processes.
const NAMESPACES: u64 = 256;

fn foreign_calls() -> Fact {
    fact(
        "other ABIs",
        std::env::consts::ARCH,
        Grade::Good,
        "system calls of other ABIs (i386, x32) end the program or fail in a session",
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::{
        Errno, Failed, Failure, FailureCode, Grade, Waiting, changes, homes, landlock, nested,
        root_mode,
    };
    use std::path::Path;

    #[test]
    fn a_kernel_that_may_repeat_a_call_is_told_of() {
        let fact = changes(Waiting::Interruptible);
        assert!(matches!(fact.grade, Grade::Reduced));
        assert_eq!(fact.value, "calls do not wait through signals");
        assert_eq!(
            fact.consequence,
            "folders cannot be granted `rw`: grant them `direct` (no undo) or `staged`"
        );
        assert_eq!(fact.fix, "boot Linux 5.19 or newer");
        assert!(matches!(changes(Waiting::Killable).grade, Grade::Good));
    }

    #[test]
    fn a_host_without_landlock_has_sessions_of_one_profile() {
        let fact = landlock(None);
        assert_eq!((fact.grade, fact.value.as_str()), (Grade::Reduced, "absent"));
        assert!(fact.consequence.ends_with("only sessions of profile `nested` start"));
        assert_eq!(landlock(Some(5)).grade, Grade::Reduced);
        assert_eq!(landlock(Some(6)).grade, Grade::Good);
    }

    #[test]
    fn what_was_tried_and_refused_is_told_with_the_reason() {
        let failed = || Failed::new("show files of it with other owners", Errno::INVAL);
        let said = "cannot show files of it with other owners";
        for fact in [root_mode(Err(failed())), homes(Path::new("/state"), Err(failed()))] {
            assert_eq!(fact.grade, Grade::Reduced);
            assert!(fact.value.contains(said) && !fact.fix.is_empty(), "{fact:?}");
        }
        let failure = Failure {
            code: FailureCode::HostUnable,
            sentence: "cannot make another user namespace".into(),
            errno: Errno::NOSPC.raw_os_error(),
            hint: String::new(),
        };
        let fact = nested(Err(failure));
        assert_eq!(fact.grade, Grade::Reduced);
        let said = "cannot make another user namespace (No space left on device";
        assert!(fact.value.starts_with(said) && !fact.fix.is_empty(), "{fact:?}");
        assert_eq!(root_mode(Ok(())).grade, Grade::Good);
    }
}
