//! Failures by rule of a running node.

use crate::args::{self, FaultCommand};
use crate::client::{ApiClient, in_url};
use crate::failure::CommandFailure;
use crate::output::{self, Table};
use weir_api::{DeviceStatus, FaultAdd, FaultStatus};
use weir_fault::FaultRule;

pub fn run(client: &ApiClient, args: &args::FaultArgs, json: bool) -> Result<(), CommandFailure> {
    match &args.command {
        FaultCommand::Ls { device } => {
            let faults = list(client, device.as_deref())?;
            output::list(&faults, |f| format!("{} {}", f.device, f.id), |faults| table(faults).shown())
        }
        FaultCommand::Add { device, rule } => {
            let made: FaultStatus = client.create(&path(device), &body(rule).map_err(CommandFailure::usage)?)?;
            if json {
                output::json(&made)
            } else {
                output::text(&format!("{}: rule {}: {}\n", made.device, made.id, made.rule))
            }
        }
        FaultCommand::Rm { device, rule } => {
            let removed = remove(client, device, rule)?;
            if json {
                return output::json(&removed);
            }
            let line = |f: &FaultStatus| {
                format!("{}: rule {} removed: {}, applied {} times\n", f.device, f.id, f.rule, f.applied)
            };
            output::text(&removed.iter().map(line).collect::<String>())
        }
    }
}

fn path(device: &str) -> String {
    format!("/v1/devices/{}/faults", in_url(device))
}

/// The rules of a drive, or of all.
fn list(client: &ApiClient, device: Option<&str>) -> Result<Vec<FaultStatus>, CommandFailure> {
    if let Some(device) = device {
        return client.get(&path(device));
    }
    let devices: Vec<DeviceStatus> = client.get("/v1/devices")?;
    let mut all = Vec::new();
    for device in devices {
        all.extend(client.get::<Vec<FaultStatus>>(&path(&device.name))?);
    }
    Ok(all)
}

fn remove(client: &ApiClient, device: &str, rule: &str) -> Result<Vec<FaultStatus>, CommandFailure> {
    let ids = match (rule, rule.parse::<u32>()) {
        ("all", _) => list(client, Some(device))?.iter().map(|fault| fault.id).collect(),
        (_, Ok(id)) => vec![id],
        _ => return Err(CommandFailure::usage(format!("\"{rule}\" is no rule's number, nor all"))),
    };
    ids.into_iter().map(|id| client.delete(&format!("{}/{id}", path(device)))).collect()
}

/// The words of a rule as the API takes it; what is wrong in them is said before the node is asked.
fn body(words: &[String]) -> Result<FaultAdd, String> {
    let rule = FaultRule::parse(&words.join(" ")).map_err(|why| why.to_string())?;
    let number = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| !value.is_string());
    let mut body = serde_json::Map::new();
    for (key, value) in rule.pairs() {
        let of_text = serde_json::Value::from(value.clone());
        body.insert(key.into(), of_text);
        // A key takes text or a number: which one, its type says.
        if serde_json::from_value::<FaultAdd>(body.clone().into()).is_err() {
            body.insert(key.into(), number(&value).unwrap_or_default());
        }
    }
    serde_json::from_value(body.into()).map_err(|why| why.to_string())
}

fn table(faults: &[FaultStatus]) -> Table {
    let mut table = Table::new(&["DEVICE", ">RULE", "ACTIVE", ">MATCHED", ">APPLIED", "WHAT"]);
    for f in faults {
        let active = if f.active { "yes" } else { "no" };
        // What holds for a time is about no commands.
        let is_counted = f.matched > 0 || FaultRule::parse(&f.rule).is_ok_and(|rule| !rule.effect.is_condition());
        let count = |of: u64| if is_counted { of.to_string() } else { "-".to_owned() };
        table.row([
            f.device.clone(),
            f.id.to_string(),
            active.to_string(),
            count(f.matched),
            count(f.applied),
            f.rule.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_rule_become_its_body() {
        for text in [
            "status code=2/81h dnr=true nsid=1 lba=8 op=write,read queue=3",
            "latency time=~2ms probability=0.25 seed=9 count=2 after=1 from=1s lasts=5s",
            "misdirected by=-8",
            "smart spare=5 wear=101 temperature=350 media_errors=7 over=10s",
            "slow-die times=2.5 die=3",
        ] {
            let words: Vec<String> = text.split(' ').map(str::to_string).collect();
            let rule = body(&words).and_then(|body| body.rule()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(rule.to_string(), text);
        }
        let wrong = body(&["hang".into(), "lba=x".into()]).expect_err("no block");
        assert!(wrong.starts_with("lba: \"x\" is not a block"), "{wrong}");
    }
}
