//! The cases: drives, settings and tenants drawn from a seed.

use super::FlashDrive;
use std::rc::Rc;
use weir_arbiter::{ArbiterSettings, Burst, Mechanism, Quanta, Weights};
use weir_controller::Cost;
use weir_plan::{Demand, DriveModel, Forecast, PlanTenant, Setting, forecast};
use weir_units::{Class, Nanos, Rates};
use weir_workload::{Arrival, Mix, Pattern, Rate, Xoshiro256};

/// A drive, how it arbitrates, and who shares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Of every command; of flash what it was measured to be alone.
    pub latency: Nanos,
    /// What is inside, where it is no fixed latency.
    pub flash: Option<Rc<FlashDrive>>,
    /// Commands in flight.
    pub slots: u32,
    /// Bytes in flight.
    pub slot_bytes: u64,
    /// How it arbitrates.
    pub setting: Setting,
    /// Who shares it.
    pub tenants: Vec<PlanTenant>,
    /// Of the simulation.
    pub seed: u64,
}

/// Which loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// Closed loops that never run out, beside open loops that ask for a part of their share, or for more than it.
    Deep,
    /// Closed loops of 1 to 64 commands, of which some run out.
    Shallow,
    /// As `Deep`, with floors above what the class would give, and ceilings.
    Promised,
    /// Nothing but open loops, which leave some of the drive unused.
    Open,
}

/// What is asked of a flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// All tenants ask for one size and one mix of reads and writes: what was measured.
    Alike,
    /// Reads, of different sizes.
    Sizes,
    /// One size; some read, some write, some do both.
    Mixes,
}

/// So many cases on a flash drive, loads as in [`Loads::Deep`].
pub fn flash_cases(seed: u64, count: usize, beside: Beside, drive: &Rc<FlashDrive>) -> impl Iterator<Item = Case> {
    let mut rng = Xoshiro256::new(seed);
    let drive = drive.clone();
    (0..count).map(move |_| case_of(&mut rng, Loads::Deep, Some((&drive, beside))))
}

/// So many cases of them.
pub fn cases(seed: u64, count: usize, loads: Loads) -> impl Iterator<Item = Case> {
    let mut rng = Xoshiro256::new(seed);
    (0..count).map(move |_| case(&mut rng, loads))
}

fn one<T: Copy>(rng: &mut Xoshiro256, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn case(rng: &mut Xoshiro256, loads: Loads) -> Case {
    case_of(rng, loads, None)
}

fn case_of(rng: &mut Xoshiro256, loads: Loads, flash: Option<(&Rc<FlashDrive>, Beside)>) -> Case {
    let mechanism = one(rng, &[Mechanism::Wrr, Mechanism::Wrr, Mechanism::Drr, Mechanism::Drr, Mechanism::Rr]);
    let mut weight = |of: &[u16]| one(rng, of);
    let weights =
        Weights { high: weight(&[16, 32, 64, 100]), medium: weight(&[8, 16, 24, 32]), low: weight(&[2, 4, 8, 16]) };
    let mut quantum = |of: &[u32]| one(rng, of) << 10;
    let quanta = Quanta {
        high: quantum(&[64, 128, 256, 384]),
        medium: quantum(&[32, 64, 96, 128]),
        low: quantum(&[8, 16, 32, 64]),
    };
    let burst = one(rng, &[Burst::NoLimit, Burst::NoLimit, Burst::Log2(0), Burst::Log2(2)]);
    let setting = Setting { arbiter: ArbiterSettings { mechanism, weights, quanta, burst }, cost: Cost::Bytes };
    let mut latency = Nanos::from_micros(one(rng, &[20, 50, 100]));
    let (mut slots, mut slot_bytes) = (one(rng, &[16, 32, 64, 64, 128]), one(rng, &[1u64, 2, 4, 4]) << 20);
    let mut drive = DriveModel::fixed(latency, slots, slot_bytes);
    let count = 2 + rng.below(4);
    let mut tenants: Vec<PlanTenant> = (0..count).map(|i| tenant(rng, i, loads)).collect();
    if let Some((flash, beside)) = flash {
        drive = flash.drive().clone();
        (slots, slot_bytes) = (drive.slots(), drive.slot_bytes());
        on_flash(rng, beside, &mut tenants);
        latency = Nanos((drive.service(&tenants[0].demand) * 1e9) as u64);
    }
    for tenant in tenants.iter_mut().filter(|t| t.class == Class::Urgent) {
        // Of the whole drive: urgent has no share.
        let part = 0.02 + rng.below(20) as f64 / 100.0;
        let rate = drive.capacity(&tenant.demand) * part;
        tenant.demand = open(&tenant.demand, rate, rng);
    }
    // What each asks for in an open loop is a part of what it has for certain.
    let certain = forecast(&drive, &setting, &tenants);
    let all: f64 = certain.tenants.iter().map(|t| t.iops).sum();
    for (tenant, certain) in tenants.iter_mut().zip(&certain.tenants) {
        if tenant.class != Class::Urgent && (loads == Loads::Open || rng.below(100) < 40) {
            // Away from 1, where a queue needs longer to settle than anybody would simulate.
            let parts: &[f64] = match loads {
                Loads::Open => &[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95],
                // What flash delivers changes by a tenth while its garbage becomes that of the load: near 1 that makes a backlog.
                _ if flash.is_some() => &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
                _ => &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.1, 1.3],
            };
            let part = one(rng, parts);
            let rate = certain.guaranteed * part;
            tenant.demand = open(&tenant.demand, rate, rng);
            if rate < all / 25.0 {
                // So few that chance alone would move them by more than the model may be off.
                tenant.demand.arrival = Arrival::Fixed;
            }
        }
    }
    if loads == Loads::Promised {
        promise(&mut tenants, &certain, &drive, rng);
    }
    let flash = flash.map(|(flash, _)| flash.clone());
    Case { latency, flash, slots, slot_bytes, setting, tenants, seed: rng.next_u64() }
}

/// Gives tenants the requests that a flash drive was measured with.
fn on_flash(rng: &mut Xoshiro256, beside: Beside, tenants: &mut [PlanTenant]) {
    let (size, mix) = (one(rng, &FlashDrive::SIZES), one(rng, &FlashDrive::MIXES));
    for tenant in tenants {
        let demand = &mut tenant.demand;
        let size = if beside == Beside::Sizes { one(rng, &FlashDrive::SIZES) } else { size };
        demand.sizes = Mix::one(size);
        demand.pattern.read_percent = match beside {
            Beside::Alike => mix,
            Beside::Sizes => 100,
            Beside::Mixes => one(rng, &FlashDrive::MIXES),
        };
    }
}

fn tenant(rng: &mut Xoshiro256, at: u64, loads: Loads) -> PlanTenant {
    let class = match rng.below(100) {
        0..5 => Class::Urgent,
        5..40 => Class::High,
        40..70 => Class::Medium,
        _ => Class::Low,
    };
    let sizes: &[&str] = &[
        "4KiB",
        "4KiB",
        "4KiB",
        "8KiB",
        "16KiB",
        "32KiB",
        "64KiB",
        "128KiB",
        "4KiB:50/8KiB:50",
        "4KiB:70/64KiB:30",
        "8KiB:90/128KiB:10",
    ];
    let sizes: Mix = one(rng, sizes).parse().expect("a mix");
    let demand = Demand {
        pattern: Pattern { read_percent: one(rng, &[100, 70, 0]), random: true, trim: false },
        sizes,
        queues: one(rng, &[1, 1, 1, 2, 4]),
        depth: if loads == Loads::Shallow { one(rng, &[1, 2, 4, 8, 16, 32, 64]) } else { one(rng, &[128, 128, 256]) },
        rate: None,
        arrival: Arrival::Fixed,
    };
    let mut tenant = PlanTenant::new(&format!("t{at}"), class, demand);
    tenant.weight = one(rng, &[1, 1, 1, 2, 3]);
    tenant
}

fn open(demand: &Demand, rate: f64, rng: &mut Xoshiro256) -> Demand {
    let rate = Some(Rate::Iops(rate.max(1.0) as u64));
    let arrival = one(rng, &[Arrival::Fixed, Arrival::Poisson, Arrival::Poisson]);
    Demand { rate, depth: 1024, queues: 1, arrival, ..demand.clone() }
}

/// The last tenant gets a floor of up to three times what is guaranteed to it, at most a third of the drive; the first a ceiling.
fn promise(tenants: &mut [PlanTenant], certain: &Forecast, drive: &DriveModel, rng: &mut Xoshiro256) {
    let alone = tenants.last().map_or(0.0, |tenant| drive.capacity(&tenant.demand));
    let most = certain.flow.rates.iter().sum::<f64>().min(alone) / 3.0;
    let iops = |rate: f64| Rates { iops: Some((rate as u64).max(1)), bandwidth: None };
    if let (Some(tenant), Some(certain)) = (tenants.last_mut(), certain.tenants.last()) {
        tenant.floor = iops((certain.guaranteed * one(rng, &[0.5, 1.5, 2.0, 3.0])).min(most));
    }
    if let (Some(tenant), Some(certain)) = (tenants.first_mut(), certain.tenants.first()) {
        tenant.ceiling = iops(certain.guaranteed * one(rng, &[0.3, 0.6, 0.9, 2.0]));
    }
}
