//! `weir events`: what has happened to a node, and what happens from now on.

use crate::calendar;
use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::output;
use clap::Args;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_api::NodeEvent;
use weir_units::{Nanos, parse};

/// A node that has not answered for so long, while its events are followed, is gone.
const GONE_AFTER: Duration = Duration::from_secs(30);
/// Between two attempts to go on.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir events                      the latest, at most 256
  weir events --since 60min        those of the last hour
  weir events --follow             and what happens from now on, until Ctrl-C
  weir events --follow --json      a line of JSON each, for a program

A drive that is disturbed has several events of one number: pause, reset, replay, fail, isolate, slow, healthy. What has happened outlives
a crash and an upgrade of the node, not its end.")]
pub struct EventsArgs {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Only events that are not older
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse::nanos(text))]
    since: Option<Nanos>,
}

/// Prints events, and goes on where it is to follow.
///
/// # Errors
/// The node does not answer, or has gone for good.
pub fn run(client: &ApiClient, args: &EventsArgs, json: bool) -> Result<(), CommandFailure> {
    let from = args.since.map_or(0, |since| now_ms().saturating_sub(since.get() / 1_000_000));
    if args.follow {
        return follow(client, from, json);
    }
    let mut events: Vec<NodeEvent> = client.get("/v1/events")?;
    events.retain(|event| event.unix_ms >= from);
    if json {
        return output::json(&events);
    }
    output::text(&events.iter().map(line).collect::<String>())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Prints what comes, and connects again where the stream ends: with an upgrade, or a crash.
fn follow(client: &ApiClient, from: u64, json: bool) -> Result<(), CommandFailure> {
    let (mut last, mut heard, mut is_first, mut is_read) = (0, Instant::now(), true, true);
    loop {
        let path = if last == 0 { "/v1/events".to_owned() } else { format!("/v1/events?after={last}") };
        let ended = client.stream(&path, |text| {
            (heard, is_first) = (Instant::now(), false);
            let Some(event) = text.strip_prefix("data:").and_then(|data| serde_json::from_str::<NodeEvent>(data).ok())
            else {
                return true;
            };
            last = event.number;
            if event.unix_ms >= from {
                is_read = printed(&event, json).unwrap_or(false);
            }
            is_read
        });
        match ended {
            Ok(()) if !is_read => return Ok(()),
            // A mistake in the address shows at once; a worker that dies while it tells something is no mistake.
            Err(failure) if is_first || heard.elapsed() >= GONE_AFTER => return Err(failure),
            Ok(()) | Err(_) => is_first = false,
        }
        std::thread::sleep(PAUSE);
    }
}

/// Prints one; false where nobody reads any more.
fn printed(event: &NodeEvent, json: bool) -> Result<bool, CommandFailure> {
    let text = if json { serde_json::to_string(event).map_err(CommandFailure::new)? + "\n" } else { line(event) };
    output::is_read(text.as_bytes())
}

/// One event as people read it, in UTC.
fn line(event: &NodeEvent) -> String {
    let (seconds, ms) = (event.unix_ms / 1000, event.unix_ms % 1000);
    let (year, month, day) = calendar::date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let of = [&event.device, &event.tenant, &event.pool].into_iter().flatten().next();
    let subject = of.map(|name| format!(" {name}")).unwrap_or_default();
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}Z {:<7} {}{subject} {}: {}\n",
        event.level.word(),
        event.kind,
        event.what,
        event.text
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api::EventLevel;

    #[test]
    fn a_line_has_when_what_and_who() {
        let event = NodeEvent {
            number: 3,
            unix_ms: 1_700_000_000_123,
            kind: "drive".into(),
            what: "isolate".into(),
            level: EventLevel::Error,
            device: Some("ssd0".into()),
            text: "the drive's media have failed".into(),
            ..NodeEvent::default()
        };
        assert_eq!(
            line(&event),
            "2023-11-14 22:13:20.123Z error   drive ssd0 isolate: the drive's media have failed\n"
        );
        let worker = NodeEvent { device: None, kind: "worker".into(), what: "serving".into(), ..event };
        assert!(line(&worker).contains(" worker serving: "));
    }
}
