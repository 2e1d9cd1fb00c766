//! What the diagnosis makes of drives that are not Weir's: Linux's target over NVMe/TCP with a device behind it that fails, and QEMU's NVMe drive
//! with an image that fails. The node, its target and its client, Linux's own host, are in one guest.

use std::path::Path;

use serde_json::Value;

use super::long;
use crate::guest::{Guest, json, section};
use crate::harness::{Context, Env, Outcome, Test, ensure};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "foreign_drives";
    vec![
        long(S, "blocks_that_linux_s_target_cannot_read_are_bad_blocks", linux_blocks),
        long(S, "a_namespace_of_linux_s_target_goes_comes_back_and_is_another", linux_namespace),
        long(S, "blocks_that_qemu_s_drive_cannot_read_or_write_are_bad_blocks", qemu_blocks),
    ]
}

/// A node on `$1`, a client of it at /dev/nvme0n1 whose first 4 MiB are those of /tmp/a, and what is known of the drive.
const NODE: &str = r#"
node() {
  cat >/tmp/weir.toml <<E
[node]
name = "g"
[[device]]
name = "ssd0"
media = "$1"
[[tenant]]
name = "all"
hosts = ["*"]
[[export]]
device = "ssd0"
door = "nvme-tcp"
E
  /t/weir up -c /tmp/weir.toml >/tmp/up.out 2>&1 &
  until /t/weir status >/tmp/status 2>&1; do again; done
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.io.weir:g:ssd0 -i 1 >/dev/null
  until [ -b /dev/nvme0n1 ]; do again; done
  dd if=/dev/urandom of=/tmp/a bs=1M count=4 2>/dev/null
  dd if=/tmp/a of=/dev/nvme0n1 bs=1M oflag=direct 2>/dev/null
  # What the drive has counted before anything fails is what later counts are compared with.
  until health >/tmp/health && grep -q media_errors /tmp/health; do again; done
}
n=0
again() { n=$((n + 1)); [ $n -lt 900 ] || { echo "it takes too long"; cat /tmp/up.out /tmp/health; dmesg | tail; exit 1; }; sleep 0.1; }
health() { /t/weir device health ssd0 --json; }
verdict_is() { until [ "$(health | sed -n 's/^  "verdict": "\(.*\)",/\1/p')" = "$1" ]; do again; done; }
status() { grep -o '(0x[0-9a-f]*)' /tmp/command || cat /tmp/command; }
write() { # write BLOCK...: one by one, with bytes of /tmp/a; how each ends
  for block in "$@"; do
    dd if=/tmp/a of=/tmp/block bs=512 skip=$((block % 8192)) count=1 2>/dev/null
    nvme write /dev/nvme0n1 -s $block -c 0 -z 512 -d /tmp/block >/tmp/command 2>&1 && echo "write $block: done" || echo "write $block: $(status)"
  done
}
reads() { # reads BLOCK...: one by one, compared with /tmp/a; how each ends
  for block in "$@"; do
    dd if=/tmp/a of=/tmp/block bs=512 skip=$((block % 8192)) count=1 2>/dev/null
    nvme read /dev/nvme0n1 -s $block -c 0 -z 512 -d /tmp/found >/tmp/command 2>&1 || { echo "read $block: $(status)"; continue; }
    cmp /tmp/block /tmp/found && echo "read $block: same"
  done
}
whole() { dd if=/dev/nvme0n1 bs=1M count=4 iflag=direct of=/tmp/b 2>/dev/null; cmp /tmp/a /tmp/b && echo same; }
"#;

/// Linux's target at port 4421.
const NVMET: &str = r#"
insmod /t/configfs.ko; insmod /t/nvmet.ko; insmod /t/nvmet-tcp.ko; insmod /t/null_blk.ko nr_devices=0
mount -t configfs none /sys/kernel/config
C=/sys/kernel/config; N=$C/nvmet/subsystems/sub; P=$C/nvmet/ports/1; U=7d444840-9dc0-11d1-b245-5ffdce74fad
mkdir $N; echo 1 >$N/attr_allow_any_host
mkdir $P; echo tcp >$P/addr_trtype; echo ipv4 >$P/addr_adrfam; echo 127.0.0.1 >$P/addr_traddr; echo 4421 >$P/addr_trsvcid
disk() { mkdir $C/nullb/$1; echo $2 >$C/nullb/$1/size; echo 1 >$C/nullb/$1/memory_backed; echo 512 >$C/nullb/$1/blocksize; echo 1 >$C/nullb/$1/power; }
enable() { echo $1 >$N/namespaces/1/enable; }
namespace() { mkdir -p $N/namespaces/1; echo -n $1 >$N/namespaces/1/device_path; echo ${U}$2 >$N/namespaces/1/device_uuid; enable 1; }
port() { ln -s $N $P/subsystems/sub; }
T='nvme:nvme-tcp://127.0.0.1:4421/sub?ns=1'
"#;

fn run(env: &Env, script: &str, qemu: &[String]) -> Result<String, String> {
    let guest = Guest { cpus: 2, net: true, qemu, limit: 400 };
    guest.run(env, &format!("{NODE}{script}\nsection end\n"))
}

/// What is known of the drive, the verdicts of its disturbances, the last one last, and how many resets there were.
fn told(out: &str, part: &str) -> Result<(Value, Vec<String>, usize), String> {
    let health = json(out, part)?;
    let reports = health["reports"].as_array().cloned().unwrap_or_default();
    let verdicts = reports.iter().filter_map(|report| report["verdict"].as_str().map(str::to_owned)).collect();
    let steps = reports.iter().flat_map(|report| report["steps"].as_array().cloned().unwrap_or_default());
    let resets = steps.filter(|step| step["done"].as_str().is_some_and(|done| done.starts_with("reset"))).count();
    Ok((health, verdicts, resets))
}

/// A part of the output is just that.
fn shows(out: &str, part: &str, expected: &str) -> Outcome {
    let found = section(out, part)?.trim();
    ensure(found == expected, || format!("{part}: {found}\nnot {expected}\n{out}"))
}

/// The drive serves, and these blocks of it are bad.
fn has_bad_blocks(health: &Value, blocks: &[u64]) -> Outcome {
    let of = |at: &Value| at["lba"].as_u64().filter(|_| at["blocks"] == 1);
    let found: Vec<Option<u64>> = health["bad_blocks"].as_array().into_iter().flatten().map(of).collect();
    let expected: Vec<Option<u64>> = blocks.iter().copied().map(Some).collect();
    let serves = health["state"] == "serving" && health["commands"] == "sent" && health["verdict"] == "bad-blocks";
    ensure(serves && found == expected, || format!("{blocks:?}: {health:#}"))
}

/// A device that fails at certain sectors: by I/O errors, which the target calls Internal Error with More and DNR (6006h), then by medium errors,
/// which it calls Access Denied with More (2286h).
const BLOCKS: &str = r#"
disk nullb0 64
namespace /dev/nullb0 2; port
node $T
echo +8-8 >$C/nullb/nullb0/badblocks; echo +40-40 >$C/nullb/nullb0/badblocks
section io-error; reads 8 9 8 40 4000
section io-error-health; health
section unwritable; write 8 9
section unwritable-health; health
echo -8-8 >$C/nullb/nullb0/badblocks; echo -40-40 >$C/nullb/nullb0/badblocks
section repaired; write 8; reads 8 40; whole
section repaired-health; health
nvme disconnect -n nqn.2026-11.io.weir:g:ssd0 >/dev/null; /t/weir shutdown >/dev/null; wait
rm $P/subsystems/sub; enable 0
insmod /t/scsi_common.ko; insmod /t/scsi_mod.ko; insmod /t/sd_mod.ko
insmod /t/scsi_debug.ko dev_size_mb=64 medium_error_start=8 medium_error_count=2
until [ -b /dev/sda ]; do again; done
namespace /dev/sda 3; port
node $T
echo 2 >/sys/bus/pseudo/drivers/scsi_debug/opts
section medium-error; reads 8 10 8 9 4000
section medium-error-health; health
"#;

fn linux_blocks(env: &Env) -> Outcome {
    let out = run(env, &format!("{NVMET}{BLOCKS}"), &[])?;
    let expected = "read 8: (0x6006)\nread 9: same\nread 8: (0x6006)\nread 40: (0x6006)\nread 4000: same";
    shows(&out, "io-error", expected)?;
    let (health, _, resets) = told(&out, "io-error-health")?;
    has_bad_blocks(&health, &[8, 40])?;
    // Of the first one; the next one is believed.
    ensure(resets == 3, || format!("{resets} resets for two blocks: {health:#}"))?;
    shows(&out, "unwritable", "write 8: (0x6006)\nwrite 9: done")?;
    has_bad_blocks(&told(&out, "unwritable-health")?.0, &[8, 40])?;
    shows(&out, "repaired", "write 8: done\nread 8: same\nread 40: same\nsame")?;
    let (health, ..) = told(&out, "repaired-health")?;
    ensure(health["bad_blocks"] == serde_json::json!([]), || format!("{health:#}"))?;
    let expected = "read 8: (0x2286)\nread 10: same\nread 8: (0x2286)\nread 9: (0x2286)\nread 4000: same";
    shows(&out, "medium-error", expected)?;
    has_bad_blocks(&told(&out, "medium-error-health")?.0, &[8, 9])
}

/// While a client reads, the target's namespace is disabled, its port is taken away, and its path is closed (ANA); then the namespace is one
/// with another UUID, and one of another size.
const NAMESPACE: &str = r#"
disk nullb0 64; disk nullb1 128
namespace /dev/nullb0 2; port
node $T
begun() { whole >/tmp/whole 2>&1 & reader=$!; }
ended() { wait $reader; cat /tmp/whole; verdict_is ''; }
section disabled; enable 0; begun; verdict_is namespace; sleep 2; enable 1; ended
section port; rm $P/subsystems/sub; begun; verdict_is link; sleep 2; port; ended
section path; echo inaccessible >$P/ana_groups/1/ana_state; begun; verdict_is path; sleep 2; echo optimized >$P/ana_groups/1/ana_state; ended
section uuid; enable 0; namespace /dev/nullb0 3; verdict_is other-drive; reads 0; enable 0; namespace /dev/nullb0 2; verdict_is ''; whole
section size; enable 0; namespace /dev/nullb1 2; verdict_is other-drive; reads 0; enable 0; namespace /dev/nullb0 2; verdict_is ''; whole
section health; health
"#;

fn linux_namespace(env: &Env) -> Outcome {
    let out = run(env, &format!("{NVMET}{NAMESPACE}"), &[])?;
    ["disabled", "port", "path"].into_iter().try_for_each(|part| shows(&out, part, "same"))?;
    // Internal Path Error, while another drive is there.
    ["uuid", "size"].into_iter().try_for_each(|part| shows(&out, part, "read 0: (0x300)\nsame"))?;
    let (health, verdicts, _) = told(&out, "health")?;
    // The target also tells of a namespace that is the same after all.
    let grave: Vec<&str> = verdicts.iter().map(String::as_str).filter(|verdict| *verdict != "busy").collect();
    let expected = ["namespace", "link", "path", "other-drive", "other-drive"];
    ensure(grave == expected && health["state"] == "serving", || format!("{verdicts:?}: {health:#}"))
}

/// The sectors of the image at which QEMU's block layer fails: always by reads of the first, once by a read of the second, always by writes of
/// the third.
const BLKDEBUG: &str = r#"
[inject-error]
event = "none"
iotype = "read"
errno = "5"
sector = "4104"

[inject-error]
event = "none"
iotype = "read"
errno = "5"
sector = "4144"
once = "on"

[inject-error]
event = "none"
iotype = "write"
errno = "5"
sector = "9000"
"#;

const PCI: &str = r#"
for m in /t/irqbypass.ko /t/vfio.ko /t/vfio_iommu_type1.ko /t/vfio-pci-core.ko /t/vfio-pci.ko; do insmod $m; done
/t/weir device bind 0000:00:10.0 >/dev/null
node pci:0000:00:10.0
section reads; reads 4104 4105 4144 4104 100
section reads-health; health
section writes; write 9000 9001 9000; reads 9001 100
section writes-health; health
section link; /t/weir device ls --json
"#;

fn qemu_blocks(env: &Env) -> Outcome {
    let out = run(env, PCI, &blkdebug(&env.folder()?)?)?;
    // Unrecovered Read Error, then Write Fault.
    let expected = "read 4104: (0x281)\nread 4105: same\nread 4144: same\nread 4104: (0x281)\nread 100: same";
    shows(&out, "reads", expected)?;
    has_bad_blocks(&told(&out, "reads-health")?.0, &[4104])?;
    let expected = "write 9000: (0x280)\nwrite 9001: done\nwrite 9000: (0x280)\nread 9001: same\nread 100: same";
    shows(&out, "writes", expected)?;
    let (health, verdicts, resets) = told(&out, "writes-health")?;
    has_bad_blocks(&health, &[4104])?;
    ensure(verdicts.last().is_some_and(|verdict| verdict == "bad-blocks"), || format!("{verdicts:?}: {health:#}"))?;
    ensure(resets <= 6, || format!("{resets} resets: {health:#}"))?;
    let link = &json(&out, "link")?[0]["link"];
    ensure(link["state"] == "serving" && link["outages"].as_u64() <= Some(3), || format!("{link}"))
}

/// QEMU's arguments: its NVMe drive at 0000:00:10.0, with an image that fails.
fn blkdebug(dir: &Path) -> Result<Vec<String>, String> {
    let (image, rules) = (dir.join("image"), dir.join("rules"));
    let file = std::fs::File::create(&image).context(|| image.display().to_string())?;
    file.set_len(64 << 20).context(|| image.display().to_string())?;
    std::fs::write(&rules, BLKDEBUG).context(|| rules.display().to_string())?;
    let (image, rules) = (image.display(), rules.display());
    let drive = format!("driver=blkdebug,node-name=d0,config={rules},image.driver=file,image.filename={image}");
    let namespace = "nvme-ns,drive=d0,bus=n0,uuid=7d444840-9dc0-11d1-b245-5ffdce74fad2";
    let devices = ["nvme,id=n0,serial=real,addr=10.0", namespace, "intel-iommu,intremap=on"];
    let devices = devices.into_iter().flat_map(|device| ["-device".into(), device.into()]);
    Ok(["-blockdev".into(), drive].into_iter().chain(devices).collect())
}
