//! The formats of traces, one line at a time.

use super::{Trace, TraceRecord};
use std::fmt;
use std::str::FromStr;
use weir_controller::Op;
use weir_units::Nanos;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// fio's iolog (fio documentation, "Trace file format"): version 2 (waits) or 3 (time stamps in µs).
    Fio(u8),
    /// blkparse's default output; the events of this action count.
    Blkparse(char),
    /// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` with 100 ns ticks (SNIA IOTTA, MSR Cambridge).
    Msr,
    /// Our own: a header line with the columns' names.
    Csv,
}

/// `fio`, `blkparse` (queued requests), `blkparse:D` (another action), `msr`, `csv`.
impl FromStr for TraceFormat {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "fio" => Ok(TraceFormat::Fio(0)),
            "blkparse" => Ok(TraceFormat::Blkparse('Q')),
            "msr" => Ok(TraceFormat::Msr),
            "csv" => Ok(TraceFormat::Csv),
            _ => match s.strip_prefix("blkparse:").map(|a| a.parse::<char>()) {
                Some(Ok(action)) if "QGIDC".contains(action) => Ok(TraceFormat::Blkparse(action)),
                Some(_) => Err(format!("\"{s}\": the action is one of Q, G, I, D, C")),
                None => Err(format!("\"{s}\" is no format; there is fio, blkparse, blkparse:ACTION, msr and csv")),
            },
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceFormat::Fio(_) => f.write_str("fio"),
            TraceFormat::Blkparse('Q') => f.write_str("blkparse"),
            TraceFormat::Blkparse(action) => write!(f, "blkparse:{action}"),
            TraceFormat::Msr => f.write_str("msr"),
            TraceFormat::Csv => f.write_str("csv"),
        }
    }
}

impl TraceFormat {
    /// What a trace's first line says; `None` for one that says nothing.
    pub(super) fn of(line: &str) -> Result<Option<TraceFormat>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("Input file ") {
            return Ok(None);
        }
        if let Some(version) = line.strip_prefix("fio version ") {
            return match version {
                "2 iolog" => Ok(Some(TraceFormat::Fio(2))),
                "3 iolog" => Ok(Some(TraceFormat::Fio(3))),
                _ => Err(format!("\"{line}\": versions 2 and 3 are supported")),
            };
        }
        if line.split_ascii_whitespace().count() >= 6 && is_device(line.split_ascii_whitespace().next()) {
            return Ok(Some(TraceFormat::Blkparse('Q')));
        }
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        match columns.first() {
            Some(&"Timestamp") => Ok(Some(TraceFormat::Msr)),
            Some(first) if columns.len() >= 6 && first.parse::<u64>().is_ok() => Ok(Some(TraceFormat::Msr)),
            Some(_) if columns.contains(&"op") => Ok(Some(TraceFormat::Csv)),
            _ => Err("is no trace of a known format (fio iolog, blkparse, MSR, CSV with a header line); \
                      docs/guides/simulate.md describes them"
                .to_string()),
        }
    }

    /// The format that the user named, beside the one that the file seems to have.
    pub(super) fn check(self, found: Option<TraceFormat>) -> Result<TraceFormat, String> {
        match (self, found) {
            (TraceFormat::Fio(_), Some(TraceFormat::Fio(version))) => Ok(TraceFormat::Fio(version)),
            (TraceFormat::Fio(_), _) => Err("does not begin with \"fio version 2 iolog\" or \"… 3 iolog\"".to_string()),
            (named, _) => Ok(named),
        }
    }
}

/// `8,0`.
fn is_device(text: Option<&str>) -> bool {
    let number = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    text.and_then(|t| t.split_once(',')).is_some_and(|(major, minor)| number(major) && number(minor))
}

/// What a line says, before anybody asks whether it is wanted.
struct Line<'a> {
    /// Nanoseconds on the trace's own clock.
    time: u64,
    op: Op,
    fua: bool,
    offset: u64,
    len: u64,
    stream: Stream<'a>,
}

#[derive(Clone, Copy)]
enum Stream<'a> {
    None,
    Named(&'a str),
    /// Host and disk of MSR: `usr_0` as their files are called.
    Disk(&'a str, &'a str),
}

impl Stream<'_> {
    fn is(&self, name: &str) -> bool {
        match self {
            Stream::None => false,
            Stream::Named(own) => *own == name,
            Stream::Disk(host, disk) => name.rsplit_once('_').is_some_and(|(h, d)| h == *host && d == *disk),
        }
    }
}

impl fmt::Display for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::None => f.write_str("(no name)"),
            Stream::Named(name) => f.write_str(name),
            Stream::Disk(host, disk) => write!(f, "{host}_{disk}"),
        }
    }
}

type Parsed<'a> = Result<Option<Line<'a>>, String>;

/// Turns lines into records.
#[derive(Debug)]
pub(super) struct Parser {
    format: TraceFormat,
    stream: Option<String>,
    known: Vec<String>,
    /// The first record's time.
    base: Option<u64>,
    last: u64,
    /// fio version 2: the sum of all waits so far.
    waited: u64,
    columns: Option<Columns>,
    /// blkparse's summary has begun.
    over: bool,
}

impl Parser {
    pub fn new(format: TraceFormat, trace: &Trace) -> Parser {
        let (stream, known) = (trace.stream.clone(), trace.known.clone());
        Parser { format, stream, known, base: None, last: 0, waited: 0, columns: None, over: false }
    }

    pub fn is_csv(&self) -> bool {
        self.format == TraceFormat::Csv
    }

    /// One of several tenants may have nothing to do.
    pub fn may_be_empty(&self) -> bool {
        !self.known.is_empty()
    }

    /// What to say of a trace that ended without a record.
    pub fn nothing(&self) -> String {
        match (&self.stream, self.format) {
            (Some(stream), _) => format!("there is no request of {stream:?} in it"),
            (None, TraceFormat::Blkparse(action)) => {
                format!("there is no request with action {action} in it; blkparse:D counts those that were issued")
            }
            _ => "there is no request in it".to_string(),
        }
    }

    /// A line without its end; `None` where it is no request, or not one that is wanted.
    pub fn line(&mut self, text: &str) -> Result<Option<TraceRecord>, String> {
        if text.trim().is_empty() || self.over {
            return Ok(None);
        }
        let line = match self.format {
            TraceFormat::Fio(version) => self.fio(version, text),
            TraceFormat::Blkparse(action) => self.blkparse(action, text),
            TraceFormat::Msr => msr(text),
            TraceFormat::Csv => self.csv(text),
        }?;
        let Some(line) = line else { return Ok(None) };
        // Both the clock and the check of names go by every record, whoever wants it.
        let base = *self.base.get_or_insert(line.time);
        self.last = self.last.max(line.time.saturating_sub(base));
        if line.len == 0 && line.op != Op::Flush {
            return Err("a request of 0 bytes".to_string());
        }
        if line.offset.checked_add(line.len).is_none() {
            return Err(format!("a request that ends behind byte {}", u64::MAX));
        }
        if !self.known.is_empty() && !self.known.iter().any(|name| line.stream.is(name)) {
            let known = self.known.join(", ");
            return Err(format!("there is no tenant \"{}\"; the simulation has {known}", line.stream));
        }
        let wanted = self.stream.as_ref().is_none_or(|name| line.stream.is(name));
        let Line { op, fua, offset, len, .. } = line;
        Ok(wanted.then_some(TraceRecord { at: Nanos(self.last), op, fua, offset, len }))
    }

    /// Version 2: `FILE ACTION [OFFSET LENGTH]`; version 3 has a time stamp in microseconds before that, and no wait.
    fn fio<'a>(&mut self, version: u8, text: &'a str) -> Parsed<'a> {
        if text.starts_with("fio version ") {
            return Ok(None);
        }
        let mut fields = text.split_ascii_whitespace();
        let time = match version {
            3 => micros(number(fields.next(), "time stamp")?)?,
            _ => self.waited,
        };
        let (file, action) = (fields.next(), fields.next());
        let (Some(file), Some(action)) = (file, action) else {
            return Err("is not FILE ACTION [OFFSET LENGTH]".to_string());
        };
        let rest: Vec<&str> = fields.take(3).collect();
        let op = match action {
            "add" | "open" | "close" if rest.is_empty() => return Ok(None),
            "wait" if version == 2 => {
                // "Wait for offset microseconds … The time is relative to the previous wait statement."
                let wait = micros(number(rest.first().copied(), "time to wait")?)?;
                self.waited = self.waited.checked_add(wait).ok_or("the waits sum to more than 500 years")?;
                // The clock starts with the log, so that a first wait counts.
                self.base.get_or_insert(0);
                return Ok(None);
            }
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Deallocate,
            "sync" | "datasync" => {
                let stream = Stream::Named(file);
                return Ok(Some(Line { time, op: Op::Flush, fua: false, offset: 0, len: 0, stream }));
            }
            _ => return Err(format!("unknown action \"{action}\" of fio version {version}")),
        };
        let [offset, len] = rest[..] else {
            return Err(format!("{action} takes OFFSET and LENGTH in bytes"));
        };
        let (offset, len) = (number(Some(offset), "offset")?, number(Some(len), "length")?);
        Ok(Some(Line { time, op, fua: false, offset, len, stream: Stream::Named(file) }))
    }

    /// `MAJOR,MINOR CPU SEQUENCE SECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]` (man 1 blkparse, default format).
    fn blkparse<'a>(&mut self, wanted: char, text: &'a str) -> Parsed<'a> {
        let mut fields = text.split_ascii_whitespace();
        let device = fields.next();
        if text.starts_with("CPU") || text.starts_with("Total (") {
            self.over = true;
            return Ok(None);
        }
        if text.starts_with("Input file ") {
            return Ok(None);
        }
        if !is_device(device) {
            return Err("does not begin with a device like 8,0".to_string());
        }
        number(fields.next(), "CPU")?;
        number(fields.next(), "sequence number")?;
        let time = seconds(fields.next())?;
        number(fields.next(), "process")?;
        let action = fields.next().filter(|a| a.len() <= 2 && a.bytes().all(|b| b.is_ascii_alphabetic()));
        let action = action.ok_or("has no action like Q where one is wanted")?;
        if !action.starts_with(wanted) || action.len() != 1 {
            return Ok(None);
        }
        let rwbs = fields.next().ok_or("has no operation like R or WS")?;
        let stream = Stream::Named(device.unwrap_or_default());
        let place = (fields.next(), fields.next(), fields.next());
        let (op, fua) = match rwbs {
            discard if discard.contains('D') => (Op::Deallocate, false),
            read if read.contains('R') => (Op::Read, read.contains('F')),
            // F before W is a flush that goes first, F behind it forces unit access.
            write if write.contains('W') && place.1 == Some("+") => (Op::Write, write.rfind('F') > write.find('W')),
            flush if flush.contains('F') => {
                return Ok(Some(Line { time, op: Op::Flush, fua: false, offset: 0, len: 0, stream }));
            }
            other if other.contains('N') => return Ok(None),
            other => return Err(format!("unknown operation \"{other}\", or no SECTOR + SECTORS behind it")),
        };
        let (Some(sector), Some("+"), Some(count)) = place else {
            return Err("has no SECTOR + SECTORS behind its operation".to_string());
        };
        let (offset, len) = (sectors(Some(sector), "sector")?, sectors(Some(count), "number of sectors")?);
        Ok(Some(Line { time, op, fua, offset, len, stream }))
    }

    fn csv<'a>(&mut self, text: &'a str) -> Parsed<'a> {
        if text.starts_with('#') {
            return Ok(None);
        }
        match &self.columns {
            Some(columns) => columns.line(text),
            None => {
                self.columns = Some(Columns::of(text)?);
                Ok(None)
            }
        }
    }
}

fn msr(text: &str) -> Parsed<'_> {
    let mut fields = text.split(',').map(str::trim);
    let (stamp, host, disk, kind) = (fields.next(), fields.next(), fields.next(), fields.next());
    if stamp == Some("Timestamp") {
        return Ok(None);
    }
    let (Some(host), Some(disk), Some(kind)) = (host, disk, kind) else {
        return Err("is not Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime".to_string());
    };
    // Windows file time: 100 ns since 1601, which leaves room for the product until the year 2185.
    let time = number(stamp, "Timestamp")?.checked_mul(100).ok_or("the Timestamp is no Windows file time")?;
    let op = match kind {
        "Read" => Op::Read,
        "Write" => Op::Write,
        _ => return Err(format!("the Type is \"{kind}\", neither Read nor Write")),
    };
    let (offset, len) = (number(fields.next(), "Offset")?, number(fields.next(), "Size")?);
    Ok(Some(Line { time, op, fua: false, offset, len, stream: Stream::Disk(host, disk) }))
}

/// Which column has what, by the header line.
#[derive(Debug, Default)]
struct Columns {
    count: usize,
    /// Column and its unit in nanoseconds.
    time: Option<(usize, u64)>,
    op: usize,
    /// Column and its unit in bytes.
    offset: (usize, u64),
    len: (usize, u64),
    tenant: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> Result<Columns, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let at = |name: &str| names.iter().position(|n| *n == name);
        const KNOWN: [&str; 10] =
            ["time_s", "time_ms", "time_us", "time_ns", "op", "offset", "length", "lba", "blocks", "tenant"];
        for (i, name) in names.iter().enumerate() {
            if !KNOWN.contains(name) {
                return Err(format!("unknown column \"{name}\"; there is {}", KNOWN.join(", ")));
            }
            if names[..i].contains(name) {
                return Err(format!("the column {name} stands twice"));
            }
        }
        let one = |choices: &[(&str, u64)], needed: bool| -> Result<Option<(usize, u64)>, String> {
            let mut found = choices.iter().filter_map(|(name, unit)| at(name).map(|column| (column, *unit)));
            let all = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
            match (found.next(), found.next()) {
                (_, Some(_)) => Err(format!("{}: keep one of these columns", all())),
                (None, None) if needed => Err(format!("there is no column {}", all())),
                (one, None) => Ok(one),
            }
        };
        let times = [("time_s", 1_000_000_000), ("time_ms", 1_000_000), ("time_us", 1_000), ("time_ns", 1)];
        Ok(Columns {
            count: names.len(),
            time: one(&times, false)?,
            op: one(&[("op", 1)], true)?.unwrap_or_default().0,
            offset: one(&[("offset", 1), ("lba", 512)], true)?.unwrap_or_default(),
            len: one(&[("length", 1), ("blocks", 512)], true)?.unwrap_or_default(),
            tenant: at("tenant"),
        })
    }

    fn line<'a>(&self, text: &'a str) -> Parsed<'a> {
        let count = text.split(',').count();
        if count != self.count {
            return Err(format!("has {count} columns, and the header has {}", self.count));
        }
        let field = |column: usize| text.split(',').nth(column).map(str::trim);
        let time = match self.time {
            Some((column, unit)) => decimal(field(column), unit)?,
            None => 0,
        };
        let op = field(self.op).unwrap_or_default();
        let named = |names: &[&str]| names.iter().any(|name| op.eq_ignore_ascii_case(name));
        let op = match () {
            () if named(&["r", "read"]) => Op::Read,
            () if named(&["w", "write"]) => Op::Write,
            () if named(&["t", "trim", "discard"]) => Op::Deallocate,
            () if named(&["f", "flush", "sync"]) => Op::Flush,
            () => return Err(format!("the op is \"{op}\"; there is read, write, trim and flush")),
        };
        let tenant = self.tenant.and_then(field);
        let stream = tenant.map_or(Stream::None, Stream::Named);
        if op == Op::Flush {
            return Ok(Some(Line { time, op, fua: false, offset: 0, len: 0, stream }));
        }
        let scaled = |(column, unit): (usize, u64), name: &str| -> Result<u64, String> {
            number(field(column), name)?.checked_mul(unit).ok_or_else(|| format!("the {name} is too large"))
        };
        let (offset, len) = (scaled(self.offset, "offset")?, scaled(self.len, "length")?);
        Ok(Some(Line { time, op, fua: false, offset, len, stream }))
    }
}

fn number(text: Option<&str>, name: &str) -> Result<u64, String> {
    let text = text.ok_or_else(|| format!("ends where its {name} is wanted"))?;
    text.parse().map_err(|_| format!("\"{}\" where its {name} is wanted, a whole number", shown(text)))
}

/// A field, cut where it is longer than a message should be.
fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

fn micros(n: u64) -> Result<u64, String> {
    n.checked_mul(1000).ok_or_else(|| "a time of more than 500 years".to_string())
}

fn sectors(text: Option<&str>, name: &str) -> Result<u64, String> {
    number(text, name)?.checked_mul(512).ok_or_else(|| format!("the {name} is too large"))
}

/// `0.000012345`.
fn seconds(text: Option<&str>) -> Result<u64, String> {
    decimal(text, 1_000_000_000)
}

/// A number with or without a fraction, in units of so many nanoseconds; what is below a nanosecond is cut off.
fn decimal(text: Option<&str>, unit: u64) -> Result<u64, String> {
    let text = text.ok_or("ends where its time is wanted")?;
    let wrong = || format!("\"{}\" where its time is wanted, a number", shown(text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole = whole.parse::<u64>().map_err(|_| wrong())?.checked_mul(unit).ok_or_else(wrong)?;
    let (mut part, mut place) = (0, unit);
    for digit in fraction.bytes() {
        place /= 10;
        part += place * u64::from(digit - b'0');
    }
    whole.checked_add(part).ok_or_else(wrong)
}
