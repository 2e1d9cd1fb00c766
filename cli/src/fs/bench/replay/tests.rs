//! Programs that are recorded and replayed, on a metadata service and drives in files of this process; and the order of steps.

use super::super::super::args::FsCommand;
use super::super::args::BenchCommand;
use super::super::tests::Store;
use super::*;
use crate::args::{Cli, CliCommand};
use clap::Parser;
use std::io::{Read, Write};
use std::path::PathBuf;
use weir_store::InodeKind;
use weir_store_node::client::{ClientErrorKind, OpenOptions};
use weir_store_node::record::{Record, RecordHead, RecordLine, RecordPath, RecordedCall};

fn args(line: &str) -> Result<ReplayArgs, String> {
    let words = ["weir", "fs", "bench", "replay"].into_iter().chain(line.split_whitespace());
    let CliCommand::Fs(fs) = Cli::try_parse_from(words).map_err(|e| e.to_string())?.command else { unreachable!() };
    match fs.command {
        FsCommand::Bench(bench) => match bench.command {
            Some(BenchCommand::Replay(args)) => Ok(args),
            other => panic!("{other:?}"),
        },
        _ => unreachable!(),
    }
}

fn replayed(store: &Store, line: &str) -> Result<ReplayReport, String> {
    replay(&args(line)?, || Ok(store.connect())).map_err(|e| e.text().to_owned())
}

/// A program: files in folders, streams, small files, names, failures, and a second thread that reads what the first has written.
fn program(client: &Client) {
    client.make_directory("/job/tmp/1", true, 0o755).unwrap();
    assert!(client.stat("/job/none").unwrap_err().is_not_found());
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut writer = client.writer("/job/tmp/1/part", &CreateOptions::default()).unwrap();
    writer.write_all(&bytes).unwrap();
    writer.finish().unwrap();
    let file = client.create("/job/small", &CreateOptions::default()).unwrap();
    file.append(&bytes[..100]).unwrap();
    file.append(&bytes[..50]).unwrap();
    file.truncate(120).unwrap();
    file.flush().unwrap();
    file.close().unwrap();
    client.put_small("/job/key", b"value", &CreateOptions::default()).unwrap();
    client.rename("/job/tmp/1", "/job/out", false).unwrap();
    let reads = client.clone();
    let other = std::thread::spawn(move || {
        let mut read = Vec::new();
        reads.reader("/job/out/part").unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 3_000_000);
        assert_eq!(reads.get_small("/job/key", 100).unwrap(), b"value");
        assert_eq!(reads.list("/job").unwrap().count(), 4);
    });
    other.join().unwrap();
    let file = client.open("/job/out/part", OpenOptions::default()).unwrap();
    let mut some = [0; 1000];
    file.read_at(1_234_567, &mut some).unwrap();
    drop(file.begin_read(0, vec![0; 4096]).unwrap());
    assert_eq!(client.parts("/job/out/part", 0, 10).unwrap().len(), 1);
    client.symlink("out/part", "/job/link").unwrap();
    assert_eq!(client.read_link("/job/link").unwrap(), b"out/part");
    client.remove("/job/tmp", true).unwrap();
}

/// Records a program in a folder of the store.
fn record(store: &Store, program: impl FnOnce(&Client)) -> PathBuf {
    let folder = store.folder.join("calls");
    let client = store.connect_recorded(Some(&folder));
    program(&client);
    drop(client);
    folder
}

#[test]
fn a_program_is_replayed_call_for_call_and_byte_for_byte() {
    let store = Store::new();
    let folder = record(&store, program);
    let line = folder.display().to_string();
    let exists = replayed(&store, &line).unwrap_err();
    assert!(exists.contains("it succeeded when it was recorded"), "{exists}");
    for options in ["--verify", "--speed 1", ""] {
        store.client().remove("/job", true).unwrap();
        let report = replayed(&store, &format!("{line} {options}")).unwrap();
        assert_eq!(
            (report.recorded.operations, report.recorded.bytes),
            (report.replayed.operations, report.replayed.bytes)
        );
        assert_eq!((report.otherwise, report.cut_off_records, report.threads), (0, 0, 2), "{report:?}");
        for call in &report.calls {
            assert_eq!((call.operations, call.bytes), (call.recorded.operations, call.recorded.bytes), "{}", call.call);
        }
        assert_eq!(report.verified_bytes, (options == "--verify").then_some(3_000_000 + 1000 + 5));
        assert_eq!(store.client().stat("/job/out/part").unwrap().inode.size, 3_000_000);
        assert_eq!(store.client().stat("/job/small").unwrap().inode.size, 120);
        assert!(store.client().stat("/job/tmp").unwrap_err().is_not_found());
        assert!(report.text().contains("\nreplayed: "), "{}", report.text());
        assert_eq!(report.csv().lines().count(), report.calls.len() + 1);
    }
}

#[test]
fn what_was_read_is_made_first_and_a_planted_byte_is_found() {
    let store = Store::new();
    store.client().make_directory("/in", false, 0o755).unwrap();
    store.client().put_small("/in/a", &[7; 50_000], &CreateOptions::default()).unwrap();
    store.client().put_small("/in/b", b"", &CreateOptions::default()).unwrap();
    store.client().make_directory("/in/c", false, 0o755).unwrap();
    let folder = record(&store, |client| {
        assert_eq!(client.list("/in").unwrap().count(), 3);
        let mut read = Vec::new();
        client.reader("/in/a").unwrap().read_to_end(&mut read).unwrap();
    });
    let line = format!("{} --verify", folder.display());
    let foreign = replayed(&store, &line).unwrap_err();
    assert!(foreign.contains("/in/a: byte 0 is 0x07, and "), "{foreign}");
    store.client().remove("/in", true).unwrap();
    for _ in 0..2 {
        let report = replayed(&store, &line).unwrap();
        assert_eq!((report.verified_bytes, report.prepared_bytes, report.otherwise), (Some(50_000), 50_000, 0));
    }
    let file = store.client().open("/in/a", OpenOptions::read_write()).unwrap();
    let mut byte = [0];
    file.read_at(40_000, &mut byte).unwrap();
    file.write_at(40_000, &[byte[0] ^ 0x80]).unwrap();
    file.close().unwrap();
    let found = replayed(&store, &line).unwrap_err();
    assert!(found.contains("/in/a: byte 40000 is 0x"), "{found}");
    assert!(found.contains(".csv: line "), "{found}");
    store.client().remove("/in/a", false).unwrap();
    store.client().put_small("/in/a", b"short", &CreateOptions::default()).unwrap();
    let short = replayed(&store, &line).unwrap_err();
    assert_eq!(
        short,
        "fs bench replay: /in/a: it has 5 bytes, and 50000 when it was recorded; remove it, or replay on another store"
    );
}

#[test]
fn wrong_input_is_said() {
    let store = Store::new();
    let folder = store.folder.join("records");
    std::fs::create_dir(&folder).unwrap();
    let at = folder.display().to_string();
    let no_records = replayed(&store, &at).unwrap_err();
    assert_eq!(
        no_records,
        format!("fs bench replay: {at}: no records are in this folder (*.csv, *.csv.gz, *.csv.zst)")
    );
    let bad = folder.join("bad.csv");
    std::fs::write(&bad, "time_us,op\n").unwrap();
    let said = replayed(&store, &at).unwrap_err();
    assert_eq!(said, format!("fs bench replay: {}: line 1: it is no record of a store's client", bad.display()));
    let mut text = Vec::new();
    RecordHead::default().put(&mut text);
    std::fs::write(&bad, &text).unwrap();
    assert_eq!(replayed(&store, &at).unwrap_err(), "fs bench replay: the records have no calls");
    RecordLine { file: 9, ..RecordLine::default() }.put(&mut text);
    std::fs::write(&bad, &text).unwrap();
    let said = replayed(&store, &at).unwrap_err();
    assert!(said.ends_with("bad.csv: line 4: read of file 9, which nothing has opened"), "{said}");
    let none = replayed(&store, "/none.csv").unwrap_err();
    assert!(none.starts_with("fs bench replay: /none.csv: No such file"), "{none}");
    assert!(args("").unwrap_err().contains("<RECORD>"));
    assert!(args("a --speed -1").is_err() && args("a --speed x").unwrap_err().contains("a number from 0"));
    let both = run(&args("a --csv").unwrap(), true, || Ok(store.connect())).unwrap_err();
    assert!(both.text().contains("choose one"));
}

#[test]
fn a_folder_that_cannot_be_written_is_said() {
    let store = Store::new();
    let file = store.folder.join("file");
    std::fs::write(&file, "").unwrap();
    let refused = store.try_connect_recorded(Some(&file)).unwrap_err();
    let ClientErrorKind::Usage(text) = refused.kind() else { panic!("{refused}") };
    assert!(text.starts_with("recording into ") && text.ends_with("; name a folder that can be written"), "{text}");
}

/// A line of a record, at a time in its thread.
fn line(thread: u32, (start, took): (u64, u64), call: RecordedCall, path: &str) -> RecordLine {
    let path = RecordPath::Absolute(path.into());
    RecordLine { thread, client: 1, start, took, call, path, ..RecordLine::default() }
}

fn recording(lines: Vec<RecordLine>) -> Recording {
    let record = Record { lines, is_whole: true, ..Record::default() };
    Recording::of(vec![("a.csv".into(), record)]).unwrap()
}

/// Which steps each step comes after, of other threads.
fn after(recording: &Recording) -> Vec<Vec<usize>> {
    recording.steps.iter().map(|step| step.after.clone()).collect()
}

#[test]
fn a_reader_comes_after_the_writer_s_close_and_a_rename_after_what_is_below() {
    let of_file = |line: RecordLine, file| RecordLine { file, ..line };
    let create = of_file(line(1, (0, 10), RecordedCall::Create, "/d/a"), 5);
    let write = of_file(RecordLine { length: 9, ..line(1, (10, 10), RecordedCall::Write, "") }, 5);
    let close = of_file(line(1, (20, 10), RecordedCall::Close, ""), 5);
    // Both threads are there from the first on.
    let early = line(2, (0, 1), RecordedCall::Stat, "/x");
    let open = of_file(line(2, (40, 10), RecordedCall::Open, "/d/a"), 6);
    let other = line(2, (60, 5), RecordedCall::Stat, "/e");
    let rename = RecordLine { detail: b"/f".into(), ..line(3, (45, 30), RecordedCall::Rename, "/d") };
    let late = line(2, (90, 5), RecordedCall::Stat, "/f/a");
    let early_3 = line(3, (0, 1), RecordedCall::Stat, "/x");
    let all = recording(vec![create, write, close, early, open, other, rename, late, early_3]);
    let calls: Vec<_> = all.steps.iter().map(|step| (step.line.call.name(), step.thread)).collect();
    assert_eq!(calls[3..], [("write", 0), ("close", 0), ("open", 1), ("rename", 2), ("stat", 1), ("stat", 1)]);
    let after = after(&all);
    assert_eq!(after[5], [4], "the reader's open comes after the writer's close");
    assert_eq!(after[6], [4], "the rename comes after the close; the open was not over");
    assert_eq!(
        (&after[7][..], &after[8][..]),
        (&[][..], &[6][..]),
        "what is below the new name comes after the rename"
    );
}

#[test]
fn an_open_file_is_open_for_other_threads_and_closed_after_what_was_given_up() {
    let open = RecordLine { file: 5, length: 9, ..line(1, (0, 5), RecordedCall::Open, "/a") };
    let read = |thread, (start, took), errno| RecordLine {
        file: 5,
        errno,
        called: 1,
        ..line(thread, (start, took), RecordedCall::Read, "")
    };
    // Thread 1 has two reads under way that it never waits for when thread 2 reads and closes.
    let close = RecordLine { file: 5, ..line(2, (40, 1), RecordedCall::Close, "") };
    let early = line(2, (0, 1), RecordedCall::Stat, "/x");
    let all = recording(vec![open, early, read(1, (10, 50), 125), read(1, (12, 48), 125), read(2, (11, 2), 0), close]);
    let calls: Vec<_> = all.steps.iter().map(|step| (step.line.call.name(), step.thread, step.after.clone())).collect();
    assert_eq!(
        calls[2..],
        [("read", 0, vec![]), ("read", 1, vec![1, 2]), ("read", 0, vec![]), ("close", 1, vec![1, 4])]
    );
}

#[test]
fn a_thread_begins_after_those_that_had_ended() {
    let stat = |thread, start| line(thread, (start, 5), RecordedCall::Stat, "/x");
    let all = recording(vec![stat(1, 0), stat(2, 3), stat(1, 10), stat(2, 30), stat(3, 20)]);
    assert_eq!(after(&all), [vec![], vec![], vec![], vec![2], vec![]]);
}

#[test]
fn calls_that_were_under_way_at_once_are_again() {
    let open = RecordLine { file: 1, length: 100, ..line(1, (0, 5), RecordedCall::Open, "/a") };
    let read = |start, took| RecordLine { file: 1, length: 10, ..line(1, (start, took), RecordedCall::Read, "") };
    let all = recording(vec![open, read(10, 20), read(15, 30), read(50, 5)]);
    let overlapped: Vec<bool> = all.steps.iter().map(|step| step.is_overlapped).collect();
    assert_eq!(overlapped, [false, true, false, false]);
    let prepared = all.prepared.get(&b"/a"[..]).unwrap();
    assert_eq!((prepared.kind, prepared.size), (InodeKind::File, 100));
}

#[test]
fn inodes_are_followed_to_their_paths() {
    let entry = |container, name: &str| RecordPath::Entry { container, name: name.into() };
    let at = |start, call, path| RecordLine { path, ..line(1, (start, 1), call, "") };
    let looked_up = RecordLine { inode: 7, detail: b"directory".into(), ..at(0, RecordedCall::Lookup, entry(1, "d")) };
    let made = RecordLine { detail: b"directory".into(), ..at(2, RecordedCall::Make, entry(7, "e")) };
    let found = RecordLine { inode: 8, detail: b"directory".into(), ..at(4, RecordedCall::Lookup, entry(7, "e")) };
    let renamed = RecordLine { detail: b"@1/f".into(), ..at(6, RecordedCall::Rename, entry(7, "e")) };
    let page = at(8, RecordedCall::Page, RecordPath::Inode(8));
    let all = recording(vec![looked_up.clone(), made, found, renamed, page]);
    let paths: Vec<String> = all.steps.iter().map(|step| String::from_utf8_lossy(&step.path).into_owned()).collect();
    assert_eq!(paths, ["/d", "/d/e", "/d/e", "/d/e", "/f"]);
    assert_eq!(all.prepared.keys().collect::<Vec<_>>(), [b"/d"]);
    let unknown = Record { lines: vec![at(0, RecordedCall::Page, RecordPath::Inode(9))], ..Record::default() };
    let said = Recording::of(vec![("a.csv".into(), unknown)]).unwrap_err();
    assert!(said.starts_with("a.csv: line 4: nothing says which path inode 9 has"), "{said}");
}
