//! Behind the proxy of a company: one of HTTP, which leads to port 443 only, the same over TLS, and one
//! of SOCKS.

use crate::for_everyone;
use crate::site::{Site, Way};
use cowork_testbed::Person;
use serde_json::Value;

for_everyone!(
    everything_goes_through_the_parent_proxy,
    a_parent_proxy_is_spoken_to_over_tls,
    a_parent_proxy_of_socks_leads_to_every_port,
);

/// What a proxy was asked.
fn asked(site: &Site, scheme: &str, word: &str) -> Vec<Value> {
    let all = site.arrived(word).into_iter();
    all.filter(|one| one["scheme"] == scheme).collect()
}

fn everything_goes_through_the_parent_proxy(person: Person) {
    let site = Site::alone_by(Way::BehindProxy, person);
    let asked = |word: &str| asked(&site, "proxy", word);
    // The proxy ends TLS; only its authority is trusted here, not that of the servers.
    let rules = ["--allow", "GET https://web.example/**", "--allow", "api.example"];
    let script = "set -e; curl -sS https://web.example/by-proxy; curl -sS http://api.example/plain; \
                  curl -sS -o /dev/null -w '%{http_connect}' https://denied.example/ || true";
    let said = site.script(&rules, script).good();
    assert_eq!(said, "hello from web.example\nhello from api.example\n403");
    let connect = asked("web.example:443");
    assert_eq!(connect.len(), 1, "{connect:?}");
    assert_eq!(connect[0]["headers"]["proxy-authorization"], "Basic bWU6c2VjcmV0");
    assert_eq!(site.arrived("/by-proxy").len(), 1);
    // What is refused is not told to the proxy.
    assert!(asked("denied.example").is_empty());
    // Plain requests are sent to it whole, and the server is not told who comes.
    let plain = asked("http://api.example/plain");
    assert_eq!((plain.len(), &plain[0]["method"]), (1, &Value::from("GET")), "{plain:?}");
    assert_eq!(plain[0]["headers"]["proxy-authorization"], "Basic bWU6c2VjcmV0");
    assert!(asked("api.example:80").is_empty(), "it would refuse to lead there");
    // So are those of programs that know of no proxy, also where nothing needs to be looked into, one
    // after another over one connection.
    let bare = "curl -sS --noproxy '*' http://api.example/bare-1 http://api.example/bare-2";
    let said = site.script(&["--allow", "api.example"], bare).good();
    assert_eq!(said, "hello from api.example\n".repeat(2));
    assert_eq!(asked("http://api.example/bare-").len(), 2);
    let said = site.script(&["--allow", "api.example"], &format!("{bare} --data text")).good();
    assert_eq!(said, "hello from api.example\n".repeat(2));
    // It is led to the port that was decided about, also by a request that leaves it out.
    let bare = "curl -sS -m 20 --noproxy '*' -H 'Host: web.example' http://web.example:9000/odd";
    site.script(&["--allow", "GET http://web.example:9000/**"], bare);
    let odd = asked("/odd");
    assert_eq!((odd.len(), &odd[0]["url"]), (1, &Value::from("http://web.example:9000/odd")));
    // The name is the proxy's to look up.
    assert!(
        site.arrived("").iter().all(|one| one["scheme"] != "dns" || one["url"] != "web.example")
    );
    // What it knows of the proxy, a session is not told: neither who comes, nor where it is.
    let said =
        site.script(&["--allow", "web.example"], "env; cat mnt/.cowork* 2>/dev/null; true").good();
    assert!(!said.contains("secret@") && !said.contains("proxy.example"), "{said}");
    tunnels_lead_where_the_proxy_lets_them(&site);
    what_the_proxy_alone_knows_is_not_promised(&site);
}

/// A denial of addresses is about names that lead there, and these are looked up by the proxy.
fn what_the_proxy_alone_knows_is_not_promised(site: &Site) {
    let sentence = "`deny 10.0.0.0/8` cannot be enforced behind the parent proxy";
    let said = site.script(&["--allow", "web.example", "--deny", "10.0.0.0/8"], "echo ran");
    assert!(said.code != 0 && said.out.is_empty() && said.err.contains(sentence), "{said:?}");
    let id = site.say(&["new", "--allow", "web.example"]).good();
    let id = id.trim();
    let said = site.say(&["deny", id, "10.0.0.0/8"]);
    assert!(said.code != 0 && said.err.contains(sentence), "{said:?}");
    let get = ["exec", id, "--", "curl", "-sS", "http://web.example/as-before"];
    assert_eq!(site.say(&get).good(), "hello from web.example\n");
    site.say(&["rm", id]).good();
}

fn tunnels_lead_where_the_proxy_lets_them(site: &Site) {
    let asked = |word: &str| asked(site, "proxy", word);
    // Excepted by its port: it is reached without the proxy.
    let rules =
        ["--allow", "api.example", "--allow", "api.example:8443", "--allow", "web.example:8443"];
    let said = site.script(&rules, "curl -sSk https://api.example:8443/direct").good();
    assert_eq!(said, "hello from api.example:8443\n");
    assert!(asked("api.example:8443").is_empty());
    // The exception is about one port: the other one goes through the proxy, as a tunnel too.
    let said = site.script(&rules, "curl -sSk https://api.example/tunnel").good();
    assert_eq!(said, "hello from api.example\n");
    assert_eq!(asked("api.example:443").len(), 1);
    // It does not lead to other ports, and that is said.
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128; \
                  printf 'CONNECT web.example:8443 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3";
    let said = site.script(&rules, script);
    let refused = "the parent proxy proxy.example:3128 refuses to lead to web.example:8443";
    assert!(said.out.contains(refused), "{said:?}");
    assert!(said.out.contains("x-cowork-deny: parent-connect"), "{said:?}");
    assert_eq!(asked("web.example:8443").len(), 1);
    // A rule that says so has a tunnel on port 80 as well, and hears the same.
    let rules = ["--policy", "tunnel.toml"];
    site.place("tunnel.toml", "[[egress.allow]]\nhost = \"web.example\"\ntls = \"tunnel\"\n");
    let said = site.script(&rules, "curl -sS -p -m 20 -D- http://web.example/ 2>/dev/null");
    assert!(said.out.contains("x-cowork-deny: parent-connect"), "{said:?}");
    assert_eq!(asked("web.example:80").len(), 1);
}

fn a_parent_proxy_is_spoken_to_over_tls(person: Person) {
    let site = Site::alone_by(Way::BehindTlsProxy, person);
    let rules = ["--allow", "web.example", "--allow", "GET https://api.example/**"];
    let script = "set -e; curl -sS http://web.example/plain; curl -sS https://api.example/inspected; \
                  curl -sSk https://web.example/tunnel; \
                  curl -sS --noproxy '*' http://web.example/bare";
    let said = site.script(&rules, script).good();
    let (web, api) = ("hello from web.example\n", "hello from api.example\n");
    assert_eq!(said, [web, api, web, web].concat());
    for word in ["http://web.example/plain", "api.example:443", "web.example:443", "/bare"] {
        let asked = asked(&site, "proxy", word);
        assert_eq!(asked.len(), 1, "{word}: {asked:?}");
        assert_eq!(asked[0]["tls"], true, "{word}");
        // me:p@ss/
        assert_eq!(asked[0]["headers"]["proxy-authorization"], "Basic bWU6cEBzcy8=", "{word}");
    }
}

fn a_parent_proxy_of_socks_leads_to_every_port(person: Person) {
    let site = Site::alone_by(Way::BehindSocks, person);
    let rules = [
        "--allow",
        "web.example",
        "--allow",
        "web.example:7000",
        "--allow",
        "GET https://api.example/**",
    ];
    let script = "set -e; curl -sS http://web.example/plain; curl -sS https://api.example/inspected; \
                  curl -sSk https://web.example/tunnel; \
                  curl -sS --noproxy '*' http://web.example/bare; \
                  exec 3<>/dev/tcp/web.example/7000; read -r line <&3; echo \"$line\"";
    let said = site.script(&rules, script).good();
    let (web, api) = ("hello from web.example\n", "hello from api.example\n");
    assert_eq!(said, [web, api, web, web, "greetings\n"].concat());
    for (word, count) in [("web.example:80", 2), ("api.example:443", 1), ("web.example:443", 1)] {
        let asked = asked(&site, "socks", word);
        assert_eq!(asked.len(), count, "{word}: {asked:?}");
        assert!(asked.iter().all(|one| one["kind"] == 3), "names are the proxy's to look up");
    }
    let said = site.script(&["--allow", "web.example:81"], "curl -sS -m 20 http://web.example:81/");
    assert!(said.out.contains("nothing listens on this port there"), "{said:?}");
}
