//! A job: what one client does, as `--job` writes it.

use crate::pace::Arrival;
use crate::skew::Skew;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use weir_units::parse;
use weir_units::{Bytes, Class, Nanos};

/// A text that is no job; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(String);

impl JobError {
    pub(crate) fn new(what: String) -> Self {
        JobError(what)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for JobError {}

impl From<parse::ParseError> for JobError {
    fn from(e: parse::ParseError) -> Self {
        JobError(e.to_string())
    }
}

/// `rw=`: which requests, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Requests that read, of 100; the others write (or trim).
    pub read_percent: u8,
    /// Whether offsets are drawn at random rather than one after the other.
    pub random: bool,
    /// Whether what does not read deallocates instead of writing.
    pub trim: bool,
}

impl Pattern {
    /// Whether there may be reads.
    pub const fn reads(&self) -> bool {
        self.read_percent > 0
    }
    /// Whether there may be writes.
    pub const fn writes(&self) -> bool {
        self.read_percent < 100 && !self.trim
    }
}

/// `read|write|randread|randwrite|randrw[:PCT]|trim`; PCT is the share of reads, 50 if absent.
impl FromStr for Pattern {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        let (name, percent) = s.split_once(':').map_or((s, None), |(n, p)| (n, Some(p)));
        let mut out = match name {
            "read" => Pattern { read_percent: 100, random: false, trim: false },
            "write" => Pattern { read_percent: 0, random: false, trim: false },
            "randread" => Pattern { read_percent: 100, random: true, trim: false },
            "randwrite" => Pattern { read_percent: 0, random: true, trim: false },
            "randrw" => Pattern { read_percent: 50, random: true, trim: false },
            "trim" => Pattern { read_percent: 0, random: false, trim: true },
            _ => {
                return Err(JobError(format!(
                    "rw: \"{s}\" is none of read, write, randread, randwrite, randrw[:READ_PERCENT], trim"
                )));
            }
        };
        if let Some(p) = percent {
            let value = p.parse().ok().filter(|v| *v <= 100);
            match (name, value) {
                ("randrw", Some(v)) => out.read_percent = v,
                ("randrw", None) => {
                    return Err(JobError(format!("rw: the share of reads in \"{s}\" is not a number from 0 to 100")));
                }
                _ => return Err(JobError(format!("rw: only randrw takes a share of reads, not \"{s}\""))),
            }
        }
        Ok(out)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.trim, self.random, self.read_percent) {
            (true, ..) => f.write_str("trim"),
            (_, false, 0) => f.write_str("write"),
            (_, false, _) => f.write_str("read"),
            (_, true, 0) => f.write_str("randwrite"),
            (_, true, 100) => f.write_str("randread"),
            (_, true, p) => write!(f, "randrw:{p}"),
        }
    }
}

/// `bs=`: request sizes with their shares in percent, which sum to 100.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(u32, u8)>);

impl Mix {
    /// One size for all.
    pub fn one(size: u32) -> Self {
        Mix(alloc::vec![(size, 100)])
    }
    /// Sizes in bytes and their shares in percent.
    pub fn parts(&self) -> &[(u32, u8)] {
        &self.0
    }
    /// The largest size.
    pub fn max(&self) -> u32 {
        self.0.iter().map(|(s, _)| *s).max().unwrap_or(0)
    }
}

/// `4KiB` or `4KiB:50/8KiB:50`.
impl FromStr for Mix {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        let mut parts: Vec<(u32, u8)> = Vec::new();
        let mut sum = 0u32;
        let shares = s.contains([':', '/']);
        for part in s.split('/') {
            let (size, share) = match part.split_once(':') {
                Some((size, share)) => (size, share),
                None if !shares => (part, "100"),
                None => return Err(JobError(format!("bs: \"{part}\" in \"{s}\" has no share (4KiB:50/8KiB:50)"))),
            };
            let bytes = parse::bytes(size).map_err(|e| JobError(format!("bs: {e}")))?.get();
            let bytes = u32::try_from(bytes).ok().filter(|b| *b > 0 && b % 512 == 0);
            let Some(bytes) = bytes else {
                return Err(JobError(format!("bs: {size} is not a multiple of 512 bytes from 512B to below 4GiB")));
            };
            let share: u8 = share.parse().ok().filter(|p| (1..=100).contains(p)).ok_or_else(|| {
                JobError(format!("bs: the share \"{share}\" of {size} is not a number of percent from 1 to 100"))
            })?;
            if parts.iter().any(|(b, _)| *b == bytes) {
                return Err(JobError(format!("bs: {size} stands twice in \"{s}\"")));
            }
            sum += u32::from(share);
            parts.push((bytes, share));
        }
        if sum != 100 {
            return Err(JobError(format!("bs: the shares in \"{s}\" sum to {sum} %, not 100 %")));
        }
        Ok(Mix(parts))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(size, _)] = self.0[..] {
            return write!(f, "{}", Bytes(u64::from(size)));
        }
        for (i, (size, share)) in self.0.iter().enumerate() {
            let slash = if i == 0 { "" } else { "/" };
            write!(f, "{slash}{}:{share}", Bytes(u64::from(*size)))?;
        }
        Ok(())
    }
}

/// `rate=`: what an open-loop job asks for, whether or not the drive keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Requests a second.
    Iops(u64),
    /// Bytes a second.
    Bandwidth(u64),
}

/// `20k` or `500MB/s`.
impl FromStr for Rate {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        let rate = if s.ends_with("/s") {
            Rate::Bandwidth(parse::bandwidth(s).map_err(|e| JobError(format!("rate: {e}")))?.get())
        } else {
            Rate::Iops(parse::count(s).map_err(|_| {
                JobError(format!("rate: \"{s}\" is neither requests a second (20k) nor a bandwidth (500MB/s)"))
            })?)
        };
        match rate {
            Rate::Iops(0) | Rate::Bandwidth(0) => Err(JobError(String::from("rate: 0 would never do anything"))),
            Rate::Iops(n) if n > 1_000_000_000 => {
                Err(JobError(format!("rate: {s} is more than one request a nanosecond")))
            }
            Rate::Bandwidth(n) if n > 1 << 40 => Err(JobError(format!("rate: {s} is more than 1TiB/s"))),
            rate => Ok(rate),
        }
    }
}

/// `region=`: the part of the drive a job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRegion {
    /// First byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// `SIZE` (from the start of the drive) or `OFFSET+SIZE`.
impl FromStr for JobRegion {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        let (offset, len) = s.split_once('+').unwrap_or(("0", s));
        let number = |text| parse::bytes(text).map(Bytes::get).map_err(|e| JobError(format!("region: {e}")));
        let region = JobRegion { offset: number(offset)?, len: number(len)? };
        if region.len == 0 || region.offset.checked_add(region.len).is_none() {
            return Err(JobError(format!("region: \"{s}\" is empty or too large (SIZE or OFFSET+SIZE)")));
        }
        Ok(region)
    }
}

/// What one client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// For people.
    pub name: String,
    /// Which class its tenant has (`local:`), or which built-in tenant it connects as (`nvme-tcp:`).
    pub class: Option<Class>,
    /// Requests and their order.
    pub pattern: Pattern,
    /// Their sizes.
    pub sizes: Mix,
    /// Requests in flight, of each copy.
    pub depth: u32,
    /// Open loop, of each copy; closed loop if absent.
    pub rate: Option<Rate>,
    /// How an open loop's requests are spaced.
    pub arrival: Arrival,
    /// Where random requests go.
    pub skew: Skew,
    /// When it starts, from the start of the run.
    pub start: Nanos,
    /// For how long; to the end of the run if absent.
    pub time: Option<Nanos>,
    /// Copies of the job that run side by side and are reported as one.
    pub copies: u32,
    /// Part of the drive; all of it if absent.
    pub region: Option<JobRegion>,
    /// Host NQN to connect as.
    pub host: Option<String>,
    /// Its own target, where jobs use different ones.
    pub target: Option<String>,
}

impl Default for Job {
    /// `randread`, 4 KiB, depth 1.
    fn default() -> Self {
        Job {
            name: String::from("job"),
            class: None,
            pattern: Pattern { read_percent: 100, random: true, trim: false },
            sizes: Mix::one(4096),
            depth: 1,
            rate: None,
            arrival: Arrival::Fixed,
            skew: Skew::Uniform,
            start: Nanos(0),
            time: None,
            copies: 1,
            region: None,
            host: None,
            target: None,
        }
    }
}

/// The deepest queue that may be asked for: what an NVMe queue of 65,536 entries can hold.
const MAX_DEPTH: u64 = 65_535;
/// The most copies of a job.
const MAX_COPIES: u64 = 1_024;

impl Job {
    /// Reads `name=gold,class=high,rw=randread,bs=4KiB,qd=128,rate=20k,arrival=poisson,zipf=0.99,start=10s,time=5s,jobs=2,
    /// region=1GiB+1GiB,host=NQN,target=URL`, with `hot=80/20` instead of `zipf`; keys that are absent keep `defaults`.
    ///
    /// # Errors
    /// An unknown, repeated or empty key, or a value that does not parse; the message names the key.
    pub fn parse(text: &str, defaults: &Job) -> Result<Job, JobError> {
        let mut job = defaults.clone();
        let mut seen: Vec<&str> = Vec::new();
        for pair in text.split(',') {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| JobError(format!("\"{pair}\" is not key=value (keys: {KEYS})")))?;
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                return Err(JobError(format!("{key}: no value")));
            }
            if seen.contains(&key) {
                return Err(JobError(format!("{key} is given twice")));
            }
            seen.push(key);
            job.set(key, value)?;
        }
        Ok(job)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        match key {
            "name" => self.name = value.to_string(),
            "class" => {
                let class = value
                    .parse()
                    .map_err(|()| JobError(format!("class: \"{value}\" is none of urgent, high, medium, low")))?;
                self.class = Some(class);
            }
            "rw" => self.pattern = value.parse()?,
            "bs" => self.sizes = value.parse()?,
            "qd" => self.depth = number("qd", value, MAX_DEPTH)?,
            "jobs" => self.copies = number("jobs", value, MAX_COPIES)?,
            "rate" => self.rate = Some(value.parse()?),
            "arrival" => self.arrival = value.parse()?,
            "zipf" => self.skew = Skew::Zipf(value.parse()?),
            "hot" => self.skew = Skew::Zones(value.parse()?),
            "start" => self.start = parse::nanos(value).map_err(|e| JobError(format!("start: {e}")))?,
            "time" => {
                let time = parse::nanos(value).map_err(|e| JobError(format!("time: {e}")))?;
                if time == Nanos(0) {
                    return Err(JobError(String::from("time: 0 would never do anything")));
                }
                self.time = Some(time);
            }
            "region" => self.region = Some(value.parse()?),
            "host" => self.host = Some(value.to_string()),
            "target" => self.target = Some(value.to_string()),
            _ => return Err(JobError(format!("unknown key \"{key}\" (keys: {KEYS})"))),
        }
        Ok(())
    }
}

const KEYS: &str = "name, class, rw, bs, qd, rate, arrival, zipf, hot, start, time, jobs, region, host, target";

fn number(key: &str, value: &str, max: u64) -> Result<u32, JobError> {
    let parsed = value.parse::<u64>().ok().filter(|v| (1..=max).contains(v));
    parsed.map(|v| v as u32).ok_or_else(|| JobError(format!("{key}: \"{value}\" is not a number from 1 to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_key() {
        let text = "name=gold,class=high,rw=randrw:70,bs=4KiB:25/8KiB:75,qd=128,rate=20k,arrival=poisson,zipf=0.99,\
                    start=10s,time=5s,jobs=3,region=1GiB+512MiB,host=nqn.x,target=vhost-user:/x";
        let job = Job::parse(text, &Job::default()).unwrap();
        assert_eq!(
            job,
            Job {
                name: "gold".to_string(),
                class: Some(Class::High),
                pattern: Pattern { read_percent: 70, random: true, trim: false },
                sizes: Mix(std::vec![(4096, 25), (8192, 75)]),
                depth: 128,
                rate: Some(Rate::Iops(20_000)),
                arrival: Arrival::Poisson,
                skew: Skew::Zipf(crate::Theta::new(0.99).unwrap()),
                start: Nanos::from_secs(10),
                time: Some(Nanos::from_secs(5)),
                copies: 3,
                region: Some(JobRegion { offset: 1 << 30, len: 512 << 20 }),
                host: Some("nqn.x".to_string()),
                target: Some("vhost-user:/x".to_string()),
            }
        );
        assert_eq!(job.sizes.to_string(), "4KiB:25/8KiB:75");
        assert_eq!(job.sizes.max(), 8192);
    }

    #[test]
    fn defaults_stay() {
        let defaults = Job { depth: 7, ..Job::default() };
        let job = Job::parse("name=a", &defaults).unwrap();
        assert_eq!(job, Job { name: "a".to_string(), ..defaults });
    }

    #[test]
    fn patterns_print_as_written() {
        for s in ["read", "write", "randread", "randwrite", "randrw:30", "trim"] {
            assert_eq!(s.parse::<Pattern>().unwrap().to_string(), s);
        }
        assert_eq!("randrw".parse::<Pattern>().unwrap().read_percent, 50);
        assert!("randrw:0".parse::<Pattern>().unwrap().writes());
        assert!(!"trim".parse::<Pattern>().unwrap().writes());
    }

    #[test]
    fn every_bad_input_names_its_key() {
        for (text, says) in [
            ("", "is not key=value"),
            ("gold", "is not key=value"),
            ("name=", "name: no value"),
            ("name=a,", "is not key=value"),
            ("nam=a", "unknown key \"nam\""),
            ("qd=1,qd=2", "qd is given twice"),
            ("class=gold", "class: \"gold\" is none of"),
            ("class=High", "class: \"High\" is none of"),
            ("rw=reed", "rw: \"reed\" is none of"),
            ("rw=randrw:101", "not a number from 0 to 100"),
            ("rw=randrw:", "not a number from 0 to 100"),
            ("rw=randrw:-1", "not a number from 0 to 100"),
            ("rw=randread:50", "only randrw takes"),
            ("bs=0", "bs: 0 is not a multiple"),
            ("bs=1000", "bs: 1000 is not a multiple"),
            ("bs=4GiB", "bs: 4GiB is not a multiple"),
            ("bs=4K", "bs: \"4K\" is not a size"),
            ("bs=4KiB:50/8KiB:49", "sum to 99 %, not 100 %"),
            ("bs=4KiB:50/8KiB:60", "sum to 110 %, not 100 %"),
            ("bs=4KiB:50", "sum to 50 %, not 100 %"),
            ("bs=4KiB/8KiB", "has no share"),
            ("bs=4KiB:50/8KiB", "has no share"),
            ("bs=4KiB:50/", "has no share"),
            ("bs=4KiB:50/4096:50", "stands twice"),
            ("bs=4KiB:0/8KiB:100", "from 1 to 100"),
            ("bs=4KiB:x", "from 1 to 100"),
            ("bs=4KiB:256", "from 1 to 100"),
            ("qd=0", "qd: \"0\" is not a number from 1 to 65535"),
            ("qd=65536", "qd: \"65536\""),
            ("qd=-1", "qd: \"-1\""),
            ("jobs=0", "jobs: \"0\""),
            ("jobs=1025", "jobs: \"1025\""),
            ("rate=0", "rate: 0 would never"),
            ("rate=fast", "rate: \"fast\" is neither"),
            ("rate=5MB", "rate: \"5MB\" is neither"),
            ("rate=9999999M", "more than one request a nanosecond"),
            ("rate=2TiB/s", "more than 1TiB/s"),
            ("arrival=bursty", "arrival: \"bursty\" is none of fixed, poisson, poisson-drop"),
            ("zipf=0", "zipf: \"0\" is not a number"),
            ("hot=80", "hot: \"80\" is not REQUESTS/SPACE"),
            ("start=10", "start: \"10\" is not a time"),
            ("time=ten", "time: \"ten\" is not a time"),
            ("time=0", "time: 0 would never"),
            ("region=0", "is empty or too large"),
            ("region=1GiB+0", "is empty or too large"),
            ("region=16777215TiB+16777215TiB", "is empty or too large"),
            ("region=1GiB+", "region: \"\" is not a size"),
            ("region=+1GiB", "region: \"\" is not a size"),
            ("host=", "host: no value"),
        ] {
            let got = Job::parse(text, &Job::default()).expect_err(text).to_string();
            assert!(got.contains(says), "{text:?}: {got:?} lacks {says:?}");
        }
    }
}
