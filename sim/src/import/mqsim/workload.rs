//! MQSim's workload definition (src/exec/IO_Flow_Parameter_Set.cpp): the flows of its first scenario are jobs.

use super::elements::{Elements, line_of};
use crate::import::draft::{Draft, quoted};
use crate::import::text::{Given, ImportError, Text};
use roxmltree::Node;
use weir_flash::Cache;

/// What flows share.
pub(super) struct ImportedDrive {
    /// Bytes that the host is offered.
    pub(super) bytes: u64,
    /// Channels, chips of a channel, dies of a chip, planes of a die.
    pub(super) units: [u64; 4],
    /// Blocks of a plane beyond those bytes.
    pub(super) spare: u32,
}

/// What a scenario says of the drive.
pub(super) struct Scenario {
    /// Whether flows have different classes.
    pub(super) classes: bool,
    /// What the data cache keeps.
    pub(super) cache: Cache,
    /// Whether nothing is written.
    pub(super) only_reads: bool,
}

/// Elements that nothing here follows, and why.
const LEFT: [(&str, &str); 9] = [
    ("Channel_IDs", "a flow uses all channels"),
    ("Chip_IDs", "a flow uses all chips"),
    ("Die_IDs", "a flow uses all dies"),
    ("Plane_IDs", "a flow uses all planes"),
    ("Initial_Occupancy_Percentage", "counts with Enabled_Preconditioning, which writes the whole drive here"),
    ("Variance_Request_Size", "requests have the average size"),
    ("Seed", "the first flow's seed is that of the run"),
    ("Address_Alignment_Unit", "requests are aligned to their size"),
    ("Generated_Aligned_Addresses", "requests are aligned to their size"),
];

/// Reads the first scenario of a file.
pub(super) fn read(
    text: &Text,
    root: Node<'_, '_>,
    drive: &ImportedDrive,
    draft: &mut Draft,
) -> Result<Scenario, ImportError> {
    let mut scenarios = root.children().filter(|n| n.has_tag_name("IO_Scenario"));
    let line = line_of(root.document(), root);
    let first = scenarios.next().ok_or_else(|| text.fault(line, "no <IO_Scenario>"))?;
    for other in scenarios {
        let given = Given { line: line_of(other.document(), other), text: "…".to_string() };
        draft.leave(text, "IO_Scenario", &given, "the first scenario is run; give each a file of its own");
    }
    let flows: Vec<Node<'_, '_>> = first.children().filter(|n| n.is_element()).collect();
    if flows.is_empty() {
        return Err(text.fault(line_of(first.document(), first), "a scenario without flows"));
    }
    let mut ends = Ends::default();
    let (mut cache, mut count) = (None, 0);
    for flow in &flows {
        let kind = flow.tag_name().name();
        let line = line_of(flow.document(), *flow);
        let part = Part { at: count, of: flows.len() as u64, bytes: drive.bytes };
        count += 1;
        let mut elements = Elements::of(text, *flow)?;
        caching(&mut elements, text, &mut cache, draft)?;
        match kind {
            "IO_Flow_Parameter_Set_Synthetic" => synthetic(&mut elements, text, &part, draft, &mut ends)?,
            "IO_Flow_Parameter_Set_Trace_Based" => {
                let file = elements.take("File_Path").unwrap_or(Given { line, text: String::new() });
                draft.leave(
                    text,
                    "File_Path",
                    &file,
                    "MQSim's traces are not read; see docs/guides/simulate.md for those that are",
                );
                continue;
            }
            other => {
                return Err(text.fault(
                    line,
                    format_args!("<{other}> is no flow; MQSim has IO_Flow_Parameter_Set_Synthetic and _Trace_Based"),
                ));
            }
        }
        leave_rest(elements, text, drive, draft);
    }
    ends.write(draft);
    Ok(Scenario { classes: ends.classes, cache: cache.unwrap_or(Cache::Write), only_reads: ends.reads && !ends.writes })
}

/// When a run ends, and what its flows do.
#[derive(Default)]
struct Ends {
    time: u64,
    requests: u64,
    seed: Option<u64>,
    reads: bool,
    writes: bool,
    /// The class of the first flow, and whether another has a different one.
    class: Option<&'static str>,
    classes: bool,
}

impl Ends {
    fn write(&self, draft: &mut Draft) {
        if let Some(seed) = self.seed {
            draft.root.push(("seed", seed.to_string()));
        }
        if self.time > 0 {
            draft.root.push(("time", quoted(format_args!("{}ns", self.time))));
        } else if self.requests > 0 {
            draft.root.push(("requests", self.requests.to_string()));
        }
    }
}

/// A flow's share of the drive.
struct Part {
    at: u64,
    of: u64,
    bytes: u64,
}

/// One cache serves the drive: the first flow's counts.
fn caching(e: &mut Elements<'_>, text: &Text, cache: &mut Option<Cache>, draft: &mut Draft) -> Result<(), ImportError> {
    let name = "Device_Level_Data_Caching_Mode";
    let given = e.peek(name).cloned();
    let modes = [
        ("TURNED_OFF", Cache::None),
        ("WRITE_CACHE", Cache::Write),
        ("READ_CACHE", Cache::Read),
        ("WRITE_READ_CACHE", Cache::Both),
    ];
    let own = e.word(name, &modes, Cache::Write)?;
    if *cache.get_or_insert(own) != own {
        let given = given.unwrap_or(Given { line: 0, text: "WRITE_CACHE".to_string() });
        draft.leave(text, name, &given, "one cache serves the drive, as the first flow has it");
    }
    Ok(())
}

fn synthetic(
    e: &mut Elements<'_>,
    text: &Text,
    part: &Part,
    draft: &mut Draft,
    ends: &mut Ends,
) -> Result<(), ImportError> {
    let mut job = vec![("name", quoted(format_args!("flow{}", part.at)))];
    let classes = [("URGENT", "urgent"), ("HIGH", "high"), ("MEDIUM", "medium"), ("LOW", "low")];
    let class = e.word("Priority_Class", &classes, "high")?;
    ends.classes |= *ends.class.get_or_insert(class) != class;
    job.push(("class", quoted(class)));
    let read = pattern(e, text, draft, &mut job)?;
    ends.reads |= read > 0;
    ends.writes |= read < 100;
    let sectors = e.number("Average_Request_Size", 1, 65_535_u64, 8)?;
    job.push(("bs", quoted(sectors * 512)));
    let sizes = e.word("Request_Size_Distribution", &[("FIXED", true), ("NORMAL", false)], true)?;
    if sizes {
        e.take("Variance_Request_Size");
    }
    let depth = e.number("Average_No_of_Reqs_in_Queue", 1, 65_535_u64, 16)?;
    let bandwidth = e.number("Bandwidth", 0, u64::MAX, 262_144)?;
    // Intensity is in its example files, and its reader does not know it.
    e.take("Intensity");
    if e.word("Synthetic_Generator_Type", &[("QUEUE_DEPTH", true), ("BANDWIDTH", false)], true)? {
        job.push(("qd", depth.to_string()));
    } else {
        // src/exec/Host_System.cpp: requests a second, exponentially distributed.
        job.push(("rate", (bandwidth / 512 / sectors).max(1).to_string()));
        job.push(("arrival", quoted("poisson")));
    }
    let working = e.number("Working_Set_Percentage", 0, 100_u64, 85)?;
    let share = part.bytes / part.of.max(1) / 4096 * 4096;
    // A percentage below 1 is all (src/exec/Host_System.cpp).
    let used = (u128::from(share) * u128::from(if working == 0 { 100 } else { working }) / 100 / 4096 * 4096) as u64;
    job.push(("region", quoted(format_args!("{}+{}", part.at * share, used.max(4096)))));
    ends.time = ends.time.max(e.number("Stop_Time", 0, u64::MAX, 0)?);
    ends.requests = ends.requests.saturating_add(e.number("Total_Requests_To_Generate", 0, u64::MAX, 0)?);
    if ends.seed.is_none() {
        ends.seed = Some(e.number("Seed", 0, i64::MAX as u64, 1)?);
    }
    aligned(e, sectors)?;
    draft.jobs.push(job);
    Ok(())
}

/// `rw`, and where requests go. The percentage of reads.
fn pattern(
    e: &mut Elements<'_>,
    text: &Text,
    draft: &mut Draft,
    job: &mut Vec<(&'static str, String)>,
) -> Result<u8, ImportError> {
    let read = e.number("Read_Percentage", 0, 100_u8, 100)?;
    let hot = e.number("Percentage_of_Hot_Region", 0, 100_u8, 0)?;
    let line = e.peek("Address_Distribution").map_or(0, |given| given.line);
    let kinds = [("RANDOM_UNIFORM", 'u'), ("RANDOM_HOTCOLD", 'h'), ("STREAMING", 's')];
    let kind = e.word("Address_Distribution", &kinds, 'u')?;
    let rw = match (kind, read) {
        ('s', 100) => "read".to_string(),
        ('s', 0) => "write".to_string(),
        (_, 100) => "randread".to_string(),
        (_, 0) => "randwrite".to_string(),
        _ => format!("randrw:{read}"),
    };
    if kind == 's' && !(read == 0 || read == 100) {
        let given = Given { line, text: "STREAMING".to_string() };
        draft.leave(
            text,
            "Address_Distribution",
            &given,
            "reads and writes of one job are random; write a job for each",
        );
    }
    job.push(("rw", quoted(rw)));
    // (100 - hot) % of the requests go to hot % of the space.
    if kind == 'h' && (1..100).contains(&hot) {
        job.push(("hot", quoted(format_args!("{}/{hot}", 100 - hot))));
    }
    Ok(read)
}

/// An alignment to the request's own size is what a job does.
fn aligned(e: &mut Elements<'_>, sectors: u64) -> Result<(), ImportError> {
    let own = e.peek("Address_Alignment_Unit").is_none_or(|unit| unit.text == sectors.to_string());
    let on = e.peek("Generated_Aligned_Addresses").is_none_or(|on| on.text.eq_ignore_ascii_case("true"));
    if on {
        e.take("Generated_Aligned_Addresses");
        if own {
            e.take("Address_Alignment_Unit");
        }
    }
    Ok(())
}

fn leave_rest(elements: Elements<'_>, text: &Text, drive: &ImportedDrive, draft: &mut Draft) {
    let ids = ["Channel_IDs", "Chip_IDs", "Die_IDs", "Plane_IDs"];
    for (name, given) in elements.rest() {
        let listed = given.text.split(',').filter(|n| !n.trim().is_empty()).count() as u64;
        if ids.iter().zip(drive.units).any(|(id, count)| *id == name && count == listed) {
            continue;
        }
        let why = LEFT.iter().find(|(left, _)| *left == name).map_or("MQSim 7ec40e3 has no such parameter", |l| l.1);
        draft.leave(text, &name, &given, why);
    }
}
