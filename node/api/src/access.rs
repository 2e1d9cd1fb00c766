//! Who may ask for what: tokens and their roles, and what a browser is kept from.
//!
//! ```text
//!  by a port ─▶ refuse_foreign (Host, Origin) ─▶ authorise (token ─▶ role, operation's role) ─▶ handler ─▶ protect (headers)
//!  by TLS ─▶ refuse_other_origin (Origin) ──▶ authorise ─▶ …
//!  by the UNIX socket ─▶ refuse_page (Origin, where there is one) ────── its owner: admin ────▶ handler ─▶ protect
//! ```

use super::answer::{Failure, Way};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use weir_config::{ApiConfig, ApiRole};

/// Characters of a token, at least and at most.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=256;
/// A comparison takes as long as for the longest token.
const WIDTH: usize = 256;

/// The tokens of a node.
#[derive(Debug, Default)]
pub struct Tokens {
    list: Vec<Token>,
    /// The configuration has some, whether they could be read or not.
    are_wanted: bool,
}

struct Token {
    role: ApiRole,
    secret: [u8; WIDTH],
}

/// Without the secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the files of a configuration. Beside the tokens: each file that has none, because it cannot be read, others than its owner can
    /// read it, or its first line is no token; with what to do.
    pub fn load(config: &ApiConfig) -> (Tokens, Vec<String>) {
        let mut tokens = Tokens { list: Vec::new(), are_wanted: !config.tokens.is_empty() };
        let mut wrong = Vec::new();
        for token in &config.tokens {
            match read(&token.file) {
                Ok(secret) => tokens.list.push(Token { role: token.role, secret }),
                Err(why) => wrong.push(format!("token {}: {why}", token.file.display())),
            }
        }
        (tokens, wrong)
    }

    /// Whether there are any.
    pub(super) fn is_any(&self) -> bool {
        self.are_wanted
    }

    /// What the holder of this token may do. Takes as long for every text.
    fn role_of(&self, shown: &str) -> Option<ApiRole> {
        let shown = padded(shown)?;
        let mut found = None;
        for token in &self.list {
            let differs = token.secret.iter().zip(&shown).fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
            if differs == 0 {
                found = found.max(Some(Rank(token.role)));
            }
        }
        found.map(|Rank(role)| role)
    }
}

/// Roles by what they may.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rank(ApiRole);

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0 as u8).cmp(&(other.0 as u8))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn padded(text: &str) -> Option<[u8; WIDTH]> {
    let mut bytes = [0; WIDTH];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(bytes)
}

/// The token in a file.
fn read(file: &Path) -> Result<[u8; WIDTH], String> {
    let mut opened = std::fs::File::open(file).map_err(|e| e.to_string())?;
    let meta = opened.metadata().map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("is no file".into());
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(format!("its mode is {:04o}, so others can read it; chmod 600", meta.mode() & 0o7777));
    }
    let mut text = Vec::new();
    opened.by_ref().take(1024).read_to_end(&mut text).map_err(|e| e.to_string())?;
    let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // What RFC 6750 lets a bearer token consist of (section 2.1).
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    if !LENGTH.contains(&line.len()) || !line.iter().all(fits) {
        let (least, most) = (LENGTH.start(), LENGTH.end());
        return Err(format!(
            "its first line is no token: {least} to {most} letters, digits and -._~+/= are; head -c 24 /dev/urandom | base64 makes one"
        ));
    }
    std::str::from_utf8(line).ok().and_then(padded).ok_or_else(|| "is not text".into())
}

/// What whoever asks may do; beside each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted(pub(super) Option<ApiRole>);

/// `GET /v1/access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Access")]
pub struct AccessStatus {
    /// What this request's token, or the socket that it came by, allows.
    pub role: ApiRole,
    /// Whether there are tokens: one shown over TCP may allow more.
    pub tokens: bool,
    /// Whether failures may be injected (`faults = true` in `[node]`).
    pub faults: bool,
}

/// Finds what a request may do, by how it has come and by the token that it shows.
pub(super) async fn identify(
    State((way, tokens)): State<(Way, Arc<Tokens>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let role = match way {
        Way::Socket => Some(ApiRole::Admin),
        Way::Port | Way::Tls => by_token(&tokens, request.headers()),
    };
    request.extensions_mut().insert(Granted(role));
    request.extensions_mut().insert(tokens);
    next.run(request).await
}

fn by_token(tokens: &Tokens, headers: &HeaderMap) -> Option<ApiRole> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(bearer);
    match shown {
        Some(token) => tokens.role_of(token),
        // Nobody was given a token: the machine's users may look.
        None => (!tokens.is_any()).then_some(ApiRole::Read),
    }
}

/// RFC 6750, section 2.1: the scheme in any case.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Lets through whoever may do what the operation needs.
pub(super) async fn authorise(
    State(needed): State<ApiRole>,
    Extension(Granted(role)): Extension<Granted>,
    Extension(tokens): Extension<Arc<Tokens>>,
    request: Request,
    next: Next,
) -> Response {
    match role {
        Some(role) if Rank(role) >= Rank(needed) => next.run(request).await,
        None => {
            let what = "a token of this node is needed over TCP: Authorization: Bearer TOKEN (weir: WEIR_TOKEN_FILE), or use the UNIX socket";
            let refusal = Failure(StatusCode::UNAUTHORIZED, what.into());
            ([(header::WWW_AUTHENTICATE, "Bearer realm=\"weir\"")], refusal).into_response()
        }
        Some(_) if !tokens.is_any() => {
            let what = "over TCP nothing is changed without a token, and this node has none: use the UNIX socket, or give it tokens below [api]";
            Failure(StatusCode::FORBIDDEN, what.into()).into_response()
        }
        Some(role) => {
            let what =
                format!("this token's role is {role}, and this takes {needed}; use another token, or the UNIX socket");
            Failure(StatusCode::FORBIDDEN, what).into_response()
        }
    }
}

/// What browsers are told with every answer. The page loads nothing but its own files, runs no text as a program, and is in no frame.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Adds [`HEADERS`] where the answer does not say otherwise.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    for (name, value) in HEADERS {
        answer.headers_mut().entry(name).or_insert(value);
    }
    answer
}

/// A page that somebody's browser shows may send requests to a loopback port, and DNS may give any name that address.
pub(super) async fn refuse_foreign(headers: HeaderMap, request: Request, next: Next) -> Response {
    if is_loopback(host(&headers)) && is_own_origin(&headers, "http://") {
        return next.run(request).await;
    }
    let what = "only requests to a loopback address from no other web page are answered; use http://127.0.0.1:PORT";
    Failure(StatusCode::FORBIDDEN, what.into()).into_response()
}

/// By TLS the certificate has the node's name, so that no other name leads here; pages from elsewhere may still send requests.
pub(super) async fn refuse_other_origin(headers: HeaderMap, request: Request, next: Next) -> Response {
    if is_own_origin(&headers, "https://") {
        return next.run(request).await;
    }
    let what = "requests that another web page has caused are not answered; open the node's own";
    Failure(StatusCode::FORBIDDEN, what.into()).into_response()
}

/// A browser reaches the UNIX socket only by a forwarded port (`ssh -L`), and then any page that it shows does.
pub(super) async fn refuse_page(headers: HeaderMap, request: Request, next: Next) -> Response {
    let by_browser = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    if by_browser {
        return refuse_foreign(headers, request, next).await;
    }
    next.run(request).await
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

fn host(headers: &HeaderMap) -> &str {
    text(headers, header::HOST).unwrap_or_default()
}

/// Whether no other page has caused the request, as far as its browser says. A link to the node may be followed.
fn is_own_origin(headers: &HeaderMap, scheme: &str) -> bool {
    let site = match text(headers, "sec-fetch-site") {
        Some("cross-site" | "same-site") => text(headers, "sec-fetch-mode") == Some("navigate"),
        _ => true,
    };
    let own = |origin: &str| origin.strip_prefix(scheme) == Some(host(headers));
    site && (!headers.contains_key(header::ORIGIN) || text(headers, header::ORIGIN).is_some_and(own))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
