//! `/metrics` of a node with a store: what its metadata service tells of it.

use super::metrics::Family;
use super::store::{NAMESPACE_STATES, ROLES, StoreMovement, StoreNamespace, StoreStatus};

/// What is there of a store, or of one whose service does not answer.
pub(super) fn text(out: &mut String, store: Option<&StoreStatus>) {
    let help =
        "1 while the metadata service of the node's store answers, this node's or the one for which it stands by.";
    Family::new(out, "weir_store_up", "gauge", help).sample(&[], u8::from(store.is_some()));
    let Some(store) = store else { return };
    service(out, store);
    classes(out, store);
    namespaces(out, store);
    movement(out, store);
    demotion(out, store);
}

fn service(out: &mut String, store: &StoreStatus) {
    let help = "1 while something is wrong with the store's metadata; weir store status says what.";
    Family::new(out, "weir_store_trouble", "gauge", help).sample(&[], u8::from(store.trouble.is_some()));
    let mut family = Family::new(out, "weir_store_services", "gauge", "Processes that serve the store or stand by.");
    for role in ROLES {
        let count = store.services.iter().filter(|service| service.state == role).count();
        family.sample(&[("state", role)], count);
    }
    Family::new(out, "weir_store_sessions", "gauge", "Sessions of the store's clients.").sample(&[], store.sessions);
    let help = "Connections to the store's metadata service.";
    Family::new(out, "weir_store_connections", "gauge", help).sample(&[], store.connections);
    Family::new(out, "weir_store_open_files", "gauge", "Files of the store that are open.").sample(&[], store.handles);
    let help = "Requests that the process which serves the store has answered.";
    Family::new(out, "weir_store_requests_total", "counter", help).sample(&[], store.requests);
}

fn classes(out: &mut String, store: &StoreStatus) {
    let mut family = Family::new(out, "weir_store_class_bytes", "gauge", "Room of a class of drives.");
    for class in &store.classes {
        family.sample(&[("class", &class.class)], class.bytes);
    }
    let mut family = Family::new(out, "weir_store_class_free_bytes", "gauge", "What of a class is free.");
    for class in &store.classes {
        family.sample(&[("class", &class.class)], class.free_bytes);
    }
}

fn namespaces(out: &mut String, store: &StoreStatus) {
    let mut family = Family::new(
        out,
        "weir_store_namespace_state",
        "gauge",
        "1 for the state that a namespace is in, 0 for the others.",
    );
    for n in &store.namespaces {
        let number = n.namespace.to_string();
        for state in NAMESPACE_STATES {
            let labels = [("namespace", number.as_str()), ("class", &n.class), ("state", state)];
            family.sample(&labels, u8::from(n.state == state));
        }
    }
    type Bytes = fn(&StoreNamespace) -> u64;
    let quantities: [(&str, &str, Bytes); 5] = [
        ("weir_store_namespace_bytes", "Size of a donated namespace.", |n| n.bytes),
        ("weir_store_namespace_free_bytes", "What of a namespace is free.", |n| n.free_bytes),
        ("weir_store_namespace_file_bytes", "What files have of a namespace.", |n| n.file_bytes),
        ("weir_store_namespace_granted_bytes", "What clients may write and have not published.", |n| n.granted_bytes),
        ("weir_store_namespace_quarantined_bytes", "What was given up and is not free yet.", |n| n.quarantined_bytes),
    ];
    for (name, help, bytes) in quantities {
        let mut family = Family::new(out, name, "gauge", help);
        for n in &store.namespaces {
            family.sample(&[("namespace", &n.namespace.to_string()), ("class", &n.class)], bytes(n));
        }
    }
}

/// Of the classes that blocks go from.
fn demotion(out: &mut String, store: &StoreStatus) {
    let classes = || store.demotion.iter().flat_map(|demotion| &demotion.classes);
    let help = "1 while a class was over its high watermark and is not at its low one, where a policy demotes.";
    let mut family = Family::new(out, "weir_store_class_over_watermark", "gauge", help);
    for of in classes() {
        family.sample(&[("class", &of.class)], u8::from(of.over));
    }
    let help = "Bytes of blocks that the process which serves the store has moved from a class to the next.";
    let mut family = Family::new(out, "weir_store_demoted_bytes_total", "counter", help);
    for of in classes() {
        family.sample(&[("class", &of.class)], of.moved_bytes);
    }
}

/// Of the namespaces that something leaves.
fn movement(out: &mut String, store: &StoreStatus) {
    let left = || store.namespaces.iter().filter_map(|n| Some((n.namespace.to_string(), n.movement.as_ref()?)));
    let kind = |m: &StoreMovement| if m.repair { "repair" } else { "drain" };
    let help = "Bytes of blocks that are to leave a namespace, or to get copies elsewhere.";
    let mut family = Family::new(out, "weir_store_left_bytes", "gauge", help);
    for (number, m) in left() {
        family.sample(&[("namespace", &number), ("why", kind(m))], m.bytes_left);
    }
    let help = "Blocks that cannot leave a namespace at present, by their reason.";
    let mut family = Family::new(out, "weir_store_stuck_blocks", "gauge", help);
    for (number, m) in left() {
        for (reason, blocks) in m.reasons() {
            family.sample(&[("namespace", &number), ("reason", reason)], blocks);
        }
    }
    let help = "Bytes of blocks that the process which serves the store has moved from a namespace.";
    let mut family = Family::new(out, "weir_store_moved_bytes_total", "counter", help);
    for (number, m) in left() {
        family.sample(&[("namespace", &number), ("why", kind(m))], m.moved_bytes);
    }
}
