//! The servers that are measured, each a process on the server's core, stopped while it is not its turn.

use crate::{BenchError, Setup, client, failed};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(20);

/// A folder of this run's own, removed with it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// In memory: files in it are the tmpfs that is compared with.
    ///
    /// # Errors
    /// /dev/shm is not to be had.
    pub fn new() -> Result<Self, BenchError> {
        Self::named("0")
    }

    /// One of several.
    ///
    /// # Errors
    /// As [`Scratch::new`].
    pub fn named(name: &str) -> Result<Self, BenchError> {
        let path = PathBuf::from(format!("/dev/shm/weir-bench-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| failed(path.display(), e))?;
        Ok(Scratch(path))
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing to be done about it at the end.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server process.
pub struct Server {
    child: Child,
    pid: Pid,
}

impl Server {
    fn start(command: &mut Command, core: usize) -> Result<Self, BenchError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|e| failed(&name, e))?;
        let pid = Pid::from_child(&child);
        let server = Server { child, pid };
        let mut set = CpuSet::new();
        set.set(core);
        // Its threads inherit it: none has been started yet, or they start on the same core.
        sched_setaffinity(Some(pid), &set).map_err(|e| failed(&name, e))?;
        Ok(server)
    }

    fn wait_for(&mut self, what: &str, ready: impl Fn() -> bool) -> Result<(), BenchError> {
        let begun = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                return Err(failed(what, format!("the server ended ({status}) before it was ready")));
            }
            if begun.elapsed() > SERVER_START_TIMEOUT {
                return Err(failed(what, "the server is not ready after 20 s"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes it off its core.
    ///
    /// # Errors
    /// It is gone.
    pub fn pause(&self) -> Result<(), BenchError> {
        kill_process(self.pid, Signal::STOP).map_err(|e| failed("stopping a server", e))
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&self) -> Result<(), BenchError> {
        kill_process(self.pid, Signal::CONT).map_err(|e| failed("resuming a server", e))
    }
}

impl Server {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to end, and waits until it has.
    ///
    /// # Errors
    /// It is gone already, or fails.
    pub fn end(&mut self) -> Result<(), BenchError> {
        kill_process(self.pid, Signal::TERM).map_err(|e| failed("ending a server", e))?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(failed("ending a server", status)) }
    }

    /// SIGKILL, and waits until it has ended.
    ///
    /// # Errors
    /// It is gone already.
    pub fn kill(&mut self) -> Result<(), BenchError> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The time that its threads have spent on cores.
    ///
    /// # Errors
    /// It is gone.
    pub fn cpu_time(&self) -> Result<Duration, BenchError> {
        let dir = format!("/proc/{}/task", self.child.id());
        let mut total = Duration::ZERO;
        for thread in std::fs::read_dir(&dir).map_err(|e| failed(&dir, e))? {
            let path = thread?.path().join("schedstat");
            // A thread that has just ended is no loss.
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let ns = text.split(' ').next().and_then(|t| t.parse().ok());
            total += Duration::from_nanos(ns.ok_or_else(|| failed(path.display(), "no time"))?);
        }
        Ok(total)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, and that is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `weir up` with one RAM drive, polling, and where it can be reached.
pub struct Weir {
    /// The process.
    pub server: Server,
    /// Bench target of the NVMe/TCP door.
    pub tcp: String,
    /// Bench target of the vhost-user door.
    pub vhost: String,
    /// Address of its API.
    pub api: String,
}

const NQN: &str = "nqn.2026-11.io.weir:bench:ssd0";

/// `weir up` with one drive at a vhost-user socket and an NVMe/TCP port, polling.
pub struct Node {
    /// The process.
    pub server: Server,
    /// The socket of its vhost-user door.
    pub socket: PathBuf,
    /// The port of its NVMe/TCP door.
    pub port: u16,
    /// The socket of its API.
    pub api: PathBuf,
    file: PathBuf,
}

impl Node {
    /// The drive's name at its NVMe/TCP door.
    pub const NQN: &'static str = NQN;

    /// Starts it with these keys of `[node]`, and a drive of that kind, capacity and further keys, written full if it is of RAM.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        setup: &Setup,
        scratch: &Scratch,
        node: &str,
        (kind, capacity, keys): (&str, &str, &str),
    ) -> Result<Self, BenchError> {
        let (api, socket) = (scratch.path("api.sock"), scratch.path("vhost.sock"));
        let port = free_port()?;
        let config = format!(
            "[node]\nname = \"bench\"\napi = \"unix:{}\"\ncores = [{}]\n{node}\n\
             [[tenant]]\nname = \"all\"\nclass = \"high\"\nhosts = [\"*\"]\n\
             [[export]]\ndevice = \"ssd0\"\ndoor = \"vhost-user:{}\"\ntenant = \"all\"\n\
             [[export]]\ndevice = \"ssd0\"\ndoor = \"nvme-tcp\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n\
             [[device]]\nname = \"ssd0\"\nkind = \"{kind}\"\ncapacity = \"{capacity}\"\nnqn = \"{NQN}\"\n{keys}\n",
            api.display(),
            setup.server_core,
            socket.display(),
        );
        let server = up(setup, scratch, &config, || UnixStream::connect(&api).is_ok() && socket.exists())?;
        if kind == "ram" {
            write_full(setup, &format!("vhost-user:{}", socket.display()))?;
        }
        Ok(Node { server, socket, port, api, file: scratch.path(CONFIG) })
    }

    /// Starts it again, once it has ended.
    ///
    /// # Errors
    /// There is no process to be had.
    pub fn again(&mut self, setup: &Setup) -> Result<(), BenchError> {
        self.server = Server::start(&mut command(setup, &self.file, true)?, setup.server_core)?;
        Ok(())
    }
}

/// The configuration's file.
const CONFIG: &str = "weir.toml";

fn command(setup: &Setup, file: &Path, poll: bool) -> Result<Command, BenchError> {
    let mut command = Command::new(setup.weir()?);
    command.arg("up").args(poll.then_some("--poll")).arg("-c").arg(file);
    Ok(command)
}

/// `weir up` with RAM drives and volumes on them, at vhost-user sockets.
pub struct Pooled {
    /// The process.
    pub server: Server,
    /// Bench targets, all written full.
    pub targets: Vec<String>,
}

impl Pooled {
    /// A raw drive, and a volume of as much on another one, both of one core, polling.
    ///
    /// # Errors
    /// It does not start.
    pub fn beside_raw(setup: &Setup, scratch: &Scratch) -> Result<Self, BenchError> {
        let mib = setup.mebibytes()?;
        let socket = |name: &str| scratch.path(name).display().to_string();
        let rest = drive("raw", mib)
            + &format!("[[export]]\ndevice = \"raw\"\ntenant = \"all\"\ndoor = \"vhost-user:{}\"\n", socket("raw.sock"))
            // What the pool keeps for itself is a 2048th of the drive, 2 MiB at least.
            + &drive("d0", mib + mib / 1024 + 8)
            + &volume(mib, &socket("v0.sock"));
        Self::start(setup, scratch, (&[setup.server_core], true), &rest, &["raw.sock", "v0.sock"])
    }

    /// A volume half of which lies on a drive of the first core and half on one of the last.
    ///
    /// # Errors
    /// It does not start.
    pub fn wide(setup: &Setup, scratch: &Scratch, cores: &[usize]) -> Result<Self, BenchError> {
        let half = setup.mebibytes()? / 2;
        let each = half + half / 1024 + 8;
        let socket = scratch.path("wide.sock").display().to_string();
        let rest = drive("d0", each) + &drive("d1", each) + &volume(2 * half, &socket);
        Self::start(setup, scratch, (cores, false), &rest, &["wide.sock"])
    }

    fn start(
        setup: &Setup,
        scratch: &Scratch,
        (cores, poll): (&[usize], bool),
        rest: &str,
        names: &[&str],
    ) -> Result<Self, BenchError> {
        let api = scratch.path("api.sock");
        let config = format!(
            "[node]\nname = \"bench\"\napi = \"unix:{}\"\ncores = {cores:?}\nkeeper = false\n[[tenant]]\nname = \"all\"\nclass = \"high\"\n{rest}",
            api.display()
        );
        let sockets: Vec<PathBuf> = names.iter().map(|name| scratch.path(name)).collect();
        let is_there = || UnixStream::connect(&api).is_ok() && sockets.iter().all(|socket| socket.exists());
        let server = start_node(setup, scratch, (&config, poll), is_there)?;
        let targets: Vec<String> = sockets.iter().map(|socket| format!("vhost-user:{}", socket.display())).collect();
        targets.iter().try_for_each(|target| write_full(setup, target))?;
        Ok(Pooled { server, targets })
    }
}

fn drive(name: &str, mib: u64) -> String {
    format!("[[device]]\nname = \"{name}\"\nkind = \"ram\"\ncapacity = \"{mib}MiB\"\nblock_size = 4096\n")
}

fn volume(mib: u64, socket: &str) -> String {
    format!("[[volume]]\nname = \"v0\"\ntenant = \"all\"\nsize = \"{mib}MiB\"\nexport = [\"vhost-user:{socket}\"]\n")
}

/// `weir up --poll` with that configuration, as soon as it is there.
fn up(setup: &Setup, scratch: &Scratch, config: &str, is_there: impl Fn() -> bool) -> Result<Server, BenchError> {
    start_node(setup, scratch, (config, true), is_there)
}

/// The same, polling or not.
///
/// # Errors
/// It does not start.
pub fn start_node(
    setup: &Setup,
    scratch: &Scratch,
    (config, poll): (&str, bool),
    is_there: impl Fn() -> bool,
) -> Result<Server, BenchError> {
    let file = scratch.path(CONFIG);
    std::fs::write(&file, config).map_err(|e| failed(file.display(), e))?;
    let mut server = Server::start(&mut command(setup, &file, poll)?, setup.server_core)?;
    server.wait_for("weir up", is_there)?;
    Ok(server)
}

impl Weir {
    /// Starts it and writes the drive full, so that reads move bytes from memory of its own.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(setup: &Setup, scratch: &Scratch) -> Result<Self, BenchError> {
        Self::start_with(setup, scratch, "")
    }

    /// With more keys of the device.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_with(setup: &Setup, scratch: &Scratch, keys: &str) -> Result<Self, BenchError> {
        let (api, socket) = (scratch.path("api.sock"), scratch.path("vhost.sock"));
        let port = free_port()?;
        let config = format!(
            "[node]\nname = \"bench\"\napi = \"unix:{}\"\ncores = [{}]\nkeeper = false\n\
             [[device]]\nname = \"ssd0\"\nkind = \"ram\"\ncapacity = \"{}\"\nblock_size = 4096\nnqn = \"{NQN}\"\n{keys}\n\
             [[tenant]]\nname = \"all\"\nclass = \"high\"\nhosts = [\"*\"]\n\
             [[export]]\ndevice = \"ssd0\"\ndoor = \"nvme-tcp\"\n\
             [[export]]\ndevice = \"ssd0\"\ndoor = \"vhost-user:{}\"\ntenant = \"all\"\n\
             [door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n",
            api.display(),
            setup.server_core,
            setup.capacity,
            socket.display(),
        );
        let server = up(setup, scratch, &config, || UnixStream::connect(&api).is_ok() && socket.exists())?;
        let weir = Weir {
            server,
            tcp: format!("nvme-tcp://127.0.0.1:{port}/{NQN}?ns=1"),
            vhost: format!("vhost-user:{}", socket.display()),
            api: format!("unix:{}", api.display()),
        };
        write_full(setup, &weir.vhost)?;
        Ok(weir)
    }
}

/// `weir up` with a RAM drive and a null drive on vfio-user sockets, and null drives that nobody uses.
pub struct Pcie {
    /// The process.
    pub server: Server,
    /// Bench target of the RAM drive, which is written full.
    pub ram: String,
    /// Bench target of the null drive.
    pub null: String,
}

impl Pcie {
    /// Starts it, polling or not.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(setup: &Setup, scratch: &Scratch, poll: bool, idle: usize) -> Result<Self, BenchError> {
        let api = scratch.path("api.sock");
        let mut config = format!(
            "[node]\nname = \"bench\"\napi = \"unix:{}\"\ncores = [{}]\nkeeper = false\n[[tenant]]\nname = \"all\"\n",
            api.display(),
            setup.server_core
        );
        let idle = (0..idle).map(|i| format!("idle{i}"));
        let mut sockets = Vec::new();
        for name in ["ram".to_string(), "null".to_string()].into_iter().chain(idle) {
            sockets.push(scratch.path(&format!("{name}.sock")));
            let kind = if name == "ram" { "ram" } else { "null" };
            config += &format!(
                "[[device]]\nname = \"{name}\"\nkind = \"{kind}\"\ncapacity = \"{}\"\nblock_size = 4096\nslots = 128\n\
                 [[export]]\ndevice = \"{name}\"\ntenant = \"all\"\ndoor = \"vfio-user:{}\"\n",
                setup.capacity,
                scratch.path(&format!("{name}.sock")).display()
            );
        }
        let file = scratch.path("weir.toml");
        std::fs::write(&file, config).map_err(|e| failed(file.display(), e))?;
        let mut command = Command::new(setup.weir()?);
        command.arg("up").args(poll.then_some("--poll")).arg("-c").arg(&file);
        let mut server = Server::start(&mut command, setup.server_core)?;
        let listens = || UnixStream::connect(&api).is_ok() && sockets.iter().all(|path| path.exists());
        server.wait_for("weir up", listens)?;
        let target = |name: &str| format!("vfio-user:{}", scratch.path(&format!("{name}.sock")).display());
        let pcie = Pcie { server, ram: target("ram"), null: target("null") };
        if poll {
            write_full(setup, &pcie.ram)?;
        }
        Ok(pcie)
    }

    /// The socket of a drive that nobody uses.
    pub fn idle(&self, scratch: &Scratch, number: usize) -> PathBuf {
        scratch.path(&format!("idle{number}.sock"))
    }
}

/// Writes a drive once from its beginning to its end, and over again for as long as a run lasts.
fn write_full(setup: &Setup, target: &str) -> Result<(), BenchError> {
    client::run(setup, target, &["--rw", "write", "--bs", "128KiB", "--qd", "16"]).map(|_| ())
}

/// A port that nobody has.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16, BenchError> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What qemu-storage-daemon exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Its null block driver: no bytes are moved.
    Null,
    /// A file on tmpfs, written full.
    Tmpfs,
}

/// qemu-storage-daemon with a vhost-user-blk export on an I/O thread of its own.
pub struct Qemu {
    /// The process.
    pub server: Server,
    /// Bench target.
    pub target: String,
}

impl Qemu {
    /// Starts it.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(setup: &Setup, scratch: &Scratch, medium: Medium) -> Result<Self, BenchError> {
        let bytes = setup.bytes()?;
        let (name, node) = match medium {
            Medium::Null => ("null", format!("driver=null-co,node-name=n0,size={bytes}")),
            Medium::Tmpfs => {
                let file = scratch.path("tmpfs.raw");
                fill_file(&file, bytes)?;
                ("tmpfs", format!("driver=file,node-name=n0,filename={}", file.display()))
            }
        };
        let socket = scratch.path(&format!("qemu-{name}.sock"));
        let export = format!(
            "type=vhost-user-blk,id=e0,addr.type=unix,addr.path={},node-name=n0,writable=on,iothread=io0,\
             logical-block-size=512",
            socket.display()
        );
        let mut command = Command::new(find_qemu(setup)?);
        command.args(["--object", "iothread,id=io0,poll-max-ns=1000000", "--blockdev", &node, "--export", &export]);
        let mut server = Server::start(&mut command, setup.server_core)?;
        server.wait_for("qemu-storage-daemon", || socket.exists())?;
        Ok(Qemu { server, target: format!("vhost-user:{}", socket.display()) })
    }
}

fn find_qemu(setup: &Setup) -> Result<PathBuf, BenchError> {
    const NAME: &str = "qemu-storage-daemon";
    if let Some(path) = &setup.qemu_storage_daemon {
        return Ok(path.clone());
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    let installed = Path::new(&home).join(".cache/weir/guest/host").join(NAME);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|dir| dir.join(NAME)).chain([installed]);
    let advice = "not found; ./test installs it, or give --qemu-storage-daemon";
    places.find(|p| p.is_file()).ok_or_else(|| failed(NAME, advice))
}

fn fill_file(path: &Path, bytes: u64) -> Result<(), BenchError> {
    use std::io::Write;
    let mut file = std::fs::File::create(path).map_err(|e| failed(path.display(), e))?;
    let mut piece = vec![0u8; 1 << 20];
    let mut rng = weir_workload::Xoshiro256::new(1);
    for word in piece.chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    let mut left = bytes;
    while left > 0 {
        let n = left.min(piece.len() as u64);
        file.write_all(&piece[..n as usize]).map_err(|e| failed(path.display(), e))?;
        left -= n;
    }
    Ok(())
}
