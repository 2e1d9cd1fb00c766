//! `weir fs`: its commands and options, named as in coreutils and `hadoop fs`.

use clap::{ArgAction, Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Files of the store.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir fs put -r results /runs/7          a folder of this machine into the store
  weir fs ls -l /runs                     what is there
  weir fs cat '/runs/*/summary.txt'       * ? and [a-z] are the store's where the shell leaves them
  weir fs get -r /runs/7 .                back
  weir fs --store 10.0.0.1:4430 ls /      of another store; also weir://10.0.0.1:4430/ and WEIR_STORE

A path in the store is absolute. Without --store, WEIR_STORE or weir:// it is the store of the node that runs.
Exit status: 0; 1 where something failed, each with its path and reason; 2 for wrong usage.")]
pub struct FsArgs {
    /// The metadata service: HOST:PORT or unix:PATH, several with commas between them [env: WEIR_STORE] [default: of the node that runs]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub store: Option<String>,
    #[command(subcommand)]
    pub command: FsCommand,
}

#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// List folders, or files by themselves
    #[command(disable_help_flag = true)]
    Ls(LsArgs),
    /// Write files to the standard output
    #[command(after_help = "Example:\n  weir fs cat /runs/7/log | tail")]
    Cat {
        /// Files
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Copy files of this machine into the store
    #[command(after_help = "\
Examples:
  weir fs put a.bin /                 as /a.bin
  weir fs put -f a.bin /b             over a file that is there
  weir fs put --class flash a.bin /   on drives of that class only
  weir fs put -r folder /runs         a folder with all that is in it, as /runs/folder where /runs is there, else as /runs
  tar c . | weir fs put - /all.tar    the standard input

Others see a file when it is whole.")]
    Put(CopyArgs),
    /// Copy files of the store to this machine
    #[command(after_help = "\
Examples:
  weir fs get /a.bin .
  weir fs get -r /runs/7 results
  weir fs get /all.tar - | tar x")]
    Get(CopyArgs),
    /// Copy files within the store, or from one store to another
    #[command(after_help = "\
Examples:
  weir fs cp /a /b
  weir fs cp -r /runs/7 weir://10.0.0.2:4430/archive")]
    Cp(CopyArgs),
    /// Move or rename files and folders
    #[command(after_help = "\
Examples:
  weir fs mv /a /b
  weir fs mv /a /b /c /folder    into a folder
  weir fs mv -f /new /current    in place of what is there, in one step")]
    Mv {
        /// In place of a file, or an empty folder, that is there
        #[arg(short, long)]
        force: bool,
        /// What to move, and where to
        #[arg(required = true, num_args = 2..)]
        paths: Vec<OsString>,
    },
    /// Remove files, and folders with -r
    #[command(after_help = "\
Examples:
  weir fs rm /a '/tmp/*.log'
  weir fs rm -r /runs/7")]
    Rm {
        /// Folders with all that is in them
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// It is no error that nothing is there
        #[arg(short, long)]
        force: bool,
        /// What to remove
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make folders
    #[command(after_help = "Example:\n  weir fs mkdir -p /runs/7/logs")]
    Mkdir {
        /// Also those on the way; it is no error that one is there
        #[arg(short, long)]
        parents: bool,
        /// Permissions
        #[arg(short, long, value_name = "OCTAL", default_value = "755", value_parser = octal)]
        mode: u32,
        /// The folders
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Show all that is known of files and folders
    #[command(after_help = "Example:\n  weir fs stat /runs/7/log --json")]
    Stat {
        /// Follow symbolic links
        #[arg(short = 'L', long)]
        dereference: bool,
        /// Files and folders
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Add up the sizes of the files below folders
    #[command(disable_help_flag = true)]
    Du(DuArgs),
    /// Show how much room each class has
    #[command(disable_help_flag = true)]
    Df(DfArgs),
    /// Show or set the classes that blocks of a file are of; those that are there stay where they are
    #[command(after_help = "\
Examples:
  weir fs class /runs/7/log
  weir fs class /runs/7/log flash
  weir fs class /runs/7/log default    those of the store")]
    Class {
        /// The file
        path: OsString,
        /// Its classes from now on, best first
        classes: Vec<String>,
    },
    /// Read all copies of files, and compare them with their checksums
    #[command(after_help = "\
Examples:
  weir fs scrub                  the whole store
  weir fs scrub /runs --repair   bad copies are written anew where another one is good
  weir fs scrub /runs --json

Files may be read and written meanwhile. A repair opens its file to be written, so it waits for no one: a file that another client writes stays as
it is. Exit status: 0; 1 where a copy is bad, was repaired, or cannot be read.")]
    Scrub(ScrubArgs),
    /// Show the policies by path, or the one that a new file of a path would get
    #[command(after_help = "\
The first policy that matches gives a file its classes and copies when it is made, where its maker says none. What a file has later is shown
by weir fs stat; a rename changes nothing of it.

Examples:
  weir fs policy ls
  weir fs policy ls --json
  weir fs policy /tmp/7/log")]
    Policy {
        /// ls for all of them, or a path without symbolic links, where nothing has to be
        #[arg(value_name = "ls|PATH")]
        of: OsString,
    },
    /// Measure how fast the store is, in the modes of Crail's iobench
    Bench(super::bench::args::FsBenchArgs),
    /// Mount the store on a directory of this machine, until it is unmounted
    Mount(super::mount::MountArgs),
    /// Unmount a store, also one whose mount has died
    #[command(after_help = "\
Examples:
  weir fs umount /mnt/weir
  weir fs umount --lazy /mnt/weir    although programs use it: it goes when they have ended")]
    Umount {
        /// Take it out of sight at once, and away when nobody uses it any more
        #[arg(short, long)]
        lazy: bool,
        /// Where it is mounted
        directory: PathBuf,
    },
    /// Make empty files, or set the time of those that are there to the present
    #[command(after_help = "Example:\n  weir fs touch /runs/7/done")]
    Touch {
        /// Make none
        #[arg(short = 'c', long)]
        no_create: bool,
        /// The files
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make a symbolic link
    #[command(after_help = "\
Examples:
  weir fs ln -s /runs/7 /current
  weir fs ln -sf /runs/8 /current    in place of the one that is there, in one step")]
    Ln {
        /// Symbolic; the store has no other links
        #[arg(short, long, required = true)]
        symbolic: bool,
        /// In place of a file or link that is there
        #[arg(short, long)]
        force: bool,
        /// What the link says
        target: OsString,
        /// Where it is to be
        link: OsString,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir fs ls /
  weir fs ls -lh /runs
  weir fs ls -lt /runs            the newest first
  weir fs ls -R / --json")]
pub struct LsArgs {
    /// With mode, copies, owner, size and time (UTC)
    #[arg(short, long)]
    pub long: bool,
    /// Sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Also what is in the folders, and so on
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Folders themselves, not what is in them
    #[arg(short, long)]
    pub directory: bool,
    /// The newest first
    #[arg(short = 't', long = "time")]
    pub by_time: bool,
    /// The largest first
    #[arg(short = 'S', long = "size", conflicts_with = "by_time")]
    pub by_size: bool,
    /// In the opposite order
    #[arg(short, long)]
    pub reverse: bool,
    /// Files and folders [default: /]
    pub paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir fs du -sh /runs/7
  weir fs du /runs        each folder below it")]
pub struct DuArgs {
    /// One line for each that is named
    #[arg(short, long)]
    pub summarize: bool,
    /// Sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Files and folders [default: /]
    pub paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
pub struct ScrubArgs {
    /// Write bad copies anew, from a good one
    #[arg(long)]
    pub repair: bool,
    /// Files and folders [default: /]
    pub paths: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  weir fs df -h")]
pub struct DfArgs {
    /// Sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Of `put`, `get` and `cp`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// Folders with all that is in them
    #[arg(short, long, short_alias = 'R')]
    pub recursive: bool,
    /// Over files that are there
    #[arg(short, long)]
    pub force: bool,
    /// Keep permissions and times
    #[arg(short, long)]
    pub preserve: bool,
    /// Classes of new files in the store, best first [default: those of the path's policy, or of the store]
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    pub class: Vec<String>,
    /// Copies of each block of new files in the store [default: as the path's policy says, or 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=4))]
    pub copies: Option<u8>,
    /// What to copy, and where to
    #[arg(required = true, num_args = 2..)]
    pub paths: Vec<OsString>,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("write permissions as up to four octal digits, like 755".into()),
    }
}
