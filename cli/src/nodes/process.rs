//! The servers: processes, their configuration, how they begin and end.

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_sim::reproduce::PaperDrive;
use weir_units::Nanos;

/// Bytes of each drive: its blocks are the smaller for it, its dies and times are not.
pub const CAPACITY: &str = "4GiB";
/// Bytes of each volume.
pub const VOLUME: &str = "64MiB";
/// How long a server may take to start or to end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// A folder that goes with this value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// In memory, where that can be had.
    ///
    /// # Errors
    /// Nowhere.
    pub fn new() -> Result<Scratch, String> {
        Self::named("nodes")
    }

    /// One of several.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn named(name: &str) -> Result<Scratch, String> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(format!("weir-reproduce-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in a place for what may be lost.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a node serves.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// On which drive.
    pub drive: PaperDrive,
    /// So many volumes, each of a tenant of its own.
    pub volumes: u32,
    /// Requests in flight are journalled.
    pub journal: bool,
    /// The drive's bytes are in a file, and outlive the process.
    pub in_file: bool,
    /// A keeper with a standby.
    pub keeper: bool,
}

impl Setting {
    /// The configuration.
    fn text(self, folder: &Path) -> String {
        let api = inside(folder, "api.sock");
        let kind = match self.drive {
            PaperDrive::Pm963 => "profile = \"pm963\"",
            PaperDrive::P3600 => "profile = \"p3600\"",
            // Bytes in a file are a kind of their own.
            PaperDrive::Ram if self.in_file => "",
            PaperDrive::Ram => "kind = \"ram\"",
        };
        let media = if self.in_file { format!("file:{}", inside(folder, "ssd0.img")) } else { "ram".into() };
        let Setting { journal, keeper, .. } = self;
        let mut text = format!(
            "[node]\nname = \"reproduce\"\napi = \"unix:{api}\"\ncores = [0]\njournal = {journal}\nkeeper = {keeper}\n\
             standby = {keeper}\n[[device]]\nname = \"ssd0\"\n{kind}\ncapacity = \"{CAPACITY}\"\nmedia = \"{media}\"\n"
        );
        for at in 0..self.volumes {
            text += &format!("[[tenant]]\nname = \"t{at}\"\nclass = \"high\"\n");
            let socket = inside(folder, &format!("v{at}.sock"));
            text += &format!(
                "[[volume]]\nname = \"v{at}\"\ntenant = \"t{at}\"\nsize = \"{VOLUME}\"\nexport = [\"vhost-user:{socket}\"]\n"
            );
        }
        text
    }
}

/// What `weir up --json` says when it serves.
#[derive(Deserialize)]
struct Announcement {
    steps: Vec<Step>,
    #[serde(default)]
    nvme_tcp: Vec<String>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    ns: u64,
}

/// What a start consisted of.
type Steps = Vec<(String, Nanos)>;

/// What a node says when it serves.
pub struct Announced {
    /// The steps of its start, from exec to "serving".
    pub steps: Vec<(String, Nanos)>,
    /// Where it serves NVMe/TCP, with the ports that it took.
    pub nvme_tcp: Vec<String>,
}

/// The units that the figures have.
pub fn nanos(time: Duration) -> Nanos {
    Nanos(time.as_nanos() as u64)
}

/// Where a file lies in a server's folder.
pub fn inside(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// A process that is killed with this value.
struct Server(Child);

impl Server {
    fn spawn(command: &mut Command) -> Result<Server, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        // What it says of its own end is of interest only where it does not begin.
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map(Server).map_err(|e| format!("{name}: {e}"))
    }

    /// It has not begun: what it said last.
    fn said(&mut self) -> String {
        let mut text = String::new();
        let _ = self.0.kill();
        if let Some(mut said) = self.0.stderr.take() {
            // What can be read of it.
            let _ = said.read_to_string(&mut text);
        }
        text.trim().to_string()
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.0), signal).map_err(|e| format!("a server cannot be signalled: {e}"))
    }

    fn wait(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while self.0.try_wait().map_err(|e| e.to_string())?.is_none() {
            if begun.elapsed() > SERVER_TIMEOUT {
                return Err(format!("a server has not ended after {SERVER_TIMEOUT:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, and that is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `weir up`.
pub struct NodeProcess {
    server: Server,
    folder: PathBuf,
    setting: Setting,
    steps: Steps,
}

impl NodeProcess {
    /// Starts it; it serves when this returns.
    ///
    /// # Errors
    /// It does not.
    pub fn start(folder: &Path, setting: Setting) -> Result<NodeProcess, String> {
        let file = folder.join("weir.toml");
        std::fs::write(&file, setting.text(folder)).map_err(|e| format!("{}: {e}", file.display()))?;
        let (server, Announced { steps, .. }) = up(&file)?;
        Ok(NodeProcess { server, folder: folder.to_owned(), setting, steps })
    }

    /// The same once more: what was in files is there.
    ///
    /// # Errors
    /// As [`NodeProcess::start`].
    pub fn start_again(&mut self) -> Result<(), String> {
        let announced;
        (self.server, announced) = up(&self.folder.join("weir.toml"))?;
        self.steps = announced.steps;
        Ok(())
    }

    /// The steps of its start, from exec to "serving".
    pub fn steps(&self) -> &[(String, Nanos)] {
        &self.steps
    }

    /// Its volumes, as targets of `weir bench`.
    pub fn targets(&self) -> Vec<String> {
        let socket = |at| inside(&self.folder, &format!("v{at}.sock"));
        (0..self.setting.volumes).map(|at| format!("vhost-user:{}", socket(at))).collect()
    }

    /// SIGTERM, until it has ended.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self) -> Result<(), String> {
        self.server.signal(Signal::TERM)?;
        self.server.wait()
    }

    /// SIGKILL, until it has ended.
    ///
    /// # Errors
    /// It does not end.
    pub fn kill(&mut self) -> Result<(), String> {
        self.server.signal(Signal::KILL)?;
        self.server.wait()
    }

    /// SIGKILL of the process that serves under the keeper.
    ///
    /// # Errors
    /// There is none.
    pub fn kill_worker(&self) -> Result<(), String> {
        let keeper = self.server.0.id();
        let path = format!("/proc/{keeper}/task/{keeper}/children");
        let children = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        // The oldest child serves, the younger one waits.
        let worker = children.split_whitespace().next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        let worker = worker.ok_or("the keeper has no worker")?;
        kill_process(worker, Signal::KILL).map_err(|e| format!("the worker cannot be killed: {e}"))
    }

    /// `weir upgrade` to the program that there is, without probation, so that the next one may follow at once.
    ///
    /// # Errors
    /// It is refused, or rolled back.
    pub fn upgrade(&self) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
        let api = format!("unix:{}", inside(&self.folder, "api.sock"));
        let mut command = Command::new(program);
        command.args(["upgrade", "--probation", "0s", "--api", &api]).stdin(Stdio::null());
        let output = command.output().map_err(|e| format!("weir upgrade: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("weir upgrade: {}", said.trim())) }
    }
}

/// Where the times of a process begin in its line of /proc, counted behind its name; and those of the children that it has waited for.
pub const UTIME: usize = 11;
pub const CUTIME: usize = 13;

/// What a process has taken of processors, by user and by kernel, as proc(5) has it.
///
/// # Errors
/// There is none.
pub fn processor_time(path: &str, first: usize) -> Result<Nanos, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    // The name is in parentheses, and may have some itself.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks: u64 = behind.split_whitespace().skip(first).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Nanos(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// How often a node is looked at that is to rest, and how long it is waited for at the most.
const REST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// A node with that configuration, whatever is in it.
pub struct ConfiguredNode {
    server: Server,
    file: PathBuf,
    core: usize,
    announced: Announced,
}

impl ConfiguredNode {
    /// Starts it on that core; it serves when this returns.
    ///
    /// # Errors
    /// It does not.
    pub fn start(folder: &Path, text: &str, core: usize) -> Result<ConfiguredNode, String> {
        let file = folder.join("weir.toml");
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        let (server, announced) = super::client::on_core(core, || up(&file))?;
        Ok(ConfiguredNode { server, file, core, announced })
    }

    /// SIGTERM, and started again when it has ended.
    ///
    /// # Errors
    /// It does not end, or does not start.
    pub fn restart(&mut self) -> Result<(), String> {
        self.server.signal(Signal::TERM)?;
        self.server.wait()?;
        let file = &self.file;
        (self.server, self.announced) = super::client::on_core(self.core, || up(file))?;
        Ok(())
    }

    /// What it said at its start.
    pub fn announced(&self) -> &Announced {
        &self.announced
    }

    /// Waits until it takes less than a tenth of a core: what it does by itself behind a load is over, such as assembling huge pages of memory that was
    /// written for the first time.
    ///
    /// # Errors
    /// It has ended.
    pub fn rest(&self) -> Result<(), String> {
        let (begun, path) = (Instant::now(), format!("/proc/{}/stat", self.server.0.id()));
        while begun.elapsed() < REST.1 {
            let before = processor_time(&path, UTIME)?;
            std::thread::sleep(REST.0);
            if nanos(REST.0).get() > processor_time(&path, UTIME)?.saturating_sub(before).get() * 10 {
                break;
            }
        }
        Ok(())
    }
}

/// Starts a node and waits until it says that it serves.
fn up(file: &Path) -> Result<(Server, Announced), String> {
    let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
    let begun = Instant::now();
    let mut server =
        Server::spawn(Command::new(program).args(["--json", "up", "-c"]).arg(file).stdout(Stdio::piped()))?;
    let output = server.0.stdout.take().ok_or("the node has no output")?;
    let mut text = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|e| format!("the node's output: {e}"))?;
        text += &line;
        // A document's last line begins where the document does.
        if line == "}" {
            break;
        }
    }
    let whole = nanos(begun.elapsed());
    let told: Announcement =
        serde_json::from_str(&text).map_err(|e| format!("the node does not serve: {e}: {}", server.said()))?;
    let steps = steps(told.steps, whole)?;
    Ok((server, Announced { steps, nvme_tcp: told.nvme_tcp }))
}

/// What `weir up` says of its start, step by step, with what came before the first one: all of the time is in one of them.
///
/// # Errors
/// It says nothing, or more than there was.
fn steps(told: Vec<Step>, whole: Nanos) -> Result<Steps, String> {
    if told.is_empty() {
        return Err("the node told no steps of its start".into());
    }
    let inside = Nanos(told.iter().map(|s| s.ns).sum());
    if inside > whole {
        return Err(format!("the node's steps take {inside}, and its whole start {whole}"));
    }
    let mut steps: Steps = vec![("exec".into(), whole.saturating_sub(inside))];
    steps.extend(told.into_iter().map(|step| (step.name, Nanos(step.ns))));
    Ok(steps)
}

/// qemu-storage-daemon with a vhost-user-blk export of a file, on an I/O thread that polls.
pub struct Qemu {
    _server: Server,
    socket: PathBuf,
}

impl Qemu {
    /// Starts it.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(folder: &Path) -> Result<Qemu, String> {
        let program = find_qemu()?;
        let (file, socket) = (folder.join("file.raw"), folder.join("qemu.sock"));
        let bytes = weir_units::parse::bytes(VOLUME).map_err(|e| e.to_string())?.get();
        let made = std::fs::File::create(&file).and_then(|f| f.set_len(bytes));
        made.map_err(|e| format!("{}: {e}", file.display()))?;
        let node = format!("driver=file,node-name=n0,filename={}", file.display());
        let export = format!(
            "type=vhost-user-blk,id=e0,addr.type=unix,addr.path={},node-name=n0,writable=on,iothread=io0,num-queues=4",
            socket.display()
        );
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program);
        command.args(["--object", "iothread,id=io0,poll-max-ns=1000000", "--blockdev", &node, "--export", &export]);
        let mut server = Server::spawn(command.stdout(Stdio::null()))?;
        let begun = Instant::now();
        while !listens(&socket) {
            if let Some(status) = server.0.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("qemu-storage-daemon ended ({status}) before it served: {}", server.said()));
            }
            if begun.elapsed() > SERVER_TIMEOUT {
                return Err(format!("qemu-storage-daemon does not serve after {SERVER_TIMEOUT:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(Qemu { _server: server, socket })
    }

    /// As a target of `weir bench`.
    pub fn target(&self) -> String {
        format!("vhost-user:{}", self.socket.display())
    }
}

/// Whether somebody listens at a socket, which is there a moment before that. Nobody is connected to for it.
fn listens(socket: &Path) -> bool {
    const ACCEPTS: u32 = 1 << 16;
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    // "address: references protocol flags type state inode path"
    let flags = |line: &str| u32::from_str_radix(line.split_whitespace().nth(3)?, 16).ok();
    let of = |line: &&str| line.ends_with(&format!(" {}", socket.display()));
    all.lines().filter(of).filter_map(flags).any(|flags| flags & ACCEPTS != 0)
}

/// The program, from QEMU_STORAGE_DAEMON, PATH, or where ./test has installed it.
///
/// # Errors
/// It is in none of these.
pub fn find_qemu() -> Result<PathBuf, String> {
    const NAME: &str = "qemu-storage-daemon";
    let named = std::env::var_os("QEMU_STORAGE_DAEMON").map(PathBuf::from);
    let home = std::env::var_os("HOME").unwrap_or_default();
    let installed = Path::new(&home).join(".cache/weir/guest/host").join(NAME);
    let guest = std::env::var_os("GUEST_DIR").map(|dir| Path::new(&dir).join("host").join(NAME));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|dir| dir.join(NAME));
    let mut places = named.into_iter().chain(found).chain(guest).chain([installed]);
    places.find(|p| p.is_file()).ok_or_else(|| format!("{NAME}: not found; ./test installs it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn who_listens_is_found_without_connecting() {
        let socket = std::env::temp_dir().join(format!("weir-listens-{}", std::process::id()));
        assert!(!listens(&socket));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(listens(&socket) && !listens(&socket.with_extension("x")));
        drop(listener);
        assert!(!listens(&socket), "the file alone is nobody");
        std::fs::remove_file(&socket).unwrap();
    }

    #[test]
    fn every_configuration_is_one() {
        let folder = Path::new("/run/x");
        for drive in [PaperDrive::Pm963, PaperDrive::P3600, PaperDrive::Ram] {
            for (volumes, in_file, keeper) in [(1, false, false), (3, true, false), (1, false, true)] {
                let setting = Setting { drive, volumes, journal: !in_file, in_file, keeper };
                let config = Config::parse(&setting.text(folder), "x", Path::new("/")).unwrap();
                assert_eq!((config.tenants.len(), config.volumes.len()), (volumes as usize, volumes as usize));
                assert_eq!((config.node.journal, config.node.keeper, config.node.standby), (!in_file, keeper, keeper));
            }
        }
    }

    #[test]
    fn all_of_a_start_is_in_a_step() {
        let step = |name: &str, ns| Step { name: name.into(), ns };
        let told = || vec![step("drives", 3), step("any other name", 4)];
        let found = steps(told(), Nanos(10)).unwrap();
        assert_eq!(
            found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["exec", "drives", "any other name"]
        );
        assert_eq!(found.iter().map(|(_, time)| time.0).sum::<u64>(), 10);
        assert!(steps(Vec::new(), Nanos(10)).is_err() && steps(told(), Nanos(6)).is_err());
    }

    #[test]
    fn a_scratch_folder_goes() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("x"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
