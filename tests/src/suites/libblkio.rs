//! QEMU's block layer through libblkio: `qemu-io` with patterns, `qemu-img bench` at queue depths 1, 32 and 128.

use std::time::Duration;

use super::{long, test};
use crate::guest::host_program;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text, with_node};
use crate::process;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "libblkio";
    vec![
        test(S, "patterns", patterns),
        test(S, "patterns_in_parallel", patterns_in_parallel),
        test(S, "bench_at_depth_1_32_128", |env| depths(env, 1)),
        long(S, "bench_at_depth_1_32_128_long", |env| depths(env, 10)),
    ]
}

fn image(node: &Node) -> String {
    format!("driver=virtio-blk-vhost-user,path={},cache.direct=on", text(&node.socket("gold.sock")))
}

/// Runs the commands of `qemu-io`; one that fails or reads something else fails the test.
pub(super) fn qemu_io(env: &Env, node: &Node, commands: &[String]) -> Result<String, String> {
    let program = host_program(env, "qemu-io")?;
    let mut args = vec!["--image-opts".to_owned(), image(node)];
    args.extend(commands.iter().flat_map(|c| ["-c".to_owned(), c.clone()]));
    let dir = env.folder()?;
    let out = process::run(&dir, &program, &args, Duration::from_secs(60))?;
    let all = format!("{}{}", out.stdout, out.stderr);
    out.success("qemu-io")?;
    let bad = ["failed", "Pattern verification", "error"].iter().any(|word| all.contains(word));
    ensure(!bad, || format!("qemu-io: {all}"))?;
    Ok(all)
}

fn patterns(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let mut commands = Vec::new();
        // Sizes from one sector to more than one command, aligned and not.
        let places =
            [(0u64, 512u64), (512, 1024), (4096, 4096), (12_800, 65_536), (1 << 20, 1 << 20), (3 << 20, 8 << 20)];
        for (i, (at, len)) in places.iter().enumerate() {
            commands.push(format!("write -P {} {at} {len}", i + 0x11));
        }
        for (i, (at, len)) in places.iter().enumerate() {
            commands.push(format!("read -P {} {at} {len}", i + 0x11));
        }
        commands.push("flush".into());
        commands.push("write -z 4096 4096".into());
        commands.push("read -P 0 4096 4096".into());
        commands.push("discard 1M 1M".into());
        commands.push("read -P 0 1M 1M".into());
        commands.push(format!("write -P 0xee {} 512", (256u64 << 20) - 512));
        commands.push(format!("read -P 0xee {} 512", (256u64 << 20) - 512));
        qemu_io(env, node, &commands)?;
        // Another process sees what the first one wrote.
        qemu_io(env, node, &["read -P 0 1M 1M".into(), "read -P 0x16 3M 8M".into()]).map(|_| ())
    })
}

fn patterns_in_parallel(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let each =
            |verb: &str| (0..128).map(|i| format!("{verb} -P {} {}k 64k", i % 255 + 1, i * 64)).collect::<Vec<_>>();
        let flush = || vec!["aio_flush".to_owned()];
        let commands = [each("aio_write -q"), flush(), each("aio_read -q"), flush()].concat();
        qemu_io(env, node, &commands).map(|_| ())
    })
}

fn depths(env: &Env, scale: u32) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let program = host_program(env, "qemu-img")?;
        for (depth, count) in [(1, 20_000), (32, 100_000), (128, 100_000)] {
            for write in [false, true] {
                let mut args: Vec<String> = ["bench", "-n", "-t", "none"].map(str::to_owned).to_vec();
                args.extend(["-c".into(), (count * scale).to_string(), "-d".into(), depth.to_string()]);
                args.extend(["-s".into(), "4096".into(), "-S".into(), "12288".into()]);
                if write {
                    args.extend(["-w".into(), "--pattern=90".into()]);
                }
                args.extend(["--image-opts".into(), image(node)]);
                let dir = env.folder()?;
                let text = process::run(&dir, &program, &args, Duration::from_secs(120))?.success("qemu-img bench")?;
                let took = text
                    .lines()
                    .find_map(|l| l.strip_prefix("Run completed in ")?.split(' ').next()?.parse::<f64>().ok());
                let took = took.ok_or_else(|| format!("qemu-img bench printed {text:?}"))?;
                let verb = if write { "write" } else { "read" };
                println!(
                    "    qemu-img bench depth {depth:>3} {verb:<5} {:>7.1} k IOPS",
                    f64::from(count * scale) / took / 1e3
                );
            }
        }
        // What the last bench wrote is there: 4 KiB of its pattern at every 12 KiB.
        let reads: Vec<String> = (0..50).map(|i| format!("read -P 90 {}k 4k", i * 12)).collect();
        qemu_io(env, node, &reads).map(|_| ())
    })
}
