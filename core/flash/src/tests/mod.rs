//! What the array promises: the peers' numbers to the nanosecond, buses without overlap, promises kept.

extern crate std;

mod cache;
mod calendar;
mod credits;
mod drive;
mod geometry;
mod hybrid;
mod in_place;
mod levelling;
mod peers;
mod relocate;
mod scheduled;
mod separation;
mod steady;
mod suspend;
mod variability;
