//! System calls that open more of the kernel than a session needs.
//!
//! Where success would harm the host, the arguments are such that the kernel refuses them for
//! another reason: then reaching that reason is the effect.

use crate::attack::{Attack, layer};
use crate::raw::{at, call, flags, in_fork, into, of, open_by, signed};
use crate::scene::{Lost, Outcome, Scene, YARD, canary_in};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io::Read;

const CLASS: &str = "calls";
const REFUSED: &[(&str, &str)] = &[
    ("EPERM", layer::FILTER),
    ("ENOSYS", layer::FILTER),
    ("SIGSYS", "filter of system calls, by a kill"),
];

const fn as_root(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, REFUSED).as_root()
}

const fn anybody(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, REFUSED)
}

/// Why some calls cannot be tried.
const NOT_BUILT: &str = "the kernel was built without it";

pub(crate) const TABLE: &[Attack] = &[
    anybody("call.io_uring", ring_reads_file),
    anybody("call.io_uring_register", |_| reaches(libc::SYS_io_uring_register, &[BAD, 0, 0, 0])),
    anybody("call.io_uring_enter", |_| reaches(libc::SYS_io_uring_enter, &[BAD, 0, 0, 0, 0, 0])),
    as_root("call.userfaultfd", |_| makes(libc::SYS_userfaultfd, &[0])),
    anybody("call.userfaultfd-user-mode", |_| makes(libc::SYS_userfaultfd, &[1])),
    as_root("call.bpf", make_map),
    anybody("call.perf_event_open", count_something),
    as_root("call.open_by_handle_at", open_by_number),
    anybody("call.name_to_handle_at", name_a_file),
    as_root("call.fanotify_init", |_| makes(libc::SYS_fanotify_init, &[0, 0])),
    as_root("call.kexec_load", |_| reaches(libc::SYS_kexec_load, &[0, 999, 0, 0xffff]))
        .on_some_hosts(NOT_BUILT),
    as_root("call.kexec_file_load", |_| {
        reaches(libc::SYS_kexec_file_load, &[BAD, BAD, 0, 0, 0xff00])
    })
    .on_some_hosts(NOT_BUILT),
    as_root("call.init_module", |_| reaches(libc::SYS_init_module, &[0, 0, of(c"")]))
        .on_some_hosts(NOT_BUILT),
    as_root("call.finit_module", |_| reaches(libc::SYS_finit_module, &[BAD, of(c""), 0]))
        .on_some_hosts(NOT_BUILT),
    as_root("call.delete_module", |_| {
        reaches(libc::SYS_delete_module, &[of(c"cowork_escape_none"), 0])
    })
    .on_some_hosts(NOT_BUILT),
    as_root("call.swapon", |_| reaches(libc::SYS_swapon, &[of(c"/no/such/file"), 0])),
    as_root("call.swapoff", |_| reaches(libc::SYS_swapoff, &[of(c"/no/such/file")])),
    as_root("call.reboot", |_| reaches(libc::SYS_reboot, &[1, 2, 3, 0])),
    as_root("call.iopl", |_| reaches(crate::raw::number("iopl"), &[4])).on_some_hosts(NOT_BUILT),
    as_root("call.ioperm", |_| reaches(crate::raw::number("ioperm"), &[usize::MAX, 1, 0]))
        .on_some_hosts(NOT_BUILT),
    as_root("call.acct", |_| reaches(libc::SYS_acct, &[of(c"/no/such/file")])),
    as_root("call.quotactl", |_| {
        reaches(libc::SYS_quotactl, &[0x8000_0700, of(c"/no/such/file"), 0, 0])
    }),
    as_root("call.quotactl_fd", |_| reaches(libc::SYS_quotactl_fd, &[BAD, 0, 0, 0])),
    as_root("call.syslog", |_| reaches(libc::SYS_syslog, &[10, 0, 0])),
    as_root("call.settimeofday", |_| {
        reaches(libc::SYS_settimeofday, &[at(&[i64::MIN, i64::MIN]), 0])
    }),
    as_root("call.clock_settime", |_| {
        reaches(libc::SYS_clock_settime, &[99, at(&[i64::MIN, i64::MIN])])
    }),
    anybody("call.adjtimex", |_| reaches(libc::SYS_adjtimex, &[into(&mut [0u64; 32])])),
    anybody("call.clock_adjtime", |_| {
        reaches(libc::SYS_clock_adjtime, &[99, into(&mut [0u64; 32])])
    }),
    as_root("call.vhangup", hang_up),
    anybody("call.modify_ldt", |_| {
        reaches(crate::raw::number("modify_ldt"), &[0, into(&mut [0u8; 16]), 16])
    }),
    anybody("call.move_pages", |_| reaches(libc::SYS_move_pages, &[0, 0, 0, 0, 0, 0])),
    anybody("call.migrate_pages", |_| reaches(libc::SYS_migrate_pages, &[0, 0, 0, 0])),
    anybody("call.vmsplice", lend_memory),
    anybody("call.kcmp", |_| {
        let own = std::process::id() as usize;
        reaches(libc::SYS_kcmp, &[own, own, 0, 0, 1])
    }),
    anybody("call.ptrace-own-child", trace_child),
    anybody("call.process_vm_writev", |_| {
        reaches(libc::SYS_process_vm_writev, &[std::process::id() as usize, 0, 0, 0, 0, 0])
    }),
    Attack::new(CLASS, "call.seccomp-listener", listen, &[("EBUSY", "the broker listens already")]),
    anybody("call.personality", change_personality),
    anybody("call.personality-high-half", change_personality_high),
    anybody("call.listmount", list_mounts),
    anybody("call.statmount", |_| reaches(SYS_STATMOUNT, &[0, 0, 0, 0])),
    anybody("call.listns", |_| reaches(470, &[0, 0, 0, 0]))
        .on_some_hosts("it came with Linux 6.19"),
    anybody("call.int-0x80", old_entry),
    anybody("call.x32", |_| makes(X32 + libc::SYS_socket, &[1, 2, 0])).on_some_hosts(NOT_BUILT),
    anybody("call.x32-own-numbers", |_| reaches(X32 + 521, &[0, 0, 0, 0])).on_some_hosts(NOT_BUILT),
];

const BAD: usize = u32::MAX as usize;
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
const X32: libc::c_long = 0x4000_0000;

/// Whether the kernel looks at the arguments at all.
fn reaches(number: libc::c_long, registers: &[usize]) -> Outcome {
    match call(number, registers) {
        Ok(_) => Ok("carried out".into()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => Err(error.into()),
            _ => Ok(format!("the kernel looked at the arguments: {}", Lost::from(error))),
        },
    }
}

fn makes(number: libc::c_long, registers: &[usize]) -> Outcome {
    open_by(number, registers)?;
    Ok("a descriptor was made".into())
}

/// Reads a file by a request in a ring, which no filter sees.
fn ring_reads_file(_: &Scene) -> Outcome {
    const IORING_OP_READ: u8 = 22;
    let file = std::fs::File::open("mnt/locked/canary")?;
    let mut bytes = [0u8; 64];
    submit(&[
        (0, &[IORING_OP_READ]),
        (4, &file.as_raw_fd().to_ne_bytes()),
        (16, &into(&mut bytes).to_ne_bytes()),
        (24, &64u32.to_ne_bytes()),
    ])?;
    canary_in(&bytes)
}

/// Carries out one request in a ring of its own: fields of the request, by their offsets.
pub(super) fn submit(fields: &[(usize, &[u8])]) -> Result<(), Lost> {
    /// Offsets in `struct io_uring_params`, and of the ring's parts.
    const PARAMETERS: usize = 120;
    const IORING_OFF_SQES: usize = 0x1000_0000;
    let mut parameters = [0u32; PARAMETERS / 4];
    let ring = open_by(libc::SYS_io_uring_setup, &[1, into(&mut parameters)])?;
    let [_, _, _, _, _, _, _, _, _, _, _head, tail, _, _, _, _, array, ..] = parameters;
    let map = |offset: usize| {
        let protection = flags(libc::PROT_READ | libc::PROT_WRITE);
        let ring = signed(ring.as_raw_fd());
        call(libc::SYS_mmap, &[0, 4096, protection, flags(libc::MAP_SHARED), ring, offset])
    };
    let queue = map(0)?;
    let entries = map(IORING_OFF_SQES)?;
    let mut entry = [0u8; 64];
    for (offset, value) in fields {
        for (place, byte) in entry.iter_mut().skip(*offset).zip(*value) {
            *place = *byte;
        }
    }
    let word = |address: usize| std::ptr::with_exposed_provenance_mut::<u32>(address);
    let target = std::ptr::with_exposed_provenance_mut::<u8>(entries);
    // SAFETY: the kernel mapped a page of entries there, and one is 64 bytes.
    unsafe { std::ptr::copy_nonoverlapping(entry.as_ptr(), target, entry.len()) };
    // SAFETY: the kernel says that the ring's index array begins at this offset of its page.
    unsafe { word(queue + array as usize).write_volatile(0) };
    // SAFETY: the kernel says that the ring's tail lies at this offset of its page.
    unsafe { word(queue + tail as usize).write_volatile(1) };
    call(libc::SYS_io_uring_enter, &[signed(ring.as_raw_fd()), 1, 1, 1, 0, 0])?;
    Ok(())
}

fn make_map(_: &Scene) -> Outcome {
    // `BPF_MAP_CREATE` of an array with keys and values of four bytes, and one entry.
    let attributes = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    makes(libc::SYS_bpf, &[0, at(&attributes), size_of_val(&attributes)])
}

fn count_something(_: &Scene) -> Outcome {
    // A software event: the time this process runs, in its own code only.
    let mut attributes = [0u64; 16];
    attributes[0] = 1 | (128 << 32);
    attributes[1] = 1;
    // `exclude_kernel` and `exclude_hv`.
    attributes[5] = 0x60;
    let registers = [at(&attributes), 0, signed(-1), signed(-1), 0];
    let counter = open_by(libc::SYS_perf_event_open, &registers)?;
    std::thread::sleep(std::time::Duration::from_millis(1));
    let mut value = [0; 8];
    rustix::io::read(&counter, &mut value)?;
    Ok(format!("counted {}", u64::from_ne_bytes(value)))
}

/// Opens the canary by its number in the file system that the granted folder is on.
fn open_by_number(scene: &Scene) -> Outcome {
    let digits = scene.get("handle")?.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16);
    let handle: Vec<u8> = digits.map(byte).collect::<Result<_, _>>()?;
    let folder = std::fs::File::open(YARD)?;
    let registers = [signed(folder.as_raw_fd()), at(handle.as_slice()), 0];
    let file: OwnedFd = open_by(libc::SYS_open_by_handle_at, &registers)?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes)?;
    canary_in(&bytes)
}

fn name_a_file(_: &Scene) -> Outcome {
    let mut handle = [0u32; 34];
    handle[0] = 128;
    let mut mount = 0i32;
    let here = signed(libc::AT_FDCWD);
    let registers = [here, of(c"mnt/yard"), into(&mut handle), into(&mut mount), 0];
    call(libc::SYS_name_to_handle_at, &registers)?;
    Ok("the folder's number is known".into())
}

/// In a session of processes without a terminal, so that nothing is hung up.
fn hang_up(_: &Scene) -> Outcome {
    in_fork(|| {
        call(libc::SYS_setsid, &[])?;
        reaches(libc::SYS_vhangup, &[])
    })
}

fn lend_memory(_: &Scene) -> Outcome {
    let (_read, write) = std::io::pipe()?;
    let text = "lent";
    let piece = [at(text), text.len()];
    call(libc::SYS_vmsplice, &[signed(write.as_raw_fd()), at(&piece), 1, 0])?;
    Ok("memory was lent to a pipe".into())
}

/// A filter of its own whose questions it answers itself.
fn listen(_: &Scene) -> Outcome {
    // One instruction: return `SECCOMP_RET_ALLOW`.
    let program = [6u64 | (0x7fff_0000 << 32)];
    let pointer = [1usize, at(&program)];
    call(libc::SYS_prctl, &[flags(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0])?;
    // `SECCOMP_SET_MODE_FILTER` with `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
    makes(libc::SYS_seccomp, &[1, 8, at(&pointer)])
}

fn trace_child(_: &Scene) -> Outcome {
    in_fork(|| reaches(libc::SYS_ptrace, &[0, 0, 0, 0]))
}

fn personality(wanted: usize) -> Outcome {
    const QUERY: usize = 0xffff_ffff;
    call(libc::SYS_personality, &[wanted])?;
    let now = call(libc::SYS_personality, &[QUERY])?;
    if now & 0x0040_0000 != 0 { Ok(format!("it is {now:#x}")) } else { Err(Lost::new("unchanged")) }
}

/// `READ_IMPLIES_EXEC`: memory that can be read can be executed.
fn change_personality(_: &Scene) -> Outcome {
    personality(0x0040_0000)
}

fn change_personality_high(_: &Scene) -> Outcome {
    personality(1 << 32 | 0x0040_0000)
}

fn list_mounts(_: &Scene) -> Outcome {
    // `struct mnt_id_req` for the root of the own namespace.
    let request = [24u64, u64::MAX, 0];
    let mut mounts = [0u64; 64];
    let registers = [at(&request), into(&mut mounts), mounts.len(), 0];
    let count = call(SYS_LISTMOUNT, &registers)?;
    Ok(format!("{count} mounts"))
}

/// The entry of 32-bit programs, with their numbers: `getpid` is 20.
#[cfg(target_arch = "x86_64")]
fn old_entry(_: &Scene) -> Outcome {
    let mut result: u64 = 20;
    // SAFETY: `int 0x80` changes nothing but the result register and the eighth to eleventh, and
    // `getpid` has no arguments.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if result == u64::from(std::process::id()) {
        Ok("it told the process id".into())
    } else {
        Err(Lost::new(format!("it told {result:#x}")))
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn old_entry(_: &Scene) -> Outcome {
    Err(Lost::new("ENOSYS"))
}
