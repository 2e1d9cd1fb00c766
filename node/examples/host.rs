//! Writes 4 KiB to a drive and waits for them: `cargo run -p weir-node --example host`, beside a `weir up`.
//! docs/guides/shares.md has the middle of it.

use std::error::Error;
use weir_config::Target;
use weir_driver::{Io, IoKind, QueuePair};
use weir_node::host::{Controller, Options, QueueClass};

fn main() -> Result<(), Box<dyn Error>> {
    let target: Target = "nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:n1:ssd0?ns=1".parse()?;
    let mut controller = Controller::open(&target, Options { queues: 2, ..Options::default() })?;
    let mut pair = controller.queue_pair(QueueClass::Thread)?; // or Fixed(Class::High), or Tenant
    pair.buffer(0)[..4096].fill(7);
    pair.submit(Io { kind: IoKind::Write, offset: 0, len: 4096, slot: 0 })?;
    let mut done = Vec::new();
    while done.is_empty() {
        pair.poll(&mut done)?;
    }
    println!("{}", done[0].status);
    Ok(())
}
