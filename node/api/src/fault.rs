//! Rules of failures as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_fault::FaultRule;
use weir_node::FaultSnapshot;

/// `POST /v1/devices/NAME/faults`: a rule. docs/reference/faults.md says what each effect takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultAdd {
    /// What goes wrong: `media-error`, `status`, `hang`, `link-loss`, …
    pub effect: String,
    /// Namespace; left out: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Blocks, one of which a command touches: `8`, or `8-15`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lba: Option<String>,
    /// I/O commands by the standard's names or by opcode: `read`, `write,write-zeroes`, `0xc1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// Admin commands, the same way: `identify,get-log-page`. A rule with it is about no I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// A tenant's commands, or, of a condition, its controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// An I/O queue by its QID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
    /// Channel of the flash that a read goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<u32>,
    /// Die of the flash, drive-wide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub die: Option<u32>,
    /// Block of a plane of the flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// Page of a block of the flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    /// Part of the commands that the rule is about to which it applies, above 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// What chance is drawn from; left out: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How often it applies at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Commands that go before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// How long after now it begins: `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How long it lasts: `15s`; left out: until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// `status`: status code type and status code, `2/81h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// `status`: with Do Not Retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dnr: Option<bool>,
    /// `status`: command retry delay, 1 to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crd: Option<u8>,
    /// `correctable-error`: how often the page is sensed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// `corrupt`: how many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
    /// `torn-write`: blocks that are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// `misdirected`: how many blocks further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i64>,
    /// `latency`: `2ms`, `1ms..5ms` or `~2ms`; `slow-reset`: `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `removal`: `same` or `other` drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<String>,
    /// `namespace-resized`: its size in blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// `smart`: available spare, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<u8>,
    /// `smart`: percentage used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear: Option<u8>,
    /// `smart`: composite temperature, K.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u16>,
    /// `smart`: media errors in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_errors: Option<u64>,
    /// `smart`: how long it takes to get there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// `slow-die`: the factor of its times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<f64>,
}

impl FaultAdd {
    /// The rule, or which key is wrong and what to do.
    ///
    /// # Errors
    /// As [`FaultRule::from_pairs`].
    pub fn rule(&self) -> Result<FaultRule, String> {
        let Ok(Value::Object(keys)) = serde_json::to_value(self) else { return Err("effect: missing".into()) };
        let text = |value: Value| if let Value::String(text) = value { text } else { value.to_string() };
        let pairs: Vec<(String, String)> = keys.into_iter().map(|(key, value)| (key, text(value))).collect();
        let pairs = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        FaultRule::from_pairs(pairs).map_err(|why| why.to_string())
    }
}

/// A rule of a drive, and what it has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Fault")]
pub struct FaultStatus {
    /// The drive.
    pub device: String,
    /// Its number at that drive.
    pub id: u32,
    /// The rule, as `weir fault add` takes it.
    pub rule: String,
    /// Its time has come and is not over.
    pub active: bool,
    /// Commands that it was about.
    pub matched: u64,
    /// How often it applied.
    pub applied: u64,
}

impl FaultStatus {
    pub(crate) fn new(device: &str, found: &FaultSnapshot) -> Self {
        let FaultSnapshot { id, rule, matched, applied, is_active } = found;
        let (device, rule) = (device.to_string(), rule.to_string());
        Self { device, id: *id, rule, active: *is_active, matched: *matched, applied: *applied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_rule_has_a_field() {
        let all: Vec<&str> = weir_fault::FAULT_KEYS.into_iter().collect();
        for key in &all {
            let with =
                |value: Value| serde_json::from_value::<FaultAdd>(serde_json::json!({ "effect": "hang", *key: value }));
            let fits =
                *key == "effect" || with("1".into()).is_ok() || with(1.into()).is_ok() || with(true.into()).is_ok();
            assert!(fits, "{key}");
        }
        assert!(serde_json::from_str::<FaultAdd>(r#"{"effect":"hang","melt":1}"#).is_err());
    }

    #[test]
    fn a_body_is_the_rule_that_its_keys_say() {
        let body =
            r#"{"effect":"status","code":"2/81h","lba":"8-15","op":"read","probability":0.25,"count":3,"dnr":true}"#;
        let rule = serde_json::from_str::<FaultAdd>(body).expect("valid").rule().expect("a rule");
        assert_eq!(rule.to_string(), "status code=2/81h dnr=true lba=8-15 op=read probability=0.25 count=3");
        let wrong = FaultAdd { effect: "melt".into(), ..FaultAdd::default() };
        assert!(wrong.rule().expect_err("no effect").starts_with("effect: there is no \"melt\""));
    }
}
