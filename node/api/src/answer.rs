//! What every handler answers with and reads: refusals as JSON, bodies, and calls that may block.

use super::control::Control;
use super::types::ErrorBody;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use weir_node::Refusal;

pub(super) type Node = Arc<dyn Control>;

/// By what a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A UNIX socket: whoever can open it commands the node.
    Socket,
    /// A loopback port: any user of the machine, and any browser.
    Port,
    /// A port with TLS: other machines as well.
    Tls,
}

/// The media type of refusals (RFC 9457, section 6.1).
pub(super) const PROBLEM: &str = "application/problem+json";

/// Every refusal as a problem.
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut answer = (self.0, Json(ErrorBody::new(self.0, self.1))).into_response();
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        answer
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

pub(super) type Answer<T> = Result<Json<T>, Failure>;

/// Runs a call that may block beside the API's thread.
pub(super) async fn ask<T: Send + 'static>(
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

/// The number that a query has under that name; 0 where there is none.
pub(super) fn query_number(uri: &Uri, name: &str) -> Result<u64, Failure> {
    let refuse = |why: String| Failure(StatusCode::BAD_REQUEST, why);
    let mut number = 0;
    for part in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        number = match part.split_once('=') {
            Some((key, text)) if key == name => {
                text.parse().map_err(|_| refuse(format!("{name}: \"{text}\" is no whole number")))?
            }
            _ => return Err(refuse(format!("\"{part}\" is unknown; {name}=NUMBER is allowed"))),
        };
    }
    Ok(number)
}

/// A JSON body, whose faults are answered as JSON too.
pub(super) struct Body<T>(pub(super) T);

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
