//! Volumes as files: exported under load and imported, for whoever kills one side, and what is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::pool::{device, head, setup};
use super::test;
use crate::bench::Bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "images";
    vec![
        test(S, "an_image_comes_back_as_it_was", comes_back),
        test(S, "a_snapshot_is_exported_under_load", under_load),
        test(S, "what_ends_early_leaves_nothing", ends_early),
        test(S, "what_cannot_be_is_refused_and_changes_nothing", refused),
    ]
}

const MIB: usize = 1 << 20;

fn config() -> String {
    let drive = |name: &str| device(name, &format!("media = \"file:{name}.img\"\ncapacity = \"192MiB\""));
    head()
        + &["a", "b"].map(drive).concat()
        + "[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n\
           [[volume]]\nname = \"v\"\ntenant = \"gold\"\nsize = \"16MiB\"\nexport = [\"vhost-user:v.sock\"]\n"
}

/// Bytes with zeroes among them: whole MiB, a few blocks, and an end within a block.
fn picture(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.rotate_left(23).to_le_bytes()
        })
        .collect();
    bytes.truncate(len);
    bytes[2 * MIB..5 * MIB].fill(0);
    bytes[6 * MIB + 4096..6 * MIB + 12_288].fill(0);
    bytes
}

fn path(node: &Node, name: &str) -> PathBuf {
    node.socket(name)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn names(node: &Node) -> Result<Vec<String>, String> {
    let all = http::get(&node.api(), "/v1/volumes")?;
    Ok(all.as_array().into_iter().flatten().filter_map(|v| v["name"].as_str().map(String::from)).collect())
}

fn same(file: &Path, bytes: &[u8]) -> Outcome {
    let found = std::fs::read(file).context(|| shown(file))?;
    let differs = found.iter().zip(bytes).position(|(a, b)| a != b);
    ensure(found.len() == bytes.len() && differs.is_none(), || {
        format!("{}: {} bytes of {}, other from {differs:?} on", file.display(), found.len(), bytes.len())
    })
}

fn comes_back(env: &Env) -> Outcome {
    with_node(env, &setup(config()), |node| {
        let (from, to) = (path(node, "from.img"), path(node, "to.img"));
        let mut bytes = picture(9 * MIB + 1000);
        std::fs::write(&from, &bytes).context(|| shown(&from))?;
        let told = node.cli_ok(&["--json", "volume", "import", &shown(&from), "i", "--tenant", "gold"])?;
        let told: serde_json::Value = serde_json::from_str(&told).context(|| told.clone())?;
        ensure(told["size_bytes"] == 10 * MIB && told["data_bytes"].as_u64() < Some(7 << 20), || told.to_string())?;
        ensure(names(node)? == ["v", "i"], || format!("{:?}", names(node)))?;
        // Volumes have whole MiB.
        bytes.resize(10 * MIB, 0);
        node.cli_ok(&["volume", "export", "i", &shown(&to)])?;
        same(&to, &bytes)?;
        // Of a snapshot, after the volume has become another one; and through pipes.
        node.cli_ok(&["volume", "snapshot", "i@one"])?;
        node.cli_ok(&["export", "volume", "i", &format!("vhost-user:{}", shown(&node.socket("i.sock")))])?;
        Bench::start(env, &node.socket_target("i.sock"), &["--rw", "randwrite", "--bs", "4KiB", "--time", "500ms"])?
            .finish()?
            .clean()?;
        node.cli_ok(&["volume", "export", "-f", "i@one", &shown(&to)])?;
        same(&to, &bytes)?;
        let piped = path(node, "piped.img");
        let out = std::fs::File::create(&piped).context(|| shown(&piped))?;
        let mut reads = node.command(&["volume", "export", "i@one", "-"]);
        let status = reads.stdout(out).stderr(Stdio::inherit()).status().context(|| "weir volume export".into())?;
        ensure(status.success(), || format!("weir volume export to a pipe: {status}"))?;
        same(&piped, &bytes)?;
        let input = std::fs::File::open(&piped).context(|| shown(&piped))?;
        let mut cat = Command::new("cat");
        let mut cat = cat.stdin(input).stdout(Stdio::piped()).spawn().context(|| "cat".into())?;
        let mut writes = node.command(&["volume", "import", "-", "j", "--tenant", "gold", "--size", "12MiB"]);
        let pipe = cat.stdout.take().ok_or("no pipe")?;
        let status = writes.stdin(pipe).stdout(Stdio::null()).status().context(|| "weir volume import".into())?;
        ensure(status.success() && cat.wait().is_ok(), || format!("weir volume import from a pipe: {status}"))?;
        bytes.resize(12 * MIB, 0);
        // What was imported is durable.
        node.kill_and_start()?;
        node.cli_ok(&["volume", "export", "-f", "j", &shown(&to)])?;
        same(&to, &bytes)
    })
}

fn under_load(env: &Env) -> Outcome {
    with_node(env, &setup(config()), |node| {
        let args = ["--bs", "4KiB", "--qd", "8", "--rw", "randrw", "--verify", "crc32c", "--time", "4s"];
        let load = Bench::start(env, &node.socket_target("v.sock"), &args)?;
        let files: Vec<PathBuf> = (0..2).map(|round| path(node, &format!("s{round}.img"))).collect();
        std::thread::sleep(Duration::from_millis(500));
        node.cli_ok(&["volume", "snapshot", "v@s"])?;
        files.iter().try_for_each(|file| {
            std::thread::sleep(Duration::from_millis(500));
            node.cli_ok(&["volume", "export", "v@s", &shown(file)]).map(|_| ())
        })?;
        load.finish()?.clean()?;
        let bytes = std::fs::read(&files[0]).context(|| shown(&files[0]))?;
        ensure(bytes.len() == 16 * MIB && bytes.iter().any(|b| *b != 0), || "nothing was exported".into())?;
        same(&files[1], &bytes)
    })
}

/// Waits until a volume is exported nowhere.
fn is_let_go(node: &Node, name: &str) -> Outcome {
    let begun = Instant::now();
    loop {
        let volume = http::get(&node.api(), &format!("/v1/volumes/{}", name.replace('@', "%40")))?;
        if volume["exports"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        ensure(begun.elapsed() < Duration::from_secs(20), || format!("its client has gone: {volume}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ends_early(env: &Env) -> Outcome {
    with_node(env, &setup(config()), |node| {
        node.cli_ok(&["volume", "create", "w", "64MiB", "--tenant", "gold"])?;
        // A reader of the pipe that reads nothing: the command waits in the middle, and is ended.
        for (signal, leaves) in [("-TERM", false), ("-KILL", true)] {
            let mut command = node.command(&["volume", "export", "w", "-"]);
            let mut child = command.stdout(Stdio::piped()).spawn().context(|| "weir volume export".into())?;
            let begun = Instant::now();
            while http::get(&node.api(), "/v1/volumes/w")?["exports"].as_array().is_none_or(Vec::is_empty) {
                ensure(begun.elapsed() < Duration::from_secs(10), || "it is not exported".into())?;
                std::thread::sleep(Duration::from_millis(5));
            }
            let busy = node.cli(&["export", "volume", "w", "nvme-tcp"])?;
            ensure(!busy.status.success(), || "a volume that is copied is exported".into())?;
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
            ensure(sent.is_ok_and(|s| s.success()), || "kill".into())?;
            // It is in a write to the pipe until somebody reads.
            drop(child.stdout.take());
            let status = child.wait().context(|| "weir volume export".into())?;
            ensure(!status.success() && (leaves || status.code() == Some(1)), || format!("{signal}: {status}"))?;
            is_let_go(node, "w")?;
        }
        // A source that ends the import: nothing is there afterwards.
        let mut command = node.command(&["volume", "import", "-", "n", "--tenant", "gold", "--size", "1MiB"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().context(|| "import".into())?;
        let mut pipe = child.stdin.take().ok_or("no pipe")?;
        // It is let go of before all has been read.
        let _ = std::io::Write::write_all(&mut pipe, &picture(8 * MIB));
        drop(pipe);
        let output = child.wait_with_output().context(|| "import".into())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure(output.status.code() == Some(1) && said.contains("--size"), || format!("{}: {said}", output.status))?;
        ensure(names(node)? == ["v", "w"], || format!("{:?}", names(node)))?;
        // A full pool, and a folder that is not there.
        let file = path(node, "big.img");
        std::fs::File::create(&file).and_then(|f| f.set_len(1 << 40)).context(|| shown(&file))?;
        for args in [["import", &shown(&file), "n"], ["export", "w", "/no/such/folder/w.img"]] {
            let output = node.cli(&[&["volume"], &args[..]].concat())?;
            ensure(output.status.code() == Some(1), || format!("{args:?}: {}", output.status))?;
        }
        is_let_go(node, "w")?;
        ensure(names(node)? == ["v", "w"], || format!("{:?}", names(node)))
    })
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(config()), |node| {
        let (raw, qcow2) = (path(node, "raw.img"), path(node, "q.qcow2"));
        std::fs::write(&raw, picture(8 * MIB)).context(|| shown(&raw))?;
        std::fs::write(&qcow2, b"QFI\xfb\0\0\0\x03").context(|| shown(&qcow2))?;
        let (raw, qcow2, out) = (shown(&raw), shown(&qcow2), shown(&path(node, "out.img")));
        node.cli_ok(&["volume", "snapshot", "v@s"])?;
        let wrong: [(&[&str], &str, i32); 9] = [
            (&["export", "v", &out], "weir volume snapshot v@copy", 1),
            (&["export", "nobody", &out], "nobody", 1),
            (&["export", "v@nobody", &out], "v@nobody", 1),
            (&["export", "v@s", &raw], "-f", 1),
            (&["import", &qcow2, "n"], "qemu-img convert", 1),
            (&["import", &raw, "v"], "already", 1),
            (&["import", &raw, "n", "--size", "1MiB"], "--size", 1),
            (&["import", "-", "n"], "--size", 2),
            (&["import", "/no/such/file", "n"], "/no/such/file", 1),
        ];
        for (args, says, code) in wrong {
            let output = node.cli(&[&["volume"], args].concat())?;
            let said = &output.stderr;
            ensure(output.status.code() == Some(code) && said.contains(says), || {
                format!("{args:?}: {}, {said:?} does not say {says:?}", output.status)
            })?;
        }
        ensure(!Path::new(&out).exists() && !Path::new(&format!("{out}.partial")).exists(), || out.clone())?;
        ensure(names(node)? == ["v", "v@s"], || format!("{:?}", names(node)))
    })
}
