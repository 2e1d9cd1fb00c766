//! `weir fs policy`: which classes new files get by their paths; and what goes from class to class, for `weir store status`.

use super::path::{StorePath, shown};
use super::text::human;
use crate::failure::CommandFailure;
use crate::output::{self, Table};
use serde_json::json;
use std::ffi::OsStr;
use weir_api::{StorePolicy, class_name};
use weir_store::protocol::{ClassStatus, DemotionInfo, PolicyInfo, TieringInfo};
use weir_store::{PathPattern, Watermarks};
use weir_store_node::client::{Client, Operator};

/// Shows all policies, or the one of a path.
///
/// # Errors
/// The metadata service does not answer, or what is asked for is no path.
pub fn run(
    of: &OsStr,
    connect: impl Fn(Option<&str>) -> Result<Client, CommandFailure>,
    json: bool,
) -> Result<(), CommandFailure> {
    let tiering = |client: &Client| client.tiering().map_err(CommandFailure::new);
    if of == "ls" {
        let tiering = tiering(&connect(None)?)?;
        let policies = tiering.as_ref().map_or(&[][..], |tiering| &tiering.policies);
        return match json {
            true => output::json(&policies.iter().map(StorePolicy::from).collect::<Vec<_>>()),
            false => output::text(&tiering.map(|tiering| table(&tiering)).unwrap_or_default()),
        };
    }
    let path = StorePath::parse(of)?;
    let tiering = tiering(&connect(path.store.as_deref())?)?;
    let policies = tiering.map(|tiering| tiering.policies).unwrap_or_default();
    let found = policies.iter().find(|policy| matches(policy, &path.path));
    if json {
        let text = String::from_utf8_lossy(&path.path);
        return output::json(&json!({ "path": text, "policy": found.map(StorePolicy::from) }));
    }
    output::text(&line(&shown(&path.path), found))
}

fn matches(policy: &PolicyInfo, path: &[u8]) -> bool {
    PathPattern::new(&policy.path).is_ok_and(|pattern| pattern.matches(path))
}

fn classes(policy: &PolicyInfo) -> String {
    match policy.classes.is_empty() {
        true => "default".into(),
        false => policy.classes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn table(tiering: &TieringInfo) -> String {
    let mut table = Table::new(&["PATH", "CLASSES", ">COPIES", ">DEMOTE AFTER"]);
    for policy in &tiering.policies {
        let after = policy.demote_after.map_or_else(|| "-".into(), |after| after.to_string());
        table.row([policy.path.clone(), classes(policy), policy.copies.to_string(), after]);
    }
    table.render()
}

fn line(path: &str, policy: Option<&PolicyInfo>) -> String {
    let Some(policy) = policy else { return format!("{path}: no policy; classes default, 1 copy\n") };
    let copies = if policy.copies == 1 { "1 copy".into() } else { format!("{} copies", policy.copies) };
    let after = policy.demote_after.map(|after| format!(", demoted after {after}")).unwrap_or_default();
    format!("{path}: policy {}; classes {}, {copies}{after}\n", policy.path, classes(policy))
}

/// Classes from which blocks go, a line each, and what cannot.
pub fn demotion_lines(tiering: &TieringInfo, classes: &[ClassStatus]) -> String {
    let said = |of: &&DemotionInfo| of.is_over || of.moved_blocks > 0;
    let lines = tiering.classes.iter().filter(said).map(|of| {
        let (name, moved) =
            (class_name(classes, of.class), format!("{} blocks demoted, {}", of.moved_blocks, human(of.moved_bytes)));
        if !of.is_over {
            return format!("class {name}: {moved}\n");
        }
        let marks = Watermarks { high: tiering.high, low: tiering.low };
        let left = human(of.used.saturating_sub(marks.low_of(of.bytes)));
        let [high, low] = [tiering.high, tiering.low].map(percent);
        let what = format!("class {name} is over {high}%: {left} are to go until {low}%; {moved}\n");
        let reasons = reasons(of).into_iter().filter(|(count, _)| *count > 0);
        reasons.fold(what, |what, (count, why)| what + &format!("  {count} stay: {why}\n"))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn percent(millionths: u32) -> f64 {
    f64::from(millionths) / 10_000.0
}

/// Why blocks stay: how many, and in words.
fn reasons(of: &DemotionInfo) -> [(u64, String); 9] {
    [
        (of.hot, "their file was changed or open not long enough ago".into()),
        (of.kept, "no policy demotes their file".into()),
        (of.no_next, "their file has no further class".into()),
        (of.has_writer, "a client has their file open for writing".into()),
        (of.unsettled, "they are recovered after a lost writer first".into()),
        (of.no_copy, "no copy can be read".into()),
        (of.no_room, "the next class is at its own high watermark; delete files or add a drive".into()),
        (of.no_node, "no other node has a drive of the next class; add one".into()),
        (of.failed, format!("{}; tried again", of.why)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::{ClassId, ClassName};
    use weir_units::Nanos;

    fn policy(path: &str, classes: &[&str], copies: u8, after: Option<u64>) -> PolicyInfo {
        PolicyInfo {
            path: path.into(),
            classes: classes.iter().map(|name| ClassName::new(name).unwrap()).collect(),
            copies,
            demote_after: after.map(Nanos::from_secs),
        }
    }

    #[test]
    fn policies_are_shown() {
        let policies = vec![policy("/tmp/**", &["dram", "flash"], 1, Some(600)), policy("/*.log", &[], 2, None)];
        let tiering = TieringInfo { high: 900_000, low: 800_000, policies, classes: Vec::new() };
        assert_eq!(
            table(&tiering),
            "PATH     CLASSES     COPIES  DEMOTE AFTER\n\
             /tmp/**  dram flash       1          600s\n\
             /*.log   default          2             -\n"
        );
        let of = |path: &str| line(path, tiering.policies.iter().find(|policy| matches(policy, path.as_bytes())));
        assert_eq!(of("/tmp/a"), "/tmp/a: policy /tmp/**; classes dram flash, 1 copy, demoted after 600s\n");
        assert_eq!(of("/a.log"), "/a.log: policy /*.log; classes default, 2 copies\n");
        assert_eq!(of("/a"), "/a: no policy; classes default, 1 copy\n");
        assert_eq!(StorePolicy::from(&tiering.policies[0]).demote_after_ns, Some(600_000_000_000));
    }

    #[test]
    fn demotion_is_told() {
        let names = [ClassStatus { name: ClassName::new("dram").unwrap(), bytes: 0, free: 0 }];
        let over = DemotionInfo { is_over: true, bytes: 100 << 20, used: 95 << 20, hot: 3, ..DemotionInfo::default() };
        let rests =
            DemotionInfo { class: ClassId(7), moved_blocks: 2, moved_bytes: 2 << 20, ..DemotionInfo::default() };
        let tiering = TieringInfo { high: 900_000, low: 800_000, policies: Vec::new(), classes: vec![over, rests] };
        assert_eq!(
            demotion_lines(&tiering, &names),
            "\nclass dram is over 90%: 15M are to go until 80%; 0 blocks demoted, 0\n  \
             3 stay: their file was changed or open not long enough ago\nclass class 7: 2 blocks demoted, 2.0M\n"
        );
        assert_eq!(demotion_lines(&TieringInfo { classes: vec![DemotionInfo::default()], ..tiering }, &names), "");
    }
}
