//! A node whose drives are another node's, where they fail by rule.

use super::client::{core, fill};
use super::process::{CAPACITY, ConfiguredNode, VOLUME, inside};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_sim::reproduce::PaperDrive;
use weir_units::Nanos;

/// What the two nodes serve.
pub struct RemoteSetting {
    /// The kind of all drives.
    pub drive: PaperDrive,
    /// So many drives.
    pub count: u32,
    /// Each drive is a pool with a volume, which is served; else the drive itself is. Opening a pool takes longer, the fuller its drive is.
    pub pooled: bool,
    /// How long commands wait for a target that is gone; none: as by default.
    pub fast_io_fail_tmo: Option<Nanos>,
}

/// See the [module](self). Both nodes end with it.
pub struct RemoteDrives {
    // The node in front first: it has nobody to wait for then.
    front: ConfiguredNode,
    _target: ConfiguredNode,
    folder: PathBuf,
    count: u32,
}

impl RemoteDrives {
    /// Starts both; all volumes have been written once when this returns.
    ///
    /// # Errors
    /// One of them does not start.
    pub fn start(folder: &Path, setting: &RemoteSetting) -> Result<RemoteDrives, String> {
        let (behind, before) = (folder.join("target"), folder.join("front"));
        for folder in [&behind, &before] {
            std::fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let target = ConfiguredNode::start(&behind, &target_text(setting, &behind), core())?;
        let address = target.announced().nvme_tcp.first().ok_or("the target serves no NVMe/TCP")?;
        let front = ConfiguredNode::start(&before, &front_text(setting, &before, address), 0)?;
        let drives = RemoteDrives { front, _target: target, folder: folder.to_owned(), count: setting.count };
        fill(&drives.targets())?;
        Ok(drives)
    }

    /// Its volumes or drives, as targets of `weir bench`.
    pub fn targets(&self) -> Vec<String> {
        let socket = |at| inside(&self.folder.join("front"), &format!("v{at}.sock"));
        (0..self.count).map(|at| format!("vhost-user:{}", socket(at))).collect()
    }

    /// SIGTERM to the node in front, and started again.
    ///
    /// # Errors
    /// It does not end, or does not start.
    pub fn restart_front(&mut self) -> Result<(), String> {
        self.front.restart()
    }

    /// The steps of the front's last start.
    pub fn steps(&self) -> &[(String, Nanos)] {
        &self.front.announced().steps
    }

    /// Makes a drive fail: `weir fault add`.
    ///
    /// # Errors
    /// It is refused.
    pub fn add_rule(&self, drive: u32, rule: &[&str]) -> Result<(), String> {
        self.fault("add", drive, rule)
    }

    /// Removes all rules of a drive.
    ///
    /// # Errors
    /// It is refused.
    pub fn remove_rules(&self, drive: u32) -> Result<(), String> {
        self.fault("rm", drive, &["all"])
    }

    fn fault(&self, what: &str, drive: u32, arguments: &[&str]) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
        let api = format!("unix:{}", inside(&self.folder.join("target"), "api.sock"));
        let mut command = Command::new(program);
        command.args(["fault", what, &format!("ssd{drive}")]).args(arguments).args(["--api", &api]);
        let output = command.stdin(Stdio::null()).output().map_err(|e| format!("weir fault: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("weir fault {what}: {}", said.trim())) }
    }
}

fn target_text(setting: &RemoteSetting, folder: &Path) -> String {
    let api = inside(folder, "api.sock");
    let kind = match setting.drive {
        PaperDrive::Pm963 => "profile = \"pm963\"",
        PaperDrive::P3600 => "profile = \"p3600\"",
        PaperDrive::Ram => "kind = \"ram\"",
    };
    let mut text = format!(
        "[node]\nname = \"target\"\napi = \"unix:{api}\"\ncores = [{}]\nfaults = true\nkeeper = false\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:0\"\n",
        core()
    );
    for at in 0..setting.count {
        text += &format!("[[device]]\nname = \"ssd{at}\"\n{kind}\ncapacity = \"{CAPACITY}\"\nmedia = \"ram\"\n");
        text += &format!("[[export]]\ndevice = \"ssd{at}\"\ndoor = \"nvme-tcp\"\n");
    }
    text
}

fn front_text(setting: &RemoteSetting, folder: &Path, address: &str) -> String {
    let api = inside(folder, "api.sock");
    let mut text = format!("[node]\nname = \"front\"\napi = \"unix:{api}\"\ncores = [0]\nkeeper = false\n");
    let tmo = setting.fast_io_fail_tmo.map_or_else(String::new, |tmo| format!("fast_io_fail_tmo = \"{}ns\"\n", tmo.0));
    for at in 0..setting.count {
        let nqn = format!("nqn.2026-11.io.weir:target:ssd{at}");
        let socket = inside(folder, &format!("v{at}.sock"));
        text += &format!("[[device]]\nname = \"ssd{at}\"\nmedia = \"nvme:nvme-tcp://{address}/{nqn}?ns=1\"\n{tmo}");
        if !setting.pooled {
            text += &format!("[[tenant]]\nname = \"t{at}\"\nclass = \"high\"\n[[export]]\ndevice = \"ssd{at}\"\n");
            text += &format!("door = \"vhost-user:{socket}\"\ntenant = \"t{at}\"\n");
            continue;
        }
        text += &format!("[[pool]]\nname = \"p{at}\"\ndrives = [\"ssd{at}\"]\n");
        text += &format!(
            "[[volume]]\nname = \"v{at}\"\npool = \"p{at}\"\nsize = \"{VOLUME}\"\nexport = [\"vhost-user:{socket}\"]\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn every_configuration_is_one() {
        let folder = Path::new("/run/x");
        for (count, fast_io_fail_tmo, pooled) in [(1, None, true), (2, Some(Nanos(0)), true), (1, None, false)] {
            let setting = RemoteSetting { drive: PaperDrive::Pm963, count, pooled, fast_io_fail_tmo };
            let parse = |text: &str| Config::parse(text, "x", Path::new("/")).unwrap();
            let (target, front) =
                (parse(&target_text(&setting, folder)), parse(&front_text(&setting, folder, "127.0.0.1:9")));
            let served = if pooled { front.volumes.len() } else { front.exports.len() };
            assert_eq!((target.exports.len(), served), (count as usize, count as usize));
            assert!(target.node.faults);
        }
    }
}
