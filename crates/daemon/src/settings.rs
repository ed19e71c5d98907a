//! What the daemon is started with.

use cowork_api::egress::{Hidden, Parent};
use cowork_client::types::Retention;
use cowork_policy::Bytes;
use cowork_policy::egress::Exception;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Time without a live session and without a client after which the daemon leaves.
const IDLE: Duration = Duration::from_mins(5);
/// How long changes of sessions that are gone can be undone, unless something else is said.
const RETENTION: Retention = Retention { days: 14, bytes: 5 << 30 };

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
                     [--allow-origin ORIGIN]..., or coworkd --openapi";

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
        if let Ok(proxy) = std::env::var("COWORK_PARENT_PROXY") {
            let except = std::env::var("COWORK_NO_PROXY").unwrap_or_default();
            settings.parent = Some(parent(&proxy, &except)?);
        }
        if let Ok(capture) = std::env::var("COWORK_CAPTURE") {
            settings.capture = match capture.as_str() {
                "all" => Capture::EveryPort,
                "ports" => Capture::NamedPorts,
                _ => return Err("COWORK_CAPTURE is neither `all` nor `ports`".to_owned()),
            };
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

/// The proxy between the host and the world, written as `http://user:password@host:port`.
pub(crate) fn parent(proxy: &str, except: &str) -> Result<Parent, String> {
    // What is wrong is not shown: there may be a password in it.
    let wrong = || "the parent proxy is not `http://host:port`".to_owned();
    let (scheme, rest) = proxy.split_once("://").ok_or_else(wrong)?;
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return Err(wrong()),
    };
    let rest = rest.trim_end_matches('/');
    let (who, place) = match rest.rsplit_once('@') {
        Some((who, place)) => (Some(who), place),
        None => (None, rest),
    };
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let authorization = who.map(|who| {
        use base64::Engine as _;
        let coded = base64::engine::general_purpose::STANDARD.encode(who);
        Hidden(format!("Basic {coded}").into_bytes())
    });
    let except: Vec<String> =
        except.split(',').map(str::trim).filter(|e| !e.is_empty()).map(Into::into).collect();
    for one in &except {
        one.parse::<Exception>().map_err(|error| error.to_string())?;
    }
    Ok(Parent {
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: port.parse().map_err(|_no_port| wrong())?,
        tls,
        authorization,
        except,
    })
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn parse(arguments: &[&str]) -> Result<Settings, String> {
        Settings::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn a_parent_proxy_is_read() {
        let parent = super::parent("http://me:secret@proxy.example:3128/", "a.example, b").unwrap();
        assert_eq!((parent.host.as_str(), parent.port, parent.tls), ("proxy.example", 3128, false));
        assert_eq!(parent.authorization.unwrap().0, b"Basic bWU6c2VjcmV0");
        assert_eq!(parent.except, ["a.example", "b"]);
        for bad in ["proxy", "socks5://proxy:1", "http://proxy", "http://proxy:x"] {
            assert!(super::parent(bad, "").is_err(), "{bad}");
        }
        let parent = super::parent("http://proxy:1", "a.example:8443,10.0.0.0/8").unwrap();
        assert_eq!(parent.except, ["a.example:8443", "10.0.0.0/8"]);
        let refused = super::parent("http://proxy:1", "a.example, b.example:x").unwrap_err();
        assert!(refused.starts_with("\"b.example:x\" is nothing that is reached"), "{refused}");
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
