//! What commands reach, in a world of their own.

use crate::desk::Desk;
use crate::for_everyone;
use crate::site::{Said, Site};
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

for_everyone!(
    allowed_hosts_are_reached_and_no_others,
    a_denial_comes_first_and_says_why,
    names_do_not_lead_to_this_host_or_to_denied_addresses,
    this_host_is_reached_where_its_address_is_allowed,
    nothing_is_reached_without_settings,
    rules_are_replaced_while_the_command_runs,
    credentials_are_masked,
    a_parent_proxy_is_used,
    hosts_are_reached_through_a_parent_proxy,
    localhost_is_this_host,
    denied_addresses_and_reasons_are_replaced_too,
);

fn settings(network: &Value) -> Value {
    json!({
        "network": network,
        "filesystem": { "denyRead": [], "allowWrite": ["."], "denyWrite": [] },
    })
}

fn script(site: &Site, settings: &Value, script: &str) -> Said {
    let name = format!("settings-{:?}.json", std::thread::current().id());
    let path = site.folder.write(&name, settings.to_string());
    site.say(&["srt", "-s", &path.display().to_string(), "-c", script])
}

fn allowed_hosts_are_reached_and_no_others(person: Person) {
    let site = Site::of(person);
    let settings = settings(&json!({
        "allowedDomains": ["web.example.:80", "*.web.example", "api.example:443"],
        "deniedDomains": []
    }));
    let refused = script(site, &settings, "true");
    assert!(refused.err.contains("network.allowedDomains.0"), "{refused:?}");
    let settings = self::settings(&json!({
        "allowedDomains": ["*.web.example", "api.example:443"], "deniedDomains": []
    }));
    let curl = "for u in http://sub.web.example/srt-in https://sub.web.example/srt-in \
                http://web.example/srt-out http://api.example/srt-out https://api.example/srt-in \
                http://denied.example/srt-out; do curl -s --cacert ../ca.pem -o /dev/null -w '%{http_code} ' $u; done";
    let said = script(site, &settings, curl);
    assert_eq!(said.out, "200 200 403 403 200 403 ", "{said:?}");
    // Programs that know no proxy are held to the same.
    let bare = format!("unset $(env | grep -io '^[a-z_]*proxy' | sort -u); {curl}");
    let said = script(site, &settings, &bare);
    assert_eq!(said.out.split(' ').take(2).collect::<Vec<_>>(), ["200", "200"], "{said:?}");
    assert!(site.arrived("srt-out").is_empty());
}

fn a_denial_comes_first_and_says_why(person: Person) {
    let site = Site::of(person);
    let settings = settings(&json!({
        "allowedDomains": ["web.example", "*.web.example"],
        "deniedDomains": ["sub.web.example", "*:8443"],
        "deniedDomainReasons": { "sub.web.example": "use the mirror instead" }
    }));
    let curl = "curl -s http://web.example/; curl -s http://sub.web.example/srt-denied; \
                curl -sS https://sub.web.example/srt-denied 2>&1; \
                curl -s -o /dev/null -w '%{http_code}' http://web.example:8443/srt-denied";
    let said = script(site, &settings, curl);
    assert!(said.out.contains("hello from web.example"), "{said:?}");
    assert!(said.out.contains("use the mirror instead"), "{said:?}");
    assert!(said.out.ends_with("403"), "{said:?}");
    // Programs that know srt find what they look for.
    let heads = "curl -s -D - -o /dev/null http://sub.web.example/srt-denied; \
                 curl -s -D - -o /dev/null https://sub.web.example/srt-denied; true";
    let said = script(site, &settings, heads);
    let blocked = "x-proxy-error: blocked-by-sandbox-runtime";
    assert_eq!(said.out.to_lowercase().matches(blocked).count(), 2, "{said:?}");
    let phrase = "HTTP/1.1 403 use the mirror instead\r\n";
    assert_eq!(said.out.matches(phrase).count(), 2, "{said:?}");
    assert!(site.arrived("srt-denied").is_empty());
}

fn names_do_not_lead_to_this_host_or_to_denied_addresses(person: Person) {
    let site = Site::of(person);
    let names = ["inward.example", "metadata.example", "own.example", "web.example"];
    let settings = settings(&json!({
        "allowedDomains": names, "deniedDomains": [],
        "deniedResolvedAddresses": ["11.22.33.0/29"]
    }));
    for name in names {
        let curl = format!("curl -s -o /dev/null -w '%{{http_code}}' http://{name}/srt-guarded");
        let said = script(site, &settings, &curl);
        assert_eq!(said.out, "403", "{name}: {said:?}");
    }
    assert!(site.arrived("srt-guarded").is_empty());
}

fn this_host_is_reached_where_its_address_is_allowed(person: Person) {
    let site = Site::of(person);
    let settings = settings(&json!({ "allowedDomains": ["11.22.33.7"], "deniedDomains": [] }));
    let curl = "for h in 11.22.33.7 11.22.33.8; do \
                curl -s -m 5 -o /dev/null -w '%{http_code} ' http://$h/srt-literal; done";
    assert_eq!(script(site, &settings, curl).out, "200 403 ");
}

fn nothing_is_reached_without_settings(person: Person) {
    let site = Site::of(person);
    let said = site.say(&["srt", "-c", "curl -s -m 5 http://web.example/srt-none || echo none"]);
    assert_eq!(said.out, "none\n", "{said:?}");
    let nothing = settings(&json!({ "allowedDomains": [], "deniedDomains": [] }));
    let said = script(site, &nothing, "curl -s -m 5 http://11.22.33.7/srt-none || echo none");
    assert_eq!(said.out, "none\n", "{said:?}");
    assert!(site.arrived("srt-none").is_empty());
}

/// A command that is told new settings by a pipe while it runs.
fn controlled(
    site: &Site,
    person: Person,
    name: &str,
    settings: &Value,
    line: &str,
) -> (Child, File) {
    let path = site.folder.write(&format!("{name}.json"), settings.to_string());
    let fifo = site.folder.path().join(name);
    let made = person.command("mkfifo").arg(&fifo).status().expect("it is installed");
    assert!(made.success());
    // A shell puts the descriptor where it is expected.
    let mut command = person.command("bash");
    command.args(["-c", "exec 3<\"$1\"; shift; exec \"$@\"", "bash"]).arg(&fifo);
    command.arg(cowork_testbed::programs().join("cowork")).args(["srt", "-s"]).arg(&path);
    command.args(["--control-fd", "3", "-c", line]).current_dir(site.folder.path().join("desk"));
    let variables = site.cowork(&[]);
    command.envs(variables.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("bash is there");
    let writer = std::fs::OpenOptions::new().write(true).open(&fifo).expect("it is a pipe");
    (child, writer)
}

/// One command, which asks again whenever it is told to.
fn rules_are_replaced_while_the_command_runs(person: Person) {
    let site = Site::of(person);
    let narrow = settings(&json!({ "allowedDomains": [], "deniedDomains": [] }));
    let line = "while read -r; do \
                curl -s -m 20 -o /dev/null -w '%{http_code}\\n' http://web.example/srt-live; done";
    let (mut child, mut writer) = controlled(site, person, "control", &narrow, line);
    let mut input = child.stdin.take().expect("it is piped");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut ask = || {
        input.write_all(b"\n").expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    };
    assert_eq!(ask(), "403");
    let wide = settings(&json!({ "allowedDomains": ["web.example"], "deniedDomains": [] }));
    writeln!(writer, "{wide}").expect("it is read");
    until(|| ask() == "200");
    // What cannot be understood changes nothing, and is told.
    writeln!(writer, "{{\"network\": 1}}\n").expect("it is read");
    let mut told = String::new();
    errors.read_line(&mut told).expect("it says something");
    assert!(told.contains("Invalid config on control fd 3"), "{told}");
    assert_eq!(ask(), "200");
    let denied = settings(&json!({
        "allowedDomains": ["web.example"], "deniedDomains": ["web.example"]
    }));
    writeln!(writer, "{denied}").expect("it is read");
    until(|| ask() == "403");
    writeln!(writer, "{wide}").expect("it is read");
    until(|| ask() == "200");
    // Its end is no error: what was in force stays so.
    drop(writer);
    assert_eq!(ask(), "200");
    drop(input);
    assert!(child.wait().expect("it ends").success());
}

/// Not only names: addresses that they may not lead to, reasons, and how TLS is treated.
fn denied_addresses_and_reasons_are_replaced_too(person: Person) {
    let site = Site::of(person);
    let allowed = |more: Value| {
        let mut network = json!({ "allowedDomains": ["web.example"], "deniedDomains": [] });
        for (key, value) in more.as_object().into_iter().flatten() {
            network[key] = value.clone();
        }
        settings(&network)
    };
    let line =
        "while read -r url; do curl -s -m 20 -w ' %{http_code}' $url | tr -d '\\n'; echo; done";
    let (mut child, mut writer) =
        controlled(site, person, "control-more", &allowed(json!({})), line);
    let mut input = child.stdin.take().expect("it is piped");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut ask = |url: &str| {
        writeln!(input, "{url}").expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers");
        line
    };
    let url = "http://web.example/srt-more";
    assert!(ask(url).ends_with(" 200\n"));
    let guarded = allowed(json!({ "deniedResolvedAddresses": ["11.22.33.0/29"] }));
    writeln!(writer, "{guarded}").expect("it is read");
    until(|| ask(url).ends_with(" 403\n"));
    writeln!(writer, "{}", allowed(json!({}))).expect("it is read");
    until(|| ask(url).ends_with(" 200\n"));
    let reasoned = allowed(json!({
        "deniedDomains": ["web.example"],
        "deniedDomainReasons": { "web.example": "the site is being moved" }
    }));
    writeln!(writer, "{reasoned}").expect("it is read");
    until(|| ask(url).contains("the site is being moved"));
    // A certificate of the session's own authority is shown where TLS is looked into.
    let issuer = "https://web.example/srt-more -k -v -o /dev/null --stderr -";
    writeln!(writer, "{}", allowed(json!({}))).expect("it is read");
    until(|| ask(url).ends_with(" 200\n"));
    let before = ask(issuer);
    writeln!(writer, "{}", allowed(json!({ "tlsTerminate": {} }))).expect("it is read");
    let named = |said: &str| {
        said.split("issuer:").nth(1).map(|rest| rest.chars().take(30).collect::<String>())
    };
    until(|| named(&ask(issuer)).is_some_and(|issuer| Some(issuer) != named(&before)));
    drop((writer, input));
    assert!(child.wait().expect("it ends").success());
}

fn until(mut so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !so() {
        assert!(std::time::Instant::now() < end, "the rules did not change");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn credentials_are_masked(person: Person) {
    let site = Site::of(person);
    let value = "s3cr3t-of-the-user-0123456789";
    let file = site.folder.write("desk/token", format!("{value}-file\n"));
    let mut settings = settings(&json!({
        "allowedDomains": ["api.example", "web.example"], "deniedDomains": [],
        "tlsTerminate": {}
    }));
    settings["credentials"] = json!({
        "envVars": [{ "name": "API_TOKEN", "mode": "mask", "injectHosts": ["api.example"] }],
        "files": [{ "path": file, "mode": "mask", "injectHosts": ["web.example"] }],
    });
    let path = site.folder.write("masks.json", settings.to_string()).display().to_string();
    let line = "echo $API_TOKEN; cat token; \
                curl -s -o /dev/null -w '%{http_code} ' -H \"Authorization: Bearer $API_TOKEN\" \
                https://api.example/srt-mask-env; \
                curl -s -o /dev/null -w '%{http_code} ' -H \"Authorization: Bearer $(cat token)\" \
                https://web.example/srt-mask-file; \
                curl -s -o /dev/null -w '%{http_code} ' -H \"Authorization: Bearer $API_TOKEN\" \
                https://web.example/srt-mask-elsewhere";
    let mut command = site.cowork(&["srt", "-s", &path, "-c", line]);
    let output = command.env("API_TOKEN", value).stdin(Stdio::null()).output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!out.contains("s3cr3t"), "{out}{err}");
    assert!(out.starts_with("fake_value_") && out.contains("200 200 403"), "{out}{err}");
    let authorization = |word: &str| {
        let arrived = site.arrived(word);
        let headers = arrived.first().map(|record| record["headers"].clone());
        headers.map(|headers| headers["authorization"].clone()).unwrap_or_default()
    };
    assert_eq!(authorization("srt-mask-env"), format!("Bearer {value}"));
    assert_eq!(authorization("srt-mask-file"), format!("Bearer {value}-file"));
    assert!(site.arrived("srt-mask-elsewhere").is_empty());
}

/// Nothing listens where the proxy is said to be: what goes through it fails, and the rest does not.
fn a_parent_proxy_is_used(person: Person) {
    let site = Site::of(person);
    let network = |parent: Value| {
        let names = ["web.example", "api.example"];
        json!({ "allowedDomains": names, "deniedDomains": [], "parentProxy": parent })
    };
    let curl = "for h in web api; do \
                curl -s -m 20 -o /dev/null -w '%{http_code} ' http://$h.example/srt-parent; done";
    let nowhere = "http://11.22.33.7:9";
    let said = script(site, &settings(&network(json!({ "http": nowhere }))), curl);
    assert!(!said.out.contains("200") && !said.out.is_empty(), "{said:?}");
    let parent = json!({ "http": nowhere, "https": nowhere, "noProxy": "localhost,web.example" });
    let said = script(site, &settings(&network(parent)), curl);
    assert!(said.out.starts_with("200 ") && said.out.matches("200").count() == 1, "{said:?}");
    // The caller's own variables say the same.
    let path = site.folder.write(
        "parent.json",
        settings(&json!({
            "allowedDomains": ["web.example", "api.example"], "deniedDomains": []
        }))
        .to_string(),
    );
    let mut command = site.cowork(&["srt", "-s", &path.display().to_string(), "-c", curl]);
    let command = command.env("HTTPS_PROXY", nowhere).env("NO_PROXY", "web.example");
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(out.starts_with("200 ") && out.matches("200").count() == 1, "{out}");
    let secret = json!({ "http": "http://me:password@11.22.33.7:9" });
    let said = script(site, &settings(&network(secret)), "echo ran");
    assert!(said.code == 1 && said.out.is_empty() && said.err.contains("password"), "{said:?}");
}

/// A server on this host's loopback that answers with what it was asked, and notes it: its port.
fn listen(answer: fn(TcpStream, &str)) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it is bound").port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let first = head(&stream);
            notes.lock().expect("nobody panics").push(first.clone());
            answer(stream, &first);
        }
    });
    (port, heard)
}

/// Reads a head of HTTP: its first line.
fn head(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    first
}

/// Says something, in HTTP, to a client that may be gone.
fn say(mut stream: &TcpStream, text: &str) {
    let length = text.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
    drop(stream.write_all(answer.as_bytes()));
}

/// What goes through the proxy arrives there by its name, and what is allowed alone.
fn hosts_are_reached_through_a_parent_proxy(person: Person) {
    let desk = Desk::new(person, "parent");
    let (port, heard) = listen(|stream, first| {
        say(&stream, &format!("through the proxy: {first}\n"));
    });
    let parent = format!("http://127.0.0.1:{port}");
    let settings = settings(&json!({
        "allowedDomains": ["far.example"], "deniedDomains": [], "parentProxy": { "http": parent }
    }));
    let curl = "curl -s -m 20 http://far.example/srt-parent; \
                curl -s -m 20 -o /dev/null -w '%{http_code}' http://other.example/";
    let said = desk.script(&settings, curl);
    // A plain request is sent whole: such proxies seldom lead to the port of HTTP.
    let request = "GET http://far.example/srt-parent HTTP/1.1";
    assert_eq!(said.good(), format!("through the proxy: {request}\n403"));
    let heard = heard.lock().expect("nobody panics").clone();
    assert_eq!(heard, [request]);
    // Where names lead is the proxy's to know: what cannot be in force stops the start.
    let settings = self::settings(&json!({
        "allowedDomains": ["far.example"], "deniedDomains": [],
        "deniedResolvedAddresses": ["10.0.0.0/8"], "parentProxy": { "http": parent }
    }));
    let said = desk.script(&settings, "echo ran");
    assert!(said.code != 0 && said.out.is_empty(), "{said:?}");
    assert!(said.err.contains("network.deniedResolvedAddresses"), "{said:?}");
}

/// `localhost` in the settings is this host's; in the session that name stays its own.
fn localhost_is_this_host(person: Person) {
    let desk = Desk::new(person, "localhost");
    let (port, heard) = listen(|stream, first| say(&stream, &format!("this host: {first}\n")));
    let (closed, unheard) = listen(|stream, _| say(&stream, "never"));
    let allowed = format!("localhost:{port}");
    let settings = settings(&json!({ "allowedDomains": [allowed], "deniedDomains": [] }));
    let script = format!(
        "curl -s -m 20 http://host.cowork.internal:{port}/srt-own; \
         curl -s -m 20 -o /dev/null http://localhost:{port}/ || echo own; \
         curl -s -m 20 -o /dev/null -w '%{{http_code}}' http://host.cowork.internal:{closed}/"
    );
    let said = desk.script(&settings, &script);
    assert_eq!(said.good(), "this host: GET /srt-own HTTP/1.1\nown\n403");
    assert_eq!(heard.lock().expect("nobody panics").len(), 1);
    assert!(unheard.lock().expect("nobody panics").is_empty());
}
