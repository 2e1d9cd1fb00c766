//! The planner against random plans: `campaign PLANS [FIRST [VERBOSE]]`.

use weir_sim::plan::campaign::{Tally, trial};

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("PLANS and FIRST are numbers"));
    let (plans, first) = (args.next().unwrap_or(100), args.next().unwrap_or(0));
    let mut tally = Tally::default();
    for number in first..first + plans {
        tally.add(number, trial(number).unwrap_or_else(|e| panic!("plan {number}: {e}")));
        if tally.plans % 100 == 0 || tally.plans == plans {
            println!(
                "{} plans: {} feasible, {} of them missed {:?}; {} with 5 % to spare, {:.2} % of them found; {} simulations",
                tally.plans,
                tally.feasible,
                tally.broken.len(),
                tally.broken,
                tally.spare,
                tally.found() * 100.0,
                tally.runs
            );
        }
    }
    println!("overlooked: {:?}", tally.overlooked);
}
