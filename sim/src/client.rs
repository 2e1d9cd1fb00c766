//! Who asks what of the drive: a job's copies, each a queue and a source of requests.

use crate::trace::{Draw, Fit, Replay, ReplayTiming, Trace};
use std::sync::Arc;
use weir_controller::{Op, SqHandle};
use weir_units::{Class, Nanos};
use weir_workload::{Generator, Job, Pacer, Request, RequestKind};

/// A job, and what it has beside its description.
#[derive(Clone, Debug)]
pub struct SimulatedClient {
    /// What it does. The depth counts for traces too.
    pub job: Job,
    /// Its tenant's place in the drive's configuration.
    pub tenant: u16,
    /// The class its queues ask for, where the tenant lets them (`class_from = "peer"`).
    pub wish: Option<Class>,
    /// Requests from a file instead of drawn ones.
    pub trace: Option<(Trace, ReplayTiming, Fit)>,
    /// These requests instead, in the order of their times; latencies count from then.
    pub draws: Option<Arc<[Draw]>>,
}

impl SimulatedClient {
    /// A job that draws its requests.
    pub fn new(job: &Job, tenant: u16) -> SimulatedClient {
        SimulatedClient { job: job.clone(), tenant, wish: None, trace: None, draws: None }
    }
}

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum RequestSource {
    /// As many as the depth permits. The next one is drawn already, so that the drive can be told what to bring nearer.
    Closed(Generator, Request),
    /// At a rate.
    Open(Generator, Pacer),
    /// A file.
    Trace(Box<Replay>),
    /// A list, and how many of it have left.
    List(Arc<[Draw]>, usize),
}

impl RequestSource {
    /// One that asks as fast as it is answered.
    pub fn closed(mut generator: Generator) -> RequestSource {
        let first = generator.next_request();
        RequestSource::Closed(generator, first)
    }

    /// When the next request may leave; [`Nanos::NEVER`] when there is none.
    #[inline]
    pub fn due(&self) -> Nanos {
        match self {
            RequestSource::Closed(..) => Nanos(0),
            RequestSource::Open(_, pacer) => pacer.due(),
            RequestSource::Trace(replay) => replay.due(),
            RequestSource::List(draws, at) => draws.get(*at).map_or(Nanos::NEVER, |draw| draw.due),
        }
    }

    /// Latencies count from when a request was due rather than from when it left.
    #[inline]
    pub fn counts_from_due(&self) -> bool {
        match self {
            RequestSource::Closed(..) => false,
            RequestSource::Open(..) | RequestSource::List(..) => true,
            RequestSource::Trace(replay) => replay.is_timed(),
        }
    }

    /// Where the request after this one begins, in bytes, where that is known.
    #[inline]
    pub fn ahead(&self) -> Option<u64> {
        match self {
            RequestSource::Closed(_, next) => Some(next.offset),
            _ => None,
        }
    }

    #[inline]
    pub fn take(&mut self) -> Option<Draw> {
        let (drawn, due) = match self {
            RequestSource::Closed(generator, next) => (std::mem::replace(next, generator.next_request()), Nanos(0)),
            RequestSource::Open(generator, pacer) => (generator.next_request(), pacer.due()),
            RequestSource::Trace(replay) => return replay.take(),
            RequestSource::List(draws, at) => {
                let draw = draws.get(*at).copied();
                *at += 1;
                return draw;
            }
        };
        let op = match drawn.kind {
            RequestKind::Read => Op::Read,
            RequestKind::Write => Op::Write,
            RequestKind::Trim => Op::Deallocate,
        };
        if let RequestSource::Open(_, pacer) = self {
            pacer.advance(drawn.len);
        }
        Some(Draw { due, op, fua: false, offset: drawn.offset, len: drawn.len })
    }
}

/// One copy of a job: a queue and who fills it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its job's place.
    pub job: usize,
    pub queue: SqHandle,
    pub source: RequestSource,
    pub outstanding: u32,
    pub depth: u32,
    /// Its first request.
    pub start: Nanos,
    /// No request leaves from then on.
    pub end: Nanos,
    /// It is among those who wait for the time.
    pub armed: bool,
}
