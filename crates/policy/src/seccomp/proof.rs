//! Shows that the assembled filters mean what the tables say.
//!
//! For every filter and architecture, [`cases`] lists every number of interest and every value
//! near one that a rule looks at, and the code must answer each as the table does. The last tests
//! damage the code and show that the comparison notices, so that it can fail.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::assemble::{AND, JEQ, JGE, JSET, JUMP, LOAD, RETURN};
use super::*;

/// `AUDIT_ARCH_*` of i386, `x86_64`, `aarch64` and arm, and one that nobody has.
const AUDIT_ARCHES: [u32; 5] = [0x4000_0003, 0xc000_003e, 0xc000_00b7, 0x4000_0028, 0];

fn policies() -> Vec<(String, Policy)> {
    let mut policies = vec![
        ("small door".to_owned(), Policy::door(Door::Connections)),
        ("door".to_owned(), Policy::door(Door::Writes)),
    ];
    for profile in Profile::ALL {
        for debugging in Debugging::ALL {
            let name = format!("guard, {profile}, debugging {debugging:?}");
            policies.push((name, Policy::guard(profile, debugging)));
        }
    }
    policies
}

fn numbers() -> impl Iterator<Item = u32> {
    (0..=1100).chain(X32..=X32 + 600).chain([
        X32 - 1,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_fffe,
        0xffff_ffff,
    ])
}

/// Values on both sides of what a test asks.
fn probes(test: Test, probes: &mut [BTreeSet<u32>; 6]) {
    let mut low = BTreeSet::from([0, u32::MAX]);
    let mut near = |value: u32| low.extend([value, value.wrapping_add(1), value.wrapping_sub(1)]);
    let arg = match test {
        Test::AnyBits { arg, mask } => {
            near(mask);
            near(!mask);
            low.extend((0..32).map(|bit| 1 << bit));
            arg
        }
        // Every combination is tried with high halves that are nothing and something.
        Test::HighBits { arg } => arg,
        Test::Equals { arg, value } => {
            near(value);
            low.extend([!value, value << 1, value >> 1]);
            arg
        }
        Test::MaskedEquals { arg, mask, value } => {
            near(value);
            near(value | !mask);
            low.extend((0..32).map(|bit| value ^ (1 << bit)));
            arg
        }
    };
    let index = Arg::ALL.iter().position(|other| *other == arg).unwrap();
    probes[index].extend(low);
}

fn collect(node: &Node, found: &mut [BTreeSet<u32>; 6]) {
    match node {
        Node::Return(_) => {}
        Node::If { test, then, otherwise } => {
            probes(*test, found);
            collect(then, found);
            collect(otherwise, found);
        }
    }
}

/// Every combination of the values that matter to a node, for the arguments that matter to it,
/// each with a clean and with a dirty high half.
fn combinations(node: &Node) -> Vec<[u64; 6]> {
    let mut found: [BTreeSet<u32>; 6] = Default::default();
    collect(node, &mut found);
    let mut vectors = vec![[0x5555_5555; 6]];
    for (index, values) in found.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
        let with = |value: &u32| {
            let value = u64::from(*value);
            vectors.iter().copied().map(move |mut vector: [u64; 6]| {
                vector[index] = value;
                vector
            })
        };
        vectors = values.iter().flat_map(with).collect();
    }
    let highs = [0, 1, 0xdead_beef].map(|high: u64| high << 32);
    let all = highs.iter().flat_map(|high| vectors.iter().map(move |v| v.map(|low| high | low)));
    let mut all: Vec<_> = all.collect();
    // Of an argument whose high half is asked for, each bit of it alone.
    for index in looked_at_high(node) {
        for vector in vectors.iter().filter(|vector| vector[index] == 0) {
            all.extend((32..64).map(|bit| {
                let mut vector = *vector;
                vector[index] = 1 << bit;
                vector
            }));
        }
    }
    all
}

/// The arguments whose high half matters to a node.
fn looked_at_high(node: &Node) -> BTreeSet<usize> {
    let Node::If { test, then, otherwise } = node else { return BTreeSet::new() };
    let mut found = &looked_at_high(then) | &looked_at_high(otherwise);
    if let Test::HighBits { arg } = test {
        found.extend(Arg::ALL.iter().position(|other| other == arg));
    }
    found
}

/// Some of the combinations, where there would be too many.
fn sample(node: &Node) -> Vec<[u64; 6]> {
    let mut found: [BTreeSet<u32>; 6] = Default::default();
    collect(node, &mut found);
    let values = found.map(|values| values.into_iter().collect::<Vec<_>>());
    // Strides without a common divisor, so that the arguments do not move in step.
    let strides = [1, 3, 7, 11, 13, 17];
    let pick = |turn: usize, index: usize| {
        let values: &Vec<u32> = &values[index];
        let low = values.get((turn * strides[index]) % values.len().max(1));
        low.map_or(u64::MAX, |low| u64::from(*low) | 0xabcd << 32)
    };
    (0..256).map(|turn| [0, 1, 2, 3, 4, 5].map(|index| pick(turn, index))).collect()
}

fn call(arch: u32, nr: u32, args: [u64; 6]) -> SeccompData {
    SeccompData { nr, arch, instruction_pointer: 0x0000_7f12_3456_789a, args }
}

/// Every call on which a filter is compared with its table, with what the table says.
fn cases(policy: &Policy, arch: Arch) -> Vec<(SeccompData, u32)> {
    let mut all: [BTreeSet<u32>; 6] = Default::default();
    for rule in policy.rules() {
        collect(&rule.node, &mut all);
    }
    // Every value that matters to some rule, in every argument at once.
    let uniform: BTreeSet<u32> = all.into_iter().flatten().collect();

    let mut calls = Vec::new();
    for nr in numbers() {
        for audit in AUDIT_ARCHES {
            calls.extend([0, 0x5412, u64::MAX].map(|value| call(audit, nr, [value; 6])));
        }
    }
    for rule in policy.rules() {
        let Some(nr) = rule.number(arch) else { continue };
        calls.extend(combinations(&rule.node).into_iter().map(|a| call(arch.audit(), nr, a)));
    }
    for nr in 0..=NEWEST_CALL + 1 {
        calls.extend(uniform.iter().map(|value| call(arch.audit(), nr, [u64::from(*value); 6])));
    }
    calls.into_iter().map(|data| (data, policy.decide(arch, &data).to_raw())).collect()
}

/// The first call for which a program does not answer as expected.
fn difference(program: &Program, cases: &[(SeccompData, u32)]) -> Option<SeccompData> {
    cases.iter().find(|(data, raw)| simulate(program, data) != Ok(*raw)).map(|(data, _)| *data)
}

#[test]
fn the_code_means_what_the_table_says() {
    for (name, policy) in policies() {
        for arch in Arch::ALL {
            let program = policy.assemble(arch).unwrap();
            let cases = cases(&policy, arch);
            assert!(cases.len() > 20_000, "{name} on {arch:?}: only {} cases", cases.len());
            assert_eq!(difference(&program, &cases), None, "{name} on {arch:?}");
        }
    }
}

/// The kernel's own rules (`bpf_check_classic` in `net/core/filter.c`, `seccomp_check_filter` in
/// `kernel/seccomp.c`). Gives back which instructions can be reached.
fn verify(program: &Program) -> Result<BTreeSet<usize>, String> {
    let instructions = program.instructions();
    let length = instructions.len();
    if !(1..=4096).contains(&length) {
        return Err(format!("{length} instructions"));
    }
    let mut reached = BTreeSet::from([0]);
    for (at, instruction) in instructions.iter().enumerate() {
        let Instruction { code, jt, jf, k } = *instruction;
        let next: Vec<usize> = match code {
            LOAD if !k.is_multiple_of(4) || k >= 64 => return Err(format!("{at} loads from {k}")),
            LOAD | AND => vec![at + 1],
            JUMP => vec![at + 1 + k as usize],
            JEQ | JGE | JSET => vec![at + 1 + usize::from(jt), at + 1 + usize::from(jf)],
            RETURN => vec![],
            _ => return Err(format!("{at} has code {code:#x}")),
        };
        if let Some(target) = next.iter().find(|target| **target >= length) {
            return Err(format!("{at} leads to {target}, past the end"));
        }
        if reached.contains(&at) {
            reached.extend(next);
        }
    }
    match instructions.last() {
        Some(Instruction { code: RETURN, .. }) => Ok(reached),
        last => Err(format!("ends with {last:?}")),
    }
}

/// The most instructions that can be executed for one call.
fn depth(program: &Program) -> usize {
    let instructions = program.instructions();
    let mut depths = vec![0_usize; instructions.len()];
    for (at, instruction) in instructions.iter().enumerate().rev() {
        let Instruction { code, jt, jf, k } = *instruction;
        let behind = |skipped: usize| depths[at + 1 + skipped];
        depths[at] = 1 + match code {
            RETURN => 0,
            JUMP => behind(k as usize),
            LOAD | AND => behind(0),
            _ => behind(jt.into()).max(behind(jf.into())),
        };
    }
    depths[0]
}

#[test]
fn the_kernel_takes_every_filter_and_can_use_all_of_it() {
    for (name, policy) in policies() {
        for arch in Arch::ALL {
            let program = policy.assemble(arch).unwrap();
            let all = (0..program.instructions().len()).collect();
            assert_eq!(verify(&program), Ok(all), "{name} on {arch:?}");
        }
    }
}

#[test]
fn filters_are_small_and_shallow() {
    for (name, policy) in policies() {
        for arch in Arch::ALL {
            let program = policy.assemble(arch).unwrap();
            let (length, depth) = (program.instructions().len(), depth(&program));
            println!("{name} on {arch:?}: {length} instructions, at most {depth} executed");
            let most = match name.as_str() {
                "small door" => (10, 6),
                "door" => (70, 14),
                _ => (250, 24),
            };
            assert!(length <= most.0 && depth <= most.1, "{name} on {arch:?}: {length}, {depth}");
        }
    }
}

#[test]
fn the_door_is_this_code() {
    let program = Policy::door(Door::Connections).assemble(Arch::X86_64).unwrap();
    let expected = [
        (LOAD, 0, 0, 4),
        (JEQ, 1, 0, 0xc000_003e),
        (RETURN, 0, 0, 0x8000_0000), // SECCOMP_RET_KILL_PROCESS
        (LOAD, 0, 0, 0),
        (JGE, 1, 0, 43),
        (JGE, 2, 3, 42),
        (JGE, 0, 2, 0x4000_0000),
        (RETURN, 0, 0, 0x0005_0026), // SECCOMP_RET_ERRNO, ENOSYS
        (RETURN, 0, 0, 0x7fc0_0000), // SECCOMP_RET_USER_NOTIF
        (RETURN, 0, 0, 0x7fff_0000), // SECCOMP_RET_ALLOW
    ];
    let actual: Vec<_> = program.instructions().iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect();
    assert_eq!(actual, expected);
}

/// The ways in which one instruction can be damaged.
fn damaged(instruction: Instruction) -> Vec<Instruction> {
    let Instruction { code, jt, jf, k } = instruction;
    match code {
        LOAD => {
            vec![Instruction { k: k ^ 4, ..instruction }, Instruction { k: k ^ 8, ..instruction }]
        }
        AND => {
            vec![Instruction { k: k ^ 1, ..instruction }, Instruction { k: k << 1, ..instruction }]
        }
        RETURN => vec![Instruction { k: k ^ 1, ..instruction }],
        JUMP => vec![Instruction { k: k + 1, ..instruction }],
        _ => {
            let mut damaged = vec![
                Instruction { jt: jf, jf: jt, ..instruction },
                Instruction { jt: jf, ..instruction },
                Instruction { jf: jt, ..instruction },
                Instruction { k: k ^ 1 << 31, ..instruction },
            ];
            // `JGE` is left out: beside a range of few numbers another comparison can mean the same.
            match code {
                JEQ => damaged.push(Instruction { code: JSET, ..instruction }),
                JSET => damaged.push(Instruction { code: JEQ, ..instruction }),
                _ => {}
            }
            // Each bit of a mask matters on its own.
            let bits = (0..32).map(|bit| 1 << bit).filter(|bit| code == JSET || k & bit != 0);
            damaged.extend(bits.map(|bit| Instruction { k: k ^ bit, ..instruction }));
            damaged
        }
    }
}

#[test]
fn every_damaged_instruction_is_noticed() {
    let guard = Policy::guard(Profile::Strict, Debugging::Forbidden);
    for policy in [guard, Policy::door(Door::Connections), Policy::door(Door::Writes)] {
        for arch in Arch::ALL {
            let cases = cases(&policy, arch);
            let program = policy.assemble(arch).unwrap();
            let instructions = program.instructions();
            for (at, instruction) in instructions.iter().enumerate() {
                for damage in damaged(*instruction) {
                    let mut instructions = instructions.to_vec();
                    instructions[at] = damage;
                    let damaged = Program::made_of(instructions);
                    assert_ne!(
                        difference(&damaged, &cases),
                        None,
                        "{} on {arch:?}: {instruction:?} as {damage:?} at {at}",
                        policy.name()
                    );
                }
            }
        }
    }
}

/// A table with a decision of its own for every call, each with so many tests.
fn wide(tests: u32) -> Policy {
    let calls = (0..=NEWEST_CALL).filter_map(|nr| Some((nr, Arch::X86_64.name_of(nr)?)));
    let rules: Vec<_> = calls
        .map(|(nr, call)| {
            let mut node = Node::Return(Verdict::Errno(Errno::Access));
            for test in 0..tests {
                let arg = if test % 2 == 0 { Arg::A1 } else { Arg::A4 };
                node = Node::If {
                    test: Test::Equals { arg, value: nr << 8 | test },
                    then: &Node::Return(Verdict::Notify),
                    otherwise: Box::leak(Box::new(node)),
                };
            }
            Rule { call, node, reason: "Size." }
        })
        .collect();
    Policy { name: "wide", unassigned: Verdict::Allow, tables: vec![Box::leak(rules.into())] }
}

#[test]
fn code_that_is_longer_than_a_jump_means_what_the_table_says() {
    let policy = wide(3);
    for arch in Arch::ALL {
        let program = policy.assemble(arch).unwrap();
        let instructions = program.instructions();
        assert!(instructions.len() > 2000, "{}", instructions.len());
        assert!(instructions.iter().any(|instruction| instruction.code == JUMP));
        verify(&program).unwrap();
        let verdicts = instructions.iter().filter(|instruction| instruction.code == RETURN).count();
        assert!(verdicts < instructions.len() / 50, "{verdicts} stand-ins: they are not shared");
        for rule in policy.rules() {
            let Some(nr) = rule.number(arch) else { continue };
            for args in sample(&rule.node) {
                let data = call(arch.audit(), nr, args);
                let expected = policy.decide(arch, &data).to_raw();
                assert_eq!(simulate(&program, &data), Ok(expected), "{}", rule.call);
            }
        }
    }
}

#[test]
fn code_that_the_kernel_would_not_take_is_refused() {
    let policy = wide(10);
    let Err(AssembleError::TooLong { policy: "wide", instructions }) =
        policy.assemble(Arch::X86_64)
    else {
        panic!("{} instructions", policy.assemble(Arch::X86_64).unwrap().instructions().len())
    };
    assert!(instructions > 4096, "{instructions}");
}

fn any_arch() -> impl Strategy<Value = Arch> {
    prop::sample::select(Arch::ALL.to_vec())
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let errnos = Errno::ALL.map(Verdict::Errno);
    let plain = [Verdict::Allow, Verdict::Nothing, Verdict::Notify, Verdict::KillProcess];
    prop::sample::select([&plain[..], &errnos].concat())
}

/// Few bits, so that random tests and random arguments meet.
fn any_word() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..8, (0_u32..32).prop_map(|bit| 1 << bit), any::<u32>()]
}

fn any_test() -> impl Strategy<Value = Test> {
    let arg = prop::sample::select(Arg::ALL.to_vec());
    (arg, any_word(), any_word(), 0..4).prop_map(|(arg, mask, value, kind)| match kind {
        0 => Test::AnyBits { arg, mask },
        1 => Test::Equals { arg, value },
        2 => Test::HighBits { arg },
        _ => Test::MaskedEquals { arg, mask, value },
    })
}

/// Leaks, because a rule is `'static` data; a test run can afford it.
fn any_node() -> impl Strategy<Value = Node> {
    any_verdict().prop_map(Node::Return).prop_recursive(5, 24, 2, |inner| {
        (any_test(), inner.clone(), inner).prop_map(|(test, then, otherwise)| Node::If {
            test,
            then: Box::leak(Box::new(then)),
            otherwise: Box::leak(Box::new(otherwise)),
        })
    })
}

/// Rules for some calls of both architectures, up to far more code than one jump can skip.
fn any_policy() -> impl Strategy<Value = Policy> {
    let calls: Vec<_> = (0..=NEWEST_CALL).filter_map(|nr| Arch::Aarch64.name_of(nr)).collect();
    let rules = (prop::sample::subsequence(calls, 0..120), prop::collection::vec(any_node(), 120));
    (any_verdict(), rules).prop_map(|(unassigned, (calls, nodes))| {
        let rules = calls.into_iter().zip(nodes);
        let rules: Vec<_> =
            rules.map(|(call, node)| Rule { call, node, reason: "Chance." }).collect();
        Policy { name: "random", unassigned, tables: vec![Box::leak(rules.into())] }
    })
}

proptest! {
    #[test]
    fn random_calls_are_answered_as_the_table_says(
        arch in any_arch(),
        nr in prop_oneof![0_u32..=1100, any::<u32>()],
        low in prop::array::uniform6(any_word()),
        high in prop::array::uniform6(any_word()),
    ) {
        let join = |index: usize| u64::from(high[index]) << 32 | u64::from(low[index]);
        let data = call(arch.audit(), nr, [0, 1, 2, 3, 4, 5].map(join));
        for (name, policy) in policies() {
            let raw = simulate(&policy.assemble(arch).unwrap(), &data);
            prop_assert_eq!(raw, Ok(policy.decide(arch, &data).to_raw()), "{}", name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_tables_are_assembled_faithfully(policy in any_policy(), arch in any_arch()) {
        let program = policy.assemble(arch).unwrap();
        verify(&program).unwrap();
        for rule in policy.rules() {
            let Some(nr) = rule.number(arch) else { continue };
            for args in sample(&rule.node) {
                let data = call(arch.audit(), nr, args);
                let expected = policy.decide(arch, &data).to_raw();
                prop_assert_eq!(simulate(&program, &data), Ok(expected), "{}", rule.call);
            }
        }
        for nr in numbers() {
            let data = call(arch.audit(), nr, [0; 6]);
            let expected = policy.decide(arch, &data).to_raw();
            prop_assert_eq!(simulate(&program, &data), Ok(expected), "{}", nr);
        }
    }
}
