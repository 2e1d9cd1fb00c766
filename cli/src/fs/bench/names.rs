//! Operations of the metadata service.

use super::super::path::join;
use super::meter::{Measured, Meter};
use super::target::{Bench, BenchError, pattern};
use std::hint::black_box;
use std::time::Instant;
use weir_store::InodeKind;
use weir_store_node::client::CreateOptions;

/// Makes files in a new folder.
pub fn create_files(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let (client, operations) = (bench.client, bench.plan.operations);
    client.make_directory(&bench.path, false, 0o755)?;
    let options = CreateOptions { kind: InodeKind::File, exclusive: true, ..bench.options.clone() };
    let mut meter = Meter::begin(operations);
    for at in 0..operations {
        // Not counted; and however many there are to be, one takes memory.
        let name = join(&bench.path, at.to_string().as_bytes());
        let since = Instant::now();
        client.make(&name, &options)?;
        meter.count(since, 0);
    }
    Ok(meter.end())
}

/// Looks a file up.
pub fn get_file(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let mut meter = Meter::begin(bench.plan.operations);
    let mut since = meter.begun();
    for _ in 0..bench.plan.operations {
        let stat = bench.client.stat(&bench.path)?;
        if stat.inode.kind != InodeKind::File {
            return Err(bench.text("it is no file"));
        }
        since = meter.count(since, 0);
    }
    Ok(meter.end())
}

/// Writes a small file, and reads it as a whole again and again.
pub fn get_key(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let size = bench.plan.size;
    bench.client.put_small(&bench.path, &pattern(size), &bench.options)?;
    let mut meter = Meter::begin(bench.plan.operations);
    let mut since = meter.begun();
    for _ in 0..bench.plan.operations {
        let bytes = black_box(bench.client.get_small(&bench.path, size)?);
        bench.all_there(0, bytes.len(), size as u64)?;
        since = meter.count(since, bytes.len() as u64);
    }
    Ok(meter.end())
}

/// Lists a folder to its end.
pub fn enumerate(bench: &Bench<'_>) -> Result<Measured, BenchError> {
    let mut meter = Meter::begin(bench.plan.operations);
    let mut since = meter.begun();
    for _ in 0..bench.plan.operations {
        for entry in bench.client.list(&bench.path)? {
            black_box(entry?);
        }
        since = meter.count(since, 0);
    }
    Ok(meter.end())
}
