//! A node under test: its configuration, its life from start to SIGTERM.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Context, Env, Outcome, ensure};
use crate::http;
use crate::process::{self, Finished, Process, tail};

/// The host that the guest's nvme-cli says it is (`tests/guests/mkinitramfs.sh`).
pub const GUEST_HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// The subsystem of the first drive.
pub const NQN: &str = "nqn.2026-01.test.weir:ssd0";

/// The host NQN of a tenant in these tests.
pub fn host_nqn(tenant: &str) -> String {
    format!("nqn.2026-01.test.weir:host-{tenant}")
}

/// What to start a node with. The defaults: one 256 MiB RAM drive `ssd0`, tenants gold, silver and bronze, NVMe/TCP.
pub struct Setup {
    /// Keys of the `[[device]]` besides name, nqn, media and capacity.
    pub device: String,
    /// `capacity` of the drive.
    pub capacity: String,
    /// `media` of the drive.
    pub media: String,
    /// Names, classes and further keys of the tenants.
    pub tenants: Vec<(String, String, String)>,
    /// Names and tenants of vhost-user sockets.
    pub sockets: Vec<(String, String)>,
    /// Keys of `[[export]]` of the sockets.
    pub socket_keys: String,
    /// vfio-user sockets of the first tenant, and the keys of their `[[export]]`.
    pub vfio: Vec<(String, String)>,
    /// Keys of `[door.nvme-tcp]` besides listen.
    pub tcp: String,
    /// Keys of the `[[export]]` over NVMe/TCP.
    pub export: String,
    /// Keys of `[node]` besides name, api and cores.
    pub node: String,
    /// `cores` of the node.
    pub cores: String,
    /// More arguments of `weir up`.
    pub args: Vec<String>,
    /// Another program than the binary under test.
    pub program: Option<PathBuf>,
    /// The whole configuration instead of all that, PORT for its port.
    pub whole: String,
}

impl Default for Setup {
    fn default() -> Self {
        let tenant = |name: &str, class: &str| (name.to_owned(), class.to_owned(), String::new());
        Self {
            device: String::new(),
            capacity: "256MiB".into(),
            media: "ram".into(),
            tenants: vec![tenant("gold", "high"), tenant("silver", "medium"), tenant("bronze", "low")],
            sockets: Vec::new(),
            socket_keys: String::new(),
            vfio: Vec::new(),
            tcp: String::new(),
            export: String::new(),
            node: String::new(),
            cores: "[0]".into(),
            args: Vec::new(),
            program: None,
            whole: String::new(),
        }
    }
}

impl Setup {
    /// With a vhost-user socket of the first tenant.
    pub fn socket(mut self, name: &str) -> Self {
        let tenant = self.tenants[0].0.clone();
        self.sockets.push((name.into(), tenant));
        self
    }

    /// With a vfio-user socket, and these keys of its export.
    pub fn vfio(mut self, name: &str, keys: &str) -> Self {
        self.vfio.push((name.into(), keys.into()));
        self
    }

    /// With these keys of the device.
    pub fn device(mut self, keys: &str) -> Self {
        keys.clone_into(&mut self.device);
        self
    }

    /// With these tenants, name and class each.
    pub fn tenants(mut self, tenants: &[(&str, &str)]) -> Self {
        self.tenants = tenants.iter().map(|(n, c)| ((*n).into(), (*c).into(), String::new())).collect();
        self
    }

    /// The configuration file. The first tenant is also the guest's and everybody else's.
    pub fn toml(&self, port: u16) -> String {
        if !self.whole.is_empty() {
            return self.whole.replace("PORT", &port.to_string());
        }
        let mut text = format!(
            "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = {}\n{}\n\n\
             [[device]]\nname = \"ssd0\"\nnqn = \"{NQN}\"\nmedia = \"{}\"\ncapacity = \"{}\"\n{}\n",
            self.cores, self.node, self.media, self.capacity, self.device
        );
        for (i, (name, class, keys)) in self.tenants.iter().enumerate() {
            let others = if i == 0 { format!(", \"{GUEST_HOST}\", \"*\"") } else { String::new() };
            let host = host_nqn(name);
            text += &format!(
                "\n[[tenant]]\nname = \"{name}\"\nclass = \"{class}\"\nhosts = [\"{host}\"{others}]\n{keys}\n"
            );
        }
        text += &format!("\n[[export]]\ndevice = \"ssd0\"\ndoor = \"nvme-tcp\"\n{}\n", self.export);
        for (socket, tenant) in &self.sockets {
            let keys = &self.socket_keys;
            text += &format!(
                "\n[[export]]\ndevice = \"ssd0\"\ntenant = \"{tenant}\"\ndoor = \"vhost-user:{socket}\"\n{keys}\n"
            );
        }
        for (socket, keys) in &self.vfio {
            let tenant = &self.tenants[0].0;
            text += &format!(
                "\n[[export]]\ndevice = \"ssd0\"\ntenant = \"{tenant}\"\ndoor = \"vfio-user:{socket}\"\n{keys}\n"
            );
        }
        text + &format!("\n[door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n{}\n", self.tcp)
    }
}

/// In a configuration whose keeper is left to the program.
pub const DEFAULT_KEEPER: &str = "# keeper: the default";

/// A configuration that says whether there is a keeper (tests mean the one or the other), and whose only core is the lane's.
fn completed(whole: &str, keeper: bool, core: usize) -> String {
    let whole = whole.replace("cores = [0]", &format!("cores = [{core}]"));
    if whole.contains("keeper") { whole } else { whole.replace("[node]\n", &format!("[node]\nkeeper = {keeper}\n")) }
}

/// A running node.
pub struct Node {
    process: Process,
    /// Its folder: configuration, sockets, output.
    pub dir: PathBuf,
    /// Its NVMe/TCP port.
    pub port: u16,
    weir: PathBuf,
    keeper: bool,
    core: usize,
}

impl Node {
    /// Starts a node and waits until it answers.
    pub fn start(env: &Env, setup: &Setup) -> Result<Self, String> {
        let port = env.free_port()?;
        let dir = env.folder()?;
        let file = dir.join("weir.toml");
        let (keeper, core) = (env.keeper, env.core);
        std::fs::write(&file, completed(&setup.toml(port), keeper, core)).context(|| file.display().to_string())?;
        let mut args = vec!["up".to_owned(), "-c".into(), file.display().to_string()];
        args.extend(setup.args.iter().cloned());
        let weir = setup.program.as_ref().unwrap_or(&env.weir).clone();
        let process = Process::start(&dir, "weir-up", &weir, &args)?;
        let mut node = Self { process, dir, port, weir, keeper, core };
        node.await_ready()?;
        Ok(node)
    }

    /// Another configuration for its next start.
    pub fn reconfigure(&self, text: &str) -> Outcome {
        let file = self.dir.join("weir.toml");
        let whole = completed(&text.replace("PORT", &self.port.to_string()), self.keeper, self.core);
        std::fs::write(&file, whole).context(|| file.display().to_string())
    }

    /// Kills it without warning, and starts it again with the same configuration as soon as its process has ended.
    pub fn kill_and_start(&mut self) -> Outcome {
        self.kill()?;
        self.start_again()
    }

    /// Kills it without warning, and waits until its process has ended.
    pub fn kill(&mut self) -> Outcome {
        self.process.signal(Signal::KILL)?;
        let ends = |process: &mut Process| Ok((!process.running()).then_some(()));
        process::until(Duration::from_secs(10), "a killed node ends", || ends(&mut self.process))
    }

    /// Starts it with the same configuration once it has ended.
    pub fn start_again(&mut self) -> Outcome {
        let file = self.dir.join("weir.toml").display().to_string();
        self.process = Process::start(&self.dir, "weir-up", &self.weir, ["up", "-c", &file])?;
        self.await_ready()
    }

    /// Starts it with the same configuration, whether or not the process before has ended, and waits until it serves.
    pub fn start_at_once(&mut self) -> Outcome {
        let file = self.dir.join("weir.toml").display().to_string();
        self.process = Process::start(&self.dir, "weir-up", &self.weir, ["up", "-c", &file])?;
        process::until(Duration::from_secs(60), "the node serves", || {
            let serves = self.process.stdout().contains("is serving");
            if !serves && !self.process.running() {
                return Err(format!("weir up ended: {}", self.process.stderr().trim_end()));
            }
            Ok(serves.then_some(()))
        })
    }

    fn await_ready(&mut self) -> Outcome {
        let api = self.api();
        process::until(Duration::from_secs(10), "the node answers on its API socket", || {
            if !self.process.running() {
                return Err(format!("weir up ended:\n{}{}", self.process.stdout(), self.process.stderr()));
            }
            // Any answer will do: what it says is tested where it matters.
            Ok(http::request(&api, "GET", "/", None).ok())
        })
        .map(|_| ())
        .map_err(|e| format!("{e}\n{}", self.log()))
    }

    /// The process that serves under its keeper: the next one may serve while the one before it is still being taken down.
    pub fn worker(&self) -> Result<Pid, String> {
        process::until(Duration::from_secs(10), "the keeper has a worker", || Ok(self.workers()?.first().copied()))
    }

    /// The keeper's living workers, the oldest first: the one that serves, and its standby.
    pub fn workers(&self) -> Result<Vec<Pid>, String> {
        let pid = self.process.pid();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(&path).context(|| path.clone())?;
        let living = children.split_whitespace().filter(|pid| !is_ending(pid));
        Ok(living.filter_map(|p| p.parse().ok().and_then(Pid::from_raw)).collect())
    }

    /// Its first process: the keeper, if it has one.
    pub fn first(&self) -> Result<Pid, String> {
        i32::try_from(self.process.pid()).ok().and_then(Pid::from_raw).ok_or_else(|| "it does not run".into())
    }

    /// The process that serves, whether or not it has a keeper.
    pub fn serving(&self) -> Result<u32, String> {
        let worker = self.workers()?.first().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        Ok(worker.unwrap_or(self.process.pid()))
    }

    /// User and system time that its processes have used so far.
    pub fn cpu_time(&self) -> Result<Duration, String> {
        let workers = self.workers()?;
        let workers = workers.iter().map(|pid| process::cpu_time(pid.as_raw_nonzero().get().unsigned_abs()));
        workers.chain([process::cpu_time(self.process.pid())]).sum()
    }

    /// The program that its first process runs.
    pub fn program(&self) -> Result<PathBuf, String> {
        let link = format!("/proc/{}/exe", self.process.pid());
        std::fs::read_link(&link).context(|| link.clone())
    }

    /// Descriptors that its first process has open.
    pub fn descriptors(&self) -> Result<usize, String> {
        let folder = format!("/proc/{}/fd", self.process.pid());
        Ok(std::fs::read_dir(&folder).context(|| folder.clone())?.count())
    }

    /// Kills the process that serves under its keeper, without warning.
    pub fn kill_worker(&self) -> Outcome {
        kill_process(self.worker()?, Signal::KILL).context(|| "kill the worker".into())
    }

    /// The API's socket.
    pub fn api(&self) -> PathBuf {
        self.dir.join("weir.sock")
    }

    /// A socket of the setup.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where its NVMe/TCP door listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The bench target of its NVMe/TCP door.
    pub fn tcp_target(&self) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{NQN}?ns=1", self.port)
    }

    /// The bench target of one of its sockets.
    pub fn socket_target(&self, name: &str) -> String {
        format!("vhost-user:{}", self.socket(name).display())
    }

    /// The bench target of one of its vfio-user sockets.
    pub fn vfio_target(&self, name: &str) -> String {
        format!("vfio-user:{}", self.socket(name).display())
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The end of what it printed.
    pub fn log(&self) -> String {
        format!("node's output:\n{}{}", tail(&self.process.stdout(), 2000), tail(&self.process.stderr(), 4000))
    }

    /// A command of the CLI against this node, to be started by the caller.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.weir);
        command.current_dir(&self.dir).args(args).args(["--api", &format!("unix:{}", self.api().display())]);
        command
    }

    /// Runs a command of the CLI against this node.
    pub fn cli(&self, args: &[&str]) -> Result<Finished, String> {
        let mut all: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        all.extend(["--api".to_owned(), format!("unix:{}", self.api().display())]);
        process::run(&self.dir, &self.weir, &all, Duration::from_secs(10))
    }

    /// The output of a command that has to succeed.
    pub fn cli_ok(&self, args: &[&str]) -> Result<String, String> {
        self.cli(args)?.success(&format!("weir {}", args.join(" "))).map_err(|e| format!("{e}\n{}", self.log()))
    }

    /// Whether it still runs and answers.
    pub fn alive(&mut self) -> Outcome {
        ensure(self.process.running(), || format!("the node has ended\n{}", self.log()))?;
        http::request(&self.api(), "GET", "/", None).map(|_| ()).map_err(|e| format!("{e}\n{}", self.log()))
    }

    /// Ends it as systemd would, to be started again.
    pub fn end(&mut self) -> Outcome {
        self.process.signal(Signal::TERM)?;
        let ends = |process: &mut Process| Ok((!process.running()).then_some(()));
        process::until(Duration::from_secs(30), "a node that was told to end ends", || ends(&mut self.process))
    }

    /// Ends it as systemd would: SIGTERM, drained and status 0 within some seconds, nothing panicked.
    pub fn stop(mut self) -> Outcome {
        self.alive()?;
        self.process.signal(Signal::TERM)?;
        self.finish()
    }

    /// Waits for the end that was asked for: status 0 within some seconds, nothing panicked.
    pub fn finish(self) -> Outcome {
        let finished = self.process.wait(Duration::from_secs(30))?;
        let ended = || format!("the node ended with {}", finished.describe());
        ensure(finished.status.success(), ended)?;
        ensure(!finished.stderr.contains("panicked"), || format!("something panicked: {}", finished.stderr))
    }
}

/// Runs a test with a node, and appends the node's output to what fails.
pub fn with_node(env: &Env, setup: &Setup, test: impl FnOnce(&mut Node) -> Outcome) -> Outcome {
    let mut node = Node::start(env, setup)?;
    test(&mut node).map_err(|e| format!("{e}\n{}", node.log()))?;
    node.stop()
}

/// The path as text; the paths of these tests are ASCII.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A program of a test's own.
pub fn program(dir: &Path, name: &str, script: &str) -> Result<PathBuf, String> {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).context(|| text(&path))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).context(|| text(&path))?;
    Ok(path)
}

/// Whether a process is on its way out, or gone: proc_pid_stat(5), its state and PF_EXITING of its flags.
fn is_ending(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let exiting = fields.get(6).and_then(|flags| flags.parse::<u32>().ok()).is_none_or(|flags| flags & 4 != 0);
    exiting || matches!(fields[..], ["Z" | "X", ..])
}
