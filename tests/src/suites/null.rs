//! Drives without media: what a read leaves in the client's buffer, over every door.

use ::virtio_driver::VirtioFeatureFlags as Feature;

use super::hostile_tcp::data;
use super::{test, virtio_driver};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, text, with_node};
use crate::raw::nvme_tcp::{self as wire, Data, Host};
use crate::vfio::{Drive, PAGE, ams, command, io, qprio};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "null";
    vec![
        test(S, "a_read_moves_nothing", |env| reads(env, "", 0xa5)),
        test(S, "a_read_gives_zeroes_where_asked_to", |env| reads(env, "read_zeroes = true", 0)),
        test(S, "so_does_one_that_takes_its_time", |env| reads(env, "latency = \"50us\"", 0xa5)),
    ]
}

/// Bytes of a read: more than one page, so that it has a PRP list and several descriptors.
const LEN: usize = 4 * PAGE as usize;

/// What a read leaves in a buffer of 0xa5: over vhost-user and vfio-user the buffer is the client's memory. Over NVMe/TCP something has
/// to be sent, and that is zeroes.
fn reads(env: &Env, keys: &str, wanted: u8) -> Outcome {
    let setup =
        Setup { media: "null".into(), ..Setup::default().socket("gold.sock").vfio("pci.sock", "").device(keys) };
    with_node(env, &setup, |node| {
        for (name, ring) in [("split", Feature::empty()), ("packed", Feature::RING_PACKED)] {
            let socket = text(&node.socket("gold.sock"));
            let found = virtio_driver::read_over(&socket, Feature::VERSION_1 | ring, 0xa5, LEN)?;
            all(&format!("vhost-user, {name} ring"), &found, wanted)?;
        }
        all("vfio-user", &over_vfio_user(node)?, wanted)?;
        all("NVMe/TCP", &over_tcp(node)?, 0)
    })
}

fn all(door: &str, found: &[u8], wanted: u8) -> Outcome {
    let same = found.iter().all(|byte| *byte == wanted);
    ensure(same, || format!("{door}: a read of a null drive left {:02x?}…, not {wanted:02x?}", &found[..16]))
}

fn over_vfio_user(node: &Node) -> Result<Vec<u8>, String> {
    let mut drive = Drive::ready(&node.socket("pci.sock"), ams::ROUND_ROBIN)?;
    let mut queue = drive.create_queue(1, 64, qprio::MEDIUM, None)?;
    let (buffer, list) = (drive.allocate(LEN as u64), drive.allocate(PAGE));
    drive.write(buffer, &[0xa5; LEN])?;
    let prp = drive.prp(buffer, LEN as u64, list)?;
    let status = drive.io(&mut queue, io(2, 0, (LEN / 512) as u32, prp))?;
    ensure(status == 0, || format!("a read over vfio-user: status {status:#x}"))?;
    let mut found = vec![0; LEN];
    drive.read(buffer, &mut found)?;
    // Identify Namespace: DLFEAT says what a deallocated block reads as (bits 2:0).
    drive.admin_ok(command(0x06, (list, 0), &[(1, 1)]))?;
    let mut identity = [0; 64];
    drive.read(list, &mut identity)?;
    let zeroes = found.iter().all(|byte| *byte == 0);
    ensure(identity[33] & 7 == u8::from(zeroes), || {
        format!("DLFEAT {:#x}, and reads give {:02x?}", identity[33], found[0])
    })?;
    Ok(found)
}

fn over_tcp(node: &Node) -> Result<Vec<u8>, String> {
    let host = host_nqn("bronze");
    let (_admin, cntlid) = Host::admin(node.address(), &host, 15_000)?;
    let mut queue = Host::io_queue(node.address(), &host, cntlid, 1)?;
    queue.send(&wire::io(0x02, 7, 0, (LEN / 512) as u32, Data::Transport(LEN as u32)))?;
    data(&mut queue, 7, LEN)
}
