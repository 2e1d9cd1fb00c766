//! A store that a `WeirFileSystem` is over: the client, and another one when its session is over.

use crate::failure::Failure;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError, RwLock};
use weir_store_node::client::{Client, ClientOptions};

/// Who this process is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Owner {
    /// As the kernel has it; root where that cannot be found out.
    fn of_this_process() -> Self {
        std::fs::metadata("/proc/self").map(|of| Self { uid: of.uid(), gid: of.gid() }).unwrap_or_default()
    }
}

/// See [the module](self).
#[derive(Debug)]
pub struct Store {
    address: String,
    options: ClientOptions,
    client: RwLock<Client>,
    /// Held by who connects.
    connecting: Mutex<()>,
    /// The owner of new files.
    pub owner: Owner,
}

impl Store {
    /// Connects.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(address: &str, options: ClientOptions) -> Result<Self, Failure> {
        let client = RwLock::new(Client::connect(address, options.clone())?);
        let (connecting, owner) = (Mutex::new(()), Owner::of_this_process());
        Ok(Self { address: address.into(), options, client, connecting, owner })
    }

    fn current(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client. Where its session is over another one is connected; files that were open in the old one stay with it, and fail.
    ///
    /// # Errors
    /// The metadata service does not answer.
    pub fn client(&self) -> Result<Client, Failure> {
        let client = self.current();
        if !client.is_over() {
            return Ok(client);
        }
        let _one = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        let client = self.current();
        if !client.is_over() {
            return Ok(client);
        }
        let next = Client::connect(&self.address, self.options.clone())?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        Ok(next)
    }
}
