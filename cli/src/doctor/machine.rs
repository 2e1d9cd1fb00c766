//! What this machine is like, as far as a node's work depends on it. What was seen is gathered first; each judgement is a
//! function of that alone.

use super::finding::Finding;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_sys::reactor::Reactor;
use weir_sys::sched::{self, RunDelay};

/// A node holds a descriptor for each connection, each ring and each piece of memory.
const FEW_FILES: u64 = 16_384;
/// A core is watched so long. One that is taken in turns by another thread is away for a few milliseconds at a time.
const WATCH: Duration = Duration::from_millis(200);
/// A drive keeps its modelled times where its core is taken for less, percent.
const DISTURBED_PCT: f64 = 2.0;
/// The first QEMU with `vfio-user-pci`.
const QEMU_VFIO_USER: (u32, u32) = (10, 1);

/// What was seen of a machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// Why io_uring cannot be used, if so.
    pub io_uring: Option<String>,
    /// How many descriptors a process may open, once a node has raised its own limit.
    pub open_files: Option<u64>,
    /// CPUs that this process may run on.
    pub cores: usize,
    /// The smallest `cpu.max` of the control groups that this process is in: CPUs.
    pub quota: Option<f64>,
    /// How much of a busy thread's time another thread or machine had its core, percent.
    pub taken_pct: Option<f64>,
    /// The clock that the kernel goes by.
    pub clock: Option<String>,
    /// The governor of the CPUs' frequency; none where it cannot be set.
    pub governor: Option<String>,
    /// Bytes that can be had without swapping.
    pub available: Option<u64>,
    /// What `qemu-system-x86_64 --version` says first; none where it is not installed.
    pub qemu: Option<String>,
    /// The program `nvme` is there.
    pub nvme_cli: bool,
    /// Whether this kernel can connect over NVMe/TCP; unknown where its modules are not to be seen.
    pub nvme_tcp: Option<bool>,
}

impl Machine {
    /// Looks at this one, which takes a fifth of a second.
    pub fn look() -> Self {
        let files = Files { root: PathBuf::from("/") };
        let kernel = files.word("proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            io_uring: Reactor::new().err().map(|e| e.to_string()),
            open_files: Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)),
            cores: sched::allowed().map_or(0, |cores| cores.len()),
            quota: files.quota(),
            taken_pct: taken(),
            clock: files.word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: files.word("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            available: files.available(),
            qemu: said_first("qemu-system-x86_64", "--version"),
            nvme_cli: said_first("nvme", "version").is_some(),
            nvme_tcp: files.has_module(&kernel, "nvme-tcp"),
            kernel,
        }
    }

    /// What it means.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.io_uring_finding(), self.files_finding(), self.cores_finding()];
        findings.extend([self.taken_finding(), self.clock_finding(), self.governor_finding()].into_iter().flatten());
        findings.extend([self.memory_finding(), self.nvme_tcp_finding()].into_iter().flatten());
        findings.push(self.qemu_finding());
        findings
    }

    fn io_uring_finding(&self) -> Finding {
        match &self.io_uring {
            None => Finding::ok("io_uring", format!("usable, Linux {}", self.kernel)),
            Some(why) => {
                let (found, advice) = why.split_once(": ").unwrap_or((why, "look at the kernel's log"));
                Finding::problem("io_uring", format!("{found} (Linux {})", self.kernel), advice)
            }
        }
    }

    fn files_finding(&self) -> Finding {
        match self.open_files {
            Some(limit) if limit < FEW_FILES => Finding::advice(
                "open files",
                format!("at most {limit} a process"),
                "many connections need more: `ulimit -Hn 1048576`, or LimitNOFILE=1048576 in the service",
            ),
            Some(u64::MAX) | None => Finding::ok("open files", "no limit"),
            Some(limit) => Finding::ok("open files", format!("at most {limit} a process")),
        }
    }

    fn cores_finding(&self) -> Finding {
        match self.quota {
            Some(quota) if quota < self.cores as f64 => Finding::advice(
                "CPUs",
                format!("{}, and a control group's quota of {quota:.1}", self.cores),
                "a quota stops a reactor for tens of milliseconds when it is used up: give the node whole CPUs (cpuset) instead",
            ),
            _ if self.cores < 2 => Finding::advice(
                "CPUs",
                "1",
                "a load on the same CPU takes the node's time; measure from another machine, or give it two",
            ),
            _ => Finding::ok("CPUs", self.cores.to_string()),
        }
    }

    fn taken_finding(&self) -> Option<Finding> {
        let taken = self.taken_pct?;
        let found = format!("a busy thread waited {taken:.1} % of the time for a core");
        Some(if taken < DISTURBED_PCT {
            Finding::ok("disturbance", found)
        } else {
            let advice = "other programs take the cores: drives will be *starved* and measurements disturbed; stop them, or \
                          keep `cores` of [node] free of them";
            Finding::advice("disturbance", found, advice)
        })
    }

    fn clock_finding(&self) -> Option<Finding> {
        let clock = self.clock.as_deref()?;
        Some(match clock {
            "tsc" => Finding::ok("clock", "tsc"),
            other => Finding::advice(
                "clock",
                format!("{other}, not tsc"),
                "reading the time costs a system call or more: boot with clocksource=tsc, or tsc=reliable in a virtual machine \
                 whose host keeps it",
            ),
        })
    }

    fn governor_finding(&self) -> Option<Finding> {
        let governor = self.governor.as_deref()?;
        Some(match governor {
            "performance" => Finding::ok("frequency", "governor performance"),
            other => Finding::advice(
                "frequency",
                format!("governor {other}"),
                "short loads are served by a slow CPU: `cpupower frequency-set -g performance` before measuring",
            ),
        })
    }

    fn memory_finding(&self) -> Option<Finding> {
        let available = self.available?;
        let found = format!("{} MiB available", available >> 20);
        Some(if available < 1 << 30 {
            let advice = "drives in memory need their capacity: stop something, or use media = \"file:…\"";
            Finding::advice("memory", found, advice)
        } else {
            Finding::ok("memory", found)
        })
    }

    fn nvme_tcp_finding(&self) -> Option<Finding> {
        let has = self.nvme_tcp?;
        Some(match (has, self.nvme_cli) {
            (true, true) => Finding::ok("NVMe/TCP host", "nvme-tcp and nvme-cli"),
            (true, false) => {
                let advice = "to connect from this machine: apt install nvme-cli";
                Finding::advice("NVMe/TCP host", "nvme-cli is missing", advice)
            }
            (false, _) => Finding::advice(
                "NVMe/TCP host",
                "this kernel has no nvme-tcp",
                "this machine's kernel cannot connect; others can, and so can `weir bench` and QEMU",
            ),
        })
    }

    fn qemu_finding(&self) -> Finding {
        let Some(said) = &self.qemu else {
            return Finding::ok("QEMU", "not installed here");
        };
        match version(said) {
            Some(version) if version < QEMU_VFIO_USER => Finding::advice(
                "QEMU",
                said,
                "it has vhost-user-blk; vfio-user needs QEMU 10.1 or later (Debian: from backports)",
            ),
            _ => Finding::ok("QEMU", said),
        }
    }
}

/// The two numbers after `version`.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split("version ").nth(1)?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The first line that a program prints; none where it is not there or fails.
fn said_first(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    Some(line)
}

/// How much of a busy thread's time it had no core, percent.
fn taken() -> Option<f64> {
    let delay = RunDelay::of_this_thread().ok()?;
    let (before, begun) = (delay.read().ok()?, Instant::now());
    while begun.elapsed() < WATCH {
        std::hint::spin_loop();
    }
    let waited = delay.read().ok()?.get().saturating_sub(before.get());
    Some(100.0 * waited as f64 / begun.elapsed().as_nanos() as f64)
}

/// The files in which the kernel tells about itself.
struct Files {
    root: PathBuf,
}

impl Files {
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    fn word(&self, path: &str) -> Option<String> {
        Some(self.text(path)?.trim().to_owned()).filter(|word| !word.is_empty())
    }

    fn available(&self) -> Option<u64> {
        let text = self.text("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The smallest quota of the group that this process is in and of those around it.
    fn quota(&self) -> Option<f64> {
        let groups = self.text("proc/self/cgroup")?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let path = Path::new("sys/fs/cgroup").join(own);
        let quotas = path.ancestors().take_while(|path| path.starts_with("sys/fs/cgroup"));
        quotas.filter_map(|path| cpus(&self.text(path.join("cpu.max"))?)).min_by(f64::total_cmp)
    }

    /// Whether a kernel has a module or has it built in.
    fn has_module(&self, kernel: &str, name: &str) -> Option<bool> {
        let file = format!("/{name}.ko");
        let names = ["modules.builtin", "modules.dep"];
        let lists: Vec<String> =
            names.iter().filter_map(|list| self.text(format!("lib/modules/{kernel}/{list}"))).collect();
        (!lists.is_empty()).then(|| lists.iter().any(|list| list.contains(&file)))
    }
}

/// `200000 100000` of `cpu.max` are two CPUs, `max 100000` is no limit.
fn cpus(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn good() -> Machine {
        Machine {
            kernel: "6.12.1".into(),
            open_files: Some(1 << 20),
            cores: 8,
            taken_pct: Some(0.1),
            clock: Some("tsc".into()),
            governor: Some("performance".into()),
            available: Some(8 << 30),
            qemu: Some("QEMU emulator version 10.1.0 (Debian 1:10.1.0)".into()),
            nvme_cli: true,
            nvme_tcp: Some(true),
            ..Machine::default()
        }
    }

    /// What differs from a good machine, and what it must say.
    #[test]
    fn each_fault_is_found() {
        assert!(good().findings().iter().all(|f| f.severity == Severity::Ok), "{:?}", good().findings());
        let faults: [(&str, Machine, Severity); 10] = [
            (
                "io_uring",
                Machine { io_uring: Some("io_uring is forbidden here: set x".into()), ..good() },
                Severity::Problem,
            ),
            ("open files", Machine { open_files: Some(4096), ..good() }, Severity::Advice),
            ("CPUs", Machine { quota: Some(1.5), ..good() }, Severity::Advice),
            ("CPUs", Machine { cores: 1, ..good() }, Severity::Advice),
            ("disturbance", Machine { taken_pct: Some(40.0), ..good() }, Severity::Advice),
            ("clock", Machine { clock: Some("hpet".into()), ..good() }, Severity::Advice),
            ("frequency", Machine { governor: Some("powersave".into()), ..good() }, Severity::Advice),
            ("memory", Machine { available: Some(1 << 20), ..good() }, Severity::Advice),
            ("NVMe/TCP host", Machine { nvme_tcp: Some(false), ..good() }, Severity::Advice),
            ("QEMU", Machine { qemu: Some("QEMU emulator version 8.2.2".into()), ..good() }, Severity::Advice),
        ];
        for (what, machine, severity) in faults {
            let bad: Vec<Finding> = machine.findings().into_iter().filter(|f| f.severity != Severity::Ok).collect();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!((bad[0].what.as_str(), bad[0].severity), (what, severity));
            assert!(!bad[0].advice.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_seen_is_left_out() {
        let blind = Machine { cores: 2, ..Machine::default() };
        assert!(blind.findings().iter().all(|f| f.severity == Severity::Ok), "{:?}", blind.findings());
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        let root = std::env::temp_dir().join(format!("weir-doctor-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/meminfo", "MemTotal:  2048 kB\nMemAvailable:    1024 kB\n");
        put("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n");
        put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        put("lib/modules/6.1/modules.dep", "kernel/drivers/nvme/host/nvme-tcp.ko.xz: kernel/x.ko\n");
        let files = Files { root: root.clone() };
        assert_eq!(files.available(), Some(1 << 20));
        assert_eq!(files.quota(), Some(1.5));
        assert_eq!(files.has_module("6.1", "nvme-tcp"), Some(true));
        assert_eq!(files.has_module("6.1", "nvme-rdma"), Some(false));
        assert_eq!(files.has_module("5.0", "nvme-tcp"), None);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!((files.available(), files.quota()), (None, None));
        assert_eq!(version("QEMU emulator version 10.1.0-rc2"), Some((10, 1)));
        assert_eq!(version("something else"), None);
        assert_eq!(cpus("junk"), None);
    }

    #[test]
    fn this_machine_is_seen() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && !machine.kernel.is_empty());
        assert!(machine.taken_pct.is_none_or(|taken| (0.0..=100.0).contains(&taken)), "{:?}", machine.taken_pct);
    }
}
