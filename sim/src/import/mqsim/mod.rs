//! MQSim's `ssdconfig.xml` and its workload definition (names and meanings as in MQSim 7ec40e3, src/exec/).

mod elements;
mod workload;

use super::draft::{Draft, quoted, times};
use super::text::{Given, ImportError, Text};
use elements::{Elements, parse, root};
use weir_flash::{Cache, Packet, PlaneAllocation, Wire};
use workload::{ImportedDrive, Scenario};

/// Elements that nothing here follows, and why.
const LEFT: [(&str, &str); 23] = [
    ("SATA_Processing_Delay", "the drive is an NVMe drive here"),
    ("Enable_ResponseTime_Logging", "write --series INTERVAL"),
    ("ResponseTime_Logging_Period_Length", "write --series INTERVAL"),
    ("Caching_Mechanism", "MQSim 7ec40e3 ends with an error with this and a cache; the cache is that of ADVANCED"),
    ("Data_Cache_Sharing_Mode", "one cache serves all flows"),
    ("Data_Cache_DRAM_Row_Size", "the DRAM has no rows: an access of more than one takes its bytes' time"),
    ("Data_Cache_DRAM_tRP", "the DRAM has no rows: an access of more than one takes its bytes' time"),
    ("CMT_Sharing_Mode", "the map cache is shared"),
    ("Use_Copyback_for_GC", "what collection moves does not cross the channel"),
    ("GC_Hard_Threshold", "counts with Preemptible_GC_Enabled"),
    ("Prefered_suspend_erase_time_for_read", "MQSim 7ec40e3 suspends nothing"),
    ("Preferred_suspend_erase_time_for_read", "MQSim 7ec40e3 suspends nothing"),
    ("Preferred_suspend_erase_time_for_write", "MQSim 7ec40e3 suspends nothing"),
    ("Preferred_suspend_write_time_for_read", "MQSim 7ec40e3 suspends nothing"),
    ("CMD_Suspension_Support", "MQSim 7ec40e3 suspends nothing; see erase_suspend and program_suspend"),
    ("Suspend_Erase_Time", "MQSim 7ec40e3 suspends nothing; see erase_suspend"),
    ("Suspend_Program_Time", "MQSim 7ec40e3 suspends nothing; see program_suspend"),
    ("Block_PE_Cycles_Limit", "MQSim retires no block; see endurance"),
    ("Transaction_Scheduling_Policy", "the scheduler is that of the profile"),
    ("Address_Mapping", "only PAGE_LEVEL exists"),
    ("Memory_Type", "only FLASH exists"),
    ("Flash_Comm_Protocol", "only NVDDR2 exists"),
    ("HostInterface_Type", "the drive is an NVMe drive here"),
];

/// Values with which an element of [`LEFT`] asks for nothing else than what is done.
const MET: [(&str, &str); 12] = [
    ("Enable_ResponseTime_Logging", "false"),
    ("Data_Cache_Sharing_Mode", "SHARED"),
    ("CMT_Sharing_Mode", "SHARED"),
    ("CMD_Suspension_Support", "NONE"),
    ("Transaction_Scheduling_Policy", "OUT_OF_ORDER"),
    ("Transaction_Scheduling_Policy", "PRIORITY_OUT_OF_ORDER"),
    ("Address_Mapping", "PAGE_LEVEL"),
    ("Memory_Type", "FLASH"),
    ("Flash_Comm_Protocol", "NVDDR2"),
    ("HostInterface_Type", "NVME"),
    ("Use_Copyback_for_GC", "true"),
    ("Caching_Mechanism", "ADVANCED"),
];

/// Reads a configuration, and a workload.
pub(super) fn read(config: &Text, flows: Option<&Text>) -> Result<Draft, ImportError> {
    let parsed = parse(config)?;
    let mut elements = Elements::of(config, root(config, &parsed, "Execution_Parameter_Set")?)?;
    let mut draft = Draft::new("mqsim-default");
    let drive = layout(&mut elements, &mut draft)?;
    array(&mut elements, &mut draft)?;
    let scenario = match flows {
        Some(text) => {
            let parsed = parse(text)?;
            Some(workload::read(text, root(text, &parsed, "MQSim_IO_Scenarios")?, &drive, &mut draft)?)
        }
        None => None,
    };
    let cache = scenario.as_ref().map_or(Cache::Write, |s| s.cache);
    host(&mut elements, &mut draft)?;
    data_cache(&mut elements, &mut draft, cache)?;
    translation(&mut elements, &drive, &mut draft)?;
    priorities(&mut elements, &mut draft, scenario.as_ref());
    state(&mut elements, &mut draft, scenario.as_ref())?;
    leave_rest(elements, &mut draft);
    Ok(draft)
}

/// Says of everything that nothing asked for why that is so.
fn leave_rest(elements: Elements<'_>, draft: &mut Draft) {
    let text = elements.text;
    for (name, given) in elements.rest() {
        if MET.iter().any(|(met, value)| *met == name && value.eq_ignore_ascii_case(&given.text)) {
            continue;
        }
        let why = LEFT.iter().find(|(left, _)| *left == name).map_or("MQSim 7ec40e3 has no such parameter", |l| l.1);
        draft.leave(text, &name, &given, why);
    }
}

/// Geometry and capacity.
fn layout(e: &mut Elements<'_>, draft: &mut Draft) -> Result<ImportedDrive, ImportError> {
    let channels = e.count("Flash_Channel_Count", 8)?;
    let chips = e.count("Chip_No_Per_Channel", 4)?;
    let dies = e.count("Die_No_Per_Chip", 2)?;
    let planes = e.count("Plane_No_Per_Die", 2)?;
    let blocks = e.count("Block_No_Per_Plane", 2048)?;
    let pages = e.count("Page_No_Per_Block", 256)?;
    let page = e.count("Page_Capacity", 8192)?;
    let spare = e.number("Page_Metadat_Capacity", 0, u64::from(u32::MAX), 448)?;
    let ratio = e.number("Overprovisioning_Ratio", 0.0, 0.99, 0.07)?;
    // Sectors of a plane that are offered (src/utils/Logical_Address_Partitioning_Unit.cpp).
    let sectors = (blocks as f64 * pages as f64 * (page / 512) as f64 * (1.0 - ratio)) as u64;
    let all = [channels, chips, dies, planes, sectors, 512].into_iter().try_fold(1_u64, u64::checked_mul);
    let capacity = all.ok_or_else(|| e.text.fault(0, "the drive is larger than 2^64 bytes"))? / 4096 * 4096;
    draft.device.push(("capacity", quoted(capacity)));
    let least = page / 4096 * 16;
    let keys = [
        ("channels", channels),
        ("ways", chips.saturating_mul(dies)),
        ("chips", chips),
        ("planes", planes),
        ("blocks", blocks),
        ("pages", pages),
        ("page_size", page),
        ("spare_size", spare.max(least)),
    ];
    draft.flash.extend(keys.map(|(key, value)| (key, value.to_string())));
    Ok(ImportedDrive { bytes: capacity, units: [channels, chips, dies, planes], spare: (blocks as f64 * ratio) as u32 })
}

/// Array and channel.
fn array(e: &mut Elements<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let (cell, levels) =
        e.word("Flash_Technology", &[("SLC", ("slc", 1)), ("MLC", ("mlc", 2)), ("TLC", ("tlc", 3))], ("mlc", 2))?;
    draft.flash.push(("cell", quoted(cell)));
    draft.flash.push(("page_map", quoted("mqsim")));
    // 20 ns until ready/busy says that a page is read (src/nvm_chip/flash_memory/Flash_Chip.h).
    for (key, what, more, default) in [("read", "Read", 20, 75_000), ("program", "Program", 0, 750_000)] {
        let mut level = |kind: &str| e.number(&format!("Page_{what}_Latency_{kind}"), 0, 10_000_000_000_u64, default);
        let (low, centre, high) = (level("LSB")?, level("CSB")?, level("MSB")?);
        let by_level: &[u64] = match levels {
            1 => &[low],
            2 => &[low, high],
            _ => &[low, centre, high],
        };
        draft.flash.push((key, times(&by_level.iter().map(|n| n + more).collect::<Vec<_>>())));
    }
    let erase = e.number("Block_Erase_Latency", 0, 10_000_000_000_u64, 3_800_000)?;
    draft.flash.push(("erase", quoted(format_args!("{erase}ns"))));
    let (width, rate) = (e.number("Flash_Channel_Width", 1, 1024_u32, 1)?, e.count("Channel_Transfer_Rate", 333)?);
    // Two transfers of the width, the nanoseconds of one cut (src/exec/SSD_Device.cpp).
    let wire = match 1000 / rate {
        0 => Wire::INSTANT,
        cycle => Wire::units(2 * width, 2 * cycle).cut_at(width),
    };
    draft.flash.push(("channel_timing", quoted(wire)));
    Ok(())
}

/// Link and controller.
fn host(e: &mut Elements<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let gbps: f64 = e.number("PCIe_Lane_Bandwidth", 0.001, 1000.0, 1.0)?;
    let lanes = e.number("PCIe_Lane_Count", 1, 64_u32, 4)?;
    let wire = Wire::bytes_per_second((gbps * 1e9).round() as u64).packets(Packet::pcie(lanes));
    draft.flash.push(("link_timing", quoted(wire)));
    // Two doorbells of 2 bytes, the command (72) asked for and fetched, its completion (16); a write's data is asked for as well
    // (src/host/PCIe_Link.h, src/ssd/Host_Interface_NVMe.cpp).
    let (asked, fixed) = (wire.time(4).0, 2 * wire.time(2).0 + wire.time(72).0 + wire.time(16).0);
    draft.flash.push(("firmware_read", quoted(format_args!("{}ns", fixed + asked))));
    draft.flash.push(("firmware_write", quoted(format_args!("{}ns", fixed + 2 * asked))));
    draft.flash.push(("firmware_write_unit", quoted("0ns")));
    let depth = e.count("IO_Queue_Depth", 4096)?;
    draft.device.push(("queue_depth", depth.clamp(2, 4096).to_string()));
    draft.device.push(("slots", e.count("Queue_Fetch_Size", 512)?.min(4096).to_string()));
    Ok(())
}

/// The data cache and its memory (src/ssd/Data_Cache_Manager_Base.h): an access, then two transfers of a burst at a time.
fn data_cache(e: &mut Elements<'_>, draft: &mut Draft, cache: Cache) -> Result<(), ImportError> {
    let capacity = e.number("Data_Cache_Capacity", 0, 1_u64 << 40, 268_435_456)? / 4096 * 4096;
    let rate = e.number("Data_Cache_DRAM_Data_Rate", 1, 1_u64 << 20, 100)?;
    let burst: u32 = e.number("Data_Cache_DRAM_Data_Busrt_Size", 1, 1 << 20, 1)?;
    let open = e.number("Data_Cache_DRAM_tRCD", 0, 1_000_000_u64, 13)?;
    let column = e.number("Data_Cache_DRAM_tCL", 0, 1_000_000_u64, 13)?;
    if cache == Cache::None || capacity == 0 {
        draft.flash.push(("buffer", "0".to_string()));
        return Ok(());
    }
    draft.flash.push(("buffer", quoted(capacity)));
    draft.flash.push(("cache", quoted(cache)));
    draft.flash.push(("dram_access", quoted(format_args!("{}ns", open + column))));
    let wire = Wire::bytes_per_second(u64::from(2 * burst) * rate * 1_000_000);
    draft.flash.push(("dram_timing", quoted(wire)));
    Ok(())
}

/// Mapping, collection and wear.
fn translation(e: &mut Elements<'_>, drive: &ImportedDrive, draft: &mut Draft) -> Result<(), ImportError> {
    let cache = e.number("CMT_Capacity", 0, 1_u64 << 40, 2 << 20)?;
    if e.flag("Ideal_Mapping_Table", false)? {
        draft.flash.push(("mapping", quoted("page")));
    } else {
        draft.flash.push(("mapping", quoted("cached")));
        draft.flash.push(("map_cache", quoted(cache)));
    }
    let schemes: Vec<_> = PlaneAllocation::ALL.iter().filter(|s| s.is_static()).map(|s| (s.name(), *s)).collect();
    let scheme = e.word("Plane_Allocation_Scheme", &schemes, PlaneAllocation::Cwdp)?;
    draft.flash.push(("plane_allocation", quoted(scheme)));
    let blocks: f64 =
        draft.flash.iter().find(|(key, _)| *key == "blocks").and_then(|(_, n)| n.parse().ok()).unwrap_or(2048.0);
    let given = e.peek("GC_Exec_Threshold").cloned();
    let soft: f64 = e.number("GC_Exec_Threshold", 0.0, 1.0, 0.05)?;
    let preemptive = e.flag("Preemptible_GC_Enabled", false)?;
    // Below so many free blocks each block that fills up has one collected, which keeps their number as it is: on a preconditioned drive half
    // of that (src/ssd/Address_Mapping_Unit_Page_Level.cpp). Writes stop below ten, the most collections of a plane under way
    // (src/ssd/GC_and_WL_Unit_Base.cpp). It begins below, not at that number.
    let full = e.peek("Enabled_Preconditioning").is_some_and(|given| given.text.eq_ignore_ascii_case("true"));
    let wanted = ((soft * blocks) as u64 / if full { 2 } else { 1 }).max(10) - 1;
    // Beside those kept free a plane needs three for what is being written, and one more for the map.
    let start = wanted.min((drive.spare as u64).saturating_sub(4)).max(1);
    if start < wanted {
        let given = given.unwrap_or(Given { line: 0, text: soft.to_string() });
        let why =
            format!("a plane has {} blocks to spare; gc_start = {start} is what leaves it room to work", drive.spare);
        draft.leave(e.text, "GC_Exec_Threshold", &given, &why);
    }
    if preemptive {
        let hard: f64 = e.number("GC_Hard_Threshold", 0.0, 1.0, 0.005)?;
        draft.flash.push(("gc", quoted("preemptive")));
        draft.flash.push(("gc_hard", ((hard * blocks) as u64).max(1).min(start).to_string()));
    } else {
        draft.flash.push(("gc", quoted("plane")));
    }
    draft.flash.push(("gc_start", start.to_string()));
    let words = [
        ("GREEDY", "greedy"),
        ("RGA", "d-choice"),
        ("RANDOM", "random"),
        ("RANDOM_P", "random"),
        ("RANDOM_PP", "random"),
        ("FIFO", "fifo"),
    ];
    let victim = e.word("GC_Block_Selection_Policy", &words, "d-choice")?;
    draft.flash.push(("victim", quoted(victim)));
    if victim == "d-choice" {
        draft.flash.push(("gc_choices", (blocks.log2() as u64).max(1).to_string()));
    }
    let moves = e.flag("Static_Wearleveling_Enabled", true)?;
    let gap = e.count("Static_Wearleveling_Threshold", 100)?;
    let chooses = e.flag("Dynamic_Wearleveling_Enabled", true)?;
    let wear = if moves {
        "static"
    } else if chooses {
        "dynamic"
    } else {
        "none"
    };
    draft.flash.push(("wear", quoted(wear)));
    if moves {
        draft.flash.push(("wear_gap", gap.to_string()));
    }
    draft.flash.push(("seed", e.number("Seed", 0, i64::MAX as u64, 123)?.to_string()));
    Ok(())
}

/// Dies know no classes: the same for flows of one class, with either scheduler.
fn priorities(e: &mut Elements<'_>, draft: &mut Draft, scenario: Option<&Scenario>) {
    let name = "Transaction_Scheduling_Policy";
    let policy = e.peek(name).filter(|given| given.text.eq_ignore_ascii_case("PRIORITY_OUT_OF_ORDER")).cloned();
    if let (Some(given), true) = (policy, scenario.is_some_and(|s| s.classes)) {
        e.take(name);
        let why = "commands' classes count where the device fetches them (arbitration = \"wrr\", weights), not in the queues of the chips";
        draft.leave(e.text, name, &given, why);
    }
}

/// What the drive went through before.
fn state(e: &mut Elements<'_>, draft: &mut Draft, scenario: Option<&Scenario>) -> Result<(), ImportError> {
    let reads = scenario.is_some_and(|s| s.only_reads);
    if e.flag("Enabled_Preconditioning", false)? {
        draft.flash.push(("precondition", quoted("steady")));
    } else if reads {
        // A page that was never written is given its place when it is read there, and is then a page like any other.
        draft.flash.push(("precondition", quoted("sequential")));
    }
    Ok(())
}
