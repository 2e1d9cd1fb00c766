//! How much memory there is to give. A memfd has no limit of its own: the kernel hands out pages until it has to kill
//! somebody, so a RAM drive looks before it takes.

use std::fs;
use std::path::PathBuf;

/// Looked up again after so many bytes.
const GRANT: u64 = 64 << 20;

/// Bytes that may be taken without looking again.
#[derive(Debug, Default)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    /// Takes `bytes`; false where that would leave the machine, or this process's control group, without a reserve.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        if self.left < bytes {
            self.left = grant(available());
        }
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// A part of what is available above the reserve.
fn grant(memory: Option<Memory>) -> u64 {
    let Some(m) = memory else { return GRANT };
    let reserve = (m.total / 50).clamp(64 << 20, 1 << 30);
    m.available.saturating_sub(reserve).min(GRANT)
}

/// What a drive of this size would leave: whether it may use large pieces.
pub(super) fn fits(bytes: u64) -> bool {
    available().is_none_or(|m| bytes <= m.available / 2)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

fn available() -> Option<Memory> {
    let machine = meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(match group() {
        Some(group) => {
            Memory { total: machine.total.min(group.total), available: machine.available.min(group.available) }
        }
        None => machine,
    })
}

fn meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let rest = text.lines().find_map(|l| l.strip_prefix(name))?;
        Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    Some(Memory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
}

/// The tightest limit among this process's control groups (version 2), where there is one.
fn group() -> Option<Memory> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?.trim_start_matches('/');
    let root = PathBuf::from("/sys/fs/cgroup");
    let number = |dir: &PathBuf, file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
    let mut tightest: Option<Memory> = None;
    let mut dir = root.join(path);
    while dir != root {
        if let (Some(total), Some(used)) = (number(&dir, "memory.max"), number(&dir, "memory.current")) {
            // The group's page cache counts as used, but is given up before anybody is killed.
            let cache = fs::read_to_string(dir.join("memory.stat")).ok().and_then(|s| inactive_file(&s)).unwrap_or(0);
            let available = total.saturating_sub(used.saturating_sub(cache));
            if tightest.is_none_or(|t| available < t.available) {
                tightest = Some(Memory { total, available });
            }
        }
        if !dir.pop() {
            break;
        }
    }
    tightest
}

fn inactive_file(stat: &str) -> Option<u64> {
    stat.lines().find_map(|l| l.strip_prefix("inactive_file "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_words() {
        let text = "MemTotal:       24684084 kB\nMemFree:  1 kB\nMemAvailable:    8 kB\n";
        assert_eq!(meminfo(text), Some(Memory { total: 24_684_084 << 10, available: 8 << 10 }));
        assert_eq!(meminfo("MemTotal: x kB"), None);
        assert_eq!(inactive_file("anon 5\ninactive_file 77\n"), Some(77));
        let m = available().expect("/proc/meminfo is readable");
        assert!(m.available > 0 && m.available <= m.total);
    }

    #[test]
    fn keeps_a_reserve() {
        let gib = 1u64 << 30;
        assert_eq!(grant(Some(Memory { total: 16 * gib, available: 8 * gib })), GRANT);
        assert_eq!(grant(Some(Memory { total: 16 * gib, available: 300 << 20 })), 0);
        assert_eq!(grant(Some(Memory { total: gib, available: 65 << 20 })), 1 << 20);
        assert_eq!(grant(None), GRANT);
        let mut budget = Budget { left: 10 };
        assert!(budget.take(10));
        assert!(!budget.take(u64::MAX));
    }
}
