//! Databases, locks, mappings and watchers: programs that depend on how files behave.

use crate::for_everyone;
use crate::scenario::Scenario;
use cowork_testbed::Person;

for_everyone!(sqlite, several_processes, mappings, locks, closed, watchers, sockets);

fn sqlite(person: Person) {
    let before = "
import sqlite3
c = sqlite3.connect('old.db'); c.execute('create table t(a)'); c.executemany('insert into t values(?)', [(n,) for n in range(500)]); c.commit()
";
    let script = "
python3 - <<'END'
import sqlite3
for mode in ['delete', 'wal', 'truncate', 'persist', 'memory']:
    c = sqlite3.connect('new-%s.db' % mode); print(c.execute('pragma journal_mode=%s' % mode).fetchone())
    c.execute('create table t(a)')
    for n in range(20):
        c.execute('insert into t values(?)', (n,)); c.commit()
    c.execute('delete from t where a < 5'); c.commit(); c.execute('vacuum')
    print(c.execute('select count(*), sum(a) from t').fetchone()); c.close()
c = sqlite3.connect('old.db'); c.execute('update t set a = a + 1 where a % 2'); c.commit()
c.execute('begin'); c.execute('delete from t'); c.rollback()
print(c.execute('select sum(a) from t').fetchone(), c.execute('pragma integrity_check').fetchone())
END
";
    let before = format!("python3 - <<'END'\n{before}\nEND\n");
    // A journal that stays has a number in it that is made up.
    let any_contents = &["new-persist.db-journal"];
    Scenario { before: &before, script, any_contents, ..Scenario::default() }.check(person);
}

fn several_processes(person: Person) {
    Scenario {
        before: "python3 -c 'import sqlite3; c = sqlite3.connect(\"s.db\"); c.execute(\"pragma journal_mode=wal\"); c.execute(\"create table t(w, n)\"); c.commit()'",
        script: "
            for w in 1 2 3 4; do python3 -c '
import sqlite3, sys
c = sqlite3.connect(\"s.db\", timeout=60)
for n in range(50):
    c.execute(\"insert into t values(?, ?)\", (sys.argv[1], n)); c.commit()
' $w & done; wait
            python3 -c 'import sqlite3; print(sqlite3.connect(\"s.db\").execute(\"select w, count(*), sum(n) from t group by w order by w\").fetchall())'
            python3 - <<'END'
import threading, os
def work(n):
    for i in range(100):
        a, b = 't%d-%d' % (n, i), 'u%d-%d' % (n, i)
        open(a, 'w').write('x'); os.rename(a, b)
        if i % 2: os.unlink(b)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len([f for f in os.listdir('.') if f.startswith('u')]))
END
        ",
        any_contents: &["s.db"],
        ..Scenario::default()
    }
    .check(person);
}

fn mappings(person: Person) {
    Scenario {
        before: "head -c 20000 /dev/zero > m; cp m n",
        script: "
            python3 - <<'END'
import mmap, os
with open('m', 'r+b') as f:
    with mmap.mmap(f.fileno(), 0) as m:
        m[100:105] = b'hello'; m.flush(); m.resize(30000); m[29000:29001] = b'!'
fd = os.open('new', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 8192)
m = mmap.mmap(fd, 8192); os.close(fd); m[0:3] = b'new'; m.close()
fd = os.open('n', os.O_RDWR); os.posix_fallocate(fd, 0, 40000); os.pwrite(fd, b'end', 39997)
src = os.open('m', os.O_RDONLY); os.copy_file_range(src, fd, 200, 0, 500); os.sendfile(fd, src, 0, 10)
print(os.path.getsize('m'), os.path.getsize('n'), open('m', 'rb').read()[100:105])
r = os.open('n', os.O_RDONLY)
try: mmap.mmap(r, 10, mmap.MAP_SHARED, mmap.PROT_WRITE); print('mapped')
except PermissionError: print('refused')
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn locks(person: Person) {
    Scenario {
        before: "echo 0 > counter",
        script: "
            for n in 1 2 3 4; do (for i in 1 2 3 4 5 6 7 8 9 10; do
                flock lock sh -c 'v=$(cat counter); echo $((v+1)) > counter'; done) & done; wait; cat counter
            python3 - <<'END'
import fcntl, os
f = open('l', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    g = open('l', 'r+')
    try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
    except OSError: os._exit(0)
print(os.waitpid(pid, 0)[1])
fcntl.flock(os.open('.', os.O_RDONLY), fcntl.LOCK_EX); print('folder locked')
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

/// What was closed is closed: whoever handed it out has let go of it, too.
fn closed(person: Person) {
    Scenario {
        before: "cp /bin/true t; chmod 644 t; touch l",
        script: "
            cat > c.c <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static char program[1 << 20];
static size_t size;
static int made(const char *name, int mode, int changed) {
    int f = open(name, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (f < 0 || write(f, program, size) != (ssize_t)size) exit(2);
    if (changed == 1 && fchmod(f, 0755)) exit(3);
    close(f);
    if (changed == 2 && chmod(name, 0755)) exit(4);
    pid_t child = vfork();
    if (!child) { execl(name, name, (char *)0); _exit(errno == ETXTBSY ? 26 : 99); }
    int status; waitpid(child, &status, 0); unlink(name);
    return WEXITSTATUS(status);
}
int main(void) {
    int t = open(\"t\", O_RDONLY), held = 0, owned = 0, leased = 0, busy = 0;
    size = read(t, program, sizeof program);
    for (int i = 0; i < 1000; i++) {
        int f = open(\"l\", O_WRONLY); flock(f, LOCK_EX); close(f);
        int g = open(\"l\", O_RDONLY); held += flock(g, LOCK_EX | LOCK_NB) != 0; close(g);
        struct flock whole = { .l_type = F_WRLCK };
        f = open(\"l\", O_WRONLY); fcntl(f, F_OFD_SETLK, &whole); close(f);
        whole.l_type = F_RDLCK;
        g = open(\"l\", O_RDONLY); owned += fcntl(g, F_OFD_SETLK, &whole) != 0; close(g);
        f = open(\"l\", O_WRONLY); close(f);
        g = open(\"l\", O_RDONLY); leased += fcntl(g, F_SETLEASE, F_RDLCK) != 0; close(g);
    }
    for (int i = 0; i < 100; i++)
        busy += made(\"p\", 0755, 0) + made(\"p\", 0644, 1) + made(\"p\", 0644, 2);
    printf(\"held %d owned %d leased %d busy %d\\n\", held, owned, leased, busy);
    return held + owned + leased + busy != 0;
}
END
            gcc -o c c.c && ./c
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn watchers(person: Person) {
    Scenario {
        before: "mkdir w; echo old > w/old; echo gone > w/gone",
        script: "
            python3 - <<'END'
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
i = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(i, b'w', 0x2 | 0x100 | 0x200 | 0x40 | 0x80 | 0x8)
open('w/new', 'w').write('x'); os.unlink('w/gone'); os.rename('w/new', 'w/renamed'); open('w/old', 'a').write('y')
seen = set()
import time; time.sleep(0.3)
data = os.read(i, 65536); at = 0
while at < len(data):
    wd, mask, cookie, length = struct.unpack_from('iIII', data, at)
    seen.add((data[at + 16:at + 16 + length].rstrip(b'\\0').decode(), mask)); at += 16 + length
for name, mask in sorted(seen): print(name, hex(mask))
END
            node -e \"
const fs = require('fs'); let done = false;
const w = fs.watch('w', (e, f) => { if (!done && f === 'seen') { done = true; console.log(e); w.close(); } });
setTimeout(() => fs.writeFileSync('w/seen', ''), 100); setTimeout(() => process.exit(done ? 0 : 7), 5000).unref();\"
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn sockets(person: Person) {
    Scenario {
        before: "mkdir d",
        script: "
            python3 - <<'END'
import socket, os, threading
for path in ['d/s', os.path.abspath('abs')]:
    s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()
    t = threading.Thread(target=lambda: s.accept()[0].sendall(b'hi')); t.start()
    c = socket.socket(socket.AF_UNIX); c.connect(path); print(c.recv(9)); t.join()
    os.chmod(path, 0o600); os.unlink(path)
s = socket.socket(socket.AF_UNIX); s.bind('left')
try: socket.socket(socket.AF_UNIX).bind('left')
except OSError as e: print(e.errno)
try: socket.socket(socket.AF_UNIX).bind('no/where')
except OSError as e: print(e.errno)
END
        ",
        ..Scenario::default()
    }
    .check(person);
}
