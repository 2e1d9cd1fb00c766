//! Connections to an etcd: one at a time, to the first member that can be reached, and the token that a user is given there.

use super::messages::{
    AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use super::transport::{Member, in_words};
use super::{ATTEMPT, CONNECT, KEEP_ALIVE, PAUSE, access};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use weir_config::{EtcdAccess, EtcdMeta, EtcdUser};

/// Bytes of an answer at the most: a page of [`RANGE_MAX`](weir_store::kv::RANGE_MAX) values, each as large as a chunk of a map.
const ANSWER_MAX: usize = 64 << 20;

/// A user that was refused is not tried again for so long: each attempt costs etcd a tenth of a second of a processor.
const LOGIN_PAUSE: Duration = Duration::from_secs(1);

/// The header of requests that has the token.
const TOKEN: &str = "token";

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
    prefix: String,
    access: EtcdAccess,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    connection: Option<Connection>,
    /// Connections that were tried: so many members were left.
    tried: u64,
    /// Tokens that were asked for.
    logins: u64,
    /// When the user was refused, and why.
    refused: Option<(Instant, String)>,
    /// Why there is no connection: what the last attempt came to, also that of a request whose time others have waited away.
    trouble: Option<String>,
}

#[derive(Clone)]
struct Connection {
    /// Of the member among the endpoints, plus any multiple of how many there are.
    number: u64,
    channel: Channel,
    token: Option<Token>,
}

#[derive(Clone)]
struct Token {
    /// Each has another.
    number: u64,
    value: AsciiMetadataValue,
}

impl Members {
    pub fn new(meta: &EtcdMeta) -> Self {
        let EtcdMeta { endpoints, prefix, access } = meta.clone();
        Self { endpoints, prefix, access, current: Mutex::default() }
    }

    fn url(&self, number: u64) -> &str {
        &self.endpoints[number as usize % self.endpoints.len()]
    }

    /// The connection; another member's where there was none.
    async fn connected(&self, until: Instant) -> Result<Connection, NoAnswer> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok(connection.clone());
        }
        while Instant::now() < until {
            let number = current.tried;
            current.tried += 1;
            let url = self.url(number);
            match connect(url, &self.access).await {
                Ok(channel) => {
                    tracing::debug!("etcd: connected to {url}");
                    let connection = Connection { number, channel, token: None };
                    match self.log_in(&mut current, connection, until).await {
                        Ok(connection) => return Ok(connection),
                        Err(NoAnswer::Lost(e)) => current.trouble = Some(e),
                        Err(refused) => return Err(refused),
                    }
                }
                Err(e) => current.trouble = Some(format!("{url}: {e}")),
            }
            sleep(PAUSE).await;
        }
        Err(NoAnswer::Lost(current.trouble.clone().unwrap_or_else(|| "there was no time to connect".into())))
    }

    /// The connection with a token, where there is a user; it is the current one then.
    async fn log_in(
        &self,
        current: &mut Current,
        mut connection: Connection,
        until: Instant,
    ) -> Result<Connection, NoAnswer> {
        current.connection = None;
        if let Some(user) = &self.access.user {
            if let Some((_, why)) = current.refused.as_ref().filter(|(at, _)| at.elapsed() < LOGIN_PAUSE) {
                return Err(NoAnswer::Refused(why.clone()));
            }
            current.logins += 1;
            let token =
                authenticate(&connection.channel, user, until).await.map_err(|e| e.at(self.url(connection.number)));
            if let Err(NoAnswer::Refused(why)) = &token {
                current.refused = Some((Instant::now(), why.clone()));
            }
            let number = current.logins;
            connection.token = token?.map(|value| Token { number, value });
        }
        (current.connection, current.trouble) = (Some(connection.clone()), None);
        Ok(connection)
    }

    /// etcd does not take that connection's token any more, so that there has to be another; the first one to say so asks for it.
    async fn log_in_again(&self, with: &Connection, until: Instant) -> Result<(), NoAnswer> {
        let mut current = self.current.lock().await;
        let number = |connection: &Connection| (connection.number, connection.token.as_ref().map(|token| token.number));
        match current.connection.clone() {
            Some(now) if number(&now) == number(with) => self.log_in(&mut current, now, until).await.map(drop),
            _ => Ok(()),
        }
    }

    /// That connection is no good.
    async fn leave(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.connection.as_ref().is_some_and(|now| now.number == number) {
            current.connection = None;
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
        Q: prost::Message + Clone + Default + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut again = self.access.user.is_some().then(|| request.clone());
        let mut request = request;
        loop {
            let connection = self.connected(until).await?;
            let token = connection.token.as_ref().map(|token| &token.value);
            let status = match call(&connection.channel, method, request, token, until).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            let url = self.url(connection.number);
            match verdict(&status) {
                // It was not carried out, so that it may be sent again.
                Verdict::Stranger if again.is_some() => {
                    tracing::debug!("etcd: {url} wants another token: {}", status.message());
                    self.log_in_again(&connection, until).await?;
                    request = again.take().unwrap_or_default();
                }
                Verdict::Stranger => return Err(NoAnswer::Refused(format!("{url}: {}", self.stranger(&status)))),
                Verdict::Denied => return Err(NoAnswer::Refused(format!("{url}: {}", self.denied()))),
                Verdict::Refused => return Err(NoAnswer::Refused(format!("{url}: {}", status.message()))),
                Verdict::Full => return Err(NoAnswer::Full(format!("{url}: {}", status.message()))),
                Verdict::Lost => {
                    self.leave(connection.number).await;
                    return Err(NoAnswer::Lost(format!("{url}: {}", said(&status))));
                }
            }
        }
    }

    fn stranger(&self, status: &Status) -> String {
        match &self.access.user {
            Some(user) => format!("it does not take the token that it has just given to the user {:?}: {}", user.name, status.message()),
            None => "it wants a user; give user and password_file in etcd = { … } of [store], or a certificate whose name is one".into(),
        }
    }

    fn denied(&self) -> String {
        let who = self
            .access
            .user
            .as_ref()
            .map_or("the user of the certificate".into(), |user| format!("the user {:?}", user.name));
        let prefix = &self.prefix;
        format!(
            "{who} may not read and write the keys that begin with {prefix:?}; etcdctl role grant-permission ROLE --prefix=true readwrite {prefix}"
        )
    }
}

/// What an error says of a request.
enum Verdict {
    /// See [`NoAnswer`].
    Full,
    Refused,
    Lost,
    /// It was not carried out: etcd does not know who asks, or knows a state of before.
    Stranger,
    /// It was not carried out: whoever asks may not.
    Denied,
}

fn verdict(status: &Status) -> Verdict {
    let says = |words: &str| status.message().contains(words);
    match status.code() {
        Code::ResourceExhausted if says("space exceeded") => Verdict::Full,
        Code::Unauthenticated => Verdict::Stranger,
        Code::InvalidArgument if says("revision of auth store is old") || says("user name is empty") => {
            Verdict::Stranger
        }
        Code::PermissionDenied => Verdict::Denied,
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => Verdict::Refused,
        _ => Verdict::Lost,
    }
}

/// What a member has said, or what became of the connection.
fn said(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(cause) => in_words(cause),
        None => status.message().to_string(),
    }
}

/// One request, to one member.
async fn call<Q, A>(
    channel: &Channel,
    method: &'static str,
    request: Q,
    token: Option<&AsciiMetadataValue>,
    until: Instant,
) -> Result<A, Status>
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_MAX);
    let codec = ProstCodec::<Q, A>::default();
    let mut request = Request::new(request);
    if let Some(token) = token {
        request.metadata_mut().insert(TOKEN, token.clone());
    }
    let call = async {
        grpc.ready().await.map_err(|e| Status::from_error(e.into()))?;
        grpc.unary(request, PathAndQuery::from_static(method), codec).await
    };
    let left = until.saturating_duration_since(Instant::now()).min(ATTEMPT);
    match timeout(left, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!("no answer for {} ms", left.as_millis()))),
    }
}

impl NoAnswer {
    fn at(self, url: &str) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(format!("{url}: {why}")),
            Self::Full(why) => Self::Full(format!("{url}: {why}")),
            Self::Lost(why) => Self::Lost(format!("{url}: {why}")),
        }
    }
}

/// A token for a user; none where etcd asks nobody who it is.
async fn authenticate(
    channel: &Channel,
    user: &EtcdUser,
    until: Instant,
) -> Result<Option<AsciiMetadataValue>, NoAnswer> {
    let EtcdUser { name, password_file } = user;
    let password = access::password(user).map_err(NoAnswer::Refused)?;
    let request = AuthenticateRequest { name: name.clone(), password };
    let answer = call(channel, "/etcdserverpb.Auth/Authenticate", request, None, until).await;
    let status = match answer {
        Ok(AuthenticateResponse { token }) => {
            let mut token = AsciiMetadataValue::try_from(token)
                .map_err(|_| NoAnswer::Refused(format!("its token for the user {name:?} is no header's value")))?;
            token.set_sensitive(true);
            return Ok(Some(token));
        }
        Err(status) => status,
    };
    let says = |words: &str| status.message().contains(words);
    match status.code() {
        Code::FailedPrecondition if says("authentication is not enabled") => {
            tracing::warn!("etcd asks for no password: whoever reaches it may change the store; etcdctl auth enable");
            Ok(None)
        }
        Code::InvalidArgument if says("authentication failed") => Err(NoAnswer::Refused(format!(
            "it does not know the user {name:?} with the password in {}",
            password_file.display()
        ))),
        Code::InvalidArgument | Code::Unimplemented => Err(NoAnswer::Refused(status.message().to_string())),
        _ => Err(NoAnswer::Lost(said(&status))),
    }
}

async fn connect(url: &str, access: &EtcdAccess) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(url.to_string()).map_err(|e| e.to_string())?;
    let endpoint =
        endpoint.connect_timeout(CONNECT).http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE);
    let connecting = endpoint.connect_with_connector(Member::new(url, access)?);
    match timeout(CONNECT, connecting).await {
        Ok(connected) => connected.map_err(|e| in_words(&e)),
        Err(_) => Err(format!("no connection within {} ms", CONNECT.as_millis())),
    }
}

/// Shared by the requests that are on their way.
pub(super) type SharedMembers = Arc<Members>;
