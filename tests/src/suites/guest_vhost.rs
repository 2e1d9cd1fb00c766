//! A Linux guest with a vhost-user-blk disk: split and packed rings, several queues, fio, ext4, discard.

use std::time::Duration;

use serde_json::{Value, json};

use super::{long, pool, test};
use crate::guest::{Guest, HAS, SIZES, connect_to, follow_script, resize_script, section};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Setup, host_nqn, text, with_node};
use crate::process::until;
use crate::qmp::Monitor;
use crate::raw::nvme_tcp::{Data, Host, io};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_vhost";
    vec![
        long(S, "fio_split_rings", |env| fio(env, false, "32m")),
        test(S, "fio_packed_rings", |env| fio(env, true, "32m")),
        test(S, "ext4_discard_and_second_boot", ext4),
        test(S, "resized_while_running", resized),
        long(S, "its_volume_is_resized_under_load", |env| volume_resized(env, false)),
        long(S, "migrates_while_it_writes", migrates),
        long(S, "fio_split_rings_long", |env| fio(env, false, "128m")),
        long(S, "fio_packed_rings_long", |env| fio(env, true, "128m")),
    ]
}

/// QEMU's arguments for a disk on `socket`, which is connected to again when it is gone.
pub(super) fn disk(socket: &str, packed: bool, queues: u32) -> Vec<String> {
    disk_at(&format!("{socket},reconnect-ms=500"), packed, queues)
}

/// The same, with the socket's own options.
pub(super) fn disk_at(socket: &str, packed: bool, queues: u32) -> Vec<String> {
    let packed = if packed { "on" } else { "off" };
    [
        "-chardev",
        &format!("socket,id=c0,path={socket}"),
        "-device",
        &format!("vhost-user-blk-pci,chardev=c0,num-queues={queues},packed={packed},romfile="),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn boot(env: &Env, qemu: &[String], script: &str) -> Result<String, String> {
    Guest { cpus: 2, net: false, qemu, limit: if env.full { 300 } else { 120 } }.run(env, script)
}

fn fio(env: &Env, packed: bool, size: &str) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let script = format!(
            r#"
section features; cat /sys/block/vda/device/features
section queues; ls /sys/block/vda/mq | wc -l
section size; cat /sys/block/vda/size
section serial; cat /sys/block/vda/serial; echo
section limits; grep . /sys/block/vda/queue/discard_max_bytes /sys/block/vda/queue/write_zeroes_max_bytes
section io
verify /dev/vda 2 randwrite {size}
verify /dev/vda 2 randrw {size}
section discard
blkdiscard -o 1048576 -l 2097152 /dev/vda
dd if=/dev/vda bs=1M skip=1 count=2 2>/dev/null | cmp -n 2097152 - /dev/zero && echo zeroes
section kernel
dmesg | grep -iE 'vda|virtio_blk' | grep -iE 'error|timeout|reset' || true
section end
"#
        );
        let out = boot(env, &disk(&text(&node.socket("gold.sock")), packed, 2), &script)?;
        let features: Vec<char> = section(&out, "features")?.trim().chars().collect();
        let bit = |n: usize| features.get(n) == Some(&'1');
        ensure(bit(34) == packed, || format!("packed rings (bit 34) in {features:?}"))?;
        for (n, what) in [(9, "flush"), (12, "multi-queue"), (13, "discard"), (14, "write zeroes"), (28, "indirect")] {
            ensure(bit(n), || format!("no {what} (bit {n}) in {features:?}"))?;
        }
        ensure(section(&out, "queues")?.trim() == "2", || format!("two queues: {out}"))?;
        ensure(section(&out, "size")?.trim() == (256 << 11).to_string(), || format!("256 MiB in sectors: {out}"))?;
        ensure(!section(&out, "serial")?.trim().is_empty(), || format!("a serial number: {out}"))?;
        let limits = section(&out, "limits")?;
        ensure(!limits.lines().any(|l| l.ends_with(":0")), || format!("discard and write zeroes: {limits}"))?;
        ensure(out.matches(" verified").count() == 2, || out.clone())?;
        ensure(section(&out, "discard")?.contains("zeroes"), || {
            format!("discarded blocks do not read as zeroes: {out}")
        })?;
        ensure(section(&out, "kernel")?.trim().is_empty(), || format!("the kernel complains: {out}"))
    })
}

fn ext4(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let disk = disk(&text(&node.socket("gold.sock")), false, 2);
        let first = r#"
filesystem /dev/vda
mount -t ext4 /dev/vda /mnt
rm -r /mnt/tree/bin
fstrim -v /mnt
cp /tmp/sums /mnt/sums
umount /mnt
/bin/e2fsck -f -n /dev/vda
"#;
        let out = boot(env, &disk, first)?;
        ensure(out.contains("files equal"), || out.clone())?;
        // Another boot: another connection on the same socket, the same data.
        let second = r#"
/bin/e2fsck -f -n /dev/vda
mount -t ext4 /dev/vda /mnt
(cd /mnt/tree && grep -v ' bin/' /mnt/sums | md5sum -c >/tmp/md5.out 2>&1) || { grep -v ': OK' /tmp/md5.out; exit 1; }
umount /mnt
echo "second boot: equal"
"#;
        let out = boot(env, &disk, second)?;
        ensure(out.contains("second boot: equal"), || out.clone())
    })
}

/// The drive grows while the guest runs: the guest learns it by itself and can use the new space.
fn resized(env: &Env) -> Outcome {
    let setup = Setup { capacity: "64MiB".into(), ..Setup::default() };
    with_node(env, &setup.device("max_capacity = \"128MiB\"").socket("gold.sock"), |node| {
        let qemu = disk(&text(&node.socket("gold.sock")), false, 1);
        let guest = Guest { cpus: 1, net: false, qemu: &qemu, limit: 120 };
        let resize = || node.cli_ok(&["device", "set", "ssd0", "--capacity", "128MiB"]).map(|_| ());
        let out = guest.run_with(env, &resize_script("/sys/block/vda/size", "/dev/vda"), "waiting", resize)?;
        ensure(out.contains("grown and verified"), || out.clone())
    })
}

/// A guest's volume becomes larger and smaller while it writes and verifies: by the interrupt for a changed configuration of virtio, or over NVMe/TCP by
/// the event of a changed namespace, its kernel follows by itself.
pub(super) fn volume_resized(env: &Env, tcp: bool) -> Outcome {
    let door = if tcp { "\"nvme-tcp\"" } else { "\"vhost-user:v0.sock\"" };
    let volume = pool::volume("v0", "gold", &format!("{}MiB", SIZES[0]), door);
    let whole = pool::head() + &pool::device("d0", "capacity = \"256MiB\"") + &volume;
    with_node(env, &pool::setup(whole), |node| {
        let qemu = if tcp { Vec::new() } else { disk(&text(&node.socket("v0.sock")), false, 2) };
        let guest = Guest { cpus: 2, net: tcp, qemu: &qemu, limit: 120 };
        let script = if tcp {
            connect_to(node.port, &pool::nqn("v0"), "-i 2") + &follow_script("/sys/block/nvme0n1/size", "/dev/nvme0n1")
        } else {
            follow_script("/sys/block/vda/size", "/dev/vda")
        };
        let resize = |had: usize| {
            node.cli_ok(&["volume", "resize", "v0", &format!("{}MiB", SIZES[had + 1]), "--shrink"]).map(|_| ())
        };
        let out = guest.run_along(env, &script, &HAS, resize)?;
        ensure(out.contains("load verified") && out.contains("followed and verified"), || out.clone())
    })
}

/// A guest goes from one QEMU to another while it reads, writes and verifies. What the drive writes into pages that QEMU has sent already has to be
/// sent again, and QEMU learns of it from the dirty log alone.
fn migrates(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock").socket("other.sock"), |node| {
        let dir = env.folder()?;
        // What it reads comes into its page cache by the drive's hand, and is compared there in the end. Meanwhile its memory changes, so
        // that it does not go before it may.
        let script = r#"
told() { # told MIB: until it begins with an x
  while dd if=/dev/vda of=/tmp/word bs=1M skip=$1 count=1 iflag=direct 2>/dev/null; [ "$(head -c 1 /tmp/word)" != x ]; do sleep 0.1; done
}
reads() { set -- $(cat /sys/block/vda/stat); echo $1; }
dd if=/dev/urandom of=/tmp/a bs=1M count=24 2>/dev/null
dd if=/tmp/a of=/dev/vda bs=1M oflag=direct 2>/dev/null
exec 5</dev/vda # or its pages go with the last one who closes it
while :; do cat /tmp/a >/tmp/b; done & churn=$!
echo begins
told 100
dd if=/dev/vda of=/dev/null bs=64k count=384 2>/dev/null
echo "has read"
told 101
kill $churn
before=$(reads)
cmp -n 25165824 /dev/vda /tmp/a
[ $(($(reads) - before)) -lt 20 ] || { echo "compared on the drive, with $(($(reads) - before)) reads"; exit 1; }
verify /dev/vda 2 randrw 8m
dmesg | grep -iE 'vda|virtio_blk' | grep -iE 'error|timeout|reset' && exit 1
echo "all is there"
"#;
        let side = |name: &str, socket: &str, more: &[String]| {
            let folder = dir.join(name);
            std::fs::create_dir_all(&folder).context(|| text(&folder))?;
            let monitor = folder.join("qmp");
            let mut qemu = disk_at(&text(&node.socket(socket)), false, 2);
            qemu.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", text(&monitor))]);
            qemu.extend(more.iter().cloned());
            let guest = Guest { cpus: 1, net: false, qemu: &qemu, limit: 150 };
            // Pages that the guest zeroes before the drive reads into them QEMU would see itself.
            let guest = guest.start_by(env, &folder, script, &["env", "GUEST_APPEND=init_on_alloc=0"])?;
            Ok::<_, String>((guest, Monitor::connect(&monitor)?))
        };
        let (mut source, mut from) = side("source", "gold.sock", &[])?;
        let way = format!("unix:{}", text(&dir.join("way")));
        let (target, _to) = side("target", "other.sock", &["-incoming".to_owned(), way.clone()])?;
        let (_admin, cntlid) = Host::admin(node.address(), &host_nqn("gold"), 0)?;
        let mut queue = Host::io_queue(node.address(), &host_nqn("gold"), cntlid, 1)?;
        let mut tell = |mib: u32| {
            queue.send(&io(1, 1, mib << 11, 1, Data::InCapsule(&[b'x'; 512])))?;
            queue.success().map(drop)
        };
        let mut prints = |what: &str| {
            until(Duration::from_secs(100), what, || {
                ensure(source.running(), || source.stdout() + &source.stderr())?;
                Ok(source.stdout().lines().any(|line| line == what).then_some(()))
            })
        };
        prints("begins")?;
        let slow = json!({ "max-bandwidth": 60 << 20, "downtime-limit": 1 });
        from.execute("migrate-set-parameters", slow)?;
        from.execute("migrate", json!({ "uri": way }))?;
        // All of its memory was sent once.
        reaches(&mut from, "a second pass", &|now| now["ram"]["dirty-sync-count"].as_u64() >= Some(2))?;
        tell(100)?;
        prints("has read")?;
        let early = reaches(&mut from, "an answer", &|_| true)?;
        ensure(early["status"] == "active", || format!("it went before it was to: {early}"))?;
        let fast = json!({ "max-bandwidth": 4_u64 << 30, "downtime-limit": 5_000 });
        from.execute("migrate-set-parameters", fast)?;
        let last = reaches(&mut from, "the guest has gone over", &|now| now["status"] == "completed")?;
        let _ = from.execute("quit", json!({}));
        tell(101)?;
        let finished = target.wait(Duration::from_secs(150))?;
        ensure(finished.stdout.contains("all is there"), || {
            format!("{}\n{last}\n{}", finished.describe(), node.log())
        })?;
        println!("    {} passes over the memory", last["ram"]["dirty-sync-count"]);
        Ok(())
    })
}

/// What QEMU says of a migration as soon as that holds.
pub(super) fn reaches(monitor: &mut Monitor, what: &str, done: &dyn Fn(&Value) -> bool) -> Result<Value, String> {
    until(Duration::from_secs(90), what, || {
        let now = monitor.execute("query-migrate", json!({}))?;
        let over = matches!(now["status"].as_str(), Some("failed" | "cancelled"));
        ensure(done(&now) || !over, || now.to_string())?;
        Ok(done(&now).then_some(now))
    })
}
