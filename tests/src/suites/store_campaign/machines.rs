//! The machines of the campaign, and what is done to them.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::store_etcd::{self, Member};
use super::{Blow, Kind, LIMIT, Victim};
use crate::harness::{Context, Env, Outcome};
use crate::node::{Node, Setup};
use crate::process::{self, Finished, until};

/// Storage nodes; each has a drive of each class.
pub const STORAGE: usize = 3;

/// Three storage nodes, two metadata services and an etcd of three members, all processes of their own.
pub struct Machines {
    etcd: Vec<Member>,
    pub storage: Vec<Node>,
    pub services: Vec<Node>,
    addresses: [String; 2],
}

/// What was struck: the place in its list, and its processes as they were.
pub struct Struck {
    which: usize,
    processes: Vec<Pid>,
}

fn nqn(node: usize, drive: &str) -> String {
    format!("nqn.2026-01.io.weir:campaign-{node}-{drive}")
}

fn storage(number: usize) -> Setup {
    let drive = |name: &str, media: &str, capacity: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nnqn = \"{}\"\nmedia = \"{media}\"\ncapacity = \"{capacity}\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n",
            nqn(number, name)
        )
    };
    let whole = "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = true\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
        .to_owned()
        + &drive("ram", "ram", "256MiB")
        + &drive("file", "file:flash.img", "512MiB");
    Setup { whole, ..Setup::default() }
}

impl Machines {
    /// `None`: there is no etcd, and the test is skipped. `repair_after` as the configuration has it.
    pub fn start(env: &Env, repair_after: &str) -> Result<Option<Self>, String> {
        let Some(program) = store_etcd::program(env) else { return Ok(None) };
        let etcd = store_etcd::etcd(env, &program, 3, &[])?;
        let urls: Vec<&str> = etcd.iter().map(|member| member.url.as_str()).collect();
        let storage = (0..STORAGE).map(|number| Node::start(env, &storage(number))).collect::<Result<Vec<_>, _>>()?;
        let donate = |(number, node): (usize, &Node)| {
            let of = |drive: &str, class: &str| {
                let target = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn(number, drive));
                format!("[[store.donate]]\ntarget = \"{target}\"\nclass = \"{class}\"\nlocation = \"rack{number}\"\n")
            };
            of("ram", "dram") + &of("file", "flash")
        };
        let donated: String = storage.iter().enumerate().map(donate).collect();
        let service = |port: u16| {
            let whole = format!(
                "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = false\n\
                 [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n\
                 [store]\nmeta = \"etcd:{}/e2e\"\nlisten = \"127.0.0.1:{port}\"\nblock = \"64KiB\"\n\
                 repair_after = \"{repair_after}\"\n{donated}",
                urls.join(",")
            );
            Node::start(env, &Setup { whole, ..Setup::default() })
        };
        let ports = [env.free_port()?, env.free_port()?];
        let services = ports.into_iter().map(service).collect::<Result<Vec<_>, _>>()?;
        let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
        let machines = Self { etcd, storage, services, addresses };
        machines.settled()?;
        Ok(Some(machines))
    }

    /// As clients name the store.
    pub fn address(&self) -> String {
        self.addresses.join(",")
    }

    /// A command of the CLI, in a process of its own.
    pub fn weir(&self, args: &[&str]) -> Result<Finished, String> {
        let weir = self.storage[0].command(&[]).get_program().to_owned();
        process::run(&self.storage[0].dir, &PathBuf::from(weir), args, LIMIT)
    }

    pub fn fs(&self, args: &[&str]) -> Result<Finished, String> {
        self.weir(&[&["fs", "--store", &self.address()], args].concat())
    }

    pub fn log(&self) -> String {
        self.services.iter().chain(&self.storage).map(Node::log).collect::<Vec<_>>().join("\n")
    }

    /// What `weir store status` says.
    pub fn status(&self) -> Result<Value, String> {
        let text = self.weir(&["store", "--store", &self.address(), "status", "--json"])?.success("status")?;
        serde_json::from_str(&text).context(|| text.clone())
    }

    /// Which service is in that state.
    fn service(&self, status: &Value, state: &str) -> Option<usize> {
        let services = status["services"].as_array()?;
        let address = services.iter().find(|service| service["state"] == state)?["addresses"][0].as_str()?;
        self.addresses.iter().position(|known| known == address)
    }

    /// All members of etcd follow the same leader.
    fn etcd_is_whole(&self) -> Outcome {
        until(LIMIT, "etcd is whole", || {
            let leaders: Vec<_> = self.etcd.iter().map(|member| member.leader().map(|(leader, _)| leader)).collect();
            Ok((leaders[0].is_some() && leaders.iter().all(|leader| *leader == leaders[0])).then_some(()))
        })
    }

    /// Everything is there again: etcd is whole, one service serves and the other stands by, all drives are up, and nothing is left to be made again.
    pub fn settled(&self) -> Outcome {
        self.etcd_is_whole()?;
        let mut said = String::new();
        let done = until(LIMIT, "the store is whole", || {
            let status = match self.status() {
                Ok(status) => status,
                Err(why) => {
                    said = why;
                    return Ok(None);
                }
            };
            said = status.to_string();
            let both = self.service(&status, "serving").is_some() && self.service(&status, "standby").is_some();
            let namespaces = status["namespaces"].as_array().cloned().unwrap_or_default();
            let up = namespaces.iter().filter(|one| one["state"] == "up").count();
            // What had no other copy stays, and with it what a client had begun to write over.
            let count = |one: &Value, what: &str| one["movement"][what].as_u64().unwrap_or(0);
            let is_left = |one: &Value| count(one, "blocks_left") > count(one, "no_copy") + count(one, "unsettled");
            Ok((both && up == 2 * STORAGE && !namespaces.iter().any(is_left)).then_some(()))
        });
        done.map_err(|e| format!("{e}\n{said}\n{}", self.log()))
    }

    /// All blocks have as many copies as their files want: those that were marked out while a node was struck are made again.
    pub fn copies_are_made(&self) -> Outcome {
        let mut said = String::new();
        let done = until(LIMIT, "all copies are made again", || {
            let scrub = self.fs(&["scrub", "--json"])?;
            said = scrub.describe();
            let found: Option<Value> = serde_json::from_str(&scrub.stdout).ok();
            Ok(found.filter(|found| found["short_blocks"] == 0).map(drop))
        });
        done.map_err(|e| format!("{e}\n{said}"))
    }

    /// The member that leads etcd, or one that follows.
    fn member(&self, leads: bool) -> Result<usize, String> {
        until(LIMIT, "etcd has a leader", || {
            let found = self.etcd.iter().position(Member::leads);
            Ok(found.map(|leader| if leads { leader } else { (leader + 1) % self.etcd.len() }))
        })
    }

    /// Which process a blow is for; `turn` says which of several.
    pub fn aim(&self, victim: Victim, turn: usize) -> Result<Struck, String> {
        let of_service = |state: &str| -> Result<Struck, String> {
            let which = until(LIMIT, state, || Ok(self.service(&self.status()?, state)))?;
            Ok(Struck { which, processes: vec![self.services[which].first()?] })
        };
        let of_member = |leads: bool| -> Result<Struck, String> {
            let which = self.member(leads)?;
            Ok(Struck { which, processes: vec![self.etcd[which].pid()?] })
        };
        let which = turn % STORAGE;
        let node = &self.storage[which];
        match victim {
            Victim::Worker => Ok(Struck { which, processes: vec![node.worker()?] }),
            Victim::Node => {
                let processes = [vec![node.first()?], node.workers()?].concat();
                Ok(Struck { which, processes })
            }
            Victim::Serving => of_service("serving"),
            Victim::Standby => of_service("standby"),
            Victim::Leader => of_member(true),
            Victim::Follower => of_member(false),
        }
    }

    /// The blow falls.
    pub fn strike(&self, kind: Kind, struck: &Struck) -> Outcome {
        let signal = if kind == Kind::Killed { Signal::KILL } else { Signal::STOP };
        struck.processes.iter().try_for_each(|process| kill_process(*process, signal).context(|| format!("{kind:?}")))
    }

    /// What was struck is started again, or goes on.
    pub fn heal(&mut self, blow: Blow, struck: &Struck) -> Outcome {
        if blow.kind == Kind::Stopped {
            let goes_on = |process: &Pid| kill_process(*process, Signal::CONT).context(|| "SIGCONT".into());
            return struck.processes.iter().rev().try_for_each(goes_on);
        }
        match blow.victim {
            Victim::Worker => {
                let before = struck.processes[0];
                until(LIMIT, "the next worker serves", || {
                    Ok(self.storage[struck.which].worker().is_ok_and(|worker| worker != before).then_some(()))
                })
            }
            Victim::Node => self.start_node(struck.which),
            Victim::Serving | Victim::Standby => self.services[struck.which].kill_and_start(),
            Victim::Leader | Victim::Follower => self.etcd[struck.which].restart(),
        }
    }

    /// A node that has ended is there again. Its memory is gone: that drive is donated anew.
    pub fn start_node(&mut self, which: usize) -> Outcome {
        let node = &mut self.storage[which];
        node.kill()?;
        node.start_again()?;
        let target = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn(which, "ram"));
        let (store, rack) = (self.address(), format!("rack{which}"));
        let mut said = String::new();
        let added = until(LIMIT, "the node's memory is donated", || {
            let args = ["store", "--store", &store, "node", "add", &target, "--class", "dram", "--location", &rack];
            let done = self.weir(&args)?;
            said = done.describe();
            Ok(done.status.success().then_some(()))
        });
        added.map_err(|e| format!("{e}\n{said}"))
    }

    /// The services end; the metadata contradict themselves nowhere.
    pub fn stop(self) -> Outcome {
        let urls: Vec<&str> = self.etcd.iter().map(|member| member.url.as_str()).collect();
        let meta = format!("etcd:{}/e2e", urls.join(","));
        let (weir, dir) = (self.storage[0].command(&[]).get_program().to_owned(), self.storage[0].dir.clone());
        self.services.into_iter().try_for_each(Node::stop)?;
        process::run(&dir, &PathBuf::from(weir), ["store", "fsck", &meta], LIMIT)?.success("weir store fsck")?;
        self.storage.into_iter().try_for_each(Node::stop)
    }
}
