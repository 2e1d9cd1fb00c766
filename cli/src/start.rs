//! The one place where the command line meets the node.

use std::net::SocketAddr;
use std::sync::Arc;
use weir_node::api::Control;
use weir_node::config::Config;
use weir_node::{Node, NodeControl};

/// A node that serves.
pub struct Started {
    /// Where NVMe/TCP listens, with the ports really bound.
    pub listening: Vec<SocketAddr>,
    /// For the API.
    pub control: Arc<dyn Control>,
    /// Drains and ends the node.
    pub stop: Box<dyn FnOnce()>,
}

/// Starts what the configuration says. `on_shutdown` is called when [`Control::shutdown`] is.
pub fn start(config: Config, on_shutdown: Box<dyn Fn() + Send + Sync>) -> Result<Started, String> {
    let node = Node::start(config).map_err(|e| e.to_string())?;
    let listening = node.listening().to_vec();
    let control = Arc::new(NodeControl::new(&node, on_shutdown));
    let draining = control.clone();
    let stop = Box::new(move || {
        draining.drain();
        node.stop();
    });
    Ok(Started { listening, control, stop })
}
