//! `weir device health`.

use crate::failure::CommandFailure;
use crate::output;
use weir_api::{DeviceStatus, DriveHealth, DriveReport, DriveSpeed};

/// Reports in the text, the latest.
const REPORTS: usize = 4;

/// Prints what is wrong with a drive.
///
/// # Errors
/// It is not diagnosed: memory that is held to nothing.
pub fn print(device: &DeviceStatus, json: bool) -> Result<(), CommandFailure> {
    let Some(health) = &device.health else {
        return Err(CommandFailure::new(format!(
            "{}: its media is {}, and it is not diagnosed: give it a profile, a latency or a calibration to be held to",
            device.name, device.media
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
        text += &format!("  SMART: critical warning {warning:#04x}, {errors} media errors\n");
    }
    text += &health.speed.as_ref().map(|speed| format!("  speed: {}\n", speed_text(speed))).unwrap_or_default();
    for bad in &health.bad_blocks {
        text += &format!("  unreadable: {} blocks at {}\n", bad.blocks, bad.lba);
    }
    let first = health.reports.len().saturating_sub(REPORTS);
    health.reports[first..].iter().for_each(|report| text += &report_text(report));
    text
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
    use weir_api::{BlockRange, DriveReportStep};

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
            critical_warning: Some(0),
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
  SMART: critical warning 0x00, 2 media errors
  speed: die 3 takes 5.0 times what it should; 70 windows judged
  unreadable: 8 blocks at 64
  bad-blocks 12.0 s ago, took 0.250 s
        0.000 s  seen  a read failed
        0.001 s  done  asked for the SMART log
    and 3 more
";
        assert_eq!(text("ssd0", &health), expected);
    }
}
