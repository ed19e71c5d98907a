//! The server itself: what it says of itself, which tools it has, and how a call is carried out.
//!
//! A call runs on a thread of its own, because everything it does is waiting; what it tells
//! meanwhile becomes progress, and its end is the answer. A call that nobody waits for any more is
//! told so.

use crate::call::{Call, Office};
use crate::link::Link;
use crate::refusal::Refusal;
use crate::tools;
use cowork_client::types::NewSession;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What a model is told first.
const INSTRUCTIONS: &str = "\
Sessions are isolated Linux computers on the user's machine. Make one with create_session and run \
commands in it with run_command: whatever they do, they see nothing of the machine but the folders \
that the user has granted, under mnt/ in the session's folder. Ask for another folder with \
request_cowork_directory. Changes in folders with access `rw` are recorded: list_changes, show_diff \
and undo_changes. Put what the user is to get into mnt/outputs, and tell where it is with \
present_files. File tools take the paths that commands in the session use.";

/// Most calls under way at a time: each has a thread.
pub(crate) const MAX_CALLS: usize = 64;
/// Longest silence of a call whose client wants to hear how it goes.
const SILENCE: Duration = Duration::from_secs(5);

/// Serves the tools to one client.
#[derive(Clone, Debug)]
pub struct Server {
    office: Arc<Office>,
    /// A place for each call that may be under way.
    places: Arc<Semaphore>,
}

impl Server {
    /// A server that makes sessions from `template`, and reaches these of the user's besides: those
    /// in `shared`, and those with the label `mcp`.
    pub fn new(link: Link, template: NewSession, shared: Vec<String>) -> Self {
        let places = Arc::new(Semaphore::new(MAX_CALLS));
        Self { office: Arc::new(Office::new(link, template, shared)), places }
    }

    /// The same server, with places for calls that it shares with others.
    pub(crate) fn sharing(self, places: &Arc<Semaphore>) -> Self {
        Self { places: Arc::clone(places), ..self }
    }

    /// Ends calls that are under way, and stops the sessions that were made here; their files
    /// stay. It waits.
    pub fn close(&self) {
        self.office.close();
    }

    async fn carry_out(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let name = request.name;
        let entry = tools::find(&name).ok_or_else(|| {
            let sentence = format!("there is no tool `{}`", name.escape_debug());
            ErrorData::invalid_params(sentence, None)
        })?;
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let sentence = format!("more than {MAX_CALLS} calls are under way");
            return Ok(Refusal::new("busy", sentence)
                .with_hint("wait for one to end")
                .into_result());
        };
        let arguments = request.arguments.unwrap_or_default();
        let (call, mut heard, cancelled) = Call::new(&self.office);
        // Whichever way this ends, nobody waits any more.
        let _given_up = GivenUp(Arc::clone(&cancelled));
        let mut work = tokio::task::spawn_blocking(move || {
            let done = entry.run(&call, arguments);
            drop(place);
            done
        });
        let token = context.meta.get_progress_token();
        let began = Instant::now();
        loop {
            tokio::select! {
                done = &mut work => {
                    let broken = |_error| Refusal::new("failed", "the tool broke off").into_result();
                    return Ok(done.unwrap_or_else(broken));
                }
                () = context.ct.cancelled(), if !cancelled.load(Ordering::Relaxed) => {
                    cancelled.store(true, Ordering::Relaxed);
                }
                told = tokio::time::timeout(SILENCE, heard.changed()), if token.is_some() => {
                    // A call that has ended tells nothing more; its end is about to be heard.
                    if matches!(told, Ok(Err(_))) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    let word = heard.borrow_and_update().clone();
                    if let Some(token) = token.clone() {
                        // Progress has no unit here: that it grows is what counts.
                        let progress = ProgressNotificationParam::new(token, began.elapsed().as_secs_f64());
                        let progress = if word.is_empty() { progress } else { progress.with_message(word) };
                        cowork_sys::ignore(context.peer.notify_progress(progress).await);
                    }
                }
            }
        }
    }
}

/// Tells a call that nobody waits for it, when it goes away.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let about = Implementation::new("cowork", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools::all().iter().map(|entry| entry.tool.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.carry_out(request, context).await.map(Into::into)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(|entry| entry.tool.clone())
    }
}
