//! Attaches namespaces to controllers and detaches them.

use crate::namespace::attachment::{NamespaceSet, known_as};
use crate::namespace::namespace_job::Task;
use crate::subsystem::Subsystem;
use alloc::string::String;
use alloc::vec::Vec;

impl Subsystem {
    /// What a host's new controller has attached.
    pub(crate) fn first_attachments(&self, host: &str) -> NamespaceSet {
        let mut set = NamespaceSet::ALL;
        if self.namespaces.allocator.is_some() {
            // None that is yet to be made: who goes on from what was written of it before would have it.
            set = NamespaceSet::NONE;
            for (nsid, record) in &self.namespaces.records {
                let taken = record.private && self.attached_to(*nsid).next().is_some();
                set.set(*nsid, record.seen_by(known_as(host)) && !taken);
            }
        }
        set
    }

    /// A controller that another process had has attached what the drive remembers of its host: that is newer than what was written of the
    /// controller.
    pub(crate) fn recall_attachments(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl(c).filter(|_| self.namespaces.changed) else { return };
        let (mut set, host) = (ctrl.namespaces, known_as(&ctrl.host));
        for (nsid, record) in &self.namespaces.records {
            let taken = record.private && self.attached_to(*nsid).any(|other| other != c);
            let goes = self.namespaces.jobs.iter().any(|job| job.task == Task::Delete && job.nsids.contains(nsid));
            set.set(*nsid, record.seen_by(host) && !taken && !goes);
        }
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.namespaces = set;
        }
    }

    /// The controllers that have a namespace attached, by their places.
    pub(crate) fn attached_to(&self, nsid: u32) -> impl Iterator<Item = u32> + '_ {
        let numbered = self.controllers.list.iter().enumerate();
        numbered.filter_map(move |(c, ctrl)| ctrl.as_ref().filter(|ctrl| ctrl.namespaces.has(nsid)).map(|_| c as u32))
    }

    /// Attaches a namespace to a controller, or detaches it; its host's next controllers will be the same.
    pub(crate) fn attach_namespace(&mut self, c: u32, nsid: u32, yes: bool) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        ctrl.namespaces.set(nsid, yes);
        let host = String::from(known_as(&ctrl.host));
        if let Some(record) = self.namespaces.records.get_mut(&nsid) {
            if yes && record.private {
                // Whoever had it before has it no more, and does not get it back.
                (record.everyone, record.hosts) = (false, Vec::new());
            }
            record.remember(&host, yes);
        }
        self.refresh_guard(nsid);
    }

    /// Whether a controller has a namespace attached.
    pub(crate) fn is_attached(&self, c: u32, nsid: u32) -> bool {
        self.ctrl(c).is_some_and(|ctrl| ctrl.namespaces.has(nsid)) && !self.hides_namespace(nsid)
    }

    /// A controller has come or gone: commands of namespaces that not all have attached take the slow path.
    pub(crate) fn refresh_guards(&mut self) {
        if self.namespaces.allocator.is_some() {
            let nsids: Vec<u32> = self.namespaces.records.keys().copied().collect();
            nsids.into_iter().for_each(|nsid| self.refresh_guard(nsid));
        }
    }

    /// Something about a namespace has changed: whether its commands have to be looked at.
    pub(crate) fn refresh_guard(&mut self, nsid: u32) {
        let partial = self.controllers.list.iter().flatten().any(|ctrl| !ctrl.namespaces.has(nsid));
        let partial = partial || self.hides_namespace(nsid);
        if let Some(ns) = self.namespaces.get_mut(nsid) {
            ns.guard(partial);
        }
        // From the first namespace with metadata on, commands are kept whole.
        self.namespaces.any_metadata |= self.namespaces.list.iter().flatten().any(|ns| ns.format.metadata > 0);
    }
}
