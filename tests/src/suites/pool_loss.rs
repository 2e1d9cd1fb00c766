//! Pools that lose a drive: what lies on it fails, all else serves; the drive comes back, or another one takes its place, while hosts are
//! connected and while the node is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::guest_vhost::disk;
use super::pool::{device, fails, files, marked, nqn, places, read, setup};
use super::{long, test};
use crate::bench::{Bench, bench};
use crate::guest::{Guest, connect_to};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, host_nqn, text, with_node};
use crate::raw::nvme_tcp::{Data, Host, capsule, io, kind, sqe};
use crate::raw::vhost_user::Front;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "pool_loss";
    vec![
        test(S, "a_pool_comes_up_without_a_drive_and_is_whole_when_that_is_back", comes_up_without),
        test(S, "a_drive_is_taken_out_and_replaced_while_hosts_are_connected", while_connected),
        test(S, "a_drive_that_was_taken_out_is_back_at_the_next_start", taken_out_and_back),
        test(S, "a_drive_that_completes_nothing_is_taken_out", |env| completes_nothing(env, "[0]")),
        test(S, "a_drive_of_another_core_that_completes_nothing_is_taken_out", |env| completes_nothing(env, "[0, 1]")),
        test(S, "what_cannot_be_is_refused_by_name", refused),
        test(S, "drives_that_went_apart_are_refused_by_name", went_apart),
        long(S, "a_linux_host_finds_another_disk_over_nvme_tcp", |env| linux(env, true)),
        long(S, "a_linux_guest_finds_another_disk_over_vhost_user", |env| linux(env, false)),
        test(S, "killed_while_a_drive_is_replaced", killed_a_little),
        long(S, "killed_while_a_drive_is_replaced_for_long", killed_for_long),
    ]
}

/// Unrecovered Read Error and Write Fault (NVM Command Set 1.0, 3.2), without Do Not Retry.
const READ_ERROR: u16 = 0x281;
const WRITE_FAULT: u16 = 0x280;

/// Drives `a` and `b` of pool `p`, on both of which volume `wide` lies; `c` is in no pool.
fn three() -> String {
    let named = "[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n";
    files(["a", "b"]).replace("[[pool]]\nname = \"p\"\n", named)
        + &device("c", "media = \"file:c.img\"\ncapacity = \"24MiB\"")
        + &device("tiny", "media = \"file:tiny.img\"\ncapacity = \"4MiB\"")
        + &device("d", "capacity = \"24MiB\"")
        + "[[export]]\ndevice = \"d\"\ndoor = \"nvme-tcp\"\n"
}

/// A host of volume `wide`.
struct Client {
    admin: Host,
    queue: Host,
    cid: u16,
}

impl Client {
    fn new(node: &Node) -> Result<Self, String> {
        let (admin, cntlid) = Host::admin_of(&nqn("wide"), node.address(), &host_nqn("gold"), 0)?;
        let queue = Host::io_queue_of(&nqn("wide"), node.address(), &host_nqn("gold"), cntlid, 1)?;
        Ok(Client { admin, queue, cid: 0 })
    }

    fn read(&mut self, lba: u32) -> Result<Result<u8, u16>, String> {
        self.cid += 1;
        Ok(match read(&mut self.queue, self.cid, lba)? {
            Ok(block) => {
                ensure(block.iter().all(|b| *b == block[0]), || format!("block {lba} is torn"))?;
                Ok(block[0])
            }
            Err(status) => Err(status),
        })
    }

    /// The status of a write of a block of that byte.
    fn write(&mut self, lba: u32, byte: u8) -> Result<u16, String> {
        self.cid += 1;
        let bytes = [byte; 512];
        self.queue.send(&io(1, self.cid, lba, 1, Data::InCapsule(&bytes)))?;
        Ok(self.queue.expect(kind::RESPONSE)?.status() & 0x7ff)
    }

    fn flush(&mut self) -> Result<u16, String> {
        self.queue.send(&capsule(&sqe(0, 5, 1, [0; 6], Data::None), Data::None))?;
        Ok(self.queue.expect(kind::RESPONSE)?.status() & 0x7ff)
    }

    /// Bytes of a structure of Identify: CNS, namespace, from where, how much.
    fn identify(&mut self, cns: u32, from: usize, len: usize) -> Result<Vec<u8>, String> {
        let data = Data::Transport(4096);
        self.admin.send(&capsule(&sqe(0x06, 21, 1, [cns, 0, 0, 0, 0, 0], data), data))?;
        let pdu = self.admin.expect(kind::C2H_DATA)?;
        let begin = usize::from(pdu.bytes[3]);
        if pdu.bytes[1] & 8 == 0 {
            self.admin.success()?;
        }
        Ok(pdu.bytes[begin + from..begin + from + len].to_vec())
    }

    fn nguid(&mut self) -> Result<Vec<u8>, String> {
        self.identify(0, 104, 16)
    }
}

/// Where each MiB of volume `wide` is: the byte that it was marked with, or the error.
fn seen(node: &Node) -> Result<Vec<Result<u8, u16>>, String> {
    let mut client = Client::new(node)?;
    places(30).map(|lba| client.read(lba)).collect()
}

fn byte(lba: u32) -> u8 {
    (lba / 2048) as u8 + 1
}

/// As it was marked, or lost; how many blocks are.
fn lost_in(seen: &[Result<u8, u16>]) -> Result<usize, String> {
    for (lba, found) in places(30).zip(seen) {
        let good = *found == Ok(byte(lba)) || *found == Err(READ_ERROR);
        ensure(good, || {
            format!("block {lba}: {found:x?}, which is neither what was written nor an error of its medium")
        })?;
    }
    Ok(seen.iter().filter(|found| found.is_err()).count())
}

fn pool(node: &Node) -> Result<Value, String> {
    Ok(http::get(&node.api(), "/v1/pools")?[0].clone())
}

/// A drive's file, and what lies beside it.
fn parts(name: &str) -> [String; 2] {
    [format!("{name}.img"), format!("{name}.img.nvme")]
}

/// There is nothing where the drive was.
fn take_away(node: &Node, name: &str) -> Outcome {
    let mut there = parts(name).into_iter().filter(|part| node.dir.join(part).exists());
    let away = |part: String| std::fs::rename(node.dir.join(&part), node.dir.join(part + ".away"));
    there.try_for_each(away).context(|| name.into())
}

/// It is there again, instead of what was made in its place.
fn put_back(node: &Node, name: &str) -> Outcome {
    for part in parts(name) {
        let (to, from) = (node.dir.join(&part), node.dir.join(part + ".away"));
        _ = std::fs::remove_file(&to);
        if from.exists() {
            std::fs::rename(from, to).context(|| name.into())?;
        }
    }
    Ok(())
}

/// The pool is degraded, and says so.
fn says_degraded(node: &Node, drive: &str) -> Outcome {
    let checked = node.cli(&["pool", "status", "--check"])?;
    let text = &checked.stdout;
    let said = text.contains(&format!("DEGRADED drive {drive} is lost")) && text.contains("LOST volume wide: ");
    ensure(checked.status.code() == Some(1) && said, || checked.describe())?;
    ensure(checked.stderr.contains("pool p is not sound"), || checked.describe())?;
    let wide = http::get(&node.api(), "/v1/volumes/wide")?;
    ensure(wide["missing_bytes"].as_u64().is_some_and(|n| n > 0), || wide.to_string())?;
    ensure(pool(node)?["lost"][0]["device"] == drive, || "the API names it".into())
}

fn comes_up_without(env: &Env) -> Outcome {
    for lost in ["a", "b"] {
        let mut node = Node::start(env, &setup(three()))?;
        marked(&node, false)?;
        let before = seen(&node)?;
        ensure(lost_in(&before)? == 0, || "nothing is lost".into())?;
        node.kill()?;
        take_away(&node, lost)?;
        node.start_again()?;
        says_degraded(&node, lost)?;
        let log = node.log();
        ensure(log.contains(&format!("pool p is degraded: drive {lost} is lost")), || log.clone())?;
        ensure(log.contains("volume wide: ") && log.contains("lie on a lost drive, and fail"), || log.clone())?;
        let degraded = seen(&node)?;
        let count = lost_in(&degraded)?;
        ensure(count > 0 && count < degraded.len(), || format!("lost: {count} of {}", degraded.len()))?;
        let mut client = Client::new(&node)?;
        for (lba, found) in places(30).zip(&degraded) {
            let status = client.write(lba, byte(lba))?;
            let expected = if found.is_ok() { 0 } else { WRITE_FAULT };
            ensure(status == expected, || format!("a write of block {lba}: {status:#x}"))?;
        }
        ensure(client.flush()? == 0, || "what is there is flushed".into())?;
        // It is so again after a kill, and what was made meanwhile stays.
        node.kill_and_start()?;
        ensure(seen(&node)? == degraded, || "without it once more".into())?;
        node.kill()?;
        put_back(&node, lost)?;
        node.start_again()?;
        ensure(seen(&node)? == before, || "all of it is back".into())?;
        let sound = node.cli(&["pool", "status", "--check"])?;
        ensure(sound.status.success() && !sound.stdout.contains("DEGRADED"), || sound.describe())?;
        node.stop()?;
    }
    Ok(())
}

fn while_connected(env: &Env) -> Outcome {
    let whole = three().replace("export = [\"nvme-tcp\"]", "export = [\"nvme-tcp\", \"vhost-user:wide.sock\"]");
    with_node(env, &setup(whole), |node| {
        marked(node, false)?;
        let mut client = Client::new(node)?;
        let mut front = Front::open(&node.socket("wide.sock"))?;
        front.negotiate()?;
        let mut channel = front.back_channel()?;
        let load = ["--bs", "16KiB", "--qd", "4", "--rw", "randrw", "--verify", "crc32c", "--time", "4s"];
        let beside = Bench::start(env, &node.socket_target("small.sock"), &load)?;
        let small = http::get(&node.api(), "/v1/volumes/small")?;
        // The drive that the other volume does not lie on.
        let lost = if small["drives"][0] == "a" { "b" } else { "a" };
        let number = if lost == "a" { "0" } else { "1" };
        node.cli_ok(&["pool", "offline", lost])?;
        says_degraded(node, lost)?;
        ensure(client.flush()? == WRITE_FAULT, || "hosts hear by a flush that something may be gone".into())?;
        ensure(client.flush()? == 0, || "once".into())?;
        let found: Vec<_> = places(30).map(|lba| client.read(lba)).collect::<Result<_, _>>()?;
        let count = lost_in(&found)?;
        ensure(count > 0 && count < found.len(), || format!("lost: {count}"))?;
        let (nguid, uuid) = (client.nguid()?, http::get(&node.api(), "/v1/volumes/wide")?["uuid"].clone());
        let early = node.cli(&["pool", "replace", "--empty", "wide"])?;
        let why = format!("volume \"wide\" has chunks on drive {lost}, which is lost");
        ensure(early.status.code() == Some(1) && early.stderr.contains(&why), || early.describe())?;
        node.cli_ok(&["pool", "replace", number, "c"])?;
        let replaced = node.cli(&["pool", "status", "--check"])?;
        let said = "fail until it is given up (weir pool replace --empty wide)";
        ensure(replaced.status.code() == Some(1) && replaced.stdout.contains(said), || replaced.describe())?;
        let still: Vec<_> = places(30).map(|lba| client.read(lba)).collect::<Result<_, _>>()?;
        ensure(still == found, || "nothing of the new drive is seen".into())?;
        // Asynchronous Event Configuration: namespace attribute notices; then an Asynchronous Event Request.
        let command = |opcode, cid, dwords| capsule(&sqe(opcode, cid, 0, dwords, Data::None), Data::None);
        client.admin.send(&command(0x09, 7, [0x0b, 0x100, 0, 0, 0, 0]))?;
        client.admin.success()?;
        client.admin.send(&command(0x0c, 8, [0; 6]))?;
        node.cli_ok(&["pool", "replace", "--empty", "wide"])?;
        let event = client.admin.success()?;
        ensure(event.u32(8) == 0x0004_0002, || format!("a namespace has changed: {:#x}", event.u32(8)))?;
        let mut told = [0; 12];
        channel.read_exact(&mut told).context(|| "no message of the server".into())?;
        // VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, version 1, nothing behind it.
        ensure(told == [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], || format!("{told:02x?}"))?;
        let after = http::get(&node.api(), "/v1/volumes/wide")?;
        ensure(client.nguid()? != nguid && after["uuid"] != uuid, || "it is another disk".into())?;
        ensure(after["replaced_bytes"] == 0 && after["missing_bytes"] == 0, || after.to_string())?;
        for lba in places(30) {
            ensure(client.read(lba)? == Ok(0), || format!("block {lba} is not empty"))?;
            ensure(client.write(lba, byte(lba))? == 0, || format!("block {lba} cannot be written"))?;
        }
        beside.finish()?.clean()?;
        node.cli_ok(&["pool", "status", "--check"])?;
        node.kill_and_start()?;
        marked(node, true)?;
        // What is on the drive that was taken out is older: it is none of the pool's.
        let drives = pool(node)?["drives"].as_array().map_or(0, Vec::len);
        ensure(drives == 2, || format!("{drives} drives"))?;
        node.cli_ok(&["pool", "add", lost])?;
        bench(env, &node.socket_target("wide.sock"), &load)?.clean()
    })
}

/// A stock Linux uses the volume: a part of it fails, then it is another disk, which Linux finds by itself or at a rescan, and uses.
fn linux(env: &Env, tcp: bool) -> Outcome {
    let whole = three().replace("export = [\"nvme-tcp\"]", "export = [\"nvme-tcp\", \"vhost-user:wide.sock\"]");
    with_node(env, &setup(whole), |node| {
        let qemu = if tcp { Vec::new() } else { disk(&text(&node.socket("wide.sock")), false, 2) };
        let guest = Guest { cpus: 2, net: tcp, qemu: &qemu, limit: 120 };
        let (begin, id, look) = match tcp {
            true => (connect_to(node.port, &nqn("wide"), "-i 2"), "nvme*n*/uuid", "nvme ns-rescan /dev/nvme0"),
            false => (String::new(), "vda/serial", "true"),
        };
        let does = |mark: usize| {
            let asked: &[&[&str]] = match mark {
                0 => &[&["offline", "b"]],
                _ => &[&["replace", "b", "c"], &["replace", "--empty", "wide"]],
            };
            asked.iter().try_for_each(|args| node.cli_ok(&[&["pool"], *args].concat()).map(|_| ()))
        };
        let script = begin + &another_disk(id, look);
        let out = guest.run_along(env, &script, &["all of it there", "some of it lost"], does)?;
        ensure(out.contains("another disk, empty and verified"), || out.clone())
    })
}

/// Of the only disk whose `id` is there below /sys/block; `look` has Linux look for disks.
fn another_disk(id: &str, look: &str) -> String {
    format!(
        r#"
for f in /sys/block/{id}; do before=$(cat $f); D=/dev/$(basename $(dirname $f)); done
fails() {{ # how many MiB cannot be read
  n=0; m=0; while [ $m -lt 30 ]; do
    dd if=$D of=/dev/null bs=1M skip=$m count=1 iflag=direct 2>/dev/null || n=$((n + 1)); m=$((m + 1))
  done; echo $n
}}
dd if=/dev/urandom of=$D bs=1M count=30 oflag=direct 2>/dev/null
[ $(fails) = 0 ]
echo "all of it there"
i=0; while lost=$(fails); [ $lost = 0 ]; do
  i=$((i + 1)); [ $i -lt 100 ] || {{ echo "nothing of it is lost"; exit 1; }}; sleep 0.1
done
[ $lost -lt 30 ] || {{ echo "all of it is lost"; exit 1; }}
echo "some of it lost"
found=; i=0; while [ -z "$found" ]; do
  i=$((i + 1)); [ $i -lt 200 ] || {{ echo "no other disk after 20 s"; dmesg | tail; exit 1; }}; sleep 0.1
  {look} 2>/dev/null || true
  for f in /sys/block/{id}; do
    # Quoted: a pattern that has met nothing is no file, also where a disk comes at this moment.
    [ -e "$f" ] && now=$(cat "$f" 2>/dev/null) && [ -n "$now" ] && [ "$now" != "$before" ] && found=$f || true
  done
done
D=/dev/$(basename "$(dirname "$found")")
i=0; while ! [ -b $D ]; do i=$((i + 1)); [ $i -lt 100 ] || {{ echo "no $D"; exit 1; }}; sleep 0.1; done
[ $(dd if=$D bs=1M iflag=direct 2>/dev/null | wc -c) = $((30 << 20)) ] || {{ echo "it is not readable"; exit 1; }}
[ $(dd if=$D bs=1M iflag=direct 2>/dev/null | tr -d '\000' | wc -c) = 0 ] || {{ echo "it is not empty"; exit 1; }}
verify $D 2 randrw 16m
/bin/mkfs.ext4 -q -F $D; mount -t ext4 $D /mnt; dd if=/dev/urandom of=/mnt/f bs=1M count=4 2>/dev/null; cp /mnt/f /tmp/f
umount /mnt; mount -t ext4 -o ro $D /mnt; cmp /mnt/f /tmp/f; umount /mnt
echo "another disk, empty and verified"
"#
    )
}

/// A drive that was taken out by mistake takes part again at the next start; the only one cannot be taken out.
fn taken_out_and_back(env: &Env) -> Outcome {
    with_node(env, &setup(three()), |node| {
        marked(node, false)?;
        let small = http::get(&node.api(), "/v1/volumes/small")?;
        let lost = if small["drives"][0] == "a" { "b" } else { "a" };
        node.cli_ok(&["pool", "offline", lost])?;
        // The others take changes.
        node.cli_ok(&["volume", "create", "new", "1MiB", "--tenant", "bronze"])?;
        let again = node.cli(&["pool", "offline", lost])?;
        ensure(again.status.code() == Some(1) && again.stderr.contains("is lost already"), || again.describe())?;
        let last = if lost == "a" { "b" } else { "a" };
        let only = node.cli(&["pool", "offline", last])?;
        ensure(only.status.code() == Some(1) && only.stderr.contains("is the pool's only drive"), || only.describe())?;
        // It is there when the node starts again, and has missed nothing.
        node.kill_and_start()?;
        marked(node, true)?;
        ensure(pool(node)?["lost"].as_array().is_some_and(Vec::is_empty), || "it takes part again".into())
    })
}

/// A drive completes nothing any more: a host and a change of the pool wait for it, and go on once it is taken out. What it does later is nobody's.
fn completes_nothing(env: &Env, cores: &str) -> Outcome {
    let faulty = three().replacen("cores = [0]\n", &format!("cores = {cores}\nfaults = true\n"), 1);
    with_node(env, &setup(faulty), |node| {
        marked(node, false)?;
        let small = http::get(&node.api(), "/v1/volumes/small")?;
        let lost = if small["drives"][0] == "a" { "b" } else { "a" };
        let mut client = Client::new(node)?;
        node.cli_ok(&["fault", "add", lost, "hang"])?;
        // A read of each MiB.
        for m in 0..30u16 {
            client.queue.send(&io(2, m, u32::from(m) * 2048, 1, Data::Transport(512)))?;
        }
        let api = format!("unix:{}", node.api().display());
        std::thread::scope(|s| -> Outcome {
            let change = ["--api", &api, "volume", "resize", "wide", "31MiB"].map(str::to_owned);
            let weir = env.weir.clone();
            let resize = s.spawn(move || Command::new(weir).args(change).output());
            std::thread::sleep(Duration::from_millis(200));
            ensure(!resize.is_finished(), || "the change waits for the drive".into())?;
            node.cli_ok(&["pool", "offline", lost])?;
            let changed = resize.join().ok().and_then(Result::ok).ok_or("no outcome of the change")?;
            ensure(!changed.status.success(), || "the change cannot have been made".into())
        })?;
        let (mut ended, mut failed) = (0, 0);
        while ended < 30 {
            let pdu = client.queue.receive()?.ok_or("the connection is closed")?;
            ended += usize::from(pdu.kind == kind::RESPONSE);
            failed += usize::from(pdu.kind == kind::RESPONSE && pdu.status() & 0x7ff != 0);
        }
        ensure((1..30).contains(&failed), || format!("{failed} of 30 reads failed"))?;
        let after = seen(node)?;
        ensure(lost_in(&after)? == 2 * failed, || format!("{failed} reads failed: {after:x?}"))?;
        // The drive goes on, and nobody hears of it.
        node.cli_ok(&["fault", "rm", lost, "all"])?;
        ensure(seen(node)? == after, || "what is lost stays so".into())?;
        node.cli_ok(&["volume", "create", "new", "1MiB", "--tenant", "bronze"])?;
        node.kill_and_start()?;
        marked(node, true)
    })
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(three()), |node| {
        marked(node, false)?;
        let no = |args: &[&str], code: i32, why: &str| -> Outcome {
            let before = pool(node)?;
            let said = node.cli(args)?;
            ensure(said.status.code() == Some(code) && said.stderr.contains(why), || {
                format!("weir {}: expected {why:?}: {}", args.join(" "), said.describe())
            })?;
            let after = pool(node)?;
            ensure(before == after, || format!("weir {}: {before} {after}", args.join(" ")))
        };
        no(&["pool", "replace", "a", "c"], 1, "drive a is not lost")?;
        no(&["pool", "replace", "x", "c"], 1, "x is no drive of this pool; none is lost")?;
        no(&["pool", "replace", "--empty", "wide"], 1, "volume \"wide\" has lost nothing")?;
        no(&["pool", "replace", "--empty", "nothing"], 1, "there is no volume \"nothing\"")?;
        no(&["pool", "replace", "a"], 2, "NEW")?;
        no(&["pool", "replace", "a", "c", "--empty", "wide"], 2, "cannot be used with")?;
        no(&["pool", "offline", "c"], 1, "c is no drive of this pool")?;
        node.cli_ok(&["pool", "offline", "b"])?;
        no(&["pool", "replace", "x", "c"], 1, "lost are b (number 1)")?;
        no(&["pool", "replace", "b", "a"], 1, "a is a drive of pool p already")?;
        no(&["pool", "replace", "b", "d"], 1, "is exported by itself")?;
        no(&["pool", "replace", "b", "e"], 1, "there is no device \"e\"")?;
        no(&["pool", "replace", "b", "tiny"], 1, "drive tiny has 2 MiB for volumes, and ")?;
        no(&["pool", "remove", "b"], 1, "have chunks on drive b")
            .or_else(|_| no(&["pool", "remove", "b"], 1, "volume has chunks on drive b"))?;
        no(&["volume", "resize", "wide", "31MiB"], 1, "volume \"wide\" has lost chunks with a drive")?;
        // A drive with something on it is left alone.
        let text = vec![7u8; 4096];
        std::fs::write(node.dir.join("full"), &text).context(|| "full".into())?;
        let copied = Command::new("dd")
            .current_dir(&node.dir)
            .args(["if=full", "of=c.img", "conv=notrunc", "status=none"])
            .status();
        ensure(copied.is_ok_and(|s| s.success()), || "dd".into())?;
        no(&["pool", "replace", "b", "c"], 1, "drive c is not empty")?;
        node.cli_ok(&["pool", "status"]).map(|_| ())
    })
}

fn went_apart(env: &Env) -> Outcome {
    let mut node = Node::start(env, &setup(three()))?;
    marked(&node, false)?;
    node.kill()?;
    // Each of them is used without the other.
    take_away(&node, "b")?;
    node.start_again()?;
    node.kill()?;
    put_back(&node, "b")?;
    take_away(&node, "a")?;
    node.start_again()?;
    says_degraded(&node, "a")?;
    node.kill()?;
    put_back(&node, "a")?;
    let said = fails(env, &node.dir, &three())?;
    let named = said.contains("were each used without the other") && said.contains("weir pool replace");
    ensure(named && said.contains("pool.p: drives "), || said.clone())?;
    // What says that it may not come up without one does not.
    take_away(&node, "b")?;
    let only_whole = three().replace("name = \"p\"\n", "name = \"p\"\ndegraded = false\n");
    let said = fails(env, &node.dir, &only_whole)?;
    ensure(said.contains("drive b is missing (number 1, "), || said.clone())
}

/// Kills that hit a drive that is taken out, replaced, and volumes that are emptied; drives that are gone and back at the next start.
fn killed(env: &Env, rounds: u64) -> Outcome {
    // Each can take the place of each.
    let mut whole = files(["a", "b"]).replace("\"16MiB\"", "\"24MiB\"");
    whole += &device("c", "media = \"file:c.img\"\ncapacity = \"24MiB\"");
    let whole = whole.replace("[[pool]]\nname = \"p\"\n", "[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n");
    let mut node = Node::start(env, &setup(whole))?;
    marked(&node, false)?;
    let load = ["--bs", "16KiB", "--qd", "4", "--rw", "randrw", "--verify", "crc32c", "--time", "300ms"];
    // Each disk that was ever seen was filled.
    let uuid = |node: &Node| -> Result<String, String> {
        let wide = http::get(&node.api(), "/v1/volumes/wide")?;
        Ok(wide["uuid"].as_str().unwrap_or_default().to_owned())
    };
    let mut filled = BTreeSet::from([uuid(&node)?]);
    let (mut state, mut counts) = (1u64, BTreeMap::new());
    for round in 0..rounds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (before, drives) = (uuid(&node)?, members(&node)?);
        let wide = http::get(&node.api(), "/v1/volumes/wide")?;
        let mut asked = vec![vec!["replace".to_owned(), "--empty".into(), "wide".into()]];
        if wide["replaced_bytes"] == 0 {
            let old = drives[(state >> 40) as usize % drives.len()].clone();
            let new = ["a", "b", "c"].into_iter().find(|d| !drives.iter().any(|m| m == d)).ok_or("no drive is left")?;
            // What a drive was before is given up.
            wipe(&node, new)?;
            asked.splice(
                0..0,
                [vec!["offline".to_owned(), old.clone()], vec!["replace".to_owned(), old, new.to_owned()]],
            );
        }
        let delay = Duration::from_micros((state >> 33) % 150_000);
        let what = || format!("round {round}, {asked:?}, {delay:?}");
        std::thread::scope(|s| -> Outcome {
            let (weir, api, asked) = (env.weir.clone(), format!("unix:{}", node.api().display()), &asked);
            let asking = s.spawn(move || {
                let ask =
                    |args: &Vec<String>| match Command::new(&weir).args(["--api", &api, "pool"]).args(args).output() {
                        Ok(done) if done.status.success() => Ok(()),
                        Ok(done) => Err(format!("{args:?}: {}", String::from_utf8_lossy(&done.stderr))),
                        Err(e) => Err(format!("{args:?}: {e}")),
                    };
                asked.iter().try_for_each(ask)
            });
            // Some are left to end, or nothing would ever get on.
            match round % 3 {
                2 => {
                    let ended = asking.join().unwrap_or_else(|_| Err("the thread that asks panicked".into()));
                    ended.map_err(|why| format!("{}: refused: {why}\n{}", what(), node.log()))?;
                }
                _ => std::thread::sleep(delay),
            }
            node.kill()
        })?;
        node.start_again().map_err(|e| format!("{}: {e}", what()))?;
        let (is, found) = (uuid(&node)?, seen(&node)?);
        let outcome = if filled.insert(is.clone()) {
            // Another disk, and empty.
            ensure(found.iter().all(|f| *f == Ok(0)), || format!("{}: a new disk: {found:x?}", what()))?;
            marked(&node, false)?;
            "emptied"
        } else {
            ensure(is == before, || format!("{}: it is a disk of before", what()))?;
            lost_in(&found).map_err(|e| format!("{}: {e}", what()))?;
            if members(&node)? == drives { "as it was" } else { "replaced" }
        };
        *counts.entry(outcome).or_insert(0) += 1;
        let small = http::get(&node.api(), "/v1/volumes/small")?;
        if small["replaced_bytes"].as_u64().is_some_and(|n| n > 0) {
            node.cli_ok(&["pool", "replace", "--empty", "small"])?;
        }
        bench(env, &node.socket_target("small.sock"), &load)?.clean().map_err(|e| format!("{}: {e}", what()))?;
    }
    println!("    {} disks, {counts:?}", filled.len());
    ensure(counts.len() > 1 && filled.len() > 2, || format!("not all was done: {counts:?}, {} disks", filled.len()))?;
    node.stop()
}

/// The devices that are the pool's.
fn members(node: &Node) -> Result<Vec<String>, String> {
    let drives = pool(node)?["drives"].clone();
    let names = drives.as_array().into_iter().flatten().filter_map(|d| Some(d["device"].as_str()?.to_owned()));
    Ok(names.collect())
}

/// The drive has nothing on it.
fn wipe(node: &Node, name: &str) -> Outcome {
    use std::os::unix::fs::FileExt;
    let file = node.dir.join(format!("{name}.img"));
    let file = std::fs::File::options().write(true).open(&file).context(|| file.display().to_string())?;
    file.write_all_at(&[0; 128 << 10], 0).context(|| name.into())
}

fn killed_a_little(env: &Env) -> Outcome {
    killed(env, 18)
}

fn killed_for_long(env: &Env) -> Outcome {
    killed(env, 240)
}
