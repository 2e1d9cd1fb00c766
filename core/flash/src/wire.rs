//! How long bytes take over a shared wire: a flash channel or the host link.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use weir_units::Nanos;

/// A wire's rate, exactly as the published models round it: bytes become packets, packets are spread over lanes, the
/// bytes of a lane become units, and units take `nanos / per` each. Rounds up to units and down to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bytes that move together; a part of a unit costs a whole one. 0: the wire takes no time.
    unit: u32,
    /// Nanoseconds for `per` units.
    nanos: u64,
    /// How many units take `nanos`.
    per: u64,
    /// Bytes whose time is cut to whole nanoseconds: a unit, or a part of it.
    cut: u32,
    packet: Packet,
    /// Units that may move in each [`Wire::CREDIT_SLOT`] nanoseconds; 0: transfers follow one another.
    credits: u32,
}

/// How bytes are cut into packets, and the lanes that share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Data bytes of a full packet; 0: no packets.
    pub payload: u32,
    /// Bytes that each packet adds.
    pub overhead: u32,
    /// Lanes that carry the packets side by side; at least 1.
    pub lanes: u32,
}

impl Packet {
    /// No packets, one lane.
    pub const NONE: Packet = Packet { payload: 0, overhead: 0, lanes: 1 };
    /// PCIe transaction layer packets of 128 bytes with 20 + 6 + 2 bytes of headers (MQSim, src/host/PCIe_Link.h:44-59).
    pub const fn pcie(lanes: u32) -> Packet {
        Packet { payload: 128, overhead: 28, lanes: if lanes == 0 { 1 } else { lanes } }
    }
}

impl Wire {
    /// The longest time of a text: the product with any number of bytes stays far from the end of 128 bits.
    const MAX_NANOS: u64 = 1_000_000_000_000;

    /// Takes no time.
    pub const INSTANT: Wire = Wire { unit: 0, nanos: 0, per: 1, cut: 1, packet: Packet::NONE, credits: 0 };

    /// The nanoseconds for which credits are given out at a time (NVMeVirt, channel_model.h).
    pub const CREDIT_SLOT: u64 = 4_000;

    /// `nanos` nanoseconds for each `unit` bytes.
    pub const fn units(unit: u32, nanos: u64) -> Wire {
        Wire { unit, nanos, cut: unit, ..Wire::INSTANT }
    }

    /// `nanos` for each `bytes`, in proportion below that.
    pub const fn proportional(bytes: u32, nanos: u64) -> Wire {
        if bytes == 0 {
            return Wire::INSTANT;
        }
        Wire { unit: 1, nanos, per: bytes as u64, ..Wire::INSTANT }
    }

    /// So many bytes a second, in proportion to the byte; 0: takes no time.
    pub const fn bytes_per_second(rate: u64) -> Wire {
        if rate == 0 {
            return Wire::INSTANT;
        }
        // A common factor taken out keeps bytes * nanos far from 64 bits.
        let g = gcd(1_000_000_000, rate);
        Wire { unit: 1, nanos: 1_000_000_000 / g, per: rate / g, ..Wire::INSTANT }
    }

    /// So many MiB a second in units of 128 bytes, each rounded down to the nanosecond and `extra` added, with the credits of that rate
    /// (NVMeVirt, channel_model.h:7-42, ssd.c:269).
    pub const fn mib_units(mib: u64, extra: u64) -> Wire {
        let rate = mib * 1_048_576;
        Wire::units(128, 128_000_000_000 / rate + extra).with_credits(Wire::credits_of(rate, 128))
    }

    /// The same wire, on which so many units may move in each [`Wire::CREDIT_SLOT`]: see [`CreditRing`](crate::CreditRing). 0: transfers
    /// follow one another.
    pub const fn with_credits(self, credits: u32) -> Wire {
        Wire { credits, ..self }
    }

    /// Units that may move in each [`Wire::CREDIT_SLOT`]; 0: transfers follow one another.
    pub const fn credits(&self) -> u32 {
        if self.is_instant() { 0 } else { self.credits }
    }

    const fn credits_of(rate: u64, unit: u32) -> u32 {
        let units = rate as u128 * Wire::CREDIT_SLOT as u128 / 1_000_000_000 / unit as u128;
        if units == 0 {
            1
        } else if units > u32::MAX as u128 {
            u32::MAX
        } else {
            units as u32
        }
    }

    /// The same wire, carrying packets. The rate is a lane's.
    pub const fn packets(self, packet: Packet) -> Wire {
        Wire { packet, ..self }
    }

    /// The same wire, the time of so many bytes being cut to whole nanoseconds: a divisor of its unit.
    pub const fn cut_at(self, bytes: u32) -> Wire {
        Wire { cut: if bytes == 0 { 1 } else { bytes }, ..self }
    }

    /// The same wire at another rate, in bytes a second over all of its lanes: its units and what is cut of their time, its packets and
    /// lanes are as they were. 0: takes no time.
    pub const fn at_rate(self, rate: u64) -> Wire {
        let lane = rate.div_ceil(self.packet.lanes as u64);
        let credits = if self.credits == 0 { 0 } else { Wire::credits_of(lane, self.unit) };
        if self.unit <= 1 || lane == 0 {
            return Wire::bytes_per_second(lane).packets(self.packet).with_credits(credits);
        }
        let (cut, parts) = (self.cut as u64, (self.unit / self.cut) as u64);
        let nanos = cut * 1_000_000_000 / lane;
        Wire { nanos: if nanos == 0 { 1 } else { nanos } * parts, per: 1, credits, ..self }
    }

    /// Whether bytes take no time.
    pub const fn is_instant(&self) -> bool {
        self.unit == 0 || self.nanos == 0
    }

    /// The time for `bytes` bytes.
    pub const fn time(&self, bytes: u32) -> Nanos {
        if self.is_instant() {
            return Nanos(0);
        }
        Nanos(((self.units_of(bytes) as u128 * self.nanos as u128) / self.per as u128) as u64)
    }

    /// The units that `bytes` bytes are, packets and lanes counted.
    pub(crate) const fn units_of(&self, bytes: u32) -> u64 {
        let mut carried = bytes as u64;
        let Packet { payload, overhead, lanes } = self.packet;
        if payload != 0 {
            carried += bytes.div_ceil(payload) as u64 * overhead as u64;
        }
        let lane = carried.div_ceil(lanes as u64);
        lane.div_ceil(self.unit as u64)
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// As configurations write it: `6ns per 2B`, with what differs from a plain wire after that: ` in 2B` (bytes that move together), ` cut 1B`
/// (whose time is cut to nanoseconds, where that is not the unit), ` packet 128B+28B`, ` lanes 4` and ` credits 26` (units in each 4 µs).
impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wire { unit, nanos, per, cut, packet: Packet { payload, overhead, lanes }, credits } = *self;
        if self.is_instant() {
            return f.write_str("0ns");
        }
        write!(f, "{nanos}ns per {}B", u64::from(unit) * per)?;
        if unit != 1 {
            write!(f, " in {unit}B")?;
        }
        if cut != unit {
            write!(f, " cut {cut}B")?;
        }
        if payload != 0 || overhead != 0 {
            write!(f, " packet {payload}B+{overhead}B")?;
        }
        if lanes != 1 {
            write!(f, " lanes {lanes}")?;
        }
        if credits != 0 {
            write!(f, " credits {credits}")?;
        }
        Ok(())
    }
}

/// A text that is no wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWire(String);

impl fmt::Display for NoWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no wire; write \"6ns per 2B\", and behind it \"in 2B\", \"cut 1B\", \"packet 128B+28B\", \"lanes 4\" or \"credits 26\"",
            self.0
        )
    }
}

impl core::error::Error for NoWire {}

impl FromStr for Wire {
    type Err = NoWire;

    fn from_str(text: &str) -> Result<Wire, NoWire> {
        parse(text).ok_or_else(|| NoWire(text.into()))
    }
}

fn parse(text: &str) -> Option<Wire> {
    let bytes = |word: &str| word.strip_suffix('B')?.parse::<u32>().ok();
    let mut words = text.split_whitespace();
    let nanos: u64 = words.next()?.strip_suffix("ns")?.parse().ok().filter(|nanos| *nanos <= Wire::MAX_NANOS)?;
    if nanos == 0 {
        return words.next().is_none().then_some(Wire::INSTANT);
    }
    let together = words
        .next()
        .filter(|word| *word == "per")
        .and_then(|_| words.next()?.strip_suffix('B')?.parse::<u64>().ok())?;
    let (mut unit, mut cut, mut packet, mut credits) = (None, None, Packet::NONE, 0);
    while let Some(word) = words.next() {
        match word {
            "in" => unit = Some(bytes(words.next()?)?),
            "cut" => cut = Some(bytes(words.next()?)?),
            "packet" => {
                let (payload, overhead) = words.next()?.split_once('+')?;
                (packet.payload, packet.overhead) = (bytes(payload)?, bytes(overhead)?);
            }
            "lanes" => packet.lanes = words.next()?.parse().ok().filter(|lanes| (1..=1024).contains(lanes))?,
            "credits" => credits = words.next()?.parse().ok().filter(|credits| *credits > 0)?,
            _ => return None,
        }
    }
    let unit = unit.unwrap_or(1);
    let cut = cut.unwrap_or(unit);
    // The remainder of a division by 0 is none.
    let whole = together > 0 && together.checked_rem(unit.into())? == 0 && unit.checked_rem(cut)? == 0;
    whole.then_some(Wire { unit, nanos, per: together / u64::from(unit), cut, packet, credits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_rounding_is_exact() {
        // NVMeVirt: 970 PRO channel and link, the prototype's channel with its firmware share, the ZN540's.
        assert_eq!(Wire::mib_units(800, 0).time(4096), Nanos(32 * 152));
        assert_eq!(Wire::mib_units(3360, 0).time(4096), Nanos(32 * 36));
        assert_eq!(Wire::mib_units(800, 413 * 128 / 4096).time(4096), Nanos(32 * 164));
        assert_eq!(Wire::mib_units(450, 0).time(4097), Nanos(33 * 271));
        assert_eq!(Wire::mib_units(3050, 0).time(1), Nanos(40));
        // MQSim: two bytes take 6 ns; 4 KiB are 4,992 bytes of packets on four lanes of 1 and 0.4 GB/s.
        assert_eq!(Wire::units(2, 6).time(8192), Nanos(24_576));
        let pcie = |mb: u64| Wire::bytes_per_second(mb * 1_000_000).packets(Packet::pcie(4));
        assert_eq!(pcie(1000).time(4096), Nanos(1_248));
        assert_eq!(pcie(400).time(4096), Nanos(3_120));
        assert_eq!(pcie(1000).time(100), Nanos(32));
        // FEMU: a page's transfer, and bytes * 1000 / MB/s.
        assert_eq!(Wire::proportional(16384, 52_433).time(16384), Nanos(52_433));
        assert_eq!(Wire::proportional(16384, 52_433).time(4096), Nanos(13_108));
        assert_eq!(Wire::bytes_per_second(3_360_000_000).time(4096), Nanos(4096 * 1000 / 3360));
    }

    #[test]
    fn a_wire_at_another_rate_is_as_it_was_otherwise() {
        // NVMeVirt's are cut at 128 bytes, MQSim's channel at one: (1000 / rate) * 2 for two bytes (SSD_Device.cpp).
        assert_eq!(Wire::mib_units(800, 0).at_rate(800 << 20), Wire::mib_units(800, 0));
        assert_eq!(Wire::mib_units(800, 0).at_rate(1200 << 20).time(4096), Nanos(32 * 101));
        // (800 MiB * 4000 / 10^9) / 128 units in 4 µs, and of half of that.
        let credits = |mib: u64| Wire::mib_units(800, 0).at_rate(mib << 20).credits();
        assert_eq!((Wire::mib_units(3360, 0).credits(), credits(800), credits(400), credits(0)), (110, 26, 13, 0));
        let mqsim = Wire::units(2, 6).cut_at(1);
        assert_eq!((mqsim.at_rate(333_000_000), mqsim.at_rate(400_000_000).time(4096)), (mqsim, Nanos(2048 * 4)));
        // 28 bytes more for each 128, on four lanes.
        let link = Wire::bytes_per_second(400_000_000).packets(Packet::pcie(4));
        assert_eq!((link.at_rate(1_600_000_000), link.at_rate(4_000_000_000).time(4096)), (link, Nanos(1_248)));
        assert_eq!(Wire::INSTANT.at_rate(1_000_000_000).time(4096), Nanos(4096));
        for wire in [Wire::INSTANT, mqsim, link] {
            assert_eq!(wire.at_rate(0).time(4096), Nanos(0));
            assert!(
                wire.at_rate(u64::MAX).time(4096) <= Nanos(4096) && wire.at_rate(1).time(4096) > Nanos::from_secs(1000)
            );
        }
    }

    #[test]
    fn a_wire_is_read_as_it_is_printed() {
        for (wire, text) in [
            (Wire::INSTANT, "0ns"),
            (Wire::units(2, 6).cut_at(1), "6ns per 2B in 2B cut 1B"),
            (Wire::bytes_per_second(300_000_000), "10ns per 3B"),
            (Wire::mib_units(800, 0), "152ns per 128B in 128B credits 26"),
            (Wire::units(128, 152), "152ns per 128B in 128B"),
            (Wire::bytes_per_second(400_000_000).packets(Packet::pcie(4)), "5ns per 2B packet 128B+28B lanes 4"),
            (Wire::proportional(16384, 52_433), "52433ns per 16384B"),
        ] {
            assert_eq!((alloc::format!("{wire}").as_str(), text.parse()), (text, Ok(wire)));
        }
        for text in [
            "",
            "6ns",
            "6ns per 2",
            "6us per 2B",
            "6ns per 3B in 2B",
            "6ns per 2B in 2B cut 0B",
            "1ns per 0B",
            "6ns per 2B x",
            "6ns per 2B credits 0",
        ] {
            assert!(text.parse::<Wire>().is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_overflows_and_no_rate_is_free() {
        assert_eq!(Wire::INSTANT.time(u32::MAX), Nanos(0));
        assert_eq!(Wire::bytes_per_second(0).time(u32::MAX), Nanos(0));
        assert_eq!(Wire::bytes_per_second(1).time(u32::MAX), Nanos(u64::from(u32::MAX) * 1_000_000_000));
        assert_eq!(Wire::units(128, 152).time(0), Nanos(0));
    }
}
