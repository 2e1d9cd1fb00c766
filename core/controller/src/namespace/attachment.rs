//! Which controller sees which namespace (base 2.0, 8.11).
//!
//! Attachments belong to controllers, and controllers of fabrics hosts come and go. What a host has attached or detached is
//! therefore remembered by its name as well: its next controller begins with it (base 2.0, 3.1.2: what a host's controllers
//! see is the same).

use crate::namespace::{Namespace, why};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::coded_as;

/// A set of namespaces, by NSID from 1 to 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceSet([u64; 16]);

impl NamespaceSet {
    /// Every namespace.
    pub const ALL: Self = Self([u64::MAX; 16]);

    /// None of them.
    pub const NONE: Self = Self([0; 16]);

    pub fn has(&self, nsid: u32) -> bool {
        let at = nsid.wrapping_sub(1) as usize;
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub fn set(&mut self, nsid: u32, yes: bool) {
        let at = nsid.wrapping_sub(1) as usize;
        if let Some(word) = self.0.get_mut(at / 64) {
            *word = *word & !(1 << (at % 64)) | u64::from(yes) << (at % 64);
        }
    }
}

coded_as! { NamespaceSet: [u64; 16], |set| set.0, |words| Some(NamespaceSet(words)) }

/// What is known of a namespace beside how it is addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceRecord {
    /// Bytes of data it was made for; its blocks are as many as fit.
    pub bytes: u64,
    /// One controller only (NMIC bit 0 is 0).
    pub private: bool,
    /// Hosts see it unless they are in `hosts`; else only those in `hosts` do.
    pub everyone: bool,
    pub hosts: Vec<String>,
}

impl NamespaceRecord {
    /// Of a namespace of the configuration: everybody sees it.
    pub fn initial(bytes: u64) -> Self {
        Self { bytes, private: false, everyone: true, hosts: Vec::new() }
    }

    /// Whether a host's next controller has it attached.
    pub fn seen_by(&self, host: &str) -> bool {
        self.everyone != self.hosts.iter().any(|h| h == host)
    }

    pub fn remember(&mut self, host: &str, attached: bool) {
        self.hosts.retain(|h| h != host);
        if attached != self.everyone {
            self.hosts.push(host.into());
        }
    }
}

/// By NSID.
pub(crate) type Records = BTreeMap<u32, NamespaceRecord>;

/// A host's name without what is different every time it comes.
pub(crate) fn known_as(host: &str) -> &str {
    let is_number = |pid: &str| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
    match host.rsplit_once(" (process ") {
        Some((name, rest)) if rest.strip_suffix(')').is_some_and(is_number) => name,
        _ => host,
    }
}

impl Namespace {
    pub fn guard(&mut self, partial: bool) {
        let guarded = partial || self.fragmented || self.protect != 0 || self.format.metadata > 0;
        self.why = self.why & !why::GUARDED | if guarded { why::GUARDED } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_they_are_told() {
        let mut set = NamespaceSet::ALL;
        assert!(set.has(1) && set.has(1024) && !set.has(0) && !set.has(1025) && !set.has(u32::MAX));
        set.set(64, false);
        set.set(0, false);
        set.set(2000, false);
        assert!(set.has(63) && !set.has(64) && set.has(65));
        set.set(64, true);
        assert_eq!(set, NamespaceSet::ALL);
    }

    #[test]
    fn hosts_are_remembered_as_exceptions() {
        let mut open = NamespaceRecord::initial(0);
        assert!(open.seen_by("a"));
        open.remember("a", false);
        open.remember("a", false);
        assert!(!open.seen_by("a") && open.seen_by("b") && open.hosts.len() == 1);
        open.remember("a", true);
        assert!(open.seen_by("a") && open.hosts.is_empty());
        let mut closed = NamespaceRecord { everyone: false, ..NamespaceRecord::initial(0) };
        closed.remember(known_as("/run/vm.sock (process 77)"), true);
        assert!(closed.seen_by("/run/vm.sock") && !closed.seen_by("b"));
        for name in ["/run/vm (1).sock", "/run/vm (process x)", "/run/vm (process 1).sock", "/run/vm (process )", ""] {
            assert_eq!(known_as(name), name);
            assert_eq!(known_as(&alloc::format!("{name} (process 1)")), name);
        }
    }
}
