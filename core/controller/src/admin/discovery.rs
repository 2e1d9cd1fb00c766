//! The discovery log (base 2.0, 5.16.1.23; extended entries and flags: base 2.1, 5.1.12.3.1).

use crate::config::DiscoveryRecord;
use crate::controller::Controller;
use crate::namespace::access::{covers, is_port};
use crate::subsystem::Subsystem;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::SocketAddr;
use weir_spec::nvme::log::{
    DiscoveryEntry, DiscoveryHeader, ExtendedAttribute, ExtendedDiscoveryEntry, adrfam, discovery_lsp,
    extended_attribute,
};
use weir_spec::nvme::wire::set_text;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// What of the log specific field is known.
pub(super) const LSP: u8 = discovery_lsp::EXTENDED | discovery_lsp::PORT_LOCAL | discovery_lsp::ALL;
/// The longest label.
const LABEL: usize = 256;

impl Subsystem {
    /// The discovery log as the host of this controller sees it.
    pub(super) fn discovery_log(&self, ctrl: &Controller, lsp: u8) -> Vec<u8> {
        let (host, local, flags) = (&ctrl.host, ctrl.local, lsp & LSP);
        let has = |flag: u8| flags & flag != 0;
        let sees = |r: &&DiscoveryRecord| {
            let meant = has(discovery_lsp::ALL) || r.hosts.is_empty() || r.hosts.iter().any(|h| h == host);
            meant && (!has(discovery_lsp::PORT_LOCAL) || came_by(r, local))
        };
        let mut page = alloc::vec![0; size_of::<DiscoveryHeader>()];
        let mut records = 0;
        for (record, entry) in
            self.discovery.records.iter().filter(sees).filter_map(|r| Some((r, entry_for(r, local)?)))
        {
            records += 1;
            if has(discovery_lsp::EXTENDED) {
                extend(&mut page, entry, &record.label);
            } else {
                page.extend_from_slice(entry.as_bytes());
            }
        }
        let header = DiscoveryHeader {
            genctr: U64::new(self.discovery.generation),
            numrec: U64::new(records),
            dlpf: flags,
            tdlpl: U32::new(if has(discovery_lsp::EXTENDED) { page.len() as u32 } else { 0 }),
            ..DiscoveryHeader::default()
        };
        page[..size_of::<DiscoveryHeader>()].copy_from_slice(header.as_bytes());
        page
    }
}

/// Whether the host has come by the record's port. Where nobody knows by which it came, all are.
fn came_by(record: &DiscoveryRecord, local: Option<SocketAddr>) -> bool {
    record.listen.zip(local).is_none_or(|(listen, local)| is_port(listen, local))
}

/// The entry with an address that the host can connect to: a wildcard is none, but the one that it has reached is. `None`
/// where no address is known: a host that came by IPv6 has shown none of IPv4.
fn entry_for(record: &DiscoveryRecord, local: Option<SocketAddr>) -> Option<DiscoveryEntry> {
    let mut entry = record.entry;
    if let Some(listen) = record.listen.filter(|l| l.ip().is_unspecified()) {
        let address = local?.ip();
        if !covers(listen.ip(), address) {
            return None;
        }
        let mut text = String::new();
        let _ = write!(text, "{address}");
        entry.adrfam = if address.is_ipv4() { adrfam::IPV4 } else { adrfam::IPV6 };
        set_text(&mut entry.traddr, &text, b' ');
    }
    Some(entry)
}

/// Appends an extended entry, with the label as its attribute if there is one to tell.
fn extend(page: &mut Vec<u8>, entry: DiscoveryEntry, label: &str) {
    let label = if label.is_ascii() && label.len() <= LABEL { label.as_bytes() } else { &[] };
    let value = label.len().next_multiple_of(4);
    let attribute = if label.is_empty() { 0 } else { size_of::<ExtendedAttribute>() + value };
    let head = ExtendedDiscoveryEntry {
        entry,
        tel: U32::new((size_of::<ExtendedDiscoveryEntry>() + attribute) as u32),
        numexat: U16::new((attribute != 0).into()),
        ..ExtendedDiscoveryEntry::default()
    };
    page.extend_from_slice(head.as_bytes());
    if attribute != 0 {
        let exattype = U16::new(extended_attribute::LABEL);
        page.extend_from_slice(ExtendedAttribute { exattype, exatlen: U16::new(value as u16) }.as_bytes());
        page.extend_from_slice(label);
        page.resize(page.len() + value - label.len(), 0);
    }
}
