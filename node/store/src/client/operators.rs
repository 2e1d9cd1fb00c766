//! What operators ask.

use super::error::ClientError;
use super::unexpected;
use weir_store::NamespaceId;
use weir_store::protocol::{
    Answer, Donation, MovementInfo, NamespaceInfo, Request, ServiceInfo, SessionInfo, StatusInfo, TieringInfo,
};

/// What operators ask: by a [`Client`](super::Client), beside its files, or by an [`OperatorConnection`](super::OperatorConnection).
pub trait Operator {
    /// Asks the service, and waits.
    ///
    /// # Errors
    /// What the service refuses, or that it does not answer.
    fn ask_service(&self, request: Request) -> Result<Answer, ClientError>;

    /// The version of the protocol that the service speaks.
    ///
    /// # Errors
    /// The service is not reached.
    fn version(&self) -> Result<u16, ClientError>;

    /// All donated namespaces.
    ///
    /// # Errors
    /// The metadata service does not answer.
    fn namespaces(&self) -> Result<Vec<NamespaceInfo>, ClientError> {
        match self.ask_service(Request::Namespaces {})? {
            Answer::Namespaces { namespaces } => Ok(namespaces),
            _ => Err(unexpected()),
        }
    }

    /// How the metadata service is.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    fn status(&self) -> Result<StatusInfo, ClientError> {
        match self.ask_service(Request::Status {})? {
            Answer::Status { status } => Ok(*status),
            _ => Err(unexpected()),
        }
    }

    /// The processes that serve the store, or stand by: the one that serves first. None where the service is of an older release.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    fn services(&self) -> Result<Vec<ServiceInfo>, ClientError> {
        if self.version()? < 2 {
            return Ok(Vec::new());
        }
        match self.ask_service(Request::Services {})? {
            Answer::Services { services } => Ok(services),
            _ => Err(unexpected()),
        }
    }

    /// What leaves namespaces that drain or are lost. None where the service is of an older release.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    fn movement(&self) -> Result<Vec<MovementInfo>, ClientError> {
        if self.version()? < 3 {
            return Ok(Vec::new());
        }
        match self.ask_service(Request::Movement {})? {
            Answer::Movement { namespaces } => Ok(namespaces),
            _ => Err(unexpected()),
        }
    }

    /// Policies by path, and what goes from class to class. None where the service is of an older release, which has neither.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    fn tiering(&self) -> Result<Option<TieringInfo>, ClientError> {
        if self.version()? < 4 {
            return Ok(None);
        }
        match self.ask_service(Request::Tiering {})? {
            Answer::Tiering { tiering } => Ok(Some(*tiering)),
            _ => Err(unexpected()),
        }
    }

    /// All sessions.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    fn sessions(&self) -> Result<Vec<SessionInfo>, ClientError> {
        match self.ask_service(Request::Sessions {})? {
            Answer::Sessions { sessions } => Ok(sessions),
            _ => Err(unexpected()),
        }
    }

    /// Gives a namespace to the store; its number.
    ///
    /// # Errors
    /// It cannot be reached, holds something else, or is in the store.
    fn donate(&self, donation: Donation) -> Result<NamespaceId, ClientError> {
        match self.ask_service(Request::Donate { donation })? {
            Answer::Donated { namespace } => Ok(namespace),
            _ => Err(unexpected()),
        }
    }

    /// A namespace takes no new blocks and those that it has go elsewhere ([`movement`](Self::movement)), or neither any more.
    ///
    /// # Errors
    /// There is no such namespace.
    fn drain(&self, namespace: NamespaceId, drains: bool) -> Result<(), ClientError> {
        self.ask_service(Request::Drain { namespace, drains }).map(drop)
    }

    /// A namespace that no block is on leaves the store.
    ///
    /// # Errors
    /// There is no such namespace, or blocks are on it.
    fn remove_namespace(&self, namespace: NamespaceId) -> Result<(), ClientError> {
        self.ask_service(Request::Remove { namespace }).map(drop)
    }
}
