//! Just enough HTTP/1.1 to ask the control API over its Unix socket, and etcd.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::harness::Context;

/// Sends a request and gives status and body.
pub fn request(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String), String> {
    let what = || format!("{method} {path} at {}", socket.display());
    let stream = UnixStream::connect(socket).context(what)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).context(what)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    exchange(stream, method, path, &body, &what)
}

/// The same of a server at `HOST:PORT`.
pub fn request_at(at: &str, method: &str, path: &str, body: &str) -> Result<(u16, String), String> {
    let what = || format!("{method} {path} at {at}");
    let stream = TcpStream::connect(at).context(what)?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).context(what)?;
    exchange(stream, method, path, body, &what)
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    body: &str,
    what: &dyn Fn() -> String,
) -> Result<(u16, String), String> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).context(what)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context(what)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or_else(|| format!("{}: no HTTP answer: {answer:?}", what()))?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| format!("{}: {head:?}", what()))?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((status, if chunked { unchunk(body) } else { body.to_owned() }))
}

/// The JSON of a GET that answers 200.
pub fn get(socket: &Path, path: &str) -> Result<Value, String> {
    match request(socket, "GET", path, None)? {
        (200, body) => serde_json::from_str(&body).context(|| format!("GET {path}: {body:?}")),
        (status, body) => Err(format!("GET {path}: status {status}: {body}")),
    }
}

fn unchunk(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(chunk) = rest.get(..size) else { break };
        out.push_str(chunk);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    out
}
