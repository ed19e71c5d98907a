//! `cowork secret`: secrets that sessions use without knowing them.
//!
//! Invariant: a value comes from standard input or a terminal, goes to the daemon, and appears in
//! nothing that is printed.

use crate::arguments::{Mode, Output, SecretOptions, SecretRemove, SecretSet, SecretVerb};
use crate::daemon;
use crate::failure::{Failure, USAGE};
use crate::show::table::{Colour, Table};
use crate::show::{self, neutral, units};
use crate::terminal;
use cowork_client::http::{Method, Request};
use cowork_client::types::{NewSecret, Secret, SecretMode};
use cowork_client::uri;
use rustix::termios::isatty;
use serde_json::json;
use std::io::Read;
use std::process::ExitCode;

/// Longest value; a longer one is refused.
const MAX_VALUE: u64 = 64 * 1024;

/// Keeps, lists or forgets.
pub(crate) fn secret(options: &SecretOptions) -> Result<ExitCode, Failure> {
    match &options.verb {
        SecretVerb::Set(options) => set(options),
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
    let new = NewSecret {
        value: value(&options.name)?,
        hosts: options.hosts.clone(),
        mode: match options.mode {
            Mode::Swap => SecretMode::Swap,
            Mode::Inject => SecretMode::Inject,
            Mode::Pin => SecretMode::Pin,
        },
        carrier: options.carrier.clone(),
        variable: options.variable.clone(),
    };
    let mut client = daemon::connect()?;
    let secret: Secret = client.send(Method::Put, target(&options.name), &new)?;
    if options.output.json {
        return show::json(&secret);
    }
    let line =
        format!("{} is kept ({}), for {}", secret.name, secret.store, secret.hosts.join(", "));
    show::print(neutral::line(&line) + "\n")
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
    let secrets: Vec<Secret> = client.get("/v1/secrets")?;
    if output.json {
        return show::json(&secrets);
    }
    let titles = ["NAME", "HOSTS", "MODE", "AS", "VARIABLE", "SET", "STORE", "SESSIONS"];
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
            units::moment(&secret.set).into(),
            (&secret.store).into(),
            secret.sessions.join(",").into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

fn remove(options: &SecretRemove) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    client.call(&Request::new(Method::Delete, target(&options.name)))?;
    if options.output.json {
        return show::json(&json!({ "removed": options.name }));
    }
    Ok(ExitCode::SUCCESS)
}
