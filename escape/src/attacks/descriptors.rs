//! What a command inherits: descriptors, standard streams and the folder it starts in.

use crate::attack::{Attack, Launch, layer};
use crate::raw::{call, flags, into, of, open_by, signed};
use crate::scene::{CANARY, Lost, Outcome, Scene, canary_in, read_canary};
use crate::stage::{Shot, Stage};
use rustix::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const CLASS: &str = "descriptors";
const CLOSED: &[(&str, &str)] = &[("EBADF", layer::HANDLES)];
const COPIED: &[(&str, &str)] =
    &[("a pipe", layer::STREAMS), ("ENOTSOCK", layer::STREAMS), ("errno 88", layer::STREAMS)];
const OWN_PIPE: &[(&str, &str)] = &[
    ("EACCES", "user id of its own"),
    ("something else", layer::STREAMS),
    ("nothing in it", layer::STREAMS),
    ("EAGAIN", layer::STREAMS),
    ("set", layer::STREAMS),
];
const GONE: &[(&str, &str)] = &[("ENOENT", layer::MOUNTS), ("EACCES", layer::LANDLOCK)];

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "inherited-10", open_at, CLOSED)
        .word("10")
        .launched(Launch::With(|stage, command| inherit(stage, command, 10))),
    Attack::new(CLASS, "inherited-77", open_at, CLOSED)
        .word("77")
        .launched(Launch::With(|stage, command| inherit(stage, command, 77))),
    Attack::new(CLASS, "any-further-descriptor", any_further, &[("only 0, 1, 2", layer::HANDLES)])
        .launched(Launch::With(|stage, command| inherit(stage, command, 10))),
    Attack::new(CLASS, "stdin-reopened-for-writing", write_stdin, COPIED)
        .launched(Launch::With(file_as_stdin))
        .judged(stdin_changed),
    Attack::new(CLASS, "stderr-reopened-for-reading", read_stderr, COPIED)
        .launched(Launch::With(file_as_stderr)),
    Attack::new(CLASS, "stdin-is-a-folder", folder_stdin, &[("exit 125", layer::STREAMS)])
        .launched(Launch::With(folder_as_stdin)),
    Attack::new(CLASS, "descriptor-through-stdin", receive_descriptor, COPIED)
        .launched(Launch::With(socket_as_stdin)),
    Attack::new(CLASS, "pipe-read-back", read_pipe, OWN_PIPE)
        .launched(Launch::With(pipe_as_stderr)),
    Attack::new(CLASS, "pipe-flags", set_pipe_flags, OWN_PIPE)
        .launched(Launch::With(pipe_as_stderr))
        .judged(pipe_flags_changed),
    Attack::new(CLASS, "cwd-upwards", |_| read_canary("./outside/canary"), GONE),
    Attack::new(CLASS, "proc-cwd-upwards", |_| read_canary("/proc/self/cwd/outside/canary"), GONE),
    Attack::new(CLASS, "folder-upwards", |_| read_canary("mnt/yard/../../outside/canary"), GONE),
];

/// Opens the canary's folder as a number that survives an exec.
fn inherit(stage: &Stage, command: &mut Command, number: i32) {
    let folder = stage.path("outside");
    let open = move || {
        let folder = File::open(&folder)?;
        if folder.as_raw_fd() == number {
            // It has that number already, and would be closed by the exec.
            call(libc::SYS_fcntl, &[signed(folder.into_raw_fd()), flags(libc::F_SETFD), 0])?;
            return Ok(());
        }
        call(libc::SYS_dup3, &[signed(folder.as_raw_fd()), signed(number), 0]).map(drop)
    };
    // SAFETY: opens a file and duplicates it; nothing else of the parent is touched.
    unsafe { command.pre_exec(open) };
}

fn open_at(scene: &Scene) -> Outcome {
    let folder: i32 = scene.word.parse()?;
    let registers = [signed(folder), of(c"canary"), flags(libc::O_RDONLY), 0];
    let mut file = File::from(open_by(libc::SYS_openat, &registers)?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    canary_in(&bytes)
}

fn any_further(_: &Scene) -> Outcome {
    let mut open = Vec::new();
    for number in 3..4096 {
        if call(libc::SYS_fcntl, &[number, flags(libc::F_GETFD)]).is_ok() {
            open.push(number);
        }
    }
    if open.is_empty() { Err(Lost::new("only 0, 1, 2")) } else { Ok(format!("open: {open:?}")) }
}

fn file_as_stdin(stage: &Stage, command: &mut Command) {
    if let Ok(file) = File::open(stage.path("outside/stdin")) {
        command.stdin(Stdio::from(file));
    }
}

fn file_as_stderr(stage: &Stage, command: &mut Command) {
    if let Ok(file) = OpenOptions::new().append(true).open(stage.path("outside/stdin")) {
        command.stderr(Stdio::from(file));
    }
}

fn folder_as_stdin(stage: &Stage, command: &mut Command) {
    if let Ok(folder) = File::open(stage.path("outside")) {
        command.stdin(Stdio::from(folder));
    }
}

/// A socket over which the host offers a descriptor of its own.
fn socket_as_stdin(stage: &Stage, command: &mut Command) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let Ok((near, far)) = std::os::unix::net::UnixStream::pair() else { return };
    let Ok(canary) = File::open(stage.path("outside/canary")) else { return };
    let handles = [canary.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&handles));
    let bytes = [std::io::IoSlice::new(b"x")];
    cowork_sys::ignore(rustix::net::sendmsg(&near, &bytes, &mut control, SendFlags::empty()));
    command.stdin(Stdio::from(OwnedFd::from(far)));
    if let Ok(mut kept) = stage.kept.lock() {
        kept.push(near.into());
    }
}

fn receive_descriptor(_: &Scene) -> Outcome {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [std::io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(rustix::stdio::stdin(), &mut bytes, &mut control, RecvFlags::empty())?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(handles) = message {
            let mut bytes = Vec::new();
            for handle in handles {
                File::from(handle).read_to_end(&mut bytes)?;
            }
            return canary_in(&bytes);
        }
    }
    Err(Lost::new("no descriptor came"))
}

/// A pipe of the caller's with words in it that others wrote, for whoever reads its other end.
fn pipe_as_stderr(stage: &Stage, command: &mut Command) {
    let Ok((read, mut write)) = std::io::pipe() else { return };
    cowork_sys::ignore(write.write_all(CANARY.as_bytes()));
    let owner = Some(rustix::process::Uid::from_raw(stage.person.uid()));
    cowork_sys::ignore(rustix::fs::fchown(&write, owner, None));
    if let (Ok(mut kept), Ok(copy)) = (stage.kept.lock(), write.try_clone()) {
        kept.extend([OwnedFd::from(read), OwnedFd::from(copy)]);
    }
    command.stderr(Stdio::from(write));
}

fn read_pipe(_: &Scene) -> Outcome {
    let path = "/proc/self/fd/2";
    let mut pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = [0; 64];
    let length = pipe.read(&mut bytes)?;
    canary_in(bytes.get(..length).unwrap_or_default())
}

/// The flags belong to the open end, not to whoever holds it.
fn set_pipe_flags(_: &Scene) -> Outcome {
    call(libc::SYS_fcntl, &[2, flags(libc::F_SETFL), flags(libc::O_NONBLOCK)])?;
    Ok("set".into())
}

fn pipe_flags_changed(stage: &Stage, _: &Shot) -> Option<String> {
    let kept = stage.kept.lock().ok()?;
    let now = rustix::fs::fcntl_getfl(kept.last()?).ok()?;
    now.contains(rustix::fs::OFlags::NONBLOCK).then(|| "the caller's pipe no longer waits".into())
}

/// Says what stands in the way if a stream is not the host's file.
fn expect_file(number: i32) -> Result<(), Lost> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    call(libc::SYS_fstat, &[signed(number), into(&mut stat)])?;
    // SAFETY: all zeroes is a `stat`, and the kernel has filled it.
    let stat = unsafe { stat.assume_init() };
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(()),
        libc::S_IFIFO => Err(Lost::new("a pipe is there instead")),
        _ => Err(Lost::new("something else is there")),
    }
}

fn write_stdin(scene: &Scene) -> Outcome {
    let written = OpenOptions::new()
        .append(true)
        .open("/proc/self/fd/0")
        .and_then(|mut file| file.write_all(scene.token().unwrap_or_default().as_bytes()));
    expect_file(0)?;
    written?;
    Ok("written".into())
}

fn stdin_changed(stage: &Stage, shot: &Shot) -> Option<String> {
    let now = std::fs::read_to_string(stage.path("outside/stdin")).ok()?;
    now.contains(&shot.token).then(|| "the file that was only read has changed".into())
}

fn read_stderr(_: &Scene) -> Outcome {
    expect_file(2)?;
    read_canary("/proc/self/fd/2")
}

fn folder_stdin(_: &Scene) -> Outcome {
    let registers = [0, of(c"canary"), flags(libc::O_RDONLY), 0];
    let mut file = File::from(open_by(libc::SYS_openat, &registers)?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    canary_in(&bytes)
}
