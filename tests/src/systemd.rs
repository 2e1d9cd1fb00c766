//! Something that listens where systemd would: a keeper gives it what it holds, and a node that is started again begins with that.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::harness::{Context, Env, Outcome};
use crate::node::{program, text};

/// The descriptor store of one service.
pub struct Store {
    path: PathBuf,
    heard: Receiver<(String, Vec<OwnedFd>)>,
    /// What it keeps, by name.
    pub kept: BTreeMap<String, OwnedFd>,
}

impl Store {
    /// Listens in `dir`.
    pub fn listen(dir: &Path) -> Result<Self, String> {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).context(|| text(&path))?;
        let (told, heard) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            loop {
                let mut fds = Vec::new();
                let Ok(n) = weir_sys::transport::fds::receive(&socket, &mut bytes, &mut fds) else { return };
                if told.send((String::from_utf8_lossy(&bytes[..n]).into_owned(), fds)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { path, heard, kept: BTreeMap::new() })
    }

    /// Keeps and gives up what it was asked to; what else it was told.
    pub fn hear(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Ok((word, mut fds)) = self.heard.recv_timeout(Duration::from_millis(200)) {
            match (word.split_once("\nFDNAME="), fds.pop()) {
                (Some(("FDSTORE=1", name)), Some(fd)) => drop(self.kept.insert(name.into(), fd)),
                (Some(("FDSTOREREMOVE=1", name)), None) => drop(self.kept.remove(name)),
                (None, None) => said.push(word),
                _ => said.push(format!("unexpected: {word:?}")),
            }
        }
        said
    }

    /// Is not to be found any more.
    pub fn close(&self) -> Outcome {
        std::fs::remove_file(&self.path).context(|| text(&self.path))
    }

    /// Keeps the memory files alone. A shell can give a program those, and no sockets: they are as if nobody had kept them.
    pub fn forget_sockets(&mut self) {
        self.kept.retain(|name, _| ["ram%", "nvme%", "config#", "owner#"].iter().any(|kind| name.starts_with(kind)));
    }

    /// Makes `weir` in `dir`, a program that runs under it and begins with what it keeps.
    pub fn program(&self, env: &Env, dir: &Path) -> Result<PathBuf, String> {
        let open = |(i, fd): (usize, &OwnedFd)| {
            format!("exec {}<>/proc/{}/fd/{}\n", i + 3, std::process::id(), fd.as_raw_fd())
        };
        let opens: String = self.kept.values().enumerate().map(open).collect();
        let names: Vec<&str> = self.kept.keys().map(String::as_str).collect();
        let mut script = format!("export NOTIFY_SOCKET='{}'\n{opens}", text(&self.path));
        if !names.is_empty() {
            script +=
                &format!("export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES='{}'\n", names.len(), names.join(":"));
        }
        program(dir, "weir", &format!("{script}exec '{}' \"$@\"", text(&env.weir)))
    }

    /// From the next start on there is no systemd any more.
    pub fn leave(env: &Env, dir: &Path) -> Outcome {
        program(dir, "weir", &format!("exec '{}' \"$@\"", text(&env.weir))).map(drop)
    }
}
