//! A Linux guest with a PCIe drive over vfio-user: its own nvme driver, one and four CPUs, poll queues, resets with I/O in
//! flight, unbind and bind, removal and rescan, hot plug. (QEMU 11.1 ends with an assertion of its own at `device_del` of any vfio-user device.)

use std::path::Path;

use serde_json::{Value, json};

use super::{long, test};
use crate::guest::{Guest, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text, with_node};
use crate::qmp::Monitor;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_vfio";
    vec![
        long(S, "one_cpu_resets_and_a_file_system", one_cpu),
        test(S, "four_cpus_poll_queues_and_trapped_doorbells", four_cpus),
        long(S, "subsystem_reset_and_memory_buffer", subsystem_reset),
        long(S, "plugged_while_running", plugged),
        long(S, "upgrades_under_io", upgrades),
    ]
}

/// QEMU's device for a drive on `socket`.
pub(super) fn device(socket: &str) -> Value {
    json!({ "driver": "vfio-user-pci", "id": "drive", "socket": { "type": "unix", "path": socket } })
}

fn boot(env: &Env, cpus: u32, node: &Node, script: &str) -> Result<String, String> {
    let qemu = ["-device".to_owned(), device(&text(&node.socket("ssd0.sock"))).to_string()];
    Guest { cpus, net: false, qemu: &qemu, limit: 120 }.run(env, script)
}

/// Shell functions of these tests.
const SHELL: &str = r#"
D=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
drive() { # waits until the drive is there
  i=0; while ! [ -b /dev/nvme0n1 ]; do
    i=$((i + 1)); [ $i -lt 100 ] || { echo "no drive appears"; dmesg | tail; exit 1; }; sleep 0.1
  done
}
live() { # waits until its controller is
  i=0; while [ "$(cat /sys/class/nvme/nvme0/state)" != live ]; do
    i=$((i + 1)); [ $i -lt 100 ] || { echo "the controller is $(cat /sys/class/nvme/nvme0/state)"; dmesg | tail; exit 1; }; sleep 0.1
  done
}
complaints() { # what the kernel has against the drive
  dmesg | grep -iE 'nvme' | grep -iE 'error|timeout|abort|fail|unexpected' || true
}
under() { # under COMMAND...: runs it while fio writes and verifies
  fio --name=u --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=8m --offset=64m --iodepth=16 --ioengine=libaio --direct=1 \
    --verify=crc32c --verify_fatal=1 --time_based --runtime=3 --minimal >/tmp/under.out 2>&1 & F=$!
  sleep 1; "$@"; sleep 0.5; "$@"
  wait $F || { cat /tmp/under.out; echo "fio failed under $*"; exit 1; }
  live; echo "under $*: fine"
}
"#;

fn one_cpu(env: &Env) -> Outcome {
    with_node(env, &Setup::default().vfio("ssd0.sock", ""), |node| {
        let script = SHELL.to_owned()
            + r#"
drive
section driver; readlink -f /sys/bus/pci/devices/$D/driver
section class; cat /sys/bus/pci/devices/$D/class
section id-ctrl; nvme id-ctrl /dev/nvme0 | grep cntlid
section interrupts; grep nvme /proc/interrupts
section io
verify /dev/nvme0n1 1 randwrite 6m
verify /dev/nvme0n1 1 randrw 6m
section resets
under nvme reset /dev/nvme0
under sh -c "echo 1 >/sys/bus/pci/devices/$D/reset"
nvme id-ctrl /dev/nvme0 | grep cntlid
section unbind
echo marked | dd of=/dev/nvme0n1 bs=512 count=1 conv=sync oflag=direct 2>/dev/null
for turn in 1 2 3; do
  echo $D >/sys/bus/pci/drivers/nvme/unbind
  [ -b /dev/nvme0n1 ] && { echo "a drive without a driver"; exit 1; }
  echo $D >/sys/bus/pci/drivers/nvme/bind; drive
  head -c 6 /dev/nvme0n1
done; echo
section removed
complaints >/tmp/complaints
fio --name=r --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=16 --ioengine=libaio --direct=1 --time_based --runtime=30 --minimal >/dev/null 2>&1 & F=$!
sleep 1; echo 1 >/sys/bus/pci/devices/$D/remove
wait $F && { echo "fio noticed nothing"; exit 1; }
[ -b /dev/nvme0n1 ] && { echo "a drive after its removal"; exit 1; }
dmesg -c >/dev/null # of the reads that were cut off
echo 1 >/sys/bus/pci/rescan; drive; live
head -c 6 /dev/nvme0n1
verify /dev/nvme0n1 1 randwrite 4m
section filesystem
filesystem /dev/nvme0n1
section kernel
cat /tmp/complaints; complaints
section end
"#;
        let out = boot(env, 1, node, &script)?;
        let is = |name: &str, what: &str| section(&out, name).is_ok_and(|s| s.contains(what));
        ensure(is("driver", "/drivers/nvme") && is("class", "0x010802"), || {
            format!("the nvme driver, by class: {out}")
        })?;
        ensure(is("interrupts", "nvme0q0") && is("interrupts", "nvme0q1"), || format!("two vectors: {out}"))?;
        ensure(is("removed", "marked"), || format!("the same drive after its removal: {out}"))?;
        ensure(out.matches(" verified").count() == 3 && out.matches(": fine").count() == 2, || out.clone())?;
        ensure(section(&out, "unbind")?.matches("marked").count() == 3, || {
            format!("the same drive after unbind: {out}")
        })?;
        ensure(is("filesystem", "files equal"), || out.clone())?;
        ensure(section(&out, "kernel")?.trim().is_empty(), || format!("the kernel complains: {out}"))?;
        // Whoever comes next finds it again: the same data, a controller as after power-on.
        let cntlid = |out: &str| out.lines().filter(|l| l.starts_with("cntlid")).map(str::to_owned).collect::<Vec<_>>();
        let first = cntlid(&out);
        ensure(first.len() == 2 && first[0] == first[1], || {
            format!("one identifier before and after resets: {first:?}")
        })?;
        let out = boot(
            env,
            1,
            node,
            "/bin/e2fsck -f -n /dev/nvme0n1 && echo clean; nvme id-ctrl /dev/nvme0 | grep cntlid\n",
        )?;
        ensure(out.contains("clean") && cntlid(&out).first() == first.first(), || format!("a second boot: {out}"))
    })
}

/// The kernel finds the controller memory buffer (and uses it where it has CONFIG_PCI_P2PDMA, else it says that it cannot). After a
/// reset of the NVM subsystem under I/O, of which nothing tells the driver, its timeout resets the controller and repeats what was lost.
fn subsystem_reset(env: &Env) -> Outcome {
    with_node(env, &Setup::default().device("cmb = \"4MiB\"").vfio("ssd0.sock", ""), |node| {
        let script = SHELL.to_owned()
            + r#"
drive
section buffer; dmesg | grep 'register the CMB' || cat /sys/class/nvme/nvme0/cmb
awk '$1 != "0x0000000000000000" { print NR - 1, $1, $2 }' /sys/bus/pci/devices/$D/resource
verify /dev/nvme0n1 1 randwrite 2m
section reset
for t in /sys/class/nvme/nvme0/nvme0*/queue/io_timeout /sys/block/nvme0n1/queue/io_timeout; do [ -e $t ] && echo 2000 >$t; done
fio --name=u --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=8m --offset=64m --iodepth=16 --ioengine=libaio --direct=1 \
  --verify=crc32c --verify_fatal=1 --time_based --runtime=3 --minimal >/tmp/under.out 2>&1 & F=$!
sleep 1; nvme subsystem-reset /dev/nvme0
wait $F || { cat /tmp/under.out; dmesg | tail; echo "fio failed over a reset of the subsystem"; exit 1; }
live; echo "reset under I/O"
verify /dev/nvme0n1 1 randwrite 2m
section end
"#;
        let out = boot(env, 1, node, &script)?;
        let buffer = section(&out, "buffer")?;
        ensure(buffer.contains("register the CMB") || buffer.contains("cmbloc"), || format!("no buffer: {out}"))?;
        // BAR 2 is there.
        ensure(buffer.lines().any(|l| l.starts_with("2 0x")), || format!("no BAR 2: {out}"))?;
        ensure(out.contains("reset under I/O") && out.matches(" verified").count() == 2, || out.clone())
    })
}

fn four_cpus(env: &Env) -> Outcome {
    with_node(env, &Setup::default().vfio("ssd0.sock", "doorbells = \"trap\""), |node| {
        let script = SHELL.to_owned()
            + r#"
drive
section queues; dmesg | grep 'default/read/poll'
section io
fio --name=v --filename=/dev/nvme0n1 --rw=randwrite --bs=4k --size=4m --offset_increment=8m --iodepth=8 --ioengine=libaio --direct=1 \
  --verify=crc32c --verify_fatal=1 --numjobs=4 --cpus_allowed_policy=split --cpus_allowed=0-3 --minimal >/tmp/fio.out 2>&1 || { cat /tmp/fio.out; exit 1; }
echo "four jobs verified"
section interrupts; grep nvme /proc/interrupts | awk '{ n = 0; for (i = 2; i <= 5; i++) n += $i; print $NF, (n > 0) }'
section poll
echo 2 >/sys/module/nvme/parameters/poll_queues
echo $D >/sys/bus/pci/drivers/nvme/unbind; echo $D >/sys/bus/pci/drivers/nvme/bind; drive
dmesg | grep 'default/read/poll' | tail -1
fio --name=p --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=4m --ioengine=pvsync2 --hipri --direct=1 \
  --verify=crc32c --verify_fatal=1 --minimal >/tmp/fio.out 2>&1 || { cat /tmp/fio.out; exit 1; }
echo "polled and verified"
section kernel
complaints
section end
"#;
        let out = boot(env, 4, node, &script)?;
        ensure(section(&out, "queues")?.contains("4/0/0 default/read/poll queues"), || format!("four queues: {out}"))?;
        ensure(out.contains("four jobs verified"), || out.clone())?;
        let used = section(&out, "interrupts")?.lines().filter(|l| l.ends_with(" 1")).count();
        ensure(used == 5, || format!("each of five vectors fired: {out}"))?;
        let poll = section(&out, "poll")?;
        ensure(poll.contains("/2 default/read/poll queues") && poll.contains("polled and verified"), || out.clone())?;
        ensure(section(&out, "kernel")?.trim().is_empty(), || format!("the kernel complains: {out}"))
    })
}

/// Plugs a drive in, while the guest waits for it.
fn plug(monitor: &Path, socket: &Path) -> Outcome {
    let mut monitor = Monitor::connect(monitor)?;
    let mut arguments = device(&text(socket));
    arguments["bus"] = json!("slot0");
    monitor.execute("device_add", arguments).map(drop)
}

fn plugged(env: &Env) -> Outcome {
    with_node(env, &Setup::default().vfio("ssd0.sock", ""), |node| {
        let monitor = node.socket("qmp.sock");
        let qemu = [
            "-device".to_owned(),
            "pcie-root-port,id=slot0,chassis=1,slot=1".into(),
            "-qmp".into(),
            format!("unix:{},server=on,wait=off", monitor.display()),
        ];
        let script = r#"
[ -b /dev/nvme0n1 ] && { echo "a drive before it is plugged in"; exit 1; }
echo waiting
i=0; while ! [ -b /dev/nvme0n1 ]; do i=$((i + 1)); [ $i -lt 300 ] || { echo "none comes"; dmesg | tail; exit 1; }; sleep 0.1; done
verify /dev/nvme0n1 1 randwrite 4m
"#;
        let guest = Guest { cpus: 1, net: false, qemu: &qemu, limit: 120 };
        let out = guest.run_with(env, script, "waiting", || plug(&monitor, &node.socket("ssd0.sock")))?;
        ensure(out.contains(" verified"), || out.clone())
    })
}

/// The program is replaced five times while the guest writes and verifies: its kernel has nothing to say.
fn upgrades(env: &Env) -> Outcome {
    let setup = Setup { node: "keeper = true".into(), ..Setup::default().vfio("ssd0.sock", "") };
    with_node(env, &setup, |node| {
        let script = SHELL.to_owned()
            + r#"
drive
section io
fio --name=u --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=8m --offset=64m --iodepth=16 --ioengine=libaio --direct=1 \
  --verify=crc32c --verify_fatal=1 --time_based --runtime=12 --minimal >/tmp/under.out 2>&1 & F=$!
sleep 1; echo under load
wait $F || { cat /tmp/under.out; dmesg | tail; echo "fio failed"; exit 1; }
live; echo "fio ended well"
nvme reset /dev/nvme0; live
verify /dev/nvme0n1 1 randwrite 2m
section kernel
complaints
section end
"#;
        let qemu = ["-device".to_owned(), device(&text(&node.socket("ssd0.sock"))).to_string()];
        let guest = Guest { cpus: 2, net: false, qemu: &qemu, limit: 120 };
        let out = guest.run_with(env, &script, "under load", || {
            (0..5).try_for_each(|_| node.cli_ok(&["upgrade", "--probation", "0s"]).map(|_| ()))
        })?;
        ensure(out.contains("fio ended well") && out.contains(" verified"), || out.clone())?;
        ensure(section(&out, "kernel")?.trim().is_empty(), || format!("the kernel complains: {out}"))
    })
}
