//! A drive whose inside goes on by itself until something is known, and the same drive that is ticked at each of its events.

use std::any::Any;
use weir_config::DeviceConfig;
use weir_controller::{Operation, SubsystemConfig, TenantConfig, TimingModel};
use weir_drive::FlashService;
use weir_flash::{Precondition, When};
use weir_sim::{Setup, SimulatedClient, SimulatedDrive};
use weir_units::{Class, Nanos};
use weir_workload::Job;

/// How far the inside goes by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ahead {
    /// As the flash does it.
    Flash,
    /// Event by event, as a service has it that says nothing else.
    Default,
    /// Not at all.
    Never,
}

/// The flash, which hears of time as `ahead` says.
#[derive(Debug)]
struct Ticked {
    flash: FlashService,
    ahead: Ahead,
    asked: u64,
}

impl TimingModel for Ticked {
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        self.flash.begin(now, operation)
    }
    fn later_of(&mut self, a: When, b: When) -> When {
        self.flash.later_of(a, b)
    }
    fn tell(&mut self, when: When, tag: u64) {
        self.flash.tell(when, tag);
    }
    fn told(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        self.asked += 1;
        self.flash.told(now)
    }
    fn told_before(&mut self, until: Nanos) -> Option<(u64, Nanos)> {
        match self.ahead {
            Ahead::Flash => self.flash.told_before(until),
            Ahead::Never => None,
            Ahead::Default => loop {
                let at = self.next_event().filter(|at| *at < until)?;
                let told = self.told(at);
                if told.is_some() {
                    return told;
                }
            },
        }
    }
    fn next_event(&self) -> Option<Nanos> {
        self.flash.next_event()
    }
    fn cost(&self, operation: Operation) -> u32 {
        self.flash.cost(operation)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A reader, a writer with a rate, and one that asks seldom: what came out, and how often the inside was asked.
fn run(profile: &str, ahead: Ahead) -> (String, u64) {
    let device = DeviceConfig::from_query(profile, "capacity=1GiB").unwrap_or_else(|e| panic!("{e}"));
    let flash = device.flash.clone().unwrap_or_else(|| panic!("{profile} is no flash"));
    let service = FlashService::new(&flash.config, Precondition::Steady, Nanos(0)).unwrap();
    let mut config: SubsystemConfig = weir_drive::machine_config(&device);
    let jobs =
        ["name=a,rw=randread,qd=16", "name=b,rw=randrw:30,rate=20000,bs=4KiB:50/16KiB:50", "name=c,rw=randwrite,qd=2"];
    let jobs: Vec<Job> = jobs.iter().map(|text| Job::parse(text, &Job::default()).unwrap()).collect();
    config.tenants = jobs.iter().map(|job| TenantConfig::new(&job.name, Class::Medium)).collect();
    let clients = jobs.iter().enumerate().map(|(i, job)| SimulatedClient::new(job, i as u16)).collect();
    let mut setup = Setup::new(1 << 30, clients, 3);
    (setup.ramp, setup.series) = (Nanos::from_millis(3), Some(Nanos::from_millis(5)));
    let mut world =
        SimulatedDrive::with(config, Some(Box::new(Ticked { flash: service, ahead, asked: 0 })), setup).unwrap();
    // In pieces, so that what was gone ahead for is met by what ends a piece.
    (1..=30).for_each(|piece| world.run_until(Nanos::from_millis(piece)));
    world.check();
    let inside = world.inside().and_then(|inside| inside.as_any().downcast_ref::<Ticked>()).unwrap();
    let stats = *inside.flash.flash().stats();
    let all = format!("{:x} {} {:?} {:?}", world.digest(), world.answers(), world.results(), stats);
    (all, inside.asked)
}

#[test]
fn answers_are_the_same_however_far_the_inside_goes_by_itself() {
    for profile in ["mqsim-default", "p3700", "femu-bbssd"] {
        let (ahead, asked) = run(profile, Ahead::Flash);
        let (by_events, _) = run(profile, Ahead::Default);
        let (ticked, at_each) = run(profile, Ahead::Never);
        assert_eq!(ahead, ticked, "{profile}");
        assert_eq!(by_events, ticked, "{profile}, event by event");
        // A drive whose channels are booked knows all ends at once.
        assert!(profile == "femu-bbssd" || asked < at_each, "{profile}: asked {asked} times of {at_each}");
    }
}
