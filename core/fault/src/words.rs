//! Rules as text: `media-error lba=8-15 op=read count=3`. The same keys stand in `[[fault]]`, in JSON and on the command line.

use crate::effect::{FaultEffect, LatencySpread, SmartDrift};
use crate::fields::{
    Fields, admin_opcodes, admin_text, code, code_text, factor, factor_text, flag, io_opcodes, io_text, probability,
    probability_text, span, span_text, time, within, within_u32,
};
use crate::rule::{FaultRule, FaultSchedule, FaultTarget, PlaceFilter};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use weir_spec::nvme::Status;
use weir_units::{Nanos, parse};

/// Why a rule is none, or not one for this drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The key that is wrong.
    pub key: String,
    /// What is wrong with it, and what to do.
    pub what: String,
}

impl RuleError {
    pub(crate) fn new(key: &str, what: &str) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)
    }
}

impl core::error::Error for RuleError {}

/// Every effect's word, and the keys that it has beside those of the target and the schedule.
const EFFECTS: [(&str, &[&str]); 22] = [
    ("status", &["code", "dnr", "crd"]),
    ("media-error", &[]),
    ("correctable-error", &["retries"]),
    ("corrupt", &["bytes"]),
    ("torn-write", &["keep"]),
    ("misdirected", &["by"]),
    ("lost-write", &[]),
    ("disk-full", &[]),
    ("latency", &["time"]),
    ("hang", &[]),
    ("stuck-queue", &[]),
    ("controller-fatal", &[]),
    ("reset-fails", &[]),
    ("slow-reset", &["time"]),
    ("link-loss", &[]),
    ("removal", &["back"]),
    ("read-only", &[]),
    ("namespace-resized", &["blocks"]),
    ("namespace-identity", &[]),
    ("namespace-gone", &[]),
    ("smart", &["spare", "wear", "temperature", "media_errors", "over"]),
    ("slow-die", &["times"]),
];

/// Keys of targets and schedules.
const COMMON: [&str; 16] = [
    "nsid",
    "lba",
    "op",
    "admin",
    "tenant",
    "queue",
    "channel",
    "die",
    "block",
    "page",
    "probability",
    "seed",
    "count",
    "after",
    "from",
    "lasts",
];

/// Every key of a rule, `effect` first.
pub const FAULT_KEYS: [&str; 33] = [
    "effect",
    "nsid",
    "lba",
    "op",
    "admin",
    "tenant",
    "queue",
    "channel",
    "die",
    "block",
    "page",
    "probability",
    "seed",
    "count",
    "after",
    "from",
    "lasts",
    "code",
    "dnr",
    "crd",
    "retries",
    "bytes",
    "keep",
    "by",
    "time",
    "back",
    "blocks",
    "spare",
    "wear",
    "temperature",
    "media_errors",
    "over",
    "times",
];

/// The longest time of a latency: what is to wait longer hangs.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);

/// The time of a latency.
fn delay(text: &str) -> Result<Nanos, String> {
    match time(text)? {
        time if time <= LATENCY_MAX => Ok(time),
        _ => Err(format!("\"{text}\" is more than 60min; for what waits longer use hang, with lasts")),
    }
}

/// Times from one to the other, `~mean`, or one time.
fn latency(text: &str) -> Result<LatencySpread, String> {
    if let Some(mean) = text.strip_prefix('~') {
        return delay(mean).map(LatencySpread::Exponential);
    }
    let Some((least, most)) = text.split_once("..") else { return delay(text).map(LatencySpread::Fixed) };
    let (least, most) = (parse::nanos(least).map_err(|e| e.to_string())?, delay(most)?);
    if least > most { Err(format!("\"{text}\" ends before it begins")) } else { Ok(LatencySpread::Even(least, most)) }
}

fn latency_text(spread: &LatencySpread) -> String {
    match spread {
        LatencySpread::Fixed(time) => time.to_string(),
        LatencySpread::Even(least, most) => format!("{least}..{most}"),
        LatencySpread::Exponential(mean) => format!("~{mean}"),
    }
}

fn status(fields: &mut Fields) -> Result<FaultEffect, RuleError> {
    let status = fields.need("code", "2/81h", code)?;
    let crd = fields.get("crd", within(1, 3))?.unwrap_or(0) as u16;
    // Status field bits 12:11 (base 2.0, Figure 93).
    let status = Status::from_field(status.field() | crd << 11);
    let dnr = fields.get("dnr", flag)?.unwrap_or(false);
    if dnr && crd > 0 {
        return Err(RuleError::new("crd", "says when to retry, and dnr says never; leave one out"));
    }
    Ok(FaultEffect::Status(if dnr { status.dnr() } else { status }))
}

fn removal(fields: &mut Fields) -> Result<FaultEffect, RuleError> {
    let back = |text: &str| match text {
        "same" => Ok(false),
        "other" => Ok(true),
        _ => Err(format!("\"{text}\": same or other is allowed")),
    };
    Ok(FaultEffect::Removal { other: fields.get("back", back)?.unwrap_or(false) })
}

fn smart(fields: &mut Fields) -> Result<FaultEffect, RuleError> {
    let drift = SmartDrift {
        spare: fields.get("spare", within(0, 100))?.map(|n| n as u8),
        wear: fields.get("wear", within(0, 255))?.map(|n| n as u8),
        temperature: fields.get("temperature", within(223, 473))?.map(|n| n as u16),
        media_errors: fields.get("media_errors", within(1, u64::from(u32::MAX)))?,
        over: fields.get("over", time)?.unwrap_or_default(),
    };
    if (SmartDrift { over: Nanos(0), ..drift }) == SmartDrift::default() {
        let what = "says nothing; write spare, wear, temperature (in K) or media_errors";
        return Err(RuleError::new("effect", what));
    }
    Ok(FaultEffect::Smart(drift))
}

fn shift(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(by) if by != 0 => Ok(by),
        _ => Err(format!("\"{text}\" is not a number of blocks like 8 or -8")),
    }
}

fn effect(word: &str, fields: &mut Fields) -> Result<FaultEffect, RuleError> {
    use FaultEffect as E;
    Ok(match word {
        "status" => status(fields)?,
        "media-error" => E::MediaError,
        "correctable-error" => {
            E::CorrectableError { retries: fields.get("retries", within_u32(1, 1000))?.unwrap_or(1) }
        }
        "corrupt" => E::CorruptData { bytes: fields.get("bytes", within_u32(1, 512))?.unwrap_or(8) },
        "torn-write" => E::TornWrite { keep: fields.need("keep", "1", within_u32(1, u32::MAX))? },
        "misdirected" => E::Misdirected { by: fields.need("by", "8", shift)? },
        "lost-write" => E::LostWrite,
        "disk-full" => E::DiskFull,
        "latency" => E::Latency(fields.need("time", "2ms, 1ms..5ms or ~2ms", latency)?),
        "hang" => E::Hang,
        "stuck-queue" => E::StuckQueue,
        "controller-fatal" => E::ControllerFatal,
        "reset-fails" => E::ResetFails,
        "slow-reset" => E::SlowReset(fields.need("time", "5s", time)?),
        "link-loss" => E::LinkLoss,
        "removal" => removal(fields)?,
        "read-only" => E::ReadOnly,
        "namespace-resized" => E::NamespaceResized { blocks: fields.need("blocks", "1024", within(1, 1 << 55))? },
        "namespace-identity" => E::NamespaceIdentity,
        "namespace-gone" => E::NamespaceGone,
        "smart" => smart(fields)?,
        "slow-die" => E::SlowDie { thousandths: fields.need("times", "5", factor)? },
        _ => {
            let known: Vec<&str> = EFFECTS.iter().map(|(word, _)| *word).collect();
            return Err(RuleError::new("effect", &format!("there is no \"{word}\"; there is {}", known.join(", "))));
        }
    })
}

fn target(fields: &mut Fields) -> Result<FaultTarget, RuleError> {
    let name = |text: &str| Ok(text.to_string());
    let mut part = |key| fields.get(key, within_u32(0, u32::MAX));
    let place =
        PlaceFilter { channel: part("channel")?, die: part("die")?, block: part("block")?, page: part("page")? };
    Ok(FaultTarget {
        nsid: fields.get("nsid", within_u32(1, 1024))?,
        lba: fields.get("lba", span)?,
        io: fields.get("op", io_opcodes)?.unwrap_or_default(),
        admin: fields.get("admin", admin_opcodes)?.unwrap_or_default(),
        tenant: fields.get("tenant", name)?,
        queue: fields.get("queue", within(1, u16::MAX.into()))?.map(|n| n as u16),
        place,
    })
}

fn schedule(fields: &mut Fields) -> Result<FaultSchedule, RuleError> {
    let always = FaultSchedule::default();
    Ok(FaultSchedule {
        per_million: fields.get("probability", probability)?.unwrap_or(always.per_million),
        seed: fields.get("seed", within(0, u64::MAX))?.unwrap_or(always.seed),
        count: fields.get("count", within(1, u64::MAX))?,
        after: fields.get("after", within(0, u64::MAX))?.unwrap_or(0),
        from: fields.get("from", time)?.unwrap_or_default(),
        lasts: fields.get("lasts", time)?,
    })
}

impl FaultRule {
    /// A rule from its keys and their values; `effect` is one of them.
    ///
    /// # Errors
    /// Names the key, what is wrong, and what is allowed.
    pub fn from_pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<FaultRule, RuleError> {
        let mut fields = Fields::new(pairs)?;
        let word = fields.need("effect", "media-error", |text| Ok(text.to_string()))?;
        let effect = effect(&word, &mut fields)?;
        let (target, schedule) = (target(&mut fields)?, schedule(&mut fields)?);
        match fields.left() {
            Some(key) => Err(unknown(key, &word)),
            None => Ok(FaultRule { target, schedule, effect }),
        }
    }

    /// A rule from its text: the effect's word, then `KEY=VALUE`.
    ///
    /// # Errors
    /// As [`from_pairs`](Self::from_pairs).
    pub fn parse(text: &str) -> Result<FaultRule, RuleError> {
        let pairs = text.split_whitespace().enumerate().map(|(i, part)| match part.split_once('=') {
            Some(pair) => Ok(pair),
            None if i == 0 => Ok(("effect", part)),
            None => Err(RuleError::new(part, "is no KEY=VALUE")),
        });
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        Self::from_pairs(pairs.into_iter())
    }

    /// The keys of the rule with their values, `effect` first; what says nothing is left out.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let (word, own) = self.effect_pairs();
        let mut all = alloc::vec![("effect", word.to_string())];
        all.extend(own);
        all.extend(self.target_pairs());
        all.extend(self.schedule_pairs());
        all
    }

    fn effect_pairs(&self) -> (&'static str, Vec<(&'static str, String)>) {
        use FaultEffect as E;
        let one = |key, value: String| alloc::vec![(key, value)];
        match &self.effect {
            E::Status(status) => ("status", status_pairs(*status)),
            E::MediaError => ("media-error", Vec::new()),
            E::CorrectableError { retries } => ("correctable-error", one("retries", retries.to_string())),
            E::CorruptData { bytes } => ("corrupt", one("bytes", bytes.to_string())),
            E::TornWrite { keep } => ("torn-write", one("keep", keep.to_string())),
            E::Misdirected { by } => ("misdirected", one("by", by.to_string())),
            E::LostWrite => ("lost-write", Vec::new()),
            E::DiskFull => ("disk-full", Vec::new()),
            E::Latency(spread) => ("latency", one("time", latency_text(spread))),
            E::Hang => ("hang", Vec::new()),
            E::StuckQueue => ("stuck-queue", Vec::new()),
            E::ControllerFatal => ("controller-fatal", Vec::new()),
            E::ResetFails => ("reset-fails", Vec::new()),
            E::SlowReset(time) => ("slow-reset", one("time", time.to_string())),
            E::LinkLoss => ("link-loss", Vec::new()),
            E::Removal { other } => ("removal", one("back", if *other { "other" } else { "same" }.into())),
            E::ReadOnly => ("read-only", Vec::new()),
            E::NamespaceResized { blocks } => ("namespace-resized", one("blocks", blocks.to_string())),
            E::NamespaceIdentity => ("namespace-identity", Vec::new()),
            E::NamespaceGone => ("namespace-gone", Vec::new()),
            E::Smart(drift) => ("smart", smart_pairs(drift)),
            E::SlowDie { thousandths } => ("slow-die", one("times", factor_text(*thousandths))),
        }
    }

    fn target_pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let FaultTarget { nsid, lba, io, admin, tenant, queue, place } = &self.target;
        let PlaceFilter { channel, die, block, page } = place;
        let n = |n: &Option<u32>| n.map(|n| n.to_string());
        let list = |list: &[u8], text: fn(&[u8]) -> String| Some(text(list)).filter(|_| !list.is_empty());
        let all = [
            ("nsid", n(nsid)),
            ("lba", lba.as_ref().map(span_text)),
            ("op", list(io, io_text)),
            ("admin", list(admin, admin_text)),
            ("tenant", tenant.clone()),
            ("queue", queue.map(|n| n.to_string())),
            ("channel", n(channel)),
            ("die", n(die)),
            ("block", n(block)),
            ("page", n(page)),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }

    fn schedule_pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let FaultSchedule { per_million, seed, count, after, from, lasts } = &self.schedule;
        let always = FaultSchedule::default();
        let all = [
            ("probability", Some(probability_text(*per_million)).filter(|_| *per_million != always.per_million)),
            ("seed", Some(seed.to_string()).filter(|_| *seed != always.seed)),
            ("count", count.map(|n| n.to_string())),
            ("after", Some(after.to_string()).filter(|_| *after > 0)),
            ("from", Some(from.to_string()).filter(|_| from.0 > 0)),
            ("lasts", lasts.map(|lasts| lasts.to_string())),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

fn status_pairs(status: Status) -> Vec<(&'static str, String)> {
    let mut pairs = alloc::vec![("code", code_text(status))];
    pairs.extend(status.is_dnr().then(|| ("dnr", "true".to_string())));
    let crd = status.field() >> 11 & 3;
    pairs.extend((crd > 0).then(|| ("crd", crd.to_string())));
    pairs
}

fn smart_pairs(drift: &SmartDrift) -> Vec<(&'static str, String)> {
    let SmartDrift { spare, wear, temperature, media_errors, over } = drift;
    let all = [
        ("spare", spare.map(|n| n.to_string())),
        ("wear", wear.map(|n| n.to_string())),
        ("temperature", temperature.map(|n| n.to_string())),
        ("media_errors", media_errors.map(|n| n.to_string())),
        ("over", Some(over.to_string()).filter(|_| over.0 > 0)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn unknown(key: &str, word: &str) -> RuleError {
    let own = EFFECTS.iter().find(|(known, _)| *known == word).map_or(&[][..], |(_, keys)| keys);
    let keys: Vec<&str> = own.iter().chain(&COMMON).copied().collect();
    RuleError::new(key, &format!("{word} has no such key; there is {}", keys.join(", ")))
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.pairs().into_iter().enumerate() {
            match i {
                0 => f.write_str(&value)?,
                _ => write!(f, " {key}={value}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for FaultRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::parse(text)
    }
}
