//! `[node]`.

use super::api::ApiConfig;
use super::machine::Machine;
use super::names::name;
use super::read::{Read, Section, flag, integer, one_or_list, quoted, text, time, word};
use super::runtime::socket_path;
use super::value::Value;
use super::word_enum::word_enum;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_units::Nanos;

/// More CPUs than any machine has.
const MAX_CORE: u64 = 4095;

/// The process as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Part of every subsystem NQN.
    pub name: String,
    /// Where the HTTP API listens; the first UNIX socket is the one that `weir status` looks for.
    pub api: Vec<Address>,
    /// One reactor thread on each of these CPUs.
    pub cores: Vec<usize>,
    /// Reactors spin even without work.
    pub poll: bool,
    /// What happens to promises that cannot be kept.
    pub admission: Admission,
    /// Front ends keep a journal of what is in flight.
    pub journal: bool,
    /// A process of its own holds what must outlive the one that serves, and starts that again when it dies.
    pub keeper: bool,
    /// A second process waits to take over.
    pub standby: bool,
    /// Without any export and any pool every drive is exported over NVMe/TCP.
    pub default_exports: bool,
    /// Failures may be injected.
    pub faults: bool,
    /// What is run when a drive fails: an absolute path and its arguments, without a shell; empty: nothing.
    pub on_failure: Vec<String>,
    /// How long it may run before it is killed.
    pub on_failure_timeout: Nanos,
}

/// [`NodeConfig::on_failure_timeout`] where the file does not say.
const ON_FAILURE_TIMEOUT: Nanos = Nanos::from_secs(30);
/// The longest.
const MAX_ON_FAILURE_TIMEOUT: Nanos = Nanos::from_secs(3600);

/// Where the API listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl Address {
    /// The port that other machines may reach.
    pub fn beyond_loopback(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) if !address.ip().is_loopback() => Some(*address),
            Address::Tcp(_) | Address::Unix(_) => None,
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

word_enum! {
    /// What happens to promises to tenants that cannot be kept.
    Admission {
        /// They are refused.
        Enforce = "enforce",
        /// They are made, with a warning.
        Warn = "warn",
    }
}

/// `api`: where the API is if the file does not say.
pub(super) fn read(
    root: &Section<'_>,
    base: &Path,
    machine: Machine,
    default: Option<Address>,
    rights: &ApiConfig,
) -> NodeConfig {
    let default_api = vec![default.unwrap_or_else(|| Address::Unix(base.join("weir.sock")))];
    let admission = Admission::Enforce;
    let Some((line, entries)) = root.table("node") else {
        let (name, api, cores, poll, journal) = ("n1".into(), default_api, vec![0], false, true);
        return NodeConfig {
            name,
            api,
            cores,
            poll,
            admission,
            journal,
            keeper: true,
            standby: false,
            default_exports: true,
            faults: false,
            on_failure: Vec::new(),
            on_failure_timeout: ON_FAILURE_TIMEOUT,
        };
    };
    let node = root.inner("node", line, entries);
    let name = node.or("name", "n1".to_string(), name);
    let api = node.or("api", default_api, |v| addresses(v, base, rights));
    let cores = node.or("cores", vec![0], |v| cores(v, machine));
    let poll = node.or("poll", false, flag);
    let admission = node.or("admission", admission, word(Admission::WORDS));
    let journal = node.or("journal", true, flag);
    let keeper = node.or("keeper", true, flag);
    let standby = node.or("standby", false, flag);
    let default_exports = node.or("default_exports", true, flag);
    let faults = node.or("faults", false, flag);
    let on_failure = node.or("on_failure", Vec::new(), command);
    let on_failure_timeout = node.or("on_failure_timeout", ON_FAILURE_TIMEOUT, time(MAX_ON_FAILURE_TIMEOUT));
    if on_failure_timeout == Nanos(0) {
        node.fault("on_failure_timeout", "0 lets nothing run; write a time, like \"30s\"");
    }
    if standby && !keeper {
        node.fault("standby", "only a keeper starts one; leave keeper = false out");
    }
    node.finish();
    NodeConfig {
        name,
        api,
        cores,
        poll,
        admission,
        journal,
        keeper,
        standby,
        default_exports,
        faults,
        on_failure,
        on_failure_timeout,
    }
}

/// A program by its absolute path, and its arguments; no shell reads them.
fn command(value: &Value) -> Read<Vec<String>> {
    let argv = one_or_list(text)(value)?;
    match argv.first() {
        Some(program) if !program.starts_with('/') => {
            let what = format!(
                "{} is no absolute path; write a program's whole path, and its arguments behind it: [\"/usr/local/bin/page-me\", \"storage\"]",
                quoted(program)
            );
            Err(what.into())
        }
        Some(_) if argv.iter().any(|part| part.contains('\0')) => {
            Err("a zero byte cannot be passed on".to_string().into())
        }
        Some(_) => Ok(argv),
        None => Err("no program; leave the key out to run nothing".to_string().into()),
    }
}

fn addresses(value: &Value, base: &Path, rights: &ApiConfig) -> Read<Vec<Address>> {
    let one = |v: &Value| -> Read<Address> {
        let address = address(&text(v)?, base)?;
        rights.may_listen(&address)?;
        Ok(address)
    };
    let list = one_or_list(one)(value)?;
    if list.is_empty() {
        return Err("no address; leave the key out for the default unix:weir.sock".to_string().into());
    }
    for (i, a) in list.iter().enumerate() {
        if list[..i].contains(a) {
            return Err(format!("{a} is listed twice; keep one").into());
        }
    }
    Ok(list)
}

/// An address of the API: `unix:PATH`, or `IP:PORT`.
pub fn address(text: &str, base: &Path) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(base, path).map(Address::Unix);
    }
    let Ok(address) = text.parse::<SocketAddr>() else {
        return Err(format!("{} is not an address like unix:weir.sock or 127.0.0.1:9400", quoted(text)));
    };
    Ok(Address::Tcp(address))
}

fn cores(value: &Value, machine: Machine) -> Read<Vec<usize>> {
    let list = one_or_list(integer(0..=MAX_CORE))(value)?;
    if list.is_empty() {
        return Err("no core; write at least one, like [0]".to_string().into());
    }
    for (i, core) in list.iter().enumerate() {
        if list[..i].contains(core) {
            return Err(format!("core {core} is listed twice; keep one").into());
        }
    }
    if let Some(allowed) = machine.cores() {
        if let Some(core) = list.iter().find(|core| !allowed.contains(&(**core as usize))) {
            let names = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!("this process cannot run on core {core}; use some of {names}").into());
        }
    }
    Ok(list.into_iter().map(|core| core as usize).collect())
}
