//! The other end of the API: one request, one answer, over a UNIX socket, a loopback port, or by TLS.

use crate::address::{self, ApiAddress};
use crate::failure::CommandFailure;
use crate::registry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_api::ErrorBody;
use weir_config::{self as config, Address};

/// A node that has not answered by then is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request is made again that nobody has read, and how often.
const UNHEARD_FOR: Duration = Duration::from_secs(5);
/// Names the file of the token that is shown over TCP.
const TOKEN_FILE: &str = "WEIR_TOKEN_FILE";
const PAUSE: Duration = Duration::from_millis(10);
/// An answer that is larger is not from a node.
const MAX_ANSWER: u64 = 64 << 20;

/// Where a node answers.
pub struct ApiClient {
    address: ApiAddress,
    /// The file of the authority that a certificate must be signed by.
    ca: Option<PathBuf>,
}

impl ApiClient {
    /// By `--api` or by name (`--node`), else by `WEIR_API`, else the node that runs.
    ///
    /// # Errors
    /// No address, no such node, or several of which none was chosen.
    pub fn find(api: Option<&str>, node: Option<&str>, ca: Option<&Path>) -> Result<ApiClient, CommandFailure> {
        let here = Path::new("");
        if let Some(address) = address::by_option(api, here)? {
            return Ok(ApiClient { address, ca: ca.map(Path::to_owned) });
        }
        if let Some(name) = node {
            let (named, others): (Vec<_>, Vec<_>) = registry::running().into_iter().partition(|n| n.name == name);
            return ApiClient::only(&named).unwrap_or_else(|| Err(none_of(name, &named, &others)));
        }
        if let Some(address) = address::by_environment(here)? {
            return Ok(ApiClient { address, ca: ca.map(Path::to_owned) });
        }
        let nodes = registry::running();
        if nodes.len() > 1 {
            return Err(several(&nodes, "name one by --node or --api"));
        }
        // One that could not note itself may be at the usual place.
        let usual = || Ok(ApiClient::at(Address::Unix(config::runtime_dir().join("weir.sock"))));
        ApiClient::only(&nodes).unwrap_or_else(usual)
    }

    /// At this address.
    pub fn at(address: Address) -> ApiClient {
        ApiClient { address: ApiAddress::Plain(address), ca: None }
    }

    /// Of the only one of these nodes.
    fn only(nodes: &[registry::RunningNode]) -> Option<Result<ApiClient, CommandFailure>> {
        let [node] = nodes else { return None };
        node.client().map(Ok)
    }

    /// Where the node is asked.
    pub fn address(&self) -> &ApiAddress {
        &self.address
    }

    /// Whether something listens there; it may refuse this user.
    pub fn is_there(&self) -> bool {
        let gone = |e: &io::Error| matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        !self.connect().is_err_and(|e| gone(&e))
    }

    /// `GET path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandFailure> {
        self.call("GET", path, None)
    }

    /// `GET path`, whose answer is text.
    pub fn text(&self, path: &str) -> Result<String, CommandFailure> {
        let body = self.answered("GET", path, None)?;
        String::from_utf8(body).map_err(|e| CommandFailure::new(format_args!("{}: {e}", self.address)))
    }

    /// `PATCH path` with a JSON body.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CommandFailure> {
        self.call("PATCH", path, Some(serde_json::to_vec(body).map_err(CommandFailure::new)?))
    }

    /// `POST path` with a JSON body.
    pub fn create<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CommandFailure> {
        self.call("POST", path, Some(serde_json::to_vec(body).map_err(CommandFailure::new)?))
    }

    /// `DELETE path`.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandFailure> {
        self.call("DELETE", path, None)
    }

    /// `POST path` without a body.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandFailure> {
        self.call("POST", path, None)
    }

    /// Whether somebody listens there.
    pub fn answers(&self) -> bool {
        self.connect().is_ok()
    }

    /// `GET path` as a stream of server-sent events: `line` is called with each line, until it says false or the stream ends. A node sends
    /// something every few seconds.
    ///
    /// # Errors
    /// Nobody answers, or it refuses.
    pub fn stream(&self, path: &str, mut line: impl FnMut(&str) -> bool) -> Result<(), CommandFailure> {
        let headers = self.headers()?;
        let stream = self.connect().map_err(|e| self.unreachable(&e))?;
        let wrong = |e: io::Error| CommandFailure::new(format_args!("{}: {e}", self.address));
        let mut reader = io::BufReader::new(stream);
        // HTTP/1.0: the answer is not cut into chunks, and ends with the connection.
        let head = format!("GET {path} HTTP/1.0\r\n{headers}Accept: text/event-stream\r\n\r\n");
        reader.get_mut().write_all(head.as_bytes()).map_err(wrong)?;
        let (mut text, mut code, mut is_body) = (String::new(), None, false);
        while {
            text.clear();
            reader.read_line(&mut text).map_err(wrong)? > 0
        } {
            let said = text.trim_end_matches(['\r', '\n']);
            if code.is_none() {
                code = said.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
                if code.is_none() {
                    return Err(CommandFailure::new(format_args!("{}: no HTTP; is it a node's API?", self.address)));
                }
            } else if !is_body {
                is_body = said.is_empty();
            } else if code != Some(200) {
                let error = serde_json::from_str::<ErrorBody>(said).map_or_else(|_| said.to_owned(), |body| body.error);
                return Err(CommandFailure::new(error));
            } else if !line(said) {
                break;
            }
        }
        Ok(())
    }

    fn call<T: DeserializeOwned>(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> Result<T, CommandFailure> {
        serde_json::from_slice(&self.answered(method, path, body)?).map_err(|e| {
            CommandFailure::new(format_args!("{}: an answer that this version does not understand ({e})", self.address))
        })
    }

    /// The body of an answer that is no refusal.
    fn answered(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>, CommandFailure> {
        let answer = self.ask(method, path, body.as_deref())?;
        if !(200..300).contains(&answer.code) {
            let error = serde_json::from_slice::<ErrorBody>(&answer.body);
            return Err(CommandFailure::new(match error {
                Ok(body) => body.error,
                Err(_) => format!("{}: HTTP status {}; is it a node's API?", self.address, answer.code),
            }));
        }
        Ok(answer.body)
    }

    /// Asks until somebody has heard: a program that is being replaced may close a connection of which it has read nothing.
    fn ask(&self, method: &str, path: &str, body: Option<&[u8]>) -> Result<Answer, CommandFailure> {
        let begin = Instant::now();
        let headers = self.headers()?;
        loop {
            let mut stream = self.connect().map_err(|e| self.unreachable(&e))?;
            match exchange(&mut *stream, method, path, &headers, body) {
                Ok(answer) => return Ok(answer),
                Err(e) if is_unheard(&e, method) && begin.elapsed() < UNHEARD_FOR => std::thread::sleep(PAUSE),
                Err(e) => return Err(CommandFailure::new(format_args!("{}: {e}; is it a node's API?", self.address))),
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> CommandFailure {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CommandFailure::new(format_args!(
                "{}: no node answers; start one with weir up, or name its API with --api",
                self.address
            )),
            io::ErrorKind::PermissionDenied => CommandFailure::new(format_args!(
                "{}: {error}; the API is for the user who started the node: use sudo, or --api",
                self.address
            )),
            _ => CommandFailure::new(format_args!("{}: {error}", self.address)),
        }
    }

    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.address {
            ApiAddress::Tls(address) => Ok(Box::new(address.connect(self.ca.as_deref(), ANSWER_TIMEOUT)?)),
            ApiAddress::Plain(Address::Unix(path)) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                Ok(Box::new(stream))
            }
            ApiAddress::Plain(Address::Tcp(address)) => {
                let stream = TcpStream::connect_timeout(address, ANSWER_TIMEOUT)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Host, and over TCP the token in the file that `WEIR_TOKEN_FILE` names.
    fn headers(&self) -> Result<String, CommandFailure> {
        let address = match &self.address {
            ApiAddress::Plain(Address::Unix(_)) => return Ok("Host: localhost\r\n".into()),
            ApiAddress::Plain(Address::Tcp(address)) => address.to_string(),
            ApiAddress::Tls(address) => address.authority(),
        };
        let Some(file) = std::env::var_os(TOKEN_FILE).filter(|file| !file.is_empty()) else {
            return Ok(format!("Host: {address}\r\n"));
        };
        let wrong = |e: &dyn std::fmt::Display| {
            CommandFailure::new(format_args!("{TOKEN_FILE}: {}: {e}", Path::new(&file).display()))
        };
        let text = std::fs::read_to_string(&file).map_err(|e| wrong(&e))?;
        let token = text.lines().next().unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(wrong(&"its first line is no token"));
        }
        Ok(format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n"))
    }
}

/// A name as one segment of a path.
pub fn in_url(name: &str) -> String {
    let byte = |b: u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(byte).collect()
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Why no node was chosen by its name.
fn none_of(name: &str, named: &[registry::RunningNode], others: &[registry::RunningNode]) -> CommandFailure {
    match (named, others) {
        ([], []) => CommandFailure::new(format_args!("--node {name}: no node runs; start one with weir up")),
        ([], others) => CommandFailure::new(format_args!(
            "--node {name}: no node has this name; there is\n{}",
            registry::table(others)
        )),
        (named, _) => several(named, "they have one name: name one by --api"),
    }
}

fn several(nodes: &[registry::RunningNode], what_to_do: &str) -> CommandFailure {
    CommandFailure::new(format_args!("{} nodes run; {what_to_do}\n{}", nodes.len(), registry::table(nodes)))
}

/// Whether nothing of a request was read, or nothing is changed by asking again. A socket that is closed before a request came, or with all of
/// it unread, breaks the pipe or resets the connection; the whole request is one write.
fn is_unheard(error: &io::Error, method: &str) -> bool {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => true,
        io::ErrorKind::UnexpectedEof => method == "GET",
        _ => false,
    }
}

struct Answer {
    code: u16,
    body: Vec<u8>,
}

/// HTTP/1.1 with `Connection: close`: the answer ends with the connection.
fn exchange(
    stream: &mut dyn Stream,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&[u8]>,
) -> io::Result<Answer> {
    let body_headers = match body {
        Some(body) => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
        None if method == "POST" => "Content-Length: 0\r\n".to_string(),
        None => String::new(),
    };
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n{body_headers}\r\n");
    stream.write_all(&[head.as_bytes(), body.unwrap_or_default()].concat())?;
    let mut bytes = Vec::new();
    let read = stream.take(MAX_ANSWER).read_to_end(&mut bytes);
    read.map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(e.kind(), format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))
        }
        // Somebody has read the request.
        _ if !bytes.is_empty() => io::Error::other(e.to_string()),
        _ => e,
    })?;
    if bytes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed without an answer"));
    }
    read_answer(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}

fn read_answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let header =
        |line: &str| line.split_once(':').map(|(k, v)| (k.to_ascii_lowercase(), v.trim().to_ascii_lowercase()));
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let body = &bytes[end + 4..];
    let has = |name: &str| headers.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    let body = match (has("transfer-encoding"), has("content-length")) {
        (Some("chunked"), _) => unchunked(body)?,
        // Cut off short of its length: no answer.
        (_, Some(length)) => body.get(..length.parse().ok()?)?.to_vec(),
        (_, None) => body.to_vec(),
    };
    Some(Answer { code, body })
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend(rest.get(end + 2..(end + 2).checked_add(size)?)?);
        rest = rest.get((end + 2).checked_add(size)?.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_length() {
        let answer = read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}junk").unwrap();
        assert_eq!((answer.code, answer.body.as_slice()), (200, b"{}".as_slice()));
        assert!(read_answer(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}").is_none());
        let chunked = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x\r\nd\r\n0\r\n\r\n";
        let answer = read_answer(chunked).unwrap();
        assert_eq!((answer.code, answer.body.as_slice()), (404, b"abcd".as_slice()));
        for bad in [&b"HTTP/1.1 200 OK\r\n"[..], b"", b"nonsense\r\n\r\n", b"HTTP/1.1 2x\r\n\r\n"] {
            assert!(read_answer(bad).is_none());
        }
        assert!(unchunked(b"ffffffffffffffff\r\nabc").is_none());
    }

    #[test]
    fn several_nodes_are_named() {
        let entry = |name: &str, pid: u32| {
            let text =
                format!(r#"{{"version":1,"name":"{name}","pid":{pid},"api":["unix:/{name}.sock"],"config":null}}"#);
            serde_json::from_str::<registry::RunningNode>(&text).unwrap()
        };
        let nodes = [entry("n1", 1), entry("n2", 2)];
        let text = several(&nodes, "name one by --node or --api").text().to_string();
        assert!(text.starts_with("2 nodes run; name one by --node or --api\nNODE  API"), "{text}");
        assert!(text.contains("n2    unix:/n2.sock"), "{text}");
        assert!(none_of("x", &[], &nodes).text().starts_with("--node x: no node has this name; there is\n"));
        assert!(none_of("x", &[], &[]).text().contains("no node runs"));
        assert!(none_of("n1", &nodes, &[]).text().contains("they have one name"));
    }
}
