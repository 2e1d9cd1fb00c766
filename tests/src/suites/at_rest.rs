//! The worker is killed, and NVMe/TCP hosts whose connections were at rest notice nothing; the others see their connections end at once.

use std::time::Duration;

use super::crash_vfio::kill;
use super::{pool, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::raw::Rng;
use crate::raw::nvme_tcp::{self, Data, Host};

const SET_FEATURES: u8 = 0x09;
const ASYNC_EVENT: u8 = 0x0c;
const KEEP_ALIVE: u8 = 0x18;
const REGISTER: u8 = 0x0d;
/// Far longer than nothing must come for over a connection before it is noted.
const REST: Duration = Duration::from_secs(1);
const BLOCK: usize = 512;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "at_rest";
    vec![
        test(S, "hosts_at_rest_notice_no_kill", rests),
        test(S, "hosts_of_volumes_at_rest_notice_no_kill", volumes),
        test(S, "what_was_under_way_ends_at_once", busy),
        test(S, "who_is_connecting_is_told_at_once", connecting),
        test(S, "who_relies_on_what_has_gone_connects_again", gone),
    ]
}

fn kept(setup: Setup) -> Setup {
    Setup { node: "keeper = true".into(), ..setup }
}

fn command(opcode: u8, cid: u16, nsid: u32, dwords: [u32; 6]) -> Vec<u8> {
    nvme_tcp::capsule(&nvme_tcp::sqe(opcode, cid, nsid, dwords, Data::None), Data::None)
}

/// An admin and an I/O queue, whose answers are waited for 15 s.
fn connect(node: &Node, nqn: &str) -> Result<(Host, Host), String> {
    let host = host_nqn("gold");
    let (admin, cntlid) = Host::admin_of(nqn, node.address(), &host, 60_000)?;
    let queue = Host::io_queue_of(nqn, node.address(), &host, cntlid, 1)?;
    for connection in [&admin, &queue] {
        connection.stream().set_read_timeout(Some(Duration::from_secs(15))).context(|| "a limit".into())?;
    }
    Ok((admin, queue))
}

fn write(queue: &mut Host, cid: u16, lba: u32) -> Outcome {
    queue.send(&nvme_tcp::io(1, cid, lba, 1, Data::InCapsule(&[cid as u8; BLOCK])))?;
    ensure(queue.success()?.cid() == cid, || format!("write {cid}"))
}

fn read(queue: &mut Host, cid: u16, lba: u32, byte: u8) -> Outcome {
    queue.send(&nvme_tcp::io(2, cid, lba, 1, Data::Transport(BLOCK as u32)))?;
    let data = queue.expect(nvme_tcp::kind::C2H_DATA)?;
    ensure(data.bytes.ends_with(&[byte; BLOCK]), || format!("read {cid}: other bytes"))?;
    ensure(queue.success()?.cid() == cid, || format!("read {cid}"))
}

fn alive(admin: &mut Host, cid: u16) -> Outcome {
    admin.send(&command(KEEP_ALIVE, cid, 0, [0; 6]))?;
    ensure(admin.success()?.cid() == cid, || format!("keep alive {cid}"))
}

/// The same connections before and after several kills.
fn goes_on(node: &Node, nqn: &str) -> Result<(Host, Host), String> {
    let (mut admin, mut queue) = connect(node, nqn)?;
    admin.send(&command(SET_FEATURES, 76, 0, [0x0b, 0x100, 0, 0, 0, 0]))?;
    admin.success()?;
    admin.send(&command(ASYNC_EVENT, 77, 0, [0; 6]))?;
    for i in 1..4u16 {
        write(&mut queue, i, i.into())?;
        alive(&mut admin, 100 + i)?;
        std::thread::sleep(REST);
        node.kill_worker()?;
        // Sent before anybody serves again, or after it.
        if i == 2 {
            std::thread::sleep(REST);
        }
        read(&mut queue, 10 + i, i.into(), i as u8)?;
        alive(&mut admin, 200 + i)?;
    }
    Ok((admin, queue))
}

fn rests(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default()), |node| goes_on(node, NQN).map(drop))
}

/// And an event request that was there before all of the kills is answered.
fn volumes(env: &Env) -> Outcome {
    let Setup { whole, .. } = pool::three_volumes();
    let whole = whole.replace("cores = [0]", "cores = [0]\nkeeper = true");
    with_node(env, &Setup { whole, ..Setup::default() }, |node| {
        let (mut admin, _queue) = goes_on(node, &pool::nqn("v0"))?;
        node.cli_ok(&["volume", "resize", "v0", "13MiB"])?;
        let event = admin.success()?;
        ensure(event.cid() == 77 && event.u32(8) == 0x0004_0002, || format!("{event:02x?}"))
    })
}

/// A queue with a command in flight ends, its host's admin queue goes on, and the queue can be made again.
fn busy(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().device("latency = \"10s\"")), |node| {
        let host = host_nqn("gold");
        let (mut admin, cntlid) = Host::admin_of(NQN, node.address(), &host, 60_000)?;
        let mut queue = Host::io_queue_of(NQN, node.address(), &host, cntlid, 1)?;
        queue.send(&nvme_tcp::io(2, 7, 0, 1, Data::Transport(BLOCK as u32)))?;
        std::thread::sleep(REST);
        node.kill_worker()?;
        let end = queue.until_closed()?;
        ensure(end.is_empty(), || format!("{end:02x?}"))?;
        alive(&mut admin, 1)?;
        Host::io_queue_of(NQN, node.address(), &host, cntlid, 1).map(drop)
    })
}

/// A host that is killed under while it connects is let in or sees its connection end: it waits for nothing that does not come. (Linux waits
/// a minute for a command of those by which it connects.)
fn connecting(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default()), |node| {
        let (node, host) = (&*node, host_nqn("gold"));
        let mut rng = Rng::new(3);
        let (mut let_in, mut ended) = (0, 0);
        for round in 0..30 {
            let after = Duration::from_micros(rng.below(2000) as u64);
            let (connected, killed) = std::thread::scope(|scope| {
                let kills = scope.spawn(move || {
                    std::thread::sleep(after);
                    kill(node)
                });
                let connected = Host::admin(node.address(), &host, 60_000).map(drop);
                (connected, kills.join().unwrap_or_else(|_| Err("panicked".into())))
            });
            killed?;
            match connected {
                Ok(()) => let_in += 1,
                Err(e) => {
                    // What a read says after its limit.
                    let waited = e.contains("os error 11") || e.contains("timed out");
                    ensure(!waited, || format!("round {round}, killed after {after:?}: {e}"))?;
                    ended += 1;
                }
            }
        }
        println!("    {let_in} were let in, {ended} saw an end");
        Ok(())
    })
}

/// Reservations that a loss of power ends: their hosts are to notice.
fn gone(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default()), |node| {
        let (mut admin, mut queue) = connect(node, NQN)?;
        let mut keys = [0; 16];
        keys[8] = 5;
        let entry = nvme_tcp::sqe(REGISTER, 9, 1, [0; 6], Data::InCapsule(&keys));
        queue.send(&nvme_tcp::capsule(&entry, Data::InCapsule(&keys)))?;
        queue.success()?;
        std::thread::sleep(REST);
        node.kill_worker()?;
        let (events, answers) = (admin.until_closed()?, queue.until_closed()?);
        ensure(events.is_empty() && answers.is_empty(), || format!("{events:02x?} {answers:02x?}"))
    })
}
