//! Disturbances of drives, as lines of the log and as events of the node.

use super::{EventLevel, EventLog, NodeEvent, kind};
use weir_driver::health::{EpisodeAction, EpisodeEvent, Evidence, Verdict};
use weir_units::Nanos;

/// The log has a line where commands begin to fail, and one at the end of a disturbance; the events have every step.
#[cold]
pub(crate) fn tell(events: Option<&EventLog>, drive: &str, event: &EpisodeEvent) {
    let text = text(event);
    match (event.action, level(event)) {
        (EpisodeAction::Pause | EpisodeAction::Reset | EpisodeAction::Replay, _) => tracing::debug!(drive, "{text}"),
        (EpisodeAction::Fail, _) if is_of_link(event.verdict) => tracing::info!(drive, "{text}"),
        (_, EventLevel::Info) => tracing::info!(drive, "{text}"),
        (_, EventLevel::Warning) => tracing::warn!(drive, "{text}"),
        (_, EventLevel::Error) => tracing::error!(drive, "{text}"),
    }
    if let Some(events) = events {
        events.add(node_event(drive, event, text));
    }
}

/// The link's machine has lines of its own about these.
fn is_of_link(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Link | Verdict::Path)
}

fn level(event: &EpisodeEvent) -> EventLevel {
    match (event.action, event.verdict) {
        (EpisodeAction::Fail | EpisodeAction::Isolate, _) => EventLevel::Error,
        (EpisodeAction::Pause | EpisodeAction::Reset | EpisodeAction::Replay, _) => EventLevel::Info,
        (_, Verdict::Busy | Verdict::Link | Verdict::Path | Verdict::Namespace) => EventLevel::Info,
        _ => EventLevel::Warning,
    }
}

fn seen(event: &EpisodeEvent) -> String {
    event.evidence.iter().map(Evidence::to_string).collect::<Vec<_>>().join("; then ")
}

/// In whole milliseconds, or microseconds where it is less than one.
fn rounded(time: Nanos) -> Nanos {
    let unit = if time >= Nanos::from_millis(1) { 1_000_000 } else { 1000 };
    Nanos(time.get() / unit * unit)
}

/// What happened, what was seen, and what to do.
fn text(event: &EpisodeEvent) -> String {
    let (verdict, took) = (event.verdict, rounded(event.lasted));
    let pause = event.pause.map(|pause| format!(", commands did not go on for {}", rounded(pause))).unwrap_or_default();
    let what = match event.action {
        EpisodeAction::Pause => format!("{}; commands wait", verdict.meaning()),
        EpisodeAction::Reset => format!("{}; the controller is reset", verdict.meaning()),
        EpisodeAction::Replay => format!("commands that waited are sent again{pause}"),
        EpisodeAction::Fail => format!("{}; commands fail; {}", verdict.meaning(), verdict.advice()),
        EpisodeAction::Isolate => format!("{}; commands fail from now on; {}", verdict.meaning(), verdict.advice()),
        EpisodeAction::Slow => format!("{}; {}", verdict.meaning(), verdict.advice()),
        EpisodeAction::Healthy if took == Nanos(0) => format!("{}; {}", verdict.meaning(), verdict.advice()),
        EpisodeAction::Healthy => {
            format!("{}; it serves again after {took}{pause}; {}", verdict.meaning(), verdict.advice())
        }
    };
    let untold = match event.untold {
        0 => String::new(),
        more => format!("; {more} disturbances before it are only counted"),
    };
    let seen = match event.action {
        EpisodeAction::Pause | EpisodeAction::Reset | EpisodeAction::Replay => String::new(),
        _ if event.evidence.is_empty() => String::new(),
        _ => format!("; seen: {}", seen(event)),
    };
    format!("disturbance {} ({verdict}): {what}{seen}{untold}", event.episode)
}

fn node_event(drive: &str, event: &EpisodeEvent, text: String) -> NodeEvent {
    NodeEvent {
        device: Some(drive.into()),
        episode: Some(event.episode),
        verdict: Some(event.verdict.name().into()),
        evidence: Some(seen(event)).filter(|seen| !seen.is_empty()),
        duration_ns: event.action.is_end().then_some(event.lasted.get()),
        pause_ns: event.pause.map(Nanos::get),
        ..NodeEvent::new(kind::DRIVE, event.action.name(), level(event), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: EpisodeAction, verdict: Verdict) -> EpisodeEvent {
        EpisodeEvent {
            episode: 3,
            action,
            verdict,
            evidence: vec![Evidence::LinkLost, Evidence::LinkBack],
            lasted: Nanos::from_millis(1500),
            pause: None,
            untold: 0,
        }
    }

    #[test]
    fn a_line_says_what_happened_what_was_seen_and_what_to_do() {
        let healthy =
            EpisodeEvent { pause: Some(Nanos::from_secs(1)), ..event(EpisodeAction::Healthy, Verdict::Controller) };
        assert_eq!(
            text(&healthy),
            "disturbance 3 (controller): the drive's controller failed; its media are as they were; it serves again after 1500ms, \
             commands did not go on for 1s; nothing; look at its temperature and firmware if it happens again; seen: link lost; then link back"
        );
        let isolated = EpisodeEvent { untold: 2, ..event(EpisodeAction::Isolate, Verdict::Media) };
        let said = text(&isolated);
        assert!(
            said.contains("replace the drive") && said.ends_with("; 2 disturbances before it are only counted"),
            "{said}"
        );
    }

    #[test]
    fn an_event_has_the_same_in_keys() {
        let made = node_event("ssd0", &event(EpisodeAction::Isolate, Verdict::Media), "t".into());
        assert_eq!((made.kind.as_str(), made.what.as_str(), made.level), (kind::DRIVE, "isolate", EventLevel::Error));
        assert_eq!(
            (made.episode, made.verdict.as_deref(), made.duration_ns),
            (Some(3), Some("media"), Some(1_500_000_000))
        );
        assert_eq!(made.evidence.as_deref(), Some("link lost; then link back"));
        let pause = node_event("ssd0", &event(EpisodeAction::Pause, Verdict::Link), "t".into());
        assert_eq!((pause.level, pause.duration_ns), (EventLevel::Info, None));
        let passed =
            [Verdict::Busy, Verdict::Link, Verdict::BadBlocks].map(|v| level(&event(EpisodeAction::Healthy, v)));
        assert_eq!(passed, [EventLevel::Info, EventLevel::Info, EventLevel::Warning]);
    }
}
