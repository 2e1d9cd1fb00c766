//! The lines that `weir up` prints, run by the programs that they name: `weir bench`, the guest's nvme-cli (2.13), QEMU (11.1).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{long, test};
use crate::guest::{Guest, host_program};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, program, text, with_node};
use crate::process::{Finished, Process, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "printed_lines";
    vec![
        test(S, "bench_and_commands", bench_and_commands),
        test(S, "files_of_a_store", files_of_a_store),
        test(S, "nvme_connect", nvme_connect),
        long(S, "qemu", qemu),
        test(S, "small_machines", small_machines),
    ]
}

/// A drive and a volume, each at every door, of tenants whose hosts have names.
const NODE: &str = r#"
[node]
name = "n1"
[[device]]
name = "ssd0"
capacity = "256MiB"
[[device]]
name = "ssd1"
capacity = "256MiB"
[[tenant]]
name = "gold"
class = "high"
hosts = ["nqn.2026-11.io.weir:host:gold"]
[[tenant]]
name = "tin"
class = "low"
hosts = ["nqn.2026-11.io.weir:host:tin"]
[[export]]
device = "ssd0"
door = "nvme-tcp"
[[export]]
device = "ssd0"
door = "vhost-user:d.sock"
tenant = "gold"
[[export]]
device = "ssd0"
door = "vfio-user:dp.sock"
tenant = "gold"
[[volume]]
name = "v0"
tenant = "tin"
size = "64MiB"
export = ["nvme-tcp", "vhost-user:v.sock", "vfio-user:vp.sock"]
[door.nvme-tcp]
listen = "127.0.0.1:PORT"
"#;

/// A store over a drive.
const STORE: &str = r#"
[[device]]
name = "ram0"
capacity = "128MiB"
[[export]]
device = "ram0"
door = "nvme-tcp"
[door.nvme-tcp]
listen = "127.0.0.1:PORT"
[store]
meta = "memory:"
listen = "unix:meta.sock"
[[store.donate]]
device = "ram0"
class = "dram"
"#;

fn with_printed(env: &Env, test: impl FnOnce(&mut Node, &[String]) -> Outcome) -> Outcome {
    with_printed_of(env, NODE, " shutdown", test)
}

/// `last`: a part of the last line.
fn with_printed_of(env: &Env, config: &str, last: &str, test: impl FnOnce(&mut Node, &[String]) -> Outcome) -> Outcome {
    let setup = Setup { whole: config.into(), ..Setup::default() };
    with_node(env, &setup, |node| {
        // The API answers before they are printed.
        let printed = until(Duration::from_secs(10), "the node prints its last line", || {
            let printed = node.process().stdout();
            Ok(printed.lines().any(|line| line.contains(last)).then_some(printed))
        })?;
        let lines: Vec<String> = printed.lines().map(String::from).collect();
        test(node, &lines)
    })
}

fn containing<'a>(lines: &'a [String], part: &str, count: usize) -> Result<Vec<&'a str>, String> {
    let found: Vec<&str> = lines.iter().map(String::as_str).filter(|l| l.contains(part)).collect();
    ensure(found.len() == count, || format!("{count} lines with \"{part}\" expected:\n{}", lines.join("\n")))?;
    Ok(found)
}

fn shell(env: &Env, line: &str) -> Result<Finished, String> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", line]);
    Process::spawn(&env.folder()?, "line", command)?.wait(Duration::from_secs(60))
}

fn bench_and_commands(env: &Env) -> Outcome {
    with_printed(env, |_, lines| {
        for line in containing(lines, " bench ", 2)? {
            let said = shell(env, &line.replace("--time 10s", "--time 1s"))?.success(line)?;
            ensure(said.contains("IOPS"), || format!("{line}:\n{said}"))?;
        }
        for part in [" status", " tenant ls"] {
            for line in containing(lines, part, 1)? {
                shell(env, line)?.success(line)?;
            }
        }
        Ok(())
    })
}

fn files_of_a_store(env: &Env) -> Outcome {
    with_printed_of(env, STORE, " store ", |_, lines| {
        let put = containing(lines, " put - ", 1)?[0];
        shell(env, put)?.success(put)?;
        let cat = containing(lines, " cat ", 1)?[0];
        let said = shell(env, cat)?.success(cat)?;
        ensure(put.contains(said.trim()) && !said.trim().is_empty(), || format!("{put}\n{cat}:\n{said}"))?;
        let status = containing(lines, " store ", 1)?[0];
        shell(env, status)?.success(status).map(|_| ())
    })
}

fn nvme_connect(env: &Env) -> Outcome {
    with_printed(env, |_, lines| {
        let mut script = "nvme version\n".to_string();
        // Two tenants have the drive, one has the volume.
        for line in containing(lines, "nvme connect -t tcp", 3)? {
            let line = line.replace("127.0.0.1", "10.0.2.2");
            script += &format!(
                "{line}\ni=0; until [ -b /dev/nvme0n1 ]; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.1; done\n\
                 dd if=/dev/nvme0n1 of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null\nnvme disconnect-all\n\
                 while [ -e /dev/nvme0n1 ]; do sleep 0.1; done\necho connected\n"
            );
        }
        let guest = Guest { cpus: 1, net: true, qemu: &[], limit: 90 };
        let said = guest.run(env, &script)?;
        ensure(said.contains("nvme version 2."), || format!("nvme-cli 2 is the one that the lines are for: {said}"))?;
        ensure(said.lines().filter(|l| *l == "connected").count() == 3, || said.clone())
    })
}

/// `qemu-system-x86_64` of the line: the guest folder's, with the boot disk that the line asks for. KVM is left out, because what
/// boots here must boot without.
const QEMU: &str = r#"
args=()
for arg; do args+=("${arg/accel=kvm:tcg/accel=tcg}"); done
exec timeout -k 2 100 "$G/host/qemu" -nodefaults -no-user-config -display none -no-reboot \
  -cpu qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt -kernel "$G/boot/vmlinux" -initrd "$W/initrd" \
  -append "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable no_timer_check random.trust_cpu=on cryptomgr.notests" \
  -serial "file:$W/kernel.log" -device virtio-serial-pci,max_ports=3 -chardev "file,id=gout,path=$W/out" \
  -device virtserialport,chardev=gout,nr=1 -chardev "file,id=grc,path=$W/rc" -device virtserialport,chardev=grc,nr=2 \
  "${args[@]}"
"#;

/// The initramfs with a script to run.
const INITRD: &str = r#"
set -e
mkdir "$W/t"
mv "$W/run.sh" "$W/t/"
printf 'GUEST_MODULES="virtio_blk"\nGUEST_NET=\n' >"$W/t/conf"
(cd "$W" && find t | "$G/usr/bin/busybox" cpio -o -H newc -R 0:0 2>/dev/null) >"$W/add.cpio"
cat "$G/boot/initramfs.cpio" "$W/add.cpio" >"$W/initrd"
"#;

fn qemu(env: &Env) -> Outcome {
    host_program(env, "qemu")?;
    with_printed(env, |_, lines| {
        let newer = "# A QEMU guest (QEMU 10.1 or newer), tenant ";
        containing(lines, newer, 2)?;
        let vfio = containing(lines, "vfio-user-pci", 2)?;
        let vhost = containing(lines, "vhost-user-blk-pci", 2)?;
        for (line, disk) in vfio.iter().map(|l| (l, "nvme0n1")).chain(vhost.iter().map(|l| (l, "vda"))) {
            boot(env, line, disk)?;
        }
        Ok(())
    })
}

/// Boots the line's machine; it writes to its disk and reads back.
fn boot(env: &Env, line: &str, disk: &str) -> Outcome {
    let dir = env.folder()?;
    let script = format!(
        "set -e\ni=0; until [ -b /dev/{disk} ]; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.1; done\n\
         dd if=/dev/urandom of=/tmp/a bs=64k count=4 2>/dev/null\ndd if=/tmp/a of=/dev/{disk} bs=64k oflag=direct 2>/dev/null\n\
         dd if=/dev/{disk} bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/a\necho written and read\n"
    );
    std::fs::write(dir.join("run.sh"), script).context(|| "run.sh".into())?;
    let (guest, work) = (text(&env.guest_dir), text(&dir));
    let with = |script: &str| script.replace("$G", &guest).replace("$W", &work);
    shell(env, &with(INITRD))?.success("the initramfs")?;
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).context(|| "bin".into())?;
    let qemu = program(&bin, "qemu-system-x86_64", "")?;
    std::fs::write(&qemu, format!("#!/bin/bash\n{}", with(QEMU))).context(|| text(&qemu))?;
    let finished = shell(env, &format!("PATH={}:$PATH; {line}", text(&bin)))?;
    let read = |name: &str| std::fs::read_to_string(Path::new(&work).join(name)).unwrap_or_default();
    let fine = finished.status.success() && read("rc").trim() == "0" && read("out").contains("written and read");
    ensure(fine, || format!("{line}\n{}{}\n{}", finished.describe(), read("out"), read("kernel.log")))
}

/// What a script in a small machine finds, by the name of its disk.
const LOOK: &str = r#"
echo "disk ${DISK#/dev/} of $(cat /sys/block/${DISK#/dev/}/size) blocks"
echo kept | dd of=$DISK bs=512 seek=8 count=1 conv=sync 2>/dev/null
sync
dd if=$DISK bs=512 skip=8 count=1 2>/dev/null | head -c 5
exit 7
"#;

/// `weir guest`, as it is printed and by the name of a volume: with the guest folder's kernel, busybox and QEMU.
fn small_machines(env: &Env) -> Outcome {
    with_printed(env, |node, lines| {
        let folder = env.folder()?;
        let script = folder.join("look.sh");
        std::fs::write(&script, LOOK).context(|| script.display().to_string())?;
        let qemu = host_program(env, "qemu")?;
        let modules = env.guest_dir.join("kern/root/usr/lib/modules");
        let modules = std::fs::read_dir(&modules).context(|| modules.display().to_string())?;
        let modules = modules.filter_map(Result::ok).next().ok_or("the guest folder has no modules")?.path();
        let with_machine = format!(
            "--accel tcg --qemu {} --kernel {} --modules {} --busybox {}",
            qemu.display(),
            env.guest_dir.join("boot/vmlinux").display(),
            modules.display(),
            env.guest_dir.join("usr/bin/busybox").display()
        );
        let printed = containing(lines, " guest vhost-user:", 1)?[0].to_string();
        let line = |rest: &str| {
            format!(
                "{} {with_machine}",
                printed.split_once(" guest ").map_or("", |(program, _)| program).to_string() + " guest " + rest
            )
        };
        let look = |line: String, disk: &str| {
            let done = shell(env, &line)?;
            let said = done.stdout.replace('\r', "");
            ensure(done.status.code() == Some(7) && said.contains(disk) && said.contains("\nkept\n"), || {
                format!("{line}: {}\n{said}{}", done.status, done.stderr)
            })
        };
        look(format!("{printed} {with_machine} --run {}", script.display()), "disk vda of 524288 blocks")?;
        // Other nodes of this user may run as well.
        let api = format!("--api unix:{}", node.api().display());
        let of_volume = format!("{} {api}", node.socket("vp.sock").display());
        look(line(&format!("{of_volume} --run {}", script.display())), "disk nvme0n1 of 131072 blocks")?;
        let asked = shell(env, &line(&format!("v0 {api}")))?;
        ensure(asked.status.code() == Some(1) && asked.stderr.contains("which one? There is"), || {
            asked.stderr.clone()
        })?;
        let lost = shell(env, &line("vfio-user:/nowhere.sock"))?;
        ensure(lost.stderr.contains("/nowhere.sock: ") && lost.stderr.contains("is the node running?"), || {
            lost.stderr.clone()
        })?;
        // Debian 12's QEMU, as far as its version goes.
        let old = folder.join("old-qemu");
        std::fs::write(&old, "#!/bin/sh\necho QEMU emulator version 7.2.9\n").context(|| old.display().to_string())?;
        shell(env, &format!("chmod +x {}", old.display()))?.success("chmod")?;
        let refused = shell(env, &line(&of_volume).replace(&qemu.display().to_string(), &old.display().to_string()))?;
        ensure(refused.status.code() == Some(1) && refused.stderr.contains("vfio-user needs 10.1"), || {
            refused.stderr.clone()
        })
    })
}
