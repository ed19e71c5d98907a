//! Names and addresses, as programs write them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A name that DNS could know: lower case, without a trailing dot, of letters, digits, hyphens and
/// underscores, at most 253 bytes in labels of at most 63.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    /// There is nothing.
    #[error("a host has a name")]
    Empty,
    /// It is too long.
    #[error("a name has at most 253 bytes, and 63 between its dots")]
    TooLong,
    /// It has an empty part.
    #[error("a name has no two dots in a row, and none at its beginning")]
    EmptyLabel,
    /// It has a character that names do not have.
    #[error("a name has letters, digits, hyphens and dots only (others are written as xn--…)")]
    Character,
    /// It is an address in a form that programs do not agree about.
    #[error("write an address in full: four numbers from 0 to 255, or an IPv6 address")]
    AmbiguousAddress,
}

impl HostName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostNameError::Empty);
        }
        if text.len() > 253 {
            return Err(HostNameError::TooLong);
        }
        for label in text.split('.') {
            if label.is_empty() {
                return Err(HostNameError::EmptyLabel);
            }
            if label.len() > 63 {
                return Err(HostNameError::TooLong);
            }
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            if !label.bytes().all(fits) {
                return Err(HostNameError::Character);
            }
        }
        // `127.1`, `0x7f000001`, `2130706433`: some programs take these for addresses.
        let last = text.rsplit('.').next().unwrap_or(text);
        let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
        let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
            || hexadecimal.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if numeric {
            return Err(HostNameError::AmbiguousAddress);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// Where a program wants to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A name.
    Name(HostName),
    /// An address.
    Address(IpAddr),
    /// The loopback of the host, by the name that stands for it.
    HostLoopback,
}

impl Place {
    /// As rules write it, with the port where a rule without one would be about others.
    pub fn in_rule(&self, port: u16) -> String {
        let web = matches!(port, 80 | 443) && *self != Self::HostLoopback;
        if web { self.bracketed() } else { self.with_port(port) }
    }

    /// As rules write it, with the port.
    pub fn with_port(&self, port: u16) -> String {
        format!("{}:{port}", self.bracketed())
    }

    /// As rules write it, without a port.
    pub(super) fn bracketed(&self) -> String {
        match self {
            Self::Address(address) if address.is_ipv6() => format!("[{address}]"),
            Self::HostLoopback => "host".to_owned(),
            Self::Name(_) | Self::Address(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::HostLoopback => f.write_str(cowork_api::egress::HOST_NAME),
        }
    }
}

impl FromStr for Place {
    type Err = HostNameError;

    /// A name, an IPv4 address, or an IPv6 address with or without brackets.
    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(address) = inner.unwrap_or(text).parse::<IpAddr>() {
            let bracketed = inner.is_some();
            return if bracketed && address.is_ipv4() {
                Err(HostNameError::Character)
            } else {
                Ok(Self::Address(address.to_canonical()))
            };
        }
        let name: HostName = text.parse()?;
        if name.as_str() == cowork_api::egress::HOST_NAME {
            return Ok(Self::HostLoopback);
        }
        Ok(Self::Name(name))
    }
}

#[cfg(test)]
mod tests {
    use super::{HostName, HostNameError, Place};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_name_is_written_in_one_way() {
        let long = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)].join(".");
        let table = [
            ("example.com", "example.com"),
            ("EXAMPLE.Com", "example.com"),
            ("example.com.", "example.com"),
            ("_acme.x-1.example", "_acme.x-1.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
            ("1password.com", "1password.com"),
            (&long, &long),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), expected);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        use HostNameError as E;
        let long = "a.".repeat(127);
        let label = "a".repeat(64);
        let table = [
            ("", E::Empty),
            (".", E::Empty),
            ("..", E::EmptyLabel),
            (".a", E::EmptyLabel),
            ("a..b", E::EmptyLabel),
            ("a..", E::EmptyLabel),
            (&label, E::TooLong),
            (&format!("{long}bc"), E::TooLong),
            ("a b", E::Character),
            ("a\0.example", E::Character),
            ("bücher.example", E::Character),
            ("\u{430}pple.example", E::Character),
            ("a/b", E::Character),
            ("a:1", E::Character),
            ("a%2e.example", E::Character),
            ("*.example", E::Character),
            ("127.1", E::AmbiguousAddress),
            ("127.0.0.1.", E::AmbiguousAddress),
            ("2130706433", E::AmbiguousAddress),
            ("0x7f000001", E::AmbiguousAddress),
            ("0X7F.1", E::AmbiguousAddress),
            ("0177.0.0.01", E::AmbiguousAddress),
            ("example.0x1", E::AmbiguousAddress),
            ("example.0x", E::AmbiguousAddress),
        ];
        for (text, error) in table {
            assert_eq!(text.parse::<HostName>(), Err(error), "{text}");
            assert_eq!(text.parse::<Place>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_place_is_a_name_an_address_or_the_host() {
        let name = |text: &str| Place::Name(text.parse().unwrap());
        let four: IpAddr = Ipv4Addr::new(10, 0, 0, 1).into();
        let table = [
            ("a.example", name("a.example")),
            ("host", name("host")),
            ("Host.Cowork.Internal.", Place::HostLoopback),
            ("10.0.0.1", Place::Address(four)),
            ("::ffff:10.0.0.1", Place::Address(four)),
            ("[::ffff:a00:1]", Place::Address(four)),
            ("::1", Place::Address(Ipv6Addr::LOCALHOST.into())),
            ("[::1]", Place::Address(Ipv6Addr::LOCALHOST.into())),
        ];
        for (text, place) in table {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for text in ["[10.0.0.1]", "[::1", "::1]", "[a.example]", "fe80::1%eth0", "[]", "1.2.3.04"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(text in "[a-zA-Z0-9_.-]{0,20}") {
            let Ok(name) = text.parse::<HostName>() else { return Ok(()) };
            prop_assert_eq!(name.as_str().parse(), Ok(name.clone()));
            prop_assert!(!name.as_str().ends_with('.') && name.as_str().parse::<IpAddr>().is_err());
            let lower = |byte: u8| !byte.is_ascii_uppercase();
            prop_assert!(name.as_str().bytes().all(lower));
        }
    }
}
