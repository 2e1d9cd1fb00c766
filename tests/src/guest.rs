//! A Linux guest under QEMU's software emulation: boots in seconds, runs a script, gives its output.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::harness::{Context, Env};
use crate::node::NQN;
use crate::process::{Process, run, until};

/// How to boot.
pub struct Guest<'a> {
    /// CPUs of the guest.
    pub cpus: u32,
    /// The guest reaches the host's loopback at 10.0.2.2, and has the modules for NVMe/TCP.
    pub net: bool,
    /// More arguments of QEMU.
    pub qemu: &'a [String],
    /// Seconds until it is given up.
    pub limit: u32,
}

/// Builds the guest folder once, which is quick when it is there.
fn set_up(env: &Env) -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let build = || {
        let status = Command::new(env.guests.join("setup.sh")).env("GUEST_DIR", &env.guest_dir).status();
        match status.context(|| "tests/guests/setup.sh".into())? {
            status if status.success() => Ok(()),
            status => Err(format!("tests/guests/setup.sh: {status}")),
        }
    };
    DONE.get_or_init(build).clone()
}

/// The program `name` of the guest folder, to be run on the host.
pub fn host_program(env: &Env, name: &str) -> Result<std::path::PathBuf, String> {
    set_up(env)?;
    Ok(env.host_program(name))
}

impl Guest<'_> {
    /// Boots, runs `script` (busybox sh, `set -e`), returns what it printed.
    pub fn run(&self, env: &Env, script: &str) -> Result<String, String> {
        let dir = env.folder()?;
        let guest = self.start(env, &dir, script)?;
        let finished = guest.wait(Duration::from_secs(u64::from(self.limit) + 30))?;
        let text = finished.stdout.clone() + &finished.stderr;
        finished.success("the guest").map(|_| text)
    }

    /// Boots, runs `script`, and does `then` once it has printed `mark`.
    pub fn run_with(
        &self,
        env: &Env,
        script: &str,
        mark: &str,
        then: impl FnOnce() -> Result<(), String>,
    ) -> Result<String, String> {
        let mut then = Some(then);
        self.run_along(env, script, &[mark], |_| then.take().map_or(Ok(()), |then| then()))
    }

    /// The same for several marks, one after the other: `then` is told how many were printed before.
    pub fn run_along(
        &self,
        env: &Env,
        script: &str,
        marks: &[&str],
        mut then: impl FnMut(usize) -> Result<(), String>,
    ) -> Result<String, String> {
        let dir = env.folder()?;
        let mut guest = self.start(env, &dir, script)?;
        for (i, mark) in marks.iter().enumerate() {
            until(Duration::from_secs(self.limit.into()), "the guest gets that far", || {
                let printed = guest.stdout();
                if !guest.running() {
                    return Err(format!("the guest ended before {mark:?}:\n{printed}{}", guest.stderr()));
                }
                Ok(printed.lines().any(|l| l == *mark).then_some(()))
            })?;
            then(i)?;
        }
        guest.wait(Duration::from_secs(u64::from(self.limit) + 30))?.success("the guest")
    }

    /// Boots and runs `script` while the test does something else.
    pub fn start(&self, env: &Env, dir: &Path, script: &str) -> Result<Process, String> {
        self.start_by(env, dir, script, &[])
    }

    /// A module of its kernel, unpacked into `dir`.
    fn module(&self, env: &Env, dir: &Path, name: &str) -> Result<std::path::PathBuf, String> {
        let all = env.guest_dir.join("kern/root/usr/lib/modules");
        let mut find = Command::new("find");
        find.arg(&all).args(["-name", &format!("{name}.ko.xz")]);
        let found = find.output().context(|| "find".into())?.stdout;
        let packed = String::from_utf8_lossy(&found).trim().to_string();
        let bytes = Command::new("xz").args(["-dc", &packed]).output().context(|| "xz".into())?.stdout;
        let file = dir.join(format!("{name}.ko"));
        match bytes.is_empty() {
            true => Err(format!("the guest's kernel has no module {name} in {}", all.display())),
            false => std::fs::write(&file, bytes).context(|| file.display().to_string()).map(|()| file),
        }
    }

    /// The same, started by another program, as `ionice -c3`.
    pub fn start_by(&self, env: &Env, dir: &Path, script: &str, by: &[&str]) -> Result<Process, String> {
        set_up(env)?;
        let file = dir.join("script.sh");
        std::fs::write(&file, format!("set -e\n{PRELUDE}\n{script}\n")).context(|| file.display().to_string())?;
        // A terminal's signals reach it, and `setpriv` ends it with this process.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).args(by).arg(env.guests.join("guest.sh"));
        command.env("GUEST_DIR", &env.guest_dir).env("GUEST_TMP", dir);
        command.args(["-t", &self.limit.to_string(), "-c", &self.cpus.to_string()]);
        if self.net {
            command.args(["-n", "-M", "virtio_net nvme_tcp"]);
        }
        for program in PROGRAMS.iter().filter(|p| script.contains(**p)) {
            let name = program.rsplit('/').next().unwrap_or_default();
            command.arg("-f").arg(env.guest_dir.join("usr/sbin").join(name));
        }
        if script.contains("/t/weir ") {
            command.args(["-m", "1024"]).arg("-f").arg(stripped(env, dir)?);
        }
        for module in MODULES.iter().filter(|module| script.contains(&format!("/t/{module}.ko"))) {
            command.arg("-f").arg(self.module(env, dir, module)?);
        }
        command.arg("-k").arg(dir.join("kernel.log")).arg(&file).args(self.qemu);
        Process::spawn(dir, "guest", command)
    }
}

/// The program under test without what a debugger reads, which a guest would have in memory; a script that names `/t/weir` gets it.
fn stripped(env: &Env, dir: &Path) -> Result<std::path::PathBuf, String> {
    let to = dir.join("weir");
    let args = ["-o".as_ref(), to.as_os_str(), env.weir.as_os_str()];
    run(dir, Path::new("strip"), args, Duration::from_secs(60))?.success("strip")?;
    Ok(to)
}

/// Modules of the guest's kernel that a script gets as `/t/NAME.ko` when it names them, for insmod in this order.
const MODULES: [&str; 14] = [
    "configfs",
    "nvmet",
    "nvmet-tcp",
    "brd",
    "null_blk",
    "scsi_common",
    "scsi_mod",
    "sd_mod",
    "scsi_debug",
    "irqbypass",
    "vfio",
    "vfio_iommu_type1",
    "vfio-pci-core",
    "vfio-pci",
];

/// Programs of the guest folder that a script gets when it names them; they need no library that the others do not.
const PROGRAMS: [&str; 1] = ["/t/blkzone"];

/// What every script may use.
const PRELUDE: &str = r#"
mkdir -p /mnt
section() { echo "=== $1"; }
verify() { # verify DEVICE QUEUES RW SIZE: data written, read back, checksums compared
  fio --name=v --filename=$1 --rw=$3 --bs=4k --size=$4 --iodepth=16 --ioengine=libaio --direct=1 --verify=crc32c \
    --verify_fatal=1 --randseed=7 --numjobs=1 --bssplit=4k/60:16k/30:128k/10 --minimal >/tmp/fio.out 2>&1 ||
    { cat /tmp/fio.out; echo "fio $3 failed"; exit 1; }
  grep -iE 'verify|error' /tmp/fio.out && { echo "fio $3 complains"; exit 1; }
  echo "fio $3 $4 on $1 verified"
}
filesystem() { # filesystem DEVICE: mkfs, copy a tree, unmount, check, mount again, compare
  /bin/mkfs.ext4 -q -F $1
  mount -t ext4 $1 /mnt
  mkdir /mnt/tree; cp -a /lib /bin /etc /mnt/tree/
  (cd / && find lib bin etc -type f | sort | xargs md5sum) >/tmp/sums
  umount /mnt
  /bin/e2fsck -f -n $1 || { echo "e2fsck found damage"; exit 1; }
  mount -t ext4 -o ro $1 /mnt
  (cd /mnt/tree && md5sum -c /tmp/sums >/tmp/md5.out 2>&1) || { grep -v ': OK' /tmp/md5.out; echo "files differ"; exit 1; }
  umount /mnt
  echo "filesystem: $(wc -l </tmp/sums) files equal"
}
"#;

/// Waits for a disk of 64 MiB to become one of 128 MiB, and uses what is new.
pub fn resize_script(size: &str, device: &str) -> String {
    format!(
        r#"
[ $(cat {size}) = 131072 ] || {{ echo "$(cat {size}) sectors at first"; exit 1; }}
echo waiting
i=0; while [ $(cat {size}) != 262144 ]; do
  i=$((i + 1)); [ $i -lt 200 ] || {{ echo "still $(cat {size}) sectors after 20 s"; exit 1; }}; sleep 0.1
done
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
dd if=/tmp/a of={device} bs=1M seek=100 oflag=direct 2>/dev/null
dd if={device} bs=1M skip=100 count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
echo "grown and verified"
"#
    )
}

/// Sizes of a volume in MiB, through which [`follow_script`] goes.
pub const SIZES: [u32; 4] = [64, 128, 72, 160];
/// What it prints while it has each of them but the last.
pub const HAS: [&str; 3] = ["has size 0", "has size 1", "has size 2"];

/// Goes with a disk through all [`SIZES`] while its first MiB are written and verified without a pause; uses the end of each.
pub fn follow_script(size: &str, device: &str) -> String {
    let sizes = SIZES.map(|mib| mib.to_string()).join(" ");
    format!(
        r#"
(while ! [ -e /tmp/enough ]; do verify {device} 1 randrw 8m; done; echo "load verified") >/tmp/load.out 2>&1 & load=$!
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
n=0
for mib in {sizes}; do
  i=0; while [ $(cat {size}) != $((mib * 2048)) ]; do
    i=$((i + 1)); [ $i -lt 200 ] || {{ echo "still $(cat {size}) sectors after 20 s, not $mib MiB"; exit 1; }}; sleep 0.1
  done
  dd if=/tmp/a of={device} bs=1M seek=$((mib - 4)) oflag=direct 2>/dev/null
  dd if={device} bs=1M skip=$((mib - 4)) count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
  [ $(dd if={device} bs=1M skip=$mib count=1 iflag=direct 2>/dev/null | wc -c) = 0 ] || {{ echo "goes on behind $mib MiB"; exit 1; }}
  kill -0 $load
  echo "has size $n"; n=$((n + 1))
done
touch /tmp/enough; wait $load || {{ cat /tmp/load.out; exit 1; }}
cat /tmp/load.out
dmesg | grep -iE 'vda|virtio_blk|nvme' | grep -iE 'i/o error|timeout|reset' && exit 1
echo "followed and verified"
"#
    )
}

/// Connects to the drive that a node serves on this port of the machine outside, and waits for its namespace, `/dev/nvme0n1`.
pub fn connect_script(port: u16, options: &str) -> String {
    connect_to(port, NQN, options)
}

/// The same of any subsystem.
pub fn connect_to(port: u16, nqn: &str, options: &str) -> String {
    format!(
        r#"
nvme connect -t tcp -a 10.0.2.2 -s {port} -n {nqn} {options}
i=0; while ! [ -b /dev/nvme0n1 ]; do
  i=$((i + 1)); [ $i -lt 100 ] || {{ echo "no namespace appears"; dmesg | tail; exit 1; }}; sleep 0.1
done
"#
    )
}

/// The part of a script's output that follows `section NAME`.
pub fn section<'a>(output: &'a str, name: &str) -> Result<&'a str, String> {
    let (_, rest) =
        output.split_once(&format!("=== {name}\n")).ok_or_else(|| format!("no section {name} in:\n{output}"))?;
    if rest.starts_with("=== ") {
        return Ok("");
    }
    Ok(rest.split_once("\n=== ").map_or(rest, |(part, _)| part))
}

/// The JSON in a section.
pub fn json(output: &str, name: &str) -> Result<serde_json::Value, String> {
    let part = section(output, name)?;
    let start = part.find(['{', '[']).unwrap_or(0);
    let mut values = serde_json::Deserializer::from_str(&part[start..]).into_iter();
    let value = values.next().ok_or_else(|| format!("no JSON in section {name}"))?;
    value.context(|| format!("section {name}: {part}"))
}
