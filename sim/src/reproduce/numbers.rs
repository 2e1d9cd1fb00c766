//! Numbers that figures are made of.

/// Nanoseconds as microseconds.
pub(super) fn micros(ns: f64) -> f64 {
    ns / 1e3
}

/// The middle one; NaN of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Whether a number is what it should be, within so many percent.
pub(super) fn near(ours: f64, wanted: f64, percent: f64) -> bool {
    (ours / wanted - 1.0).abs() * 100.0 <= percent
}
