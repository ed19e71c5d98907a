//! A proxy of the host that believes everything: what attacks on a session's way out win against.
//!
//! It takes `CONNECT`, requests in absolute form and SOCKS, connects wherever it is told to, in any
//! spelling, and routes a request by its `Host` header.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Serves forever; says its port. What requests begin with is logged as it is.
pub(crate) fn open(log: fn(&[u8])) -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || cowork_sys::ignore(serve(client, log)));
        }
    });
    Ok(port)
}

fn serve(mut client: TcpStream, log: fn(&[u8])) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut first = [0];
    client.read_exact(&mut first)?;
    match first {
        [5] => socks5(client),
        [4] => socks4(client),
        _ => http(client, first.to_vec(), log),
    }
}

/// One request after the other, each to where its `Host` says.
fn http(mut client: TcpStream, mut head: Vec<u8>, log: fn(&[u8])) -> std::io::Result<()> {
    loop {
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte)?;
            head.extend(byte);
        }
        log(&head);
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut words = text.split_whitespace();
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if method == "CONNECT" {
            let upstream = TcpStream::connect(find(target)?)?;
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            return join(client, upstream);
        }
        let host = text.lines().find_map(|line| line.strip_prefix("Host: "));
        let host = host.map_or_else(|| authority(target), ToOwned::to_owned);
        let host = if host.contains(':') { host } else { format!("{host}:80") };
        let mut upstream = TcpStream::connect(find(&host)?)?;
        upstream.write_all(&head)?;
        client.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
        head.clear();
    }
}

/// The host and port of an absolute form, behind whatever is before an `@`.
fn authority(target: &str) -> String {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    authority.rsplit('@').next().unwrap_or(authority).to_owned()
}

fn socks5(mut client: TcpStream) -> std::io::Result<()> {
    let mut count = [0];
    client.read_exact(&mut count)?;
    let mut methods = vec![0; count[0].into()];
    client.read_exact(&mut methods)?;
    client.write_all(&[5, 0])?;
    let mut head = [0; 4];
    client.read_exact(&mut head)?;
    let host = match head[3] {
        1 => {
            let mut address = [0; 4];
            client.read_exact(&mut address)?;
            Ipv4Addr::from(address).to_string()
        }
        4 => {
            let mut address = [0; 16];
            client.read_exact(&mut address)?;
            format!("[{}]", std::net::Ipv6Addr::from(address))
        }
        _ => {
            client.read_exact(&mut count)?;
            let mut name = vec![0; count[0].into()];
            client.read_exact(&mut name)?;
            String::from_utf8_lossy(&name).into_owned()
        }
    };
    let mut port = [0; 2];
    client.read_exact(&mut port)?;
    let upstream = TcpStream::connect(find(&format!("{host}:{}", u16::from_be_bytes(port)))?)?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    join(client, upstream)
}

fn socks4(mut client: TcpStream) -> std::io::Result<()> {
    let mut head = [0; 7];
    client.read_exact(&mut head)?;
    let mut byte = [1];
    while byte != [0] {
        client.read_exact(&mut byte)?;
    }
    let port = u16::from_be_bytes([head[1], head[2]]);
    let address = Ipv4Addr::new(head[3], head[4], head[5], head[6]);
    let upstream = TcpStream::connect((address, port))?;
    client.write_all(&[0, 90, 0, 0, 0, 0, 0, 0])?;
    join(client, upstream)
}

/// Where a spelling leads, as the most obliging programs see it.
fn find(host: &str) -> std::io::Result<SocketAddr> {
    let nowhere = || std::io::Error::other(format!("`{host}` leads nowhere"));
    let (name, port) = host.rsplit_once(':').ok_or_else(nowhere)?;
    let port: u16 = port.parse().map_err(|_none| nowhere())?;
    // To some, a name begins behind an `@`, and ends with what divides a URL, or with a NUL.
    let name = name.rsplit('@').next().unwrap_or(name);
    let name = name.split(['\0', '/', '\\', '#', '?']).next().unwrap_or(name);
    // What is in no alphabet of names is left out, as some do that write names for people.
    let plain: String = name.chars().filter(char::is_ascii).collect();
    let name = plain.trim_end_matches('.').trim_matches(['[', ']']);
    if name == cowork_api::egress::HOST_NAME {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok((address.to_canonical(), port).into());
    }
    if let Some(address) = loose(name) {
        return Ok((address, port).into());
    }
    (name, port).to_socket_addrs()?.next().ok_or_else(nowhere)
}

/// An IPv4 address as `inet_aton` reads it.
fn loose(name: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| {
        let hexadecimal = part.strip_prefix("0x");
        match (hexadecimal, part.strip_prefix('0')) {
            (Some(rest), _) => u32::from_str_radix(rest, 16).ok(),
            (None, Some(rest)) if !rest.is_empty() => u32::from_str_radix(rest, 8).ok(),
            _ => part.parse().ok(),
        }
    };
    let parts: Vec<u32> = name.split('.').map(number).collect::<Option<_>>()?;
    let (last, leading) = parts.split_last()?;
    let mut address = *last;
    for (part, shift) in leading.iter().zip([24, 16, 8]) {
        address |= part.checked_shl(shift)?;
    }
    Some(address.into())
}

fn join(client: TcpStream, upstream: TcpStream) -> std::io::Result<()> {
    let (mut reads, mut writes) = (client.try_clone()?, upstream.try_clone()?);
    let there = std::thread::spawn(move || {
        cowork_sys::ignore(std::io::copy(&mut reads, &mut writes));
        cowork_sys::ignore(writes.shutdown(Shutdown::Write));
    });
    let (mut reads, mut writes) = (upstream, client);
    cowork_sys::ignore(std::io::copy(&mut reads, &mut writes));
    cowork_sys::ignore(there.join());
    Ok(())
}
