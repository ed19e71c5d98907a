//! The proxy between the host and the world, where there is one.
//!
//! A proxy of HTTP leads to a port (`CONNECT`), or is asked for plain requests one by one, with the
//! whole URL: many lead to port 443 only. A proxy of SOCKS leads to every port.

mod socks;

use crate::dial::{Dialled, Reached, connect, ms_since};
use crate::lookup::look_up;
use crate::office::Refusal;
use cowork_api::egress::{Hidden, Parent, Socks};
use cowork_policy::egress::{Exception, ExceptionError, Place};
use http::HeaderValue;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// Longest answer of a parent to `CONNECT`.
const MAX_ANSWER: usize = 16 * 1024;

/// A proxy that everything goes through.
pub(crate) struct ParentProxy {
    place: Place,
    port: u16,
    except: Vec<Exception>,
    speech: Speech,
}

/// What is spoken to a proxy.
enum Speech {
    Http { authorization: Option<Hidden>, tls: Option<(TlsConnector, ServerName<'static>)> },
    Socks(Socks),
}

impl std::fmt::Debug for ParentProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParentProxy({}:{})", self.place, self.port)
    }
}

impl ParentProxy {
    pub(crate) fn new(parent: &Parent, roots: &[Vec<u8>]) -> Result<Self, String> {
        let place: Place = parent
            .host
            .parse()
            .map_err(|error| format!("the parent proxy {:?} is no host: {error}", parent.host))?;
        let speech = match &parent.socks {
            Some(socks) => Speech::Socks(socks.clone()),
            None => Speech::Http {
                authorization: parent.authorization.clone(),
                tls: if parent.tls { Some(tls(parent, roots)?) } else { None },
            },
        };
        let except = parent.except.iter().map(|text| text.parse());
        let except = except.collect::<Result<_, ExceptionError>>();
        let except = except.map_err(|error| error.to_string())?;
        Ok(Self { place, port: parent.port, except, speech })
    }

    /// Whether a port of a place is reached through the parent.
    pub(crate) fn serves(&self, place: &Place, port: u16) -> bool {
        let excepted = |except: &Exception| except.is_about(place, port);
        !matches!(place, Place::HostLoopback) && !self.except.iter().any(excepted)
    }

    /// Whether plain requests are sent to it one by one.
    pub(crate) fn forwards(&self) -> bool {
        matches!(self.speech, Speech::Http { .. })
    }

    /// What a request that is sent to it shows as `Proxy-Authorization`, if anything.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let Speech::Http { authorization: Some(Hidden(value)), .. } = &self.speech else {
            return None;
        };
        let mut value = HeaderValue::from_bytes(value).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Reaches a place through the parent.
    pub(crate) async fn reach(&self, place: &Place, port: u16) -> Result<Dialled, Refusal> {
        let began = Instant::now();
        let Dialled { mut stream, reached } = self.open().await?;
        let asked = match &self.speech {
            Speech::Http { authorization, .. } => {
                self.ask(&mut stream, authorization.as_ref(), place, port).await
            }
            Speech::Socks(login) => {
                let asked = socks::ask(&mut stream, login, place, port).await;
                asked.map(|led| led.map_err(|why| self.failed(&why)))
            }
        };
        asked.map_err(|error: io::Error| self.failed(&error))??;
        let looked_up = reached.dns.unwrap_or_default();
        let connect = ms_since(began).saturating_sub(looked_up);
        Ok(Dialled { stream, reached: Reached { connect, ..reached } })
    }

    /// Reaches the parent itself. It is the host's choice: its address is not judged.
    pub(crate) async fn open(&self) -> Result<Dialled, Refusal> {
        let began = Instant::now();
        let addresses = match &self.place {
            Place::HostLoopback => vec![(Ipv4Addr::LOCALHOST, self.port).into()],
            Place::Address(address) => vec![(*address, self.port).into()],
            Place::Name(name) => look_up(&self.place, name.as_str(), self.port).await?,
        };
        let dns = matches!(&self.place, Place::Name(_)).then(|| ms_since(began));
        let asked = Instant::now();
        let Dialled { mut stream, reached } = connect(&self.place, addresses).await?;
        if let Speech::Http { tls: Some((connector, name)), .. } = &self.speech {
            let failed = |error: io::Error| self.failed(&error);
            let tls = connector.connect(name.clone(), stream).await.map_err(failed)?;
            stream = bridge(tls).await.map_err(failed)?;
        }
        Ok(Dialled { stream, reached: Reached { dns, connect: ms_since(asked), ..reached } })
    }

    /// Asks the parent for a connection, and reads its answer to the end of its head.
    async fn ask(
        &self,
        stream: &mut TcpStream,
        authorization: Option<&Hidden>,
        place: &Place,
        port: u16,
    ) -> io::Result<Result<(), Refusal>> {
        let host = match place {
            Place::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            other => format!("{other}:{port}"),
        };
        let mut head = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        if let Some(Hidden(value)) = authorization {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        // Byte by byte: what follows the head belongs to the connection.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_ANSWER {
                return Err(io::Error::other("its answer is too long"));
            }
            answer.push(stream.read_u8().await?);
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut headers);
        if parsed.parse(&answer).is_err() {
            return Err(io::Error::other("it does not answer in HTTP"));
        }
        match parsed.code {
            Some(200..=299) => Ok(Ok(())),
            Some(code @ (403 | 405)) => Ok(Err(self.leads_nowhere(code, &host, port))),
            Some(code) => Ok(Err(self.failed(&format!("it answers {code} for {host}")))),
            None => Err(io::Error::other("it does not answer in HTTP")),
        }
    }

    /// It does not lead there, although it could.
    fn leads_nowhere(&self, code: u16, host: &str, port: u16) -> Refusal {
        let Self { place, port: own, .. } = self;
        let sentence =
            format!("the parent proxy {place}:{own} refuses to lead to {host} (CONNECT: {code})");
        let hint = match port {
            443 => "whoever runs this proxy decides what it leads to",
            80 => "plain HTTP passes where it is looked into, or by way of HTTP_PROXY",
            _ => "many such proxies lead to port 443 only; whoever runs this one decides",
        };
        Refusal::new("parent-connect", sentence, hint)
    }

    /// It wants to know who comes, and what it was told is not enough.
    pub(crate) fn is_shut(&self) -> Refusal {
        self.failed(&"it wants another user and password (407)")
    }

    fn failed(&self, why: &impl std::fmt::Display) -> Refusal {
        let sentence = format!("the parent proxy {}:{}: {why}", self.place, self.port);
        Refusal::new("parent", sentence, "the user chose this proxy, and can choose another one")
    }
}

fn tls(parent: &Parent, roots: &[Vec<u8>]) -> Result<(TlsConnector, ServerName<'static>), String> {
    let name = ServerName::try_from(parent.host.clone())
        .map_err(|error| format!("the parent proxy {:?}: {error}", parent.host))?;
    Ok((connector(roots)?, name))
}

/// Speaks TLS to a parent that is verified by the host's authorities and those given.
fn connector(roots: &[Vec<u8>]) -> Result<TlsConnector, String> {
    let mut store = rustls::RootCertStore::empty();
    let own = rustls_native_certs::load_native_certs().certs;
    store.add_parsable_certificates(own);
    store.add_parsable_certificates(roots.iter().map(|root| root.clone().into()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Makes a plain connection out of one inside TLS: a task carries between both.
async fn bridge<S>(tls: S) -> io::Result<TcpStream>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let ours = TcpStream::connect(listener.local_addr()?).await?;
    let theirs = loop {
        // Anybody on this host may connect in between: only our own end counts.
        let (stream, from) = listener.accept().await?;
        if from == ours.local_addr()? {
            break stream;
        }
    };
    cowork_sys::ignore(ours.set_nodelay(true));
    cowork_sys::ignore(theirs.set_nodelay(true));
    tokio::spawn(async move {
        let (mut tls, mut theirs) = (tls, theirs);
        cowork_sys::ignore(tokio::io::copy_bidirectional(&mut tls, &mut theirs).await);
    });
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::ParentProxy;
    use cowork_api::egress::Parent;

    #[test]
    fn what_is_excepted_is_reached_directly() {
        let parent = Parent {
            host: "proxy.example".into(),
            port: 8080,
            tls: false,
            authorization: None,
            except: [".corp.example", "one.example:8443", "10.0.0.0/8"].map(String::from).to_vec(),
            socks: None,
        };
        let parent = ParentProxy::new(&parent, &[]).unwrap();
        for (place, port, serves) in [
            ("example.com", 443, true),
            ("a.corp.example", 443, false),
            ("one.example", 8443, false),
            ("one.example", 443, true),
            ("10.1.2.3", 22, false),
            ("host.cowork.internal", 80, false),
        ] {
            assert_eq!(parent.serves(&place.parse().unwrap(), port), serves, "{place}");
        }
    }
}
