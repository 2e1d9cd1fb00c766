//! The client of the store, and another one when its session is over.

use crate::errors::Failed;
use fuser::Errno;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_store_node::client::{Client, ClientError, ClientOptions};

/// How long others fail at once after a request that the metadata service has not answered in time.
const TROUBLE: Duration = Duration::from_secs(1);

/// A client, and the number of its session among those of this mount.
#[derive(Clone, Debug)]
pub struct Connected {
    /// The client.
    pub client: Client,
    /// 1 for the first, and so on.
    pub session: u64,
}

/// See [the module](self).
#[derive(Debug)]
pub struct StoreLink {
    address: String,
    options: ClientOptions,
    current: RwLock<Connected>,
    /// Held by who connects.
    connecting: Mutex<()>,
    /// Since when the metadata service does not answer, as far as that is known.
    trouble: Mutex<Option<Instant>>,
}

impl StoreLink {
    /// Over a client that is there; others are made with the same options.
    pub fn new(client: Client, options: ClientOptions) -> Self {
        Self {
            address: client.address().into(),
            options,
            current: RwLock::new(Connected { client, session: 1 }),
            connecting: Mutex::new(()),
            trouble: Mutex::new(None),
        }
    }

    /// The address of the metadata service.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How long a request may take.
    pub fn deadline(&self) -> Duration {
        self.options.deadline
    }

    fn current(&self) -> Connected {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client. Where its session is over another one is connected.
    ///
    /// # Errors
    /// The metadata service does not answer, or has not a moment ago.
    pub fn connected(&self) -> Result<Connected, Failed> {
        self.is_answered()?;
        let current = self.current();
        if current.client.is_over() { self.renew(current.session) } else { Ok(current) }
    }

    /// Whether a file that was opened in that session can be used.
    pub fn is_current(&self, session: u64) -> bool {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.session == session && !current.client.is_over()
    }

    fn renew(&self, old: u64) -> Result<Connected, Failed> {
        let _one = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current();
        if current.session != old {
            return Ok(current);
        }
        let client = self.noted(Client::connect(&self.address, self.options.clone()))?;
        tracing::warn!("the session at {} was over: a new one has begun; what was not published is lost", self.address);
        let next = Connected { client, session: old + 1 };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        Ok(next)
    }

    /// Has the client ask the metadata service.
    ///
    /// # Errors
    /// Its refusal, or it does not answer in time.
    pub fn ask<T>(&self, what: impl FnOnce(&Client) -> Result<T, ClientError>) -> Result<T, Failed> {
        let connected = self.connected()?;
        self.noted(what(&connected.client))
    }

    /// An answer of the metadata service, and whether it came in time.
    ///
    /// # Errors
    /// As it is.
    pub fn noted<T>(&self, answer: Result<T, ClientError>) -> Result<T, Failed> {
        let answer = answer.map_err(Failed::from);
        let is_late = answer.as_ref().is_err_and(|failed| failed.is_late);
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match is_late {
            true => *trouble = Some(Instant::now()),
            false => drop(trouble.take()),
        }
        answer
    }

    fn is_answered(&self) -> Result<(), Failed> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match *trouble {
            Some(since) if since.elapsed() < TROUBLE => {
                Err(Failed { is_late: true, ..Failed::quiet(Errno::ETIMEDOUT) })
            }
            _ => Ok(()),
        }
    }
}
