//! The command line.
// tidy: long because every command and option is here, with its help.

use crate::output::Form;
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_api::Ana;
use weir_config::Mechanism;
use weir_spec::pci::PciAddress;
use weir_units::{Bytes, Nanos, parse};

/// In what form the answer is printed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputArgs {
    /// How to print it
    #[arg(short = 'o', long = "output", global = true, value_name = "FORM", value_enum)]
    pub output: Option<Form>,
}

/// NVMe drives that tenants share with guarantees.
///
/// Exit status: 0 on success, 1 where something failed, 2 for wrong usage.
#[derive(Debug, Parser)]
#[command(name = "weir", version, long_version = crate::version::LONG, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: CliCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The node's API: unix:PATH, a path, IP:PORT, or https://HOST:PORT; for `weir up`, where it is to be [env: WEIR_API] [default: of the node
    /// that runs]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub api: Option<String>,
    /// The name of the node to ask, where several run
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "api")]
    pub node: Option<String>,
    /// The certificate, in PEM, of the authority that signs those of nodes at https:// addresses; else those that the system trusts
    #[arg(long, global = true, value_name = "FILE", env = "WEIR_CA")]
    pub ca: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  weir up                                start the built-in default: a 1 GiB RAM drive, three tenants
  weir up -c weir.toml                   start what a file says
  weir status                            what the running node does
  weir tenant set silver --class high    change a share while I/O runs
  weir upgrade --binary ./weir           replace its program while I/O runs
  weir bench 'local:ram?latency=80us'    measure a drive in this process, no node needed
  weir calibrate local:p3700 -o p3700.toml   measure what a drive can do, for plans
  weir sim exp.toml --json               simulate one in virtual time
  weir plan three.plan.toml              can all tenants have what they were promised?
  weir reproduce femu-fig4               make a paper's figure again";

impl Cli {
    /// In what form answers are printed, where that is said.
    pub fn form(&self) -> Option<Form> {
        let output = match &self.command {
            CliCommand::Status(output) => output,
            CliCommand::Device(args) => &args.output,
            CliCommand::Tenant(args) => &args.output,
            CliCommand::Fault(args) => &args.output,
            CliCommand::Pool(args) => &args.output,
            CliCommand::Volume(args) => &args.output,
            CliCommand::Export(args) => &args.output,
            _ => return self.json.then_some(Form::Json),
        };
        output.output.or(self.json.then_some(Form::Json))
    }
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Start a node in the foreground and serve until SIGTERM, SIGINT or `weir shutdown`
    Up(Up),
    /// Serve under a keeper; `weir up` starts it
    #[command(hide = true)]
    Worker(Up),
    /// Say whether this program can take over the keeper that starts it, whose state is the standard input
    #[command(hide = true)]
    Keeper(Up),
    /// Show what the running node serves, and to whom
    Status(OutputArgs),
    /// Make a running node what a configuration file says, as far as that goes while I/O runs
    Apply(crate::apply::ApplyArgs),
    /// Show what drives and tenants do now, again and again
    Top(crate::top::TopArgs),
    /// Show what has happened to the running node, and follow what happens
    Events(crate::events::EventsArgs),
    /// Say what is wrong with this machine and its nodes, and what to do
    Doctor(crate::doctor::DoctorArgs),
    /// List drives and profiles, change arbitration, or see how well drives keep their modelled times
    Device(DeviceArgs),
    /// List tenants, or change their shares
    Tenant(TenantArgs),
    /// List failures by rule, make some, and remove them
    Fault(FaultArgs),
    /// List pools and their drives, or change which drives they have
    Pool(PoolArgs),
    /// List, make, resize, rename and delete volumes, their snapshots and clones
    Volume(Volume),
    /// List the ways to drives and volumes, open and end some
    Export(Export),
    /// Start a virtual machine with a drive or volume of the running node
    Guest(crate::guest::GuestArgs),
    /// Files of the store: list, copy, move and remove them
    Fs(crate::fs::FsArgs),
    /// The store itself: its metadata service, namespaces and clients
    Store(crate::fs::StoreArgs),
    /// Replace the running node's program while I/O runs; not with keeper = false in [node]
    Upgrade(Upgrade),
    /// Let the running node finish what is in flight and end
    Shutdown,
    /// Check a configuration file, or print it with every default
    Config(ConfigArgs),
    /// Measure a drive
    Bench(crate::bench::BenchArgs),
    /// Measure what a drive can do, for `weir plan` and for admission
    Calibrate(crate::calibrate::CalibrateArgs),
    /// Simulate a drive and its tenants in virtual time
    Sim(crate::sim::SimArgs),
    /// Say whether tenants can have what they were promised, and by which weights
    Plan(crate::plan::PlanArgs),
    /// Make the figures of published papers again
    Reproduce(crate::reproduce::ReproduceArgs),
    /// Print the manual page of a command, or write those of all
    #[command(after_help = "\
Examples:
  weir man device health | man -l -
  weir man --out /usr/share/man/man1")]
    Man {
        /// The command [default: the program]
        command: Vec<String>,
        /// Write the pages of all commands to this folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  weir completions bash > /etc/bash_completion.d/weir
  source <(COMPLETE=bash weir)      one that also knows the drives, tenants and volumes of the running node (also zsh, fish)")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  weir up
  weir up -c weir.toml
  weir up --poll --cores 0,1 --listen 0.0.0.0:4420

The first SIGTERM or SIGINT drains and exits 0, the second exits 1 at once.")]
pub struct Up {
    /// The configuration [default: built in; `weir config --default` prints it]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A store of files on this machine: a drive in memory, a drive in a file of this folder, and a metadata service
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "weir-store", conflicts_with = "config")]
    pub store: Option<PathBuf>,
    /// Make promises to tenants that a calibrated drive cannot keep, and say which
    #[arg(long)]
    pub force: bool,
    /// Spin even without work, for the lowest latency
    #[arg(long)]
    pub poll: bool,
    /// CPUs to run on, one reactor each
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pub cores: Vec<u16>,
    /// Where NVMe/TCP listens
    #[arg(long, value_name = "IP:PORT", value_delimiter = ',')]
    pub listen: Vec<SocketAddr>,
}

#[derive(Debug, Args)]
pub struct DeviceArgs {
    #[command(subcommand)]
    pub command: DeviceCommand,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir upgrade                               the file that the node was started from has been replaced
  weir upgrade --binary /opt/weir-2/weir     another one
  weir upgrade --probation 1min --json       more time to fail in")]
pub struct Upgrade {
    /// The new program [default: what is now at the path of the one that was started]
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,
    /// How long it may take to prepare, and to be ready [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub within: Option<String>,
    /// If it dies within this time after it took over, the program before it serves again; the command waits as long
    /// [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub probation: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// List the drives
    #[command(after_help = "\
Examples:
  weir device ls           the drives of the running node
  weir device ls --pci     the NVMe drives of this machine, which driver has each, and what uses them; needs no node")]
    Ls {
        /// The NVMe drives on this machine's PCI bus instead
        #[arg(long)]
        pci: bool,
    },
    /// Take an NVMe drive of this machine from Linux, for a program of its own
    #[command(after_help = "\
Linux's driver lets go of the drive: its disks (/dev/nvme…) go away, and vfio-pci has it until `weir device unbind` or the next start of
the machine. A drive with a mounted file system, swap, or a device on top is refused. The machine needs an IOMMU that is switched on.

Examples:
  weir device ls --pci
  weir device bind 0000:01:00.0
  weir bench pci:0000:01:00.0")]
    Bind {
        /// Where it is: 0000:01:00.0
        #[arg(value_name = "ADDRESS", value_parser = crate::pci_drives::address)]
        address: PciAddress,
    },
    /// Give an NVMe drive of this machine back to Linux
    #[command(after_help = "\
Examples:
  weir device unbind 0000:01:00.0")]
    Unbind {
        /// Where it is: 0000:01:00.0
        #[arg(value_name = "ADDRESS", value_parser = crate::pci_drives::address)]
        address: PciAddress,
    },
    /// List the profiles: flash drives and models that `profile = "NAME"` and `weir bench local:NAME` know
    #[command(after_help = "\
Examples:
  weir device profiles                       what there is, and where its numbers are from
  weir device profiles p3700 > my.toml       the start of a profile of your own; use it as profile = \"./my.toml\"
  weir device profiles mqsim-default         every number of an emulator's model, as such a file
  weir bench 'local:p3700?capacity=8GiB'     measure one")]
    Profiles {
        /// Print this one as the file of a profile
        name: Option<String>,
        /// With what the emulator's code does and no drive does, as quirks = true has it
        #[arg(long, requires = "name")]
        quirks: bool,
    },
    /// Change how a drive arbitrates, while I/O runs
    #[command(after_help = "\
Examples:
  weir device set ssd0 --arbitration wrr --weights 32:16:8
  weir device set ssd0 --arbitration drr --quanta 128KiB:64KiB:32KiB
  weir device set ssd0 --burst none
  weir device set ssd0 --ana inaccessible --ana-host nqn.2014-08.org.nvmexpress:uuid:…
  weir device set ssd0 --ana inaccessible --ana-port 10.0.0.1:4420
  weir device set ssd0 --spare 5")]
    Set(DeviceSet),
    /// Show how well a drive keeps its modelled times: actual minus modelled completion time
    #[command(after_help = "\
Examples:
  weir device stats ssd0              text, with a small histogram
  weir device stats ssd0 --json       percentiles and buckets in nanoseconds
  weir device stats ssd0 --reset      show what was measured until now, and begin anew

raw is the difference as it was. net is without the time in which the drive's thread was ready to run but had no core.
late means that a tenth of the completions or more are over 5 us late, net; overloaded, that this is so because the core is full;
starved, that as many are late, but only raw.")]
    Stats(DeviceStatsArgs),
    /// Show what is wrong with a drive, or with the one that its media is on: what was seen and done, and what to do
    #[command(after_help = "\
Examples:
  weir device health ssd0
  weir device health ssd0 --json

A drive whose media is another drive (media = \"nvme:…\") is diagnosed by what is seen of that one: its errors, its SMART log, its
link. One with bad blocks or a failed controller goes on; one whose media have failed is isolated. A drive with a profile or a latency
is held to its model under load: slow, as expected, or not judged.")]
    Health {
        /// The drive
        name: String,
    },
    /// Make a firmware image that drives take (nvme fw-download, nvme fw-commit)
    #[command(after_help = "\
An image has a revision, which Identify tells once its slot is active, and nothing in it is executed.

Examples:
  weir device firmware-image --revision 2.0.1 new.fw     then, on a host:
    nvme fw-download /dev/nvme0 --fw=new.fw
    nvme fw-commit /dev/nvme0 --slot=2 --action=3")]
    FirmwareImage {
        /// Its revision: 1 to 8 ASCII characters without spaces
        #[arg(long)]
        revision: String,
        /// A file whose bytes it carries
        #[arg(long, value_name = "FILE")]
        payload: Option<std::path::PathBuf>,
        /// The file to write
        out: std::path::PathBuf,
    },
    /// Cut a drive's power and bring it back
    #[command(after_help = "\
Connections to the drive break; hosts come back by themselves where they are set up to. Writes that were completed and not flushed
may be gone, as from a drive with a volatile buffer; flushed ones never are.

Examples:
  weir device power-cut ssd0")]
    PowerCut {
        /// The drive
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct FaultArgs {
    #[command(subcommand)]
    pub command: FaultCommand,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// List the rules, and how often each applied
    #[command(after_help = "\
Examples:
  weir fault ls
  weir fault ls ssd0 --json")]
    Ls {
        /// Of this drive only
        device: Option<String>,
    },
    /// Make a rule: what goes wrong with which commands, from now on
    #[command(after_help = "\
A rule is an effect and KEY=VALUE words. The node's configuration has to say faults = true in [node].

Examples:
  weir fault add ssd0 media-error lba=1000-1007 op=read
  weir fault add ssd0 status code=0/06h probability=1% seed=7
  weir fault add ssd0 latency time=1ms..5ms tenant=silver
  weir fault add ssd0 hang op=write after=100 count=1
  weir fault add ssd0 link-loss lasts=15s
  weir fault add ssd0 removal back=other lasts=10s
  weir fault add ssd0 smart spare=5 temperature=355 over=1min
  weir fault add ssd0 slow-die die=3 times=8

Effects: status code= [dnr=] [crd=], media-error, correctable-error [retries=], corrupt [bytes=], torn-write keep=, misdirected by=,
lost-write, disk-full, latency time=, hang; and, for a while: stuck-queue, controller-fatal, reset-fails, slow-reset time=, link-loss,
removal [back=same|other], read-only, namespace-resized blocks=, namespace-identity, namespace-gone, smart [spare=] [wear=]
[temperature=] [media_errors=] [over=], slow-die times=.

Which commands: nsid=, lba=8-15, op=read,write, admin=identify, tenant=, queue=, channel=, die=, block=, page=.
When: probability=0.01, seed=, count=, after=COMMANDS, from=TIME, lasts=TIME.")]
    Add {
        /// The drive
        device: String,
        /// The effect, then KEY=VALUE
        #[arg(required = true, value_name = "RULE")]
        rule: Vec<String>,
    },
    /// Remove a rule: what it held goes on
    #[command(after_help = "\
Examples:
  weir fault rm ssd0 3
  weir fault rm ssd0 all")]
    Rm {
        /// The drive
        device: String,
        /// The rule's number, or all
        #[arg(value_name = "NUMBER|all")]
        rule: String,
    },
}

#[derive(Debug, Args)]
pub struct DeviceStatsArgs {
    /// The drive
    pub name: String,
    /// Begin to measure anew
    #[arg(long)]
    pub reset: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true).args(["arbitration", "weights", "burst", "quanta", "capacity", "ana", "spare"]))]
pub struct DeviceSet {
    /// The drive
    pub name: String,
    /// Who is next
    #[arg(long, value_enum)]
    pub arbitration: Option<MechanismArg>,
    /// wrr: commands of high:medium:low in a round, 1 to 256 each
    #[arg(long, value_name = "H:M:L")]
    pub weights: Option<String>,
    /// rr, wrr: commands of a queue in one visit, 1, 2, 4 … 64, or none for no limit
    #[arg(long, value_name = "COUNT")]
    pub burst: Option<String>,
    /// drr: bytes of high:medium:low in a round, 4KiB to 1GiB each
    #[arg(long, value_name = "H:M:L")]
    pub quanta: Option<String>,
    /// The drive's new size, at most its max_capacity; hosts and guests are told
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<String>,
    /// How hosts reach the drive's namespaces this way, until the node ends; those that want to know are told
    #[arg(long, value_enum, value_name = "STATE")]
    pub ana: Option<AnaArg>,
    /// Only the host with this NQN; without: all hosts
    #[arg(long, value_name = "NQN", requires = "ana")]
    pub ana_host: Option<String>,
    /// Only the hosts that come by this listening address
    #[arg(long, value_name = "ADDRESS:PORT", requires = "ana", conflicts_with = "ana_host")]
    pub ana_port: Option<std::net::SocketAddr>,
    /// SMART's available spare is no more than this, until the node ends; below 10 it warns
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub spare: Option<u8>,
    /// Do it even where promises to tenants cannot be kept then, and say which
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AnaArg {
    Optimized,
    NonOptimized,
    Inaccessible,
    PersistentLoss,
    Change,
}

impl From<AnaArg> for Ana {
    fn from(arg: AnaArg) -> Self {
        match arg {
            AnaArg::Optimized => Ana::Optimized,
            AnaArg::NonOptimized => Ana::NonOptimized,
            AnaArg::Inaccessible => Ana::Inaccessible,
            AnaArg::PersistentLoss => Ana::PersistentLoss,
            AnaArg::Change => Ana::Change,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MechanismArg {
    None,
    Rr,
    Wrr,
    Drr,
}

impl From<MechanismArg> for Mechanism {
    fn from(arg: MechanismArg) -> Self {
        match arg {
            MechanismArg::None => Mechanism::None,
            MechanismArg::Rr => Mechanism::Rr,
            MechanismArg::Wrr => Mechanism::Wrr,
            MechanismArg::Drr => Mechanism::Drr,
        }
    }
}

#[derive(Debug, Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    pub command: TenantCommand,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// List the tenants
    Ls,
    /// Change a tenant's share, floor, ceiling or service level, while I/O runs
    #[command(after_help = "\
Examples:
  weir tenant set silver --class high
  weir tenant set bronze --weight 4
  weir tenant set gold --floor-bandwidth 500MB/s --sla-p99 2ms
  weir tenant set bronze --ceiling-iops 20k --ceiling-burst 100
  weir tenant set bronze --ceiling-iops none")]
    Set(Box<TenantSet>),
    /// Add a tenant while I/O runs; it stays until the node ends
    #[command(after_help = "\
Examples:
  weir tenant add bronze --class low --host nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427
  weir tenant add lead --class medium --host '*' --sla-p99 2ms --ceiling-iops 20k
  weir tenant add gold --class high --sla-iops 50k --force

  Where the drives are calibrated, one whose promises cannot be kept is refused, with the reason; write a [[tenant]] into
  the configuration to have it at the next start as well.")]
    Add(Box<TenantAdd>),
    /// Remove a tenant that has no hosts connected and no export
    #[command(after_help = "\
Examples:
  weir tenant rm bronze")]
    Rm {
        /// The tenant
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("share").required(true).multiple(true).args([
    "class", "weight", "floor_iops", "floor_bandwidth", "floor_catch_up", "ceiling_iops", "ceiling_bandwidth",
    "ceiling_burst", "ceiling_burst_bytes", "sla_iops", "sla_bandwidth", "sla_p50", "sla_p99", "sla_p999",
]))]
pub struct TenantSet {
    /// The tenant
    pub name: String,
    #[command(flatten)]
    pub share: Share,
}

#[derive(Debug, Args)]
pub struct TenantAdd {
    /// Its name: 1 to 32 letters, digits, '-', '_' and '.'
    pub name: String,
    /// A host of its own by NQN, or '*' for all that are nobody else's (repeatable)
    #[arg(long = "host", value_name = "NQN")]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub share: Share,
}

/// What a tenant is given and promised.
#[derive(Debug, Args)]
pub struct Share {
    /// Its class
    #[arg(long, value_enum)]
    pub class: Option<ClassArg>,
    /// Its share among the tenants of its class, 1 to 256
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub weight: Option<u16>,
    /// Commands a second that it gets of each drive at least, or none
    #[arg(long, value_name = "COUNT", value_parser = changed(parse::count))]
    pub floor_iops: Option<Change<u64>>,
    /// Bandwidth that it gets of each drive at least, or none
    #[arg(long, value_name = "RATE", value_parser = changed(parse::bandwidth))]
    pub floor_bandwidth: Option<Change<Bytes>>,
    /// How much of a missed floor may be made up for at once
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse::nanos(text))]
    pub floor_catch_up: Option<Nanos>,
    /// Commands a second that it gets of each drive at the most, or none
    #[arg(long, value_name = "COUNT", value_parser = changed(parse::count))]
    pub ceiling_iops: Option<Change<u64>>,
    /// Bandwidth that it gets of each drive at the most, or none
    #[arg(long, value_name = "RATE", value_parser = changed(parse::bandwidth))]
    pub ceiling_bandwidth: Option<Change<Bytes>>,
    /// Commands at once after a pause; none: those of 10 ms
    #[arg(long, value_name = "COUNT", value_parser = changed(parse::count))]
    pub ceiling_burst: Option<Change<u64>>,
    /// Bytes at once after a pause; none: those of 10 ms
    #[arg(long, value_name = "SIZE", value_parser = changed(parse::bytes))]
    pub ceiling_burst_bytes: Option<Change<Bytes>>,
    /// Commands a second that it was promised, or none
    #[arg(long, value_name = "COUNT", value_parser = changed(parse::count))]
    pub sla_iops: Option<Change<u64>>,
    /// Bandwidth that it was promised, or none
    #[arg(long, value_name = "RATE", value_parser = changed(parse::bandwidth))]
    pub sla_bandwidth: Option<Change<Bytes>>,
    /// Time within which half of its commands are to be complete, or none
    #[arg(long, value_name = "TIME", value_parser = changed(parse::nanos))]
    pub sla_p50: Option<Change<Nanos>>,
    /// Time for 99 of 100 commands, or none
    #[arg(long, value_name = "TIME", value_parser = changed(parse::nanos))]
    pub sla_p99: Option<Change<Nanos>>,
    /// Time for 999 of 1000 commands, or none
    #[arg(long, value_name = "TIME", value_parser = changed(parse::nanos))]
    pub sla_p999: Option<Change<Nanos>>,
    /// Do it even where promises to tenants cannot be kept then, and say which
    #[arg(long)]
    pub force: bool,
}

/// A value, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<T>(pub Option<T>);

fn changed<T>(
    read: impl Fn(&str) -> Result<T, parse::ParseError> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<Change<T>, parse::ParseError> + Clone + Send + Sync + 'static {
    move |text| if text == "none" { Ok(Change(None)) } else { read(text).map(|value| Change(Some(value))) }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ClassArg {
    Urgent,
    High,
    Medium,
    Low,
}

impl ClassArg {
    pub fn name(self) -> &'static str {
        match self {
            ClassArg::Urgent => "urgent",
            ClassArg::High => "high",
            ClassArg::Medium => "medium",
            ClassArg::Low => "low",
        }
    }
}

#[derive(Debug, Args)]
pub struct PoolArgs {
    #[command(subcommand)]
    pub command: PoolCommand,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List the pools
    Ls,
    /// Show the pools' drives, and what is free on them
    #[command(after_help = "\
Examples:
  weir pool status
  weir pool status pool0 --json
  weir pool status --check || page-someone")]
    Status {
        /// This pool only
        name: Option<String>,
        /// Exit with 1 if a pool is degraded, a volume has lost something, or metadata cannot be written
        #[arg(long)]
        check: bool,
    },
    /// Have a pool serve without a drive that fails, as if it were lost
    #[command(after_help = "\
Example:
  weir pool offline ssd2

What volumes have on the drive fails from then on, at once; all else goes on. Give its place to another one with weir pool replace,
or have it take part again with weir pool online.")]
    Offline {
        /// The drive
        device: String,
        /// The pool [default: the only one]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Have a lost drive that is there again take part in its pool
    #[command(after_help = "\
Example:
  weir pool online ssd2

What volumes have on the drive can be read again. What it has missed of volumes with two copies is rebuilt; weir pool status shows how far
that is. Refused by name, and then nothing is written: an old copy of the drive, another drive, one that was replaced or removed meanwhile,
and one that was used without the others.")]
    Online {
        /// The drive: the device that it is, or the number, UUID or name that weir pool status shows
        device: String,
        /// The pool [default: the only one]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Compare the copies of volumes that have two, in the background
    #[command(after_help = "\
Examples:
  weir pool scrub
  weir pool scrub --repair                     where copies differ, the second one is written anew
  weir pool scrub --stop

weir pool status says how far it is and what it has found; the log names each piece that differs.")]
    Scrub {
        /// Write the second copy anew where the copies differ, or one cannot be read
        #[arg(long)]
        repair: bool,
        /// Leave off
        #[arg(long, conflicts_with = "repair")]
        stop: bool,
        /// The pool [default: the only one]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Give the place of a lost drive to another device, or give up what a volume has lost
    #[command(
        after_help = "\
Examples:
  weir pool replace ssd2 ssd5
  weir pool replace 1 ssd5                     by its number, or by its UUID: weir pool status has them
  weir pool replace --empty gold-0

What is on the new device is gone. What volumes had on the lost drive fails until the drive is back, or until they are given up
with --empty: all of such a volume reads as zeroes then, it has another UUID, and its hosts are told that it is another disk.",
        override_usage = "weir pool replace [--pool POOL] <OLD> <NEW>\n       weir pool replace --empty <VOLUME>"
    )]
    Replace {
        /// The lost drive: its name, its number or its UUID
        #[arg(required_unless_present = "empty", conflicts_with = "empty")]
        old: Option<String>,
        /// The device that takes its place
        #[arg(required_unless_present = "empty", conflicts_with = "empty")]
        new: Option<String>,
        /// The volume that is given up
        #[arg(long, value_name = "VOLUME", conflicts_with = "pool")]
        empty: Option<String>,
        /// The pool [default: the only one]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Have a device join a pool while it serves; what is on it is gone
    #[command(after_help = "\
Examples:
  weir pool add ssd2
  weir pool add ssd2 --pool pool1

The device is one of the configuration that is not exported, and empty: its first 128 KiB are zeroes. It need not be named in
[[pool]] afterwards: what is on it says that it is the pool's.")]
    Add {
        /// The device
        device: String,
        /// The pool [default: the only one]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Have a drive leave its pool; no volume may lie on it
    #[command(after_help = "\
Example:
  weir pool remove ssd2")]
    Remove {
        /// The device
        device: String,
        /// The pool [default: the only one]
        #[arg(long)]
        pool: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Volume {
    #[command(subcommand)]
    pub command: VolumeCommand,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// List the volumes
    Ls,
    /// Make a volume, which reads as zeroes
    #[command(after_help = "\
Examples:
  weir volume create gold-1 2GiB --tenant gold
  weir volume create safe 2GiB --copies 2    each chunk on two drives
  weir volume create scratch 10GB --pool pool1 && weir export volume scratch nvme-tcp

Sizes are rounded up to whole MiB.")]
    Create {
        /// Its name
        name: String,
        /// Its size: 512MiB, 10GB
        #[arg(value_parser = volume_size)]
        size: u64,
        #[command(flatten)]
        place: VolumePlace,
    },
    /// Give a volume another size, while its hosts use it
    #[command(after_help = "\
Examples:
  weir volume resize gold-1 4GiB
  weir volume resize gold-1 1GiB --shrink    what lies behind 1 GiB is lost")]
    Resize {
        /// The volume
        name: String,
        /// The new size
        #[arg(value_parser = volume_size)]
        size: u64,
        /// The new size may be a smaller one; what lies behind it is lost
        #[arg(long)]
        shrink: bool,
    },
    /// Give a volume another name, while it is not exported
    #[command(after_help = "\
Example:
  weir volume rename gold-1 gold-old")]
    Rename {
        /// The volume
        name: String,
        /// The new name
        to: String,
    },
    /// Make a snapshot of a volume, while its hosts use it: it keeps what was acknowledged by then, and never changes
    #[command(after_help = "\
Example:
  weir volume snapshot gold-1@monday

It takes no room at first. The volume gets a copy of each chunk of 1 MiB that is written after that.")]
    Snapshot {
        /// VOLUME@NAME
        snapshot: String,
    },
    /// Make a volume with what a snapshot has
    #[command(after_help = "\
Example:
  weir volume clone gold-1@monday test-1 && weir export volume test-1 nvme-tcp")]
    Clone {
        /// VOLUME@NAME
        snapshot: String,
        /// The new volume
        name: String,
        /// Whose it is [default: whose the snapshot is]
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Give a volume that is not exported back what it had when a snapshot was made; what it has had since is gone
    #[command(after_help = "\
Example:
  weir volume rollback gold-1@monday")]
    Rollback {
        /// VOLUME@NAME
        snapshot: String,
    },
    /// Write what a snapshot has, or a volume that no host uses, into a file (to serve it to hosts: weir export volume)
    #[command(after_help = "\
Examples:
  weir volume export gold-1@monday gold-1.img
  weir volume export gold-1@monday - | zstd >gold-1.img.zst

The file is a raw image with holes where the volume has zeroes, and gets its name when it is whole. It is read through the node, at
the share of the volume's tenant.")]
    Export {
        /// The volume, or VOLUME@NAME
        name: String,
        /// The file; - is the standard output
        file: String,
        /// Replace a file that is there
        #[arg(short, long)]
        force: bool,
    },
    /// Make a volume with what a raw image has
    #[command(after_help = "\
Examples:
  weir volume import debian.img root-1 --tenant gold
  weir volume import debian.img root-1 --size 20GiB    a larger volume; the rest reads as zeroes
  qemu-img convert -O raw debian.qcow2 debian.img && weir volume import debian.img root-1
  zstd -dc gold-1.img.zst | weir volume import - gold-2 --size 2GiB

Until it is whole the volume is called NAME.importing.")]
    Import {
        /// The file; - is the standard input
        file: String,
        /// The new volume
        name: String,
        /// Its size [default: that of the file]
        #[arg(long, value_parser = volume_size)]
        size: Option<u64>,
        #[command(flatten)]
        place: VolumePlace,
    },
    /// Delete a volume that is not exported, and what it holds; or a snapshot
    #[command(after_help = "\
Examples:
  weir volume delete gold-old
  weir volume delete gold-1@monday")]
    Delete {
        /// The volume, or VOLUME@NAME
        name: String,
    },
}

/// Whose a new volume is, and where it lies.
#[derive(Clone, Debug, Args)]
pub struct VolumePlace {
    /// Whose it is [default: the only tenant]
    #[arg(long)]
    pub tenant: Option<String>,
    /// Of which pool [default: the only one]
    #[arg(long)]
    pub pool: Option<String>,
    /// How many drives have each chunk [default: as the pool has it]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub copies: Option<u8>,
}

fn volume_size(text: &str) -> Result<u64, String> {
    match parse::bytes(text).map_err(|e| e.to_string())? {
        Bytes(0) => Err("a volume has at least 1 MiB".into()),
        Bytes(bytes) => Ok(bytes),
    }
}

#[derive(Debug, Args)]
pub struct Export {
    #[command(subcommand)]
    pub command: ExportCommand,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// List the exports
    Ls,
    /// Serve a drive on one more vfio-user socket, for a virtual machine; it stays until the node ends
    #[command(after_help = "\
Examples:
  weir export vfio-user ssd0 /run/weir/vm1.sock
  weir export vfio-user ssd0 vm2.sock --tenant silver --doorbells trap

  Write an [[export]] into the configuration to have it at the next start as well.")]
    VfioUser(VfioUser),
    /// Serve a volume at one more door; it stays until the node ends
    #[command(after_help = "\
Examples:
  weir export volume gold-0 nvme-tcp
  weir export volume gold-0 vhost-user:/run/weir/gold-0.sock
  weir export volume gold-1 nvme-tcp --max-controllers 16

  Write it into the volume's export = [...] in the configuration to have it at the next start as well.")]
    Volume {
        /// The volume
        name: String,
        /// nvme-tcp, vhost-user:PATH or vfio-user:PATH
        door: String,
        /// Controllers at once, over all doors of the volume, 1 to 65519; with its first export only. 1024 if it is not said
        #[arg(long, value_name = "N")]
        max_controllers: Option<u32>,
    },
    /// End the export at a vfio-user socket, or of a volume, and its client's connection
    #[command(after_help = "\
Examples:
  weir export rm /run/weir/vm1.sock
  weir export rm nvme-tcp:gold-0        a volume over NVMe/TCP, when no host is connected")]
    Rm {
        /// The socket, or nvme-tcp:VOLUME
        socket: std::path::PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct VfioUser {
    /// The drive
    pub device: String,
    /// Where the socket is to be
    pub socket: std::path::PathBuf,
    /// Whose queues they are [default: the only tenant]
    #[arg(long)]
    pub tenant: Option<String>,
    /// Who decides the class of its queues [default: tenant]
    #[arg(long, value_parser = PossibleValuesParser::new(["tenant", "qprio", "peer"]))]
    pub class_from: Option<String>,
    /// How its doorbells come [default: auto]
    #[arg(long, value_parser = PossibleValuesParser::new(["auto", "mmap", "trap"]))]
    pub doorbells: Option<String>,
    /// Do it even where promises to tenants cannot be kept then, and say which
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir config --default > weir.toml    start a configuration of your own
  weir config -c weir.toml --check     say what is wrong with it, with file, line and key
  weir config -c weir.toml             print it with every default filled in
  weir config --schema > weir.schema.json    for an editor: begin weir.toml with `#:schema ./weir.schema.json`")]
pub struct ConfigArgs {
    /// The configuration [default: built in]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the built-in default as written, with comments
    #[arg(long, conflicts_with_all = ["config", "check"])]
    pub default: bool,
    /// Print nothing but errors
    #[arg(long)]
    pub check: bool,
    /// Print a JSON Schema of configurations, for editors
    #[arg(long, conflicts_with_all = ["config", "check", "default"])]
    pub schema: bool,
}
