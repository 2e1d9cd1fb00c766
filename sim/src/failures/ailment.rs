//! What is wrong with a drive in truth, and how failures are drawn. The diagnosis never sees these types.

use weir_driver::health::ResetLevel;
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

/// What the drive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AilmentKind {
    /// Blocks that can be neither read nor written, for good.
    BadMedia {
        /// The first block.
        first: u64,
        /// How many.
        blocks: u64,
        /// Whether the SMART log counts the errors.
        counted: bool,
        /// Whether the SMART log warns.
        warned: bool,
    },
    /// One in so many reads is called unreadable, and is not.
    GhostReads {
        /// One in so many.
        every: u64,
    },
    /// CSTS.CFS: nothing is answered.
    Fatal,
    /// Nothing is answered, and registers look well.
    Hang,
    /// One of two queues answers nothing.
    StuckQueue,
    /// One in so many commands ends with Internal Error.
    Internal {
        /// One in so many.
        every: u64,
    },
    /// Nothing gets through.
    LinkDown,
    /// The namespace is not ready.
    NotReady,
    /// There is no such namespace.
    Absent,
    /// Commands are to be sent again.
    Interrupted {
        /// After that.
        delay: Nanos,
    },
    /// Writes fail although the media are well.
    WriteFaults,
    /// Writes are refused.
    ReadOnly,
    /// The path is inaccessible.
    Inaccessible,
    /// It is gone from the bus.
    Removed,
    /// Another drive is in its place.
    Replaced,
    /// The SMART log says that the spare is used up; nothing fails.
    Worn,
}

/// One thing that is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Ailment {
    /// What.
    pub kind: AilmentKind,
    /// From then on.
    pub begins: Nanos,
    /// Until then, if nothing cures it before.
    pub ends: Nanos,
    /// The least reset that cures it.
    pub cure: Option<ResetLevel>,
    /// Whether its beginning and end are told by an asynchronous event.
    pub is_announced: bool,
}

impl Ailment {
    /// Whether it is there.
    pub fn is_active(&self, now: Nanos) -> bool {
        (self.begins..self.ends).contains(&now)
    }

    /// The drive was reset.
    pub fn reset(&mut self, now: Nanos, level: ResetLevel) {
        if self.is_active(now) && self.cure.is_some_and(|cure| level >= cure) {
            self.ends = now;
        }
    }

    /// Whether only another drive helps: blocks that are gone, and as many as a diagnosis counts, or with the drive's own word.
    pub fn needs_replacement(&self) -> bool {
        matches!(self.kind, AilmentKind::BadMedia { blocks, warned, .. } if blocks >= LARGE || warned)
    }
}

/// The paper's classes of failures (Figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureClass {
    /// MEDIAERR.
    Media,
    /// NVMEFAILRESET.
    Controller,
    /// LINKERR.
    Link,
    /// NAMESPACEERR.
    Namespace,
    /// BLKUPDATEERR.
    BlockUpdate,
    /// Surprise removal, which the paper provokes and does not count.
    Removal,
}

impl FailureClass {
    /// All, with their shares of failures in percent. The paper's text gives 6 and 36; the split of the other 58 is ours.
    pub const SHARES: [(FailureClass, u32); 6] = [
        (FailureClass::Media, 6),
        (FailureClass::Controller, 36),
        (FailureClass::Link, 22),
        (FailureClass::Namespace, 12),
        (FailureClass::BlockUpdate, 16),
        (FailureClass::Removal, 8),
    ];

    /// As the paper's figure calls it.
    pub const fn name(self) -> &'static str {
        match self {
            FailureClass::Media => "MEDIAERR",
            FailureClass::Controller => "NVMEFAILRESET",
            FailureClass::Link => "LINKERR",
            FailureClass::Namespace => "NAMESPACEERR",
            FailureClass::BlockUpdate => "BLKUPDATEERR",
            FailureClass::Removal => "removal",
        }
    }
}

/// Blocks of a large media failure.
const LARGE: u64 = 64;

/// A failure of one drive as it was drawn.
#[derive(Clone, Debug)]
pub struct DrawnFailure {
    /// Its class.
    pub class: FailureClass,
    /// What is wrong: the class's own first, then what makes it ambiguous.
    pub ailments: Vec<Ailment>,
    /// Whether evidence of another class comes with it, or it changes midway.
    pub is_ambiguous: bool,
    /// A reset of the controller takes so long.
    pub reset_time: Nanos,
    /// Whether link loss is told at once, as over a connection, or only seen in registers.
    pub is_fabric: bool,
    /// Whether a tenant makes blocks unreadable meanwhile.
    pub has_marks: bool,
}

/// When ailments begin.
const BEGIN: Nanos = Nanos::from_millis(20);

struct Draw<'a>(&'a mut Xoshiro256);

impl Draw<'_> {
    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    fn millis(&mut self, from: u64, to: u64) -> Nanos {
        Nanos::from_millis(from + self.0.below(to - from))
    }

    fn passing(&mut self, kind: AilmentKind, longest: u64) -> Ailment {
        let ends = BEGIN.saturating_add(self.millis(1, longest));
        Ailment { kind, begins: BEGIN, ends, cure: None, is_announced: self.one_in(2) }
    }

    fn curable(&mut self, kind: AilmentKind) -> Ailment {
        let levels = [ResetLevel::Controller, ResetLevel::Controller, ResetLevel::Subsystem, ResetLevel::Function];
        let cure = match kind {
            AilmentKind::StuckQueue if self.one_in(2) => ResetLevel::Queue,
            _ => levels[self.0.below(4) as usize],
        };
        Ailment { kind, begins: BEGIN, ends: Nanos::NEVER, cure: Some(cure), is_announced: false }
    }

    fn media(&mut self) -> Ailment {
        let (counted, warned) = (!self.one_in(3), self.one_in(2));
        let blocks = LARGE + self.0.below(192);
        let first = self.0.below(super::drive::BLOCKS - blocks);
        let kind = AilmentKind::BadMedia { first, blocks, counted, warned };
        Ailment { kind, begins: BEGIN, ends: Nanos::NEVER, cure: None, is_announced: false }
    }

    fn few_bad_blocks(&mut self) -> Ailment {
        let kind = AilmentKind::BadMedia {
            first: self.0.below(super::drive::BLOCKS - 4),
            blocks: 1 + self.0.below(3),
            counted: self.one_in(2),
            warned: false,
        };
        Ailment { kind, begins: BEGIN, ends: Nanos::NEVER, cure: None, is_announced: false }
    }

    fn controller(&mut self) -> Ailment {
        let kind = match self.0.below(6) {
            0 => AilmentKind::Fatal,
            1 => AilmentKind::Hang,
            2 => AilmentKind::StuckQueue,
            3 => AilmentKind::Internal { every: 1 },
            4 => AilmentKind::Internal { every: 2 + self.0.below(20) },
            _ => AilmentKind::GhostReads { every: 1 + self.0.below(10) },
        };
        self.curable(kind)
    }

    fn block_update(&mut self) -> Ailment {
        let delay = self.millis(1, 100);
        match self.0.below(4) {
            0 => self.passing(AilmentKind::Interrupted { delay }, 1_000),
            1 => self.passing(AilmentKind::WriteFaults, 2_000),
            2 => self.passing(AilmentKind::Inaccessible, 2_000),
            _ => self.passing(AilmentKind::ReadOnly, 1_000),
        }
    }

    fn of(&mut self, class: FailureClass) -> Ailment {
        match class {
            FailureClass::Media => self.media(),
            FailureClass::Controller => self.controller(),
            FailureClass::Link => self.passing(AilmentKind::LinkDown, 5_000),
            FailureClass::Namespace => {
                let kinds = [AilmentKind::NotReady, AilmentKind::Absent, AilmentKind::Replaced];
                let kind = kinds[self.0.below(3) as usize];
                // Nothing but the drive's word tells one namespace from another.
                let ailment = self.passing(kind, 3_000);
                Ailment { is_announced: ailment.is_announced || kind == AilmentKind::Replaced, ..ailment }
            }
            FailureClass::BlockUpdate => self.block_update(),
            FailureClass::Removal => self.passing(AilmentKind::Removed, 3_000),
        }
    }

    /// What blurs the picture: evidence of another class from the start, or a change midway. Never a media failure beside
    /// another class: that would be one of the media's.
    fn blur(&mut self) -> Ailment {
        let mut other = match self.0.below(6) {
            0 => self.few_bad_blocks(),
            // Spare that is used up does not come back.
            1 => Ailment { ends: Nanos::NEVER, ..self.passing(AilmentKind::Worn, 2) },
            2 => self.controller(),
            3 => self.of(FailureClass::Link),
            4 => self.of(FailureClass::Namespace),
            _ => self.block_update(),
        };
        if self.one_in(2) {
            let later = self.millis(1, 400);
            other.begins = other.begins.saturating_add(later);
            other.ends = other.ends.saturating_add(later);
        }
        other
    }
}

/// Draws a failure: the class by the paper's shares, half of them ambiguous, combined or changing midway.
pub fn draw(rng: &mut Xoshiro256) -> DrawnFailure {
    let mut share = rng.below(100) as u32;
    let mut class = FailureClass::Removal;
    for (candidate, percent) in FailureClass::SHARES {
        if share < percent {
            class = candidate;
            break;
        }
        share -= percent;
    }
    let mut draw = Draw(rng);
    let mut ailments = vec![draw.of(class)];
    let is_ambiguous = draw.one_in(2);
    if is_ambiguous {
        ailments.push(draw.blur());
        if draw.one_in(3) {
            ailments.push(draw.blur());
        }
    }
    let reset_time = draw.millis(5, 400);
    let (is_fabric, has_marks) = (draw.one_in(2), draw.one_in(4));
    DrawnFailure { class, ailments, is_ambiguous, reset_time, is_fabric, has_marks }
}
