//! What is refused says why, at once, and nothing of it arrives.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

for_everyone!(
    a_refusal_says_why_in_words_a_program_can_read,
    names_do_not_lead_into_private_networks,
    methods_and_paths_are_kept_to,
    denials_win_and_give_their_reason,
    another_name_in_the_handshake_is_refused,
    another_host_inside_is_refused,
    nothing_is_told_to_a_name_server,
    udp_is_refused_at_once,
    an_unknown_host_waits_for_the_user,
    one_answer_is_for_all_of_a_host_that_waits,
    nobody_is_asked_where_nobody_is,
    programs_that_know_no_proxy_wait_at_the_request,
    a_greeting_is_refused_in_words_where_nothing_is_looked_into,
    a_greeting_on_another_port_is_not_held_until_its_program_gives_up,
    rules_change_while_it_runs,
    what_went_where_is_shown,
    a_killed_egress_is_replaced_and_nothing_passes_meanwhile,
    a_session_without_rules_has_no_network,
    a_port_is_published,
);

fn a_refusal_says_why_in_words_a_program_can_read(person: Person) {
    let site = Site::of(person);
    let script = "curl -sS -D- http://denied.example/path; echo; \
                  curl -sS -o /dev/null -w '%{http_connect}' https://denied.example/";
    let said = site.script(&["--allow", "web.example"], script);
    assert!(said.out.contains("403"), "{said:?}");
    assert!(said.out.to_lowercase().contains("x-cowork-deny: no-rule"), "{said:?}");
    let body = said.out.lines().find(|line| line.starts_with('{')).expect("a document");
    let body: Value = serde_json::from_str(body).expect("it is JSON");
    assert_eq!(body["error"]["code"], "no-rule");
    assert_eq!(body["error"]["host"], "denied.example");
    assert!(
        body["error"]["hint"].as_str().is_some_and(|hint| hint.contains("cowork allow")),
        "{body}"
    );
    assert!(said.out.ends_with("403"), "the tunnel is refused as well: {said:?}");
}

fn names_do_not_lead_into_private_networks(person: Person) {
    let site = Site::of(person);
    let rules = ["inward.example", "private.example", "metadata.example", "own.example"];
    for name in rules {
        let script = format!("curl -sS -m 10 http://{name}/inward-{name}");
        let said = site.script(&["--allow", name], &script);
        assert!(said.out.contains("-address\""), "{name}: {said:?}");
    }
    assert!(site.arrived("inward-").is_empty());
}

fn methods_and_paths_are_kept_to(person: Person) {
    let site = Site::of(person);
    let rule = "GET https://api.example/v1/**";
    let script = "for u in /v1/good /v2/bad /v1/../v2/bad /v1/%2e%2e/v2/bad //v1/bad; do \
                  curl -sS --path-as-is -o body -w '%{http_code} ' https://api.example$u; cat body >&2; done; \
                  curl -sS -o /dev/null -w '%{http_code}' -X POST https://api.example/v1/bad";
    let said = site.script(&["--allow", rule], script);
    assert_eq!(said.out, "200 403 400 400 403 403", "{}", said.err);
    assert_eq!(site.arrived("good").len(), site.arrived("/v1/good").len());
    assert!(site.arrived("/v2/bad").is_empty() && site.arrived("/v1/bad").is_empty());
}

fn denials_win_and_give_their_reason(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "**.web.example"]).good();
    let id = id.trim();
    site.say(&["deny", id, "sub.web.example", "--reason", "use outputs instead"]).good();
    let script = "curl -sS http://web.example/; curl -sS http://sub.web.example/denied-by-rule";
    let said = site.say(&["exec", id, "--", "sh", "-c", script]).good();
    assert!(said.contains("hello from web.example"), "{said}");
    assert!(said.contains("use outputs instead") && said.contains("denied-by-rule"), "{said}");
    assert!(site.arrived("denied-by-rule").is_empty());
    site.say(&["rm", id]).good();
}

fn another_name_in_the_handshake_is_refused(person: Person) {
    let site = Site::of(person);
    // In a tunnel, and where it is looked into.
    for rule in ["web.example", "GET https://web.example/**"] {
        let script = "echo | openssl s_client -quiet -connect web.example:443 -servername denied.example 2>&1; \
                      printf 'GET /fronted HTTP/1.1\\r\\nHost: denied.example\\r\\nConnection: close\\r\\n\\r\\n' | \
                      timeout 5 openssl s_client -quiet -connect web.example:443 -servername denied.example 2>&1";
        site.script(&["--allow", rule], script);
    }
    assert!(site.arrived("fronted").is_empty());
}

fn another_host_inside_is_refused(person: Person) {
    let site = Site::of(person);
    let script = "curl -sS -k -o /dev/null -w '%{http_code}' -H 'Host: denied.example' https://web.example/other-host";
    let said = site.script(&["--allow", "GET https://web.example/**"], script);
    assert_eq!(said.out, "421", "{said:?}");
    assert!(site.arrived("other-host").is_empty());
}

fn nothing_is_told_to_a_name_server(person: Person) {
    let site = Site::of(person);
    let program = "python3 -c 'import socket\n\
        def ask(name):\n\
        \ttry: return socket.getaddrinfo(name, 80)[0][4][0]\n\
        \texcept socket.gaierror as e: return e.errno\n\
        print(ask(\"secret-in-a-label.denied.example\"), ask(\"web.example\"), ask(\"x\" * 60 + \".web.example\"))'";
    let said = site.script(&["--allow", "web.example"], program).good();
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words[0], "-2", "no such name: {said}");
    assert!(words[1].starts_with("198.1") || words[1].starts_with("fd63"), "{said}");
    assert_eq!(words[2], "-2", "no such name: {said}");
}

fn udp_is_refused_at_once(person: Person) {
    let site = Site::of(person);
    let program = "python3 -c 'import socket, time\n\
        begin = time.monotonic()\n\
        for place in ((\"8.8.8.8\", 53), (\"web.example\", 443), (\"11.22.33.7\", 123)):\n\
        \ts = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)\n\
        \ttry: s.connect(place); s.send(b\"x\"); s.recv(1); print(\"answered\")\n\
        \texcept OSError as e: print(e.errno)\n\
        print(time.monotonic() - begin < 2)'";
    let said = site.script(&["--allow", "web.example"], program).good();
    assert!(said.ends_with("True\n") && !said.contains("answered"), "{said}");
}

/// The request of a session that waits for the user.
/// Starts what gets something of a host in a session.
fn get(site: &Site, id: &str, path: &str) -> std::process::Child {
    let url = format!("http://web.example/{path}");
    let mut command = site.cowork(&["exec", id, "--", "curl", "-sS", &url]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts")
}

#[track_caller]
fn pending(site: &Site, id: &str) -> Value {
    let begin = Instant::now();
    loop {
        let said = site.say(&["requests", "--json"]).good();
        let all: Value = serde_json::from_str(&said).expect("it is JSON");
        let all = all.as_array().cloned().or_else(|| all["items"].as_array().cloned());
        let own = all.into_iter().flatten().find(|request| request["session"] == id);
        if let Some(request) = own {
            return request;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "nobody asked: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn an_unknown_host_waits_for_the_user(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--net", "ask"]).good();
    let id = id.trim();
    let ask = |path| get(site, id, path);
    let waiting = ask("asked-no");
    let request = pending(site, id);
    assert_eq!(request["kind"], "host");
    assert!(
        request["wanted"].as_str().is_some_and(|wanted| wanted.contains("web.example")),
        "{request}"
    );
    // It waits, so it was there long enough to be seen.
    let text = request["reason"].as_str().expect("there is a reason");
    assert!(text.contains(" by curl ("), "the process is named: {request}");
    let number = request["id"].to_string();
    site.say(&["decide", &number, "reject"]).good();
    let said = waiting.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&said.stdout).contains("rejected"), "{said:?}");
    assert!(site.arrived("asked-no").is_empty());
    let waiting = ask("asked-yes");
    let number = pending(site, id)["id"].to_string();
    site.say(&["decide", &number, "allow", "--session"]).good();
    let said = waiting.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "hello from web.example\n");
    // Said for the session: not asked again.
    let said = ask("asked-again").wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "hello from web.example\n");
    site.say(&["rm", id]).good();
}

/// Requests of a session that wait.
fn all_pending(site: &Site, id: &str) -> Vec<Value> {
    let said = site.say(&["requests", id, "--json"]).good();
    let all: Value = serde_json::from_str(&said).expect("it is JSON");
    all.as_array().cloned().unwrap_or_default()
}

/// Waits until so many connections of a session wait for the user.
fn held(site: &Site, id: &str, wanted: usize) {
    let begin = Instant::now();
    loop {
        let traffic = site.say(&["net", id, "--json"]).good();
        let traffic: Value = serde_json::from_str(&traffic).expect("it is JSON");
        let flows = traffic["flows"].as_array().expect("it is a list");
        if flows.iter().filter(|flow| flow["held"] == true).count() == wanted {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{traffic}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn one_answer_is_for_all_of_a_host_that_waits(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--net", "ask"]).good();
    let id = id.trim();
    let ask = |path| get(site, id, path);
    let said = |child: std::process::Child| {
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let first = ask("together-1");
    let request = pending(site, id);
    let reason = request["reason"].as_str().expect("there is a reason");
    assert!(reason.starts_with("GET /together-1 by curl ("), "{request}");
    assert!(reason.ends_with("), and what else waits for this host"), "{request}");
    let others = ["together-2", "together-3"].map(ask);
    held(site, id, 3);
    assert_eq!(all_pending(site, id).len(), 1);
    site.say(&["decide", &request["id"].to_string(), "allow"]).good();
    for child in [first].into_iter().chain(others) {
        assert_eq!(said(child), "hello from web.example\n");
    }
    // Once is once.
    let after = ask("together-4");
    let number = pending(site, id)["id"].to_string();
    site.say(&["decide", &number, "reject"]).good();
    assert!(said(after).contains("rejected"));
    assert!(site.arrived("together-4").is_empty());
    // A rule that tells requests apart: each is a question of its own.
    site.say(&["allow", id, "GET http://web.example/open/**"]).good();
    let apart = ["apart-1", "apart-2"].map(ask);
    held(site, id, 2);
    let all = all_pending(site, id);
    assert_eq!(all.len(), 2, "{all:?}");
    for request in &all {
        let reason = request["reason"].as_str().expect("there is a reason");
        let yes = reason.starts_with("GET /apart-1 by curl (");
        assert!(reason.ends_with(')'), "{request}");
        let answer = if yes { "allow" } else { "reject" };
        site.say(&["decide", &request["id"].to_string(), answer]).good();
    }
    let [one, two] = apart.map(said);
    assert_eq!(one, "hello from web.example\n");
    assert!(two.contains("rejected") && site.arrived("apart-2").is_empty(), "{two}");
    site.say(&["rm", id]).good();
}

/// `run` without a terminal, and what says so outright: the refusal comes at once, and no question.
fn nobody_is_asked_where_nobody_is(person: Person) {
    let site = Site::of(person);
    let begin = Instant::now();
    let get = "curl -sS -m 30 -w ' %{http_code} ' http://web.example/nobody; \
               curl -sS -m 30 -w ' %{http_code} ' --noproxy '*' http://web.example/nobody; \
               curl -sS -m 30 -o /dev/null -w '%{http_connect}' https://web.example/nobody";
    let refused = |said: &str| {
        assert_eq!(said.matches("\"code\":\"nobody-to-ask\"").count(), 2, "{said}");
        assert!(said.contains(" 403 ") && said.ends_with("403"), "{said}");
    };
    refused(&site.script(&["--net", "ask"], get).out);
    refused(&site.script(&["--ask", "web.example"], get).out);
    let id = site.say(&["new", "--net", "ask", "--headless"]).good();
    let id = id.trim();
    refused(&site.say(&["exec", id, "--", "sh", "-c", get]).out);
    let would = site.say(&["net", "explain", id, "http://web.example/x"]);
    assert!(would.code == 1 && would.out.contains("nobody-to-ask"), "{would:?}");
    let status = site.say(&["status", id]).good();
    assert!(status.contains("otherwise refused, as nobody is there to be asked"), "{status}");
    assert!(begin.elapsed() < Duration::from_secs(30), "nothing waits: {:?}", begin.elapsed());
    let asked = site.say(&["requests", id, "--json"]).good();
    assert_eq!(serde_json::from_str(&asked).ok(), Some(Value::Array(Vec::new())), "{asked}");
    // A rule that comes later counts, as always.
    site.say(&["allow", id, "web.example"]).good();
    let said = site.say(&["exec", id, "--", "curl", "-sS", "http://web.example/nobody-now"]);
    assert_eq!(said.good(), "hello from web.example\n");
    site.say(&["rm", id]).good();
    assert!(site.arrived("/nobody").iter().all(|request| request["url"] == "/nobody-now"));
}

/// Somebody at another terminal answers a command that has none.
#[test]
fn somebody_else_can_be_asked() {
    let site = Site::of(Person::User);
    let id = "asked-elsewhere";
    let run = ["run", "--id", id, "--net", "ask", "--headless=never", "--", "curl", "-sS"];
    let mut command = site.cowork(&run);
    command.arg("http://web.example/elsewhere").stdin(Stdio::null()).stdout(Stdio::piped());
    let waiting = command.stderr(Stdio::null()).spawn().expect("it starts");
    let number = pending(site, id)["id"].to_string();
    site.say(&["decide", &number, "allow"]).good();
    let said = waiting.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "hello from web.example\n");
}

/// The greeting is done at once: programs give one up after ten seconds, and wait longer for an
/// answer.
fn programs_that_know_no_proxy_wait_at_the_request(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--net", "ask"]).good();
    let id = id.trim();
    let program = "const https = require('https'); const begin = Date.now(); \
                   const r = https.get('https://web.example/at-the-request', (s) => { \
                   console.log(s.statusCode); s.resume(); }); \
                   r.on('socket', (s) => s.on('secureConnect', () => console.log('greeted')));";
    let bare = "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy; exec node -e \"$0\"";
    let mut command = site.cowork(&["exec", id, "--", "sh", "-c", bare, program]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut waiting = command.spawn().expect("it starts");
    let mut output = BufReader::new(waiting.stdout.take().expect("it is piped"));
    let mut said = String::new();
    output.read_line(&mut said).expect("it says something");
    assert_eq!(said, "greeted\n");
    let request = pending(site, id);
    assert!(
        request["reason"].as_str().is_some_and(|reason| reason.contains("at-the-request")),
        "{request}"
    );
    assert!(site.arrived("at-the-request").is_empty());
    site.say(&["decide", &request["id"].to_string(), "allow"]).good();
    said.clear();
    output.read_line(&mut said).expect("it says something");
    assert_eq!(said, "200\n");
    waiting.wait().expect("it ends");
    site.say(&["rm", id]).good();
}

/// On other ports than those of HTTP it is not known what is inside, and nobody is greeted before it is
/// allowed: the program is let go in time, and its next try is answered.
fn a_greeting_on_another_port_is_not_held_until_its_program_gives_up(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--net", "ask"]).good();
    let id = id.trim();
    let get = "curl -sS -k --noproxy '*' -m 30 https://web.example:8443/greeted-elsewhere";
    let begin = Instant::now();
    let said = site.say(&["exec", id, "--", "sh", "-c", get]);
    let waited = begin.elapsed();
    assert_eq!(said.code, 35, "the greeting failed: {said:?}");
    assert!((Duration::from_secs(7)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    let number = pending(site, id)["id"].to_string();
    site.say(&["decide", &number, "allow"]).good();
    let begin = Instant::now();
    let said = site.say(&["exec", id, "--", "sh", "-c", get]);
    assert_eq!(said.good(), "hello from web.example:8443\n");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    site.say(&["rm", id]).good();
}

/// Where no rule looks into anything the session does not know its authority: an answer inside TLS would
/// be an error of trust, which says nothing.
fn a_greeting_is_refused_in_words_where_nothing_is_looked_into(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "web.example:7000", "--allow", "host:8080"]).good();
    let id = id.trim();
    for (host, rule) in [("web.example", "web.example:443"), ("host.cowork.internal", "host:443")] {
        let get = format!("curl -sS --noproxy '*' -m 20 https://{host}/greeted-in-vain");
        let said = site.say(&["exec", id, "--", "sh", "-c", &get]);
        assert_eq!(said.code, 35, "the greeting failed, and not the trust: {said:?}");
        assert!(said.err.contains("access denied"), "{said:?}");
        let audit = site.say(&["audit", id, "--json"]).good();
        assert!(audit.contains("network.decided") && audit.contains(host), "{audit}");
        // What people are told to type is what the verb takes.
        let plain = format!("curl -sS --noproxy '*' -m 20 http://{host}/plain-in-vain");
        let said = site.say(&["exec", id, "--", "sh", "-c", &plain]).good();
        let body: Value = serde_json::from_str(&said).expect("it is JSON");
        let hint = body["error"]["hint"].as_str().expect("there is a hint").to_owned();
        let wanted = format!("`cowork allow {id} {}`", rule.replace("443", "80"));
        assert!(hint.contains(&wanted), "{hint}");
        site.say(&["allow", id, rule]).good();
    }
    site.say(&["rm", id]).good();
    assert!(site.arrived("in-vain").is_empty());
}

fn rules_change_while_it_runs(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new"]).good();
    let id = id.trim();
    let get = || site.say(&["exec", id, "--", "curl", "-sS", "-m", "5", "http://web.example/live"]);
    assert_ne!(get().code, 0, "there is no network yet");
    site.say(&["allow", id, "web.example"]).good();
    assert_eq!(get().good(), "hello from web.example\n");
    site.say(&["allow", id, "db.example:7000"]).good();
    let talk = "exec 3<>/dev/tcp/db.example/7000; head -1 <&3";
    assert_eq!(site.say(&["exec", id, "--", "bash", "-c", talk]).good(), "greetings\n");
    site.say(&["allow", id, "web.example", "--remove"]).good();
    assert!(get().out.contains("no-rule"));
    site.say(&["rm", id]).good();
}

fn what_went_where_is_shown(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "web.example"]).good();
    let id = id.trim();
    let script =
        "curl -sS http://web.example/events >/dev/null; curl -sS http://denied.example/ >/dev/null";
    site.say(&["exec", id, "--", "sh", "-c", script]).good();
    let begin = Instant::now();
    loop {
        let said = site.say(&["net", id]).good();
        let refused = said.find("denied.example");
        if refused.is_some() && said.contains("web.example") && said.contains("no-rule") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let would = site.say(&["net", "explain", id, "https://web.example/x"]).good();
    assert!(would.contains("allow web.example"), "{would}");
    let would = site.say(&["net", "explain", id, "https://denied.example/x"]);
    assert!(would.out.contains("no-rule") || would.out.contains("no rule"), "{would:?}");
    let audit = site.say(&["audit", id, "--json"]).good();
    assert!(audit.contains("network.decided") && audit.contains("denied.example"), "{audit}");
    // It was there long enough to be seen.
    assert!(audit.contains("curl ("), "the process is named: {audit}");
    site.say(&["rm", id]).good();
    site.say(&["audit", "verify"]).good();
}

fn a_killed_egress_is_replaced_and_nothing_passes_meanwhile(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "web.example"]).good();
    let id = id.trim();
    let get =
        || site.say(&["exec", id, "--", "curl", "-sS", "-m", "10", "http://web.example/again"]);
    get().good();
    let shown = site.say(&["net", "rules", id, "--json"]).good();
    let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
    let pid = shown["egress"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.expect("the process is named");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
    let begin = Instant::now();
    while get().code != 0 {
        assert!(begin.elapsed() < Duration::from_secs(15), "it was not replaced");
    }
    let audit = site.say(&["audit", id, "--json"]).good();
    assert!(audit.contains("network.lost"), "{audit}");
    site.say(&["rm", id]).good();
}

fn a_session_without_rules_has_no_network(person: Person) {
    let site = Site::of(person);
    let program = "python3 -c 'import socket, time\n\
        begin = time.monotonic()\n\
        for place in ((\"web.example\", 80), (\"11.22.33.7\", 80), (\"127.0.0.1\", 3128), (\"198.18.0.1\", 80)):\n\
        \ttry: socket.create_connection(place, 5); print(\"reached\", place)\n\
        \texcept OSError as e: print(\"refused\")\n\
        print(time.monotonic() - begin < 3)'; env | grep -ci proxy";
    let said = site.script(&[], program);
    assert_eq!(said.out, format!("{}True\n0\n", "refused\n".repeat(4)), "{said:?}");
}

fn a_port_is_published(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "web.example"]).good();
    let id = id.trim();
    site.say(&["exec", "--detach", id, "--", "python3", "-m", "http.server", "3000"]).good();
    let said = site.say(&["publish", id, "3000", "--json"]).good();
    let port: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(port["inside"], 3000);
    assert!(port["outside"].as_u64().is_some_and(|port| port > 0), "{port}");
    site.say(&["unpublish", id, &port["outside"].to_string()]).good();
    site.say(&["rm", id]).good();
}
