//! What a client records of its program.

use super::model_service::ModelService;
use super::{LEASE, TestService};
use crate::client::{Client, ClientOptions, CreateOptions, File, OpenOptions};
use crate::record::{Record, RecordPath, RecordedCall, UNWAITED};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use weir_store::{EntryName, EntryPath, InodeId};

fn recording_client(service: &ModelService, folder: &Path) -> Client {
    let record = Some(folder.to_owned());
    let options = ClientOptions { name: "test".into(), allow_files: true, record, ..ClientOptions::default() };
    Client::connect(&service.address(), options).unwrap()
}

/// The only record in a folder.
fn record_in(folder: &Path) -> Record {
    let files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "one file a process: {files:?}");
    Record::read(BufReader::new(std::fs::File::open(&files[0]).unwrap())).unwrap()
}

/// What a program of a name's own does, and what is recorded of it: calls, with words, bytes and errno.
fn recorded(name: &str, program: impl FnOnce(&Client)) -> Vec<(&'static str, String, u64, i32)> {
    let service = ModelService::new(&format!("recorded-{name}"), LEASE);
    let folder = std::env::temp_dir().join(format!("weir-recorded-{name}-{}", std::process::id()));
    let client = recording_client(&service, &folder);
    program(&client);
    drop(client);
    let record = record_in(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(record.is_whole && record.lost == 0 && record.head.process == std::process::id());
    assert!(record.lines.iter().all(|line| line.called <= line.took && line.client == 1));
    let words = |path: &RecordPath, detail: &[u8]| format!("{} {}", path.text(), String::from_utf8_lossy(detail));
    let line = |line: &crate::record::RecordLine| {
        (line.call.name(), words(&line.path, &line.detail).trim().to_owned(), line.done, line.errno)
    };
    record.lines.iter().map(line).collect()
}

fn is(found: &[(&'static str, String, u64, i32)], expected: &[(&str, &str, u64, i32)]) {
    let found: Vec<_> = found.iter().map(|(call, words, done, errno)| (*call, words.as_str(), *done, *errno)).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_call_is_a_line_and_what_it_makes_of_itself_is_none() {
    let found = recorded("calls", |client| {
        client.make_directory("/d/e", true, 0o755).unwrap();
        assert!(client.open("/d/none", OpenOptions::default()).is_err());
        client.put_small("/d/key", b"value", &CreateOptions::default()).unwrap();
        assert_eq!(client.get_small("/d/key", 9).unwrap(), b"value");
        let file = client.create("/d/a", &CreateOptions { parents: true, ..CreateOptions::default() }).unwrap();
        file.write_at(0, &[1; 5000]).unwrap();
        file.append(&[2; 10]).unwrap();
        file.flush().unwrap();
        file.truncate(4000).unwrap();
        let mut read = [0; 100];
        assert_eq!(file.read_at(3950, &mut read).unwrap(), 50);
        file.close().unwrap();
        assert_eq!(client.list("/d").unwrap().count(), 3);
        client.rename("/d/a", "/d/b", true).unwrap();
        client.remove("/d", true).unwrap();
    });
    is(
        &found,
        &[
            ("mkdir", "/d/e p", 0, 0),
            ("open", "/d/none r", 0, 2),
            ("put", "/d/key", 5, 0),
            ("get", "/d/key", 5, 0),
            ("create", "/d/a p", 0, 0),
            ("write", "", 5000, 0),
            ("append", "", 10, 0),
            ("flush", "", 0, 0),
            ("truncate", "", 0, 0),
            ("read", "", 50, 0),
            ("close", "", 0, 0),
            ("list", "/d", 3, 0),
            ("replace", "/d/a /d/b", 0, 0),
            ("remove", "/d r", 0, 0),
        ],
    );
}

#[test]
fn streams_are_their_slices_and_what_is_not_waited_for_is_said() {
    let found = recorded("streams", |client| {
        let mut writer = client.writer("/a", &CreateOptions::default()).unwrap();
        writer.write_all(&[7; 600 << 10]).unwrap();
        writer.finish().unwrap();
        let mut read = Vec::new();
        client.reader("/a").unwrap().read_to_end(&mut read).unwrap();
        let file: File = client.open("/a", OpenOptions::default()).unwrap();
        drop(file.begin_read(0, vec![0; 4096]).unwrap());
    });
    is(
        &found,
        &[
            ("create", "/a", 0, 0),
            ("write", "", 512 << 10, 0),
            ("write", "l", 88 << 10, 0),
            ("close", "", 0, 0),
            ("stat", "/a file", 0, 0),
            ("open", "/a r", 0, 0),
            ("read", "", 512 << 10, 0),
            ("read", "", 88 << 10, 0),
            ("drop", "", 0, 0),
            ("open", "/a r", 0, 0),
            ("read", "", 0, UNWAITED),
            ("drop", "", 0, 0),
        ],
    );
}

#[test]
fn calls_by_inode_name_container_and_name() {
    let found = recorded("inodes", |client| {
        let entry = EntryPath { container: InodeId::ROOT, name: EntryName::new(b"a b").unwrap() };
        let opened = client.create_in(entry.clone(), &CreateOptions::default(), b"/a b").unwrap();
        opened.file.close().unwrap();
        client.lookup(InodeId::ROOT, entry.name.clone()).unwrap();
        let to = EntryPath { container: InodeId::ROOT, name: EntryName::new(b"c").unwrap() };
        client.rename_in(entry, to.clone(), false).unwrap();
        assert_eq!(client.list_page(InodeId::ROOT, None).unwrap().entries.len(), 1);
        client.remove_in(to).unwrap();
    });
    is(
        &found,
        &[
            ("create", "/a%20b k", 0, 0),
            ("close", "", 0, 0),
            ("lookup", "@1/a%20b file", 0, 0),
            ("rename", "@1/a%20b @1/c", 0, 0),
            ("page", "@1", 1, 0),
            ("remove", "@1/c", 0, 0),
        ],
    );
}

#[test]
fn clients_of_a_process_share_a_record_and_the_next_ones_have_another() {
    let service = ModelService::new("recorded-shared", LEASE);
    let folder = std::env::temp_dir().join(format!("weir-recorded-shared-{}", std::process::id()));
    let (one, two) = (recording_client(&service, &folder), recording_client(&service, &folder));
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(one.stat("/").is_ok()));
        scope.spawn(|| assert!(two.stat("/").is_ok()));
    });
    drop(one);
    drop(two);
    let record = record_in(&folder);
    let of = |number: usize| (record.lines[number].client, record.lines[number].thread);
    assert!(record.lines.len() == 2 && of(0).0 != of(1).0 && of(0).1 != of(1).1, "{record:?}");
    assert!(record.lines.iter().all(|line| line.call == RecordedCall::Stat));
    drop(recording_client(&service, &folder));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    std::fs::remove_dir_all(&folder).unwrap();
}
