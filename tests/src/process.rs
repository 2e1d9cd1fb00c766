//! Processes that a test starts: watched, given a time limit, ended by their id.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Context;

/// Linux counts CPU time for users in hundredths of a second (USER_HZ), whatever the kernel's own tick is.
const USER_HZ: u64 = 100;

/// A running process with its output in files; killed when dropped.
pub struct Process {
    child: Child,
    name: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// What a process left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Finished {
    /// The output when the status is 0.
    pub fn success(self, name: &str) -> Result<String, String> {
        if self.status.success() { Ok(self.stdout) } else { Err(format!("{name}: {}", self.describe())) }
    }

    /// Status and output, shortened.
    pub fn describe(&self) -> String {
        format!("{}\n{}{}", self.status, tail(&self.stdout, 3000), tail(&self.stderr, 3000))
    }
}

/// The last `max` bytes or so.
pub fn tail(text: &str, max: usize) -> &str {
    let mut at = text.len().saturating_sub(max);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

impl Process {
    /// Starts a program with its output in `dir`. It dies with this process: `setpriv` asks the kernel for that.
    pub fn start<I, S>(dir: &Path, name: &str, program: &Path, args: I) -> Result<Self, String>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args);
        Self::spawn(dir, name, command)
    }

    /// Starts `command` with its output in `dir`.
    pub fn spawn(dir: &Path, name: &str, mut command: Command) -> Result<Self, String> {
        let (stdout, stderr) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let open = |path: &Path| File::create(path).context(|| path.display().to_string());
        command.stdin(Stdio::null()).stdout(open(&stdout)?).stderr(open(&stderr)?).current_dir(dir);
        let child = command.spawn().context(|| format!("cannot start {name} ({command:?})"))?;
        Ok(Self { child, name: name.into(), stdout, stderr })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no such process")?;
        kill_process(pid, signal).context(|| format!("cannot signal {}", self.name))
    }

    /// What it printed so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// What it complained about so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until it ends; kills it and fails after `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<Finished, String> {
        let start = Instant::now();
        loop {
            match self.child.try_wait().context(|| self.name.clone())? {
                Some(status) => return Ok(Finished { status, stdout: self.stdout(), stderr: self.stderr() }),
                None if start.elapsed() > limit => {
                    let (out, err) = (self.stdout(), self.stderr());
                    let (out, err) = (tail(&out, 2000), tail(&err, 2000));
                    return Err(format!("{} still runs after {} s\n{out}{err}", self.name, limit.as_secs()));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// User and system time that a process has used so far.
pub fn cpu_time(pid: u32) -> Result<Duration, String> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).context(|| path.clone())?;
    // The command's name is in parentheses and may contain anything; utime and stime are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).ok_or("unexpected /proc/PID/stat");
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / USER_HZ))
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also after an end: a second kill of a reaped child is refused by std, nobody else is hit.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Runs a program to its end.
pub fn run<I, S>(dir: &Path, program: &Path, args: I, limit: Duration) -> Result<Finished, String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let name = program.file_name().map_or_else(|| "program".into(), |n| n.to_string_lossy().into_owned());
    Process::start(dir, &name, program, args)?.wait(limit)
}

/// Stops a process by SIGSTOP, and comes back when each of its threads has stopped: a thread does so when it next has a core.
pub fn stop(pid: Pid) -> Result<(), String> {
    kill_process(pid, Signal::STOP).context(|| format!("SIGSTOP for {pid:?}"))?;
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    until(Duration::from_secs(10), "a process is stopped", || {
        let threads = std::fs::read_dir(&tasks).context(|| tasks.clone())?;
        let stopped = threads.filter_map(Result::ok).all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|fields| fields.starts_with(" T"))
        });
        Ok(stopped.then_some(()))
    })
}

/// Asks again until `check` gives something, every few milliseconds.
pub fn until<T>(
    limit: Duration,
    what: &str,
    mut check: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    let start = Instant::now();
    loop {
        if let Some(value) = check()? {
            return Ok(value);
        }
        if start.elapsed() > limit {
            return Err(format!("{what}: not within {:.1} s", limit.as_secs_f64()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
