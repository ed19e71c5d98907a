//! Programs that look for credentials in files of their own find placeholders there.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;

for_everyone!(git_credentials, netrc, npmrc, files_of_several_secrets, a_file_of_one_s_own);

const VALUE: &str = "sk-test-4f6b2a9c7d1e8f3059ab";

fn keep(site: &Site, name: &str, host: &str, more: &[&str]) {
    let mut words = vec!["secret", "set", name, "--host", host, "--user", "me"];
    words.extend(more);
    site.tell(&words, VALUE).good();
}

fn git_credentials(person: Person) {
    let site = Site::of(person);
    keep(site, "for-git", "git.example", &["--for", "git"]);
    let script = "export GIT_TERMINAL_PROMPT=0; cat ~/.git-credentials; \
                  git clone -q https://git.example/repository.git /tmp/copy && cat /tmp/copy/file; \
                  cd /tmp/copy && git config --global user.name me && git fetch && echo fetched";
    let said = site.script(&["--secret", "for-git"], script).good();
    assert!(said.ends_with("text\nfetched\n") && said.starts_with("https://me:sk-"), "{said}");
    assert!(!said.contains(VALUE), "{said}");
    // Without it the same host wants to know who comes.
    let script = "GIT_TERMINAL_PROMPT=0 git clone -q https://git.example/repository.git /tmp/copy";
    let refused = site.script(&["--allow", "https://git.example/**"], script);
    assert_ne!(refused.code, 0, "{refused:?}");
}

fn netrc(person: Person) {
    let site = Site::of(person);
    keep(site, "for-netrc", "api.example", &["--for", "netrc"]);
    // Python refuses such a file unless it belongs to its user, who alone can read it.
    let script = "curl -n -sS https://api.example/private/curl; \
        python3 -c 'import requests; print(requests.get(\"https://api.example/private/requests\").text, end=\"\")'; \
        wget -qO- --auth-no-challenge https://api.example/private/wget; \
        python3 -c 'import netrc; print(netrc.netrc().authenticators(\"api.example\")[0])'; \
        stat -Lc %a ~/.netrc; echo x >> ~/.netrc || echo kept";
    let said = site.script(&["--secret", "for-netrc"], script).good();
    assert_eq!(said, "welcome\nwelcome\nwelcome\nme\n600\nkept\n");
    let said = site.script(&["--secret", "for-netrc"], "cat ~/.netrc").good();
    assert!(said.starts_with("machine api.example login me password sk-"), "{said}");
    assert!(!said.contains(VALUE), "{said}");
}

fn npmrc(person: Person) {
    let site = Site::of(person);
    keep(site, "for-npm", "api.example", &["--for", "npm"]);
    let script = "npm view thing version --registry https://api.example/ 2>&1";
    let said = site.script(&["--secret", "for-npm"], script).good();
    assert_eq!(said.lines().last(), Some("1.2.3"), "{said}");
}

fn files_of_several_secrets(person: Person) {
    let site = Site::of(person);
    keep(site, "one-of-two", "api.example", &["--for", "netrc"]);
    keep(site, "two-of-two", "web.example", &["--for", "netrc"]);
    let options = ["--secret", "one-of-two", "--secret", "two-of-two"];
    let script = "for host in api web; do curl -n -sS https://$host.example/private/both; done; \
                  grep -c machine ~/.netrc";
    assert_eq!(site.script(&options, script).good(), "welcome\nwelcome\n2\n");
    // In a session that stays, it follows the secrets.
    let id = site.say(&["new", "--secret", "one-of-two"]).good().trim().to_owned();
    let count = || site.say(&["exec", &id, "--", "grep", "-c", "machine", ".netrc"]).out;
    assert_eq!(count(), "1\n");
    site.say(&["secret", "rm", "one-of-two"]).good();
    assert_eq!(count(), "", "it is gone with its secret");
    site.say(&["rm", &id]).good();
}

fn a_file_of_one_s_own(person: Person) {
    let site = Site::of(person);
    keep(site, "own-file", "api.example", &["--file", ".tool.toml=token = \"{secret}\""]);
    let script = "token=$(sed -n 's/^token = \"\\(.*\\)\"$/\\1/p' ~/.tool.toml); \
                  curl -sS -H \"Authorization: Bearer $token\" https://api.example/private/own";
    assert_eq!(site.script(&["--secret", "own-file"], script).good(), "welcome\n");
    for wrong in ["../x={secret}", "a/b={secret}", "mnt={secret}"] {
        let words = ["secret", "set", "wrong-file", "--host", "api.example", "--file", wrong];
        assert_ne!(site.tell(&words, VALUE).code, 0, "{wrong}");
    }
}
