//! What the daemon is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Time without a live session and without a client after which the daemon leaves.
const IDLE: Duration = Duration::from_mins(5);

/// How the daemon behaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Time until an idle daemon leaves; `None` for one that stays.
    pub(crate) idle: Option<Duration>,
    /// An address to listen on besides the socket.
    pub(crate) listen: Option<SocketAddr>,
    /// The file with the token that clients of that address must show.
    pub(crate) token: Option<PathBuf>,
    /// How many sessions of each kind are made in advance.
    pub(crate) pool: usize,
}

const USAGE: &str = "usage: coworkd [--stay] [--idle SECONDS] [--pool NUMBER] \
                     [--listen ADDRESS:PORT --token-file FILE], or coworkd --openapi";

impl Settings {
    /// Reads the arguments of this process; a daemon that starts on first use has none, and is told
    /// by `COWORK_IDLE` how many seconds it stays.
    pub(crate) fn from_arguments() -> Result<Self, String> {
        let idle = std::env::var("COWORK_IDLE").ok();
        let idle = idle.into_iter().flat_map(|seconds| ["--idle".to_owned(), seconds]);
        Self::parse(idle.chain(std::env::args().skip(1)))
    }

    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self { idle: Some(IDLE), listen: None, token: None, pool: 2 };
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

#[cfg(test)]
mod tests {
    use super::Settings;

    fn parse(arguments: &[&str]) -> Result<Settings, String> {
        Settings::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn an_address_needs_a_token() {
        assert!(parse(&["--listen", "127.0.0.1:0"]).is_err());
        assert!(parse(&["--listen", "127.0.0.1:0", "--token-file", "/t"]).is_ok());
        assert!(parse(&["--listen", "localhost"]).is_err());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for bad in [&["--bind"][..], &["--idle"], &["--idle", "x"], &["--pool", "-1"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse(&["--stay"]).map(|settings| settings.idle), Ok(None));
    }
}
