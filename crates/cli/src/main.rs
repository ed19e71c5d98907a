//! `cowork`: gives an AI agent a computer of its own inside yours.

#![forbid(unsafe_code)]

mod arguments;
mod attached;
mod daemon;
mod doctor;
mod environment;
mod explain;
mod failure;
mod network;
mod oneshot;
mod replies;
mod request;
mod show;
mod signals;
mod srt;
mod streams;
mod terminal;
mod verbs;

use arguments::{Arguments, Verb};
use clap::{CommandFactory, Parser};
use failure::Failure;
use show::print;
use std::process::ExitCode;
use verbs::commands::Turn;
use verbs::{
    agents, ask, audit, changes, commands, copy, default, events, exec, grants, history, logs, mcp,
    net, policy_import, ports, protect, requests, rules, run, secrets, sessions, status, tasks,
    undo, usage,
};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let verb = std::env::args_os().nth(1);
            return failure::usage(&error, arguments::returns(verb.as_deref()));
        }
    };
    let returns = arguments.verb.returns();
    match carry_out(&arguments.verb) {
        Ok(code) => code,
        Err(failure) => failure.report(returns),
    }
}

fn carry_out(verb: &Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Run(options) => run::run(options),
        Verb::New(options) => sessions::new(options),
        Verb::Ls(options) => sessions::list(options),
        Verb::Status(options) => status::status(options),
        Verb::Exec(options) => exec::exec(options),
        Verb::Shell(options) => exec::shell(options),
        Verb::Claude(options) => agents::run("claude", options),
        Verb::Codex(options) => agents::run("codex", options),
        Verb::Gemini(options) => agents::run("gemini", options),
        Verb::Opencode(options) => agents::run("opencode", options),
        Verb::Agent(options) => agents::named(options),
        Verb::Agents(options) => agents::list(options),
        Verb::Ask(options) => ask::ask(options),
        Verb::Tasks(options) => tasks::list(options),
        Verb::Task(options) => tasks::task(options),
        Verb::Srt(options) if srt::is_help(options) => help(Some("srt")),
        Verb::Srt(options) => srt::srt(options),
        Verb::Policy(options) => policy_import::policy(options),
        Verb::Logs(options) => logs::logs(options),
        Verb::Attach(options) => exec::attach(options),
        Verb::Grant(options) => grants::grant(options),
        Verb::Revoke(options) => grants::revoke(options),
        Verb::Changes(options) => changes::changes(options),
        Verb::Diff(options) => changes::diff(options),
        Verb::Undo(options) => undo::undo(options),
        Verb::Redo(options) => undo::redo(options),
        Verb::History(options) => history::history(options),
        Verb::Apply(options) => undo::apply(options),
        Verb::Discard(options) => undo::discard(options),
        Verb::Protect(options) => protect::protect(options),
        Verb::Allow(options) => rules::allow(options),
        Verb::Deny(options) => rules::deny(options),
        Verb::Net(options) => net::net(options),
        Verb::Secret(options) => secrets::secret(options),
        Verb::Publish(options) => ports::publish(options),
        Verb::Unpublish(options) => ports::unpublish(options),
        Verb::Requests(options) => requests::list(options),
        Verb::Decide(options) => requests::decide(options),
        Verb::Cp(options) => copy::copy(options),
        Verb::Path(options) => grants::path(options),
        Verb::Pause(options) => commands::turn(options, Turn::Pause),
        Verb::Resume(options) => commands::turn(options, Turn::Resume),
        Verb::Cancel(options) => commands::cancel(options),
        Verb::Stop(options) => sessions::turn(options, "stop"),
        Verb::Start(options) => sessions::turn(options, "start"),
        Verb::Rm(options) => sessions::remove(options),
        Verb::Set(options) => sessions::set(options),
        Verb::Usage(options) => usage::usage(options),
        Verb::Audit(options) => audit::audit(options),
        Verb::Events(options) => events::events(options),
        Verb::Init(options) => default::init(options),
        Verb::Delete(options) => default::delete(options),
        Verb::Explain(options) => explain::explain(options),
        Verb::Doctor(options) => doctor::doctor(options),
        Verb::Mcp(options) => mcp::mcp(options),
        Verb::Daemon(options) => daemon::daemon(options),
        Verb::Help { verb } => help(verb.as_deref()),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "cowork", &mut text);
            print(&text)
        }
        Verb::Man => manual(),
    }
}

/// What a verb does, or all of them.
fn help(verb: Option<&str>) -> Result<ExitCode, Failure> {
    let mut command = Arguments::command();
    command.build();
    let text = match verb {
        None => command.render_long_help(),
        Some(name) => {
            let verb = command.find_subcommand_mut(name).ok_or_else(|| {
                let sentence = format!("there is no verb `{name}`");
                Failure::input(sentence, "list them with `cowork help`")
            })?;
            verb.render_long_help()
        }
    };
    print(text.to_string())
}

/// The manual pages of the program and of each of its verbs, one after the other; each verb is
/// followed by those below it.
fn manual() -> Result<ExitCode, Failure> {
    let mut command = Arguments::command();
    command.build();
    let mut text = Vec::new();
    let mut pages = vec![command.clone()];
    for verb in command.get_subcommands() {
        collect_pages(verb, &mut pages);
    }
    for page in pages {
        clap_mangen::Man::new(page)
            .render(&mut text)
            .map_err(|source| Failure::host("cannot write the manual", Some(source.to_string())))?;
    }
    print(&text)
}

fn collect_pages(verb: &clap::Command, pages: &mut Vec<clap::Command>) {
    pages.push(verb.clone());
    // Only the program's own `help` says more than its name.
    for verb in verb.get_subcommands().filter(|verb| verb.get_name() != "help") {
        collect_pages(verb, pages);
    }
}
