//! A trace as a source of requests: its times, its places and its sizes made to fit the simulation.

use super::{Reader, Trace, TraceError, TraceRecord};
use weir_controller::Op;
use weir_units::{Bytes, Nanos};
use weir_workload::JobRegion;

/// When requests leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayTiming {
    /// When the trace says, so many times as fast; latencies count from then.
    Original {
        /// 2: a trace of ten seconds takes five.
        speed: f64,
    },
    /// As soon as the job's depth permits.
    Fast,
}

/// How addresses are made to fit the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They must; one behind the end is a fault.
    Strict,
    /// Modulo the size of the region.
    Wrap,
    /// In proportion: the trace's span to the region's.
    Scale {
        /// Bytes that the trace's addresses span.
        span: u64,
    },
}

/// A request that is ready to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// When it is due.
    pub due: Nanos,
    /// What it does.
    pub op: Op,
    /// Force unit access.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// The most that one command covers; what is longer (a large deallocation) goes in pieces.
const PIECE: u64 = 1 << 30;

/// Replays a trace.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    timing: ReplayTiming,
    fit: Fit,
    region: JobRegion,
    block: u64,
    start: Nanos,
    next: Option<TraceRecord>,
    due: Nanos,
    error: Option<TraceError>,
}

impl Replay {
    /// Opens a trace and reads up to its first request. `region` and its length are multiples of `block`.
    ///
    /// # Errors
    /// As [`Reader::open`] and [`Reader::next_record`].
    pub fn open(
        trace: &Trace,
        (timing, fit): (ReplayTiming, Fit),
        region: JobRegion,
        block: u32,
        start: Nanos,
    ) -> Result<Replay, TraceError> {
        let (reader, block) = (Reader::open(trace)?, u64::from(block));
        let (next, due, error) = (None, start, None);
        let mut replay = Replay { reader, timing, fit, region, block, start, next, due, error };
        replay.advance();
        match replay.error.take() {
            Some(error) => Err(error),
            None => Ok(replay),
        }
    }

    /// When the next request is due; [`Nanos::NEVER`] at the end and after a fault.
    #[inline]
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// Whether requests leave by the trace's clock.
    pub fn is_timed(&self) -> bool {
        self.timing != ReplayTiming::Fast
    }

    /// What ended it, other than its end.
    pub fn error(&self) -> Option<&TraceError> {
        self.error.as_ref()
    }

    /// The request that is due.
    pub fn take(&mut self) -> Option<Draw> {
        let record = self.next.as_mut()?;
        let len = record.len.min(PIECE);
        let draw = Draw {
            due: self.due,
            op: record.op,
            fua: record.fua,
            offset: self.region.offset + record.offset,
            len: len as u32,
        };
        record.offset += len;
        record.len -= len;
        if record.len == 0 {
            self.advance();
        }
        Some(draw)
    }

    fn advance(&mut self) {
        let next = self.reader.next_record().and_then(|record| record.map(|r| self.placed(r)).transpose());
        (self.next, self.error) = match next {
            Ok(record) => (record, None),
            Err(error) => (None, Some(error)),
        };
        self.due = match (&self.next, self.timing) {
            (None, _) => Nanos::NEVER,
            (Some(_), ReplayTiming::Fast) => self.start,
            (Some(record), ReplayTiming::Original { speed: 1.0 }) => self.start.saturating_add(record.at),
            (Some(record), ReplayTiming::Original { speed }) => {
                self.start.saturating_add(Nanos((record.at.0 as f64 / speed) as u64))
            }
        };
    }

    /// The record in whole blocks inside the region (offsets count from the region's start).
    fn placed(&self, record: TraceRecord) -> Result<TraceRecord, TraceError> {
        if record.op == Op::Flush {
            return Ok(record);
        }
        let (size, block) = (self.region.len, self.block);
        let fail = |what| TraceError { file: self.reader.file().into(), line: self.reader.line(), what };
        let end = record.offset + record.len;
        let len = end.div_ceil(block) * block - record.offset / block * block;
        let from = match self.fit {
            Fit::Strict if end > size => {
                let what = format!("a request ends at byte {end}, behind the {} there are", Bytes(size));
                return Err(fail(what + "; write fit = \"wrap\" or fit = \"scale\", or give the drive more capacity"));
            }
            Fit::Strict => record.offset,
            Fit::Wrap => record.offset % size,
            Fit::Scale { span } => (u128::from(record.offset) * u128::from(size) / u128::from(span.max(1))) as u64,
        };
        if len > size {
            return Err(fail(format!("a request of {} does not fit into {}", Bytes(len), Bytes(size))));
        }
        Ok(TraceRecord { offset: (from / block * block).min(size - len), len, ..record })
    }
}
