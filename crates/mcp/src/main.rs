//! `cowork-mcp`: serves the tools on standard input and output. `cowork mcp` starts it.

#![forbid(unsafe_code)]

use cowork_client::types::NewSession;
use cowork_mcp::{Link, Server};
use rmcp::ServiceExt;
use rmcp::transport::io::stdio_pipes;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: cowork-mcp [--new JSON] [--session ID]…\n\
                     start it as `cowork mcp`\n";

/// Longest wait for threads that still read or write.
const LAST: Duration = Duration::from_millis(200);

/// What the command line says.
#[derive(Debug, Default)]
struct Arguments {
    /// What sessions are made from.
    template: NewSession,
    /// Sessions of the user's that can be reached.
    shared: Vec<String>,
}

fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match word.as_str() {
            "--new" => {
                arguments.template = serde_json::from_str(&value()?)
                    .map_err(|error| format!("`--new` cannot be understood: {error}"))?;
            }
            "--session" => arguments.shared.push(value()?),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(arguments)
}

/// Serves until the client has left.
fn serve(arguments: Arguments) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let server = Server::new(Link::Own, arguments.template, arguments.shared);
    let closing = server.clone();
    let served = runtime.block_on(async {
        let running = match server.serve(stdio_pipes()).await {
            Ok(running) => running,
            // A client that leaves before it has said anything has not failed.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        running.waiting().await.map(drop).map_err(|error| error.to_string())
    });
    closing.close();
    // A thread that waits for standard input waits as long as somebody has it open.
    runtime.shutdown_timeout(LAST);
    served
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match parse(words).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            // Standard output is the protocol's.
            drop(writeln!(std::io::stderr(), "cowork-mcp: {}", sentence.trim_end()));
            ExitCode::from(125)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn words(words: &[&str]) -> impl Iterator<Item = String> {
        words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn the_command_line_is_strict() {
        let good = ["--new", r#"{"id":"able-bohr"}"#, "--session", "default"];
        let arguments = parse(words(&good)).expect("it is good");
        assert_eq!(arguments.template.id.as_deref(), Some("able-bohr"));
        assert_eq!(arguments.shared, ["default"]);
        for bad in [&["--new"][..], &["--new", "{"], &["--new", r#"{"idd":1}"#], &["extra"]] {
            assert!(parse(words(bad)).is_err(), "{bad:?}");
        }
    }
}
