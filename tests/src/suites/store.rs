//! Files of a store on one machine: put, got, moved and removed by `weir fs`, while the worker and the node are killed and upgraded.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::process::{Finished, until};
use serde_json::Value;
use weir_store::keys::name_key;
use weir_store::kv::{Commit, CommitOutcome, Kv as _, KvKey, KvWrite};
use weir_store::records::{NameRecord, to_value};
use weir_store::{EntryName, InodeId, InodeKind};
use weir_store_node::embedded::{Durability, EmbeddedKv};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store";
    vec![
        test(S, "files_of_every_size_come_back", sizes),
        test(S, "names_are_listed_moved_and_removed", names),
        test(S, "files_outlive_kills_and_upgrades", outlives),
        test(S, "small_files_fill_a_store_and_its_room_comes_back", full),
        test(S, "a_start_that_cannot_be_says_why", refused),
        test(S, "damaged_metadata_are_found_and_put_right", damaged),
        test(S, "other_bytes_on_a_drive_are_found_by_a_scrub", scrubbed),
    ]
}

/// A RAM drive and a file drive.
pub(super) fn setup() -> Setup {
    let device = |name: &str, media: &str, capacity: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nmedia = \"{media}\"\ncapacity = \"{capacity}\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n"
        )
    };
    let donate = |name: &str, class: &str| format!("[[store.donate]]\ndevice = \"{name}\"\nclass = \"{class}\"\n");
    let whole = "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = true\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
        .to_owned()
        + &device("ram0", "ram", "256MiB")
        + &device("file0", "file:flash.img", "1GiB")
        + "[store]\nmeta = \"redb:store.redb\"\nlisten = \"unix:meta.sock\"\n"
        + &donate("ram0", "dram")
        + &donate("file0", "flash");
    Setup { whole, ..Setup::default() }
}

/// The address of its metadata service.
pub(super) fn address(node: &Node) -> String {
    format!("unix:{}", node.socket("meta.sock").display())
}

fn try_fs(node: &Node, args: &[&str]) -> Result<Finished, String> {
    node.cli(&[&["fs", "--store", &address(node)], args].concat())
}

pub(super) fn fs(node: &Node, args: &[&str]) -> Result<String, String> {
    try_fs(node, args)?.success(&format!("weir fs {}", args.join(" "))).map_err(|e| format!("{e}\n{}", node.log()))
}

/// Bytes that no other size has.
pub(super) fn bytes(len: usize) -> Vec<u8> {
    let mut state = len as u64 | 1;
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as u8
    };
    (0..len).map(|_| next(&mut state)).collect()
}

pub(super) fn write(path: &Path, len: usize) -> Result<Vec<u8>, String> {
    let bytes = bytes(len);
    std::fs::write(path, &bytes).context(|| path.display().to_string())?;
    Ok(bytes)
}

/// Whether a file of the store has these bytes.
pub(super) fn has(node: &Node, name: &str, expected: &[u8]) -> Outcome {
    let to = node.socket("got");
    let _ = std::fs::remove_file(&to);
    fs(node, &["get", name, &to.display().to_string()])?;
    let found = std::fs::read(&to).context(|| to.display().to_string())?;
    ensure(found == expected, || format!("{name}: {} bytes, {} expected, or others", found.len(), expected.len()))
}

const SIZES: [usize; 13] = [
    0,
    1,
    2047,
    2048,
    2049,
    4095,
    (64 << 10) - 1,
    64 << 10,
    (64 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    20 << 20,
];

fn sizes(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        for class in ["dram", "flash"] {
            for size in SIZES {
                let (from, name) = (node.socket("put"), format!("/{class}-{size}"));
                let expected = write(&from, size)?;
                fs(node, &["put", "--class", class, &from.display().to_string(), &name])?;
                has(node, &name, &expected)?;
            }
        }
        let listed = fs(node, &["ls", "/"])?;
        ensure(listed.lines().count() == 2 * SIZES.len(), || listed)
    })
}

fn names(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let from = node.socket("put");
        let path = from.display().to_string();
        let expected = write(&from, 100_000)?;
        fs(node, &["mkdir", "-p", "/a/b"])?;
        fs(node, &["put", &path, "/a/b/one"])?;
        fs(node, &["mv", "/a/b/one", "/a/two"])?;
        has(node, "/a/two", &expected)?;
        for (args, what) in [
            (&["cat", "/a/b/one"][..], "no such file"),
            (&["rm", "/a"], "directory"),
            (&["mkdir", "/a"], "exists"),
            (&["cat", "/a"], "directory"),
            (&["put", "/does/not/exist", "/x"], "/does/not/exist"),
        ] {
            let finished = try_fs(node, args)?;
            let said = finished.stderr.clone();
            ensure(finished.status.code() == Some(1) && said.contains(what) && said.lines().count() == 1, || {
                format!("{args:?}: {:?}: {said}", finished.status.code())
            })?;
        }
        fs(node, &["rm", "-r", "/a"])?;
        let listed = fs(node, &["ls", "/"])?;
        ensure(listed.is_empty(), || listed)
    })
}

/// The worker is killed and upgraded: nothing is lost of either drive. The node is killed: nothing is lost of the file drive.
fn outlives(env: &Env) -> Outcome {
    let mut node = Node::start(env, &setup())?;
    let from = node.socket("put");
    let path = from.display().to_string();
    let expected = write(&from, 3 << 20)?;
    for class in ["dram", "flash"] {
        fs(&node, &["put", "--class", class, &path, &format!("/{class}")])?;
    }
    fs(&node, &["mkdir", "/d"])?;
    for round in 0..3 {
        let before = node.worker()?;
        if round == 1 {
            node.cli_ok(&["upgrade", "--probation", "0s"])?;
        } else {
            node.kill_worker()?;
        }
        serves_again(&node, before)?;
        has(&node, "/dram", &expected)?;
        has(&node, "/flash", &expected)?;
        let name = format!("/d/{round}");
        fs(&node, &["put", &path, &name])?;
        has(&node, &name, &expected)?;
    }
    node.kill()?;
    node.start_again()?;
    has(&node, "/flash", &expected)?;
    let listed = fs(&node, &["ls", "/d"])?;
    ensure(listed.split_whitespace().count() == 3, || listed)?;
    let lost = try_fs(&node, &["cat", "/dram"])?;
    ensure(lost.status.code() == Some(1) && lost.stderr.contains("/dram"), || lost.stderr)?;
    // And the drive that has lost it takes new files.
    fs(&node, &["put", "--class", "dram", &path, "/again"])?;
    has(&node, "/again", &expected)?;
    node.stop()
}

/// Another worker has the metadata.
fn serves_again(node: &Node, before: rustix::process::Pid) -> Outcome {
    until(Duration::from_secs(20), "the next worker serves the store", || {
        let other = node.worker().is_ok_and(|worker| worker != before);
        Ok((other && try_fs(node, &["ls", "/"])?.status.code() == Some(0)).then_some(()))
    })
}

/// What a damage puts into the metadata.
fn damage(file: &Path, writes: Vec<KvWrite>) -> Outcome {
    let mut kv = EmbeddedKv::open(file, Durability::Process).map_err(|e| e.to_string())?;
    let outcome = kv.commit(&Commit { expect: Vec::new(), writes });
    ensure(matches!(outcome, CommitOutcome::Done(_)), || format!("{}: {outcome:?}", file.display()))
}

/// A store's file is damaged while nobody has it: `weir store fsck` names what is wrong, puts it right or says why not, and finds nothing after that.
fn damaged(env: &Env) -> Outcome {
    let mut node = Node::start(env, &setup())?;
    let from = node.socket("put");
    let expected = write(&from, 3 << 20)?;
    for name in ["/one", "/two"] {
        fs(&node, &["put", "--class", "flash", &from.display().to_string(), name])?;
    }
    let file = node.socket("store.redb");
    let path = file.display().to_string();
    let fsck = |node: &Node, more: &[&str], status: i32, words: &[&str]| -> Outcome {
        let finished = node.cli(&[&["store", "fsck", &path], more].concat())?;
        let said = format!("{}{}", finished.stdout, finished.stderr);
        let is_right = finished.status.code() == Some(status) && words.iter().all(|word| said.contains(word));
        ensure(is_right, || format!("{more:?}: {:?}, {words:?}: {said}", finished.status.code()))
    };
    fsck(&node, &[], 1, &["store.redb", "somebody has the store open"])?;
    node.kill()?;
    fsck(&node, &[], 0, &["records"])?;
    // One name leads nowhere, the other is gone; and a key is of no known kind.
    let name = |name: &[u8]| EntryName::new(name).map(|name| name_key(InodeId::ROOT, &name)).map_err(|e| e.to_string());
    let nowhere = NameRecord { inode: InodeId(9999), kind: InodeKind::File };
    let names = vec![KvWrite::Put(name(b"gone")?, to_value(&nowhere)), KvWrite::Delete(name(b"one")?)];
    damage(&file, names)?;
    for _ in 0..2 {
        fsck(&node, &[], 1, &["found     dangling-name: name \"gone\"", "nameless-inode", "--repair puts right"])?;
    }
    fsck(&node, &["--repair", "--json"], 1, &["\"dangling-name\"", "\"repaired\"", "nothing is left"])?;
    fsck(&node, &["--repair"], 0, &["records"])?;
    let unknown = KvKey(b"z1".to_vec());
    damage(&file, vec![KvWrite::Put(unknown.clone(), vec![1])])?;
    fsck(&node, &["--repair"], 1, &["unknown-key: key 7a31 (not repaired: a newer version may have made it"])?;
    damage(&file, vec![KvWrite::Delete(unknown)])?;
    fsck(&node, &[], 0, &[])?;
    fsck(&node, &["--wrong"], 2, &["--wrong"])?;
    node.start_again()?;
    has(&node, "/two", &expected)?;
    let found = fs(&node, &["ls", "/lost+found"])?;
    has(&node, &format!("/lost+found/{}", found.trim()), &expected)?;
    node.stop()
}

/// Blocks have 1 MiB: a file of a third of that takes no more than it has, many at a time. What is deleted can be written at once.
fn full(env: &Env) -> Outcome {
    const FILE: usize = 340_000;
    const DRIVE: usize = 70 << 20;
    /// Files of one command: those that do not fit wait for one another, a second each time.
    const BATCH: usize = 10;
    let mut setup = setup();
    setup.whole = setup.whole.replace("256MiB", "70MiB");
    with_node(env, &setup, |node| {
        let folder = node.socket("small");
        std::fs::create_dir(&folder).context(|| folder.display().to_string())?;
        for number in 0..BATCH {
            write(&folder.join(format!("{number:02}")), FILE)?;
        }
        let from = folder.display().to_string();
        let mut written = Vec::new();
        for batch in 0..=DRIVE / FILE / BATCH {
            let to = format!("/batch{batch}");
            let put = try_fs(node, &["put", "-r", "--class", "dram", &from, &to])?;
            let listed = fs(node, &["ls", &to])?;
            let is_whole = |name: &&str| !put.stderr.contains(&format!("{to}/{name}"));
            written.extend(listed.lines().filter(is_whole).map(|name| format!("{to}/{name}")));
            match put.status.success() {
                true => {}
                false if put.stderr.contains("no class of the file has room") => break,
                false => return Err(put.stderr),
            }
        }
        let count = written.len();
        ensure(count * FILE >= DRIVE * 95 / 100, || format!("{count} files of {FILE} bytes in {DRIVE}"))?;
        ensure(count * FILE <= DRIVE, || "it is not full".into())?;
        let expected = bytes(FILE);
        for (removed, added) in written.iter().step_by(50).zip(["a", "b", "c", "d"]) {
            fs(node, &["rm", removed])?;
            fs(node, &["put", "--class", "dram", &format!("{from}/00"), &format!("/{added}")])?;
            has(node, &format!("/{added}"), &expected)?;
        }
        has(node, written.last().map_or("", |name| name), &expected)
    })
}

fn refused(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let fails = |whole: &str, what: &str| {
        let said = super::pool::fails(env, &dir, whole)?;
        ensure(said.contains(what), || format!("expected {what:?}: {said}"))
    };
    let whole = setup().whole.replace("keeper = true", "keeper = false");
    // A drive with something else in its first block.
    std::fs::write(dir.join("flash.img"), bytes(1 << 20)).context(|| "flash.img".into())?;
    fails(&whole, "file0")?;
    std::fs::remove_file(dir.join("flash.img")).context(|| "flash.img".into())?;
    fails(&whole.replace("redb:store.redb", "redb:no/such/folder/store.redb"), "no/such/folder")?;
    std::fs::write(dir.join("other.redb"), b"something else entirely").context(|| "other.redb".into())?;
    fails(&whole.replace("redb:store.redb", "redb:other.redb"), "other.redb")
}

/// One bit of the drive's file is another one, in the last, partial unit of checksums.
fn scrubbed(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let (from, name) = (node.socket("put"), "/d/a");
        let expected = write(&from, 200_000)?;
        fs(node, &["mkdir", "/d"])?;
        fs(node, &["put", "--class", "flash", &from.display().to_string(), name])?;
        let small = node.socket("small");
        write(&small, 1000)?;
        fs(node, &["put", &small.display().to_string(), "/d/small"])?;
        let scrub = |args: &[&str], status: i32| {
            let done = try_fs(node, &[&["scrub"], args].concat())?;
            let shown = || format!("weir fs scrub {args:?}: {:?}: {}{}", done.status, done.stdout, done.stderr);
            ensure(done.status.code() == Some(status), shown).map(|()| done)
        };
        let told = |args: &[&str], status: i32| -> Result<Value, String> {
            let done = scrub(&[args, &["--json"]].concat(), status)?;
            serde_json::from_str(&done.stdout).context(|| done.stdout.clone())
        };
        let clean = |value: &Value| {
            let counts = ["files", "blocks", "short_blocks", "unsettled_blocks"].map(|key| value[key].as_u64());
            ensure(
                counts == [Some(2), Some(1), Some(0), Some(0)] && value["copies"] == Value::Array(Vec::new()),
                || value.to_string(),
            )
        };
        clean(&told(&[], 0)?)?;
        let drive = node.socket("flash.img");
        let bytes = std::fs::read(&drive).context(|| drive.display().to_string())?;
        // The file is one block, which begins at whole 4 KiB.
        let at =
            bytes.chunks(4096).position(|found| expected.starts_with(found)).ok_or("the drive has not the file")?;
        let file = std::fs::File::options().write(true).open(&drive).context(|| drive.display().to_string())?;
        file.write_all_at(&[expected[199_000] ^ 4], at as u64 * 4096 + 199_000)
            .and_then(|()| file.sync_all())
            .context(|| "flip".into())?;
        let found = told(&["/d"], 1)?;
        let copy = &found["copies"][0];
        let seen = (copy["path"].as_str(), copy["offset"].as_u64(), copy["fault"].as_str());
        ensure(seen == (Some(name), Some(3 << 16), Some("bytes")), || found.to_string())?;
        let read = try_fs(node, &["get", "-f", name, &node.socket("got").display().to_string()])?;
        ensure(read.status.code() == Some(1) && read.stderr.contains(name), || read.stderr.clone())?;
        let left = scrub(&["--repair", "/d"], 1)?;
        ensure(left.stderr.contains("1 are left") && left.stdout.contains("bad  /d/a: "), || left.stdout.clone())?;
        fs(node, &["put", "-f", "--class", "flash", &from.display().to_string(), name])?;
        clean(&told(&["/d", "--repair"], 0)?)?;
        let none = scrub(&["/none"], 1)?;
        ensure(none.stderr.contains("/none"), || none.stderr.clone())?;
        scrub(&["d"], 2).map(drop)
    })
}
