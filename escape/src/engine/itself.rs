//! A file in a granted folder that says it is to be run by whoever runs it: `#!/proc/self/exe`.
//!
//! PID 1 executes it, so the program of PID 1 runs as a command, of which the session's processes are
//! shown more than of PID 1: another command gets hold of the program's file, which lies on the host
//! and may belong to the session's user. Winning is power over that file: to change its mode (to the
//! one it has) or to open it for writing.

use crate::engine::room::{Attacked, Room, grant_of};
use crate::engine::{Came, Ground};
use crate::report::Verdict;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "itself-as-interpreter";

/// Looks for a process whose program is not one of the system's, holds the program, and says what it
/// may do with it.
const WATCHER: &str = r"
import errno, os, sys, time
def hold():
    while True:
        for process in filter(str.isdigit, os.listdir('/proc')):
            try:
                name = os.readlink(f'/proc/{process}/exe')
                if name.startswith(sys.argv[1]) and not name.startswith('/usr/'):
                    return os.open(f'/proc/{process}/exe', os.O_PATH)
            except OSError:
                pass
print('ready', flush=True)
handle = f'/proc/self/fd/{hold()}'
try:
    os.chmod(handle, os.stat(handle).st_mode & 0o7777)
    print('WON')
except OSError as error:
    print(f'mode: {errno.errorcode[error.errno]}', end=' ')
    try:
        for _ in range(100):
            try:
                os.open(handle, os.O_WRONLY)
                print('WON')
                break
            except OSError as error:
                if error.errno != errno.ETXTBSY:
                    raise
            time.sleep(0.02)
        else:
            print('contents: ETXTBSY')
    except OSError as error:
        print(f'contents: {errno.errorcode[error.errno]}')
";

/// What the watcher says where the program is on a read-only mount: in root mode it belongs to
/// somebody else besides.
const REFUSALS: [&str; 2] = ["mode: EROFS contents: ETXTBSY", "mode: EROFS contents: EACCES"];

pub(super) fn attack(scene: &Attacked) -> Came {
    let verdict = bare().and_then(|()| confined(scene));
    (NAME.to_owned(), verdict.unwrap_or_else(Verdict::Vacuous))
}

/// A folder with the file.
fn ground(name: &str) -> Result<Ground, String> {
    let ground = Ground::new(&format!("itself-{name}"))?;
    executable(&ground.write("evil", "#!/proc/self/exe\nsleep 1\n")?)?;
    Ok(ground)
}

fn executable(path: &Path) -> Result<(), String> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("cannot make it executable: {error}"))
}

/// A shell of the person's own stands in for PID 1.
fn bare() -> Result<(), String> {
    let ground = ground("bare")?;
    let program = ground.0.join("program");
    std::fs::copy("/bin/sh", &program).map_err(|error| format!("no program: {error}"))?;
    executable(&program)?;
    let mut watcher = Command::new("/usr/bin/python3")
        .args(["-u", "-c", WATCHER, &ground.0.display().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("no watcher: {error}"))?;
    let evil = ground.0.join("evil").display().to_string();
    let mut ran = Command::new(&program);
    ran.args(["-c", &format!("{evil}; true")]);
    let ended = ran.status().map_err(|error| format!("the program does not run: {error}"));
    if ended.is_err() {
        drop(watcher.kill());
    }
    let said = watcher.wait_with_output().map_err(|error| format!("no watcher: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    ended?;
    if said.contains("WON") {
        Ok(())
    } else {
        Err(format!("does not win on the bare host: {said}"))
    }
}

fn confined(scene: &Attacked) -> Result<Verdict, String> {
    /// How often it is executed at most: it ends at once, and the watcher has to see it.
    const TRIES: usize = 400;
    let ground = ground(&scene.profile)?;
    let mut room: Room = scene.room()?;
    room.grant(grant_of(&ground.0)?)?.map_err(|failure| failure.sentence)?;
    let mut watcher = room.start(&["/usr/bin/python3", "-u", "-c", WATCHER, "/"])?;
    if watcher.line().as_deref() != Some("ready") {
        return Err("the watcher does not watch".into());
    }
    let evil = format!("{}/project/evil", room.grants());
    for _ in 0..TRIES {
        match room.start(&[&evil]) {
            Ok(talk) => drop(talk.finish("")),
            Err(why) if why.contains("NotExecutable { errno: 13 }") => {
                return Ok(Verdict::Contained("Landlock: it is not executed (EACCES)".into()));
            }
            Err(why) => return Err(why),
        }
        if watcher.has_said() {
            break;
        }
    }
    if !watcher.has_said() {
        return Err("the watcher saw nobody".into());
    }
    let said = watcher.finish("");
    let said = said.trim_end();
    Ok(match said {
        _ if said.contains("WON") => Verdict::Escaped("the program of PID 1 can be changed".into()),
        _ if REFUSALS.contains(&said) => Verdict::Contained(format!("read-only mount ({said})")),
        _ => Verdict::Unexpected(said.to_owned()),
    })
}
