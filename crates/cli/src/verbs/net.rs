//! `cowork net`: what a session reaches and what it was refused, its rules, whether something would
//! pass, and what there is to choose from.
//!
//! Hosts, paths and names of processes are the session's words: they are shown, never sent to the
//! terminal.

use super::{on, rules, target};
use crate::arguments::{DEFAULT, Har, NetExplain, NetVerb, NetView, Output, Standing, Target};
use crate::daemon;
use crate::failure::Failure;
use crate::network;
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, neutral, units};
use cowork_api::egress::HOST_NAME;
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{
    HostTraffic, NamedRule, Network, NetworkExplanation, NetworkFlow, NetworkNotice,
    NetworkRefusal, NetworkTarget, Preset, Session, Traffic,
};
use cowork_client::uri::{self, Query};
use rustix::termios::isatty;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::time::Duration;

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

/// Shows traffic or rules, explains, exports, lists presets.
pub(crate) fn net(options: &NetView) -> Result<ExitCode, Failure> {
    match &options.verb {
        None => traffic(options),
        Some(NetVerb::Rules(target)) => rules(target),
        Some(NetVerb::Standing(options)) => standing(options),
        Some(NetVerb::Explain(options)) => explain(options),
        Some(NetVerb::Har(options)) => har(options),
        Some(NetVerb::Presets(output)) => presets(output),
    }
}

fn rules(options: &Target) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let name = options.session.as_deref().unwrap_or(DEFAULT);
    let (_, network) = rules::network(&mut client, name)?;
    rules::told(&network, &options.output)
}

fn standing(options: &Standing) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    if let Some(name) = &options.remove {
        let target = format!("/v1/rules/{}", uri::segment(name));
        client.call(&Request::new(Method::Delete, target))?;
    }
    let rules: Vec<NamedRule> = client.list(&Query::new("/v1/rules"))?;
    if options.output.json {
        return show::json(&rules);
    }
    show::print(rules::table(&rules, &[]))
}

fn explain(options: &NetExplain) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (_, explanation) = on(&mut client, &options.session, |client, id| {
        let query = Query::new(target(id, "/network/explain")).with("url", &options.url);
        client.get::<NetworkExplanation>(query.with_some("method", options.method.as_ref()))
    })?;
    let code = if explanation.outcome == "deny" { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if options.output.json {
        return show::json(&explanation).map(|_printed| code);
    }
    let tone = match explanation.outcome.as_str() {
        "allow" => Tone::Good,
        "ask" => Tone::Warning,
        _ => Tone::Bad,
    };
    let outcome = neutral::line(&explanation.outcome);
    let mut text = format!(
        "{}  {}\n",
        Colour::of_stdout().paint(&outcome, tone),
        neutral::line(&explanation.sentence)
    );
    let mut add = |word: &str, value: &str| {
        text.push_str(&neutral::line(&format!("  {word:<6} {value}")));
        text.push('\n');
    };
    add("code", &explanation.code);
    if let Some(rule) = &explanation.rule {
        add("rule", rule);
    }
    if let Some(tls) = &explanation.tls {
        add("TLS", tls);
    }
    show::print(text).map(|_printed| code)
}

fn har(options: &Har) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let name = options.session.as_deref().unwrap_or(DEFAULT);
    let (_, mut archive) = on(&mut client, name, |client, id| {
        client.open(&Request::get(target(id, "/network/har")), None)
    })?;
    let failed =
        |error: std::io::Error| Failure::host("cannot write the archive", Some(error.to_string()));
    let Some(path) = &options.output else {
        return match std::io::copy(&mut archive, &mut std::io::stdout().lock()) {
            Ok(_) => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) => Err(failed(error)),
        };
    };
    // Where a session went is nobody else's business.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| {
        let sentence = format!("cannot write `{}`", path.display());
        Failure::input(sentence, "name a file that you may write").with_cause(error.to_string())
    })?;
    std::io::copy(&mut archive, &mut file).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn presets(output: &Output) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let presets: Vec<Preset> = client.get("/v1/presets")?;
    if output.json {
        return show::json(&presets);
    }
    let mut table = Table::new(["PRESET", "FOR", "HOSTS"]);
    for preset in &presets {
        table.row([
            (&preset.name).into(),
            (&preset.description).into(),
            preset.hosts.join(" ").into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

/// The view of the moment, once or again and again.
fn traffic(options: &NetView) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let name = options.session.as_deref().unwrap_or(DEFAULT);
    let (id, first) = look(&mut client, name, options)?;
    if !options.watch {
        return show::print(first);
    }
    let mut text = first;
    loop {
        let screen = isatty(rustix::stdio::stdout()) && !options.output.json;
        if screen {
            // From the top of an empty screen.
            text.insert_str(0, "\u{1b}[H\u{1b}[2J");
        }
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => {
                let cause = Some(error.to_string());
                return Err(Failure::host("cannot write to standard output", cause));
            }
        }
        drop(stdout);
        std::thread::sleep(EVERY);
        (_, text) = look(&mut client, &id, options)?;
        if !screen && !options.output.json {
            text.insert(0, '\n');
        }
    }
}

/// What there is to see now, and the id of the session.
fn look(client: &mut Client, name: &str, options: &NetView) -> Result<(String, String), Failure> {
    let (id, session) = super::session(client, name)?;
    let traffic: Traffic = client.get(target(&id, "/network/traffic"))?;
    if options.output.json {
        let text =
            if options.watch { show::json_line(&traffic)? } else { show::document(&traffic)? };
        return Ok((id, text));
    }
    let network = client.get::<Network>(target(&id, "/network")).ok();
    Ok((id, view(&session, network.as_ref(), &traffic)))
}

fn view(session: &Session, network: Option<&Network>, traffic: &Traffic) -> String {
    let colour = Colour::of_stdout();
    let summary = network::summary(session.network.as_ref(), network);
    let title = colour.paint(&session.id, Tone::Strong);
    let mut text = format!("{title}  network: {}\n", neutral::line(&summary));
    for line in network::published(network) {
        text.push_str("  ");
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&refusals(&traffic.refused, colour));
    text.push('\n');
    if !traffic.noticed.is_empty() {
        text.push_str(&notices(&traffic.noticed, colour));
        text.push('\n');
    }
    text.push_str(&flows(&traffic.flows, colour));
    text.push('\n');
    text.push_str(&left(&traffic.hosts, colour));
    text
}

fn refusals(refused: &[NetworkRefusal], colour: Colour) -> String {
    if refused.is_empty() {
        return "Nothing was refused\n".to_owned();
    }
    let mut table =
        Table::new(["REFUSED", "REQUEST", "CODE", "RULE", "TIMES", "AGE", "PROCESS", "VIA"]);
    for refusal in refused {
        table.row([
            Cell::new(place(&refusal.target), Tone::Bad),
            request(&refusal.target).into(),
            (&refusal.code).into(),
            refusal.rule.as_deref().unwrap_or("-").into(),
            refusal.times.to_string().into(),
            units::age(&refusal.time).into(),
            process(&refusal.target).into(),
            (&refusal.target.via).into(),
        ]);
    }
    table.render(colour)
}

fn notices(noticed: &[NetworkNotice], colour: Colour) -> String {
    let mut table = Table::new(["NOTICED", "CODE", "TIMES", "AGE", "PROCESS", "WHAT"]);
    for notice in noticed {
        table.row([
            Cell::new(place(&notice.target), Tone::Warning),
            (&notice.code).into(),
            notice.times.to_string().into(),
            units::age(&notice.time).into(),
            process(&notice.target).into(),
            (&notice.sentence).into(),
        ]);
    }
    table.render(colour)
}

fn flows(flows: &[NetworkFlow], colour: Colour) -> String {
    if flows.is_empty() {
        return "Nothing flows now\n".to_owned();
    }
    let mut table =
        Table::new(["FLOWS", "REQUEST", "SENT", "RECEIVED", "AGE", "PROCESS", "RULE", "VIA"]);
    for flow in flows {
        let rule = match (&flow.rule, flow.held) {
            (_, true) => Cell::new("waits for your answer", Tone::Warning),
            (Some(rule), false) => rule.into(),
            (None, false) => "-".into(),
        };
        table.row([
            place(&flow.target).into(),
            request(&flow.target).into(),
            units::bytes(flow.up).into(),
            units::bytes(flow.down).into(),
            units::span(Duration::from_millis(flow.ms)).into(),
            process(&flow.target).into(),
            rule,
            (&flow.target.via).into(),
        ]);
    }
    table.render(colour)
}

/// What went where: out of this machine, and to its own loopback.
fn left(hosts: &[HostTraffic], colour: Colour) -> String {
    let (stayed, gone): (Vec<_>, Vec<_>) = hosts.iter().partition(|host| is_here(&host.host));
    let mut text = if gone.is_empty() {
        "Nothing left this machine\n".to_owned()
    } else {
        went("LEFT THIS MACHINE", &gone, colour)
    };
    if !stayed.is_empty() {
        text.push('\n');
        text.push_str(&went("STAYED ON THIS MACHINE", &stayed, colour));
    }
    text
}

/// Whether a host is this machine's own loopback.
fn is_here(host: &str) -> bool {
    host == HOST_NAME || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn went(title: &str, hosts: &[&HostTraffic], colour: Colour) -> String {
    let mut table = Table::new([title, "SENT", "RECEIVED", "REQUESTS"]);
    let mut row = |host: &str, up: u64, down: u64, requests: u64| {
        let numbers = [units::bytes(up), units::bytes(down), requests.to_string()];
        let [up, down, requests] = numbers.map(Cell::from);
        table.row([host.into(), up, down, requests]);
    };
    for host in hosts {
        row(&host.host, host.up, host.down, host.requests);
    }
    if hosts.len() > 1 {
        let sum = |of: fn(&HostTraffic) -> u64| {
            hosts.iter().map(|host| of(host)).fold(0, u64::saturating_add)
        };
        row("together", sum(|host| host.up), sum(|host| host.down), sum(|host| host.requests));
    }
    table.render(colour)
}

/// A host and its port.
fn place(target: &NetworkTarget) -> String {
    match (target.port, target.host.contains(':')) {
        // What is no request names nobody.
        (0, _) if target.host.is_empty() => "-".to_owned(),
        // A question for a name is about no port.
        (0, _) => target.host.clone(),
        (port, true) => format!("[{}]:{port}", target.host),
        (port, false) => format!("{}:{port}", target.host),
    }
}

/// A method and a path, as far as they are known.
fn request(target: &NetworkTarget) -> String {
    /// Most characters of a path.
    const MOST: usize = 60;
    let path = target.path.as_deref().unwrap_or_default();
    let path = match path.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", path.get(..end).unwrap_or_default()),
        None => path.to_owned(),
    };
    match (&target.method, path.is_empty()) {
        (Some(method), true) => method.clone(),
        (Some(method), false) => format!("{method} {path}"),
        (None, true) => "-".to_owned(),
        (None, false) => path,
    }
}

fn process(target: &NetworkTarget) -> &str {
    target.process.as_deref().unwrap_or("-")
}

#[cfg(test)]
mod tests {
    use super::{Colour, flows, left, notices, place, refusals, request};
    use cowork_client::types::{
        HostTraffic, NetworkFlow, NetworkNotice, NetworkRefusal, NetworkTarget,
    };

    fn target(host: &str, port: u16) -> NetworkTarget {
        let host = host.to_owned();
        NetworkTarget { host, port, via: "capture".to_owned(), ..NetworkTarget::default() }
    }

    #[test]
    fn places_have_ports_and_brackets() {
        assert_eq!(place(&target("a.example", 443)), "a.example:443");
        assert_eq!(place(&target("::1", 80)), "[::1]:80");
        assert_eq!(place(&target("a.example", 0)), "a.example");
        assert_eq!(place(&target("", 0)), "-");
    }

    #[test]
    fn what_stays_on_the_machine_has_not_left_it() {
        let host = |name: &str| HostTraffic { host: name.to_owned(), ..HostTraffic::default() };
        let all = ["host.cowork.internal", "127.0.0.1", "a.example"].map(host);
        let text = left(&all, Colour::Off);
        let (left_it, stayed) = text.split_once("\nSTAYED ON THIS MACHINE").expect("two tables");
        assert!(left_it.contains("a.example") && !stayed.contains("a.example"), "{text}");
        assert!(stayed.contains("host.cowork.internal") && stayed.contains("127.0.0.1"), "{text}");
        assert!(left(&all[..2], Colour::Off).starts_with("Nothing left this machine\n\nSTAYED"));
        assert_eq!(left(&[], Colour::Off), "Nothing left this machine\n");
    }

    #[test]
    fn long_paths_are_cut() {
        let mut target = target("a.example", 443);
        assert_eq!(request(&target), "-");
        target.method = Some("GET".to_owned());
        assert_eq!(request(&target), "GET");
        target.path = Some(format!("/{}", "é".repeat(80)));
        assert_eq!(request(&target), format!("GET /{}…", "é".repeat(59)));
    }

    #[test]
    fn what_a_session_calls_itself_does_not_reach_the_terminal() {
        let mut target = target("a\u{1b}[2J.example\nREFUSED", 443);
        target.process = Some("\u{1b}]0;evil\u{7}".to_owned());
        target.path = Some("/\u{202e}x\r".to_owned());
        let refusal = NetworkRefusal {
            time: "2026-01-02T03:04:05Z".to_owned(),
            target: target.clone(),
            code: "no-rule".to_owned(),
            rule: None,
            times: 3,
        };
        let notice = NetworkNotice {
            time: "2026-01-02T03:04:05Z".to_owned(),
            target: target.clone(),
            code: "x".to_owned(),
            sentence: "\u{1b}[2Jevil\nREFUSED".to_owned(),
            times: 1,
        };
        let flow =
            NetworkFlow { flow: 1, target, rule: None, up: 1, down: 1536, ms: 7, held: false };
        let host = HostTraffic { host: "b\u{9b}2J".to_owned(), up: 1, down: 2, requests: 3 };
        let text = refusals(&[refusal], Colour::Off)
            + &notices(&[notice], Colour::Off)
            + &flows(&[flow], Colour::Off)
            + &left(&[host.clone(), host], Colour::Off);
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(acts), "{text:?}");
        assert_eq!(text.lines().count(), 2 + 2 + 2 + 4, "{text}");
        assert!(text.contains("1.5K") && text.contains("together"), "{text}");
    }
}
