//! Drives that outlive their process, and drives that lose their power.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{long, test};
use crate::bench::bench;
use crate::guest::{Guest, connect_script};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::process::until;
use crate::raw::nvme_tcp::{CC_ALL_SETS, Data, Host, capsule, io, kind, sqe};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "power";
    vec![
        test(S, "a_killed_node_keeps_what_it_acknowledged", killed),
        test(S, "a_stopped_node_goes_on_where_it_was", stopped),
        test(S, "a_power_cut_takes_what_was_not_flushed", cut),
        long(S, "ext4_survives_a_power_cut", ext4),
        long(S, "ext4_survives_power_cuts_again_and_again", |env| (0..5).try_for_each(|_| ext4(env))),
        long(S, "a_drive_of_1_tb_fits_into_memory", terabyte),
    ]
}

/// A flash drive with a volatile buffer, which keeps data as long as it may.
pub(super) const FLASH: &str = "profile = \"femu-bbssd\"\nblock_size = 4096\nbuffer = \"4MiB\"\nearly_completion = true\n\
                     flush = \"watermark\"\npower_cut = true";

/// The drive's file, beside the binary: on a real file system, which direct I/O wants.
fn file(env: &Env, name: &str) -> Result<std::path::PathBuf, String> {
    Ok(env.weir.parent().ok_or("no folder")?.join(format!("e2e-{name}-{}.img", std::process::id())))
}

fn with_file(env: &Env, name: &str, capacity: &str, test: impl FnOnce(&Path, Setup) -> Outcome) -> Outcome {
    with_file_of(env, name, (capacity, FLASH), test)
}

/// A drive of that capacity with those keys in a file, which goes with the state beside it when the test is over.
pub(super) fn with_file_of(
    env: &Env,
    name: &str,
    (capacity, keys): (&str, &str),
    test: impl FnOnce(&Path, Setup) -> Outcome,
) -> Outcome {
    let file = file(env, name)?;
    let setup = Setup { media: format!("file:{}", file.display()), capacity: capacity.into(), ..Setup::default() };
    let result = test(&file, setup.device(keys));
    for suffix in ["", ".flash"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    result
}

/// A host by hand: one admin and one I/O queue.
pub(super) struct Client {
    admin: Host,
    queue: Host,
}

impl Client {
    fn new(node: &Node) -> Result<Self, String> {
        let host = host_nqn("gold");
        let (admin, cntlid) = Host::admin(node.address(), &host, 0)?;
        Ok(Self { admin, queue: Host::io_queue(node.address(), &host, cntlid, 1)? })
    }

    /// Of a volume of tenant gold's.
    pub(super) fn of(nqn: &str, at: SocketAddr) -> Result<Self, String> {
        let host = host_nqn("gold");
        let (admin, cntlid) = Host::admin_of(nqn, at, &host, 0)?;
        Ok(Self { admin, queue: Host::io_queue_of(nqn, at, &host, cntlid, 1)? })
    }

    /// Of the first drive, with all I/O command sets.
    pub(super) fn of_zones(node: &Node) -> Result<Self, String> {
        let host = host_nqn("gold");
        let (admin, cntlid) = Host::admin_with(CC_ALL_SETS, NQN, node.address(), &host, 0)?;
        Ok(Self { admin, queue: Host::io_queue(node.address(), &host, cntlid, 1)? })
    }

    /// A command of an I/O queue without data.
    pub(super) fn command(&mut self, opcode: u8, dwords: [u32; 6]) -> Outcome {
        self.queue.send(&capsule(&sqe(opcode, 9, 1, dwords, Data::None), Data::None))?;
        self.queue.success().map(|_| ())
    }

    /// Appends a block of a value to the zone that begins there; where it went.
    pub(super) fn append(&mut self, zone: u32, value: u32) -> Result<u32, String> {
        let block: Vec<u8> = value.to_le_bytes().repeat(1024);
        self.queue.send(&io(0x7d, 9, zone, 1, Data::InCapsule(&block)))?;
        self.queue.success().map(|response| response.u32(8))
    }

    /// State and write pointer of the first zones, by Zone Management Receive.
    pub(super) fn zones(&mut self, count: u32) -> Result<Vec<(u8, u32)>, String> {
        let len = 64 + 64 * count;
        let data = Data::Transport(len);
        self.queue.send(&capsule(&sqe(0x7a, 9, 1, [0, 0, len / 4 - 1, 0, 0, 0], data), data))?;
        let report = self.data(len as usize)?;
        let word = |at: usize| u32::from_le_bytes([report[at], report[at + 1], report[at + 2], report[at + 3]]);
        Ok((1..=count as usize).map(|zone| (report[64 * zone + 1] >> 4, word(64 * zone + 24))).collect())
    }

    /// Writes a value to a whole block.
    pub(super) fn write(&mut self, lba: u32, value: u32) -> Outcome {
        let block: Vec<u8> = value.to_le_bytes().repeat(1024);
        let data = Data::InCapsule(&block);
        self.queue.send(&io(0x01, 9, lba, 1, data))?;
        self.queue.success().map(|_| ())
    }

    /// Makes sure of what was written.
    pub(super) fn flush(&mut self) -> Outcome {
        self.queue.send(&capsule(&sqe(0x00, 9, 1, [0; 6], Data::None), Data::None))?;
        self.queue.success().map(|_| ())
    }

    /// The value that a whole block has.
    pub(super) fn read(&mut self, lba: u32) -> Result<u32, String> {
        self.queue.send(&io(0x02, 9, lba, 1, Data::Transport(4096)))?;
        let block = self.data(4096)?;
        let words: Vec<u32> = block.chunks(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        ensure(words.iter().all(|w| *w == words[0]), || format!("block {lba} is torn"))?;
        Ok(words[0])
    }

    /// So much data of a command, and that it went well.
    fn data(&mut self, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let pdu = self.queue.expect(kind::C2H_DATA)?;
            bytes.extend_from_slice(&pdu.bytes[usize::from(pdu.bytes[3])..]);
            // The flag that says that no response follows.
            if pdu.bytes[1] & 8 != 0 {
                break;
            }
            if bytes.len() >= len {
                self.queue.success()?;
            }
        }
        ensure(bytes.len() == len, || format!("{} bytes of {len}", bytes.len()))?;
        Ok(bytes)
    }

    /// Power cycles and unsafe shutdowns of the SMART log page.
    fn history(&mut self) -> Result<(u32, u32), String> {
        let data = Data::Transport(512);
        self.admin.send(&capsule(&sqe(0x02, 9, u32::MAX, [127 << 16 | 2, 0, 0, 0, 0, 0], data), data))?;
        let pdu = self.admin.expect(kind::C2H_DATA)?;
        let at = usize::from(pdu.bytes[3]);
        if pdu.bytes[1] & 8 == 0 {
            self.admin.success()?;
        }
        Ok((pdu.u32(at + 112), pdu.u32(at + 144)))
    }
}

/// Erases of all blocks, and the largest sequence number of an erase, in the state beside a drive.
fn wear(file: &Path) -> Result<(u64, u64), String> {
    let path = format!("{}.flash", file.display());
    let bytes = std::fs::read(&path).context(|| path.clone())?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[4096 + at + i]));
    let array = |from: usize, to: usize| bytes[4096 + word(from) as usize..4096 + word(to) as usize].to_vec();
    let erases = array(152, 160).chunks(4).map(|w| u64::from(u32::from_le_bytes([w[0], w[1], w[2], w[3]]))).sum();
    let ages = array(160, 168);
    let ages = ages.chunks_exact(8).map(|w| u64::from_le_bytes(std::array::from_fn(|i| w[i])));
    Ok((erases, ages.max().unwrap_or(0)))
}

/// SIGKILL in the middle of writes, three times: what was acknowledged is there, wear never goes back.
fn killed(env: &Env) -> Outcome {
    with_file(env, "killed", "64MiB", |file, setup| {
        // Few dies, so that collection is at work.
        let keys = FLASH.to_owned() + "\nchannels = 1\nways = 2";
        with_node(env, &setup.device(&keys), |node| {
            const BLOCKS: u32 = 2000;
            let mut newest = vec![0; BLOCKS as usize];
            let (mut value, mut before) = (0, (0, 0));
            for life in 1..=4 {
                let mut client = Client::new(node)?;
                ensure(client.history()? == (life, life - 1), || format!("life {life}: {:?}", client.history()))?;
                for (lba, newest) in (0..).zip(&newest) {
                    let found = client.read(lba)?;
                    ensure(found == *newest, || format!("life {life}: block {lba} has {found}, not {newest}"))?;
                }
                let now = wear(file)?;
                ensure(now.0 >= before.0 && now.1 >= before.1, || format!("wear went from {before:?} to {now:?}"))?;
                before = now;
                for _ in 0..12_000 {
                    value += 1;
                    let lba = value * 7919 % BLOCKS;
                    client.write(lba, value)?;
                    newest[lba as usize] = value;
                    if value % 1000 == 0 {
                        client.flush()?;
                    }
                }
                node.kill_and_start()?;
            }
            println!("    {} erases in the end", before.0);
            ensure(before.0 > 0, || "nothing was collected".into())
        })
    })
}

/// Verified data, a clean stop, and the same data again; a state that does not fit is refused.
fn stopped(env: &Env) -> Outcome {
    with_file(env, "stopped", "64MiB", |file, setup| {
        let verified = |rw: &str, node: &Node| {
            let bs = if rw == "write" { "128KiB" } else { "4KiB" };
            let args = ["--rw", rw, "--bs", bs, "--qd", "8", "--time", "1s", "--verify", "crc32c", "--region", "4MiB"];
            bench(env, &node.tcp_target(), &args)?.clean()
        };
        with_node(env, &setup, |node| {
            verified("write", node)?;
            verified("randrw", node)
        })?;
        let erases = wear(file)?;
        with_node(env, &setup, |node| {
            ensure(wear(file)? >= erases, || format!("wear went back from {erases:?}"))?;
            ensure(Client::new(node)?.history()? == (2, 0), || "a stopped drive counts as crashed".into())?;
            verified("randread", node)
        })?;
        let keys = FLASH.to_owned() + "\nchannels = 4";
        let other = Setup { media: setup.media.clone(), capacity: setup.capacity.clone(), ..Setup::default() };
        match Node::start(env, &other.device(&keys)) {
            Ok(_) => Err("the state of another drive is taken".into()),
            Err(e) => ensure(e.contains("channels = 8, the configuration says 4"), || e),
        }
    })
}

fn cut(env: &Env) -> Outcome {
    let setup = Setup { capacity: "64MiB".into(), ..Setup::default() };
    with_node(env, &setup.device(FLASH), |node| {
        let mut client = Client::new(node)?;
        (0..20).try_for_each(|lba| client.write(lba, lba + 1))?;
        client.flush()?;
        (10..30).try_for_each(|lba| client.write(lba, lba + 1001))?;
        let said = node.cli_ok(&["device", "power-cut", "ssd0"])?;
        ensure(
            said.contains("20 writes of 20 units of 4 KiB are gone") && said.contains("unsafe shutdowns so far: 1"),
            || said.clone(),
        )?;
        client.queue.until_closed()?;
        let mut client = Client::new(node)?;
        ensure(client.history()? == (2, 1), || "SMART does not count it".into())?;
        for lba in 0..30 {
            let (found, flushed) = (client.read(lba)?, if lba < 20 { lba + 1 } else { 0 });
            ensure(found == flushed, || format!("block {lba} has {found}, not {flushed}"))?;
        }
        let refused = node.cli(&["device", "power-cut", "nobody"])?;
        ensure(refused.status.code() == Some(1), || refused.describe())
    })
}

/// Files that were synced, and others, are written while the power goes; then the host is another one.
fn ext4(env: &Env) -> Outcome {
    with_node(env, &Setup::default().device(FLASH), |node| {
        let connect = connect_script(node.port, "-i 2 -c 60");
        let guest = Guest { cpus: 2, net: true, qemu: &[], limit: 150 };
        let dir = env.folder()?;
        let mut first = guest.start(env, &dir, &(connect.clone() + WORKLOAD))?;
        until(Duration::from_secs(150), "the guest has synced some files", || {
            let printed = first.stdout();
            ensure(first.running(), || format!("the guest ended:\n{printed}{}", first.stderr()))?;
            Ok((synced(&printed).count() >= 20).then_some(()))
        })?;
        let said = node.cli_ok(&["device", "power-cut", "ssd0"])?;
        let printed = first.wait(Duration::from_secs(60))?.success("the guest")?;
        let files: Vec<&str> = synced(&printed).collect();
        println!("    {} files synced; {}", files.len(), said.trim_end());
        let script = format!("{connect}cat >/tmp/synced <<END\n{}\nEND\n{CHECK}", files.join("\n"));
        let out = guest.run(env, &script)?;
        ensure(out.contains("all synced files are there, clean"), || out.clone())
    })
}

/// Lines that say `synced SUM  NAME`, whole ones.
fn synced(printed: &str) -> impl Iterator<Item = &str> {
    printed.split_inclusive('\n').filter_map(|l| l.strip_suffix('\n')?.strip_prefix("synced "))
}

const WORKLOAD: &str = r#"
N=/dev/nvme0n1
/bin/mkfs.ext4 -q -F $N
mount -t ext4 -o commit=1 $N /mnt
mkdir /mnt/kept /mnt/churn
dd if=/dev/zero of=/mnt/direct bs=64k count=64 conv=fsync 2>/dev/null
(i=0; while :; do i=$((i + 1)); dd if=/dev/urandom of=/mnt/direct bs=16k count=128 oflag=direct conv=notrunc 2>/dev/null; done) &
(i=0; while :; do i=$((i + 1)); dd if=/dev/urandom of=/mnt/churn/a$i bs=4k count=9 2>/dev/null; mv /mnt/churn/a$i /mnt/churn/b$i
  [ $i -lt 5 ] || rm -f /mnt/churn/b$((i - 4)); done) &
(i=0; while :; do i=$((i + 1)); dd if=/dev/urandom of=/mnt/kept/$i bs=5000 count=$((i % 7 + 1)) conv=fsync 2>/dev/null || exit
  echo "synced $(cd /mnt/kept && md5sum $i)"; done) &
while [ "$(cat /sys/class/nvme/nvme0/state)" = live ]; do sleep 0.1; done
# The host goes down with the drive.
exit 0
"#;

const CHECK: &str = r#"
N=/dev/nvme0n1
mount -t ext4 $N /mnt
(cd /mnt/kept && md5sum -c /tmp/synced >/tmp/md5.out 2>&1) || { grep -v ': OK' /tmp/md5.out; echo "synced files are damaged"; exit 1; }
umount /mnt
/bin/e2fsck -f -n $N || { echo "e2fsck found damage"; exit 1; }
echo "all synced files are there, clean"
"#;

/// 1 TB with a word of memory for each 4 KiB, written to at random; for a short while, because a file system takes its time to
/// remove a file of as many pieces.
fn terabyte(env: &Env) -> Outcome {
    with_file(env, "terabyte", "1000GB", |_, setup| {
        let begin = Instant::now();
        with_node(env, &setup, |node| {
            let started = begin.elapsed().as_secs_f64();
            let args = ["--rw", "randwrite", "--bs", "4KiB", "--qd", "64", "--time", "3s"];
            let report = bench(env, &node.tcp_target(), &args)?;
            report.clean()?;
            let path = format!("/proc/{}/status", node.serving()?);
            let status = std::fs::read_to_string(&path).context(|| path.clone())?;
            let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
            let kib: u64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| format!("VmHWM: {line}"))?;
            let peak = kib * 1024;
            let iops = report.total("iops")?;
            println!("    up in {started:.1} s, {iops:.0} writes/s, at most {:.2} GB of memory", peak as f64 / 1e9);
            ensure(peak <= 1_200_000_000, || format!("{peak} bytes of memory"))
        })
    })
}
