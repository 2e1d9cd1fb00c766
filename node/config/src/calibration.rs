//! What `weir calibrate` found out about a drive, as a file: `docs/reference/formats.md` describes it.

use super::document::Document;
use super::error::{ConfigError, Problem};
use super::read::{Read, Section, integer, number, one_or_list, size, text, time};
use super::slots::COMMANDS;
use super::toml_text::escaped;
use super::value::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weir_plan::calibrate::{LoadCurve, Test};
use weir_plan::{DriveError, DriveModel};
use weir_units::{Bytes, Nanos};
use weir_workload::{ByKind, Latency, PARTS, Quantiles};

/// The version that is written. Version 1, which is read as well, does not tell reads and writes apart.
pub const VERSION: u64 = 2;
/// The first that is read.
const FIRST: u64 = 1;

/// A drive took no longer than this for a command.
const MAX_LATENCY: Nanos = Nanos::from_secs(1000);
/// Figures that are written beside the tests may be rounded by so much.
const ROUNDING: f64 = 0.01;

/// A drive's load tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The version of Weir that measured.
    pub weir: String,
    /// What was measured, as `weir calibrate` was told.
    pub target: String,
    /// When, in UTC (RFC 3339).
    pub date: String,
    /// How many commands the drive works on at once, where that is known: what was measured holds for no other number.
    pub slots: Option<u16>,
    /// One for each request size and mix.
    pub points: Vec<LoadCurve>,
}

/// A calibration and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationFile {
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub calibration: Calibration,
}

impl Calibration {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is of another version, is cut off, or its figures cannot be: file, line and key.
    pub fn load(file: &Path) -> Result<Calibration, ConfigError> {
        Calibration::of(&Document::load(file)?)
    }

    /// Reads a text; `file` is its name in messages.
    ///
    /// # Errors
    /// As [`Calibration::load`].
    pub fn parse(text: &str, file: &str) -> Result<Calibration, ConfigError> {
        Calibration::of(&Document::parse(text, file, Path::new(""))?)
    }

    fn of(document: &Document) -> Result<Calibration, ConfigError> {
        // A later version may have other keys: its number is looked at first.
        document.read(version)?;
        let calibration = document.read(read)?;
        let whole = DriveModel::measured(calibration.points.clone(), 1, 1);
        match whole {
            Ok(_) => Ok(calibration),
            Err(why) => document.read(|root| root.fault("point", &why)).map(|()| calibration),
        }
    }

    /// The drive as the model takes it, behind an arbiter that keeps so many commands and bytes in flight.
    ///
    /// # Errors
    /// The points make no drive; those of a file do.
    pub fn drive(&self, slots: u32, slot_bytes: Bytes) -> Result<DriveModel, DriveError> {
        DriveModel::measured(self.points.clone(), slots, slot_bytes.get())
    }

    /// The file's text.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing to a String does not fail");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "# A drive, measured by `weir calibrate`: for `weir plan`, and for `calibration` of a [[device]]."
        )?;
        writeln!(out, "# iops and bandwidth: at saturation; a: mean latency of a command alone; p = iops * a.")?;
        writeln!(out, "[calibration]\nversion = {VERSION}\nweir = \"{}\"", escaped(&self.weir))?;
        writeln!(out, "target = \"{}\"\ndate = \"{}\"", escaped(&self.target), escaped(&self.date))?;
        if let Some(slots) = self.slots {
            writeln!(out, "slots = {slots}")?;
        }
        writeln!(out, "points = {}", self.points.len())?;
        for point in &self.points {
            write_point(out, point)?;
        }
        Ok(())
    }
}

fn write_point(out: &mut String, point: &LoadCurve) -> std::fmt::Result {
    writeln!(out, "\n[[point]]\nbs = \"{}\"\nreads = {}", Bytes(point.size().into()), point.read_percent())?;
    let megabytes = point.bandwidth().max(0.0) as u64;
    writeln!(out, "iops = {:.1}\nbandwidth = \"{megabytes}B/s\"", point.gamma())?;
    writeln!(out, "a = \"{}\"\np = {:.3}\nqd = {}", duration(point.a()), point.p(), point.knee().depth)?;
    writeln!(out, "a_per_p = \"{}\"\ntests = [", duration(point.a_per_p()))?;
    for t in point.tests() {
        let l = &t.latency;
        let [p50, p99, p999, max] = [l.p50, l.p99, l.p999, l.max].map(|ns| duration(ns as f64));
        writeln!(
            out,
            "  {{ qd = {}, iops = {:.1}, mean = \"{}\", p50 = \"{p50}\", p99 = \"{p99}\", p999 = \"{p999}\", max = \"{max}\"{}{} }},",
            t.depth,
            t.iops,
            duration(l.mean),
            kind("read", &t.kinds.reads),
            kind("write", &t.kinds.writes)
        )?;
    }
    writeln!(out, "]")
}

/// `, read = { mean = "80us", at = ["78us", …] }`, or nothing.
fn kind(name: &str, of: &Option<Quantiles>) -> String {
    let Some(of) = of else { return String::new() };
    let at: Vec<String> = of.at.iter().map(|ns| format!("\"{}\"", duration(*ns as f64))).collect();
    format!(", {name} = {{ mean = \"{}\", at = [{}] }}", duration(of.mean), at.join(", "))
}

/// `80.123us`: nanoseconds to the last, and no zeroes behind.
fn duration(ns: f64) -> String {
    let ns = ns.max(0.0).round() as u64;
    let (per, unit) = match ns {
        n if n >= 1_000_000 => (1_000_000, "ms"),
        n if n >= 1_000 => (1_000, "us"),
        _ => return format!("{ns}ns"),
    };
    let digits = if per == 1_000 { 3 } else { 6 };
    let part = format!("{:0digits$}", ns % per);
    let part = part.trim_end_matches('0');
    if part.is_empty() { format!("{}{unit}", ns / per) } else { format!("{}.{part}{unit}", ns / per) }
}

/// Looks at nothing but the version.
fn version(root: &Section<'_>) {
    let Some((line, entries)) = root.table("calibration") else {
        if !root.has("calibration") {
            root.sink().note(0, "", "no [calibration]; this is no file of weir calibrate");
        }
        return;
    };
    let header = root.inner("calibration", line, entries);
    match header.get("version", integer(0..=u64::MAX)) {
        Some(FIRST..=VERSION) => {}
        Some(other) => {
            let what = format!("{other} is not a version that this weir reads, {FIRST} to {VERSION}; calibrate again");
            header.fault("version", what);
        }
        None if !header.has("version") => header.fault("version", format_args!("missing; write version = {VERSION}")),
        None => {}
    }
}

fn read(root: &Section<'_>) -> Calibration {
    let (line, entries) = root.table("calibration").unwrap_or_default();
    let header = root.inner("calibration", line, entries);
    header.has("version");
    let of = |key| header.get(key, text).unwrap_or_default();
    let (weir, target, date) = (of("weir"), of("target"), of("date"));
    let slots = header.get("slots", integer(COMMANDS)).map(|n| n as u16);
    let tables = root.tables("point");
    if let Some(announced) = header.get("points", integer(0..=u64::MAX)).filter(|n| *n != tables.len() as u64) {
        let what =
            format!("{announced} are announced and {} are here; the file is cut off: calibrate again", tables.len());
        header.fault("points", what);
    } else if tables.is_empty() && root.sink().is_clean() {
        root.fault("point", "missing; a calibration has at least one [[point]]");
    }
    header.finish();
    let one = |(i, (line, entries))| point(&root.inner(format!("point#{}", i + 1), line, entries));
    let points = tables.into_iter().enumerate().filter_map(one).collect();
    root.finish();
    Calibration { weir, target, date, slots, points }
}

fn needed<T>(
    section: &Section<'_>,
    key: &'static str,
    example: &str,
    read: impl FnOnce(&Value) -> Read<T>,
) -> Option<T> {
    if !section.has(key) {
        section.fault(key, format_args!("missing; write it like {key} = {example}"));
    }
    section.get(key, read)
}

fn point(section: &Section<'_>) -> Option<LoadCurve> {
    let bytes = needed(section, "bs", "\"4KiB\"", size(512..=1 << 30));
    let reads = needed(section, "reads", "100", integer(0..=100));
    if !section.has("tests") {
        section.fault("tests", "missing; write it like tests = [{ qd = 1, iops = 12500, mean = \"80us\" }]");
    }
    let tables = section.tables("tests");
    let count = tables.len();
    let tests: Vec<Test> = tables
        .into_iter()
        .filter_map(|(line, entries)| test(&section.inner(section.key("tests"), line, entries)))
        .collect();
    let figures = [
        ("iops", section.get("iops", number(0.0..=1e12))),
        ("bandwidth", section.get("bandwidth", bandwidth)),
        ("a", section.get("a", nanos)),
        ("p", section.get("p", number(0.0..=1e12))),
        ("a_per_p", section.get("a_per_p", nanos)),
    ];
    let depth = section.get("qd", integer(1..=u64::from(u32::MAX)));
    section.finish();
    let (bytes, reads) = (bytes?, reads?);
    if tests.len() < count || (count == 0 && !section.sink().is_clean()) {
        return None;
    }
    let point = match LoadCurve::new(bytes.get() as u32, reads as u8, tests) {
        Ok(point) => point,
        Err(why) => {
            section.fault("tests", why);
            return None;
        }
    };
    let said = [point.gamma(), point.bandwidth(), point.a(), point.p(), point.a_per_p()];
    for ((key, written), said) in figures.into_iter().zip(said) {
        // Whole nanoseconds and bytes are what is written at the finest.
        let apart = written.map_or(0.0, |w| (w - said).abs());
        if apart > said * ROUNDING + 1.0 {
            let what = format!(
                "{} is not what the tests say, {said:.1}; correct one, or calibrate again",
                written.unwrap_or(0.0)
            );
            section.fault(key, what);
        }
    }
    if let Some(depth) = depth.filter(|d| point.tests().iter().all(|t| u64::from(t.depth) != *d)) {
        section.fault("qd", format_args!("there is no test at {depth}; correct it, or calibrate again"));
    }
    Some(point)
}

fn test(section: &Section<'_>) -> Option<Test> {
    let depth = needed(section, "qd", "1", integer(1..=u64::from(u32::MAX)));
    let iops = needed(section, "iops", "12500", number(0.0..=1e12));
    let mean = needed(section, "mean", "\"80us\"", nanos);
    let of = |key| section.get(key, nanos).map(|ns| ns as u64);
    // Who knows a mean only knows no tail.
    let p50 = of("p50").or(mean.map(|m| m as u64));
    let p99 = of("p99").or(p50);
    let p999 = of("p999").or(p99);
    let max = of("max").or(p999);
    let kinds = ByKind { reads: quantiles(section, "read"), writes: quantiles(section, "write") };
    section.finish();
    let latency = Latency { mean: mean?, p50: p50?, p99: p99?, p999: p999?, max: max? };
    Some(Test { depth: depth? as u32, iops: iops?, latency, kinds })
}

/// Latencies of one kind, where they are there.
fn quantiles(section: &Section<'_>, key: &'static str) -> Option<Quantiles> {
    let (line, entries) = section.table(key)?;
    let own = section.inner(section.key(key), line, entries);
    let mean = needed(&own, "mean", "\"80us\"", nanos);
    let at = needed(&own, "at", "[\"78us\", ...]", one_or_list(nanos));
    own.finish();
    let (mean, at) = (mean?, at?);
    let whole: Vec<u64> = at.iter().map(|ns| *ns as u64).collect();
    match <[u64; PARTS.len()]>::try_from(whole) {
        Ok(at) if at.is_sorted() && mean > 0.0 => Some(Quantiles { mean, at }),
        _ => {
            let what = format!("{} times that do not fall and a mean above 0 are wanted; calibrate again", PARTS.len());
            own.fault("at", what);
            None
        }
    }
}

fn nanos(value: &Value) -> Read<f64> {
    Ok(time(MAX_LATENCY)(value)?.get() as f64)
}

fn bandwidth(value: &Value) -> Read<f64> {
    Ok(weir_units::parse::bandwidth(&text(value)?).map_err(|e| e.to_string())?.get() as f64)
}

/// A calibration that a `[[device]]` names: its problems are its own file's.
/// The file that a table's `calibration` names, read.
pub fn of_device(section: &Section<'_>, base: &Path) -> Option<CalibrationFile> {
    let path = section.get("calibration", |v| {
        let path = text(v)?;
        if path.is_empty() || path.contains('\0') {
            return Err(format!("{} is no path", super::read::quoted(&path)).into());
        }
        Ok(super::resolve(base, &path))
    })?;
    match Calibration::load(&path) {
        Ok(calibration) => Some(CalibrationFile { path, calibration }),
        Err(ConfigError(problems)) => {
            // Where the file itself cannot be read, the key that names it is to blame.
            let (here, there): (Vec<Problem>, Vec<Problem>) = problems.into_iter().partition(|p| p.line == 0);
            for problem in here {
                section.fault("calibration", format_args!("{}: {}", problem.file, problem.what));
            }
            section.sink().adopt(there);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(mean: f64) -> Latency {
        let whole = mean as u64;
        Latency { mean, p50: whole, p99: whole + 10, p999: whole + 2_345_678, max: 5_000_000_000 }
    }

    fn sample() -> Calibration {
        let test = |depth: u32, iops: f64, mean: f64| Test { depth, iops, latency: latency(mean), ..Test::default() };
        let point = |size: u32, reads: u8, scale: f64| {
            // As it is written, to a tenth.
            let rate = |iops: f64| (iops * scale * 10.0).round() / 10.0;
            let tests = vec![test(1, rate(12_500.1), 80_001.0 / scale), test(16, rate(200_000.4), 80_123.0)];
            LoadCurve::new(size, reads, tests).unwrap()
        };
        Calibration {
            weir: "0.1.0".into(),
            target: "local:ram?latency=80us&slots=16 \"x\"".into(),
            date: "2026-11-22T05:00:00Z".into(),
            slots: None,
            points: vec![point(4096, 100, 1.0), point(16384, 70, 0.5), point(512, 0, 0.1)],
        }
    }

    /// The same, with its slots, and with reads and writes told apart where both are there.
    fn told_apart() -> Calibration {
        let mut all = sample();
        let quantiles = |mean: f64| {
            let mut at = PARTS.map(|part| (mean * (0.5 + part)) as u64);
            at[PARTS.len() - 1] = 5_000_000_000;
            Quantiles { mean, at }
        };
        let tests = all.points[1].tests().iter().map(|t| Test {
            kinds: ByKind { reads: Some(quantiles(90_001.0)), writes: Some(quantiles(20_400.0 * f64::from(t.depth))) },
            ..*t
        });
        all.points[1] = LoadCurve::new(16384, 70, tests.collect()).unwrap();
        all.slots = Some(16);
        all
    }

    /// The released format, byte for byte: what version 1 wrote is read for ever.
    const FIRST_GOLDEN: &str = include_str!("calibration_v1.toml");
    const GOLDEN: &str = include_str!("calibration_v2.toml");

    #[test]
    fn written_and_read_back() {
        let text = told_apart().to_toml();
        assert_eq!(Calibration::parse(&text, "f").unwrap_or_else(|e| panic!("{e}\n{text}")), told_apart());
        assert_eq!(text, GOLDEN);
    }

    #[test]
    fn version_1_is_read() {
        assert_eq!(Calibration::parse(FIRST_GOLDEN, "f").unwrap_or_else(|e| panic!("{e}")), sample());
    }

    #[test]
    fn the_least_that_is_a_calibration() {
        let text = "[calibration]\nversion = 1\n[[point]]\nbs = 4096\nreads = 100\n\
                    tests = [{ qd = 1, iops = 12500, mean = \"79us\" }, { qd = 19, iops = 240000, mean = \"81us\", p99 = \"100us\" }]\n";
        let read = Calibration::parse(text, "f").unwrap_or_else(|e| panic!("{e}"));
        let point = &read.points[0];
        assert_eq!((point.gamma(), point.a(), point.idle().latency.p999), (240_000.0, 79_000.0, 79_000));
        assert_eq!((point.knee().latency.p50, point.knee().latency.max), (81_000, 100_000));
        let drive = read.drive(19, Bytes(4 << 20)).unwrap();
        assert!((1.0 / drive.seconds_per_command(4096.0, 100.0) / 240_000.0 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn wrong_files_say_what_and_where() {
        let good = sample().to_toml();
        let cut = |at: &str| good[..good.rfind(at).unwrap()].to_string();
        for (text, says) in [
            (String::new(), "f: no [calibration]; this is no file of weir calibrate"),
            (
                good.replace("version = 2", "version = 3"),
                "f:4: calibration.version: 3 is not a version that this weir reads, 1 to 2",
            ),
            (good.replace("version = 2\n", ""), "calibration.version: missing; write version = 2"),
            (cut("[[point]]"), "f:8: calibration.points: 3 are announced and 2 are here; the file is cut off"),
            (cut("a_per_p"), "point#3.tests: missing"),
            (cut("{ qd = 16"), "not TOML"),
            (
                good.replace("bs = \"16KiB\"", "bs = \"4KiB\"")
                    .replace("reads = 70", "reads = 100")
                    .replace("bandwidth", "#"),
                "its size and mix stand twice",
            ),
            (good.replace("bs = \"4KiB\"\n", ""), "f:10: point#1.bs: missing; write it like bs = \"4KiB\""),
            (good.replace("reads = 70", "reads = 101"), "point#2.reads: 101 is out of range"),
            (good.replace("{ qd = 1,", "{ qd = 2,"), "point#1.tests: there is no test at qd = 1"),
            (good.replace("{ qd = 16,", "{ qd = 1,"), "there are two tests at qd = 1"),
            (good.replace("iops = 12500.1,", "iops = 0,"), "the test at qd = 1 cannot be"),
            (good.replace("iops = 12500.1,", "iop = 12500.1,"), "point#1.tests.iop: unknown key; did you mean iops?"),
            (
                good.replace("\niops = 200000.4", "\niops = 250000"),
                "point#1.iops: 250000 is not what the tests say, 200000.4",
            ),
            (good.replace("\nqd = 16", "\nqd = 17"), "there is no test at 17"),
            (good.replace("mean = \"80.001us\"", "mean = 80"), "80 where a time like \"80us\" is wanted"),
            (good.replace("[calibration]", "[calibration]\ncolour = 1"), "calibration.colour: unknown key"),
            (told_apart().to_toml().replacen("read = { mean", "read = { meen", 1), "point#2.tests.read.mean: missing"),
            (
                told_apart().to_toml().replacen("at = [\"45us\"", "at = [\"450us\"", 1),
                "point#2.tests.read.at: 20 times that do not fall and a mean above 0 are wanted",
            ),
        ] {
            let error = Calibration::parse(&text, "f").expect_err(says).to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
    }

    #[test]
    fn times_as_written() {
        let shown = [7.0, 999.0, 1000.0, 80_001.0, 2_345_678.0, 5e9].map(duration);
        assert_eq!(shown, ["7ns", "999ns", "1us", "80.001us", "2.345678ms", "5000ms"]);
    }
}
