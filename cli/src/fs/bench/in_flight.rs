//! Several operations in flight. Each is waited for in the order in which they began, and a new one begins as one ends.

use super::meter::{Measured, Meter};
use super::target::{Bench, BenchError, pattern};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;
use weir_store::InodeKind;
use weir_store_node::client::{ClientError, Completed, File, OpenOptions, Pending};

/// An operation: which of the files, where in it, and how many bytes.
type Place = (usize, u64, usize);

/// Keeps `batch` operations in flight until all of `places` are made.
fn keep(
    meter: &mut Meter,
    mut buffers: Vec<Vec<u8>>,
    mut places: impl Iterator<Item = Place>,
    begin: impl Fn(Place, Vec<u8>) -> Result<Pending, ClientError>,
    check: impl Fn(Place, usize) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut flight: VecDeque<(Instant, Place, Pending)> = VecDeque::with_capacity(buffers.len());
    let mut now = meter.begun();
    loop {
        while let Some(mut buffer) = buffers.pop() {
            let Some(place) = places.next() else { break };
            buffer.resize(place.2, 0);
            flight.push_back((now, place, begin(place, buffer)?));
        }
        let Some((since, place, pending)) = flight.pop_front() else { return Ok(()) };
        let Completed { buffer, result } = pending.wait();
        let n = result?;
        black_box(&buffer);
        check(place, n)?;
        now = meter.count(since, n as u64);
        buffers.push(buffer);
    }
}

/// Writes in order, until all is published.
pub fn write(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let plan = &bench.plan;
    let file = bench.client.create(&bench.path, &bench.options)?;
    let buffers = vec![pattern(plan.size); plan.batch];
    let places = (0..plan.operations).map(|at| (0, at * plan.size as u64, plan.size));
    let check = |(_, at, len): Place, n: usize| match n == len {
        true => Ok(()),
        false => Err(bench.text(&format!("{n} of {len} bytes were written at byte {at}"))),
    };
    let mut meter = Meter::begin(plan.operations);
    keep(&mut meter, buffers, places, |(_, at, _), buffer| file.begin_write(at, buffer), check)?;
    file.close()?;
    Ok(meter.end())
}

/// Reads from the beginning to the end, and again from the beginning.
pub fn read(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let files = vec![bench.client.open(&bench.path, OpenOptions::default())?];
    let per_round = operations(&files, bench.plan.size);
    read_all(bench, &files, per_round, bench.plan.operations)
}

/// Reads all files that are in a multifile or folder, as often as was asked for.
pub fn read_multi(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let mut files = Vec::new();
    for entry in bench.client.list(&bench.path)? {
        let entry = entry?;
        if entry.record.kind == InodeKind::File {
            let path = super::super::path::join(&bench.path, entry.name.as_bytes());
            files.push(bench.client.open(path, OpenOptions::default())?);
        }
    }
    let per_round = operations(&files, bench.plan.size);
    let all = per_round.checked_mul(bench.plan.operations);
    let all = all.ok_or_else(|| bench.text("more operations than can be counted; give a smaller -k"))?;
    read_all(bench, &files, per_round, all)
}

/// Operations that it takes to read all of the files.
fn operations(files: &[File], size: usize) -> u64 {
    files.iter().map(|file| file.size().div_ceil(size as u64)).sum()
}

fn read_all(bench: &Bench<'_>, files: &[File], per_round: u64, all: u64) -> Result<Measured, BenchError> {
    let plan = &bench.plan;
    if per_round == 0 {
        return Err(bench.text("there is nothing to read; write it first"));
    }
    let sizes: Vec<u64> = files.iter().map(File::size).collect();
    let round = || {
        sizes.iter().enumerate().flat_map(|(file, size)| {
            let operations = 0..size.div_ceil(plan.size as u64);
            operations.map(move |number| {
                let at = number * plan.size as u64;
                (file, at, (plan.size as u64).min(size - at) as usize)
            })
        })
    };
    let places = std::iter::repeat_with(round).flatten().take(usize::try_from(all).unwrap_or(usize::MAX));
    let check = |(file, at, _): Place, n: usize| bench.all_there(at, n, sizes[file]);
    let buffers = vec![vec![0; plan.size]; plan.batch];
    let mut meter = Meter::begin(all);
    keep(&mut meter, buffers, places, |(file, at, _), buffer| files[file].begin_read(at, buffer), check)?;
    Ok(meter.end())
}
