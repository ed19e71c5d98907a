//! The proxy between the host and the world, as a person writes it: a URL, as other programs know it
//! from `HTTPS_PROXY` and `NO_PROXY`.
//!
//! What is wrong is never shown in full: there may be a password in it.

use cowork_api::egress::{Hidden, Parent, Socks};
use cowork_policy::egress::Exception;

/// Most bytes of a user or a password of SOCKS (RFC 1929).
const MAX_SOCKS: usize = 255;

/// What a proxy is spoken to in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Socks,
}

/// The proxy that `http://user:password@host:port` names, or `https://…`, or `socks5h://…`. In the user
/// and the password `%40` stands for `@`, and so on.
pub(crate) fn parent(proxy: &str, except: &str) -> Result<Parent, String> {
    let wrong = || {
        "the parent proxy is not `http://host:port`, `https://host:port` or `socks5h://host:port`"
            .to_owned()
    };
    let (scheme, rest) = proxy.split_once("://").ok_or_else(wrong)?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        "socks5h" => Scheme::Socks,
        "socks5" => {
            return Err("the parent proxy looks names up itself: write `socks5h://` in place of \
                        `socks5://`"
                .to_owned());
        }
        _ => return Err(wrong()),
    };
    let rest = rest.trim_end_matches('/');
    let (who, place) = match rest.rsplit_once('@') {
        Some((who, place)) => (Some(login(who)?), place),
        None => (None, rest),
    };
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(wrong());
    }
    let except: Vec<String> =
        except.split(',').map(str::trim).filter(|e| !e.is_empty()).map(Into::into).collect();
    for one in &except {
        one.parse::<Exception>().map_err(|error| error.to_string())?;
    }
    let (authorization, socks) = match scheme {
        Scheme::Http | Scheme::Https => (who.map(basic), None),
        Scheme::Socks => (None, Some(socks(who)?)),
    };
    Ok(Parent {
        host: host.to_owned(),
        port: port.parse().map_err(|_no_port| wrong())?,
        tls: scheme == Scheme::Https,
        authorization,
        except,
        socks,
    })
}

/// The user and the password of `user:password`.
fn login(who: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    let unescaped = |text| {
        unescape(text).ok_or_else(|| {
            "in the user and the password of the parent proxy, `%` stands before two hexadecimal \
             digits: write `%25` for `%` itself"
                .to_owned()
        })
    };
    Ok((unescaped(user)?, unescaped(password)?))
}

fn basic((user, password): (Vec<u8>, Vec<u8>)) -> Hidden {
    use base64::Engine as _;
    let coded = base64::engine::general_purpose::STANDARD.encode([user, password].join(&b':'));
    Hidden(format!("Basic {coded}").into_bytes())
}

fn socks(who: Option<(Vec<u8>, Vec<u8>)>) -> Result<Socks, String> {
    let Some((user, password)) = who else { return Ok(Socks::default()) };
    let fits = |text: &[u8]| (1..=MAX_SOCKS).contains(&text.len());
    if !fits(&user) || !fits(&password) {
        return Err(format!(
            "the user and the password of a SOCKS proxy have 1 to {MAX_SOCKS} bytes each"
        ));
    }
    Ok(Socks { user: Hidden(user), password: Hidden(password) })
}

/// A text without its escapes; nothing where one of them is none.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::parent;

    #[test]
    fn a_parent_proxy_is_read() {
        let read = parent("http://me:secret@proxy.example:3128/", "a.example, b").unwrap();
        assert_eq!((read.host.as_str(), read.port, read.tls), ("proxy.example", 3128, false));
        assert_eq!(read.authorization.unwrap().0, b"Basic bWU6c2VjcmV0");
        assert_eq!(read.except, ["a.example", "b"]);
        let read = parent("https://[2001:db8::1]:3128", "").unwrap();
        assert_eq!((read.host.as_str(), read.tls), ("2001:db8::1", true));
        for bad in ["proxy", "ftp://proxy:1", "http://proxy", "http://proxy:x", "http://:1"] {
            assert!(parent(bad, "").is_err(), "{bad}");
        }
        let read = parent("http://proxy:1", "a.example:8443,10.0.0.0/8").unwrap();
        assert_eq!(read.except, ["a.example:8443", "10.0.0.0/8"]);
        let refused = parent("http://proxy:1", "a.example, b.example:x").unwrap_err();
        assert!(refused.starts_with("\"b.example:x\" is nothing that is reached"), "{refused}");
    }

    #[test]
    fn who_comes_may_be_written_with_escapes() {
        let read = parent("http://us%3Aer:p%40ss%2f@proxy:1", "").unwrap();
        // us:er:p@ss/
        assert_eq!(read.authorization.unwrap().0, b"Basic dXM6ZXI6cEBzcy8=");
        for bad in ["http://me:100%@proxy:1", "http://me:%4@proxy:1", "http://%zz:a@proxy:1"] {
            let refused = parent(bad, "").unwrap_err();
            assert!(refused.contains("%25") && !refused.contains("proxy:1"), "{refused}");
        }
    }

    #[test]
    fn a_proxy_of_socks_is_read() {
        let read = parent("socks5h://me:p%40ss@proxy.example:1080", "*.corp.example").unwrap();
        let socks = read.socks.unwrap();
        assert_eq!(
            (socks.user.0.as_slice(), socks.password.0.as_slice()),
            (&b"me"[..], &b"p@ss"[..])
        );
        assert!(read.authorization.is_none() && !read.tls);
        let nobody = parent("socks5h://proxy:1", "").unwrap().socks.unwrap();
        assert!(nobody.user.0.is_empty() && nobody.password.0.is_empty());
        let refused = parent("socks5://proxy:1", "").unwrap_err();
        assert!(refused.contains("socks5h"), "{refused}");
        assert!(parent("socks5h://me@proxy:1", "").is_err());
    }
}
