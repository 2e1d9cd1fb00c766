//! `GET /v1/events`: the latest events as JSON, or from then on as server-sent events (HTML, section 9.2, "Server-sent events").

use super::answer::{Failure, query_number};
use super::control::Control;
use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use weir_node::events::NodeEvent;

/// Clients that follow at the same time.
const MOST_FOLLOWERS: usize = 32;
/// How often a follower is sent a comment where nothing happens: it finds out that the node is gone.
const COMMENT_EVERY: Duration = Duration::from_secs(3);
/// What the header of a follower that comes back is called.
const LAST_EVENT_ID: &str = "last-event-id";

/// What all followers share.
#[derive(Clone)]
pub(super) struct Followers {
    /// The number of the last event.
    last: watch::Receiver<u64>,
    /// The API ends.
    stopped: watch::Receiver<bool>,
    room: Arc<Semaphore>,
}

impl Followers {
    /// Of this node's events, until the API is stopped.
    pub(super) fn of(control: &dyn Control, stopped: watch::Receiver<bool>) -> Self {
        let (say, last) = watch::channel(0);
        control.on_event(Box::new(move |event| {
            let _ = say.send(event.number);
        }));
        Self { last, stopped, room: Arc::new(Semaphore::new(MOST_FOLLOWERS)) }
    }
}

/// One client that follows.
struct Follower {
    control: Arc<dyn Control>,
    last: watch::Receiver<u64>,
    stopped: watch::Receiver<bool>,
    /// The last event that it was sent.
    after: u64,
    ready: VecDeque<NodeEvent>,
    _room: OwnedSemaphorePermit,
}

impl Follower {
    /// What it is sent next; nothing more where the API ends.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if *self.stopped.borrow() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                self.after = event.number;
                return Some((Ok(sent(&event)), self));
            }
            self.last.mark_unchanged();
            self.ready = self.control.events(self.after).into();
            if !self.ready.is_empty() {
                continue;
            }
            let is_silent = tokio::select! {
                changed = self.last.changed() => changed.map(|()| false).ok()?,
                stopped = self.stopped.changed() => stopped.map(|()| false).ok()?,
                () = tokio::time::sleep(COMMENT_EVERY) => true,
            };
            if is_silent {
                return Some((Ok(Event::default().comment("")), self));
            }
        }
    }
}

/// An event of the stream: `id` is its number, `event` its kind, `data` its JSON.
fn sent(event: &NodeEvent) -> Event {
    let kind = event.kind.replace(['\r', '\n'], " ");
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(event.number.to_string()).event(kind).data(data)
}

/// The number after which a client asks: by its header where it comes back, else by `?after=N`.
fn asked_after(uri: &Uri, headers: &HeaderMap) -> Result<u64, Failure> {
    let header = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or_default());
    if let Some(text) = header {
        let why = |_| Failure(StatusCode::BAD_REQUEST, format!("Last-Event-ID: \"{text}\" is no number of an event"));
        return text.parse().map_err(why);
    }
    query_number(uri, "after")
}

/// Answers with a list, or with a stream where the client asks for `text/event-stream`.
pub(super) async fn events(
    State(control): State<Arc<dyn Control>>,
    Extension(followers): Extension<Followers>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let asked = asked_after(&uri, &headers)?;
    // A node that was started anew begins with 1: who has seen more has seen another node's.
    let after = if asked > control.last_event() { 0 } else { asked };
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepts.contains("text/event-stream") {
        return Ok(Json(control.events(after)).into_response());
    }
    let Ok(room) = followers.room.clone().try_acquire_owned() else {
        let why = format!("{MOST_FOLLOWERS} clients follow the events already; end one, or ask for the list");
        return Err(Failure(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let Followers { last, stopped, .. } = followers;
    let follower = Follower { control, last, stopped, after, ready: VecDeque::new(), _room: room };
    Ok(Sse::new(futures_util::stream::unfold(follower, Follower::next)).into_response())
}
