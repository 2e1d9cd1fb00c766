//! `weir upgrade`: another program for a running node. The node's keeper does it; this asks for it and waits for how it ends.

use crate::args;
use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_api::{UpgradeStart, UpgradeState, UpgradeStatus};
use weir_units::{Nanos, parse};

/// How often the node is asked while it is changing hands, and while it is on probation.
const OFTEN: Duration = Duration::from_millis(5);
const SELDOM: Duration = Duration::from_millis(50);
/// A node that has not answered by then is stuck.
const SILENCE: Duration = Duration::from_secs(30);

pub fn run(client: &ApiClient, args: &args::Upgrade, json: bool) -> Result<(), CommandFailure> {
    let start = start(args)?;
    let begun: UpgradeStatus = client.create("/v1/upgrade", &start)?;
    let ended = wait(client, begun.number)?;
    if json {
        output::json(&ended)?;
    }
    match ended.state {
        UpgradeState::Upgraded if json => Ok(()),
        UpgradeState::Upgraded => output::text(&describe(&ended)),
        _ => Err(CommandFailure::new(failed(&ended))),
    }
}

fn start(args: &args::Upgrade) -> Result<UpgradeStart, CommandFailure> {
    // Relative to where this command runs, not to where the node does.
    let binary = args.binary.as_deref().map(whole).transpose()?;
    let time = |name: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(parse::nanos).transpose();
        parsed.map(|t| t.map(Nanos::get)).map_err(|e| CommandFailure::usage(format_args!("--{name}: {e}")))
    };
    let start = UpgradeStart {
        binary,
        within_ns: time("within", &args.within)?,
        probation_ns: time("probation", &args.probation)?,
    };
    start.check().map_err(|e| CommandFailure::usage(e.replace("_ns", "")))?;
    Ok(start)
}

fn whole(path: &Path) -> Result<String, CommandFailure> {
    let wrong = |e: &dyn std::fmt::Display| CommandFailure::new(format_args!("--binary: {}: {e}", path.display()));
    let whole = std::path::absolute(path).map_err(|e| wrong(&e))?;
    whole.into_os_string().into_string().map_err(|_| wrong(&"its path is no UTF-8; rename it"))
}

/// Asks until the upgrade of that number has ended. While the node changes hands nobody answers, and then the new program does.
fn wait(client: &ApiClient, number: u64) -> Result<UpgradeStatus, CommandFailure> {
    let bar = progress();
    let mut heard = Instant::now();
    loop {
        match client.get::<UpgradeStatus>("/v1/upgrade") {
            Ok(status) if status.number == number && !status.state.is_open() => {
                bar.finish_and_clear();
                return Ok(status);
            }
            Ok(status) if status.number == number => {
                heard = Instant::now();
                bar.set_message(word(status.state));
                std::thread::sleep(if status.state == UpgradeState::Probation { SELDOM } else { OFTEN });
            }
            Ok(status) => {
                let what = format_args!(
                    "upgrade: the node knows nothing of it any more: it speaks of number {}, and this was number {number}; weir status \
                     says what serves",
                    status.number
                );
                return Err(CommandFailure::new(what));
            }
            Err(_) if heard.elapsed() < SILENCE => std::thread::sleep(SELDOM),
            Err(e) => return Err(e),
        }
        bar.tick();
    }
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{spinner} {elapsed} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style).with_message(word(UpgradeState::Preparing))
}

fn word(state: UpgradeState) -> &'static str {
    match state {
        UpgradeState::None => "nothing is under way",
        UpgradeState::Preparing => "the new program prepares",
        UpgradeState::HandingOver => "the program before it finishes what is in flight",
        UpgradeState::TakingOver => "the new program takes over",
        UpgradeState::Probation => "the new program serves, on probation",
        UpgradeState::Renewing => "the new program serves, and the keeper follows",
        UpgradeState::Upgraded => "upgraded",
        UpgradeState::Refused => "refused",
        UpgradeState::RolledBack => "rolled back",
    }
}

fn describe(status: &UpgradeStatus) -> String {
    let took = |ns: Option<u64>| format!("{:.1} ms", ns.unwrap_or(0) as f64 / 1e6);
    let keeper = match &status.keeper {
        Some(why) => format!("the keeper stays with the program before: {why}"),
        None => format!("the keeper went on as the new program in {}", took(status.renew_ns)),
    };
    format!(
        "upgraded: {} serves; it prepared in {}, the one before it let go in {}, and it took over in {}; {keeper}\n",
        status.binary,
        took(status.prepare_ns),
        took(status.hand_over_ns),
        took(status.take_over_ns)
    )
}

fn failed(status: &UpgradeStatus) -> String {
    let reason = status.reason.as_deref().unwrap_or("no reason was reported");
    match status.state {
        UpgradeState::RolledBack => format!("upgrade: rolled back, the program before it serves again: {reason}"),
        _ => format!("upgrade: refused, the program before it serves: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(within: &str, probation: &str) -> args::Upgrade {
        let text = |t: &str| (!t.is_empty()).then(|| t.to_owned());
        args::Upgrade { binary: Some("bin/weir".into()), within: text(within), probation: text(probation) }
    }

    #[test]
    fn what_is_asked_for() {
        let asked = start(&args("500ms", "0s")).unwrap();
        assert_eq!((asked.within_ns, asked.probation_ns), (Some(500_000_000), Some(0)));
        let here = std::env::current_dir().unwrap().join("bin/weir");
        assert_eq!(asked.binary.as_deref(), here.to_str());
        for (within, probation, part) in
            [("soon", "", "--within: "), ("0s", "", "within: 1 ms to 1 h"), ("", "7200s", "probation: 0 to 1 h")]
        {
            let e = start(&args(within, probation)).unwrap_err();
            assert!(e.text().contains(part), "{}", e.text());
        }
    }

    #[test]
    fn how_it_ended() {
        let mut status = UpgradeStatus { binary: "/x".into(), prepare_ns: Some(2_000_000), ..Default::default() };
        assert!(describe(&status).contains("/x serves; it prepared in 2.0 ms, "), "{}", describe(&status));
        status.renew_ns = Some(3_000_000);
        assert!(describe(&status).contains("the keeper went on as the new program in 3.0 ms"), "{}", describe(&status));
        status.keeper = Some("it cannot".into());
        assert!(describe(&status).contains("the keeper stays with the program before: it cannot"));
        status.reason = Some("why".into());
        for (state, part) in [(UpgradeState::RolledBack, "rolled back, "), (UpgradeState::Refused, "refused, ")] {
            status.state = state;
            assert!(failed(&status).starts_with("upgrade: ") && failed(&status).contains(part));
        }
    }
}
