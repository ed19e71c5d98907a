//! Rules about names, questions to the user, guards and quotas.

use crate::bench::{Bench, Room, as_everybody, ask, event, grant, grant_of};
use crate::writes::{PRELUDE, check};
use cowork_api::files::{Ask, Guards, Kept, NamePolicy, NameRule, Quota, Rules};
use cowork_api::keeper::{Message, Request};
use cowork_api::plan::{Access, Writing};
use cowork_journal::record::{At, Entry, Record};
use cowork_sandbox::client::Keeper;
use cowork_testbed::Folder;
use rustix::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

/// A session with a folder `project` that it may change by these rules.
fn ruled(bench: &Bench, rules: Rules) -> (Keeper, Room, Folder) {
    granted(bench, Writing { rules, ..Writing::default() })
}

pub(crate) fn granted(bench: &Bench, writing: Writing) -> (Keeper, Room, Folder) {
    let (mut keeper, room) = bench.room();
    let folder = bench.folder("project");
    let mut wanted = grant_of(folder.path(), "project", Access::Write);
    wanted.writing = Some(writing);
    grant(&mut keeper, &room, wanted).expect("granted");
    (keeper, room, folder)
}

/// A folder in which changes are recorded.
pub(crate) fn store(bench: &Bench) -> (Folder, Kept) {
    let folder = bench.folder("store");
    let opened = cowork_sandbox::folder::Folder::open(folder.path()).expect("it is there");
    let path = opened.path().as_os_str().as_bytes().to_vec();
    let kept = Kept { path, folder: opened.identity() };
    (folder, kept)
}

fn names(rules: &[(&str, NamePolicy)]) -> Rules {
    let rule = |(pattern, policy): &(&str, NamePolicy)| NameRule {
        pattern: (*pattern).to_owned(),
        policy: *policy,
        reason: "it is run by others".to_owned(),
    };
    Rules { names: rules.iter().map(rule).collect(), ..Rules::default() }
}

/// The next question.
#[track_caller]
fn asked(keeper: &mut Keeper) -> Ask {
    loop {
        match event(keeper) {
            Message::FileAsked { ask, .. } => return ask,
            // One that has something to record in takes the place of one that has not.
            Message::BrokerRestarted { .. } => {}
            other => panic!("no question: {other:?}"),
        }
    }
}

fn allow(keeper: &mut Keeper, room: &Room, question: &Ask) {
    let session = room.id();
    let request = Request::AnswerAsk { session, ask: question.ask, allowed: true };
    keeper.post(request).expect("the keeper is there");
}

fn refuse(keeper: &mut Keeper, room: &Room, question: &Ask) {
    let session = room.id();
    let request = Request::AnswerAsk { session, ask: question.ask, allowed: false };
    keeper.post(request).expect("the keeper is there");
}

/// Does what each line it hears says.
fn interpreter(room: &mut Room) -> crate::bench::Running {
    let program = format!("{PRELUDE}\nfor line in sys.stdin: print(eval(line))");
    let folder = room.granted("project");
    room.python(&program, &[&folder])
}

#[test]
fn protected_names_are_refused_in_every_way() {
    as_everybody(|bench| {
        let rules =
            names(&[(".git/hooks/**", NamePolicy::Deny), (".git/config", NamePolicy::Deny)]);
        let (_keeper, mut room, folder) = ruled(bench, rules);
        folder.write(".git/hooks/old", "old");
        folder.write(".git/config", "config");
        folder.write("file", "file");
        std::fs::hard_link(folder.path().join(".git/config"), folder.path().join("alias"))
            .expect("ours");
        check(
            &mut room,
            "
W, C = os.O_WRONLY, os.O_CREAT
def refused(what, answer): check(what, answer, 'EACCES')
refused('write', says(os.open, '.git/config', W))
refused('cut', says(os.truncate, '.git/config', 0))
refused('cut', says(os.open, '.git/config', os.O_TRUNC))
refused('remove', says(os.unlink, '.git/config'))
refused('mode', says(os.chmod, '.git/config', 0o777))
refused('access', 'EACCES' if not os.access('.git/config', os.W_OK) else 'writable')
refused('away', says(os.rename, '.git/config', 'x'))
refused('over', says(os.rename, 'file', '.git/config'))
refused('link', says(os.link, '.git/config', 'x'))
refused('new', says(os.open, '.git/hooks/new', W | C))
refused('new', says(os.symlink, '/bin/true', '.git/hooks/new'))
refused('new', says(os.link, 'file', '.git/hooks/new'))
refused('new', says(os.mkdir, '.git/hooks/new'))
refused('new', says(os.rename, 'file', '.git/hooks/new'))
refused('new', says(socket.socket(socket.AF_UNIX).bind, '.git/hooks/new'))
refused('exchange', raw('renameat2', -100, b'file', -100, b'.git/config', 2))
refused('exchange', raw('renameat2', -100, b'.git/config', -100, b'file', 2))
refused('magic', says(os.open, '/proc/self/cwd/.git/config', W))
refused('root', says(os.open, '/proc/1/root' + os.getcwd() + '/.git/config', W))
os.symlink('.git', 'g')
refused('by link', says(os.open, 'g/config', W))
fd = os.open('.', os.O_TMPFILE | W)
refused('nameless', link(f'/proc/self/fd/{fd}', '.git/hooks/new'))
os.makedirs('z/hooks'); put('z/hooks/new')
os.mkdir('sub'); refused('folder', says(os.rename, 'z', 'sub/.git'))
refused('linked folder', says(os.symlink, '../z', 'sub/.git'))
os.mkdir('sub/.git'); refused('exchange', raw('renameat2', -100, b'z', -100, b'sub/.git', 2))
refused('later', says(os.open, 'sub/.git/config', W | C))
refused('alias', says(os.open, 'alias', W))
refused('alias', says(os.chmod, 'alias', 0o777))
refused('alias', says(os.link, 'alias', 'other'))
put('.git/description', 'free')
put('config', 'free')
check('missing', says(os.unlink, '.git/hooks/none'), 'ENOENT')
check('there', says(os.mkdir, '.git/hooks'), 'EEXIST')
",
        );
        assert_eq!(folder.read(".git/config").as_deref(), Some("config"));
        let hooks = std::fs::read_dir(folder.path().join(".git/hooks")).expect("ours");
        assert_eq!(hooks.count(), 1);
    });
}

#[test]
fn a_name_cannot_become_protected_while_it_is_made() {
    as_everybody(|bench| {
        let rules = names(&[(".git/config", NamePolicy::Deny)]);
        let (_keeper, mut room, _folder) = ruled(bench, rules);
        check(
            &mut room,
            "
import signal, time
end = time.monotonic() + 20
children = []
for path in ('z/config', 'y/config'):
    pid = os.fork()
    if pid == 0:
        while True: says(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)))
    children.append(pid)
won = moved = turn = 0
while moved < 100 and time.monotonic() < end:
    turn += 1
    path = 'zy'[turn % 2]
    says(os.mkdir, path)
    if says(os.rename, path, '.git') == 'ok':
        moved += 1
        if os.path.exists('.git/config'): won += 1
    for leftover in (path, '.git'):
        says(os.unlink, leftover + '/config')
        says(os.rmdir, leftover)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
check('wins', won, 0)
check('moved', moved > 0, True)
",
        );
    });
}

#[test]
fn another_name_of_a_protected_file_cannot_slip_in() {
    as_everybody(|bench| {
        let rules = names(&[(".git/config", NamePolicy::Deny)]);
        let (_keeper, mut room, folder) = ruled(bench, rules);
        folder.write(".git/config", "config");
        std::fs::hard_link(folder.path().join(".git/config"), folder.path().join("alias"))
            .expect("ours");
        check(
            &mut room,
            "
import signal
put('plain', 'x')
pid = os.fork()
if pid == 0:
    while True: raw('renameat2', -100, b'plain', -100, b'alias', 2)
opened = 0
for turn in range(1500):
    answer = says(os.open, 'plain', os.O_WRONLY)
    if isinstance(answer, int):
        opened += 1
        os.write(answer, b'y')
        os.close(answer)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
check('opened', opened > 0, True)
check('contents', get('.git/config'), 'config')
",
        );
    });
}

#[test]
fn the_user_is_asked_once_for_a_command() {
    as_everybody(|bench| {
        let rules = names(&[("secret*", NamePolicy::Ask), ("other*", NamePolicy::Ask)]);
        let (mut keeper, mut room, folder) = ruled(bench, rules);
        let mut one = interpreter(&mut room);
        one.say("says(put, 'secret', 'a')");
        let question = asked(&mut keeper);
        assert_eq!(
            (question.grant.as_str(), question.path.as_slice(), question.operation.as_str()),
            ("project", &b"secret"[..], "create")
        );
        assert_eq!(
            (question.reason.as_str(), question.process.as_str()),
            ("it is run by others", "python3")
        );
        assert_eq!(folder.read("secret"), None);
        // Others go on meanwhile.
        let mut two = interpreter(&mut room);
        two.say("says(put, 'free', 'b')");
        two.expect("ok");
        allow(&mut keeper, &room, &question);
        one.expect("ok");
        one.say("says(put, 'secret2', 'a')");
        one.expect("ok");
        // Another command is asked about again, and another rule.
        two.say("says(put, 'secret', 'b')");
        let question = asked(&mut keeper);
        refuse(&mut keeper, &room, &question);
        two.expect("EACCES");
        two.say("says(put, 'secret', 'b')");
        two.expect("EACCES");
        one.say("says(put, 'other', 'a')");
        let question = asked(&mut keeper);
        assert_eq!(question.path, b"other");
        allow(&mut keeper, &room, &question);
        one.expect("ok");
        assert_eq!(folder.read("secret").as_deref(), Some("a"));
    });
}

#[test]
fn a_question_is_withdrawn_when_nobody_waits_for_it() {
    as_everybody(|bench| {
        let (mut keeper, mut room, _folder) = ruled(bench, names(&[("secret", NamePolicy::Ask)]));
        let mut asking = interpreter(&mut room);
        asking.say("says(put, 'secret', 'a')");
        let question = asked(&mut keeper);
        let whom = cowork_api::guest::Whom::Leader;
        let end = cowork_api::guest::ToInit::Signal { command: asking.number, signal: 9, whom };
        room.send(&end, &[]);
        let withdrawn = Message::FileWithdrawn { session: room.id(), ask: question.ask };
        assert_eq!(event(&mut keeper), withdrawn);
        let mut other = interpreter(&mut room);
        other.say("says(put, 'free', 'a')");
        other.expect("ok");
    });
}

#[test]
fn rules_change_while_the_session_runs() {
    as_everybody(|bench| {
        let (mut keeper, mut room, _folder) = ruled(bench, Rules::default());
        let mut one = interpreter(&mut room);
        one.say("says(put, 'f', 'a')");
        one.expect("ok");
        let rules = names(&[("f", NamePolicy::Deny)]);
        let request = Request::SetRules { session: room.id(), grant: "project".to_owned(), rules };
        ask(&mut keeper, request).expect("they change");
        one.say("says(put, 'f', 'a')");
        one.expect("EACCES");
    });
}

#[test]
fn many_removals_are_asked_about_once() {
    as_everybody(|bench| {
        let guards = Guards { removals: Some(3), share: None };
        let rules = Rules { guards, ..Rules::default() };
        let (_store, kept) = store(bench);
        let unrecorded = Writing { rules: rules.clone(), ..Writing::default() };
        for writing in [Writing { store: Some(kept), rules, ..Writing::default() }, unrecorded] {
            let (mut keeper, mut room, folder) = granted(bench, writing);
            for number in 0..10 {
                folder.write(&format!("f{number}"), "old");
            }
            let mut one = interpreter(&mut room);
            for number in 0..3 {
                one.say(&format!("says(os.unlink, 'f{number}')"));
                one.expect("ok");
            }
            one.say("(put('own'), says(os.unlink, 'own'))");
            one.expect("(None, 'ok')");
            one.say("says(os.unlink, 'f3')");
            let question = asked(&mut keeper);
            let about = (question.operation.as_str(), question.path.as_slice());
            assert_eq!(about, ("remove", &b"f3"[..]));
            allow(&mut keeper, &room, &question);
            one.expect("ok");
            one.say("[says(os.unlink, f'f{i}') for i in range(4, 8)]");
            one.expect("['ok', 'ok', 'ok', 'ok']");
        }
    });
}

#[test]
fn many_files_written_in_place_are_asked_about_once() {
    as_everybody(|bench| {
        let guards = Guards { removals: Some(3), share: None };
        let rules = Rules { guards, ..Rules::default() };
        let (_store, kept) = store(bench);
        let unrecorded = Writing { rules: rules.clone(), ..Writing::default() };
        for writing in [Writing { store: Some(kept), rules, ..Writing::default() }, unrecorded] {
            let (mut keeper, mut room, folder) = granted(bench, writing);
            for number in 0..10 {
                folder.write(&format!("f{number}"), "old");
            }
            let mut one = interpreter(&mut room);
            one.say("globals().update(o=lambda f, how: says(lambda: os.close(os.open(f, how))))");
            one.expect("None");
            // What the set has made itself, and a file that is opened again, do not count.
            one.say("[put(f'own{i}') for i in range(9)] == [None] * 9");
            one.expect("True");
            one.say("[says(os.truncate, f'own{i}', 1) for i in range(9)] == ['ok'] * 9");
            one.expect("True");
            one.say("[o('f0', os.O_RDWR) for i in range(9)] == ['ok'] * 9");
            one.expect("True");
            one.say("says(os.truncate, 'f1', 2), o('f2', os.O_WRONLY | os.O_APPEND)");
            one.expect("('ok', 'ok')");
            one.say("o('f2', os.O_RDWR), says(os.truncate, 'f0', 0)");
            one.expect("('ok', 'ok')");
            one.say("o('f3', os.O_RDWR)");
            let question = asked(&mut keeper);
            let about = (question.operation.as_str(), question.path.as_slice());
            assert_eq!(about, ("write", &b"f3"[..]));
            assert!(question.reason.contains("overwritten 3 files"), "{}", question.reason);
            refuse(&mut keeper, &room, &question);
            one.expect("EACCES");
            one.say("says(os.truncate, 'f4', 1), o('f5', os.O_RDONLY)");
            one.expect("('EACCES', 'ok')");
            one.say("o('f1', os.O_RDWR), says(os.unlink, 'f2')");
            one.expect("('ok', 'ok')");
        }
    });
}

/// What a log says, without times.
fn recorded(store: &Folder) -> Vec<Entry> {
    let handle = std::fs::File::open(store.path()).expect("ours");
    cowork_journal::log::read(handle.as_fd()).expect("it is a log").entries
}

#[test]
fn changes_belong_to_the_command_that_made_them() {
    as_everybody(|bench| {
        let (kept_in, kept) = store(bench);
        let writing = Writing { store: Some(kept), ..Writing::default() };
        let (mut keeper, mut room, folder) = granted(bench, writing);
        folder.write("old", "old");
        let project = room.granted("project");
        let first = format!("cd {project}; echo a > a; (sleep 0.3; cp a b; : end) & rm old");
        assert_eq!(room.shell(&first), "");
        assert_eq!(room.shell(&format!("cd {project}; mv a c")), "");
        let request = Request::Boundary { session: room.id() };
        ask(&mut keeper, request).expect("it is told");
        let closed = || {
            let entries = recorded(&kept_in);
            entries.iter().filter(|entry| entry.record == Record::Closed).count()
        };
        assert!(crate::bench::eventually(|| closed() == 2), "{:?}", recorded(&kept_in));
        let mut sets = Vec::new();
        for entry in recorded(&kept_in) {
            let path = |at: &At| String::from_utf8_lossy(&at.path).into_owned();
            let said = match &entry.record {
                Record::Set { argv, .. } => format!("set {}", argv.len()),
                Record::Process { argv } => {
                    format!("process {}", String::from_utf8_lossy(&argv[0]))
                }
                Record::Create { at, .. } => format!("create {}", path(at)),
                Record::Remove { at, .. } => format!("remove {}", path(at)),
                Record::Rename { from, to, .. } => format!("rename {} {}", path(from), path(to)),
                _ => continue,
            };
            sets.push((entry.set, said));
        }
        let of = |set| -> Vec<&str> {
            sets.iter().filter(|(of, _)| *of == set).map(|(_, said)| said.as_str()).collect()
        };
        let first: std::collections::BTreeSet<_> = of(1).into_iter().collect();
        let expected = [
            "create a",
            "create b",
            "process /bin/sh",
            "process cp",
            "process rm",
            "remove old",
            "set 3",
        ];
        assert_eq!(first, expected.into());
        assert_eq!(of(2), ["set 3", "process mv", "rename a c"]);
    });
}

#[test]
fn a_share_of_the_folder_is_asked_about() {
    as_everybody(|bench| {
        let guards = Guards { removals: None, share: Some(50) };
        let (mut keeper, mut room, folder) = ruled(bench, Rules { guards, ..Rules::default() });
        for number in 0..60 {
            folder.write(&format!("d{}/f{number}", number % 3), "old");
        }
        let mut one = interpreter(&mut room);
        one.say("[says(os.unlink, f'd{i % 3}/f{i}') for i in range(25)] == ['ok'] * 25");
        one.expect("True");
        one.say("[says(os.unlink, f'd{i % 3}/f{i}') for i in range(25, 60)]");
        let question = asked(&mut keeper);
        assert!(question.reason.contains("50 %"), "{}", question.reason);
        refuse(&mut keeper, &room, &question);
        let said = one.line().expect("it speaks");
        assert!(said.ends_with("'EACCES']"), "{said}");
    });
}

#[test]
fn refused_types_do_not_come_into_being() {
    as_everybody(|bench| {
        let rules =
            Rules { blocked: vec!["exe".to_owned()], blocked_contents: true, ..Rules::default() };
        let (_keeper, mut room, _folder) = ruled(bench, rules);
        check(
            &mut room,
            "
put('plain', 'text')
check('create', says(put, 'a.exe'), 'EACCES')
check('case', says(put, 'a.EXE'), 'EACCES')
check('rename', says(os.rename, 'plain', 'b.exe'), 'EACCES')
check('link', says(os.link, 'plain', 'b.exe'), 'EACCES')
fd = os.open('.', os.O_TMPFILE | os.O_WRONLY)
check('nameless', link(f'/proc/self/fd/{fd}', 'b.exe'), 'EACCES')
fd = os.open('innocent', os.O_WRONLY | os.O_CREAT)
os.write(fd, b'MZ' + bytes(58) + (64).to_bytes(4, 'little') + b'PE' + bytes(200))
os.close(fd)
check('contents', says(os.rename, 'innocent', 'moved'), 'EACCES')
check('contents', says(os.link, 'innocent', 'moved'), 'EACCES')
os.unlink('innocent')
os.mkdir('folder')
check('folder', says(os.rename, 'folder', 'folder.exe'), 'EACCES')
os.symlink('plain', 'soft')
check('soft', says(os.rename, 'soft', 'soft.exe'), 'EACCES')
check('soft', says(os.link, 'soft', 'soft.exe', follow_symlinks=False), 'EACCES')
os.mkfifo('pipe')
check('pipe', says(os.rename, 'pipe', 'pipe.exe'), 'EACCES')
check('exchange', raw('renameat2', -100, b'folder', -100, b'plain', 2), 0)
",
        );
    });
}

#[test]
fn what_is_let_in_somewhere_does_not_come_out_in_a_folder() {
    as_everybody(|bench| {
        let rules =
            Rules { blocked: vec!["exe".to_owned()], blocked_contents: true, ..Rules::default() };
        let (_keeper, mut room, folder) = ruled(bench, rules);
        folder.write("installers/deep/users.exe", "the user's");
        check(
            &mut room,
            "
def fill(folder, name, text='text'):
    os.makedirs(f'{folder}/node_modules/deep')
    put(f'{folder}/node_modules/deep/{name}', text)
fill('named', 'x.exe')
fill('known', 'x', 'MZ' + '\\0' * 58 + '@\\0\\0\\0' + 'PE' + '\\0' * 200)
fill('harmless', 'x')
for one in 'named', 'known':
    inside = f'{one}/node_modules'
    check(one, says(os.rename, inside, 'tools'), 'EACCES')
    check(one, says(os.rename, f'{inside}/deep', 'tools'), 'EACCES')
    os.mkdir('other')
    check(one, raw('renameat2', -100, inside.encode(), -100, b'other', 2), 'EACCES')
    check(one, raw('renameat2', -100, b'other', -100, inside.encode(), 2), 'EACCES')
    os.rmdir('other')
    check(one, says(os.rename, f'{inside}/deep', f'{inside}/.deep'), 'ok')
    check(one, says(os.rename, one, one + '-moved'), 'ok')
check('harmless', says(os.rename, 'harmless/node_modules', 'tools'), 'ok')
check('the user', says(os.rename, 'installers', 'setup'), 'ok')
os.mkdir('many'); os.mkdir('many/node_modules')
for number in range(20_001): os.symlink('x', f'many/node_modules/{number}')
check('many', says(os.rename, 'many/node_modules', 'others'), 'EACCES')
check('many', says(os.rename, 'many', 'others'), 'ok')
",
        );
    });
}

#[test]
fn refused_types_are_told_from_what_is_built_like_them() {
    as_everybody(|bench| {
        let blocked = ["jar", "msi", "dmg"].map(str::to_owned).to_vec();
        let rules = Rules { blocked, blocked_contents: true, ..Rules::default() };
        let (_keeper, mut room, _folder) = ruled(bench, rules);
        check(
            &mut room,
            "
import io, struct, tarfile, zipfile
def archive(*names, extra=b''):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as z:
        for name in names:
            about = zipfile.ZipInfo(name); about.extra = extra
            z.writestr(about, 'text ' * 500)
    return out.getvalue()
def compound(sector, clsid, shift=9):
    size = 1 << shift
    head = b'\\xd0\\xcf\\x11\\xe0\\xa1\\xb1\\x1a\\xe1' + bytes(16) + struct.pack('<HHHHH', 62, 3, 0xfffe, shift, 6)
    head = head.ljust(48, b'\\0') + struct.pack('<I', sector)
    root = 'Root Entry'.encode('utf-16-le').ljust(64, b'\\0') + struct.pack('<HBB', 22, 5, 1) + bytes(12) + clsid
    return head.ljust(size * (sector + 1), b'\\0') + root.ljust(size, b'\\0')
def put(name, content):
    with open(name, 'wb') as file: file.write(content)
package = bytes.fromhex('84100c0000000000c000000000000046')
word = bytes.fromhex('0609020000000000c000000000000046')
koly = (b'koly' + struct.pack('>II', 4, 512)).ljust(512, b'\\0')
bad = {
    'jar': archive('META-INF/MANIFEST.MF', 'a/B.class'),
    'jar with its folder': archive('META-INF/', 'META-INF/MANIFEST.MF'),
    'jar with its mark': archive('a/B.class', extra=b'\\xfe\\xca\\0\\0'),
    'msi': compound(0, package), 'msi far inside': compound(700, package), 'msi of large sectors': compound(3, package, 12),
    'dmg': b'\\x78\\xda' * 5000 + koly,
}
good = {
    'docx': archive('[Content_Types].xml', '_rels/.rels', 'word/document.xml'),
    'xlsx': archive('[Content_Types].xml', 'xl/workbook.xml'),
    'odt': archive('mimetype', 'content.xml', 'META-INF/manifest.xml'),
    'epub': archive('mimetype', 'META-INF/container.xml'),
    'whl': archive('pkg/__init__.py', 'pkg-1.dist-info/METADATA'),
    'zip': archive('src/main.rs', 'META-INF/MANIFEST.MF'),
    'doc': compound(9, word), 'cut msi': compound(700, package)[:4096],
    'koly in the middle': b'x' * 5000 + koly + b'x', 'text': b'koly ' * 1000,
}
for what, content in bad.items():
    put('it', content)
    check(what, (says(os.rename, 'it', 'x.txt'), says(os.link, 'it', 'x.txt')), ('EACCES', 'EACCES'))
    check(what, says(os.open, 'it', os.O_RDWR), 'EACCES')
    os.unlink('it')
for what, content in good.items():
    put('it', content)
    check(what, says(os.rename, 'it', 'x.' + what.split()[0]), 'ok')
    check(what, says(lambda: os.close(os.open('x.' + what.split()[0], os.O_RDWR))), 'ok')
",
        );
    });
}

#[test]
fn a_session_adds_no_more_than_it_may() {
    as_everybody(|bench| {
        let quota = Quota { bytes: Some(1 << 20), files: Some(5) };
        let (_keeper, mut room, folder) = ruled(bench, Rules { quota, ..Rules::default() });
        folder.write("old", "old");
        check(
            &mut room,
            "
import time
for i in range(3): put(f'f{i}')
os.mkdir('d'); os.symlink('x', 'l')
for answer in (says(put, 'more'), says(os.mkdir, 'more'), says(os.symlink, 'x', 'more'), says(os.link, 'old', 'more')):
    check('names', answer, 'EDQUOT')
os.unlink('l')
fd = os.open('big', os.O_WRONLY | os.O_CREAT)
check('big', os.write(fd, bytes(2 << 20)), 2 << 20)
time.sleep(0.2)
check('bytes', says(os.open, 'old', os.O_WRONLY), 'EDQUOT')
os.unlink('big')
time.sleep(0.2)
put('old', 'new')
",
        );
    });
}
