//! `weir store`: the metadata service, the namespaces that the store fills, and its clients. `weir fs df` and `class` are here as well:
//! they are about the store's classes.

use super::args::DfArgs;
use super::operands::Operands;
use super::path::{StorePath, shown};
use super::policy;
use super::store_args::{NodeCommand, StoreClientCommand, StoreCommand};
use super::text::{human, size, time};
use crate::failure::CommandFailure;
use crate::output::{self, Table};
use serde_json::json;
use std::ffi::OsString;
use weir_api::{StoreClass, StoreClient, StoreNamespace, StoreStatus, class_name};
use weir_store::protocol::{
    ClassStatus, Donation, MovementInfo, NamespaceInfo, NamespaceState, ServiceInfo, ServiceRole, StatusInfo,
};
use weir_store::{ClassId, ClassName, Location, NamespaceId, SetAttributes};
use weir_store_node::client::{Client, ClientError, Operator, OperatorConnection};

/// Runs a command at a metadata service.
///
/// # Errors
/// What the service refuses.
pub fn run(command: &StoreCommand, operator: &OperatorConnection, json: bool) -> Result<(), CommandFailure> {
    match command {
        StoreCommand::Status => status(operator, json),
        StoreCommand::Node(node) => of_node(&node.command, operator, json),
        StoreCommand::Client(clients) => match clients.command {
            StoreClientCommand::Ls => clients_table(operator, json),
        },
        // It asks no service.
        StoreCommand::Fsck(of) => super::fsck::run(of, json),
    }
}

fn of_node(command: &NodeCommand, operator: &OperatorConnection, json: bool) -> Result<(), CommandFailure> {
    match command {
        NodeCommand::Ls => {
            let (classes, namespaces) =
                (operator.status().map_err(failed)?.classes, operator.namespaces().map_err(failed)?);
            let movement = operator.movement().map_err(failed)?;
            if json {
                return output::json(&StoreNamespace::all(namespaces, &classes, &movement));
            }
            output::text(&format!("{}{}", namespaces_table(&namespaces, &classes), movement_lines(&movement)))
        }
        NodeCommand::Add { target, class, location, overwrite } => {
            let class =
                ClassName::new(class).map_err(|e| CommandFailure::usage(format_args!("--class {class}: {e}")))?;
            let location = Location::new(location)
                .map_err(|e| CommandFailure::usage(format_args!("--location {location}: {e}")))?;
            let donation = Donation { target: target.clone(), class, location, overwrite: *overwrite };
            let number = operator.donate(donation).map_err(|e| at_target(target, &e))?;
            if json {
                output::json(&json!({ "namespace": number.0 }))
            } else {
                output::text(&format!("namespace {}\n", number.0))
            }
        }
        NodeCommand::Drain { namespace, undo } => {
            operator.drain(NamespaceId(*namespace), !undo).map_err(|e| of_namespace(*namespace, &e))?;
            if json { output::json(&json!({ "namespace": namespace, "draining": !undo })) } else { Ok(()) }
        }
        NodeCommand::Rm { namespace } => {
            operator.remove_namespace(NamespaceId(*namespace)).map_err(|e| of_namespace(*namespace, &e))?;
            if json { output::json(&json!({ "namespace": namespace })) } else { Ok(()) }
        }
    }
}

fn failed(e: ClientError) -> CommandFailure {
    CommandFailure::new(e)
}

fn at_target(target: &str, e: &ClientError) -> CommandFailure {
    about(target, e)
}

fn of_namespace(number: u64, e: &ClientError) -> CommandFailure {
    about(&format!("namespace {number}"), e)
}

/// An error, with what it is about unless the metadata service has said that.
fn about(what: &str, e: &ClientError) -> CommandFailure {
    match e.node().is_some_and(|told| told.starts_with(what)) {
        true => CommandFailure::new(e),
        false => CommandFailure::new(format_args!("{what}: {e}")),
    }
}

fn status(operator: &OperatorConnection, json: bool) -> Result<(), CommandFailure> {
    let (status, namespaces) = (operator.status().map_err(failed)?, operator.namespaces().map_err(failed)?);
    let (services, movement) = (operator.services().map_err(failed)?, operator.movement().map_err(failed)?);
    let tiering = operator.tiering().map_err(failed)?;
    if json {
        return output::json(&StoreStatus::new(status, services, namespaces, &movement, tiering.as_ref()));
    }
    let (services, movement) = (services_table(&services), movement_lines(&movement));
    let demotion = tiering.map(|tiering| policy::demotion_lines(&tiering, &status.classes)).unwrap_or_default();
    output::text(&format!("{}{movement}{demotion}{services}", describe(&operator.address(), &status, &namespaces)))
}

fn describe(address: &str, status: &StatusInfo, namespaces: &[NamespaceInfo]) -> String {
    let mut out = format!(
        "store {:016x}  made {} UTC  service {} at {address}\nmetadata {}  durability {}  up for {} s\n",
        status.store,
        time(status.created, false),
        status.service.0,
        status.metadata,
        status.durability,
        status.running.get() / 1_000_000_000,
    );
    out += &format!(
        "clients {}  connections {}  open files {}  requests {}\n",
        status.sessions, status.connections, status.handles, status.requests
    );
    if let Some(trouble) = &status.trouble {
        out += &format!("trouble: {trouble}\n");
    }
    out += &format!(
        "\nclasses\n{}\nnamespaces\n{}",
        classes_table(&status.classes, true),
        namespaces_table(namespaces, &status.classes)
    );
    out
}

/// The processes that serve or stand by, where there may be several.
fn services_table(services: &[ServiceInfo]) -> String {
    if services.len() < 2 {
        return String::new();
    }
    let mut table = Table::new(&["SERVICE", "STATE", "SINCE", ">TERM"]);
    for service in services {
        let term = if service.term == 0 { "-".into() } else { service.term.to_string() };
        table.row([service.addresses.join(","), role(service.role).into(), time(service.since, false), term]);
    }
    format!("\nservices\n{}", table.render())
}

const fn role(role: ServiceRole) -> &'static str {
    match role {
        ServiceRole::Serving => "serving",
        ServiceRole::Standby => "standby",
        ServiceRole::Silent => "silent",
    }
}

fn classes_table(classes: &[ClassStatus], for_people: bool) -> String {
    let mut table = Table::new(&["CLASS", ">SIZE", ">USED", ">FREE", ">USE"]);
    for class in classes {
        let used = class.bytes.saturating_sub(class.free);
        // Rounded up, as df has it.
        let share = (u128::from(used) * 100).div_ceil(u128::from(class.bytes.max(1)));
        let sizes = [class.bytes, used, class.free].map(|bytes| size(bytes, for_people));
        table.row([vec![class.name.to_string()], sizes.to_vec(), vec![format!("{share}%")]].concat());
    }
    table.render()
}

const fn state(state: NamespaceState) -> &'static str {
    match state {
        NamespaceState::Up => "up",
        NamespaceState::Draining => "draining",
        NamespaceState::Unreachable => "unreachable",
        NamespaceState::Lost => "lost",
    }
}

fn namespaces_table(namespaces: &[NamespaceInfo], classes: &[ClassStatus]) -> String {
    let headings = ["NUMBER", "CLASS", "STATE", ">SIZE", ">FREE", ">FILES", ">GRANTED", ">FREED", "LOCATION", "TARGET"];
    let mut table = Table::new(&headings);
    for n in namespaces {
        let [bytes, free, mapped, granted, quarantined] =
            [n.bytes, n.free, n.mapped, n.granted, n.quarantined].map(human);
        let location = if n.location.as_str().is_empty() { "-" } else { n.location.as_str() }.to_owned();
        let (number, class) = (n.namespace.0.to_string(), class_name(classes, n.class));
        let state = state(n.state).to_owned();
        table.row([number, class, state, bytes, free, mapped, granted, quarantined, location, n.target.clone()]);
    }
    table.render()
}

/// What leaves namespaces, a line each, and what cannot.
fn movement_lines(movement: &[MovementInfo]) -> String {
    let lines = movement.iter().map(|m| {
        let (number, blocks) = (m.namespace.0, m.blocks);
        let what = match (m.is_repair, blocks) {
            (false, 0) => format!("namespace {number} is empty: weir store node rm {number} takes it out\n"),
            (true, 0) => format!("namespace {number}: nothing is left to be copied from elsewhere\n"),
            (false, _) => format!("namespace {number} drains: {blocks} blocks left, {}\n", human(m.bytes)),
            (true, _) => format!("namespace {number} is gone: {blocks} blocks left, {}\n", human(m.bytes)),
        };
        let reasons = reasons(m).into_iter().filter(|(count, _)| *count > 0);
        reasons.fold(what, |what, (count, why)| what + &format!("  {count} cannot go: {why}\n"))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// Why blocks are left: how many, and in words.
fn reasons(m: &MovementInfo) -> [(u64, String); 6] {
    [
        (m.has_writer, "a client has their file open for writing".into()),
        (m.unsettled, "they are recovered after a lost writer first".into()),
        (m.no_copy, "no copy can be read".into()),
        (m.no_room, "no other drive of their files' classes has room; delete files or add a drive".into()),
        (m.no_node, "no other node has a drive of their files' classes; add one".into()),
        (m.failed, format!("{}; tried again", m.why)),
    ]
}

fn clients_table(operator: &OperatorConnection, json: bool) -> Result<(), CommandFailure> {
    let sessions = operator.sessions().map_err(failed)?;
    if json {
        return output::json(&sessions.into_iter().map(StoreClient::from).collect::<Vec<_>>());
    }
    let mut table = Table::new(&["SESSION", "CLIENT", "CONNECTED", ">OPEN", ">GRANTED"]);
    for s in sessions {
        let connected = if s.is_connected { "yes" } else { "no" };
        table.row([s.session.0.to_string(), s.client, connected.into(), s.handles.to_string(), human(s.granted)]);
    }
    output::text(&table.render())
}

/// `weir fs df`.
pub fn df(client: &Client, args: &DfArgs, json: bool) -> Result<(), CommandFailure> {
    let classes = client.status().map_err(failed)?.classes;
    if json {
        return output::json(&classes.iter().map(StoreClass::from).collect::<Vec<_>>());
    }
    output::text(&classes_table(&classes, args.human_readable))
}

/// `weir fs class`: shows or sets the classes that blocks of a file are of.
pub fn class(
    operands: &mut Operands<'_>,
    client: &Client,
    (path, wanted): (&OsString, &[String]),
    json: bool,
) -> Result<(), CommandFailure> {
    let classes = client.status().map_err(failed)?.classes;
    if !wanted.is_empty() {
        let path = StorePath::parse(path)?.path;
        let set = SetAttributes { classes: Some(ids(&classes, wanted)?), ..SetAttributes::default() };
        return client.set_attributes(&path, set).map_err(failed);
    }
    let mut all = Vec::new();
    for one in operands.expand(std::slice::from_ref(path))? {
        match one.files.stat(&one.at.path, true) {
            Ok(inode) => {
                all.push((one.at.path, inode.classes.iter().map(|id| class_name(&classes, *id)).collect::<Vec<_>>()))
            }
            Err(e) => operands.fail(e),
        }
    }
    if json {
        let value = |(path, classes): &(Vec<u8>, Vec<String>)| json!({ "path": String::from_utf8_lossy(path), "classes": classes });
        return output::json(&all.iter().map(value).collect::<Vec<_>>());
    }
    let line = |(path, classes): &(Vec<u8>, Vec<String>)| {
        let text = if classes.is_empty() { "default".to_owned() } else { classes.join(" ") };
        format!("{}: {text}\n", shown(path))
    };
    output::text(&all.iter().map(line).collect::<String>())
}

/// `default` is none: those of the store.
fn ids(classes: &[ClassStatus], wanted: &[String]) -> Result<Vec<ClassId>, CommandFailure> {
    if let [only] = wanted {
        if only == "default" {
            return Ok(Vec::new());
        }
    }
    let id = |name: &String| {
        let at = classes.iter().position(|class| class.name.as_str() == name);
        let known = || classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
        at.and_then(|at| u16::try_from(at).ok())
            .map(ClassId)
            .ok_or_else(|| CommandFailure::new(format_args!("there is no class {name:?}; there is {}", known())))
    };
    wanted.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, bytes: u64, free: u64) -> ClassStatus {
        ClassStatus { name: ClassName::new(name).unwrap(), bytes, free }
    }

    #[test]
    fn classes_by_name() {
        let classes = [class("dram", 1000, 1), class("flash", 0, 0)];
        let of = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            ids(&classes, &wanted).map_err(|e| e.text().to_owned())
        };
        assert_eq!(of(&["flash", "dram"]), Ok(vec![ClassId(1), ClassId(0)]));
        assert_eq!(of(&["default"]), Ok(Vec::new()));
        assert_eq!(of(&["tape"]), Err("there is no class \"tape\"; there is dram, flash".into()));
        let table = classes_table(&classes, false);
        assert_eq!(
            table,
            "CLASS  SIZE  USED  FREE   USE\ndram   1000   999     1  100%\nflash     0     0     0    0%\n"
        );
        assert_eq!([class_name(&classes, ClassId(1)), class_name(&classes, ClassId(9))], ["flash", "class 9"]);
    }
}
