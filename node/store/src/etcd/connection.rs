//! Connections to an etcd: one at a time, to the first member that can be reached.

use super::messages::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use super::{ATTEMPT, CONNECT, KEEP_ALIVE, PAUSE};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Bytes of an answer at the most: a page of [`RANGE_MAX`](weir_store::kv::RANGE_MAX) values, each as large as a chunk of a map.
const ANSWER_MAX: usize = 64 << 20;

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// etcd has not carried it out, and never will.
    Refused(String),
    /// etcd has no room: no change is made until there is some. The one by which etcd notices is made, though it has this answer too.
    Full(String),
    /// Nobody knows.
    Lost(String),
}

/// The members of an etcd, and the one that is asked.
pub(super) struct Members {
    endpoints: Vec<String>,
    /// The connection, and its number.
    current: Mutex<Option<(u64, Channel)>>,
    /// Connections that were made: so many members were left.
    made: AtomicU64,
}

impl Members {
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, current: Mutex::new(None), made: AtomicU64::new(0) }
    }

    /// The connection; another member's where there was none.
    async fn connected(&self, until: Instant) -> Result<(u64, Channel), String> {
        let mut current = self.current.lock().await;
        if let Some((number, channel)) = &*current {
            return Ok((*number, channel.clone()));
        }
        let mut why = String::from("there was no time to connect");
        while Instant::now() < until {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let url = &self.endpoints[number as usize % self.endpoints.len()];
            match connect(url).await {
                Ok(channel) => {
                    tracing::debug!("etcd: connected to {url}");
                    *current = Some((number, channel.clone()));
                    return Ok((number, channel));
                }
                Err(e) => why = format!("{url}: {e}"),
            }
            sleep(PAUSE).await;
        }
        Err(why)
    }

    /// That connection is no good.
    async fn leave(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|(now, _)| *now == number) {
            *current = None;
        }
    }

    /// Reads, of one member after the other until one answers.
    pub async fn read(&self, request: RangeRequest, until: Instant) -> Result<RangeResponse, NoAnswer> {
        loop {
            let answer = self.ask("/etcdserverpb.KV/Range", request.clone(), until).await;
            match answer {
                Err(NoAnswer::Lost(_)) if Instant::now() + PAUSE < until => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// Commits, of one member: what may have been carried out is not sent again.
    pub async fn commit(&self, request: TxnRequest, until: Instant) -> Result<TxnResponse, NoAnswer> {
        self.ask("/etcdserverpb.KV/Txn", request, until).await
    }

    async fn ask<Q, A>(&self, method: &'static str, request: Q, until: Instant) -> Result<A, NoAnswer>
    where
        Q: prost::Message + Default + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let (number, channel) = self.connected(until).await.map_err(NoAnswer::Lost)?;
        let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_MAX);
        let codec = ProstCodec::<Q, A>::default();
        let call = async {
            grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
            grpc.unary(Request::new(request), PathAndQuery::from_static(method), codec).await
        };
        let left = until.saturating_duration_since(Instant::now()).min(ATTEMPT);
        let why = match timeout(left, call).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded(format!("no answer for {} ms", left.as_millis())),
        };
        let text = format!("{}: {}", self.endpoints[number as usize % self.endpoints.len()], why.message());
        match why.code() {
            Code::ResourceExhausted if why.message().contains("space exceeded") => Err(NoAnswer::Full(text)),
            Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => Err(NoAnswer::Refused(text)),
            _ => {
                self.leave(number).await;
                Err(NoAnswer::Lost(text))
            }
        }
    }
}

async fn connect(url: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(url.to_string()).map_err(|e| e.to_string())?;
    let endpoint = endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(Duration::from_secs(10)))
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    match timeout(CONNECT, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(e)) => Err(causes(&e)),
        Err(_) => Err(format!("no connection within {} ms", CONNECT.as_millis())),
    }
}

/// An error with what it came of, as far as that says more.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Shared by the requests that are on their way.
pub(super) type SharedMembers = Arc<Members>;
