//! Commits of a store whose metadata are in etcd, against bare transactions of the same bytes: one gRPC connection each, to one etcd.

use super::pairs;
use crate::figure::{Report, Target};
use crate::servers::{Scratch, free_port};
use crate::{BenchError, Setup, failed};
use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use weir_store::kv::{Commit, CommitOutcome, Expect, KvAnswer, KvKey, KvRequest, KvToken, KvWrite};
use weir_store_node::etcd::{EtcdKv, EtcdMeta, request_bytes};

/// What a service has under way at a time: one client that waits, and many.
const IN_FLIGHT: [usize; 2] = [1, 32];

/// How long etcd may take to begin, and for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The program: what `WEIR_ETCD` names, else that of `PATH`.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_ETCD").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    named.into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join("etcd"))).find(|path| path.is_file())
}

/// Measures.
///
/// # Errors
/// etcd does not start, or a commit was not made.
pub fn commits(setup: &Setup, program: &PathBuf, report: &mut Report) -> Result<(), BenchError> {
    let etcd = Etcd::start(program)?;
    let time = Duration::from_nanos(setup.time.get());
    for in_flight in IN_FLIGHT {
        let store = Store::open(&etcd, in_flight)?;
        let bare = Bare::open(&etcd, in_flight)?;
        let (ours, theirs) = pairs(setup, || store.rate(time), || bare.rate(time))?;
        report.figure(format!("commits in etcd, {in_flight} in flight"), "1/s", &ours);
        report.figure(format!("bare transactions of as many bytes, {in_flight} in flight"), "1/s", &theirs);
        let what = format!("commits / bare transactions, {in_flight} in flight");
        report.judged_by_interval(what, "x", &ours.over(&theirs), Target::AtLeast(0.8));
    }
    Ok(())
}

/// An etcd of one member, whose disk is memory.
struct Etcd {
    child: Child,
    url: String,
    _scratch: Scratch,
}

impl Etcd {
    fn start(program: &PathBuf) -> Result<Self, BenchError> {
        let scratch = Scratch::named("etcd")?;
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(scratch.path("data"));
        for (key, value) in [
            ("--listen-client-urls", &url),
            ("--advertise-client-urls", &url),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ] {
            command.args([key, value]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| failed(program.display(), e))?;
        Ok(Self { child, url, _scratch: scratch })
    }

    fn meta(&self, prefix: &str) -> Result<EtcdMeta, BenchError> {
        format!("{}/{prefix}", self.url).parse().map_err(|e: String| failed("etcd", e))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn life() -> (KvKey, Vec<u8>) {
    (KvKey(b"\x01life".to_vec()), vec![1; 24])
}

/// What a service commits for a file that is made: its life stays, the name is free; an inode, a name, and the client's answer.
fn commit(slot: usize) -> Commit {
    let key = |kind: u8, len: usize| {
        let mut key = vec![kind; len];
        key[1..9].copy_from_slice(&(slot as u64).to_be_bytes());
        KvKey(key)
    };
    let (life, value) = life();
    let puts = [(2, 9, 160), (3, 30, 12), (4, 17, 90)];
    Commit {
        expect: vec![(life, Expect::Value(value)), (key(5, 30), Expect::Absent)],
        writes: puts.into_iter().map(|(kind, len, value)| KvWrite::Put(key(kind, len), vec![kind; value])).collect(),
    }
}

/// A store's key-value store.
struct Store {
    kv: EtcdKv,
    bell: mpsc::Receiver<()>,
    commits: Vec<Commit>,
}

impl Store {
    fn open(etcd: &Etcd, in_flight: usize) -> Result<Self, BenchError> {
        let (ring, bell) = mpsc::channel();
        let kv = EtcdKv::open(&etcd.meta("ours")?, move || {
            // Nobody listens at the end.
            let _ = ring.send(());
        })?;
        let store = Self { kv, bell, commits: (0..in_flight).map(commit).collect() };
        let (key, value) = life();
        let begin = Commit { expect: Vec::new(), writes: vec![KvWrite::Put(key, value)] };
        let begun = Instant::now();
        while let Err(e) = store.ask(0, &begin).and_then(|()| store.wait().map(drop)) {
            if begun.elapsed() > ANSWER_LIMIT {
                return Err(e);
            }
        }
        Ok(store)
    }

    fn ask(&self, slot: usize, commit: &Commit) -> Result<(), BenchError> {
        self.kv.ask(KvToken(slot as u64), KvRequest::Commit(commit.clone()));
        Ok(())
    }

    /// Slots that are done.
    fn wait(&self) -> Result<Vec<usize>, BenchError> {
        self.bell.recv_timeout(ANSWER_LIMIT).map_err(|e| failed("etcd", e))?;
        let done = |(token, answer): (KvToken, KvAnswer)| match answer {
            KvAnswer::Outcome(CommitOutcome::Done(_)) => Ok(token.0 as usize),
            other => Err(failed("a commit", format!("{other:?}: {:?}", self.kv.trouble()))),
        };
        self.kv.answered().into_iter().map(done).collect()
    }

    /// Commits a second.
    fn rate(&self, time: Duration) -> Result<f64, BenchError> {
        let begun = Instant::now();
        for (slot, commit) in self.commits.iter().enumerate() {
            self.ask(slot, commit)?;
        }
        let (mut done, mut under_way) = (0u32, self.commits.len());
        while under_way > 0 {
            for slot in self.wait()? {
                done += 1;
                if begun.elapsed() < time {
                    self.ask(slot, &self.commits[slot])?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok(f64::from(done) / begun.elapsed().as_secs_f64())
    }
}

/// The same bytes, by a gRPC client and nothing else.
struct Bare {
    runtime: Runtime,
    channel: Channel,
    requests: Vec<Vec<u8>>,
}

impl Bare {
    fn open(etcd: &Etcd, in_flight: usize) -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let endpoint = Endpoint::from_shared(etcd.url.clone()).map_err(|e| failed(&etcd.url, e))?.tcp_nodelay(true);
        let channel = runtime.block_on(endpoint.connect()).map_err(|e| failed(&etcd.url, e))?;
        let prefix = etcd.meta("bare")?.prefix;
        let (key, value) = life();
        let begin = Commit { expect: Vec::new(), writes: vec![KvWrite::Put(key, value)] };
        let begin = request_bytes(&prefix, begin);
        runtime.block_on(send(&channel, begin))?;
        let requests = (0..in_flight).map(|slot| request_bytes(&prefix, commit(slot))).collect();
        Ok(Self { runtime, channel, requests })
    }

    /// Transactions a second.
    fn rate(&self, time: Duration) -> Result<f64, BenchError> {
        let begun = Instant::now();
        let done = self.runtime.block_on(async {
            let tasks = self.requests.iter().map(|request| {
                let (channel, request) = (self.channel.clone(), request.clone());
                tokio::spawn(async move {
                    let mut done = 0u32;
                    loop {
                        send(&channel, request.clone()).await?;
                        done += 1;
                        if begun.elapsed() >= time {
                            return Ok::<u32, BenchError>(done);
                        }
                    }
                })
            });
            let mut done = 0;
            for task in tasks.collect::<Vec<_>>() {
                done += task.await.map_err(|e| failed("a task", e))??;
            }
            Ok::<u32, BenchError>(done)
        })?;
        Ok(f64::from(done) / begun.elapsed().as_secs_f64())
    }
}

async fn send(channel: &Channel, request: Vec<u8>) -> Result<(), BenchError> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|e| failed("etcd", e))?;
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
    let answer = grpc.unary(Request::new(request), path, AsIs).await.map_err(|e| failed("a transaction", e))?;
    if answer.into_inner().succeeded { Ok(()) } else { Err(failed("a transaction", "it was not made")) }
}

/// Of etcd's answer.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Made {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

/// Bytes out, [`Made`] in.
#[derive(Clone, Copy)]
struct AsIs;

impl Codec for AsIs {
    type Encode = Vec<u8>;
    type Decode = Made;
    type Encoder = AsIs;
    type Decoder = AsIs;

    fn encoder(&mut self) -> AsIs {
        AsIs
    }

    fn decoder(&mut self) -> AsIs {
        AsIs
    }
}

impl Encoder for AsIs {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for AsIs {
    type Item = Made;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Made>, Status> {
        let made = Made::decode(from.copy_to_bytes(from.remaining()));
        made.map(Some).map_err(|e| Status::internal(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_commit() {
        let Some(program) = program() else { return println!("left out: there is no etcd") };
        let etcd = Etcd::start(&program).unwrap_or_else(|e| panic!("{e:?}"));
        let store = Store::open(&etcd, 4).unwrap_or_else(|e| panic!("{e:?}"));
        let bare = Bare::open(&etcd, 4).unwrap_or_else(|e| panic!("{e:?}"));
        let time = Duration::from_millis(50);
        for rate in [store.rate(time), bare.rate(time)] {
            assert!(rate.unwrap_or_else(|e| panic!("{e:?}")) > 0.0);
        }
    }
}
