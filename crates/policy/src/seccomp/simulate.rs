//! Runs a filter as the kernel would, without the kernel.
//!
//! Knows exactly the instructions that [`super::assemble`] makes and refuses every other, so a
//! program that runs here has nothing in it that was never looked at.
//!
//! Deliberately absent: stopping a loop. Jumps only lead forward, so a program has at most as
//! many steps as instructions.

use super::assemble::{AND, JEQ, JGE, JSET, JUMP, LOAD, RETURN};
use super::{Instruction, Program, SeccompData};

/// Why a program could not be run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    /// The instruction is none of those that the assembler makes.
    #[error("instruction {at} has the unknown code {code:#06x}")]
    UnknownCode {
        /// Which instruction, counted from 0.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// The instruction loads something that is not an aligned word of [`SeccompData`].
    #[error("instruction {at} loads from offset {offset}, where there is no word")]
    BadLoad {
        /// Which instruction, counted from 0.
        at: usize,
        /// The offset in bytes.
        offset: u32,
    },
    /// The program goes on behind its last instruction.
    #[error("the program runs past its end, to instruction {at}")]
    PastTheEnd {
        /// The instruction that does not exist, counted from 0.
        at: usize,
    },
}

/// Runs a filter on one call and gives back what it returns to the kernel.
pub fn simulate(program: &Program, data: &SeccompData) -> Result<u32, SimulateError> {
    let mut accumulator = 0_u32;
    let mut at = 0_usize;
    loop {
        let Some(&Instruction { code, jt, jf, k }) = program.instructions().get(at) else {
            return Err(SimulateError::PastTheEnd { at });
        };
        let branch = |holds: bool| usize::from(if holds { jt } else { jf });
        let skipped = match code {
            LOAD => {
                accumulator = word(data, k).ok_or(SimulateError::BadLoad { at, offset: k })?;
                0
            }
            AND => {
                accumulator &= k;
                0
            }
            JUMP => usize::try_from(k).unwrap_or(usize::MAX),
            JEQ => branch(accumulator == k),
            JGE => branch(accumulator >= k),
            JSET => branch(accumulator & k != 0),
            RETURN => return Ok(k),
            _ => return Err(SimulateError::UnknownCode { at, code }),
        };
        at = at.saturating_add(1).saturating_add(skipped);
    }
}

/// The 32-bit word at an offset of `struct seccomp_data`. Both architectures keep the low half of
/// a 64-bit value first.
fn word(data: &SeccompData, offset: u32) -> Option<u32> {
    if !offset.is_multiple_of(4) {
        return None;
    }
    let [a0, a1, a2, a3, a4, a5] = data.args;
    let value = match offset / 8 {
        0 => u64::from(data.arch) << 32 | u64::from(data.nr),
        1 => data.instruction_pointer,
        2 => a0,
        3 => a1,
        4 => a2,
        5 => a3,
        6 => a4,
        7 => a5,
        _ => return None,
    };
    let half = if offset.is_multiple_of(8) { value & 0xffff_ffff } else { value >> 32 };
    u32::try_from(half).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Arch;
    use super::*;

    fn check(instructions: &[(u16, u8, u8, u32)], expected: Result<u32, SimulateError>) {
        let program = Program::made_of(instructions.iter().map(|&(code, jt, jf, k)| Instruction {
            code,
            jt,
            jf,
            k,
        }));
        let data = SeccompData {
            instruction_pointer: 0x7777_7777_6666_6666,
            ..SeccompData::new(Arch::X86_64, 41, [0xb_0000_000a, 1, 2, 3, 4, 0xd_0000_000c])
        };
        assert_eq!(simulate(&program, &data), expected);
    }

    /// Returns 1 if the word at the offset is the expected one, by means of the program itself.
    fn check_word(offset: u32, expected: u32) {
        let is_expected = (JEQ, 0, 1, expected);
        check(&[(LOAD, 0, 0, offset), is_expected, (RETURN, 0, 0, 1), (RETURN, 0, 0, 0)], Ok(1));
    }

    #[test]
    fn words_lie_where_the_kernel_puts_them() {
        check_word(0, 41);
        check_word(4, 0xc000_003e);
        check_word(8, 0x6666_6666);
        check_word(12, 0x7777_7777);
        check_word(16, 0xa);
        check_word(20, 0xb);
        check_word(56, 0xc);
        check_word(60, 0xd);
    }

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let returns = [(RETURN, 0, 0, 1), (RETURN, 0, 0, 2), (RETURN, 0, 0, 3)];
        let with = |first| [&[(LOAD, 0, 0, 0), first][..], &returns].concat();
        check(&with((JUMP, 9, 9, 2)), Ok(3));
        check(&with((JGE, 1, 2, 41)), Ok(2));
        check(&with((JGE, 1, 2, 42)), Ok(3));
        check(&with((JSET, 1, 2, 0x21)), Ok(2));
        check(&with((JSET, 1, 2, 0x16)), Ok(3));
        check(&with((AND, 0, 0, 0)), Ok(1));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused() {
        check(&[], Err(SimulateError::PastTheEnd { at: 0 }));
        check(&[(JUMP, 0, 0, u32::MAX)], Err(SimulateError::PastTheEnd { at: 0x1_0000_0000 }));
        check(&[(0x16, 0, 0, 0)], Err(SimulateError::UnknownCode { at: 0, code: 0x16 }));
        for offset in [1, 2, 64, u32::MAX] {
            check(&[(LOAD, 0, 0, offset)], Err(SimulateError::BadLoad { at: 0, offset }));
        }
    }
}
