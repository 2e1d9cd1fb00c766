//! Pools and volumes: served by every door, changed while they serve, found again from their drives alone.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::power::Client;
use super::{long, test};
use crate::bench::{Bench, bench, number};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, host_nqn, with_node};
use crate::process::{Process, run};
use crate::raw::nvme_tcp::{Data, Host, capsule, io, kind, sqe};
use crate::raw::vhost_user::Front;
use crate::vfio::{Drive, EVENT, PAGE, ams, command};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "pool";
    vec![
        test(S, "volumes_at_every_door", volumes_at_every_door),
        test(S, "a_volume_on_drives_of_two_cores", on_two_cores),
        test(S, "a_read_over_two_drives_comes_in_its_order_by_tcp", over_two_drives),
        test(S, "resized_while_running", resized_while_running),
        test(S, "front_ends_and_pcie_hosts_hear_of_a_new_size", new_size_is_told),
        test(S, "what_was_flushed_survives_the_power_of_a_drive", power_of_a_drive),
        test(S, "drives_come_and_go", come_and_go),
        test(S, "nobody_reads_what_was_another\'s", nobody_reads_anothers),
        long(S, "nor_writes_to_it_with_what_is_on_its_way", nobody_writes_to_anothers),
        test(S, "found_again_in_another_order", found_again),
        test(S, "volumes_outlive_their_worker", outlive_worker),
        test(S, "drives_that_do_not_belong", drives_that_do_not_belong),
        test(S, "an_old_copy_of_a_drive_is_refused_by_name", old_copies),
        test(S, "what_cannot_be_is_refused", refused),
        test(S, "a_drive_without_space_answers", without_space),
        test(S, "a_pool_goes_on_when_there_is_space_again", space_again),
        test(S, "a_drive_leaves_when_nothing_is_on_its_way_there", leaves_in_order),
        test(S, "shares_are_the_drive\'s", shares),
        long(S, "ten_thousand_volumes", ten_thousand),
    ]
}

/// Tenants, and what every configuration here begins with.
pub(super) fn head() -> String {
    let tenant = |name: &str, class: &str, more: &str| {
        format!("[[tenant]]\nname = \"{name}\"\nclass = \"{class}\"\nhosts = [\"{}\"{more}]\n", host_nqn(name))
    };
    "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\n".to_owned()
        + &tenant("gold", "high", ", \"*\"")
        + &tenant("silver", "medium", "")
        + &tenant("bronze", "low", "")
        + "[door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
}

pub(super) fn device(name: &str, keys: &str) -> String {
    format!("[[device]]\nname = \"{name}\"\n{keys}\n")
}

pub(super) fn volume(name: &str, tenant: &str, size: &str, export: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\ntenant = \"{tenant}\"\nsize = \"{size}\"\nexport = [{export}]\n")
}

pub(super) fn setup(whole: String) -> Setup {
    Setup { whole, ..Setup::default() }
}

/// Two RAM drives and three volumes, one of them on both.
pub(super) fn three_volumes() -> Setup {
    setup(
        head()
            + &device("d0", "capacity = \"64MiB\"")
            + &device("d1", "capacity = \"48MiB\"")
            + &volume("wide", "silver", "70MiB", "\"vhost-user:wide.sock\", \"vfio-user:wide-pci.sock\", \"nvme-tcp\"")
            + &volume("v0", "gold", "12MiB", "\"vhost-user:v0.sock\", \"nvme-tcp\"")
            + &volume("v1", "bronze", "10MiB", "\"vhost-user:v1.sock\""),
    )
}

pub(super) fn nqn(volume: &str) -> String {
    format!("nqn.2026-11.io.weir:e2e:{volume}")
}

fn volumes_at_every_door(env: &Env) -> Outcome {
    with_node(env, &three_volumes(), |node| {
        let listed = http::get(&node.api(), "/v1/volumes")?;
        let wide = &listed[0];
        ensure(wide["name"] == "wide" && wide["drives"].as_array().is_some_and(|d| d.len() == 2), || {
            format!("the wide volume lies on both drives: {listed}")
        })?;
        let tcp = |volume: &str| format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn(volume));
        let (silver, gold) = (format!("host={}", host_nqn("silver")), format!("host={}", host_nqn("gold")));
        let (silver, gold) = (silver.as_str(), gold.as_str());
        let both = [
            (node.socket_target("wide.sock"), ""),
            (node.socket_target("v0.sock"), ""),
            (node.socket_target("v1.sock"), ""),
        ];
        let size = ["--bs", "4KiB:50/128KiB:50", "--qd", "16", "--rw", "randrw", "--verify", "crc32c", "--time", "1s"];
        let running = both.iter().map(|(target, _)| Bench::start(env, target, &size)).collect::<Result<Vec<_>, _>>()?;
        for bench in running {
            bench.finish()?.clean()?;
        }
        for (target, host) in [(node.vfio_target("wide-pci.sock"), ""), (tcp("wide"), silver), (tcp("v0"), gold)] {
            let job = format!("name=j,rw=randrw,bs=64KiB,qd=8{}{host}", if host.is_empty() { "" } else { "," });
            bench(env, &target, &["--job", &job, "--verify", "crc32c", "--time", "1s"])?.clean()?;
        }
        // Whose the volume is not is no host of it, whatever other volumes there are for everybody.
        let stranger = Host::admin_of(&nqn("wide"), node.address(), &host_nqn("bronze"), 0);
        let told = stranger.map_or_else(|e| e, |_| "it gets in".into());
        ensure(told.contains("status 0x4184"), || format!("another tenant\'s host: {told}"))?;
        let status = node.cli_ok(&["pool", "status"])?;
        ensure(status.contains("d0") && status.contains("d1") && status.contains("3 volumes"), || status.clone())?;
        let exports = node.cli_ok(&["export", "ls"])?;
        ensure(exports.contains("wide-pci.sock") && exports.contains("nvme-tcp"), || exports.clone())
    })
}

/// The drives lie on two cores, the volumes on one drive or on both; every door, verified, while one grows and shrinks; then the node ends
/// at once.
fn on_two_cores(env: &Env) -> Outcome {
    let Setup { whole, .. } = three_volumes();
    let node = Node::start(env, &setup(whole.replace("cores = [0]", "cores = [0, 1]")))?;
    let status = http::get(&node.api(), "/v1/status")?;
    let cores: Vec<_> = status["devices"].as_array().into_iter().flatten().map(|d| d["core"].clone()).collect();
    ensure(cores == [0, 1], || format!("{cores:?}"))?;
    let args = ["--bs", "4KiB:50/128KiB:50", "--qd", "16", "--rw", "randrw", "--verify", "crc32c", "--time", "1s"];
    let sockets = ["wide.sock", "v0.sock", "v1.sock"].map(|s| node.socket_target(s));
    let small = [&args[..], &["--size", "8MiB"]].concat();
    let running = sockets.iter().map(|target| Bench::start(env, target, &small)).collect::<Result<Vec<_>, _>>()?;
    for size in ["24MiB", "12MiB", "20MiB"] {
        node.cli_ok(&["volume", "resize", "v0", size, "--shrink"])?;
    }
    for bench in running {
        bench.finish()?.clean()?;
    }
    bench(env, &sockets[0], &args)?.clean()?;
    bench(env, &node.vfio_target("wide-pci.sock"), &args)?.clean()?;
    let target = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn("wide"));
    let job = format!("name=j,rw=randrw,bs=64KiB,qd=8,host={}", host_nqn("silver"));
    bench(env, &target, &["--job", &job, "--verify", "crc32c", "--time", "1s"])?.clean()?;
    let idle = ["--bs", "4KiB", "--qd", "8", "--rw", "randread", "--time", "20s"];
    let _load = Bench::start(env, &sockets[0], &idle)?;
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    node.stop()?;
    let took = begun.elapsed();
    // Nobody has waited for the other until it lost patience, which takes five seconds.
    ensure(took < Duration::from_secs(4), || format!("the node took {took:?} to end"))
}

/// Files `a`, `b` and `c`; the pool names the first two.
fn with_a_third() -> String {
    let named =
        files(["a", "b"]).replace("[[pool]]\nname = \"p\"\n", "[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n");
    named
        + &device("c", "media = \"file:c.img\"\ncapacity = \"16MiB\"")
        + &device("d", "capacity = \"8MiB\"")
        + "[[export]]\ndevice = \"d\"\ndoor = \"nvme-tcp\"\n"
}

fn come_and_go(env: &Env) -> Outcome {
    with_node(env, &setup(with_a_third()), |node| {
        marked(node, false)?;
        let drives = |node: &Node| -> Result<Vec<String>, String> {
            let pools = http::get(&node.api(), "/v1/pools")?;
            let all = pools[0]["drives"].as_array().cloned().unwrap_or_default();
            Ok(all.iter().map(|d| d["device"].as_str().unwrap_or_default().to_owned()).collect())
        };
        let refused = |args: &[&str], why: &str| -> Outcome {
            let before = http::get(&node.api(), "/v1/pools")?;
            let said = node.cli(args)?;
            ensure(said.status.code() == Some(1) && said.stderr.contains(why), || {
                format!("weir {}: expected {why:?}: {}", args.join(" "), said.describe())
            })?;
            let after = http::get(&node.api(), "/v1/pools")?;
            ensure(before == after, || format!("weir {}: {before} {after}", args.join(" ")))
        };
        ensure(drives(node)? == ["a", "b"], || "the named drives".into())?;
        refused(&["pool", "add", "a"], "is a drive of pool p already")?;
        refused(&["pool", "add", "d"], "is exported by itself")?;
        refused(&["pool", "add", "e"], "there is no device \"e\"")?;
        refused(&["pool", "remove", "c"], "c is no drive of this pool")?;
        refused(&["volume", "create", "more", "12MiB", "--tenant", "bronze"], "MiB are free")?;
        damage(&node.dir.join("c.img"), 40960, 16)?;
        refused(&["pool", "add", "c"], "drive c is not empty")?;
        damage(&node.dir.join("c.img"), 40960, 16)?;
        node.cli_ok(&["pool", "add", "c"])?;
        ensure(drives(node)? == ["a", "b", "c"], || "it has joined".into())?;
        let made = node.cli_ok(&["volume", "create", "more", "12MiB", "--tenant", "bronze"])?;
        ensure(made.contains(" c "), || made.clone())?;
        refused(&["pool", "remove", "c"], "1 volume has chunks on drive c (\"more\")")?;
        let load = ["--bs", "16KiB", "--qd", "4", "--rw", "randrw", "--verify", "crc32c", "--time", "500ms"];
        let more = node.socket("more.sock").display().to_string();
        node.cli_ok(&["export", "volume", "more", &format!("vhost-user:{more}")])?;
        bench(env, &node.socket_target("more.sock"), &load)?.clean()?;
        // What is on it says that it is the pool's, whatever the configuration names.
        node.kill_and_start()?;
        ensure(drives(node)? == ["a", "b", "c"], || "it is found again".into())?;
        marked(node, true)?;
        node.cli_ok(&["volume", "delete", "more"])?;
        node.cli_ok(&["pool", "remove", "c"])?;
        ensure(drives(node)? == ["a", "b"], || "it has left".into())?;
        node.reconfigure(&with_a_third().replace("drives = [\"a\", \"b\"]", "drives = [\"a\", \"b\", \"c\"]"))?;
        node.kill_and_start()?;
        ensure(drives(node)? == ["a", "b"], || "a drive that has left is not back by its name".into())?;
        marked(node, true)?;
        node.cli_ok(&["pool", "add", "c"])?;
        ensure(drives(node)? == ["a", "b", "c"], || "it joins again".into())
    })
}

/// What block `lba` has.
fn of_block(lba: u32) -> [u8; 512] {
    std::array::from_fn(|at| (lba as u8).wrapping_mul(31).wrapping_add((lba >> 8) as u8).wrapping_add(at as u8))
}

/// The data of a C2HData PDU: the command, where they begin in its buffer, and they.
fn read_data(bytes: &[u8]) -> Option<(u16, u32, &[u8])> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (begin, len) = (usize::from(*bytes.get(3)?), word(16)? as usize);
    Some((word(8)? as u16, word(12)?, bytes.get(begin..begin + len)?))
}

/// A volume lies on a slow drive and behind that on a fast one. Reads of 8 KiB across each chunk's end, and of a block of the fast drive between them: of a
/// read over both drives the second half is there long before the first, and other answers go between the two.
fn over_two_drives(env: &Env) -> Outcome {
    const BLOCKS: u32 = 8;
    let whole = head()
        + &device("slow", "capacity = \"24MiB\"\nlatency = \"4ms\"")
        + &device("fast", "capacity = \"24MiB\"\nlatency = \"100us\"")
        + &volume("wide", "gold", "36MiB", "\"nvme-tcp\"");
    with_node(env, &setup(whole), |node| {
        let (host, nqn) = (host_nqn("gold"), nqn("wide"));
        let (_admin, cntlid) = Host::admin_of(&nqn, node.address(), &host, 0)?;
        let mut queue = Host::io_queue_of(&nqn, node.address(), &host, cntlid, 1)?;
        let ends: Vec<u32> = (1..36).map(|chunk| chunk * 2048 - BLOCKS).collect();
        for end in &ends {
            let bytes: Vec<u8> = (*end..end + 2 * BLOCKS).flat_map(of_block).collect();
            for (half, lba) in bytes.chunks(BLOCKS as usize * 512).zip([*end, end + BLOCKS]) {
                queue.send(&io(1, 1, lba, BLOCKS, Data::InCapsule(half)))?;
                queue.success()?;
            }
        }
        let mut misplaced = Vec::new();
        for (end, cid) in ends.iter().zip(100..) {
            queue.send(&io(2, cid, *end, 2 * BLOCKS, Data::Transport(2 * BLOCKS * 512)))?;
            // Of the fast drive's last chunk.
            (1..=4).try_for_each(|small| queue.send(&io(2, small, ends[34], 1, Data::Transport(512))))?;
            let (mut left, mut found) = (5, vec![0; 2 * BLOCKS as usize * 512]);
            while left > 0 {
                let pdu = queue.receive()?.ok_or("the connection ends")?;
                let success = pdu.kind == kind::C2H_DATA && pdu.bytes[1] & 8 != 0;
                left -= u32::from(success || pdu.kind == kind::RESPONSE);
                if let Some((of, at, data)) = read_data(&pdu.bytes).filter(|_| pdu.kind == kind::C2H_DATA) {
                    if of == cid {
                        found[at as usize..at as usize + data.len()].copy_from_slice(data);
                    }
                }
            }
            let expected: Vec<u8> = (*end..end + 2 * BLOCKS).flat_map(of_block).collect();
            if found != expected {
                misplaced.push(*end);
            }
        }
        ensure(misplaced.is_empty(), || format!("reads with other bytes, from blocks {misplaced:?}"))
    })
}

fn resized_while_running(env: &Env) -> Outcome {
    with_node(env, &three_volumes(), |node| {
        let args =
            ["--bs", "16KiB", "--qd", "8", "--rw", "randrw", "--size", "6MiB", "--verify", "crc32c", "--time", "2s"];
        let running = Bench::start(env, &node.socket_target("v0.sock"), &args)?;
        std::thread::sleep(Duration::from_millis(700));
        for size in ["20MiB", "8MiB", "24MiB"] {
            let said = node.cli_ok(&["volume", "resize", "v0", size, "--shrink"])?;
            ensure(said.contains(size), || said.clone())?;
        }
        running.finish()?.clean()?;
        let (mut admin, cntlid) = Host::admin_of(&nqn("v0"), node.address(), &host_nqn("gold"), 0)?;
        let mut queue = Host::io_queue_of(&nqn("v0"), node.address(), &host_nqn("gold"), cntlid, 1)?;
        let last = |mib: u32| mib * 2048 - 1;
        // Asynchronous Event Configuration: namespace attribute notices; then an Asynchronous Event Request.
        let command = |opcode, cid, dwords| capsule(&sqe(opcode, cid, 0, dwords, Data::None), Data::None);
        admin.send(&command(0x09, 7, [0x0b, 0x100, 0, 0, 0, 0]))?;
        admin.success()?;
        admin.send(&command(0x0c, 8, [0; 6]))?;
        ensure(read(&mut queue, 1, last(24))?.is_ok(), || "the last block of the larger volume".into())?;
        node.cli_ok(&["volume", "resize", "v0", "8MiB", "--shrink"])?;
        let event = admin.success()?;
        ensure(event.u32(8) == 0x0004_0002, || {
            format!("a notice that the namespace has changed: {:#x}", event.u32(8))
        })?;
        ensure(read(&mut queue, 2, last(24))? == Err(0x80), || "a block that has gone".into())?;
        ensure(read(&mut queue, 3, last(8))?.is_ok(), || "the last block of the smaller volume".into())?;
        admin.send(&crate::raw::nvme_tcp::identify(9))?;
        admin.expect(kind::C2H_DATA)?;
        admin.success().map(|_| ())
    })
}

/// The owner makes a volume larger and smaller while it is in use: a vhost-user front end is told to look at its configuration space again,
/// a PCIe host that its namespace has changed.
fn new_size_is_told(env: &Env) -> Outcome {
    with_node(env, &three_volumes(), |node| {
        let mut front = Front::open(&node.socket("v0.sock"))?;
        front.negotiate()?;
        let mut channel = front.back_channel()?;
        ensure(front.capacity()? == 12 << 11, || "12 MiB in sectors".into())?;
        for mib in [20u64, 8] {
            node.cli_ok(&["volume", "resize", "v0", &format!("{mib}MiB"), "--shrink"])?;
            let mut told = [0; 12];
            channel.read_exact(&mut told).context(|| format!("{mib} MiB: no message of the server"))?;
            // VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, version 1, nothing behind it.
            ensure(told == [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], || format!("{mib} MiB: {told:02x?}"))?;
            let sectors = front.capacity()?;
            ensure(sectors == mib << 11, || format!("{mib} MiB: {sectors} sectors"))?;
        }
        let mut drive = Drive::ready(&node.socket("wide-pci.sock"), ams::ROUND_ROBIN)?;
        // Asynchronous Event Configuration: namespace attribute notices.
        drive.set_feature(0x0b, [0x100, 0, 0])?;
        let buffer = drive.allocate(PAGE);
        let word = |drive: &mut Drive, command| -> Result<u64, String> {
            drive.admin_ok(command)?;
            let mut bytes = [0; 8];
            drive.read(buffer, &mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        for mib in [66u64, 74] {
            drive.submit_admin(EVENT, command(0x0c, (0, 0), &[(1, 0)]))?;
            ensure(drive.admin_completion(Duration::from_millis(20))?.is_none(), || "an event of nothing".into())?;
            node.cli_ok(&["volume", "resize", "wide", &format!("{mib}MiB"), "--shrink"])?;
            let event = drive.admin_completion(Duration::from_secs(5))?.ok_or("no event")?;
            ensure(event.cid == EVENT && event.result == 0x0004_0002, || format!("a notice: {event:x?}"))?;
            // Changed Namespace List: the first one; reading it makes room for the next event.
            let changed = word(&mut drive, command(0x02, (buffer, 0), &[(1, u32::MAX), (10, 1023 << 16 | 4)]))?;
            ensure(changed == 1, || format!("changed namespaces: {changed:#x}"))?;
            let blocks = word(&mut drive, command(0x06, (buffer, 0), &[(10, 0)]))?;
            ensure(blocks == mib << 11, || format!("{mib} MiB: NSZE {blocks}"))?;
        }
        Ok(())
    })
}

/// Flash drives with a volatile buffer, on two cores, and a volume on both: the power of one goes, again and again, while a host writes and
/// flushes and another one loads both. Of each block the host finds what a flush has confirmed, or something newer; a flush whose
/// writes a drive has lost does not succeed.
fn power_of_a_drive(env: &Env) -> Outcome {
    let flash = "capacity = \"64MiB\"\n".to_owned() + super::power::FLASH;
    let exports = "\"vhost-user:wide.sock\", \"nvme-tcp\"";
    let whole = head().replace("cores = [0]", "cores = [0, 1]")
        + &device("d0", &flash)
        + &device("d1", &flash)
        + &volume("wide", "gold", "100MiB", exports);
    with_node(env, &setup(whole), |node| {
        let volume = http::get(&node.api(), "/v1/volumes/wide")?;
        ensure(volume["drives"].as_array().is_some_and(|d| d.len() == 2), || volume.to_string())?;
        // Blocks all over the volume, but for its first MiB, which the load has.
        const BLOCKS: u32 = 40;
        let lba = |block: u32| 320 + 640 * block;
        let connect = || Client::of(&nqn("wide"), node.address());
        let mut client = connect()?;
        // By block: what a flush has confirmed, and what was written since; of each whether the next flush confirms it.
        let mut confirmed = vec![0; BLOCKS as usize];
        let mut newer: Vec<Vec<(u32, bool)>> = vec![Vec::new(); BLOCKS as usize];
        let load = ["--bs", "4KiB", "--qd", "16", "--rw", "randwrite", "--region", "1MiB", "--time", "4s"];
        let running = Bench::start(env, &node.socket_target("wide.sock"), &load)?;
        let api = node.api();
        let (mut value, mut refused, mut lost) = (0u32, 0u32, 0u64);
        for round in 0..6u64 {
            let drive = if round % 2 == 0 { "d0" } else { "d1" };
            let path = format!("/v1/devices/{drive}/power-cut");
            let cut = std::thread::scope(|s| -> Result<Value, String> {
                let cutter = s.spawn(|| {
                    std::thread::sleep(Duration::from_millis(120 + 37 * round));
                    http::request(&api, "POST", &path, None)
                });
                let (mut left, begun) = (0, Instant::now());
                // Until it is cut, and then until a flush succeeds again.
                while left < 2 {
                    ensure(begun.elapsed() < Duration::from_secs(20), || format!("round {round}: it hangs"))?;
                    for _ in 0..7 {
                        value += 1;
                        let block = value * 17 % BLOCKS;
                        let written = client.write(lba(block), value).is_ok();
                        newer[block as usize].push((value, written));
                        if !written {
                            // A connection may be gone; the volume is not.
                            client = connect()?;
                        }
                    }
                    match client.flush() {
                        Ok(()) => {
                            left += u32::from(cutter.is_finished());
                            for (confirmed, newer) in confirmed.iter_mut().zip(&mut newer) {
                                // The host writes one after the other: of a block there is what it wrote last.
                                if let Some(at) = newer.iter().rposition(|(_, written)| *written) {
                                    *confirmed = newer[at].0;
                                    newer.drain(..=at);
                                }
                            }
                        }
                        // Internal Path Error: the drive went while it had the flush. A host sends it again, so nothing is told by it.
                        Err(why) if why == "status 0x300" => {}
                        // Write Fault, not to be tried again: what was written since the last flush may be gone, whatever the next one says.
                        Err(why) => {
                            ensure(why == "status 0x4280", || format!("round {round}: a flush fails by {why}"))?;
                            refused += 1;
                            newer.iter_mut().flatten().for_each(|(_, written)| *written = false);
                        }
                    }
                }
                let (code, said) = cutter.join().map_err(|_| "a request panicked")??;
                ensure(code == 200, || said.clone())?;
                serde_json::from_str(&said).context(|| said)
            })?;
            lost += cut["lost_writes"].as_u64().ok_or("no count of writes")?;
            client = connect()?;
            for (block, (confirmed, newer)) in (0..).zip(confirmed.iter().zip(&newer)) {
                let found = client.read(lba(block))?;
                ensure(found == *confirmed || newer.iter().any(|(value, _)| *value == found), || {
                    format!("round {round}: block {block} has {found}, flushed was {confirmed}, newer are {newer:?}")
                })?;
            }
        }
        // What was in flight may have failed there.
        drop(running);
        println!("    {value} writes; the cuts took {lost}, {refused} flushes were refused");
        ensure(lost > 0 && refused > 0, || format!("the power went while nothing was in flight: {lost}, {refused}"))
    })
}

/// Reads a block of 512 bytes: it, or the status.
pub(super) fn read(queue: &mut Host, cid: u16, lba: u32) -> Result<Result<Vec<u8>, u16>, String> {
    queue.send(&io(2, cid, lba, 1, Data::Transport(512)))?;
    let mut bytes = Vec::new();
    loop {
        match queue.receive()? {
            Some(pdu) if pdu.kind == kind::RESPONSE => {
                let status = pdu.status() & 0x7ff;
                return Ok(if status == 0 { Ok(bytes) } else { Err(status) });
            }
            Some(pdu) if pdu.kind == kind::C2H_DATA => bytes.extend(&pdu.bytes[usize::from(pdu.bytes[3])..]),
            other => return Err(format!("expected data, not {other:02x?}")),
        }
    }
}

pub(super) fn write(queue: &mut Host, cid: u16, lba: u32, byte: u8) -> Outcome {
    queue.send(&io(1, cid, lba, 1, Data::InCapsule(&[byte; 512])))?;
    queue.success().map(|_| ())
}

/// Blocks of a volume of so many MiB: two of every MiB.
pub(super) fn places(mib: u32) -> impl Iterator<Item = u32> {
    (0..mib).flat_map(|m| [m * 2048, m * 2048 + 2047])
}

fn nobody_reads_anothers(env: &Env) -> Outcome {
    let whole = head() + &device("d0", "capacity = \"32MiB\"") + &volume("door", "gold", "1MiB", "\"nvme-tcp\"");
    with_node(env, &setup(whole), |node| {
        for (turn, tenant) in ["gold", "silver", "bronze"].into_iter().enumerate() {
            node.cli_ok(&["volume", "create", "all", "29MiB", "--tenant", tenant])?;
            node.cli_ok(&["export", "volume", "all", "nvme-tcp"])?;
            let (admin, cntlid) = Host::admin_of(&nqn("all"), node.address(), &host_nqn(tenant), 0)?;
            let mut queue = Host::io_queue_of(&nqn("all"), node.address(), &host_nqn(tenant), cntlid, 1)?;
            for (cid, lba) in (0..).zip(places(29)) {
                let found = read(&mut queue, cid, lba)?;
                ensure(found == Ok(vec![0; 512]), || format!("turn {turn}: block {lba} is no zeroes"))?;
                write(&mut queue, cid + 1000, lba, turn as u8 + 1)?;
                ensure(read(&mut queue, cid + 2000, lba)? == Ok(vec![turn as u8 + 1; 512]), || {
                    "what was written".into()
                })?;
            }
            let busy = node.cli(&["export", "rm", "nvme-tcp:all"])?;
            ensure(!busy.status.success() && busy.stderr.contains("is connected to it"), || busy.describe())?;
            let exported = node.cli(&["volume", "delete", "all"])?;
            ensure(exported.stderr.contains("weir export rm nvme-tcp:all"), || exported.describe())?;
            drop((admin, queue));
            crate::process::until(Duration::from_secs(5), "the host is gone", || {
                Ok(node.cli(&["export", "rm", "nvme-tcp:all"])?.status.success().then_some(()))
            })?;
            node.cli_ok(&["volume", "delete", "all"])?;
        }
        Ok(())
    })
}

/// More writes than a front has slots are on their way to a slow drive while their volume shrinks, and while its export ends and it is deleted:
/// they go to no chunk that another tenant has got by then.
fn nobody_writes_to_anothers(env: &Env) -> Outcome {
    let whole = head()
        + &device("d0", "capacity = \"32MiB\"\nlatency = \"20ms\"")
        + &volume("door", "gold", "1MiB", "\"nvme-tcp\"");
    with_node(env, &setup(whole), |node| {
        let others = |name: &str, mib: u32| -> Outcome {
            node.cli_ok(&["volume", "create", name, &format!("{mib}MiB"), "--tenant", "silver"])?;
            node.cli_ok(&["export", "volume", name, "nvme-tcp"])?;
            let (_admin, cntlid) = Host::admin_of(&nqn(name), node.address(), &host_nqn("silver"), 0)?;
            let mut queue = Host::io_queue_of(&nqn(name), node.address(), &host_nqn("silver"), cntlid, 1)?;
            for (cid, lba) in (0..).zip(places(mib)) {
                ensure(read(&mut queue, cid, lba)? == Ok(vec![0; 512]), || {
                    format!("{name}: block {lba} is no zeroes")
                })?;
            }
            Ok(())
        };
        let load = ["--bs", "16KiB", "--qd", "512", "--rw", "randwrite", "--time", "20s"];
        for turn in 0..2 {
            node.cli_ok(&["volume", "create", "old", "24MiB", "--tenant", "gold"])?;
            node.cli_ok(&["export", "volume", "old", "vhost-user:old.sock"])?;
            let writing = Bench::start(env, &node.socket_target("old.sock"), &load)?;
            std::thread::sleep(Duration::from_secs(1));
            if turn == 0 {
                node.cli_ok(&["volume", "resize", "old", "8MiB", "--shrink"])?;
            } else {
                node.cli_ok(&["export", "rm", "old.sock"])?;
                node.cli_ok(&["volume", "delete", "old"])?;
            }
            others("new", 20)?;
            // It has been told, by errors or by the end of its connection.
            let told = writing.ended(Duration::from_secs(30))?;
            ensure(!told.status.success(), || format!("turn {turn}: it did not write while that was done"))?;
            crate::process::until(Duration::from_secs(5), "the host is gone", || {
                Ok(node.cli(&["export", "rm", "nvme-tcp:new"])?.status.success().then_some(()))
            })?;
            node.cli_ok(&["volume", "delete", "new"])?;
            if turn == 0 {
                node.cli_ok(&["export", "rm", "old.sock"])?;
                node.cli_ok(&["volume", "delete", "old"])?;
            }
        }
        Ok(())
    })
}

/// Two file drives; the configuration has them in this order.
pub(super) fn files(order: [&str; 2]) -> String {
    let size = |name: &str| if name == "a" { "24MiB" } else { "16MiB" };
    let drive = |name: &str| device(name, &format!("media = \"file:{name}.img\"\ncapacity = \"{}\"", size(name)));
    head()
        + &order.map(drive).concat()
        + "[[pool]]\nname = \"p\"\n"
        + &volume("wide", "gold", "30MiB", "\"nvme-tcp\"")
        + &volume("small", "silver", "2MiB", "\"vhost-user:small.sock\"")
}

pub(super) fn marked(node: &Node, check: bool) -> Outcome {
    let (_admin, cntlid) = Host::admin_of(&nqn("wide"), node.address(), &host_nqn("gold"), 0)?;
    let mut queue = Host::io_queue_of(&nqn("wide"), node.address(), &host_nqn("gold"), cntlid, 1)?;
    for (cid, lba) in (0..).zip(places(30)) {
        let byte = (lba / 2048) as u8 + 1;
        if check {
            let found = read(&mut queue, cid, lba)?;
            ensure(found == Ok(vec![byte; 512]), || format!("block {lba} is another one after the restart"))?;
        } else {
            write(&mut queue, cid, lba, byte)?;
        }
    }
    Ok(())
}

fn found_again(env: &Env) -> Outcome {
    with_node(env, &setup(files(["a", "b"])), |node| {
        marked(node, false)?;
        node.cli_ok(&["volume", "create", "later", "2MiB", "--tenant", "bronze"])?;
        let before = http::get(&node.api(), "/v1/pools")?;
        // The file says 2 MiB; what was done to it since counts.
        node.cli_ok(&["volume", "resize", "small", "4MiB"])?;
        node.reconfigure(&files(["b", "a"]))?;
        node.kill_and_start()?;
        marked(node, true)?;
        let after = http::get(&node.api(), "/v1/pools")?;
        ensure(before[0]["uuid"] == after[0]["uuid"] && after[0]["volumes"] == 3, || format!("{before} {after}"))?;
        let volumes = node.cli_ok(&["volume", "ls"])?;
        ensure(volumes.contains("later") && volumes.contains("4 MiB") || volumes.contains("4MiB"), || volumes.clone())
    })
}

/// The worker is killed while volumes in memory are written and verified: data, volumes, exports and what was changed are there for the next
/// one, and what was deleted is not made again.
fn outlive_worker(env: &Env) -> Outcome {
    let Setup { whole, .. } = three_volumes();
    with_node(env, &setup(whole.replace("cores = [0]\n", "cores = [0]\nkeeper = true\n")), |node| {
        let (late, v1) = (node.socket("late.sock").display().to_string(), node.socket("v1.sock").display().to_string());
        let tcp = |volume: &str| format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn(volume));
        let host = format!("name=j,rw=write,bs=64KiB,qd=4,host={}", host_nqn("silver"));
        // Long enough to write all of the region on a busy machine: what was never written reads as lost.
        let marks = ["--job", &host, "--region", "8MiB", "--time", "1s", "--verify", "crc32c"];
        bench(env, &tcp("wide"), &marks)?.clean()?;
        node.cli_ok(&["volume", "create", "first", "3MiB", "--tenant", "silver"])?;
        node.cli_ok(&["volume", "rename", "first", "late"])?;
        node.cli_ok(&["export", "volume", "late", &format!("vhost-user:{late}")])?;
        node.cli_ok(&["volume", "resize", "late", "5MiB"])?;
        node.cli_ok(&["export", "rm", &v1])?;
        node.cli_ok(&["volume", "delete", "v1"])?;
        let before = http::get(&node.api(), "/v1/volumes")?;
        ensure(before.as_array().is_some_and(|all| all.len() == 3), || before.to_string())?;
        let args = ["--rw", "randrw", "--bs", "4KiB:70/64KiB:30", "--qd", "16", "--verify", "crc32c", "--time", "3s"];
        let args = [&args[..], &["--reconnect", "30s"]].concat();
        let targets = [node.socket_target("v0.sock"), node.socket_target("late.sock")];
        let running = targets.iter().map(|t| Bench::start(env, t, &args)).collect::<Result<Vec<_>, _>>()?;
        for i in 0..3 {
            std::thread::sleep(Duration::from_millis(500 + 37 * i));
            node.kill_worker()?;
            let after = http::get(&node.api(), "/v1/volumes")?;
            ensure(after == before, || format!("after kill {i}: {before} {after}\n{}", node.log()))?;
        }
        for bench in running {
            bench.finish()?.clean()?;
        }
        let host = host.replace("rw=write", "rw=read");
        let marks = ["--job", &host, "--region", "8MiB", "--time", "300ms", "--verify", "crc32c"];
        bench(env, &tcp("wide"), &marks)?.clean()?;
        bench(env, &node.vfio_target("wide-pci.sock"), &["--time", "200ms"])?.clean()
    })
}

/// Starts a node that must not start; what it says.
pub(super) fn fails(env: &Env, dir: &Path, whole: &str) -> Result<String, String> {
    let file = dir.join("weir.toml");
    std::fs::write(&file, whole.replace("PORT", "0")).context(|| "weir.toml".into())?;
    let args = ["up".to_owned(), "-c".into(), file.display().to_string()];
    let ended = run(dir, &env.weir, args, Duration::from_secs(20))?;
    ensure(ended.status.code() == Some(1), || format!("it does not fail: {}", ended.describe()))?;
    Ok(ended.stderr)
}

/// Changes bytes of a file from an offset on.
fn damage(file: &Path, offset: u64, len: usize) -> Outcome {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(file).context(|| "open".into())?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).context(|| "read".into())?;
    bytes.iter_mut().for_each(|b| *b ^= 0xff);
    file.write_all_at(&bytes, offset).context(|| "write".into())
}

fn drives_that_do_not_belong(env: &Env) -> Outcome {
    let node = Node::start(env, &setup(files(["a", "b"])))?;
    marked(&node, false)?;
    let dir = node.dir.clone();
    node.stop()?;
    let keep = |from: &str, to: &str| {
        let copied = Command::new("cp").current_dir(&dir).args(["--sparse=always", from, to]).status();
        ensure(copied.is_ok_and(|s| s.success()), || format!("cp {from} {to}"))
    };
    keep("a.img", "a.kept")?;
    keep("b.img", "b.kept")?;
    let restore = || keep("a.kept", "a.img").and_then(|()| keep("b.kept", "b.img"));
    let says = |whole: &str, what: &str| {
        let said = fails(env, &dir, whole)?;
        ensure(said.contains("pool.p: ") && said.contains(what), || format!("expected {what:?}: {said}"))
    };
    let both = files(["a", "b"]);
    // One is missing, and nothing is made of the other, which has not so much room as the volume takes.
    let alone = both.replace("[[pool]]\nname = \"p\"\n", "[[pool]]\nname = \"p\"\ndrives = [\"a\"]\n")
        + "[[export]]\ndevice = \"b\"\ndoor = \"nvme-tcp\"\n";
    let whole = |text: &str| text.replace("[[pool]]\nname = \"p\"\n", "[[pool]]\nname = \"p\"\ndegraded = false\n");
    says(&whole(&alone), "drive b is missing (number 1, ")?;
    // Another pool\'s.
    says(&both.replace("name = \"p\"", "name = \"q\"").replace("pool.p", "pool.q"), "")
        .err()
        .map_or(Ok(()), |said| ensure(said.contains("belongs to pool p"), || said.clone()))?;
    // Another pool's, of the same name: two drives were swapped.
    let other = Node::start(env, &setup(files(["a", "b"])))?;
    let theirs = other.dir.join("b.img");
    other.stop()?;
    std::fs::copy(&theirs, dir.join("b.img")).context(|| "b.img".into())?;
    says(&both, "belongs to pool p (")?;
    restore()?;
    // The same one twice.
    let twin = both.clone() + &device("c", "media = \"file:c.img\"\ncapacity = \"24MiB\"");
    keep("a.img", "c.img")?;
    says(&twin, "are the same drive of the pool")?;
    // Cut short.
    let cut = std::fs::File::options().write(true).open(dir.join("a.img")).context(|| "a.img".into())?;
    cut.set_len(20 << 20).context(|| "truncate".into())?;
    says(&both.replace("24MiB", "20MiB"), "it was cut short")?;
    restore()?;
    // One copy is enough, of either drive; both are not.
    damage(&dir.join("a.img"), 0, 65536)?;
    damage(&dir.join("b.img"), 65536, 65536)?;
    damage(&dir.join("b.img"), 0, 65536)?;
    says(
        &whole(&both),
        "drive b is not empty, and what it begins with is no pool\'s metadata, or both copies of it are damaged",
    )?;
    keep("b.kept", "b.img")?;
    damage(&dir.join("b.img"), 65536, 65536)?;
    let port = env.free_port()?;
    std::fs::write(dir.join("weir.toml"), both.replace("PORT", &port.to_string())).context(|| "weir.toml".into())?;
    let mut process = Process::start(&dir, "again", &env.weir, ["up", "-c", "weir.toml"])?;
    crate::process::until(Duration::from_secs(20), "it comes up with one good copy of each", || {
        ensure(process.running(), || format!("it has ended: {}", process.stderr()))?;
        Ok(http::request(&dir.join("weir.sock"), "GET", "/v1/pools", None).ok().filter(|(code, _)| *code == 200))
    })?;
    process.signal(rustix::process::Signal::TERM)?;
    process.wait(Duration::from_secs(10)).map(|_| ())
}

/// A drive of one opening before, beside the other as it is: refused by its name, after an end and after a kill, with changes in between and
/// without; both of them of that time are taken.
fn old_copies(env: &Env) -> Outcome {
    for kills in [false, true] {
        let both = files(["a", "b"]);
        let mut node = Node::start(env, &setup(both.clone()))?;
        let dir = node.dir.clone();
        let copy = |from: &str, to: &str| {
            let copied = Command::new("cp").current_dir(&dir).args(["--sparse=always", from, to]).status();
            ensure(copied.is_ok_and(|s| s.success()), || format!("cp {from} {to}"))
        };
        let sets = |from: &str, to: &str| {
            ["a", "b"].into_iter().try_for_each(|drive| copy(&format!("{drive}.{from}"), &format!("{drive}.{to}")))
        };
        node.cli_ok(&["volume", "create", "early", "1MiB", "--tenant", "bronze"])?;
        node.kill()?;
        sets("img", "old")?;
        node.start_again()?;
        node.cli_ok(&["volume", "delete", "early"])?;
        node.cli_ok(&["volume", "create", "late", "1MiB", "--tenant", "bronze"])?;
        if kills {
            node.kill()?;
        } else {
            node.stop()?;
        }
        sets("img", "new")?;
        for old in ["a", "b"] {
            sets("new", "img")?;
            copy(&format!("{old}.old"), &format!("{old}.img"))?;
            let said = fails(env, &dir, &both)?;
            let what = format!("drive {old} has missed what the pool's other drives have been through");
            ensure(said.contains(&what), || format!("kills: {kills}, {old}: {said}"))?;
        }
        for (set, there, not) in [("old", "early", "late"), ("new", "late", "early")] {
            sets(set, "img")?;
            let port = env.free_port()?;
            std::fs::write(dir.join("weir.toml"), both.replace("PORT", &port.to_string()))
                .context(|| "weir.toml".into())?;
            let mut process = Process::start(&dir, "again", &env.weir, ["up", "-c", "weir.toml"])?;
            let volumes = crate::process::until(Duration::from_secs(20), "a whole set comes up", || {
                ensure(process.running(), || format!("it has ended: {}", process.stderr()))?;
                Ok(http::request(&dir.join("weir.sock"), "GET", "/v1/volumes", None)
                    .ok()
                    .filter(|(code, _)| *code == 200))
            })?;
            ensure(volumes.1.contains(there) && !volumes.1.contains(not), || format!("{set}: {}", volumes.1))?;
            process.signal(rustix::process::Signal::TERM)?;
            process.wait(Duration::from_secs(10))?;
        }
    }
    Ok(())
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &three_volumes(), |node| {
        let before = http::get(&node.api(), "/v1/pools")?;
        for (args, why) in [
            (&["volume", "create", "huge", "1TiB", "--tenant", "gold"][..], "MiB are free; nothing was changed"),
            (&["volume", "create", "v0", "1MiB", "--tenant", "gold"], "there is a volume \"v0\" already"),
            (&["volume", "create", "../x", "1MiB", "--tenant", "gold"], "a name begins with a letter or a digit"),
            (&["volume", "create", "x", "1MiB", "--tenant", "lead"], "there is no tenant \"lead\""),
            (&["volume", "create", "x", "1MiB"], "tenant: there are several"),
            (&["volume", "create", "x", "1MiB", "--tenant", "gold", "--pool", "q"], "there is no pool \"q\""),
            (&["volume", "create", "d0", "1MiB", "--tenant", "gold"], "a drive of this node is called"),
            (&["volume", "resize", "v0", "1TiB"], "are free"),
            (&["volume", "resize", "none", "1MiB"], "there is no volume \"none\"; there is wide, v0, v1"),
            (&["volume", "rename", "v0", "w"], "is exported by"),
            (&["volume", "delete", "v1"], "is exported by"),
            (&["export", "volume", "v0", "nvme-tcp"], "is an export already"),
            (&["export", "volume", "v1", "carrier-pigeon"], "is no door"),
            (&["export", "volume", "v1", "vhost-user:v0.sock"], "already"),
            (&["export", "vfio-user", "d0", "d0.sock", "--tenant", "gold"], "is a drive of pool pool0"),
            (&["tenant", "rm", "gold"], "has the volume"),
            // Nobody may make a socket there, not even root.
            (&["export", "volume", "v0", "vhost-user:/sys/weir.sock"], "cannot listen"),
            (&["export", "volume", "v0", "vfio-user:/nowhere/weir.sock"], "create its folder"),
            (&["pool", "remove", "d0"], "chunks on drive d0"),
            (&["pool", "status", "q"], "there is no pool \"q\""),
        ] {
            let said = node.cli(args)?;
            let good = said.status.code() == Some(1) && said.stderr.contains(why);
            ensure(good, || format!("weir {}: expected {why:?}: {}", args.join(" "), said.describe()))?;
        }
        let one = http::get(&node.api(), "/v1/volumes/v1")?;
        ensure(one["name"] == "v1" && one["tenant"] == "bronze", || one.to_string())?;
        let (code, said) = http::request(&node.api(), "GET", "/v1/volumes/none", None)?;
        ensure(code == 404 && said.contains("there is wide, v0, v1"), || format!("{code} {said}"))?;
        let usage = node.cli(&["volume", "create", "x", "lots"])?;
        ensure(usage.status.code() == Some(2), || usage.describe())?;
        let after = http::get(&node.api(), "/v1/pools")?;
        ensure(before == after, || format!("something was changed: {before} {after}"))
    })
}

/// The drive's file lies where there is no more space: its hosts get a status, what was written stays, and the pool goes on.
fn without_space(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let port = env.free_port()?;
    let whole = head()
        + &device("d0", "media = \"file:small/d0.img\"\ncapacity = \"64MiB\"")
        + &volume("v0", "gold", "30MiB", "\"nvme-tcp\"");
    std::fs::write(dir.join("weir.toml"), whole.replace("PORT", &port.to_string())).context(|| "weir.toml".into())?;
    std::fs::create_dir(dir.join("small")).context(|| "small".into())?;
    // A file system of its own, of 12 MiB, that only this node sees.
    let script = format!("mount -t tmpfs -o size=12m none small && exec {} up -c weir.toml", env.weir.display());
    let mut process =
        Process::start(&dir, "small", Path::new("unshare"), ["--map-root-user", "--mount", "sh", "-c", &script])?;
    let api = dir.join("weir.sock");
    crate::process::until(Duration::from_secs(20), "it serves", || {
        ensure(process.running(), || format!("it has ended: {}", process.stderr()))?;
        Ok(http::request(&api, "GET", "/v1/volumes", None).ok())
    })?;
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let (_admin, cntlid) = Host::admin_of(&nqn("v0"), at, &host_nqn("gold"), 0)?;
    let mut queue = Host::io_queue_of(&nqn("v0"), at, &host_nqn("gold"), cntlid, 1)?;
    let piece = vec![7u8; 4096];
    let mut told = 0;
    for i in 0..6000u32 {
        queue.send(&io(1, i as u16, i * 8, 8, Data::InCapsule(&piece)))?;
        told = queue.expect(kind::RESPONSE)?.status() & 0x7ff;
        if told != 0 {
            ensure(i > 1000, || format!("the first {i} writes fit, then {told:#x}"))?;
            break;
        }
    }
    ensure(told == 0x81, || format!("Capacity Exceeded is the answer, not {told:#x}"))?;
    ensure(read(&mut queue, 9000, 8)? == Ok(vec![7; 512]), || "what was written before".into())?;
    // The metadata have their room already: volumes come and go, more of them than one block says.
    for i in 0..40 {
        let body = json!({ "name": format!("late-{i}"), "tenant": "gold", "size_bytes": 1 << 20 });
        let (code, said) = http::request(&api, "POST", "/v1/volumes", Some(&body))?;
        ensure(code == 201 || code == 200, || format!("volume {i}: {code} {said}"))?;
        let (code, said) = http::request(&api, "DELETE", &format!("/v1/volumes/late-{i}"), None)?;
        ensure(code == 204 || code == 200, || format!("volume {i} is not deleted: {code} {said}"))?;
    }
    let (code, said) = http::get(&api, "/v1/pools").map(|all| (200, all))?;
    ensure(code == 200 && said[0]["volumes"] == 1, || said.to_string())?;
    ensure(process.running(), || "it serves".into())?;
    process.signal(rustix::process::Signal::TERM)?;
    process.wait(Duration::from_secs(10)).map(|_| ())
}

/// The file system is full before the metadata have their room, and a change fails at it. When there is space again the next change goes through
/// without a restart, and what was acknowledged is there after a kill.
fn space_again(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let whole =
        head() + &device("d0", "media = \"file:small/d0.img\"\ncapacity = \"64MiB\"") + "[[pool]]\nname = \"p\"\n";
    std::fs::write(dir.join("weir.toml"), whole.replace("PORT", "0")).context(|| "weir.toml".into())?;
    std::fs::create_dir(dir.join("small")).context(|| "small".into())?;
    let script = format!(
        "mount -t tmpfs -o size=12m none small && head -c 11900K /dev/zero >small/others && while :; do {} up -c weir.toml; done",
        env.weir.display()
    );
    let args = ["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script];
    let mut process = Process::start(&dir, "small", Path::new("unshare"), args)?;
    let api = dir.join("weir.sock");
    let serves = |process: &mut Process| {
        crate::process::until(Duration::from_secs(20), "it serves", || {
            ensure(process.running(), || format!("it has ended: {}", process.stderr()))?;
            Ok(http::get(&api, "/v1/volumes").ok())
        })
    };
    serves(&mut process)?;
    let create = |i: usize| {
        let body = json!({ "name": format!("v{i}"), "tenant": "gold", "size_bytes": 1 << 20 });
        http::request(&api, "POST", "/v1/volumes", Some(&body))
    };
    let good = |code: u16| (200..300).contains(&code);
    let (code, said) = create(0)?;
    ensure(good(code), || said)?;
    let (code, said) = create(1)?;
    ensure(good(code), || said)?;
    // Each change is one more entry; a chunk that is given up would have the metadata begun anew.
    let mut changes = 0;
    let told = loop {
        ensure(changes < 1000, || format!("{changes} changes, and the metadata have room"))?;
        changes += 1;
        let (from, to) = if changes % 2 == 1 { ("v1", "w1") } else { ("w1", "v1") };
        let (code, said) = http::request(&api, "PATCH", &format!("/v1/volumes/{from}"), Some(&json!({ "name": to })))?;
        if !good(code) {
            break said;
        }
    };
    ensure(told.contains("could not be written") && told.contains("Capacity Exceeded"), || told.clone())?;
    let fault = |set: bool| {
        let pools = http::get(&api, "/v1/pools")?;
        ensure(pools[0]["fault"].is_string() == set, || format!("fault, {set}: {pools}"))
    };
    fault(true)?;
    let inside = rustix::process::Pid::from_raw(process.pid() as i32).ok_or("no process")?;
    let shell = crate::process::until(Duration::from_secs(5), "the shell is there", || {
        let path = format!("/proc/{pid}/task/{pid}/children", pid = inside.as_raw_nonzero());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Ok(text.split_whitespace().next().map(str::to_owned))
    })?;
    let others = format!("/proc/{shell}/root{}", dir.join("small/others").display());
    std::fs::remove_file(&others).context(|| others.clone())?;
    let (code, said) = http::request(&api, "DELETE", "/v1/volumes/v0", None)?;
    ensure(code == 200 || code == 204, || format!("with space: {code} {said}"))?;
    fault(false)?;
    let (code, said) = create(100)?;
    ensure(code == 200 || code == 201, || format!("with space: {code} {said}"))?;
    let names = |volumes: &serde_json::Value| -> Vec<String> {
        let all = volumes.as_array().into_iter().flatten();
        all.filter_map(|v| v["name"].as_str().map(str::to_owned)).collect()
    };
    let before = names(&http::get(&api, "/v1/volumes")?);
    // It is killed with its keeper; the shell starts the next one.
    let pid = http::get(&api, "/v1/status")?["pid"].as_u64().ok_or("no pid")?;
    let nodes =
        std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).context(|| "children".into())?;
    let node = nodes.split_whitespace().next().and_then(|p| p.parse().ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(node.ok_or("no node")?, rustix::process::Signal::KILL).context(|| "kill".into())?;
    crate::process::until(Duration::from_secs(20), "the next one serves", || {
        Ok(http::get(&api, "/v1/status").ok().filter(|status| status["pid"].as_u64() != Some(pid)))
    })?;
    let after = names(&serves(&mut process)?);
    ensure(before == after && !after.contains(&"v0".to_owned()), || format!("before {before:?}, after {after:?}"))?;
    process.signal(rustix::process::Signal::KILL)
}

/// A volume has shrunk from a slow drive, its export has ended, and flushes of its host are still at that drive: it leaves the pool when they are
/// done, and not before.
fn leaves_in_order(env: &Env) -> Outcome {
    let whole = head()
        + &device("d0", "capacity = \"96MiB\"")
        + &device("d1", "capacity = \"32MiB\"\nlatency = \"50ms\"\nslots = 1\narbitration = \"drr\"")
        + &volume("wide", "silver", "100MiB", "\"nvme-tcp\"");
    with_node(env, &setup(whole), |node| {
        let drives = |node: &Node| -> Result<String, String> {
            Ok(http::get(&node.api(), "/v1/volumes/wide")?["drives"].to_string())
        };
        ensure(drives(node)? == "[\"d0\",\"d1\"]", || "it lies on both".into())?;
        let (admin, cntlid) = Host::admin_of(&nqn("wide"), node.address(), &host_nqn("silver"), 0)?;
        // As many as take longer at it than the end of an export waits for them.
        let flushing = |qid: u16| {
            let mut queue = Host::io_queue_of(&nqn("wide"), node.address(), &host_nqn("silver"), cntlid, qid)?;
            for cid in 0..120 {
                queue.send(&capsule(&sqe(0, cid, 1, [0; 6], Data::None), Data::None))?;
            }
            Ok::<Host, String>(queue)
        };
        let queues = (flushing(1)?, flushing(2)?);
        let busy = |node: &Node| -> Result<u64, String> {
            let status = http::get(&node.api(), "/v1/status")?;
            let all = status["devices"].as_array().into_iter().flatten();
            all.filter(|d| d["name"] == "d1").find_map(|d| d["slots_busy"].as_u64()).ok_or_else(|| status.to_string())
        };
        crate::process::until(Duration::from_secs(10), "flushes are at it", || Ok((busy(node)? > 0).then_some(())))?;
        node.cli_ok(&["volume", "resize", "wide", "60MiB", "--shrink"])?;
        ensure(drives(node)? == "[\"d0\"]", || "it lies on d0".into())?;
        drop((admin, queues));
        crate::process::until(Duration::from_secs(10), "the host is gone", || {
            Ok(node.cli(&["export", "rm", "nvme-tcp:wide"])?.status.success().then_some(()))
        })?;
        crate::process::until(Duration::from_secs(30), "the drive leaves", || {
            let said = node.cli(&["pool", "remove", "d1"])?;
            let waits = "what was asked at an export that was ended is not finished there; nothing was changed";
            ensure(said.status.success() || said.stderr.contains(waits), || said.describe())?;
            Ok(said.status.success().then_some(()))
        })?;
        let left = busy(node)?;
        ensure(left == 0, || format!("it has left the pool, and {left} of the volume's commands are at it"))?;
        node.cli_ok(&["export", "volume", "wide", "vhost-user:wide.sock"])?;
        bench(env, &node.socket_target("wide.sock"), &["--rw", "randrw", "--time", "300ms", "--verify", "crc32c"])?
            .clean()
    })
}

/// Three tenants of the same drive, each through a volume: their shares are those of the drive.
fn shares(env: &Env) -> Outcome {
    let keys = "capacity = \"64MiB\"\nlatency = \"800us\"\nslots = 8\narbitration = \"drr\"";
    let names = ["gold", "silver", "bronze"];
    let each = names.map(|t| volume(t, t, "8MiB", &format!("\"vhost-user:{t}.sock\"")));
    with_node(env, &setup(head() + &device("d0", keys) + &each.concat()), |node| {
        let args = ["--bs", "4KiB", "--qd", "32", "--rw", "randread", "--time", "3s"];
        let mut last = String::new();
        for _ in 0..4 {
            let start = |t: &&str| Bench::start(env, &node.socket_target(&format!("{t}.sock")), &args);
            let running = names.iter().map(start).collect::<Result<Vec<_>, _>>()?;
            let mut got = Vec::new();
            for bench in running {
                let report = bench.finish()?;
                report.clean()?;
                got.push(number(&report.0["total"], "bandwidth_bytes_per_s")?);
            }
            let (high, medium) = (got[0] / got[2], got[1] / got[2]);
            last = format!("gold {high:.2}, silver {medium:.2} times bronze");
            println!("    {last} (4 and 2 are due)");
            if (high / 4.0 - 1.0).abs() < 0.1 && (medium / 2.0 - 1.0).abs() < 0.1 {
                return Ok(());
            }
        }
        Err(last)
    })
}

/// The middle one.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Ten thousand volumes, a thousand of them exported, beside a node with ten.
fn ten_thousand(env: &Env) -> Outcome {
    let export = "\"vhost-user:first.sock\", \"nvme-tcp\"";
    let whole = head().replace("cores = [0]\n", "cores = [0]\nkeeper = true\n")
        + &device("d0", "capacity = \"16GiB\"")
        + &volume("first", "gold", "1MiB", export);
    let few = Node::start(env, &setup(whole.clone()))?;
    let create = |node: &Node, i: u32| {
        let body = json!({ "name": format!("volume-{i}"), "tenant": "gold", "size_bytes": 1 << 20 });
        let (code, said) = http::request(&node.api(), "POST", "/v1/volumes", Some(&body))?;
        ensure(code == 201, || said.to_string())
    };
    (0..9).try_for_each(|i| create(&few, i))?;
    let told = with_node(env, &setup(whole), |node| {
        let api = node.api();
        let mut laps = Vec::new();
        for lap in 0..10 {
            let start = Instant::now();
            (0..1000).try_for_each(|i| create(node, lap * 1000 + i))?;
            laps.push(start.elapsed().as_secs_f64());
        }
        let start = Instant::now();
        let listed = http::get(&api, "/v1/volumes")?;
        let all = listed.as_array().map_or(0, Vec::len);
        println!("    a thousand volumes took {laps:.2?} s, the list of {all} {:.2?}", start.elapsed());
        ensure(all == 10_001, || format!("{all} volumes"))?;
        let mut exports = Vec::new();
        for lap in 0..10 {
            let mut times = Vec::new();
            for i in 0..100 {
                let start = Instant::now();
                let path = format!("/v1/volumes/volume-{}/exports", lap * 1000 + i);
                let (code, said) = http::request(&api, "POST", &path, Some(&json!({ "door": "nvme-tcp" })))?;
                ensure(code == 201, || said.to_string())?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            exports.push(median(times));
        }
        let start = Instant::now();
        let there = http::get(&api, "/v1/exports")?.as_array().map_or(0, Vec::len);
        println!("    an export of each hundred took {exports:.2?} ms, the list of {there} {:.2?}", start.elapsed());
        ensure(there == 1002, || format!("{there} exports"))?;
        for qd in ["1", "32"] {
            let mut ratios = Vec::new();
            for _ in 0..7 {
                let rate = |node: &Node| -> Result<f64, String> {
                    let args = ["--bs", "4KiB", "--qd", qd, "--rw", "randread", "--time", "500ms"];
                    let report = bench(env, &node.socket_target("first.sock"), &args)?;
                    report.clean()?;
                    number(&report.0["total"], "iops")
                };
                ratios.push(rate(node)? / rate(&few)?);
            }
            println!("    QD{qd}: with ten thousand volumes {:.3} of the IOPS with ten", median(ratios.clone()));
            // The machine is shared; what goes through all fronts in every turn costs far more.
            ensure(median(ratios.clone()) > 0.7, || format!("it gets slower: {ratios:.2?}"))?;
        }
        for (node, what) in [(&few, "ten"), (&*node, "ten thousand")] {
            let start = Instant::now();
            node.kill_worker()?;
            let volumes = http::get(&node.api(), "/v1/pools")?[0]["volumes"].clone();
            println!("    found again with {what}: {volumes} volumes served after {:.2?}", start.elapsed());
        }
        let start = Instant::now();
        for i in 0..1000 {
            let (code, said) =
                http::request(&api, "DELETE", &format!("/v1/volumes/volume-{}", i / 100 * 1000 + 500 + i % 100), None)?;
            ensure(code == 200, || said.to_string())?;
        }
        println!("    a thousand deletions took {:.2?}", start.elapsed());
        // The last thousand may not cost much more than the first: nothing goes through all of them.
        ensure(laps[9] < 4.0 * laps[0].max(laps[1]), || format!("it gets slower and slower: {laps:?}"))?;
        // The keeper is given the whole configuration with each export, so the cost of one grows with their number, in proportion to it
        // at the most: from the second hundred to the tenth by 9.5 / 1.5, where a square would grow by 40.
        ensure(exports[9] < 9.0 * exports[1], || format!("exports get slower and slower: {exports:?}"))
    });
    few.stop()?;
    told
}
