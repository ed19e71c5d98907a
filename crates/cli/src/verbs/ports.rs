//! `cowork publish` and `cowork unpublish`: ports of a session that this host's loopback reaches.

use super::{on, target};
use crate::arguments::{PublishPort, Unpublish};
use crate::daemon;
use crate::failure::Failure;
use crate::show;
use cowork_client::http::{Method, Request};
use cowork_client::types::{Publish, PublishedPort};
use serde_json::json;
use std::process::ExitCode;

/// `cowork publish`.
pub(crate) fn publish(options: &PublishPort) -> Result<ExitCode, Failure> {
    let wanted = Publish { inside: options.ports.inside, outside: options.ports.outside };
    let mut client = daemon::connect()?;
    let (_, published) = on(&mut client, &options.session, |client, id| {
        client.send::<PublishedPort>(Method::Post, target(id, "/network/ports"), &wanted)
    })?;
    if options.output.json {
        return show::json(&published);
    }
    show::print(format!("127.0.0.1:{}\n", published.outside))
}

/// `cowork unpublish`.
pub(crate) fn unpublish(options: &Unpublish) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let below = format!("/network/ports/{}", options.outside);
    on(&mut client, &options.session, |client, id| {
        client.call(&Request::new(Method::Delete, target(id, &below)))
    })?;
    if options.output.json {
        return show::json(&json!({ "unpublished": options.outside }));
    }
    Ok(ExitCode::SUCCESS)
}
