//! The search for shares that keep every promise, and then for the smallest of them.
//!
//! A tenant's room grows with its share and shrinks with the others', so the shares that leave most room to whoever has least
//! are those that leave the same room to all: the balance. It is found by moving shares from who has room to who has not. What
//! fits is then made as small as it may be.

use super::TenantPlan;
use super::bound::{Got, room};
use super::shares::{QUANTUM, ShareFractions, Shares, apportion};
use alloc::vec;
use alloc::vec::Vec;
use weir_arbiter::Mechanism;
use weir_units::Class;

/// What is searched, and within which bounds.
pub(super) struct Search<'a> {
    plans: &'a [TenantPlan],
    classes: Vec<Class>,
    mechanism: Mechanism,
}

/// Shares, and each tenant's room under them; `None` where nothing was promised.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub shares: Shares,
    pub rooms: Vec<Option<f64>>,
}

impl Tried {
    /// Of whoever has least.
    pub fn least(&self) -> f64 {
        self.rooms.iter().flatten().copied().fold(f64::INFINITY, f64::min)
    }
}

/// The room that a class without promises is taken to have: it gives way until the others have as much.
const GENEROUS: f64 = 2.0;
/// The most by which one step changes a share.
const STRIDE: f64 = 3.0;
/// The part of a step's change that is made.
const PACE: f64 = 0.6;
/// Rooms this near to each other are balanced.
const BALANCED: f64 = 0.005;
/// What classes' numbers sum up to in the search for the balance: fine enough, and rounds not too long.
const FINE: u32 = 64;
/// Sums of classes' numbers of which every composition is tried.
const ALL_UP_TO: u32 = 14;
/// Sums of which only what lies beside the balance is tried.
const NEAR_UP_TO: u32 = 56;
/// The most of a class, in commands or in what one costs at the least.
const MOST: u32 = 128;
/// Numbers of which every ratio is tried where nothing else has helped: steps of at most a third up to the widest.
pub(super) const WIDTHS: [u32; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, WIDEST];
/// The widest ratio of two classes.
pub(super) const WIDEST: u32 = 64;
/// The most that tenants' weights of a class sum up to, for each of them.
const TENANT_STEPS: u32 = 8;

impl<'a> Search<'a> {
    pub fn new(plans: &'a [TenantPlan], mechanism: Mechanism) -> Self {
        Search { plans, classes: plans.iter().map(|p| p.tenant.class).collect(), mechanism }
    }

    /// Whether there is anything to choose: classes that weigh, or tenants inside one.
    pub fn has_choice(&self) -> bool {
        let used = Class::WEIGHTED.iter().filter(|c| self.classes.contains(c)).count();
        match self.mechanism {
            Mechanism::Wrr => used > 1,
            Mechanism::Drr => used > 1 || Class::WEIGHTED.iter().any(|c| self.weighs(*c)),
            Mechanism::Rr | Mechanism::None => false,
        }
    }

    /// Whether tenants of the class weigh against each other.
    fn weighs(&self, class: Class) -> bool {
        let several = self.classes.iter().filter(|c| **c == class).count() > 1;
        several && class != Class::Urgent && self.mechanism == Mechanism::Drr
    }

    /// Where to begin without knowing anything.
    pub fn even(&self) -> ShareFractions {
        ShareFractions::even(&self.classes)
    }

    /// Every tenant's room.
    pub fn rooms(&self, got: &[Got]) -> Vec<Option<f64>> {
        self.plans.iter().zip(got).map(|(plan, got)| room(&plan.sla, got)).collect()
    }

    /// Parts as small numbers: classes' sum to `sum` of what a command costs, tenants' to twice their number.
    pub fn rounded(&self, parts: &ShareFractions, sum: u32) -> Shares {
        Shares { classes: parts.whole(sum).map(|n| n * self.unit()), tenants: self.tenants(parts, 4) }
    }

    /// Parts as numbers that are fine enough to stand for them.
    fn fine(&self, parts: &ShareFractions) -> Shares {
        let classes = parts.whole(FINE).map(|n| n * self.unit());
        Shares { classes, tenants: self.tenants(parts, TENANT_STEPS) }
    }

    /// What classes' shares are counted in: commands, or bytes.
    fn unit(&self) -> u32 {
        if self.mechanism == Mechanism::Drr { QUANTUM } else { 1 }
    }

    /// Tenants' weights by their parts, `steps` for each tenant of a class, in lowest terms.
    fn tenants(&self, parts: &ShareFractions, steps: u32) -> Vec<u16> {
        let mut weights = vec![1; self.classes.len()];
        for class in Class::WEIGHTED.into_iter().filter(|c| self.weighs(*c)) {
            let own: Vec<usize> = (0..weights.len()).filter(|i| self.classes[*i] == class).collect();
            let of: Vec<f64> = own.iter().map(|i| parts.tenants[*i]).collect();
            let numbers = apportion(&of, (steps * own.len() as u32).min(256));
            let terms = numbers.iter().copied().fold(0, gcd).max(1);
            own.into_iter().zip(numbers).for_each(|(i, n)| weights[i] = (n / terms) as u16);
        }
        weights
    }

    /// Moves shares until all have the same room or `steps` are done; the best that was seen, and the parts behind it.
    pub fn balance<E>(
        &self,
        mut parts: ShareFractions,
        steps: u32,
        enough: f64,
        mut judge: impl FnMut(&Shares) -> Result<Vec<Option<f64>>, E>,
    ) -> Result<(ShareFractions, Tried), E> {
        let mut best: Option<(ShareFractions, Tried)> = None;
        for _ in 0..steps.max(1) {
            let shares = self.fine(&parts);
            let tried = Tried { rooms: judge(&shares)?, shares };
            let least = tried.least();
            if best.as_ref().is_none_or(|(_, b)| least > b.least()) {
                best = Some((parts.clone(), tried.clone()));
            }
            if least >= enough || !self.step(&mut parts, &tried.rooms) {
                break;
            }
        }
        Ok(best.expect("one step at least was made"))
    }

    /// One move towards the balance; false where it is there.
    fn step(&self, parts: &mut ShareFractions, rooms: &[Option<f64>]) -> bool {
        let of_class = |class: Class| {
            let own = rooms.iter().zip(&self.classes).filter(|(_, c)| **c == class);
            own.filter_map(|(room, _)| *room).reduce(f64::min).unwrap_or(GENEROUS)
        };
        let mut moved = false;
        let before = parts.clone();
        let weighted = Class::WEIGHTED.into_iter().zip(&mut parts.classes).filter(|(_, part)| **part > 0.0);
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for (class, part) in weighted {
            let room = of_class(class);
            (low, high) = (low.min(room), high.max(room));
            *part /= room.clamp(1.0 / STRIDE, STRIDE);
        }
        moved |= high > low * (1.0 + BALANCED);
        for class in Class::WEIGHTED.into_iter().filter(|c| self.weighs(*c)) {
            let own = (0..rooms.len()).filter(|i| self.classes[*i] == class);
            let (mut low, mut high) = (f64::INFINITY, 0.0f64);
            for i in own {
                let room = rooms[i].unwrap_or(GENEROUS);
                (low, high) = (low.min(room), high.max(room));
                parts.tenants[i] /= room.clamp(1.0 / STRIDE, STRIDE);
            }
            moved |= high > low * (1.0 + BALANCED);
        }
        parts.normalise(&self.classes);
        let pace = |to: &mut f64, from: &f64| *to = from + (*to - from) * PACE;
        parts.classes.iter_mut().zip(&before.classes).for_each(|(to, from)| pace(to, from));
        parts.tenants.iter_mut().zip(&before.tenants).for_each(|(to, from)| pace(to, from));
        moved
    }

    /// The same with rounds that are so many times as long, as far as the numbers go.
    pub fn lengthened(&self, shares: &Shares, times: u32) -> Shares {
        let most = shares.classes.iter().copied().max().unwrap_or(1).max(1);
        let times = times.min(MOST * self.unit() / most).max(1);
        Shares { classes: shares.classes.map(|n| n * times), tenants: shares.tenants.clone() }
    }

    /// These shares with every ratio of the classes that somebody is in, each ratio once: numbers of [`WIDTHS`].
    pub fn all(&self, shares: &Shares) -> Vec<Shares> {
        let used: Vec<usize> = (0..3).filter(|i| self.classes.contains(&Class::WEIGHTED[*i])).collect();
        let mut all: Vec<Shares> = Vec::new();
        for number in 0..WIDTHS.len().pow(used.len() as u32) {
            let digit = |place: usize| WIDTHS[number / WIDTHS.len().pow(place as u32) % WIDTHS.len()];
            let numbers: Vec<u32> = (0..used.len()).map(digit).collect();
            if numbers.iter().copied().fold(0, gcd) == 1 {
                let mut near = shares.clone();
                used.iter().zip(numbers).for_each(|(class, n)| near.classes[*class] = n * self.unit());
                all.push(near);
            }
        }
        all
    }

    /// Shares beside these: one class, or one tenant where tenants weigh, with `step` times as much or as little, and all
    /// classes with longer or shorter rounds.
    pub fn beside(&self, shares: &Shares, step: f64) -> Vec<Shares> {
        let unit = self.unit();
        let scaled = |n: u32, factor: f64, most: f64| {
            let other = (f64::from(n) * factor + 0.5).clamp(1.0, most) as u32;
            if other == n && factor > 1.0 { other + 1 } else { other }
        };
        let used: Vec<usize> = (0..3).filter(|i| self.classes.contains(&Class::WEIGHTED[*i])).collect();
        let mut all = Vec::new();
        for factor in [step, 1.0 / step] {
            let class = |i: usize| scaled(shares.classes[i] / unit, factor, f64::from(MOST)) * unit;
            for &i in &used {
                let mut near = shares.clone();
                near.classes[i] = class(i);
                all.push(near);
            }
            for i in (0..self.classes.len()).filter(|i| self.weighs(self.classes[*i])) {
                let mut near = shares.clone();
                near.tenants[i] = scaled(near.tenants[i].into(), factor, 64.0) as u16;
                all.push(near);
            }
            let mut near = shares.clone();
            used.iter().for_each(|i| near.classes[*i] = class(*i));
            all.push(near);
        }
        all.retain(|near| near != shares);
        all
    }

    /// The smallest shares near the balance that leave everybody `least` room; of equally small ones those that leave most. `None`
    /// where only the balance itself does, or not even that.
    pub fn smallest<E>(
        &self,
        parts: &ShareFractions,
        least: f64,
        mut judge: impl FnMut(&Shares) -> Result<Vec<Option<f64>>, E>,
    ) -> Result<Option<Tried>, E> {
        let mut ask = |shares: Shares| Ok(Tried { rooms: judge(&shares)?, shares });
        let tenants = self.smallest_tenants(parts, least, &mut ask)?;
        let used: Vec<usize> = (0..3).filter(|i| parts.classes[*i] > 0.0).collect();
        let unit = self.unit();
        let first = used.len().max(1) as u32;
        for sum in first..=ALL_UP_TO {
            let mut best: Option<Tried> = None;
            for classes in compositions(sum, &used) {
                let tried = ask(Shares { classes: classes.map(|n| n * unit), tenants: tenants.clone() })?;
                if tried.least() >= least && best.as_ref().is_none_or(|b| tried.least() > b.least()) {
                    best = Some(tried);
                }
            }
            if best.is_some() || used.len() < 2 {
                return Ok(best);
            }
        }
        for sum in ALL_UP_TO + 1..=NEAR_UP_TO {
            for classes in near(parts, sum, &used) {
                let tried = ask(Shares { classes: classes.map(|n| n * unit), tenants: tenants.clone() })?;
                if tried.least() >= least {
                    return Ok(Some(tried));
                }
            }
        }
        Ok(None)
    }

    /// Each class's smallest weights of tenants, the other classes' as fine as they are in the balance.
    fn smallest_tenants<E>(
        &self,
        parts: &ShareFractions,
        least: f64,
        ask: &mut impl FnMut(Shares) -> Result<Tried, E>,
    ) -> Result<Vec<u16>, E> {
        let fine = self.fine(parts);
        let mut weights = fine.tenants.clone();
        for class in Class::WEIGHTED.into_iter().filter(|c| self.weighs(*c)) {
            let own: Vec<usize> = (0..weights.len()).filter(|i| self.classes[*i] == class).collect();
            let of: Vec<f64> = own.iter().map(|i| parts.tenants[*i]).collect();
            for sum in own.len() as u32..TENANT_STEPS * own.len() as u32 {
                let mut these = weights.clone();
                own.iter().zip(apportion(&of, sum)).for_each(|(i, n)| these[*i] = n as u16);
                if ask(Shares { classes: fine.classes, tenants: these.clone() })?.least() >= least {
                    weights = these;
                    break;
                }
            }
        }
        Ok(weights)
    }
}

/// Whole numbers that sum to `sum` on both sides of the balance, in the places `used`.
fn near(parts: &ShareFractions, sum: u32, used: &[usize]) -> Vec<[u32; 3]> {
    let whole = parts.whole(sum);
    let mut all = alloc::vec![whole];
    for from in used {
        for to in used.iter().filter(|to| *to != from) {
            let mut other = whole;
            other[*to] += 1;
            other[*from] -= 1;
            if other[*from] > 0 {
                all.push(other);
            }
        }
    }
    all
}

/// Every way to write `sum` as whole numbers of at least 1 in the places `used`, the others 1; those that are a smaller one's
/// multiple are left out.
fn compositions(sum: u32, used: &[usize]) -> Vec<[u32; 3]> {
    let mut all = Vec::new();
    let mut put = |numbers: &[u32]| {
        if numbers.iter().copied().fold(0, gcd) == 1 {
            let mut classes = [1; 3];
            used.iter().zip(numbers).for_each(|(i, n)| classes[*i] = *n);
            all.push(classes);
        }
    };
    match used.len() {
        0 => put(&[1]),
        1 if sum == 1 => put(&[1]),
        2 => (1..sum).for_each(|a| put(&[a, sum - a])),
        3 => (1..sum - 1).for_each(|a| (1..sum - a).for_each(|b| put(&[a, b, sum - a - b]))),
        _ => {}
    }
    all
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compositions_are_all_and_in_lowest_terms() {
        assert_eq!(compositions(3, &[0, 2]), [[1, 1, 2], [2, 1, 1]]);
        assert_eq!(compositions(4, &[0, 1]), [[1, 3, 1], [3, 1, 1]], "2:2 is 1:1");
        assert_eq!(compositions(4, &[0, 1, 2]).len(), 3);
        assert_eq!(compositions(6, &[0, 1, 2]).len(), 9, "ten, and 2:2:2 is 1:1:1");
        assert_eq!(compositions(1, &[1]), [[1, 1, 1]]);
        assert!(compositions(2, &[1]).is_empty());
    }
}
