//! What all modes of a store have in common: what is measured and where, the warm-up, and why a run ends early.

use super::super::path::shown;
use super::args::BenchPlan;
use std::fmt::Display;
use weir_store_node::client::{Client, ClientError, CreateOptions};
use weir_workload::Xoshiro256;

/// What is measured, and where.
pub struct Bench<'a> {
    pub client: &'a Client,
    pub plan: BenchPlan,
    pub path: Vec<u8>,
    /// Of new files.
    pub options: CreateOptions,
}

/// Why it ended early.
pub enum BenchError {
    Client(ClientError),
    /// As the user reads it.
    Text(String),
}

impl From<ClientError> for BenchError {
    fn from(e: ClientError) -> Self {
        BenchError::Client(e)
    }
}

impl Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Client(e) => e.fmt(f),
            BenchError::Text(text) => f.write_str(text),
        }
    }
}

impl Bench<'_> {
    /// Writes a file of the same kind beside the one that is measured, so that connections are there, and removes it. What is
    /// measured is not cached by that.
    pub fn warm_up(&self) -> Result<(), BenchError> {
        if self.plan.warmup == 0 {
            return Ok(());
        }
        let mut path = self.path.clone();
        path.extend_from_slice(format!(".warm-up-{}", std::process::id()).as_bytes());
        let size = if self.plan.mode.has_size() { self.plan.size } else { 4096 };
        let bytes = pattern(size);
        let file = self.client.create(&path, &self.options)?;
        // A large one would only take room.
        let places = (WARM_UP_BYTES / size as u64).max(1);
        let written = (0..self.plan.warmup).try_for_each(|at| file.write_at(at % places * size as u64, &bytes));
        let flushed = written.and_then(|()| file.flush());
        drop(file);
        let removed = self.client.remove(&path, false);
        flushed?;
        Ok(removed?)
    }

    /// What a stream said.
    pub fn io(&self, e: &std::io::Error) -> BenchError {
        // What the client says names the path already.
        BenchError::Text(e.to_string())
    }

    /// What is wrong with the file.
    pub fn text(&self, why: &str) -> BenchError {
        BenchError::Text(format!("{}: {why}", shown(&self.path)))
    }

    /// Whether a read has come to its end or to that of the file.
    pub fn all_there(&self, at: u64, n: usize, size: u64) -> Result<(), BenchError> {
        let wanted = (self.plan.size as u64).min(size.saturating_sub(at));
        match n as u64 == wanted {
            true => Ok(()),
            false => Err(self.text(&format!("{n} bytes came from byte {at} on, and {wanted} were there"))),
        }
    }
}

/// Bytes of the file of a warm-up at the most, but for one operation.
const WARM_UP_BYTES: u64 = 64 << 20;

/// Bytes that no drive packs.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut rng = Xoshiro256::new(7);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Places of whole operations in so many bytes.
///
/// # Errors
/// There is none.
pub fn places(bytes: u64, size: usize, about: impl Display) -> Result<u64, String> {
    match bytes / size as u64 {
        0 => Err(format!(
            "{about}: it has {bytes} bytes, fewer than one operation of {size}; write more, or give a smaller -s"
        )),
        places => Ok(places),
    }
}
