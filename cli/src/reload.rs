//! SIGHUP: the node that runs becomes what its file says, as by `weir apply`.

use crate::address::ApiOfUp;
use crate::apply::{How, become_like, running};
use crate::args;
use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::up;
use std::sync::{Arc, Mutex, PoisonError};
use weir_config::Address;
use weir_node::notice;
use weir_sys::sched;

/// What the node was started with.
pub struct Reload {
    args: args::Up,
    api: ApiOfUp,
    /// Its own socket, at which it asks itself.
    socket: Option<Address>,
    /// CPUs that the process may run on: threads that it starts may be kept off some of them.
    cores: Vec<usize>,
    turn: Mutex<()>,
}

impl Reload {
    /// Of a node whose API is there.
    pub fn new(args: &args::Up, api: &ApiOfUp, addresses: &[Address], cores: Vec<usize>) -> Arc<Self> {
        let socket = addresses.iter().find(|address| matches!(address, Address::Unix(_))).cloned();
        Arc::new(Self { args: args.clone(), api: api.clone(), socket, cores, turn: Mutex::default() })
    }

    /// Begins, and says in the log what comes of it; one after the other.
    pub fn begin(self: &Arc<Self>) {
        let reload = self.clone();
        let run = move || {
            let _turn = reload.turn.lock().unwrap_or_else(PoisonError::into_inner);
            sched::back(&reload.cores);
            match reload.run() {
                Ok(said) => notice(format_args!("SIGHUP: {said}")),
                Err(failure) => notice(format_args!("SIGHUP: {}", failure.text())),
            }
        };
        if let Err(e) = std::thread::Builder::new().name("weir-reload".into()).spawn(run) {
            notice(format_args!("SIGHUP: {e}"));
        }
    }

    fn run(&self) -> Result<String, CommandFailure> {
        let Some(file) = self.args.config.as_deref() else {
            return Ok("the node was started without a configuration file; nothing to read".into());
        };
        let Some(socket) = self.socket.clone() else {
            return Err(CommandFailure::new(
                "the API has no UNIX socket, by which the node would be changed; weir apply does it by a port",
            ));
        };
        let wanted = up::configuration(&self.args, &self.api)?;
        let client = ApiClient::at(socket);
        let done = become_like(&client, running(&client)?, &wanted, file, How::default())?;
        if done.is_empty() {
            return Ok(format!("{}: nothing differs", file.display()));
        }
        let lines: Vec<String> = done.iter().map(ToString::to_string).collect();
        Ok(format!("{} is applied: {}", file.display(), lines.join("; ")))
    }
}
