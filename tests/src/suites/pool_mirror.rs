//! Volumes with two copies: a drive fails, is taken out, comes back or is replaced under load, and no host sees an error or an old byte.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::pool::{device, head, nqn, setup};
use super::{long, test};
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, host_nqn, with_node};
use crate::raw::nvme_tcp::{Data, Host, io, kind};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "pool_mirror";
    vec![
        long(S, "a_drive_that_is_lost_costs_nothing_and_is_rebuilt_on_another", lost_and_replaced),
        test(S, "what_a_drive_has_missed_is_rebuilt_when_it_is_back", missed),
        test(S, "killed_while_it_is_written_and_rebuilt", killed),
        test(S, "a_write_that_one_drive_does_not_take_is_acknowledged_and_rebuilt", one_fails),
        test(S, "a_spare_takes_the_place_of_a_lost_drive", spare),
        test(S, "a_spare_that_fails_while_it_is_rebuilt_is_replaced_by_the_next_one", spare_fails),
        test(S, "a_scrub_finds_and_repairs_what_differs", scrubbed),
        test(S, "what_cannot_be_is_refused_and_changes_nothing", refused),
    ]
}

/// MiB of volume `safe`.
const MIB: u32 = 40;

/// Drives `a`, `b` and `c`, of which `c` is in no pool, and a volume with two copies.
fn twice(pool: &str) -> String {
    let drive = |name: &str| device(name, &format!("media = \"file:{name}.img\"\ncapacity = \"64MiB\""));
    head()
        + &["a", "b", "c"].map(drive).concat()
        + &device("tiny", "media = \"file:tiny.img\"\ncapacity = \"8MiB\"")
        + &format!("[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n{pool}")
        + &format!(
            "[[volume]]\nname = \"safe\"\ntenant = \"gold\"\nsize = \"{MIB}MiB\"\ncopies = 2\nexport = [\"nvme-tcp\", \"vhost-user:safe.sock\"]\n"
        )
}

/// A raw host of the volume.
struct Client {
    _admin: Host,
    queue: Host,
    cid: u16,
}

impl Client {
    fn new(node: &Node) -> Result<Self, String> {
        let (admin, cntlid) = Host::admin_of(&nqn("safe"), node.address(), &host_nqn("gold"), 0)?;
        let queue = Host::io_queue_of(&nqn("safe"), node.address(), &host_nqn("gold"), cntlid, 1)?;
        Ok(Client { _admin: admin, queue, cid: 0 })
    }

    /// The byte that all of a block is.
    fn read(&mut self, lba: u32) -> Result<u8, String> {
        self.cid += 1;
        let block = super::pool::read(&mut self.queue, self.cid, lba)?;
        let block = block.map_err(|status| format!("block {lba}: status {status:#x}"))?;
        ensure(block.iter().all(|b| *b == block[0]), || format!("block {lba} is torn"))?;
        Ok(block[0])
    }

    fn write(&mut self, lba: u32, byte: u8) -> Outcome {
        self.cid += 1;
        self.queue.send(&io(1, self.cid, lba, 1, Data::InCapsule(&[byte; 512])))?;
        let status = self.queue.expect(kind::RESPONSE)?.status() & 0x7ff;
        ensure(status == 0, || format!("a write of block {lba}: status {status:#x}"))
    }
}

/// The first block of each MiB.
fn blocks() -> impl Iterator<Item = u32> {
    (0..MIB).map(|mib| mib * 2048)
}

fn fill(node: &Node, add: u8) -> Outcome {
    let mut client = Client::new(node)?;
    blocks().try_for_each(|lba| client.write(lba, (lba / 2048) as u8 + add))
}

fn holds(node: &Node, add: u8) -> Outcome {
    let mut client = Client::new(node)?;
    blocks().try_for_each(|lba| {
        let (found, written) = (client.read(lba)?, (lba / 2048) as u8 + add);
        ensure(found == written, || format!("block {lba} is {found}, and {written} was written"))
    })
}

fn volume(node: &Node) -> Result<Value, String> {
    http::get(&node.api(), "/v1/volumes/safe")
}

/// Until both copies are whole.
fn whole(node: &Node) -> Outcome {
    let begun = Instant::now();
    loop {
        let now = volume(node)?;
        if now["rebuilding_bytes"] == 0 && now["alone_bytes"] == 0 {
            return Ok(());
        }
        ensure(begun.elapsed() < Duration::from_secs(60), || format!("it is not whole: {now}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn load(env: &Env, node: &Node, time: &str) -> Result<Bench, String> {
    let args = ["--bs", "16KiB", "--qd", "4", "--rw", "randrw", "--verify", "crc32c", "--time", time];
    Bench::start(env, &node.socket_target("safe.sock"), &args)
}

fn says(node: &Node, what: &str) -> Outcome {
    let status = node.cli(&["pool", "status", "--check"])?;
    ensure(status.status.code() == Some(1) && status.stdout.contains(what), || status.describe())
}

fn lost_and_replaced(env: &Env) -> Outcome {
    with_node(env, &setup(twice("")), |node| {
        fill(node, 1)?;
        holds(node, 1)?;
        for (lost, new) in [("a", "c"), ("b", "a")] {
            let beside = load(env, node, "6s")?;
            node.cli_ok(&["pool", "offline", lost])?;
            says(node, "ONE COPY volume safe: ")?;
            node.cli_ok(&["pool", "replace", lost, new])?;
            beside.finish()?.clean()?;
            whole(node)?;
            node.cli_ok(&["pool", "status", "--check"])?;
        }
        // Each copy alone has everything.
        fill(node, 2)?;
        for lost in ["c", "a"] {
            node.kill_and_start()?;
            holds(node, 2)?;
            whole(node)?;
            node.cli_ok(&["pool", "offline", lost])?;
            holds(node, 2)?;
            node.kill_and_start()?;
            whole(node)?;
        }
        holds(node, 2)
    })
}

fn missed(env: &Env) -> Outcome {
    with_node(env, &setup(twice("")), |node| {
        fill(node, 1)?;
        node.cli_ok(&["pool", "offline", "a"])?;
        fill(node, 2)?;
        holds(node, 2)?;
        // It is there again at the next start, and has the old bytes.
        node.kill_and_start()?;
        holds(node, 2)?;
        whole(node)?;
        node.cli_ok(&["pool", "offline", "b"])?;
        holds(node, 2)
    })
}

fn killed(env: &Env) -> Outcome {
    with_node(env, &setup(twice("rebuild_rate = \"4MiB\"\n")), |node| {
        fill(node, 1)?;
        let mut written = 1;
        node.cli_ok(&["pool", "offline", "a"])?;
        node.cli_ok(&["pool", "replace", "a", "c"])?;
        for round in 0..4u64 {
            let mut client = Client::new(node)?;
            // Some of it is written anew while it is rebuilt, and the kill comes somewhere in between.
            for lba in blocks() {
                client.write(lba, (lba / 2048) as u8 + written + 1)?;
                if lba == 2048 * 20 {
                    std::thread::sleep(Duration::from_millis(37 * round));
                }
            }
            written += 1;
            node.kill_and_start()?;
            holds(node, written)?;
        }
        whole(node)?;
        for lost in ["b", "c"] {
            node.cli_ok(&["pool", "offline", lost])?;
            holds(node, written)?;
            node.kill_and_start()?;
            whole(node)?;
        }
        holds(node, written)
    })
}

fn one_fails(env: &Env) -> Outcome {
    let config = twice("").replacen("[node]\n", "[node]\nfaults = true\n", 1);
    with_node(env, &setup(config), |node| {
        fill(node, 1)?;
        // Writes of the volume's chunks fail; those of the pool's metadata do not.
        node.cli_ok(&["fault", "add", "a", "status", "code=2/80h", "lba=8192-131071", "op=write"])?;
        fill(node, 2)?;
        holds(node, 2)?;
        ensure(volume(node)?["rebuilding_bytes"] != 0, || "what a has not taken is to be rebuilt".into())?;
        bench(
            env,
            &node.socket_target("safe.sock"),
            &["--bs", "4KiB", "--rw", "randrw", "--verify", "crc32c", "--time", "2s"],
        )?
        .clean()?;
        fill(node, 3)?;
        node.kill_and_start()?;
        holds(node, 3)?;
        whole(node)?;
        node.cli_ok(&["pool", "offline", "b"])?;
        holds(node, 3)
    })
}

fn spare(env: &Env) -> Outcome {
    with_node(env, &setup(twice("spares = [\"c\"]\n")), |node| {
        fill(node, 1)?;
        let beside = load(env, node, "5s")?;
        node.cli_ok(&["pool", "offline", "a"])?;
        takes_the_place(node, "c")?;
        beside.finish()?.clean()?;
        whole(node)?;
        fill(node, 2)?;
        node.cli_ok(&["pool", "offline", "b"])?;
        holds(node, 2)
    })
}

/// Two drives fail one after the other, and the second one is a spare that has got a part of the copy.
fn spare_fails(env: &Env) -> Outcome {
    let pool = twice("spares = [\"c\", \"d\"]\nrebuild_rate = \"4MiB\"\n");
    let config = pool.replacen("[node]\n", "[node]\nfaults = true\n", 1)
        + &device("d", "media = \"file:d.img\"\ncapacity = \"64MiB\"");
    with_node(env, &setup(config), |node| {
        fill(node, 1)?;
        let beside = load(env, node, "8s")?;
        node.cli_ok(&["pool", "offline", "a"])?;
        takes_the_place(node, "c")?;
        // Some of it is copied, and most of it is not.
        while volume(node)?["rebuilding_bytes"].as_u64() >= Some(u64::from(MIB) << 20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure(volume(node)?["rebuilding_bytes"] != 0, || "the rebuild was over too early for this test".into())?;
        node.cli_ok(&["fault", "add", "c", "status", "code=2/80h", "op=write"])?;
        takes_the_place(node, "d")?;
        beside.finish()?.clean()?;
        whole(node)?;
        fill(node, 2)?;
        node.cli_ok(&["pool", "offline", "b"])?;
        holds(node, 2)
    })
}

/// Until a spare does.
fn takes_the_place(node: &Node, name: &str) -> Outcome {
    let (begun, said) = (Instant::now(), format!("spare {name} takes the place"));
    while !node.log().contains(&said) {
        ensure(begun.elapsed() < Duration::from_secs(60), || format!("not {said:?}: {}", node.log()))?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Until the comparison has ended: what it has found.
fn scrub(node: &Node, args: &[&str]) -> Result<Value, String> {
    node.cli_ok(&[&["pool", "scrub"], args].concat())?;
    let begun = Instant::now();
    loop {
        let now = http::get(&node.api(), "/v1/pools")?[0]["scrub"].clone();
        if now["running"] == false {
            return Ok(now);
        }
        ensure(begun.elapsed() < Duration::from_secs(60), || format!("it does not end: {now}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn scrubbed(env: &Env) -> Outcome {
    let mut node = Node::start(env, &setup(twice("")))?;
    fill(&node, 1)?;
    let size = u64::from(MIB) << 20;
    let found = scrub(&node, &[])?;
    ensure(found["compared_bytes"] == size && found["differing_bytes"] == 0, || found.to_string())?;
    node.end()?;
    // A byte of each MiB of drive b changes while nobody looks, behind its metadata.
    let file = node.dir.join("b.img");
    let mut bytes = std::fs::read(&file).context(|| file.display().to_string())?;
    let mut changed = 0;
    for block in (2 << 20..bytes.len()).step_by(1 << 20) {
        if bytes[block] != 0 {
            (bytes[block], changed) = (bytes[block] ^ 0xff, changed + 1);
        }
    }
    ensure(changed > 0, || "drive b has something of the volume".into())?;
    std::fs::write(&file, bytes).context(|| file.display().to_string())?;
    node.start_again()?;
    whole(&node)?;
    let found = scrub(&node, &[])?;
    ensure(found["differing_bytes"].as_u64().is_some_and(|n| n > 0), || found.to_string())?;
    let again = scrub(&node, &["--repair"])?;
    ensure(again["differing_bytes"] == found["differing_bytes"], || again.to_string())?;
    let found = scrub(&node, &[])?;
    ensure(found["differing_bytes"] == 0 && found["compared_bytes"] == size, || found.to_string())?;
    node.stop()
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(twice("")), |node| {
        let before = http::get(&node.api(), "/v1/volumes")?;
        let fails = |args: &[&str], why: &str| {
            let out = node.cli(args)?;
            ensure(!out.status.success() && out.stderr.contains(why), || out.describe())
        };
        fails(
            &["volume", "create", "w", "60MiB", "--tenant", "gold", "--copies", "2"],
            "MiB are wanted on each of two drives",
        )?;
        fails(&["volume", "create", "w", "1MiB", "--tenant", "gold", "--copies", "3"], "3")?;
        node.cli_ok(&["pool", "offline", "a"])?;
        fails(&["pool", "replace", "a", "tiny"], "take a larger drive")?;
        fails(&["pool", "replace", "a", "b"], "b is a drive of pool p already")?;
        fails(&["pool", "replace", "--empty", "safe"], "has lost nothing")?;
        fails(&["volume", "resize", "safe", "50MiB"], "has one copy of some of its chunks")?;
        let after = http::get(&node.api(), "/v1/volumes")?;
        ensure(before[0]["uuid"] == after[0]["uuid"] && after[0]["size_bytes"] == before[0]["size_bytes"], || {
            format!("{before} and then {after}")
        })
        .context(|| "nothing was changed".into())
    })
}
