//! What programs before this one held in memory: it is taken up, or refused by name before a byte of it is touched. One fixture for every
//! set of layouts that there has been (`tests/fixtures/held`), as the descriptor store of systemd would bring them.

use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use weir_sys::arena::{Arena, Pages, Schema};
use weir_sys::media::RAM_SCHEMA;

use super::{test, upgrade};
use crate::bench::bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text};
use crate::process::Process;
use crate::systemd::Store;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "layouts";
    vec![
        test(S, "what_an_older_program_held_is_taken_up_or_refused", older),
        test(S, "another_layout_is_refused_and_not_touched", another),
    ]
}

/// Set to record a fixture of this program's layouts instead of looking for it.
const RECORD: &str = "WEIR_RECORD";
/// Bytes of a line.
const LINE: usize = 32;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/held")
}

/// The drive of the fixtures, and what its first pages hold: what `weir bench --verify` has written.
fn setup(program: PathBuf) -> Setup {
    let (node, capacity) = ("keeper = true\nstandby = false".into(), "1MiB".into());
    Setup { node, capacity, program: Some(program), ..Setup::default() }
}

const PAGES: [&str; 8] = ["--bs", "4KiB", "--region", "8KiB", "--verify", "crc32c", "--rw", "write"];

fn reads_back(env: &Env, node: &Node) -> Outcome {
    let args = [&PAGES[..7], &["read", "--time", "200ms"]].concat();
    bench(env, &node.tcp_target(), &args)?.clean()
}

/// Memory files, by the names under which a keeper holds them.
type Held = Vec<(String, Vec<u8>)>;

fn contents(fd: &OwnedFd) -> Result<Vec<u8>, String> {
    let file = File::from(fd.try_clone().context(|| "a memory file".into())?);
    let mut bytes = vec![0; file.metadata().context(|| "a memory file".into())?.len() as usize];
    file.read_exact_at(&mut bytes, 0).context(|| "a memory file".into())?;
    Ok(bytes)
}

/// As text: the layouts, then of each file name and length and its lines that are not all zeroes.
fn record(layouts: &str, held: &Held) -> String {
    let mut out = format!("layouts {layouts}\n");
    for (name, bytes) in held {
        let _ = writeln!(out, "file {} {name}", bytes.len());
        for (i, line) in bytes.chunks(LINE).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
            let hex: String = line.iter().map(|b| format!("{b:02x}")).collect();
            let _ = writeln!(out, "{:x} {hex}", i * LINE);
        }
    }
    out
}

fn parse(fixture: &str) -> Option<(String, Held)> {
    let mut lines = fixture.lines();
    let layouts = lines.next()?.strip_prefix("layouts ")?.to_owned();
    let mut held = Held::new();
    for line in lines {
        if let Some((len, name)) = line.strip_prefix("file ").and_then(|l| l.split_once(' ')) {
            held.push((name.to_owned(), vec![0; len.parse().ok()?]));
            continue;
        }
        let (at, hex) = line.split_once(' ')?;
        let at = usize::from_str_radix(at, 16).ok()?;
        let bytes = &mut held.last_mut()?.1;
        for (i, b) in bytes.get_mut(at..at + hex.len() / 2)?.iter_mut().enumerate() {
            *b = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
        }
    }
    Some((layouts, held))
}

fn memory_file(name: &str, bytes: &[u8]) -> Result<OwnedFd, String> {
    let make = || -> std::io::Result<OwnedFd> {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.write_all_at(bytes, 0)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file.into())
    };
    make().context(|| format!("a memory file for {name}"))
}

/// What a program of today holds once the first pages of its drive are written.
fn held_today(env: &Env, dir: &Path) -> Result<(String, Held), String> {
    let mut store = Store::listen(dir)?;
    let node = Node::start(env, &setup(store.program(env, dir)?))?;
    bench(env, &node.tcp_target(), &PAGES)?.clean()?;
    let layouts = upgrade::layouts(env, &node.dir.join("weir.toml"))?;
    store.hear();
    // The configuration names ports and folders of that moment, and is text: it is no layout.
    store.forget_sockets();
    store.kept.retain(|name, _| !name.starts_with("config"));
    let held = store.kept.iter().map(|(name, fd)| Ok((name.clone(), contents(fd)?))).collect::<Result<_, String>>()?;
    Store::leave(env, dir)?;
    node.stop()?;
    Ok((layouts, held))
}

/// A program that begins with these files, and the store that has them.
fn began_with(env: &Env, dir: &Path, held: &Held) -> Result<(Store, PathBuf), String> {
    std::fs::create_dir_all(dir).context(|| text(dir))?;
    let mut store = Store::listen(dir)?;
    for (name, bytes) in held {
        store.kept.insert(name.clone(), memory_file(name, bytes)?);
    }
    let program = store.program(env, dir)?;
    Ok((store, program))
}

/// The node does not start with these files, says why, and leaves every byte of its drives as it was.
fn refuses(env: &Env, dir: &Path, held: &Held, part: &str) -> Outcome {
    let (mut store, program) = began_with(env, dir, held)?;
    let config = dir.join("weir.toml");
    let text_of = setup(program.clone()).toml(env.free_port()?);
    std::fs::write(&config, text_of).context(|| text(&config))?;
    let ended =
        Process::start(dir, "weir-up", &program, ["up", "-c", &text(&config)])?.wait(Duration::from_secs(20))?;
    let said = || ended.describe();
    ensure(ended.status.code() == Some(1) && ended.stderr.contains(part), said)?;
    store.hear();
    // The word of the owner counts owners, this one as well.
    for (name, bytes) in held.iter().filter(|(name, _)| !name.starts_with("owner#")) {
        let fd = store.kept.get(name).ok_or_else(|| format!("{name} was taken out of the store\n{}", said()))?;
        ensure(contents(fd)? == *bytes, || format!("{name} was changed\n{}", said()))?;
    }
    Ok(())
}

/// Every fixture, and that there is one of today.
fn older(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let (today, held) = held_today(env, &dir)?;
    if std::env::var_os(RECORD).is_some() {
        let count = std::fs::read_dir(folder()).map_or(0, |files| files.count());
        let path = folder().join(format!("{}.txt", count + 1));
        std::fs::create_dir_all(folder()).context(|| text(&folder()))?;
        std::fs::write(&path, record(&today, &held)).context(|| text(&path))?;
    }
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).context(|| text(&folder()))?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut known = false;
    for (i, path) in files.iter().enumerate() {
        let fixture = std::fs::read_to_string(path).context(|| text(path))?;
        let (layouts, held) = parse(&fixture).ok_or_else(|| format!("{}: not a fixture", text(path)))?;
        known |= layouts == today;
        let dir = dir.join(i.to_string());
        // Only what lies in memory counts here; what passes between two processes is compared by them (suite `upgrade`).
        if ram_layout(&layouts) == ram_layout(&today) {
            let (_store, program) = began_with(env, &dir, &held)?;
            let node = Node::start(env, &setup(program))?;
            reads_back(env, &node).map_err(|e| format!("{}: {e}\n{}", text(path), node.log()))?;
            Store::leave(env, &dir)?;
            node.stop()?;
        } else {
            refuses(env, &dir, &held, "version")?;
        }
    }
    ensure(known, || {
        format!("no fixture of the layouts {today}: run this test once with {RECORD}=1 and commit what it writes")
    })
}

/// The layouts of what lies in memory.
fn ram_layout(layouts: &str) -> Vec<&str> {
    let named = |word: &&str| ["arena=", "owner=", "ram-media="].iter().any(|name| word.starts_with(name));
    layouts.split_whitespace().filter(named).collect()
}

/// A drive's memory of an older layout, a newer one, of something else, cut off and damaged.
fn another(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let newest = std::fs::read_dir(folder()).context(|| text(&folder()))?.flatten().map(|e| e.path()).max();
    let newest = newest.ok_or("no fixture")?;
    let fixture = std::fs::read_to_string(&newest).context(|| text(&newest))?;
    let (_, held) = parse(&fixture).ok_or("not a fixture")?;
    let ram = held.iter().position(|(name, _)| name.starts_with("ram%")).ok_or("no drive in the fixture")?;
    let with = |bytes: Vec<u8>| {
        let mut held = held.clone();
        held[ram].1 = bytes;
        held
    };
    let of = |schema: Schema| -> Result<Vec<u8>, String> {
        let payload = held[ram].1.len() as u64 - 4096;
        let arena = Arena::create("x", schema, payload, Pages::Small).context(|| "an arena".into())?;
        let mut bytes = contents(&arena.fd().try_clone_to_owned().context(|| "an arena".into())?)?;
        bytes[4096..].copy_from_slice(&held[ram].1[4096..]);
        Ok(bytes)
    };
    let version = |version| Schema { version, ..RAM_SCHEMA };
    let mut damaged = held[ram].1.clone();
    damaged[36] ^= 1;
    let cases = [
        ("older", of(version(RAM_SCHEMA.version - 1))?, "version 0"),
        ("newer", of(version(RAM_SCHEMA.version + 1))?, "version 2"),
        ("other", of(Schema { name: "flash-state", version: 1 })?, "flash-state"),
        ("cut", held[ram].1[..held[ram].1.len() - 65536].to_vec(), "bytes"),
        ("damaged", damaged, "damaged"),
        ("strange", vec![7; held[ram].1.len()], "not a Weir memory region"),
    ];
    for (name, bytes, part) in cases {
        refuses(env, &dir.join(name), &with(bytes), part).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}
