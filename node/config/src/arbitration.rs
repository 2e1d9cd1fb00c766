//! How a drive arbitrates: the mechanism, its numbers for each class, what a command counts for, and who says which class a queue has.

use super::read::{Read, Section, Wrong, integer, quoted, size, word};
use super::value::Value;
use super::word_enum::word_enum;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use weir_units::Bytes;

/// A quantum of a round: one page at the least.
const QUANTUM: std::ops::RangeInclusive<u64> = 4 * Bytes::KIB..=Bytes::GIB;

word_enum! {
    /// Arbitration mechanisms (design: Device).
    Mechanism {
        /// Everything at once, no guarantee: for comparison.
        None = "none",
        /// Round robin over all queues (CC.AMS 000b).
        Rr = "rr",
        /// Weighted round robin in commands, with urgent (CC.AMS 001b).
        Wrr = "wrr",
        /// Deficit round robin in bytes, with urgent (CC.AMS 111b).
        Drr = "drr",
    }
}

word_enum! {
    /// What a command costs its queue.
    Cost {
        /// Its length, 4 KiB at the least.
        Bytes = "bytes",
        /// The same for every command.
        Commands = "commands",
        /// What the flash will spend on it.
        DeviceTime = "device-time",
    }
}

word_enum! {
    /// Who decides the class of a queue; never above what the tenant may have.
    ClassFrom {
        /// The tenant's class.
        Tenant = "tenant",
        /// QPRIO of Create I/O Submission Queue.
        Qprio = "qprio",
        /// CATTR bits 1:0 of the Fabrics Connect command.
        Cattr = "cattr",
        /// The I/O priority of the process at the other end of the socket.
        Peer = "peer",
    }
}

/// How a drive chooses the next queue, and by what numbers; also what the API shows and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arbitration {
    /// The rule.
    pub mechanism: Mechanism,
    /// `wrr`: commands of a class in a round, 1 to 256.
    #[schemars(transform = weights_in_range)]
    pub weights: Shares<u16>,
    /// `rr`, `wrr`: at most 2 to this power commands of a queue in one visit, 0 to 6; `None`: no limit (AB = 111b).
    #[schemars(range(min = 0, max = 6))]
    pub burst: Option<u8>,
    /// `drr`: bytes of a class in a round.
    #[schemars(transform = quanta_in_range)]
    pub quanta: Shares<u32>,
}

/// In a schema, the range of each of its weights.
pub fn weights_in_range(schema: &mut Schema) {
    all_within(schema, 1, 256);
}

/// In a schema, the range of each of its quanta, bytes.
pub fn quanta_in_range(schema: &mut Schema) {
    all_within(schema, *QUANTUM.start(), *QUANTUM.end());
}

fn all_within(schema: &mut Schema, least: u64, most: u64) {
    for class in schema.get_mut("properties").and_then(|all| all.as_object_mut()).into_iter().flatten() {
        class.1["minimum"] = least.into();
        class.1["maximum"] = most.into();
    }
}

impl Default for Arbitration {
    fn default() -> Self {
        Arbitration {
            mechanism: Mechanism::Drr,
            weights: Shares { high: 32, medium: 16, low: 8 },
            burst: None,
            quanta: Shares { high: 128 << 10, medium: 64 << 10, low: 32 << 10 },
        }
    }
}

impl Arbitration {
    /// Takes weights and quanta over from the arbiter's settings.
    pub fn take_shares(&mut self, settings: &weir_arbiter::ArbiterSettings) {
        let (w, q) = (settings.weights, settings.quanta);
        self.weights = Shares { high: w.high, medium: w.medium, low: w.low };
        self.quanta = Shares { high: q.high, medium: q.medium, low: q.low };
    }
}

/// For the arbiter of a drive; every number is in the arbiter's range by construction.
impl From<Arbitration> for weir_arbiter::ArbiterSettings {
    fn from(from: Arbitration) -> Self {
        let Arbitration { mechanism, weights: w, burst, quanta: q } = from;
        weir_arbiter::ArbiterSettings {
            mechanism: match mechanism {
                Mechanism::None => weir_arbiter::Mechanism::None,
                Mechanism::Rr => weir_arbiter::Mechanism::Rr,
                Mechanism::Wrr => weir_arbiter::Mechanism::Wrr,
                Mechanism::Drr => weir_arbiter::Mechanism::Drr,
            },
            weights: weir_arbiter::Weights { high: w.high, medium: w.medium, low: w.low },
            burst: burst.map_or(weir_arbiter::Burst::NoLimit, weir_arbiter::Burst::Log2),
            quanta: weir_arbiter::Quanta { high: q.high, medium: q.medium, low: q.low },
        }
    }
}

/// One value for each weighted class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Shares<T> {
    /// Class high.
    pub high: T,
    /// Class medium.
    pub medium: T,
    /// Class low.
    pub low: T,
}

impl<T> Shares<T> {
    /// By the class's name.
    fn get_mut(&mut self, class: &str) -> Option<&mut T> {
        match class {
            "high" => Some(&mut self.high),
            "medium" => Some(&mut self.medium),
            "low" => Some(&mut self.low),
            _ => None,
        }
    }
}

/// Reads the keys of a device.
pub(super) fn read(section: &Section<'_>) -> Arbitration {
    let default = Arbitration::default();
    Arbitration {
        mechanism: section.or("arbitration", default.mechanism, word(Mechanism::WORDS)),
        weights: section.or(
            "weights",
            default.weights,
            per_class(default.weights, |v| Ok(integer(1..=256)(v)? as u16)),
        ),
        burst: section.or("burst", default.burst, burst),
        quanta: section.or("quanta", default.quanta, per_class(default.quanta, |v| Ok(size(QUANTUM)(v)?.0 as u32))),
    }
}

/// `{ high = …, medium = …, low = … }`, or `…:…:…` in that order; a class left out keeps its default.
fn per_class<T: Copy>(default: Shares<T>, read: impl Fn(&Value) -> Read<T>) -> impl Fn(&Value) -> Read<Shares<T>> {
    move |value| match value {
        Value::Table(entries) => {
            let mut shares = default;
            for entry in entries {
                let at = |what: String| Wrong::at(entry.line, what);
                let place = shares
                    .get_mut(&entry.key)
                    .ok_or_else(|| at(format!("unknown class {}; there is high, medium, low", quoted(&entry.key))))?;
                *place = read(&entry.value).map_err(|w| at(format!("{}: {}", entry.key, w)))?;
            }
            Ok(shares)
        }
        Value::Text(text) | Value::Bare(text) => {
            let parts: Vec<&str> = text.split(':').collect();
            let [high, medium, low] = parts[..] else {
                return Err(format!("{} is not three values like 32:16:8 (high:medium:low)", quoted(text)).into());
            };
            let part = |t: &str| read(&Value::Bare(t.trim().to_string()));
            Ok(Shares { high: part(high)?, medium: part(medium)?, low: part(low)? })
        }
        other => {
            let what = format!("{} where a table like {{ high = …, medium = …, low = … }} is wanted", other.kind());
            Err(what.into())
        }
    }
}

/// AB of Set Features 01h: a power of two, written as the number of commands.
fn burst(value: &Value) -> Read<Option<u8>> {
    match value {
        Value::Text(text) | Value::Bare(text) if text == "none" => Ok(None),
        Value::Text(_) => Err(format!("{} where 1, 2, 4, 8, 16, 32, 64 or \"none\" is wanted", shown(value)).into()),
        _ => {
            let commands = integer(1..=64)(value)?;
            if !commands.is_power_of_two() {
                return Err(
                    format!("{commands} is no power of two; 1, 2, 4, 8, 16, 32, 64 or \"none\" is allowed").into()
                );
            }
            Ok(Some(commands.trailing_zeros() as u8))
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        other => other.kind().to_string(),
    }
}
