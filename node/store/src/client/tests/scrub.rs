//! Copies with other bytes than were written are found and written anew, while others read and write.

use super::*;
use crate::client::{CopyFault, FileScrub, ScrubDrives};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const UNIT: usize = 64 << 10;

/// A file with copies on drives of a service.
struct World<S> {
    service: S,
    client: Client,
    content: Vec<u8>,
    drives: Vec<PathBuf>,
}

impl<S: TestService> World<S> {
    fn new(service: S, copies: u8) -> Self {
        let client = client(&service);
        let options = CreateOptions { copies, block: Some(2 * UNIT as u32), ..CreateOptions::default() };
        let file = client.create("/file", &options).unwrap();
        let mut random = SplitMix64::new(7);
        let content: Vec<u8> = (0..5 * UNIT + 100).map(|_| random.below(256) as u8).collect();
        file.write_at(0, &content).unwrap();
        file.close().unwrap();
        let parts = client.parts("/file", 0, u64::MAX).unwrap();
        let path = |target: &String| target.trim_start_matches("file:").split('?').next().unwrap().into();
        let drives: Vec<PathBuf> = parts[0].targets.iter().map(path).collect();
        assert_eq!(drives.len(), usize::from(copies), "{parts:?}");
        Self { service, client, content, drives }
    }

    fn scrub(&self, repairs: bool) -> FileScrub {
        self.client.scrub("/file", repairs, &mut ScrubDrives::default(), &mut |_| {}).unwrap()
    }

    /// Where the drive has a unit of the file, if it has it as it was written.
    fn place(&self, drive: &Path, unit: usize) -> Option<usize> {
        let end = self.content.len().min((unit + 1) * UNIT);
        let wanted = &self.content[unit * UNIT..end];
        let bytes = std::fs::read(drive).unwrap();
        bytes
            .chunks(512)
            .position(|sector| wanted.starts_with(&sector[..wanted.len().min(512)]))
            .and_then(|at| bytes[at * 512..].starts_with(wanted).then_some(at * 512))
    }

    /// One bit of a copy's unit is another one from now on.
    fn damage(&self, drive: usize, unit: usize) {
        let at = self.place(&self.drives[drive], unit).unwrap() as u64 + 77;
        let mut file = std::fs::File::options().read(true).write(true).open(&self.drives[drive]).unwrap();
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut byte)).unwrap();
        file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&[byte[0] ^ 1])).unwrap();
    }

    fn read_back(&self) {
        let file = self.client.open("/file", OpenOptions::default()).unwrap();
        compare(&file, &self.content, "read back");
    }
}

fn told(scrub: &FileScrub) -> Vec<(u64, u64, bool)> {
    let one = |copy: &crate::client::CopyFinding| (copy.offset, copy.length, copy.fault == CopyFault::Bytes);
    scrub.findings.iter().map(one).collect()
}

fn two_copies(name: &str) -> World<ModelService> {
    World::new(ModelService::new(name, LEASE), 2)
}

#[test]
fn a_bad_copy_is_found_and_written_anew() {
    let world = two_copies("scrub-repairs");
    let clean = world.scrub(false);
    // Three blocks of two units, the last one cut to whole 4 KiB.
    let bytes = 2 * (5 * UNIT as u64 + 4096);
    assert_eq!(clean, FileScrub { blocks: 3, bytes, ..FileScrub::default() });
    world.damage(1, 3);
    world.damage(0, 5);
    world.damage(1, 2);
    let found = world.scrub(false);
    let unit = UNIT as u64;
    assert_eq!(told(&found), [(2 * unit, 2 * unit, true), (5 * unit, 4096, true)], "neighbours are one");
    assert!(
        found
            .findings
            .iter()
            .zip([1, 0])
            .all(|(copy, drive)| { copy.target.contains(&world.drives[drive].display().to_string()) })
    );
    assert_eq!(world.scrub(false), found, "a look changes nothing");
    world.read_back();
    let repaired = world.scrub(true);
    assert_eq!((told(&repaired), repaired.repaired), (Vec::new(), found.findings));
    assert_eq!(world.scrub(false).findings, []);
    world.read_back();
    for (drive, unit) in [(0, 5), (1, 2), (1, 3)] {
        assert!(world.place(&world.drives[drive], unit).is_some(), "unit {unit} of drive {drive} is right again");
    }
}

#[test]
fn what_has_no_good_copy_is_told_and_left() {
    let world = two_copies("scrub-leaves");
    world.damage(0, 1);
    world.damage(1, 1);
    world.damage(1, 4);
    let unit = UNIT as u64;
    let left = world.scrub(true);
    assert_eq!(told(&left), [(unit, unit, true), (unit, unit, true)]);
    assert_eq!(left.repaired.iter().map(|copy| copy.offset).collect::<Vec<_>>(), [4 * unit]);
    let file = world.client.open("/file", OpenOptions::default()).unwrap();
    let mut bytes = vec![0; UNIT];
    assert!(file.read_at(unit, &mut bytes).is_err(), "it is not made up");
    assert_eq!(file.read_at(4 * unit, &mut bytes), Ok(UNIT));
    assert_eq!(bytes, world.content[4 * UNIT..5 * UNIT]);
}

#[test]
fn a_drive_that_is_away_is_told() {
    let world = World::new(RealService::new(), 1);
    let away = world.drives[0].with_extension("away");
    std::fs::rename(&world.drives[0], &away).unwrap();
    let found = world.scrub(true);
    assert!(found.repaired.is_empty() && found.findings.len() == 1, "{found:?}");
    assert!(matches!(&found.findings[0].fault, CopyFault::Unreadable(why) if !why.is_empty()), "{found:?}");
    assert_eq!(found.findings[0].length, 5 * UNIT as u64 + 4096);
    std::fs::rename(&away, &world.drives[0]).unwrap();
    assert_eq!(world.scrub(false).findings, []);
}

#[test]
fn a_writer_is_not_disturbed() {
    let world = World::new(RealService::new(), 1);
    world.damage(0, 0);
    let writer = client_with(&world.service, "writer", LEASE);
    let open = writer.open("/file", OpenOptions::read_write()).unwrap();
    let refused = world.client.scrub("/file", true, &mut ScrubDrives::default(), &mut |_| {}).unwrap_err();
    assert_eq!(refused.store_error(), Some(StoreError::Busy), "{refused}");
    open.write_at(0, &world.content[..UNIT]).unwrap();
    open.close().unwrap();
    assert_eq!(world.scrub(true), FileScrub { repaired: Vec::new(), ..world.scrub(false) });
    world.read_back();
}

/// Another client writes over the file, cuts it and lets it grow.
#[test]
fn what_others_write_meanwhile_is_no_damage() {
    let world = World::new(RealService::new(), 1);
    let ends = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let writer = client_with(&world.service, "writer", LEASE);
            let mut random = SplitMix64::new(3);
            let mut rounds = 0;
            while !ends.load(Ordering::Acquire) {
                let file = writer.open("/file", OpenOptions::read_write()).unwrap();
                for _ in 0..8 {
                    let at = u64::from(random.below(5 * UNIT as u32));
                    file.write_at(at, &bytes(&mut random, 30_000)).unwrap();
                    if random.below(4) == 0 {
                        file.flush().unwrap();
                    }
                }
                file.truncate(u64::from(random.below(5 * UNIT as u32))).unwrap();
                file.close().unwrap();
                rounds += 1;
            }
            rounds
        });
        let (begun, mut sum) = (Instant::now(), FileScrub::default());
        while begun.elapsed() < Duration::from_secs(3) {
            let found = world.scrub(false);
            assert_eq!(found.findings, [], "{found:?}");
            (sum.blocks, sum.unsettled) = (sum.blocks + found.blocks, sum.unsettled + found.unsettled);
        }
        ends.store(true, Ordering::Release);
        (sum, writes.join().unwrap())
    });
    assert!(looks.0.blocks > looks.0.unsettled && looks.1 > 0, "{looks:?}");
}
