//! Two metadata services of one store, with its metadata in etcd and its files on a third node: one serves, the other stands by, and one client goes on through
//! all that happens to them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::store_etcd::{self, Member};
use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup};
use crate::process::{self, until};
use weir_store_node::client::{Client, ClientError, ClientOptions, CreateOptions};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_services";
    vec![
        test(S, "a_standby_takes_over_from_a_killed_service", killed),
        long(S, "a_service_that_ends_gives_its_lease_up", ended),
        long(S, "a_service_that_stood_still_does_no_harm", stood_still),
        long(S, "one_client_goes_on_through_many_failures", many),
        long(S, "an_error_names_all_services", named),
    ]
}

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than three leases of a service.
const THREE_LEASES: Duration = Duration::from_secs(12);

const NQN: &str = "nqn.2026-01.io.weir:e2e-store";

/// A node with one drive, and what else it has.
fn node(media: &str, capacity: &str, more: &str) -> Setup {
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = false\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n\
         [[device]]\nname = \"d0\"\nnqn = \"{NQN}\"\nmedia = \"{media}\"\ncapacity = \"{capacity}\"\n\
         [[export]]\ndevice = \"d0\"\ndoor = \"nvme-tcp\"\n{more}"
    );
    Setup { whole, ..Setup::default() }
}

/// All machines of the store.
struct Machines {
    services: [Node; 2],
    addresses: [String; 2],
    storage: Node,
    etcd: Vec<Member>,
}

/// What `weir store status` says of a service.
#[derive(Debug)]
struct Listed {
    address: String,
    state: String,
    term: u64,
}

/// What a machine is to suffer.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Killed,
    Ended,
    StoodStill,
}

impl Machines {
    /// `None`: there is no etcd, and the test is skipped.
    fn start(env: &Env) -> Result<Option<Self>, String> {
        let Some(program) = store_etcd::program(env) else { return Ok(None) };
        let etcd = store_etcd::etcd(env, &program, 1, &[])?;
        let storage = Node::start(env, &node("ram", "1GiB", ""))?;
        let service = |port: u16| {
            let store = format!(
                "[store]\nmeta = \"etcd:{}/e2e\"\nlisten = \"127.0.0.1:{port}\"\n\
                 [[store.donate]]\ntarget = \"nvme-tcp://127.0.0.1:{}/{NQN}?ns=1\"\nclass = \"dram\"\n",
                etcd[0].url, storage.port
            );
            Node::start(env, &node("ram", "64MiB", &store))
        };
        let ports = [env.free_port()?, env.free_port()?];
        let services = [service(ports[0])?, service(ports[1])?];
        let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
        let machines = Self { services, addresses, storage, etcd };
        let first = machines.served()?;
        ensure(first == 0, || "the service that was started first does not serve".into())?;
        Ok(Some(machines))
    }

    /// As clients name the store.
    fn address(&self) -> String {
        self.addresses.join(",")
    }

    fn fs(&self, args: &[&str]) -> Result<process::Finished, String> {
        let address = self.address();
        let args = [&["fs", "--store", &address], args].concat();
        let weir = self.storage.command(&[]).get_program().to_owned();
        process::run(&self.storage.dir, &PathBuf::from(weir), &args, LIMIT)
    }

    fn log(&self) -> String {
        self.services.iter().map(Node::log).collect::<Vec<_>>().join("\n")
    }

    fn listed(&self) -> Result<Vec<Listed>, String> {
        let (address, weir) = (self.address(), self.storage.command(&[]).get_program().to_owned());
        let args = ["store", "--store", &address, "status", "--json"];
        let said = process::run(&self.storage.dir, &PathBuf::from(weir), args, LIMIT)?;
        let text = said.success("weir store status")?;
        let value: Value = serde_json::from_str(&text).context(|| text.clone())?;
        let services = value["services"].as_array().ok_or_else(|| format!("no services: {text}"))?;
        let listed = services.iter().map(|service| Listed {
            address: service["addresses"][0].as_str().unwrap_or_default().to_owned(),
            state: service["state"].as_str().unwrap_or_default().to_owned(),
            term: service["term"].as_u64().unwrap_or_default(),
        });
        Ok(listed.collect())
    }

    /// Which service serves.
    fn served(&self) -> Result<usize, String> {
        let mut said = String::new();
        let found = until(LIMIT, "a service serves", || {
            let listed = match self.listed() {
                Ok(listed) => listed,
                Err(why) => {
                    said = why;
                    return Ok(None);
                }
            };
            let serving = listed.iter().find(|service| service.state == "serving");
            Ok(serving.and_then(|service| self.addresses.iter().position(|address| *address == service.address)))
        });
        found.map_err(|e| format!("{e}\n{said}\n{}", self.log()))
    }

    /// The other one is listed like that.
    fn becomes(&self, service: usize, state: &str) -> Outcome {
        let what = format!("{} is listed as {state}", self.addresses[service]);
        let is = |listed: &Listed| listed.address == self.addresses[service] && listed.state == state;
        let done = until(LIMIT, &what, || Ok(self.listed()?.iter().any(is).then_some(())));
        done.map_err(|e| format!("{e}\n{}", self.log()))
    }

    /// The service that serves suffers that, and the other one takes over; then it is there again and stands by.
    fn suffer(&mut self, failure: Failure, writer: &Writer) -> Outcome {
        let (old, before) = (self.served()?, self.term()?);
        let new = 1 - old;
        self.becomes(new, "standby")?;
        match failure {
            Failure::Killed => self.services[old].kill()?,
            Failure::Ended => self.services[old].end()?,
            Failure::StoodStill => self.services[old].process().signal(Signal::STOP)?,
        }
        writer.goes_on()?;
        let (found, term) = (self.served()?, self.term()?);
        ensure(found == new && term > before, || format!("{failure:?}: {found} serves, term {before}, then {term}"))?;
        match failure {
            Failure::Killed | Failure::Ended => self.services[old].start_again()?,
            Failure::StoodStill => {
                std::thread::sleep(THREE_LEASES);
                self.services[old].process().signal(Signal::CONT)?;
            }
        }
        self.becomes(old, "standby")?;
        writer.goes_on()?;
        let found = self.served()?;
        ensure(found == new, || format!("{failure:?}: {found} serves, though nothing has happened to {new}"))
    }

    fn term(&self) -> Result<u64, String> {
        Ok(self.listed()?.iter().map(|service| service.term).max().unwrap_or_default())
    }

    /// A client that knows nothing reads every file.
    fn verify(&self, writer: Writer) -> Outcome {
        let written = writer.finish().map_err(|e| format!("{e}\n{}", self.log()))?;
        ensure(written > 0, || "nothing was written".into())?;
        let to = self.storage.socket("got");
        self.fs(&["get", "-r", "/c", &to.display().to_string()])?.success("weir fs get -r /c")?;
        for number in 0..written {
            let path = to.join(number.to_string());
            let found = std::fs::read(&path).context(|| path.display().to_string())?;
            ensure(found == content(number), || {
                format!("/c/{number}: {} bytes, or others than were written", found.len())
            })?;
        }
        let listed = self.fs(&["ls", "/c"])?.success("weir fs ls /c")?;
        ensure(listed.lines().count() == written as usize, || {
            format!("{written} files were written, these are there:\n{listed}")
        })
    }

    fn stop(self) -> Outcome {
        self.services.into_iter().try_for_each(Node::stop)?;
        self.storage.stop()?;
        drop(self.etcd);
        Ok(())
    }
}

/// The bytes of a file: sizes in the inode, in a block, and over several.
fn content(number: u32) -> Vec<u8> {
    let size = [100, 5000, 70_000, 1_300_000][number as usize % 4] + number as usize;
    (0..size).map(|at| (at / 253 + at) as u8 ^ number as u8).collect()
}

/// One client that writes file after file.
struct Writer {
    thread: JoinHandle<Result<u32, String>>,
    stops: Arc<AtomicBool>,
    written: Arc<AtomicU32>,
}

impl Writer {
    fn start(address: &str) -> Result<Self, String> {
        let options = ClientOptions { name: "e2e".into(), deadline: LIMIT, ..ClientOptions::default() };
        let failed = |e: ClientError| e.to_string();
        let client = Client::connect(address, options).map_err(failed)?;
        client.make_directory("/c", false, 0o755).map_err(failed)?;
        let (stops, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (ends, counts) = (Arc::clone(&stops), Arc::clone(&written));
        let work = move || {
            let mut number = 0;
            while !ends.load(Ordering::Acquire) {
                write(&client, number).map_err(|e| format!("/c/{number}: {e}"))?;
                number += 1;
                counts.store(number, Ordering::Release);
                // The failures are what takes time here, not the bytes; and what a file gives back when it is closed, most of a block, is free
                // again some seconds later only.
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(number)
        };
        Ok(Self { thread: std::thread::spawn(work), stops, written })
    }

    /// It has written more than it had.
    fn goes_on(&self) -> Outcome {
        let before = self.written.load(Ordering::Acquire);
        until(LIMIT, "the client goes on", || {
            let is_over = self.thread.is_finished() || self.written.load(Ordering::Acquire) > before + 4;
            Ok(is_over.then_some(()))
        })
    }

    /// How many files it has written.
    fn finish(self) -> Result<u32, String> {
        self.stops.store(true, Ordering::Release);
        self.thread.join().map_err(|_| "the client has panicked".to_owned())?
    }
}

fn write(client: &Client, number: u32) -> Result<(), ClientError> {
    let file = client.create(format!("/c/{number}"), &CreateOptions::default())?;
    file.write_at(0, &content(number))?;
    file.flush()?;
    file.close()
}

/// The service that serves is killed: the other one takes over, and the client notices nothing but the time that it takes.
fn killed(env: &Env) -> Outcome {
    let Some(mut machines) = Machines::start(env)? else { return Ok(()) };
    machines.becomes(1, "standby")?;
    let writer = Writer::start(&machines.address())?;
    writer.goes_on()?;
    machines.services[0].kill()?;
    writer.goes_on()?;
    ensure(machines.served()? == 1, || "the service that was killed serves".into())?;
    machines.verify(writer)?;
    // One address is enough: the standby names the one that serves.
    machines.services[0].start_again()?;
    machines.becomes(0, "standby")?;
    let alone = ["fs", "--store", &machines.addresses[0], "ls", "/"];
    machines.services[0].cli(&alone)?.success("weir fs ls by the standby's address")?;
    machines.stop()
}

/// A service that ends gives its lease up: the other one need not wait for the lease's end, as it has to after a kill.
fn ended(env: &Env) -> Outcome {
    let Some(mut machines) = Machines::start(env)? else { return Ok(()) };
    let writer = Writer::start(&machines.address())?;
    let mut took = Vec::new();
    for failure in [Failure::Ended, Failure::Killed] {
        let old = machines.served()?;
        machines.becomes(1 - old, "standby")?;
        writer.goes_on()?;
        let begun = Instant::now();
        match failure {
            Failure::Ended => machines.services[old].end()?,
            _ => machines.services[old].kill()?,
        }
        writer.goes_on()?;
        took.push(begun.elapsed());
        ensure(machines.served()? == 1 - old, || format!("{failure:?}: the other one does not serve"))?;
        machines.services[old].start_again()?;
    }
    println!("the client goes on {:?} after an end, {:?} after a kill", took[0], took[1]);
    ensure(took[0] < took[1], || format!("{took:?}: after an end it takes as long as after a kill"))?;
    machines.verify(writer)?;
    machines.stop()
}

/// The service that serves stands still for three leases, and goes on: another one serves by then, and the old one changes nothing.
fn stood_still(env: &Env) -> Outcome {
    let Some(mut machines) = Machines::start(env)? else { return Ok(()) };
    let writer = Writer::start(&machines.address())?;
    writer.goes_on()?;
    for _ in 0..2 {
        machines.suffer(Failure::StoodStill, &writer)?;
    }
    machines.verify(writer)?;
    machines.stop()
}

/// One after the other, in both directions.
fn many(env: &Env) -> Outcome {
    let Some(mut machines) = Machines::start(env)? else { return Ok(()) };
    let writer = Writer::start(&machines.address())?;
    writer.goes_on()?;
    for failure in [Failure::Killed, Failure::Ended, Failure::StoodStill].into_iter().cycle().take(9) {
        machines.suffer(failure, &writer)?;
    }
    machines.verify(writer)?;
    machines.stop()
}

/// Without any service the error has both addresses, before the deadline's end is passed by much.
fn named(env: &Env) -> Outcome {
    let Some(mut machines) = Machines::start(env)? else { return Ok(()) };
    for service in &mut machines.services {
        service.kill()?;
    }
    let said = machines.fs(&["ls", "/"])?;
    let named = machines.addresses.iter().all(|address| said.stderr.contains(address.as_str()));
    ensure(said.status.code() == Some(1) && named && said.stderr.lines().count() == 1, || said.describe())?;
    for service in &mut machines.services {
        service.start_again()?;
    }
    machines.served()?;
    machines.stop()
}
