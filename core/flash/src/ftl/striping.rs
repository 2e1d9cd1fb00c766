//! Addresses that say where their data goes: to one plane (MQSim's plane allocation schemes), or to the planes of one partition
//! (NVMeVirt). Which block and page of a plane it is, the write points say, here as elsewhere.
//!
//! ```text
//! unit ─ / granule ─ % partitions ─> turn ─> partition: its planes in turn
//! static scheme   a page goes to a partition of one plane
//! partitions      a unit goes to a partition of some channels
//! ```

use super::plane_allocation::PlaneAllocation;
use crate::config::{FlashDriveConfig, Mapping};
use crate::config_error::{ConfigError, wrong};
use crate::geometry::{Divisor, Shape};
use crate::timing::FlashTiming;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

impl PlaneAllocation {
    /// The planes by the turns that they have.
    fn planes(self, shape: &Shape, timing: &FlashTiming) -> Vec<u32> {
        let chips = chips(shape, timing);
        let dies = shape.geometry().ways / chips;
        let counts = |letter: char| match letter {
            'C' => shape.channels(),
            'W' => chips,
            'D' => dies,
            _ => shape.planes_per_die(),
        };
        let plane = |turn: u32| {
            let (mut left, mut channel, mut chip, mut die, mut plane) = (turn, 0, 0, 0, 0);
            for letter in self.name().chars() {
                let digit = left % counts(letter);
                left /= counts(letter);
                match letter {
                    'C' => channel = digit,
                    'W' => chip = digit,
                    'D' => die = digit,
                    _ => plane = digit,
                }
            }
            // The dies of a channel are counted over its chips first.
            shape.plane(channel, die * chips + chip, plane)
        };
        (0..shape.planes()).map(plane).collect()
    }
}

/// Chips of a channel.
fn chips(shape: &Shape, timing: &FlashTiming) -> u32 {
    let ways = shape.geometry().ways;
    if timing.chips == 0 { ways } else { timing.chips.min(ways) }
}

/// Which planes a unit may go to.
#[derive(Clone, Debug)]
pub(crate) struct Striping {
    /// Units in a row that go to the same partition.
    granule: Divisor,
    partitions: Divisor,
    /// Units of a page of the map, and the turn of the first one.
    page: Divisor,
    first_of_map: u32,
    /// Units that the host can name, and those of the map with them.
    logical: u32,
    mapped: u32,
    /// `each` planes of each partition, those of different dies first.
    planes: Vec<u32>,
    each: u32,
    /// By plane: its partition.
    partition_of: Vec<u32>,
    /// By partition: which plane is next, of the first `cycle` ones.
    next: Vec<u32>,
    cycle: u32,
}

impl Striping {
    /// As a configuration has it; `None` where any plane takes any unit.
    pub(crate) fn new(config: &FlashDriveConfig, shape: &Shape, logical: u32, mapped: u32) -> Option<Striping> {
        let ftl = &config.ftl;
        let (planes, each, granule) = match ftl.plane_allocation {
            PlaneAllocation::Dynamic if ftl.partitions < 2 => return None,
            PlaneAllocation::Dynamic => (partitioned(shape, ftl.partitions), shape.planes() / ftl.partitions, 1),
            scheme => (scheme.planes(shape, &config.timing), 1, shape.units_per_page()),
        };
        let count = shape.planes() / each;
        let mut partition_of = vec![0; planes.len()];
        for (partition, own) in (0..).zip(planes.chunks(each as usize)) {
            own.iter().for_each(|plane| partition_of[*plane as usize] = partition);
        }
        Some(Striping {
            granule: Divisor::new(granule),
            partitions: Divisor::new(count),
            page: Divisor::new(shape.units_per_page()),
            // Behind the host's last page.
            first_of_map: logical.div_ceil(granule) % count,
            logical,
            mapped,
            planes,
            each,
            partition_of,
            next: vec![0; count as usize],
            cycle: if ftl.multi_plane { each / shape.planes_per_die() } else { each },
        })
    }

    /// How many partitions.
    pub(crate) fn count(&self) -> u32 {
        self.partitions.get()
    }

    /// Units lie this far apart in one page that was written in their order.
    pub(crate) fn step(&self) -> u32 {
        if self.granule.get() < self.page.get() { self.count() } else { 1 }
    }

    /// The partition that the unit goes to.
    #[inline]
    pub(crate) fn partition(&self, lpn: u32) -> u32 {
        if lpn < self.logical {
            return self.partitions.rem(self.granule.div(lpn));
        }
        self.partitions.rem(self.first_of_map + self.page.div(lpn - self.logical))
    }

    /// The plane for the next page of units like this one.
    #[inline]
    pub(crate) fn next(&mut self, lpn: u32) -> u32 {
        let partition = self.partition(lpn);
        let next = &mut self.next[partition as usize];
        let at = *next;
        *next = if at + 1 == self.cycle { 0 } else { at + 1 };
        self.planes[(partition * self.each + at) as usize]
    }

    /// The `i`th plane that is tried for a unit: those of its partition, then all others.
    pub(crate) fn candidate(&self, lpn: u32, i: u32) -> Option<u32> {
        if i < self.each {
            return self.planes.get((self.partition(lpn) * self.each + i) as usize).copied();
        }
        (i - self.each < self.planes.len() as u32).then(|| i - self.each)
    }

    /// The partition of a plane.
    pub(crate) fn partition_of(&self, plane: u32) -> u32 {
        self.partition_of[plane as usize]
    }

    /// Where a unit without contents would lie: plane, and page of a block of `pages` pages.
    pub(crate) fn home(&self, lpn: u32, pages: u32) -> (u32, u32) {
        let turn = self.granule.div(lpn);
        let row = self.partitions.div(turn);
        let plane = self.partitions.rem(turn) * self.each + row % self.each;
        (self.planes[plane as usize], row / self.each % pages)
    }

    /// The host's units of a partition.
    fn host_units(&self, partition: u32) -> u32 {
        let (granule, row) = (self.granule.get(), self.granule.get() * self.count());
        let last = (self.logical % row).saturating_sub(partition * granule).min(granule);
        self.logical / row * granule + last
    }

    /// The first page of the map that goes to a partition.
    fn map_page(&self, partition: u32) -> u32 {
        self.partitions.rem(partition + self.count() - self.first_of_map)
    }

    /// All units of a partition.
    pub(crate) fn units(&self, partition: u32) -> u32 {
        let pages = self.page.div(self.mapped - self.logical);
        let own = (pages + self.count() - 1 - self.map_page(partition)) / self.count();
        self.host_units(partition) + own * self.page.get()
    }

    /// The `i`th of them.
    pub(crate) fn unit(&self, partition: u32, i: u32) -> u32 {
        let host = self.host_units(partition);
        if i < host {
            let (row, rest) = self.granule.div_rem(i);
            return (row * self.count() + partition) * self.granule.get() + rest;
        }
        let (row, rest) = self.page.div_rem(i - host);
        self.logical + (self.map_page(partition) + row * self.count()) * self.page.get() + rest
    }
}

/// The planes of so many partitions, each of which has as many channels: dies first, and of these the channels.
fn partitioned(shape: &Shape, partitions: u32) -> Vec<u32> {
    let channels = shape.channels() / partitions;
    let mut planes = Vec::with_capacity(shape.planes() as usize);
    for partition in 0..partitions {
        for plane in 0..shape.planes_per_die() {
            for way in 0..shape.geometry().ways {
                let own = partition * channels..(partition + 1) * channels;
                planes.extend(own.map(|channel| shape.plane(channel, way, plane)));
            }
        }
    }
    planes
}

impl FlashDriveConfig {
    /// Whether the way in which planes are chosen fits the rest.
    pub(crate) fn check_striping(&self, shape: &Shape) -> Result<(), ConfigError> {
        let (ftl, channels) = (&self.ftl, shape.channels());
        let scheme = ftl.plane_allocation;
        if ftl.partitions == 0 || channels % ftl.partitions != 0 {
            let message =
                format!("is {}; a divisor of the {channels} channels, of which each has as many, or 1", ftl.partitions);
            return Err(wrong("ftl.partitions", message));
        }
        let (key, given) = match (scheme.is_static(), ftl.partitions > 1) {
            (false, false) => return Ok(()),
            (true, true) => {
                let message =
                    format!("is {}; ftl.plane_allocation = \"{scheme}\" says the plane already", ftl.partitions);
                return Err(wrong("ftl.partitions", message));
            }
            (true, false) => ("ftl.plane_allocation", format!("is \"{scheme}\"")),
            (false, true) => ("ftl.partitions", format!("is {}", ftl.partitions)),
        };
        if !matches!(ftl.mapping, Mapping::Page | Mapping::Cached) {
            return Err(wrong(key, format!("{given}; ftl.mapping = \"{}\" has places of its own", ftl.mapping)));
        }
        if ftl.fdp.is_some() {
            return Err(wrong(key, format!("{given}; the placement handles of [device.fdp] choose the planes")));
        }
        if scheme.is_static() && ftl.multi_plane {
            let message = "is true; with a static ftl.plane_allocation each page has its plane: write false, see timing.join_planes";
            return Err(wrong("ftl.multi_plane", message.into()));
        }
        let (ways, chips) = (shape.geometry().ways, chips(shape, &self.timing));
        if scheme.is_static() && ways % chips != 0 {
            let message = format!("is {chips}; ftl.plane_allocation = \"{scheme}\" needs a divisor of the {ways} ways");
            return Err(wrong("timing.chips", message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{geometry, small};
    use crate::{Geometry, Preset};

    fn striping(config: &FlashDriveConfig, logical: u32, map_pages: u32) -> Striping {
        let shape = config.geometry.shape().unwrap();
        Striping::new(config, &shape, logical, logical + map_pages * shape.units_per_page()).unwrap()
    }

    /// As MQSim divides them (src/ssd/Address_Mapping_Unit_Page_Level.cpp): CWDP is channel = n % C, chip = n / C % W,
    /// die = n / (C W) % D, plane = n / (C W D) % P.
    #[test]
    fn the_letters_say_what_changes_fastest() {
        let (channels, chips, dies, planes) = (3, 2, 2, 2);
        let mut config = small(Geometry { ways: chips * dies, ..geometry(channels, planes, 20, 4, 2) }, 0.3);
        config.timing.chips = chips;
        let shape = config.geometry.shape().unwrap();
        for scheme in PlaneAllocation::ALL.iter().filter(|s| s.is_static()) {
            config.ftl.plane_allocation = *scheme;
            let mut made = striping(&config, 1000, 0);
            let count = |letter| match letter {
                'C' => channels,
                'W' => chips,
                'D' => dies,
                _ => planes,
            };
            for n in 0..100 {
                let digit = |letter: char| {
                    let before = scheme.name().chars().take_while(|l| *l != letter).map(count).product::<u32>();
                    n / before % count(letter)
                };
                let plane = shape.plane(digit('C'), digit('D') * chips + digit('W'), digit('P'));
                assert_eq!([made.next(2 * n), made.next(2 * n + 1)], [plane; 2], "{scheme}, page {n}");
            }
        }
    }

    #[test]
    fn every_unit_has_its_partition() {
        let mut config = small(geometry(4, 2, 20, 4, 2), 0.3);
        for (scheme, partitions) in [("CWDP", 1), ("PWDC", 1), ("dynamic", 2), ("dynamic", 4)] {
            config.ftl.plane_allocation = scheme.parse().unwrap();
            config.ftl.partitions = partitions;
            for (logical, map_pages) in [(1000, 0), (999, 7), (3, 1), (641, 20)] {
                let made = striping(&config, logical, map_pages);
                let mut seen = vec![false; (logical + 2 * map_pages) as usize];
                for partition in 0..made.count() {
                    for i in 0..made.units(partition) {
                        let lpn = made.unit(partition, i);
                        assert_eq!(made.partition(lpn), partition, "{scheme}, unit {lpn}");
                        assert!(!core::mem::replace(&mut seen[lpn as usize], true), "{scheme}, unit {lpn}");
                    }
                }
                assert!(seen.iter().all(|s| *s), "{scheme}, {logical} units and {map_pages} pages");
            }
        }
    }

    /// NVMeVirt's partitions are SSDs of their own: two of eight channels each, their two LUNs after the channels.
    #[test]
    fn partitions_have_channels_of_their_own() {
        let config = FlashDriveConfig::preset(Preset::Nvmevirt970Pro, true);
        let shape = config.geometry.shape().unwrap();
        let mut made = striping(&config, 1000, 0);
        let mut seen = Vec::new();
        for i in 0..5 {
            seen.push(made.next(4 * i + 1));
        }
        assert_eq!(seen, [(2, 0), (3, 0), (2, 1), (3, 1), (2, 0)].map(|(channel, way)| shape.plane(channel, way, 0)));
        assert_eq!(made.step(), 4);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let base = small(geometry(4, 2, 20, 4, 1), 0.3);
        let refused = |change: &dyn Fn(&mut FlashDriveConfig)| {
            let mut config = base;
            change(&mut config);
            alloc::string::ToString::to_string(&config.validate().unwrap_err())
        };
        let says = refused(&|c| c.ftl.partitions = 3);
        assert_eq!(says, "ftl.partitions is 3; a divisor of the 4 channels, of which each has as many, or 1");
        let says = refused(&|c| (c.ftl.partitions, c.ftl.plane_allocation) = (2, PlaneAllocation::Cwdp));
        assert!(says.starts_with("ftl.partitions is 2; ftl.plane_allocation = \"CWDP\" says"), "{says}");
        let says = refused(&|c| (c.ftl.mapping, c.ftl.plane_allocation) = (Mapping::InPlace, PlaneAllocation::Cwdp));
        assert!(says.starts_with("ftl.plane_allocation is \"CWDP\"; ftl.mapping = \"in-place\""), "{says}");
        let says = refused(&|c| (c.ftl.multi_plane, c.ftl.plane_allocation) = (true, PlaneAllocation::Pdwc));
        assert!(says.starts_with("ftl.multi_plane is true"), "{says}");
    }
}
