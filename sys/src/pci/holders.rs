//! What uses a disk: mounts, swap, and devices on top of it.

use std::path::Path;

/// The first thing that uses one of these disks or a partition of it.
pub(super) fn used_by(sys: &Path, proc: &Path, disks: &[String]) -> Option<String> {
    let mounts = std::fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    let swaps = std::fs::read_to_string(proc.join("swaps")).unwrap_or_default();
    disks.iter().flat_map(|disk| with_partitions(sys, disk)).find_map(|device| {
        let folder = sys.join("class/block").join(&device);
        let number = std::fs::read_to_string(folder.join("dev")).unwrap_or_default();
        let node = format!("/dev/{device}");
        mounted_at(&mounts, number.trim(), &node)
            .map(|at| format!("{node} is mounted at {at}"))
            .or_else(|| is_swap(&swaps, &node).then(|| format!("{node} is swap")))
            .or_else(|| holder(&folder).map(|holder| format!("/dev/{holder} is on top of {node}")))
    })
}

/// A disk and its partitions, which are folders in its own that have a number.
fn with_partitions(sys: &Path, disk: &str) -> Vec<String> {
    let entries = std::fs::read_dir(sys.join("class/block").join(disk)).into_iter().flatten().flatten();
    let parts = entries.filter(|e| e.path().join("partition").exists());
    let mut all: Vec<String> = parts.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all.insert(0, disk.to_string());
    all
}

/// proc_pid_mountinfo(5): `id parent major:minor root mount-point options … - type source …`. Some file systems (btrfs) have a number of their own.
fn mounted_at(mounts: &str, number: &str, node: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let [_, _, device, _, at, ..] = before.split(' ').collect::<Vec<_>>()[..] else { return None };
        let source = after.split(' ').nth(1)?;
        (source == node || !number.is_empty() && device == number).then(|| at.replace("\\040", " "))
    })
}

fn is_swap(swaps: &str, node: &str) -> bool {
    swaps.lines().skip(1).any(|line| line.split_whitespace().next() == Some(node))
}

fn holder(folder: &Path) -> Option<String> {
    let entry = std::fs::read_dir(folder.join("holders")).ok()?.flatten().next()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}
