//! A stock Linux host and a drive's upkeep over NVMe/TCP: nvme-cli's admin commands, each with a look at what it has changed, and a
//! restart in between.

use serde_json::Value;

use super::test;
use crate::guest::{Guest, connect_script, json, section};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{NQN, Setup, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    vec![test("guest_admin", "upkeep_of_nvme_cli_across_a_restart", upkeep)]
}

/// Before the node is killed. `$IMAGE` prints a firmware image.
const FIRST: &str = r#"
C=/dev/nvme0; N=/dev/nvme0n1
refused() { "$@" >/tmp/refused 2>&1 && { echo "succeeds and should not: $*"; exit 1; }; cat /tmp/refused; }
section id; nvme id-ctrl $C -o json
section pages; nvme supported-log-pages $C
section effects; nvme effects-log $C
section save
nvme set-feature $C -f 4 -V 330 --save; nvme set-feature $C -f 4 -V 335
for s in 0 1 2; do nvme get-feature $C -f 4 -s $s; done
nvme get-feature $C -f 4 -s 3
section power; nvme set-feature $C -f 2 -V 3; nvme get-feature $C -f 2; nvme set-feature $C -f 2 -V 0
refused nvme set-feature $C -f 2 -V 9
section apst; nvme get-feature $C -f 0xc -H | head -3
section time; printf '\000\020\000\000\000\000\000\000' >/tmp/ts
section unsaved; refused nvme set-feature $C -f 0xe --data=/tmp/ts -l 8 --save
section timestamp
nvme set-feature $C -f 0xe --data=/tmp/ts -l 8; nvme get-feature $C -f 0xe -H
section smart; nvme smart-log $C -o json
section smartctl; smartctl -a $C >/tmp/smart || true; sed 's/^=/-/' /tmp/smart
section errors; refused nvme admin-passthru $C --opcode=0x82 >/dev/null; nvme error-log $C -e 4 -o json
section security; refused nvme security-recv $C -p 0 -s 0 -x 512 -t 0
refused nvme security-send $C -p 0 -s 0 -t 512 -f /tmp/ts
section behaviour
# Setting it is the kernel's own affair, which refuses it to everybody else.
nvme get-feature $C -f 0x16 -l 512 -b | wc -c; nvme get-feature $C -f 0x16 -s 3
section virtual; refused nvme virt-mgmt $C -c 1 -r 0 -a 7 -n 0
section directive; nvme dir-receive $N -n 1 --dir-type=0 --dir-oper=1 --data-len=96
section descs; nvme ns-descs $N
section endurance; nvme endurance-log $C -g 1 -o json
section aggregate; nvme endurance-event-agg-log $C -e 1 -o json
section ana; nvme ana-log $C -o json
section fw
eval "$IMAGE" >/tmp/fw; truncate -s 4096 /tmp/fw
refused nvme fw-download $C --fw=/tmp/ts
nvme fw-download $C --fw=/tmp/fw
refused nvme fw-commit $C -s 1 -a 0
nvme fw-commit $C -s 2 -a 1
nvme fw-log $C -o json
section format; nvme format $N --lbaf=0 --ses=1 --force
section fwreset
nvme reset $C; sleep 0.5
nvme id-ctrl $C -o json
section lock
nvme lockdown $C --ofi=0x84 --prhbt=1 --scp=0 --ifc=0
refused nvme sanitize $C -a 2
nvme lockdown $C --ofi=0x84 --prhbt=0 --scp=0 --ifc=0
section selftest
nvme device-self-test $C -n 0xffffffff -s 1
i=0; while [ "$(nvme self-test-log $C -o json | grep -c '"Current Device Self-Test Operation":0')" = 0 ]; do
  i=$((i + 1)); [ $i -lt 100 ] || { echo "the self-test does not end"; exit 1; }; sleep 0.1
done
nvme self-test-log $C -o json
section telemetry
nvme telemetry-log $C --output-file=/tmp/telemetry -g 1 -d 3 >/dev/null; wc -c </tmp/telemetry; strings /tmp/telemetry 2>/dev/null | head -3 || grep -a -m1 subsystem= /tmp/telemetry
grep -a -c subsystem=nqn /tmp/telemetry
section sanitize
dd if=/dev/urandom of=/tmp/a bs=4096 count=4 2>/dev/null
nvme write $N -s 8 -c 3 -z 16384 -d /tmp/a; nvme flush $N
nvme sanitize $C -a 3 -n 1 -i -p 0xa5a5a5a5 --no-dealloc 2>/dev/null || nvme sanitize $C --sanact=start-overwrite --owpass=1 --ovrpat=0xa5a5a5a5 --no-dealloc
i=0; while nvme sanitize-log $C -o json | tr -d ' \n' | grep -q '"sprog":[0-9]\{1,5\},' && ! nvme sanitize-log $C -o json | tr -d ' \n' | grep -q '"sprog":65535'; do
  i=$((i + 1)); [ $i -lt 300 ] || { echo "sanitizing does not end"; exit 1; }; sleep 0.1
done
nvme sanitize-log $C -o json
nvme read $N -s 8 -c 3 -z 16384 -d /tmp/r >/dev/null
section pattern; od -An -tx1 -v /tmp/r | tr -d ' \n' | sed 's/a5//g' | wc -c
section events
# Not as JSON: version 2.13 of nvme-cli crashes then (its issue 2809).
nvme persistent-event-log $C -a 1 -l 32768
section context
# A context is established once, read as often as one likes, and gone when it is released.
refused nvme persistent-event-log $C -a 1 -l 512
nvme persistent-event-log $C -a 0 -l 512 >/dev/null; nvme persistent-event-log $C -a 2
refused nvme persistent-event-log $C -a 0 -l 512
nvme sanitize $C -a 2
section kernel
dmesg | grep -iE 'nvme.*(timeout|reset failed)' || true
"#;

/// After it has come back.
const SECOND: &str = r#"
section saved; nvme get-feature $C -f 4 -s 0; nvme get-feature $C -f 4 -s 2
section id; nvme id-ctrl $C -o json
section fw; nvme fw-log $C -o json
section selftest; nvme self-test-log $C -o json
section smart; nvme smart-log $C -o json
i=0; while nvme sanitize-log $C -o json | tr -d ' \n' | grep -q '"sprog":[0-9]\{1,5\},' && ! nvme sanitize-log $C -o json | tr -d ' \n' | grep -q '"sprog":65535'; do
  i=$((i + 1)); [ $i -lt 300 ] || { echo "sanitizing does not end"; exit 1; }; sleep 0.1
done
section sanitize; nvme sanitize-log $C -o json
nvme read $N -s 8 -c 3 -z 16384 -d /tmp/r >/dev/null
section zeroes; od -An -tx1 -v /tmp/r | tr -d ' 0\n' | wc -c
section events; nvme persistent-event-log $C -a 1 -l 32768
"#;

/// One boot: what comes before the node is killed, and what comes when its drive is there again, which its power cycles tell.
fn script(port: u16, first: &str) -> String {
    format!(
        r#"{connect}{first}
nvme disconnect -n {NQN} >/dev/null
echo {MARK}
again() {{
  nvme connect -t tcp -a 10.0.2.2 -s {port} -n {NQN} -i 1 >/dev/null 2>&1 && sleep 0.5 && [ -b $N ] &&
    nvme smart-log $C -o json 2>/dev/null | tr -d ' ,"' | grep -qx power_cycles:2
}}
i=0; until again; do
  nvme disconnect -n {NQN} >/dev/null 2>&1 || true
  i=$((i + 1)); [ $i -lt 100 ] || {{ echo "the drive does not come back"; exit 1; }}; sleep 0.2
done
section restarted
{SECOND}
nvme disconnect -n {NQN} >/dev/null
"#,
        connect = connect_script(port, "-i 1"),
    )
}

/// The guest waits for the node's end.
const MARK: &str = "=== killed";

fn upkeep(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let (disk, image) = (dir.join("admin.img"), dir.join("new.fw"));
    let setup = Setup { media: format!("file:{}", disk.display()), capacity: "64MiB".into(), ..Setup::default() };
    with_node(env, &setup.device("block_size = 4096"), |node| {
        node.cli_ok(&["device", "firmware-image", "--revision", "2.0.1", &image.display().to_string()])?;
        let bytes = std::fs::read(&image).context(|| image.display().to_string())?;
        // What follows the head is zeroes.
        let head: String = bytes[..24].iter().map(|b| format!("\\\\{b:03o}")).collect();
        let first = format!("IMAGE=\"printf '{head}'\"\n") + FIRST;
        let guest = Guest { cpus: 1, net: true, qemu: &[], limit: 180 };
        let out = guest.run_with(env, &script(node.port, &first), MARK, || node.kill_and_start())?;
        let (first, second) = out.split_once(MARK).ok_or("the guest says nothing")?;
        check_first(first)?;
        check_second(second)
    })
}

fn has(out: &str, name: &str, all: &[&str]) -> Outcome {
    let text = section(out, name)?;
    let upper = text.to_uppercase();
    match all.iter().find(|want| !upper.contains(&want.to_uppercase())) {
        Some(want) => Err(format!("{name}: {want:?} is not in: {text}")),
        None => Ok(()),
    }
}

fn check_first(out: &str) -> Outcome {
    let id = json(out, "id")?;
    let n = |key: &str| id[key].as_u64().unwrap_or(u64::MAX);
    ensure(n("npss") == 4 && n("frmw") == 0x17 && n("fwug") == 1 && n("lpa") == 0x3e, || format!("id-ctrl: {id}"))?;
    ensure(n("sanicap") & 7 == 7 && n("apsta") == 1 && n("anagrpmax") == 1 && n("pels") == 1, || format!("{id}"))?;
    has(out, "pages", &["Device Self-test", "Telemetry Host", "Persistent Event", "Sanitize"])?;
    has(out, "effects", &["Sanitize", "Firmware Commit", "Device Self-test"])?;
    // 335, the default 343, 330; saveable and changeable.
    has(out, "save", &["0x0000014f", "0x00000157", "Saved value:0x0000014a", "0x00000005"])?;
    has(out, "unsaved", &["not saveable"])?;
    has(out, "power", &["Current value:0x00000003", "Invalid Field"])?;
    // It goes on from what it was set to.
    let told =
        section(out, "timestamp")?.split_once("timestamp is : ").and_then(|(_, t)| t.split(' ').next()?.parse().ok());
    ensure(told.is_some_and(|ms: u64| (4096..600_000).contains(&ms)), || format!("timestamp: {told:?}"))?;
    let refused = section(out, "security")?.matches("Invalid Command Opcode").count();
    ensure(refused == 2, || format!("security: {}", section(out, "security").unwrap_or_default()))?;
    has(out, "behaviour", &["512"])?;
    has(out, "virtual", &["Invalid Command Opcode"])?;
    has(out, "descs", &["uuid", "nguid"])?;
    let errors = json(out, "errors")?;
    ensure(errors["errors"][0]["error_count"].as_u64().is_some_and(|n| n > 0), || format!("errors: {errors}"))?;
    ensure(json(out, "endurance")?["total_end_grp_cap"] == 64 << 20, || "endurance group".into())?;
    has(out, "ana", &["optimized"])?;
    has(
        out,
        "smartctl",
        &["self-assessment test result: PASSED", "Available Spare Threshold:", "Error Information (NVMe Log 0x01"],
    )?;
    has(out, "fw", &["Invalid Firmware Slot", "2.0.1"])?;
    let id = json(out, "fwreset")?;
    ensure(id["fr"].as_str().is_some_and(|fr| fr.trim() == "2.0.1"), || format!("after the reset: {}", id["fr"]))?;
    has(out, "lock", &["Prohibited by Command and Feature Lockdown"])?;
    newest_result(&json(out, "selftest")?, 1)?;
    let telemetry = section(out, "telemetry")?;
    ensure(telemetry.lines().last() == Some("1"), || format!("telemetry: {telemetry}"))?;
    let log = json(out, "sanitize")?;
    ensure(log.to_string().contains("65535"), || format!("sanitize-log: {log}"))?;
    ensure(section(out, "pattern")?.trim() == "0", || "what was overwritten is not the pattern".into())?;
    has(out, "format", &["Success formatting"])?;
    let events = [
        "FW Commit Event Entry",
        "Type: Set Telemetry CRT",
        "Power On Reset Event Entry",
        "Format NVM Start Event Entry",
        "Format NVM Completion Event Entry",
    ];
    has(out, "events", &events)?;
    has(out, "events", &["Sanitize Start Event Entry", "Sanitize Completion Event Entry"])?;
    let context = section(out, "context")?;
    ensure(context.matches("Command Sequence Error").count() == 2, || format!("context: {context}"))?;
    let kernel = section(out, "kernel")?;
    ensure(!kernel.contains("nvme"), || format!("the kernel complains: {kernel}"))
}

fn check_second(out: &str) -> Outcome {
    has(out, "saved", &["Current value:0x0000014a", "Saved value:0x0000014a"])?;
    let id = json(out, "id")?;
    ensure(id["fr"].as_str().is_some_and(|fr| fr.trim() == "2.0.1"), || format!("after the restart: {}", id["fr"]))?;
    newest_result(&json(out, "selftest")?, 1)?;
    let smart = json(out, "smart")?;
    let n = |key: &str| smart[key].as_f64().or_else(|| smart[key].as_str()?.parse().ok()).unwrap_or(-1.0);
    ensure(n("power_cycles") == 2.0 && n("unsafe_shutdowns") == 1.0, || format!("after a kill: {smart}"))?;
    ensure(n("host_write_commands") >= 1.0, || format!("SMART counts over the whole life: {smart}"))?;
    ensure(section(out, "zeroes")?.trim() == "0", || "what was erased is not gone".into())?;
    has(out, "events", &["Sanitize Start Event Entry", "FW Commit Event Entry", "Format NVM Start Event Entry"])
}

/// The newest self-test was of that code, and has passed.
fn newest_result(log: &Value, code: u64) -> Outcome {
    let newest = &log["List of Valid Reports"][0];
    let good = newest["Self test result"] == 0 && newest["Self test code"] == code;
    ensure(good, || format!("self-test-log: {log}"))
}
