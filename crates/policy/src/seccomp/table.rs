//! The rules of every filter, as data with a reason each.
//!
//! Invariant: no call appears twice in the tables of one filter, and every reason is one sentence
//! that a user can read. A call without a rule is allowed.
//!
//! Deliberately absent, because they stay allowed: `prctl`, and `seccomp` itself (a program can
//! only add filters, and the kernel refuses a second listener with `EBUSY`); `pidfd_getfd` and
//! `process_madvise` (the kernel itself asks whether the caller may trace the other program).

use super::decision::{Arg, Errno, Node, Rule, Test, Verdict};

/// What a call gets that the kernel should not seem to have.
pub(super) const MISSING: Verdict = Verdict::Errno(Errno::NoSys);

/// What a call gets that was made by another architecture's numbers, such as `int 0x80` on
/// `x86_64`. No program of the session does so by accident, and with an error a program could try
/// number by number.
pub(super) const FOREIGN: Verdict = Verdict::KillProcess;

const ALLOW: Node = Node::Return(Verdict::Allow);
const NOTIFY: Node = Node::Return(Verdict::Notify);
const NOTHING: Node = Node::Return(Verdict::Nothing);
const EPERM: Node = refuse(Errno::Perm);
const ENOSYS: Node = Node::Return(MISSING);
const EAFNOSUPPORT: Node = refuse(Errno::AfNoSupport);
const EOPNOTSUPP: Node = refuse(Errno::OpNotSupp);
const EPROTONOSUPPORT: Node = refuse(Errno::ProtoNoSupport);

const fn refuse(errno: Errno) -> Node {
    Node::Return(Verdict::Errno(errno))
}

const fn when(test: Test, then: &'static Node, otherwise: &'static Node) -> Node {
    Node::If { test, then, otherwise }
}

const fn any_bits(arg: Arg, mask: u32) -> Test {
    Test::AnyBits { arg, mask }
}

const fn high_bits(arg: Arg) -> Test {
    Test::HighBits { arg }
}

const fn equals(arg: Arg, value: u32) -> Test {
    Test::Equals { arg, value }
}

const fn rule(call: &'static str, node: Node, reason: &'static str) -> Rule {
    Rule { call, node, reason }
}

/// A call that is refused whatever its arguments are.
const fn deny(call: &'static str, reason: &'static str) -> Rule {
    rule(call, EPERM, reason)
}

/// A call whose users have a well-known way to do without it.
const fn hide(call: &'static str, reason: &'static str) -> Rule {
    rule(call, ENOSYS, reason)
}

const KEYS: &str = "Kernel keyrings belong to the user, not to the session, and can carry secrets.";
const TRACING: &str =
    "Measuring and extending the kernel from inside is a common way to take it over.";
const FAULTS: &str = "Stopping the kernel in the middle of a memory access makes its bugs usable.";
const CODE: &str = "Only the host decides which code its kernel runs.";
const HANDLES: &str = "A file handle reaches files by number, past the folders that were granted.";
const SWAP: &str = "Swap space belongs to the host.";
const POWER: &str = "Only the host decides when it restarts.";
const PORTS: &str = "Hardware ports belong to the host.";
const ACCOUNTING: &str = "Accounting and disk quotas belong to the host.";
const LOG: &str = "The kernel's log shows what happens outside the session.";
const CLOCK: &str = "The clock is shared with the host.";
const TERMINAL: &str = "Hanging up a terminal cuts off whoever else uses it.";
const SEGMENTS: &str = "Own memory segments are only used by very old programs, and by attacks.";
const WATCHING: &str = "Watching a whole file system shows files outside the session.";
const PLACEMENT: &str = "Moving memory between processors belongs to the host.";
const PIPES: &str =
    "Lending memory to a pipe has repeatedly let programs read or change foreign memory.";
const OBSOLETE: &str = "Kernels no longer have this call, or keep it only for very old programs.";
const URING: &str = "Requests in a ring reach the kernel without passing the session's filter.";
const OPENAT2: &str = "The file mode lies in memory that a filter cannot read, so use `openat`.";
const MOUNT_LISTS: &str = "Lists of mounts and namespaces show how the session is built.";
const ATTRIBUTES: &str = "The file attributes lie in memory that a filter cannot read.";

/// Refused in every session.
pub(super) static ALWAYS: &[Rule] = &[
    deny("add_key", KEYS),
    deny("keyctl", KEYS),
    deny("request_key", KEYS),
    deny("bpf", TRACING),
    deny("perf_event_open", TRACING),
    deny("userfaultfd", FAULTS),
    deny("kexec_load", CODE),
    deny("kexec_file_load", CODE),
    deny("init_module", CODE),
    deny("finit_module", CODE),
    deny("delete_module", CODE),
    deny("open_by_handle_at", HANDLES),
    deny("name_to_handle_at", HANDLES),
    deny("swapon", SWAP),
    deny("swapoff", SWAP),
    deny("reboot", POWER),
    deny("iopl", PORTS),
    deny("ioperm", PORTS),
    deny("acct", ACCOUNTING),
    deny("quotactl", ACCOUNTING),
    deny("quotactl_fd", ACCOUNTING),
    deny("syslog", LOG),
    deny("settimeofday", CLOCK),
    deny("clock_settime", CLOCK),
    deny("adjtimex", CLOCK),
    deny("clock_adjtime", CLOCK),
    deny("vhangup", TERMINAL),
    deny("modify_ldt", SEGMENTS),
    deny("fanotify_init", WATCHING),
    deny("move_pages", PLACEMENT),
    deny("migrate_pages", PLACEMENT),
    deny("vmsplice", PIPES),
    deny("lookup_dcookie", OBSOLETE),
    deny("nfsservctl", OBSOLETE),
    deny("uselib", OBSOLETE),
    deny("ustat", OBSOLETE),
    deny("_sysctl", OBSOLETE),
    deny("create_module", OBSOLETE),
    deny("get_kernel_syms", OBSOLETE),
    deny("query_module", OBSOLETE),
    deny("afs_syscall", OBSOLETE),
    deny("tuxcall", OBSOLETE),
    deny("security", OBSOLETE),
    deny("getpmsg", OBSOLETE),
    deny("putpmsg", OBSOLETE),
    deny("vserver", OBSOLETE),
    hide("io_uring_setup", URING),
    hide("io_uring_enter", URING),
    hide("io_uring_register", URING),
    hide("openat2", OPENAT2),
    hide("statmount", MOUNT_LISTS),
    hide("listmount", MOUNT_LISTS),
    hide("listns", MOUNT_LISTS),
    hide("file_setattr", ATTRIBUTES),
    hide("setxattrat", ATTRIBUTES),
    hide("removexattrat", ATTRIBUTES),
    rule(
        "ioctl",
        IOCTL,
        "Some terminal requests type into, or take over, somebody else's terminal.",
    ),
    rule("personality", PERSONALITY, "Other execution modes switch protections off."),
    rule("setrlimit", when(equals(Arg::A0, RLIMIT_CORE), &NOTHING, &ALLOW), CRASHES),
    rule("prlimit64", when(equals(Arg::A1, RLIMIT_CORE), &CORE_LIMIT, &ALLOW), CRASHES),
];

/// `RLIMIT_CORE` of `asm-generic/resource.h`, the same on both architectures.
const RLIMIT_CORE: u32 = 4;

const CRASHES: &str = "The limit on core files is 1 in a session, and stays: with any other, also 0, \
                       the kernel has a crash handler of the host's look at a program that crashed.";

/// Setting it is answered as if it were done, since programs that turn core files off end where that
/// fails. One call that sets and reads would read nothing.
const CORE_LIMIT: Node =
    when(any_bits(Arg::A2, u32::MAX), &CORE_SET, &when(high_bits(Arg::A2), &CORE_SET, &ALLOW));

const CORE_SET: Node =
    when(any_bits(Arg::A3, u32::MAX), &EPERM, &when(high_bits(Arg::A3), &EPERM, &NOTHING));

/// Requests of `asm-generic/ioctls.h`, the same on both architectures.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

const IOCTL: Node = when(
    equals(Arg::A1, TIOCSTI),
    &EPERM,
    &when(equals(Arg::A1, TIOCLINUX), &EPERM, &when(equals(Arg::A1, TIOCSETD), &EPERM, &ALLOW)),
);

/// Modes of `linux/personality.h`: the usual one, the one that debuggers use to see the same
/// addresses again, and the question which one is in force.
const PER_LINUX: u32 = 0;
const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
const PER_QUERY: u32 = 0xffff_ffff;

const PERSONALITY: Node = when(
    equals(Arg::A0, PER_LINUX),
    &ALLOW,
    &when(
        equals(Arg::A0, ADDR_NO_RANDOMIZE),
        &ALLOW,
        &when(equals(Arg::A0, PER_QUERY), &ALLOW, &EPERM),
    ),
);

/// `S_ISUID | S_ISGID`.
const SET_ID: u32 = 0o6000;

/// `O_CREAT | __O_TMPFILE`: only with one of these does the kernel look at the mode; without, the
/// register holds whatever the program left there. `O_TMPFILE` itself also contains
/// `O_DIRECTORY`, which is a different bit on each architecture and says nothing here.
const CREATES: u32 = 0x0040 | 0x0040_0000;

const SET_ID_FILES: &str = "A set-user-ID or set-group-ID file in a granted folder would let others \
                            on the host run it with the user's rights.";

const fn set_id_in(mode: Arg) -> Node {
    when(any_bits(mode, SET_ID), &EPERM, &ALLOW)
}

const SET_ID_IN_A1: Node = set_id_in(Arg::A1);
const SET_ID_IN_A2: Node = set_id_in(Arg::A2);
const SET_ID_IN_A3: Node = set_id_in(Arg::A3);

/// Every call that can give a file a mode. `mkdir` is not among them: the kernel drops these bits
/// from a new directory (`vfs_prepare_mode` in `fs/namei.c`).
pub(super) static FILES: &[Rule] = &[
    rule("chmod", SET_ID_IN_A1, SET_ID_FILES),
    rule("fchmod", SET_ID_IN_A1, SET_ID_FILES),
    rule("fchmodat", SET_ID_IN_A2, SET_ID_FILES),
    rule("fchmodat2", SET_ID_IN_A2, SET_ID_FILES),
    rule("mknod", SET_ID_IN_A1, SET_ID_FILES),
    rule("mknodat", SET_ID_IN_A2, SET_ID_FILES),
    rule("creat", SET_ID_IN_A1, SET_ID_FILES),
    rule("open", when(any_bits(Arg::A1, CREATES), &SET_ID_IN_A2, &ALLOW), SET_ID_FILES),
    rule("openat", when(any_bits(Arg::A2, CREATES), &SET_ID_IN_A3, &ALLOW), SET_ID_FILES),
];

/// Address families of `linux/socket.h`.
const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;

/// `SOCK_TYPE_MASK` of `linux/net.h`; the bits above it are `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
const SOCK_TYPE: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_SEQPACKET: u32 = 5;
const SOCK_PACKET: u32 = 10;

/// `NETLINK_ROUTE`: the addresses and routes of the session's own network.
const NETLINK_ROUTE: u32 = 0;

const fn socket_type(value: u32) -> Test {
    Test::MaskedEquals { arg: Arg::A1, mask: SOCK_TYPE, value }
}

/// A datagram carries its address with every message, past the `connect` that the door watches.
/// The types are named because `SOCK_RAW` silently becomes a datagram (`unix_create` in
/// `net/unix/af_unix.c`).
const UNIX_TYPES: Node =
    when(socket_type(SOCK_STREAM), &ALLOW, &when(socket_type(SOCK_SEQPACKET), &ALLOW, &EPERM));

/// Protocols of internet sockets: the default of the type, ICMP, TCP, UDP, `ICMPv6`, multipath TCP.
/// Any other (SCTP, DCCP, L2TP…) would make the host's kernel load the module for it.
const INET_PROTOCOLS: Node = when(
    equals(Arg::A2, 0),
    &ALLOW,
    &when(
        equals(Arg::A2, 6),
        &ALLOW,
        &when(
            equals(Arg::A2, 17),
            &ALLOW,
            &when(
                equals(Arg::A2, 1),
                &ALLOW,
                &when(
                    equals(Arg::A2, 58),
                    &ALLOW,
                    &when(equals(Arg::A2, 262), &ALLOW, &EPROTONOSUPPORT),
                ),
            ),
        ),
    ),
);

/// `SOCK_PACKET` turns a socket of this family into one of `AF_PACKET`, for programs of the
/// nineties (`__sock_create` in `net/socket.c`).
const INET_TYPES: Node = when(socket_type(SOCK_PACKET), &EAFNOSUPPORT, &INET_PROTOCOLS);

const NETLINK_PROTOCOLS: Node = when(equals(Arg::A2, NETLINK_ROUTE), &ALLOW, &EPROTONOSUPPORT);

const SOCKET: Node = when(
    equals(Arg::A0, AF_UNIX),
    &UNIX_TYPES,
    &when(
        equals(Arg::A0, AF_INET),
        &INET_TYPES,
        &when(
            equals(Arg::A0, AF_INET6),
            &INET_PROTOCOLS,
            &when(equals(Arg::A0, AF_NETLINK), &NETLINK_PROTOCOLS, &EAFNOSUPPORT),
        ),
    ),
);

const SOCKETPAIR: Node = when(equals(Arg::A0, AF_UNIX), &UNIX_TYPES, &EAFNOSUPPORT);

/// Which sockets exist.
pub(super) static SOCKETS: &[Rule] = &[
    rule(
        "socket",
        SOCKET,
        "Only internet sockets, route queries and connected local sockets exist in a session, \
         because every other kind would lead past its network rules.",
    ),
    rule(
        "socketpair",
        SOCKETPAIR,
        "Only connected local pairs exist in a session, because one end of a datagram pair can \
         send to any address.",
    ),
];

const INSPECTING: &str = "Looking into another program is only allowed in a session for debugging.";

/// Refused unless the session is for debugging.
pub(super) static INSPECTION: &[Rule] = &[
    deny("ptrace", INSPECTING),
    deny("process_vm_readv", INSPECTING),
    deny("process_vm_writev", INSPECTING),
    deny("kcmp", INSPECTING),
];

/// Namespace flags of `linux/sched.h`.
const NEW_NAMESPACE: u32 = 0x0002_0000 // CLONE_NEWNS
    | 0x0200_0000 // CLONE_NEWCGROUP
    | 0x0400_0000 // CLONE_NEWUTS
    | 0x0800_0000 // CLONE_NEWIPC
    | 0x1000_0000 // CLONE_NEWUSER
    | 0x2000_0000 // CLONE_NEWPID
    | 0x4000_0000; // CLONE_NEWNET

/// Flags that mean a namespace only to `unshare`: to `clone`, the first lies within the number of
/// the signal that is sent at the end, and the second is `CLONE_PARENT_SETTID`.
const UNSHARED_NAMESPACE: u32 = NEW_NAMESPACE
    | 0x0000_0080 // CLONE_NEWTIME
    | 0x0010_0000; // UNSHARE_EMPTY_MNTNS

const MOUNTS: &str = "What is mounted is fixed for a session of profile `strict`.";
const NAMESPACES: &str = "New namespaces open much of the kernel to attack, so they need profile \
                          `nested`.";
const CLONE3: &str = "The flags lie in memory that a filter cannot read, so use `clone`.";
const HOST_NAME: &str = "The host name is fixed for a session of profile `strict`.";

/// Refused in profile `strict`; the kernel decides in profile `nested`.
pub(super) static STRICT: &[Rule] = &[
    deny("mount", MOUNTS),
    deny("umount2", MOUNTS),
    deny("pivot_root", MOUNTS),
    deny("chroot", MOUNTS),
    deny("open_tree", MOUNTS),
    deny("open_tree_attr", MOUNTS),
    deny("move_mount", MOUNTS),
    deny("fsopen", MOUNTS),
    deny("fsconfig", MOUNTS),
    deny("fsmount", MOUNTS),
    deny("fspick", MOUNTS),
    deny("mount_setattr", MOUNTS),
    deny("setns", NAMESPACES),
    rule("unshare", when(any_bits(Arg::A0, UNSHARED_NAMESPACE), &EPERM, &ALLOW), NAMESPACES),
    rule("clone", when(any_bits(Arg::A0, NEW_NAMESPACE), &EPERM, &ALLOW), NAMESPACES),
    hide("clone3", CLONE3),
    deny("sethostname", HOST_NAME),
    deny("setdomainname", HOST_NAME),
];

/// The calls about which the holder of the listener is asked in every session.
pub(super) static CONNECTIONS: &[Rule] = &[rule(
    "connect",
    NOTIFY,
    "The address lies in memory that a filter cannot read, so the broker looks at it and connects.",
)];

/// `O_ACCMODE | O_CREAT | __O_TMPFILE | O_TRUNC`: an open with none of these changes nothing.
const CHANGES: u32 = 0x3 | CREATES | 0x0200;
/// `W_OK` of `unistd.h`.
const W_OK: u32 = 2;

const NAMES: &str = "The name lies in memory that a filter cannot read, so the broker looks at it; \
                     if it is in a granted folder, the broker makes the change and records it.";
const MASK: &str = "The broker makes new files with the mask of whoever asked for them.";
const SPACE: &str = "A granted folder is mounted read-only and is writable all the same.";

const FLAGS: &str = "The kernel would set a file's flags through a descriptor without the broker, so \
                     that the change would neither be recorded nor undone.";

/// `FS_IOC_SETFLAGS` of `linux/fs.h`, the same as 32-bit programs say it, and `FS_IOC_FSSETXATTR`.
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_32: u32 = 0x4004_6602;
const SET_FLAGS_AND_PROJECT: u32 = 0x401c_5820;

/// As on a file system without flags, which programs are used to.
const SETS_FLAGS: Node = when(
    equals(Arg::A1, SET_FLAGS),
    &EOPNOTSUPP,
    &when(
        equals(Arg::A1, SET_FLAGS_AND_PROJECT),
        &EOPNOTSUPP,
        &when(equals(Arg::A1, SET_FLAGS_32), &EOPNOTSUPP, &ALLOW),
    ),
);

const fn ask(call: &'static str) -> Rule {
    rule(call, NOTIFY, NAMES)
}

const OPEN_IN_A1: Node = when(any_bits(Arg::A1, CHANGES), &NOTIFY, &ALLOW);
const OPEN_IN_A2: Node = when(any_bits(Arg::A2, CHANGES), &NOTIFY, &ALLOW);
const WRITABLE_IN_A1: Node = when(any_bits(Arg::A1, W_OK), &NOTIFY, &ALLOW);
const WRITABLE_IN_A2: Node = when(any_bits(Arg::A2, W_OK), &NOTIFY, &ALLOW);
/// Without a name the call is about a descriptor. A name at an address whose low half is zero is
/// taken for none, and meets the read-only mount.
const NAMED_IN_A1: Node = when(equals(Arg::A1, 0), &ALLOW, &NOTIFY);

/// The calls that change files by name, and the one that changes more of an open file than its contents
/// and what an undo knows of.
pub(super) static WRITES: &[Rule] = &[
    rule("open", OPEN_IN_A1, NAMES),
    rule("openat", OPEN_IN_A2, NAMES),
    ask("creat"),
    ask("truncate"),
    ask("unlink"),
    ask("unlinkat"),
    ask("rmdir"),
    ask("rename"),
    ask("renameat"),
    ask("renameat2"),
    ask("link"),
    ask("linkat"),
    ask("symlink"),
    ask("symlinkat"),
    ask("mkdir"),
    ask("mkdirat"),
    ask("mknod"),
    ask("mknodat"),
    ask("chmod"),
    // Some programs open a file for reading in order to change its mode.
    ask("fchmod"),
    ask("fchmodat"),
    ask("fchmodat2"),
    ask("chown"),
    ask("lchown"),
    ask("fchownat"),
    ask("utime"),
    ask("utimes"),
    rule("futimesat", NAMED_IN_A1, NAMES),
    rule("utimensat", NAMED_IN_A1, NAMES),
    ask("setxattr"),
    ask("lsetxattr"),
    ask("removexattr"),
    ask("lremovexattr"),
    ask("bind"),
    rule("access", WRITABLE_IN_A1, NAMES),
    rule("faccessat", WRITABLE_IN_A2, NAMES),
    rule("faccessat2", WRITABLE_IN_A2, NAMES),
    rule("umask", NOTIFY, MASK),
    rule("statfs", NOTIFY, SPACE),
    rule("fstatfs", NOTIFY, SPACE),
    rule("ioctl", SETS_FLAGS, FLAGS),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Arch, Debugging, Door, Policy, Profile, SeccompData};
    use super::*;

    const CREAT: u64 = 0x40;
    const TMPFILE: u64 = 0x0040_0000;
    const CLOEXEC: u64 = 0x0008_0000;
    const HIGH: u64 = 1 << 32;

    fn policies() -> Vec<Policy> {
        let mut policies = vec![Policy::door(Door::Connections), Policy::door(Door::Writes)];
        for profile in Profile::ALL {
            policies.extend(Debugging::ALL.map(|debugging| Policy::guard(profile, debugging)));
        }
        policies
    }

    /// What a policy says about a call, on every architecture that has the call.
    #[track_caller]
    fn check(policy: &Policy, call: &str, args: &[u64], expected: Node) {
        let Node::Return(expected) = expected else { panic!("a verdict is expected") };
        let mut registers = [0xaaaa_aaaa_aaaa_aaaa; 6];
        registers[..args.len()].copy_from_slice(args);
        let mut checked = 0;
        for arch in Arch::ALL {
            let Some(number) = arch.number_of(call) else { continue };
            let data = SeccompData::new(arch, number, registers);
            assert_eq!(policy.decide(arch, &data), expected, "{call}{args:x?} on {arch:?}");
            checked += 1;
        }
        assert_ne!(checked, 0, "no architecture has `{call}`");
    }

    #[track_caller]
    fn strict(call: &str, args: &[u64], expected: Node) {
        check(&Policy::guard(Profile::Strict, Debugging::Forbidden), call, args, expected);
    }

    #[track_caller]
    fn nested(call: &str, args: &[u64], expected: Node) {
        check(&Policy::guard(Profile::Nested, Debugging::Forbidden), call, args, expected);
    }

    #[test]
    fn every_rule_names_a_call_that_exists() {
        for policy in policies() {
            for rule in policy.rules() {
                let exists = Arch::ALL.iter().any(|arch| rule.number(*arch).is_some());
                assert!(exists, "`{}` in {}", rule.call, policy.name());
            }
        }
    }

    #[test]
    fn no_call_has_two_rules() {
        for policy in policies() {
            let mut seen = BTreeSet::new();
            for rule in policy.rules() {
                assert!(seen.insert(rule.call), "`{}` in {}", rule.call, policy.name());
            }
        }
    }

    #[test]
    fn every_reason_is_one_sentence() {
        for policy in policies() {
            for rule in policy.rules() {
                let Rule { call, reason, .. } = rule;
                let body = reason.strip_suffix('.').unwrap_or_default();
                assert!(body.starts_with(char::is_uppercase), "{call}: {reason}");
                assert!(!body.contains(". ") && !body.contains("  "), "{call}: {reason}");
            }
        }
    }

    #[test]
    fn every_rule_changes_something() {
        for policy in policies() {
            for rule in policy.rules() {
                assert_ne!(rule.node, ALLOW, "{}", rule.call);
            }
        }
    }

    #[test]
    fn the_kernel_s_dangerous_parts_are_closed() {
        for profile in [strict, nested] {
            for call in ["keyctl", "bpf", "perf_event_open", "userfaultfd", "finit_module"] {
                profile(call, &[], EPERM);
            }
            for call in ["io_uring_setup", "openat2", "statmount", "listns", "file_setattr"] {
                profile(call, &[], ENOSYS);
            }
            for call in ["read", "getpid", "execve", "futex", "prctl", "seccomp", "mkdirat"] {
                profile(call, &[], ALLOW);
            }
        }
    }

    #[test]
    fn terminal_requests_are_refused_whatever_the_high_half_says() {
        for request in [0x5412, 0x541c, 0x5423] {
            for high in [0, HIGH, u64::from(u32::MAX) << 32] {
                strict("ioctl", &[0, high | request], EPERM);
                nested("ioctl", &[0, high | request], EPERM);
            }
        }
        // TCGETS, TIOCGWINSZ, FIONREAD.
        for request in [0x5401, 0x5413, 0x541b] {
            strict("ioctl", &[0, request], ALLOW);
        }
    }

    #[test]
    fn local_sockets_are_connected_ones() {
        for call in ["socket", "socketpair"] {
            for flags in [0, CLOEXEC, CLOEXEC | 0x800, HIGH] {
                strict(call, &[1, 1 | flags, 0], ALLOW);
                strict(call, &[1, 5 | flags, 0], ALLOW);
                // SOCK_DGRAM, SOCK_RAW, SOCK_RDM, and none at all.
                for kind in [2, 3, 4, 0] {
                    strict(call, &[1, kind | flags, 0], EPERM);
                    nested(call, &[HIGH | 1, kind | flags, 0], EPERM);
                }
            }
        }
    }

    #[test]
    fn other_address_families_do_not_exist() {
        for family in [2, 10] {
            strict("socket", &[family, 1, 0], ALLOW);
            strict("socket", &[family, 2 | CLOEXEC, 17], ALLOW);
            strict("socketpair", &[family, 1, 0], EAFNOSUPPORT);
        }
        // AF_UNSPEC, AF_AX25, AF_PACKET, AF_ALG, AF_VSOCK, AF_XDP, and -1.
        for family in [0, 3, 17, 38, 40, 44, u64::MAX] {
            strict("socket", &[family, 1, 0], EAFNOSUPPORT);
            nested("socket", &[HIGH | family, 1, 0], EAFNOSUPPORT);
            strict("socketpair", &[family, 1, 0], EAFNOSUPPORT);
        }
        // AF_PACKET by its oldest name.
        strict("socket", &[2, 10, 0], EAFNOSUPPORT);
        nested("socket", &[2, 0xa | CLOEXEC, 0x0300], EAFNOSUPPORT);
    }

    #[test]
    fn netlink_is_for_routes() {
        strict("socket", &[16, 3 | CLOEXEC, 0], ALLOW);
        strict("socket", &[16, 3, HIGH], ALLOW);
        // NETLINK_USERSOCK, NETLINK_AUDIT, NETLINK_NETFILTER, NETLINK_KOBJECT_UEVENT.
        for protocol in [2, 9, 12, 15] {
            strict("socket", &[16, 3, protocol], EPROTONOSUPPORT);
        }
    }

    #[test]
    fn no_call_makes_a_set_id_file() {
        for mode in [0o4755, 0o2755, 0o6000, HIGH | 0o4000] {
            for call in ["chmod", "fchmod", "mknod", "creat"] {
                strict(call, &[0, mode], EPERM);
                nested(call, &[0, mode], EPERM);
            }
            for call in ["fchmodat", "fchmodat2", "mknodat"] {
                strict(call, &[0, 0, mode], EPERM);
            }
            for flags in [CREAT, TMPFILE, CREAT | 1, HIGH | CREAT] {
                strict("open", &[0, flags, mode], EPERM);
                strict("openat", &[0, 0, flags, mode], EPERM);
            }
        }
        for mode in [0o755, 0o1777, HIGH << 4] {
            strict("chmod", &[0, mode], ALLOW);
            strict("fchmodat2", &[0, 0, mode], ALLOW);
            strict("openat", &[0, 0, CREAT, mode], ALLOW);
        }
    }

    #[test]
    fn a_mode_that_the_kernel_ignores_is_ignored() {
        for flags in [0, 2, CLOEXEC, 0x0001_0000, CREAT << 32] {
            strict("open", &[0, flags, 0o6777], ALLOW);
            strict("openat", &[0, 0, flags, u64::MAX], ALLOW);
        }
    }

    #[test]
    fn namespaces_need_profile_nested() {
        for flag in [25, 26, 27, 28, 29, 30, 17].map(|bit| 1_u64 << bit) {
            for call in ["clone", "unshare"] {
                for flags in [flag, flag | HIGH, flag | 0x11] {
                    strict(call, &[flags], EPERM);
                    nested(call, &[flags], ALLOW);
                }
            }
        }
        for call in ["mount", "umount2", "pivot_root", "chroot", "setns", "fsopen", "sethostname"] {
            strict(call, &[], EPERM);
            nested(call, &[], ALLOW);
        }
        strict("clone3", &[], ENOSYS);
        nested("clone3", &[], ALLOW);
    }

    #[test]
    fn threads_and_processes_need_no_profile() {
        // What glibc passes for a thread, for `fork`, and for `posix_spawn`.
        for flags in [0x003d_0f00, 0x0120_0011, 0x4111] {
            strict("clone", &[flags], ALLOW);
        }
        // CLONE_FS, CLONE_FILES, CLONE_SYSVSEM.
        for flags in [0x200, 0x400, 0x0004_0000] {
            strict("unshare", &[flags], ALLOW);
        }
        // CLONE_NEWTIME and UNSHARE_EMPTY_MNTNS are namespaces only here.
        for flags in [0x80, 0x0010_0000] {
            strict("unshare", &[flags], EPERM);
            nested("unshare", &[flags], ALLOW);
            strict("clone", &[flags], ALLOW);
        }
    }

    #[test]
    fn looking_into_programs_needs_a_session_for_debugging() {
        for call in ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp"] {
            for profile in Profile::ALL {
                check(&Policy::guard(profile, Debugging::Forbidden), call, &[], EPERM);
                check(&Policy::guard(profile, Debugging::Allowed), call, &[], ALLOW);
            }
        }
        for call in ["pidfd_getfd", "process_madvise"] {
            strict(call, &[], ALLOW);
        }
    }

    #[test]
    fn execution_modes_keep_their_protections() {
        for mode in [0, 0x0004_0000, 0xffff_ffff, u64::MAX] {
            strict("personality", &[mode], ALLOW);
        }
        // PER_LINUX32, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO.
        for mode in [8, 0x0040_0000, 0x0010_0000, 0x0044_0000] {
            strict("personality", &[mode], EPERM);
        }
    }

    #[test]
    fn the_limit_on_core_files_stays() {
        const ADDRESS: u64 = 0x7ffd_1234_5678;
        // An address whose low half is nothing.
        const ROUND: u64 = 0x0001_0000_0000;
        strict("setrlimit", &[4, ADDRESS], NOTHING);
        strict("setrlimit", &[1 << 32 | 4, ADDRESS], NOTHING);
        strict("setrlimit", &[7, ADDRESS], ALLOW);
        for (new, old, expected) in [
            (0, ADDRESS, ALLOW),
            (0, 0, ALLOW),
            (ADDRESS, 0, NOTHING),
            (ROUND, 0, NOTHING),
            (ADDRESS, ADDRESS, EPERM),
            (ADDRESS, ROUND, EPERM),
            (ROUND, ROUND, EPERM),
        ] {
            strict("prlimit64", &[0, 4, new, old], expected);
            nested("prlimit64", &[17, 4, new, old], expected);
            strict("prlimit64", &[0, 7, new, old], ALLOW);
        }
    }

    #[test]
    fn numbers_without_a_call_do_not_exist() {
        for arch in Arch::ALL {
            let decide =
                |policy: Policy, nr| policy.decide(arch, &SeccompData::new(arch, nr, [0; 6]));
            for nr in [337, 400, 423, 471, 1000, 0x3fff_ffff] {
                let guard = Policy::guard(Profile::Nested, Debugging::Allowed);
                assert_eq!(decide(guard, nr), MISSING, "{nr}");
                assert_eq!(decide(Policy::door(Door::Writes), nr), Verdict::Allow, "{nr}");
            }
        }
    }

    #[test]
    fn second_sets_of_numbers_are_closed() {
        for policy in policies() {
            for nr in [0x4000_0000, 0x4000_0000 + 250, 0x8000_0000, 0xffff_ffff] {
                let data = SeccompData::new(Arch::X86_64, nr, [0; 6]);
                assert_eq!(policy.decide(Arch::X86_64, &data), MISSING, "{nr:#x}");
            }
            // AUDIT_ARCH_I386.
            let data =
                SeccompData { arch: 0x4000_0003, ..SeccompData::new(Arch::X86_64, 0, [0; 6]) };
            assert_eq!(policy.decide(Arch::X86_64, &data), Verdict::KillProcess);
        }
    }

    #[test]
    fn flags_of_files_are_not_set_where_changes_are_recorded() {
        let (writes, small) = (Policy::door(Door::Writes), Policy::door(Door::Connections));
        for request in [0x4008_6602, 0x401c_5820, 0x4004_6602] {
            for high in [0, HIGH, u64::from(u32::MAX) << 32] {
                check(&writes, "ioctl", &[3, high | request], EOPNOTSUPP);
                check(&small, "ioctl", &[3, high | request], ALLOW);
                strict("ioctl", &[3, high | request], ALLOW);
            }
        }
        // FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS,
        // FS_IOC_FSGETXATTR, FS_IOC_FIEMAP, TCGETS.
        for request in [
            0x4004_9409,
            0x4020_940d,
            0xc018_9436,
            0x8008_6601,
            0x8004_6601,
            0x801c_581f,
            0xc020_660b,
            0x5401,
        ] {
            check(&writes, "ioctl", &[3, request], ALLOW);
        }
    }

    #[test]
    fn the_door_asks_about_connections_only() {
        check(&Policy::door(Door::Connections), "connect", &[], NOTIFY);
        for call in ["read", "bind", "sendto", "openat", "mount", "keyctl"] {
            check(&Policy::door(Door::Connections), call, &[], ALLOW);
        }
    }
}
