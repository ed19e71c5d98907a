//! Changes of files in a folder that is granted read-write: made by the broker, seen by both sides.

use crate::bench::{Bench, Room, as_everybody, grant, grant_of};
use cowork_api::plan::Access;
use cowork_sandbox::client::Keeper;
use cowork_testbed::Folder;

/// A session with a folder `project` that it may change.
pub(crate) fn workshop(bench: &Bench) -> (Keeper, Room, Folder) {
    let (mut keeper, room) = bench.room();
    let folder = bench.folder("project");
    grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Write)).expect("granted");
    (keeper, room, folder)
}

/// What every program of these tests begins with: the folder is the working directory, and `says`
/// tells what a call returned or which errno it left.
pub(crate) const PRELUDE: &str = "
import ctypes, errno, fcntl, os, socket, stat, struct, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def name(number): return errno.errorcode.get(number, str(number))
def says(call, *arguments, **named):
    try:
        result = call(*arguments, **named)
        return 'ok' if result is None else result
    except OSError as error:
        return name(error.errno)
def raw(call, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, call)(*arguments)
    return name(ctypes.get_errno()) if result < 0 else result
# Python's own follows no link here.
def link(old, new): return raw('linkat', -100, old.encode(), -100, new.encode(), 0x400)
def put(path, text='', flags=0, mode=0o666):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, mode)
    os.write(fd, text.encode())
    os.close(fd)
def get(path): return open(path).read()
def check(what, found, expected):
    if found != expected: print(what, 'is', found, 'instead of', expected)
";

/// Runs a program in the folder; it says what is not as it should be.
#[track_caller]
pub(crate) fn check(room: &mut Room, program: &str) {
    let folder = room.granted("project");
    check_in(room, program, &[&folder]);
}

/// The same with these arguments, of which the first is the working directory.
#[track_caller]
pub(crate) fn check_in(room: &mut Room, program: &str, arguments: &[&str]) {
    let program = format!("{PRELUDE}\n{program}\nprint('end')");
    let mut running = room.python(&program, arguments);
    running.input = None;
    assert_eq!(running.rest(), "end\n");
}

#[test]
fn files_are_made_changed_and_removed_by_any_kind_of_path() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        folder.write("old", "before\n");
        check(
            &mut room,
            "
here = os.getcwd()
put('relative', 'one')
put(here + '/absolute', 'two')
os.mkdir('x')
os.makedirs('x/y/z')
dirfd = os.open('x/y', os.O_RDONLY | os.O_DIRECTORY)
fd = os.open('z/deep', os.O_RDWR | os.O_CREAT, dir_fd=dirfd)
os.write(fd, b'three')
check('pread', os.pread(fd, 5, 0), b'three')
os.close(fd)
put('x/../x/./y//z/deep', '!', os.O_APPEND)
check('deep', get('x/y/z/deep'), 'three!')
check('old', get('old'), 'before\\n')
put('old', 'after', os.O_TRUNC)
check('old', get('old'), 'after')
os.truncate('old', 2)
check('old', get('old'), 'af')
os.rename('relative', 'x/renamed')
os.rename('renamed', 'again', src_dir_fd=os.open('x', os.O_RDONLY), dst_dir_fd=dirfd)
check('again', get('x/y/again'), 'one')
os.link('absolute', 'second')
check('links', os.stat('second').st_nlink, 2)
os.symlink('second', 'soft')
check('soft', os.readlink('soft'), 'second')
os.unlink('absolute')
os.unlink('soft')
os.unlink('z/deep', dir_fd=dirfd)
os.rmdir(here + '/x/y/z')
os.mkfifo('pipe')
check('pipe', stat.S_ISFIFO(os.stat('pipe').st_mode), True)
check('names', sorted(os.listdir('.')), ['old', 'pipe', 'second', 'x'])
",
        );
        assert_eq!(folder.read("old").as_deref(), Some("af"));
        assert_eq!(folder.read("second").as_deref(), Some("two"));
        assert_eq!(folder.read("x/y/again").as_deref(), Some("one"));
    });
}

#[test]
fn attributes_change_as_anywhere() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        folder.write("f", "text");
        check(
            &mut room,
            "
os.chmod('f', 0o640)
check('mode', oct(os.stat('f').st_mode & 0o7777), '0o640')
os.utime('f', ns=(1_000_000_001, 2_000_000_002))
check('times', (os.stat('f').st_atime_ns, os.stat('f').st_mtime_ns), (1_000_000_001, 2_000_000_002))
os.utime('f')
check('now', os.stat('f').st_mtime > 1_000_000, True)
os.symlink('f', 'l')
os.utime('l', ns=(5, 6), follow_symlinks=False)
check('link', os.lstat('l').st_mtime_ns, 6)
check('file', os.stat('f').st_mtime_ns > 6, True)
os.setxattr('f', 'user.a', b'value')
check('attribute', os.getxattr('f', 'user.a'), b'value')
check('create', says(os.setxattr, 'f', 'user.a', b'x', os.XATTR_CREATE), 'EEXIST')
os.removexattr('f', 'user.a')
check('removed', says(os.getxattr, 'f', 'user.a'), 'ENODATA')
check('remove', says(os.removexattr, 'f', 'user.a'), 'ENODATA')
os.chown('f', -1, -1)
os.chown('f', 1000, 1000)
os.lchown('l', 1000, -1)
check('owner', (os.stat('f').st_uid, os.stat('f').st_gid), (1000, 1000))
check('other owner', says(os.chown, 'f', 0, 0), 'EINVAL')
os.mkdir('d')
os.chmod('d', 0o1777)
check('folder', oct(os.stat('d').st_mode & 0o7777), '0o1777')
os.chmod('.', 0o750)
check('top', oct(os.stat('.').st_mode & 0o7777), '0o750')
os.utime('.', ns=(7, 8))
check('top', os.stat('.').st_mtime_ns, 8)
check('access', os.access('f', os.W_OK), True)
os.chmod('f', 0o400)
check('access', os.access('f', os.W_OK), False)
check('access', os.access('.', os.W_OK), True)
check('access', os.access('none', os.W_OK), False)
check('faccessat2', raw('faccessat', -100, b'l', 2, 0x100), 0)
",
        );
    });
}

#[test]
fn errors_are_those_of_a_plain_folder() {
    // The same program runs in the session's own memory, where no broker answers: whatever it finds
    // there is what it must find in the granted folder.
    const PROGRAM: &str = "
os.makedirs('d/full')
put('f')
os.symlink('f', 'l')
os.symlink('none', 'dangling')
os.symlink('loop', 'loop')
os.symlink('d', 'ld')
W, C, X, T, D, N = os.O_WRONLY, os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_DIRECTORY, os.O_NOFOLLOW
found = []
def note(*what): found.append(what)
def opened(path, flags):
    answer = says(os.open, path, flags)
    if isinstance(answer, int):
        os.close(answer)
        answer = 'ok'
    return answer
for path in ['none', 'none/x', 'f', 'f/', 'f/x', 'd', 'd/', 'd/none/x', 'l', 'l/', 'dangling', 'dangling/',
             'loop', 'loop/x', 'ld', 'ld/', '.', '..', 'd/.', 'd/..', '', 'x' * 300, 'd/' * 2100, 'new/']:
    for flags in [W, W | T, W | N, W | D, W | C | X, W | C | N, T, C | X, C | D, C]:
        note('open', path[:20], flags, opened(path, flags))
    for call in ['unlink', 'rmdir', 'mkdir', 'mkfifo', 'chmod', 'truncate', 'utime', 'link', 'symlink',
                 'rename', 'onto', 'lchown', 'setxattr', 'access']:
        other = {
            'unlink': lambda: os.unlink(path), 'rmdir': lambda: os.rmdir(path),
            'mkdir': lambda: os.mkdir(path), 'mkfifo': lambda: os.mkfifo(path),
            'chmod': lambda: os.chmod(path, 0o755), 'truncate': lambda: os.truncate(path, 0),
            'utime': lambda: os.utime(path, (1, 1)), 'link': lambda: os.link('f', path, follow_symlinks=False),
            'symlink': lambda: os.symlink('f', path), 'rename': lambda: os.rename(path, 'd/moved'),
            'onto': lambda: os.rename('d/full', path), 'lchown': lambda: os.lchown(path, -1, -1),
            'setxattr': lambda: os.setxattr(path, 'user.x', b'1'),
            'access': lambda: None if os.access(path, os.W_OK) else 'no',
        }[call]
        # What one call has changed is set up again for the next.
        note(call, path[:20], says(other))
        import shutil
        for entry in os.listdir('.'):
            shutil.rmtree(entry) if os.path.isdir(entry) and not os.path.islink(entry) else os.unlink(entry)
        os.makedirs('d/full')
        put('f')
        os.symlink('f', 'l')
        os.symlink('none', 'dangling')
        os.symlink('loop', 'loop')
        os.symlink('d', 'ld')
for line in found: print(*line)
";
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        assert_eq!(room.shell("mkdir -p /tmp/plain/work"), "");
        let folder = room.granted("project/work");
        assert_eq!(room.shell(&format!("mkdir {folder}")), "");
        let run = |room: &mut Room, folder: &str| {
            let mut running = room.python(&format!("{PRELUDE}{PROGRAM}"), &[folder]);
            running.input = None;
            running.rest()
        };
        let plain = run(&mut room, "/tmp/plain/work");
        let brokered = run(&mut room, &folder);
        let different: Vec<_> =
            plain.lines().zip(brokered.lines()).filter(|(one, other)| one != other).collect();
        assert!(plain.lines().count() > 400, "{plain}");
        assert_eq!((different, plain.lines().count()), (vec![], brokered.lines().count()));
    });
}

#[test]
fn masks_are_those_of_the_caller() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        check(
            &mut room,
            "
def mode(path): return oct(os.lstat(path).st_mode & 0o7777)
put('usual')
check('usual', mode('usual'), '0o644')
os.umask(0)
put('open')
os.mkdir('wide')
check('open', (mode('open'), mode('wide')), ('0o666', '0o777'))
os.umask(0o077)
put('closed')
os.mkfifo('pipe')
listener = socket.socket(socket.AF_UNIX)
listener.bind('socket')
check('closed', [mode(it) for it in ('closed', 'pipe', 'socket')], ['0o600', '0o600', '0o700'])
if os.fork() == 0:
    os.umask(0o027)
    put('child')
    os._exit(0)
os.wait()
put('parent')
check('both', (mode('child'), mode('parent')), ('0o640', '0o600'))
import threading
for mask in (0o002, 0o007, 0o022, 0o077) * 20:
    os.umask(mask)
    thread = threading.Thread(target=put, args=('thread',))
    thread.start()
    thread.join()
    check('thread', mode('thread'), oct(0o666 & ~mask))
    os.unlink('thread')
",
        );
    });
}

#[test]
fn a_folder_says_that_it_can_be_written_to() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        folder.write("f", "");
        check(
            &mut room,
            "
for what in ('.', 'f', os.getcwd()):
    info = os.statvfs(what)
    check(what, (info.f_flag & os.ST_RDONLY, info.f_bsize > 0, info.f_blocks > 0), (0, True, True))
fd = os.open('f', os.O_RDONLY)
check('descriptor', os.fstatvfs(fd).f_flag & os.ST_RDONLY, 0)
check('size', os.statvfs('.').f_blocks, os.fstatvfs(fd).f_blocks)
check('outside', os.statvfs('/usr').f_flag & os.ST_RDONLY, 1)
check('missing', says(os.statvfs, 'none'), 'ENOENT')
check('pointer', raw('statfs', b'.', 1), 'EFAULT')
",
        );
    });
}

#[test]
fn files_without_a_name_get_one() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        check(
            &mut room,
            "
os.mkdir('d')
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b'hello')
check('link', link(f'/proc/self/fd/{fd}', 'by-path'), 0)
check('by path', get('by-path'), 'hello')
check('mode', oct(os.stat('by-path').st_mode & 0o7777), '0o640')
os.write(fd, b' there')
check('same file', get('by-path'), 'hello there')
fd = os.open('d', os.O_TMPFILE | os.O_WRONLY)
os.write(fd, b'empty')
check('empty path', raw('linkat', fd, b'', -100, b'd/named', 0x1000), 0)
check('by descriptor', get('d/named'), 'empty')
check('taken', raw('linkat', fd, b'', -100, b'd/named', 0x1000), 'EEXIST')
fd = os.open('.', os.O_TMPFILE | os.O_WRONLY)
check('elsewhere', link(f'/proc/self/fd/{fd}', '/tmp/x'), 'EXDEV')
fd = os.open('/tmp', os.O_TMPFILE | os.O_WRONLY)
check('from elsewhere', link(f'/proc/self/fd/{fd}', 'x'), 'EXDEV')
check('reading', says(os.open, '.', os.O_TMPFILE | os.O_RDONLY), 'EINVAL')
check('in a file', says(os.open, 'by-path', os.O_TMPFILE | os.O_WRONLY), 'ENOTDIR')
",
        );
        assert_eq!(folder.read("by-path").as_deref(), Some("hello there"));
    });
}

#[test]
fn sockets_are_bound_in_the_folder() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        check(
            &mut room,
            "
os.mkdir('d')
for path in ('s', os.getcwd() + '/t', 'd/../d/u'):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    check('again', says(socket.socket(socket.AF_UNIX).bind, path), 'EADDRINUSE')
check('missing', says(socket.socket(socket.AF_UNIX).bind, 'none/s'), 'ENOENT')
check('bound already', says(listener.bind, 'v'), 'EINVAL')
check('not left behind', os.path.exists('v'), False)
check('names', sorted(os.listdir('.')), ['d', 's', 't'])
os.unlink('s')
",
        );
    });
}

#[test]
fn names_are_moved_with_every_flag() {
    as_everybody(|bench| {
        let (mut keeper, mut room, _folder) = workshop(bench);
        let other = bench.folder("other");
        grant(&mut keeper, &room, grant_of(other.path(), "other", Access::Write)).expect("granted");
        let folders = [room.granted("project"), room.granted("other")];
        check_in(
            &mut room,
            "
other = sys.argv[2]
def move(a, b, flags): return raw('renameat2', -100, a.encode(), -100, b.encode(), flags)
put('a', 'A')
put('b', 'B')
os.makedirs('d/inner')
check('no replacing', move('a', 'b', 1), 'EEXIST')
check('no replacing', move('a', 'c', 1), 0)
check('exchange', move('c', 'b', 2), 0)
check('exchanged', (get('c'), get('b')), ('B', 'A'))
check('with nothing', move('c', 'none', 2), 'ENOENT')
check('file and folder', move('c', 'd', 2), 0)
check('exchanged', (os.listdir('c'), get('d')), (['inner'], 'B'))
check('both', move('b', 'd', 3), 'EINVAL')
check('unknown', move('b', 'd', 8), 'EINVAL')
check('into itself', says(os.rename, 'c', 'c/inner/x'), 'EINVAL')
check('over a full one', says(os.rename, 'b', 'c'), 'EISDIR')
os.mkdir('e')
check('over a full one', says(os.rename, 'e', 'c'), 'ENOTEMPTY')
os.rename('c', 'e')
check('over an empty one', os.listdir('e'), ['inner'])
os.rename('d', 'b')
check('over a file', get('b'), 'B')
check('to itself', says(os.rename, 'b', 'b'), 'ok')
check('dot', says(os.rename, '.', 'x'), 'EBUSY')
put('/tmp/out', '')
put(other + '/far', '')
for one, two in (('b', '/tmp/x'), ('/tmp/out', 'x'), ('b', other + '/x'), (other + '/far', 'x')):
    check('across', says(os.rename, one, two), 'EXDEV')
    check('across', says(os.link, one, two), 'EXDEV')
import shutil
shutil.move('b', other)
check('moved', get(other + '/b'), 'B')
check('device', says(os.mknod, 'n', stat.S_IFCHR | 0o666, os.makedev(1, 3)), 'EPERM')
",
            &[&folders[0], &folders[1]],
        );
        assert_eq!(other.read("b").as_deref(), Some("B"));
    });
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        check(
            &mut room,
            "
import threading
failed = []
def work(number):
    try:
        for i in range(50):
            path = f'f{number}'
            put(path, str(i), os.O_TRUNC)
            os.rename(path, path + 'r')
            os.mkdir(path + 'd')
            os.rename(path + 'r', path + 'd/x')
            check('contents', get(path + 'd/x'), str(i))
            os.unlink(path + 'd/x')
            os.rmdir(path + 'd')
        put(f'end{number}')
    except OSError as error: failed.append(error)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
check('failed', failed, [])
# A crowd at one instant: nobody is turned away.
threading.stack_size(64 * 1024)
barrier = threading.Barrier(400)
def one(number):
    barrier.wait()
    try: put(f'c{number}', 'x')
    except OSError as error: failed.append(error)
threads = [threading.Thread(target=one, args=(number,)) for number in range(400)]
for thread in threads: thread.start()
for thread in threads: thread.join()
check('failed', failed, [])
check('names', len(os.listdir('.')), 408)
",
        );
        assert_eq!(folder.read("c399").as_deref(), Some("x"));
    });
}

#[test]
fn callers_that_die_leave_nothing_stuck() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        check(
            &mut room,
            "
import random, signal, time
for turn in range(60):
    children = []
    for i in range(4):
        pid = os.fork()
        if pid == 0:
            while True:
                put(f'f{turn}.{i}', 'x', os.O_TRUNC)
                os.rename(f'f{turn}.{i}', f'g{i}')
        children.append(pid)
    time.sleep(random.random() / 50)
    for pid in children: os.kill(pid, signal.SIGKILL)
    for pid in children: os.waitpid(pid, 0)
put('end', 'x')
",
        );
    });
}

#[test]
fn signals_do_not_make_a_call_happen_twice() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        // Python's own calls begin anew when they are interrupted: a call that was carried out
        // before would then fail.
        check(
            &mut room,
            "
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
wrong = {}
def note(answer):
    if answer != 'ok': wrong[answer] = wrong.get(answer, 0) + 1
for i in range(1500):
    note(says(os.mkdir, 'd'))
    note(says(os.rename, 'd', 'e'))
    note(says(os.rmdir, 'e'))
signal.setitimer(signal.ITIMER_REAL, 0, 0)
check('wrong', wrong, {})
",
        );
    });
}

#[test]
fn a_call_that_says_it_was_interrupted_did_nothing() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        // The handler does not have calls begun anew. Python begins some of its own again; these
        // calls are bare.
        check(
            &mut room,
            "
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
HERE, MAKE = -100, os.O_CREAT | os.O_EXCL | os.O_WRONLY
interrupted, wrong = {}, []
def try_until_done(what, call, happened):
    # It did nothing as long as it says so, and did it once when it says that.
    while True:
        answer = call()
        if answer == 'EINTR':
            interrupted[what] = interrupted.get(what, 0) + 1
            if happened(): wrong.append((what, 'happened all the same'))
            if happened(): return
        else:
            if isinstance(answer, str) or not happened(): wrong.append((what, answer))
            return answer
for i in range(1500):
    there = lambda name: lambda: os.path.lexists(name)
    gone = lambda name: lambda: not os.path.lexists(name)
    try_until_done('mkdir', lambda: raw('mkdirat', HERE, b'd', 0o755), there('d'))
    try_until_done('rename', lambda: raw('renameat', HERE, b'd', HERE, b'e'), there('e'))
    try_until_done('rmdir', lambda: raw('unlinkat', HERE, b'e', 0x200), gone('e'))
    fd = try_until_done('open', lambda: raw('openat', HERE, b'f', MAKE, 0o644), there('f'))
    if isinstance(fd, int): os.close(fd)
    try_until_done('link', lambda: raw('linkat', HERE, b'f', HERE, b'g', 0), there('g'))
    try_until_done('symlink', lambda: raw('symlinkat', b'f', HERE, b's'), there('s'))
    for one in 'f', 'g', 's':
        try_until_done('unlink', lambda: raw('unlinkat', HERE, one.encode(), 0), gone(one))
signal.setitimer(signal.ITIMER_REAL, 0, 0)
check('wrong', wrong, [])
check('left', os.listdir('.'), [])
if not interrupted: print('no call was interrupted: this says nothing')
",
        );
    });
}

#[test]
fn ordinary_tools_work() {
    const SCRIPT: &str = r#"
set -e
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
mkdir tree && cd tree
for i in 1 2 3 4 5 6 7 8 9; do mkdir -p d$i/e; echo $i > d$i/f; ln -s ../d1/f d$i/l; ln d$i/f d$i/h; done
chmod 600 d1/f; touch -d 2001-01-01 d2/f
cd ..
cp -a tree copy
diff -r tree copy
tar -cf t.tar tree && mkdir out && tar -xpf t.tar -C out
diff -r tree out/tree
test "$(stat -c '%a %Y %h' tree/d2/f)" = "$(stat -c '%a %Y %h' out/tree/d2/f)"
sed -i s/3/three/ tree/d3/f
test "$(cat tree/d3/f)" = three
mv tree/d4 moved && test -e moved/h
mv moved /tmp/moved && mv /tmp/moved back && test -e back/e
install -m 755 t.tar bin && test -x bin
dd if=/dev/zero of=zero bs=4096 count=4 2>/dev/null && truncate -s 100 zero && test "$(stat -c %s zero)" = 100
mktemp -p . > /dev/null
(echo a >> log) ; echo b >> log ; test "$(wc -l < log)" = 2
if command -v git > /dev/null; then
  git init -q repo && cd repo
  for i in 1 2 3; do echo $i > f && git add f && git commit -qm $i; done
  git checkout -q -b side HEAD~1 && echo x > g && git add g && git commit -qm x
  git rebase -q master 2>/dev/null || git rebase -q main
  git gc -q && git fsck --strict 2>/dev/null && git status --porcelain
  git stash list && git clone -q . ../clone && git worktree add -q ../work HEAD~1
  cd ..
fi
rm -rf tree copy out back bin zero log repo clone work t.tar tmp.*
ls -A
"#;
    as_everybody(|bench| {
        let (_store, kept) = crate::writes_rules::store(bench);
        let recorded = cowork_api::plan::Writing { store: Some(kept), ..Default::default() };
        for writing in [recorded, cowork_api::plan::Writing::default()] {
            let (_keeper, mut room, _folder) = crate::writes_rules::granted(bench, writing);
            let folder = room.granted("project");
            let ended = room.run(&["/bin/sh", "-c", &format!("cd {folder}{SCRIPT}")]);
            assert_eq!(ended, (cowork_api::guest::Ending::Status(0), String::new()));
        }
    });
}

/// While a descriptor is handed over, caller and broker are kept on one processor. Whoever opens files
/// may run afterwards where it might before, and so may what it starts and its other threads.
#[test]
fn who_is_given_files_runs_where_it_might_before() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = workshop(bench);
        check(
            &mut room,
            "
import threading
def work(processors):
    os.sched_setaffinity(0, processors)
    for number in range(1500):
        put(f'{threading.get_ident()}', 'x', os.O_TRUNC)
        found = os.sched_getaffinity(0)
        if found != processors:
            print('after', number, 'files it runs on', found, 'and not on', processors)
            return
every = os.sched_getaffinity(0)
work(every)
threads = [threading.Thread(target=work, args=[{one}]) for one in every]
threads += [threading.Thread(target=work, args=[every]) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
check('processors at the end', os.sched_getaffinity(0), every)
",
        );
    });
}
