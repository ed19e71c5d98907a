//! Turns the rules of a [`Policy`] into classic BPF.
//!
//! The code is a search tree over ranges of numbers that share a decision: some seven comparisons
//! for any number, however many rules there are. The leaves are verdicts or argument tests, and
//! equal leaves are one piece of code.
//!
//! The code is written from its end to its beginning, because classic BPF only jumps forward: what
//! a jump leads to is then always written already, and its distance known. A conditional jump
//! reaches 255 instructions; where that is not enough, a stand-in for the target is put in reach.
//!
//! Deliberately absent: every instruction that is not needed, see the module above for why.

use std::collections::BTreeMap;

use super::decision::{Node, Test};
use super::{Arch, Arg, Policy, Verdict, calls, table};

/// `BPF_LD | BPF_W | BPF_ABS`: the accumulator becomes a word of `struct seccomp_data`.
pub(super) const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`.
pub(super) const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JA`: the distance is in `k`.
pub(super) const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
pub(super) const JEQ: u16 = 0x15;
/// `BPF_JMP | BPF_JGE | BPF_K`, unsigned.
pub(super) const JGE: u16 = 0x35;
/// `BPF_JMP | BPF_JSET | BPF_K`: jumps if the accumulator and `k` share a bit.
pub(super) const JSET: u16 = 0x45;
/// `BPF_RET | BPF_K`.
pub(super) const RETURN: u16 = 0x06;

/// Where `struct seccomp_data` keeps the number.
const OFFSET_NR: u32 = 0;
/// Where it keeps the architecture.
const OFFSET_ARCH: u32 = 4;

/// Most instructions the kernel takes in one filter (`BPF_MAXINSNS` in `linux/bpf_common.h`).
const MAX_INSTRUCTIONS: usize = 4096;

/// One instruction of classic BPF; mirrors `struct sock_filter` of `linux/filter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What is done.
    pub code: u16,
    /// How many instructions are skipped if a comparison holds.
    pub jt: u8,
    /// How many instructions are skipped if it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// A filter, ready for `seccomp(2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// The instructions, in the order in which the kernel takes them.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// Makes a program that no assembler would, to see what happens to it.
    #[cfg(test)]
    pub(super) fn made_of(instructions: impl IntoIterator<Item = Instruction>) -> Self {
        Self(instructions.into_iter().collect())
    }
}

/// Why rules could not be turned into a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// The kernel does not take a filter of this size.
    #[error("filter `{policy}` has {instructions} instructions, the kernel takes 4096")]
    TooLong {
        /// The name of the filter.
        policy: &'static str,
        /// How many instructions it has.
        instructions: usize,
    },
    /// A jump does not reach its target although the target has a stand-in.
    #[error("filter `{policy}` has a jump over {distance} instructions")]
    JumpTooFar {
        /// The name of the filter.
        policy: &'static str,
        /// How many instructions it would skip.
        distance: usize,
    },
}

/// Turns the rules of a policy into a filter for one architecture.
pub(super) fn assemble(policy: &Policy, arch: Arch) -> Result<Program, AssembleError> {
    let mut writer = Writer::new(policy.name());
    let ranges = Ranges::of(policy, arch);
    let lowest = writer.decision(ranges.lowest, Accumulator::Unknown)?;
    let mut leaves = Vec::new();
    for (first, node) in ranges.rest {
        leaves.push((first, writer.decision(node, Accumulator::Unknown)?));
    }
    let tree = writer.tree(lowest, &leaves)?;
    let native = writer.falling_into(tree, Instruction { code: LOAD, jt: 0, jf: 0, k: OFFSET_NR });
    let foreign = writer.decision(Node::Return(table::FOREIGN), Accumulator::Unknown)?;
    let checked = writer.branch(JEQ, arch.audit(), native, foreign)?;
    writer.falling_into(checked, Instruction { code: LOAD, jt: 0, jf: 0, k: OFFSET_ARCH });
    writer.finish()
}

/// Every number with its decision, neighbours with the same decision taken together.
#[derive(Debug)]
struct Ranges {
    /// The decision for number 0 and all up to the first of `rest`.
    lowest: Node,
    /// From which number on another decision holds, in ascending order.
    rest: Vec<(u32, Node)>,
}

impl Ranges {
    fn of(policy: &Policy, arch: Arch) -> Self {
        let unassigned = Node::Return(policy.unassigned);
        let mut starts: BTreeMap<u32, Node> =
            calls::numbers(arch).map(|number| (number, Node::Return(Verdict::Allow))).collect();
        for rule in policy.rules() {
            if let Some(number) = rule.number(arch) {
                starts.insert(number, rule.node);
            }
        }
        for number in calls::numbers(arch) {
            starts.entry(number.saturating_add(1)).or_insert(unassigned);
        }
        if let Some(first) = arch.foreign_from() {
            starts.insert(first, Node::Return(table::MISSING));
        }

        let lowest = starts.remove(&0).unwrap_or(unassigned);
        let mut rest = Vec::new();
        let mut before = lowest;
        for (first, node) in starts {
            if node != before {
                rest.push((first, node));
                before = node;
            }
        }
        Self { lowest, rest }
    }
}

/// An instruction that is written already, by its distance from the end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label(usize);

/// What the accumulator is known to hold when control reaches a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Accumulator {
    /// Something that no test wants.
    Unknown,
    /// The low half of an argument.
    Low(Arg),
    /// The high half of an argument.
    High(Arg),
    /// The low half of an argument, but only these bits.
    Masked(Arg, u32),
}

impl Accumulator {
    /// What a test wants to find.
    const fn wanted_by(test: Test) -> Self {
        match test {
            Test::AnyBits { arg, .. } | Test::Equals { arg, .. } => Self::Low(arg),
            Test::HighBits { arg } => Self::High(arg),
            Test::MaskedEquals { arg, mask, .. } => Self::Masked(arg, mask),
        }
    }
}

/// Writes a program from its end to its beginning.
#[derive(Debug)]
struct Writer {
    policy: &'static str,
    /// The last instruction of the program comes first.
    reversed: Vec<Instruction>,
    /// The code of every decision so far, so that an equal one is not written again.
    decisions: BTreeMap<(Node, Accumulator), Label>,
    /// For targets that were out of reach: the place that was last put in reach instead.
    stand_ins: BTreeMap<Label, Label>,
}

impl Writer {
    const fn new(policy: &'static str) -> Self {
        Self {
            policy,
            reversed: Vec::new(),
            decisions: BTreeMap::new(),
            stand_ins: BTreeMap::new(),
        }
    }

    fn finish(self) -> Result<Program, AssembleError> {
        let instructions = self.reversed.len();
        if instructions > MAX_INSTRUCTIONS {
            return Err(AssembleError::TooLong { policy: self.policy, instructions });
        }
        Ok(Program(self.reversed.into_iter().rev().collect()))
    }

    /// The search tree over leaves in ascending order; `lowest` is left of them all.
    fn tree(&mut self, lowest: Label, leaves: &[(u32, Label)]) -> Result<Label, AssembleError> {
        let (below, from) = leaves.split_at(leaves.len() / 2);
        let Some(((first, leaf), above)) = from.split_first() else { return Ok(lowest) };
        // The half that is written last is entered without a jump.
        let yes = self.tree(*leaf, above)?;
        let no = self.tree(lowest, below)?;
        self.branch(JGE, *first, yes, no)
    }

    /// The code of a decision, for a place where the accumulator holds `now`.
    fn decision(&mut self, node: Node, now: Accumulator) -> Result<Label, AssembleError> {
        // A verdict needs nothing from the accumulator, so one piece of code serves every place.
        let now = if let Node::Return(_) = node { Accumulator::Unknown } else { now };
        if let Some(&written) = self.decisions.get(&(node, now)) {
            return Ok(written);
        }
        let label = match node {
            Node::Return(verdict) => {
                self.push(Instruction { code: RETURN, jt: 0, jf: 0, k: verdict.to_raw() })
            }
            Node::If { test, then, otherwise } => {
                let wanted = Accumulator::wanted_by(test);
                let yes = self.decision(*then, wanted)?;
                let no = self.decision(*otherwise, wanted)?;
                let comparison = match test {
                    Test::AnyBits { mask, .. } => self.branch(JSET, mask, yes, no)?,
                    Test::HighBits { .. } => self.branch(JSET, u32::MAX, yes, no)?,
                    Test::Equals { value, .. } | Test::MaskedEquals { value, .. } => {
                        self.branch(JEQ, value, yes, no)?
                    }
                };
                self.fetch(wanted, now, comparison)
            }
        };
        self.decisions.insert((node, now), label);
        Ok(label)
    }

    /// Brings what is wanted into the accumulator and goes on at `next`.
    fn fetch(&mut self, wanted: Accumulator, now: Accumulator, next: Label) -> Label {
        if wanted == now {
            return next;
        }
        match wanted {
            Accumulator::Unknown => next,
            Accumulator::Low(arg) => {
                let k = offset_of(arg);
                self.falling_into(next, Instruction { code: LOAD, jt: 0, jf: 0, k })
            }
            Accumulator::High(arg) => {
                let k = offset_of(arg) + HALF;
                self.falling_into(next, Instruction { code: LOAD, jt: 0, jf: 0, k })
            }
            Accumulator::Masked(arg, mask) => {
                let masking = Instruction { code: AND, jt: 0, jf: 0, k: mask };
                let next = self.falling_into(next, masking);
                self.fetch(Accumulator::Low(arg), now, next)
            }
        }
    }

    /// A comparison of the accumulator with `k`, and where each answer leads.
    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Result<Label, AssembleError> {
        if yes == no {
            return Ok(yes);
        }
        // A stand-in for `yes` would come between the branch and `no`.
        let no = self.within_reach(no, 1);
        let yes = self.within_reach(yes, 0);
        let (jt, jf) = (self.short_distance(yes)?, self.short_distance(no)?);
        Ok(self.push(Instruction { code, jt, jf, k }))
    }

    /// The target itself, or a stand-in that the next instruction but `later` can jump to.
    fn within_reach(&mut self, target: Label, later: usize) -> Label {
        let near = |from: &Self, to| u8::try_from(from.distance(to) + later).is_ok();
        if near(self, target) {
            return target;
        }
        if let Some(&stand_in) = self.stand_ins.get(&target)
            && near(self, stand_in)
        {
            return stand_in;
        }
        let instruction = match self.reversed.get(target.0) {
            // A second copy of a verdict costs no more than a jump to the first, and saves it.
            Some(verdict) if verdict.code == RETURN => *verdict,
            _ => self.jump(target),
        };
        let stand_in = self.push(instruction);
        self.stand_ins.insert(target, stand_in);
        stand_in
    }

    /// An instruction that does not jump, in front of the one it leads to.
    fn falling_into(&mut self, next: Label, instruction: Instruction) -> Label {
        if self.distance(next) > 0 {
            self.push(self.jump(next));
        }
        self.push(instruction)
    }

    fn jump(&self, target: Label) -> Instruction {
        // A distance that does not fit belongs to a program that `finish` refuses anyway.
        let k = u32::try_from(self.distance(target)).unwrap_or(u32::MAX);
        Instruction { code: JUMP, jt: 0, jf: 0, k }
    }

    /// How many instructions the next one would skip to get there.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len().saturating_sub(target.0).saturating_sub(1)
    }

    fn short_distance(&self, target: Label) -> Result<u8, AssembleError> {
        let distance = self.distance(target);
        u8::try_from(distance)
            .map_err(|_too_far| AssembleError::JumpTooFar { policy: self.policy, distance })
    }

    fn push(&mut self, instruction: Instruction) -> Label {
        self.reversed.push(instruction);
        Label(self.reversed.len().saturating_sub(1))
    }
}

/// How far behind its low half the high half of an argument is.
const HALF: u32 = 4;

/// Where `struct seccomp_data` keeps the low half of an argument: both architectures are little
/// endian, and each argument has eight bytes after number, architecture and instruction pointer.
const fn offset_of(arg: Arg) -> u32 {
    match arg {
        Arg::A0 => 16,
        Arg::A1 => 24,
        Arg::A2 => 32,
        Arg::A3 => 40,
        Arg::A4 => 48,
        Arg::A5 => 56,
    }
}
