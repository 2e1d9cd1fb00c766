//! Snapshots and clones of volumes, under load, through kills of the node, and what is refused.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pool::{device, head, nqn, read, setup};
use super::test;
use crate::bench::Bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, host_nqn, with_node};
use crate::raw::nvme_tcp::{Data, Host, io, kind};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "snapshots";
    vec![
        test(S, "a_snapshot_keeps_what_was_acknowledged", |env| keeps(env, ONE)),
        test(S, "a_snapshot_of_two_copies_keeps_what_was_acknowledged", |env| keeps(env, TWO)),
        test(S, "snapshots_under_load_and_a_kill", |env| loaded(env, ONE)),
        test(S, "snapshots_of_two_copies_under_load_and_a_kill", |env| loaded(env, TWO)),
        test(S, "killed_between_writes_of_shared_chunks", |env| killed(env, ONE)),
        test(S, "killed_between_writes_of_shared_chunks_of_two_copies", |env| killed(env, TWO)),
        test(S, "what_is_written_while_a_drive_is_lost_leaves_snapshots_alone", lost),
        test(S, "a_drive_that_takes_nothing_costs_no_write_of_a_shared_chunk", takes_nothing),
        test(S, "a_full_pool_fails_the_write_and_keeps_the_snapshot", full),
        test(S, "exports_have_holes_where_nothing_was_written", holes),
        test(S, "what_cannot_be_is_refused_and_changes_nothing", refused),
    ]
}

/// MiB of volume `v`.
const MIB: u32 = 16;

/// Copies of volume `v`.
#[derive(Clone, Copy)]
struct Copies(u64);

const ONE: Copies = Copies(1);
const TWO: Copies = Copies(2);

/// Of a pool of drives `a` and `b`; a volume with one copy lies on one of them, and so do its copies. Drive `spare` is none of the pool's.
fn config_of(capacity: u32, copies: Copies) -> String {
    let drive = |name: &str| device(name, &format!("media = \"file:{name}.img\"\ncapacity = \"{capacity}MiB\""));
    head()
        + &["a", "b", "spare"].map(drive).concat()
        + "[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n"
        + &format!(
            "[[volume]]\nname = \"v\"\ntenant = \"gold\"\nsize = \"{MIB}MiB\"\ncopies = {}\nexport = [\"nvme-tcp\", \"vhost-user:v.sock\"]\n",
            copies.0
        )
}

fn config(copies: Copies) -> String {
    config_of(192, copies)
}

/// A raw host of a volume.
struct Client {
    _admin: Host,
    queue: Host,
    cid: u16,
}

impl Client {
    fn new(node: &Node, volume: &str) -> Result<Self, String> {
        let (admin, cntlid) = Host::admin_of(&nqn(volume), node.address(), &host_nqn("gold"), 0)?;
        let queue = Host::io_queue_of(&nqn(volume), node.address(), &host_nqn("gold"), cntlid, 1)?;
        Ok(Client { _admin: admin, queue, cid: 0 })
    }

    fn read(&mut self, lba: u32) -> Result<Vec<u8>, String> {
        self.cid = self.cid.wrapping_add(1);
        read(&mut self.queue, self.cid, lba)?.map_err(|status| format!("block {lba}: status {status:#x}"))
    }

    /// The status of a write of a block that is all of one byte.
    fn write(&mut self, lba: u32, byte: u8) -> Result<u16, String> {
        self.cid = self.cid.wrapping_add(1);
        self.queue.send(&io(1, self.cid, lba, 1, Data::InCapsule(&[byte; 512])))?;
        Ok(self.queue.expect(kind::RESPONSE)?.status() & 0x7ff)
    }
}

/// The first block of each MiB, and the last one.
fn blocks() -> impl Iterator<Item = u32> {
    (0..MIB).flat_map(|mib| [mib * 2048, mib * 2048 + 2047])
}

fn fill(node: &Node, byte: u8) -> Outcome {
    let mut client = Client::new(node, "v")?;
    blocks().try_for_each(|lba| {
        let status = client.write(lba, byte)?;
        ensure(status == 0, || format!("a write of block {lba}: status {status:#x}"))
    })
}

fn holds(node: &Node, volume: &str, byte: u8) -> Outcome {
    let mut client = Client::new(node, volume)?;
    blocks().try_for_each(|lba| {
        let block = client.read(lba)?;
        ensure(block.iter().all(|b| *b == byte), || format!("block {lba} of {volume} is {}, not {byte}", block[0]))
    })
}

/// What a snapshot has, by way of a clone that is deleted again; `look` is given the clone's name.
fn through_clone<T>(node: &Node, snapshot: &str, look: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
    node.cli_ok(&["volume", "clone", snapshot, "looked-at"])?;
    node.cli_ok(&["export", "volume", "looked-at", "nvme-tcp"])?;
    let seen = look("looked-at")?;
    let begun = Instant::now();
    // The connections of the look have to be gone.
    while !node.cli(&["export", "rm", "nvme-tcp:looked-at"])?.status.success() {
        ensure(begun.elapsed() < Duration::from_secs(10), || "the clone is used still".into())?;
        std::thread::sleep(Duration::from_millis(20));
    }
    node.cli_ok(&["volume", "delete", "looked-at"])?;
    Ok(seen)
}

fn snapshot_holds(node: &Node, snapshot: &str, byte: u8) -> Outcome {
    through_clone(node, snapshot, |clone| holds(node, clone, byte))
}

/// A block of every 16 KiB of a volume.
fn sample(node: &Node, volume: &str) -> Result<Vec<u8>, String> {
    let mut client = Client::new(node, volume)?;
    let mut bytes = Vec::new();
    for lba in (0..MIB * 2048).step_by(32) {
        bytes.extend(client.read(lba)?);
    }
    Ok(bytes)
}

fn volume(node: &Node, name: &str) -> Result<Value, String> {
    http::get(&node.api(), &format!("/v1/volumes/{}", name.replace('@', "%40")))
}

fn free(node: &Node) -> Result<u64, String> {
    http::get(&node.api(), "/v1/pools")?[0]["free_bytes"].as_u64().ok_or_else(|| "no free_bytes".into())
}

fn keeps(env: &Env, copies: Copies) -> Outcome {
    with_node(env, &setup(config(copies)), |node| {
        let size = copies.0 * (u64::from(MIB) << 20);
        fill(node, 1)?;
        let before = free(node)?;
        node.cli_ok(&["volume", "snapshot", "v@one"])?;
        ensure(free(node)? == before && volume(node, "v@one")?["own_bytes"] == 0, || "it takes room".into())?;
        ensure(volume(node, "v@one")?["snapshot_of"] == "v", || "whose snapshot it is".into())?;
        fill(node, 2)?;
        ensure(before - free(node)? == size, || "each chunk was copied once".into())?;
        fill(node, 3)?;
        ensure(before - free(node)? == size, || "each chunk was copied once".into())?;
        node.cli_ok(&["volume", "snapshot", "v@two"])?;
        holds(node, "v", 3)?;
        snapshot_holds(node, "v@one", 1)?;
        snapshot_holds(node, "v@two", 3)?;
        let listed = node.cli_ok(&["volume", "ls"])?;
        ensure(listed.contains("v@one") && listed.contains("v@two"), || listed.clone())?;
        node.kill_and_start()?;
        holds(node, "v", 3)?;
        snapshot_holds(node, "v@one", 1)?;
        // Back to the first one, and what is nobody's any more is free.
        node.cli_ok(&["export", "rm", &node.socket("v.sock").display().to_string()])?;
        node.cli_ok(&["export", "rm", "nvme-tcp:v"])?;
        node.cli_ok(&["volume", "rollback", "v@one"])?;
        node.cli_ok(&["export", "volume", "v", "nvme-tcp"])?;
        holds(node, "v", 1)?;
        for snapshot in ["v@two", "v@one"] {
            node.cli_ok(&["volume", "delete", snapshot])?;
        }
        holds(node, "v", 1)?;
        ensure(free(node)? == before, || format!("{} is free, and {before} was", free(node).unwrap_or(0)))
    })
}

fn loaded(env: &Env, copies: Copies) -> Outcome {
    with_node(env, &setup(config(copies)), |node| {
        let args = ["--bs", "4KiB", "--qd", "8", "--rw", "randrw", "--verify", "crc32c", "--time", "4s"];
        let load = Bench::start(env, &node.socket_target("v.sock"), &args)?;
        let mut seen = Vec::new();
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(400));
            let name = format!("v@s{round}");
            node.cli_ok(&["volume", "snapshot", &name])?;
            let bytes = through_clone(node, &name, |clone| sample(node, clone))?;
            seen.push((name, bytes));
        }
        node.cli_ok(&["volume", "delete", "v@s1"])?;
        load.finish()?.clean()?;
        seen.remove(1);
        let unchanged = |node: &Node, when: &str| {
            seen.iter().try_for_each(|(name, bytes)| {
                let now = through_clone(node, name, |clone| sample(node, clone))?;
                ensure(now == *bytes, || format!("{name} has changed {when}"))
            })
        };
        unchanged(node, "under load")?;
        // A kill while chunks are copied.
        node.cli_ok(&["volume", "snapshot", "v@s3"])?;
        let args = ["--bs", "4KiB", "--qd", "8", "--rw", "randwrite", "--time", "3s"];
        let load = Bench::start(env, &node.socket_target("v.sock"), &args)?;
        let before = volume(node, "v")?["own_bytes"].clone();
        let begun = Instant::now();
        while volume(node, "v")?["own_bytes"] == before {
            ensure(begun.elapsed() < Duration::from_secs(10), || "no chunk is copied".into())?;
        }
        node.kill_and_start()?;
        drop(load);
        unchanged(node, "by a kill")
    })
}

fn killed(env: &Env, copies: Copies) -> Outcome {
    with_node(env, &setup(config(copies)), |node| {
        fill(node, 1)?;
        for round in 1..5u8 {
            node.cli_ok(&["volume", "snapshot", &format!("v@s{round}")])?;
            let mut client = Client::new(node, "v")?;
            for lba in blocks().take(usize::from(round) * 7) {
                ensure(client.write(lba, round + 1)? == 0, || format!("a write of block {lba}"))?;
            }
            node.kill_and_start()?;
            let mut client = Client::new(node, "v")?;
            for (i, lba) in blocks().enumerate() {
                let expected = if i < usize::from(round) * 7 { round + 1 } else { round };
                let found = client.read(lba)?[0];
                ensure(found == expected, || format!("block {lba} is {found}, and {expected} was written"))?;
            }
            drop(client);
            fill(node, round + 1)?;
            // What was written is copied after a kill, and snapshots are of volumes whose copies are the same.
            whole(node)?;
        }
        (1..5u8).try_for_each(|round| snapshot_holds(node, &format!("v@s{round}"), round))
    })
}

/// Until the copies of all volumes are the same.
fn whole(node: &Node) -> Outcome {
    let begun = Instant::now();
    loop {
        let all = http::get(&node.api(), "/v1/volumes")?;
        let is =
            |v: &Value| v["rebuilding_bytes"].as_u64().unwrap_or(0) == 0 && v["alone_bytes"].as_u64().unwrap_or(0) == 0;
        if all.as_array().into_iter().flatten().all(is) {
            return Ok(());
        }
        ensure(begun.elapsed() < Duration::from_secs(60), || format!("they are not: {all}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a snapshot has, whichever drives are lost.
fn exported_holds(node: &Node, snapshot: &str, byte: u8) -> Outcome {
    let name = "exported.img";
    export(node, snapshot, name)?;
    let bytes = std::fs::read(node.socket(name)).context(|| name.into())?;
    let is = |lba: u32| bytes[lba as usize * 512..][..512].iter().all(|b| *b == byte);
    match blocks().find(|lba| !is(*lba)) {
        Some(lba) => Err(format!("block {lba} of {snapshot} is {}, not {byte}", bytes[lba as usize * 512])),
        None => Ok(()),
    }
}

fn all_hold(node: &Node, when: &str) -> Outcome {
    let look = || {
        holds(node, "v", 3)?;
        exported_holds(node, "v@one", 1)?;
        exported_holds(node, "v@two", 2)
    };
    look().map_err(|why| format!("{when}: {why}"))
}

fn lost(env: &Env) -> Outcome {
    with_node(env, &setup(config(TWO)), |node| {
        fill(node, 1)?;
        node.cli_ok(&["volume", "snapshot", "v@one"])?;
        fill(node, 2)?;
        node.cli_ok(&["volume", "snapshot", "v@two"])?;
        node.cli_ok(&["pool", "offline", "a"])?;
        fill(node, 3)?;
        let refused = node.cli(&["volume", "snapshot", "v@three"])?;
        ensure(!refused.status.success() && refused.stderr.contains("weir pool"), || refused.describe())?;
        all_hold(node, "without a")?;
        // It has missed what was written, and what the snapshots have of it is theirs.
        node.kill_and_start()?;
        whole(node)?;
        node.cli_ok(&["pool", "offline", "b"])?;
        all_hold(node, "from what was rebuilt on a")?;
        let beside = Bench::start(
            env,
            &node.socket_target("v.sock"),
            &["--bs", "4KiB", "--qd", "4", "--rw", "randread", "--time", "4s"],
        )?;
        node.cli_ok(&["pool", "replace", "b", "spare"])?;
        node.kill_and_start()?;
        drop(beside);
        whole(node)?;
        node.cli_ok(&["pool", "offline", "a"])?;
        all_hold(node, "from the drive that has taken the place of b")
    })
}

fn takes_nothing(env: &Env) -> Outcome {
    let config = config(TWO).replacen("[node]\n", "[node]\nfaults = true\n", 1);
    with_node(env, &setup(config), |node| {
        fill(node, 1)?;
        node.cli_ok(&["volume", "snapshot", "v@one"])?;
        // Chunks of volumes; the pool's metadata lie before them.
        node.cli_ok(&["fault", "add", "a", "status", "code=2/80h", "lba=8192-393215", "op=write"])?;
        fill(node, 2)?;
        node.cli_ok(&["fault", "rm", "a", "all"])?;
        whole(node)?;
        node.cli_ok(&["fault", "add", "b", "status", "code=2/81h", "lba=8192-393215", "op=read"])?;
        node.cli_ok(&["volume", "snapshot", "v@two"])?;
        fill(node, 3)?;
        node.cli_ok(&["fault", "rm", "b", "all"])?;
        whole(node)?;
        for lost in ["a", "b"] {
            node.cli_ok(&["pool", "offline", lost])?;
            all_hold(node, &format!("without {lost}"))?;
            node.kill_and_start()?;
            whole(node)?;
        }
        Ok(())
    })
}

fn full(env: &Env) -> Outcome {
    with_node(env, &setup(config_of(64, ONE)), |node| {
        fill(node, 1)?;
        node.cli_ok(&["volume", "snapshot", "v@s"])?;
        let rest = free(node)? >> 20;
        node.cli_ok(&["volume", "create", "rest", &format!("{}MiB", rest - 1), "--tenant", "gold"])?;
        let mut client = Client::new(node, "v")?;
        let statuses: Vec<u16> =
            [0, 2048, 4096].map(|lba| client.write(lba, 2)).into_iter().collect::<Result<_, _>>()?;
        // One chunk is left, and Write Fault is what the others get (NVM Command Set 1.0, 3.2: 80h of the media errors).
        let failed = statuses.iter().filter(|status| **status == 0x280).count();
        ensure(statuses[0] == 0 && failed == 2, || format!("{statuses:x?}"))?;
        ensure(client.read(2048)?[0] == 1, || "a write that failed has changed something".into())?;
        drop(client);
        snapshot_holds(node, "v@s", 1)?;
        node.cli_ok(&["volume", "delete", "rest"])?;
        fill(node, 3)?;
        holds(node, "v", 3)?;
        snapshot_holds(node, "v@s", 1)
    })
}

/// Blocks that are written with another byte each: at both ends of chunks, and the last one of the volume.
const WRITTEN: [u32; 4] = [3 * 2048 - 1, 5 * 2048, 6 * 2048 + 100, MIB * 2048 - 1];

/// All of a volume of 16 MiB with those blocks.
fn picture(bytes: [u8; 4]) -> Vec<u8> {
    let mut all = vec![0; (MIB as usize) << 20];
    for (lba, byte) in WRITTEN.into_iter().zip(bytes) {
        all[lba as usize * 512..][..512].fill(byte);
    }
    all
}

fn put(node: &Node, bytes: [u8; 4]) -> Outcome {
    let mut client = Client::new(node, "v")?;
    WRITTEN.into_iter().zip(bytes).filter(|(_, byte)| *byte != 0).try_for_each(|(lba, byte)| {
        let status = client.write(lba, byte)?;
        ensure(status == 0, || format!("a write of block {lba}: status {status:#x}"))
    })
}

/// A file has these bytes, as cmp says, and room for no more than that.
fn is_image(node: &Node, name: &str, bytes: &[u8], most: u64) -> Outcome {
    let (file, expected) = (node.socket(name), node.socket("expected.img"));
    std::fs::write(&expected, bytes).context(|| expected.display().to_string())?;
    let output = Command::new("cmp").args([&file, &expected]).output().context(|| "cmp".into())?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), || format!("cmp: {told}"))?;
    let room = std::fs::metadata(&file).context(|| name.into())?.blocks() * 512;
    ensure(room <= most, || format!("{name} takes {room} bytes of the disk, more than {most}"))
}

/// MiB that may be other than zeroes, as the node knows it.
fn contents(node: &Node, volume: &str) -> Result<Vec<u64>, String> {
    let told = http::get(&node.api(), &format!("/v1/volumes/{}/contents", volume.replace('@', "%40")))?;
    ensure(told.get("next_bytes").is_none(), || told.to_string())?;
    let number = |range: &Value, key: &str| range[key].as_u64().unwrap_or(0) >> 20;
    let chunks = |range: &Value| {
        let first = number(range, "offset_bytes");
        first..first + number(range, "size_bytes")
    };
    Ok(told["ranges"].as_array().into_iter().flatten().flat_map(chunks).collect())
}

fn export(node: &Node, volume: &str, name: &str) -> Outcome {
    node.cli_ok(&["volume", "export", "-f", volume, &node.socket(name).display().to_string()]).map(|_| ())
}

fn holes(env: &Env) -> Outcome {
    with_node(env, &setup(config(ONE)), |node| {
        node.cli_ok(&["volume", "snapshot", "v@empty"])?;
        put(node, [1, 0, 1, 0])?;
        node.cli_ok(&["volume", "snapshot", "v@one"])?;
        // Of its chunks the volume has one of its own now, one that it shares with the snapshot, and two that the snapshot has not.
        put(node, [0, 2, 2, 2])?;
        node.cli_ok(&["volume", "snapshot", "v@two"])?;
        let expected = [
            ("v@empty", vec![], [0; 4]),
            ("v@one", vec![2, 6], [1, 0, 1, 0]),
            ("v@two", vec![2, 5, 6, 15], [1, 2, 2, 2]),
        ];
        for (snapshot, chunks, bytes) in expected {
            let told = contents(node, snapshot)?;
            ensure(told == chunks, || format!("{snapshot} has something in {told:?}, not in {chunks:?}"))?;
            export(node, snapshot, "out.img")?;
            is_image(node, "out.img", &picture(bytes), 64 << 10)?;
        }
        // Through a pipe the zeroes come, also the last ones.
        let (piped, out) = (node.socket("piped.img"), node.socket("out.img"));
        let mut reads = node.command(&["volume", "export", "v@one", "-"]);
        let status = reads.stdout(File::create(&piped).context(|| "piped.img".into())?).status();
        ensure(status.is_ok_and(|s| s.success()), || "weir volume export to a pipe".into())?;
        is_image(node, "piped.img", &picture([1, 0, 1, 0]), 32 << 20)?;
        // What a file has as zeroes the volume that is made of it does not have, with holes and without.
        for (image, volume) in [(&out, "sparse"), (&piped, "full")] {
            let (tenant, image) = (["--tenant", "gold"], image.display().to_string());
            export(node, "v@one", "out.img")?;
            node.cli_ok(&[&["volume", "import", &image, volume][..], &tenant].concat())?;
            let told = contents(node, volume)?;
            ensure(told == [2, 6], || format!("{volume} has something in {told:?}"))?;
            export(node, volume, "back.img")?;
            is_image(node, "back.img", &picture([1, 0, 1, 0]), 64 << 10)?;
        }
        // After a kill the drives know the same.
        node.kill_and_start()?;
        ensure(contents(node, "v@two")? == [2, 5, 6, 15], || format!("{:?}", contents(node, "v@two")))?;
        export(node, "v@two", "out.img")?;
        is_image(node, "out.img", &picture([1, 2, 2, 2]), 64 << 10)
    })
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(config(ONE)), |node| {
        node.cli_ok(&["volume", "create", "twice", "2MiB", "--tenant", "gold", "--copies", "2"])?;
        node.cli_ok(&["volume", "snapshot", "v@s"])?;
        let before = http::get(&node.api(), "/v1/volumes")?;
        for (args, why) in [
            (vec!["volume", "snapshot", "v@s"], "there is a volume \"v@s\" already"),
            (vec!["volume", "snapshot", "v"], "is called VOLUME@NAME"),
            (vec!["volume", "snapshot", "x@s"], "there is no volume \"x\""),
            (vec!["volume", "snapshot", "v@a b"], "begins with a letter"),
            (vec!["volume", "clone", "v@t", "c"], "there is no volume \"v@t\""),
            (vec!["volume", "clone", "v", "c"], "is no snapshot"),
            (vec!["volume", "clone", "v@s", "twice"], "already"),
            (vec!["volume", "clone", "v@s", "c", "--tenant", "tin"], "there is no tenant \"tin\""),
            (vec!["volume", "rollback", "v@s"], "is exported by"),
            (vec!["volume", "rollback", "v@t"], "there is no volume \"v@t\""),
            (vec!["volume", "resize", "v@s", "4MiB"], "is a snapshot"),
            (vec!["volume", "rename", "v@s", "c"], "is a snapshot"),
            (vec!["export", "volume", "v@s", "nvme-tcp"], "is a snapshot"),
        ] {
            let out = node.cli(&args)?;
            ensure(!out.status.success() && out.stderr.contains(why), || format!("{args:?}: {}", out.describe()))?;
        }
        let after = http::get(&node.api(), "/v1/volumes")?;
        ensure(before == after, || format!("{before} and then {after}"))
    })
}
