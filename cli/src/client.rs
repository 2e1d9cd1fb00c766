//! The other end of the API: one request, one answer, over a UNIX socket or a loopback port.

use crate::failure::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_node::api::ErrorBody;
use weir_node::config::{self, Address};

/// A node that has not answered by then is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// An answer that is larger is not from a node.
const MAX_ANSWER: u64 = 64 << 20;

/// Where a node answers.
pub struct Client {
    address: Address,
}

impl Client {
    /// By `--api` or `WEIR_API`, else in the runtime folder.
    pub fn find(api: Option<&str>) -> Result<Client, Failure> {
        let address = match api {
            Some(text) => parse(text).map_err(|e| Failure::usage(format_args!("--api: {e}")))?,
            None => Address::Unix(config::runtime_dir().join("weir.sock")),
        };
        Ok(Client { address })
    }

    /// `GET path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call("GET", path, None)
    }

    /// `PATCH path` with a JSON body.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call("PATCH", path, Some(serde_json::to_vec(body).map_err(Failure::new)?))
    }

    /// `POST path` with a JSON body.
    pub fn create<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call("POST", path, Some(serde_json::to_vec(body).map_err(Failure::new)?))
    }

    /// `DELETE path`.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call("DELETE", path, None)
    }

    /// `POST path` without a body.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call("POST", path, None)
    }

    /// Whether somebody listens there.
    pub fn answers(&self) -> bool {
        self.connect().is_ok()
    }

    fn call<T: DeserializeOwned>(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> Result<T, Failure> {
        let mut stream = self.connect().map_err(|e| self.unreachable(&e))?;
        let answer = exchange(&mut *stream, method, path, &self.host(), body.as_deref())
            .map_err(|e| Failure::new(format_args!("{}: {e}; is it a node's API?", self.address)))?;
        if !(200..300).contains(&answer.code) {
            let error = serde_json::from_slice::<ErrorBody>(&answer.body);
            return Err(Failure::new(match error {
                Ok(body) => body.error,
                Err(_) => format!("{}: HTTP status {}; is it a node's API?", self.address, answer.code),
            }));
        }
        serde_json::from_slice(&answer.body).map_err(|e| {
            Failure::new(format_args!("{}: an answer that this version does not understand ({e})", self.address))
        })
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::new(format_args!(
                "{}: no node answers; start one with weir up, or name its API with --api",
                self.address
            )),
            io::ErrorKind::PermissionDenied => Failure::new(format_args!(
                "{}: {error}; the API is for the user who started the node: use sudo, or --api",
                self.address
            )),
            _ => Failure::new(format_args!("{}: {error}", self.address)),
        }
    }

    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
        }
    }

    fn host(&self) -> String {
        match &self.address {
            Address::Unix(_) => "localhost".to_string(),
            Address::Tcp(address) => address.to_string(),
        }
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// `unix:PATH`, a path, `IP:PORT`, `http://IP:PORT`.
fn parse(text: &str) -> Result<Address, String> {
    if text.starts_with('/') || text.starts_with("./") || text.starts_with("../") {
        return Ok(Address::Unix(PathBuf::from(text)));
    }
    config::address(text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/'), Path::new(""))
}

struct Answer {
    code: u16,
    body: Vec<u8>,
}

/// HTTP/1.1 with `Connection: close`: the answer ends with the connection.
fn exchange(stream: &mut dyn Stream, method: &str, path: &str, host: &str, body: Option<&[u8]>) -> io::Result<Answer> {
    let body_headers = match body {
        Some(body) => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
        None if method == "POST" => "Content-Length: 0\r\n".to_string(),
        None => String::new(),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{body_headers}\r\n");
    stream.write_all(&[head.as_bytes(), body.unwrap_or_default()].concat())?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut bytes).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(e.kind(), format!("no answer within {} s", PATIENCE.as_secs())),
        _ => e,
    })?;
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
    fn addresses() {
        assert_eq!(parse("/run/weir/weir.sock").unwrap(), Address::Unix("/run/weir/weir.sock".into()));
        assert_eq!(parse("unix:x.sock").unwrap(), Address::Unix("x.sock".into()));
        assert_eq!(parse("http://127.0.0.1:9400/").unwrap(), Address::Tcp("127.0.0.1:9400".parse().unwrap()));
        assert!(parse("nonsense").unwrap_err().contains("is not an address like"));
        assert!(parse("10.0.0.1:9400").unwrap_err().contains("is not loopback"));
    }
}
