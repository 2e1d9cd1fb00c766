//! Submission and completion queues: what they hold, how they come and go, and how their hosts ring and are told.

pub(crate) mod command;
pub(crate) mod interrupt;
pub(crate) mod queue;
mod registry;
mod rings;
pub(crate) mod shadow;
