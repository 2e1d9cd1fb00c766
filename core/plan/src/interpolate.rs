//! Figures between those that were measured.
//!
//! What a command takes bends with depth and with size: where dies are all at work, where a channel or collection becomes what limits. A
//! chord between two load tests cuts the bend off; a monotone cubic through them and their neighbours follows it, and is still the
//! straight line where they lie on one ([`monotone`]). Each figure has its own.

use alloc::vec::Vec;
use weir_workload::{ByKind, Latency, Quantiles};

/// A curve through the values of one figure, at the place that is asked for.
pub(crate) type Curve<'a> = dyn Fn(&[f64]) -> f64 + 'a;

/// What can lie on the way from one measured figure to another.
pub(crate) trait Towards: Sized {
    /// `part` 0 is this one, 1 the other.
    fn towards(&self, other: &Self, part: f64) -> Self;

    /// On a curve through all of them, number by number; where that cannot be, `part` of the way from `known[at]` to the next.
    fn across(known: &[Self], at: (usize, f64), curve: &Curve<'_>) -> Self;
}

/// A figure at a place, on monotone cubics through those that are known at places that ascend; outside of them the nearest. One is
/// known at least.
pub(crate) fn on_curve<K, T: Towards>(known: &[K], place: impl Fn(&K) -> f64, at: f64, of: impl Fn(&K) -> T) -> T {
    let after = known.partition_point(|k| place(k) < at);
    match known.get(after) {
        None => return of(&known[known.len() - 1]),
        Some(next) if after == 0 || place(next) == at => return of(next),
        Some(_) => {}
    }
    // What lies further away has no part in it.
    let window = &known[after.saturating_sub(2)..known.len().min(after + 2)];
    let low = after - 1 - after.saturating_sub(2);
    let part = (at - place(&window[low])) / (place(&window[low + 1]) - place(&window[low]));
    let curve = |values: &[f64]| {
        let mut points = [(0.0, 0.0); 4];
        points.iter_mut().zip(window).zip(values).for_each(|((point, k), value)| *point = (place(k), *value));
        monotone(&points[..window.len()], at)
    };
    T::across(&window.iter().map(of).collect::<Vec<_>>(), (low, part), &curve)
}

impl Towards for f64 {
    fn towards(&self, other: &f64, part: f64) -> f64 {
        if part >= 1.0 { *other } else { self * (1.0 - part) + other * part }
    }

    fn across(known: &[f64], _: (usize, f64), curve: &Curve<'_>) -> f64 {
        curve(known)
    }
}

/// One that only one of both has is that one's.
impl<T: Towards + Copy> Towards for Option<T> {
    fn towards(&self, other: &Self, part: f64) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.towards(b, part)),
            (a, b) => a.or(*b),
        }
    }

    fn across(known: &[Self], at: (usize, f64), curve: &Curve<'_>) -> Self {
        match known.iter().copied().collect::<Option<Vec<T>>>() {
            Some(all) => Some(T::across(&all, at, curve)),
            None => known[at.0].towards(&known[at.0 + 1], at.1),
        }
    }
}

impl<T: Towards + Copy> Towards for [T; 2] {
    fn towards(&self, other: &Self, part: f64) -> Self {
        [self[0].towards(&other[0], part), self[1].towards(&other[1], part)]
    }

    fn across(known: &[Self], at: (usize, f64), curve: &Curve<'_>) -> Self {
        [0, 1].map(|i| T::across(&known.iter().map(|of| of[i]).collect::<Vec<_>>(), at, curve))
    }
}

impl Towards for ByKind {
    fn towards(&self, other: &ByKind, part: f64) -> ByKind {
        ByKind::towards(self, other, part)
    }

    fn across(known: &[ByKind], at: (usize, f64), curve: &Curve<'_>) -> ByKind {
        let each = |kind: fn(&ByKind) -> Option<Quantiles>| {
            Option::across(&known.iter().map(kind).collect::<Vec<_>>(), at, curve)
        };
        ByKind { reads: each(|k| k.reads), writes: each(|k| k.writes) }
    }
}

impl Towards for Quantiles {
    fn towards(&self, other: &Quantiles, part: f64) -> Quantiles {
        Quantiles::towards(self, other, part)
    }

    fn across(known: &[Quantiles], _: (usize, f64), curve: &Curve<'_>) -> Quantiles {
        let on = |of: &dyn Fn(&Quantiles) -> f64| curve(&known.iter().map(of).collect::<Vec<_>>());
        let mut at = known[0].at;
        let mut least = 0;
        for (i, at) in at.iter_mut().enumerate() {
            // Each has a curve of its own, and they may cross.
            least = (on(&|q| q.at[i] as f64) as u64).max(least);
            *at = least;
        }
        Quantiles { mean: on(&|q| q.mean), at }
    }
}

impl Towards for Latency {
    fn towards(&self, other: &Latency, part: f64) -> Latency {
        let whole = |from: u64, to: u64| (from as f64).towards(&(to as f64), part) as u64;
        Latency {
            mean: self.mean.towards(&other.mean, part),
            p50: whole(self.p50, other.p50),
            p99: whole(self.p99, other.p99),
            p999: whole(self.p999, other.p999),
            max: whole(self.max, other.max),
        }
    }

    fn across(known: &[Latency], _: (usize, f64), curve: &Curve<'_>) -> Latency {
        let on = |of: &dyn Fn(&Latency) -> f64| curve(&known.iter().map(of).collect::<Vec<_>>());
        let whole = |of: fn(&Latency) -> u64, least: u64| (on(&|l| of(l) as f64) as u64).max(least);
        let p50 = whole(|l| l.p50, 0);
        let p99 = whole(|l| l.p99, p50);
        let p999 = whole(|l| l.p999, p99);
        Latency { mean: on(&|l| l.mean), p50, p99, p999, max: whole(|l| l.max, p999) }
    }
}

/// A monotone cubic (Fritsch and Carlson, 1980) through points with rising first numbers; before the first it is that one's, beyond the last it goes on straight.
pub(crate) fn monotone(points: &[(f64, f64)], x: f64) -> f64 {
    let (first, last) = (points[0], points[points.len() - 1]);
    if x <= first.0 || points.len() == 1 {
        return first.1;
    }
    let slope = |i: usize| (points[i + 1].1 - points[i].1) / (points[i + 1].0 - points[i].0);
    if x >= last.0 {
        return last.1 + slope(points.len() - 2) * (x - last.0);
    }
    let i = points.partition_point(|p| p.0 <= x) - 1;
    let ((from, low), (to, high)) = (points[i], points[i + 1]);
    let (width, t) = (to - from, (x - from) / (to - from));
    let (start, end) = (tangent(points, i), tangent(points, i + 1));
    let (t2, t3) = (t * t, t * t * t);
    let ends = (2.0 * t3 - 3.0 * t2 + 1.0) * low + (3.0 * t2 - 2.0 * t3) * high;
    ends + width * ((t3 - 2.0 * t2 + t) * start + (t3 - t2) * end)
}

/// The derivative at a point, such that nothing overshoots.
fn tangent(points: &[(f64, f64)], i: usize) -> f64 {
    let width = |i: usize| points[i + 1].0 - points[i].0;
    let slope = |i: usize| (points[i + 1].1 - points[i].1) / width(i);
    let last = points.len() - 1;
    if last == 1 {
        return slope(0);
    }
    if i > 0 && i < last {
        let (before, after) = (slope(i - 1), slope(i));
        if before * after <= 0.0 {
            return 0.0;
        }
        let (near, far) = (2.0 * width(i) + width(i - 1), width(i) + 2.0 * width(i - 1));
        return (near + far) / (near / before + far / after);
    }
    let (own, next) = if i == 0 { (0, 1) } else { (last - 1, last - 2) };
    let ((w, s), (v, r)) = ((width(own), slope(own)), (width(next), slope(next)));
    let end = ((2.0 * w + v) * s - w * r) / (w + v);
    match end {
        end if end * s <= 0.0 => 0.0,
        end if s * r <= 0.0 && end.abs() > 3.0 * s.abs() => 3.0 * s,
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::{LoadCurve, Test};
    use weir_workload::Latency;

    /// Points of sizes in KiB at which 24 commands take so many microseconds.
    fn points(of: &[(u32, f64)]) -> Vec<LoadCurve> {
        let point = |(size, us): &(u32, f64)| {
            let test = |depth: u32, us: f64| {
                let latency = Latency { mean: us * 1e3, p50: (us * 1e3) as u64, ..Latency::default() };
                Test { depth, iops: f64::from(depth) / us * 1e6, latency, ..Test::default() }
            };
            LoadCurve::new(size << 10, 75, [test(1, us / 3.0), test(24, *us)].to_vec()).unwrap()
        };
        of.iter().map(point).collect()
    }

    fn at<T: Towards>(known: &[LoadCurve], kib: u32, of: impl Fn(&LoadCurve) -> T) -> T {
        on_curve(known, |p| f64::from(p.size()), f64::from(kib << 10), of)
    }

    /// Commands of 4, 16 and 64 KiB, and what 32 KiB takes: three quarters of them reads, of a drive that collects.
    #[test]
    fn a_size_between_follows_the_bend() {
        let known = points(&[(4, 198.3), (16, 593.1), (64, 1378.3)]);
        let cycle = |size: u32| at(&known, size, |p| p.cycle(24.0)) * 1e6;
        let off = cycle(32) / 969.6 - 1.0;
        assert!(off.abs() < 0.05, "{} us", cycle(32));
        let chord = 593.1 + (1378.3 - 593.1) / 3.0;
        assert!(chord / 969.6 - 1.0 < -0.1, "a straight line would do: {chord} us");
        assert!(
            (cycle(16) - 593.1).abs() < 1e-6 && (cycle(2) - 198.3).abs() < 1e-6 && (cycle(128) - 1378.3).abs() < 1e-6
        );
        let latency = at(&known, 32, |p| p.latency(24.0));
        assert!((latency.mean / cycle(32) / 1e3 - 1.0).abs() < 1e-6 && latency.p50 > 593_100, "{latency:?}");
    }

    #[test]
    fn a_straight_line_stays_one() {
        let known = points(&[(4, 100.0), (16, 220.0), (64, 700.0)]);
        for size in [8u32, 12, 24, 32, 48] {
            let us = at(&known, size, |p| p.cycle(24.0)) * 1e6;
            assert!((us - 60.0 - 10.0 * f64::from(size)).abs() < 1e-6, "{size} KiB: {us}");
        }
    }
}
