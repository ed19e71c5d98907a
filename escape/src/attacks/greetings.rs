//! What TLS carries before anybody has answered, and addresses of the newer kind.
//!
//! The greetings are written by hand: no library sends them so. What they carry beside the name of an
//! allowed host must not get past where that host's rule has connections looked into.

use super::web::{FRONTED, by_proxy, elsewhere, hello};
use crate::attack::Attack;
use crate::scene::{Lost, Outcome, Scene};
use crate::tongue::{dial, dial_address, exchange, verdict};
use crate::town::OTHER_6;
use std::io::{Read, Write};
use std::time::Duration;

/// An extension of a greeting: its number and what is in it.
type Extension<'a> = (u16, &'a [u8]);

const SERVER_NAME: u16 = 0;
const EARLY_DATA: u16 = 42;
const ENCRYPTED_GREETING: u16 = 0xfe0d;
/// TLS 1.3, one group, one signature, a share of that group.
const USUAL: [Extension<'_>; 4] = [
    (43, &[2, 3, 4]),
    (10, &[0, 2, 0, 29]),
    (13, &[0, 2, 4, 3]),
    (
        51,
        &[
            0, 36, 0, 29, 0, 32, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
            9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
        ],
    ),
];

pub(crate) const TABLE: &[Attack] = &[
    hello("tls.encrypted-greeting-looked-into", |scene| encrypted(scene, "looked.example")),
    hello("tls.encrypted-greeting-in-a-tunnel", |scene| encrypted(scene, "open.example"))
        .permitted(FRONTED),
    hello("tls.early-data-looked-into", |scene| early(scene, "looked.example")),
    hello("tls.early-data-in-a-tunnel", |scene| early(scene, "open.example")).permitted(FRONTED),
    elsewhere("literal.six", |scene| {
        let text = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", scene.token()?);
        let mut stream = dial_address((OTHER_6, 80).into())?;
        verdict(&exchange(&mut stream, text.as_bytes())?)
    }),
    elsewhere("literal.six-by-proxy", |scene| by_proxy(scene, &format!("[{OTHER_6}]"))),
];

/// The token where another greeting would be, which only the host could read.
fn encrypted(scene: &Scene, host: &str) -> Outcome {
    let token = scene.token()?.as_bytes();
    // The outer one; how it is encrypted; for which key; a share of 32 bytes; what is encrypted.
    let head = [&[0, 0, 1, 0, 1, 7, 0, 32][..], &[8; 32]].concat();
    let inner = [&head[..], &number(token.len())?, token].concat();
    say(host, &greeting(host, &[(ENCRYPTED_GREETING, &inner)])?)
}

/// The token behind a greeting, before it is answered.
fn early(scene: &Scene, host: &str) -> Outcome {
    let token = scene.token()?.as_bytes();
    let greeting = greeting(host, &[(EARLY_DATA, &[])])?;
    say(host, &[&greeting[..], &[23, 3, 3], &number(token.len())?, token].concat())
}

/// Says it, and waits for whoever answers.
fn say(host: &str, greeting: &[u8]) -> Outcome {
    let mut stream = dial(host, 443)?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    stream.write_all(greeting)?;
    cowork_sys::ignore(stream.read(&mut [0; 256]));
    Err(Lost::new("refused: it was answered on the way"))
}

/// A greeting of TLS 1.3 to a host.
fn greeting(host: &str, more: &[Extension<'_>]) -> Result<Vec<u8>, Lost> {
    let length = number(host.len())?;
    let name = [&[0][..], &length, host.as_bytes()].concat();
    let names = [&number(name.len())?[..], &name].concat();
    let mut extensions = Vec::new();
    for (kind, inside) in [(SERVER_NAME, &names[..])].iter().chain(&USUAL).chain(more) {
        extensions.extend([&kind.to_be_bytes()[..], &number(inside.len())?, inside].concat());
    }
    // A version, a random number, a session, a cipher, no compression.
    let head = [&[3, 3][..], &[5; 32], &[32], &[6; 32], &[0, 2, 19, 1, 1, 0]].concat();
    let message = [&head[..], &number(extensions.len())?, &extensions].concat();
    let message = [&[1, 0][..], &number(message.len())?, &message].concat();
    Ok([&[22, 3, 1][..], &number(message.len())?, &message].concat())
}

/// A length, as TLS writes it.
fn number(length: usize) -> Result<[u8; 2], Lost> {
    let length = u16::try_from(length).map_err(|_long| Lost::new("too long for TLS"))?;
    Ok(length.to_be_bytes())
}
