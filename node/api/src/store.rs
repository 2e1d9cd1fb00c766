//! The store of a node, as JSON has it: its metadata service, and the namespaces that it fills.
//!
//! The API asks the service as any operator does, so it tells the same wherever the service that serves is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_node::Refusal;
use weir_store::protocol::{
    ClassStatus, DemotionInfo, Donation, MovementInfo, NamespaceInfo, NamespaceState, PolicyInfo, ServiceInfo,
    ServiceRole, SessionInfo, StatusInfo, TieringInfo,
};
use weir_store::{ClassId, ClassName, Location, NamespaceId, StoreError};
use weir_store_node::client::{ClientError, ClientErrorKind, ClientOptions, Operator, OperatorConnection};
use weir_units::Nanos;

/// How long the service may take for what is only read.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// And for a change: a drive is reached first.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// `GET /v1/store`: how a store is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoreStatus {
    /// The service's number.
    pub service: u64,
    /// The store's random number, in hexadecimal digits.
    pub store: String,
    /// When it was made, in nanoseconds since 1970-01-01 00:00 UTC.
    pub created_ns: u64,
    /// For how long the process that serves does so.
    pub running_ns: u64,
    /// What an acknowledged change outlives: `process` or `power`.
    pub durability: String,
    /// Where the metadata lie.
    pub metadata: String,
    /// Clients' sessions.
    pub sessions: u64,
    /// Connections to the service.
    pub connections: u64,
    /// Files that are open.
    pub handles: u64,
    /// Requests that the process has answered.
    pub requests: u64,
    /// What is wrong with the metadata, or null.
    pub trouble: Option<String>,
    /// The processes that serve or stand by.
    pub services: Vec<StoreService>,
    /// Classes, best first.
    pub classes: Vec<StoreClass>,
    /// Donated namespaces.
    pub namespaces: Vec<StoreNamespace>,
    /// What goes from class to class; null where the service is of an older release.
    pub demotion: Option<StoreDemotion>,
}

/// What goes from class to class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoreDemotion {
    /// Percent of a class's room above which blocks go.
    pub high_percent: f64,
    /// Percent until which they do.
    pub low_percent: f64,
    /// Classes that blocks go from; none where no policy demotes.
    pub classes: Vec<StoreClassDemotion>,
}

/// What goes from a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreClassDemotion {
    /// Its name.
    pub class: String,
    /// Bytes of its drives, but for those that drain, are lost or not reached.
    pub bytes: u64,
    /// What of those files have, or is granted.
    pub used_bytes: u64,
    /// It was over its high watermark, and is not at its low one yet.
    pub over: bool,
    /// Copies of blocks that the process has moved to another class.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Left because their file was changed or open not long enough ago.
    pub hot: u64,
    /// Left because no policy demotes their file.
    pub kept: u64,
    /// Left because their file has no further class.
    pub no_next: u64,
    /// Left because a client has their file open for writing.
    pub has_writer: u64,
    /// Left because they are recovered after a lost writer first.
    pub unsettled: u64,
    /// Left because no copy can be read.
    pub no_copy: u64,
    /// Left because the next classes have no room below their own high watermarks.
    pub no_room: u64,
    /// Left because no further node has a drive of the next classes.
    pub no_node: u64,
    /// Left because the move has failed.
    pub failed: u64,
    /// Why one of those has, or null.
    pub why_failed: Option<String>,
}

/// `GET /v1/store/policies`: what new files of some paths get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StorePolicy {
    /// The pattern of the paths.
    pub path: String,
    /// Classes, best first; none: those of the store.
    pub classes: Vec<String>,
    /// Copies of each block.
    pub copies: u8,
    /// How long a file is left alone before its blocks may be demoted, in nanoseconds; null: they are not.
    pub demote_after_ns: Option<u64>,
}

/// A process that serves a store, or stands by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreService {
    /// Where it listens.
    pub addresses: Vec<String>,
    /// `serving`, `standby`, or `silent`: it has not told for long that it lives.
    pub state: String,
    /// Since when, in nanoseconds since 1970-01-01 00:00 UTC.
    pub since_ns: u64,
    /// How many have served before it and with it; 0 of one that does not serve.
    pub term: u64,
}

/// A class of drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreClass {
    /// Its name.
    pub class: String,
    /// What blocks can be given out of.
    pub bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
}

/// A namespace that was donated to a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreNamespace {
    /// What leaves it, or null where nothing does.
    pub movement: Option<StoreMovement>,
    /// Its number in the store.
    pub namespace: u64,
    /// The number of the machine that has it.
    pub node: u64,
    /// Where it is reached.
    pub target: String,
    /// Its class.
    pub class: String,
    /// Where it stands, from the widest part to the narrowest; may be empty.
    pub location: String,
    /// `up`, `draining`, `unreachable`, or `lost`: its content is gone.
    pub state: String,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Its size.
    pub bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
    /// What clients may write and have not published.
    pub granted_bytes: u64,
    /// What files have.
    pub file_bytes: u64,
    /// What was given up and is not free yet.
    pub quarantined_bytes: u64,
}

/// What leaves a namespace that drains, is lost, or was not reached for long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreMovement {
    /// It does not drain: its blocks get copies elsewhere.
    pub repair: bool,
    /// Copies of blocks that are left on it.
    pub blocks_left: u64,
    /// Their bytes.
    pub bytes_left: u64,
    /// Copies that the process has moved.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Left because a client has their file open for writing.
    pub has_writer: u64,
    /// Left because they are recovered after a lost writer first.
    pub unsettled: u64,
    /// Left because no copy can be read.
    pub no_copy: u64,
    /// Left because no other drive of their file's classes has room.
    pub no_room: u64,
    /// Left because no further node has a drive of their file's classes.
    pub no_node: u64,
    /// Left because the move has failed.
    pub failed: u64,
    /// Why one of those has, or null.
    pub why_failed: Option<String>,
}

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreClient {
    /// Its number.
    pub session: u64,
    /// What the client calls itself.
    pub client: String,
    /// Whether it is connected to the service that answers.
    pub connected: bool,
    /// Files that it has open.
    pub handles: u64,
    /// What it may write and has not published.
    pub granted_bytes: u64,
}

/// `POST /v1/store/namespaces`: gives a namespace to the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreNamespaceAdd {
    /// Where it is reached: `nvme-tcp://HOST:PORT/NQN?ns=1`.
    pub target: String,
    /// One of the store's classes.
    pub class: String,
    /// Where it stands, from the widest part to the narrowest: `hall1/rack2`.
    #[serde(default)]
    pub location: String,
    /// Whether it is taken although it holds something, which is lost then.
    #[serde(default)]
    pub overwrite: bool,
}

/// `PATCH /v1/store/namespaces/N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreNamespacePatch {
    /// Whether it takes nothing new, and what it has goes elsewhere.
    pub draining: bool,
}

impl StoreStatus {
    /// As the service tells it.
    pub fn new(
        status: StatusInfo,
        services: Vec<ServiceInfo>,
        namespaces: Vec<NamespaceInfo>,
        movement: &[MovementInfo],
        tiering: Option<&TieringInfo>,
    ) -> Self {
        Self {
            demotion: tiering.map(|tiering| StoreDemotion::new(tiering, &status.classes)),
            service: status.service.0,
            store: format!("{:016x}", status.store),
            created_ns: status.created.0,
            running_ns: status.running.get(),
            durability: status.durability,
            metadata: status.metadata,
            sessions: status.sessions,
            connections: status.connections,
            handles: status.handles,
            requests: status.requests,
            trouble: status.trouble,
            services: services.into_iter().map(Into::into).collect(),
            namespaces: StoreNamespace::all(namespaces, &status.classes, movement),
            classes: status.classes.iter().map(Into::into).collect(),
        }
    }

    /// Asks for it.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn of(operator: &impl Operator) -> Result<Self, ClientError> {
        let (status, namespaces) = (operator.status()?, operator.namespaces()?);
        let (services, movement) = (operator.services()?, operator.movement()?);
        Ok(Self::new(status, services, namespaces, &movement, operator.tiering()?.as_ref()))
    }
}

impl StoreDemotion {
    fn new(tiering: &TieringInfo, classes: &[ClassStatus]) -> Self {
        let percent = |millionths: u32| f64::from(millionths) / 10_000.0;
        let one = |of: &DemotionInfo| StoreClassDemotion {
            class: class_name(classes, of.class),
            bytes: of.bytes,
            used_bytes: of.used,
            over: of.is_over,
            moved_blocks: of.moved_blocks,
            moved_bytes: of.moved_bytes,
            hot: of.hot,
            kept: of.kept,
            no_next: of.no_next,
            has_writer: of.has_writer,
            unsettled: of.unsettled,
            no_copy: of.no_copy,
            no_room: of.no_room,
            no_node: of.no_node,
            failed: of.failed,
            why_failed: Some(of.why.clone()).filter(|why| !why.is_empty()),
        };
        Self {
            high_percent: percent(tiering.high),
            low_percent: percent(tiering.low),
            classes: tiering.classes.iter().map(one).collect(),
        }
    }
}

impl From<&PolicyInfo> for StorePolicy {
    fn from(policy: &PolicyInfo) -> Self {
        Self {
            path: policy.path.clone(),
            classes: policy.classes.iter().map(ToString::to_string).collect(),
            copies: policy.copies,
            demote_after_ns: policy.demote_after.map(Nanos::get),
        }
    }
}

impl StoreNamespace {
    /// As the service tells of them.
    pub fn all(namespaces: Vec<NamespaceInfo>, classes: &[ClassStatus], movement: &[MovementInfo]) -> Vec<Self> {
        let one = |n: NamespaceInfo| {
            let leaves = movement.iter().find(|m| m.namespace == n.namespace);
            Self {
                movement: leaves.map(Into::into),
                namespace: n.namespace.0,
                node: n.node.0,
                class: class_name(classes, n.class),
                location: n.location.as_str().into(),
                state: state_word(n.state).into(),
                target: n.target,
                sector_bytes: n.sector,
                bytes: n.bytes,
                free_bytes: n.free,
                granted_bytes: n.granted,
                file_bytes: n.mapped,
                quarantined_bytes: n.quarantined,
            }
        };
        namespaces.into_iter().map(one).collect()
    }
}

/// The name of a class, or its number where the service does not name it.
pub fn class_name(classes: &[ClassStatus], id: ClassId) -> String {
    classes.get(usize::from(id.0)).map_or_else(|| format!("class {}", id.0), |class| class.name.to_string())
}

/// The states of a namespace, each with its word.
pub(crate) const NAMESPACE_STATES: [&str; 4] = ["up", "draining", "unreachable", "lost"];

const fn state_word(state: NamespaceState) -> &'static str {
    match state {
        NamespaceState::Up => NAMESPACE_STATES[0],
        NamespaceState::Draining => NAMESPACE_STATES[1],
        NamespaceState::Unreachable => NAMESPACE_STATES[2],
        NamespaceState::Lost => NAMESPACE_STATES[3],
    }
}

/// What processes do for a store, each with its word.
pub(crate) const ROLES: [&str; 3] = ["serving", "standby", "silent"];

const fn role_word(role: ServiceRole) -> &'static str {
    match role {
        ServiceRole::Serving => ROLES[0],
        ServiceRole::Standby => ROLES[1],
        ServiceRole::Silent => ROLES[2],
    }
}

impl StoreMovement {
    /// How many blocks stay for which reason.
    pub fn reasons(&self) -> [(&'static str, u64); 6] {
        [
            ("has_writer", self.has_writer),
            ("unsettled", self.unsettled),
            ("no_copy", self.no_copy),
            ("no_room", self.no_room),
            ("no_node", self.no_node),
            ("failed", self.failed),
        ]
    }
}

impl From<ServiceInfo> for StoreService {
    fn from(service: ServiceInfo) -> Self {
        let ServiceInfo { process: _, addresses, role, since, term } = service;
        Self { addresses, state: role_word(role).into(), since_ns: since.0, term }
    }
}

impl From<&ClassStatus> for StoreClass {
    fn from(class: &ClassStatus) -> Self {
        Self { class: class.name.to_string(), bytes: class.bytes, free_bytes: class.free }
    }
}

impl From<&MovementInfo> for StoreMovement {
    fn from(m: &MovementInfo) -> Self {
        Self {
            repair: m.is_repair,
            blocks_left: m.blocks,
            bytes_left: m.bytes,
            moved_blocks: m.moved_blocks,
            moved_bytes: m.moved_bytes,
            has_writer: m.has_writer,
            unsettled: m.unsettled,
            no_copy: m.no_copy,
            no_room: m.no_room,
            no_node: m.no_node,
            failed: m.failed,
            why_failed: Some(m.why.clone()).filter(|why| !why.is_empty()),
        }
    }
}

impl From<SessionInfo> for StoreClient {
    fn from(session: SessionInfo) -> Self {
        let SessionInfo { session, client, is_connected, handles, granted } = session;
        Self { session: session.0, client, connected: is_connected, handles, granted_bytes: granted }
    }
}

impl StoreNamespaceAdd {
    fn donation(&self) -> Result<Donation, Refusal> {
        let class = ClassName::new(&self.class).map_err(|e| Refusal::Invalid(format!("class: {e}")))?;
        let location = Location::new(&self.location).map_err(|e| Refusal::Invalid(format!("location: {e}")))?;
        Ok(Donation { target: self.target.clone(), class, location, overwrite: self.overwrite })
    }
}

/// What the API asks of the store of its node. Every call may block until the service has answered.
pub struct StoreControl {
    /// Where the node's own service is; it names another one that serves.
    addresses: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// What was reached last, and where.
    reached: Mutex<Option<(String, OperatorConnection)>>,
}

impl StoreControl {
    /// Of a service that is found there, each time that it is not reached any more.
    pub fn new(addresses: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { addresses: Box::new(addresses), reached: Mutex::default() }
    }

    /// How the store is.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn status(&self) -> Result<StoreStatus, Refusal> {
        self.read(StoreStatus::of)
    }

    /// The clients' sessions.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn clients(&self) -> Result<Vec<StoreClient>, Refusal> {
        self.read(|operator| Ok(operator.sessions()?.into_iter().map(Into::into).collect()))
    }

    /// Policies by path, in the order in which they are tried.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn policies(&self) -> Result<Vec<StorePolicy>, Refusal> {
        let tiering = self.read(Operator::tiering)?;
        Ok(tiering.iter().flat_map(|tiering| &tiering.policies).map(Into::into).collect())
    }

    /// One more namespace.
    ///
    /// # Errors
    /// It cannot be reached, holds something else, or is in the store.
    pub fn donate(&self, add: &StoreNamespaceAdd) -> Result<StoreNamespace, Refusal> {
        let donation = add.donation()?;
        let number = self.change(|operator| operator.donate(donation))?;
        self.namespace(number.0)
    }

    /// A namespace drains, or does not any more.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn drain(&self, number: u64, patch: StoreNamespacePatch) -> Result<StoreNamespace, Refusal> {
        self.change(|operator| operator.drain(NamespaceId(number), patch.draining))?;
        self.namespace(number)
    }

    /// A namespace leaves the store; the answer is what it was.
    ///
    /// # Errors
    /// There is no such namespace, or blocks are on it.
    pub fn remove(&self, number: u64) -> Result<StoreNamespace, Refusal> {
        let was = self.namespace(number)?;
        self.change(|operator| operator.remove_namespace(NamespaceId(number)))?;
        Ok(was)
    }

    /// One namespace.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn namespace(&self, number: u64) -> Result<StoreNamespace, Refusal> {
        let found = self.status()?.namespaces;
        let numbers: Vec<String> = found.iter().map(|n| n.namespace.to_string()).collect();
        let missing = || format!("there is no namespace {number}; there is {}", numbers.join(", "));
        found.into_iter().find(|n| n.namespace == number).ok_or_else(|| Refusal::NotFound(missing()))
    }

    fn connection(&self, timeout: Duration) -> Result<(String, OperatorConnection), Refusal> {
        let address = (self.addresses)().join(",");
        let options = ClientOptions { name: "weir api".into(), deadline: timeout, ..ClientOptions::default() };
        Ok((address.clone(), OperatorConnection::new(&address, &options).refused()?))
    }

    fn read<T>(&self, ask: impl Fn(&OperatorConnection) -> Result<T, ClientError>) -> Result<T, Refusal> {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = (self.addresses)().join(",");
        let found = match reached.take().filter(|(at, _)| *at == addresses) {
            Some(found) => found,
            None => self.connection(READ_TIMEOUT)?,
        };
        let answer = ask(&found.1).refused();
        *reached = Some(found);
        answer
    }

    fn change<T>(&self, ask: impl FnOnce(&OperatorConnection) -> Result<T, ClientError>) -> Result<T, Refusal> {
        ask(&self.connection(CHANGE_TIMEOUT)?.1).refused()
    }
}

/// As the API refuses.
trait Refused<T> {
    fn refused(self) -> Result<T, Refusal>;
}

impl<T> Refused<T> for Result<T, ClientError> {
    fn refused(self) -> Result<T, Refusal> {
        self.map_err(|e| {
            let text = format!("store: {e}");
            match e.kind() {
                ClientErrorKind::Store(StoreError::NotFound | StoreError::NoNamespace) => Refusal::NotFound(text),
                ClientErrorKind::Store(StoreError::NoClass | StoreError::Malformed) | ClientErrorKind::Usage(_) => {
                    Refusal::Invalid(text)
                }
                ClientErrorKind::Store(StoreError::Unavailable) => Refusal::Unavailable(text),
                ClientErrorKind::Store(_) => Refusal::Conflict(text),
                _ => Refusal::Unavailable(text),
            }
        })
    }
}
