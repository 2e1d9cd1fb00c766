//! The composition root: a [`Node`] is built in stages, each of which either succeeds or leaves nothing behind.
//!
//! Threads are prepared, one a core ([`PreparedShards`]); tenants admitted; addresses claimed (NVMe/TCP listeners); drives opened, dealt out in turn to
//! one shard a core; doors opened; the threads let go; pools brought up, and their volumes exported.

use crate::access;
use crate::control;
use crate::created::Created;
use crate::device::{Device, Drives, OpenError};
use crate::directory::{Directory, Place, place};
use crate::door::{Doors, nvme_tcp, vfio_user, vhost_user};
use crate::events::EventLog;
use crate::listen;
use crate::owner::Ownership;
use crate::pool::volumes::Volumes;
use crate::prepared_shards::{Member, PreparedShards, StartSteps, Waiting, let_go};
use crate::shard::{Leave, Shard, ShardHandle};
use crate::start_error::StartError;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_config::admission;
use weir_config::{Admission, ClassFrom, Config, DoorConfig, ExportConfig, MediaConfig};
use weir_controller::{self as controller, DiscoveryRecord, SpoiledTransfers, Subsystem};
use weir_drive::{class_of, subsystem_config};
use weir_spec::nvme::fabrics::DISCOVERY_NQN;
use weir_sys::keeper_channel::{Keep, ToKeeper};
use weir_sys::reactor::Idle;
use weir_sys::sched;

/// A running node.
pub struct Node {
    config: Arc<Config>,
    directory: Arc<Directory>,
    listening: Vec<SocketAddr>,
    shards: Vec<ShardHandle>,
    threads: Vec<JoinHandle<()>>,
    volumes: Arc<Volumes>,
    keep: Keep,
    events: EventLog,
    steps: Vec<(&'static str, Duration)>,
}

impl Node {
    /// Starts everything that `config` names.
    ///
    /// # Errors
    /// The first thing that could not be had; what was opened before it is closed again.
    pub fn start(config: Config) -> Result<Node, StartError> {
        Self::start_kept(config, &Keep::none())
    }

    /// As [`start`](Self::start), with what the worker before left, and so that what must outlive this one is held.
    ///
    /// # Errors
    /// As [`start`](Self::start); what is held stays held.
    pub fn start_kept(config: Config, keep: &Keep) -> Result<Node, StartError> {
        let crew = PreparedShards::prepare(&config)?;
        Self::start_with(crew, config, keep)
    }

    /// As [`start_kept`](Self::start_kept), on threads that wait already.
    ///
    /// # Errors
    /// As [`start_kept`](Self::start_kept).
    pub fn start_with(crew: PreparedShards, config: Config, keep: &Keep) -> Result<Node, StartError> {
        let created = Created::by_start_of(&config);
        Self::start_on(crew, config, keep).inspect_err(|_| created.remove())
    }

    fn start_on(crew: PreparedShards, mut config: Config, keep: &Keep) -> Result<Node, StartError> {
        let crew = if crew.fits(&config) { crew } else { PreparedShards::prepare(&config)? };
        let mut steps = StartSteps::begin();
        admit(&config)?;
        let owner = Ownership::claim(keep).map_err(StartError::Owner)?;
        let listeners = claim_addresses(&config, keep)?;
        let listening: Vec<SocketAddr> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
        let cores = config.node.cores.clone();
        let directory = Arc::new(directory(&config, cores.len()));
        let (mut shards, handles, waiting) = make_shards(crew, &config, &directory, keep, &owner)?;
        steps.done("shards");
        let events = EventLog::of(keep);
        open_drives(&mut config, &mut shards, keep, &events)?;
        steps.done("drives");
        let mut discovery = Subsystem::new(discovery_config(&config), shards[0].reactor.now())
            .map_err(|e| StartError::Device("discovery".into(), OpenError::Subsystem(e)))?;
        discovery.set_discovery(discovery_records(&config, &listening));
        shards[0].drives.push(Device::discovery(discovery));
        let associations = resume_drives(&mut shards, keep).map_err(StartError::Owner)?;
        open_doors(&config, &mut shards).inspect_err(|_| shards.iter_mut().for_each(Shard::remove_sockets))?;
        steps.done("doors");
        let Waiting { roster, threads } = waiting;
        // Up to here whoever fails is followed by somebody who finds all of it as it was.
        keep.begin().map_err(StartError::Owner)?;
        let associations = Arc::new(Mutex::new(associations));
        let mut waiting = Some(listeners);
        let mut welcome = |volumes: Option<&Volumes>| {
            Some(welcome(&config, volumes, (&handles, &directory), keep, &associations, waiting.take()?))
        };
        // Where no pool is asked first, the shards begin with those who wait for them.
        let mut listened = if config.pools.is_empty() { welcome(None) } else { None };
        let threads = let_go(shards, threads);
        if keep.generation() > 0 {
            // What is left to do here is nothing that anybody waits for.
            sched::make_way(&cores);
        }
        let on_first = Place { shard: 0, drive: config.devices.len().div_ceil(cores.len()) as u32 };
        let keeps_layout = keep.generation() > 0;
        let volumes =
            match Volumes::bring_up(&config, &handles, &directory, on_first, (&listening, keeps_layout, &associations))
            {
                Ok(volumes) => Arc::new(volumes),
                Err((section, why)) => {
                    end(&handles, threads, Shard::stop);
                    return Err(StartError::Pool(section, why));
                }
            };
        volumes.begin_to_serve();
        listened = listened.or_else(|| welcome(Some(&volumes)));
        volumes.name_members(&mut config);
        if let Some(Err(e)) = listened.into_iter().flatten().find(Result::is_err) {
            end(&handles, threads, Shard::stop);
            return Err(StartError::Export("nvme-tcp".into(), e.to_string()));
        }
        if keep.is_kept() && lies_in_memory(&config) {
            keep.say(&ToKeeper::Threads, &[roster.fd()]).map_err(StartError::Owner)?;
        }
        steps.done("pools and hosts");
        Ok(Node {
            config: Arc::new(config),
            directory,
            listening,
            shards: handles,
            threads,
            volumes,
            keep: keep.clone(),
            events,
            steps: steps.done,
        })
    }

    /// What its start consisted of, and how long each step took.
    pub fn steps(&self) -> &[(&'static str, Duration)] {
        &self.steps
    }

    /// Its pools and volumes.
    pub(crate) fn volumes(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    /// What it was started with; pools have the drives that were found to be theirs.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Where NVMe/TCP listens, with the port that was had where 0 was asked for.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The shards, by number.
    pub fn shards(&self) -> &[ShardHandle] {
        &self.shards
    }

    /// Where the device of that place in the configuration lives.
    pub fn place(&self, device: usize) -> Place {
        place(device, self.shards.len())
    }

    /// All subsystems.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Who holds what must outlive it.
    pub fn keep(&self) -> &Keep {
        &self.keep
    }

    /// What has happened to it.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Stops taking work, lets what is being executed complete, closes everything and returns.
    pub fn stop(self) {
        self.volumes.close();
        end(&self.shards, self.threads, Shard::stop);
    }

    /// Stops taking work, lets what is being executed complete and returns, with everything left open for who serves next; `left` is
    /// called, by the shard that is the last one, as soon as nothing is under way any more and nothing will be touched. False where something is still under way after all the time that it was given: it may touch a drive until this process
    /// has ended.
    #[must_use]
    pub fn hand_over(self, left: impl Fn() + Send + Sync + 'static) -> bool {
        self.events.close();
        let leave = Arc::new(Leave::new(self.shards.len(), lies_in_memory(&self.config), left));
        end(&self.shards, self.threads, move |shard, done| shard.hand_over(leave.clone(), done))
    }
}

/// Whether nothing is under way for its drives once no thread of the process runs any more: the kernel moves no bytes of theirs.
fn lies_in_memory(config: &Config) -> bool {
    config.devices.iter().all(|d| matches!(d.media, MediaConfig::Ram | MediaConfig::Null))
}

/// Gives the drives the controllers of their hosts, before doors make others; those of volumes are left until these are there.
fn resume_drives(shards: &mut [Shard], keep: &Keep) -> std::io::Result<nvme_tcp::Associations> {
    let mut associations = nvme_tcp::Associations::take(keep)?;
    for shard in shards {
        let now = shard.reactor.now();
        for drive in 0..shard.drives.count() {
            // Before there are controllers, for which it counts.
            access::resume(keep, shard.drives.get(drive));
            associations.resume(&mut shard.drives, drive, now);
            vfio_user::resume_functions(shard.drives.get(drive), now, keep);
        }
    }
    Ok(associations)
}

/// The shards take in who was there before, each one as the first thing that it does from here on: front ends that the keeper has, hosts
/// whose connections the worker before has left, and then new ones. Whether they could be let in comes from each listener.
fn welcome(
    config: &Config,
    volumes: Option<&Volumes>,
    (shards, directory): (&[ShardHandle], &Directory),
    keep: &Keep,
    associations: &nvme_tcp::SharedAssociations,
    listeners: Vec<TcpListener>,
) -> mpsc::Receiver<std::io::Result<()>> {
    for (met, stream) in keep.take_connections() {
        control::introduce(config, volumes, shards, keep, met, Some(stream));
    }
    let associations = std::mem::take(&mut *associations.lock().unwrap_or_else(PoisonError::into_inner));
    resume(shards, directory, keep, associations);
    // Last: a new host must not have what one of those has that were there before.
    listen(&shards[0], listeners)
}

/// Goes on with the connections of NVMe/TCP hosts that the worker before has left.
fn resume(shards: &[ShardHandle], directory: &Directory, keep: &Keep, associations: nvme_tcp::Associations) {
    let kept = nvme_tcp::take(keep, associations, |nqn| directory.find(nqn)).unwrap_or_else(|e| {
        tracing::error!("connections of hosts cannot be taken over: {e}");
        BTreeMap::new()
    });
    for (shard, kept) in kept {
        if let Some(shard) = shards.get(shard as usize) {
            shard.post(move |s| s.with_doors(|doors, cx| doors.nvme_tcp.resume(kept, cx)));
        }
    }
    for shard in shards {
        shard.post(|s| {
            s.drives.all().for_each(|drive| {
                let machine = s.drives.get(drive);
                machine.drop_unclaimed_functions();
                machine.forget_absent();
            })
        });
    }
}

/// Ends them; whether every one of them says that nothing is under way any more.
fn end(
    shards: &[ShardHandle],
    threads: Vec<JoinHandle<()>>,
    how: impl Fn(&mut Shard, mpsc::Sender<bool>) + Clone + Send + 'static,
) -> bool {
    let (done, finished) = mpsc::channel();
    for shard in shards {
        let (done, how) = (done.clone(), how.clone());
        shard.post(move |s| how(s, done));
    }
    drop(done);
    let answers: Vec<bool> = finished.iter().collect();
    for thread in threads {
        let _ = thread.join();
    }
    answers.len() == shards.len() && answers.into_iter().all(|quiet| quiet)
}

/// Opens the drives, with their rules of failures, dealt out in turn. A rule that does not fit its drive ends a fresh start; a worker that comes
/// after another one goes on without it, since a drive may have changed since its rules were made.
fn open_drives(config: &mut Config, shards: &mut [Shard], keep: &Keep, events: &EventLog) -> Result<(), StartError> {
    let mut left_out = Vec::new();
    for (i, device) in config.devices.iter().enumerate() {
        let shard = &mut shards[i % config.node.cores.len()];
        let now = shard.reactor.now();
        let own: Vec<usize> = (0..config.faults.len()).filter(|at| config.faults[*at].device == i).collect();
        let rules = own.iter().map(|at| &config.faults[*at].rule);
        let failed = |e| StartError::Device(device.name.clone(), e);
        let mut opened = Device::open_kept(device, subsystem_config(config, device), now, keep).map_err(failed)?;
        if keep.generation() == 0 {
            opened = opened.with_faults(rules, now).map_err(failed)?;
        } else {
            for (at, why) in opened.add_faults(rules, now) {
                tracing::warn!("device {}: {why}; it is left out", device.name);
                left_out.push(own[at]);
            }
        }
        opened.report_to(events, &device.name);
        opened.keep_faults(&device.name, keep);
        shard.drives.push(opened);
    }
    left_out.sort_unstable();
    left_out.into_iter().rev().for_each(|at| _ = config.faults.remove(at));
    Ok(())
}

/// Refuses promises that cannot be kept, or says so.
fn admit(config: &Config) -> Result<(), StartError> {
    for device in admission::unknown(config) {
        tracing::warn!(
            "device {device}: tenants have floors or SLAs, and nobody knows whether it can keep them; measure it by weir \
             calibrate and write calibration = \"FILE\""
        );
    }
    let breaches = admission::of_config(config);
    match config.node.admission {
        Admission::Enforce if !breaches.is_empty() => Err(StartError::Refused(breaches)),
        _ => {
            breaches.iter().for_each(|breach| tracing::warn!("{breach}; admitted all the same"));
            Ok(())
        }
    }
}

fn claim_addresses(config: &Config, keep: &Keep) -> Result<Vec<TcpListener>, StartError> {
    let volumes = config.volumes.iter().flat_map(|v| &v.exports);
    if !config.exports.iter().map(|e| &e.door).chain(volumes).any(|door| *door == DoorConfig::NvmeTcp) {
        return Ok(Vec::new());
    }
    let listen = |(i, a): (usize, &SocketAddr)| listen::keep_tcp(keep, &format!("nvme-tcp:{i}"), *a);
    config.nvme_tcp.listen.iter().enumerate().map(|at| listen(at).map_err(StartError::Listen)).collect()
}

fn directory(config: &Config, shards: usize) -> Directory {
    let exported = |i: usize| config.exports.iter().any(|e| e.device == i && e.door == DoorConfig::NvmeTcp);
    let mut list: Vec<(String, Place)> = (config.devices.iter().enumerate())
        .filter(|(i, _)| exported(*i))
        .map(|(i, d)| (d.nqn.clone(), place(i, shards)))
        .collect();
    let on_first = config.devices.len().div_ceil(shards) as u32;
    list.push((DISCOVERY_NQN.to_string(), Place { shard: 0, drive: on_first }));
    Directory::new(list)
}

type Shards = (Vec<Shard>, Vec<ShardHandle>, Waiting);

fn make_shards(
    crew: PreparedShards,
    config: &Config,
    directory: &Arc<Directory>,
    keep: &Keep,
    owner: &Ownership,
) -> Result<Shards, StartError> {
    let idle = || if config.node.poll { Idle::never() } else { Idle::default() };
    let handles: Vec<ShardHandle> = crew.members.iter().map(|m| m.handle.clone()).collect();
    let (mut shards, mut threads) = (Vec::new(), Vec::new());
    let admission = nvme_tcp::Admission::new(&config.nvme_tcp, config.tenants.len());
    for (id, Member { reactor, mailbox, thread, .. }) in crew.members.into_iter().enumerate() {
        let doors = Doors {
            nvme_tcp: nvme_tcp::Door::new(&config.nvme_tcp, &config.tenants, admission.clone()),
            vhost_user: vhost_user::Door::new(),
            vfio_user: vfio_user::Door::new(),
            spoiled: SpoiledTransfers::default(),
        };
        let mut shard = Shard::new(id as u32, reactor, mailbox, idle(), Drives::default(), doors, directory.clone());
        shard.peers = handles.clone();
        shard.keep = keep.clone();
        shard.owner = owner.share().map_err(StartError::Owner)?;
        shards.push(shard);
        threads.push(thread);
    }
    Ok((shards, handles, Waiting { roster: crew.roster, threads }))
}

/// What the discovery service is made with: the door bounds its hosts.
fn discovery_config(config: &Config) -> controller::SubsystemConfig {
    let discovery = controller::SubsystemConfig::discovery();
    controller::SubsystemConfig {
        max_controllers: discovery.max_controllers.max(config.nvme_tcp.connections),
        ..discovery
    }
}

/// One record an exported device and address, and one for the discovery subsystem itself at each address.
fn discovery_records(config: &Config, listening: &[SocketAddr]) -> Vec<DiscoveryRecord> {
    use weir_spec::nvme::log::{DiscoveryEntry, adrfam, subtype};
    let mut records = Vec::new();
    for (port, at) in listening.iter().enumerate() {
        let family = if at.is_ipv4() { adrfam::IPV4 } else { adrfam::IPV6 };
        let record = |kind, nqn: &str, label: &str| {
            let mut entry = DiscoveryEntry::tcp(kind, nqn, family, &at.ip().to_string(), at.port());
            entry.portid = (port as u16 + 1).into();
            DiscoveryRecord { listen: Some(*at), label: label.into(), ..DiscoveryRecord::new(entry) }
        };
        records.push(record(subtype::CURRENT_DISCOVERY, DISCOVERY_NQN, &config.node.name));
        for export in config.exports.iter().filter(|e| e.door == DoorConfig::NvmeTcp) {
            let device = &config.devices[export.device];
            records.push(record(subtype::NVM, &device.nqn, &device.name));
        }
    }
    records
}

/// Lets NVMe/TCP hosts in; the first shard does.
fn listen(shard: &ShardHandle, listeners: Vec<TcpListener>) -> mpsc::Receiver<std::io::Result<()>> {
    let (say, listened) = mpsc::channel();
    for listener in listeners {
        let say = say.clone();
        shard.post(move |s| {
            let _ = say.send(s.with_doors(|doors, cx| doors.nvme_tcp.listen(listener, cx)));
        });
    }
    listened
}

fn open_doors(config: &Config, shards: &mut [Shard]) -> Result<(), StartError> {
    let count = shards.len();
    for export in &config.exports {
        let place = place(export.device, count);
        let device = &config.devices[export.device];
        if let Some(settings) = vfio_user_export(config, export, place) {
            shards[place.shard as usize]
                .with_doors(|doors, cx| doors.vfio_user.export(settings, cx))
                .map_err(|e| StartError::Export(export.door.to_string(), e.to_string()))?;
        }
        let DoorConfig::VhostUser { path, tenant } = &export.door else { continue };
        let settings = vhost_user::ExportConfig {
            path: path.clone(),
            drive: place.drive,
            tenant: *tenant as u16,
            tenant_name: config.tenants[*tenant].name.clone(),
            peer_class: export.class_from == ClassFrom::Peer,
            queues: export.queues,
            journal: config.node.journal,
            queue_depth: device.queue_depth,
            read_only: export.read_only,
            serial: device.serial.clone(),
        };
        shards[place.shard as usize]
            .with_doors(|doors, cx| doors.vhost_user.export(settings, cx))
            .map_err(|e| StartError::Export(export.door.to_string(), e.to_string()))?;
    }
    Ok(())
}

/// What the vfio-user door is told of an export that is its own.
pub(crate) fn vfio_user_export(
    config: &Config,
    export: &ExportConfig,
    place: Place,
) -> Option<vfio_user::ExportConfig> {
    let DoorConfig::VfioUser { path, tenant, doorbells } = &export.door else { return None };
    let device = &config.devices[export.device];
    // Of its own for each drive, and the same after every start: FNV-1a of its serial number.
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    let serial = device.serial.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    Some(vfio_user::ExportConfig {
        path: path.clone(),
        drive: place.drive,
        tenant: *tenant as u16,
        tenant_name: config.tenants[*tenant].name.clone(),
        class_from: class_of(export.class_from),
        doorbells: *doorbells,
        serial,
        journal: config.node.journal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn an_address_is_free_as_soon_as_its_node_has_stopped() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "[[device]]\nkind = \"null\"\n[[tenant]]\nname = \"gold\"\nhosts = [\"*\"]\n\
             [[export]]\ndoor = \"nvme-tcp\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n"
        );
        for turn in 0..10 {
            let config = Config::parse(&text, "test.toml", Path::new("/")).unwrap();
            let node = Node::start(config).unwrap_or_else(|e| panic!("start {turn}: {e}"));
            assert_eq!(node.listening()[0].port(), port);
            node.stop();
        }
    }

    /// The keeper may let the next worker go when the threads of the last one are dead: only then.
    #[test]
    fn drives_lie_in_memory_if_all_of_them_do() {
        let nvme = "nvme:nvme-tcp://127.0.0.1:4420/nqn.2026-01.test.weir:x?ns=1";
        for (media, lies) in [("ram", true), ("null", true), ("file:/x", false), ("block:/dev/x", false), (nvme, false)]
        {
            let sized = if lies { "capacity = \"1MiB\"\n" } else { "" };
            let text = format!(
                "[[device]]\nname = \"a\"\ncapacity = \"1MiB\"\n[[device]]\nname = \"b\"\nmedia = \"{media}\"\n{sized}"
            );
            let config = Config::parse(&text, "test.toml", Path::new("/")).unwrap_or_else(|e| panic!("{media}: {e}"));
            assert_eq!(lies_in_memory(&config), lies, "{media}");
        }
    }
}
