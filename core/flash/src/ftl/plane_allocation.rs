//! The schemes by which addresses say the plane.

use crate::name::names;

/// How a write's plane is chosen. A static scheme is named by the order in which the number of a page is divided, its first letter changing
/// fastest: C by the channels, W by the chips of a channel (ways), D by the dies of a chip, P by the planes of a die (Tavakkol et al., "Design
/// Tradeoffs for SSD Reliability and Performance"; MQSim, FAST '18, `Plane_Allocation_Scheme`).
#[allow(missing_docs)] // 24 permutations, each named after itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaneAllocation {
    /// Planes in turn, whatever the address.
    Dynamic,
    Cwdp,
    Cwpd,
    Cdwp,
    Cdpw,
    Cpwd,
    Cpdw,
    Wcdp,
    Wcpd,
    Wdcp,
    Wdpc,
    Wpcd,
    Wpdc,
    Dcwp,
    Dcpw,
    Dwcp,
    Dwpc,
    Dpcw,
    Dpwc,
    Pcwd,
    Pcdw,
    Pwcd,
    Pwdc,
    Pdcw,
    Pdwc,
}

names!(
    PlaneAllocation,
    "plane allocation scheme",
    Dynamic = "dynamic",
    Cwdp = "CWDP",
    Cwpd = "CWPD",
    Cdwp = "CDWP",
    Cdpw = "CDPW",
    Cpwd = "CPWD",
    Cpdw = "CPDW",
    Wcdp = "WCDP",
    Wcpd = "WCPD",
    Wdcp = "WDCP",
    Wdpc = "WDPC",
    Wpcd = "WPCD",
    Wpdc = "WPDC",
    Dcwp = "DCWP",
    Dcpw = "DCPW",
    Dwcp = "DWCP",
    Dwpc = "DWPC",
    Dpcw = "DPCW",
    Dpwc = "DPWC",
    Pcwd = "PCWD",
    Pcdw = "PCDW",
    Pwcd = "PWCD",
    Pwdc = "PWDC",
    Pdcw = "PDCW",
    Pdwc = "PDWC",
);

impl PlaneAllocation {
    /// Whether the address says the plane.
    pub fn is_static(self) -> bool {
        self != PlaneAllocation::Dynamic
    }
}
