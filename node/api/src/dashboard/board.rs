//! Handlers of what the page shows.

use crate::answer::{Answer, Body, Failure, Node, ask};
use crate::board::{DriveBoardStatus, Kind, Live, PlanAsked, Stream};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

pub(crate) async fn board(Extension(live): Extension<Arc<Live>>) -> Result<Response, Failure> {
    let picture = live.look().await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], picture.json.clone()).into_response())
}

pub(crate) async fn device(State(node): State<Node>, Path(name): Path<String>) -> Answer<DriveBoardStatus> {
    ask(node, move |c| c.device_board(&name)).await.map(Json)
}

pub(crate) async fn plan(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(asked): Body<PlanAsked>,
) -> Answer<impl Serialize> {
    asked.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    ask(node, move |c| c.plan_device(&name, &asked)).await.map(Json)
}

pub(crate) async fn overview(Extension(live): Extension<Arc<Live>>) -> impl IntoResponse {
    Json(live.overview())
}

pub(crate) async fn history(
    Extension(live): Extension<Arc<Live>>,
    Path((kind, name)): Path<(String, String)>,
) -> Answer<impl Serialize> {
    let found = Kind::of(&kind).and_then(|kind| live.history(kind, &name));
    let none = || format!("nothing is known of {kind}/{name} yet; devices, tenants and exports have a history");
    found.map(Json).ok_or_else(|| Failure(StatusCode::NOT_FOUND, none()))
}

pub(crate) async fn live(Extension(live): Extension<Arc<Live>>) -> Result<Response, Failure> {
    Ok(events(live.join()?, None))
}

pub(crate) async fn live_device(
    State(node): State<Node>,
    Extension(live): Extension<Arc<Live>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    // One that is not there is said so at once.
    let wanted = name.clone();
    ask(node.clone(), move |c| c.device_board(&wanted)).await?;
    Ok(events(live.join()?, Some((node, name))))
}

/// A page that is told, and of which drive in full.
struct Told {
    stream: Stream,
    device: Option<(Node, String)>,
    waiting: VecDeque<Event>,
}

impl Told {
    /// The next event; `None` when the API ends.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        if self.waiting.is_empty() {
            let picture = self.stream.next().await.ok()?;
            self.waiting.push_back(Event::default().event("board").data(&picture.json));
            if let Some((node, name)) = self.device.clone() {
                let found = ask(node, move |c| c.device_board(&name)).await;
                let json = found.ok().and_then(|board| serde_json::to_string(&board).ok());
                self.waiting.extend(json.map(|json| Event::default().event("device").data(json)));
            }
        }
        let event = self.waiting.pop_front()?;
        Some((Ok(event), self))
    }
}

fn events(stream: Stream, device: Option<(Node, String)>) -> Response {
    let told = Told { stream, device, waiting: VecDeque::new() };
    Sse::new(stream::unfold(told, Told::next)).keep_alive(KeepAlive::default()).into_response()
}
