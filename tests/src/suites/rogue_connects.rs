//! A tenant that takes all the connections it gets, beside tenants that come and go: each of their connects has to succeed.
//!
//! Bronze is everybody that is not gold or silver (`*`). Gold and silver connect, read a block and go, again and again, while bronze holds
//! controllers without a keep alive timer (of one host, and of as many hosts as it likes), or sockets on which it says nothing. An
//! upgrade in between changes nothing about who may have how many.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::process::stop;
use crate::raw::nvme_tcp::{self as wire, Data, Host};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "rogue";
    vec![
        test(S, "connects_beside_a_hoard_of_controllers", |env| hoard(env, &setup(""))),
        test(S, "connects_beside_silent_sockets", silent),
        test(S, "connects_where_controllers_run_out", few_controllers),
        test(S, "connects_where_a_volumes_controllers_run_out", few_of_a_volume),
        test(S, "a_volume_exported_by_the_api_has_its_own_controllers", few_of_an_exported),
        test(S, "connects_while_no_worker_accepts", nobody_accepts),
        test(S, "connects_among_sockets_that_have_gone", among_gone),
        test(S, "connects_beside_a_flood_of_its_own_address", |env| flood(env, &setup(""), Flood::SILENT)),
        test(S, "connects_beside_a_flood_of_icreqs_of_its_own_address", |env| flood(env, &setup(""), Flood::ICREQS)),
        long(S, "connects_beside_floods_at_full_speed", |env| {
            let fast = |how| flood(env, &setup(""), Flood { pause: Duration::ZERO, ..how });
            (0..10).try_for_each(|_| fast(Flood::SILENT).and_then(|()| fast(Flood::ICREQS)))
        }),
        test(S, "connects_to_another_core_beside_rogues", |env| {
            hoard(env, &on_two_cores())?;
            flood(env, &on_two_cores(), Flood::SILENT)
        }),
        test(S, "connects_over_a_network", over_a_network),
    ]
}

/// Connects of each victim beside each rogue.
const ROUNDS: usize = 20;
/// More than a node has room for.
const SOCKETS: usize = 1100;

fn setup(device: &str) -> Setup {
    let tenant = |name: &str| format!("\n[[tenant]]\nname = \"{name}\"\nhosts = [\"{}\"]\n", host_nqn(name));
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = true\n\
         [[device]]\nname = \"ssd0\"\nnqn = \"{NQN}\"\nmedia = \"ram\"\ncapacity = \"64MiB\"\n{device}\n{}{}\
         [[tenant]]\nname = \"bronze\"\nhosts = [\"*\"]\n\
         [[export]]\ndevice = \"ssd0\"\ndoor = \"nvme-tcp\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n",
        tenant("gold"),
        tenant("silver")
    );
    Setup { whole, ..Setup::default() }
}

/// The drive is on another core than the listener.
fn on_two_cores() -> Setup {
    let Setup { whole, .. } = setup("");
    let first = "cores = [0, 1]\nkeeper = true\n[[device]]\nname = \"first\"\ncapacity = \"16MiB\"\n";
    Setup { whole: whole.replace("cores = [0]\nkeeper = true\n", first), ..Setup::default() }
}

/// As many sockets as the rogue wants.
fn raise_descriptors() -> Outcome {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).context(|| "RLIMIT_NOFILE".into())
}

/// One connect of a victim, with a read: how long it took.
fn visit(address: SocketAddr, tenant: &str) -> Result<Duration, String> {
    let (begin, host) = (Instant::now(), host_nqn(tenant));
    let wrong = |e: String| format!("{tenant} cannot connect: {e}");
    let (_admin, cntlid) = Host::admin(address, &host, 15_000).map_err(wrong)?;
    let mut queue = Host::io_queue(address, &host, cntlid, 1).map_err(wrong)?;
    queue.send(&wire::io(0x02, 7, 0, 8, Data::Transport(4096)))?;
    while queue.receive()?.ok_or("the queue was closed")?.kind != wire::kind::RESPONSE {}
    Ok(begin.elapsed())
}

/// Gold and silver connect anew all the time; what they see beside `what` is printed.
fn victims(address: SocketAddr, what: &str) -> Outcome {
    for tenant in ["gold", "silver"] {
        let mut took = (0..ROUNDS).map(|_| visit(address, tenant)).collect::<Result<Vec<_>, _>>();
        let took = took.as_mut().map_err(|e| format!("beside {what}: {e}"))?;
        took.sort_unstable();
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        println!(
            "    {what:<38} {tenant:<6} connects in {:.2} ms (median of {ROUNDS}), {:.2} ms at most",
            ms(took[ROUNDS / 2]),
            ms(took[ROUNDS - 1])
        );
    }
    Ok(())
}

/// Controllers of hosts that these are called, until one is refused.
fn take_all(address: SocketAddr, host: impl Fn(usize) -> String) -> Result<Vec<Host>, String> {
    let mut all = Vec::new();
    while all.len() < SOCKETS {
        let mut one = Host::open(address)?;
        one.send(&wire::ic_req())?;
        let Some(wire::Pdu { kind: wire::kind::IC_RESP, .. }) = one.receive()? else { break };
        one.send(&wire::connect(1, 0, 0xffff, 0, &host(all.len()), NQN))?;
        match one.receive()? {
            Some(answer) if answer.status() == 0 => all.push(one),
            Some(answer) => {
                // Connect Controller Busy, which may be tried again.
                ensure(answer.status() & 0x47ff == 0x181, || format!("refused by status {:#x}", answer.status()))?;
                break;
            }
            None => break,
        }
    }
    Ok(all)
}

fn door(node: &Node, what: &str) -> Result<u64, String> {
    let status: Value = serde_json::from_str(&node.cli_ok(&["status", "--json"])?).context(|| "status".into())?;
    status["doors"][0][what].as_u64().ok_or_else(|| format!("no {what} in {}", status["doors"]))
}

fn connections_of(node: &Node, tenant: &str) -> Result<u64, String> {
    let tenants: Value =
        serde_json::from_str(&node.cli_ok(&["tenant", "ls", "--json"])?).context(|| "tenants".into())?;
    let all = tenants.as_array().into_iter().flatten();
    let one = all.filter(|t| t["name"] == tenant).find_map(|t| t["connections"].as_u64());
    one.ok_or_else(|| format!("no connections of {tenant} in {tenants}"))
}

fn hoard(env: &Env, setup: &Setup) -> Outcome {
    raise_descriptors()?;
    with_node(env, setup, |node| {
        let address = node.address();
        victims(address, "nobody")?;
        let one = take_all(address, |_| host_nqn("bronze"))?;
        victims(address, &format!("{} controllers of one host", one.len()))?;
        let more = take_all(address, |i| host_nqn(&format!("bronze{i}")))?;
        let all = one.len() + more.len();
        victims(address, &format!("{all} controllers of any host"))?;
        ensure(connections_of(node, "bronze")? == all as u64, || "tenant ls has another number".into())?;
        ensure(door(node, "refused")? == 2, || "status does not say how many were refused".into())?;
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        victims(address, "them after an upgrade")?;
        ensure(connections_of(node, "bronze")? == all as u64, || "not all of them were handed over".into())?;
        let after = take_all(address, |i| host_nqn(&format!("late{i}")))?;
        ensure(after.is_empty(), || format!("bronze has {} more after an upgrade", after.len()))?;
        drop((one, more));
        victims(address, "nobody again")
    })
}

/// A socket from that address of this machine.
fn open_from(source: Ipv4Addr, address: SocketAddr) -> Result<TcpStream, String> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).context(|| "socket".into())?;
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).context(|| format!("bind {source}"))?;
    rustix::net::connect(&socket, &address).context(|| format!("connect from {source}"))?;
    Ok(TcpStream::from(socket))
}

fn silent(env: &Env) -> Outcome {
    raise_descriptors()?;
    with_node(env, &setup(""), |node| {
        let address = node.address();
        victims(address, "nobody")?;
        let of_one = (0..SOCKETS).map(|_| Host::open(address)).collect::<Result<Vec<_>, _>>()?;
        victims(address, "1100 sockets of one address")?;
        drop(of_one);
        let any = |i: usize| open_from(Ipv4Addr::new(127, 1 + (i >> 8) as u8, i as u8, 1), address);
        let of_many = (0..SOCKETS).map(any).collect::<Result<Vec<_>, _>>()?;
        victims(address, "1100 sockets of 1100 addresses")?;
        ensure(door(node, "pushed_out")? > 0, || "status does not say that sockets were closed".into())?;
        ensure(door(node, "unconnected")? <= 512, || "more than 512 sockets are no queue".into())?;
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        victims(address, "them after an upgrade")?;
        drop(of_many);
        let stop = Arc::new(AtomicBool::new(false));
        let trickle = std::thread::spawn({
            let stop = stop.clone();
            move || trickle(address, &stop)
        });
        let beside = victims(address, "ICReqs that come byte by byte");
        stop.store(true, Ordering::Relaxed);
        trickle.join().map_err(|_| "the rogue's thread panicked".to_owned())??;
        beside
    })
}

/// Keeps 300 sockets on which an ICReq comes byte by byte; those that are closed come again.
fn trickle(address: SocketAddr, stop: &AtomicBool) -> Outcome {
    let request = wire::ic_req();
    let mut all: Vec<(Host, usize)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while all.len() < 300 {
            all.push((Host::open(address)?, 0));
        }
        all.retain_mut(|(host, sent)| {
            let byte = &request[*sent..*sent + 1];
            *sent += 1;
            *sent < request.len() && host.send(byte).is_ok()
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A drive with few controllers has some for each tenant.
fn few_controllers(env: &Env) -> Outcome {
    with_node(env, &setup("max_controllers = 12"), |node| {
        let address = node.address();
        let rogue = take_all(address, |i| host_nqn(&format!("bronze{i}")))?;
        ensure(rogue.len() == 8, || format!("bronze has {} of 12 controllers", rogue.len()))?;
        victims(address, "8 of 12 controllers")
    })
}

/// A volume has as many controllers as its configuration says, also after an upgrade.
fn few_of_a_volume(env: &Env) -> Outcome {
    let volume = "[[device]]\nname = \"d0\"\ncapacity = \"64MiB\"\n[[volume]]\nname = \"v\"\ntenant = \"bronze\"\nsize = \"8MiB\"\nexport = \"nvme-tcp\"\nmax_controllers = 5\n";
    let mut setup = setup("");
    setup.whole += volume;
    with_node(env, &setup, |node| {
        let nqn = "nqn.2026-11.io.weir:e2e:v";
        let open = |i: usize| Host::admin_of(nqn, node.address(), &host_nqn(&format!("bronze{i}")), 15_000);
        for when in ["at first", "after an upgrade"] {
            let all = (0..5).map(open).collect::<Result<Vec<_>, _>>().map_err(|e| format!("{when}: {e}"))?;
            let told = open(5).map_or_else(|e| e, |_| "it gets in".into());
            ensure(told.contains("status 0x4181") || told.contains("0x181"), || format!("{when}: the sixth: {told}"))?;
            node.cli_ok(&["upgrade", "--probation", "0s"])?;
            let told = open(6).map_or_else(|e| e, |_| "it gets in".into());
            ensure(told.contains("181"), || format!("{when}, upgraded: the sixth: {told}"))?;
            drop(all);
            until_alone(node)?;
        }
        Ok(())
    })
}

/// One that is exported by the API has as many as its export says, also after a crash.
fn few_of_an_exported(env: &Env) -> Outcome {
    let volume = "[[device]]\nname = \"d0\"\ncapacity = \"64MiB\"\n[[pool]]\nname = \"p\"\ndrives = [\"d0\"]\n";
    let mut setup = setup("");
    setup.whole += volume;
    with_node(env, &setup, |node| {
        node.cli_ok(&["volume", "create", "v", "8MiB", "--tenant", "bronze", "--pool", "p"])?;
        for (number, why) in [("0", "max_controllers: 0 is out of range"), ("65520", "1 to 65519 is allowed")] {
            let done = node.cli(&["export", "volume", "v", "nvme-tcp", "--max-controllers", number])?;
            ensure(!done.status.success() && done.stderr.contains(why), || {
                format!("--max-controllers {number}: {}", done.stderr)
            })?;
        }
        node.cli_ok(&["export", "volume", "v", "nvme-tcp", "--max-controllers", "5"])?;
        let second = node.cli(&["export", "volume", "v", "vhost-user:v.sock", "--max-controllers", "6"])?;
        ensure(second.stderr.contains("its first export has said it"), || {
            format!("a second export: {}", second.stderr)
        })?;
        let nqn = "nqn.2026-11.io.weir:e2e:v";
        let open = |i: usize| Host::admin_of(nqn, node.address(), &host_nqn(&format!("bronze{i}")), 15_000);
        let all = (0..5).map(open).collect::<Result<Vec<_>, _>>()?;
        let told = open(5).map_or_else(|e| e, |_| "it gets in".into());
        ensure(told.contains("181"), || format!("the sixth: {told}"))?;
        drop(all);
        until_alone(node)?;
        node.kill_worker()?;
        let all = (0..5).map(open).collect::<Result<Vec<_>, _>>().map_err(|e| format!("after a crash: {e}"))?;
        let told = open(5).map_or_else(|e| e, |_| "it gets in".into());
        drop(all);
        ensure(told.contains("181"), || format!("after a crash: the sixth: {told}"))
    })
}

/// Until the node has no connections.
fn until_alone(node: &Node) -> Outcome {
    crate::process::until(Duration::from_secs(10), "the hosts are gone", || {
        Ok((connections_of(node, "bronze")? == 0).then_some(()))
    })
}

/// More than std's listeners let wait.
const AT_ONCE: usize = 1000;

/// All hosts of a node come back at once, and its worker gets no core: each of their connections is made, none has to try again.
fn nobody_accepts(env: &Env) -> Outcome {
    raise_descriptors()?;
    with_node(env, &setup(""), |node| {
        let (address, worker) = (node.address(), node.worker()?);
        stop(worker)?;
        let open = |i: usize| {
            let connected = TcpStream::connect_timeout(&address, Duration::from_secs(10));
            connected.map_err(|e| format!("connect {i} of {AT_ONCE}, while no worker accepts: {e}"))
        };
        let waiting = (0..AT_ONCE).map(open).collect::<Result<Vec<_>, _>>();
        kill_process(worker, Signal::CONT).context(|| "SIGCONT".into())?;
        drop(waiting?);
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        visit(address, "gold").map(drop)
    })
}

/// While the worker gets no core, somebody at the victim's address opens sockets, says ICReq on each, and goes; the victim comes among
/// them, and they go on coming. What has gone must not take the place of who waits.
fn among_gone(env: &Env) -> Outcome {
    raise_descriptors()?;
    with_node(env, &setup(""), |node| {
        let (address, worker) = (node.address(), node.worker()?);
        let request = wire::ic_req();
        let come_and_go = || {
            let socket = TcpStream::connect_timeout(&address, Duration::from_secs(10));
            socket.and_then(|mut s| s.write_all(&request)).context(|| "a socket that goes".into())
        };
        let stop_flood = AtomicBool::new(false);
        for round in 0..5 {
            stop(worker)?;
            let told = std::thread::scope(|scope| {
                (0..AT_ONCE).try_for_each(|_| come_and_go())?;
                let victim = scope.spawn(move || visit(address, "gold"));
                (0..2 * AT_ONCE).try_for_each(|_| come_and_go())?;
                kill_process(worker, Signal::CONT).context(|| "SIGCONT".into())?;
                let flood = scope.spawn(|| {
                    while !stop_flood.load(Ordering::Relaxed) {
                        come_and_go()?;
                    }
                    Ok::<(), String>(())
                });
                let told = victim.join().map_err(|_| "the victim panicked".to_owned());
                stop_flood.store(true, Ordering::Relaxed);
                flood.join().map_err(|_| "the flood panicked".to_owned())??;
                told
            });
            stop_flood.store(false, Ordering::Relaxed);
            told?.map_err(|e| format!("round {round}: {e}"))?;
            // Who came before has been accepted then.
            visit(address, "silver")?;
        }
        ensure(door(node, "pushed_out")? == 0, || "sockets were closed for others that had gone".into())
    })
}

/// Somebody at the victims' own address opens sockets, and keeps as many as it may have.
struct Flood {
    /// Says ICReq on each of them.
    says: bool,
    /// Between two, when it has as many as it may have: a host of the same address has to get a core before its address is full.
    pause: Duration,
}

impl Flood {
    const PAUSE: Duration = Duration::from_micros(500);
    const SILENT: Flood = Flood { says: false, pause: Self::PAUSE };
    const ICREQS: Flood = Flood { says: true, pause: Self::PAUSE };
}

fn flood(env: &Env, setup: &Setup, how: Flood) -> Outcome {
    let Flood { says, pause } = how;
    raise_descriptors()?;
    with_node(env, setup, |node| {
        let (address, stop, count) = (node.address(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let flooding = std::thread::spawn({
            let (stop, count, request) = (stop.clone(), count.clone(), wire::ic_req());
            move || {
                let mut all = VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    let Ok(mut socket) = TcpStream::connect_timeout(&address, Duration::from_secs(10)) else {
                        continue;
                    };
                    if says && socket.write_all(&request).is_err() {
                        continue;
                    }
                    all.push_back(socket);
                    if count.fetch_add(1, Ordering::Relaxed) > SOCKETS {
                        all.pop_front();
                        if !pause.is_zero() {
                            std::thread::sleep(pause);
                        }
                    }
                }
            }
        });
        crate::process::until(Duration::from_secs(30), "the flood is there", || {
            Ok((count.load(Ordering::Relaxed) > SOCKETS).then_some(()))
        })?;
        let (begin, before) = (Instant::now(), count.load(Ordering::Relaxed));
        let beside = victims(address, if says { "a flood of ICReqs" } else { "a flood of silent sockets" });
        stop.store(true, Ordering::Relaxed);
        flooding.join().map_err(|_| "the rogue's thread panicked".to_owned())?;
        let more = count.load(Ordering::Relaxed) - before;
        println!("    {:.0} sockets a second", more as f64 / begin.elapsed().as_secs_f64());
        beside
    })
}

/// Names of a network namespace and of the two ends of a pair of interfaces into it; gone when dropped.
struct Network(String);

impl Network {
    const NODE: &str = "10.231.7.1";
    const HOST: &str = "10.231.7.2";

    /// The network, or why there is none.
    fn new() -> Result<Self, String> {
        let name = format!("weir{}", std::process::id() % 100_000);
        let network = Self(name);
        let name = &network.0;
        let (near, far) = (format!("{name}a"), format!("{name}b"));
        ip(&["netns", "add", name])?;
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", name])?;
        ip(&["addr", "add", &format!("{}/24", Self::NODE), "dev", &near])?;
        ip(&["link", "set", &near, "up"])?;
        ip(&["-n", name, "addr", "add", &format!("{}/24", Self::HOST), "dev", &far])?;
        ip(&["-n", name, "link", "set", &far, "up"])?;
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &format!("{}a", self.0)]);
        let _ = ip(&["netns", "del", &self.0]);
    }
}

fn ip(args: &[&str]) -> Outcome {
    let done = std::process::Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    ensure(done.status.success(), || format!("ip {}: {said}", args.join(" ")))
}

/// A host on another network than the node's own: `keep_alive = "network"`, the default, wants a keep alive timer of it, and of none on this machine.
fn over_a_network(env: &Env) -> Outcome {
    let network = match Network::new() {
        Ok(network) => network,
        Err(why) => {
            env.skip(format!("no network namespaces: {why}"));
            return Ok(());
        }
    };
    let mut setup = setup("");
    setup.whole = setup.whole.replace("127.0.0.1:PORT", "0.0.0.0:PORT");
    with_node(env, &setup, |node| {
        let own: SocketAddr = format!("{}:{}", Network::NODE, node.port).parse().context(|| "address".into())?;
        let space = std::fs::File::open(format!("/run/netns/{}", network.0)).context(|| "/run/netns".into())?;
        let far = |kato: u32| {
            let space = space.try_clone().context(|| "a descriptor".into())?;
            let in_the_network = move || {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
                    .context(|| "setns".into())?;
                Host::admin(own, &host_nqn("gold"), kato).map(|(host, _)| host)
            };
            std::thread::spawn(in_the_network).join().map_err(|_| "the host's thread panicked".to_owned())?
        };
        let host = far(15_000).map_err(|e| format!("a host with a keep alive timer: {e}"))?;
        let told = far(0).map_or_else(|e| e, |_| "it gets in".into());
        ensure(told.contains("status 0x"), || format!("a host without a keep alive timer: {told}"))?;
        println!("    without a timer it is told: {told}");
        drop(host);
        // On this machine it may.
        let address = SocketAddr::from(([127, 0, 0, 1], node.port));
        Host::admin(address, &host_nqn("gold"), 0).map(drop)?;
        Host::admin(own, &host_nqn("gold"), 0).map(drop)
    })
}
