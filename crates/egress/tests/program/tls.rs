//! Servers of the tests that speak TLS.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Vouches for servers called `localhost`.
pub(crate) struct Authority {
    root: Vec<u8>,
    config: Arc<rustls::ServerConfig>,
}

/// A server, and the heads of requests that came.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) heads: mpsc::Receiver<String>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "tests");
        let root = authority.self_signed(&key).unwrap().der().to_vec();
        let issuer = Issuer::new(authority, key);
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        Self { root, config: Arc::new(config) }
    }

    /// The certificate that clients verify servers by.
    pub(crate) fn root(&self) -> Vec<u8> {
        self.root.clone()
    }

    /// A server on the loopback. `answer` gets the head of each request, and gives what is answered
    /// and the port of the loopback that the connection then leads to, if it goes on.
    pub(crate) fn serve(
        &self,
        answer: impl Fn(&str) -> (Vec<u8>, Option<u16>) + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, heads) = mpsc::channel();
        let (config, answer) = (Arc::clone(&self.config), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let connection = rustls::ServerConnection::new(config).unwrap();
                    let mut tls = rustls::StreamOwned::new(connection, stream);
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") {
                        match tls.read(&mut byte) {
                            Ok(1) => head.push(byte[0]),
                            _ => return,
                        }
                    }
                    let head = String::from_utf8(head).unwrap();
                    sender.send(head.clone()).unwrap();
                    let (bytes, port) = answer(&head);
                    tls.write_all(&bytes).unwrap();
                    if let Some(port) = port {
                        carry(tls, port);
                    } else {
                        tls.conn.send_close_notify();
                        drop(tls.flush());
                    }
                });
            }
        });
        Server { port, heads }
    }
}

/// Carries bytes both ways, in turns.
fn carry(mut tls: rustls::StreamOwned<rustls::ServerConnection, TcpStream>, port: u16) {
    let pause = Some(Duration::from_millis(2));
    let mut far = TcpStream::connect(("127.0.0.1", port)).unwrap();
    far.set_read_timeout(pause).unwrap();
    tls.sock.set_read_timeout(pause).unwrap();
    let mut buffer = vec![0; 65536];
    let later = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
    };
    loop {
        match tls.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => far.write_all(&buffer[..read]).unwrap(),
            Err(error) if later(&error) => {}
            Err(_) => return,
        }
        match far.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                tls.sock.set_read_timeout(None).unwrap();
                if tls.write_all(&buffer[..read]).is_err() {
                    return;
                }
                tls.sock.set_read_timeout(pause).unwrap();
            }
            Err(error) if later(&error) => {}
            Err(_) => return,
        }
    }
}
