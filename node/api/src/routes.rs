//! HTTP to calls of [`Control`], and their answers back.

use super::control::Control;
use super::pooled::{PoolDriveAdd, VolumeAdd, VolumeExport, VolumePatch};
use super::types::{DevicePatch, ErrorBody, ExportAdd, TenantAdd, TenantPatch};
use super::{metrics, openapi};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Json, Router};
use serde::Serialize;
use std::sync::Arc;
use weir_node::Refusal;
use weir_node::upgrade::UpgradeStart;

/// The largest patch is a few hundred bytes.
const MAX_BODY: usize = 64 << 10;

type Node = Arc<dyn Control>;

/// By what a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A UNIX socket: whoever can open it commands the node.
    Socket,
    /// A loopback port: any user of the machine, and any browser.
    Port,
}

/// The API without its sockets. By a port, requests that a web page of another origin may have caused are refused (a UNIX
/// socket is out of a browser's reach), and so is what only the node's owner may do.
pub fn router(control: Node, way: Way) -> Router {
    let mut routes = Router::new();
    for path in PATHS {
        routes = routes.route(path, methods(path));
    }
    let routes = routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(Extension(way))
        .with_state(control);
    if way == Way::Port { routes.layer(middleware::from_fn(refuse_foreign)) } else { routes }
}

/// Every path there is.
pub(super) const PATHS: [&str; 20] = [
    "/v1/status",
    "/v1/devices",
    "/v1/devices/{name}",
    "/v1/devices/{name}/stats",
    "/v1/devices/{name}/stats/reset",
    "/v1/devices/{name}/power-cut",
    "/v1/tenants",
    "/v1/tenants/{name}",
    "/v1/exports",
    "/v1/exports/{name}",
    "/v1/pools",
    "/v1/pools/{name}/drives",
    "/v1/pools/{name}/drives/{device}",
    "/v1/volumes",
    "/v1/volumes/{name}",
    "/v1/volumes/{name}/exports",
    "/v1/upgrade",
    "/v1/shutdown",
    "/metrics",
    "/openapi.json",
];

fn methods(path: &str) -> MethodRouter<Node> {
    match path {
        "/v1/status" => get(status),
        "/v1/devices" => get(devices),
        "/v1/devices/{name}" => get(device).patch(set_device),
        "/v1/devices/{name}/stats" => get(device_stats),
        "/v1/devices/{name}/stats/reset" => post(reset_device_stats),
        "/v1/devices/{name}/power-cut" => post(power_cut),
        "/v1/tenants" => get(tenants).post(add_tenant),
        "/v1/tenants/{name}" => get(tenant).patch(set_tenant).delete(remove_tenant),
        "/v1/exports" => get(exports).post(add_export),
        "/v1/exports/{name}" => delete(remove_export),
        "/v1/pools" => get(pools),
        "/v1/pools/{name}/drives" => post(add_pool_drive),
        "/v1/pools/{name}/drives/{device}" => delete(remove_pool_drive),
        "/v1/volumes" => get(volumes).post(add_volume),
        "/v1/volumes/{name}" => get(volume).patch(set_volume).delete(remove_volume),
        "/v1/volumes/{name}/exports" => post(add_volume_export),
        "/v1/upgrade" => get(upgrade_status).post(upgrade),
        "/v1/shutdown" => post(shutdown),
        "/metrics" => get(prometheus),
        "/openapi.json" => get(description),
        other => unreachable!("{other} is in PATHS and has no handler"),
    }
}

/// Every refusal as JSON.
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorBody { error: self.1 })).into_response()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
            Refusal::Conflict(_) => StatusCode::CONFLICT,
            Refusal::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failure(code, refusal.text().to_string())
    }
}

type Answer<T> = Result<Json<T>, Failure>;

/// Runs a call that may block beside the API's thread.
async fn ask<T: Send + 'static>(
    control: Node,
    call: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(move || call(control.as_ref())).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(e) => {
            tracing::error!("a control call failed: {e}");
            Err(Failure(StatusCode::INTERNAL_SERVER_ERROR, "the call failed; the node's log says why".into()))
        }
    }
}

async fn status(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.status()).await.map(Json)
}

async fn devices(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.devices()).await.map(Json)
}

async fn tenants(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.tenants()).await.map(Json)
}

async fn exports(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.exports()).await.map(Json)
}

async fn add_export(State(node): State<Node>, Body(export): Body<ExportAdd>) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_export(&export)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_export(State(node): State<Node>, Path(socket): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_export(&socket)).await.map(Json)
}

async fn pools(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.pools()).await.map(Json)
}

async fn add_pool_drive(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(drive): Body<PoolDriveAdd>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_pool_drive(&name, &drive)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_pool_drive(
    State(node): State<Node>,
    Path((name, device)): Path<(String, String)>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_pool_drive(&name, &device)).await.map(Json)
}

async fn volumes(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.volumes()).await.map(Json)
}

async fn volume(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.volume(&name)).await.map(Json)
}

async fn add_volume(State(node): State<Node>, Body(volume): Body<VolumeAdd>) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_volume(&volume)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn set_volume(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(patch): Body<VolumePatch>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.set_volume(&name, &patch)).await.map(Json)
}

async fn remove_volume(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_volume(&name)).await.map(Json)
}

async fn add_volume_export(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(export): Body<VolumeExport>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_volume_export(&name, &export)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn device(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    let found = ask(node, |c| c.devices()).await?;
    let names: Vec<String> = found.iter().map(|d| d.name.clone()).collect();
    found.into_iter().find(|d| d.name == name).map(Json).ok_or_else(|| missing("device", &name, &names))
}

async fn device_stats(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.device_stats(&name, false)).await.map(Json)
}

async fn reset_device_stats(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.device_stats(&name, true)).await.map(Json)
}

async fn tenant(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    let found = ask(node, |c| c.tenants()).await?;
    let names: Vec<String> = found.iter().map(|t| t.name.clone()).collect();
    found.into_iter().find(|t| t.name == name).map(Json).ok_or_else(|| missing("tenant", &name, &names))
}

fn missing(what: &str, name: &str, names: &[String]) -> Failure {
    Failure(StatusCode::NOT_FOUND, format!("there is no {what} \"{name}\"; there is {}", names.join(", ")))
}

async fn set_device(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(patch): Body<DevicePatch>,
) -> Answer<impl Serialize> {
    patch.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    ask(node, move |c| c.set_device(&name, &patch)).await.map(Json)
}

async fn power_cut(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.power_cut(&name)).await.map(Json)
}

async fn set_tenant(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(patch): Body<TenantPatch>,
) -> Answer<impl Serialize> {
    patch.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    ask(node, move |c| c.set_tenant(&name, &patch)).await.map(Json)
}

async fn add_tenant(State(node): State<Node>, Body(tenant): Body<TenantAdd>) -> Result<impl IntoResponse, Failure> {
    tenant.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    let added = ask(node, move |c| c.add_tenant(&tenant)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_tenant(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_tenant(&name)).await.map(Json)
}

async fn upgrade_status(State(node): State<Node>) -> impl IntoResponse {
    Json(node.upgrade_status())
}

async fn upgrade(
    State(node): State<Node>,
    Extension(way): Extension<Way>,
    Body(start): Body<UpgradeStart>,
) -> Result<impl IntoResponse, Failure> {
    if way == Way::Port && start.binary.is_some() {
        // The node would execute with its own rights whatever any user of the machine names.
        let what = "binary: a program may be named over the node's UNIX socket only; use that (--api unix:PATH), or leave binary out";
        return Err(Failure(StatusCode::FORBIDDEN, what.into()));
    }
    start.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    let begun = ask(node, move |c| c.upgrade(&start)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

async fn shutdown(State(node): State<Node>) -> impl IntoResponse {
    node.shutdown();
    (StatusCode::ACCEPTED, Json(serde_json::json!({ "state": "draining" })))
}

async fn prometheus(State(node): State<Node>) -> Result<impl IntoResponse, Failure> {
    let status = ask(node, |c| c.status()).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&status)))
}

async fn description() -> impl IntoResponse {
    Json(openapi::document())
}

async fn no_route(request: Request) -> Failure {
    let what = format!("there is no {}; GET /openapi.json lists what there is", request.uri().path());
    Failure(StatusCode::NOT_FOUND, what)
}

async fn no_method(request: Request) -> Failure {
    let what =
        format!("{} does not take {}; GET /openapi.json lists what does", request.uri().path(), request.method());
    Failure(StatusCode::METHOD_NOT_ALLOWED, what)
}

/// A JSON body, whose faults are answered as JSON too.
struct Body<T>(T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Body(value)),
            Err(rejection) => Err(Failure(code_of(&rejection), rejection.body_text())),
        }
    }
}

/// Values that do not fit are 400 like every other wrong value, not axum's 422.
fn code_of(rejection: &JsonRejection) -> StatusCode {
    match rejection.status() {
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        other => other,
    }
}

/// A page that somebody's browser shows may send requests to a loopback port, and DNS may give any name that address.
async fn refuse_foreign(headers: HeaderMap, request: Request, next: Next) -> Response {
    let header = |name| headers.get(name).and_then(|v: &header::HeaderValue| v.to_str().ok());
    let host = header(header::HOST).unwrap_or_default();
    let own_origin = match headers.contains_key(header::ORIGIN) {
        true => header(header::ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") == Some(host)),
        false => true,
    };
    if !is_loopback(host) || !own_origin {
        let what = "only requests to a loopback address from no other web page are answered; use http://127.0.0.1:PORT";
        return Failure(StatusCode::FORBIDDEN, what.into()).into_response();
    }
    next.run(request).await
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
