//! The worker is killed under Linux guests: one whose drive is behind QEMU's client of vfio-user, which never connects again, and hosts of
//! NVMe/TCP, at rest and under load. (Disks behind vhost-user-blk: suites `crash` and `journal`.)

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::crash_vfio::kill;
use super::guest_vfio::device;
use super::{long, test};
use crate::guest::{Guest, connect_script, section};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, text, with_node};
use crate::process::until;
use crate::raw::Rng;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_crash";
    vec![
        test(S, "a_drive_of_a_guest_notices_no_kill", |env| drive(env, false, "", 8)),
        long(S, "a_host_at_rest_notices_no_kill", |env| host(env, 3)),
        long(S, "a_drive_of_a_guest_notices_no_kill_with_standby", |env| drive(env, true, "", 40)),
        long(S, "a_drive_with_trapped_doorbells_notices_no_kill", |env| drive(env, true, "doorbells = \"trap\"", 40)),
        long(S, "a_host_at_rest_notices_none_of_many_kills", |env| host(env, 20)),
    ]
}

fn setup(standby: bool) -> Setup {
    let node = if standby { "keeper = true\nstandby = true" } else { "keeper = true" };
    Setup { node: node.into(), capacity: "64MiB".into(), ..Setup::default() }
}

/// A way to tell a guest something beside its drive: its second serial line.
struct Line {
    path: PathBuf,
    stream: Option<UnixStream>,
}

impl Line {
    fn new(env: &Env) -> Result<Self, String> {
        Ok(Self { path: env.folder()?.join("line"), stream: None })
    }

    /// QEMU's arguments.
    fn qemu(&self) -> [String; 4] {
        let socket = format!("socket,id=line,path={},server=on,wait=off", text(&self.path));
        ["-chardev".into(), socket, "-serial".into(), "chardev:line".into()]
    }

    fn tell(&mut self, what: &str) -> Outcome {
        let shown = || text(&self.path);
        if self.stream.is_none() {
            self.stream = Some(UnixStream::connect(&self.path).context(shown)?);
        }
        let said = self.stream.iter_mut().try_for_each(|stream| stream.write_all(format!("{what}\n").as_bytes()));
        said.context(shown)
    }
}

/// `told WORD` waits for it to be told; `complaints` is what the kernel has against its drives; `load DEVICE SIZE WORD` writes and verifies again
/// and again until it is told so.
const SHELL: &str = r#"
cat /dev/ttyS1 >/tmp/told &
told() { while ! grep -q $1 /tmp/told; do sleep 0.1; done; }
complaints() {
  dmesg | grep -iE 'nvme|i/o|hung' | grep -iE 'error|timeout|abort|fail|unexpected|reset|reconnect|recover|down|hung' || true
}
load() { # load DEVICE SIZE WORD
  (while ! grep -q $3 /tmp/told; do verify $1 2 randwrite $2; verify $1 2 randrw $2; done) >/tmp/load.out 2>&1 & load=$!
  echo "under load"
  wait $load || { cat /tmp/load.out; dmesg | tail -30; exit 1; }
  echo "$(grep -c ' verified' /tmp/load.out) times verified under load"
}
"#;

/// So many kills while the guest writes and verifies.
fn drive(env: &Env, standby: bool, keys: &str, kills: u32) -> Outcome {
    with_node(env, &setup(standby).device("latency = \"1ms\"").vfio("ssd0.sock", keys), |node| {
        let script = SHELL.to_owned()
            + r#"
i=0; while ! [ -b /dev/nvme0n1 ]; do
  i=$((i + 1)); [ $i -lt 100 ] || { echo "no drive appears"; dmesg | tail; exit 1; }; sleep 0.1
done
load /dev/nvme0n1 6m enough
section kernel
complaints
section after
nvme reset /dev/nvme0
verify /dev/nvme0n1 2 randrw 2m
section end
"#;
        let mut line = Line::new(env)?;
        let device = ["-device".to_owned(), device(&text(&node.socket("ssd0.sock"))).to_string()];
        let qemu = [&device[..], &line.qemu()].concat();
        let guest = Guest { cpus: 2, net: false, qemu: &qemu, limit: if env.full { 300 } else { 120 } };
        let mut rng = Rng::new(13);
        let mut took = Duration::ZERO;
        let out = guest.run_with(env, &script, "under load", || {
            let begun = Instant::now();
            for _ in 0..kills {
                // Some with little time since the one before.
                std::thread::sleep(Duration::from_millis(rng.below(2) as u64 * 500 + rng.below(200) as u64));
                kill(node)?;
            }
            took = begun.elapsed();
            line.tell("enough")
        })?;
        ensure(section(&out, "kernel")?.trim().is_empty(), || format!("the kernel complains: {out}"))?;
        ensure(section(&out, "after")?.contains(" verified"), || out.clone())?;
        verified(&out, &format!("{kills} kills in {:.1} s", took.as_secs_f64()))
    })
}

/// How often it was.
fn verified(out: &str, what: &str) -> Outcome {
    let line = out.lines().find(|line| line.ends_with(" times verified under load"));
    let line = line.filter(|line| !line.starts_with("0 ")).ok_or_else(|| format!("nothing verified: {out}"))?;
    println!("    {what}; {line}");
    Ok(())
}

/// The host's load goes on. Linux notices nothing of a connection that ends while it connects again, and waits for its command's 60 s.
fn under_way(node: &Node) -> Outcome {
    let done = || {
        let io = &http::get(&node.api(), "/v1/status")?["devices"][0]["io"];
        Ok::<_, String>(io["reads"].as_u64().unwrap_or(0) + io["writes"].as_u64().unwrap_or(0))
    };
    let before = done()?;
    until(Duration::from_secs(60), "the load goes on", || Ok((done()? > before + 50).then_some(())))
}

/// A host at rest goes on with the connections it has: its kernel says nothing. Under load its connections end, it connects again, and no
/// request of it fails.
fn host(env: &Env, kills: u32) -> Outcome {
    with_node(env, &setup(false).device("latency = \"1ms\""), |node| {
        let script = SHELL.to_owned()
            + &connect_script(node.port, "-i 2 -c 1 -k 60")
            + r#"
verify /dev/nvme0n1 2 randwrite 2m
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
dd if=/tmp/a of=/dev/nvme0n1 bs=1M seek=8 oflag=direct 2>/dev/null
echo "at rest"
told one
dd if=/dev/nvme0n1 bs=1M skip=8 count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
section rest
complaints
section load
dmesg -c >/dev/null
load /dev/nvme0n1 4m two
section kernel
complaints
section end
"#;
        let mut line = Line::new(env)?;
        let qemu = line.qemu();
        let guest = Guest { cpus: 2, net: true, qemu: &qemu, limit: if env.full { 300 } else { 120 } };
        let out = guest.run_along(env, &script, &["at rest", "under load"], |mark| {
            for _ in 0..kills {
                if mark == 1 {
                    under_way(node)?;
                }
                // Longer than a connection has to be at rest before it is noted.
                std::thread::sleep(Duration::from_millis(1100));
                kill(node)?;
            }
            line.tell(["one", "two"][mark])
        })?;
        let kernel = section(&out, "kernel")?;
        ensure(section(&out, "rest")?.trim().is_empty(), || format!("a host at rest notices: {out}"))?;
        let says = |what: &str| kernel.to_lowercase().contains(what);
        // Where all of them found it at rest it does not: a guest under emulation is idle most of the time.
        let notices = if says("reconnect") { "connects again" } else { "does not notice either" };
        ensure(!says("i/o error") && !says("timeout"), || format!("a request of the host failed: {out}"))?;
        verified(&out, &format!("{kills} kills at rest; {kills} under load, which it {notices}"))
    })
}
