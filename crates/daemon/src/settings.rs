//! What the daemon is started with.

use crate::proxy;
use cowork_api::egress::Parent;
use cowork_client::types::Retention;
use cowork_policy::Bytes;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time without a live session and without a client after which the daemon leaves.
const IDLE: Duration = Duration::from_mins(5);
/// How long changes of sessions that are gone can be undone, unless something else is said.
const RETENTION: Retention = Retention { days: 14, bytes: 5 << 30 };

/// Most events that are kept, unless something else is said; older ones are forgotten.
const EVENTS: u64 = 100_000;

/// How the daemon behaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Time until an idle daemon leaves; `None` for one that stays.
    pub(crate) idle: Option<Duration>,
    /// An address to listen on besides the socket.
    pub(crate) listen: Option<SocketAddr>,
    /// The file with the token that clients of that address must show.
    pub(crate) token: Option<PathBuf>,
    /// Pages that may speak to the daemon, by their origin.
    pub(crate) origins: Vec<String>,
    /// Names of this host that clients of the address may use, beside its addresses.
    pub(crate) hosts: Vec<String>,
    /// How many sessions of each kind are made in advance.
    pub(crate) pool: usize,
    /// Authorities that servers are verified by, beside those of the host, in DER.
    pub(crate) roots: Vec<Vec<u8>>,
    /// The proxy that everything of sessions goes through, if there is one.
    pub(crate) parent: Option<Parent>,
    /// Which connections of sessions arrive at their way out.
    pub(crate) capture: Capture,
    /// How long changes of sessions that are gone can be undone.
    pub(crate) changes: Retention,
    /// Most events that are kept.
    pub(crate) events: u64,
}

/// Which connections of a session arrive at its way out without a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Those to every port, where the kernel can do that; else those to ports that rules name.
    #[default]
    EveryPort,
    /// Those to ports that rules name.
    NamedPorts,
}

const USAGE: &str = "usage: coworkd [--stay] [--idle SECONDS] [--pool NUMBER] \
                     [--listen ADDRESS:PORT --token-file FILE] [--allow-host NAME]... \
                     [--allow-origin ORIGIN]..., or coworkd --openapi, or coworkd --audit CALL";

impl Settings {
    /// Reads the arguments of this process; a daemon that starts on first use has none, and is told
    /// by `COWORK_IDLE` how many seconds it stays.
    pub(crate) fn from_arguments() -> Result<Self, String> {
        let idle = std::env::var("COWORK_IDLE").ok();
        let idle = idle.into_iter().flat_map(|seconds| ["--idle".to_owned(), seconds]);
        let mut settings = Self::parse(idle.chain(std::env::args().skip(1)))?;
        if let Some(file) = std::env::var_os("COWORK_EXTRA_ROOTS") {
            let pem = std::fs::read(&file).map_err(|error| {
                format!("cannot read the authorities in `{}`: {error}", file.to_string_lossy())
            })?;
            settings.roots = crate::network::certificates(&pem);
        }
        if let Some(proxy) = parent_proxy()? {
            let except = std::env::var("COWORK_NO_PROXY").unwrap_or_default();
            settings.parent = Some(proxy::parent(&proxy, &except)?);
        }
        if let Ok(capture) = std::env::var("COWORK_CAPTURE") {
            settings.capture = match capture.as_str() {
                "all" => Capture::EveryPort,
                "ports" => Capture::NamedPorts,
                _ => return Err("COWORK_CAPTURE is neither `all` nor `ports`".to_owned()),
            };
        }
        if let Ok(events) = std::env::var("COWORK_EVENTS") {
            settings.events =
                events.parse().ok().filter(|events| *events > 0).ok_or_else(|| {
                    "COWORK_EVENTS is not a number of events that are kept, at least 1".to_owned()
                })?;
        }
        let (days, bytes) =
            (std::env::var("COWORK_CHANGES_DAYS"), std::env::var("COWORK_CHANGES_BYTES"));
        settings.changes = retention(days.ok().as_deref(), bytes.ok().as_deref())?;
        Ok(settings)
    }

    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            idle: Some(IDLE),
            listen: None,
            token: None,
            origins: Vec::new(),
            hosts: Vec::new(),
            pool: 2,
            roots: Vec::new(),
            parent: None,
            capture: Capture::EveryPort,
            changes: RETENTION,
            events: EVENTS,
        };
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| format!("`{argument}` needs a value; {USAGE}"));
            match argument.as_str() {
                "--stay" => settings.idle = None,
                "--idle" => {
                    let value = value()?;
                    let seconds = value.parse().map_err(|_no_number| {
                        format!("`{value}` is not a number of seconds; {USAGE}")
                    })?;
                    settings.idle = Some(Duration::from_secs(seconds));
                }
                "--pool" => {
                    let value = value()?;
                    let number: usize = value
                        .parse()
                        .map_err(|_no_number| format!("`{value}` is not a number; {USAGE}"))?;
                    settings.pool = number.min(16);
                }
                "--listen" => {
                    let value = value()?;
                    let address = value.parse().map_err(|_no_address| {
                        format!("`{value}` is not an address with a port; {USAGE}")
                    })?;
                    settings.listen = Some(address);
                }
                "--token-file" => settings.token = Some(value()?.into()),
                "--allow-origin" => settings.origins.push(origin(value()?)?),
                "--allow-host" => settings.hosts.push(value()?),
                other => return Err(format!("`{other}` is not known; {USAGE}")),
            }
        }
        if settings.listen.is_some() && settings.token.is_none() {
            return Err("`--listen` needs `--token-file`: without a token anybody could \
                        connect"
                .to_owned());
        }
        Ok(settings)
    }
}

/// Where a page comes from, as browsers write it: a scheme and a host.
fn origin(text: String) -> Result<String, String> {
    let place = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains('/')
    });
    if !place {
        return Err(format!("`{text}` is no origin, e.g. `https://app.example`; {USAGE}"));
    }
    Ok(text)
}

/// The proxy between the host and the world: in a file, or in a variable, which every process of the
/// user can read.
fn parent_proxy() -> Result<Option<String>, String> {
    let proxy = std::env::var("COWORK_PARENT_PROXY").ok();
    match (std::env::var_os("COWORK_PARENT_PROXY_FILE"), proxy) {
        (None, proxy) => Ok(proxy),
        (Some(file), None) => read_proxy(Path::new(&file)).map(Some),
        (Some(_), Some(_)) => {
            Err("COWORK_PARENT_PROXY and COWORK_PARENT_PROXY_FILE are both set".to_owned())
        }
    }
}

/// The first line of a file that nobody else may read.
fn read_proxy(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let failed =
        |error: std::io::Error| format!("cannot read the parent proxy in `{shown}`: {error}");
    let metadata = std::fs::metadata(file).map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("others may read the parent proxy in `{shown}`: chmod 600 it"));
    }
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
    line.map(str::to_owned)
        .ok_or_else(|| format!("`{shown}` has no parent proxy in its first line"))
}

/// How long changes are kept, and how much of them.
fn retention(days: Option<&str>, bytes: Option<&str>) -> Result<Retention, String> {
    let mut kept = RETENTION;
    if let Some(days) = days {
        kept.days = days.parse().map_err(|_no_number| {
            format!("COWORK_CHANGES_DAYS is `{days}`, not a number of days")
        })?;
    }
    if let Some(bytes) = bytes {
        let parsed: Result<Bytes, _> = bytes.parse();
        let parsed =
            parsed.map_err(|error| format!("COWORK_CHANGES_BYTES is `{bytes}`: {error}"))?;
        kept.bytes = parsed.get();
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn parse(arguments: &[&str]) -> Result<Settings, String> {
        Settings::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn how_long_changes_are_kept_can_be_said() {
        let usual = super::retention(None, None).unwrap();
        assert_eq!((usual.days, usual.bytes), (14, 5 << 30));
        let other = super::retention(Some("3"), Some("100M")).unwrap();
        assert_eq!((other.days, other.bytes), (3, 100 << 20));
        assert!(super::retention(Some("long"), None).is_err());
        assert!(super::retention(None, Some("much")).is_err());
    }

    #[test]
    fn a_proxy_is_read_from_a_file_that_nobody_else_reads() {
        use std::os::unix::fs::PermissionsExt;
        let folder = cowork_testbed::Folder::new(cowork_testbed::Person::Root, "settings");
        let file = folder.write("proxy", "  http://me:secret@proxy:3128 \nand more\n");
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        for open in [0o640, 0o604, 0o644, 0o620] {
            mode(open);
            let refused = super::read_proxy(&file).unwrap_err();
            assert!(refused.contains("chmod 600") && !refused.contains("secret"), "{refused}");
        }
        for closed in [0o600, 0o400] {
            mode(closed);
            assert_eq!(super::read_proxy(&file).unwrap(), "http://me:secret@proxy:3128");
        }
        for empty in ["", "\nhttp://proxy:3128\n"] {
            let file = folder.write("empty", empty);
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            assert!(super::read_proxy(&file).unwrap_err().contains("first line"));
        }
        assert!(super::read_proxy(&folder.path().join("none")).is_err());
    }

    #[test]
    fn an_address_needs_a_token() {
        assert!(parse(&["--listen", "127.0.0.1:0"]).is_err());
        assert!(parse(&["--listen", "127.0.0.1:0", "--token-file", "/t"]).is_ok());
        assert!(parse(&["--listen", "localhost"]).is_err());
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for good in ["https://app.example", "http://localhost:5173", "tauri://localhost"] {
            assert!(parse(&["--allow-origin", good]).is_ok(), "{good}");
        }
        for bad in ["", "*", "app.example", "null", "https://app.example/", "://x"] {
            assert!(parse(&["--allow-origin", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for bad in [&["--bind"][..], &["--idle"], &["--idle", "x"], &["--pool", "-1"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse(&["--stay"]).map(|settings| settings.idle), Ok(None));
    }
}
