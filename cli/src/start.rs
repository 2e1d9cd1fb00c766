//! The one place where the command line meets the node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
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
}

impl Started {
    /// What its start consisted of.
    pub fn steps(&self) -> &[(&'static str, Duration)] {
        self.node.steps()
    }

    /// Drains and ends the node.
    pub fn stop(self) {
        self.control.drain();
        self.node.stop();
    }

    /// Drains the node and ends it, with everything left open for the next worker; `left` is called as soon as that one may begin.
    /// False where something is still under way: the next worker has to wait for the end of this process.
    #[must_use]
    pub fn hand_over(self, left: impl Fn() + Send + Sync + 'static) -> bool {
        self.control.drain();
        let _settled = self.control.settle();
        self.node.hand_over(left)
    }
}

/// Starts what the configuration says. `on_shutdown` is called when the API's shutdown is.
pub fn start(
    crew: PreparedShards,
    config: Config,
    keep: &Keep,
    on_shutdown: Box<dyn Fn() + Send + Sync>,
) -> Result<Started, String> {
    if config.store.is_some() {
        return Err("store: this release has no metadata service yet; leave [store] out".into());
    }
    let node = Node::start_with(crew, config, keep).map_err(|e| e.to_string())?;
    let listening = node.listening().to_vec();
    let control = Arc::new(NodeControl::new(&node, on_shutdown));
    Ok(Started { listening, control, node })
}
