//! The operator's command (`on_failure` of `[node]`): run for each event of a drive or a pool that is a warning or an error, one after the other, as a process
//! of its own, without a shell. What it is told is in its environment; what it prints goes where the node's messages go.
//!
//! It is only ever what the configuration named when the node was started: the API changes nothing of it.

use super::{EventLevel, EventLog, NodeEvent, kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use weir_sys::sched;
use weir_units::Nanos;

/// Events that wait for the command; more are not told.
const WAITING: usize = 32;

/// What is run, and for how long at most.
#[derive(Clone, Debug)]
struct OnFailure {
    argv: Vec<String>,
    limit: Duration,
    node: String,
}

/// Runs `argv` for failures from now on; nothing where it is empty. The thread ends with the process.
///
/// # Errors
/// No thread can be started.
pub fn watch(events: &EventLog, argv: &[String], limit: Nanos, node: &str) -> io::Result<()> {
    if argv.is_empty() {
        return Ok(());
    }
    let command = OnFailure { argv: argv.to_vec(), limit: Duration::from_nanos(limit.get()), node: node.into() };
    let (say, heard) = sync_channel(WAITING);
    let log = events.clone();
    std::thread::Builder::new().name("weir-on-failure".into()).spawn(move || command.serve(&heard, &log))?;
    events.listen(listener(say));
    Ok(())
}

/// Hands over events that the command is for; it never waits.
fn listener(say: SyncSender<NodeEvent>) -> super::Listener {
    let full = Mutex::new(false);
    Box::new(move |event: &NodeEvent| {
        if !concerns(event) {
            return;
        }
        let is_full = matches!(say.try_send(event.clone()), Err(TrySendError::Full(_)));
        let was_full = full.lock().map(|mut full| std::mem::replace(&mut *full, is_full)).unwrap_or(true);
        if is_full && !was_full {
            tracing::warn!(
                "on_failure: {WAITING} failures wait for the command to end; it is not run for those that come now"
            );
        }
    })
}

/// Whether the command is for it.
fn concerns(event: &NodeEvent) -> bool {
    [kind::DRIVE, kind::POOL].contains(&event.kind.as_str()) && event.level >= EventLevel::Warning
}

/// How it ended, where that is to be told.
#[derive(Debug)]
enum Failed {
    Start(io::Error),
    Status(ExitStatus),
    Limit,
}

impl OnFailure {
    fn serve(&self, heard: &Receiver<NodeEvent>, log: &EventLog) {
        // On a core of a shard it would make completions late.
        sched::background();
        for event in heard {
            let Err(failed) = self.run(&event) else { continue };
            let program = &self.argv[0];
            let why = match failed {
                Failed::Start(e) => {
                    format!("{program} cannot be run: {e}; put it right in the configuration, or on the disk")
                }
                Failed::Status(status) => {
                    format!("{program} failed: {status}; what it printed is beside the node's messages")
                }
                Failed::Limit => {
                    format!(
                        "{program} was not done after {:?} and was killed; on_failure_timeout allows more",
                        self.limit
                    )
                }
            };
            let text = format!("on_failure: {why} (event {})", event.number);
            tracing::warn!("{text}");
            log.add(NodeEvent::new(kind::ON_FAILURE, "failed", EventLevel::Warning, text));
        }
    }

    fn command(&self, event: &NodeEvent) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).current_dir("/").process_group(0);
        // A program that reads what a client has named must not find a variable of it that means something else.
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let set = |name: &str, value: Option<String>| (format!("WEIR_{name}"), value.unwrap_or_default());
        command.envs([
            set("NODE", Some(self.node.clone())),
            set("EVENT", Some(event.number.to_string())),
            set("DEVICE", event.device.clone()),
            set("POOL", event.pool.clone()),
            set("EPISODE", event.episode.map(|n| n.to_string())),
            set("VERDICT", event.verdict.clone()),
            set("ACTION", Some(event.what.clone())),
            set("LEVEL", Some(event.level.word().into())),
            set("EVIDENCE", event.evidence.clone()),
            set("TEXT", Some(event.text.clone())),
        ]);
        command
    }

    /// Runs it for one event, and waits for its end.
    fn run(&self, event: &NodeEvent) -> Result<(), Failed> {
        let mut child = self.command(event).spawn().map_err(Failed::Start)?;
        let pid = Pid::from_child(&child);
        let is_over =
            pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from).and_then(|pidfd| self.waits(&pidfd));
        if !is_over.unwrap_or(false) {
            // Also what it has started; what has gone needs no signal.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
            return Err(Failed::Limit);
        }
        let status = child.wait().map_err(Failed::Start)?;
        if status.success() { Ok(()) } else { Err(Failed::Status(status)) }
    }

    /// Whether it ends within the limit.
    fn waits(&self, pidfd: &impl std::os::fd::AsFd) -> io::Result<bool> {
        let until = Instant::now() + self.limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)) {
                Ok(found) => return Ok(found > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: &str, level: EventLevel) -> NodeEvent {
        NodeEvent {
            number: 4,
            device: Some("ssd0".into()),
            episode: Some(2),
            verdict: Some("media".into()),
            ..NodeEvent::new(kind::DRIVE, what, level, "a text; $(reboot)".into())
        }
    }

    fn shell(script: &str, limit: Duration) -> OnFailure {
        let argv = ["/bin/sh", "-c", script, "sh", "an argument"].map(str::to_owned).to_vec();
        OnFailure { argv, limit, node: "n1".into() }
    }

    #[test]
    fn it_is_told_what_happened() {
        let file = std::env::temp_dir().join(format!("weir-on-failure-{}", std::process::id()));
        let script = format!(
            "echo \"$1|$WEIR_NODE|$WEIR_DEVICE|$WEIR_EPISODE|$WEIR_VERDICT|$WEIR_ACTION|$WEIR_LEVEL|$WEIR_TEXT|$HOME\" > {}",
            file.display()
        );
        let run = shell(&script, Duration::from_secs(60)).run(&event("isolate", EventLevel::Error));
        assert!(run.is_ok(), "{run:?}");
        let said = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(said, "an argument|n1|ssd0|2|media|isolate|error|a text; $(reboot)|\n");
    }

    #[test]
    fn its_failures_are_told_apart() {
        let of = |command: OnFailure| command.run(&event("isolate", EventLevel::Error));
        assert!(
            matches!(of(shell("exit 3", Duration::from_secs(60))), Err(Failed::Status(status)) if status.code() == Some(3))
        );
        assert!(matches!(of(shell("sleep 600", Duration::from_millis(20))), Err(Failed::Limit)));
        let missing = OnFailure { argv: vec!["/nowhere/page-me".into()], ..shell("", Duration::from_secs(1)) };
        assert!(matches!(of(missing), Err(Failed::Start(_))));
    }

    #[test]
    fn what_passes_is_not_told() {
        assert!(concerns(&event("isolate", EventLevel::Error)) && concerns(&event("healthy", EventLevel::Warning)));
        assert!(!concerns(&event("pause", EventLevel::Info)));
        let back = NodeEvent { kind: kind::POOL.into(), ..event("back", EventLevel::Warning) };
        assert!(concerns(&back), "a lost drive is back");
        let own = NodeEvent { kind: kind::ON_FAILURE.into(), ..event("failed", EventLevel::Warning) };
        assert!(!concerns(&own), "its own failure is no reason to run it again");
    }

    #[test]
    fn who_adds_an_event_never_waits() {
        let (say, heard) = sync_channel(1);
        let listener = listener(say);
        (0..5).for_each(|_| listener(&event("isolate", EventLevel::Error)));
        assert_eq!(heard.try_iter().count(), 1);
    }
}
