//! A stock Linux host and a drive with placement handles over NVMe/TCP: nvme-cli's `fdp` commands and directed writes.

use serde_json::Value;

use super::test;
use crate::guest::{Guest, connect_script, json, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Setup, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    vec![test("guest_fdp", "handles_of_nvme_cli", handles)]
}

/// Four dies in two groups; reclaim units of 128 KiB.
const FLASH: &str = "kind = \"flash\"\nblock_size = 4096\nchannels = 2\nways = 2\npages = 16\nread = \"10us\"\nprogram = \"20us\"\n\
                     erase = \"100us\"\n[device.fdp]\nreclaim_groups = 2\nhandles = 3\n\
                     isolation = [\"initial\", \"initial\", \"persistent\"]";

const SCRIPT: &str = r#"
C=/dev/nvme0; N=/dev/nvme0n1
section ctrl; nvme id-ctrl $C -o json
section ns; nvme id-ns $N -o json
section endgrp; nvme endurance-log $C -g 1 -o json
section configs; nvme fdp configs $C --endgrp-id=1 -o json
section usage; nvme fdp usage $C --endgrp-id=1 -o json
section feature; nvme fdp feature $C --endgrp-id=1
section directive; nvme dir-receive $N -n 1 --dir-type=0 --dir-oper=1 --data-len=96
dd if=/dev/urandom of=/tmp/a bs=4096 count=4 2>/dev/null
put() { nvme write $N -s $1 -c 3 -z 16384 -d /tmp/a --dir-type=2 --dir-spec=$2; }
put 0 1; put 4 32769; put 8 32769; put 12 2
section written; nvme fdp status $N -o json
section stats; nvme fdp stats $C --endgrp-id=1 -o json
nvme fdp set-events $N --namespace-id=1 --placement-handle=1 --enable --event-types=0
nvme fdp set-events $N --namespace-id=1 --placement-handle=0 --enable --event-types=3
nvme fdp update $N --pids=32769
section updated; nvme fdp status $N -o json
put 16 7
section events; nvme fdp events $C --endgrp-id=1 --host-events -o json
nvme read $N -s 4 -c 3 -z 16384 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
nvme read $N -s 16 -c 3 -z 16384 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
if nvme fdp update $N --pids=7 >/tmp/out 2>&1; then echo "an identifier that is none is updated"; exit 1; fi
section kernel
dmesg | grep -iE 'nvme.*(timeout|reset)' || true
"#;

fn handles(env: &Env) -> Outcome {
    with_node(env, &Setup::default().device(FLASH), |node| {
        let connect = connect_script(node.port, "-i 1");
        let script = connect + SCRIPT + "\nnvme disconnect -n " + NQN + "\nsection end\n";
        let guest = Guest { cpus: 2, net: true, qemu: &[], limit: if env.full { 400 } else { 240 } };
        let out = guest.run(env, &script)?;
        check(&out)
    })
}

fn check(out: &str) -> Outcome {
    let (ctrl, ns, group) = (json(out, "ctrl")?, json(out, "ns")?, json(out, "endgrp")?);
    let has = |field: &str, bits: u64| ctrl[field].as_u64().is_some_and(|value| value & bits == bits);
    ensure(has("ctratt", 1 | 1 << 4 | 1 << 19) && has("oacs", 1 << 5) && ctrl["endgidmax"] == 1, || format!("{ctrl}"))?;
    ensure(ns["endgid"] == 1 && group["total_end_grp_cap"] == 256 << 20, || format!("{ns}\n{group}"))?;
    let configs = json(out, "configs")?;
    let config = &configs["configs"][0];
    // Valid, one bit of the identifier for the group.
    let shape = config["fdpa"] == 0x81 && config["nrg"] == 2 && config["nruh"] == 3 && config["runs"] == 128 << 10;
    ensure(configs["n"] == 0 && shape, || format!("configurations: {configs}"))?;
    ensure(json(out, "usage")?["nruh"] == 3, || "handles in use".into())?;
    let feature = section(out, "feature")?;
    ensure(feature.contains("(FDPE)       : Yes"), || feature.into())?;
    let directive = section(out, "directive")?;
    ensure(directive.contains("0000: 05 00") && directive.contains("0020: 05 00"), || directive.into())?;
    ensure(left(&json(out, "written")?) == [32, 32, 28, 24, 28, 32], || "RUAMW after the writes".into())?;
    let stats = json(out, "stats")?;
    ensure(stats["hbmw"] == 65536 && stats["mbmw"] == 65536 && stats["mbe"] == 0, || format!("statistics: {stats}"))?;
    ensure(left(&json(out, "updated")?) == [32, 32, 28, 32, 28, 32], || "RUAMW after the update".into())?;
    let log = json(out, "events")?;
    let event = |i: usize, kind: u32, pid: u32| log["events"][i]["type"] == kind && log["events"][i]["pid"] == pid;
    ensure(log["n"] == 2 && event(0, 0, 32769) && event(1, 3, 7), || format!("events: {log}"))?;
    let kernel = section(out, "kernel")?;
    ensure(!kernel.contains("nvme"), || format!("the kernel complains: {kernel}"))
}

/// RUAMW of every handle in every group.
fn left(status: &Value) -> Vec<u64> {
    let all = status["ruhss"].as_array().cloned().unwrap_or_default();
    all.iter().map(|h| h["ruamw"].as_u64().unwrap_or_default()).collect()
}
