//! Every route of the API, in one list: the router is made from it, and the OpenAPI document is
//! compared with it.

use super::{
    agents, audit, changes, commands, events, files, grants, idempotency, mcp, network, openapi,
    requests, secrets, sessions, tasks, watch,
};
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::{self, MethodRouter};
use std::sync::Arc;

/// One method on one path, and what answers.
pub(super) struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "the document is compared with it"))]
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    answer: MethodRouter<Arc<Daemon>>,
}

/// Makes a function for each method, which takes a path and what answers there.
macro_rules! methods {
    ($($name:ident $method:literal,)*) => {$(
        fn $name<H: Handler<T, Arc<Daemon>>, T: 'static>(path: &'static str, handler: H) -> Route {
            Route { method: $method, path, answer: routing::$name(handler) }
        }
    )*};
}

methods! { get "GET", post "POST", put "PUT", patch "PATCH", delete "DELETE", }

/// Every route.
pub(super) fn routes() -> Vec<Route> {
    let mut all = about_sessions();
    all.extend(about_agents());
    all
}

/// Routes about agents and their tasks.
fn about_agents() -> Vec<Route> {
    vec![
        get("/v1/agents", agents::list),
        post("/v1/sessions/{id}/agents/{name}", agents::prepare),
        get("/v1/sessions/{id}/tasks", tasks::list),
        post("/v1/sessions/{id}/tasks", tasks::create),
        get("/v1/sessions/{id}/tasks/{number}", tasks::show),
        get("/v1/sessions/{id}/tasks/{number}/messages", tasks::messages),
        post("/v1/sessions/{id}/tasks/{number}/steer", tasks::steer),
        post("/v1/sessions/{id}/tasks/{number}/pause", tasks::pause),
        post("/v1/sessions/{id}/tasks/{number}/resume", tasks::resume),
        post("/v1/sessions/{id}/tasks/{number}/cancel", tasks::cancel),
    ]
}

/// All other routes.
fn about_sessions() -> Vec<Route> {
    vec![
        get("/v1/info", sessions::info),
        get("/v1/doctor", sessions::doctor),
        get("/v1/openapi.json", openapi::serve),
        post("/v1/shutdown", sessions::shutdown),
        get("/v1/sessions", sessions::list),
        post("/v1/sessions", sessions::create),
        get("/v1/sessions/{id}", sessions::show),
        patch("/v1/sessions/{id}", sessions::change),
        delete("/v1/sessions/{id}", sessions::remove),
        post("/v1/sessions/{id}/start", sessions::start),
        post("/v1/sessions/{id}/stop", sessions::stop),
        post("/v1/sessions/{id}/pause", sessions::pause),
        post("/v1/sessions/{id}/resume", sessions::resume),
        post("/v1/sessions/{id}/cancel", sessions::cancel),
        get("/v1/sessions/{id}/processes", sessions::processes),
        get("/v1/sessions/{id}/usage", sessions::usage),
        get("/v1/sessions/{id}/usage/history", sessions::usage_history),
        get("/v1/sessions/{id}/path", files::translate),
        get("/v1/sessions/{id}/grants", grants::list),
        post("/v1/sessions/{id}/grants", grants::grant),
        get("/v1/sessions/{id}/grants/{name}", grants::show),
        patch("/v1/sessions/{id}/grants/{name}", grants::change),
        delete("/v1/sessions/{id}/grants/{name}", grants::revoke),
        get("/v1/sessions/{id}/changes", changes::list),
        get("/v1/sessions/{id}/diff", changes::differences),
        post("/v1/sessions/{id}/undo", changes::undo),
        post("/v1/sessions/{id}/redo", changes::redo),
        post("/v1/sessions/{id}/apply", changes::apply),
        post("/v1/sessions/{id}/discard", changes::discard),
        post("/v1/sessions/{id}/boundary", changes::boundary),
        get("/v1/sessions/{id}/protected", changes::protected),
        post("/v1/sessions/{id}/protected", changes::protect),
        delete("/v1/sessions/{id}/protected", changes::unprotect),
        get("/v1/history", changes::history),
        get("/v1/sessions/{id}/network", network::show),
        patch("/v1/sessions/{id}/network", network::change),
        get("/v1/sessions/{id}/network/traffic", network::traffic),
        get("/v1/sessions/{id}/network/explain", network::explain),
        get("/v1/sessions/{id}/network/har", network::har),
        post("/v1/sessions/{id}/network/ports", network::publish),
        delete("/v1/sessions/{id}/network/ports/{outside}", network::unpublish),
        get("/v1/presets", network::list_presets),
        get("/v1/rules", network::list_rules),
        delete("/v1/rules/{name}", network::remove_rule),
        get("/v1/secrets", secrets::list),
        put("/v1/secrets/{name}", secrets::set),
        delete("/v1/secrets/{name}", secrets::remove),
        get("/v1/sessions/{id}/commands", commands::list),
        post("/v1/sessions/{id}/commands", commands::start),
        get("/v1/sessions/{id}/commands/{number}", commands::show),
        get("/v1/sessions/{id}/commands/{number}/usage", commands::usage),
        get("/v1/sessions/{id}/commands/{number}/attach", commands::attach),
        get("/v1/sessions/{id}/commands/{number}/output", commands::output),
        post("/v1/sessions/{id}/commands/{number}/signal", commands::signal),
        post("/v1/sessions/{id}/commands/{number}/cancel", commands::cancel),
        post("/v1/sessions/{id}/commands/{number}/pause", commands::pause),
        post("/v1/sessions/{id}/commands/{number}/resume", commands::resume),
        post("/v1/sessions/{id}/commands/{number}/stdin", commands::stdin),
        post("/v1/sessions/{id}/commands/{number}/resize", commands::resize),
        get("/v1/sessions/{id}/files/{root}", files::list_root),
        get("/v1/sessions/{id}/watch/{root}", watch::watch),
        get("/v1/sessions/{id}/files/{root}/{*path}", files::read),
        put("/v1/sessions/{id}/files/{root}/{*path}", files::write),
        delete("/v1/sessions/{id}/files/{root}/{*path}", files::remove),
        post("/v1/sessions/{id}/requests", requests::ask),
        get("/v1/sessions/{id}/requests/{number}", requests::asked),
        get("/v1/requests", requests::list),
        get("/v1/requests/{number}", requests::show),
        post("/v1/requests/{number}/decide", requests::decide),
        get("/v1/audit", audit::list),
        get("/v1/audit/verify", audit::verify),
        get("/v1/audit/export", audit::export),
        get("/v1/events", events::events),
    ]
}

/// The router of the API.
pub(super) fn router(daemon: &Arc<Daemon>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        router = router.route(route.path, route.answer);
    }
    let remember = axum::middleware::from_fn_with_state(Arc::clone(daemon), idempotency::once);
    router
        .route_service(mcp::PATH, mcp::service(daemon))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(remember)
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::clone(daemon))
}

async fn nothing() -> Trouble {
    Trouble::missing("no-route", "there is nothing at this path")
        .with_hint("see `/v1/openapi.json`")
}

async fn not_so() -> Trouble {
    Trouble::refused("no-method", "this path has no such method")
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
        .with_hint("see `/v1/openapi.json`")
}
