//! nvme-cli in a Linux guest makes, formats, attaches and protects namespaces, over NVMe/TCP and on a PCIe drive over vfio-user; what
//! each command has changed is looked at, and the kernel's driver uses the result.

use serde_json::Value;

use super::{long, test};
use crate::guest::{Guest, connect_script, json, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Setup, text, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_ns";
    vec![
        test(S, "management_and_formats_over_tcp", over_tcp),
        long(S, "separate_metadata_over_vfio_user", over_vfio_user),
    ]
}

/// Shell functions of these tests.
const SHELL: &str = r#"
C=/dev/nvme0; I=$(cat /sys/class/nvme/nvme0/cntlid)
st() { # st COMMAND...: "ok", or the status that nvme-cli was given
  if "$@" >/tmp/st 2>&1; then echo ok; else grep -o '(0x[0-9a-f]*)' /tmp/st | head -1 || cat /tmp/st; fi
}
there() { # there DEVICE BYTES: waits until it is there, and so large
  i=0; while ! [ -b $1 ] || [ "$(/bin/busybox blockdev --getsize64 $1)" != $2 ]; do
    i=$((i + 1)); [ $i -lt 100 ] || { echo "no $1 of $2 bytes"; ls /dev/nvme*; dmesg | tail; exit 1; }; sleep 0.1
  done
}
gone() {
  i=0; while [ -b $1 ]; do i=$((i + 1)); [ $i -lt 100 ] || { echo "$1 stays"; exit 1; }; sleep 0.1; done
}
MIB=1048576
"#;

const MANAGE: &str = r#"
section ctrl; nvme id-ctrl $C -o json
section deleted; st nvme delete-ns $C -n 1; gone /dev/nvme0n1
section empty; nvme list-ns $C --all -o json
section room; nvme id-ctrl $C -o json
section created
nvme create-ns $C --nsze=25600 --ncap=25600 --flbas=1 --nmic=1
nvme create-ns $C --nsze=204800 --ncap=204800 --flbas=0 --nmic=1
nvme create-ns $C --nsze=81920 --ncap=81920 --flbas=0
section refused
st nvme create-ns $C --nsze=81920 --ncap=81920 --flbas=0
st nvme create-ns $C --nsze=8 --ncap=8 --flbas=9
st nvme create-ns $C --nsze=9 --ncap=8 --flbas=0
st nvme attach-ns $C -n 2 -c 999
st nvme detach-ns $C -n 2 -c $I
st nvme attach-ns $C -n 77 -c $I
section allocated; nvme list-ns $C --all -o json
section active; nvme list-ns $C -o json
section attached
for n in 1 2; do st nvme attach-ns $C -n $n -c $I; done
st nvme attach-ns $C -n 2 -c $I
there /dev/nvme0n1 $((100 * MIB)); there /dev/nvme0n2 $((100 * MIB))
section controllers; nvme list-ctrl $C -n 1 -o json
section fragmented
st nvme detach-ns $C -n 1 -c $I; gone /dev/nvme0n1
st nvme delete-ns $C -n 1
nvme create-ns $C --nsze=225280 --ncap=225280 --flbas=0 --nmic=1
st nvme attach-ns $C -n 1 -c $I
there /dev/nvme0n1 $((110 * MIB))
head -c 65536 /dev/zero >/tmp/z; dd if=/dev/nvme0n1 bs=65536 count=1 skip=1600 iflag=direct 2>/dev/null | cmp - /tmp/z
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
dd if=/tmp/a of=/dev/nvme0n1 bs=1M seek=98 oflag=direct 2>/dev/null
dd if=/dev/nvme0n1 bs=1M skip=98 count=4 iflag=direct 2>/dev/null | cmp - /tmp/a
verify /dev/nvme0n1 1 randwrite 8m
section id; nvme id-ns $C -n 1 -o json
"#;

const FORMATS: &str = r#"
section formats
for f in 1 4 2 0; do
  [ $f -lt 2 ] && e="" || e="--ms=1 --pi=2 --pil=1"
  st nvme format $C -n 2 --lbaf=$f $e --ses=1 --force
  nvme id-ns $C -n 2 -o json | grep -E '"(flbas|dps|nsze)"' | tr -d ' ,\n'; echo
done
st nvme format $C -n 2 --lbaf=8 --force
st nvme format $C -n 2 --lbaf=1 --pi=1 --force
st nvme format $C -n 2 --lbaf=3 --ms=0 --pi=1 --force
section protected; st nvme format $C -n 2 --lbaf=3 --ms=1 --pi=1 --force
# Linux has no metadata over TCP: the disk is empty, and commands of nvme-cli pass by it.
there /dev/nvme0n2 0
nvme nvm-id-ns $C -n 2 -o json | grep -c elbaf
section information
D=/dev/nvme0n2
head -c 4096 /dev/urandom >/tmp/d
w() { st nvme write $D -s 5 -c 0 -z $1 -d $2 --prinfo=$3 --ref-tag=$4 --app-tag=$5 --app-tag-mask=65535; }
r() { rm -f /tmp/r; st nvme read $D -s 5 -c 0 -z $1 -d /tmp/r --prinfo=$2 --ref-tag=$3 --app-tag=$4 --app-tag-mask=65535; }
w 4096 /tmp/d 8 5 4660
r 4096 15 5 4660; cmp /tmp/d /tmp/r
r 4104 7 5 4660; tail -c 6 /tmp/r | od -An -tx1
cp /tmp/r /tmp/e
r 4104 2 5 4661
r 4104 1 6 4660
w 4104 /tmp/e 7 5 4660
w 4104 /tmp/e 2 5 1
dd if=/tmp/d of=/tmp/e bs=1 count=8 seek=16 conv=notrunc 2>/dev/null
w 4104 /tmp/e 4 5 4660
r 4096 15 5 4660; cmp /tmp/d /tmp/r
section wide; st nvme format $C -n 2 --lbaf=5 --ms=1 --pi=1 --force
there /dev/nvme0n2 0
nvme nvm-id-ns $C -n 2 -o json | tr -d ' \n\t'; echo
w 4096 /tmp/d 8 5 4660
r 4096 15 5 4660; cmp /tmp/d /tmp/r
r 4112 7 5 4660; tail -c 8 /tmp/r | od -An -tx1
cp /tmp/r /tmp/e
r 4112 1 6 4660
w 4112 /tmp/e 7 5 4660
dd if=/tmp/d of=/tmp/e bs=1 count=8 seek=16 conv=notrunc 2>/dev/null
w 4112 /tmp/e 4 5 4660
r 4096 15 5 4660; cmp /tmp/d /tmp/r
section narrow; st nvme format $C -n 2 --lbaf=3 --ms=1 --pi=1 --force
there /dev/nvme0n2 0
section locked
st nvme set-feature $C -f 0x84 -n 2 --value=1
nvme get-feature $C -f 0x84 -n 2 | head -1
nvme id-ns $C -n 2 -o json | grep nsattr
w 4096 /tmp/d 8 5 4660
r 4096 15 5 4660
st nvme format $C -n 2 --lbaf=0 --force
st nvme set-feature $C -f 0x84 -n 2 --value=0
w 4096 /tmp/d 8 5 4660
section kernel
dmesg | grep -iE 'nvme' | grep -iE 'timeout|reset' | grep -v 'capabilities changed' || true
"#;

fn over_tcp(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let script = connect_script(node.port, "-i 1") + SHELL + MANAGE + FORMATS + "\nnvme disconnect -n " + NQN;
        let guest = Guest { cpus: 2, net: true, qemu: &[], limit: if env.full { 400 } else { 240 } };
        let out = guest.run(env, &(script + "\nsection end\n"))?;
        managed(&out)?;
        formatted(&out)
    })
}

/// The statuses that a section names, without More and Do Not Retry: 0 for success.
fn statuses(out: &str, name: &str) -> Result<Vec<u32>, String> {
    let lines = section(out, name)?.lines().map(str::trim);
    let code = |line: &str| match line {
        "ok" => Some(0),
        _ => u32::from_str_radix(line.strip_prefix("(0x")?.strip_suffix(')')?, 16).ok().map(|s| s & 0x7ff),
    };
    Ok(lines.filter_map(code).collect())
}

fn expect(out: &str, name: &str, wanted: &[u32]) -> Outcome {
    let got = statuses(out, name)?;
    ensure(got == wanted, || format!("{name}: {got:x?}, not {wanted:x?}:\n{}", section(out, name).unwrap_or_default()))
}

fn nsids(list: &Value) -> Vec<u64> {
    let all = list["nsid_list"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|n| n["nsid"].as_u64()).collect()
}

fn managed(out: &str) -> Outcome {
    let ctrl = json(out, "ctrl")?;
    let oacs = ctrl["oacs"].as_u64().unwrap_or(0);
    ensure(
        oacs & 0b1010 == 0b1010 && ctrl["nn"] == 256 && ctrl["tnvmcap"] == 256 << 20 && ctrl["unvmcap"] == 0,
        || format!("before: {ctrl}"),
    )?;
    expect(out, "deleted", &[0])?;
    ensure(nsids(&json(out, "empty")?).is_empty() && json(out, "room")?["unvmcap"] == 256 << 20, || "deleted".into())?;
    for nsid in 1..=3 {
        ensure(section(out, "created")?.contains(&format!("nsid:{nsid}")), || "created".into())?;
    }
    // Insufficient capacity, invalid format, thin provisioning; controller list, not attached, inactive.
    expect(out, "refused", &[0x115, 0x10a, 0x11b, 0x11c, 0x11a, 0x002])?;
    ensure(nsids(&json(out, "allocated")?) == [1, 2, 3], || "allocated".into())?;
    ensure(nsids(&json(out, "active")?).is_empty(), || "nothing is attached".into())?;
    expect(out, "attached", &[0, 0, 0x118])?;
    ensure(json(out, "controllers")?["num_ctrl"] == 1, || "controllers".into())?;
    expect(out, "fragmented", &[0, 0, 0])?;
    ensure(section(out, "fragmented")?.contains("verified"), || "fio on a fragmented namespace".into())?;
    let id = json(out, "id")?;
    ensure(id["nvmcap"] == 110 << 20 && id["nsze"] == 225_280 && id["nlbaf"] == 7, || format!("{id}"))
}

fn formatted(out: &str) -> Outcome {
    // Format and protection information one after the other, then what is no format.
    expect(out, "formats", &[0, 0, 0, 0, 0x10a, 0x10a, 0x10a])?;
    let formats = section(out, "formats")?;
    for (flbas, dps, nsze) in [(1, 0, 25_600), (20, 10, 25_600), (18, 10, 204_800), (0, 0, 204_800)] {
        let all = [format!("\"flbas\":{flbas}\""), format!("\"dps\":{dps}\""), format!("\"nsze\":{nsze}\"")];
        let has = |line: &str| all.iter().all(|f| format!("{line}\"").contains(f));
        ensure(formats.lines().any(has), || format!("{all:?} in {formats}"))?;
    }
    expect(out, "protected", &[0])?;
    let (app, guard, wrong) = (0x283, 0x282, 0x181);
    // Written, read and stripped, read whole; other tags; written whole, with another tag, with a wrong guard; still as it was.
    expect(out, "information", &[0, 0, 0, app, wrong, 0, app, guard, 0])?;
    ensure(section(out, "information")?.contains("12 34 00 00 00 05"), || "application and reference tag".into())?;
    // The same with guards of 64 bits: formatted, written, stripped, whole; another tag; whole, with a wrong guard; still as it was.
    expect(out, "wide", &[0, 0, 0, 0, wrong, 0, guard, 0])?;
    let wide = section(out, "wide")?;
    ensure(wide.contains("12 34 00 00 00 00 00 05"), || format!("application and reference tag: {wide}"))?;
    ensure(wide.matches("\"pif\":2").count() == 3, || format!("three formats with 64-bit guards: {wide}"))?;
    expect(out, "narrow", &[0])?;
    expect(out, "locked", &[0, 0x020, 0, 0x020, 0, 0])?;
    let kernel = section(out, "kernel")?;
    ensure(!kernel.contains("nvme"), || format!("the kernel complains: {kernel}"))
}

const SEPARATE: &str = r#"
there /dev/nvme0n1 $((256 * MIB))
section format; st nvme format $C -n 1 --lbaf=3 --ms=0 --pi=1 --force
there /dev/nvme0n1 $((256 * MIB))
section id; nvme id-ns $C -n 1 -o json
section integrity; cat /sys/block/nvme0n1/metadata_bytes /sys/block/nvme0n1/integrity/format 2>/dev/null || true
section io
verify /dev/nvme0n1 1 randwrite 12m
verify /dev/nvme0n1 1 randrw 12m
section information
D=/dev/nvme0n1
head -c 8192 /dev/urandom >/tmp/d
rw() { [ $1 != read ] || rm -f $2 $4; st nvme $1 $D -s 16 -c 1 -z 8192 -d $2 -y $3 -M $4 --prinfo=$5 --ref-tag=$6 --app-tag=$7 --app-tag-mask=65535; }
st nvme write $D -s 16 -c 1 -z 8192 -d /tmp/d --prinfo=8 --ref-tag=16 --app-tag=4660
rw read /tmp/r 16 /tmp/m 7 16 4660
cmp /tmp/d /tmp/r; od -An -tx1 /tmp/m
rw write /tmp/d 16 /tmp/m 7 16 4660
rw read /tmp/r 16 /tmp/n 2 16 1
rw read /tmp/r 16 /tmp/n 1 17 4660
rw write /tmp/r 16 /tmp/d 4 16 4660
rw compare /tmp/d 16 /tmp/m 7 16 4660
section sized
st nvme format $C -n 1 --lbaf=4 --ms=0 --pi=3 --pil=1 --force
nvme id-ns $C -n 1 -o json | grep -E '"(flbas|dps)"' | tr -d ' ,\n'; echo
st nvme format $C -n 1 --lbaf=2 --ms=1 --pi=0 --force
st nvme format $C -n 1 --lbaf=0 --force
there /dev/nvme0n1 $((256 * MIB))
verify /dev/nvme0n1 1 randwrite 4m
section wide; st nvme format $C -n 1 --lbaf=5 --ms=0 --pi=1 --force
there /dev/nvme0n1 $((256 * MIB))
cat /sys/block/nvme0n1/integrity/format
# The kernel makes and checks the guards, which the drive checks as well.
verify /dev/nvme0n1 1 randrw 12m
dd if=/tmp/d of=$D bs=8192 count=1 oflag=direct 2>/dev/null
rm -f /tmp/r /tmp/m; st nvme read $D -s 0 -c 1 -z 8192 -d /tmp/r -y 32 -M /tmp/m --prinfo=5 --ref-tag=0
cmp /tmp/d /tmp/r; od -An -tx1 /tmp/m
# It leaves them to the drive.
echo 0 >/sys/block/nvme0n1/integrity/write_generate; echo 0 >/sys/block/nvme0n1/integrity/read_verify
verify /dev/nvme0n1 1 randrw 12m
/bin/mkfs.ext4 -q $D; mkdir -p /mnt; mount -t ext4 $D /mnt; dd if=/dev/urandom of=/mnt/f bs=1M count=8 2>/dev/null; cp /mnt/f /tmp/f
umount /mnt; mount -t ext4 $D /mnt; cmp /mnt/f /tmp/f; umount /mnt; /bin/e2fsck -fn $D >/dev/null 2>&1
# What the drive has made, the kernel checks.
echo 1 >/sys/block/nvme0n1/integrity/read_verify
dd if=$D of=/dev/null bs=1M iflag=direct 2>/tmp/dd.out || { cat /tmp/dd.out; exit 1; }
echo "all of it read"
section kernel
dmesg | grep -iE 'nvme' | grep -iE 'timeout|reset|error' || true
section end
"#;

fn over_vfio_user(env: &Env) -> Outcome {
    with_node(env, &Setup::default().vfio("ssd0.sock", ""), |node| {
        let device = serde_json::json!({
            "driver": "vfio-user-pci", "socket": { "type": "unix", "path": text(&node.socket("ssd0.sock")) }
        });
        let qemu = ["-device".to_owned(), device.to_string()];
        let guest = Guest { cpus: 1, net: false, qemu: &qemu, limit: if env.full { 400 } else { 240 } };
        let wait = "i=0; while ! [ -b /dev/nvme0n1 ]; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.1; done\n";
        let out = guest.run(env, &(wait.to_owned() + SHELL + SEPARATE))?;
        expect(&out, "format", &[0])?;
        let id = json(&out, "id")?;
        ensure(id["flbas"] == 3 && id["dps"] == 1 && id["mc"] == 3 && id["dpc"] == 31, || format!("{id}"))?;
        let integrity = section(&out, "integrity")?.to_owned();
        ensure(section(&out, "io")?.matches(" verified").count() == 2, || {
            format!("fio with integrity {integrity}: {out}")
        })?;
        expect(&out, "information", &[0, 0, 0, 0x283, 0x181, 0x282, 0])?;
        let tags = section(&out, "information")?;
        ensure(tags.contains("12 34 00 00 00 10") && tags.contains("12 34 00 00 00 11"), || tags.into())?;
        expect(&out, "sized", &[0, 0, 0])?;
        ensure(section(&out, "sized")?.contains("\"flbas\":4\"dps\":11"), || "4096+64, type 3, first bytes".into())?;
        expect(&out, "wide", &[0, 0])?;
        let wide = section(&out, "wide")?;
        ensure(wide.contains("CRC64") && wide.matches(" verified").count() == 2, || format!("with integrity: {wide}"))?;
        // Two blocks' reference tags of 48 bits, made by the kernel; all of the drive read.
        let tags = ["00 00 00 00 00 00", "00 00 00 00 00 01"];
        let ends = tags.iter().all(|tag| wide.lines().any(|line| line.trim_end().ends_with(tag)));
        ensure(ends && wide.contains("all of it read"), || format!("the kernel's information: {wide}"))?;
        let kernel = section(&out, "kernel")?;
        ensure(!kernel.contains("nvme"), || format!("the kernel complains: {kernel}"))
    })
}
