//! A drive on the PCI bus that the program has to itself, by vfio-pci: a Linux guest with an emulated IOMMU and QEMU's NVMe drive, in which
//! the program runs. Linux reads what it has written, and the other way round.

use super::{long, test};
use crate::guest::{Guest, json, section};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use std::path::{Path, PathBuf};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_pci";
    vec![
        test(S, "a_drive_is_bound_used_and_given_back", used),
        long(S, "a_drive_that_cannot_be_had_is_explained", refused),
        long(S, "a_node_on_a_drive_is_killed_and_upgraded", killed),
        long(S, "a_drive_that_is_pulled_comes_back", pulled),
        long(S, "two_drives_hold_two_copies_through_kills_and_a_pull", two_drives),
    ]
}

/// The program on a drive of 64 MiB at 0000:00:10.0; `vfio` loads what it takes to have it.
const PRELUDE: &str = r#"
A=0000:00:10.0; D=/sys/bus/pci/devices/$A
vfio() { for m in /t/irqbypass.ko /t/vfio.ko /t/vfio_iommu_type1.ko /t/vfio-pci-core.ko /t/vfio-pci.ko; do insmod $m; done; }
weir() { /t/weir "$@"; }
refused() { # refused WHAT COMMAND...: it must fail, and say so
  what=$1; shift
  if "$@" >/tmp/refused 2>&1; then echo "$* succeeds"; exit 1; fi
  grep -q "$what" /tmp/refused || { echo "$*: not $what:"; cat /tmp/refused; exit 1; }
}
disk() { i=0; while ! [ -b $1 ]; do i=$((i + 1)); [ $i -lt 300 ] || { echo "no $1"; dmesg | tail; exit 1; }; sleep 0.1; done; }
bound() { [ $(basename $(readlink $D/driver)) = $1 ] || { echo "$A has $(readlink $D/driver), not $1"; exit 1; }; }
unharmed() { dmesg | grep -E 'DMAR.*[Ff]ault|BUG:|Oops' && exit 1; true; }
"#;

fn boot(env: &Env, iommu: bool, script: &str) -> Result<String, String> {
    let qemu = machine(&env.folder()?, iommu)?;
    guest(env, &qemu).run(env, &whole(script))
}

fn guest<'a>(env: &Env, qemu: &'a [String]) -> Guest<'a> {
    Guest { cpus: 2, net: true, qemu, limit: if env.full { 400 } else { 240 } }
}

fn whole(script: &str) -> String {
    format!("{PRELUDE}{script}\nsection end\n")
}

/// QEMU's arguments, with the drive's image in a folder, and what is written to its CC in another file there.
fn machine(dir: &Path, iommu: bool) -> Result<Vec<String>, String> {
    let disk = dir.join("disk");
    let file = std::fs::File::create(&disk).context(|| disk.display().to_string())?;
    file.set_len(64 << 20).context(|| disk.display().to_string())?;
    let mut qemu: Vec<String> = vec![
        "-drive".into(),
        format!("file={},if=none,id=d0,format=raw,cache=unsafe", disk.display()),
        "-device".into(),
        "nvme,id=n0,serial=real,addr=10.0".into(),
        "-device".into(),
        // Without a UUID of its own Linux calls its identifiers bogus, and the drive would not be known again.
        "nvme-ns,drive=d0,bus=n0,uuid=7d444840-9dc0-11d1-b245-5ffdce74fad2".into(),
    ];
    if iommu {
        qemu.extend(["-device".into(), "intel-iommu,intremap=on".into()]);
    }
    qemu.extend(["-D".into(), trace(dir).display().to_string(), "-trace".into(), "pci_nvme_mmio_cfg".into()]);
    Ok(qemu)
}

/// The same with a second drive, at 0000:00:11.0.
fn machine_of_two(dir: &Path) -> Result<Vec<String>, String> {
    let disk = dir.join("second");
    let file = std::fs::File::create(&disk).context(|| disk.display().to_string())?;
    file.set_len(64 << 20).context(|| disk.display().to_string())?;
    let mut qemu = machine(dir, true)?;
    qemu.extend([
        "-drive".into(),
        format!("file={},if=none,id=d1,format=raw,cache=unsafe", disk.display()),
        "-device".into(),
        "nvme,id=n1,serial=second,addr=11.0".into(),
        "-device".into(),
        "nvme-ns,drive=d1,bus=n1,uuid=0c4a37f1-5a52-4d8e-9b16-6d8f7c1f2b90".into(),
    ]);
    Ok(qemu)
}

fn trace(dir: &Path) -> PathBuf {
    dir.join("qemu.log")
}

/// How often CC was written, by whom ever.
fn cc_writes(dir: &Path) -> Result<usize, String> {
    let path = trace(dir);
    let text = std::fs::read_to_string(&path).context(|| path.display().to_string())?;
    Ok(text.lines().filter(|line| line.contains("pci_nvme_mmio_cfg")).count())
}

/// The drive goes from Linux to the program and back, and has what each wrote.
const USED: &str = r#"
vfio
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
dd if=/tmp/a of=/dev/nvme0n1 bs=1M oflag=direct 2>/dev/null
section before; weir device ls --pci --json
refused 'the driver nvme has it, not vfio-pci; run weir device bind' weir bench pci:$A --time 100ms
section bind; weir device bind $A; bound vfio-pci; [ ! -e /dev/nvme0n1 ]
section bound; weir device ls --pci
section verify; weir bench pci:$A --rw randrw --bs 4KiB:60/16KiB:30/128KiB:10 --qd 16 --region 16MiB+32MiB --verify crc32c --time 2s --json
section two; weir bench pci:$A --job name=a,rw=randread,qd=8 --job name=b,rw=randread,bs=64KiB,qd=2 --time 500ms --json
section calibrate; weir calibrate pci:$A --sizes 4KiB --mixes 100 --depth 8 --time 100ms --force --json
section back; weir device unbind $A; bound nvme; disk /dev/nvme0n1
dd if=/dev/nvme0n1 bs=1M count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
unharmed
"#;

fn used(env: &Env) -> Outcome {
    let out = boot(env, true, USED)?;
    let before = json(&out, "before")?;
    ensure(before[0]["driver"] == "nvme" && before[0]["namespaces"][0] == "nvme0n1", || format!("before: {before}"))?;
    ensure(before[0]["iommu_group"].is_u64(), || format!("no IOMMU group: {before}"))?;
    let bound = section(&out, "bound")?;
    ensure(bound.contains("0000:00:10.0  1b36:0010  vfio-pci"), || format!("bound: {bound}"))?;
    let verify = json(&out, "verify")?;
    let total = &verify["total"];
    ensure(total["iops"].as_f64() > Some(0.0) && total["errors"] == 0, || format!("verify: {total}"))?;
    let two = json(&out, "two")?;
    let jobs = two["jobs"].as_array().map_or(0, Vec::len);
    ensure(jobs == 2, || format!("two jobs share the drive: {two}"))?;
    json(&out, "calibrate").map(drop)
}

/// What can be wrong, each with what to do.
const REFUSED: &str = r#"
section unbound
refused 'no vfio-pci driver; run modprobe vfio-pci' weir device bind $A
vfio
/bin/mkfs.ext4 -q -F /dev/nvme0n1; mount /dev/nvme0n1 /mnt
refused '/dev/nvme0n1 is mounted at /mnt; end that first' weir device bind $A
umount /mnt
refused 'there is no such PCI device' weir device bind 0000:00:19.0
refused 'no NVMe drive (class' weir device bind 0000:00:00.0
refused 'the driver nvme has the drive' weir device unbind $A
weir device bind $A
refused 'there is no namespace 9' weir bench 'pci:'$A'?ns=9' --time 100ms
/t/weir bench pci:$A --time 20s >/tmp/first 2>&1 & first=$!
i=0; while ! ls -l /proc/$first/fd 2>/dev/null | grep -q '/dev/vfio/[0-9]'; do i=$((i + 1)); [ $i -lt 200 ] || { cat /tmp/first; exit 1; }; sleep 0.1; done
refused 'a program uses the drive' weir device unbind $A
refused 'another program uses the drive' weir bench pci:$A --time 100ms
kill -9 $first
section after; weir bench pci:$A --rw randwrite --verify crc32c --region 8MiB --time 500ms --json
unharmed
"#;

const WITHOUT_IOMMU: &str = r#"
vfio
refused 'no IOMMU switched on.*intel_iommu=on' weir device bind $A
bound nvme
"#;

fn refused(env: &Env) -> Outcome {
    let out = boot(env, true, REFUSED)?;
    let after = json(&out, "after")?;
    ensure(after["total"]["errors"] == 0, || format!("after a kill: {after}"))?;
    boot(env, false, WITHOUT_IOMMU).map(drop)
}

/// A node serves the drive to this machine's own NVMe/TCP host.
const NODE: &str = r#"
vfio
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
dd if=/tmp/a of=/dev/nvme0n1 bs=1M seek=60 oflag=direct 2>/dev/null
weir device bind $A
cat >/tmp/weir.toml <<E
[node]
name = "g"
[[device]]
name = "ssd0"
media = "pci:$A"
[[tenant]]
name = "all"
hosts = ["*"]
[[export]]
device = "ssd0"
door = "nvme-tcp"
E
serving() { i=0; while ! weir status >/tmp/status 2>&1; do i=$((i + 1)); [ $i -lt 300 ] || { cat /tmp/status /tmp/up.out; exit 1; }; sleep 0.1; done; }
up() { WEIR_LOG=weir_sys=info /t/weir up -c /tmp/weir.toml >/tmp/up.out 2>&1 & up=$!; serving; }
up
nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.io.weir:g:ssd0 -i 1 -c 1
N=/dev/nvme0n1; [ -e /dev/nvme1 ] && N=/dev/nvme1n1
disk $N
dd if=$N bs=1M skip=60 count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
load() { (verify $N 1 randrw ${1}m && echo loaded) >/tmp/load.out 2>&1 & load=$!; }
loaded() { wait $load && grep -q loaded /tmp/load.out || { cat /tmp/load.out; tail /tmp/up.out; dmesg | tail; exit 1; }; }
ended() {
  nvme disconnect -n nqn.2026-11.io.weir:g:ssd0 >/dev/null; weir shutdown >/dev/null
  i=0; while ! weir device unbind $A >/tmp/why 2>&1; do i=$((i + 1)); [ $i -lt 100 ] || { cat /tmp/why; exit 1; }; sleep 0.1; done
  disk /dev/nvme0n1
  dd if=/dev/nvme0n1 bs=1M skip=60 count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
  unharmed
}
"#;

const KILLED: &str = r#"
section served
load 24
for n in 1 2 3; do sleep 1; kill -0 $load; kill -9 $(ps | grep '[/]t/weir worker' | tail -1 | awk '{print $1}'); sleep 0.3; serving; done
loaded
section killed; cat /tmp/load.out
load 24
sleep 1; kill -0 $load; weir upgrade --binary /t/weir --probation 1s
loaded
section upgraded; cat /tmp/load.out
section taken; grep -c 'goes on without a reset' /tmp/up.out || cat /tmp/up.out
section restarted
weir shutdown >/dev/null
i=0; while kill -0 $up 2>/dev/null; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done
sed -i 's/^media.*/media = "pci:'$A'?interrupts=on"/' /tmp/weir.toml
up
sleep 1
section again
load 24
sleep 1; kill -0 $load; kill -9 $(ps | grep '[/]t/weir worker' | tail -1 | awk '{print $1}'); sleep 0.3; serving
loaded
section interrupted; cat /tmp/load.out; grep -c 'goes on without a reset' /tmp/up.out || cat /tmp/up.out
section vectors; grep vfio-msix /proc/interrupts
ended
"#;

/// Workers die and are replaced, and the controller is told nothing of it.
fn killed(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let (qemu, script, mut writes) = (machine(&dir, true)?, whole(&format!("{NODE}{KILLED}")), Vec::new());
    let marks = ["=== served", "=== taken", "=== again", "=== interrupted"];
    let out = guest(env, &qemu).run_along(env, &script, &marks, |_| {
        writes.push(cc_writes(&dir)?);
        Ok(())
    })?;
    for part in ["killed", "upgraded", "interrupted"] {
        let part = section(&out, part)?;
        ensure(part.contains("verified"), || format!("the load: {part}"))?;
    }
    let count = section(&out, "taken")?;
    ensure(count.trim() == "4", || format!("workers that went on without a reset: {count}"))?;
    let count = section(&out, "interrupted")?;
    ensure(count.trim().ends_with("\n1"), || format!("a worker that went on without a reset: {count}"))?;
    let vectors = section(&out, "vectors")?;
    let raised = vectors.lines().filter(|line| line.contains("vfio-msix[1]")).flat_map(str::split_whitespace);
    let raised: u64 = raised.filter_map(|word| word.parse::<u64>().ok()).sum();
    ensure(raised > 100, || format!("the drive raised its vector {raised} times: {vectors}"))?;
    // Between nodes it is shut down and enabled.
    let quiet = writes[0] > 0 && writes[0] == writes[1] && writes[1] < writes[2] && writes[2] == writes[3];
    ensure(quiet, || format!("writes to CC until each of {marks:?}: {writes:?}"))
}

/// Linux takes the drive off the bus under load and finds it again.
const PULLED: &str = r#"
load 24
sleep 1; kill -0 $load
begun=$(cut -d' ' -f1 /proc/uptime)
echo 1 >$D/remove
echo "removed between $begun and $(cut -d' ' -f1 /proc/uptime) s"
[ ! -e $D ]
weir status >/tmp/status; grep -q ssd0 /tmp/status
sleep 1
echo 1 >/sys/bus/pci/rescan
i=0; while ! weir device bind $A >/tmp/why 2>&1; do i=$((i + 1)); [ $i -lt 100 ] || { cat /tmp/why; exit 1; }; sleep 0.1; done
loaded
section pulled; cat /tmp/load.out; weir device ls --json
ended
"#;

fn pulled(env: &Env) -> Outcome {
    let out = boot(env, true, &format!("{NODE}{PULLED}"))?;
    let part = section(&out, "pulled")?;
    ensure(part.contains("verified"), || format!("the load: {part}"))?;
    let link = &json(&out, "pulled")?[0]["link"];
    ensure(link["outages"].as_u64() == Some(1), || format!("one outage is counted: {link}"))
}

/// A pool of two drives with a volume that lies on both; a standby waits beside the worker. Linux takes one of them off the bus. Once it is there again, an
/// upgrade to the same program has the pool take it in.
const TWO: &str = r#"
B=0000:00:11.0
vfio
weir device bind $A; weir device bind $B
cat >/tmp/weir.toml <<E
[node]
name = "g"
standby = true
[[device]]
name = "ssd0"
media = "pci:$A"
[[device]]
name = "ssd1"
media = "pci:$B?interrupts=on"
[[tenant]]
name = "all"
hosts = ["*"]
[[pool]]
drives = ["ssd0", "ssd1"]
copies = 2
[[volume]]
name = "work"
size = "40MiB"
export = "nvme-tcp"
E
serving() { i=0; while ! weir status >/tmp/status 2>&1; do i=$((i + 1)); [ $i -lt 300 ] || { cat /tmp/status /tmp/up.out; exit 1; }; sleep 0.1; done; }
worker() { ps | grep '[/]t/weir worker' | head -1 | awk '{print $1}'; }
WEIR_LOG=weir_sys=info /t/weir up -c /tmp/weir.toml >/tmp/up.out 2>&1 & serving
nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.io.weir:g:work -i 1 -c 1
N=/dev/nvme0n1; disk $N
load() { (verify $N 1 randrw ${1}m && echo loaded) >/tmp/load.out 2>&1 & load=$!; }
loaded() { wait $load && grep -q loaded /tmp/load.out || { cat /tmp/load.out; tail /tmp/up.out; dmesg | tail; exit 1; }; }
weir pool status --check
load 24
for n in 1 2; do sleep 1; kill -0 $load; kill -9 $(worker); sleep 0.3; serving; done
loaded
section killed; cat /tmp/load.out; grep -c 'goes on without a reset' /tmp/up.out || cat /tmp/up.out
load 24
sleep 1; kill -0 $load; weir upgrade --binary /t/weir --probation 1s
loaded
section upgraded; cat /tmp/load.out; grep -c 'goes on without a reset' /tmp/up.out || cat /tmp/up.out
load 24
sleep 1; kill -0 $load; echo 1 >/sys/bus/pci/devices/$B/remove
loaded
section pulled; cat /tmp/load.out; weir pool status
echo 1 >/sys/bus/pci/rescan
i=0; while ! weir device bind $B >/tmp/why 2>&1; do i=$((i + 1)); [ $i -lt 100 ] || { cat /tmp/why; exit 1; }; sleep 0.1; done
weir upgrade --binary /t/weir --probation 1s
whole() { i=0; while ! weir pool status --check >/tmp/pool 2>&1; do i=$((i + 1)); [ $i -lt 600 ] || { cat /tmp/pool; tail /tmp/up.out; exit 1; }; sleep 0.1; done; }
whole
load 24
loaded
section whole; cat /tmp/load.out
weir pool scrub; i=0; while ! weir pool status | grep 'SCRUB has ended'; do i=$((i + 1)); [ $i -lt 600 ] || exit 1; sleep 0.1; done
weir pool status --check
nvme disconnect -n nqn.2026-11.io.weir:g:work >/dev/null; weir shutdown >/dev/null
for d in $A $B; do i=0; while ! weir device unbind $d >/tmp/why 2>&1; do i=$((i + 1)); [ $i -lt 100 ] || { cat /tmp/why; exit 1; }; sleep 0.1; done; done
unharmed
"#;

fn two_drives(env: &Env) -> Outcome {
    let qemu = machine_of_two(&env.folder()?)?;
    let out = guest(env, &qemu).run(env, &whole(TWO))?;
    let part = |name| section(&out, name);
    for name in ["killed", "upgraded", "pulled", "whole"] {
        ensure(part(name)?.contains("verified"), || format!("the load of {name}: {out}"))?;
    }
    // Of each drive by each new worker.
    for (name, count) in [("killed", "4"), ("upgraded", "6")] {
        let part = part(name)?;
        ensure(part.lines().any(|line| line == count), || format!("not {count} without a reset until {name}: {part}"))?;
    }
    let pulled = part("pulled")?;
    ensure(pulled.contains("DEGRADED drive ssd1") && pulled.contains("ONE COPY volume work"), || pulled.into())?;
    let whole = part("whole")?;
    let is_same = whole.contains("SCRUB has ended: 40MiB compared, 0B differ, 0B could not be read");
    ensure(is_same, || format!("the copies: {whole}"))
}
