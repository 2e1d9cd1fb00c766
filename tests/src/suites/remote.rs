//! A drive on another drive over NVMe/TCP: requests that a killed process left there are over before the next one sends any.

use std::net::SocketAddr;
use std::time::Duration;

use super::{long, test};
use crate::bench::Bench;
use crate::guest::Guest;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, with_node};
use crate::process::until;
use crate::proxy::Proxy;
use crate::vfio::{Drive, Queue, ams, in_turn, io};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "remote";
    vec![
        test(S, "a_late_write_does_not_undo_a_newer_one", |env| late(env, "keeper = true", Node::kill_worker_too)),
        long(S, "a_late_write_of_a_whole_node_neither", |env| late(env, "", Node::kill_and_start)),
        long(S, "a_late_write_to_linux_does_not_undo_a_newer_one", linux_late),
        long(S, "linux_serves_through_kills", linux_kills),
        long(S, "a_drive_that_was_idle_goes_on", idle),
        test(S, "a_drive_outlives_its_association", outlives),
        test(S, "commands_fail_where_the_target_stays_away", stays_away),
        test(S, "a_node_that_was_killed_goes_on_when_its_target_says_so", goes_on),
    ]
}

const SOCKET: &str = "a.sock";
/// How late the way to the target is, when it is.
const LATE: Duration = Duration::from_secs(2);

fn behind(port: u16, node: &str) -> Setup {
    let media = format!("nvme:nvme-tcp://127.0.0.1:{port}/{NQN}?ns=1");
    Setup { media, node: node.into(), ..Setup::default() }.vfio(SOCKET, "")
}

impl Node {
    /// The worker; the next one follows.
    fn kill_worker_too(&mut self) -> Outcome {
        self.kill_worker()
    }
}

fn connect(node: &Node) -> Result<(Drive, Queue), String> {
    let mut drive = in_turn(|| Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN))?;
    let queue = drive.create_queue(1, 16, 0, None)?;
    Ok((drive, queue))
}

/// How long a node may take that waits for the end of an association.
const WAIT: Duration = Duration::from_secs(60);

/// Writes (01h) or reads (02h) the first block.
fn block(drive: &mut Drive, queue: &mut Queue, opcode: u8, at: u64) -> Outcome {
    queue.submit(drive, 0x55, io(opcode, 0, 1, (at, 0)))?;
    drive.ring(queue)?;
    let done = drive.await_completion(queue, WAIT)?.ok_or("an I/O command does not complete")?;
    ensure(done.status == 0, || format!("command {opcode:#x}: status {:#x}", done.status))
}

/// A write is on its way when the process that has sent it is killed, and reaches the target late. Meanwhile the block is written again.
fn late(env: &Env, keys: &str, kill: fn(&mut Node) -> Outcome) -> Outcome {
    with_node(env, &Setup::default(), |target| late_to(env, target.address(), keys, kill))
}

fn late_to(env: &Env, target: SocketAddr, keys: &str, kill: fn(&mut Node) -> Outcome) -> Outcome {
    let proxy = Proxy::start(target, LATE)?;
    with_node(env, &behind(proxy.port, keys), |node| {
        let (mut drive, mut queue) = connect(node)?;
        let page = drive.allocate(4096);
        drive.write(page, &[1; 512])?;
        block(&mut drive, &mut queue, 0x01, page)?;
        proxy.slow_down();
        drive.write(page, &[2; 512])?;
        queue.submit(&drive, 1, io(0x01, 0, 1, (page, 0)))?;
        drive.ring(&queue)?;
        std::thread::sleep(Duration::from_millis(200));
        kill(node)?;
        if keys.is_empty() {
            // The command that was cut may or may not be carried out. The host is a new one.
            drop(drive);
            (drive, queue) = connect(node)?;
        } else {
            let done = drive.await_completion(&mut queue, WAIT)?;
            ensure(done.is_some_and(|done| done.status == 0), || format!("the write that was cut: {done:?}"))?;
        }
        let page = drive.allocate(4096);
        drive.write(page, &[3; 512])?;
        block(&mut drive, &mut queue, 0x01, page)?;
        std::thread::sleep(LATE + LATE);
        drive.write(page, &[0; 512])?;
        block(&mut drive, &mut queue, 0x02, page)?;
        let mut found = [0; 512];
        drive.read(page, &mut found)?;
        ensure(found == [3; 512], || format!("write {} has come after write 3", found[0]))
    })
}

/// Linux's own target, in a guest, with 256 MiB of memory behind it.
const NVMET: &str = r#"
modprobe virtio_net
ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
insmod /t/configfs.ko; insmod /t/nvmet.ko; insmod /t/nvmet-tcp.ko; insmod /t/brd.ko rd_nr=1 rd_size=262144
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/SUBSYSTEM; echo 1 >subsystems/SUBSYSTEM/attr_allow_any_host
mkdir subsystems/SUBSYSTEM/namespaces/1; echo -n /dev/ram0 >subsystems/SUBSYSTEM/namespaces/1/device_path
echo 1 >subsystems/SUBSYSTEM/namespaces/1/enable
mkdir ports/1; echo tcp >ports/1/addr_trtype; echo ipv4 >ports/1/addr_adrfam
echo 10.0.2.15 >ports/1/addr_traddr; echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/SUBSYSTEM ports/1/subsystems/SUBSYSTEM
echo serving
sleep 600
"#;

fn with_linux(env: &Env, test: impl FnOnce(SocketAddr) -> Outcome) -> Outcome {
    let port = env.free_port()?;
    let net = format!("user,id=un1,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:4420");
    let qemu = ["-netdev", &net, "-device", "virtio-net-pci,netdev=un1,romfile="].map(String::from);
    let guest = Guest { cpus: 1, net: false, qemu: &qemu, limit: 300 };
    let mut linux = guest.start(env, &env.folder()?, &NVMET.replace("SUBSYSTEM", NQN))?;
    until(WAIT, "Linux's target serves", || {
        let printed = linux.stdout();
        ensure(linux.running(), || format!("the guest ended:\n{printed}{}", linux.stderr()))?;
        Ok(printed.lines().any(|line| line == "serving").then_some(()))
    })?;
    test(([127, 0, 0, 1], port).into())
}

fn linux_late(env: &Env) -> Outcome {
    with_linux(env, |target| late_to(env, target, "keeper = true", Node::kill_worker_too))
}

/// What was written before a worker was killed is there, and what was in flight is as it was asked for.
fn linux_kills(env: &Env) -> Outcome {
    with_linux(env, |target| {
        with_node(env, &behind(target.port(), "keeper = true").socket("gold.sock"), |node| {
            let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "8", "--region", "16MiB", "--verify", "crc32c"];
            let load = Bench::start(env, &node.socket_target("gold.sock"), &[&args[..], &["--time", "30s"]].concat())?;
            for _ in 0..3 {
                std::thread::sleep(Duration::from_secs(1));
                let before = node.worker()?;
                node.kill_worker()?;
                until(WAIT, "another worker", || Ok((node.worker()? != before).then_some(())))?;
            }
            load.finish()?.clean()
        })
    })
}

/// The association is lost with a write on its way, and the target is not to be reached for a while. The write is carried out, and is not
/// carried out once more when it has been overwritten.
fn outlives(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |target| {
        let proxy = Proxy::start(target.address(), LATE)?;
        with_node(env, &behind(proxy.port, ""), |node| {
            let (mut drive, mut queue) = connect(node)?;
            let page = drive.allocate(4096);
            for round in 1..=3 {
                drive.write(page, &[round; 512])?;
                block(&mut drive, &mut queue, 0x01, page)?;
                proxy.cut(false);
                drive.write(page, &[round + 100; 512])?;
                queue.submit(&drive, 1, io(0x01, 0, 1, (page, 0)))?;
                drive.ring(&queue)?;
                std::thread::sleep(Duration::from_millis(300));
                ensure(node.cli_ok(&["status", "--json"])?.contains("fault"), || "status does not tell of it".into())?;
                proxy.let_in();
                let done = drive.await_completion(&mut queue, WAIT)?;
                ensure(done.is_some_and(|done| done.status == 0), || format!("round {round}: the write: {done:?}"))?;
                drive.write(page, &[0; 512])?;
                block(&mut drive, &mut queue, 0x02, page)?;
                let mut found = [0; 512];
                drive.read(page, &mut found)?;
                ensure(found == [round + 100; 512], || format!("round {round}: {} is there", found[0]))?;
            }
            ensure(!node.cli_ok(&["status", "--json"])?.contains("fault"), || "status tells of a fault still".into())
        })
    })
}

/// Commands wait as long as the configuration says, and the drive serves again when the target is there.
fn stays_away(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |target| {
        let proxy = Proxy::start(target.address(), LATE)?;
        with_node(env, &behind(proxy.port, "").device("keep_alive_tmo = \"1s\"\nfast_io_fail_tmo = \"1s\""), |node| {
            let (mut drive, mut queue) = connect(node)?;
            let page = drive.allocate(4096);
            block(&mut drive, &mut queue, 0x01, page)?;
            proxy.cut(false);
            let failed = block(&mut drive, &mut queue, 0x01, page);
            // Internal Path Error (SCT 3h, SC 00h).
            ensure(failed == Err("command 0x1: status 0x300".into()), || format!("the target is away: {failed:?}"))?;
            proxy.let_in();
            until(WAIT, "the drive serves again", || Ok(block(&mut drive, &mut queue, 0x01, page).ok()))
        })
    })
}

/// The whole node was killed: the next one need not wait for the target's keep alive timer.
fn goes_on(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |target| {
        with_node(env, &behind(target.port, ""), |node| {
            let (mut drive, mut queue) = connect(node)?;
            let page = drive.allocate(4096);
            block(&mut drive, &mut queue, 0x01, page)?;
            node.kill_and_start()?;
            drop(drive);
            (drive, queue) = connect(node)?;
            let page = drive.allocate(4096);
            block(&mut drive, &mut queue, 0x02, page)?;
            let told = node.process().stderr();
            ensure(!told.contains("may have requests") && !told.contains("keep alive timeout"), || {
                format!("it has waited for the timer: {told}")
            })
        })
    })
}

/// Nobody uses the drive for longer than its target's keep alive timeout.
fn idle(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |target| {
        with_node(env, &behind(target.port, ""), |node| {
            let (mut drive, mut queue) = connect(node)?;
            let page = drive.allocate(4096);
            block(&mut drive, &mut queue, 0x01, page)?;
            std::thread::sleep(Duration::from_secs(20));
            block(&mut drive, &mut queue, 0x02, page)
        })
    })
}
