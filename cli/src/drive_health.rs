//! `weir device health`.

use crate::failure::CommandFailure;
use crate::output;
use weir_api::{DeviceStatus, DriveHealth, DriveReport, DriveSpeed};

/// Reports in the text, the latest.
const REPORTS: usize = 4;

/// Failing blocks in the text.
const BLOCKS: usize = 4;

/// Prints what is wrong with a drive.
///
/// # Errors
/// The node is older and says nothing of it.
pub fn print(device: &DeviceStatus, json: bool) -> Result<(), CommandFailure> {
    let Some(health) = &device.health else {
        return Err(CommandFailure::new(format!(
            "{}: the node says nothing of its health: it is an older version; upgrade it (weir upgrade)",
            device.name
        )));
    };
    if json {
        return output::json(health);
    }
    output::text(&text(&device.name, health))
}

fn text(name: &str, health: &DriveHealth) -> String {
    let verdict = health.verdict.as_deref().unwrap_or("nothing is wrong");
    let mut text = format!("{name}: {verdict}; {}, commands {}\n", health.state, commands(&health.commands));
    for (what, said) in [("meaning", &health.meaning), ("to do", &health.advice)] {
        text += &said.as_ref().map(|said| format!("  {what}: {said}\n")).unwrap_or_default();
    }
    if let (Some(warning), Some(errors)) = (health.critical_warning, health.media_errors) {
        let spare = health.available_spare_pct.map_or_else(String::new, |spare| format!(", available spare {spare} %"));
        text += &format!("  SMART: critical warning {warning:#04x}, {errors} media errors{spare}\n");
    }
    text += &health.speed.as_ref().map(|speed| format!("  speed: {}\n", speed_text(speed))).unwrap_or_default();
    text += &failing_text(health);
    for bad in &health.bad_blocks {
        text += &format!("  unreadable: {} blocks at {}\n", bad.blocks, bad.lba);
    }
    let first = health.reports.len().saturating_sub(REPORTS);
    health.reports[first..].iter().for_each(|report| text += &report_text(report));
    text
}

fn failing_text(health: &DriveHealth) -> String {
    let told = |what: String, errors: u64, ago: f64| {
        format!("  failing: {what}: {errors} media errors, the last one {ago:.1} s ago\n")
    };
    let dies = health.failing_dies.iter().map(|d| told(format!("die {}", d.die), d.errors, d.last_ago_s));
    let mut blocks: Vec<_> = health.failing_blocks.iter().collect();
    blocks.sort_by(|a, b| a.last_ago_s.total_cmp(&b.last_ago_s));
    let shown = blocks.iter().take(BLOCKS);
    let shown = shown.map(|b| told(format!("block {} of namespace {}", b.lba, b.nsid), b.errors, b.last_ago_s));
    let left = blocks.len().saturating_sub(BLOCKS);
    let more = (left > 0).then(|| format!("  failing: {left} more blocks (--json has the latest 16)\n"));
    dies.chain(shown).chain(more).collect()
}

fn speed_text(speed: &DriveSpeed) -> String {
    let (windows, factor) = (speed.windows, speed.factor.unwrap_or(1.0));
    let others = match speed.dies.len() {
        0 | 1 => String::new(),
        several => format!(", {several} dies are slow"),
    };
    match (speed.state.as_str(), speed.why.as_deref(), speed.die) {
        ("slow", _, Some(die)) => {
            format!("die {die} takes {factor:.1} times what it should{others}; {windows} windows judged")
        }
        ("slow", _, None) => {
            format!("the drive takes {factor:.1} times what it should{others}; {windows} windows judged")
        }
        ("as-expected", ..) => format!("as expected; {windows} windows judged"),
        (_, Some("disturbed"), _) => format!(
            "not judged: this machine was late itself; give the node cores of its own, and look again ({} looks dropped)",
            speed.dropped
        ),
        (_, Some("unmeasured"), _) => {
            "not judged: its calibration has no such sizes or mix of reads and writes; calibrate it for them".to_owned()
        }
        (_, Some("interrupted"), _) => "not judged: commands were kept from the drive".to_owned(),
        _ => "not judged: the drive has too little to do; look again under load".to_owned(),
    }
}

fn commands(word: &str) -> &str {
    match word {
        "sent" => "are sent",
        other => other,
    }
}

fn report_text(report: &DriveReport) -> String {
    let took = report.took_s.map_or_else(|| "goes on".to_owned(), |took| format!("took {took:.3} s"));
    let mut text = format!("  {} {:.1} s ago, {took}\n", report.verdict, report.began_ago_s);
    for step in &report.steps {
        let what = step.seen.as_deref().or(step.done.as_deref()).unwrap_or_default();
        let mark = if step.seen.is_some() { "seen" } else { "done" };
        text += &format!("    {:>9.3} s  {mark}  {what}\n", step.after_s);
    }
    if report.unlisted > 0 {
        text += &format!("    and {} more\n", report.unlisted);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api::{BlockRange, DriveReportStep, FailingBlockStatus, FailingDieStatus};

    #[test]
    fn what_an_operator_reads() {
        let step = |after_s, seen: Option<&str>, done: Option<&str>| DriveReportStep {
            after_s,
            seen: seen.map(Into::into),
            done: done.map(Into::into),
        };
        let report = DriveReport {
            began_ago_s: 12.0,
            took_s: Some(0.25),
            verdict: "bad-blocks".into(),
            steps: vec![step(0.0, Some("a read failed"), None), step(0.001, None, Some("asked for the SMART log"))],
            unlisted: 3,
        };
        let health = DriveHealth {
            state: "serving".into(),
            commands: "sent".into(),
            verdict: Some("bad-blocks".into()),
            meaning: Some("some blocks cannot be read or written; all others can".into()),
            advice: Some("restore them".into()),
            bad_blocks: vec![BlockRange { lba: 64, blocks: 8 }],
            failing_blocks: (0..5).map(|lba| FailingBlockStatus { nsid: 1, lba, errors: 1, last_ago_s: 0.5 }).collect(),
            failing_dies: vec![FailingDieStatus { die: 3, errors: 9, last_ago_s: 0.5 }],
            critical_warning: Some(0),
            available_spare_pct: Some(100),
            media_errors: Some(2),
            speed: Some(DriveSpeed {
                state: "slow".into(),
                why: None,
                factor: Some(5.0),
                die: Some(3),
                dies: vec![],
                windows: 70,
                dropped: 0,
            }),
            disturbances: 1,
            verdicts: Vec::new(),
            last_pause_s: Some(0.25),
            reports: vec![report],
        };
        let expected = "\
ssd0: bad-blocks; serving, commands are sent
  meaning: some blocks cannot be read or written; all others can
  to do: restore them
  SMART: critical warning 0x00, 2 media errors, available spare 100 %
  speed: die 3 takes 5.0 times what it should; 70 windows judged
  failing: die 3: 9 media errors, the last one 0.5 s ago
  failing: block 0 of namespace 1: 1 media errors, the last one 0.5 s ago
  failing: block 1 of namespace 1: 1 media errors, the last one 0.5 s ago
  failing: block 2 of namespace 1: 1 media errors, the last one 0.5 s ago
  failing: block 3 of namespace 1: 1 media errors, the last one 0.5 s ago
  failing: 1 more blocks (--json has the latest 16)
  unreadable: 8 blocks at 64
  bad-blocks 12.0 s ago, took 0.250 s
        0.000 s  seen  a read failed
        0.001 s  done  asked for the SMART log
    and 3 more
";
        assert_eq!(text("ssd0", &health), expected);
    }
}
