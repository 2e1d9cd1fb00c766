//! The ends of a mount: asked for, and by kills of the mount, of the node under load, and of a store that stays away.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Mount, bash, with_fuse, write};
use crate::harness::{Context, Env, Outcome, ensure};
use crate::node::Node;
use crate::process::{self, until};

/// Seconds that the mounts of these tests give a request.
const DEADLINE: u64 = 3;

/// The lease of a session: the default of `[store]`.
const LEASE: Duration = Duration::from_secs(10);

const EIO: i32 = 5;

/// ENOTCONN: the process of a mount is gone.
const DEAD: i32 = 107;

fn deadline() -> [&'static str; 2] {
    ["--deadline", "3"]
}

pub(super) fn ends(env: &Env) -> Outcome {
    with_fuse(env, |node| {
        // SIGTERM unmounts; what was written is there.
        let mut mount = Mount::start(env, &node, &[])?;
        write(&mount.at("a"), b"kept")?;
        mount.process.signal(Signal::TERM)?;
        mount.await_end()?;
        ensure(!mount.at("a").exists(), || "it is unmounted".into())?;
        // While a file is open its bytes are published first, and the mount says so.
        let mut mount = Mount::start(env, &node, &[])?;
        let mut open = File::create(mount.at("b")).context(|| "create".into())?;
        open.write_all(b"open").context(|| "write".into())?;
        mount.process.signal(Signal::TERM)?;
        mount.await_end()?;
        ensure(mount.process.stderr().contains("programs were using it"), || mount.process.stderr())?;
        drop(open);
        let mount = Mount::start(env, &node, &["--read-only"])?;
        let kept = |name: &str, bytes: &[u8]| fs::read(mount.at(name)).is_ok_and(|found| found == bytes);
        ensure(kept("a", b"kept") && kept("b", b"open"), || "what was written is there".into())?;
        mount.end()?;
        // A directory that is not there, and one that is no directory.
        let store = super::store(&node);
        for (at, said) in [("/nonexistent/m", "no such directory"), ("/dev/null", "Not a directory")] {
            let refused = node.cli(&["fs", "--store", &store, "mount", at])?;
            ensure(refused.status.code() == Some(1), || refused.describe())?;
            ensure(refused.stderr.to_lowercase().contains(&said.to_lowercase()), || refused.describe())?;
        }
        let none = node.cli(&["fs", "umount", "/nonexistent"])?;
        ensure(none.status.code() == Some(1) && none.stderr.contains("/nonexistent"), || none.describe())
    })
}

pub(super) fn mount_killed(env: &Env) -> Outcome {
    with_fuse(env, |node| {
        let mut mount = Mount::start(env, &node, &["--class", "flash"])?;
        let dir = mount.dir.clone();
        let file = File::create(mount.at("synced")).context(|| "create".into())?;
        file.write_all_at(&vec![5; 5 << 20], 0).context(|| "write".into())?;
        file.sync_all().context(|| "fsync".into())?;
        write(&mount.at("closed"), &vec![6; 70_000])?;
        file.write_all_at(&vec![7; 1 << 20], 5 << 20).context(|| "write more".into())?;
        mount.process.signal(Signal::KILL)?;
        mount.await_end()?;
        let seen = fs::metadata(&dir).err().and_then(|e| e.raw_os_error());
        ensure(seen == Some(DEAD), || format!("a dead mount is seen as {seen:?}"))?;
        drop(file);
        // Another mount on it is refused with what to do; then that is done.
        let at = dir.display().to_string();
        let refused = node.cli(&["fs", "--store", &super::store(&node), "mount", &at])?;
        ensure(refused.stderr.contains("weir fs umount"), || refused.describe())?;
        node.cli_ok(&["fs", "umount", &at])?;
        let mount = Mount::start_on(env, &node, &dir, &[])?;
        let synced = fs::read(mount.at("synced")).context(|| "read".into())?;
        let rest = synced.get(5 << 20..).unwrap_or_default();
        ensure(synced.starts_with(&vec![5; 5 << 20]) && rest.iter().all(|b| *b == 7), || {
            format!("{} bytes, or others", synced.len())
        })?;
        ensure(fs::read(mount.at("closed")).is_ok_and(|b| b == vec![6; 70_000]), || "closed".into())?;
        // The killed client's lease ends: then the file can be written again.
        until(Duration::from_secs(90), "the file can be written", || {
            Ok(OpenOptions::new().append(true).open(mount.at("synced")).ok())
        })?;
        mount.end()
    })
}

/// Appends synced records to a file until told to stop; those that fsync has answered.
fn load(path: &Path, stop: &AtomicBool) -> Result<u64, String> {
    let mut synced = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            let record = format!("{synced:0>9}\n").repeat(100);
            if file.write_all(record.as_bytes()).and_then(|()| file.sync_all()).is_err() {
                return Ok(synced);
            }
            synced += 1;
        }
    }
    Ok(synced)
}

pub(super) fn node_killed(env: &Env) -> Outcome {
    with_fuse(env, |mut node| {
        let mount = Mount::start(env, &node, &[&["--class", "flash"][..], &deadline()].concat())?;
        let (path, stop) = (mount.at("records"), AtomicBool::new(false));
        let synced = std::thread::scope(|scope| {
            let load = scope.spawn(|| load(&path, &stop));
            std::thread::sleep(Duration::from_millis(1500));
            let killed = node.kill();
            // It answers, if with an error, before its deadline and the time of the requests before it.
            let begun = Instant::now();
            let listed = process::run(Path::new("/"), Path::new("ls"), [&mount.dir], Duration::from_secs(60));
            let took = begun.elapsed();
            let back = node.start_again();
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
            let synced = load.join().map_err(|_| "the load panicked".to_owned())?;
            killed.and(back)?;
            listed.map_err(|e| format!("{e} ({took:?})"))?;
            synced
        })?;
        ensure(synced > 0, || "nothing was synced".into())?;
        // What was synced is there, record by record.
        let bytes = until(Duration::from_secs(60), "the records can be read", || Ok(fs::read(&path).ok()))?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        for record in 0..synced {
            let expected = format!("{record:0>9}");
            let whole = (0..100).all(|_| lines.next() == Some(&expected));
            ensure(whole, || format!("record {record} of {synced} that were synced is not there"))?;
        }
        // And the mount is of use again.
        until(Duration::from_secs(60), "a file can be made", || Ok(fs::write(mount.at("after"), b"after").ok()))?;
        ensure(fs::read(mount.at("after")).is_ok_and(|b| b == b"after"), || "read back".into())?;
        mount.end()
    })
}

pub(super) fn store_gone(env: &Env) -> Outcome {
    with_fuse(env, |mut node| {
        let mount = Mount::start(env, &node, &[&["--class", "flash"][..], &deadline()].concat())?;
        write(&mount.at("a"), &vec![1; 100_000])?;
        node.kill()?;
        let script = format!(
            "cd /; at='{}'; for i in $(seq 8); do ( ls -l \"$at\"; cat \"$at/a\"; echo x >\"$at/b\"; df \"$at\" ) & done; wait",
            mount.dir.display()
        );
        // All at once, one after the other, and each ends: the limit is that of all of them.
        let begun = Instant::now();
        let ended = bash(&env.folder()?, &format!("({script}) >/dev/null 2>&1 || true"), 20 * DEADLINE);
        ended.map_err(|e| format!("{e} ({:?})", begun.elapsed()))?;
        let said = mount.process.stderr();
        ensure(said.contains("does not answer") || said.contains("deadline"), || said.clone())?;
        unmount_gone(&node, mount)
    })
}

/// A node is away for longer than a lease: the mount begins another session, and files that were open are read.
pub(super) fn session_over(env: &Env) -> Outcome {
    with_fuse(env, |mut node| {
        let mount = Mount::start(env, &node, &[&["--class", "flash"][..], &deadline()].concat())?;
        write(&mount.at("a"), &vec![1; 100_000])?;
        let held = File::open(mount.at("a")).context(|| "open".into())?;
        let mut unsynced = File::create(mount.at("c")).context(|| "create".into())?;
        unsynced.write_all(&vec![2; 100_000]).context(|| "write".into())?;
        node.kill()?;
        std::thread::sleep(LEASE + Duration::from_secs(2));
        node.start_again()?;
        until(Duration::from_secs(60), "a file can be made", || Ok(fs::write(mount.at("b"), b"after").ok()))?;
        let mut bytes = vec![0; 100_000];
        held.read_exact_at(&mut bytes, 0).context(|| "read what was open".into())?;
        ensure(bytes == vec![1; 100_000], || "other bytes".into())?;
        // What was not synced is lost, and its program hears of it.
        let synced = unsynced.sync_all().err().and_then(|e| e.raw_os_error());
        ensure(synced == Some(EIO), || format!("fsync of what was lost: {synced:?}"))?;
        ensure(mount.process.stderr().contains("/c: the session was over"), || mount.process.stderr())?;
        drop((held, unsynced));
        mount.end()
    })
}

/// The store is gone, and the mount can be taken away.
fn unmount_gone(node: &Node, mount: Mount) -> Outcome {
    let at = mount.dir.display().to_string();
    let ended = process::run(&node.dir, &mount.weir, ["fs", "umount", &at], Duration::from_secs(10 * DEADLINE))?;
    ended.success("weir fs umount").map(drop)?;
    let mut mount = mount;
    mount.await_end()
}
