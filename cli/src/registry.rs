//! Which nodes run on this machine: each has a file in `nodes/` of the runtime folder (docs/reference/formats.md, "The registry of nodes").
//!
//! ```text
//!   weir up ── register ──▶ RUNTIME/nodes/NAME-PID.json ◀── running ── weir status, …
//! ```
//! A node that ends removes its file; the file of one that was killed stays. So a file counts while something listens at an address in
//! it, and a node that starts removes those that do not count. A node that cannot write its file serves all the same.

use crate::address::{self, ApiAddress};
use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::output::Table;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use weir_config::{self as config, Address, Config};

/// Version of the file; a later one is not read.
const VERSION: u32 = 1;
/// A larger file is no node's.
const MAX_FILE: u64 = 64 << 10;

/// A node that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningNode {
    version: u32,
    /// The node's name; several nodes may have the same.
    pub name: String,
    /// Its process: the keeper where it has one.
    pub pid: u32,
    /// Where its API listens: `unix:PATH` or `IP:PORT`.
    pub api: Vec<String>,
    /// Its configuration file; none for the built-in default.
    pub config: Option<PathBuf>,
    /// Where its metadata service of the store listens: `unix:PATH` or `IP:PORT`; nowhere without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub store: Vec<String>,
}

impl RunningNode {
    fn of(config: &Config, file: Option<&Path>, pid: u32, store: &[String]) -> Self {
        RunningNode {
            version: VERSION,
            name: config.node.name.clone(),
            pid,
            api: config.node.api.iter().map(ToString::to_string).collect(),
            config: file.and_then(|file| std::path::absolute(file).ok()),
            store: store.to_vec(),
        }
    }

    fn file_name(&self) -> String {
        format!("{}-{}.json", self.name, self.pid)
    }

    fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        self.api.iter().filter_map(|text| config::address(text, Path::new("/")).ok())
    }

    /// Whether its API is there.
    pub fn has(&self, address: &Address) -> bool {
        self.addresses().any(|own| own == *address)
    }

    /// Its API, where something listens.
    pub fn client(&self) -> Option<ApiClient> {
        self.addresses().map(ApiClient::at).find(ApiClient::is_there)
    }
}

/// A node's file, to be removed when the node ends.
#[derive(Debug)]
pub struct Registered(Option<PathBuf>);

impl Registered {
    /// The node ends.
    pub fn remove(self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Notes a node whose API listens, in place of files that do not count. A failure is a warning in the log.
pub fn register(config: &Config, file: Option<&Path>, pid: u32, store: &[String]) -> Registered {
    let entry = RunningNode::of(config, file, pid, store);
    let runtime = config::runtime_dir();
    let write = || {
        config::create_runtime_dir(&runtime)?;
        let nodes = folder_of(&runtime);
        config::create_runtime_dir(&nodes)?;
        remove_stale(&nodes, &entry);
        write(&nodes, &entry)
    };
    match write() {
        Ok(path) => Registered(Some(path)),
        Err(e) => {
            let folder = runtime.display();
            let origin = config::runtime_dir_origin();
            tracing::warn!("{folder}: {e}; commands find this node by --api or WEIR_API only; {origin}");
            Registered(None)
        }
    }
}

/// The nodes that run, by name and process.
pub fn running() -> Vec<RunningNode> {
    // What root runs is seen by everyone, even where only root may use it.
    let mut folders = vec![config::runtime_dir(), PathBuf::from("/run/weir")];
    folders.dedup();
    let mut entries: Vec<RunningNode> = folders
        .iter()
        .map(|runtime| folder_of(runtime))
        .filter(|nodes| config::is_safe_dir(nodes))
        .flat_map(|nodes| entries(&nodes))
        .map(|(_, entry)| entry)
        .filter(|entry| entry.client().is_some())
        .collect();
    entries.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    entries
}

/// The metadata service of the node that runs: of the one with that API or name, else of the only one that has any.
///
/// # Errors
/// There is none, or there are several.
pub fn store(api: Option<&str>, node: Option<&str>) -> Result<String, CommandFailure> {
    let here = Path::new("");
    let by_environment = || if node.is_some() { Ok(None) } else { address::by_environment(here) };
    let api = address::by_option(api, here)?.map_or_else(by_environment, |api| Ok(Some(api)))?;
    let is_meant = |entry: &RunningNode| {
        let has = |api: &ApiAddress| matches!(api, ApiAddress::Plain(api) if entry.has(api));
        api.as_ref().is_none_or(has) && node.is_none_or(|name| entry.name == name)
    };
    only_store(running().into_iter().filter(is_meant).collect())
}

fn only_store(nodes: Vec<RunningNode>) -> Result<String, CommandFailure> {
    let with: Vec<RunningNode> = nodes.into_iter().filter(|entry| !entry.store.is_empty()).collect();
    match with.as_slice() {
        [entry] => Ok(entry.store[0].clone()),
        [] => Err(CommandFailure::new(
            "no store: no node that runs here has one; start one with weir up --store, or name one by --store or WEIR_STORE",
        )),
        several => Err(CommandFailure::new(format_args!(
            "{} nodes have a store; name one by --node, --store or WEIR_STORE\n{}",
            several.len(),
            table(several)
        ))),
    }
}

/// The nodes as a table, a line each.
pub fn table(entries: &[RunningNode]) -> String {
    let mut table = Table::new(&["NODE", "API", "PROCESS", "CONFIGURATION"]);
    for entry in entries {
        let config = entry.config.as_ref().map_or_else(|| "built in".to_string(), |path| path.display().to_string());
        table.row([entry.name.clone(), entry.api.join(" "), entry.pid.to_string(), config]);
    }
    table.render()
}

fn folder_of(runtime: &Path) -> PathBuf {
    runtime.join("nodes")
}

fn entries(nodes: &Path) -> Vec<(PathBuf, RunningNode)> {
    let Ok(folder) = std::fs::read_dir(nodes) else { return Vec::new() };
    let paths = folder.filter_map(|file| Some(file.ok()?.path()));
    let files = paths.filter(|path| path.extension().is_some_and(|e| e == "json"));
    files.filter_map(|path| Some((path.clone(), read(&path)?))).collect()
}

fn read(path: &Path) -> Option<RunningNode> {
    let small = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_FILE);
    let bytes = small.then(|| std::fs::read(path).ok())??;
    parse(&bytes)
}

/// Later fields of version 1 are passed over.
fn parse(bytes: &[u8]) -> Option<RunningNode> {
    serde_json::from_slice::<RunningNode>(bytes).ok().filter(|entry| entry.version == VERSION)
}

/// Whole or not at all: it gets its name when it is written.
fn write(nodes: &Path, entry: &RunningNode) -> io::Result<PathBuf> {
    let path = nodes.join(entry.file_name());
    let unfinished = nodes.join(format!(".{}", entry.file_name()));
    std::fs::write(&unfinished, serde_json::to_vec(entry)?)?;
    std::fs::rename(&unfinished, &path)?;
    Ok(path)
}

/// Nobody listens there any longer, or the new node does.
fn remove_stale(nodes: &Path, new: &RunningNode) {
    for (path, old) in entries(nodes) {
        if new.addresses().any(|address| old.has(&address)) || old.client().is_none() {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn entry(name: &str, pid: u32, socket: &Path) -> RunningNode {
        let api = vec![format!("unix:{}", socket.display())];
        RunningNode { version: VERSION, name: name.into(), pid, api, config: None, store: Vec::new() }
    }

    #[test]
    fn golden_bytes() {
        let text = r#"{"version":1,"name":"n1","pid":7,"api":["unix:/run/weir/weir.sock"],"config":"/etc/weir.toml"}"#;
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!((read.name.as_str(), read.pid, read.file_name().as_str()), ("n1", 7, "n1-7.json"));
        assert!(parse(text.replace("\"version\"", "\"later\":[],\"version\"").as_bytes()).is_some());
        for bad in ["", "{}", "[]", &text.replace("\"version\":1", "\"version\":2")] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_store_is_found_where_there_is_one() {
        let with = |name: &str, pid, store: &[&str]| RunningNode {
            store: store.iter().map(ToString::to_string).collect(),
            ..entry(name, pid, Path::new("/x.sock"))
        };
        let (none, one) = (with("a", 1, &[]), with("b", 2, &["127.0.0.1:4430", "unix:/s.sock"]));
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(parse(text.as_bytes()), Some(one.clone()));
        let found = only_store(vec![none.clone(), one.clone()]);
        assert_eq!(found.map_err(|e| e.text().to_owned()), Ok("127.0.0.1:4430".to_owned()));
        assert!(only_store(vec![none]).unwrap_err().text().starts_with("no store: "));
        let several = only_store(vec![one.clone(), with("c", 3, &["[::1]:1"])]).unwrap_err();
        assert!(several.text().starts_with("2 nodes have a store; name one by --node, "), "{}", several.text());
    }

    #[test]
    fn a_file_counts_while_something_listens() {
        let dir = std::env::temp_dir().join(format!("weir-registry-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (a, b, killed) = (dir.join("a.sock"), dir.join("b.sock"), dir.join("killed.sock"));
        let _listening = (UnixListener::bind(&a).unwrap(), UnixListener::bind(&b).unwrap());
        drop(UnixListener::bind(&killed).unwrap());
        let [first, dead, gone] = [entry("a", 1, &a), entry("a", 2, &killed), entry("c", 3, &dir.join("nothing.sock"))];
        assert!(first.client().is_some() && dead.client().is_none() && gone.client().is_none());
        for old in [&first, &dead, &gone] {
            write(&dir, old).unwrap();
        }
        std::fs::write(dir.join("later-9.json"), "{\"version\":2}").unwrap();
        let names = |dir: &Path| {
            let mut names: Vec<_> = entries(dir).into_iter().map(|(_, entry)| entry.file_name()).collect();
            names.sort();
            names
        };
        remove_stale(&dir, &entry("b", 4, &b));
        assert_eq!(names(&dir), ["a-1.json"]);
        // The socket has another node's name now.
        remove_stale(&dir, &entry("other", 5, &a));
        assert!(names(&dir).is_empty());
        assert!(dir.join("later-9.json").exists(), "what a later version wrote stays");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
