//! The machines with their drives: whether each is there, what its label says, and how long its bytes take.

use super::scale::{DRIVE_BYTES, DRIVE_RATE, GIVE_UP, LINK, StoreSize, WAY};
use weir_store::service::{LabelFound, MoveBlock, TierAnswer, TierFailure, TierRequest};
use weir_units::Nanos;

/// A machine with one drive.
#[derive(Clone, Debug)]
pub struct DonatedDrive {
    pub class: usize,
    pub is_up: bool,
    pub label: LabelFound,
    /// Until then its bytes move.
    busy: Nanos,
}

/// All of them.
#[derive(Debug)]
pub struct Drives {
    pub all: Vec<DonatedDrive>,
    /// Bytes that were copied from drive to drive.
    pub moved: u64,
}

/// Where a machine's drive is reached.
pub fn target(node: usize) -> String {
    format!("nvme-tcp://node{node}:4420/nqn.weir?ns=1")
}

fn node_of(target: &str) -> Option<usize> {
    target.strip_prefix("nvme-tcp://node")?.split(':').next()?.parse().ok()
}

impl Drives {
    pub fn new(scale: &StoreSize) -> Self {
        let drive = |node| DonatedDrive {
            class: StoreSize::class(node),
            is_up: true,
            label: LabelFound::Blank,
            busy: Nanos(0),
        };
        Self { all: (0..scale.nodes).map(drive).collect(), moved: 0 }
    }

    /// When so many bytes are on a drive; nothing if it is not there.
    pub fn write(&mut self, node: usize, now: Nanos, bytes: u64) -> Option<Nanos> {
        self.transfer(node, now, bytes, |rate| rate.1)
    }

    /// When so many bytes have come from a drive; nothing if it is not there.
    pub fn read(&mut self, node: usize, now: Nanos, bytes: u64) -> Option<Nanos> {
        self.transfer(node, now, bytes, |rate| rate.0)
    }

    fn transfer(&mut self, node: usize, now: Nanos, bytes: u64, rate: impl Fn((u64, u64)) -> u64) -> Option<Nanos> {
        let drive = self.all.get_mut(node).filter(|drive| drive.is_up)?;
        let rate = rate(DRIVE_RATE[drive.class]).min(LINK);
        drive.busy = drive.busy.max(now).saturating_add(Nanos(bytes * 1_000_000_000 / rate));
        Some(drive.busy.saturating_add(Nanos(2 * WAY.get())))
    }

    /// What becomes of a request of a service, and when.
    pub fn ask(&mut self, now: Nanos, request: &TierRequest) -> (Nanos, Result<TierAnswer, TierFailure>) {
        let near = now.saturating_add(Nanos(2 * WAY.get()));
        let gone = |target: &str| (now.saturating_add(GIVE_UP), Err(TierFailure(format!("{target}: no answer"))));
        match request {
            TierRequest::ReadLabel { target } => match node_of(target).filter(|node| self.all[*node].is_up) {
                None => gone(target),
                Some(node) => {
                    let DonatedDrive { class, label, .. } = &self.all[node];
                    (near, Ok(TierAnswer::Label { bytes: DRIVE_BYTES[*class], sector: 4096, found: *label }))
                }
            },
            TierRequest::WriteLabel { target, store, namespace, content } => {
                match node_of(target).filter(|node| self.all[*node].is_up) {
                    None => gone(target),
                    Some(node) => {
                        let (store, namespace, content) = (*store, *namespace, *content);
                        self.all[node].label = LabelFound::Label { store, namespace, content };
                        (near, Ok(TierAnswer::Written))
                    }
                }
            }
            TierRequest::Move(block) => self.copy(now, block),
            TierRequest::Recover(block) => {
                let is_up = |target: &str| node_of(target).is_some_and(|node| self.all[node].is_up);
                let up = block.copies.iter().filter(|copy| is_up(&copy.target)).map(|copy| copy.index);
                let good: Vec<usize> = up.collect();
                let checksums = vec![0; block.length.div_ceil(64 << 10) as usize];
                match good.is_empty() {
                    true => gone(&block.copies[0].target),
                    false => (near, Ok(TierAnswer::Recovered { checksums, good })),
                }
            }
        }
    }

    /// A block is read from the first of its copies that is there, and written elsewhere.
    fn copy(&mut self, now: Nanos, block: &MoveBlock) -> (Nanos, Result<TierAnswer, TierFailure>) {
        let read = block.sources.iter().find_map(|copy| self.read(node_of(&copy.target)?, now, block.length));
        let Some(read) = read else {
            return (now.saturating_add(GIVE_UP), Err(TierFailure("none of its copies answers".into())));
        };
        match node_of(&block.to.target).and_then(|node| self.write(node, read, block.length)) {
            Some(written) => {
                self.moved += block.length;
                (written, Ok(TierAnswer::Moved { checksums: block.checksums.clone() }))
            }
            None => {
                let why = format!("{}: no answer", block.to.target);
                (read.saturating_add(GIVE_UP), Ok(TierAnswer::NotWritten { why }))
            }
        }
    }
}
