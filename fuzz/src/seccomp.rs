//! Filters: for every call, the code says what the table means.

use crate::Reached;
use cowork_api::plan::Door;
use cowork_policy::seccomp::{
    Arch, Debugging, Node, Policy, Profile, Program, SeccompData, Test, simulate,
};
use std::sync::OnceLock;

/// Every filter that is ever loaded, with the code for one architecture.
fn filters() -> &'static [(Policy, Arch, Program)] {
    static FILTERS: OnceLock<Vec<(Policy, Arch, Program)>> = OnceLock::new();
    FILTERS.get_or_init(|| {
        let guards = Profile::ALL.into_iter().flat_map(|profile| {
            Debugging::ALL.into_iter().map(move |debugging| Policy::guard(profile, debugging))
        });
        let policies: Vec<Policy> =
            guards.chain([Policy::door(Door::Connections), Policy::door(Door::Writes)]).collect();
        let both = policies.iter().flat_map(|policy| Arch::ALL.map(|arch| (policy, arch)));
        both.map(|(policy, arch)| {
            let program = policy.assemble(arch).expect("our own tables can be assembled");
            (policy.clone(), arch, program)
        })
        .collect()
    })
}

/// One call: number, architecture and arguments, as many as there are bytes for.
pub fn seccomp(input: &[u8]) -> Reached {
    let mut rest = input;
    let nr = number(&mut rest, 4);
    let arch = number(&mut rest, 4);
    let args = [(); 6].map(|()| number(&mut rest, 8));
    let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
    let (nr, arch) = (narrow(nr), narrow(arch));
    let data = SeccompData { nr, arch, instruction_pointer: number(&mut rest, 8), args };
    let mut reached = Reached::NOTHING;
    for (policy, arch, program) in filters() {
        let verdict = policy.decide(*arch, &data);
        let name = policy.name();
        assert_eq!(simulate(program, &data), Ok(verdict.to_raw()), "{name} {arch:?} {data:?}");
        reached = reached.and(Reached::by(&verdict));
    }
    reached
}

/// The number in the next bytes; what is missing is 0.
fn number(rest: &mut &[u8], size: usize) -> u64 {
    let (bytes, after) = rest.split_at(size.min(rest.len()));
    *rest = after;
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// For every rule a call that it is about, with each value that it looks for in every argument.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (policy, arch, _) in filters() {
        for rule in policy.rules() {
            let Some(nr) = rule.number(*arch) else { continue };
            let mut values = vec![0];
            look_for(&rule.node, &mut values);
            for value in values {
                let args = u64::from(value).to_le_bytes().repeat(6);
                let call = [nr.to_le_bytes(), arch.audit().to_le_bytes()].concat();
                seeds.push([call, args].concat());
            }
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds
}

fn look_for(node: &Node, values: &mut Vec<u32>) {
    if let Node::If { test, then, otherwise } = node {
        match *test {
            Test::AnyBits { mask, .. } => values.push(mask),
            Test::HighBits { .. } => {}
            Test::Equals { value, .. } | Test::MaskedEquals { value, .. } => values.push(value),
        }
        look_for(then, values);
        look_for(otherwise, values);
    }
}
