//! What attacks speak to servers: plain connections, TLS that believes any certificate, frames of
//! HTTP/2 written by hand, and questions for names.

use crate::scene::{Lost, Outcome};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    SignatureScheme, StreamOwned,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to a host by its name, as any program makes one.
pub(crate) fn dial(host: &str, port: u16) -> Result<TcpStream, Lost> {
    let missing = |_error| Lost::new(format!("no such name: {host}"));
    let mut addresses = (host, port).to_socket_addrs().map_err(missing)?;
    let address = addresses.find(SocketAddr::is_ipv4).ok_or_else(|| Lost::new("no address"))?;
    dial_address(address)
}

/// A connection to an address.
pub(crate) fn dial_address(address: SocketAddr) -> Result<TcpStream, Lost> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// How TLS is begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting<'a> {
    /// The host that it names; nobody if it is empty.
    pub(crate) name: &'a str,
    /// The protocol that it offers.
    pub(crate) protocol: &'static [u8],
    /// The most bytes of a record.
    pub(crate) record: Option<usize>,
    /// Whom a certificate of the client's own names, if it has one.
    pub(crate) certificate: Option<&'a str>,
}

impl<'a> Greeting<'a> {
    /// A usual one.
    pub(crate) fn to(name: &'a str) -> Self {
        Self { name, protocol: b"http/1.1", record: None, certificate: None }
    }

    /// Begins TLS on a connection.
    pub(crate) fn over<S: Read + Write>(
        self,
        mut stream: S,
    ) -> Result<StreamOwned<ClientConnection, S>, Lost> {
        let failed = |error: Error| Lost::new(format!("refused in TLS: {error}"));
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Believer(Arc::clone(&provider)));
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().map_err(failed)?;
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match self.certificate {
            None => config.with_no_client_auth(),
            Some(name) => {
                let (certificate, key) = own_certificate(name)?;
                config.with_client_auth_cert(vec![certificate], key).map_err(failed)?
            }
        };
        config.alpn_protocols = vec![self.protocol.to_vec()];
        config.max_fragment_size = self.record;
        config.enable_sni = !self.name.is_empty();
        let name = if self.name.is_empty() { "open.example" } else { self.name };
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_invalid| Lost::new("no name for TLS"))?;
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
        while connection.is_handshaking() {
            let done = connection.complete_io(&mut stream);
            done.map_err(|error| Lost::new(format!("refused in TLS: {error}")))?;
        }
        Ok(StreamOwned::new(connection, stream))
    }
}

/// A certificate that nobody vouches for, and its key.
fn own_certificate(name: &str) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Lost> {
    let failed = |error: rcgen::Error| Lost::new(format!("no certificate: {error}"));
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((certificate.der().clone(), PrivateKeyDer::Pkcs8(key)))
}

/// Whoever believes any certificate.
#[derive(Debug)]
pub(crate) struct Believer(Arc<CryptoProvider>);

impl Believer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Arc::new(ring::default_provider())))
    }
}

impl ClientCertVerifier for Believer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Writes a text one byte at a time, each in a segment of its own.
#[derive(Debug)]
pub(crate) struct Drips(pub(crate) TcpStream);

impl Read for Drips {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Drips {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.write(bytes.get(..1).unwrap_or_default())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Sends something, and reads what comes back: all of an answer of HTTP/1.1.
pub(crate) fn exchange(stream: &mut (impl Read + Write), text: &[u8]) -> Result<Vec<u8>, Lost> {
    stream.write_all(text)?;
    stream.flush()?;
    read_answer(stream)
}

/// Reads one answer of HTTP/1.1, or what there is of it.
pub(crate) fn read_answer(stream: &mut impl Read) -> Result<Vec<u8>, Lost> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(length @ 1..) => all.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if all.is_empty() => return Err(error.into()),
            Ok(_) | Err(_) => return Ok(all),
        }
        if is_whole(&all) {
            return Ok(all);
        }
    }
}

fn is_whole(all: &[u8]) -> bool {
    let text = String::from_utf8_lossy(all).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    body.len() >= length
}

/// What an answer of HTTP/1.1 says: whether the request was served.
pub(crate) fn verdict(answer: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.lines();
    let status = lines.next().unwrap_or("nothing").to_owned();
    let code = lines.find_map(|line| line.strip_prefix("x-cowork-deny: "));
    let good = [" 101", " 200", " 204", " 302", " 500"];
    if good.iter().any(|good| status.contains(good)) {
        return Ok(status);
    }
    Err(Lost::new(format!("refused: {status} {}", code.unwrap_or_default())))
}

/// A request of HTTP/2 on a connection in which nothing was said: its pseudo-headers and headers, in
/// this order. `Ok` says that it was answered with 200.
pub(crate) fn ask_two(stream: &mut (impl Read + Write), requests: &[&[(&str, &str)]]) -> Outcome {
    let mut text = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    text.extend(frame(4, 0, 0, &[]));
    for (number, headers) in requests.iter().enumerate() {
        let block: Vec<u8> =
            headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
        // END_STREAM and END_HEADERS.
        text.extend(frame(1, 5, number as u32 * 2 + 1, &block));
    }
    stream.write_all(&text)?;
    stream.flush()?;
    hear_two(stream, (requests.len() as u32).saturating_sub(1) * 2 + 1)
}

/// A request of HTTP/2 in padded frames: its headers with this behind them, and its body, if it has one,
/// with the same behind it. `Ok` says that it was answered with 200.
pub(crate) fn ask_two_padded(
    stream: &mut (impl Read + Write),
    headers: &[(&str, &str)],
    body: Option<&str>,
    padding: &[u8],
) -> Outcome {
    let length =
        u8::try_from(padding.len()).map_err(|_long| Lost::new("more than a frame pads"))?;
    let mut text = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    text.extend(frame(4, 0, 0, &[]));
    let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
    let padded = |content: &[u8]| [&[length], content, padding].concat();
    // PADDED and END_HEADERS, and END_STREAM on what comes last.
    text.extend(frame(1, if body.is_some() { 12 } else { 13 }, 1, &padded(&block)));
    if let Some(body) = body {
        text.extend(frame(0, 9, 1, &padded(body.as_bytes())));
    }
    stream.write_all(&text)?;
    stream.flush()?;
    hear_two(stream, 1)
}

/// Hears what becomes of a request of HTTP/2.
fn hear_two(stream: &mut impl Read, last: u32) -> Outcome {
    let mut head = [0; 9];
    loop {
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, _, stream_id @ ..] = head;
        let mut body = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut body)?;
        let number = u32::from_be_bytes(stream_id);
        match kind {
            // `:status: 200` has an index of its own.
            1 if number == last && body.contains(&0x88) => return Ok("200".into()),
            1 if number == last => return Err(Lost::new("refused: another status than 200")),
            3 if number == last => return Err(Lost::new("refused: the stream was reset")),
            7 => return Err(Lost::new("refused: the connection was ended")),
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], body].concat()
}

/// A header that is never indexed, in plain bytes.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        // Lengths from 127 on take more bytes than one.
        let length = text.len().min(126) as u8;
        [&[length], text.as_bytes().get(..length.into()).unwrap_or_default()].concat()
    };
    [vec![0x10], text(name), text(value)].concat()
}

/// A question for a name, given as its labels.
pub(crate) fn question(labels: &[&[u8]], kind: u16) -> Vec<u8> {
    let mut question = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        question.push(label.len() as u8);
        question.extend_from_slice(label);
    }
    question.push(0);
    question.extend(kind.to_be_bytes());
    question.extend([0, 1]);
    question
}
