//! System calls one by one: flags, errors, signals, and what happens between two folders.

use crate::for_everyone;
use crate::scenario::{ALL, Scenario, finish, said};
use crate::tree::{Judge, Tree};
use cowork_testbed::{Folder, Person};
use std::time::SystemTime;

for_everyone!(errors, rename_flags, descriptors, signals, between_two_folders, a_read_only_folder);

fn errors(person: Person) {
    Scenario {
        before: "mkdir d full; echo f > f; echo x > full/x; ln -s f l; ln -s d dl; mkfifo p; ln -s gone dead",
        script: "
            python3 - <<'END'
import os, errno
def t(name, call, *a, **k):
    try: r = call(*a, **k); print(name, 'ok', r if isinstance(r, (bool, type(None))) else 'value')
    except OSError as e: print(name, errno.errorcode.get(e.errno, e.errno))
O = os.open
for path in ['f', 'd', 'l', 'dl', 'dead', 'none', 'none/x', 'f/x', 'd/', 'f/', 'none/', '', 'd/..', 'd/.', '.', '..', 'x' * 300]:
    for flags in [os.O_WRONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_WRONLY | os.O_NOFOLLOW, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_DIRECTORY, os.O_RDONLY | os.O_CREAT | os.O_DIRECTORY]:
        t('open %.9s %o' % (path, flags), O, path, flags)
    for name, call, args in [('mkdir', os.mkdir, ()), ('rmdir', os.rmdir, ()), ('unlink', os.unlink, ()), ('truncate', os.truncate, (0,)), ('chmod', os.chmod, (0o755,)), ('utime', os.utime, ()), ('rename', os.rename, ('to',)), ('link', os.link, ('hard',)), ('symlink', lambda p: os.symlink('t', p), ()), ('mkfifo', os.mkfifo, ()), ('setx', os.setxattr, (b'user.a', b'b')), ('rmx', os.removexattr, (b'user.zz',)), ('access', os.access, (os.W_OK,))]:
        if name == 'rename' and path in ('.', '..', 'd/.', 'd/..'): t('rename ' + path, call, path, *args); continue
        t('%s %.9s' % (name, path), call, path, *args)
        for made in ['to', 'hard']:
            if os.path.lexists(made):
                if os.path.isdir(made) and not os.path.islink(made): os.rename(made, 'back-' + str(len(os.listdir('.'))))
                else: os.unlink(made)
    for p, kind in [('d', 'd'), ('f', 'f'), ('l', 'l'), ('dl', 'm'), ('dead', 'n')]:
        if not os.path.lexists(p):
            if kind == 'd': os.mkdir(p)
            elif kind == 'f': open(p, 'w').write('f')
            else: os.symlink({'l': 'f', 'm': 'd', 'n': 'gone'}[kind], p)
    if os.path.lexists('none'): (os.rmdir if os.path.isdir('none') else os.unlink)('none')
    if os.path.lexists('gone'): (os.rmdir if os.path.isdir('gone') else os.unlink)('gone')
import shutil
for p in ['d', 'f', 'l']:
    if os.path.isdir(p) and not os.path.islink(p): shutil.rmtree(p)
    elif os.path.lexists(p): os.unlink(p)
os.mkdir('d'); open('f', 'w').write('f'); os.symlink('f', 'l')
t('rmdir full', os.rmdir, 'full'); t('unlink dir', os.unlink, 'd'); t('rename over full', os.rename, 'd', 'full')
t('dir over file', os.rename, 'd', 'f'); t('file over dir', os.rename, 'f', 'd'); t('into itself', os.rename, 'full', 'full/in')
t('link dir', os.link, 'd', 'dd'); t('link over', os.link, 'f', 'l'); t('hard of link', os.link, 'l', 'hl', follow_symlinks=False)
t('badfd', os.mkdir, 'x', dir_fd=999); fd = O('f', os.O_RDONLY); t('notdir fd', os.mkdir, 'x', dir_fd=fd)
t('write ro', os.write, fd, b'x'); t('ftruncate ro', os.ftruncate, fd, 0)
t('chown other', os.chown, 'f', 12345, -1); t('chown self', os.chown, 'f', os.getuid(), os.getgid()); t('chown none', os.chown, 'f', -1, -1)
t('lchown', os.lchown, 'l', os.getuid(), os.getgid()); t('mknod dev', os.mknod, 'dev', 0o20600, os.makedev(1, 3))
t('setuid', os.chmod, 'f', 0o4755); t('trusted', os.setxattr, 'f', b'trusted.a', b'b')
t('bad mem', lambda: __import__('ctypes').CDLL(None, use_errno=True) and None)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, r in [('open', libc.open(ctypes.c_void_p(8), 1)), ('mkdir', libc.mkdir(ctypes.c_void_p(0), 0)), ('unlink', libc.unlink(ctypes.c_void_p(1)))]:
    print(name, r, errno.errorcode[ctypes.get_errno()])
print(sorted(os.listdir('.')))
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn rename_flags(person: Person) {
    Scenario {
        before: "mkdir a b; echo 1 > a/x; echo 2 > b/y; echo 3 > z; ln -s z s",
        script: "
            python3 - <<'END'
import ctypes, os, errno
libc = ctypes.CDLL(None, use_errno=True)
def r(one, two, flags):
    x = libc.renameat2(-100, one.encode(), -100, two.encode(), flags)
    print(one, two, flags, 'ok' if x == 0 else errno.errorcode[ctypes.get_errno()])
r('z', 's', 1); r('z', 'new', 1); r('new', 's', 2); r('a', 'b', 2); r('a', 's', 2); r('s', 'none', 2)
r('a', 'b', 3); r('a', 'a', 2); r('a', 'a/y', 2); r('b', 'b', 1); r('c', 'd', 8)
for top, folders, files in os.walk('.'): print(top, sorted(folders), sorted(files))
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn descriptors(person: Person) {
    Scenario {
        before: "mkdir d; echo text > f; echo other > d/g",
        script: "
            python3 - <<'END'
import os, socket, array, fcntl
w = os.open('f', os.O_RDWR); r = os.open('f', os.O_RDONLY)
again = os.open('/proc/self/fd/%d' % w, os.O_RDWR); os.pwrite(again, b'T', 0)
a = os.open('/dev/fd/%d' % w, os.O_WRONLY | os.O_APPEND); os.write(a, b'more')
x = os.open('/proc/self/fd/%d' % r, os.O_RDWR); os.pwrite(x, b'E', 1)
print(open('f').read(), oct(fcntl.fcntl(w, fcntl.F_GETFL) & 0o3), fcntl.fcntl(w, fcntl.F_GETFD))
one, two = socket.socketpair(); socket.send_fds(one, [b'x'], [w])
got = socket.recv_fds(two, 10, 1)[1][0]; os.pwrite(got, b'X', 2); print(os.pread(r, 20, 0))
os.rename('f', 'd/moved'); os.write(w, b'late'); os.unlink('d/moved'); os.write(w, b'later'); print(os.fstat(w).st_size)
os.chdir('d'); open('here', 'w').write('x'); os.chdir('..'); os.rename('d', 'e'); os.chdir('e'); open('there', 'w').write('y')
c = os.open('inherit', os.O_WRONLY | os.O_CREAT); os.set_inheritable(c, True); os.system('echo child >&%d' % c); print(open('inherit').read())
os.fchdir(os.open('..', os.O_RDONLY)); os.chdir('/proc/self/cwd'); open('via-proc', 'w').write('z')
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); n = 0
try:
    while True: os.open('many', os.O_CREAT | os.O_WRONLY); n += 1
except OSError as e: print(e.errno, n > 10)
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn signals(person: Person) {
    Scenario {
        before: "mkdir d",
        script: "
            cat > /tmp/storm.c <<'END'
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
static void beat(int n) { (void)n; }
int main(void) {
    struct sigaction a = { .sa_handler = beat, .sa_flags = SA_RESTART };
    struct itimerval t = { { 0, 500 }, { 0, 500 } };
    sigaction(SIGALRM, &a, 0); setitimer(ITIMER_REAL, &t, 0);
    int bad = 0; char p[64], q[64];
    for (int i = 0; i < 1500; i++) {
        snprintf(p, 64, \"d/%d\", i); snprintf(q, 64, \"d/r%d\", i);
        int f = open(p, O_CREAT | O_EXCL | O_WRONLY, 0644);
        if (f < 0) bad++; else { if (write(f, \"x\", 1) != 1) bad++; close(f); }
        if (rename(p, q)) bad++;
        if (i % 3 && unlink(q)) bad++;
        if (mkdir(p, 0755)) bad++; else if (rmdir(p)) bad++;
    }
    printf(\"%d\\n\", bad); return 0;
}
END
            gcc -O1 -o /tmp/storm /tmp/storm.c && /tmp/storm; ls d | wc -l
            for n in $(seq 40); do (sh -c 'while :; do echo x > d/k; mv d/k d/j; done' & p=$!; sleep 0.01; kill -9 $p) 2>/dev/null; done
            rm -f d/k d/j; echo alive > d/alive; cat d/alive
        ",
        ..Scenario::default()
    }
    .check(person);
}

/// `mv` between two granted folders copies, as between two mounts; a hard link is refused.
fn between_two_folders(person: Person) {
    let mut seen = Vec::new();
    let id = format!("between-{}", person.uid());
    let began = SystemTime::now();
    for access in ["direct", "rw"] {
        let (one, two) = (Folder::new(person, "one"), Folder::new(person, "two"));
        one.write("d/file", "text");
        one.write("f", "more");
        let grants = [&one, &two]
            .map(|folder| format!("{}/:{access}={}", folder.path().display(), name_of(folder)));
        let trees = || [&one, &two].map(|folder| Tree::of(folder.path()));
        let before = trees();
        let script = "cd \"$COWORK_MNT\"; mv one/d two/d; mv one/f two/g; ln two/g one/h 2>&1 | \
                      sed 's/.*: //'; echo x > one/new; cp -a two/d one/back; ls one two two/d; \
                      echo beside > beside; echo $?";
        let mut command = person.cowork();
        command.args(["run", "--id", &id, "--grant", &grants[0], "--grant", &grants[1]]);
        let ran = finish(command.args(["--", "bash", "-c", script]));
        assert!(ran.status.success(), "{}", said(&ran));
        let after = trees();
        assert_ne!(after, before);
        seen.push((String::from_utf8_lossy(&ran.stdout).into_owned(), after));
        if access == "rw" {
            let undone = finish(person.cowork().args(["undo", &id, "--all"]));
            assert!(undone.status.success(), "{}", said(&undone));
            for (then, now) in before.iter().zip(&trees()) {
                assert_eq!(then.differences(now, &ALL), [""; 0], "after the undo");
            }
        }
    }
    let [(plainly, plain), (recordedly, recorded)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(plainly, recordedly);
    let judge = Judge { until: Some(began), any_contents: &[], any_times: &[] };
    for (plain, recorded) in plain.iter().zip(recorded) {
        assert_eq!(plain.differences(recorded, &judge), [""; 0]);
    }
}

fn name_of(folder: &Folder) -> &'static str {
    if folder.path().to_string_lossy().ends_with("one") { "one" } else { "two" }
}

/// What is granted read-only stays so, whatever is granted beside it.
fn a_read_only_folder(person: Person) {
    let (fixed, free) = (Folder::new(person, "fixed"), Folder::new(person, "free"));
    fixed.write("f", "as it was");
    let grants = [
        format!("{}/:ro=fixed", fixed.path().display()),
        format!("{}/:rw=free", free.path().display()),
    ];
    let script = "cd \"$COWORK_MNT\"; ln -s ../fixed/f free/link; \
                  for c in 'echo x > fixed/f' 'echo x > free/link' 'rm fixed/f' 'mv free/link fixed/l' \
                  'mkdir fixed/d' 'chmod 600 fixed/f' 'touch fixed/f' 'ln -f free/x fixed/f'; do \
                  (eval \"$c\") 2>/dev/null && echo \"done: $c\"; done; echo over";
    let mut command = person.cowork();
    command.args(["run", "--grant", &grants[0], "--grant", &grants[1], "--", "bash", "-c", script]);
    let ran = finish(&mut command);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "over\n", "{}", said(&ran));
    assert_eq!(fixed.read("f").as_deref(), Some("as it was"));
}
