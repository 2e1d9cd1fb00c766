//! A node with a store, and `weir fs bench` on it.

use crate::servers::{Scratch, Server, free_port, start_node};
use crate::{BenchError, Setup, failed};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_store_node::client::{Client, ClientOptions, Operator as _};

const NQN: &str = "nqn.2026-11.io.weir:bench:";
/// Bytes of the drives in the store.
const ROOM: u64 = 4 << 30;

/// What a run of `weir fs bench` gave.
#[derive(Clone, Copy, Debug)]
pub struct FsRun {
    /// Median latency, ns.
    pub p50_ns: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Operations a second, of the whole run.
    pub operations_per_s: f64,
}

/// The node.
pub struct StoreNode {
    // Before the folder: it ends, and then what it uses goes.
    server: Server,
    scratch: Scratch,
    setup: Setup,
    /// The metadata service.
    pub address: String,
    raw: String,
    config: String,
}

impl StoreNode {
    /// Two RAM drives in the store, one beside it.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(setup: &Setup) -> Result<Self, BenchError> {
        let scratch = Scratch::named("store")?;
        let (port, meta) = (free_port()?, free_port()?);
        let address = format!("127.0.0.1:{meta}");
        let mut config = format!(
            "[node]\nname = \"bench\"\napi = \"unix:{}\"\ncores = [{}]\nkeeper = false\n\
             [[tenant]]\nname = \"all\"\nclass = \"high\"\nhosts = [\"*\"]\n[door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n\
             [store]\nmeta = \"redb:{}\"\nlisten = \"{address}\"\nclasses = [\"dram\"]\n",
            scratch.path("api.sock").display(),
            setup.server_core,
            scratch.path("store.redb").display()
        );
        for name in ["ram0", "ram1", "raw"] {
            config += &format!(
                "[[device]]\nname = \"{name}\"\nkind = \"ram\"\ncapacity = \"{}MiB\"\nnqn = \"{NQN}{name}\"\n\
                 [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n",
                (ROOM / 2) >> 20
            );
        }
        config += "[[store.donate]]\ndevice = \"ram0\"\nclass = \"dram\"\n[[store.donate]]\ndevice = \"ram1\"\nclass = \"dram\"\n";
        let server = serve(setup, &scratch, &config, &address)?;
        let raw = format!("nvme-tcp://127.0.0.1:{port}/{NQN}raw?ns=1");
        Ok(Self { server, scratch, setup: setup.clone(), address, raw, config })
    }

    /// Writes nearly all of its drives once, so that they have their memory.
    ///
    /// # Errors
    /// It failed.
    pub fn touch(&self) -> Result<(), BenchError> {
        self.run("writeAsync -s 1MiB -b 8 -w 0 -f /touched", (ROOM / 16 * 15) >> 20)?;
        let client = Client::connect(&self.address, ClientOptions::default());
        client.and_then(|client| client.remove("/touched", false)).map_err(|e| failed("the store", e))
    }

    /// A line of `weir fs bench` with so many operations.
    ///
    /// # Errors
    /// It failed.
    pub fn run(&self, line: &str, operations: u64) -> Result<FsRun, BenchError> {
        let operations = operations.to_string();
        let words = line.split(' ').chain(["-k", &operations]);
        self.bench(&words.collect::<Vec<_>>())
    }

    /// The same on the first bytes of the drive beside the store.
    ///
    /// # Errors
    /// It failed.
    pub fn run_raw(&self, line: &str, operations: u64, region: u64) -> Result<FsRun, BenchError> {
        let (operations, region) = (operations.to_string(), region.to_string());
        let words = line.split(' ').chain(["-k", &operations, "--raw", &self.raw, "--region", &region]);
        self.bench(&words.collect::<Vec<_>>())
    }

    fn bench(&self, words: &[&str]) -> Result<FsRun, BenchError> {
        let program = self.setup.weir()?;
        // Bound to no core: a client of a store that has a single one does not spin.
        let mut command = Command::new(&program);
        command.args(["--json", "fs", "--store", &self.address, "bench"]).args(words).stdin(Stdio::null());
        let output = command.output().map_err(|e| failed("weir fs bench", e))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("weir fs bench {}", words.join(" ")), said.trim()));
        }
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let run = &json["runs"][0];
        let number =
            |v: &serde_json::Value| v.as_f64().ok_or_else(|| failed("weir fs bench", "its JSON lacks a figure"));
        Ok(FsRun {
            p50_ns: number(&run["latency_ns"]["p50"])?,
            bytes_per_s: number(&run["bandwidth_bytes_per_s"])?,
            operations_per_s: number(&run["operations_per_s"])?,
        })
    }

    /// Bytes of memory that the node has of its own.
    ///
    /// # Errors
    /// It is gone.
    pub fn memory(&self) -> Result<f64, BenchError> {
        let path = format!("/proc/{}/status", self.server.id());
        let text = std::fs::read_to_string(&path).map_err(|e| failed(&path, e))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0).ok_or_else(|| failed(&path, "no RssAnon"))
    }

    /// Kills it, starts it again, and asks for a file: seconds from exec to the right answer.
    ///
    /// # Errors
    /// It does not start.
    pub fn kill_and_start(&mut self, setup: &Setup, path: &str) -> Result<f64, BenchError> {
        self.server.kill()?;
        let begun = Instant::now();
        self.server = start_node(setup, &self.scratch, (&self.config, false), || true)?;
        loop {
            let client = Client::connect(&self.address, ClientOptions::default());
            match client.and_then(|client| client.stat(path)) {
                Ok(_) => return Ok(begun.elapsed().as_secs_f64()),
                Err(e) if begun.elapsed() > Duration::from_secs(60) => return Err(failed("the store", e)),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Files in the store: of all folders at the root, and beside them.
    ///
    /// # Errors
    /// It does not answer.
    pub fn files(&self) -> Result<f64, BenchError> {
        let about = |e| failed("the store", e);
        let client = Client::connect(&self.address, ClientOptions::default()).map_err(about)?;
        let mut files = 0;
        for entry in client.list("/").map_err(about)? {
            let entry = entry.map_err(about)?;
            let path = format!("/{}", entry.name);
            files += 1;
            if entry.record.kind == weir_store::InodeKind::Directory {
                files += client.list(&path).map_err(about)?.count();
            }
        }
        Ok(files as f64)
    }

    /// Bytes of the metadata's files on disk.
    ///
    /// # Errors
    /// They are not there.
    pub fn metadata_bytes(&self) -> Result<f64, BenchError> {
        let path = self.scratch.path("store.redb");
        let meta = std::fs::metadata(&path).map_err(|e| failed(path.display(), e))?;
        Ok(meta.len() as f64)
    }
}

/// Starts it, as soon as its store answers.
fn serve(setup: &Setup, scratch: &Scratch, config: &str, address: &str) -> Result<Server, BenchError> {
    start_node(setup, scratch, (config, false), || {
        let status = Client::connect(address, ClientOptions::default()).and_then(|client| client.namespaces());
        status.is_ok_and(|namespaces| namespaces.len() == 2)
    })
}
