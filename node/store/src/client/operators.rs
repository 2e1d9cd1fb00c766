//! What operators ask.

use super::error::ClientError;
use super::{Client, unexpected};
use weir_store::NamespaceId;
use weir_store::protocol::{
    Answer, Donation, MovementInfo, NamespaceInfo, Request, ServiceInfo, SessionInfo, StatusInfo,
};

impl Client {
    /// All donated namespaces.
    ///
    /// # Errors
    /// The metadata service does not answer.
    pub fn namespaces(&self) -> Result<Vec<NamespaceInfo>, ClientError> {
        match self.ask(Request::Namespaces {})? {
            Answer::Namespaces { namespaces } => Ok(namespaces),
            _ => Err(unexpected()),
        }
    }

    /// How the metadata service is.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    pub fn status(&self) -> Result<StatusInfo, ClientError> {
        match self.ask(Request::Status {})? {
            Answer::Status { status } => Ok(*status),
            _ => Err(unexpected()),
        }
    }

    /// The processes that serve the store, or stand by: the one that serves first. None where the service is of an older release.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    pub fn services(&self) -> Result<Vec<ServiceInfo>, ClientError> {
        if self.shared.lock().machine().welcome().version < 2 {
            return Ok(Vec::new());
        }
        match self.ask(Request::Services {})? {
            Answer::Services { services } => Ok(services),
            _ => Err(unexpected()),
        }
    }

    /// What leaves namespaces that drain or are lost. None where the service is of an older release.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    pub fn movement(&self) -> Result<Vec<MovementInfo>, ClientError> {
        if self.shared.lock().machine().welcome().version < 3 {
            return Ok(Vec::new());
        }
        match self.ask(Request::Movement {})? {
            Answer::Movement { namespaces } => Ok(namespaces),
            _ => Err(unexpected()),
        }
    }

    /// All sessions.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, ClientError> {
        match self.ask(Request::Sessions {})? {
            Answer::Sessions { sessions } => Ok(sessions),
            _ => Err(unexpected()),
        }
    }

    /// Gives a namespace to the store; its number.
    ///
    /// # Errors
    /// It cannot be reached, holds something else, or is in the store.
    pub fn donate(&self, donation: Donation) -> Result<NamespaceId, ClientError> {
        match self.ask(Request::Donate { donation })? {
            Answer::Donated { namespace } => Ok(namespace),
            _ => Err(unexpected()),
        }
    }

    /// A namespace takes no new blocks and those that it has go elsewhere ([`movement`](Self::movement)), or neither any more.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn drain(&self, namespace: NamespaceId, drains: bool) -> Result<(), ClientError> {
        self.ask(Request::Drain { namespace, drains }).map(drop)
    }

    /// A namespace that no block is on leaves the store.
    ///
    /// # Errors
    /// There is no such namespace, or blocks are on it.
    pub fn remove_namespace(&self, namespace: NamespaceId) -> Result<(), ClientError> {
        self.ask(Request::Remove { namespace }).map(drop)
    }
}
