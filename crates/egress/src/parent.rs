//! The proxy between the host and the world, where there is one.

use crate::dial::{Dialled, Reached, connect, ms_since, no_such_name};
use crate::office::Refusal;
use cowork_api::egress::{Hidden, Parent};
use cowork_policy::egress::{Exception, ExceptionError, Place};
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
    authorization: Option<Hidden>,
    except: Vec<Exception>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
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
        let tls = if parent.tls {
            let name = ServerName::try_from(parent.host.clone())
                .map_err(|error| format!("the parent proxy {:?}: {error}", parent.host))?;
            Some((connector(roots)?, name))
        } else {
            None
        };
        let except = parent.except.iter().map(|text| text.parse());
        let except = except.collect::<Result<_, ExceptionError>>();
        let except = except.map_err(|error| error.to_string())?;
        let authorization = parent.authorization.clone();
        Ok(Self { place, port: parent.port, authorization, except, tls })
    }

    /// Whether a port of a place is reached through the parent.
    pub(crate) fn serves(&self, place: &Place, port: u16) -> bool {
        let excepted = |except: &Exception| except.is_about(place, port);
        !matches!(place, Place::HostLoopback) && !self.except.iter().any(excepted)
    }

    /// Reaches a place through the parent. The parent itself is the host's choice: its address is
    /// not judged.
    pub(crate) async fn reach(&self, place: &Place, port: u16) -> Result<Dialled, Refusal> {
        let began = Instant::now();
        let addresses = match &self.place {
            Place::HostLoopback => vec![(Ipv4Addr::LOCALHOST, self.port).into()],
            Place::Address(address) => vec![(*address, self.port).into()],
            Place::Name(name) => tokio::net::lookup_host((name.as_str(), self.port))
                .await
                .map_err(|error| no_such_name(&self.place, &error))?
                .collect(),
        };
        let dns = matches!(&self.place, Place::Name(_)).then(|| ms_since(began));
        let asked = Instant::now();
        let Dialled { mut stream, reached } = connect(&self.place, addresses).await?;
        let failed = |error: io::Error| self.failed(&error);
        match &self.tls {
            None => self.ask(&mut stream, place, port).await.map_err(failed)??,
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), stream).await;
                let mut tls = tls.map_err(failed)?;
                self.ask(&mut tls, place, port).await.map_err(failed)??;
                stream = bridge(tls).await.map_err(failed)?;
            }
        }
        Ok(Dialled { stream, reached: Reached { dns, connect: ms_since(asked), ..reached } })
    }

    /// Asks the parent for a connection, and reads its answer to the end of its head.
    async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        place: &Place,
        port: u16,
    ) -> io::Result<Result<(), Refusal>> {
        let host = match place {
            Place::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            other => format!("{other}:{port}"),
        };
        let mut head = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        if let Some(Hidden(value)) = &self.authorization {
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
            Some(code) => Ok(Err(self.failed(&format!("it answers {code} for {host}")))),
            None => Err(io::Error::other("it does not answer in HTTP")),
        }
    }

    fn failed(&self, why: &impl std::fmt::Display) -> Refusal {
        let sentence = format!("the parent proxy {}:{}: {why}", self.place, self.port);
        Refusal::new("parent", sentence, "the user chose this proxy, and can choose another one")
    }
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
