//! What the kernel tells of a node's processes, and the node of itself.

use crate::{BenchError, failed};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use weir_sys::sched::RunDelay;

/// How long the API may take to answer.
const API_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The keeper's children that live: the worker that serves comes first.
pub(super) fn workers(keeper: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap_or_default();
    text.split_whitespace().filter(|pid| !is_ending(pid)).filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether a process is on its way out, or gone: proc_pid_stat(5), its state and PF_EXITING of its flags.
fn is_ending(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let exiting = fields.get(6).and_then(|flags| flags.parse::<u32>().ok()).is_none_or(|flags| flags & 4 != 0);
    exiting || matches!(fields[..], ["Z" | "X", ..])
}

/// What those threads have waited for a core until now, ns, that are on the way to the next completion one after the other: the keeper, and of
/// the worker that takes over the one that starts it and the one that hears the keeper. `others` are those that do not: of the rest it is
/// the first. Of a node without a keeper: the process itself.
pub(super) fn on_the_way(node: u32, others: &[i32]) -> u64 {
    let counts = |name: &str| matches!(name, "" | "weir-keeper");
    let next = workers(node).into_iter().find(|pid| !others.contains(pid));
    waited(node, counts) + next.map_or(0, |pid| waited(pid.unsigned_abs(), counts))
}

/// What a process's threads of such names have waited; the first one's is empty.
fn waited(pid: u32, counts: impl Fn(&str) -> bool) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let one = |task: std::fs::DirEntry| {
        let of = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let first = task.file_name().to_str() == Some(&pid.to_string());
        let name = if first { String::new() } else { of("comm") };
        let delay = || of("schedstat").split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0);
        if counts(name.trim()) { delay() } else { 0 }
    };
    tasks.flatten().map(one).sum()
}

/// Threads that are on the way to the next completion one after the other, and how long they have waited for a core.
#[derive(Default)]
pub(super) struct Way(Vec<(RunDelay, u64)>);

impl Way {
    /// Those of these names, of that process; the first one's is empty.
    pub(super) fn of(pid: u32, counts: impl Fn(&str) -> bool) -> Way {
        let mut way = Way::default();
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|t| t.parse::<u32>().ok()) else { continue };
            let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if counts(if tid == pid { "" } else { comm.trim() }) {
                way.0.extend(RunDelay::of_thread(pid, tid).ok().map(|delay| (delay, 0)));
            }
        }
        way
    }

    /// Those as well; how many they are.
    pub(super) fn add(&mut self, more: Way) -> usize {
        let count = more.0.len();
        self.0.extend(more.0);
        count
    }

    /// So far; what a thread had waited that has ended stays.
    pub(super) fn waited(&mut self) -> u64 {
        self.0.iter_mut().for_each(|(delay, last)| *last = delay.read().map_or(*last, |ns| ns.0));
        self.0.iter().map(|(_, last)| last).sum()
    }
}

/// Asks the API for something: a JSON value. Whatever it answers that is no success is an error.
///
/// # Errors
/// Nobody answers, or says no.
pub(super) fn ask(api: &Path, method: &str, path: &str, body: &str) -> Result<serde_json::Value, BenchError> {
    let mut stream = UnixStream::connect(api).map_err(|e| failed(api.display(), e))?;
    stream.set_read_timeout(Some(API_ANSWER_TIMEOUT))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| failed(path, "the API's answer is cut short"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        return Err(failed(path, format!("the API answers {status}: {body}")));
    }
    Ok(serde_json::from_str(body)?)
}
