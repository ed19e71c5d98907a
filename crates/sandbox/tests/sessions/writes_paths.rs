//! Which file a path means: links of every kind, inside, outside and across, and descriptors of
//! folders.

use crate::bench::{as_everybody, as_everybody_apart, grant, grant_of};
use crate::writes::{check, check_in, workshop};
use cowork_api::plan::Access;

/// Every call by links of every kind.
const LINKS: &str = "
import shutil
here = os.getcwd()
out = '/tmp/out'
def fresh():
    shutil.rmtree(out, ignore_errors=True)
    for entry in os.listdir('.'):
        shutil.rmtree(entry) if os.path.isdir(entry) and not os.path.islink(entry) else os.unlink(entry)
    os.makedirs(out)
    os.mkdir('sub')
    put('file', 'F')
    put(out + '/file', 'O')
    put('sub/file', 'S')

# Where the link is, what it says, and which file that is.
LINKS = [
    ('l', 'file', 'file'),
    ('sub/l', '../file', 'file'),
    ('l', here + '/file', 'file'),
    ('l', 'sub/../sub/file', 'sub/file'),
    ('l', out + '/file', out + '/file'),
    (out + '/l', here + '/file', 'file'),
    (out + '/l', '../..' + here + '/sub/file', 'sub/file'),
    (out + '/l', 'file', out + '/file'),
    ('l', '/proc/self/cwd/file', 'file'),
    (out + '/l', '/proc/self/cwd/sub/file', 'sub/file'),
]
for where, says_, target in LINKS:
    def made():
        fresh()
        os.symlink(says_, where)
    case = (where, says_)
    # Followed.
    made(); put(where, 'X', os.O_APPEND); check(('append', case), get(target)[-1], 'X')
    made(); put(where, '', os.O_TRUNC); check(('trunc', case), get(target), '')
    made(); os.truncate(where, 0); check(('truncate', case), get(target), '')
    made(); os.chmod(where, 0o600); check(('chmod', case), os.stat(target).st_mode & 0o777, 0o600)
    made(); os.utime(where, (1, 2)); check(('utime', case), os.stat(target).st_mtime, 2)
    made(); os.setxattr(where, 'user.x', b'1'); check(('xattr', case), os.getxattr(target, 'user.x'), b'1')
    made(); check(('access', case), os.access(where, os.W_OK), True)
    made(); os.chown(where, 1000, 1000); check(('still', case), os.path.islink(where), True)
    # Not followed.
    made(); os.unlink(where); check(('unlink', case), (os.path.lexists(where), os.path.exists(target)), (False, True))
    made(); check(('nofollow', case), says(os.open, where, os.O_WRONLY | os.O_NOFOLLOW), 'ELOOP')
    made(); check(('excl', case), says(os.open, where, os.O_WRONLY | os.O_CREAT | os.O_EXCL), 'EEXIST')
    made(); check(('mkdir', case), says(os.mkdir, where), 'EEXIST')
    made(); check(('symlink', case), says(os.symlink, 'a', where), 'EEXIST')
    made(); check(('rmdir', case), says(os.rmdir, where), 'ENOTDIR')
    made(); os.rename(where, os.path.dirname(where) + '/r' if os.path.dirname(where) else 'r')
    check(('rename', case), (os.path.lexists(where), os.path.exists(target)), (False, True))
    made(); os.utime(where, ns=(1, 2), follow_symlinks=False)
    check(('lutime', case), (os.lstat(where).st_mtime_ns, os.stat(target).st_mtime_ns > 2), (2, True))
    made(); os.lchown(where, 1000, 1000); check(('lchown', case), os.path.islink(where), True)
    made(); beside = (os.path.dirname(where) or '.') + '/h'
    os.link(where, beside, follow_symlinks=False); check(('link', case), os.path.islink(beside), True)
    same = target.startswith('/') == where.startswith('/')
    made(); check(('link followed', case), link(where, beside), 0 if same else 'EXDEV')
    if same: check(('link followed', case), os.path.islink(beside), False)
    made(); put((os.path.dirname(where) or '.') + '/new', 'N'); os.rename((os.path.dirname(where) or '.') + '/new', where)
    check(('over', case), (os.path.islink(where), get(where), os.path.exists(target)), (False, 'N', True))

# Links that lead to nothing make what they say.
for where, says_, target in [('l', 'new', 'new'), ('l', out + '/new', out + '/new'), (out + '/l', here + '/sub/new', 'sub/new'),
                             ('l', here + '/sub/new', 'sub/new'), (out + '/l', here + '/none/new', None)]:
    fresh(); os.symlink(says_, where)
    if target is None:
        check(('dangling', where), says(os.open, where, os.O_WRONLY | os.O_CREAT), 'ENOENT')
    else:
        put(where, 'made'); check(('dangling', where), get(target), 'made')

# Links to folders, in the middle of a path.
fresh()
os.symlink('sub', 'inner'); put('inner/a', '1'); check('inner', get('sub/a'), '1')
os.symlink(here, out + '/into'); put(out + '/into/sub/b', '2'); check('into', get('sub/b'), '2')
os.symlink(out, 'outer'); put('outer/c', '3'); check('outer', get(out + '/c'), '3')
put('outer/into/sub/../d', '4'); check('round', get('d'), '4')
put('sub/../../project/e', '5'); check('dots', get('e'), '5')
put('/tmp/../' + here + '/f', '6'); check('dots', get('f'), '6')
put('/sessions/.' + here[len('/sessions'):] + '/./g', '7'); check('dots', get('g'), '7')
put('outer/../out/h', '8'); check('dots', get(out + '/h'), '8')
os.unlink('outer/into/d'); check('gone', os.path.exists('d'), False)
os.symlink('x' , 'x'); check('loop', says(put, 'x/y'), 'ELOOP'); check('loop', says(put, 'x'), 'ELOOP')
previous = 'file'
for i in range(45): os.symlink(previous, f'chain{i}'); previous = f'chain{i}'
check('40 links', says(put, 'chain39', '.'), 'ok')
check('41 links', says(put, 'chain40', '.'), 'ELOOP')
";

#[test]
fn links_are_followed_where_the_kernel_would_and_nowhere_else() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        folder.write("sub/.keep", "");
        check(&mut room, LINKS);
    });
}

#[test]
fn descriptors_of_folders_mean_what_they_hold() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        folder.write("a/.keep", "");
        check(
            &mut room,
            "
here = os.getcwd()
a = os.open('a', os.O_RDONLY | os.O_DIRECTORY)
path = os.open('a', os.O_PATH)
os.rename('a', 'b')
for fd in (a, path):
    os.unlink('f', dir_fd=fd) if os.path.exists('b/f') else None
    f = os.open('f', os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    check('moved', os.path.exists('b/f'), True)
put('up', '')
os.rename('../up', '../down', src_dir_fd=a, dst_dir_fd=a)
check('above', os.path.exists('down'), True)
f = os.open('../../../../../../../..' + here + '/far', os.O_WRONLY | os.O_CREAT, dir_fd=a)
check('far', os.path.exists('far'), True)
check('number', says(os.open, 'f', os.O_WRONLY | os.O_CREAT, dir_fd=999), 'EBADF')
file = os.open('far', os.O_RDONLY)
check('no folder', says(os.open, 'f', os.O_WRONLY | os.O_CREAT, dir_fd=file), 'ENOTDIR')
check('absolute', says(os.mkdir, here + '/made', dir_fd=999), 'ok')
os.unlink('b/.keep'); os.unlink('b/f'); os.rmdir('b')
check('removed', says(os.open, 'f', os.O_WRONLY | os.O_CREAT, dir_fd=a), 'ENOENT')
check('removed', says(os.mkdir, 'f', dir_fd=a), 'ENOENT')
os.mkdir('b')
check('another', says(os.mkdir, 'f', dir_fd=a), 'ENOENT')
os.mkdir('w'); os.chdir('w'); os.rename(here + '/w', here + '/v')
put('x', ''); check('working directory', os.path.exists(here + '/v/x'), True)
os.unlink('x'); os.rmdir(here + '/v')
check('gone', says(put, 'x'), 'ENOENT')
os.chdir(here)
os.chdir('/tmp')
d = os.open('/tmp', os.O_RDONLY)
f = os.open('..' + here + '/from-outside', os.O_WRONLY | os.O_CREAT, dir_fd=d)
check('from outside', os.path.exists(here + '/from-outside'), True)
f = os.open('/proc/self/fd/%d/by-magic' % os.open(here, os.O_RDONLY), os.O_WRONLY | os.O_CREAT)
check('magic', os.path.exists(here + '/by-magic'), True)
f = os.open('/proc/1/root' + here + '/by-root', os.O_WRONLY | os.O_CREAT)
check('root', os.path.exists(here + '/by-root'), True)
f = os.open('/proc/thread-self/root' + here + '/by-thread', os.O_WRONLY | os.O_CREAT)
check('thread', os.path.exists(here + '/by-thread'), True)
",
        );
    });
}

#[test]
fn what_is_handed_out_is_a_file_that_can_be_written_to_and_nothing_else() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = workshop(bench);
        folder.write("f", "text");
        folder.write("d/f", "text");
        check(
            &mut room,
            "
def mount(fd):
    return [line for line in open(f'/proc/self/fdinfo/{fd}') if line.startswith('mnt_id')][0]
session = mount(os.open('.', os.O_RDONLY))
R, W, C, T, X = os.O_RDONLY, os.O_WRONLY, os.O_CREAT, os.O_TRUNC, os.O_EXCL
for path, flags in [('f', R), ('f', R | C), ('f', R | T), ('new', R | C), ('newer', R | C | X), ('d', R),
                    ('d', os.O_PATH), ('f', os.O_PATH), ('f', os.O_PATH | W), ('.', R | os.O_DIRECTORY)]:
    fd = os.open(path, flags)
    check((path, flags), mount(fd), session)
    check('writing', says(os.write, fd, b'x'), 'EBADF')
    if path in ('f', 'new', 'newer') and not flags & os.O_PATH:
        check('cutting', says(os.ftruncate, fd, 0), 'EINVAL')
        check('mode', says(os.fchmod, fd, 0o600), 'ok')
for flags in (W, os.O_RDWR, W | C, W | T, os.O_RDWR | C | T, W | os.O_APPEND):
    fd = os.open('f', flags)
    check(flags, mount(fd) != session, True)
    check('kind', stat.S_ISREG(os.fstat(fd).st_mode), True)
    check('flags', fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND), flags & (os.O_ACCMODE | os.O_APPEND))
    check('beside', says(os.open, f'/proc/self/fd/{fd}/../d', W), 'ENOTDIR')
    check('as a folder', says(os.mkdir, 'x', dir_fd=fd), 'ENOTDIR')
check('closed at exec', fcntl.fcntl(os.open('f', W | os.O_CLOEXEC), fcntl.F_GETFD), 1)
fd = libc.open(b'f', W)
check('kept at exec', fcntl.fcntl(fd, fcntl.F_GETFD), 0)
check('by descriptor', says(os.open, f'/proc/self/fd/{os.open(\"f\", R)}', W) != 'EROFS', True)
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
answer = None
while answer is None:
    try: held.append(os.open('f', W))
    except OSError as error: answer = name(error.errno)
check('too many', answer, 'EMFILE')
for fd in held: os.close(fd)
check('again', isinstance(says(os.open, 'f', W), int), True)
",
        );
    });
}

#[test]
fn what_was_not_granted_for_writing_stays_as_it_is() {
    as_everybody(|bench| {
        let (mut keeper, mut room, _folder) = workshop(bench);
        let read = bench.folder("read");
        read.write("f", "text");
        grant(&mut keeper, &room, grant_of(read.path(), "read", Access::Read)).expect("granted");
        let folders = [room.granted("project"), room.granted("read")];
        check_in(
            &mut room,
            "
read = sys.argv[2]
os.symlink(read, 'link')
for path in (read + '/f', 'link/f', '../read/f'):
    check(path, says(os.open, path, os.O_WRONLY), 'EROFS')
    check(path, says(os.unlink, path), 'EROFS')
    check(path, says(os.chmod, path, 0o600), 'EROFS')
    check(path, says(os.rename, path, path + '2'), 'EROFS')
    check(path, says(os.rename, path, 'f'), 'EXDEV')
    check(path, os.access(path, os.W_OK), False)
    check(path, os.statvfs(path).f_flag & os.ST_RDONLY, 1)
check('new', says(os.mkdir, read + '/d'), 'EROFS')
check('system', says(os.mkdir, '/usr/d'), 'EROFS')
check('beside', says(os.mkdir, os.path.dirname(read) + '/d'), 'EROFS')
",
            &[&folders[0], &folders[1]],
        );
        assert_eq!(read.read("f").as_deref(), Some("text"));
    });
}

#[test]
fn what_is_mounted_inside_a_folder_stays_read_only() {
    as_everybody_apart(|bench| {
        let (mut keeper, mut room) = bench.room();
        let granted = grant_of(bench.submounted(), "project", Access::Write);
        grant(&mut keeper, &room, granted).expect("granted");
        check(
            &mut room,
            "
check('inside', says(os.open, 'inside/secret', os.O_WRONLY), 'EROFS')
check('inside', says(os.open, 'inside/new', os.O_WRONLY | os.O_CREAT), 'EROFS')
check('inside', says(os.chmod, 'inside', 0o700), 'EROFS')
check('inside', get('inside/secret'), 'mounted inside\\n')
check('itself', says(os.rmdir, 'inside') in ('EROFS', 'EBUSY'), True)
check('itself', says(os.rename, 'inside', 'x') in ('EROFS', 'EBUSY', 'EXDEV'), True)
os.chdir('inside')
check('from there', says(os.open, 'new', os.O_WRONLY | os.O_CREAT), 'EROFS')
put('../beside', 'made')
check('out of it', get('../beside'), 'made')
os.symlink('inside', '../link')
check('by link', says(os.open, '../link/new', os.O_WRONLY | os.O_CREAT), 'EROFS')
",
        );
    });
}
