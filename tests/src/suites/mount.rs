//! A store mounted by FUSE, as programs use it: trees copied, repositories and databases, fio, random operations beside a model, and the ends of
//! the mount, of the service and of the node. Where the machine has no FUSE the tests count as skipped.

mod ends;
mod fsx;
mod model;
mod programs;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup};
use crate::process::{self, Process, until};
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "mount";
    vec![
        test(S, "names_attributes_and_what_is_refused", names),
        test(S, "a_file_without_a_name_is_read_and_written", without_a_name),
        test(S, "a_tree_comes_back_as_it_was", tree),
        test(S, "git_and_sqlite_work_on_it", programs),
        test(S, "fio_verifies_what_it_wrote", fio),
        test(S, "random_operations_as_on_tmpfs", model::short),
        test(S, "with_the_kernel_gathering_writes", write_back),
        test(S, "what_others_change_is_seen_and_two_writers_are_not_mixed", others),
        test(S, "a_full_class_is_said_and_passes", full),
        test(S, "it_ends_by_signals_and_by_umount", ends::ends),
        test(S, "a_mount_that_is_killed_loses_nothing_that_was_synced", ends::mount_killed),
        test(S, "a_node_that_is_killed_under_load_comes_back", ends::node_killed),
        test(S, "a_store_that_is_gone_fails_in_time", ends::store_gone),
        long(S, "a_session_that_is_over_is_followed_by_another", ends::session_over),
        test(S, "random_operations_of_one_file_as_fsx_has_them", fsx::short),
        test(S, "fio_goes_on_while_the_node_is_upgraded", |env| programs::upgrades(env, 2)),
        long(S, "make_builds_a_tree_and_what_was_changed", |env| programs::make(env, 300)),
        long(S, "many_operations_of_one_file_as_fsx_has_them", fsx::long),
        long(S, "fio_goes_on_over_many_upgrades", |env| programs::upgrades(env, 12)),
        long(S, "many_random_operations_as_on_tmpfs", model::long),
        long(S, "stress_ng_of_the_file_system", stress),
    ]
}

/// A node with a store: a RAM drive and a file drive. The file drive stays when the node is killed.
fn setup() -> Setup {
    let device = |name: &str, media: &str, capacity: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nmedia = \"{media}\"\ncapacity = \"{capacity}\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n"
        )
    };
    let donate = |name: &str, class: &str| format!("[[store.donate]]\ndevice = \"{name}\"\nclass = \"{class}\"\n");
    let whole = "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
        .to_owned()
        + &device("ram0", "ram", "320MiB")
        + &device("file0", "file:flash.img", "1GiB")
        + "[store]\nmeta = \"redb:store.redb\"\nlisten = \"unix:meta.sock\"\n"
        + &donate("ram0", "dram")
        + &donate("file0", "flash");
    Setup { whole, ..Setup::default() }
}

/// A mounted store. Dropped, the directory is taken out of sight and the process ends.
struct Mount {
    process: Process,
    dir: PathBuf,
    weir: PathBuf,
}

impl Mount {
    /// Mounts a node's store on a new directory.
    fn start(env: &Env, node: &Node, args: &[&str]) -> Result<Self, String> {
        Self::start_on(env, node, &env.folder()?, args)
    }

    /// Mounts it on a directory that is there.
    fn start_on(env: &Env, node: &Node, dir: &Path, args: &[&str]) -> Result<Self, String> {
        let (store, at) = (store(node), dir.display().to_string());
        let all = [&["fs", "--store", &store, "mount"], args, &[&at]].concat();
        let process = Process::start(&env.folder()?, "weir-mount", &env.weir, all)?;
        let mut mount = Self { process, dir: dir.into(), weir: env.weir.clone() };
        until(Duration::from_secs(10), "the store is mounted", || {
            if !mount.process.running() {
                return Err(format!("weir fs mount ended: {}", mount.process.stderr()));
            }
            Ok(mount.process.stdout().contains("is mounted on").then_some(()))
        })?;
        Ok(mount)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Unmounts as users do; the process ends by itself, and well.
    fn end(mut self) -> Outcome {
        let at = self.dir.display().to_string();
        let log = |e: String, mount: &Self| format!("{e}\n{}", mount.process.stderr());
        // Others on the machine may look into it at this moment.
        until(Duration::from_secs(10), "weir fs umount", || {
            let ended = process::run(Path::new("/"), &self.weir, ["fs", "umount", &at], Duration::from_secs(10))?;
            let is_busy = ended.stderr.contains("busy");
            ended.success("weir fs umount").map(Some).or_else(|e| if is_busy { Ok(None) } else { Err(e) })
        })
        .map_err(|e| log(e, &self))?;
        self.await_end()
    }

    fn await_end(&mut self) -> Outcome {
        let process = &mut self.process;
        until(Duration::from_secs(20), "the mount's process ends", || Ok((!process.running()).then_some(())))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", "-i", "--"]).arg(&self.dir).output();
        let _ = self.process.signal(Signal::KILL);
    }
}

fn store(node: &Node) -> String {
    format!("unix:{}", node.socket("meta.sock").display())
}

/// Runs a test with a node, unless this machine has no FUSE.
fn with_fuse(env: &Env, run: impl FnOnce(Node) -> Outcome) -> Outcome {
    with_fuse_of(env, &setup(), run)
}

/// The same with a node of that configuration.
fn with_fuse_of(env: &Env, setup: &Setup, run: impl FnOnce(Node) -> Outcome) -> Outcome {
    if !Path::new("/dev/fuse").exists() {
        env.skip("there is no /dev/fuse: modprobe fuse");
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        env.skip("run it as root: it mounts and unmounts");
        return Ok(());
    }
    run(Node::start(env, setup)?)
}

/// The same with a mount, which is unmounted at the end.
fn with_mount(env: &Env, args: &[&str], run: impl FnOnce(&Node, &Mount) -> Outcome) -> Outcome {
    with_fuse(env, |node| {
        let mount = Mount::start(env, &node, args)?;
        run(&node, &mount).map_err(|e| format!("{e}\nmount:\n{}\n{}", mount.process.stderr(), node.log()))?;
        mount.end()
    })
}

/// A script of bash, in a folder.
fn bash(dir: &Path, script: &str, limit: u64) -> Result<String, String> {
    let args = ["-euc", script];
    process::run(dir, Path::new("bash"), args, Duration::from_secs(limit))?.success(script)
}

/// The same in the mount; the output lies outside.
fn bash_in(env: &Env, mount: &Mount, script: &str, limit: u64) -> Result<String, String> {
    let script = format!("cd '{}'\n{script}", mount.dir.display());
    bash(&env.folder()?, &script, limit)
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    fs::write(path, bytes).context(|| path.display().to_string())
}

/// Whether it is refused with that number.
fn refused<T>(what: &str, result: std::io::Result<T>, errno: i32) -> Outcome {
    match result {
        Ok(_) => Err(format!("{what} succeeded")),
        Err(e) => ensure(e.raw_os_error() == Some(errno), || format!("{what}: {e}")),
    }
}

const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;

fn names(env: &Env) -> Outcome {
    with_mount(env, &[], |node, mount| {
        let (a, b, dir) = (mount.at("a"), mount.at("b"), mount.at("dir"));
        let e = |what: &str| what.to_owned();
        write(&a, b"first")?;
        fs::create_dir(&dir).context(|| e("mkdir"))?;
        refused("mkdir again", fs::create_dir(&dir), EEXIST)?;
        write(&dir.join("x"), b"x")?;
        refused("rmdir of what is not empty", fs::remove_dir(&dir), ENOTEMPTY)?;
        refused("a hard link", fs::hard_link(&a, &b), EPERM)?;
        refused("a long name", fs::write(mount.at(&"n".repeat(256)), b""), ENAMETOOLONG)?;
        write(&mount.at(&"n".repeat(255)), b"")?;
        let fifo = process::run(&env.folder()?, Path::new("mkfifo"), [mount.at("fifo")], Duration::from_secs(5))?;
        ensure(!fifo.status.success() && fifo.stderr.contains("not permitted"), || fifo.describe())?;
        // A rename takes the place of what is there.
        write(&b, b"second")?;
        fs::rename(&a, &b).context(|| e("rename"))?;
        ensure(fs::read(&b).ok().as_deref() == Some(b"first") && !a.exists(), || e("renamed"))?;
        symlink("dir/x", mount.at("link")).context(|| e("symlink"))?;
        ensure(fs::read(mount.at("link")).ok().as_deref() == Some(b"x"), || e("through the link"))?;
        fs::set_permissions(&b, fs::Permissions::from_mode(0o640)).context(|| e("chmod"))?;
        bash_in(env, mount, "touch -d '2001-02-03 04:05:06.5 UTC' b; chown 7:8 b", 10)?;
        let meta = fs::metadata(&b).context(|| e("stat"))?;
        let found = (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec(), meta.len());
        ensure(found == (0o640, 7, 8, 981_173_106, 500_000_000, 5), || format!("{found:?}"))?;
        // The time of the last write stays what it was when the file is closed, and is the store's.
        let mut file = OpenOptions::new().append(true).open(&b).context(|| e("open"))?;
        file.write_all(b" more").context(|| e("append"))?;
        let before = file.metadata().context(|| e("fstat"))?;
        drop(file);
        let listed = node.cli_ok(&["fs", "--store", &store(node), "stat", "/b", "--json"])?;
        let after = fs::metadata(&b).context(|| e("stat"))?;
        ensure(before.modified().ok() == after.modified().ok() && after.len() == 10, || {
            format!("{before:?} {after:?}")
        })?;
        ensure(listed.contains("\"size\": 10"), || listed.clone())?;
        let said = bash_in(env, mount, ATTRIBUTES, 20)?;
        ensure(
            said == "weir.block weir.class weir.copies user.a\nb'1' b'dram' b'xyz'\nOSError 95\nOSError 61\n",
            || said,
        )?;
        let df = bash_in(env, mount, "df --output=size,avail . | tail -n 1", 10)?;
        let numbers: Vec<u64> = df.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        ensure(numbers.len() == 2 && numbers[0] > 1_000_000 && numbers[1] <= numbers[0], || df)
    })
}

/// Extended attributes, by Python: the names in order, those of the store, and what is refused (EOPNOTSUPP, ENODATA).
const ATTRIBUTES: &str = r#"python3 - <<'EOF'
import os
os.setxattr('b', 'user.a', b'xyz')
names = os.listxattr('b')
print(*sorted(n for n in names if n.startswith('weir')), *(n for n in names if n.startswith('user')))
os.setxattr('b', 'weir.class', b'dram')
print(os.getxattr('b', 'weir.copies'), os.getxattr('b', 'weir.class'), os.getxattr('b', 'user.a'))
for what in (lambda: os.setxattr('b', 'security.x', b''), lambda: os.getxattr('b', 'user.none')):
    try:
        what()
    except OSError as e:
        print('OSError', e.errno)
EOF"#;

fn without_a_name(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| {
        let path = mount.at("gone");
        let e = |what: &'static str| move || what.to_owned();
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).context(e("create"))?;
        file.write_all(&vec![7; 3 << 20]).context(e("write"))?;
        fs::remove_file(&path).context(e("unlink"))?;
        ensure(!path.exists(), e("the name is gone"))?;
        file.write_all(b"behind").context(e("write behind"))?;
        file.sync_all().context(e("fsync"))?;
        let meta = file.metadata().context(e("fstat"))?;
        ensure(meta.nlink() == 0 && meta.len() == (3 << 20) + 6, || format!("{meta:?}"))?;
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).context(e("seek"))?;
        file.read_to_end(&mut bytes).context(e("read"))?;
        ensure(bytes.ends_with(b"\x07behind") && bytes.len() == (3 << 20) + 6, || format!("{} bytes", bytes.len()))?;
        // A file that is replaced while it is read is read to its end.
        write(&path, b"old")?;
        let mut old = fs::File::open(&path).context(e("open"))?;
        write(&mount.at("new"), b"new bytes")?;
        fs::rename(mount.at("new"), &path).context(e("rename"))?;
        let mut text = String::new();
        old.read_to_string(&mut text).context(e("read the old one"))?;
        ensure(text == "old" && fs::read(&path).ok().as_deref() == Some(b"new bytes"), || text.clone())
    })
}

/// Copies parts of `$1` into `$2` by three programs, compares them, and removes them again.
const TREE: &str = r#"
cd "$2"; mkdir m r c; cd "$1"
tar cf - node | tar xf - -C "$2/m"
rsync -a tests "$2/r/"
cp -a docs "$2/c/"
diff -r --no-dereference node "$2/m/node"
diff -r --no-dereference tests "$2/r/tests"
diff -r --no-dereference docs "$2/c/docs"
rsync -ain node "$2/m/"; rsync -ain tests "$2/r/"; rsync -ain docs "$2/c/"
find "$2" -mindepth 2 | wc -l; find node tests docs | wc -l
rm -r "$2/m" "$2/r" "$2/c"; ls -A "$2"
"#;

/// The sources and pages of this project, by tar, rsync and cp: compared with their times and permissions.
fn tree(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| {
        let args = [&"-euc".to_owned(), &TREE.to_owned(), &"bash".to_owned()].map(String::from);
        let paths = [bindings::root(env), mount.dir.clone()].map(|path| path.display().to_string());
        let all = args.into_iter().chain(paths);
        let said = process::run(&env.folder()?, Path::new("bash"), all, Duration::from_secs(120))?.success("copies")?;
        let lines: Vec<&str> = said.lines().collect();
        ensure(lines.len() == 2 && lines[0] == lines[1] && lines[0] > "1", || said.clone())
    })
}

fn programs(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| {
        let git = "export GIT_CONFIG_GLOBAL=/dev/null HOME=/nonexistent\n\
             g() { git -c user.name=t -c user.email=t@t -c init.defaultBranch=main -c safe.directory='*' \"$@\"; }\n\
             g init -q one; cd one; for i in $(seq 60); do mkdir -p d$((i % 7)); seq $i 900 >d$((i % 7))/f$i; done\n\
             g add -A; g commit -qm one; for i in $(seq 10); do echo $i >>d1/f1; g commit -qam more; done\n\
             g gc -q; cd ..; g clone -q one two; g -C two fsck --strict 2>&1 | grep -v '^dangling' || true\n\
             g -C two log --oneline | wc -l; g -C two status --porcelain; diff -r --exclude .git one two && echo same";
        let said = bash_in(env, mount, git, 60)?;
        ensure(said == "11\nsame\n", || said)?;
        let said = bash_in(env, mount, SQLITE, 60)?;
        ensure(said == "delete ok 300 44850\nwal ok 600 179700\n", || said)
    })
}

/// Two connections, in both kinds of journal; the second one sees what the first has committed.
const SQLITE: &str = r#"python3 - <<'EOF'
import sqlite3
done = 0
for mode in ('delete', 'wal'):
    a = sqlite3.connect('db'); b = sqlite3.connect('db')
    mode = a.execute('pragma journal_mode=' + mode).fetchone()[0]
    a.execute('create table if not exists t(n integer primary key, x blob)')
    for i in range(0, 300, 30):
        with a:
            a.executemany('insert into t values(?, ?)', [(done + i + j, bytes(2000)) for j in range(30)])
        assert b.execute('select count(*) from t').fetchone()[0] == done + i + 30
    done += 300
    check = b.execute('pragma integrity_check').fetchone()[0]
    print(mode, check, *b.execute('select count(*), sum(n) from t').fetchone())
    a.close(); b.close()
EOF"#;

const FIO: &str = "--name=v --size=8m --verify=crc32c --verify_fatal=1 --rw=randrw --minimal --fallocate=none --unlink=1 --verify_state_save=0";

fn fio(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| {
        let jobs = [
            "--ioengine=psync --bsrange=1k-64k",
            "--ioengine=psync --bs=4k --direct=1",
            "--ioengine=libaio --bs=16k --direct=1 --iodepth=16",
            "--ioengine=psync --bs=8k --fsync=8",
            "--ioengine=mmap --bs=4k",
        ];
        for job in jobs {
            let said = bash_in(env, mount, &format!("fio {FIO} {job} | cut -d';' -f5; ls -A"), 60)?;
            ensure(said == "0\n", || format!("{job}: {said}"))?;
        }
        Ok(())
    })?;
    with_mount(env, &["--direct-io"], |_, mount| {
        let said = bash_in(env, mount, &format!("fio {FIO} --ioengine=psync --bsrange=1k-64k | cut -d';' -f5"), 60)?;
        ensure(said == "0\n", || said)
    })
}

fn write_back(env: &Env) -> Outcome {
    with_mount(env, &["--write-back"], |node, mount| {
        let said = bash_in(env, mount, &format!("fio {FIO} --ioengine=psync --bsrange=512-6k | cut -d';' -f5"), 60)?;
        ensure(said == "0\n", || said)?;
        model::run(env, mount, 3, 300)?;
        // What was closed is in the store, with its size.
        bash_in(env, mount, "for i in $(seq 2000); do echo $i; done >lines", 20)?;
        let got = node.cli_ok(&["fs", "--store", &store(node), "cat", "/lines"])?;
        ensure(got.lines().count() == 2000 && got.ends_with("\n2000\n"), || format!("{} lines", got.lines().count()))
    })
}

fn others(env: &Env) -> Outcome {
    with_mount(env, &["--cache", "0"], |node, mount| {
        let (path, store) = (mount.at("f"), store(node));
        let outside = env.folder()?.join("g");
        let from = outside.display().to_string();
        write(&path, &vec![1; 200_000])?;
        ensure(fs::read(&path).is_ok_and(|b| b == vec![1; 200_000]), || "read back".into())?;
        // Another client puts another file in its place, then writes over it: the kernel's pages are not believed.
        for byte in [2, 3] {
            write(&outside, &vec![byte; 200_001])?;
            node.cli_ok(&["fs", "--store", &store, "put", "-f", &from, "/f"])?;
            let now = fs::read(&path).context(|| "read".into())?;
            ensure(now == vec![byte; 200_001], || format!("{} bytes of {:?}", now.len(), now.first()))?;
        }
        // Two mounts: the second writer is refused, and the first one's bytes are whole.
        let second = Mount::start(env, node, &[])?;
        let mut writer = OpenOptions::new().write(true).open(&path).context(|| "open to write".into())?;
        refused("a second writer", OpenOptions::new().write(true).open(second.at("f")), EBUSY)?;
        ensure(second.process.stderr().contains("open /f: another client has the file open for writing"), || {
            second.process.stderr()
        })?;
        writer.write_all(b"mine").context(|| "write".into())?;
        drop(writer);
        ensure(fs::read(second.at("f")).is_ok_and(|b| b.starts_with(b"mine\x03")), || "the first one's".into())?;
        // A file that another mount appends to is followed.
        write(&path, b"one")?;
        let (mut follower, mut text) = (fs::File::open(&path).context(|| "open".into())?, String::new());
        follower.read_to_string(&mut text).context(|| "read".into())?;
        bash_in(env, &second, "printf two >>f", 10)?;
        until(Duration::from_secs(10), "the appended bytes are read", || {
            follower.metadata().and_then(|_| follower.read_to_string(&mut text)).context(|| "read on".into())?;
            Ok((text == "onetwo").then_some(()))
        })?;
        write(&path, &vec![3; 200_001])?;
        second.end()?;
        // Deleted by another client while it is read.
        let mut open = fs::File::open(&path).context(|| "open".into())?;
        node.cli_ok(&["fs", "--store", &store, "rm", "/f"])?;
        let mut bytes = Vec::new();
        open.read_to_end(&mut bytes).context(|| "read a file that was deleted".into())?;
        ensure(bytes.len() == 200_001 && !path.exists(), || format!("{} bytes", bytes.len()))?;
        let third = Mount::start(env, node, &["--read-only"])?;
        refused("a write to a read-only mount", fs::write(third.at("x"), b""), EROFS)?;
        third.end()
    })
}

fn full(env: &Env) -> Outcome {
    with_mount(env, &["--class", "dram"], |_, mount| {
        let fill = |name: &str| -> std::io::Result<()> {
            let mut file = fs::File::create(mount.at(name))?;
            for _ in 0..512 {
                file.write_all(&vec![9; 1 << 20])?;
            }
            file.sync_all()
        };
        refused("512 MiB in 320 MiB", fill("large"), ENOSPC)?;
        ensure(mount.process.stderr().contains("no class of the file has room"), || mount.process.stderr())?;
        fs::remove_file(mount.at("large")).context(|| "remove".into())?;
        // The room comes back when no client has an older map.
        until(Duration::from_secs(60), "there is room again", || {
            let again = fs::write(mount.at("small"), vec![1; 8 << 20]);
            Ok(again.ok())
        })?;
        ensure(fs::read(mount.at("small")).is_ok_and(|b| b == vec![1; 8 << 20]), || "read back".into())
    })
}

fn stress(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| {
        let stressors = "dir dirmany dentry filename fiemap flock fstat getdent hdd io lockf open readahead rename seek symlink \
             sync-file utime xattr fallocate aio fcntl chmod chown";
        for stressor in stressors.split_whitespace() {
            let run = format!(
                "stress-ng --temp-path . --{stressor} 2 --timeout 5s --verify --hdd-bytes 32m 2>&1; ls -A | wc -l"
            );
            let said = bash_in(env, mount, &run, 120).map_err(|e| format!("{stressor}: {e}"))?;
            ensure(said.ends_with("\n0\n"), || format!("{stressor}: {said}"))?;
        }
        Ok(())
    })
}
