//! The worker is killed after each message of a real QEMU: its start, its firmware's driver, memory that is plugged in, migrations, a reset, its
//! end. Nothing of what it said is lost: the machine goes on writing and reading what it has written. (The firmware keeps one request in flight;
//! many are [`super::guest_crash`]'s.)

use std::time::Duration;

use serde_json::json;

use super::crash_vfio::kill;
use super::guest_vhost::{disk_at, reaches};
use super::{long, test};
use crate::bios::{Machine, boot_block};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, text, with_node};
use crate::raw::Rng;
use crate::raw::nvme_tcp::{Data, Host, io};
use crate::raw::vfio_user::cmd;
use crate::raw::vhost_user::request;
use crate::relay::{Protocol, Relay};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "every_message";
    vec![
        test(S, "of_a_disk", |env| after_each(env, Protocol::VhostUser)),
        test(S, "of_a_drive", |env| after_each(env, Protocol::VfioUser)),
        long(S, "of_a_disk_alone", |env| alone(env, Protocol::VhostUser)),
        long(S, "of_a_drive_alone", |env| alone(env, Protocol::VfioUser)),
    ]
}

fn setup(standby: bool) -> Setup {
    let node = if standby { "keeper = true\nstandby = true" } else { "keeper = true" };
    let setup = Setup { node: node.into(), capacity: "16MiB".into(), ..Setup::default() };
    setup.device("block_size = 512").socket("disk.sock").vfio("drive.sock", "")
}

/// QEMU's arguments for what `socket` serves.
fn device(protocol: Protocol, socket: &str) -> Vec<String> {
    match protocol {
        // Without `reconnect`: it would not come back.
        Protocol::VhostUser => disk_at(socket, false, 2),
        Protocol::VfioUser => vec!["-device".into(), super::guest_vfio::device(socket).to_string()],
    }
}

/// Puts the program into the drive's first block.
fn install(node: &Node) -> Outcome {
    let (_admin, cntlid) = Host::admin(node.address(), &host_nqn("gold"), 0)?;
    let mut queue = Host::io_queue(node.address(), &host_nqn("gold"), cntlid, 1)?;
    queue.send(&io(1, 1, 0, 1, Data::InCapsule(&boot_block())))?;
    queue.success().map(drop)
}

/// A machine's life, its drive in use throughout; what its QEMU has said.
fn life(
    env: &Env,
    node: &Node,
    protocol: Protocol,
    after: impl FnMut(usize, u32) -> Outcome + Send,
) -> Result<Vec<u32>, String> {
    let dir = env.folder()?;
    let (door, between) = (if protocol == Protocol::VhostUser { "disk.sock" } else { "drive.sock" }, dir.join("relay"));
    let relay = Relay::new(protocol, &between, &node.socket(door));
    relay.along(after, || {
        let mut machine = Machine::start(env, &dir, &device(protocol, &text(&between)))?;
        machine.turns().map_err(|e| format!("at the start: {e}"))?;
        let memory = json!({ "qom-type": "memory-backend-memfd", "id": "more", "size": 64 << 20, "share": true });
        machine.monitor.execute("object-add", memory)?;
        let before = relay.seen().len();
        machine.monitor.execute("device_add", json!({ "driver": "pc-dimm", "id": "dimm", "memdev": "more" }))?;
        ensure(relay.seen().len() > before, || "nothing is said of new memory".into())?;
        machine.turns().map_err(|e| format!("with more memory: {e}"))?;
        if protocol == Protocol::VhostUser {
            migrates(&mut machine)?;
        }
        machine.monitor.execute("system_reset", json!({}))?;
        machine.turns().map_err(|e| format!("after a reset: {e}"))?;
        machine.monitor.execute("quit", json!({}))?;
        let finished = machine.ended()?;
        ensure(finished.status.success(), || finished.describe())
    })?;
    Ok(relay.seen())
}

/// Once up to where it is called off, and once to the end, after which the machine goes on where it is.
fn migrates(machine: &mut Machine) -> Outcome {
    let set = |machine: &mut Machine, bandwidth: u64| {
        machine.monitor.execute("migrate-set-parameters", json!({ "max-bandwidth": bandwidth, "downtime-limit": 1000 }))
    };
    let away = json!({ "uri": "exec:cat >/dev/null" });
    set(machine, 1 << 12)?;
    machine.monitor.execute("migrate", away.clone())?;
    reaches(&mut machine.monitor, "a migration goes on", &|now| now["status"] == "active")?;
    machine.turns().map_err(|e| format!("with a dirty log: {e}"))?;
    machine.monitor.execute("migrate_cancel", json!({}))?;
    reaches(&mut machine.monitor, "a migration is called off", &|now| now["status"] == "cancelled")?;
    machine.turns().map_err(|e| format!("after a migration that was called off: {e}"))?;
    set(machine, 4 << 30)?;
    machine.monitor.execute("migrate", away)?;
    reaches(&mut machine.monitor, "a migration ends", &|now| now["status"] == "completed")?;
    machine.monitor.execute("cont", json!({}))?;
    machine.turns().map_err(|e| format!("after a migration: {e}"))
}

/// Messages without which this was not the conversation that is meant.
fn complete(protocol: Protocol, seen: &[u32]) -> Outcome {
    let wanted: &[u32] = match protocol {
        Protocol::VhostUser => &[
            request::ADD_MEM_REG,
            request::SET_LOG_BASE,
            request::SET_VRING_KICK,
            request::GET_VRING_BASE,
            request::GET_INFLIGHT_FD,
        ],
        Protocol::VfioUser => &[cmd::DMA_MAP.into(), cmd::REGION_WRITE.into(), cmd::DEVICE_RESET.into()],
    };
    let missing: Vec<_> = wanted.iter().filter(|what| !seen.contains(what)).collect();
    ensure(missing.is_empty(), || format!("QEMU never said {missing:?}: {seen:?}"))
}

/// At once, or when the worker has had time for it.
fn strike(node: &Node, rng: &mut Rng) -> Outcome {
    std::thread::sleep(Duration::from_micros(rng.below(2) as u64 * rng.below(3000) as u64));
    kill(node)
}

/// The worker is killed after each message of one life.
fn after_each(env: &Env, protocol: Protocol) -> Outcome {
    with_node(env, &setup(false), |node| {
        install(node)?;
        let (node, mut rng, mut kills) = (&*node, Rng::new(11), 0);
        let seen = life(env, node, protocol, |_, _| {
            kills += 1;
            strike(node, &mut rng)
        })?;
        println!("    {kills} kills, one after each message");
        ensure(kills == seen.len(), || format!("{kills} kills for {} messages", seen.len()))?;
        complete(protocol, &seen)
    })
}

/// After one message in each life, until there was one after each.
fn alone(env: &Env, protocol: Protocol) -> Outcome {
    with_node(env, &setup(true), |node| {
        install(node)?;
        let (node, mut rng) = (&*node, Rng::new(12));
        let (mut number, mut kills) = (0, 0);
        loop {
            number += 1;
            let before = kills;
            let seen = life(env, node, protocol, |now, _| {
                if now != number {
                    return Ok(());
                }
                kills += 1;
                strike(node, &mut rng)
            })
            .map_err(|e| format!("killed after message {number}: {e}"))?;
            complete(protocol, &seen)?;
            if kills == before {
                // A life has some more messages, or some less, depending on who is faster.
                ensure(number > seen.len(), || format!("no kill after message {number} of {}", seen.len()))?;
                break;
            }
        }
        println!("    {kills} lives with a kill");
        Ok(())
    })
}
