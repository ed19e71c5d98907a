//! Which sockets can be made at all.

use crate::attack::{Attack, layer};
use crate::raw::{call, flags, open_by, signed};
use crate::scene::{Lost, Outcome, Scene};

const CLASS: &str = "sockets";
const NO_FAMILY: &[(&str, &str)] = &[("EAFNOSUPPORT", layer::FILTER)];
const NO_PROTOCOL: &[(&str, &str)] = &[("EPROTONOSUPPORT", layer::FILTER)];

const fn family(name: &'static str, numbers: &'static str) -> Attack {
    Attack::new(CLASS, name, make, NO_FAMILY).word(numbers).as_root()
}

const fn netlink(name: &'static str, numbers: &'static str) -> Attack {
    Attack::new(CLASS, name, make, NO_PROTOCOL).word(numbers)
}

/// Why some families cannot be tried.
const NO_MODULE: &str = "the kernel was built without this family";

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "socket.every-other-family", every_family, NO_FAMILY).as_root(),
    family("socket.vsock", "40 1 0"),
    family("socket.packet", "17 3 3"),
    family("socket.packet-by-its-old-name", "2 10 3"),
    family("socket.xdp", "44 3 0"),
    family("socket.alg", "38 5 0").on_some_hosts(NO_MODULE),
    family("socket.key", "15 3 2").on_some_hosts(NO_MODULE),
    family("socket.bluetooth", "31 3 1").on_some_hosts(NO_MODULE),
    family("socket.can", "29 3 1").on_some_hosts(NO_MODULE),
    family("socket.tipc", "30 5 0").on_some_hosts(NO_MODULE),
    family("socket.smc", "43 1 0").on_some_hosts(NO_MODULE),
    family("socket.rds", "21 5 0").on_some_hosts(NO_MODULE),
    family("socket.vsock-high-half", "4294967336 1 0"),
    netlink("socket.netlink-netfilter", "16 3 12"),
    netlink("socket.netlink-diagnostics", "16 3 4"),
    netlink("socket.netlink-xfrm", "16 3 6"),
    netlink("socket.netlink-audit", "16 3 9"),
    netlink("socket.netlink-uevent", "16 3 15"),
    netlink("socket.netlink-generic", "16 3 16"),
    netlink("socket.netlink-connector", "16 3 11"),
    Attack::new(CLASS, "socket.raw", make, &[("EPERM", layer::NO_PRIVILEGE)])
        .word("2 3 1")
        .as_root(),
    Attack::new(CLASS, "socket.unix-datagram", make, &[("EPERM", layer::FILTER)]).word("1 2 0"),
    Attack::new(CLASS, "socket.unix-raw", make, &[("EPERM", layer::FILTER)]).word("1 3 0"),
    Attack::new(CLASS, "socket.unix-datagram-pair", make_pair, &[("EPERM", layer::FILTER)])
        .word("1 2 0"),
];

fn numbers(word: &str) -> Result<Vec<usize>, Lost> {
    word.split(' ').map(|number| Ok(number.parse()?)).collect()
}

fn make(scene: &Scene) -> Outcome {
    open_by(libc::SYS_socket, &numbers(scene.word)?)?;
    Ok("made".into())
}

fn make_pair(scene: &Scene) -> Outcome {
    let mut pair = [0i32; 2];
    let mut registers = numbers(scene.word)?;
    registers.push(crate::raw::into(&mut pair));
    call(libc::SYS_socketpair, &registers)?;
    Ok("made".into())
}

/// Tries every family but the four that sessions have, with every type.
fn every_family(_: &Scene) -> Outcome {
    let mut made = Vec::new();
    let mut last = Lost::new("nothing tried");
    for family in (0..=46).filter(|family| ![1, 2, 10, 16].contains(family)) {
        for kind in 1..=10 {
            for protocol in [0, 1, 2, 3, 0x0300] {
                match open_by(libc::SYS_socket, &[family, kind, protocol]) {
                    Ok(_) => made.push((family, kind)),
                    Err(error) => last = error.into(),
                }
            }
        }
    }
    // A family the kernel has no number for.
    cowork_sys::ignore(call(libc::SYS_socket, &[signed(-1), flags(1), 0]));
    made.dedup();
    if made.is_empty() { Err(last) } else { Ok(format!("made (family, type): {made:?}")) }
}
