//! Clients against a service in memory, which is killed, and drives in files; every byte against an array.

mod model_service;
mod real_service;
mod recorded;
mod scrub;
mod several;

use super::{Client, ClientErrorKind, ClientOptions, CreateOptions, File, OpenOptions, Pending};
use crate::tier::tests::model_target::ModelTarget;
use model_service::{INLINE_MAX, ModelService};
use real_service::RealService;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_store::{InodeKind, StoreError};
use weir_units::rng::SplitMix64;

const LEASE: Duration = Duration::from_secs(20);

/// A service that a test can kill.
trait TestService {
    fn address(&self) -> String;
    /// It is killed, and is there again at once.
    fn kill(&self);
}

fn client_with(service: &impl TestService, name: &str, deadline: Duration) -> Client {
    let options = ClientOptions { name: name.into(), allow_files: true, deadline, ..ClientOptions::default() };
    Client::connect(&service.address(), options).unwrap()
}

fn client(service: &impl TestService) -> Client {
    client_with(service, "test", Duration::from_secs(20))
}

/// Bytes that no two places share.
fn bytes(random: &mut SplitMix64, len: usize) -> Vec<u8> {
    let seed = random.below(250) as u8;
    (0..len).map(|i| seed.wrapping_add((i / 7) as u8) ^ i as u8).collect()
}

fn compare(file: &File, model: &[u8], what: &str) {
    assert_eq!(file.size(), model.len() as u64, "{what}: size");
    let mut read = vec![0xee; model.len() + 10];
    assert_eq!(file.read_at(0, &mut read).unwrap(), model.len(), "{what}");
    let wrong = model.iter().zip(&read).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{what}: first wrong byte of {}", model.len());
}

/// Random operations at any byte offset and length, with kills of the service and lost answers, against an array.
fn model_run(seed: u64, kills: bool) {
    model_run_over(&ModelService::new(&format!("model-{seed}-{kills}"), LEASE), seed, kills);
}

fn model_run_over(service: &impl TestService, seed: u64, kills: bool) {
    let client = client(service);
    let mut random = SplitMix64::new(seed);
    let copies = 1 + (seed % 2) as u8;
    let options = CreateOptions { copies, block: Some(64 << 10), ..CreateOptions::default() };
    let mut file = client.create("/file", &options).unwrap();
    // What this client sees, and what others do.
    let (mut model, mut published) = (Vec::new(), Vec::new());
    for step in 0..120 {
        let most = if random.below(3) == 0 { 300_000 } else { 9_000 };
        let offset = u64::from(random.below(if step < 20 { 3_000 } else { 400_000 }));
        let len = random.below(most) as usize;
        match random.below(20) {
            0..7 => {
                let data = bytes(&mut random, len);
                file.write_at(offset, &data).unwrap();
                let end = offset as usize + len;
                if len > 0 {
                    model.resize(model.len().max(end), 0);
                }
                model.get_mut(offset as usize..end).unwrap_or_default().copy_from_slice(&data);
            }
            7..12 => {
                let mut read = vec![0xee; len];
                let n = file.read_at(offset, &mut read).unwrap();
                let expected = model.get(offset as usize..).unwrap_or_default();
                let expected = &expected[..expected.len().min(len)];
                assert_eq!((n, &read[..n]), (expected.len(), expected), "seed {seed} step {step}");
            }
            12 => {
                let data = bytes(&mut random, len);
                assert_eq!(file.append(&data).unwrap(), model.len() as u64);
                model.extend(data);
            }
            13..15 => {
                file.flush().unwrap();
                published = model.clone();
            }
            15 => {
                file.truncate(offset).unwrap();
                model.resize(offset as usize, 0);
                published = model.clone();
            }
            16 => {
                file.close().unwrap();
                published = model.clone();
                file = client.open("/file", OpenOptions::read_write()).unwrap();
                compare(&file, &model, &format!("seed {seed} step {step} opened again"));
            }
            17 => {
                let reader = self::client(service);
                let seen = reader.open("/file", OpenOptions::default()).unwrap();
                assert_eq!(
                    seen.size(),
                    published.len() as u64,
                    "seed {seed} step {step}: others see what was published"
                );
            }
            18 if kills => service.kill(),
            _ => {
                let mut pending = Vec::new();
                for part in 0..4 {
                    let data = bytes(&mut random, 5_000);
                    let at = offset + part * 5_000;
                    model.resize(model.len().max(at as usize + 5_000), 0);
                    model[at as usize..at as usize + 5_000].copy_from_slice(&data);
                    pending.push(file.begin_write(at, data).unwrap());
                }
                for pending in pending {
                    assert_eq!(pending.wait().result.unwrap(), 5_000);
                }
            }
        }
    }
    compare(&file, &model, &format!("seed {seed} at the end"));
    file.close().unwrap();
    let other = self::client(service);
    compare(&other.open("/file", OpenOptions::default()).unwrap(), &model, &format!("seed {seed} by another client"));
}

#[test]
fn any_bytes_are_as_in_an_array() {
    (0..6).for_each(|seed| model_run(seed, false));
}

#[test]
fn a_killed_service_loses_nothing() {
    (10..16).for_each(|seed| model_run(seed, true));
}

#[test]
fn the_real_service_keeps_any_bytes_and_loses_nothing_when_it_is_stopped() {
    [(30, false), (32, true), (34, true)].into_iter().for_each(|(seed, kills)| {
        model_run_over(&RealService::new(), seed, kills);
    });
}

#[test]
fn the_real_service_has_one_writer_names_and_small_files() {
    let service = RealService::new();
    let (one, two) = (client(&service), client(&service));
    one.make_directory("/a/b", true, 0o755).unwrap();
    one.put_small("/a/b/k", &[7; 1024], &CreateOptions::default()).unwrap();
    assert_eq!(two.get_small("/a/b/k", 4096).unwrap(), [7; 1024]);
    let file = one.create("/a/f", &CreateOptions::default()).unwrap();
    assert_eq!(two.open("/a/f", OpenOptions::read_write()).unwrap_err().store_error(), Some(StoreError::Busy));
    let data = vec![9; 3_000_000];
    file.write_at(0, &data).unwrap();
    file.close().unwrap();
    compare(&two.open("/a/f", OpenOptions::read_write()).unwrap(), &data, "by the next writer");
    two.rename("/a/f", "/a/b/g", false).unwrap();
    let names: Vec<String> = one.list("/a/b").unwrap().map(|entry| entry.unwrap().name.to_string()).collect();
    assert_eq!(names, ["g", "k"]);
    one.remove("/a", true).unwrap();
    assert!(two.stat("/a/b/g").unwrap_err().is_not_found());
}

#[test]
fn drives_over_nvme_tcp_may_end_connections() {
    for (seed, hang_up_every) in [(20, 0), (21, 40), (22, 15)] {
        let drives = [ModelTarget::new(64 << 20, 512), ModelTarget::new(64 << 20, 4096)];
        drives.iter().for_each(|drive| drive.hang_up_every(hang_up_every));
        let urls = drives.iter().map(ModelTarget::url).collect();
        model_run_over(&ModelService::over(urls, Vec::new(), LEASE), seed, true);
    }
}

#[test]
fn changes_are_carried_out_once_over_lost_answers() {
    let service = ModelService::new("once", LEASE);
    let client = client(&service);
    service.hang_up_every.store(3, Ordering::Relaxed);
    for number in 0..20 {
        let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
        let file = client.create(format!("/{number}"), &options).unwrap();
        file.write_at(0, b"once").unwrap();
        file.close().unwrap();
        client.make_directory(format!("/d{number}"), false, 0o755).unwrap();
        client.rename(format!("/{number}"), format!("/d{number}/x"), false).unwrap();
    }
    service.hang_up_every.store(0, Ordering::Relaxed);
    assert_eq!(client.list("/").unwrap().map(Result::unwrap).count(), 20);
    assert_eq!(client.get_small("/d7/x", 10).unwrap(), b"once");
}

#[test]
fn a_second_writer_is_refused_and_readers_see_what_was_published() {
    let service = ModelService::new("two", LEASE);
    let (one, two) = (client(&service), client(&service));
    let file = one.create("/a", &CreateOptions::default()).unwrap();
    let error = two.open("/a", OpenOptions::read_write()).unwrap_err();
    assert_eq!(error.store_error(), Some(StoreError::Busy));
    assert!(error.to_string().starts_with("/a: "), "{error}");
    let first = vec![1; 100_000];
    file.write_at(0, &first).unwrap();
    file.flush().unwrap();
    let seen = two.open("/a", OpenOptions::default()).unwrap();
    compare(&seen, &first, "published");
    // Over published bytes: the reader meets a block that is being written over, then the new bytes.
    file.write_at(0, &[2; 70_000]).unwrap();
    file.flush().unwrap();
    let mut read = vec![0; 100_000];
    seen.read_at(0, &mut read).unwrap();
    assert!(read[..70_000].iter().all(|b| *b == 2) && read[70_000..].iter().all(|b| *b == 1));
    file.close().unwrap();
    let mine = two.open("/a", OpenOptions::read_write()).unwrap();
    assert_eq!(one.open("/a", OpenOptions::read_write()).unwrap_err().store_error(), Some(StoreError::Busy));
    drop(mine);
    let begun = Instant::now();
    while one.open("/a", OpenOptions::read_write()).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(5), "a file that was dropped is closed");
    }
}

#[test]
fn streams_are_read_ahead_and_written_behind() {
    let service = ModelService::new("streams", LEASE);
    let client = client(&service);
    let mut random = SplitMix64::new(3);
    // More than a session may have unpublished.
    let data = bytes(&mut random, (40 << 20) + 12_345);
    let mut writer =
        client.writer("/big", &CreateOptions { block: Some(1 << 20), ..CreateOptions::default() }).unwrap();
    for part in data.chunks(777_777) {
        writer.write_all(part).unwrap();
    }
    writer.finish().unwrap();
    let mut reader = client.reader("/big").unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == data, "all of it");
    reader.seek(SeekFrom::Start(1_234_567)).unwrap();
    let mut part = vec![0; 3_000_000];
    reader.read_exact(&mut part).unwrap();
    assert!(part == data[1_234_567..4_234_567], "from the middle on");
    let file = client.open("/big", OpenOptions::default()).unwrap();
    file.prefetch(0, u64::MAX).unwrap();
    let before = service.requests.load(Ordering::Relaxed);
    file.read_at(39 << 20, &mut part[..4096]).unwrap();
    assert_eq!(service.requests.load(Ordering::Relaxed), before, "the map is there already");
}

#[test]
fn a_stream_that_could_not_be_written_ends_with_the_first_error() {
    let drives = [ModelTarget::new(64 << 20, 512), ModelTarget::new(64 << 20, 4096)];
    let service = ModelService::over(drives.iter().map(ModelTarget::url).collect(), Vec::new(), LEASE);
    let client = client_with(&service, "stream", Duration::from_millis(300));
    let mut writer = client.writer("/a", &CreateOptions::default()).unwrap();
    writer.write_all(&[1; 600_000]).unwrap();
    drives.iter().for_each(|drive| drive.get_stuck(true));
    // Slices are written behind: one of the next calls hears of it, and the last one in any case.
    let mut heard = 0;
    for _ in 0..20 {
        heard += usize::from(writer.write_all(&[2; 600_000]).is_err());
    }
    drives.iter().for_each(|drive| drive.get_stuck(false));
    let error = writer.finish().unwrap_err();
    assert!(heard > 0 && *error.kind() == ClientErrorKind::Deadline, "{heard} {error}");
}

#[test]
fn multifiles_are_read_as_one() {
    let service = ModelService::new("multi", LEASE);
    let client = client(&service);
    client.make("/m", &CreateOptions { kind: InodeKind::Multifile, ..CreateOptions::default() }).unwrap();
    let mut all = Vec::new();
    for (name, len) in [("a", 10), ("b", 0), ("c", 700_000), ("d", 1_000)] {
        let part = vec![name.as_bytes()[0]; len];
        client.put_small(format!("/m/{name}"), &part, &CreateOptions::default()).unwrap();
        all.extend(part);
    }
    let mut reader = client.reader("/m").unwrap();
    assert_eq!(reader.size(), all.len() as u64);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == all);
}

#[test]
fn small_files_take_few_requests() {
    let service = ModelService::new("small", LEASE);
    let client = client(&service);
    let count = || service.requests.load(Ordering::Relaxed);
    let before = count();
    client.put_small("/k", &[7; 1024], &CreateOptions::default()).unwrap();
    assert_eq!(count() - before, 2, "made with its bytes, and closed");
    let before = count();
    assert_eq!(client.get_small("/k", 4096).unwrap(), [7; 1024]);
    assert_eq!(count() - before, 1);
    client.put_small("/k", &[8; INLINE_MAX as usize + 1], &CreateOptions::default()).unwrap();
    assert_eq!(client.get_small("/k", 4096).unwrap(), [8; INLINE_MAX as usize + 1], "it has moved to blocks");
    let exclusive = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let error = client.put_small("/k", &[9], &exclusive).unwrap_err();
    assert_eq!(error.store_error(), Some(StoreError::Exists));
    assert!(client.get_small("/k", 100).is_err(), "longer than was asked for");
}

#[test]
fn flushes_of_a_small_file_are_in_order() {
    let service = ModelService::new("order", LEASE);
    let client = client(&service);
    let file = client.create("/a", &CreateOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..50u8 {
                    file.write_at(thread * 10, &[round + 1; 10]).unwrap();
                    file.flush().unwrap();
                }
            });
        }
    });
    assert_eq!(client.get_small("/a", 100).unwrap(), [50; 40], "the last flush of each has it");
    // Nothing written is no byte more.
    assert_eq!(file.begin_write(1_000, Vec::new()).unwrap().wait().result.unwrap(), 0);
    assert_eq!(file.size(), 40);
    file.close().unwrap();
}

#[test]
fn names_as_users_have_them() {
    let service = ModelService::new("names", LEASE);
    let client = client(&service);
    client.make_directory("/a/b/c", true, 0o755).unwrap();
    client.make_directory("/a/b/c", true, 0o755).unwrap();
    assert_eq!(client.make_directory("/a", false, 0o755).unwrap_err().store_error(), Some(StoreError::Exists));
    let error = client.stat("/a/x").unwrap_err();
    assert_eq!(error.to_string(), "/a/x: no such file or directory");
    assert!(matches!(client.stat("a").unwrap_err().kind(), ClientErrorKind::Usage(_)));
    for number in 0..600 {
        client.make(format!("/a/b/{number:03}"), &CreateOptions::default()).unwrap();
    }
    let names: Vec<String> = client.list("/a/b").unwrap().map(|e| e.unwrap().name.to_string()).collect();
    assert_eq!((names.len(), &names[0][..], &names[600][..]), (601, "000", "c"));
    client.symlink("/a/b", "/a/l").unwrap();
    assert_eq!(client.read_link("/a/l").unwrap(), b"/a/b");
    client.set_extended("/a", "user.x", Some(b"1".to_vec())).unwrap();
    assert_eq!(client.extended("/a", "user.x").unwrap(), b"1");
    assert_eq!(client.extended("/a", "user.y").unwrap_err().store_error(), Some(StoreError::NoAttribute));
    assert_eq!(client.remove("/a", false).unwrap_err().store_error(), Some(StoreError::NotEmpty));
    client.remove("/a", true).unwrap();
    assert!(client.stat("/a").unwrap_err().is_not_found());
    let unknown = CreateOptions { classes: vec!["tape".into()], ..CreateOptions::default() };
    let error = client.make("/t", &unknown).unwrap_err().to_string();
    assert_eq!(error, "/t: the store has no class \"tape\"; it has dram, flash");
}

#[test]
fn many_threads_share_a_client() {
    let service = ModelService::new("threads", LEASE);
    let client = client(&service);
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let client = client.clone();
            scope.spawn(move || {
                let file = client.create(format!("/{thread}"), &CreateOptions::default()).unwrap();
                for round in 0..30u64 {
                    file.write_at(round * 3_000, &[thread + 1; 3_000]).unwrap();
                    let mut read = vec![0; 3_000];
                    file.read_at(round * 3_000, &mut read).unwrap();
                    assert!(read.iter().all(|b| *b == thread + 1), "thread {thread} round {round}");
                }
                file.close().unwrap();
            });
        }
    });
    let model = vec![3; 90_000];
    compare(&client.open("/2", OpenOptions::default()).unwrap(), &model, "by another thread");
}

#[test]
fn a_session_that_cannot_be_renewed_is_over() {
    let service = ModelService::new("lease", Duration::from_millis(600));
    let client = client(&service);
    let file = client.create("/a", &CreateOptions::default()).unwrap();
    file.write_at(0, &[1; 10_000]).unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    file.write_at(0, &[2; 10_000]).unwrap();
    file.flush().unwrap();
    service.is_deaf.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(1_500));
    let mut read = [0; 10];
    let error = file.read_at(0, &mut read).unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::SessionOver, "{error}");
    let error = client.stat("/a").unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::SessionOver, "{error}");
}

#[test]
fn older_maps_are_let_go_of_and_fetched_again() {
    let service = ModelService::new("epoch", Duration::from_millis(800));
    let client = client(&service);
    let file = client.create("/a", &CreateOptions::default()).unwrap();
    let data = vec![5; 200_000];
    file.write_at(0, &data).unwrap();
    file.flush().unwrap();
    compare(&file, &data, "before");
    service.next_epoch();
    std::thread::sleep(Duration::from_millis(500));
    compare(&file, &data, "after");
}

#[test]
fn a_service_that_is_not_there_is_told_in_time() {
    let options = ClientOptions { deadline: Duration::from_millis(300), ..ClientOptions::default() };
    let error = Client::connect("127.0.0.1:1", options.clone()).unwrap_err();
    assert!(error.to_string().contains("the metadata service at 127.0.0.1:1 cannot be reached"), "{error}");
    for bad in ["", "nowhere", "host:", ":1", "host:99999"] {
        let error = Client::connect(bad, options.clone()).unwrap_err();
        assert!(matches!(error.kind(), ClientErrorKind::Usage(_)), "{bad}: {error}");
    }
    assert!(Client::connect("unix:/nowhere/at/all", options).is_err());
}

#[test]
fn who_waits_for_any_operation_is_told_of_each() {
    const BYTES: usize = 128 << 10;
    let service = ModelService::new("any", LEASE);
    let client = client(&service);
    let options = CreateOptions { block: Some(64 << 10), ..CreateOptions::default() };
    let file = client.create("/file", &options).unwrap();
    file.write_at(0, &vec![7; 8 * BYTES]).unwrap();
    assert!(!Pending::wait_any([], LEASE), "nothing is under way");
    // Another thread drives the client as well.
    let other = std::thread::spawn(move || (0..100).all(|_| client.stat("/file").is_ok()));
    for _ in 0..20 {
        let begin = |n: usize| file.begin_read((n * BYTES) as u64, vec![0; BYTES]).unwrap();
        let mut pending: Vec<Pending> = (0..8).map(begin).collect();
        while !pending.is_empty() {
            assert!(Pending::wait_any(&pending, LEASE));
            let (over, rest): (Vec<_>, Vec<_>) = pending.into_iter().partition(Pending::is_done);
            assert!(!over.is_empty(), "one of them is over");
            for completed in over.into_iter().map(Pending::wait) {
                assert_eq!(completed.result.unwrap(), BYTES);
                assert!(completed.buffer.iter().all(|byte| *byte == 7));
            }
            pending = rest;
        }
    }
    assert!(other.join().unwrap());
}

#[test]
fn operations_of_several_clients_are_waited_for_together() {
    const BLOCK: usize = 64 << 10;
    let services = ["several-a", "several-b"].map(|name| ModelService::new(name, LEASE));
    let clients = [0, 1].map(|i| client(&services[i]));
    let options = CreateOptions { block: Some(BLOCK as u32), ..CreateOptions::default() };
    let files = [0, 1].map(|i| clients[i].create("/file", &options).unwrap());
    // Each write needs a new block, which the service grants.
    let begin = |i: usize, n: usize| files[i].begin_write((n * 64 * BLOCK) as u64, vec![n as u8; 64 * BLOCK]).unwrap();
    for round in 0..4 {
        let (slow, fast) = (round % 2, 1 - round % 2);
        // Another thread may drive the slow one's client.
        let other = clients[slow].clone();
        let drives = std::thread::spawn(move || round < 2 || other.stat("/file").is_ok());
        let (first, second) = services[slow].while_silent(|| {
            let pending = [begin(slow, round), begin(fast, round)];
            assert!(Pending::wait_any(&pending, LEASE), "round {round}: the second one's client is waited for as well");
            let [first, second] = pending;
            assert!(second.is_done() && !first.is_done(), "round {round}: the silent service has granted nothing");
            (first, second)
        });
        assert_eq!(second.wait().result.unwrap(), 64 * BLOCK);
        assert!(Pending::wait_any([&first], LEASE));
        assert_eq!(first.wait().result.unwrap(), 64 * BLOCK);
        assert!(drives.join().unwrap());
    }
    for (i, file) in files.iter().enumerate() {
        let mut read = vec![0; 4 * 64 * BLOCK];
        assert_eq!(file.read_at(0, &mut read).unwrap(), read.len());
        let is_right = |(n, piece): (usize, &[u8])| piece.iter().all(|byte| *byte == n as u8);
        assert!(read.chunks(64 * BLOCK).enumerate().all(is_right), "file {i}");
    }
}
