//! Kills a test at work: before each of its system calls that leave something behind.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Starts a program, and kills it when it is about to make its call with a certain number, counted
/// from a first `sched_yield`. Says `killed`, or `over` if a second one comes before. Calls that
/// change nothing are not counted: between them everything stays as it is.
const TRACER: &str = "
import ctypes, os, platform, signal, struct, sys
TRACEME, CONT_TO_CALL, KILL_WITH_TRACER, SETOPTIONS, CALL_INFO = 0, 24, 1 << 20, 0x4200, 0x420e
TELL_CALLS, TELL_THREADS, ALL = 1, 1 << 3, 0x40000000
ENTRY = 1
MARK, OPEN, QUIET = {
    'x86_64': (24, 257, {0, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 17, 72, 79, 80, 81, 137, 138, 186,
        191, 192, 193, 194, 195, 196, 217, 228, 262, 267, 332, 437}),
    'aarch64': (124, 56, {8, 9, 10, 11, 12, 13, 17, 25, 43, 44, 50, 57, 61, 62, 63, 67, 78, 79, 80,
        113, 134, 135, 178, 214, 215, 222, 226, 291, 437}),
}[platform.machine()]
O_CREAT = 0o100
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
child = os.fork()
if child == 0:
    libc.ptrace(TRACEME, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execv(sys.argv[2], sys.argv[2:])
os.waitpid(child, 0)
libc.ptrace(SETOPTIONS, child, None, TELL_CALLS | TELL_THREADS | KILL_WITH_TRACER)
def call(thread):
    info = ctypes.create_string_buffer(88)
    libc.ptrace(CALL_INFO, thread, ctypes.c_void_p(88), ctypes.cast(info, ctypes.c_void_p))
    number, flags = struct.unpack_from('Q', info.raw, 24)[0], struct.unpack_from('Q', info.raw, 48)[0]
    quiet = number in QUIET or number == OPEN and not flags & O_CREAT
    return None if info.raw[0] != ENTRY or quiet else number
left, marks, thread, given = int(sys.argv[1]), 0, child, 0
while True:
    libc.ptrace(CONT_TO_CALL, thread, None, given)
    thread, status = os.waitpid(-1, ALL)
    given = 0
    if not os.WIFSTOPPED(status):
        if thread == child: sys.exit(f'it ended by itself: {status}')
        thread, status = os.waitpid(-1, ALL)
    how = os.WSTOPSIG(status)
    if how != signal.SIGTRAP | 0x80:
        given = 0 if how in (signal.SIGTRAP, signal.SIGSTOP) else how
        continue
    number = call(thread)
    if number == MARK:
        marks += 1
        if marks == 2: said = 'over'; break
    elif marks == 1 and number is not None:
        if left == 0: said = 'killed'; break
        left -= 1
os.kill(child, signal.SIGKILL)
while os.waitpid(-1, ALL)[0] != child: pass
print()
print(said)
";

/// Runs a test of this program that is ignored otherwise, with these variables, and kills it when it
/// is about to make its call with this number. It calls `sched_yield` before the first that counts and
/// after the last. Whether it was killed: without a call of that number it comes to its end.
#[must_use]
pub fn kill_before(test: &str, variables: &[(&str, &OsStr)], call: usize) -> bool {
    let output = Command::new("python3")
        .args(["-S", "-E", "-c", TRACER, &call.to_string()])
        .arg(std::env::current_exe().expect("a test is a program"))
        .args(["--ignored", "--exact", test, "--test-threads=1"])
        .envs(variables.iter().copied())
        .stderr(Stdio::inherit())
        .output()
        .expect("python3 is there");
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().last() {
        Some("killed") => true,
        Some("over") => false,
        _ => panic!("{test}, {variables:?}, call {call}: {said}"),
    }
}
