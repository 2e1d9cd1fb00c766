//! Where a random request goes, if not everywhere alike: Zipf's law, or zones of which some are hot.

use crate::math::pow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use weir_units::rng::Xoshiro256;

use crate::job::JobError;

/// How random requests spread over their region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Skew {
    /// Every place is as likely as any other.
    #[default]
    Uniform,
    /// The place of rank i is asked for in proportion to 1/i^θ; ranks lie scattered over the region.
    Zipf(Theta),
    /// The region is cut into zones, each with its share of the requests.
    Zones(Zones),
}

/// The exponent of Zipf's law, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theta(u32);

impl Theta {
    /// From 0.01 to 5; `None` beyond.
    pub fn new(theta: f64) -> Option<Theta> {
        (0.01..=5.0).contains(&theta).then_some(Theta((theta * 1e6 + 0.5) as u32))
    }
    /// As a number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

/// A number from 0.01 to 5.
impl FromStr for Theta {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        let theta = s.parse::<f64>().ok().and_then(Theta::new);
        theta.ok_or_else(|| JobError::new(format!("zipf: \"{s}\" is not a number from 0.01 to 5")))
    }
}

/// Zones from the start of the region on: percent of the requests, percent of the space; both sum to 100.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones(Vec<(u8, u8)>);

/// `80/20`: 80 % of the requests to the first 20 % of the region; `60/10:30/20:10/70` for more zones than two. What is
/// left of requests and space is one more zone.
impl FromStr for Zones {
    type Err = JobError;
    fn from_str(s: &str) -> Result<Self, JobError> {
        let mut zones = Vec::new();
        let (mut requests, mut space) = (0u32, 0u32);
        for zone in s.split(':') {
            let percent = |text: &str| text.parse::<u8>().ok().filter(|p| *p <= 100);
            let parsed = zone.split_once('/').and_then(|(a, b)| Some((percent(a)?, percent(b).filter(|b| *b > 0)?)));
            let Some((share, part)) = parsed else {
                let what = format!("hot: \"{zone}\" is not REQUESTS/SPACE in percent, like 80/20");
                return Err(JobError::new(what));
            };
            requests += u32::from(share);
            space += u32::from(part);
            zones.push((share, part));
        }
        match (requests, space) {
            (100, ..=100) => {}
            (..=99, ..=99) => zones.push((100 - requests as u8, 100 - space as u8)),
            _ => {
                let what = format!("hot: \"{s}\" gives {requests} % of the requests to {space} % of the space");
                return Err(JobError::new(what + "; what is left of the requests needs space that is left"));
            }
        }
        Ok(Zones(zones))
    }
}

impl fmt::Display for Zones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (share, part)) in self.0.iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{share}/{part}")?;
        }
        Ok(())
    }
}

/// Draws places, counted from 0.
#[derive(Clone, Debug)]
pub(crate) enum PlaceSampler {
    Zipf(Zipf),
    /// Share of this and all earlier zones scaled to 2^32, first place, places.
    Zones(Vec<(u64, u64, u64)>),
}

impl PlaceSampler {
    /// Over `n` places; `None` for the uniform case, which needs no table.
    pub fn new(skew: &Skew, n: u64) -> Result<Option<PlaceSampler>, String> {
        match skew {
            Skew::Uniform => Ok(None),
            Skew::Zipf(theta) => Ok(Some(PlaceSampler::Zipf(Zipf::new(theta.get(), n)))),
            Skew::Zones(zones) => zoned(zones, n).map(Some),
        }
    }

    #[inline]
    pub fn draw(&self, rng: &mut Xoshiro256) -> u64 {
        match self {
            PlaceSampler::Zipf(zipf) => zipf.draw(rng),
            PlaceSampler::Zones(zones) => {
                let draw = rng.next_u64() >> 32;
                let found = zones.iter().find(|(below, ..)| draw < *below).or(zones.last());
                found.map_or(0, |(_, first, places)| first + rng.below(*places))
            }
        }
    }
}

fn zoned(zones: &Zones, n: u64) -> Result<PlaceSampler, String> {
    let (mut below, mut space, mut list) = (0u64, 0u64, Vec::new());
    for (share, part) in &zones.0 {
        let first = (u128::from(n) * u128::from(space) / 100) as u64;
        (below, space) = (below + u64::from(*share), space + u64::from(*part));
        let places = (u128::from(n) * u128::from(space) / 100) as u64 - first;
        if places == 0 {
            return Err(format!("the zone {share}/{part} of hot has not one request's place in the region"));
        }
        list.push(((below << 32) / 100, first, places));
    }
    Ok(PlaceSampler::Zones(list))
}

/// Ranks that have a probability of their own.
const EXACT: u64 = 1024;
/// Further ranks are taken together while they differ by less than this part.
const PART: u64 = 128;

/// Zipf's law over n places by Walker's alias method: two random numbers a draw whatever n is. The first 1024 ranks are
/// exact; behind them ranks within 1/128 of each other are equally likely, which is off by less than θ/256 each way.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    buckets: Vec<Bucket>,
    n: u64,
    bits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The bucket keeps draws below this, scaled to 2^32; the others go to its alias.
    keep: u64,
    alias: u32,
    first: u64,
    ranks: u64,
}

impl Zipf {
    fn new(theta: f64, n: u64) -> Zipf {
        let (mut buckets, mut weights, mut first) = (Vec::new(), Vec::new(), 0);
        while first < n {
            let ranks = if first < EXACT { 1 } else { (first / PART).min(n - first) };
            let middle = first as f64 + 1.0 + (ranks - 1) as f64 / 2.0;
            weights.push(ranks as f64 * pow(middle, -theta));
            buckets.push(Bucket { keep: 1 << 32, alias: 0, first, ranks });
            first += ranks;
        }
        alias(&mut buckets, weights);
        Zipf { buckets, n, bits: (64 - n.saturating_sub(1).leading_zeros()).max(2) }
    }

    #[inline]
    fn draw(&self, rng: &mut Xoshiro256) -> u64 {
        let draw = rng.next_u64();
        let mut at = (((draw >> 32) * self.buckets.len() as u64) >> 32) as usize;
        if draw & 0xffff_ffff >= self.buckets[at].keep {
            at = self.buckets[at].alias as usize;
        }
        let bucket = &self.buckets[at];
        let rank = if bucket.ranks == 1 { bucket.first } else { bucket.first + rng.below(bucket.ranks) };
        self.scatter(rank)
    }

    /// A fixed permutation of the places, so that what is hot does not lie side by side. Multiplying by an odd number and
    /// folding the upper half down are bijections of 2^bits numbers; whoever lands behind the last place goes on.
    #[inline]
    fn scatter(&self, rank: u64) -> u64 {
        let (mask, half) = (u64::MAX >> (64 - self.bits), self.bits / 2);
        let mut x = rank;
        loop {
            x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
            x ^= x >> half;
            x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
            x ^= x >> half;
            if x < self.n {
                return x;
            }
        }
    }
}

/// Walker's tables in Vose's way: buckets with too little are filled up from buckets with too much.
fn alias(buckets: &mut [Bucket], weights: Vec<f64>) {
    let n = buckets.len();
    let sum: f64 = weights.iter().sum();
    let mut parts: Vec<f64> = weights.into_iter().map(|w| w / sum * n as f64).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..n).partition(|i| parts[*i] < 1.0);
    while let (Some(s), Some(l)) = (small.pop(), large.pop()) {
        buckets[s].keep = (parts[s] * 4_294_967_296.0) as u64;
        buckets[s].alias = l as u32;
        parts[l] -= 1.0 - parts[s];
        if parts[l] < 1.0 { small.push(l) } else { large.push(l) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn counts(skew: &Skew, n: u64, draws: u32) -> Vec<u32> {
        let places = PlaceSampler::new(skew, n).unwrap().unwrap();
        let mut rng = Xoshiro256::new(7);
        let mut seen = std::vec![0u32; n as usize];
        for _ in 0..draws {
            seen[places.draw(&mut rng) as usize] += 1;
        }
        seen
    }

    #[test]
    fn scatter_is_a_permutation() {
        for n in [1u64, 2, 3, 7, 8, 1000, 4096, 5000] {
            let zipf = Zipf::new(0.9, n);
            let mut seen = std::vec![false; n as usize];
            for rank in 0..n {
                let place = zipf.scatter(rank) as usize;
                assert!(!core::mem::replace(&mut seen[place], true), "{n}: two ranks at {place}");
            }
        }
    }

    #[test]
    fn zipf_has_its_frequencies() {
        for (theta, n) in [(0.5, 2000u64), (0.99, 100_000), (1.2, 50_000), (2.0, 10)] {
            let zipf = Zipf::new(theta, n);
            let draws = 2_000_000;
            let seen = counts(&Skew::Zipf(Theta::new(theta).unwrap()), n, draws);
            let norm: f64 = (1..=n).map(|i| (i as f64).powf(-theta)).sum();
            for k in [1u64, 3, 10, n / 100, n / 10, n / 3].into_iter().filter(|k| *k > 0) {
                let want: f64 = (1..=k).map(|i| (i as f64).powf(-theta)).sum::<f64>() / norm;
                let got: u32 = (0..k).map(|rank| seen[zipf.scatter(rank) as usize]).sum();
                let got = f64::from(got) / f64::from(draws);
                assert!((got - want).abs() < 0.002, "θ {theta}, n {n}, first {k}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn zones_have_their_shares() {
        let zones: Zones = "80/20".parse().unwrap();
        assert_eq!(zones.to_string(), "80/20:20/80");
        let seen = counts(&Skew::Zones(zones), 1000, 100_000);
        let hot: u32 = seen[..200].iter().sum();
        assert!((79_000..81_000).contains(&hot), "{hot}");
        let seen = counts(&Skew::Zones("0/50:100/10".parse().unwrap()), 1000, 1000);
        assert_eq!(seen[500..600].iter().sum::<u32>(), 1000, "a zone may be left alone, and so may the end");
    }

    #[test]
    fn what_is_no_skew() {
        for text in ["", "80", "80/0", "101/20", "80/20:30/10", "80/90:10/20", "80/100", "a/b", "80/20:"] {
            assert!(text.parse::<Zones>().unwrap_err().to_string().starts_with("hot: "), "{text}");
        }
        for text in ["", "0", "-1", "6", "x", "NaN", "inf"] {
            assert!(text.parse::<Theta>().unwrap_err().to_string().starts_with("zipf: "), "{text}");
        }
        assert!(PlaceSampler::new(&Skew::Zones("80/1".parse().unwrap()), 50).unwrap_err().contains("80/1"));
    }
}
