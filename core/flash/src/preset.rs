//! The models of published emulators, each constant with its source.
//!
//! Read at FEMU 99ce4fb2b (paths from hw/femu/), NVMeVirt 61c90f77, MQSim 7ec40e3b (paths from src/), and in papers/002, the
//! FEMU paper. A preset follows the drive that its source describes. Where the source's code does something no drive
//! does, `quirks` follows the code instead, so that the two can be compared number by number.

use crate::cell::{CellType, MAX_LEVELS, PageMap};
use crate::geometry::Geometry;
use crate::host::{Firmware, HostTiming};
use crate::name::names;
use crate::timing::{
    Arbitration, FlashTiming, Levels, OperationUnit, Order, Overheads, Registers, Suspend, levels, uniform,
};
use crate::variability::Variability;
use crate::wire::{Packet, Wire};
use weir_units::{Bytes, Nanos};

/// A published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// The basic model of papers/002 section 3.2.2: one register a plane, one time for all pages.
    FemuBasic,
    /// The advanced model of papers/002 section 3.2.3: OpenChannel SSD with double registers and MLC page pairing.
    FemuOc,
    /// FEMU's black-box SSD with its defaults: dies only, no channel time.
    FemuBbssd,
    /// NVMeVirt's Samsung 970 PRO.
    Nvmevirt970Pro,
    /// NVMeVirt's Western Digital ZN540.
    NvmevirtZn540,
    /// MQSim with its built-in defaults.
    MqsimDefault,
}

names!(
    Preset,
    "flash preset",
    FemuBasic = "femu-basic",
    FemuOc = "femu-oc",
    FemuBbssd = "femu-bbssd",
    Nvmevirt970Pro = "nvmevirt-970pro",
    NvmevirtZn540 = "nvmevirt-zn540",
    MqsimDefault = "mqsim-default",
);

/// What a preset sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PresetParts {
    /// How the flash is laid out.
    pub geometry: Geometry,
    /// What its steps take.
    pub timing: FlashTiming,
    /// Firmware and link.
    pub host: HostTiming,
    /// How chips differ: none of the models does.
    pub variability: Variability,
    /// The part of the flash that is offered as capacity: numerator and denominator.
    pub capacity: (u32, u32),
    /// Whether reading what was never written takes no flash time.
    pub unwritten_free: bool,
    /// The write buffer; 0: writes go to the flash at once.
    pub buffer: Bytes,
    /// Whether a write is complete as soon as it is in the buffer.
    pub early_completion: bool,
    /// Free blocks of a plane at which collection begins.
    pub gc_start: u32,
    /// Parts over which units are striped.
    pub partitions: u32,
}

/// Times of a cell type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellTimes {
    /// Array reads.
    pub read: Levels,
    /// Programs.
    pub program: Levels,
    /// Erase.
    pub erase: Nanos,
    /// A 16 KiB page on the channel.
    pub transfer: Nanos,
}

/// FEMU's table (nand/nand.h:9-65). QLC is TLC's lower * 1.05, centre * 1.1, upper * 1.2 and upper * 1.6; FEMU has no PLC,
/// which here goes on as QLC. The table has no transfer time for TLC and QLC: MLC's.
pub const fn cell_times(cell: CellType) -> CellTimes {
    let transfer = Nanos(if matches!(cell, CellType::Slc) { 20_000 } else { 52_433 });
    let (read, program, erase) = match cell {
        CellType::Slc => (uniform(40_000), uniform(800_000), 2_000_000),
        CellType::Mlc => (levels([48_000, 64_000]), levels([850_000, 2_300_000]), 3_000_000),
        CellType::Tlc => (levels([56_500, 77_500, 106_000]), levels([820_500, 2_225_000, 5_734_000]), 3_000_000),
        CellType::Qlc | CellType::Plc => {
            (levels([59_325, 85_250, 127_200, 169_600]), levels([861_525, 2_447_500, 6_880_800, 9_174_400]), 3_000_000)
        }
    };
    CellTimes { read, program, erase: Nanos(erase), transfer }
}

/// FEMU's `pgtype_lat` factors in thousandths (bbssd/ftl-media.c:96-102), by level.
pub const fn page_type_factors(cell: CellType) -> [u32; MAX_LEVELS] {
    match cell {
        CellType::Slc => [1000; MAX_LEVELS],
        CellType::Mlc => [600, 1400, 1400, 1400, 1400],
        CellType::Tlc => [600, 1000, 1400, 1400, 1400],
        CellType::Qlc => [500, 850, 1150, 1500, 1500],
        CellType::Plc => [400, 750, 1000, 1250, 1600],
    }
}

/// Erase where NVMeVirt has none (ssd_config.h: 0 ns, so that garbage collection stalls are under-stated): MLC's and TLC's
/// of FEMU's table.
const ERASE: Nanos = Nanos(3_000_000);

/// Where a peer's own threshold would leave no over-provisioning, or hardly any. FEMU's 75 % of the lines (ftl-geom.c:140-143) is
/// background work with a floor on what a victim frees, and all that the drive has to spare; MQSim's 5 % of the blocks is where it
/// begins to work in gaps, 102 of the 143 blocks that a plane has to spare; the ZN540's zones collect nothing.
const LEAST_FREE: u32 = 1;

impl Preset {
    /// What it models, in a line.
    pub const fn title(self) -> &'static str {
        match self {
            Preset::FemuBasic => "FEMU's basic model: one register, one time for all pages",
            Preset::FemuOc => "FEMU's advanced model: OpenChannel SSD, MLC page pairing",
            Preset::FemuBbssd => "FEMU's black-box SSD, defaults",
            Preset::Nvmevirt970Pro => "NVMeVirt's Samsung 970 PRO",
            Preset::NvmevirtZn540 => "NVMeVirt's Western Digital ZN540",
            Preset::MqsimDefault => "MQSim, built-in defaults",
        }
    }

    /// Where its numbers are from.
    pub const fn source(self) -> &'static str {
        match self {
            Preset::FemuBasic => "Li et al., FAST '18, section 3.2.2",
            Preset::FemuOc => "Li et al., FAST '18, section 3.2.3",
            Preset::FemuBbssd => "FEMU 99ce4fb2b",
            Preset::Nvmevirt970Pro | Preset::NvmevirtZn540 => "NVMeVirt 61c90f77",
            Preset::MqsimDefault => "MQSim 7ec40e3b",
        }
    }

    /// The model's numbers; with `quirks`, as its code has them even where no drive does so.
    pub const fn parts(self, quirks: bool) -> PresetParts {
        match self {
            Preset::FemuBasic => femu_basic(quirks),
            Preset::FemuOc => femu_oc(quirks),
            Preset::FemuBbssd => femu_bbssd(quirks),
            Preset::Nvmevirt970Pro => nvmevirt_970_pro(quirks),
            Preset::NvmevirtZn540 => nvmevirt_zn540(quirks),
            Preset::MqsimDefault => mqsim_default(quirks),
        }
    }
}

/// A drive without anything: what presets start from.
const PLAIN: FlashTiming = FlashTiming {
    gate: OperationUnit::Die,
    registers: Registers::Single,
    read: uniform(0),
    read_small: None,
    sense_bytes: 0,
    program: uniform(0),
    erase: Nanos(0),
    channel: Wire::INSTANT,
    burst_bytes: 0,
    overheads: Overheads {
        read: Nanos(0),
        read_plane: Nanos(0),
        program: Nanos(0),
        program_plane: Nanos(0),
        erase: Nanos(0),
        status: Nanos(0),
    },
    cache_read: false,
    cache_busy: Nanos(0),
    suspend: Suspend { program: None, erase: None, limit: 0 },
    arbitration: Arbitration::Booked,
    order: Order::InOrder,
    chips: 0,
    join_planes: false,
    age: Nanos(0),
};

/// Every chip as the data sheet says.
const ALIKE: Variability = Variability {
    seed: 0,
    chip_spread: 0,
    bad_chips: 0,
    bad_chip_slowdown: 0,
    bad_chip_errors: 0.0,
    page_spread: 0,
    initial_cycles: 0,
    wear_slowdown: 0,
    ecc_steps: None,
    errors: None,
    housekeeping: None,
};

/// The OpenChannel drive's flash of papers/002, sections 3.2.3 and 4 (16 planes, 512 pages a block), 32 GiB of it; 16 KiB
/// pages of four sectors (oc12 defaults).
const OPEN_CHANNEL: Geometry = Geometry {
    channels: 16,
    ways: 1,
    planes: 1,
    blocks: 256,
    pages: 512,
    page_bytes: 16384,
    spare_bytes: 1024,
    cell: CellType::Mlc,
    page_map: PageMap::Femu,
};

const fn femu_oc(quirks: bool) -> PresetParts {
    let table = cell_times(CellType::Mlc);
    let drive = FlashTiming {
        gate: OperationUnit::Plane,
        registers: Registers::Double,
        // papers/002 section 3.2.3: 48/64 us lower and upper read, 900/2400 us lower and upper write.
        read: levels([48_000, 64_000]),
        program: levels([900_000, 2_400_000]),
        erase: table.erase,
        channel: Wire::proportional(16384, table.transfer.0),
        cache_read: true,
        ..PLAIN
    };
    // The code's channel is always free (timing-model/timing.c:38-44) and its table differs from the paper.
    let code = FlashTiming { registers: Registers::Unbounded, program: table.program, channel: Wire::INSTANT, ..drive };
    PresetParts {
        geometry: OPEN_CHANNEL,
        timing: if quirks { code } else { drive },
        host: HostTiming::INSTANT,
        variability: ALIKE,
        // The host's map decides; a fifth is spare here.
        capacity: (4, 5),
        unwritten_free: quirks,
        buffer: Bytes(0),
        early_completion: false,
        gc_start: LEAST_FREE,
        partitions: 1,
    }
}

const fn femu_basic(quirks: bool) -> PresetParts {
    let oc = femu_oc(false);
    PresetParts {
        // The paper gives formulas, not times: the means of the advanced model's, so that the two can be compared.
        timing: FlashTiming {
            // "every plane only has a single page register, hence cannot serve multiple IOs in parallel". The formulas let a plane
            // go when its array is done, before the page has left the register.
            registers: if quirks { Registers::Unbounded } else { Registers::Single },
            read: uniform(56_000),
            program: uniform(1_650_000),
            cache_read: false,
            ..oc.timing
        },
        unwritten_free: quirks,
        ..oc
    }
}

const fn femu_bbssd(quirks: bool) -> PresetParts {
    PresetParts {
        // femu.c:1410-1447.
        geometry: Geometry {
            channels: 8,
            ways: 8,
            planes: 1,
            blocks: 256,
            pages: 256,
            page_bytes: 4096,
            spare_bytes: 128,
            cell: CellType::Slc,
            page_map: PageMap::Modulo,
        },
        // A LUN's next free time and nothing else: the channel is compiled out (bbssd/ftl-media.c:128-129).
        timing: FlashTiming {
            registers: Registers::Unbounded,
            read: uniform(40_000),
            program: uniform(200_000),
            erase: Nanos(2_000_000),
            ..PLAIN
        },
        host: HostTiming::INSTANT,
        variability: ALIKE,
        // The code offers all of it (op 0) and never has room to collect; 12 of 16 GiB here.
        capacity: (3, 4),
        // bbssd/ftl-datapath.c:43-48.
        unwritten_free: quirks,
        buffer: Bytes(0),
        early_completion: false,
        gc_start: LEAST_FREE,
        partitions: 1,
    }
}

const fn nvmevirt_970_pro(quirks: bool) -> PresetParts {
    // ssd_config.h:63-109. Blocks there follow from the memory that is set aside: 64 GiB here.
    PresetParts {
        geometry: Geometry {
            channels: 8,
            ways: 2,
            planes: 1,
            blocks: 8192,
            pages: 16,
            page_bytes: 32768,
            spare_bytes: 1024,
            cell: CellType::Mlc,
            page_map: PageMap::Modulo,
        },
        timing: FlashTiming {
            read: levels([30_013, 42_013]),
            read_small: Some(levels([29_760, 41_760])),
            program: uniform(185_000),
            erase: if quirks { Nanos(0) } else { ERASE },
            channel: Wire::mib_units(800, 0),
            burst_bytes: 16384,
            ..PLAIN
        },
        host: HostTiming {
            firmware: Firmware {
                read_small: Nanos(21_500),
                read: Nanos(30_490),
                // 4 KiB for each of four partitions (conv_ftl.c:867-871).
                small_bytes: 16384,
                write: Nanos(4_000),
                write_unit: Nanos(460),
                ..HostTiming::INSTANT.firmware
            },
            ..HostTiming::link(Wire::mib_units(3360, 0))
        },
        variability: ALIKE,
        capacity: (100, 107),
        unwritten_free: quirks,
        buffer: Bytes(Bytes::MIB),
        early_completion: true,
        // Two lines, and a line is a block of each plane (conv_ftl.c:93-108).
        gc_start: 2,
        // Each has two of the channels (ssd_config.h, SSD_PARTITIONS).
        partitions: 4,
    }
}

const fn nvmevirt_zn540(quirks: bool) -> PresetParts {
    // ssd_config.h:178-. A block is a die's share of a 2 GiB zone: 682 one-shot pages of 96 KiB; 64 zones here.
    PresetParts {
        geometry: Geometry {
            channels: 8,
            ways: 4,
            planes: 1,
            blocks: 64,
            pages: 682,
            page_bytes: 98304,
            spare_bytes: 3072,
            cell: CellType::Tlc,
            page_map: PageMap::Modulo,
        },
        timing: FlashTiming {
            read: uniform(58_000),
            read_small: Some(uniform(50_000)),
            sense_bytes: 32768,
            program: uniform(561_000),
            erase: if quirks { Nanos(0) } else { ERASE },
            channel: Wire::mib_units(450, 0),
            burst_bytes: 32768,
            ..PLAIN
        },
        host: HostTiming {
            firmware: Firmware {
                read_small: Nanos(20_000),
                read: Nanos(13_000),
                small_bytes: 4096,
                write: Nanos(5_600),
                write_unit: Nanos(600),
                ..HostTiming::INSTANT.firmware
            },
            ..HostTiming::link(Wire::mib_units(3050, 0))
        },
        variability: ALIKE,
        capacity: (100, 107),
        unwritten_free: quirks,
        // Ten pages of 96 KiB for each zone; here for all together.
        buffer: Bytes(10 * 98304),
        early_completion: true,
        gc_start: LEAST_FREE,
        partitions: 1,
    }
}

const fn mqsim_default(quirks: bool) -> PresetParts {
    // exec/Flash_Parameter_Set.cpp:6-23, exec/Device_Parameter_Set.cpp:6-43. A way is a die: four chips of two.
    PresetParts {
        geometry: Geometry {
            channels: 8,
            ways: 8,
            planes: 2,
            blocks: 2048,
            pages: 256,
            page_bytes: 8192,
            spare_bytes: 1872,
            cell: CellType::Mlc,
            page_map: PageMap::Mqsim,
        },
        timing: FlashTiming {
            // 20 ns until ready/busy says so (nvm_chip/flash_memory/Flash_Chip.h:29, 101).
            read: uniform(75_020),
            program: uniform(750_000),
            erase: Nanos(3_800_000),
            // 300 MT/s on eight bits. The code truncates two cycles to 6 ns (exec/SSD_Device.cpp:97).
            channel: if quirks { Wire::units(2, 6).cut_at(1) } else { Wire::bytes_per_second(300_000_000) },
            overheads: MQSIM_OVERHEADS,
            // Erases only, 700 us and the command's 95 ns. In the code nothing is ever suspended
            // (ssd/TSU_OutofOrder.cpp:301-327).
            suspend: Suspend { program: None, erase: if quirks { None } else { Some(Nanos(700_095)) }, limit: 16 },
            arbitration: Arbitration::DataOutFirst,
            order: Order::ReadsFirst,
            chips: 4,
            join_planes: true,
            ..PLAIN
        },
        host: HostTiming {
            // DRAM of 800 MT/s, bursts of 4 bytes: tRCD + tCL and 512 double transfers of 1.25 ns for 4 KiB
            // (ssd/Data_Cache_Manager_Base.h:66-76).
            firmware: Firmware { write: Nanos(26), write_unit: Nanos(640), ..HostTiming::INSTANT.firmware },
            // exec/Host_Parameter_Set.cpp:5-6: four lanes of 0.4 GB/s.
            ..HostTiming::link(Wire::bytes_per_second(400_000_000).packets(Packet::pcie(4)))
        },
        variability: ALIKE,
        capacity: (93, 100),
        unwritten_free: false,
        buffer: Bytes(512 * Bytes::MIB),
        early_completion: true,
        gc_start: LEAST_FREE,
        partitions: 1,
    }
}

/// ONFI NV-DDR2 command times from the sums of ssd/ONFI_Channel_NVDDR2.cpp:16-37, in nanoseconds.
const MQSIM_OVERHEADS: Overheads = {
    let (dbsy, cs, rr, wb, wc, adl, cals, wpst, wpsth) = (500, 20, 20, 100, 25, 70, 15, 6, 15);
    Overheads {
        read: Nanos(cs + 6 * wc + wb + rr),
        read_plane: Nanos(dbsy + 6 * wc),
        program: Nanos(cs + 6 * wc + adl + wpst + wpsth + wb),
        program_plane: Nanos(5 * wc + adl + wpst + cals + wb + dbsy),
        erase: Nanos(cs + 4 * wc + wb),
        status: Nanos(0),
    }
};
