//! A stock Linux host over NVMe/TCP: nvme-cli, fio with verification, ext4.

use serde_json::Value;

use super::{guest_vhost, long, test};
use crate::guest::{Guest, json, resize_script, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_tcp";
    vec![
        test(S, "discover_and_identify", discover_and_identify),
        test(S, "commands_of_nvme_cli", commands_of_nvme_cli),
        long(S, "fio_one_queue", |env| fio(env, "-i 1", 1, "24m")),
        long(S, "fio_four_queues_with_digests", |env| fio(env, "-i 4 -g -G", 4, "24m")),
        test(S, "ext4_and_reconnect", ext4_and_reconnect),
        long(S, "resized_while_connected", resized),
        long(S, "its_volume_is_resized_under_load", |env| guest_vhost::volume_resized(env, true)),
        long(S, "fio_four_queues", |env| fio(env, "-i 4", 4, "96m")),
        long(S, "fio_header_digest", |env| fio(env, "-i 2 -g", 2, "96m")),
        long(S, "fio_data_digest", |env| fio(env, "-i 2 -G", 2, "96m")),
    ]
}

fn boot(env: &Env, cpus: u32, script: &str) -> Result<String, String> {
    Guest { cpus, net: true, qemu: &[], limit: if env.full { 300 } else { 120 } }.run(env, script)
}

/// Shell functions to connect and to wait for the namespace.
fn shell(node: &Node) -> String {
    format!(
        r#"
connect() {{ # connect OPTIONS: to the drive; the namespace is /dev/nvme0n1
  nvme connect -t tcp -a 10.0.2.2 -s {port} -n {NQN} "$@"
  i=0; while ! [ -b /dev/nvme0n1 ]; do
    i=$((i + 1)); [ $i -lt 100 ] || {{ echo "no namespace appears"; dmesg | tail; exit 1; }}; sleep 0.1
  done
}}
disconnect() {{ nvme disconnect -n {NQN}; }}
discover() {{ nvme discover -t tcp -a 10.0.2.2 -s {port} "$@"; }}
"#,
        port = node.port
    )
}

fn discover_and_identify(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let script = shell(node)
            + r#"
section discover; discover -o json
connect -i 1
section id-ctrl; nvme id-ctrl /dev/nvme0 -o json
section id-ns; nvme id-ns /dev/nvme0n1 -o json
section list-ns; nvme list-ns /dev/nvme0 -o json
section smart-before; nvme smart-log /dev/nvme0 -o json
verify /dev/nvme0n1 1 randwrite 4m
section smart-after; nvme smart-log /dev/nvme0 -o json
section errors-before; nvme error-log /dev/nvme0 -o json
nvme io-passthru /dev/nvme0n1 --opcode=0x7d --namespace-id=1 2>&1 && { echo "an unknown opcode succeeds"; exit 1; }
section errors-after; nvme error-log /dev/nvme0 -o json
section features; nvme get-feature /dev/nvme0 -f 1; nvme get-feature /dev/nvme0 -f 7
disconnect
section end
"#;
        let out = boot(env, 1, &script)?;
        discovery(node, &json(&out, "discover")?)?;
        controller(&json(&out, "id-ctrl")?)?;
        namespace(&json(&out, "id-ns")?)?;
        smart(&json(&out, "smart-before")?, &json(&out, "smart-after")?)?;
        let (before, after) = (json(&out, "errors-before")?, json(&out, "errors-after")?);
        let newest = |log: &Value| log["errors"][0]["error_count"].as_u64().unwrap_or(0);
        ensure(newest(&after) > newest(&before), || format!("the refused command is not in the error log: {after}"))?;
        let features = section(&out, "features")?;
        ensure(features.matches("0x").count() >= 2, || format!("features 01h and 07h: {features}"))
    })
}

fn discovery(node: &Node, log: &Value) -> Outcome {
    let records = log["records"].as_array().cloned().unwrap_or_default();
    let port = node.port.to_string();
    let found = records.iter().any(|r| {
        r["trtype"] == "tcp" && r["subnqn"] == NQN && r["trsvcid"].as_str().map(str::trim) == Some(port.as_str())
    });
    ensure(found, || format!("the drive is not in the discovery log: {log}"))
}

/// Every field that hosts read (NVMe base 2.0, Identify Controller).
fn controller(id: &Value) -> Outcome {
    let n = |key: &str| id[key].as_u64().unwrap_or(u64::MAX);
    let fail = |what: &str| Err(format!("id-ctrl: {what}: {id}"));
    match () {
        () if n("sqes") != 0x66 || n("cqes") != 0x44 => fail("entry sizes are 64 and 16 bytes"),
        () if id["subnqn"] != NQN => fail("subnqn"),
        () if n("cntrltype") != 1 => fail("an I/O controller is type 1"),
        () if n("nn") == 0 || n("nn") == u64::MAX => fail("nn"),
        () if n("cntlid") >= 0xfff0 => fail("cntlid"),
        () if n("ver") < 0x10300 || n("ver") > 0x20300 => fail("version"),
        () if n("mdts") == 0 || n("mdts") > 10 => fail("mdts bounds a command"),
        () if n("kas") == 0 || n("kas") == u64::MAX => fail("kas is not 0 on fabrics"),
        () if n("ioccsz") < 4 || n("iorcsz") != 1 || n("icdoff") != 0 => fail("capsule sizes"),
        () if n("oncs") & 0b1100 != 0b1100 => fail("dataset management and write zeroes"),
        () if id["sn"].as_str().is_none_or(|s| s.trim().is_empty()) => fail("serial number"),
        () if id["mn"].as_str().is_none_or(|s| s.trim().is_empty()) => fail("model"),
        () => Ok(()),
    }
}

fn namespace(id: &Value) -> Outcome {
    let n = |key: &str| id[key].as_u64().unwrap_or(u64::MAX);
    let format = (n("flbas") & 0xf) as usize;
    let shift = id["lbafs"][format]["ds"].as_u64().unwrap_or(0);
    let bytes = n("nsze").checked_shl(shift as u32).unwrap_or(0);
    ensure(bytes == 256 << 20, || format!("id-ns: nsze {} of 2^{shift} bytes is not 256 MiB: {id}", n("nsze")))?;
    ensure(n("ncap") <= n("nsze") && n("nuse") <= n("ncap"), || format!("id-ns: nuse, ncap, nsze: {id}"))
}

fn smart(before: &Value, after: &Value) -> Outcome {
    let n = |v: &Value, key: &str| v[key].as_f64().or_else(|| v[key].as_str()?.parse().ok()).unwrap_or(-1.0);
    let warning = |v: &Value| v["critical_warning"].as_u64().or_else(|| v["critical_warning"]["value"].as_u64());
    ensure(warning(after) == Some(0), || format!("smart-log: critical warning: {after}"))?;
    ensure((250.0..350.0).contains(&n(after, "temperature")), || format!("smart-log: temperature in kelvin: {after}"))?;
    ensure(n(after, "avail_spare") > n(after, "spare_thresh"), || format!("smart-log: spare: {after}"))?;
    for key in ["data_units_written", "data_units_read", "host_write_commands", "host_read_commands"] {
        ensure(n(after, key) > n(before, key), || format!("smart-log: {key} does not grow: {before} {after}"))?;
    }
    Ok(())
}

fn commands_of_nvme_cli(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let script = shell(node)
            + r#"
connect -i 1
dd if=/dev/urandom of=/tmp/a bs=4096 count=2 2>/dev/null; dd if=/dev/urandom of=/tmp/b bs=4096 count=2 2>/dev/null
N=/dev/nvme0n1; B=$(cat /sys/block/nvme0n1/queue/logical_block_size); C=$((8192 / B - 1))
nvme write $N -s 16 -c $C -z 8192 -d /tmp/a
nvme read $N -s 16 -c $C -z 8192 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
nvme compare $N -s 16 -c $C -z 8192 -d /tmp/a
nvme compare $N -s 16 -c $C -z 8192 -d /tmp/b && { echo "different data compare equal"; exit 1; }
nvme flush $N
nvme write-zeroes $N -s 16 -c $C
nvme read $N -s 16 -c $C -z 8192 -d /tmp/r >/dev/null; dd if=/dev/zero bs=8192 count=1 2>/dev/null | cmp - /tmp/r
nvme write $N -s 16 -c $C -z 8192 -d /tmp/b
nvme dsm $N -d -s 16 -b $((C + 1))
nvme read $N -s 16 -c $C -z 8192 -d /tmp/r >/dev/null
section beyond
nvme read $N -s 99999999 -c 0 -z $B -d /tmp/r 2>&1 && { echo "a read beyond the end succeeds"; exit 1; }
section effects; nvme effects-log /dev/nvme0
section fw; nvme fw-log /dev/nvme0
section descriptors; nvme ns-descs $N
section reset
nvme reset /dev/nvme0
sleep 1; nvme write $N -s 16 -c $C -z 8192 -d /tmp/a; nvme read $N -s 16 -c $C -z 8192 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
section kernel
dmesg | grep -iE 'nvme.*(timeout|error|fail|invalid)' | grep -v 'Invalid Command Opcode' || true
disconnect
section end
"#;
        let out = boot(env, 1, &script)?;
        let beyond = section(&out, "beyond")?;
        ensure(beyond.to_uppercase().contains("LBA OUT OF RANGE"), || format!("a read beyond the end: {beyond}"))?;
        let kernel = section(&out, "kernel")?;
        ensure(!kernel.contains("timeout"), || format!("the kernel complains: {kernel}"))
    })
}

fn fio(env: &Env, options: &str, queues: u32, size: &str) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let script = shell(node)
            + &format!(
                r#"
connect {options}
section queues; cat /sys/class/nvme/nvme0/queue_count
verify /dev/nvme0n1 {queues} randwrite {size}
verify /dev/nvme0n1 {queues} randrw {size}
disconnect
section end
"#
            );
        let out = boot(env, queues, &script)?;
        let count = section(&out, "queues")?.lines().next().unwrap_or_default();
        ensure(count == (queues + 1).to_string(), || format!("{count} queues instead of {queues} and admin"))?;
        ensure(out.matches(" verified").count() == 2, || out.clone())
    })
}

fn ext4_and_reconnect(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let script = shell(node)
            + r#"
connect -i 2 -g -G
filesystem /dev/nvme0n1
disconnect
connect -i 1
/bin/e2fsck -f -n /dev/nvme0n1
mount -t ext4 /dev/nvme0n1 /mnt
(cd /mnt/tree && md5sum -c /tmp/sums >/tmp/md5.out 2>&1) || { grep -v ': OK' /tmp/md5.out; exit 1; }
fstrim /mnt
umount /mnt
/bin/e2fsck -f -n /dev/nvme0n1
disconnect
echo "after reconnect: equal"
"#;
        let out = boot(env, 2, &script)?;
        ensure(out.contains("files equal") && out.contains("after reconnect: equal"), || out.clone())
    })
}

/// The drive grows while a host is connected: an asynchronous event makes the host look again.
fn resized(env: &Env) -> Outcome {
    let setup = Setup { capacity: "64MiB".into(), ..Setup::default() };
    with_node(env, &setup.device("max_capacity = \"128MiB\""), |node| {
        let script = shell(node) + "\nconnect -i 1\n" + &resize_script("/sys/block/nvme0n1/size", "/dev/nvme0n1");
        let guest = Guest { cpus: 1, net: true, qemu: &[], limit: 120 };
        let resize = || node.cli_ok(&["device", "set", "ssd0", "--capacity", "128MiB"]).map(|_| ());
        let out = guest.run_with(env, &script, "waiting", resize)?;
        ensure(out.contains("grown and verified"), || out.clone())
    })
}
