//! How people write sizes, times and rates. Powers of two carry an `i` (`KiB`), powers of ten do not (`KB`).

use crate::{Bytes, Nanos};
use alloc::format;
use alloc::string::String;

/// A text that is no size, time or rate; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl core::fmt::Display for ParseError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParseError {}

const SIZE_UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("KB", 1_000),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

const TIME_UNITS: [(&str, u64); 6] =
    [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];

/// A size: `4096`, `4KiB`, `10GB`, `1.5GiB`.
pub fn bytes(text: &str) -> Result<Bytes, ParseError> {
    scaled(text, &SIZE_UNITS, "a size like 4KiB (1024-based), 10GB (1000-based) or 4096").map(Bytes)
}

/// A time: `80us`, `2ms`, `10s`, `1min`; a unit is required except for 0.
pub fn nanos(text: &str) -> Result<Nanos, ParseError> {
    if text.trim() == "0" {
        return Ok(Nanos(0));
    }
    scaled(text, &TIME_UNITS, "a time like 80us, 2ms, 10s").map(Nanos)
}

/// A bandwidth in bytes a second: `500MB/s`, `1GiB/s`.
pub fn bandwidth(text: &str) -> Result<Bytes, ParseError> {
    let want = "a bandwidth like 500MB/s or 1GiB/s";
    match text.trim().strip_suffix("/s") {
        Some(size) => scaled(size, &SIZE_UNITS, want).map(Bytes),
        None => Err(wrong(text, want)),
    }
}

/// A count: `200000`, `200k`, `1.5M`.
pub fn count(text: &str) -> Result<u64, ParseError> {
    scaled(text, &[("", 1), ("k", 1_000), ("K", 1_000), ("M", 1_000_000)], "a number like 200000 or 200k")
}

fn wrong(text: &str, want: &str) -> ParseError {
    ParseError(format!("\"{text}\" is not {want}"))
}

fn scaled(text: &str, units: &[(&str, u64)], want: &str) -> Result<u64, ParseError> {
    let t = text.trim();
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, unit) = (&t[..split], t[split..].trim());
    let scale = units.iter().find(|(u, _)| *u == unit).map(|(_, s)| *s).ok_or_else(|| wrong(text, want))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return Err(wrong(text, want));
    }
    let too_large = || ParseError(format!("\"{text}\" is too large"));
    let whole: u64 = whole.parse().map_err(|_| wrong(text, want))?;
    let mut value = u128::from(whole) * u128::from(scale);
    if !fraction.is_empty() {
        let f: u64 = fraction.parse().map_err(|_| wrong(text, want))?;
        let part = u128::from(f) * u128::from(scale);
        let ten = 10u128.pow(fraction.len() as u32);
        if part % ten != 0 {
            return Err(ParseError(format!("\"{text}\" is not a whole number of the smallest unit")));
        }
        value += part / ten;
    }
    u64::try_from(value).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("4KiB"), Ok(Bytes(4096)));
        assert_eq!(bytes("10GB"), Ok(Bytes(10_000_000_000)));
        assert_eq!(bytes("1.5GiB"), Ok(Bytes(1_610_612_736)));
        assert_eq!(bytes("512"), Ok(Bytes(512)));
        for bad in ["", "KiB", "4kib", "4 K", "-1", "1.", "1.2.3", "99999999PiB", "0.3B", "4K"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_and_rates() {
        assert_eq!(nanos("80us"), Ok(Nanos(80_000)));
        assert_eq!(nanos("1.5ms"), Ok(Nanos(1_500_000)));
        assert!(nanos("80").is_err());
        assert_eq!(bandwidth("500MB/s"), Ok(Bytes(500_000_000)));
        assert!(bandwidth("500MB").is_err());
        assert_eq!(count("200k"), Ok(200_000));
    }

    #[test]
    fn printed_as_written() {
        use alloc::string::ToString;
        for s in ["4KiB", "1GiB", "1000B", "0B"] {
            assert_eq!(bytes(s).unwrap().to_string(), s);
        }
        for s in ["80us", "2ms", "10s", "7ns"] {
            assert_eq!(nanos(s).unwrap().to_string(), s);
        }
    }
}
