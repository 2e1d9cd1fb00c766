//! Failures by rule as foreign clients see them: Linux's own drivers over NVMe/TCP, PCIe (vfio-user) and virtio (vhost-user), nvme-cli, and a
//! host by hand for what comes and goes while the node runs.

use std::time::Duration;

use serde_json::Value;

use super::guest_vfio::device;
use super::guest_vhost::disk;
use super::{long, test};
use crate::guest::{Guest, connect_script, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, text, with_node};
use crate::process::until;
use crate::raw::nvme_tcp::{Data, Host, capsule, io, kind, sqe};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "fault_rules";
    vec![
        test(S, "rules_come_and_go_while_the_node_serves", come_and_go),
        test(S, "rules_are_refused_where_they_are_not_allowed_or_make_no_sense", refused),
        test(S, "rules_outlive_the_worker", outlive),
        test(S, "what_is_over_does_not_apply_again_after_a_crash_or_an_upgrade", over),
        test(S, "rules_that_do_not_fit_at_a_takeover_are_left_out_with_a_warning", left_out),
        test(S, "linux_over_nvme_tcp", over_tcp),
        long(S, "linux_over_virtio", over_virtio),
        long(S, "linux_over_pcie_with_timeouts_and_resets", over_pcie),
    ]
}

/// A drive whose configuration has these rules.
fn setup(rules: &[&str]) -> Setup {
    let mut keys = String::new();
    for rule in rules {
        keys += "\n[[fault]]\ndevice = \"ssd0\"\n";
        for (i, word) in rule.split(' ').enumerate() {
            let (key, value) = if i == 0 { ("effect", word) } else { word.split_once('=').unwrap_or((word, "")) };
            keys += &format!("{key} = \"{value}\"\n");
        }
    }
    Setup { node: "faults = true".into(), ..Setup::default() }.device(&keys)
}

/// A host of tenant gold with an I/O queue.
struct Client {
    admin: Host,
    queue: Host,
}

impl Client {
    fn of(node: &Node) -> Result<Self, String> {
        let host = host_nqn("gold");
        let (admin, cntlid) = Host::admin(node.address(), &host, 0)?;
        Ok(Self { admin, queue: Host::io_queue(node.address(), &host, cntlid, 1)? })
    }

    /// Status of a write of a block, without its More and DNR bits.
    fn write(&mut self, lba: u32) -> Result<u16, String> {
        let block = [7u8; 512];
        self.queue.send(&io(1, 9, lba, 1, Data::InCapsule(&block)))?;
        self.queue.expect(kind::RESPONSE).map(|response| response.status() & 0x7ff)
    }

    /// SMART's media errors.
    fn media_errors(&mut self) -> Result<u32, String> {
        let data = Data::Transport(512);
        self.admin.send(&capsule(&sqe(2, 3, u32::MAX, [2 | 127 << 16, 0, 0, 0, 0, 0], data), data))?;
        let page = self.admin.expect(kind::C2H_DATA)?;
        let errors = page.u32(24 + 160);
        self.admin.success().map(|_| errors)
    }
}

fn faults(node: &Node) -> Result<Vec<Value>, String> {
    let printed = node.cli_ok(&["fault", "ls", "ssd0", "--json"])?;
    serde_json::from_str(&printed).map_err(|e| format!("{printed}: {e}"))
}

fn come_and_go(env: &Env) -> Outcome {
    with_node(env, &setup(&[]), |node| {
        let mut host = Client::of(node)?;
        ensure(host.write(8)? == 0, || "without rules".into())?;
        let said = node.cli_ok(&["fault", "add", "ssd0", "media-error", "lba=8-15", "op=write", "count=2"])?;
        ensure(said == "ssd0: rule 1: media-error lba=8-15 op=write count=2\n", || said.clone())?;
        node.cli_ok(&["fault", "add", "ssd0", "status", "code=0/81h", "lba=100"])?;
        let seen = [8, 16, 15, 8, 100].map(|lba| host.write(lba));
        ensure(seen == [Ok(0x280), Ok(0), Ok(0x280), Ok(0), Ok(0x81)], || format!("{seen:x?}"))?;
        ensure(host.media_errors()? == 2, || "media errors are counted".into())?;
        let list = faults(node)?;
        let counts: Vec<(u64, bool)> =
            list.iter().map(|f| (f["applied"].as_u64().unwrap_or(0), f["active"] == true)).collect();
        ensure(counts == [(2, false), (1, true)], || format!("{list:?}"))?;
        let table = node.cli_ok(&["fault", "ls"])?;
        ensure(table.contains("status code=0/81h lba=100"), || table.clone())?;
        node.cli_ok(&["fault", "rm", "ssd0", "2"])?;
        ensure(host.write(100)? == 0, || "the rule is gone".into())?;
        let removed = node.cli_ok(&["fault", "rm", "ssd0", "all"])?;
        ensure(removed.contains("rule 1 removed") && faults(node)?.is_empty(), || removed.clone())?;
        // A completion that does not come until the rule goes.
        node.cli_ok(&["fault", "add", "ssd0", "hang", "op=write"])?;
        host.queue.send(&io(1, 10, 8, 1, Data::InCapsule(&[1; 512])))?;
        host.media_errors()?;
        node.cli_ok(&["fault", "rm", "ssd0", "all"])?;
        host.queue.success().map(|_| ())
    })
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let denied = node.cli(&["fault", "add", "ssd0", "hang"])?;
        ensure(denied.status.code() == Some(1) && denied.stderr.contains("[node] says faults = true"), || {
            denied.describe()
        })
    })?;
    with_node(env, &setup(&[]), |node| {
        for (words, code, says) in [
            (vec!["ssd0", "melt"], 2, "effect: there is no \"melt\"; there is status"),
            (vec!["ssd0", "hang", "lba=x"], 2, "lba: \"x\" is not a block"),
            (vec!["ssd1", "hang"], 1, "there is no device \"ssd1\"; there is ssd0"),
            (vec!["ssd0", "hang", "die=3"], 1, "die: the drive has no flash inside"),
            (vec!["ssd0", "hang", "tenant=lead"], 1, "tenant: the drive has no tenant \"lead\""),
            (vec!["ssd0", "hang", "lba=524288"], 1, "lba: block 524288 is behind the end"),
        ] {
            let mut args = vec!["fault", "add"];
            args.extend(words);
            let done = node.cli(&args)?;
            ensure(done.status.code() == Some(code) && done.stderr.contains(says), || {
                format!("{args:?}: {}", done.describe())
            })?;
        }
        node.cli_ok(&["fault", "add", "ssd0", "link-loss", "from=60min"])?;
        let clash = node.cli(&["fault", "add", "ssd0", "removal"])?;
        ensure(clash.status.code() == Some(1) && clash.stderr.contains("contradicts rule 1 (link-loss"), || {
            clash.describe()
        })?;
        ensure(faults(node)?.len() == 1, || "nothing else has changed".into())?;
        let gone = node.cli(&["fault", "rm", "ssd0", "7"])?;
        ensure(gone.status.code() == Some(1) && gone.stderr.contains("has no rule 7"), || gone.describe())
    })
}

/// Rules that were made while the node runs go on in the next worker.
fn outlive(env: &Env) -> Outcome {
    let mut setup = setup(&["media-error lba=8 op=write"]);
    setup.node += "\nkeeper = true";
    with_node(env, &setup, |node| {
        node.cli_ok(&["fault", "add", "ssd0", "disk-full", "lba=16"])?;
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        let rules: Vec<Value> = faults(node)?.iter().map(|f| f["rule"].clone()).collect();
        ensure(rules == ["media-error lba=8 op=write", "disk-full lba=16"], || format!("{rules:?}"))?;
        let mut host = Client::of(node)?;
        let seen = [8, 16, 24].map(|lba| host.write(lba));
        ensure(seen == [Ok(0x280), Ok(0x81), Ok(0)], || format!("{seen:x?}"))
    })
}

/// The worker is killed; the next one serves when this comes back.
fn another_worker(node: &Node) -> Outcome {
    let before = node.worker()?;
    node.kill_worker()?;
    until(Duration::from_secs(60), "another worker serves", || {
        let is_another = node.workers()?.first().is_some_and(|worker| *worker != before);
        Ok((is_another && node.cli(&["status"])?.status.success()).then_some(()))
    })
}

/// Numbers of a rule: commands that it was about, and how often it applied.
fn counts(node: &Node) -> Result<Vec<(u64, u64)>, String> {
    let number = |fault: &Value, key: &str| fault[key].as_u64().unwrap_or(u64::MAX);
    Ok(faults(node)?.iter().map(|fault| (number(fault, "matched"), number(fault, "applied"))).collect())
}

fn over(env: &Env) -> Outcome {
    let mut setup = setup(&["status code=0/06h lba=8 op=write count=1"]);
    setup.node += "\nkeeper = true";
    with_node(env, &setup, |node| {
        node.cli_ok(&["fault", "add", "ssd0", "status", "code=0/81h", "lba=16", "op=write", "after=4"])?;
        let writes = |lbas: &[u32], expected: &[u16]| {
            let mut host = Client::of(node)?;
            let seen: Result<Vec<u16>, String> = lbas.iter().map(|lba| host.write(*lba)).collect();
            let seen = seen?;
            ensure(seen == expected, || format!("writes of {lbas:?}: {seen:x?}, not {expected:x?}"))
        };
        writes(&[8, 8, 16, 16], &[0x06, 0, 0, 0])?;
        another_worker(node)?;
        writes(&[8, 16], &[0, 0])?;
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        writes(&[8, 16, 16], &[0, 0, 0x81])?;
        let seen = counts(node)?;
        ensure(seen == [(1, 1), (5, 1)], || format!("{seen:?}"))?;
        another_worker(node)?;
        let again = counts(node)?;
        ensure(again == seen, || format!("{again:?}, not {seen:?}"))
    })
}

fn left_out(env: &Env) -> Outcome {
    let mut setup = setup(&["media-error lba=8 op=write"]);
    setup.node += "\nkeeper = true";
    with_node(env, &setup, |node| {
        node.cli_ok(&["tenant", "add", "tin", "--host", "nqn.2026-01.test.weir:tin"])?;
        node.cli_ok(&["fault", "add", "ssd0", "disk-full", "tenant=tin"])?;
        node.cli_ok(&["fault", "add", "ssd0", "disk-full", "lba=16"])?;
        node.cli_ok(&["tenant", "rm", "tin"])?;
        another_worker(node)?;
        let rules: Vec<Value> = faults(node)?.iter().map(|f| f["rule"].clone()).collect();
        ensure(rules == ["media-error lba=8 op=write", "disk-full lba=16"], || format!("{rules:?}"))?;
        let log = node.log();
        let warning = log.lines().find(|line| line.contains("WARN") && line.contains("it is left out"));
        ensure(warning.is_some_and(|line| line.contains("tin") && line.contains("ssd0")), || log.clone())?;
        // The next one is not told of it again.
        another_worker(node)?;
        let warnings = node.log().lines().filter(|line| line.contains("it is left out")).count();
        ensure(warnings == 1, || format!("{warnings} warnings"))
    })
}

/// Shell functions: a page of 4 KiB, which is eight blocks, read or written without a cache.
const SHELL: &str = r#"
rd() { dd if=$DEV of=/tmp/page bs=4k count=1 skip=$1 iflag=direct 2>/dev/null && echo "read $1" || echo "read $1 fails"; }
wr() { dd if=/tmp/data of=$DEV bs=4k count=1 seek=$1 oflag=direct conv=notrunc 2>/dev/null && echo "write $1" || echo "write $1 fails"; }
head -c 4096 /dev/urandom >/tmp/data
"#;

/// Rules by blocks, each in a page of its own.
const BY_BLOCKS: [&str; 5] = [
    "media-error lba=8-15 op=read",
    "media-error lba=18 op=write",
    "corrupt lba=66 op=read bytes=4",
    "torn-write keep=2 lba=80-87",
    "latency time=700ms lba=96-103 op=read",
];

/// What these make of I/O.
const CHECK_BLOCKS: &str = r#"
section io; rd 0; rd 1; wr 1; rd 2; wr 2; rd 2
section corrupted; wr 8; rd 8; cmp -l /tmp/data /tmp/page | awk '{ print $1 }'
section torn; wr 9; cp /tmp/data /tmp/first; head -c 4096 /dev/urandom >/tmp/data; wr 10; wr 10; rd 10
cmp /tmp/data /tmp/page >/dev/null && echo "whole" || echo "torn"; cmp -n 1024 /tmp/data /tmp/page && echo "its beginning"
section late; s=$(cut -d. -f1 /proc/uptime); for n in 1 2 3 4 5; do rd 12; done; e=$(cut -d. -f1 /proc/uptime); echo $((e - s))
"#;

fn check_blocks(out: &str) -> Outcome {
    let words = |name: &str| section(out, name).map(|s| s.split_whitespace().collect::<Vec<_>>().join(" "));
    let io = "read 0 read 1 fails write 1 read 2 write 2 fails read 2";
    ensure(words("io")? == io, || format!("{}: {out}", words("io").unwrap_or_default()))?;
    // Block 66 is the third of its page.
    ensure(words("corrupted")? == "write 8 read 8 1025 1026 1027 1028", || out.to_owned())?;
    let torn = words("torn")?;
    ensure(torn.contains("write 10 write 10 read 10 torn its beginning"), || format!("{torn}: {out}"))?;
    let late = words("late")?.rsplit(' ').next().and_then(|s| s.parse::<u32>().ok());
    ensure(late.is_some_and(|s| (3..30).contains(&s)), || format!("{late:?} s for five times 700 ms: {out}"))
}

fn over_tcp(env: &Env) -> Outcome {
    let rules = [
        &BY_BLOCKS[..],
        &[
            "status code=0/06h dnr=true lba=32-39",
            "disk-full lba=48-55",
            "smart spare=5 media_errors=100",
            "read-only op=write lba=200-207",
            "link-loss op=read lba=304-311 lasts=3s",
        ],
    ]
    .concat();
    with_node(env, &setup(&rules), |node| {
        let script = "DEV=/dev/nvme0n1\n".to_owned()
            + &connect_script(node.port, "--reconnect-delay=1")
            + SHELL
            + CHECK_BLOCKS
            + r#"
section statuses; rd 4; wr 6
section kernel; dmesg | grep -iE 'critical|i/o error|nvme0'
section error-log; nvme error-log /dev/nvme0 -e 16
section smart-log; nvme smart-log /dev/nvme0
section smartctl; smartctl -a /dev/nvme0 >/tmp/smart && status=0 || status=$?; sed 's/^=/-/' /tmp/smart; echo "status $status"
section lost; rd 38
i=0; until rd 0 | grep -q 'read 0$'; do i=$((i + 1)); [ $i -lt 30 ] || { dmesg | tail; exit 1; }; sleep 1; done
dmesg | grep -iE 'reconnect'
section read-only; wr 100; wr 25; wr 100; rd 100; nvme smart-log /dev/nvme0 | grep critical_warning
section end
"#;
        let out = Guest { cpus: 1, net: true, qemu: &[], limit: 150 }.run(env, &script)?;
        check_blocks(&out)?;
        let has = |name: &str, what: &str| match section(&out, name) {
            Ok(part) if part.to_lowercase().contains(what) => Ok(()),
            Ok(part) => Err(format!("{name} lacks {what:?}: {part}\n{out}")),
            Err(e) => Err(e),
        };
        has("statuses", "read 4 fails")?;
        has("statuses", "write 6 fails")?;
        for says in [
            "@ lba 8, 8 blocks, i/o error (sct 0x2 / sc 0x81)",
            "critical medium error, dev nvme0c0n1, sector 8 ",
            "@ lba 16, 8 blocks, i/o error (sct 0x2 / sc 0x80)",
            "critical medium error, dev nvme0c0n1, sector 16 ",
            "i/o error (sct 0x0 / sc 0x6) dnr",
            "i/o error, dev nvme0c0n1, sector 32 ",
            "critical space allocation error, dev nvme0c0n1, sector 48 ",
        ] {
            has("kernel", says)?;
        }
        // nvme-cli prints the block in hexadecimal; the write's is the one that the rule names, not the first of the command.
        for lba in ["0x8", "0x12", "0x20", "0x30"] {
            let logged = section(&out, "error-log")?.lines().any(|l| l.starts_with("lba") && l.trim().ends_with(lba));
            ensure(logged, || format!("block {lba} is in the error log: {out}"))?;
        }
        let number = |key: &str| {
            let smart = section(&out, "smart-log").unwrap_or_default();
            let line = smart.lines().find(|l| l.to_lowercase().starts_with(key)).unwrap_or_default();
            line.rsplit(':').next().unwrap_or_default().trim().to_owned()
        };
        // Linux tries again what has no DNR, and each time is a media error.
        let errors = number("media_errors").parse::<u32>().unwrap_or(0);
        ensure(number("available_spare") == "5%" && (102..130).contains(&errors), || out.clone())?;
        ensure(number("critical_warning") == "0x1", || out.clone())?;
        for says in [
            "self-assessment test result: failed!",
            "available spare has fallen below threshold",
            "error information (nvme log 0x01",
            "unrecovered read error",
        ] {
            has("smartctl", says)?;
        }
        let told = section(&out, "smartctl")?;
        let value = |key: &str| told.lines().find_map(|l| l.strip_prefix(key)).map(str::trim).unwrap_or_default();
        let errors = value("Media and Data Integrity Errors:").parse::<u32>().unwrap_or(0);
        ensure(value("Available Spare:") == "5%" && (102..130).contains(&errors), || told.to_owned())?;
        // Bit 3 of its exit status: the drive says that it fails.
        let status = value("status").parse::<u32>().unwrap_or(0);
        ensure(status & 8 != 0 && status & 7 == 0, || format!("smartctl: {status}: {told}"))?;
        has("lost", "reconnect")?;
        has("read-only", "write 100\nwrite 25 fails\nwrite 100 fails\nread 100\n")?;
        has("read-only", "0x9")
    })
}

fn over_virtio(env: &Env) -> Outcome {
    let rules = [&BY_BLOCKS[..], &["link-loss op=read lba=304-311 lasts=3s"]].concat();
    with_node(env, &setup(&rules).socket("gold.sock"), |node| {
        let script = "DEV=/dev/vda\n".to_owned()
            + SHELL
            + CHECK_BLOCKS
            + r#"
section kernel; dmesg | grep -iE 'i/o error'
section lost; dmesg -c >/dev/null; rd 38; for n in 0 3 5; do rd $n; done; dmesg | grep -iE 'error|vda' || true
section end
"#;
        let qemu = disk(&text(&node.socket("gold.sock")), false, 1);
        let out = Guest { cpus: 1, net: false, qemu: &qemu, limit: 120 }.run(env, &script)?;
        check_blocks(&out)?;
        let kernel = section(&out, "kernel")?;
        for sector in ["sector 8 ", "sector 16 "] {
            ensure(kernel.contains(sector), || format!("{sector}: {kernel}"))?;
        }
        // What the link's loss held up goes on when it is back: the guest hears of nothing.
        let lost = section(&out, "lost")?;
        ensure(lost.trim() == "read 38\nread 0\nread 3\nread 5", || lost.to_owned())
    })
}

fn over_pcie(env: &Env) -> Outcome {
    let rules = [
        &BY_BLOCKS[..],
        &[
            "hang op=read lba=400-407 count=1",
            "controller-fatal op=read lba=504-511",
            "slow-reset time=2s",
            "link-loss op=read lba=304-311 lasts=5s",
        ],
    ]
    .concat();
    with_node(env, &setup(&rules).vfio("ssd0.sock", ""), |node| {
        let script = r#"
DEV=/dev/nvme0n1; D=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
drive() { i=0; while ! [ -b $DEV ]; do i=$((i + 1)); [ $i -lt 200 ] || { dmesg | tail; exit 1; }; sleep 0.1; done; }
drive
echo 2 >/sys/module/nvme_core/parameters/io_timeout
echo $D >/sys/bus/pci/drivers/nvme/unbind; echo $D >/sys/bus/pci/drivers/nvme/bind; drive
"#
        .to_owned()
            + SHELL
            + CHECK_BLOCKS
            + r#"
section kernel; dmesg | grep -iE 'critical'
section error-log; nvme error-log /dev/nvme0 -e 16
section hang; dmesg -c >/dev/null; rd 50; dmesg | grep nvme
section fatal; dmesg -c >/dev/null; rd 63; dmesg | grep nvme; drive; rd 0
section lost; dmesg -c >/dev/null; rd 38 >/dev/null & i=0; until dmesg | grep -i 'csts=0xffffffff'; do
  i=$((i + 1)); [ $i -lt 200 ] || { dmesg | tail; exit 1; }; sleep 0.1
done
sleep 6
echo 1 >/sys/bus/pci/devices/$D/remove; echo 1 >/sys/bus/pci/rescan; drive; rd 0
section end
"#;
        let qemu = ["-device".to_owned(), device(&text(&node.socket("ssd0.sock"))).to_string()];
        let out = Guest { cpus: 1, net: false, qemu: &qemu, limit: 240 }.run(env, &script)?;
        check_blocks(&out)?;
        let has = |name: &str, what: &str| {
            let part = section(&out, name).map(str::to_lowercase)?;
            ensure(part.contains(what), || format!("{name} lacks {what:?}: {part}"))
        };
        has("kernel", "critical medium error, dev nvme0c0n1, sector 8 ")?;
        has("hang", "timeout")?;
        has("hang", "reset controller")?;
        has("hang", "read 50\n")?;
        has("fatal", "csts=0x3")?;
        has("fatal", "read 63\n")?;
        has("lost", "csts=0xffffffff")?;
        ensure(section(&out, "lost")?.trim().ends_with("read 0"), || format!("it is there again: {out}"))
    })
}
