//! Completions that know the running node: `source <(COMPLETE=bash weir)` has the shell ask this program, which asks the node for the names of
//! its drives, tenants, volumes and pools. Where no node answers there are none.

use crate::args::Cli;
use crate::client::ApiClient;
use crate::registry;
use clap::CommandFactory;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde::Deserialize;

/// Answers a shell that asks for completions, and ends then.
pub fn answer() {
    clap_complete::CompleteEnv::with_factory(|| with_names(Cli::command(), "")).complete();
}

/// Things of a node that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Devices,
    Tenants,
    Volumes,
    Pools,
    Nodes,
}

/// The commands, whose arguments know what they are names of; `family` is the first word: `device` of `weir device set`.
fn with_names(command: clap::Command, family: &str) -> clap::Command {
    let below: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let command = below.iter().fold(command, |command, name| {
        let family = if family.is_empty() { name } else { family };
        command.mut_subcommand(name, |sub| with_names(sub, family))
    });
    command.mut_args(|arg| match named(family, arg.get_id().as_str()) {
        Some(what) => arg.add(ArgValueCandidates::new(move || candidates(what))),
        None => arg,
    })
}

fn named(family: &str, argument: &str) -> Option<Named> {
    match (family, argument) {
        ("fs" | "store" | "bench" | "sim" | "plan" | "calibrate" | "reproduce", _) => None,
        (_, "node") => Some(Named::Nodes),
        (_, "device" | "drive" | "lost") | ("device", "name") => Some(Named::Devices),
        (_, "tenant") | ("tenant", "name") => Some(Named::Tenants),
        (_, "volume") | ("volume", "name") => Some(Named::Volumes),
        (_, "pool") | ("pool", "name") => Some(Named::Pools),
        _ => None,
    }
}

/// What has a name, of whatever kind.
#[derive(Deserialize)]
struct HasName {
    name: String,
}

fn candidates(what: Named) -> Vec<CompletionCandidate> {
    let of_node = |path: &str| -> Vec<String> {
        let client = ApiClient::find(None, None, None).ok().filter(ApiClient::is_there);
        let found: Option<Vec<HasName>> = client.and_then(|client| client.get(path).ok());
        found.into_iter().flatten().map(|named| named.name).collect()
    };
    let names = match what {
        Named::Devices => of_node("/v1/devices"),
        Named::Tenants => of_node("/v1/tenants"),
        Named::Volumes => of_node("/v1/volumes"),
        Named::Pools => of_node("/v1/pools"),
        Named::Nodes => registry::running().into_iter().map(|node| node.name).collect(),
    };
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_know_what_they_name() {
        assert_eq!(named("device", "name"), Some(Named::Devices));
        assert_eq!(named("tenant", "name"), Some(Named::Tenants));
        assert_eq!(named("fault", "device"), Some(Named::Devices));
        assert_eq!(named("volume", "tenant"), Some(Named::Tenants));
        assert_eq!(named("device", "arbitration"), None);
        assert_eq!(named("fs", "device"), None);
        with_names(Cli::command(), "").debug_assert();
    }
}
