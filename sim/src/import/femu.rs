//! The options of FEMU's device (`-device femu,devsz_mb=…`; names and defaults as in FEMU 99ce4fb2b, hw/femu/femu.c), alone or in a run script:
//! `name=value` lines and `${name}` are followed, nothing is run.

use super::draft::{Draft, quoted, times};
use super::text::{Given, ImportError, Text};
use std::collections::BTreeMap;
use weir_flash::{CellType, PageMap, cell_times, page_type_factors};
use weir_units::Nanos;

/// Options that nothing here follows, and why; a name that ends in `*` stands for all that begin so.
const LEFT: [(&str, &str); 34] = [
    ("ch_xfer_lat", NO_CHANNEL),
    ("cmd_addr_lat", NO_CHANNEL),
    ("pg_xfer_lat", NO_CHANNEL),
    ("status_lat", NO_CHANNEL),
    ("tpl*", NO_CHANNEL),
    ("trcbsy", NO_CHANNEL),
    ("ecc_step_ns", "FEMU's black-box SSD does not use it; see errors and retry"),
    ("cell_pages", "FEMU uses it with pgtype_lat alone"),
    ("gc_thres_pcent*", "FEMU's background collection; see gc_start in docs/guides/coming-from.md"),
    ("gc_strategy", "FEMU uses it with FDP alone; see [device.fdp]"),
    ("mapping_cache_mb", "FEMU uses it with mapping=dftl alone"),
    (
        "read_cache_mb",
        "see cache = \"read\" in docs/reference/configuration.md; there a hit takes a sixteenth of pg_rd_lat, side by side",
    ),
    ("cache_evict", "see cache = \"read\", which keeps what was used last"),
    ("pg_rd_lat", "nand_cell_type has the times"),
    ("pg_wr_lat", "nand_cell_type has the times"),
    ("blk_er_lat", "nand_cell_type has the times"),
    ("pgtype_lat", "nand_cell_type has the times"),
    ("devsz_mb", "op_pcent and the layout say how much is offered"),
    ("queues", "one queue for each job"),
    ("entries", "see queue_depth"),
    ("multipoller_enabled", "no pollers in virtual time"),
    ("poller_ratio", "no pollers in virtual time"),
    ("namespaces", "one namespace"),
    ("namespace_*", "one namespace"),
    ("serial", "a name"),
    ("id", "a name"),
    ("bus", "no bus"),
    ("addr", "no bus"),
    ("debug_ftl", "no debugging output"),
    ("nand_bad_blocks", "FEMU's SMART log alone counts them; see factory_bad"),
    ("err_*", "no injected errors; see errors in docs/reference/configuration.md"),
    ("fdp*", "see [device.fdp]"),
    ("trim_lat_ns", "see firmware_other"),
    ("zns_*", "zoned drives are not simulated; see docs/guides/zones.md"),
];

/// `NAND_CH_OFF` (hw/femu/bbssd/ftl-media.c): phases on the channel are never charged.
const NO_CHANNEL: &str =
    "FEMU's black-box SSD has no channel time, so it has no effect there; see channel_timing and read_command";

/// Variables and options are few; a script that has more is none.
const MOST: usize = 4096;
/// Bytes of a value that variables make.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// Reads options.
pub(super) fn read(text: &Text) -> Result<Draft, ImportError> {
    let mut options = Options { text, open: options(text)? };
    let mode = options.number("femu_mode", 0, 255, 1)?;
    let mode = match mode {
        1 => "femu-bbssd",
        0 => "femu-oc",
        _ => {
            let line = options.line("femu_mode");
            return Err(text.fault(
                line,
                format_args!("femu_mode={mode}: only the black-box SSD (1) and the OpenChannel SSD (0) are read here"),
            ));
        }
    };
    let mut draft = Draft::new(mode);
    if mode == "femu-bbssd" {
        black_box(&mut options, &mut draft)?
    } else {
        open_channel(&mut options, &mut draft)?
    };
    host(&mut options, &mut draft)?;
    for (name, given) in options.open {
        let is = |left: &str| left.strip_suffix('*').map_or(name == left, |start| name.starts_with(start));
        let why = LEFT.iter().find(|(left, _)| is(left)).map_or("concerns the virtual machine, or is unknown", |l| l.1);
        draft.leave(text, &name, &given, why);
    }
    Ok(draft)
}

struct Options<'t> {
    text: &'t Text,
    open: Vec<(String, Given)>,
}

impl Options<'_> {
    fn take(&mut self, name: &str) -> Option<Given> {
        let at = self.open.iter().position(|(n, _)| n == name)?;
        Some(self.open.remove(at).1)
    }

    fn line(&self, name: &str) -> u32 {
        self.open.iter().find(|(n, _)| n == name).map_or(0, |(_, given)| given.line)
    }

    fn number(&mut self, name: &str, least: u64, most: u64, default: u64) -> Result<u64, ImportError> {
        let Some(given) = self.take(name) else { return Ok(default) };
        let value = given.text.parse().ok().filter(|value| (least..=most).contains(value));
        value.ok_or_else(|| {
            let shown: String = given.text.chars().take(60).collect();
            self.text.fault(given.line, format_args!("{name}: \"{shown}\" is not a number from {least} to {most}"))
        })
    }
}

/// The black-box SSD.
fn black_box(o: &mut Options<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    const MAX: u64 = u32::MAX as u64;
    let count = |o: &mut Options<'_>, name, default| o.number(name, 1, MAX, default);
    let line = o.line("pls_per_lun");
    let page = count(o, "secsz", 512)?.saturating_mul(count(o, "secs_per_pg", 8)?);
    let keys = [
        ("channels", count(o, "nchs", 8)?),
        ("ways", count(o, "luns_per_ch", 8)?),
        ("planes", count(o, "pls_per_lun", 1)?),
        ("blocks", count(o, "blks_per_pl", 256)?),
        ("pages", count(o, "pgs_per_blk", 256)?),
        ("page_size", page),
    ];
    let flash = keys.iter().fold(1_u64, |all, (_, n)| all.saturating_mul(*n));
    draft.flash.extend(keys.map(|(key, value)| (key, value.to_string())));
    if keys[2].1 > 1 {
        let given = Given { line, text: keys[2].1.to_string() };
        draft.leave(o.text, "pls_per_lun", &given, "FEMU writes to the first plane of each LUN alone, here to all");
    }
    draft.device.push(("capacity", quoted(offered(o, flash)?)));
    match cell(o)? {
        Some(cell) => by_cell(cell, draft),
        None => flat(o, draft)?,
    }
    mapping(o, draft)
}

/// Nanoseconds of a time at the most.
const MOST_NANOS: u64 = 10_000_000_000;

/// Bytes that the host is offered.
fn offered(o: &mut Options<'_>, flash: u64) -> Result<u64, ImportError> {
    let spare = o.number("op_pcent", 0, 1 << 20, 0)?;
    if spare > 0 {
        // hw/femu/femu.c: in whole blocks of 512; here of 4 KiB.
        let offered = u128::from(flash) * 100 / (100 + u128::from(spare));
        return Ok(offered as u64 / 4096 * 4096);
    }
    let offered = o.number("devsz_mb", 1, u64::from(u32::MAX), 1024)?.saturating_mul(1 << 20);
    // What it has beyond its flash is never written there, and cannot be here.
    if offered > flash {
        let what =
            format!("devsz_mb is {offered} bytes, and the layout has {flash}; make it smaller or the layout larger");
        return Err(o.text.fault(0, what));
    }
    Ok(offered)
}

/// The cell type whose times FEMU takes from its table; `None`: it takes the options'.
fn cell(o: &mut Options<'_>) -> Result<Option<CellType>, ImportError> {
    // Above QLC it goes back to the options (hw/femu/bbssd/ftl.c).
    let cells = [CellType::Slc, CellType::Mlc, CellType::Tlc, CellType::Qlc];
    let number = o.number("nand_cell_type", 0, 255, 0)?;
    Ok(cells.get((number as usize).wrapping_sub(1)).copied())
}

/// Times and page pairing of a cell type.
fn by_cell(cell: CellType, draft: &mut Draft) {
    let (table, levels) = (cell_times(cell), cell.levels());
    let nanos = |times: &[Nanos]| times[..levels].iter().map(|t| t.0).collect::<Vec<_>>();
    draft.flash.extend([
        ("cell", quoted(cell)),
        ("page_map", quoted(PageMap::Femu)),
        ("read", times(&nanos(&table.read))),
        ("program", times(&nanos(&table.program))),
        ("erase", quoted(format_args!("{}ns", table.erase.0))),
    ]);
}

/// The options' times: the same for all pages, but that programs may differ by the page's place in its wordline.
fn flat(o: &mut Options<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let nanos = |o: &mut Options<'_>, name, default| o.number(name, 0, MOST_NANOS, default);
    let read = nanos(o, "pg_rd_lat", 40_000)?;
    let program = nanos(o, "pg_wr_lat", 200_000)?;
    let erase = nanos(o, "blk_er_lat", 2_000_000)?;
    let mut programs = vec![program];
    if nanos(o, "pgtype_lat", 0)? > 0 {
        let cells = [CellType::Slc, CellType::Mlc, CellType::Tlc, CellType::Qlc, CellType::Plc];
        let bits = match o.number("cell_pages", 0, 5, 0)? {
            0 => 3,
            bits => bits as usize,
        };
        let factors = page_type_factors(cells[bits - 1]);
        programs = factors[..bits].iter().map(|factor| program * u64::from(*factor) / 1000).collect();
        draft.flash.extend([("cell", quoted(cells[bits - 1])), ("page_map", quoted(PageMap::Modulo))]);
    }
    draft.flash.extend([
        ("read", times(&vec![read; programs.len()])),
        ("program", times(&programs)),
        ("erase", quoted(format_args!("{erase}ns"))),
    ]);
    Ok(())
}

/// Mapping and victims.
fn mapping(o: &mut Options<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(given) = o.take("mapping") {
        match given.text.as_str() {
            "page" => {}
            "dftl" => {
                draft.flash.push(("mapping", quoted("cached")));
                let megabytes = o.number("mapping_cache_mb", 0, 1 << 20, 0)?;
                if megabytes > 0 {
                    draft.flash.push(("map_cache", quoted(megabytes << 20)));
                }
            }
            "hybrid" | "fast" => {
                draft.leave(o.text, "mapping", &given, "log blocks are others here; see mapping = \"hybrid\"");
            }
            _ => draft.leave(o.text, "mapping", &given, "FEMU takes what it does not know as page"),
        }
    }
    if let Some(given) = o.take("gc_policy") {
        match given.text.as_str() {
            policy @ ("greedy" | "cost-benefit" | "random" | "fifo") => draft.flash.push(("victim", quoted(policy))),
            "d-choice" => draft.flash.extend([("victim", quoted("d-choice")), ("gc_choices", "4".to_string())]),
            _ => draft.leave(o.text, "gc_policy", &given, "FEMU takes what it does not know as greedy"),
        }
    }
    Ok(())
}

/// The OpenChannel SSD: its layout is the options', its times are its cell's.
fn open_channel(o: &mut Options<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let count = |o: &mut Options<'_>, name, default| o.number(name, 1, 65_535, default);
    let page = count(o, "lsec_size", 4096)?.saturating_mul(count(o, "lsecs_per_pg", 4)?);
    let (channels, ways) = (count(o, "lnum_ch", 2)?, count(o, "lnum_lun", 8)?);
    let (planes, pages) = (count(o, "lnum_pln", 2)?, count(o, "lpgs_per_blk", 512)?);
    let keys = [("channels", channels), ("ways", ways), ("planes", planes), ("pages", pages), ("page_size", page)];
    draft.flash.extend(keys.map(|(key, value)| (key, value.to_string())));
    let megabytes = o.number("devsz_mb", 1, u64::from(u32::MAX), 1024)?;
    draft.device.push(("capacity", quoted(megabytes << 20)));
    // hw/femu/nand/nand.h.
    let cell = match o.number("flash_type", 1, 5, 2)? {
        1 => "slc",
        2 => "mlc",
        3 => "tlc",
        4 => "qlc",
        _ => "plc",
    };
    draft.flash.push(("cell", quoted(cell)));
    Ok(())
}

/// Firmware and link.
fn host(o: &mut Options<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let firmware = o.number("fw_cpu_ns", 0, 10_000_000_000, 0)?;
    if firmware > 0 {
        draft.flash.push(("firmware", quoted(format_args!("{firmware}ns"))));
    }
    let rate = o.number("pcie_bandwidth_mbps", 0, 1 << 20, 0)?;
    if rate > 0 {
        draft.flash.push(("link_rate", quoted(format_args!("{rate}MB/s"))));
    }
    let delay = o.number("pcie_prop_delay_ns", 0, 10_000_000_000, 0)?;
    if delay > 0 {
        draft.flash.push(("propagation", quoted(format_args!("{delay}ns"))));
    }
    Ok(())
}

/// A value in pieces, each with the line that it is from.
type Pieces = Vec<(u32, String)>;

/// The options of the device, with the lines of their values.
fn options(text: &Text) -> Result<Vec<(String, Given)>, ImportError> {
    let mut variables: BTreeMap<String, Pieces> = BTreeMap::new();
    let mut device: Option<Vec<(String, Given)>> = None;
    for (at, whole) in text.text.lines().enumerate() {
        let number = at as u32 + 1;
        let whole = uncommented(whole).trim();
        let (name, value) = assignment(whole).map_or((None, whole), |(name, value)| (Some(name), value));
        let pieces = expanded(value, &variables, number).ok_or_else(|| too_long(text, number))?;
        device = of_device(&pieces).or(device);
        if let Some(name) = name {
            if variables.len() >= MOST {
                return Err(text.fault(number, format_args!("more than {MOST} variables")));
            }
            variables.insert(name.to_string(), pieces);
        }
    }
    let Some(device) = device.or_else(|| bare(text)) else {
        let what = "no \"-device femu,…\" in it; name a run script of FEMU, or give the options themselves: nchs=8,luns_per_ch=8";
        return Err(text.fault(0, what));
    };
    last_counts(text, device)
}

fn too_long(text: &Text, line: u32) -> ImportError {
    text.fault(line, format_args!("a value of more than {VALUE_BYTES_MAX} bytes"))
}

/// Of an option that is given twice the last one counts, as in QEMU.
fn last_counts(text: &Text, all: Vec<(String, Given)>) -> Result<Vec<(String, Given)>, ImportError> {
    let mut out: Vec<(String, Given)> = Vec::new();
    for (name, given) in all {
        if given.text.contains('$') {
            let what = format!(
                "{name}={}: a variable that nothing before it sets",
                given.text.chars().take(60).collect::<String>()
            );
            return Err(text.fault(given.line, what));
        }
        out.retain(|(n, _)| *n != name);
        out.push((name, given));
    }
    Ok(out)
}

/// A text that is nothing but `name=value,…`.
fn bare(text: &Text) -> Option<Vec<(String, Given)>> {
    let whole = text.text.trim();
    let options: Vec<(String, Given)> = whole
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.trim().to_string(), Given { line: 1, text: value.trim().to_string() }))
        .collect();
    let is_all = !whole.contains(char::is_whitespace) && options.len() == whole.split(',').count();
    (is_all && !options.is_empty()).then_some(options)
}

/// What stands before a comment.
fn uncommented(line: &str) -> &str {
    let begins = |at: usize| at == 0 || line[..at].ends_with(char::is_whitespace);
    line.match_indices('#').find(|(at, _)| begins(*at)).map_or(line, |(at, _)| &line[..at])
}

/// `name=value`, as a shell has it.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (is_name && !value.contains([';', '`']) && (!value.contains(char::is_whitespace) || value.contains('"')))
        .then_some((name, value))
}

/// A value with its variables replaced and its quotes removed; `None`: it is too long.
fn expanded(value: &str, variables: &BTreeMap<String, Pieces>, line: u32) -> Option<Pieces> {
    let mut out: Pieces = Vec::new();
    let mut rest = value;
    loop {
        let (before, after) = rest.split_once('$').map_or((rest, None), |(before, after)| (before, Some(after)));
        out.push((line, before.replace(['"', '\''], "")));
        let Some(after) = after else { break };
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        let (name, behind) = braced.unwrap_or_else(|| after.split_at(end));
        match variables.get(name) {
            Some(pieces) => out.extend(pieces.iter().cloned()),
            None => out.push((line, format!("${name}"))),
        }
        if out.iter().map(|(_, piece)| piece.len() + 1).sum::<usize>() > VALUE_BYTES_MAX {
            return None;
        }
        rest = behind;
    }
    Some(out)
}

/// The options behind `-device femu`.
fn of_device(pieces: &Pieces) -> Option<Vec<(String, Given)>> {
    let joined: String = pieces.iter().map(|(_, piece)| piece.as_str()).collect();
    let words: Vec<&str> = joined.split_whitespace().collect();
    let named = |pair: &[&str]| pair[0] == "-device" && (pair[1] == "femu" || pair[1].starts_with("femu,"));
    let options = words.windows(2).find(|pair| named(pair))?[1];
    let pairs = options.split(',').skip(1).filter(|pair| !pair.is_empty());
    let given = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "on"));
        // Where the value stands in the whole text, and whose piece that is.
        let mut at = (value.as_ptr() as usize).saturating_sub(joined.as_ptr() as usize);
        let piece = pieces.iter().find(|(_, piece)| {
            let inside = at < piece.len();
            at = at.saturating_sub(piece.len());
            inside
        });
        (name.to_string(), Given { line: piece.map_or(0, |(line, _)| *line), text: value.to_string() })
    };
    Some(pairs.map(given).collect())
}
