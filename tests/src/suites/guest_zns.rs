//! A stock Linux host and a zoned drive over NVMe/TCP: the kernel's zoned block device, nvme-cli, blkzone, fio with verification. And
//! over vfio-user, as a PCIe drive: the same, with zonefs.

use serde_json::Value;

use super::power::with_file_of;
use super::{long, test};
use crate::guest::{Guest, connect_script, json, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_zns";
    vec![
        test(S, "zones_of_the_kernel_and_nvme_cli", zones),
        long(S, "zones_in_a_file_outlive_the_node", outlive),
        long(S, "fio_on_zones", |env| fio(env, "", "16m")),
        long(S, "a_pcie_drive_with_zones_and_zonefs", zonefs),
        long(S, "fio_on_zones_of_flash", |env| fio(env, ", flash = \"femu-bbssd\"", "24m")),
    ]
}

/// 16 zones of 16 MiB, of which 12 can be written.
const ZONED: &str = "zone_size = \"16MiB\", zone_capacity = \"12MiB\", max_open = 4, max_active = 6, zrwa = \"64KiB\", \
                     descriptor_extension = 64";

const PRELUDE: &str = r#"
N=/dev/nvme0n1; Q=/sys/block/nvme0n1/queue
refused() { # refused WHAT COMMAND...: it must fail, and say so
  what=$1; shift
  if "$@" >/tmp/refused 2>&1; then echo "$* succeeds"; exit 1; fi
  grep -qi "$what" /tmp/refused || { echo "$*: not $what:"; cat /tmp/refused; exit 1; }
}
"#;

fn boot(env: &Env, node: &Node, script: &str) -> Result<String, String> {
    let connect = connect_script(node.port, "-i 2");
    let script = connect + PRELUDE + script + "\nnvme disconnect -n " + NQN + "\nsection end\n";
    Guest { cpus: 2, net: true, qemu: &[], limit: if env.full { 400 } else { 240 } }.run(env, &script)
}

fn with_zones(env: &Env, more: &str, test: impl FnOnce(&mut Node) -> Outcome) -> Outcome {
    let setup = Setup::default().device(&format!("block_size = 4096\nzoned = {{ {ZONED}{more} }}"));
    with_node(env, &setup, test)
}

const SCRIPT: &str = r#"
section queue; for f in zoned chunk_sectors nr_zones max_open_zones max_active_zones; do echo $f=$(cat $Q/$f); done
section id; nvme zns id-ns $N -o json
section first; nvme zns report-zones $N -d 2 -o json
dd if=/dev/urandom of=/tmp/a bs=4096 count=2 2>/dev/null; dd if=/dev/urandom of=/tmp/b bs=4096 count=2 2>/dev/null
section append; nvme zns zone-append $N -s 0x1000 -z 8192 -d /tmp/a; nvme zns zone-append $N -s 0x1000 -z 8192 -d /tmp/b
nvme read $N -s 0x1000 -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
nvme read $N -s 0x1002 -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/b /tmp/r
refused 'zone.*invalid.*write' nvme write $N -s 0x1009 -c 1 -z 8192 -d /tmp/a
refused 'boundary' nvme read $N -s 0x1fff -c 1 -z 8192 -d /tmp/r
nvme zns open-zone $N -s 0x2000
nvme zns finish-zone $N -s 0x3000
refused 'full' nvme zns zone-append $N -s 0x3000 -z 8192 -d /tmp/a
nvme write $N -s 0 -c 1 -z 8192 -d /tmp/a
nvme zns close-zone $N -s 0
section states; nvme zns report-zones $N -d 4 -o json
section changed; nvme zns changed-zone-list $N
nvme zns reset-zone $N -s 0x1000
nvme read $N -s 0x1000 -c 1 -z 8192 -d /tmp/r >/dev/null; dd if=/dev/zero bs=8192 count=1 2>/dev/null | cmp - /tmp/r
section blkzone
/t/blkzone report -c 2 $N
/t/blkzone finish -o 0x8000 -l 0x8000 $N
/t/blkzone reset $N
/t/blkzone report -c 1 $N
section last; nvme zns report-zones $N -o json
nvme zns open-zone $N -s 0 -r
nvme write $N -s 3 -c 1 -z 8192 -d /tmp/b
nvme write $N -s 0 -c 1 -z 8192 -d /tmp/a
nvme zns zrwa-flush-zone $N -l 1
section zrwa; nvme zns report-zones $N -d 1 -o json
nvme read $N -s 3 -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/b /tmp/r
# The write at block 3 made it lie in the area, which reaches from 2 to 17: a write up to 24 commits what is in front of it.
nvme write $N -s 23 -c 1 -z 8192 -d /tmp/a
section implicit; nvme zns report-zones $N -d 1 -o json
head -c 64 /dev/urandom >/tmp/x
nvme zns set-zone-desc $N -s 0x4000 -d /tmp/x
refused 'transition' nvme zns set-zone-desc $N -s 0x4000 -d /tmp/x
nvme zns report-zones $N -s 0x4000 -d 1 -e -o binary >/tmp/report
dd if=/tmp/report bs=64 skip=2 count=1 2>/dev/null | cmp - /tmp/x
section extended; nvme zns report-zones $N -s 0x4000 -d 1 -o json
"#;

fn zones(env: &Env) -> Outcome {
    with_zones(env, "", |node| {
        let out = boot(env, node, SCRIPT)?;
        let queue = section(&out, "queue")?;
        for line in
            ["zoned=host-managed", "chunk_sectors=32768", "nr_zones=16", "max_open_zones=4", "max_active_zones=6"]
        {
            ensure(queue.lines().any(|l| l == line), || format!("no {line}: {queue}"))?;
        }
        let id = json(&out, "id")?;
        ensure(id["mar"] == 5 && id["mor"] == 3 && id["zrwasz"] == 16, || format!("id-ns: {id}"))?;
        let append = section(&out, "append")?;
        ensure(append.contains("LBA 1000") && append.contains("LBA 1002"), || {
            format!("where the appends went: {append}")
        })?;
        states(&json(&out, "first")?, &["EMPTY", "EMPTY"])?;
        states(&json(&out, "states")?, &["CLOSED", "IMP_OPENED", "EXP_OPENED", "FULL"])?;
        let blkzone = section(&out, "blkzone")?;
        ensure(blkzone.contains("len 0x008000, cap 0x006000") && blkzone.contains("SEQ_WRITE_REQUIRED"), || {
            blkzone.into()
        })?;
        states(&json(&out, "last")?, &["EMPTY"; 16])?;
        let zrwa = json(&out, "zrwa")?;
        states(&zrwa, &["EXP_OPENED"])?;
        ensure(zrwa["zone_list"][0]["wp"] == 2, || format!("the flushed blocks are behind the write pointer: {zrwa}"))?;
        let implicit = json(&out, "implicit")?;
        ensure(implicit["zone_list"][0]["wp"] == 9, || format!("16 blocks before the last one written: {implicit}"))?;
        let extended = json(&out, "extended")?;
        states(&extended, &["CLOSED"])
    })
}

const FIRST_LIFE: &str = r#"
yes zones | head -c 8192 >/tmp/a; head -c 64 /tmp/a >/tmp/x
for z in 0x0000 0x1000 0x2000; do nvme zns zone-append $N -s $z -z 8192 -d /tmp/a >/dev/null; done
nvme zns finish-zone $N -s 0x1000
nvme zns reset-zone $N -s 0x2000
nvme zns open-zone $N -s 0x3000
nvme zns set-zone-desc $N -s 0x4000 -d /tmp/x
fio --name=full --filename=$N --offset=80m --size=16m --zonemode=zbd --rw=write --bs=64k --direct=1 --ioengine=psync >/dev/null
nvme flush $N
"#;

const SECOND_LIFE: &str = r#"
yes zones | head -c 8192 >/tmp/a; head -c 64 /tmp/a >/tmp/x
section found; nvme zns report-zones $N -d 6 -o json
for z in 0x0000 0x1000; do nvme read $N -s $z -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r; done
nvme read $N -s 0x2000 -c 1 -z 8192 -d /tmp/r >/dev/null; dd if=/dev/zero bs=8192 count=1 2>/dev/null | cmp - /tmp/r
nvme zns report-zones $N -s 0x4000 -d 1 -e -o binary >/tmp/report
dd if=/tmp/report bs=64 skip=2 count=1 2>/dev/null | cmp - /tmp/x
refused 'zone.*invalid.*write' nvme write $N -s 0 -c 1 -z 8192 -d /tmp/a
nvme write $N -s 2 -c 1 -z 8192 -d /tmp/a
"#;

/// Another node and a power cut later the kernel finds the zones as they were, but for those that were open.
fn outlive(env: &Env) -> Outcome {
    let keys = format!("block_size = 4096\nzoned = {{ {ZONED}, flash = \"femu-bbssd\" }}");
    with_file_of(env, "zones", ("256MiB", &keys), |_, setup| {
        with_node(env, &setup, |node| {
            boot(env, node, FIRST_LIFE)?;
            node.kill_and_start()?;
            let said = node.cli_ok(&["device", "power-cut", "ssd0"])?;
            ensure(said.contains("unsafe shutdowns so far: 2"), || said.clone())?;
            let out = boot(env, node, SECOND_LIFE)?;
            let found = json(&out, "found")?;
            states(&found, &["CLOSED", "FULL", "EMPTY", "EMPTY", "CLOSED", "FULL"])?;
            ensure(found["zone_list"][0]["wp"] == 2, || format!("what was appended is there: {found}"))
        })
    })
}

const ZONEFS: &str = r#"
i=0; while ! [ -b $N ]; do i=$((i + 1)); [ $i -lt 100 ] || { echo "no drive appears"; dmesg | tail; exit 1; }; sleep 0.1; done
section queue; for f in zoned chunk_sectors nr_zones max_open_zones max_active_zones; do echo $f=$(cat $Q/$f); done
section blkzone; /t/blkzone report -c 2 $N
section zbd
fio --name=z --filename=$N --zonemode=zbd --rw=randwrite --bs=16k --size=48m --io_size=8m --iodepth=8 --ioengine=libaio --direct=1 \
  --max_open_zones=4 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --minimal >/tmp/fio.out 2>&1 ||
  { cat /tmp/fio.out; dmesg | tail -5; exit 1; }
echo verified
/t/blkzone reset $N
section zonefs
modprobe zonefs; mkzonefs -f $N >/dev/null; mkdir -p /m; mount -t zonefs $N /m
echo files=$(ls /m/seq | wc -l)
dd if=/dev/urandom of=/tmp/a bs=64k count=8 2>/dev/null
dd if=/tmp/a of=/m/seq/3 bs=64k oflag=direct conv=notrunc 2>/dev/null
echo size=$(stat -c %s /m/seq/3)
cmp -n 524288 /tmp/a /m/seq/3 && echo same
dd if=/tmp/a of=/m/seq/3 bs=64k count=1 oflag=direct conv=notrunc 2>/tmp/refused && { echo "a file of a zone was written over"; exit 1; }
truncate -s 0 /m/seq/3; echo emptied=$(stat -c %s /m/seq/3)
truncate -s 12582912 /m/seq/4; echo full=$(stat -c %s /m/seq/4)
umount /m
section last; /t/blkzone report -o 0x20000 -c 2 $N
section kernel; dmesg | grep -iE 'nvme|zonefs' | grep -iE 'error|timeout|abort' || true
section end
"#;

fn zonefs(env: &Env) -> Outcome {
    let device = format!("block_size = 4096\nzoned = {{ {ZONED} }}");
    with_node(env, &Setup::default().device(&device).vfio("ssd0.sock", ""), |node| {
        let socket = node.socket("ssd0.sock").display().to_string();
        let drive = format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{socket}"}}}}"#);
        let guest = Guest { cpus: 2, net: false, qemu: &["-device".into(), drive], limit: 240 };
        let out = guest.run(env, &(PRELUDE.to_owned() + ZONEFS))?;
        let has = |name: &str, lines: &[&str]| -> Outcome {
            let text = section(&out, name)?;
            let missing: Vec<&&str> = lines.iter().filter(|l| !text.lines().any(|have| have.contains(**l))).collect();
            ensure(missing.is_empty(), || format!("{name} has no {missing:?}: {out}"))
        };
        has(
            "queue",
            &["zoned=host-managed", "chunk_sectors=32768", "nr_zones=16", "max_open_zones=4", "max_active_zones=6"],
        )?;
        has("blkzone", &["len 0x008000, cap 0x006000"])?;
        has("zbd", &["verified"])?;
        has("zonefs", &["files=15", "size=524288", "same", "emptied=0", "full=12582912"])?;
        // Zone 4 is the file 3: emptied is reset, and the next is full.
        let last = section(&out, "last")?;
        let mut zones = last.lines().filter(|l| l.contains("start:"));
        ensure(
            zones.next().is_some_and(|z| z.contains("(em)")) && zones.next().is_some_and(|z| z.contains("(fu)")),
            || format!("zones 4 and 5: {out}"),
        )?;
        ensure(section(&out, "kernel")?.trim().is_empty(), || format!("the kernel complains: {out}"))
    })
}

fn states(report: &Value, expected: &[&str]) -> Outcome {
    let zones = report["zone_list"].as_array().cloned().unwrap_or_default();
    let found: Vec<&str> = zones.iter().map(|z| z["state"].as_str().unwrap_or_default()).collect();
    let same = found.len() >= expected.len() && found.iter().zip(expected).all(|(f, e)| f.replace('-', "_") == **e);
    ensure(same, || format!("zones are {found:?} instead of {expected:?}: {report}"))
}

fn fio(env: &Env, more: &str, size: &str) -> Outcome {
    with_zones(env, more, |node| {
        let out = boot(
            env,
            node,
            &format!(
                r#"
zbd() {{ # zbd NAME RW BS: written within the limits of zones, read back, checksums compared
  fio --name=$1 --filename=$N --zonemode=zbd --rw=$2 --bs=$3 --size={size} --io_size={size} --iodepth=8 --ioengine=libaio --direct=1 \
    --max_open_zones=4 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --minimal >/tmp/fio.out 2>&1 ||
    {{ cat /tmp/fio.out; dmesg | tail -5; echo "fio $1 failed"; exit 1; }}
  grep -iE 'verify|error' /tmp/fio.out && {{ echo "fio $1 complains"; exit 1; }}
  echo "fio $1 verified"
}}
zbd sequential write 64k
nvme zns reset-zone $N -a
zbd random randwrite 16k
section kernel
dmesg | grep -iE 'nvme.*(timeout|error|fail|invalid)' || true
"#
            ),
        )?;
        ensure(out.matches(" verified").count() == 2, || out.clone())?;
        let kernel = section(&out, "kernel")?;
        ensure(!kernel.contains("timeout"), || format!("the kernel complains: {kernel}"))
    })
}
