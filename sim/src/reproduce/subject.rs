//! What can be reproduced, by name.

use std::fmt;
use std::str::FromStr;

/// What can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Latency over the number of submitters.
    FemuFig2a,
    /// A constant delay, and what computing a delay costs.
    FemuFig2b,
    /// Single against double registers.
    FemuFig3,
    /// 16 readers over channels and planes.
    FemuFig4,
    /// Personalities, and threads over planes, basic against advanced model.
    FemuFig5,
    /// Latencies under garbage collection.
    FemuFig6a,
    /// Wordcount under garbage collection.
    FemuFig6b,
    /// Host collection with and without the page move.
    FemuMovePage,
    /// Latencies by page and chip.
    FemuPages,
    /// A die over its life.
    FemuAgeing,
    /// Static wear levelling against the bounds of its paper.
    WearLevelling,
    /// The profiles of drives against their data sheets.
    Datasheets,
    /// A live drive against the same drive in virtual time.
    LiveAgainstSim,
    /// Software overhead of an I/O.
    QosFig1,
    /// User and system time of an I/O.
    QosFig2,
    /// A device that does not arbitrate.
    QosFig3,
    /// The speed of the emulation.
    QosFig6,
    /// The model against measurement.
    QosFig7,
    /// Five scenarios under WRR, DRR and none.
    QosFig8,
    /// The model of throughput and latency against the simulation.
    QosAccuracy,
    /// The planner against random plans.
    PlanCampaign,
    /// Ten cases of fio on drive, volume and journal.
    SpoolTable2,
    /// Failures drawn and diagnosed.
    SpoolFig4,
    /// The steps of a start.
    SpoolFig5,
    /// Two volumes while one's drive is away.
    SpoolFig12,
    /// Throughput while the server is restarted and killed.
    SpoolFig13,
    /// The time of a restart.
    SpoolFig14,
    /// One volume against the raw drive.
    SpoolFig15,
    /// Several volumes of one drive.
    SpoolFig16,
    /// With and without journal.
    SpoolFig17,
    /// Restarts of many nodes.
    SpoolFig19,
    /// Random reads of a store's files over their size.
    CrailLatency,
    /// Many operations in flight, a store against its drives.
    CrailThroughput,
    /// Buffered and direct streams over the size of an operation.
    CrailStreams,
    /// A sort while memory shrinks and flash takes its place.
    CrailTerasort,
    /// A store of thousands of machines, some of which are lost.
    StoreScale,
}

/// Which clock a reproduction runs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The same every time.
    Virtual,
    /// This machine's.
    Real,
    /// Virtual, or this machine's where that is asked for.
    Either,
}

impl Subject {
    /// All of them.
    pub const ALL: [Subject; 36] = [
        Subject::FemuFig2a,
        Subject::FemuFig2b,
        Subject::FemuFig3,
        Subject::FemuFig4,
        Subject::FemuFig5,
        Subject::FemuFig6a,
        Subject::FemuFig6b,
        Subject::FemuMovePage,
        Subject::FemuPages,
        Subject::FemuAgeing,
        Subject::WearLevelling,
        Subject::Datasheets,
        Subject::LiveAgainstSim,
        Subject::QosFig1,
        Subject::QosFig2,
        Subject::QosFig3,
        Subject::QosFig6,
        Subject::QosFig7,
        Subject::QosFig8,
        Subject::QosAccuracy,
        Subject::PlanCampaign,
        Subject::SpoolTable2,
        Subject::SpoolFig4,
        Subject::SpoolFig5,
        Subject::SpoolFig12,
        Subject::SpoolFig13,
        Subject::SpoolFig14,
        Subject::SpoolFig15,
        Subject::SpoolFig16,
        Subject::SpoolFig17,
        Subject::SpoolFig19,
        Subject::CrailLatency,
        Subject::CrailThroughput,
        Subject::CrailStreams,
        Subject::CrailTerasort,
        Subject::StoreScale,
    ];

    /// As the command line writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Subject::FemuFig2a => "femu-fig2a",
            Subject::FemuFig2b => "femu-fig2b",
            Subject::FemuFig3 => "femu-fig3",
            Subject::FemuFig4 => "femu-fig4",
            Subject::FemuFig5 => "femu-fig5",
            Subject::FemuFig6a => "femu-fig6a",
            Subject::FemuFig6b => "femu-fig6b",
            Subject::FemuMovePage => "femu-move-page",
            Subject::FemuPages => "femu-pages",
            Subject::FemuAgeing => "femu-ageing",
            Subject::WearLevelling => "wear-levelling",
            Subject::Datasheets => "datasheets",
            Subject::LiveAgainstSim => "live-against-sim",
            Subject::QosFig1 => "qos-fig1",
            Subject::QosFig2 => "qos-fig2",
            Subject::QosFig3 => "qos-fig3",
            Subject::QosFig6 => "qos-fig6",
            Subject::QosFig7 => "qos-fig7",
            Subject::QosFig8 => "qos-fig8",
            Subject::QosAccuracy => "qos-accuracy",
            Subject::PlanCampaign => "plan-campaign",
            Subject::SpoolTable2 => "spool-table2",
            Subject::SpoolFig4 => "spool-fig4",
            Subject::SpoolFig5 => "spool-fig5",
            Subject::SpoolFig12 => "spool-fig12",
            Subject::SpoolFig13 => "spool-fig13",
            Subject::SpoolFig14 => "spool-fig14",
            Subject::SpoolFig15 => "spool-fig15",
            Subject::SpoolFig16 => "spool-fig16",
            Subject::SpoolFig17 => "spool-fig17",
            Subject::SpoolFig19 => "spool-fig19",
            Subject::CrailLatency => "crail-latency",
            Subject::CrailThroughput => "crail-throughput",
            Subject::CrailStreams => "crail-streams",
            Subject::CrailTerasort => "crail-terasort",
            Subject::StoreScale => "store-scale",
        }
    }

    /// What it shows, in a line.
    pub const fn title(self) -> &'static str {
        match self {
            Subject::FemuFig2a => "latency over 1 to 64 submitters, no flash delay",
            Subject::FemuFig2b => "a constant delay of 50 us, and what computing delays costs",
            Subject::FemuFig3 => "single against double registers",
            Subject::FemuFig4 => "16 readers over channels and planes",
            Subject::FemuFig5 => "personalities, and threads over planes, basic against advanced model",
            Subject::FemuFig6a => "read latencies when collection blocks controller, channel or plane",
            Subject::FemuFig6b => "wordcount over four drives when collection blocks controller, channel or plane",
            Subject::FemuMovePage => "foreground writes while the host collects, with and without move-page",
            Subject::FemuPages => "reads and programs by page kind, wordline and chip, good and bad",
            Subject::FemuAgeing => "a die that ages: read retries and program times over its cycles",
            Subject::WearLevelling => "static wear levelling: how far blocks lag, and what it costs",
            Subject::Datasheets => "the drives that have a profile, against their data sheets",
            Subject::LiveAgainstSim => {
                "every profile live against itself in virtual time: modelled times and latencies"
            }
            Subject::QosFig1 => "software overhead of an I/O, our driver against Linux",
            Subject::QosFig2 => "user and system time, our driver against Linux",
            Subject::QosFig3 => "a device without arbitration: throughput over size, and what priorities do there",
            Subject::QosFig6 => "speed of the emulation, WRR and DRR against a timer for each queue",
            Subject::QosFig7 => "equations 2 and 3 and the fluid model against measurement",
            Subject::QosFig8 => "five scenarios of two jobs under WRR, DRR and none",
            Subject::QosAccuracy => {
                "what the planner's model says against the simulation, and where equations 2 and 3 hold"
            }
            Subject::PlanCampaign => "the planner against random plans and a search in simulation",
            Subject::SpoolTable2 => "ten fio cases on raw drive, volume, volume without journal, three volumes",
            Subject::SpoolFig4 => "failures drawn with a cloud's shares, diagnosed: what is replaced, what is lost",
            Subject::SpoolFig5 => "the steps of a start",
            Subject::SpoolFig12 => "two volumes while the drive of one is away: removed, or without its link",
            Subject::SpoolFig13 => "throughput and correctness while the server is restarted, stopped and killed",
            Subject::SpoolFig14 => "the time of a restart, and what a client sees of it",
            Subject::SpoolFig15 => "one volume against the raw drive: latency and IOPS",
            Subject::SpoolFig16 => "three volumes of one drive against one",
            Subject::SpoolFig17 => "what the journal costs",
            Subject::SpoolFig19 => "restart times over many nodes",
            Subject::CrailLatency => "random reads of files on memory, flash and Optane, beside the drives alone",
            Subject::CrailThroughput => "64 KiB, 128 in flight: files against the drives alone",
            Subject::CrailStreams => "buffered and direct streams over the size of an operation, and copies",
            Subject::CrailTerasort => "a sort while memory shrinks to nothing and flash takes its place",
            Subject::StoreScale => {
                "a store of thousands of machines: load, balance, a dead service, lost machines and a lost rack"
            }
        }
    }

    /// Which clock it runs by; a real one needs a machine that is not busy.
    pub const fn clock(self) -> ClockKind {
        match self {
            Subject::FemuFig2a | Subject::FemuFig2b | Subject::LiveAgainstSim => ClockKind::Real,
            Subject::QosFig1 | Subject::QosFig2 | Subject::QosFig3 | Subject::QosFig6 => ClockKind::Real,
            Subject::QosFig7 | Subject::QosFig8 | Subject::CrailTerasort => ClockKind::Either,
            Subject::SpoolTable2
            | Subject::SpoolFig5
            | Subject::SpoolFig12
            | Subject::SpoolFig13
            | Subject::SpoolFig14 => ClockKind::Real,
            Subject::SpoolFig15 | Subject::SpoolFig16 | Subject::SpoolFig17 | Subject::SpoolFig19 => ClockKind::Real,
            Subject::CrailLatency | Subject::CrailThroughput | Subject::CrailStreams => ClockKind::Real,
            _ => ClockKind::Virtual,
        }
    }

    /// Whether it has a short and a full length.
    pub const fn has_lengths(self) -> bool {
        use Subject::{
            CrailLatency, CrailStreams, CrailTerasort, CrailThroughput, SpoolFig5, SpoolFig12, SpoolFig13, SpoolFig14,
            SpoolFig15, SpoolFig16, SpoolFig17, SpoolFig19, SpoolTable2, StoreScale,
        };
        matches!(
            self,
            Subject::QosAccuracy
                | Subject::LiveAgainstSim
                | SpoolTable2
                | SpoolFig5
                | SpoolFig12
                | SpoolFig13
                | SpoolFig14
                | SpoolFig15
                | SpoolFig16
                | SpoolFig17
                | SpoolFig19
                | CrailLatency
                | CrailThroughput
                | CrailStreams
                | CrailTerasort
                | StoreScale
        )
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Subject::ALL.map(Subject::name).join(", ");
        let found = Subject::ALL.into_iter().find(|s| s.name() == text);
        found.ok_or_else(|| format!("there is no reproduction {text:?}; there is {}", known()))
    }
}
