//! A flash drive's inside as the drive's machine asks for it: bytes become 4 KiB units.

use std::any::Any;
use std::collections::VecDeque;
use weir_config::PolicyConfig;
use weir_controller::{FlashPlace, FlashShape, Op, Operation, TimingModel};
use weir_flash::{
    ConfigError, DieBlocks, DieWork, Fdp, Flash, FlashOp, HandleWork, PowerLoss, Precondition, Stats, UNIT,
    Utilisation, WearSpread, When,
};
use weir_sys::policy_library::{InstalledPolicy, PolicyError, PolicyLibrary};
use weir_units::Nanos;

/// [`Flash`] as the [`TimingModel`] of a drive.
#[derive(Debug)]
pub struct FlashService {
    flash: Flash,
    /// Counters and utilisation count from here.
    since: Nanos,
    before: Utilisation,
    flushes: Flushes,
    collection: Collection,
    policy: Option<InstalledPolicy>,
}

/// What a drive's flash did since counting began.
#[derive(Clone, Debug)]
pub struct FlashFigures {
    /// Bytes that the host is offered.
    pub capacity: u64,
    /// Flash beyond it, as a part of it.
    pub over_provisioning: f64,
    /// Bytes programmed over bytes written by the host.
    pub write_amplification: f64,
    /// Counters, in 4 KiB units and the flash's pages.
    pub stats: Stats,
    /// What was programmed for each placement handle, where there are some.
    pub handles: Vec<HandleWork>,
    /// Erases of the blocks, since they were made.
    pub wear: WearSpread,
    /// The part of the time in which each die was busy.
    pub dies: Vec<f64>,
    /// The same of each channel.
    pub channels: Vec<f64>,
}

/// A die of a flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieFigures {
    /// How long it was busy since counting began.
    pub busy: Nanos,
    /// Its blocks.
    pub blocks: DieBlocks,
}

/// The bit of a tag that names a flush by its number, rather than who asked.
const FLUSH: u64 = 1 << 63;

/// Flush commands, by the order in which they began.
#[derive(Debug, Default)]
struct Flushes {
    begun: u64,
    done: u64,
    /// Those that are not done: their numbers, and when they will be.
    open: VecDeque<(u64, Nanos)>,
}

impl Flushes {
    /// One begins that is done at `done`: its number.
    fn begin(&mut self, now: Nanos, done: Nanos) -> u64 {
        self.settle(now);
        self.begun += 1;
        self.open.push_back((self.begun, done));
        self.begun
    }

    /// It is known when the one of that number is done.
    fn end(&mut self, number: u64, at: Nanos) {
        self.open.iter_mut().filter(|(n, _)| *n == number).for_each(|(_, done)| *done = at);
    }

    fn settle(&mut self, now: Nanos) {
        if let Some(last) = self.open.iter().rposition(|(_, done)| *done <= now) {
            self.done = self.open.drain(..=last).next_back().map_or(self.done, |(number, _)| number);
        }
    }
}

/// What collection moves for each unit that the host writes, as writes are charged for it: what it has moved lately, and a part of what was
/// charged too little so far, or less of what was charged too much. So in the long run what is charged is what is moved.
#[derive(Debug, Default)]
struct Collection {
    /// Counters when it was looked at last.
    written: u64,
    moved: u64,
    /// Thousandths of a unit: a moving average over about four blocks of each plane, since planes fill up together and collect together.
    /// At first what the drive's state lets expect.
    lately: u64,
    /// Thousandths of units that were moved and not charged yet.
    owed: i64,
    /// What is charged, in thousandths of a unit.
    rate: u64,
    /// So many units are written between two looks.
    look: u64,
}

impl Collection {
    /// Looks while a block of each plane is written, and in the time over which it averages.
    const LOOKS: u64 = 8;
    const AVERAGED: u64 = 4 * Self::LOOKS;

    fn of(flash: &Flash) -> Self {
        let blocks = u64::from(flash.shape().planes()) * u64::from(flash.shape().units_per_block());
        let rate = flash.moved_next();
        Self { look: (blocks / Self::LOOKS).max(1), lately: rate, rate, ..Self::default() }
    }

    #[inline]
    fn look(&mut self, stats: &Stats) {
        if stats.host_writes.wrapping_sub(self.written) >= self.look {
            self.take(stats);
        }
    }

    #[cold]
    fn take(&mut self, stats: &Stats) {
        // The counters have begun anew where they are less than they were.
        if let Some(written) = stats.host_writes.checked_sub(self.written) {
            let moved = stats.gc_moves.saturating_sub(self.moved).saturating_mul(1000);
            self.lately = (self.lately * (Self::AVERAGED - 1) + moved / written.max(1)) / Self::AVERAGED;
            self.owed =
                self.owed.saturating_add_unsigned(moved).saturating_sub_unsigned(self.rate.saturating_mul(written));
            let more = self.owed / (Self::AVERAGED * self.look) as i64;
            self.rate = self.lately.saturating_add_signed(more);
        }
        (self.written, self.moved) = (stats.host_writes, stats.gc_moves);
    }
}

/// One command in the flash's terms.
struct Units {
    op: FlashOp,
    /// What is submitted.
    first: u32,
    count: u32,
    /// Whether the first and the last unit are written in part.
    parts: (bool, bool),
}

impl Units {
    #[inline]
    fn of(Operation { op, offset, len, fua, .. }: Operation) -> Units {
        const MASK: u64 = UNIT as u64 - 1;
        let end = offset + u64::from(len);
        // Units that are touched, and those that are covered as a whole.
        let (first, behind) = ((offset / u64::from(UNIT)) as u32, end.div_ceil(u64::from(UNIT)) as u32);
        let whole = (offset.div_ceil(u64::from(UNIT)) as u32, (end / u64::from(UNIT)) as u32);
        let touched = |op, parts| Units { op, first, count: behind - first, parts };
        match op {
            Op::Read | Op::Compare | Op::Verify => touched(FlashOp::Read, (false, false)),
            // Of a copy this is the write; what it reads was told before.
            Op::Write | Op::Copy => touched(FlashOp::Write { fua }, (offset & MASK != 0, end & MASK != 0)),
            Op::Flush => Units { op: FlashOp::Flush, first: 0, count: 0, parts: (false, false) },
            Op::WriteZeroes { .. } | Op::Deallocate => {
                let op = if op == Op::Deallocate { FlashOp::Trim } else { FlashOp::WriteZeroes };
                Units { op, first: whole.0, count: whole.1.saturating_sub(whole.0), parts: (false, false) }
            }
        }
    }
}

/// Lends the flash what the core cannot have of itself. A map that outlives the process is put on huge pages beside the thread that serves.
fn hint(flash: &mut Flash, is_mapped: bool) {
    flash.set_prefetch(weir_sys::prefetch::prefetch);
    if !is_mapped {
        weir_sys::prefetch::on_huge_pages(flash.page_map());
    }
}

impl FlashService {
    /// Flash in that state, idle since `now`.
    ///
    /// # Errors
    /// What of the configuration does not fit.
    pub fn new(
        config: &weir_flash::FlashDriveConfig,
        state: Precondition,
        now: Nanos,
    ) -> Result<FlashService, ConfigError> {
        let mut flash = Flash::new(config, now)?;
        hint(&mut flash, false);
        if state != Precondition::Fresh {
            flash.precondition(state);
        }
        Ok(FlashService::around(flash, now))
    }

    /// Another one in the state that this one was made in, where it has worked on nothing since; see [`Flash::twin`].
    pub fn twin(&self) -> Option<FlashService> {
        let mut flash = self.flash.twin()?;
        hint(&mut flash, false);
        Some(FlashService::around(flash, self.since))
    }

    /// Becomes the [`twin`](Self::twin) of another one, whatever it has done so far, in the memory that it has; see
    /// [`Flash::become_twin`]. False, and nothing has changed, where the other one has no twins.
    pub fn become_twin(&mut self, of: &FlashService) -> bool {
        if !self.flash.become_twin(&of.flash) {
            return false;
        }
        (self.since, self.before) = (of.since, Utilisation::default());
        (self.flushes, self.collection, self.policy) = (Flushes::default(), Collection::of(&self.flash), None);
        true
    }

    /// Flash that was made or found elsewhere, idle since `now`; whether its page map lies in memory that outlives the process.
    pub fn of(mut flash: Flash, is_mapped: bool, now: Nanos) -> FlashService {
        hint(&mut flash, is_mapped);
        FlashService::around(flash, now)
    }

    fn around(flash: Flash, now: Nanos) -> FlashService {
        let collection = Collection::of(&flash);
        let (before, flushes) = (Utilisation::default(), Flushes::default());
        FlashService { flash, since: now, before, flushes, collection, policy: None }
    }

    /// The same, with a library that decides in place of the drive's own policies from now on, where `policy` names one. What the drive went
    /// through before ([`Precondition`]) was decided by its own.
    ///
    /// # Errors
    /// The library cannot be used: which one, and why.
    pub fn with_policy(mut self, policy: Option<&PolicyConfig>) -> Result<FlashService, PolicyError> {
        if let Some(policy) = policy {
            let library = PolicyLibrary::open(&policy.library)?;
            self.policy = Some(library.install(&policy.arguments, &mut self.flash)?);
        }
        Ok(self)
    }

    /// What the library that decides has failed in, if there is one and it has.
    pub fn policy_failure(&self) -> Option<String> {
        self.policy.as_ref().and_then(InstalledPolicy::failure)
    }

    /// Flush commands that have begun.
    #[inline]
    pub fn flushes(&self) -> u64 {
        self.flushes.begun
    }

    /// The number of the last one that is done at `now`, and with it all before.
    pub fn flushed(&mut self, now: Nanos) -> u64 {
        self.flushes.settle(now);
        self.flushes.done
    }

    /// A flush that no command has asked for; it is taken to be done at once.
    pub fn flush(&mut self, now: Nanos) {
        self.flash.submit(now, FlashOp::Flush, 0, 0);
        let _ = self.flushes.begin(now, now);
    }

    /// See [`Flash::power_cut`].
    pub fn power_cut(&mut self, now: Nanos, seed: u64) -> Option<PowerLoss> {
        self.flash.power_cut(now, seed)
    }

    /// The drive is being stopped.
    pub fn stop(&mut self, now: Nanos) {
        self.flash.stop(now);
    }

    /// What it is.
    pub fn flash(&self) -> &Flash {
        &self.flash
    }

    /// The same, to give it policies of its own.
    pub fn flash_mut(&mut self) -> &mut Flash {
        &mut self.flash
    }

    /// Counts from `now` on.
    pub fn reset(&mut self, now: Nanos) {
        self.flash.reset_stats();
        (self.since, self.before) = (now, self.flash.array().utilisation(now));
    }

    /// The parts of the time since counting began in which each die and each channel was busy, up to `now`.
    pub fn utilisation(&self, now: Nanos) -> (Vec<f64>, Vec<f64>) {
        let Utilisation { dies, channels } = self.flash.array().utilisation(now);
        let span = now.saturating_sub(self.since).0.max(1) as f64;
        let part = |(i, busy): (usize, &Nanos), before: &[Nanos]| {
            busy.saturating_sub(before.get(i).copied().unwrap_or_default()).0 as f64 / span
        };
        (
            dies.iter().enumerate().map(|die| part(die, &self.before.dies)).collect(),
            channels.iter().enumerate().map(|channel| part(channel, &self.before.channels)).collect(),
        )
    }

    /// What it did, up to `now`. Looks at every block once.
    pub fn figures(&self, now: Nanos) -> FlashFigures {
        let (flash, (dies, channels)) = (&self.flash, self.utilisation(now));
        FlashFigures {
            capacity: u64::from(flash.units()) * u64::from(UNIT),
            over_provisioning: flash.config().ftl.over_provisioning,
            write_amplification: flash.write_amplification(),
            stats: *flash.stats(),
            handles: flash.fdp().map(Fdp::handles).unwrap_or_default(),
            wear: flash.wear(),
            dies,
            channels,
        }
    }

    /// What each die was like up to `now`. Looks at every block once.
    pub fn die_figures(&self, now: Nanos) -> Vec<DieFigures> {
        let busy = self.flash.array().utilisation(now).dies;
        let before = |die: usize| self.before.dies.get(die).copied().unwrap_or_default();
        let figures = |(die, (busy, blocks)): (usize, (Nanos, DieBlocks))| DieFigures {
            busy: busy.saturating_sub(before(die)),
            blocks,
        };
        busy.into_iter().zip(self.flash.die_blocks()).enumerate().map(figures).collect()
    }

    /// A unit of which the host writes a part is read first.
    #[cold]
    fn modify(&mut self, now: Nanos, first: u32, last: u32, (head, tail): (bool, bool)) -> When {
        let mut ready = When::at(now);
        if head {
            ready = self.flash.modify(now, first);
        }
        if tail && (last != first || !head) {
            let other = self.flash.modify(now, last);
            ready = self.flash.later_of(ready, other);
        }
        ready
    }
}

impl TimingModel for FlashService {
    #[inline]
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        let Units { op, first, count, parts } = Units::of(operation);
        let mut ready = When::at(now);
        if parts != (false, false) {
            self.flash.advance(now);
            ready = self.modify(now, first, first + count - 1, parts);
        }
        let done = self.flash.begin(now, ready, op, first, count, operation.placement);
        match op {
            FlashOp::Flush => {
                let number = self.flushes.begin(now, done.known_or(Nanos::NEVER));
                if done.known().is_none() {
                    self.flash.tell(done, number | FLUSH);
                }
            }
            _ => self.collection.look(self.flash.stats()),
        }
        done
    }

    fn later_of(&mut self, a: When, b: When) -> When {
        self.flash.later_of(a, b)
    }

    fn tell(&mut self, when: When, tag: u64) {
        self.flash.tell(when, tag);
    }

    fn told(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        self.flash.advance(now);
        loop {
            match self.flash.told()? {
                (tag, at) if tag & FLUSH != 0 => self.flushes.end(tag & !FLUSH, at),
                told => return Some(told),
            }
        }
    }

    fn told_before(&mut self, until: Nanos) -> Option<(u64, Nanos)> {
        loop {
            match self.flash.told_before(until)? {
                (tag, at) if tag & FLUSH != 0 => self.flushes.end(tag & !FLUSH, at),
                told => return Some(told),
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.flash.next_told()
    }

    #[inline]
    fn prefetch(&self, offset: u64) {
        self.flash.prefetch((offset / u64::from(UNIT)) as u32);
    }

    fn cost(&self, operation: Operation) -> u32 {
        let Units { op, count, parts, .. } = Units::of(operation);
        let cost = |op, count| self.flash.cost(op, count, self.collection.rate).0;
        let one = cost(FlashOp::Read, 1).max(1);
        let modified = one * (u64::from(parts.0) + u64::from(parts.1 && (count > 1 || !parts.0)));
        let bytes = u128::from(cost(op, count) + modified) * u128::from(UNIT) / u128::from(one);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn placement(&self) -> Option<&Flash> {
        self.flash.fdp().map(|_| &self.flash)
    }

    fn placement_mut(&mut self) -> Option<&mut Flash> {
        self.flash.fdp()?;
        Some(&mut self.flash)
    }

    fn media_written(&self) -> Option<u64> {
        let written = self.flash.stats().host_writes * u64::from(UNIT);
        Some((written as f64 * self.flash.write_amplification()) as u64)
    }
    fn percentage_used(&self) -> u8 {
        match self.flash.config().ftl.wear.endurance {
            0 => 0,
            endurance => (self.flash.wear().mean * 100.0 / f64::from(endurance)).min(255.0) as u8,
        }
    }
    fn available_spare(&self) -> u8 {
        self.flash.available_spare()
    }
    fn flash_shape(&self) -> Option<FlashShape> {
        let shape = self.flash.shape();
        Some(FlashShape {
            channels: shape.channels(),
            dies: shape.dies(),
            blocks: shape.blocks_per_plane(),
            pages: shape.pages_per_block(),
            mapped: true,
        })
    }

    fn place_of(&self, offset: u64) -> Option<FlashPlace> {
        let at = self.flash.place_of(u32::try_from(offset / u64::from(UNIT)).ok()?)?;
        let shape = self.flash.shape();
        let (channel, die) = (shape.channel_of(at.plane), shape.die_of(at.plane));
        Some(FlashPlace { channel, die, block: at.block, page: at.page })
    }

    fn retry_time(&self) -> Option<Nanos> {
        Some(self.flash.array().retry_time())
    }

    fn set_die_times(&mut self, die: u32, thousandths: u32) {
        self.flash.set_die_times(die, thousandths);
    }

    fn die_work(&self) -> &[DieWork] {
        self.flash.die_work()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::DeviceConfig;

    fn service(query: &str, state: Precondition) -> FlashService {
        let device = DeviceConfig::from_query("femu-bbssd", query).unwrap_or_else(|e| panic!("{e}"));
        FlashService::new(&device.flash.expect("flash").config, state, Nanos(0)).unwrap_or_else(|e| panic!("{e}"))
    }

    fn operation(op: Op, offset: u64, len: u32) -> Operation {
        Operation { op, offset, len, fua: false, placement: 0 }
    }

    #[test]
    fn a_part_of_a_unit_is_read_before_it_is_written() {
        // 40 us to read, 200 us to program.
        let mut service = service("capacity=1GiB", Precondition::Fresh);
        let mut at = Nanos(0);
        let mut took = |op, offset, len| {
            at = Nanos(at.0 + 10_000_000);
            service.begin(at, operation(op, offset, len)).known().unwrap().0 - at.0
        };
        assert_eq!(took(Op::Write, 0, 8192), 200_000, "two dies");
        assert_eq!(took(Op::Write, 512, 512), 240_000);
        assert_eq!(took(Op::Write, 4096 + 512, 512), 240_000);
        assert_eq!(took(Op::Write, 512, 4096), 240_000, "both ends at once");
        assert_eq!(took(Op::Write, 1 << 20, 512), 200_000, "nothing is there to be read");
        assert_eq!(took(Op::Read, 512, 512), 40_000);
        assert_eq!(took(Op::Flush, 0, 0), 0);
        assert_eq!(took(Op::Deallocate, 512, 8191), 0);
        assert!(service.flash().is_mapped(0) && !service.flash().is_mapped(1), "only whole units lose their contents");
        assert_eq!(service.flash().stats().trims, 1);
        service.flash().check();
    }

    #[test]
    fn what_is_counted_begins_where_it_is_told() {
        let mut service = service("capacity=256MiB", Precondition::Steady);
        assert!(service.flash().is_mapped(65_535));
        service.begin(Nanos(0), operation(Op::Read, 0, 4096));
        service.reset(Nanos(1_000_000));
        assert_eq!(service.flash().stats().host_reads, 0);
        for i in 0..64 {
            service.begin(Nanos(1_000_000), operation(Op::Read, i * 4096, 4096));
        }
        let (dies, channels) = service.utilisation(Nanos(2_000_000));
        assert_eq!((dies.len(), channels.len()), (64, 8));
        let sum: f64 = dies.iter().sum();
        assert!((sum - 64.0 * 0.04).abs() < 1e-9, "40 us each of one millisecond: {sum}");
    }

    /// What a write costs beside a read follows what collection has moved lately.
    #[test]
    fn costs_follow_collection() {
        let mut service = service("capacity=256MiB&pages=64", Precondition::Steady);
        let cost = |service: &FlashService, op, offset, len| service.cost(operation(op, offset, len));
        assert_eq!(cost(&service, Op::Read, 0, 4096), 4096, "what is read in the time of a read");
        assert_eq!(cost(&service, Op::Read, 512, 4096), 8192, "two units");
        assert_eq!([Op::Flush, Op::Deallocate].map(|op| cost(&service, op, 0, 65536)), [0; 2]);
        let empty = self::service("capacity=256MiB&pages=64", Precondition::Fresh);
        let fresh = cost(&empty, Op::Write, 0, 4096);
        assert_eq!(cost(&empty, Op::Write, 0, 65536), 16 * fresh);
        assert!(cost(&empty, Op::Write, 512, 512).abs_diff(fresh + 4096) <= 1, "read and written");
        let expected = service.collection.rate;
        let (mut at, mut seed) = (Nanos(0), 1u64);
        let mut write = |service: &mut FlashService, count: u64| {
            for _ in 0..count {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                at = Nanos(at.0 + 20_000);
                service.begin(at, operation(Op::Write, (seed >> 33) % 65_536 * 4096, 4096));
            }
        };
        write(&mut service, 100_000);
        let moved = service.collection.rate;
        let stats = *service.flash().stats();
        let so_far = stats.gc_moves * 1000 / stats.host_writes;
        assert!(moved.abs_diff(so_far) < so_far / 5, "{moved} lately, {so_far} in all");
        assert!(expected.abs_diff(so_far) < so_far / 5, "{expected} from the beginning, {so_far} in all");
        let more = cost(&service, Op::Write, 0, 4096);
        // 40 us to read, 200 to program, 2 ms for 64 pages.
        let expected = fresh as f64 * (1.0 + moved as f64 / 1000.0 * (271.25 / 231.25));
        assert!((more as f64 / expected - 1.0).abs() < 0.02, "{more} of {fresh} with {moved}");
        // Counters that begin anew are no collection.
        service.reset(Nanos(100_000 * 20_000));
        write(&mut service, 1);
        assert_eq!(service.collection.rate, moved);
    }
}
