//! A slow, obvious drive of chunks: every rule of [`Chunks`] block by block, for tests.

use super::address::Ppa;
use super::chunks::{ChunkError, ChunkState, Chunks, VectorError};
use super::config::ChunkConfig;
use alloc::vec;
use alloc::vec::Vec;

/// What can happen to chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkOp {
    Read(Vec<Ppa>),
    Write(Vec<Ppa>),
    Reset(Vec<u32>),
    Retire(u32),
    Close(u32),
}

/// Carries a step out on the machine.
pub fn apply(chunks: &mut Chunks, step: &ChunkOp) -> Result<(), VectorError> {
    match step {
        ChunkOp::Read(list) => chunks.read(list),
        ChunkOp::Write(list) => chunks.write(list),
        ChunkOp::Reset(list) => chunks.reset(list),
        ChunkOp::Retire(chunk) => {
            chunks.retire(*chunk);
            Ok(())
        }
        ChunkOp::Close(chunk) => {
            chunks.close(*chunk);
            Ok(())
        }
    }
}

/// A chunk as the list of its blocks, written or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    written: Vec<bool>,
    closed: bool,
    offline: bool,
    resets: u32,
}

impl Blocks {
    pub fn wp(&self) -> u32 {
        self.written.iter().take_while(|w| **w).count() as u32
    }

    pub fn state(&self) -> ChunkState {
        match (self.offline, self.wp()) {
            (true, _) => ChunkState::Offline,
            (_, 0) => ChunkState::Free,
            (_, wp) if self.closed || wp as usize == self.written.len() => ChunkState::Closed,
            _ => ChunkState::Open,
        }
    }

    pub fn resets(&self) -> u32 {
        self.resets
    }
}

/// The oracle. It is copied before each step, and a step that fails is forgotten.
#[derive(Clone, Debug)]
pub struct ChunksModel {
    config: ChunkConfig,
    pub chunks: Vec<Blocks>,
}

impl ChunksModel {
    pub fn new(config: ChunkConfig) -> Self {
        let free = Blocks { written: vec![false; config.blocks as usize], closed: false, offline: false, resets: 0 };
        Self { config, chunks: vec![free; (config.groups * config.units * config.chunks) as usize] }
    }

    pub fn apply(&mut self, step: &ChunkOp) -> Result<(), VectorError> {
        let mut next = self.clone();
        next.step(step)?;
        *self = next;
        Ok(())
    }

    fn step(&mut self, step: &ChunkOp) -> Result<(), VectorError> {
        match step {
            ChunkOp::Read(list) => {
                let answers: Vec<_> = list.iter().map(|at| self.read(*at).err()).collect();
                match answers.iter().flatten().next() {
                    None => Ok(()),
                    Some(error) => {
                        Err(VectorError { error: *error, failed: marks(answers.iter().map(Option::is_some)) })
                    }
                }
            }
            ChunkOp::Write(list) => self.write(list),
            ChunkOp::Reset(list) => (0..list.len()).try_for_each(|i| {
                let twice = list[..i].contains(&list[i]);
                let answer = if twice { Err(ChunkError::List) } else { self.reset(list[i]) };
                answer.map_err(|error| VectorError { error, failed: marks((0..list.len()).map(|j| j == i)) })
            }),
            ChunkOp::Retire(chunk) => {
                self.chunks.iter_mut().skip(*chunk as usize).take(1).for_each(|c| c.offline = true);
                Ok(())
            }
            ChunkOp::Close(chunk) => {
                if let Some(c) = self.chunks.get_mut(*chunk as usize) {
                    c.closed |= c.state() == ChunkState::Open;
                }
                Ok(())
            }
        }
    }

    fn read(&self, at: Ppa) -> Result<(), ChunkError> {
        let chunk = self.chunks.get(at.chunk as usize).ok_or(ChunkError::OutOfRange)?;
        let written = chunk.written.get(at.block as usize).ok_or(ChunkError::OutOfRange)?;
        // The block behind which enough is written; a closed chunk's cells are complete.
        let behind = at.block as usize + self.config.mw_cunits as usize;
        let complete = chunk.state() == ChunkState::Closed || chunk.written.get(behind).is_some_and(|w| *w);
        match chunk.state() {
            ChunkState::Offline => Err(ChunkError::Offline),
            _ if *written && complete => Ok(()),
            _ => Err(ChunkError::Unwritten),
        }
    }

    fn write(&mut self, list: &[Ppa]) -> Result<(), VectorError> {
        let unit = self.config.ws_min as usize;
        if list.is_empty() || list.len() % unit != 0 {
            return Err(VectorError { error: ChunkError::List, failed: marks(list.iter().map(|_| true)) });
        }
        for first in (0..list.len()).step_by(unit) {
            let of_unit = marks((0..list.len()).map(|i| i >= first && i < first + unit));
            self.write_unit(&list[first..first + unit]).map_err(|error| VectorError { error, failed: of_unit })?;
        }
        Ok(())
    }

    fn write_unit(&mut self, list: &[Ppa]) -> Result<(), ChunkError> {
        let open = |c: &&Blocks| c.state() == ChunkState::Open;
        let (all, chunk) = (self.chunks.iter().filter(open).count() as u32, list[0].chunk);
        let each = self.config.chunks as usize;
        let unit = chunk as usize / each;
        let of_unit = self.chunks.iter().skip(unit * each).take(each).filter(open).count() as u32;
        let held = self.chunks.get_mut(chunk as usize).ok_or(ChunkError::OutOfRange)?;
        if list[0].block >= self.config.blocks {
            return Err(ChunkError::OutOfRange);
        }
        let state = held.state();
        if state == ChunkState::Offline {
            return Err(ChunkError::Offline);
        }
        for at in list {
            if state == ChunkState::Closed || at.chunk != chunk || at.block != held.wp() {
                return Err(ChunkError::OutOfOrder);
            }
            held.written[at.block as usize] = true;
        }
        let ChunkConfig { max_open, max_open_unit, .. } = self.config;
        let full = max_open != 0 && all >= max_open || max_open_unit != 0 && of_unit >= max_open_unit;
        if state == ChunkState::Free && full { Err(ChunkError::TooManyOpen) } else { Ok(()) }
    }

    fn reset(&mut self, chunk: u32) -> Result<(), ChunkError> {
        let held = self.chunks.get_mut(chunk as usize).ok_or(ChunkError::OutOfRange)?;
        match held.state() {
            ChunkState::Offline => return Err(ChunkError::Offline),
            ChunkState::Free if !self.config.multiple_reset => return Err(ChunkError::InvalidReset),
            ChunkState::Open if !self.config.early_reset => return Err(ChunkError::InvalidReset),
            _ => {}
        }
        held.written.fill(false);
        held.closed = false;
        held.resets += 1;
        Ok(())
    }
}

fn marks(failed: impl Iterator<Item = bool>) -> u64 {
    failed.zip(0..).filter(|(failed, _)| *failed).fold(0, |bits, (_, i): (bool, u32)| bits | 1 << i.min(63))
}
