//! `cowork secret`: secrets that sessions use without knowing them.
//!
//! Invariant: a value comes from standard input or a terminal, goes to the daemon, and appears in
//! nothing that is printed.

use crate::arguments::{
    Client, Mode, Output, Program, SecretImport, SecretOptions, SecretRemove, SecretSet, SecretVerb,
};
use crate::daemon;
use crate::failure::{Failure, USAGE};
use crate::show::table::{Colour, Table};
use crate::show::{self, neutral, units};
use crate::terminal;
use cowork_client::http::{Method, Request};
use cowork_client::types::{NewSecret, Renewal, RenewalEncoding, Secret, SecretFile, SecretMode};
use cowork_client::uri;
use rustix::termios::isatty;
use serde::Deserialize;
use serde_json::json;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest value; a longer one is refused.
const MAX_VALUE: u64 = 64 * 1024;

/// Keeps, lists or forgets.
pub(crate) fn secret(options: &SecretOptions) -> Result<ExitCode, Failure> {
    match &options.verb {
        SecretVerb::Set(options) => set(options),
        SecretVerb::Import(options) => import(options),
        SecretVerb::Ls(output) => list(output),
        SecretVerb::Rm(options) => remove(options),
    }
}

fn target(name: &str) -> String {
    format!("/v1/secrets/{}", uri::segment(name))
}

fn set(options: &SecretSet) -> Result<ExitCode, Failure> {
    // `NAME=VALUE` is a value in an argument as well.
    let name = options.name.split('=').next().unwrap_or_default();
    if !options.values.is_empty() || name != options.name {
        let sentence = "a secret is never an argument: every program on this machine can read \
                        arguments, and shells keep them";
        let hint = format!(
            "run `cowork secret set {name}` without it, and give the value on standard input or \
             when asked"
        );
        return Err(Failure::input(sentence, hint).with_code(USAGE));
    }
    let value = value(&options.name)?;
    let (value, renewal) = if options.oauth { tokens(&value)? } else { (value, None) };
    let new = NewSecret {
        value,
        hosts: options.hosts.clone(),
        mode: match options.mode {
            Mode::Swap => SecretMode::Swap,
            Mode::Inject => SecretMode::Inject,
            Mode::Pin => SecretMode::Pin,
        },
        carrier: options.carrier.clone(),
        variable: variable(options),
        files: files(options),
        renewal,
    };
    keep(&options.name, &new, &options.output)
}

fn keep(name: &str, new: &NewSecret, output: &Output) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let secret: Secret = client.send(Method::Put, target(name), new)?;
    if output.json {
        return show::json(&secret);
    }
    let line =
        format!("{} is kept ({}), for {}", secret.name, secret.store, secret.hosts.join(", "));
    show::print(neutral::line(&line) + "\n")
}

/// The variable that holds the placeholder.
fn variable(options: &SecretSet) -> Option<String> {
    let cargo = || options.clients.contains(&Client::Cargo).then(|| "CARGO_REGISTRY_TOKEN".into());
    options.variable.clone().or_else(cargo)
}

/// The files that hold the placeholder: those that were named, and those of programs.
fn files(options: &SecretSet) -> Vec<SecretFile> {
    let named = options.files.iter().map(|file| (file.name.as_str(), file.contents.clone()));
    let mut files: Vec<(&str, String)> = named.collect();
    // Rules write more than a host; programs know hosts alone.
    let host_of =
        |rule: &String| rule.trim_start_matches("**.").trim_start_matches("*.").to_owned();
    for client in &options.clients {
        for host in options.hosts.iter().map(host_of) {
            let name = host.split(':').next().unwrap_or_default();
            let user = &options.user;
            files.push(match client {
                Client::Git => {
                    let user = uri::segment(user);
                    (".git-credentials", format!("https://{user}:{{secret|url}}@{host}\n"))
                }
                Client::Netrc => {
                    (".netrc", format!("machine {name} login {user} password {{secret}}\n"))
                }
                Client::Pypi => {
                    (".netrc", format!("machine {name} login __token__ password {{secret}}\n"))
                }
                Client::Npm => (".npmrc", format!("//{host}/:_authToken={{secret}}\n")),
                Client::Cargo => continue,
            });
        }
    }
    let mut joined: Vec<SecretFile> = Vec::new();
    for (name, contents) in files {
        match joined.iter_mut().find(|file| file.name == name) {
            Some(file) => file.contents.push_str(&contents),
            None => joined.push(SecretFile { name: name.to_owned(), contents }),
        }
    }
    joined
}

/// Tokens of OAuth 2.0, as they are given.
#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    refresh_token: String,
    token_url: String,
    client_id: Option<String>,
    client_secret: Option<String>,
    scope: Option<String>,
    expires_in: Option<u32>,
    expires_at: Option<u64>,
    #[serde(default)]
    encoding: RenewalEncoding,
}

/// Reads tokens: the access token, and how it is renewed.
fn tokens(text: &str) -> Result<(String, Option<Renewal>), Failure> {
    // What is wrong with it is told by its place: it is full of secrets.
    let tokens: Tokens = serde_json::from_str(text).map_err(|error| {
        let sentence =
            format!("the tokens cannot be read: line {}, column {}", error.line(), error.column());
        Failure::input(sentence, "see `cowork secret set --help` for what they are made of")
    })?;
    let in_time = tokens.expires_in.map(|seconds| {
        let end = SystemTime::now() + Duration::from_secs(seconds.into());
        let since = end.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or_default()
    });
    let renewal = Renewal {
        refresh_token: tokens.refresh_token,
        expires_at: tokens.expires_at.or(in_time).unwrap_or_default(),
        token_url: tokens.token_url,
        client_id: tokens.client_id,
        client_secret: tokens.client_secret,
        scope: tokens.scope,
        encoding: tokens.encoding,
    };
    Ok((tokens.access_token, Some(renewal)))
}

/// Where Claude Code renews its tokens, who it says it is, and who gets them: the secret is the one
/// that the definition of the agent `claude` looks for.
const CLAUDE_SECRET: &str = "claude-oauth";
const CLAUDE_TOKENS: &str = "https://platform.claude.com/v1/oauth/token";
const CLAUDE_CLIENT: &str = "9d1c250a-e61b-44d9-88ed-5944d1962f5e";
const CLAUDE_HOSTS: [&str; 2] = ["api.anthropic.com", "mcp-proxy.anthropic.com"];
const CLAUDE_VARIABLE: &str = "CLAUDE_CODE_OAUTH_TOKEN";

/// The file in which Claude Code keeps its tokens.
#[derive(Deserialize)]
struct ClaudeFile {
    #[serde(rename = "claudeAiOauth")]
    tokens: ClaudeTokens,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeTokens {
    access_token: String,
    refresh_token: String,
    #[serde(default)]
    expires_at: u64,
}

/// Takes over the tokens of a program.
fn import(options: &SecretImport) -> Result<ExitCode, Failure> {
    let Program::Claude = options.program;
    let usual = || std::env::home_dir().map(|home| home.join(".claude/.credentials.json"));
    let path: PathBuf = options.from.clone().or_else(usual).ok_or_else(|| {
        Failure::input("there is no home folder to look in", "name the file with `--from`")
    })?;
    let shown = neutral::line(&path.display().to_string());
    let text = std::fs::read(&path).map_err(|error| {
        Failure::input(
            format!("cannot read `{shown}`"),
            "sign in with `claude` first, or name the file with `--from`",
        )
        .with_cause(error.to_string())
    })?;
    let ClaudeFile { tokens } = serde_json::from_slice(&text).map_err(|_secrets| {
        Failure::input(
            format!("`{shown}` has no tokens of Claude Code"),
            "sign in with `claude`, or keep an API key with `cowork secret set`",
        )
    })?;
    let usual = || CLAUDE_HOSTS.map(ToOwned::to_owned).to_vec();
    let hosts = if options.hosts.is_empty() { usual() } else { options.hosts.clone() };
    let new = NewSecret {
        value: tokens.access_token,
        hosts,
        variable: Some(CLAUDE_VARIABLE.to_owned()),
        renewal: Some(Renewal {
            refresh_token: tokens.refresh_token,
            expires_at: tokens.expires_at,
            token_url: options.token_url.clone().unwrap_or_else(|| CLAUDE_TOKENS.to_owned()),
            client_id: Some(CLAUDE_CLIENT.to_owned()),
            encoding: RenewalEncoding::Json,
            ..Renewal::default()
        }),
        ..NewSecret::default()
    };
    keep(options.name.as_deref().unwrap_or(CLAUDE_SECRET), &new, &options.output)
}

/// The value, from standard input or whoever sits at the terminal.
fn value(name: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::host("cannot read the secret's value", Some(error.to_string()))
    };
    let mut bytes = if isatty(rustix::stdio::stdin()) {
        let asked = format!("the secret {} (it is not shown): ", neutral::line(name));
        let typed = terminal::hidden(&asked, MAX_VALUE).map_err(failed)?;
        typed.ok_or_else(|| Failure::input("nothing was kept", "").with_code(INTERRUPTED))?
    } else {
        let mut bytes = Vec::new();
        std::io::stdin().take(MAX_VALUE + 2).read_to_end(&mut bytes).map_err(failed)?;
        bytes
    };
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    let too_long = u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_VALUE);
    if too_long {
        let sentence = format!("the value is longer than {}", units::bytes(MAX_VALUE));
        return Err(Failure::input(sentence, "a secret is a key, a token or a password"));
    }
    if bytes.is_empty() {
        let hint = "give it on standard input, or type it when asked";
        return Err(Failure::input("the secret has no value", hint));
    }
    String::from_utf8(bytes).map_err(|_bytes| {
        Failure::input("the value is not text in UTF-8", "write what is not text in base64")
    })
}

/// What is returned when the user changes their mind at the prompt, as shells say it.
const INTERRUPTED: u8 = 130;

fn list(output: &Output) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let secrets: Vec<Secret> = client.list(&uri::Query::new("/v1/secrets"))?;
    if output.json {
        return show::json(&secrets);
    }
    let titles = ["NAME", "HOSTS", "MODE", "AS", "VARIABLE", "FILES", "SET", "RENEWED", "SESSIONS"];
    let mut table = Table::new(titles);
    for secret in &secrets {
        let mode = match secret.mode {
            SecretMode::Swap => "swap",
            SecretMode::Inject => "inject",
            SecretMode::Pin => "pin",
        };
        table.row([
            (&secret.name).into(),
            secret.hosts.join(",").into(),
            mode.into(),
            (&secret.carrier).into(),
            secret.variable.as_deref().unwrap_or_default().into(),
            secret.files.join(",").into(),
            units::moment(&secret.set).into(),
            renewed(secret).into(),
            secret.sessions.join(",").into(),
        ]);
    }
    let mut text = table.render(Colour::of_stdout());
    // All of them are in the same place.
    if let Some(secret) = secrets.first() {
        text.push_str("\nvalues: ");
        text.push_str(&neutral::line(&secret.store));
        text.push('\n');
    }
    show::print(text)
}

/// How far the renewal of a secret has come, in a word.
fn renewed(secret: &Secret) -> String {
    match &secret.renewal {
        None => String::new(),
        Some(renewal) if renewal.failed.is_some() => "refused".to_owned(),
        Some(renewal) => match &renewal.renewed {
            Some(moment) => units::moment(moment),
            None => "when it expires".to_owned(),
        },
    }
}

fn remove(options: &SecretRemove) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    client.call(&Request::new(Method::Delete, target(&options.name)))?;
    if options.output.json {
        return show::json(&json!({ "removed": options.name }));
    }
    Ok(ExitCode::SUCCESS)
}
