//! What is here: the proxy that believes everything, and whoever listens on the host's own addresses.

use super::hear;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

/// The port on every address of the host where something listens.
const PORT: u16 = 80;

/// Begins to serve, and says so, with the port of the proxy.
pub(super) fn open() -> std::io::Result<()> {
    let proxy = crate::gullible::open(|head| hear("shown", head))?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    hear("house", buffer.get(..length).unwrap_or_default());
                    cowork_sys::ignore(stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n"));
                }
            });
        }
    });
    let mut output = std::io::stdout().lock();
    writeln!(output, "ready {proxy}")?;
    output.flush()
}
