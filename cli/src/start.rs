//! The one place where the command line meets the node.

use std::net::SocketAddr;
use std::sync::Arc;
use weir_node::api::Control;
use weir_node::config::Config;

/// A node that serves.
pub struct Started {
    /// Where NVMe/TCP listens, with the ports really bound.
    pub listening: Vec<SocketAddr>,
    /// For the API.
    pub control: Arc<dyn Control>,
    /// Drains and ends the node.
    pub stop: Box<dyn FnOnce()>,
}

/// Starts what the configuration says. `on_shutdown` is to be called when [`Control::shutdown`] is.
pub fn start(_config: Config, _on_shutdown: Box<dyn Fn() + Send + Sync>) -> Result<Started, String> {
    Err("the node is not linked into this build".to_string())
}
