//! What the operator has said of asymmetric namespace access, as a text that the keeper holds, so that the next worker begins with it: after
//! an upgrade, and after a crash. It ends with the keeper.
//!
//! ```text
//!  weir access 1
//!  all optimized
//!  host inaccessible nqn.2014-08.org.nvmexpress:uuid:…
//!  port inaccessible 127.0.0.1:4420
//! ```
//! `docs/reference/formats.md` has it.

use weir_controller::{AnaScope, AnaState, Subsystem};
use weir_sys::keeper_channel::{Keep, LIVE};

/// The first line; its last word is the version.
const HEAD: &str = "weir access 1";

fn name(nqn: &str) -> String {
    format!("{LIVE}access:{nqn}")
}

/// The states and their words.
const WORDS: [(AnaState, &str); 5] = [
    (AnaState::Optimized, "optimized"),
    (AnaState::NonOptimized, "non-optimized"),
    (AnaState::Inaccessible, "inaccessible"),
    (AnaState::PersistentLoss, "persistent-loss"),
    (AnaState::Change, "change"),
];

fn word(state: AnaState) -> &'static str {
    WORDS.iter().find(|(of, _)| *of == state).map(|(_, word)| *word).unwrap_or_default()
}

fn state_of(word: &str) -> Option<AnaState> {
    WORDS.iter().find(|(_, of)| *of == word).map(|(state, _)| *state)
}

/// What has been said of a drive.
pub(crate) fn text(drive: &Subsystem) -> String {
    let mut text = format!("{HEAD}\n");
    for (scope, state) in drive.access() {
        let state = word(state);
        text += &match scope {
            AnaScope::All => format!("all {state}\n"),
            AnaScope::Host(nqn) => format!("host {state} {nqn}\n"),
            AnaScope::Port(address) => format!("port {state} {address}\n"),
        };
    }
    text
}

/// Says it of a drive that was just made; `None`: the text is of another version, or no such text, and nothing is said then.
fn say(text: &str, drive: &mut Subsystem) -> Option<()> {
    let mut lines = text.lines();
    lines.next().filter(|head| *head == HEAD)?;
    let mut said = Vec::new();
    for line in lines {
        let mut words = line.splitn(3, ' ');
        let (scope, state, of) = (words.next()?, words.next()?, words.next());
        let state = state_of(state)?;
        let scope = match (scope, of) {
            ("all", None) => AnaScope::All,
            ("host", Some(nqn)) => AnaScope::Host(nqn),
            ("port", Some(address)) => AnaScope::Port(address.parse().ok()?),
            _ => return None,
        };
        said.push((scope, state));
    }
    said.into_iter().for_each(|(scope, state)| drive.set_ana(scope, state));
    Some(())
}

/// Has the keeper hold what has been said of a drive.
pub(crate) fn hold(keep: &Keep, nqn: &str, text: &str) {
    if let Err(e) = keep.hold_text(&name(nqn), text) {
        tracing::error!(nqn, "what is said of asymmetric access will not outlive this process: {e}");
    }
}

/// Says of a drive what the worker before was told. The keeper goes on holding it.
pub(crate) fn resume(keep: &Keep, drive: &mut Subsystem) {
    let nqn = drive.config().subnqn.clone();
    let said = match keep.take_text(&name(&nqn)) {
        Ok(None) => return,
        Ok(Some(text)) => say(&text, drive).ok_or_else(|| "it is of another version, or damaged".to_owned()),
        Err(e) => Err(e.to_string()),
    };
    if let Err(why) = said {
        tracing::warn!(nqn, "what was said of asymmetric access is lost, that of the configuration counts: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_controller::SubsystemConfig;
    use weir_units::Nanos;

    fn drive() -> Subsystem {
        let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:access");
        config.ana_ports = vec![("127.0.0.1:4421".parse().expect("an address"), AnaState::Inaccessible)];
        Subsystem::new(config, Nanos(0)).expect("a drive")
    }

    #[test]
    fn what_is_said_is_said_again() {
        let mut one = drive();
        assert_eq!(text(&one), "weir access 1\nall optimized\nport inaccessible 127.0.0.1:4421\n");
        one.set_ana(AnaScope::All, AnaState::NonOptimized);
        one.set_ana(AnaScope::Host("nqn.a b"), AnaState::PersistentLoss);
        one.set_ana(AnaScope::Port("[::]:4420".parse().expect("an address")), AnaState::Change);
        let said = text(&one);
        assert_eq!(said, "weir access 1\nall non-optimized\nhost persistent-loss nqn.a b\nport change [::]:4420\n");
        let mut two = drive();
        assert_eq!(say(&said, &mut two), Some(()));
        assert_eq!(text(&two), said, "the configuration's ports as well");
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let whole = "weir access 1\nall inaccessible\n";
        for wrong in ["", "weir access 2\nall inaccessible\n", "weir access 1\nall up\n"] {
            assert_eq!(say(wrong, &mut drive()), None, "{wrong:?}");
        }
        for more in ["port change 1.2.3.4\n", "all change nqn.a\n", "host change\n", "tenant change x\n", "\n"] {
            let (mut drive, wrong) = (drive(), format!("{whole}{more}"));
            let before = text(&drive);
            assert_eq!(say(&wrong, &mut drive), None, "{wrong:?}");
            assert_eq!(text(&drive), before);
        }
    }
}
