//! What a rule can say: a verdict, or a test on an argument that chooses between two nodes.
//!
//! Every type here is plain `'static` data, so that a table of rules is a constant, can be
//! printed by `cowork explain`, and can be compared with the code made from it.
//!
//! Deliberately absent: following a pointer (a filter cannot), and comparing 64 bits (see
//! [`Test`]).

use super::{Arch, SeccompData};

/// What the kernel does with a system call.
#[must_use = "a verdict that is not enforced is a hole"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The call is carried out.
    Allow,
    /// The call is not carried out; the program sees this error.
    Errno(Errno),
    /// The call is not carried out, and the program is told that it was.
    Nothing,
    /// The call waits until the process that holds the listener has answered.
    Notify,
    /// Every thread of the program ends with `SIGSYS`.
    KillProcess,
}

/// `SECCOMP_RET_*` of `linux/seccomp.h`; the low 16 bits are data of the action.
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_NOTIFY: u32 = 0x7fc0_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;

impl Verdict {
    /// The value with which a filter tells the kernel this verdict.
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Allow => RET_ALLOW,
            Self::Errno(errno) => RET_ERRNO | errno.number(),
            Self::Nothing => RET_ERRNO,
            Self::Notify => RET_NOTIFY,
            Self::KillProcess => RET_KILL_PROCESS,
        }
    }

    /// The verdict behind a filter's return value, or `None` if no rule can say it.
    pub fn from_raw(raw: u32) -> Option<Self> {
        let plain = [Self::Allow, Self::Nothing, Self::Notify, Self::KillProcess];
        let refused = Errno::ALL.map(Self::Errno);
        plain.into_iter().chain(refused).find(|verdict| verdict.to_raw() == raw)
    }
}

/// An error with which a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Errno {
    /// `EPERM`: the call is known and refused.
    Perm,
    /// `EACCES`: the call is refused because of what it was asked to do.
    Access,
    /// `ENOSYS`: the kernel does not seem to have the call, so the caller uses its fallback.
    NoSys,
    /// `EOPNOTSUPP`: what is there does not seem to be able to do it.
    OpNotSupp,
    /// `EPROTONOSUPPORT`: the protocol does not seem to exist.
    ProtoNoSupport,
    /// `EAFNOSUPPORT`: the address family does not seem to exist.
    AfNoSupport,
}

impl Errno {
    /// Every error a rule can name.
    pub const ALL: [Self; 6] = [
        Self::Perm,
        Self::Access,
        Self::NoSys,
        Self::OpNotSupp,
        Self::ProtoNoSupport,
        Self::AfNoSupport,
    ];

    /// The kernel's number, the same on both architectures (`asm-generic/errno.h`).
    pub const fn number(self) -> u32 {
        match self {
            Self::Perm => 1,
            Self::Access => 13,
            Self::NoSys => 38,
            Self::OpNotSupp => 95,
            Self::ProtoNoSupport => 93,
            Self::AfNoSupport => 97,
        }
    }
}

/// One of the six arguments of a system call, counted from 0 as the manual pages' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say all there is to say")]
pub enum Arg {
    A0,
    A1,
    A2,
    A3,
    A4,
    A5,
}

impl Arg {
    /// Every argument, in order.
    pub const ALL: [Self; 6] = [Self::A0, Self::A1, Self::A2, Self::A3, Self::A4, Self::A5];
}

/// A question about 32 bits of one argument, which are its low ones unless it says otherwise.
///
/// The arguments tested here are `int`, `unsigned int` or flags that all lie in the low half, and
/// the kernel drops the high half of such an argument before it looks. A comparison of all 64
/// bits would therefore be answered "different" for `1 << 32 | TIOCSTI`, which the kernel then
/// carries out as `TIOCSTI`: that was CVE-2019-10063 in Flatpak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Test {
    /// At least one bit of `mask` is set.
    AnyBits {
        /// The argument that is looked at.
        arg: Arg,
        /// The bits of which one is enough.
        mask: u32,
    },
    /// At least one of the high 32 bits is set. Together with the low ones this tells an address
    /// from none.
    HighBits {
        /// The argument that is looked at.
        arg: Arg,
    },
    /// The low 32 bits are exactly `value`.
    Equals {
        /// The argument that is looked at.
        arg: Arg,
        /// What it must be.
        value: u32,
    },
    /// The bits of `mask` are exactly `value`; the other bits do not matter.
    MaskedEquals {
        /// The argument that is looked at.
        arg: Arg,
        /// The bits that matter.
        mask: u32,
        /// What they must be.
        value: u32,
    },
}

impl Test {
    /// Whether the test holds for a call.
    pub fn holds(self, data: &SeccompData) -> bool {
        match self {
            Self::AnyBits { arg, mask } => data.low(arg) & mask != 0,
            Self::HighBits { arg } => data.high(arg) != 0,
            Self::Equals { arg, value } => data.low(arg) == value,
            Self::MaskedEquals { arg, mask, value } => data.low(arg) & mask == value,
        }
    }
}

/// What a rule says about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The same verdict for every argument.
    Return(Verdict),
    /// The verdict depends on an argument.
    If {
        /// The question.
        test: Test,
        /// What is said when it holds.
        then: &'static Self,
        /// What is said when it does not.
        otherwise: &'static Self,
    },
}

impl Node {
    /// Answers the node's questions for one call.
    pub fn decide(&self, data: &SeccompData) -> Verdict {
        match self {
            Self::Return(verdict) => *verdict,
            Self::If { test, then, otherwise } => {
                if test.holds(data) {
                    then.decide(data)
                } else {
                    otherwise.decide(data)
                }
            }
        }
    }
}

/// What is said about one system call, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The call, by the kernel's name for it.
    pub call: &'static str,
    /// What happens to it.
    pub node: Node,
    /// One sentence for the user whose program met the rule.
    pub reason: &'static str,
}

impl Rule {
    /// The number of the rule's call, or `None` if the architecture does not have that call and
    /// the rule has nothing to say there.
    pub fn number(&self, arch: Arch) -> Option<u32> {
        arch.number_of(self.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_survives_the_way_to_the_kernel_and_back() {
        let refused = Errno::ALL.map(Verdict::Errno);
        for verdict in [Verdict::Allow, Verdict::Nothing, Verdict::Notify, Verdict::KillProcess]
            .iter()
            .chain(&refused)
        {
            assert_eq!(Verdict::from_raw(verdict.to_raw()), Some(*verdict));
        }
        // SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, and an error that no rule names.
        for raw in [0, 0x0003_0000, 0x0005_0002] {
            assert_eq!(Verdict::from_raw(raw), None, "{raw:#x}");
        }
    }

    #[test]
    fn a_test_ignores_the_high_half_of_an_argument() {
        let value = 0x5412;
        for high in [0, 1 << 32, u64::from(u32::MAX) << 32] {
            let data = SeccompData::new(Arch::X86_64, 16, [0, high | value, 0, 0, 0, 0]);
            assert!(Test::Equals { arg: Arg::A1, value: 0x5412 }.holds(&data));
            assert!(Test::MaskedEquals { arg: Arg::A1, mask: 0xff, value: 0x12 }.holds(&data));
            assert!(Test::AnyBits { arg: Arg::A1, mask: 2 }.holds(&data));
            assert!(!Test::AnyBits { arg: Arg::A1, mask: 1 }.holds(&data));
        }
    }
}
