//! What came of a plan, and why promises cannot be kept.

use super::tenant::PlannedTenant;
use weir_config::Mechanism;
use weir_plan::planner::{FLOORS, Got, Overfull, PlannedShares, Shares, SlaBound, Unmet, Verdict};
use weir_units::{Bytes, Nanos};

/// Where the drive's figures come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Figures {
    /// Its latency and slots say it all.
    Fixed,
    /// The simulator measured it, in this state.
    Simulated(&'static str),
    /// A calibration file.
    Calibrated(String),
}

/// What an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// Simulations of the real arbiter and drive.
    Simulation,
    /// The model, and the drive's calibration.
    Model,
}

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Shares, predictions, simulation, and what is missed.
    pub answer: PlannedShares,
    /// What it rests on.
    pub source: AnswerSource,
    /// What the model says under those shares: what a node says that has a calibration of this drive.
    pub verdict: Verdict,
    /// The search ended before it had tried everything.
    pub is_cut_short: bool,
    /// What everybody gets in a few simulations, and what another may be off from that; of a calibrated drive, in one of the file's seed
    /// in front of a drive that answers as the calibration says.
    pub simulated: Vec<Got>,
    /// By which rule the drive arbitrates.
    pub mechanism: Mechanism,
    /// The tenants, in the answer's order.
    pub members: Vec<PlannedTenant>,
    /// Where the drive's figures come from.
    pub figures: Figures,
    /// What the promised rates take of the drive: above 1 no shares can keep them.
    pub promised: f64,
    /// Who misses a bound even alone on the drive, by place.
    pub alone: Vec<usize>,
    /// Where not all fit: how many do, counted from the first; the others are too many.
    pub fitting: Option<usize>,
    /// Bytes of the drive that was simulated, where that is a smaller one in its stead.
    pub simulated_as: Option<Bytes>,
    /// Virtual time of a simulation, the ramp included.
    pub time: Nanos,
    /// Simulations.
    pub runs: u32,
}

impl Planned {
    /// Whether every promise is kept.
    pub fn is_feasible(&self) -> bool {
        self.answer.is_feasible() && self.verdict.floors.is_empty()
    }

    /// Why it is not feasible, in one sentence.
    pub fn reason(&self) -> Option<String> {
        if let Some(floor) = self.verdict.floors.first() {
            return Some(self.overfull(floor));
        }
        let first = self.answer.unmet.first()?;
        let name = &self.members[first.tenant].tenant.name;
        let alone = self.alone.contains(&first.tenant);
        let margin = match self.source {
            AnswerSource::Model => self.verdict.got[first.tenant].margin.of_bound(&first.bound),
            AnswerSource::Simulation => 0.0,
        };
        let mut text = format!("{name} misses its {}: {}", first.bound, shown(first));
        if first.by() < margin {
            let percent = margin * 100.0;
            text = format!("{name} is nearer to its {} than the model's margin of {percent:.0} %", first.bound);
        }
        if alone {
            text += "; it does so even alone on the drive";
        } else if self.promised > 1.0 {
            text += &format!("; the rates promised take {:.0} % of the drive", self.promised * 100.0);
        } else if self.is_cut_short {
            text += "; not every ratio of shares was tried: --full does";
        }
        Some(text)
    }

    fn overfull(&self, floor: &Overfull) -> String {
        let name = &self.members[floor.tenant].tenant.name;
        let [sum, most] = [floor.sum, FLOORS].map(|part| part * 100.0);
        format!("the floors up to {name}'s would hold {sum:.0} % of the drive, and {most:.0} % is the most")
    }

    /// Weights of the classes, where the mechanism has some.
    pub fn shares(&self) -> &Shares {
        &self.answer.shares
    }
}

/// `3.1 ms, 24 % over`.
fn shown(unmet: &Unmet) -> String {
    let by = unmet.by() * 100.0;
    match (unmet.bound, unmet.got) {
        (_, None) => "its queue grows without bound".to_string(),
        (SlaBound::Iops(_), Some(got)) => format!("it gets {got:.0}, {by:.1} % too few"),
        (SlaBound::Bandwidth(_), Some(got)) => format!("it gets {}/s, {by:.1} % too little", Bytes(got as u64)),
        (_, Some(got)) => format!("it is {}, {by:.1} % over", Nanos(got as u64)),
    }
}
