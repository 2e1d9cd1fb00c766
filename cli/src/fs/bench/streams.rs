//! One operation after the other: through a buffered stream, or straight between the drive and the caller's memory.

use super::super::path::shown;
use super::args::Cold;
use super::meter::{Measured, Meter};
use super::target::{Bench, BenchError, pattern, places};
use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Instant;
use weir_store_node::client::{File, FileReader, OpenOptions};
use weir_workload::Xoshiro256;

/// Writes in order, until all is published.
pub fn write(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let (client, plan) = (bench.client, &bench.plan);
    let bytes = pattern(plan.size);
    if plan.buffered {
        let mut writer = client.writer(&bench.path, &bench.options)?;
        let mut meter = Meter::begin(plan.operations);
        let mut since = meter.begun();
        for _ in 0..plan.operations {
            writer.write_all(&bytes).map_err(|e| bench.io(&e))?;
            since = meter.count(since, plan.size as u64);
        }
        writer.finish()?;
        return Ok(meter.end());
    }
    let file = client.create(&bench.path, &bench.options)?;
    let mut meter = Meter::begin(plan.operations);
    let mut since = meter.begun();
    for at in 0..plan.operations {
        file.write_at(at * plan.size as u64, &bytes)?;
        since = meter.count(since, plan.size as u64);
    }
    file.close()?;
    Ok(meter.end())
}

/// What a file is read through.
enum Source {
    Stream(FileReader),
    File(File),
}

impl Source {
    fn open(bench: &Bench<'_>) -> Result<(Source, u64), BenchError> {
        if bench.plan.buffered {
            let reader = bench.client.reader(&bench.path)?;
            let size = reader.size();
            return Ok((Source::Stream(reader), size));
        }
        let file = bench.client.open(&bench.path, OpenOptions::default())?;
        let size = file.size();
        Ok((Source::File(file), size))
    }

    /// Reads from there on: what was read, which is less than asked for at the end only.
    fn read(&mut self, bench: &Bench<'_>, at: u64, buffer: &mut [u8]) -> Result<usize, BenchError> {
        match self {
            Source::File(file) => Ok(file.read_at(at, buffer)?),
            Source::Stream(reader) => {
                reader.seek(SeekFrom::Start(at)).map_err(|e| bench.io(&e))?;
                let mut done = 0;
                while done < buffer.len() {
                    match reader.read(&mut buffer[done..]).map_err(|e| bench.io(&e))? {
                        0 => break,
                        n => done += n,
                    }
                }
                Ok(done)
            }
        }
    }
}

/// Reads from the beginning to the end, and again from the beginning.
pub fn read_sequential(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let plan = &bench.plan;
    let (mut source, size) = Source::open(bench)?;
    if size == 0 {
        return Err(bench.text("it is empty; write it first"));
    }
    let mut buffer = vec![0; plan.size];
    let mut meter = Meter::begin(plan.operations);
    let (mut since, mut at) = (meter.begun(), 0);
    for _ in 0..plan.operations {
        let n = source.read(bench, at, &mut buffer)?;
        black_box(&buffer);
        bench.all_there(at, n, size)?;
        since = meter.count(since, n as u64);
        at += n as u64;
        if at >= size {
            at = 0;
        }
    }
    Ok(meter.end())
}

/// Reads whole operations at random places.
pub fn read_random(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let plan = &bench.plan;
    let (mut source, size) = Source::open(bench)?;
    let places = places(size, plan.size, shown(&bench.path)).map_err(BenchError::Text)?;
    let mut rng = Xoshiro256::new(u64::from(std::process::id()));
    let mut buffer = vec![0; plan.size];
    let mut meter = Meter::begin(plan.operations);
    let mut since = meter.begun();
    for _ in 0..plan.operations {
        if let Some(cold) = plan.cold {
            source = Source::open(bench)?.0;
            if cold == Cold::Map {
                since = Instant::now();
            }
        }
        let at = rng.below(places) * plan.size as u64;
        let n = source.read(bench, at, &mut buffer)?;
        black_box(&buffer);
        bench.all_there(at, n, size)?;
        since = meter.count(since, n as u64);
    }
    Ok(meter.end())
}
