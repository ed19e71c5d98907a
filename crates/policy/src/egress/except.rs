//! What is reached without the proxy between the host and the world, as `NO_PROXY` writes it.
//!
//! `*` is everything, `example.com`, `.example.com` and `*.example.com` are a name with all below it,
//! `10.0.0.0/8` and `::1` are addresses; `:8080` behind a name or an address is about that port alone.

use super::address::contains;
use super::{HostName, Place};
use cowork_api::egress::Network;
use std::net::IpAddr;
use std::str::FromStr;

/// One part of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    what: What,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Everything,
    /// A name and all below it.
    Domain(String),
    Network(Network),
}

/// A text that excepts nothing from a proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is nothing that is reached without a proxy: write a name, an address or a range of \
     addresses, with `:port` if it is about one port"
)]
pub struct ExceptionError {
    text: String,
}

impl Exception {
    /// Whether a port of a place is reached without the proxy.
    pub fn is_about(&self, place: &Place, port: u16) -> bool {
        let there = match (&self.what, place) {
            (What::Everything, _) => true,
            (What::Domain(domain), Place::Name(name)) => {
                let below = |rest: &str| rest.is_empty() || rest.ends_with('.');
                name.as_str().strip_suffix(domain.as_str()).is_some_and(below)
            }
            (What::Network(network), Place::Address(address)) => contains(network, *address),
            (What::Domain(_) | What::Network(_), _) => false,
        };
        there && self.port.is_none_or(|only| only == port)
    }
}

impl FromStr for Exception {
    type Err = ExceptionError;

    fn from_str(text: &str) -> Result<Self, ExceptionError> {
        let text = text.trim();
        let wrong = || ExceptionError { text: text.to_owned() };
        if text == "*" {
            return Ok(Self { what: What::Everything, port: None });
        }
        if let Some(what) = network(text) {
            return Ok(Self { what, port: None });
        }
        let (place, port) = match text.rsplit_once(':') {
            // The last colon of an address in brackets is its own.
            Some((place, port)) if !port.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (place, Some(port.ok_or_else(wrong)?))
            }
            _ => (text, None),
        };
        let bare = place.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(what) = network(bare.unwrap_or(place)) {
            return Ok(Self { what, port });
        }
        let name = place.trim_start_matches("*.").trim_start_matches('.');
        let name: HostName = name.parse().map_err(|_cause| wrong())?;
        Ok(Self { what: What::Domain(name.as_str().to_owned()), port })
    }
}

fn network(text: &str) -> Option<What> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(whole);
    (bits <= whole).then_some(What::Network(Network { address, bits }))
}

#[cfg(test)]
mod tests {
    use super::Exception;

    #[test]
    fn names_addresses_and_ports_are_read() {
        for (text, place, port, is) in [
            ("*", "example.com", 443, true),
            (".corp.example", "corp.example", 80, true),
            ("corp.example", "a.corp.example", 80, true),
            ("*.corp.example", "notcorp.example", 80, false),
            ("corp.example:8080", "a.corp.example", 8080, true),
            ("corp.example:8080", "a.corp.example", 443, false),
            (" .corp.example:443 ", "corp.example", 443, true),
            ("10.0.0.0/8", "10.1.2.3", 22, true),
            ("10.0.0.0/8", "11.1.2.3", 22, false),
            ("10.1.2.3:22", "10.1.2.3", 22, true),
            ("10.1.2.3:22", "10.1.2.3", 23, false),
            ("::1", "::1", 80, true),
            ("[::1]", "::1", 80, true),
            ("[::1]:80", "::1", 80, true),
            ("[::1]:80", "::1", 81, false),
        ] {
            let exception: Exception = text.parse().unwrap();
            assert_eq!(exception.is_about(&place.parse().unwrap(), port), is, "{text} {place}");
        }
    }

    #[test]
    fn what_excepts_nothing_is_refused() {
        for text in
            ["what is this", "corp.example:", "corp.example:x", "a:0", "a:70000", "10.0.0.0/33"]
        {
            let error = text.parse::<Exception>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
