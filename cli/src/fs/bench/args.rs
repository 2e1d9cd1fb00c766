//! `weir fs bench`: its modes and options, named as those of Crail's `iobench`.

use super::replay::ReplayArgs;
use crate::failure::CommandFailure;
use clap::builder::PossibleValue;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use weir_units::parse;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchMode {
    /// Writes in order, one after the other.
    Write,
    /// Writes in order, several in flight.
    WriteAsync,
    /// Reads in order, one after the other.
    ReadSequential,
    /// Reads at random places, one after the other.
    ReadRandom,
    /// Reads in order, several in flight.
    ReadSequentialAsync,
    /// Reads of all files of a multifile, several in flight.
    ReadMultiStream,
    /// Makes files in a folder.
    CreateFile,
    /// Looks a file up.
    GetFile,
    /// Reads a small file as a whole.
    GetKey,
    /// Lists a folder.
    EnumerateDir,
}

impl BenchMode {
    /// As the command line writes it.
    pub const fn name(self) -> &'static str {
        match self {
            BenchMode::Write => "write",
            BenchMode::WriteAsync => "writeAsync",
            BenchMode::ReadSequential => "readSequential",
            BenchMode::ReadRandom => "readRandom",
            BenchMode::ReadSequentialAsync => "readSequentialAsync",
            BenchMode::ReadMultiStream => "readMultiStream",
            BenchMode::CreateFile => "createFile",
            BenchMode::GetFile => "getFile",
            BenchMode::GetKey => "getKey",
            BenchMode::EnumerateDir => "enumerateDir",
        }
    }

    /// Whether it can go through a buffered stream as well as directly.
    pub const fn has_streams(self) -> bool {
        matches!(self, BenchMode::Write | BenchMode::ReadSequential | BenchMode::ReadRandom)
    }

    /// Whether it keeps several operations in flight.
    pub const fn has_batch(self) -> bool {
        matches!(self, BenchMode::WriteAsync | BenchMode::ReadSequentialAsync | BenchMode::ReadMultiStream)
    }

    /// Whether it moves bytes of files.
    pub const fn has_size(self) -> bool {
        !matches!(self, BenchMode::CreateFile | BenchMode::GetFile | BenchMode::EnumerateDir)
    }

    /// Whether it makes files.
    pub const fn writes(self) -> bool {
        matches!(self, BenchMode::Write | BenchMode::WriteAsync | BenchMode::CreateFile | BenchMode::GetKey)
    }
}

/// A mode by one of its names, some of which say as well whether a buffered stream is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedMode {
    name: &'static str,
    /// What is measured.
    pub mode: BenchMode,
    /// Through a buffered stream; none where the name does not say.
    pub buffered: Option<bool>,
}

const fn named(name: &'static str, mode: BenchMode, buffered: Option<bool>) -> NamedMode {
    NamedMode { name, mode, buffered }
}

/// Crail's names, then those of its papers and of its older versions.
const NAMES: [NamedMode; 20] = [
    named("write", BenchMode::Write, None),
    named("writeAsync", BenchMode::WriteAsync, None),
    named("readSequential", BenchMode::ReadSequential, None),
    named("readRandom", BenchMode::ReadRandom, None),
    named("readSequentialAsync", BenchMode::ReadSequentialAsync, None),
    named("readMultiStream", BenchMode::ReadMultiStream, None),
    named("createFile", BenchMode::CreateFile, None),
    named("getFile", BenchMode::GetFile, None),
    named("getKey", BenchMode::GetKey, None),
    named("enumerateDir", BenchMode::EnumerateDir, None),
    named("writeDirect", BenchMode::Write, Some(false)),
    named("writeHeap", BenchMode::Write, Some(true)),
    named("writeBuffered", BenchMode::Write, Some(true)),
    named("readSequentialDirect", BenchMode::ReadSequential, Some(false)),
    named("readSequentialHeap", BenchMode::ReadSequential, Some(true)),
    named("readSequentialBuffered", BenchMode::ReadSequential, Some(true)),
    named("readRandomDirect", BenchMode::ReadRandom, Some(false)),
    named("readRandomHeap", BenchMode::ReadRandom, Some(true)),
    named("readRandomBuffered", BenchMode::ReadRandom, Some(true)),
    named("readAsync", BenchMode::ReadSequentialAsync, None),
];

impl ValueEnum for NamedMode {
    fn value_variants<'a>() -> &'a [Self] {
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).hide(self.name != self.mode.name()))
    }
}

/// What is not cached when an operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cold {
    /// The file's map: the file is opened anew before each operation, which is not counted
    Map,
    /// Name and map: that it is opened is a part of each operation
    All,
}

/// The most bytes of an operation of [`BenchMode::WriteAsync`].
const WRITE_MAX: u64 = 4 << 20;
/// The most memory of all operations in flight.
const MEMORY_MAX: u64 = 2 << 30;

/// What is not measured by a mode.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Ask of the store again what programs have asked, without the programs
    Replay(ReplayArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Modes:
  write, readSequential, readRandom         one operation after the other; buffered, or with -m false or ...Direct straight
                                            between the drive and the program's memory
  writeAsync, readSequentialAsync           direct, -b operations in flight
  readMultiStream                           the same over all files of a multifile or folder, -k times
  createFile, getFile, getKey, enumerateDir make files in a new folder; look a file up; write a small file and read it as a whole,
                                            again and again; list a folder
  replay                                    what programs have recorded (weir fs bench replay --help)
  Also as Crail's papers write them: readRandomDirect, readSequentialHeap, readAsync, ...; case does not matter.

Examples:
  weir fs bench writeAsync -s 1MiB -k 1024 -b 16 -f /tmp.dat --class flash   a file to read
  weir fs bench -t readRandomDirect -s 4096 -k 10000 -w 32 -f /tmp.dat       latency
  weir fs bench -t readAsync -s 65536 -k 16384 -b 128 -w 32 -f /tmp.dat      throughput
  weir fs bench readSequentialHeap -s 1024 -k 1000000 -f /tmp.dat            through a buffered stream
  weir fs bench readRandomDirect -s 4096 -k 1000 --cold map -f /tmp.dat      the map asked for by each operation
  weir fs bench createFile -k 10000 -f /many && weir fs bench enumerateDir -k 100 -f /many
  weir fs bench readAsync -s 65536 -k 16384 -b 128 --raw 'nvme-tcp://127.0.0.1:4420/NQN?ns=1'   the drive without the store

An operation that fails ends the run with exit status 1. What the modes that write have made stays.")]
pub struct FsBenchArgs {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// What is measured
    #[arg(
        value_enum,
        ignore_case = true,
        value_name = "MODE",
        required_unless_present = "kind",
        conflicts_with = "kind"
    )]
    pub mode: Option<NamedMode>,
    /// The same, as Crail's iobench takes it
    #[arg(
        short = 't',
        long = "type",
        value_enum,
        ignore_case = true,
        value_name = "MODE",
        hide_possible_values = true
    )]
    pub kind: Option<NamedMode>,
    /// The file, or of createFile and enumerateDir the folder
    #[arg(short, long, value_name = "PATH", default_value = "/tmp.dat")]
    pub file: OsString,
    /// Bytes of an operation: 4096, 64KiB
    #[arg(short, long, value_name = "BYTES", default_value = "1MiB", value_parser = bytes)]
    pub size: u64,
    /// Operations; of readMultiStream, how often all is read
    #[arg(short = 'k', long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: u64,
    /// Operations in flight, of the modes that keep several
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// Operations before those that count, on a file of their own
    #[arg(short, long, value_name = "N", default_value_t = 32)]
    pub warmup: u64,
    /// Classes of a new file, best first [default: those of the store]
    #[arg(short, long, value_name = "CLASS", value_delimiter = ',')]
    pub class: Vec<String>,
    /// Where the blocks of a new file should be
    #[arg(short = 'p', long, value_name = "LOCATION")]
    pub location: Option<String>,
    /// So many runs; each of them writes its file anew
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub experiments: u32,
    /// Through a buffered stream [default: true, where the mode has one and its name does not say]
    #[arg(short = 'm', long, value_name = "BOOL", action = ArgAction::Set)]
    pub buffered: Option<bool>,
    /// What each operation of readRandom has to ask for, instead of having it cached
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "raw")]
    pub cold: Option<Cold>,
    /// A namespace instead of a file, by the same driver: what the store is measured against. Writes overwrite it
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["file", "class", "location"])]
    pub raw: Option<String>,
    /// With --raw, the first bytes of the namespace, instead of all of it
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "raw")]
    pub region: Option<u64>,
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse::bytes(text).map_err(|e| e.to_string())?.get() {
        0 => Err("0 bytes move nothing".into()),
        bytes => Ok(bytes),
    }
}

/// What was asked for, and can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchPlan {
    pub mode: BenchMode,
    /// Through a buffered stream.
    pub buffered: bool,
    /// Bytes of an operation.
    pub size: usize,
    pub operations: u64,
    /// Operations in flight.
    pub batch: usize,
    pub warmup: u64,
    pub cold: Option<Cold>,
}

impl FsBenchArgs {
    /// What is asked for.
    ///
    /// # Errors
    /// Options that do not go together, or more than there is memory for.
    pub fn plan(&self) -> Result<BenchPlan, CommandFailure> {
        let wrong = |text: String| Err(CommandFailure::usage(format_args!("fs bench: {text}")));
        let Some(NamedMode { name, mode, buffered }) = self.mode.or(self.kind) else {
            return wrong("name a mode".into());
        };
        if self.buffered.is_some() && !mode.has_streams() {
            return wrong(format!("{name} has no buffered form and a direct one; leave -m out"));
        }
        if let (Some(by_name), Some(by_option)) = (buffered, self.buffered) {
            if by_name != by_option {
                return wrong(format!("{name} says the opposite of -m {by_option}; leave -m out"));
            }
        }
        if self.cold.is_some() && mode != BenchMode::ReadRandom {
            return wrong(format!("--cold is for readRandom, not for {name}"));
        }
        if self.batch > 1 && !mode.has_batch() {
            return wrong(format!("{name} makes one operation after the other; leave -b out"));
        }
        let raw = [BenchMode::Write, BenchMode::WriteAsync, BenchMode::ReadSequential, BenchMode::ReadRandom];
        if self.raw.is_some() && !raw.contains(&mode) && mode != BenchMode::ReadSequentialAsync {
            return wrong(format!("{name} needs a store; leave --raw out"));
        }
        let buffered = mode.has_streams()
            && self.raw.is_none()
            && self.cold.is_none()
            && buffered.or(self.buffered).unwrap_or(true);
        if mode == BenchMode::WriteAsync && self.size > WRITE_MAX {
            return wrong(format!("-s {}: an operation of writeAsync has at most 4MiB", self.size));
        }
        let memory = self.size.saturating_mul(self.batch.into());
        if mode.has_size() && memory > MEMORY_MAX {
            return wrong(format!(
                "-s {} times -b {}: {memory} bytes are more than 2GiB in flight",
                self.size, self.batch
            ));
        }
        if mode.writes() && mode.has_size() && self.size.checked_mul(self.operations).is_none() {
            return wrong(format!("-s {} times -k {}: no file is that long", self.size, self.operations));
        }
        Ok(BenchPlan {
            mode,
            buffered,
            size: self.size as usize,
            operations: self.operations,
            batch: self.batch as usize,
            warmup: self.warmup,
            cold: self.cold,
        })
    }
}
