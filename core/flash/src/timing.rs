//! What each step of the flash takes.

use crate::cell::MAX_LEVELS;
use crate::name::names;
use crate::wire::Wire;
use core::fmt;
use weir_units::Nanos;

/// Times by the level of the page in its cells; see [`crate::PageMap`].
///
/// A literal length: rustc 1.95 fails on a named one where a closure captures a struct that has it.
pub type Levels = [Nanos; 5];
const _: () = assert!(MAX_LEVELS == 5, "one time for each level");

/// The same time on every level.
pub const fn uniform(nanos: u64) -> Levels {
    [Nanos(nanos); MAX_LEVELS]
}

/// These times for the lowest levels, the last one for the others.
pub const fn levels<const N: usize>(nanos: [u64; N]) -> Levels {
    let mut all = [Nanos(0); MAX_LEVELS];
    let mut i = 0;
    while i < MAX_LEVELS {
        all[i] = Nanos(nanos[if i < N { i } else { N - 1 }]);
        i += 1;
    }
    all
}

/// What one array operation occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationUnit {
    /// The plane: planes of a die work independently (papers/002; FEMU ZNS).
    Plane,
    /// The die: one operation at a time, several planes only together (NVMeVirt, MQSim; FEMU's LUN).
    Die,
}

names!(OperationUnit, "gate", Plane = "plane", Die = "die");

/// The page registers of a plane (of a die, with [`OperationUnit::Die`]): what may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registers {
    /// Not modelled: a transfer never waits for the array, nor the array for a transfer other than its own (the formulas of
    /// papers/002 section 3.2.2: a next free time for each plane and channel, nothing else).
    Unbounded,
    /// One: the array stands still while its page crosses the channel.
    Single,
    /// Data and cache register: the array works while the channel moves the page before or after.
    Double,
}

names!(Registers, "register model", Unbounded = "unbounded", Single = "single", Double = "double");

/// Who gets a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arbitration {
    /// Whoever asks first, ahead of time: command and data of an operation take the first holes of a calendar that are long enough (a next
    /// free time, as FEMU and NVMeVirt have it). The end of an operation is known when it begins.
    #[default]
    Booked,
    /// When the channel is free: data of reads in the order in which they became ready, then dies in turn for a command or a program's data
    /// (MQSim, ssd/NVM_PHY_ONFI_NVDDR2.cpp and ssd/TSU_OutOfOrder.cpp).
    DataOutFirst,
    /// When the channel is free: who has waited for it longest.
    Fifo,
    /// When the channel is free: data of reads, then commands of reads, then everything else, each in the order in which they came.
    ReadsFirst,
}

names!(
    Arbitration,
    "channel arbitration",
    Booked = "booked",
    DataOutFirst = "data-out-first",
    Fifo = "fifo",
    ReadsFirst = "reads-first"
);

/// Which operation a die begins next, where channels are not booked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The one that came first; reads pass programs and erases that can be suspended.
    #[default]
    InOrder,
    /// A read before programs and erases (MQSim's out-of-order scheduler), unless those have waited for [`FlashTiming::age`].
    ReadsFirst,
}

names!(Order, "die order", InOrder = "in-order", ReadsFirst = "reads-first");

/// Time on the channel for command, address and status cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// Before the array reads.
    pub read: Nanos,
    /// For each further plane of a multi-plane read.
    pub read_plane: Nanos,
    /// Before the data of a program.
    pub program: Nanos,
    /// For each further plane of a multi-plane program.
    pub program_plane: Nanos,
    /// Before an erase.
    pub erase: Nanos,
    /// After the data of a read: the status of the die is asked for.
    pub status: Nanos,
}

/// Programs and erases that make room for a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspend {
    /// How long a program takes to stop; `None`: it cannot.
    pub program: Option<Nanos>,
    /// How long an erase takes to stop; `None`: it cannot.
    pub erase: Option<Nanos>,
    /// How often work may be stopped before it runs to its end, so that reads cannot starve it; 0: no limit.
    pub limit: u32,
}

/// What each step of the flash takes. Names and defaults: [`crate::Preset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashTiming {
    /// What an array operation occupies.
    pub gate: OperationUnit,
    /// What may overlap.
    pub registers: Registers,
    /// Array read of a page.
    pub read: Levels,
    /// Array read of at most 4 KiB of a page, where that is faster.
    pub read_small: Option<Levels>,
    /// Bytes that one array read senses; a larger read takes several. 0: a whole page.
    pub sense_bytes: u32,
    /// Program of a page.
    pub program: Levels,
    /// Erase of a block.
    pub erase: Nanos,
    /// The channel's rate.
    pub channel: Wire,
    /// The most bytes that cross the channel in one go; other dies may come between. 0: no limit.
    pub burst_bytes: u32,
    /// Time on the channel for commands.
    pub overheads: Overheads,
    /// Whether a read leaves its page in the cache register, so that the array goes on while it is transferred.
    /// Counts with [`Registers::Double`] only.
    pub cache_read: bool,
    /// To move a page between data and cache register.
    pub cache_busy: Nanos,
    /// Suspension of programs and erases.
    pub suspend: Suspend,
    /// Who gets a channel.
    pub arbitration: Arbitration,
    /// Which operation a die begins next. Counts where channels are not booked.
    pub order: Order,
    /// Chips of a channel whose dies take turns: one operation of a chip at a time (MQSim, ssd/TSU_Base.cpp). Consecutive dies of a channel
    /// lie on different chips. 0: each die is on its own.
    pub chips: u32,
    /// Whether operations of one kind that wait for several planes of a die, on the same page, are done as one multi-plane operation (MQSim,
    /// ssd/TSU_Base.cpp). Counts where channels are not booked, with [`Registers::Single`].
    pub join_planes: bool,
    /// How long reads may pass a program or an erase, with [`Order::ReadsFirst`]; 0: for ever.
    pub age: Nanos,
}

/// Why timings are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingError {
    /// A single operation takes longer than anything real.
    TooLong {
        /// The field of [`FlashTiming`].
        field: &'static str,
        /// Its value.
        value: Nanos,
    },
    /// Credits are given out where channels are booked, and these are arbitrated.
    Credits,
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { field, value } => {
                write!(f, "timing.{field} is {value}; at most {} is supported", FlashTiming::LONGEST)
            }
            Self::Credits => f.write_str(
                "timing.channel gives out credits, which an arbitrated channel has none of; leave them out, or write channel_arbitration = \"booked\"",
            ),
        }
    }
}

impl core::error::Error for TimingError {}

impl FlashTiming {
    /// The longest single step: sums of steps stay far from the end of 64 bits.
    pub const LONGEST: Nanos = Nanos::from_secs(10);

    /// The most bytes that cross the channel in one go.
    pub(crate) const fn burst(&self) -> u32 {
        if self.burst_bytes == 0 { u32::MAX } else { self.burst_bytes }
    }

    /// The same with channels that are booked.
    pub const fn booked(self) -> FlashTiming {
        FlashTiming { arbitration: Arbitration::Booked, ..self }
    }

    /// The shortest usual booking of a channel: a command, or 4 KiB.
    pub(crate) fn shortest_on_channel(&self) -> Nanos {
        let o = &self.overheads;
        let data = self.channel.time(crate::UNIT).saturating_add(o.program.min(o.status));
        let bookings = [o.read, o.erase, data];
        bookings.into_iter().filter(|t| t.0 > 0).min().unwrap_or_default()
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first field that is longer than [`FlashTiming::LONGEST`], or says that channels with credits are not booked.
    pub fn validate(&self) -> Result<(), TimingError> {
        let of = |levels: &Levels| levels.iter().copied().max().unwrap_or_default();
        let o = &self.overheads;
        let fields = [
            ("read", of(&self.read)),
            ("read_small", self.read_small.as_ref().map(of).unwrap_or_default()),
            ("program", of(&self.program)),
            ("erase", self.erase),
            ("channel", self.channel.time(crate::UNIT)),
            ("overheads.read", o.read),
            ("overheads.read_plane", o.read_plane),
            ("overheads.program", o.program),
            ("overheads.program_plane", o.program_plane),
            ("overheads.erase", o.erase),
            ("overheads.status", o.status),
            ("cache_busy", self.cache_busy),
            ("suspend.program", self.suspend.program.unwrap_or_default()),
            ("suspend.erase", self.suspend.erase.unwrap_or_default()),
            ("age", self.age),
        ];
        match fields.into_iter().find(|(_, value)| *value > Self::LONGEST) {
            Some((field, value)) => Err(TimingError::TooLong { field, value }),
            None if self.channel.credits() > 0 && self.arbitration != Arbitration::Booked => Err(TimingError::Credits),
            None => Ok(()),
        }
    }
}
