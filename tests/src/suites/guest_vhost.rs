//! A Linux guest with a vhost-user-blk disk: split and packed rings, several queues, fio, ext4, discard.

use super::{long, test};
use crate::guest::{Guest, resize_script, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Setup, text, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_vhost";
    vec![
        test(S, "fio_split_rings", |env| fio(env, false, "32m")),
        test(S, "fio_packed_rings", |env| fio(env, true, "32m")),
        test(S, "ext4_discard_and_second_boot", ext4),
        test(S, "resized_while_running", resized),
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
