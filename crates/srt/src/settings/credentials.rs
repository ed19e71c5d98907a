//! The part `credentials`.

use super::filesystem::check_denial;
use super::network::domains;
use super::{Entry, Network, Spelling};
use crate::domain::{Domain, Purpose};
use crate::mask;
use crate::read::{At, Need, Reader, Strange};

const KEYS: &[&str] = &["allowPlaintextInject", "awsPairs", "envVars", "files", "sigv4"];
const FILE: &[&str] = &[
    "decode",
    "extract",
    "injectHosts",
    "maskClaims",
    "maskDuplicates",
    "mode",
    "onExtractNoMatch",
    "path",
];
const VARIABLE: &[&str] =
    &["decode", "extract", "injectHosts", "maskClaims", "mode", "name", "onExtractNoMatch"];
/// Variables whose values sign requests instead of being sent.
const SIGNING: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// What is kept from commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Files and folders that are hidden.
    pub files: Vec<Entry>,
    /// Variables that commands do not have.
    pub denied: Vec<String>,
    /// Files that commands use without knowing what is in them.
    pub masked_files: Vec<(Entry, Masked)>,
    /// Variables that commands use without knowing their values.
    pub masked_variables: Vec<(String, Masked)>,
}

/// How something is masked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masked {
    /// The key of the entry.
    pub key: String,
    /// The hosts that get the real value; all that are allowed without this.
    pub hosts: Option<Vec<Domain>>,
    /// The first group of this regular expression is masked, and the rest is told; the whole
    /// without this.
    pub extract: Option<String>,
    /// What becomes of it where the expression matches nothing.
    pub unmatched: Unmatched,
    /// Whether a value is masked where the expression does not match as well.
    pub everywhere: bool,
}

/// What becomes of what a regular expression finds nothing in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is told that it is not masked.
    #[default]
    Warn,
    /// Commands do not have it.
    Deny,
    /// Nothing is run.
    Error,
}

/// What becomes of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Deny,
    Mask,
}

pub(super) fn read(reader: &mut Reader, at: &At<'_>, network: Option<&Network>) -> Credentials {
    reader.known(at, KEYS, Strange::Refused);
    if reader.flag(at, "allowPlaintextInject") == Some(true) {
        reader.wrong(
            at.key("allowPlaintextInject"),
            "cowork cannot honour it: a secret leaves over verified TLS or not at all",
        );
    }
    signatures(reader, at);
    let mut credentials = Credentials::default();
    for file in reader.objects(at, "files") {
        reader.known(&file, FILE, Strange::Told);
        let (mode, masked) = source(reader, &file, network);
        let Some(text) = required(reader, &file, "path") else { continue };
        let is_folder = text.ends_with('/');
        let entry = Entry { key: file.key("path"), text, spelling: Spelling::Pattern };
        match mode {
            Some(Mode::Mask) if is_folder => {
                let sentence = "one file is masked, and no folder: use the mode \"deny\"";
                reader.wrong(entry.key, sentence);
            }
            Some(Mode::Mask) => credentials.masked_files.push((entry, masked)),
            Some(Mode::Deny) | None => {
                check_denial(reader, &entry);
                credentials.files.push(entry);
            }
        }
    }
    for variable in reader.objects(at, "envVars") {
        reader.known(&variable, VARIABLE, Strange::Told);
        let (mode, masked) = source(reader, &variable, network);
        let Some(name) = required(reader, &variable, "name") else { continue };
        if !is_name(&name) {
            let sentence = format!("`{}` is no name of a variable", name.escape_debug());
            reader.wrong(variable.key("name"), sentence);
        }
        if mode == Some(Mode::Mask) && SIGNING.contains(&name.as_str()) {
            reader.wrong(
                variable.key("mode"),
                "cowork cannot honour the mode \"mask\" for what signs requests to AWS: use \
                 \"deny\", and `cowork secret set NAME --as aws` with `cowork run`",
            );
        }
        match mode {
            Some(Mode::Mask) => credentials.masked_variables.push((name, masked)),
            Some(Mode::Deny) | None => credentials.denied.push(name),
        }
    }
    let masks = !credentials.masked_files.is_empty() || !credentials.masked_variables.is_empty();
    if masks && network.is_some_and(|network| network.tls.is_none()) {
        reader.wrong(
            "credentials",
            "the mode \"mask\" needs `network.tlsTerminate`: a value is put in inside TLS",
        );
    }
    credentials
}

fn required(reader: &mut Reader, at: &At<'_>, name: &str) -> Option<String> {
    if !at.has(name) {
        reader.wrong(at.key(name), "it is required");
    }
    reader.text(at, name)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What files and variables have in common.
fn source(reader: &mut Reader, at: &At<'_>, network: Option<&Network>) -> (Option<Mode>, Masked) {
    if !at.has("mode") {
        reader.wrong(at.key("mode"), "it is required");
    }
    let mode = reader.word(at, "mode", &["deny", "mask"]).map(|word| match word.as_str() {
        "mask" => Mode::Mask,
        _ => Mode::Deny,
    });
    let unmatched = reader.word(at, "onExtractNoMatch", &["warn", "deny", "error"]);
    decoded(reader, at, mode);
    let extract = reader.text(at, "extract");
    if let Some(wrong) = extract.as_deref().and_then(|text| mask::check(text).err()) {
        reader.wrong(at.key("extract"), wrong);
    }
    let hosts = at
        .has("injectHosts")
        .then(|| domains(reader, at, "injectHosts", Purpose::Hosts, Need::Optional));
    if let (Some(hosts), Some(network)) = (&hosts, network) {
        covered(reader, at, hosts, network);
    }
    if mode == Some(Mode::Mask) {
        reached(reader, at, hosts.as_deref(), network);
    }
    let masked = Masked {
        key: at.key("mode").trim_end_matches(".mode").to_owned(),
        hosts,
        extract,
        unmatched: match unmatched.as_deref() {
            Some("deny") => Unmatched::Deny,
            Some("error") => Unmatched::Error,
            _ => Unmatched::Warn,
        },
        everywhere: reader.flag(at, "maskDuplicates") == Some(true),
    };
    (mode, masked)
}

/// What is said about values that are decoded first.
fn decoded(reader: &mut Reader, at: &At<'_>, mode: Option<Mode>) {
    reader.word(at, "decode", &["jwt"]);
    if mode == Some(Mode::Mask) && at.has("decode") {
        reader.wrong(
            at.key("decode"),
            "cowork cannot honour it: a value is masked as it is written; leave it out to mask \
             the whole token, or use the mode \"deny\"",
        );
    }
    let claims = reader.texts(at, "maskClaims", Need::Optional);
    if at.has("maskClaims") && claims.is_empty() {
        reader.wrong(at.key("maskClaims"), "it is empty, so nothing would be masked");
    }
    if at.has("maskClaims") && !at.has("decode") {
        reader.wrong(at.key("maskClaims"), "it needs `decode`: it names parts of what is decoded");
    }
}

/// Every host that gets a value must be reached.
fn covered(reader: &mut Reader, at: &At<'_>, hosts: &[Domain], network: &Network) {
    for (number, host) in hosts.iter().enumerate() {
        if !network.allowed.iter().any(|allowed| allowed.covers(host)) {
            let sentence = format!("`{host}` is not reached: add it to `network.allowedDomains`");
            reader.wrong(format!("{}.{number}", at.key("injectHosts")), sentence);
        }
    }
}

/// Some host that gets a value must be looked into.
fn reached(reader: &mut Reader, at: &At<'_>, hosts: Option<&[Domain]>, network: Option<&Network>) {
    if hosts.is_some_and(<[Domain]>::is_empty) {
        reader.wrong(
            at.key("injectHosts"),
            "it is empty, so the value would be masked and never put in",
        );
    }
    let Some(network) = network else { return };
    let exclude = network.tls.as_ref().map_or(&[][..], |tls| &tls.exclude);
    let excluded = |host: &Domain| exclude.iter().any(|excluded| excluded.covers(host));
    match hosts {
        Some(hosts) => {
            for (number, host) in hosts.iter().enumerate().filter(|(_, host)| excluded(host)) {
                let sentence = format!(
                    "`{host}` is in `network.tlsTerminate.excludeDomains`, so the value would \
                     never be put in"
                );
                reader.wrong(format!("{}.{number}", at.key("injectHosts")), sentence);
            }
        }
        None if !network.allowed.is_empty() && network.allowed.iter().all(excluded) => {
            reader.wrong(
                at.key("injectHosts"),
                "every allowed host is in `network.tlsTerminate.excludeDomains`, so the value \
                 would never be put in",
            );
        }
        None => {}
    }
}

/// Requests to AWS are signed, not sent with a secret.
fn signatures(reader: &mut Reader, at: &At<'_>) {
    for pair in reader.objects(at, "awsPairs") {
        let known = ["accessKeyIdVar", "secretAccessKeyVar", "sessionTokenVar"];
        reader.known(&pair, &known, Strange::Refused);
        reader.wrong(
            pair.key("accessKeyIdVar"),
            "cowork cannot honour it here: requests to AWS are signed anew with a secret of \
             `cowork secret set NAME --as aws` and `cowork run --secret NAME`",
        );
    }
    if let Some(sigv4) = reader.object(at, "sigv4") {
        let known = ["presigned", "sigv4a", "streaming"];
        reader.known(&sigv4, &known, Strange::Refused);
        for name in known {
            let word = reader.word(&sigv4, name, &["deny", "passthrough"]);
            if word.as_deref() == Some("passthrough") {
                reader.wrong(
                    sigv4.key(name),
                    "cowork cannot honour it: what cannot be signed anew is not sent",
                );
            }
        }
    }
}
