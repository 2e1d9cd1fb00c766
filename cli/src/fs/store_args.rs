//! `weir store`: its commands and options.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use weir_config::StoreMeta;

/// The store that a metadata service is of.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir store status
  weir store node add nvme-tcp://10.0.0.2:4420/nqn.2026-11.io.weir:n2:ssd0 --class flash --location hall1/rack2
  weir store node drain 3
  weir store --store 10.0.0.1:4430 client ls --json
  weir store fsck /var/lib/weir/meta.redb --repair
  weir store fsck etcd:http://10.0.0.1:2379,http://10.0.0.2:2379/store1")]
pub struct StoreArgs {
    /// The metadata service: HOST:PORT or unix:PATH, several with commas between them [env: WEIR_STORE] [default: of the node that runs]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub store: Option<String>,
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Show the metadata service, the classes and the namespaces
    Status,
    /// List, add, drain and remove the namespaces that the store fills
    Node(NodeArgs),
    /// List clients
    Client(StoreClientArgs),
    /// Check the metadata of a store that no service has, and put right what can be
    #[command(after_help = "\
Nothing is changed without --repair, and a repair takes no bytes of a file away: what no name leads to gets one in /lost+found.
All metadata services of the store have to be stopped. In etcd their records tell whether one is alive, which takes up to four seconds where
one was killed; a service that starts during a repair stands by until that is over.
Exit status: 0 nothing is wrong; 1 something was found, repaired or not, or the check could not be made; 2 wrong usage.

Examples:
  weir store fsck weir-store/store.redb
  weir store fsck /var/lib/weir/meta.redb --repair
  weir store fsck etcd:http://10.0.0.1:2379,http://10.0.0.2:2379/store1 --repair
  weir store fsck etcd:https://10.0.0.1:2379/store1 --etcd-ca ca.pem --etcd-user weir --etcd-password-file etcd.password
  weir store fsck meta.redb --json | jq -r '.left[].kind'")]
    Fsck(Box<FsckArgs>),
}

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// FILE, or etcd:http://HOST:PORT,http://HOST:PORT/PREFIX: as the configuration's [store] has it behind meta; https:// with TLS
    #[arg(value_name = "META", value_parser = super::fsck::place, value_hint = ValueHint::FilePath)]
    pub meta: StoreMeta,
    /// Put right what can be
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    pub access: EtcdArgs,
}

/// By what an etcd lets the command in: what the configuration has in `etcd` of `[store]`.
#[derive(Debug, Args)]
pub struct EtcdArgs {
    /// The certificates, in PEM, of the authorities that sign those of etcd's members; else those that the system trusts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub etcd_ca: Option<PathBuf>,
    /// The certificate of this client, in PEM, where etcd asks for one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_key")]
    pub etcd_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// The user of etcd, where etcd asks for one
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub etcd_user: Option<String>,
    /// The file whose first line is the user's password; others must not be able to read it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(subcommand)]
    pub command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List the namespaces
    Ls,
    /// Give a namespace to the store, which takes the whole of it
    #[command(after_help = "\
Example:
  weir store node add nvme-tcp://10.0.0.2:4420/nqn.2026-11.io.weir:n2:ssd0?ns=1 --class flash")]
    Add {
        /// Where it is: nvme-tcp://HOST:PORT/NQN?ns=1
        target: String,
        /// Its class: one of the store's
        #[arg(long)]
        class: String,
        /// Where it stands, from the widest part on: hall1/rack2
        #[arg(long, default_value = "", hide_default_value = true)]
        location: String,
        /// Take it although something lies on it, which is lost then
        #[arg(long)]
        overwrite: bool,
    },
    /// Have the blocks of a namespace go to others, and give out no more of it
    #[command(after_help = "\
It returns at once; weir store node ls says how far it is and what cannot be moved. Files can be read and written meanwhile.

Examples:
  weir store node drain 3
  weir store node ls
  weir store node rm 3")]
    Drain {
        /// Its number
        namespace: u64,
        /// Leave those that are there, and give out more again
        #[arg(long)]
        undo: bool,
    },
    /// Take a namespace out of the store, on which no blocks of files are
    #[command(after_help = "Example:\n  weir store node rm 3")]
    Rm {
        /// Its number
        namespace: u64,
    },
}

#[derive(Debug, Args)]
pub struct StoreClientArgs {
    #[command(subcommand)]
    pub command: StoreClientCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum StoreClientCommand {
    /// List the clients' sessions
    Ls,
}
