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
mod cluster;
mod crail;
mod datasheets;
mod fig2;
mod fig3;
mod fig4;
mod fig5;
mod fig6;
mod fig6b;
mod figure;
mod html;
mod levelling;
mod live;
mod live_against_sim;
mod move_page;
mod numbers;
mod pages;
mod pairs;
mod plan_campaign;
mod qos;
mod row;
mod spool;
mod store_scale;
mod subject;
#[cfg(test)]
mod tests;

pub use chart::{Chart, Curve, Mark, Scale};
pub use closed::{Measured, closed_loop, flash_loop};
pub use crail::{StoreAccess, StoreDrive, StoreLoad, StoreSeen, StoreSort, Stores};
pub use figure::Figure;
pub use html::number;
pub use live::{LiveMeasurements, Seen};
pub use plan_campaign::figure as plan_campaign;
pub use qos::{
    AccessPath, AccessPattern, BURST, CAPACITY, Design, Load, Overhead, PERIOD, QueueTimers, SLOT_BYTES, SharedDrive,
    Span, Storage, Usage,
};
pub use row::{Claim, PrintedBound, Row, RowVerdict};
pub use spool::{
    Blow, CASES, Case, LossKind, Metric, Nodes, Outage, PaperDrive, Program, Server, Start, Survived, Timeline,
};
pub use subject::{ClockKind, Subject};

impl Subject {
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
            Subject::FemuFig6b => Ok(fig6b::figure(live)),
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
            Subject::SpoolFig4 => Ok(spool::fig4(live)),
            Subject::SpoolFig5 => spool::fig5(live),
            Subject::SpoolFig12 => spool::fig12(live),
            Subject::SpoolFig13 => spool::fig13(live),
            Subject::SpoolFig14 => spool::fig14(live),
            Subject::SpoolFig15 => spool::fig15(live),
            Subject::SpoolFig16 => spool::fig16(live),
            Subject::SpoolFig17 => spool::fig17(live),
            Subject::SpoolFig19 => spool::fig19(live),
            Subject::CrailLatency => crail::latency(live),
            Subject::CrailThroughput => crail::throughput(live),
            Subject::CrailStreams => crail::streams(live),
            Subject::CrailTerasort => crail::terasort(live),
            Subject::StoreScale => Ok(store_scale::figure(live)),
        }
    }
}
