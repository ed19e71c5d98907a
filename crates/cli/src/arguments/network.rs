//! Options of verbs about the network: what a session may reach, what it reaches, the secrets it
//! uses without knowing them, and the ports of it that this host reaches.

use super::Output;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What becomes of hosts that no rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Net {
    /// There is no network at all
    Off,
    /// They are refused
    Deny,
    /// You are asked; what wants to reach them waits for your answer
    Ask,
}

/// Whether somebody is there to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Headless {
    /// Nobody is where `run` has no terminal, neither for input nor for errors, and no `--json`
    #[default]
    Auto,
    /// Nobody is
    Always,
    /// Somebody is: at another terminal, or a program
    Never,
}

// What a new session may reach.
#[derive(Debug, Default, Args)]
pub(crate) struct NetworkOptions {
    /// A host that the session may reach, e.g. `pypi.org`; without any rule there is no network
    ///
    /// `api.example.com` is that name, `*.example.com` every name below it, `**.example.com` both,
    /// `10.0.0.0/8` addresses, `host:5432` a port of this host's own loopback. Ports are 80 and 443
    /// unless `:5432`, `:8000-8010` or `:*` says otherwise. `GET,HEAD https://example.com/v1/**` is
    /// about methods and paths.
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,

    /// A host that it may not reach, whatever else allows it; all of its ports unless some are named
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<String>,

    /// A host that it may reach if you say so when it tries
    #[arg(long, value_name = "RULE")]
    pub(crate) ask: Vec<String>,

    /// What becomes of hosts that no rule is about; `off` without any rule, else `deny`
    #[arg(long, value_enum, value_name = "WORD")]
    pub(crate) net: Option<Net>,

    /// Nobody is there to be asked: what would wait for your answer is refused at once
    ///
    /// So it is by itself where `cowork run` has no terminal; say `--headless=never` if you answer at
    /// another one (`cowork requests`).
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        hide_default_value = true
    )]
    pub(crate) headless: Headless,

    /// Hosts that belong together, e.g. `github`; `cowork net presets` lists them
    #[arg(long = "preset", value_name = "NAME")]
    pub(crate) presets: Vec<String>,

    /// A secret that its requests get on their way, kept with `cowork secret set`
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,

    /// A file of rules in TOML; options add to it
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

impl NetworkOptions {
    /// The first of the options that asks for a network, by its name.
    pub(crate) fn asked(&self) -> Option<&'static str> {
        self.asked_beside_policy().or(self.policy.as_ref().map(|_path| "--policy"))
    }

    /// The same without a policy, which may be about files alone.
    pub(crate) fn asked_beside_policy(&self) -> Option<&'static str> {
        let lists = [
            ("--allow", &self.allow),
            ("--deny", &self.deny),
            ("--ask", &self.ask),
            ("--preset", &self.presets),
            ("--secret", &self.secrets),
        ];
        let list = lists.into_iter().find(|(_, given)| !given.is_empty()).map(|(name, _)| name);
        list.or(match self.net {
            None | Some(Net::Off) => None,
            Some(Net::Deny) => Some("--net deny"),
            Some(Net::Ask) => Some("--net ask"),
        })
    }
}

/// Whether what is inside TLS is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tls {
    /// Always: by an authority that only this session trusts
    Inspect,
    /// Never: it passes as it is
    Tunnel,
}

#[derive(Debug, Args)]
#[command(after_help = "Takes effect at once, and prints what is in force from then on. A denial \
                        wins over an allowance, an allowance over an ask.\n\n\
                        Examples:\n  \
                        cowork allow ID db.internal:5432 --resolves-to 10.20.0.0/16\n  \
                        cowork allow ID api.example.com --method GET --path '/v1/**'\n  \
                        cowork allow ID host:8080               this host's own loopback\n  \
                        cowork allow ID --remove db.internal:5432")]
pub(crate) struct Allow {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The hosts, as in `cowork run --allow`
    #[arg(value_name = "RULE", required_unless_present_any = ["presets", "secret"])]
    pub(crate) rules: Vec<String>,

    /// Hosts that belong together, e.g. `github`
    #[arg(long = "preset", value_name = "NAME")]
    pub(crate) presets: Vec<String>,

    /// Take these allowances away
    #[arg(long)]
    pub(crate) remove: bool,

    #[command(flatten)]
    pub(crate) details: RuleDetails,

    #[command(flatten)]
    pub(crate) output: Output,
}

// What an allowance is confined to.
#[derive(Debug, Default, Args)]
pub(crate) struct RuleDetails {
    /// Only requests with this method, e.g. GET
    #[arg(long = "method", value_name = "METHOD", conflicts_with = "remove")]
    pub(crate) methods: Vec<String>,

    /// Only requests for this path; `*` is anything within one part of it, `**` anything
    #[arg(long = "path", value_name = "PATH", conflicts_with = "remove")]
    pub(crate) paths: Vec<String>,

    /// Whether what is inside TLS is looked into; where the rule needs it without this
    #[arg(long, value_enum, value_name = "WORD", conflicts_with = "remove")]
    pub(crate) tls: Option<Tls>,

    /// Private addresses that the names may lead to, e.g. 10.20.0.0/16
    #[arg(long, value_name = "NETWORK", conflicts_with = "remove")]
    pub(crate) resolves_to: Vec<String>,

    /// A secret that the requests get on their way; without a RULE, those to all hosts of the secret
    #[arg(long, value_name = "NAME", conflicts_with = "remove")]
    pub(crate) secret: Option<String>,

    /// Most bytes sent in a time, e.g. 200M/1h
    #[arg(long, value_name = "BYTES/TIME", conflicts_with = "remove")]
    pub(crate) upload: Option<String>,

    /// Most requests in a time, e.g. 120/1m
    #[arg(long, value_name = "NUMBER/TIME", conflicts_with = "remove")]
    pub(crate) requests: Option<String>,

    /// Most connections at a time
    #[arg(long, value_name = "NUMBER", conflicts_with = "remove")]
    pub(crate) connections: Option<u32>,

    /// Keep so much of each body, at most 1MB; they are looked into for it, and `cowork net har` has them
    #[arg(long, value_name = "BYTES", conflicts_with = "remove")]
    pub(crate) capture: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Takes effect at once, and prints what is in force from then on. A denial \
                        wins over everything else.")]
pub(crate) struct Deny {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The hosts, as in `cowork run --allow`
    #[arg(value_name = "RULE", required = true)]
    pub(crate) rules: Vec<String>,

    /// Told to whoever is refused
    #[arg(long, value_name = "TEXT", conflicts_with = "remove")]
    pub(crate) reason: Option<String>,

    /// Take these denials away
    #[arg(long)]
    pub(crate) remove: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    after_help = "What was refused comes first, then what flows now, then what went where since \
                  the session was made: what left this machine."
)]
pub(crate) struct NetView {
    #[command(subcommand)]
    pub(crate) verb: Option<NetVerb>,

    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Look again every second, until interrupted
    #[arg(long, short)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetVerb {
    /// Show the rules in force
    Rules(super::Target),
    /// Show the rules that every session has, or take one away
    Standing(Standing),
    /// Say whether something would pass, and by which rule
    Explain(NetExplain),
    /// Write what went over the network as an HTTP archive (HAR)
    Har(Har),
    /// List the presets, with the hosts of each
    Presets(Output),
}

#[derive(Debug, Args)]
#[command(after_help = "They come of answers to a session for always: `cowork decide --always`.")]
pub(crate) struct Standing {
    /// Take this rule away, named as it is shown
    #[arg(long, value_name = "RULE")]
    pub(crate) remove: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Returns 0 if it would pass or you would be asked, 1 if it would be refused."
)]
pub(crate) struct NetExplain {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Where to: an address of the web, or `HOST:PORT`
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// The method of the request, e.g. POST
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Har {
    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// The file to write; standard output without it
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    after_help = "A secret stays on this host. A session that uses it (`cowork run --secret NAME`) \
                  knows a placeholder; the value is put in on the way, over TLS, for the hosts of \
                  the secret alone."
)]
pub(crate) struct SecretOptions {
    #[command(subcommand)]
    pub(crate) verb: SecretVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretVerb {
    /// Keep a secret; its value comes from standard input
    Set(SecretSet),
    /// Keep the tokens that a program on this host signed in with, and renew them here
    Import(SecretImport),
    /// List secrets, without their values
    Ls(Output),
    /// Forget a secret
    Rm(SecretRemove),
}

/// A program whose tokens are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// Claude Code: what `claude` signed in with on this host
    Claude,
}

#[derive(Debug, Args)]
#[command(after_help = "`cowork claude` uses what was taken over. A session has a placeholder in \
                  CLAUDE_CODE_OAUTH_TOKEN, and never a refresh token: tokens are renewed from this \
                  host, once for all sessions. Renewed tokens replace the imported ones: the \
                  program on this host may have to sign in again.\n\n\
                  Examples:\n  \
                  cowork secret import claude\n  \
                  cowork secret import claude --from /mnt/old/.claude/.credentials.json")]
pub(crate) struct SecretImport {
    /// The program
    #[arg(value_enum, value_name = "PROGRAM")]
    pub(crate) program: Program,

    /// The file with its tokens [default: ~/.claude/.credentials.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,

    /// The secret's name [default: the one that the agent looks for, `claude-oauth`]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// A host that may get it [default: those of the program]
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,

    /// Where the tokens are renewed [default: that of the program]
    #[arg(long, value_name = "URL")]
    pub(crate) token_url: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// A program that looks for a secret in a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// git over HTTPS: `.git-credentials`
    Git,
    /// curl -n, wget, git, pip and Python's requests: `.netrc`
    Netrc,
    /// npm: `.npmrc`
    Npm,
    /// pip and twine: `.netrc`, as the user `__token__`
    Pypi,
    /// cargo: `CARGO_REGISTRY_TOKEN`
    Cargo,
}

/// A file in the home of a session, with what stands for a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HomeFile {
    pub(crate) name: String,
    pub(crate) contents: String,
}

/// How a secret is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// The placeholder that the session knows is replaced where it appears
    #[default]
    Swap,
    /// Every request to the hosts gets it
    Inject,
    /// Every request to the hosts gets it, and one that brings another credential is refused
    Pin,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The value is read from standard input, without the line end after it, or asked \
                  for on a terminal, where it is not shown. It is never an argument: every program \
                  on this machine can read arguments.\n\n\
                  Examples:\n  \
                  cowork secret set github --host github.com --for git --user me\n  \
                  pass show registry | cowork secret set npm --host registry.example --for npm\n  \
                  cowork secret set api --host api.example --oauth < tokens.json\n\n\
                  With --oauth the value is JSON: access_token, refresh_token, token_url and, where \
                  they are needed, client_id, client_secret, scope, expires_in (seconds) or \
                  expires_at (milliseconds since 1970), and encoding (`form` or `json`)."
)]
pub(crate) struct SecretSet {
    /// Its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// A host that may get it, as in `cowork run --allow`
    #[arg(long = "host", value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,

    /// How it is used
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: Mode,

    /// Where it is put: `bearer`, `basic:USER`, `header:NAME`, `query:NAME` or `aws`
    #[arg(long = "as", value_name = "PLACE", value_parser = carrier)]
    pub(crate) carrier: Option<String>,

    /// A variable of the session's commands that holds the placeholder, e.g. `GITHUB_TOKEN`
    #[arg(long = "env", value_name = "VARIABLE")]
    pub(crate) variable: Option<String>,

    /// The program that is to find it: its file or variable holds the placeholder
    #[arg(long = "for", value_enum, value_name = "CLIENT")]
    pub(crate) clients: Vec<Client>,

    /// The user that it belongs to, in files that name one
    #[arg(long, value_name = "NAME", default_value = "token")]
    pub(crate) user: String,

    /// A file in the session's home: `{secret}` in its contents stands for the placeholder
    #[arg(long = "file", value_name = "NAME=CONTENTS", value_parser = home_file)]
    pub(crate) files: Vec<HomeFile>,

    /// The value is JSON with tokens of OAuth 2.0, which are renewed on this host
    #[arg(long)]
    pub(crate) oauth: bool,

    /// Values that do not belong here: they are refused without being repeated.
    #[arg(hide = true)]
    pub(crate) values: Vec<OsString>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SecretRemove {
    /// Its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Prints the address on this host. Only this host reaches it.\n\n\
                        Examples:\n  cowork publish ID 3000          the same port here\n  \
                        cowork publish ID 3000:8080     port 8080 here\n  \
                        cowork publish ID 3000:0        any port here that is free")]
pub(crate) struct PublishPort {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The port in the session, and the one at this host's loopback if it is another
    #[arg(value_name = "PORT[:OUTSIDE]", value_parser = ports)]
    pub(crate) ports: Ports,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Unpublish {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The port at this host's loopback
    #[arg(value_name = "OUTSIDE", value_parser = port)]
    pub(crate) outside: u16,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// A port of a session, and where this host reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) inside: u16,
    /// Any that is free without it.
    pub(crate) outside: Option<u16>,
}

fn port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port > 0);
    port.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())
}

fn ports(text: &str) -> Result<Ports, String> {
    match text.split_once(':') {
        None => port(text).map(|port| Ports { inside: port, outside: Some(port) }),
        Some((inside, "0")) => Ok(Ports { inside: port(inside)?, outside: None }),
        Some((inside, outside)) => {
            Ok(Ports { inside: port(inside)?, outside: Some(port(outside)?) })
        }
    }
}

fn home_file(text: &str) -> Result<HomeFile, String> {
    let sentence = "write the name of the file and its contents, e.g. `.token={secret}`";
    let (name, contents) = text.split_once('=').ok_or(sentence)?;
    if !contents.contains("{secret}") && !contents.contains("{secret|url}") {
        return Err("`{secret}` is missing in its contents".to_owned());
    }
    Ok(HomeFile { name: name.to_owned(), contents: contents.to_owned() })
}

fn carrier(text: &str) -> Result<String, String> {
    let known = match text.split_once(':') {
        None => matches!(text, "bearer" | "aws"),
        Some(("basic", _)) => true,
        Some((kind, name)) => matches!(kind, "header" | "query") && !name.is_empty(),
    };
    let sentence = "write `bearer`, `basic:USER`, `header:NAME`, `query:NAME` or `aws`";
    known.then(|| text.to_owned()).ok_or_else(|| sentence.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Ports, carrier, home_file, ports};

    #[test]
    fn files_hold_a_placeholder() {
        let file = home_file(".pgpass=*:*:*:me:{secret}").unwrap();
        assert_eq!((file.name.as_str(), file.contents.as_str()), (".pgpass", "*:*:*:me:{secret}"));
        for wrong in ["", ".netrc", ".netrc=", ".netrc=machine x"] {
            assert!(home_file(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_are_numbers() {
        let both = |inside, outside| Ok(Ports { inside, outside });
        assert_eq!(ports("3000"), both(3000, Some(3000)));
        assert_eq!(ports("3000:8080"), both(3000, Some(8080)));
        assert_eq!(ports("3000:0"), both(3000, None));
        for wrong in ["", "0", "65536", "+80", "80:", ":80", "80:http", "80:81:82", "0:80", " 80"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_of_a_secret_have_names() {
        for good in ["bearer", "aws", "basic:", "basic:me", "header:X-Api-Key", "query:key"] {
            assert_eq!(carrier(good).as_deref(), Ok(good));
        }
        for wrong in ["", "Bearer", "basic", "header", "header:", "query:", "cookie:x"] {
            assert!(carrier(wrong).is_err(), "{wrong}");
        }
    }
}
