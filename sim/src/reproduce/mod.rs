//! The figures and numbers of published papers, made again with Weir's own engine: what `weir reproduce NAME` prints.
//!
//! ```text
//!  Subject ── figure(&mut dyn LiveMeasurements) ──▶ Figure: rows (label, paper, ours, verdict) and curves ──▶ table, JSON, HTML with SVG
//!                        └ LiveMeasurements: what only a real clock can tell (Subject::clock); everything else is virtual time
//! ```
//! A row has a number of the paper only where the paper's text prints it; the sentence is quoted. Every other row is held to
//! a relation that the text states (an order, a bound, a trend), or is told only. Points of plots that survive as captions
//! only are not guessed.

mod accuracy;
mod ageing;
mod chart;
mod closed;
mod datasheets;
mod fig2;
mod fig3;
mod fig4;
mod fig5;
mod fig6;
mod html;
mod levelling;
mod live_against_sim;
mod move_page;
mod pages;
mod plan_campaign;
mod qos;
mod row;
mod spool;
#[cfg(test)]
mod tests;

pub use chart::{Chart, Curve, Scale};
pub use closed::{Measured, closed_loop, flash_loop};
pub use html::number;
pub use plan_campaign::figure as plan_campaign;
pub use qos::{
    AccessPath, AccessPattern, BURST, CAPACITY, Design, Load, Overhead, PERIOD, QueueTimers, SLOT_BYTES, SharedDrive,
    Span, Storage, Usage,
};
pub use row::{Claim, PrintedBound, Row, RowVerdict};
pub use spool::{Blow, CASES, Case, Metric, Nodes, PaperDrive, Program, Server, Start, Survived, Timeline};

use std::fmt;
use std::str::FromStr;
use weir_config::DeviceConfig;
use weir_units::Nanos;
use weir_workload::{Answered, Planned};
use weir_workload::{Job, JobResult, Latency};

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
    /// The steps of a start.
    SpoolFig5,
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
    pub const ALL: [Subject; 28] = [
        Subject::FemuFig2a,
        Subject::FemuFig2b,
        Subject::FemuFig3,
        Subject::FemuFig4,
        Subject::FemuFig5,
        Subject::FemuFig6a,
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
        Subject::SpoolFig5,
        Subject::SpoolFig13,
        Subject::SpoolFig14,
        Subject::SpoolFig15,
        Subject::SpoolFig16,
        Subject::SpoolFig17,
        Subject::SpoolFig19,
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
            Subject::SpoolFig5 => "spool-fig5",
            Subject::SpoolFig13 => "spool-fig13",
            Subject::SpoolFig14 => "spool-fig14",
            Subject::SpoolFig15 => "spool-fig15",
            Subject::SpoolFig16 => "spool-fig16",
            Subject::SpoolFig17 => "spool-fig17",
            Subject::SpoolFig19 => "spool-fig19",
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
            Subject::SpoolFig5 => "the steps of a start",
            Subject::SpoolFig13 => "throughput and correctness while the server is restarted, stopped and killed",
            Subject::SpoolFig14 => "the time of a restart, and what a client sees of it",
            Subject::SpoolFig15 => "one volume against the raw drive: latency and IOPS",
            Subject::SpoolFig16 => "three volumes of one drive against one",
            Subject::SpoolFig17 => "what the journal costs",
            Subject::SpoolFig19 => "restart times over many nodes",
        }
    }

    /// Which clock it runs by; a real one needs a machine that is not busy.
    pub const fn clock(self) -> ClockKind {
        match self {
            Subject::FemuFig2a | Subject::FemuFig2b | Subject::LiveAgainstSim => ClockKind::Real,
            Subject::QosFig1 | Subject::QosFig2 | Subject::QosFig3 | Subject::QosFig6 => ClockKind::Real,
            Subject::QosFig7 | Subject::QosFig8 => ClockKind::Either,
            Subject::SpoolTable2 | Subject::SpoolFig5 | Subject::SpoolFig13 | Subject::SpoolFig14 => ClockKind::Real,
            Subject::SpoolFig15 | Subject::SpoolFig16 | Subject::SpoolFig17 | Subject::SpoolFig19 => ClockKind::Real,
            _ => ClockKind::Virtual,
        }
    }

    /// Whether it has a short and a full length.
    pub const fn has_lengths(self) -> bool {
        use Subject::{SpoolFig5, SpoolFig13, SpoolFig14, SpoolFig15, SpoolFig16, SpoolFig17, SpoolFig19, SpoolTable2};
        matches!(
            self,
            Subject::QosAccuracy
                | Subject::LiveAgainstSim
                | SpoolTable2
                | SpoolFig5
                | SpoolFig13
                | SpoolFig14
                | SpoolFig15
                | SpoolFig16
                | SpoolFig17
                | SpoolFig19
        )
    }

    /// Makes it. On a machine that was disturbed meanwhile no row of the real clock is missed.
    ///
    /// # Errors
    /// What the real clock's side said; virtual time has none.
    pub fn figure(self, live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
        let mut figure = self.judged(live)?;
        let is_real = match self.clock() {
            ClockKind::Virtual => false,
            ClockKind::Real => true,
            ClockKind::Either => live.is_preferred(),
        };
        if is_real {
            figure.consider(live.lost_pct());
        }
        Ok(figure)
    }

    fn judged(self, live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
        match self {
            Subject::FemuFig2a => fig2::a(live),
            Subject::FemuFig2b => fig2::b(live),
            Subject::FemuFig3 => Ok(fig3::figure()),
            Subject::FemuFig4 => Ok(fig4::figure(live)),
            Subject::FemuFig5 => Ok(fig5::figure(live)),
            Subject::FemuFig6a => Ok(fig6::figure(live)),
            Subject::FemuMovePage => Ok(move_page::figure(live)),
            Subject::FemuPages => Ok(pages::figure(live)),
            Subject::FemuAgeing => Ok(ageing::figure(live)),
            Subject::WearLevelling => Ok(levelling::figure(live)),
            Subject::Datasheets => Ok(datasheets::figure(live)),
            Subject::LiveAgainstSim => live_against_sim::figure(live),
            Subject::QosFig1 => qos::fig1(live),
            Subject::QosFig2 => qos::fig2(live),
            Subject::QosFig3 => qos::fig3(live),
            Subject::QosFig6 => qos::fig6(live),
            Subject::QosFig7 => qos::fig7(live),
            Subject::QosFig8 => qos::fig8(live),
            Subject::QosAccuracy => accuracy::figure(live),
            Subject::PlanCampaign => plan_campaign(plan_campaign::PLANS, &mut |part| live.progress(part)),
            Subject::SpoolTable2 => spool::table2(live),
            Subject::SpoolFig5 => spool::fig5(live),
            Subject::SpoolFig13 => spool::fig13(live),
            Subject::SpoolFig14 => spool::fig14(live),
            Subject::SpoolFig15 => spool::fig15(live),
            Subject::SpoolFig16 => spool::fig16(live),
            Subject::SpoolFig17 => spool::fig17(live),
            Subject::SpoolFig19 => spool::fig19(live),
        }
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

/// Latencies as they were, and without the time in which whoever took them had no core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// By the clock.
    pub raw: Latency,
    /// Without the time in which the thread was ready to run and had no core, once the answer was due.
    pub net: Latency,
    /// The shortest by the clock.
    pub least: Nanos,
    /// The part of the time in which the thread had no core, in percent.
    pub waited_pct: f64,
}

/// What needs a real clock.
pub trait LiveMeasurements {
    /// The latency of 4 KiB random reads on a drive in memory that serves each in `service`, as `submitters` see it who each
    /// wait for their answer before they ask again.
    ///
    /// # Errors
    /// It could not be measured.
    fn latency(&mut self, submitters: u32, service: Nanos) -> Result<Seen, String>;

    /// The control: how late a bare loop is that does nothing but spin for deadlines which are `apart`.
    fn bare(&mut self, apart: Nanos) -> Seen;

    /// Makes these requests of a drive in memory, each when its time has come.
    ///
    /// # Errors
    /// The drive cannot be had, or a request failed.
    fn answers(&mut self, drive: &DeviceConfig, requests: &[Planned]) -> Result<Vec<Answered>, String>;

    /// Nanoseconds of real time that one of `count` steps of `work` takes.
    fn cost(&mut self, count: u32, work: &mut dyn FnMut(u32)) -> f64;

    /// What requests cost whoever asks for them.
    ///
    /// # Errors
    /// They cannot be made.
    fn overhead(&mut self, access: AccessPattern) -> Result<Overhead, String>;

    /// What so long a run of requests takes of the cores.
    ///
    /// # Errors
    /// As [`overhead`](Self::overhead).
    fn usage(&mut self, access: AccessPattern, time: Nanos) -> Result<Usage, String>;

    /// Where [`overhead`](Self::overhead) and [`usage`](Self::usage) find their bytes, and what that means for this run.
    fn about_places(&self) -> Vec<String>;

    /// Requests a second of each design, in so many rounds of all designs in turn.
    ///
    /// # Errors
    /// The drive cannot be had, or a request failed.
    fn speeds(&mut self, designs: &[Design], load: Load, rounds: usize) -> Result<Vec<Vec<f64>>, String>;

    /// Whether what runs by either clock is to run by this one.
    fn is_preferred(&self) -> bool;

    /// Jobs that share a drive in memory, each a tenant of its class.
    ///
    /// # Errors
    /// The drive cannot be had, or a request failed.
    fn shared(&mut self, drive: &SharedDrive, jobs: &[Job], span: Span) -> Result<Vec<JobResult>, String>;

    /// Whether what takes minutes is wanted, where seconds would do for a look.
    fn is_full(&self) -> bool;

    /// Nodes as processes of their own.
    fn nodes(&mut self) -> &mut dyn Nodes;

    /// How far a long reproduction has come, from 0 to 1.
    fn progress(&mut self, part: f64);

    /// The control of a whole reproduction: threads that do nothing but spin, one for each core that is measured on, looked at
    /// as the progress goes on. The part of their time in which one of them had no core, in percent.
    fn lost_pct(&mut self) -> f64;
}

/// A reproduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Which.
    pub subject: Subject,
    /// What was run, and what cannot be compared.
    pub about: Vec<String>,
    /// The table.
    pub rows: Vec<Row>,
    /// What has to be known about this run of it.
    pub notes: Vec<String>,
    /// Of the report.
    pub charts: Vec<Chart>,
}

/// A control that lost more of its time than this, in percent, says that the machine was disturbed.
const LOST_PCT: f64 = 5.0;

impl Figure {
    /// Whether no row is missed.
    pub fn ok(&self) -> bool {
        self.rows.iter().all(Row::ok)
    }

    /// Takes the verdict "missed" from all rows where the machine was disturbed, and says so.
    fn consider(&mut self, lost_pct: f64) {
        if lost_pct <= LOST_PCT {
            return;
        }
        for row in self.rows.iter_mut().filter(|row| row.verdict() == RowVerdict::Missed) {
            row.is_disturbed = true;
        }
        self.notes.push(format!(
            "The machine was disturbed: threads that only spin had no core for {lost_pct:.0} % of their time, so no row is called \
             missed; repeat it while nothing else runs."
        ));
    }

    /// A page of its own, with table and charts.
    pub fn html(&self) -> String {
        html::page(self)
    }
}

/// Nanoseconds as microseconds.
fn micros(ns: f64) -> f64 {
    ns / 1e3
}
