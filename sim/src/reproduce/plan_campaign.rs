//! The planner against random plans (section IV.C of the paper that the arbiter is from: weights are calculated from SLAs).

use super::{Chart, Curve, Figure, Row, Scale, Subject};
use crate::plan::campaign::{SPARE, Tally, trial};

/// Plans where nobody says how many.
pub const PLANS: u64 = 100;

/// Draws so many plans.
///
/// # Errors
/// A plan that cannot be simulated.
pub fn figure(plans: u64, progress: &mut dyn FnMut(f64)) -> Result<Figure, String> {
    let mut tally = Tally::default();
    let (mut feasible, mut spare) = (Vec::new(), Vec::new());
    for number in 0..plans {
        tally.add(number, trial(number).map_err(|e| format!("plan {number}: {e}"))?);
        feasible.push((tally.plans as f64, tally.feasible as f64));
        spare.push((tally.plans as f64, tally.spare as f64));
        progress((number + 1) as f64 / plans as f64);
    }
    let broken = tally.broken.len() as f64;
    let percent = tally.found() * 100.0;
    let rows = vec![
        Row::relation("plans", tally.plans as f64, "", tally.plans == plans, "all of them were tried"),
        Row::told("called feasible", tally.feasible as f64, "", "a count"),
        Row::relation("of them missed by fresh simulations", broken, "", tally.broken.is_empty(), "none"),
        Row::told("kept by the oracle with 5 % to spare", tally.spare as f64, "", "a count"),
        Row::relation("of them found", percent, "%", percent >= 95.0, "at least 95 %"),
        Row::told("simulations of the planner a plan", tally.runs as f64 / plans.max(1) as f64, "", "a count"),
    ];
    let curve = |name: &str, points| Curve { name: name.into(), points };
    let numbers = |of: &[u64]| of.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let mut notes = Vec::new();
    if !tally.overlooked.is_empty() {
        notes.push(format!("overlooked: plans {}", numbers(&tally.overlooked)));
    }
    if !tally.broken.is_empty() {
        notes.push(format!("missed: plans {}", numbers(&tally.broken)));
    }
    Ok(Figure {
        subject: Subject::PlanCampaign,
        about: vec![
            "Random drives of fixed latency, two to five tenants, open and closed loops, WRR and DRR, promises near what random \
             shares give. The planner answers; what it calls feasible is simulated again with two fresh seeds."
                .into(),
            format!(
                "An oracle climbs over weights in simulation, from the shares of the draw and from even ones, until it has \
                 {:.0} % to spare; it knows nothing of the model.",
                (SPARE - 1.0) * 100.0
            ),
        ],
        rows,
        notes,
        charts: vec![Chart {
            title: "plans that are feasible",
            axes: ("plans", "of them"),
            scales: (Scale::Linear, Scale::Linear),
            curves: vec![curve("by the planner", feasible), curve("by the oracle with room to spare", spare)], marks: Vec::new() }],
    })
}
