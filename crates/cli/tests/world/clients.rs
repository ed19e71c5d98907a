//! Programs that people use, none of which knows of cowork, reach what was allowed and nothing else.

use crate::for_every_site;
use crate::site::{Site, whole};
use cowork_testbed::{Folder, Person};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::OnceLock;

for_every_site!(
    curl_with_and_without_a_proxy,
    wget,
    python_urllib,
    python_requests,
    python_httpx,
    python_raw_sockets,
    node_fetch,
    node_websocket,
    node_ws,
    go,
    java,
    git_over_https,
    git_over_ssh,
    psql,
    chromium,
    a_server_that_speaks_first,
    six,
    what_is_inspected_is_trusted_by_everybody,
    server_sent_events_are_not_held_back,
    a_large_body_passes,
    a_port_that_is_allowed_later_arrives,
);

/// Without the variables that tell of the proxies: programs that ignore them.
const BARE: &str =
    "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy NO_PROXY no_proxy; ";
/// What the world's servers are verified by, where nothing is looked into.
const ROOTS: &str =
    "export SSL_CERT_FILE=$PWD/mnt/desk/ca.pem CURL_CA_BUNDLE=$PWD/mnt/desk/ca.pem; ";

/// The tunnel's server is verified by the client itself, so it needs the world's authority.
fn with_roots(site: &Site) -> String {
    let roots = std::fs::read_to_string(site.folder.path().join("ca.pem")).expect("it is there");
    site.place("ca.pem", &roots);
    ROOTS.to_owned()
}

fn curl_with_and_without_a_proxy(site: &Site) {
    let roots = with_roots(site);
    for prefix in ["", BARE] {
        let script = format!(
            "{prefix}{roots} curl -sS http://web.example/curl; curl -sS https://web.example/curl"
        );
        let said = site.script(&["--allow", "web.example"], &script).good();
        assert_eq!(said, "hello from web.example\nhello from web.example\n", "{prefix}");
        let refused = site.script(
            &["--allow", "web.example"],
            &format!("{prefix}{roots} curl -sS -m 5 https://denied.example/curl-refused"),
        );
        assert_ne!(refused.code, 0, "{refused:?}");
        assert_ne!(refused.code, 28, "it must not take time: {refused:?}");
    }
    assert!(site.arrived("curl-refused").is_empty());
    let said = site.script(&["--allow", "web.example"], "curl -sS http://denied.example/").good();
    assert!(said.contains("\"no-rule\"") && said.contains("denied.example"), "{said}");
}

fn wget(site: &Site) {
    for prefix in ["", BARE] {
        let script = format!("{prefix} wget -qO- http://web.example/wget");
        let said = site.script(&["--allow", "web.example"], &script).good();
        assert_eq!(said, "hello from web.example\n");
    }
}

fn python_urllib(site: &Site) {
    let roots = with_roots(site);
    let program = "python3 -c 'import urllib.request as r\n\
                   for s in (\"http\", \"https\"): print(r.urlopen(s + \"://web.example/py\").read().decode(), end=\"\")'";
    for prefix in ["", BARE] {
        let script = format!("{prefix}{roots}{program}");
        let said = site.script(&["--allow", "web.example"], &script).good();
        assert_eq!(said, "hello from web.example\n".repeat(2));
    }
}

fn python_requests(site: &Site) {
    let program = "python3 -c 'import requests; print(requests.get(\"https://web.example/requests\").text, end=\"\")'";
    for prefix in ["", BARE] {
        let script = format!("{prefix}{program}");
        let said = site.script(&["--allow", "GET https://web.example/**"], &script).good();
        assert_eq!(said, "hello from web.example\n", "{prefix}");
    }
}

fn python_httpx(site: &Site) {
    let program =
        "python3 -c 'import httpx; print(httpx.get(\"https://web.example/httpx\").text, end=\"\")'";
    for prefix in ["", BARE] {
        let script = format!("{prefix}{program}");
        let said = site.script(&["--allow", "GET https://web.example/**"], &script).good();
        assert_eq!(said, "hello from web.example\n", "{prefix}");
    }
}

fn python_raw_sockets(site: &Site) {
    let program = "python3 -c 'import socket\n\
        s = socket.create_connection((\"web.example\", 80))\n\
        s.sendall(b\"GET /raw HTTP/1.0\\r\\nHost: web.example\\r\\n\\r\\n\")\n\
        print(s.makefile().read().splitlines()[-1])\n\
        for place in ((\"11.22.33.7\", 80), (\"web.example\", 81), (\"169.254.169.254\", 80), (\"denied.example\", 80)):\n\
        \ttry: s = socket.create_connection(place, 5); s.sendall(b\"GET /raw-refused HTTP/1.0\\r\\n\\r\\n\"); print(\"reached\" if s.recv(1) else \"closed\")\n\
        \texcept OSError as e: print(type(e).__name__)'";
    let said = site.script(&["--allow", "web.example"], program).good();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("hello from web.example"));
    for line in lines {
        assert!(!line.contains("reached") && !line.contains("timeout"), "{said}");
    }
    assert!(site.arrived("raw-refused").is_empty());
}

fn node_fetch(site: &Site) {
    let program = "node -e 'fetch(\"https://web.example/node\").then(r => r.text()).then(t => process.stdout.write(t))'";
    for prefix in ["", BARE] {
        let said =
            site.script(&["--allow", "GET https://web.example/**"], &format!("{prefix}{program}"));
        assert_eq!(said.good(), "hello from web.example\n");
    }
}

/// A WebSocket by hand, over TLS that is looked into.
fn node_websocket(site: &Site) {
    site.place(
        "ws.js",
        "const https = require('https');\n\
         const r = https.request('https://web.example/ws', { headers: { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': 13, 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' } });\n\
         r.on('upgrade', (response, socket) => {\n\
           socket.on('data', (d) => { console.log(d.subarray(2).toString()); socket.destroy(); });\n\
           socket.write(Buffer.from([0x81, 0x85, 0, 0, 0, 0, ...Buffer.from('hello')]));\n\
         });\n\
         r.on('response', (response) => { console.log('refused', response.statusCode); process.exit(1); });\n\
         r.end();\n",
    );
    let said = site.script(&["--allow", "GET https://web.example/**"], "node mnt/desk/ws.js");
    assert_eq!(said.good(), "hello\n");
}

/// The library that most programs of Node use for web sockets, which knows no proxy.
fn node_ws(site: &Site) {
    site.place(
        "library.js",
        "const socket = new (require('ws'))('wss://web.example/ws-library');\n\
         socket.on('open', () => socket.send('hello'));\n\
         socket.on('message', (text) => { console.log(text.toString()); socket.terminate(); });\n\
         socket.on('error', (error) => { console.log('refused', error.message); process.exit(1); });\n",
    );
    let script = "NODE_PATH=/usr/share/nodejs node mnt/desk/library.js";
    assert_eq!(site.script(&["--allow", "GET https://web.example/**"], script).good(), "hello\n");
    let refused = site.script(&["--allow", "GET https://api.example/**"], script);
    assert_ne!(refused.code, 0, "{refused:?}");
}

/// A static program with a resolver and a TLS of its own.
fn go(site: &Site) {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let folder = Folder::new(Person::Root, "go");
        let source = folder.write(
            "get.go",
            "package main\n\
             import (\"io\"; \"net/http\"; \"os\")\n\
             func main() {\n\
             for _, url := range os.Args[1:] {\n\
             r, e := http.Get(url)\n\
             if e != nil { println(e.Error()); os.Exit(1) }\n\
             io.Copy(os.Stdout, r.Body)\n\
             } }\n",
        );
        let out = folder.path().join("get");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&out).arg(source).env("CGO_ENABLED", "0");
        go.env("GOCACHE", folder.path().join("cache")).env("GOFLAGS", "-mod=mod");
        let built = go.current_dir(folder.path()).output().expect("`apt-get install golang-go`");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        whole(&out)
    });
    let path = site.folder.write("desk/get", program);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let script = "mnt/desk/get https://web.example/go";
    for prefix in ["", BARE] {
        let script = format!("{prefix}{script}");
        let said = site.script(&["--allow", "GET https://web.example/**"], &script).good();
        assert_eq!(said, "hello from web.example\n", "{prefix}");
    }
    let refused = site.script(&["--allow", "GET https://api.example/**"], script);
    assert_ne!(refused.code, 0, "{refused:?}");
}

fn java(site: &Site) {
    site.place(
        "Get.java",
        "import java.net.*; import java.net.http.*;\n\
         class Get { public static void main(String[] a) throws Exception {\n\
         HttpResponse<String> r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(\"https://web.example/java\")).build(), HttpResponse.BodyHandlers.ofString());\n\
         System.out.print(r.body()); } }\n",
    );
    let said = site.script(&["--allow", "GET https://web.example/**"], "java mnt/desk/Get.java");
    assert_eq!(said.good(), "hello from web.example\n");
}

fn git_over_https(site: &Site) {
    let roots = with_roots(site);
    // Looked into, and as it is; with the proxy, and without.
    for (number, (rule, prefix)) in [
        ("GET,POST https://git.example/**", ""),
        ("GET,POST https://git.example/**", BARE),
        ("git.example", ""),
        ("git.example", BARE),
    ]
    .into_iter()
    .enumerate()
    {
        let own = if rule == "git.example" {
            format!("{roots} export GIT_SSL_CAINFO=$SSL_CERT_FILE;")
        } else {
            String::new()
        };
        let url = format!("https://git.example/open/{number}/repository.git");
        let script = format!("{prefix}{own} git clone -q {url} /tmp/copy && cat /tmp/copy/file");
        let said = site.script(&["--allow", rule], &script);
        assert_eq!(said.good(), "text\n", "{rule} {prefix}");
        let asked = site.arrived(&format!("open/{number}/repository.git/info/refs"));
        let agent = asked[0]["headers"]["user-agent"].as_str().unwrap_or_default();
        assert!(agent.starts_with("git/"), "{asked:?}");
    }
    // What is pushed is another request, and a host that is not named is not there.
    for rule in ["GET https://git.example/**", "web.example"] {
        let script = "git clone -q https://git.example/open/no/repository.git /tmp/copy";
        let refused = site.script(&["--allow", rule], script);
        assert_ne!(refused.code, 0, "{rule}: {refused:?}");
    }
    assert!(site.arrived("open/no/repository.git/git-upload-pack").is_empty());
}

fn git_over_ssh(site: &Site) {
    let repository = site.folder.path().join("repository.git").display().to_string();
    let script = format!(
        "export GIT_SSH_COMMAND='ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i '$PWD/mnt/desk/key; \
         cp mnt/desk/key /tmp/key; chmod 600 /tmp/key; export GIT_SSH_COMMAND=\"${{GIT_SSH_COMMAND% *}} /tmp/key\"; \
         git clone -q ssh://root@ssh.example{repository} /tmp/copy && cat /tmp/copy/file"
    );
    let said = site.script(&["--allow", "ssh.example:22"], &script);
    assert_eq!(said.good(), "text\n");
    let refused = site.script(&["--allow", "ssh.example"], &script);
    assert_ne!(refused.code, 0, "{refused:?}");
}

fn psql(site: &Site) {
    let script = "psql -h db.example -U test -d postgres -Atc 'select 6 * 7'";
    assert_eq!(site.script(&["--allow", "db.example:5432"], script).good(), "42\n");
    let refused = site.script(&["--allow", "db.example"], script);
    assert_ne!(refused.code, 0, "{refused:?}");
}

/// It trusts the session's authority by a policy of its own.
fn chromium(site: &Site) {
    for (rule, url) in [
        ("web.example", "http://web.example/chromium"),
        ("GET https://web.example/**", "https://web.example/chromium"),
    ] {
        let script = format!(
            "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom {url} 2>chromium.err; \
             tail -3 chromium.err >&2"
        );
        let said = site.script(&["--allow", rule], &script).good();
        assert!(said.contains("hello from web.example"), "{url}: {said}");
    }
}

fn a_server_that_speaks_first(site: &Site) {
    let script =
        "exec 3<>/dev/tcp/db.example/7000; read -r line <&3; echo \"$line\"; echo me >&3; cat <&3";
    let said = site.script(&["--allow", "db.example:7000"], script).good();
    assert_eq!(said, "greetings\nheard me\n");
    let refused = site.script(&["--allow", "db.example"], script);
    assert_ne!(refused.code, 0, "{refused:?}");
}

fn six(site: &Site) {
    let script = format!("{BARE} curl -6 -sS http://six.example/six");
    let said = site.script(&["--allow", "six.example"], &script).good();
    assert_eq!(said, "hello from six.example\n");
}

fn what_is_inspected_is_trusted_by_everybody(site: &Site) {
    // Programs that read the system's store, without any variable that tells them of another one.
    let clean = "env -i PATH=$PATH HOME=$HOME";
    let script = format!(
        "set -e; {clean} curl -sS https://web.example/t; {clean} wget -qO- https://web.example/t; \
         {clean} python3 -c 'import urllib.request as r; print(r.urlopen(\"https://web.example/t\").read().decode(), end=\"\")'; \
         {clean} openssl s_client -brief -verify_return_error -connect web.example:443 </dev/null 2>&1 | grep -c 'Verification: OK'; \
         node -e 'fetch(\"https://web.example/t\").then(r => r.text()).then(t => process.stdout.write(t))'"
    );
    let said = site.script(&["--allow", "GET https://web.example/**"], &script).good();
    let hello = "hello from web.example\n";
    assert_eq!(said, format!("{hello}{hello}{hello}1\n{hello}"));
}

fn server_sent_events_are_not_held_back(site: &Site) {
    let script = "curl -sSN https://web.example/events | \
                  while IFS= read -r line; do [ -n \"$line\" ] && echo \"$(date +%s%N) $line\"; done";
    let said = site.script(&["--allow", "GET https://web.example/**"], script);
    let said = said.out;
    let times: Vec<u64> =
        said.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    let [first, second] = times[..] else { panic!("two events: {said}") };
    assert!(second - first > 300_000_000, "the first one was held back: {said}");
}

fn a_large_body_passes(site: &Site) {
    for (rule, roots) in
        [("GET https://web.example/**", String::new()), ("web.example", with_roots(site))]
    {
        let script = format!("{roots} curl -sS https://web.example/big/200000000 | wc -c");
        assert_eq!(site.script(&["--allow", rule], &script).good().trim(), "200000000", "{rule}");
    }
}

/// In a session that runs: where only connections to named ports arrive, another port is listened on.
fn a_port_that_is_allowed_later_arrives(site: &Site) {
    let id = site.say(&["new", "--allow", "db.example"]).good().trim().to_owned();
    let rules = site.say(&["net", "rules", &id, "--json"]).good();
    let rules: serde_json::Value = serde_json::from_str(&rules).expect("a document");
    assert_eq!(rules["egress"]["all_ports"], site.every_port_arrives(), "{rules}");
    let script = "exec 3<>/dev/tcp/db.example/7000 && read -r line <&3 && echo \"$line\"";
    let say = || site.say(&["exec", &id, "--", "bash", "-c", script]);
    assert_eq!(say().out, "");
    site.say(&["allow", &id, "db.example:7000"]).good();
    assert_eq!(say().good(), "greetings\n");
    site.say(&["rm", &id]).good();
}
