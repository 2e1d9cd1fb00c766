//! The one place where the command line meets the node.

use crate::store_service::{self, StoreService};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_api::{ServedNode, StoreControl};
use weir_config::Config;
use weir_node::{Node, NodeControl, PreparedShards};

use weir_sys::keeper_channel::Keep;

/// A node that serves.
pub struct Started {
    /// Where NVMe/TCP listens, with the ports really bound.
    pub listening: Vec<SocketAddr>,
    /// For the API, and for the keeper.
    pub control: Arc<NodeControl>,
    node: Node,
    store: Option<StoreService>,
}

impl Started {
    /// What its start consisted of.
    pub fn steps(&self) -> &[(&'static str, Duration)] {
        self.node.steps()
    }

    /// Where its metadata service is reached, if it has one.
    pub fn store(&self) -> &[String] {
        self.store.as_ref().map_or(&[], |store| &store.addresses)
    }

    /// The node as its API sees it.
    pub fn served(&self) -> Arc<ServedNode> {
        let store = self.store.as_ref().map(|store| StoreControl::new(store.where_reached()));
        Arc::new(ServedNode::new(self.control.clone(), store))
    }

    /// Drains and ends the node.
    pub fn stop(mut self) {
        self.stop_store();
        self.control.drain();
        self.node.stop();
    }

    /// Drains the node and ends it, with everything left open for the next worker; `left` is called as soon as that one may begin.
    /// False where something is still under way: the next worker has to wait for the end of this process.
    #[must_use]
    pub fn hand_over(mut self, left: impl Fn() + Send + Sync + 'static) -> bool {
        self.stop_store();
        self.control.drain();
        let _settled = self.control.settle();
        self.node.hand_over(left)
    }

    fn stop_store(&mut self) {
        if let Some(store) = self.store.take() {
            store.stop();
        }
    }
}

/// Starts what the configuration says. `on_shutdown` is called when the API's shutdown is.
pub fn start(
    crew: PreparedShards,
    config: Config,
    keep: &Keep,
    on_shutdown: Box<dyn Fn() + Send + Sync>,
) -> Result<Started, String> {
    let stored = config.store.is_some().then(|| config.clone());
    let node = Node::start_with(crew, config, keep).map_err(|e| e.to_string())?;
    let listening = node.listening().to_vec();
    let store = match &stored {
        Some(config) => store_service::start(config, &listening, keep.generation() > 0)?,
        None => None,
    };
    let control = Arc::new(NodeControl::new(&node, on_shutdown));
    control.tend_volumes().map_err(|e| format!("no thread for the volumes' copies: {e}"))?;
    control.serve_on_failure().map_err(|e| format!("on_failure: {e}"))?;
    control.note_serving();
    control.watch().map_err(|e| format!("events: {e}"))?;
    Ok(Started { listening, control, node, store })
}
