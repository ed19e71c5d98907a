//! Hosts as srt writes them: `example.com`, `*.example.com`, `localhost`, `10.0.0.1`, `[::1]`, each
//! with `:port` where one port is meant.

use cowork_policy::egress::HostName;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Which hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every one. Only a denial says so.
    Any,
    /// The one with this name.
    Name(String),
    /// Those below this name, and not itself.
    Below(String),
    /// The host that srt runs on.
    Localhost,
    /// The one with this address.
    Address(IpAddr),
}

/// Hosts, and the port that is meant; all without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Which hosts.
    pub hosts: Hosts,
    /// Which port.
    pub port: Option<u16>,
}

/// What a text is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A list of what is allowed.
    Allow,
    /// A list of what is denied.
    Deny,
    /// A list of hosts, without ports.
    Hosts,
}

/// Why a text means no hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {what}", .text.escape_debug())]
pub struct DomainError {
    text: Box<str>,
    what: Cow,
}

type Cow = std::borrow::Cow<'static, str>;

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Any => f.write_str("*")?,
            Hosts::Name(name) => f.write_str(name)?,
            Hosts::Below(name) => write!(f, "*.{name}")?,
            Hosts::Localhost => f.write_str("localhost")?,
            Hosts::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            Hosts::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Domain {
    /// Reads an entry of a list.
    pub fn parse(text: &str, purpose: Purpose) -> Result<Self, DomainError> {
        let wrong = |what: Cow| DomainError { text: text.into(), what };
        let (host, port) = split(text).map_err(|what| wrong(what.into()))?;
        if port.is_some() && purpose == Purpose::Hosts {
            return Err(wrong("has a port, and this list is about hosts alone".into()));
        }
        let hosts = hosts(host, purpose).map_err(wrong)?;
        Ok(Self { hosts, port })
    }

    /// Whether every host that `other` means is meant by this, whatever the ports.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.hosts, &other.hosts) {
            (Hosts::Any, _) => true,
            (Hosts::Below(base), Hosts::Name(name)) => is_below(name, base),
            (Hosts::Below(base), Hosts::Below(name)) => name == base || is_below(name, base),
            (one, other) => one == other,
        }
    }

    /// Whether some host is meant by both, whatever the ports.
    pub fn meets(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn is_below(name: &str, base: &str) -> bool {
    name.strip_suffix(base).is_some_and(|rest| rest.ends_with('.'))
}

/// Takes the port off.
fn split(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    const BRACKETS: &str =
        "has several colons: an IPv6 address is written in brackets, as `[::1]` or `[::1]:443`";
    const PORT: &str = "has no port after the colon: a port is a number from 1 to 65535";
    if text.contains("://") || text.contains('/') {
        return Err("is an address of a page or a path: write the host alone");
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (_, after) = rest.split_once(']').ok_or("has no `]`")?;
        let whole = text.strip_suffix(after).unwrap_or(text);
        return match after.strip_prefix(':') {
            None if after.is_empty() => Ok((whole, None)),
            None => Err(PORT),
            Some(digits) => port(digits).map(|port| (whole, Some(port))).ok_or(PORT),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, rest)) if rest.contains(':') => Err(BRACKETS),
        Some((host, digits)) => port(digits).map(|port| (host, Some(port))).ok_or(PORT),
    }
}

fn port(digits: &str) -> Option<u16> {
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port != 0)
}

fn hosts(text: &str, purpose: Purpose) -> Result<Hosts, Cow> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address = inner.split_once('%').map_or(inner, |(address, _zone)| address);
        let parsed: Result<Ipv6Addr, _> = address.parse();
        let address = parsed.map_err(|_none| Cow::from("is no IPv6 address"))?;
        return Ok(Hosts::Address(IpAddr::V6(address).to_canonical()));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Hosts::Address(address));
    }
    match text {
        "localhost" => return Ok(Hosts::Localhost),
        "*" if purpose == Purpose::Deny => return Ok(Hosts::Any),
        _ => {}
    }
    if text.ends_with('.') {
        return Err("ends with a dot".into());
    }
    let name = |text: &str| {
        let parsed: Result<HostName, _> = text.parse();
        match parsed {
            Ok(name) if name.as_str().contains('.') => Ok(name.as_str().to_owned()),
            Ok(_) => Err("has no dot: a host is written in full, as `example.com`".into()),
            Err(error) => Err(Cow::from(format!("is no host: {error}"))),
        }
    };
    match text.strip_prefix("*.") {
        Some(rest) if !rest.contains('*') => name(rest).map(Hosts::Below).map_err(|_too_wide| {
            Cow::from("would mean too many hosts: write at least two names, as `*.example.com`")
        }),
        None if !text.contains('*') => name(text).map(Hosts::Name),
        _ if text == "*" => Err("would mean every host, which only `deniedDomains` can".into()),
        _ => Err("has a `*` in a wrong place: write `*.example.com`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Domain, Hosts, Purpose};

    #[test]
    fn entries_are_read_as_srt_reads_them() {
        let name = |text: &str| Hosts::Name(text.to_owned());
        let below = |text: &str| Hosts::Below(text.to_owned());
        let address = |text: &str| Hosts::Address(text.parse().unwrap());
        for (text, hosts, port) in [
            ("example.com", name("example.com"), None),
            ("Example.COM:443", name("example.com"), Some(443)),
            ("*.example.com", below("example.com"), None),
            ("*.example.com:8443", below("example.com"), Some(8443)),
            ("localhost", Hosts::Localhost, None),
            ("localhost:3000", Hosts::Localhost, Some(3000)),
            ("127.0.0.1:80", address("127.0.0.1"), Some(80)),
            ("[::1]", address("::1"), None),
            ("[2001:DB8:0::1]:443", address("2001:db8::1"), Some(443)),
            ("[fe80::1%eth0]", address("fe80::1"), None),
            ("[::ffff:127.0.0.1]", address("127.0.0.1"), None),
        ] {
            for purpose in [Purpose::Allow, Purpose::Deny] {
                let parsed = Domain::parse(text, purpose).map(|it| (it.hosts, it.port));
                assert_eq!(parsed, Ok((hosts.clone(), port)), "{text}");
            }
        }
    }

    #[test]
    fn what_means_no_host_is_refused() {
        for text in [
            "",
            "*",
            "*.com",
            "*.",
            "*:22",
            "a*.example.com",
            "*.*.example.com",
            "com",
            "https://example.com",
            "example.com/path",
            "example.com:0",
            "example.com:0443",
            "example.com:65536",
            "example.com:443:80",
            "example.com:x",
            "::1",
            "2001:db8::1:443",
            "[::1",
            "[::1]x",
            "[::1]:0",
            "[127.0.0.1]",
            ".example.com",
            "example.com.",
            "127.1",
            "0x7f.1",
            "exa mple.com",
            "user@example.com",
            "evil.com\u{0}.example.com",
        ] {
            assert!(Domain::parse(text, Purpose::Allow).is_err(), "{text:?}");
        }
        for text in ["*", "*:22"] {
            assert!(Domain::parse(text, Purpose::Deny).is_ok(), "{text}");
        }
        let error = Domain::parse("example.com:443", Purpose::Hosts).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`example.com:443` has a port, and this list is about hosts alone"
        );
    }

    #[test]
    fn covering_is_about_every_host() {
        let domain = |text| Domain::parse(text, Purpose::Deny).unwrap();
        for (one, other, covers) in [
            ("example.com", "example.com", true),
            ("example.com", "EXAMPLE.com:443", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "anexample.com", false),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.a.example.com", true),
            ("*.a.example.com", "*.example.com", false),
            ("a.example.com", "*.example.com", false),
            ("*", "[::1]", true),
            ("127.0.0.1", "127.0.0.2", false),
        ] {
            assert_eq!(domain(one).covers(&domain(other)), covers, "{one} {other}");
        }
        assert!(domain("a.example.com").meets(&domain("*.example.com")));
        assert!(!domain("a.example.org").meets(&domain("*.example.com")));
    }
}
