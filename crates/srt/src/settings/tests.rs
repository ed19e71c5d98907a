//! Tests of settings: what is understood, what is refused, and how that is said.

use super::{GitConfig, Settings, Spelling};
use proptest::prelude::*;

/// Settings with these members in place of the usual ones.
fn with(network: &str, filesystem: &str, rest: &str) -> String {
    let network = if network.is_empty() { "" } else { &format!(", {network}") };
    let filesystem = if filesystem.is_empty() { "" } else { &format!(", {filesystem}") };
    let rest = if rest.is_empty() { "" } else { &format!(", {rest}") };
    format!(
        "{{\"network\": {{\"allowedDomains\": [\"a.example.com\", \"*.example.org\"], \
         \"deniedDomains\": []{network}}}, \"filesystem\": {{\"denyRead\": [\"~/.ssh\"], \
         \"allowWrite\": [\".\"], \"denyWrite\": []{filesystem}}}{rest}}}"
    )
}

#[test]
fn a_whole_file_is_understood() {
    let text = with(
        r#""deniedResolvedAddresses": ["10.0.0.0/8"], "strictAllowlist": true,
           "allowUnixSockets": ["/x"], "allowLocalBinding": true, "allowMachLookup": ["com.a.*"],
           "allowAllUnixSockets": false, "tlsTerminate": {"excludeDomains": ["b.example.org"]},
           "parentProxy": {"http": "http://p:3128", "noProxy": "localhost"},
           "requireHostMatch": true, "ambiguousRequestTarget": "refuse""#,
        r#""allowRead": [{"path": "~/.ssh/[known]", "literal": true}], "allowGitConfig": true,
           "disabled": false"#,
        r#""credentials": {"files": [{"path": "~/.netrc", "mode": "deny"}],
             "envVars": [{"name": "A", "mode": "deny"}, {"name": "B", "mode": "mask",
               "injectHosts": ["a.example.com"], "extract": "x(.*)", "onExtractNoMatch": "deny"}]},
           "ignoreViolations": {"*": ["/x"]}, "enableWeakerNestedSandbox": true,
           "allowPty": true, "mandatoryDenySearchDepth": 5, "ripgrep": {"command": "rg"},
           "seccomp": {"applyPath": "/x"}, "bwrapPath": "/usr/bin/bwrap",
           "git": {"safeDirectories": ["/repo"]}, "windows": {"sandboxUser": "x"}"#,
    );
    let read = Settings::parse(&text).unwrap();
    assert_eq!(read.unknown, [] as [&str; 0]);
    let Settings { network, filesystem, credentials, safe_directories } = read.settings;
    assert_eq!(network.allowed.len(), 2);
    assert_eq!(network.denied_addresses.len(), 1);
    assert_eq!(network.tls.unwrap().exclude.len(), 1);
    assert_eq!(network.parent.unwrap().url, "http://p:3128");
    assert_eq!(filesystem.allow_read[0].spelling, Spelling::Literal);
    assert!(!filesystem.allow_read[0].is_pattern());
    assert_eq!(filesystem.git_config, GitConfig::Writable);
    assert_eq!((credentials.files.len(), credentials.denied), (1, vec!["A".to_owned()]));
    assert_eq!(credentials.masked_variables[0].0, "B");
    assert_eq!(credentials.masked_variables[0].1.key, "credentials.envVars.1");
    assert_eq!(safe_directories, ["/repo"]);
}

#[test]
fn keys_that_nobody_knows_are_told() {
    let text = with("\"new\": 1", "\"new\": 2", "\"new\": 3, \"git\": {\"new\": 4}");
    let mut unknown = Settings::parse(&text).unwrap().unknown;
    unknown.sort();
    assert_eq!(unknown, ["filesystem.new", "git.new", "network.new", "new"]);
}

#[test]
fn what_is_required_is_required() {
    let sentence = |text: &str| Settings::parse(text).unwrap_err().to_string();
    assert_eq!(sentence("{}"), "network: it is required; filesystem: it is required");
    assert_eq!(
        sentence(r#"{"network": {}, "filesystem": {}}"#),
        "network.allowedDomains: it is required; network.deniedDomains: it is required; \
         filesystem.denyRead: it is required; filesystem.denyWrite: it is required; \
         filesystem.allowWrite: it is required"
    );
    assert_eq!(sentence("[]"), "settings are a JSON object");
    assert!(sentence("{").starts_with("it is no JSON: "));
}

/// Each of these is wrong at one key, and says so.
#[test]
fn what_is_wrong_is_told_by_its_key() {
    for (network, filesystem, rest, key, part) in [
        ("\"strictAllowlist\": 1", "", "", "network.strictAllowlist", "true or false"),
        (
            "\"deniedResolvedAddresses\": [\"x\"]",
            "",
            "",
            "network.deniedResolvedAddresses.0",
            "range",
        ),
        ("\"deniedDomainReasons\": {\"a\": \"\"}", "", "", "network.deniedDomainReasons.a", "text"),
        ("\"allowMachLookup\": [\"a*b\"]", "", "", "network.allowMachLookup.0", "`*`"),
        (
            "\"ambiguousRequestTarget\": \"x\"",
            "",
            "",
            "network.ambiguousRequestTarget",
            "\"refuse\"",
        ),
        (
            "\"tlsTerminate\": {\"caCertPath\": \"/x\"}",
            "",
            "",
            "network.tlsTerminate.caCertPath",
            "go together",
        ),
        (
            "\"tlsTerminate\": {\"excludeDomains\": [\"*\"]}",
            "",
            "",
            "network.tlsTerminate.excludeDomains.0",
            "`*`",
        ),
        ("\"parentProxy\": {\"http\": \"p:1\"}", "", "", "network.parentProxy.http", "address"),
        ("", "\"allowRead\": [\"\"]", "", "filesystem.allowRead.0", "empty"),
        ("", "\"allowRead\": [1]", "", "filesystem.allowRead.0", "path"),
        (
            "",
            "\"allowRead\": [{\"path\": \"x\", \"literal\": false}]",
            "",
            "filesystem.allowRead.0.literal",
            "true",
        ),
        (
            "",
            "\"allowRead\": [{\"path\": \"x\", \"literal\": true, \"a\": 1}]",
            "",
            "filesystem.allowRead.0.a",
            "no such key",
        ),
        ("", "\"allowGitConfig\": \"yes\"", "", "filesystem.allowGitConfig", "true or false"),
        ("", "", "\"mandatoryDenySearchDepth\": 11", "mandatoryDenySearchDepth", "from 1 to 10"),
        ("", "", "\"mandatoryDenySearchDepth\": 1.5", "mandatoryDenySearchDepth", "from 1 to 10"),
        ("", "", "\"bwrapPath\": \"bwrap\"", "bwrapPath", "absolute"),
        (
            "",
            "",
            "\"credentials\": {\"injectHosts\": []}",
            "credentials.injectHosts",
            "no such key",
        ),
        (
            "",
            "",
            "\"credentials\": {\"envVars\": [{\"name\": \"1A\", \"mode\": \"deny\"}]}",
            "credentials.envVars.0.name",
            "no name",
        ),
        (
            "",
            "",
            "\"credentials\": {\"envVars\": [{\"name\": \"A\", \"mode\": \"hide\"}]}",
            "credentials.envVars.0.mode",
            "\"deny\"",
        ),
        (
            "",
            "",
            "\"credentials\": {\"files\": [{\"path\": \"~/*.pem/\", \"mode\": \"deny\"}]}",
            "credentials.files.0.path",
            "ends with `/`",
        ),
    ] {
        let wrong = Settings::parse(&with(network, filesystem, rest)).unwrap_err();
        let [issue] = wrong.issues.as_slice() else { panic!("{key}: {wrong}") };
        assert_eq!(issue.key, key);
        assert!(issue.sentence.contains(part), "{key}: {}", issue.sentence);
    }
    let text = r#"{"network": {"allowedDomains": ["*"], "deniedDomains": ["http://x.y"]},
        "filesystem": {"denyRead": ["/x/*/"], "allowWrite": [], "denyWrite": ["~/*/"]}}"#;
    let wrong = Settings::parse(text).unwrap_err();
    let keys: Vec<&str> = wrong.issues.iter().map(|issue| issue.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "network.allowedDomains.0",
            "network.deniedDomains.0",
            "filesystem.denyRead.0",
            "filesystem.denyWrite.0"
        ]
    );
}

/// What srt would do on Linux and cowork cannot do is never left out silently.
#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    let termination = "\"tlsTerminate\": {}";
    for (network, filesystem, rest, key) in [
        ("\"allowAllUnixSockets\": true", "", "", "network.allowAllUnixSockets"),
        ("\"httpProxyPort\": 8080", "", "", "network.httpProxyPort"),
        ("\"socksProxyPort\": 1080", "", "", "network.socksProxyPort"),
        (
            "\"mitmProxy\": {\"socketPath\": \"/x\", \"domains\": [\"a.b\"]}",
            "",
            "",
            "network.mitmProxy",
        ),
        ("\"filterRequest\": \"x\"", "", "", "network.filterRequest"),
        ("\"stripResponseHeaders\": [\"x\"]", "", "", "network.stripResponseHeaders"),
        ("\"refuseOpaqueTunnels\": true", "", "", "network.refuseOpaqueTunnels"),
        (
            "\"tlsTerminate\": {\"caCertPath\": \"/x\", \"caKeyPath\": \"/y\"}",
            "",
            "",
            "network.tlsTerminate.caCertPath",
        ),
        (
            "\"tlsTerminate\": {\"extraCaCertPaths\": [\"/x\"]}",
            "",
            "",
            "network.tlsTerminate.extraCaCertPaths",
        ),
        ("\"tlsTerminate\": {\"maxTunnels\": 1}", "", "", "network.tlsTerminate.maxTunnels"),
        (
            "\"tlsTerminate\": {\"handshakeTimeoutMs\": 100}",
            "",
            "",
            "network.tlsTerminate.handshakeTimeoutMs",
        ),
        (
            "\"parentProxy\": {\"http\": \"http://a:1\", \"https\": \"http://b:1\"}",
            "",
            "",
            "network.parentProxy.http",
        ),
        ("", "\"disabled\": true", "", "filesystem.disabled"),
        ("", "", "\"allowNestedUserNamespaces\": true", "allowNestedUserNamespaces"),
        (
            termination,
            "",
            "\"credentials\": {\"allowPlaintextInject\": true}",
            "credentials.allowPlaintextInject",
        ),
        (
            termination,
            "",
            "\"credentials\": {\"envVars\": [{\"name\": \"A\", \"mode\": \"mask\", \"decode\": \"jwt\"}]}",
            "credentials.envVars.0.decode",
        ),
        (
            termination,
            "",
            "\"credentials\": {\"envVars\": [{\"name\": \"AWS_SECRET_ACCESS_KEY\", \"mode\": \"mask\"}]}",
            "credentials.envVars.0.mode",
        ),
        (
            termination,
            "",
            "\"credentials\": {\"awsPairs\": [{\"accessKeyIdVar\": \"A\", \"secretAccessKeyVar\": \"B\"}]}",
            "credentials.awsPairs.0.accessKeyIdVar",
        ),
        (
            termination,
            "",
            "\"credentials\": {\"sigv4\": {\"presigned\": \"passthrough\"}}",
            "credentials.sigv4.presigned",
        ),
    ] {
        let wrong = Settings::parse(&with(network, filesystem, rest)).unwrap_err();
        let [issue] = wrong.issues.as_slice() else { panic!("{key}: {wrong}") };
        assert_eq!(issue.key, key);
        assert!(issue.sentence.contains("cowork cannot honour"), "{key}: {}", issue.sentence);
    }
}

#[test]
fn what_is_masked_must_be_put_in_somewhere() {
    let mask = |more: &str| {
        format!("\"credentials\": {{\"envVars\": [{{\"name\": \"A\", \"mode\": \"mask\"{more}}}]}}")
    };
    let excluded = "\"tlsTerminate\": {\"excludeDomains\": [\"a.example.com\", \"*.example.org\"]}";
    for (network, more, key) in [
        ("", "", Some("credentials")),
        ("\"tlsTerminate\": {}", "", None),
        (
            "\"tlsTerminate\": {}",
            ", \"injectHosts\": []",
            Some("credentials.envVars.0.injectHosts"),
        ),
        ("\"tlsTerminate\": {}", ", \"injectHosts\": [\"b.example.org\"]", None),
        ("\"tlsTerminate\": {}", ", \"injectHosts\": [\"*.b.example.org\"]", None),
        (
            "\"tlsTerminate\": {}",
            ", \"injectHosts\": [\"example.org\"]",
            Some("credentials.envVars.0.injectHosts.0"),
        ),
        (
            "\"tlsTerminate\": {}",
            ", \"injectHosts\": [\"*.example.com\"]",
            Some("credentials.envVars.0.injectHosts.0"),
        ),
        (
            "\"tlsTerminate\": {}",
            ", \"maskClaims\": [\"x\"]",
            Some("credentials.envVars.0.maskClaims"),
        ),
        (excluded, "", Some("credentials.envVars.0.injectHosts")),
        (
            excluded,
            ", \"injectHosts\": [\"a.example.com\"]",
            Some("credentials.envVars.0.injectHosts.0"),
        ),
        ("\"tlsTerminate\": {\"excludeDomains\": [\"a.example.com\"]}", "", None),
    ] {
        let text = with(network, "", &mask(more));
        match (Settings::parse(&text), key) {
            (Ok(_), None) => {}
            (Err(wrong), Some(key)) => {
                let keys: Vec<&str> = wrong.issues.iter().map(|it| it.key.as_str()).collect();
                assert_eq!(keys, [key], "{wrong}");
            }
            (other, _) => panic!("{network} {more}: {other:?}"),
        }
    }
    let folder = "\"credentials\": {\"files\": [{\"path\": \"~/.aws/\", \"mode\": \"mask\"}]}";
    let wrong = Settings::parse(&with("\"tlsTerminate\": {}", "", folder)).unwrap_err();
    assert_eq!(wrong.issues[0].key, "credentials.files.0.path");
}

proptest! {
    /// Nothing that is written makes it fail in another way than by a sentence with a key, and what
    /// is understood makes rules or says why not.
    #[test]
    fn any_settings_are_understood_or_refused(
        domains in prop::collection::vec("[a-z*.:0-9\\[\\]/@-]{0,12}|\\PC{0,6}", 0..4),
        paths in prop::collection::vec("[a-z*?/~.\\[\\]]{0,10}|\\PC{0,6}", 0..4),
        addresses in prop::collection::vec("[0-9a-f.:/]{0,12}", 0..3),
    ) {
        let text = serde_json::json!({
            "network": {
                "allowedDomains": domains, "deniedDomains": domains,
                "deniedResolvedAddresses": addresses,
            },
            "filesystem": { "denyRead": paths, "allowWrite": paths, "denyWrite": paths },
        })
        .to_string();
        match Settings::parse(&text) {
            Ok(read) => {
                if let Err(wrong) = crate::network::rules(&read.settings.network) {
                    prop_assert!(wrong.issues.iter().all(|issue| !issue.key.is_empty()));
                }
            }
            Err(wrong) => {
                prop_assert!(!wrong.issues.is_empty());
                prop_assert!(wrong.issues.iter().all(|issue| !issue.key.is_empty()));
            }
        }
    }
}
