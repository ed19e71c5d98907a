//! The filters of system calls, compiled once per keeper for each kind of session.

use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::{Debugging, Door, Profile};
use cowork_policy::seccomp::{self, Arch, Policy};

/// Both filters as raw instructions: the guard, then the door.
type Pair = (Vec<u8>, Vec<u8>);

/// The filters compiled so far.
#[derive(Debug, Default)]
pub(crate) struct Filters(Vec<((Profile, Debugging, Door), Pair)>);

impl Filters {
    /// The filters of a session with this profile.
    pub(crate) fn compiled(
        &mut self,
        profile: Profile,
        debugging: Debugging,
        door: Door,
    ) -> Result<Pair, Failure> {
        let kind = (profile, debugging, door);
        let known = self.0.iter().find(|(known, _)| *known == kind);
        if let Some((_, pair)) = known {
            return Ok(pair.clone());
        }
        let guard = Policy::guard(
            match profile {
                Profile::Strict => seccomp::Profile::Strict,
                Profile::Nested => seccomp::Profile::Nested,
            },
            match debugging {
                Debugging::Forbidden => seccomp::Debugging::Forbidden,
                Debugging::Allowed => seccomp::Debugging::Allowed,
            },
        );
        let pair = (compile(&guard)?, compile(&Policy::door(door))?);
        self.0.push((kind, pair.clone()));
        Ok(pair)
    }
}

fn compile(policy: &Policy) -> Result<Vec<u8>, Failure> {
    let program = Arch::native().and_then(|arch| policy.assemble(arch).ok());
    let program = program.ok_or_else(|| Failure {
        code: FailureCode::HostUnable,
        sentence: "there is no filter of system calls for this kind of processor".into(),
        errno: 0,
        hint: String::new(),
    })?;
    let mut bytes = Vec::new();
    for instruction in program.instructions() {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    Ok(bytes)
}
