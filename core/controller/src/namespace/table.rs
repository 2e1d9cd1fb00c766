//! The namespaces of a drive: how they are addressed, where they lie, who sees them, and what is being done to them.

use crate::config::SubsystemConfig;
use crate::error::ManagementError;
use crate::namespace::access::AccessRules;
use crate::namespace::attachment::{NamespaceRecord, Records};
use crate::namespace::metadata::Format;
use crate::namespace::namespace_job::NamespaceJob;
use crate::namespace::ns_allocator::Allocator;
use crate::namespace::{MANAGED, NSID_MAX, Namespace, Namespaces, active};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_spec::nvme::Status;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct NamespaceTable {
    pub list: Namespaces,
    /// Where namespaces lie, where hosts may make some.
    pub allocator: Option<Box<Allocator>>,
    /// What is known of those namespaces beside how they are addressed.
    pub records: Records,
    /// What is being done to namespaces.
    pub jobs: Vec<NamespaceJob>,
    pub next_job: u32,
    /// The namespaces are no longer those of the configuration.
    pub changed: bool,
    /// Namespaces that hosts have created so far.
    pub created: u64,
    /// How hosts reach them.
    pub access: AccessRules,
    /// One has metadata, or had some: CDW12 to CDW15 and MPTR are kept of every command, not of a vendor's own only.
    pub any_metadata: bool,
}

impl NamespaceTable {
    /// Those of the configuration.
    pub fn of_config(config: &SubsystemConfig) -> Result<Self, ManagementError> {
        let mut list = Namespaces::new();
        for ns in &config.namespaces {
            if ns.nsid == 0 || ns.nsid > NSID_MAX {
                return Err(ManagementError::Namespace);
            }
            let at = ns.nsid as usize - 1;
            if list.len() <= at {
                list.resize(at + 1, None);
            }
            if list[at].replace(Namespace::new(ns).ok_or(ManagementError::Namespace)?).is_some() {
                return Err(ManagementError::Namespace);
            }
        }
        Ok(Self {
            list,
            allocator: None,
            records: Records::new(),
            jobs: Vec::new(),
            next_job: 0,
            changed: false,
            created: 0,
            access: AccessRules::new(&config.ana_ports),
            any_metadata: false,
        })
    }

    /// Gives them the granules that they lie in, where hosts may make more of them.
    pub fn allocate(&mut self, config: &SubsystemConfig) -> Result<(), ManagementError> {
        let Some(management) = config.management.filter(|_| config.zoned.is_empty()) else { return Ok(()) };
        let mut allocator = Allocator::new(management.capacity);
        for config in &config.namespaces {
            let (nsid, bytes) = (config.nsid, config.size);
            if !allocator.claim_range(nsid, config.start, bytes.max(1)) {
                return Err(ManagementError::Namespace);
            }
            self.records.insert(nsid, NamespaceRecord::initial(bytes));
        }
        self.list.resize(self.list.len().max(MANAGED), None);
        for ns in self.list.iter_mut().flatten() {
            ns.format = Format::plain(ns.shift, &management);
        }
        self.allocator = Some(Box::new(allocator));
        Ok(())
    }

    /// The namespace of an NSID that must be active, see [`active`].
    #[inline]
    pub fn active(&self, nsid: u32) -> Result<&Namespace, Status> {
        active(&self.list, nsid)
    }

    pub fn get_mut(&mut self, nsid: u32) -> Option<&mut Namespace> {
        self.list.get_mut(nsid.wrapping_sub(1) as usize)?.as_mut()
    }

    /// NSIDs of those that there are, ascending.
    pub fn nsids(&self) -> impl Iterator<Item = u32> + '_ {
        (1u32..).zip(&self.list).filter(|(_, ns)| ns.is_some()).map(|(nsid, _)| nsid)
    }

    /// Block size of a namespace as a power of two.
    pub fn block_shift(&self, nsid: u32) -> u32 {
        self.active(nsid).map_or(9, |ns| ns.shift)
    }

    /// Media extents of a range of blocks that lies inside its namespace: offsets and lengths in bytes, in order.
    pub fn pieces(&self, nsid: u32, ns: &Namespace, slba: u64, blocks: u64) -> Vec<(u64, u64)> {
        match (&self.allocator, ns.fragmented) {
            (Some(allocator), true) => allocator.pieces(nsid, slba << ns.shift, blocks << ns.shift),
            _ => ns.locate(slba, blocks).map(|offset| (offset, blocks << ns.shift)).into_iter().collect(),
        }
    }

    /// A namespace as its record and its granules say.
    pub fn laid_out(&self, nsid: u32, format: Format, shift: u32, uuid: [u8; 16]) -> Option<Namespace> {
        let (extents, record) = (self.allocator.as_ref()?.extents(nsid), self.records.get(&nsid)?);
        let (start, _) = extents.first()?;
        let plain = Namespace { blocks: record.bytes >> shift, start: *start, shift, ..Namespace::empty() };
        Some(Namespace { format, fragmented: extents.len() > 1, uuid, ..plain })
    }

    /// Whether a namespace is being created, deleted, formatted or write protected.
    pub fn is_busy(&self, nsid: u32) -> bool {
        self.jobs.iter().any(|job| job.nsids.contains(&nsid))
    }
}
