//! HTTP to calls of [`Control`](super::control::Control), and their answers back.
// tidy: long because every operation of the API is here, each a few lines

use super::access::{self, AccessStatus, Granted, Tokens};
use super::answer::{Answer, Body, Failure, Node, Way, ask, query_number};
use super::board::{Board, DriveBoardStatus, HistoryOverview, HistoryStatus, Live, PlanAsked, PlanStatus};
use super::dashboard::{self, board};
use super::events::{Followers, events};
use super::fault::{FaultAdd, FaultStatus};
use super::openapi::{SchemaOf, schema_of};
use super::pooled::{
    PoolDriveAdd, PoolDriveReplace, PoolScrub, PoolStatus, VolumeAdd, VolumeClone, VolumeContents, VolumeExport,
    VolumePatch, VolumeSnapshotAdd, VolumeStatus,
};
use super::store::{
    StoreClient, StoreControl, StoreNamespace, StoreNamespaceAdd, StoreNamespacePatch, StorePolicy, StoreStatus,
};
use super::timing::DeviceStats;
use super::types::{
    DevicePatch, DeviceStatus, ExportAdd, ExportStatus, PowerCutStatus, State as NodeState, Status, TenantAdd,
    TenantPatch, TenantStatus,
};
use super::{metrics, openapi};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Extension, Json, Router};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use weir_config::ApiRole;
use weir_node::Refusal;
use weir_node::events::NodeEvent;
use weir_node::upgrade::{UpgradeStart, UpgradeStatus};

/// The largest patch is a few hundred bytes.
const MAX_BODY: usize = 64 << 10;

/// The API without its sockets. Requests that a web page of another origin may have caused are refused, and by a port so is what
/// the token that is shown does not allow.
pub(super) fn router(control: Node, way: Way, tokens: Arc<Tokens>, live: Arc<Live>, followers: Followers) -> Router {
    let guarded = |o: Operation| o.handler.layer(middleware::from_fn_with_state(o.role, access::authorise));
    let routes = operations().into_iter().fold(Router::new(), |routes, o| routes.route(o.path, guarded(o)));
    let routes = routes
        .merge(dashboard::files())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(note_change))
        .layer(Extension(way))
        .layer(Extension(live))
        .layer(Extension(followers))
        .with_state(control)
        .layer(middleware::from_fn_with_state((way, tokens), access::identify));
    let routes = match way {
        Way::Port => routes.layer(middleware::from_fn(access::refuse_foreign)),
        Way::Tls => routes.layer(middleware::from_fn(access::refuse_other_origin)),
        Way::Socket => routes.layer(middleware::from_fn(access::refuse_page)),
    };
    routes.layer(middleware::from_fn(access::protect))
}

/// A method of a path: who handles it, and what there is to say of it.
pub(super) struct Operation {
    pub(super) path: &'static str,
    /// In lower case.
    pub(super) method: &'static str,
    pub(super) handler: MethodRouter<Node>,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// What who asks for it over TCP must at least be allowed.
    pub(super) role: ApiRole,
    /// The body that it takes.
    pub(super) body: Option<SchemaOf>,
    /// The status of its success, and what that answers.
    pub(super) success: u16,
    pub(super) answer: (&'static str, SchemaOf),
    /// It may be asked for as a stream of server-sent events as well.
    pub(super) is_stream: bool,
    /// Parameters of its query, and what they are for.
    pub(super) query: Vec<QueryParameter>,
    /// Its other statuses, and when it has them.
    pub(super) refusals: Vec<(u16, &'static str)>,
}

/// A parameter of a query, which is a whole number.
pub(super) struct QueryParameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
}

const NO_NODE: &str = "The node is not answering.";
const NO_CHANGE: &str = "The node is not answering, or the pool takes no changes.";
const NO_NAME: &str = "There is nothing of that name.";
const TOO_MANY: &str = "The node is not answering, or as many pages are open as may be.";
const NO_STORE: &str = "The node has no store.";
const NO_STORE_NAMESPACE: &str = "The node has no store, or the store no such namespace.";
const NO_SERVICE: &str = "The store's metadata service is not answering.";
const WRONG_VALUE: &str = "A value is out of range or unknown.";

impl Operation {
    fn new<T: JsonSchema>(path: &'static str, id: &'static str, summary: &'static str, how: How) -> Self {
        let (method, success, handler) = how;
        let mut refusals = vec![(503, NO_NODE)];
        if path.contains('{') {
            refusals.push((404, NO_NAME));
        }
        let answer: (_, SchemaOf) = ("application/json", schema_of::<T>);
        let (is_stream, query) = (false, Vec::new());
        let role = if method == "get" { ApiRole::Read } else { ApiRole::Operate };
        Self { path, method, handler, id, summary, role, body: None, success, answer, is_stream, query, refusals }
    }

    /// Who asks for it over TCP must be allowed that.
    fn needs(mut self, role: ApiRole) -> Self {
        self.role = role;
        self
    }

    fn takes<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema_of::<T>);
        self.or(400, WRONG_VALUE)
    }

    /// It may be followed as a stream.
    fn streams(mut self, name: &'static str, description: &'static str) -> Self {
        self.is_stream = true;
        self.asks(name, description)
    }

    /// It may be asked for from a number on.
    fn asks(mut self, name: &'static str, description: &'static str) -> Self {
        self.query = vec![QueryParameter { name, description }];
        self.or(400, WRONG_VALUE)
    }

    /// It is never refused: nothing is asked of the node.
    fn always(mut self) -> Self {
        self.refusals.clear();
        self
    }

    /// Another status, or another reason for one.
    fn or(mut self, status: u16, when: &'static str) -> Self {
        self.refusals.retain(|(known, _)| *known != status);
        self.refusals.push((status, when));
        self
    }
}

/// A method, the status of its success, and the handler.
type How = (&'static str, u16, MethodRouter<Node>);

/// Every operation there is.
pub(super) fn operations() -> Vec<Operation> {
    // tidy: long because it is a table.
    type Op = Operation;
    let (volume_path, tenant_path, device_path) = ("/v1/volumes/{name}", "/v1/tenants/{name}", "/v1/devices/{name}");
    vec![
        Op::new::<Status>("/v1/status", "status", "Everything at once.", ("get", 200, get(status))),
        Operation {
            answer: ("application/toml", schema_of::<String>),
            ..Op::new::<String>(
                "/v1/config",
                "config",
                "The configuration as TOML, every key spelled out, with what was changed since the start.",
                ("get", 200, get(config)),
            )
        },
        Op::new::<Vec<DeviceStatus>>("/v1/devices", "devices", "All drives.", ("get", 200, get(devices))),
        Op::new::<DeviceStatus>(device_path, "device", "One drive.", ("get", 200, get(device))),
        Op::new::<DeviceStatus>(
            device_path,
            "set_device",
            "Change a drive's arbitration or size while I/O runs; what is left out stays.",
            ("patch", 200, patch(set_device)),
        )
        .takes::<DevicePatch>()
        .or(409, "Not allowed in this state."),
        Op::new::<DeviceStats>(
            "/v1/devices/{name}/stats",
            "device_stats",
            "How well a drive keeps its modelled times.",
            ("get", 200, get(device_stats)),
        ),
        Op::new::<DeviceStats>(
            "/v1/devices/{name}/stats/reset",
            "reset_device_stats",
            "Begin to measure anew; the answer is what was measured until now.",
            ("post", 200, post(reset_device_stats)),
        ),
        Op::new::<PowerCutStatus>(
            "/v1/devices/{name}/power-cut",
            "power_cut",
            "Cut a drive's power and bring it back: its controllers die, writes that were not flushed may be gone.",
            ("post", 200, post(power_cut)),
        )
        .needs(ApiRole::Admin)
        .or(409, "The drive does not keep what that needs, or has no power already."),
        Op::new::<Vec<FaultStatus>>(
            "/v1/devices/{name}/faults",
            "faults",
            "The rules of failures of a drive, in the order of their numbers.",
            ("get", 200, get(faults)),
        ),
        Op::new::<FaultStatus>(
            "/v1/devices/{name}/faults",
            "add_fault",
            "One more rule of failures, from now on; where [node] says faults = true.",
            ("post", 201, post(add_fault)),
        )
        .takes::<FaultAdd>()
        .or(400, "A value is out of range or unknown, or the rule could never apply to the drive, or contradicts another.")
        .or(409, "Failures may not be injected here."),
        Op::new::<FaultStatus>(
            "/v1/devices/{name}/faults/{id}",
            "remove_fault",
            "Take a rule of failures out: what it held goes on. The answer is what it was.",
            ("delete", 200, delete(remove_fault)),
        ),
        Op::new::<Vec<TenantStatus>>("/v1/tenants", "tenants", "All tenants.", ("get", 200, get(tenants))),
        Op::new::<TenantStatus>(
            "/v1/tenants",
            "add_tenant",
            "One more tenant while I/O runs.",
            ("post", 201, post(add_tenant)),
        )
        .takes::<TenantAdd>()
        .or(400, "A value is out of range or unknown, or the name or a host is somebody else's.")
        .or(409, "A promise to somebody could not be kept then."),
        Op::new::<TenantStatus>(tenant_path, "tenant", "One tenant.", ("get", 200, get(tenant))),
        Op::new::<TenantStatus>(
            tenant_path,
            "set_tenant",
            "Change a tenant's class, weight, floor, ceiling or service level while I/O runs; what is left out stays.",
            ("patch", 200, patch(set_tenant)),
        )
        .takes::<TenantPatch>()
        .or(409, "Not allowed in this state."),
        Op::new::<TenantStatus>(
            tenant_path,
            "remove_tenant",
            "Remove a tenant that has no hosts connected and no export; the answer is what it was.",
            ("delete", 200, delete(remove_tenant)),
        )
        .or(409, "Hosts are connected, or it has an export."),
        Op::new::<Vec<ExportStatus>>("/v1/exports", "exports", "All exports.", ("get", 200, get(exports))),
        Op::new::<ExportStatus>(
            "/v1/exports",
            "add_export",
            "A drive on one more vfio-user socket, while I/O runs.",
            ("post", 201, post(add_export)),
        )
        .takes::<ExportAdd>()
        .or(404, "There is no such drive or tenant.")
        .or(
            409,
            "The socket is not to be had, the drive has as many controllers as it may have, or promises to tenants could not be kept then.",
        ),
        Op::new::<ExportStatus>(
            "/v1/exports/{name}",
            "remove_export",
            "End the export at this vfio-user socket, or of a volume at this socket or as nvme-tcp:VOLUME (percent-encoded); the answer is what it was.",
            ("delete", 200, delete(remove_export)),
        )
        .or(409, "Exports by other doors stay as long as the node runs."),
        Op::new::<Vec<PoolStatus>>("/v1/pools", "pools", "All pools.", ("get", 200, get(pools))),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/drives",
            "add_pool_drive",
            "A device joins a pool: empty, and not exported by itself. The answer is the pool.",
            ("post", 201, post(add_pool_drive)),
        )
        .needs(ApiRole::Admin)
        .takes::<PoolDriveAdd>()
        .or(400, "A key is unknown.")
        .or(409, "It is in use, not empty, or not of the pool's kind.")
        .or(503, NO_CHANGE),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/drives/{device}",
            "remove_pool_drive",
            "A drive leaves its pool, if no volume lies on it. The answer is the pool.",
            ("delete", 200, delete(remove_pool_drive)),
        )
        .needs(ApiRole::Admin)
        .or(409, "Volumes lie on it, or it is the pool's only drive.")
        .or(503, NO_CHANGE),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/drives/{device}/offline",
            "take_out_pool_drive",
            "A pool serves without a drive from now on, as if it were lost: what lies on it fails. The answer is the pool.",
            ("post", 200, post(take_out_pool_drive)),
        )
        .needs(ApiRole::Admin)
        .or(409, "It is lost already, or the pool's only drive.")
        .or(503, NO_CHANGE),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/drives/{device}/online",
            "bring_back_pool_drive",
            "A lost drive that is there again takes part in its pool: the device that it is, or the lost drive's number, UUID or name. What it has missed of volumes with two copies is rebuilt. The answer is the pool.",
            ("post", 200, post(bring_back_pool_drive)),
        )
        .needs(ApiRole::Admin)
        .or(409, "It is not lost, an old copy, another pool's, replaced meanwhile, or was used without the others.")
        .or(503, NO_CHANGE),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/replace",
            "replace_pool_drive",
            "A device takes the place of a lost drive. What volumes had there fails until they are emptied. The answer is the pool.",
            ("post", 200, post(replace_pool_drive)),
        )
        .needs(ApiRole::Admin)
        .takes::<PoolDriveReplace>()
        .or(409, "The drive is not lost, or the device is in use, too small, not empty, or not of the pool's kind.")
        .or(503, NO_CHANGE),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/scrub",
            "scrub_pool",
            "Begins to compare the copies of the pool's volumes, behind rebuilds and at their rate. The answer is the pool.",
            ("post", 200, post(scrub_pool)),
        )
        .takes::<PoolScrub>()
        .or(409, "No volume has two copies, or they are being compared."),
        Op::new::<PoolStatus>(
            "/v1/pools/{name}/scrub",
            "stop_scrub",
            "Leaves off comparing copies. The answer is the pool.",
            ("delete", 200, delete(stop_scrub)),
        )
        .or(409, "None are being compared."),
        Op::new::<Vec<VolumeStatus>>(
            "/v1/volumes",
            "volumes",
            "All volumes, pool by pool, in the order in which they were made.",
            ("get", 200, get(volumes)),
        ),
        Op::new::<VolumeStatus>(
            "/v1/volumes",
            "add_volume",
            "A new volume, which reads as zeroes.",
            ("post", 201, post(add_volume)),
        )
        .takes::<VolumeAdd>()
        .or(400, "A value is out of range or unknown, or the name cannot be one.")
        .or(404, "There is no such tenant or pool.")
        .or(409, "The name is taken, or there is not so much room.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(volume_path, "volume", "One volume.", ("get", 200, get(volume))),
        Op::new::<VolumeContents>(
            "/v1/volumes/{name}/contents",
            "volume_contents",
            "What of a volume may be other than zeroes, in whole MiB, as its drives know; where that is much, a part of it and where the rest begins.",
            ("get", 200, get(volume_contents)),
        )
        .asks("from", "The first byte that is asked for; what lies before it is left out."),
        Op::new::<VolumeStatus>(
            volume_path,
            "set_volume",
            "Another size for a volume while its hosts use it, or another name for one that is not exported.",
            ("patch", 200, patch(set_volume)),
        )
        .takes::<VolumePatch>()
        .or(409, "Not allowed in this state.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(
            volume_path,
            "remove_volume",
            "Delete a volume that is not exported, and what it holds; the answer is what it was.",
            ("delete", 200, delete(remove_volume)),
        )
        .or(409, "It is exported.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(
            "/v1/volumes/{name}/empty",
            "empty_volume",
            "A volume that has lost chunks with a drive is given up: it reads as zeroes, has another UUID, and its hosts are told.",
            ("post", 200, post(empty_volume)),
        )
        .needs(ApiRole::Admin)
        .or(409, "It has lost nothing, or the lost drive was not replaced.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(
            "/v1/volumes/{name}/snapshots",
            "add_snapshot",
            "A snapshot of a volume, which its hosts may be writing: it has all that was acknowledged, and never changes.",
            ("post", 201, post(add_snapshot)),
        )
        .takes::<VolumeSnapshotAdd>()
        .or(400, "The name cannot be one.")
        .or(409, "The volume has such a snapshot, is degraded or being rebuilt, or the metadata have no room.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(
            "/v1/volumes/{name}/clones",
            "add_clone",
            "A new volume with what a snapshot has.",
            ("post", 201, post(add_clone)),
        )
        .takes::<VolumeClone>()
        .or(400, "The name cannot be one.")
        .or(404, "There is no such snapshot or tenant.")
        .or(409, "It is no snapshot, or the name is taken.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(
            "/v1/volumes/{name}/rollback",
            "roll_back",
            "The volume of a snapshot, which is not exported, has again what the snapshot has; the answer is the volume.",
            ("post", 200, post(roll_back)),
        )
        .or(409, "It is no snapshot, or its volume is exported.")
        .or(503, NO_CHANGE),
        Op::new::<VolumeStatus>(
            "/v1/volumes/{name}/exports",
            "add_volume_export",
            "A volume at one more door.",
            ("post", 201, post(add_volume_export)),
        )
        .takes::<VolumeExport>()
        .or(400, "The door is none.")
        .or(409, "It is exported there already, or the socket is not to be had.")
        .or(503, NO_CHANGE),
        Op::new::<StoreStatus>("/v1/store", "store", "How the store of the node is.", ("get", 200, get(store)))
            .or(404, NO_STORE)
            .or(503, NO_SERVICE),
        Op::new::<Vec<StoreClient>>(
            "/v1/store/clients",
            "store_clients",
            "The sessions of the store's clients.",
            ("get", 200, get(store_clients)),
        )
        .or(404, NO_STORE)
        .or(503, NO_SERVICE),
        Op::new::<Vec<StorePolicy>>(
            "/v1/store/policies",
            "store_policies",
            "Policies by path of the store, in the order in which they are tried.",
            ("get", 200, get(store_policies)),
        )
        .or(404, NO_STORE)
        .or(503, NO_SERVICE),
        Op::new::<Vec<StoreNamespace>>(
            "/v1/store/namespaces",
            "store_namespaces",
            "The namespaces that the store fills.",
            ("get", 200, get(store_namespaces)),
        )
        .or(404, NO_STORE)
        .or(503, NO_SERVICE),
        Op::new::<StoreNamespace>(
            "/v1/store/namespaces",
            "add_store_namespace",
            "Give a namespace to the store, which takes the whole of it.",
            ("post", 201, post(add_store_namespace)),
        )
        .needs(ApiRole::Admin)
        .takes::<StoreNamespaceAdd>()
        .or(404, NO_STORE)
        .or(409, "It cannot be reached, holds something else, is too small, or is another store's.")
        .or(503, NO_SERVICE),
        Op::new::<StoreNamespace>(
            "/v1/store/namespaces/{number}",
            "set_store_namespace",
            "A namespace drains: it takes nothing new, and what it has goes elsewhere; or it does not any more.",
            ("patch", 200, patch(set_store_namespace)),
        )
        .needs(ApiRole::Admin)
        .takes::<StoreNamespacePatch>()
        .or(404, NO_STORE_NAMESPACE)
        .or(503, NO_SERVICE),
        Op::new::<StoreNamespace>(
            "/v1/store/namespaces/{number}",
            "remove_store_namespace",
            "A namespace that no block is on leaves the store; the answer is what it was.",
            ("delete", 200, delete(remove_store_namespace)),
        )
        .needs(ApiRole::Admin)
        .or(404, NO_STORE_NAMESPACE)
        .or(409, "Blocks are on it: let it drain first.")
        .or(503, NO_SERVICE),
        Op::new::<Vec<NodeEvent>>(
            "/v1/events",
            "events",
            "What has happened, the latest last. With Accept: text/event-stream the answer goes on with what happens: the id of each event is its \
             number, and who comes back with Last-Event-ID gets what came after that.",
            ("get", 200, get(events)),
        )
        .streams("after", "Only events with greater numbers; Last-Event-ID counts where it is sent.")
        .or(400, "A parameter is unknown, or no number.")
        .or(503, "Too many clients follow."),
        Op::new::<UpgradeStatus>(
            "/v1/upgrade",
            "upgrade_status",
            "How far the last upgrade is, or how it ended.",
            ("get", 200, get(upgrade_status)),
        )
        .always(),
        Op::new::<UpgradeStatus>(
            "/v1/upgrade",
            "upgrade",
            "Replace the program that serves while I/O runs; ask how far it is by GET.",
            ("post", 202, post(upgrade)),
        )
        .needs(ApiRole::Admin)
        .takes::<UpgradeStart>()
        .or(400, "There is no such program, or it cannot be executed, or a time is out of range.")
        .or(403, "A program is named, and not over the UNIX socket.")
        .or(409, "The node has no keeper, or an upgrade is under way."),
        Op::new::<Draining>(
            "/v1/shutdown",
            "shutdown",
            "Finish what is in flight, then end the process.",
            ("post", 202, post(shutdown)),
        )
        .needs(ApiRole::Admin)
        .always(),
        Operation {
            answer: ("text/plain", schema_of::<String>),
            ..Op::new::<String>(
                "/metrics",
                "metrics",
                "The Prometheus text format, version 0.0.4.",
                ("get", 200, get(prometheus)),
            )
        },
        Op::new::<AccessStatus>("/v1/access", "access", "What this request may do.", ("get", 200, get(may)))
            .always(),
        Op::new::<Board>("/v1/board", "board", "What the dashboard shows.", ("get", 200, get(board::board))),
        Operation {
            answer: ("text/event-stream", schema_of::<String>),
            ..Op::new::<String>(
                "/v1/live",
                "live",
                "A stream of events `board`, about one a second: what GET /v1/board answers.",
                ("get", 200, get(board::live)),
            )
        }
        .or(503, TOO_MANY),
        Operation {
            answer: ("text/event-stream", schema_of::<String>),
            ..Op::new::<String>(
                "/v1/live/devices/{name}",
                "live_device",
                "The same, and after each an event `device`: what GET /v1/devices/NAME/board answers.",
                ("get", 200, get(board::live_device)),
            )
        }
        .or(503, TOO_MANY),
        Op::new::<DriveBoardStatus>(
            "/v1/devices/{name}/board",
            "device_board",
            "The dies of a drive, its queues, and what its tenants were promised and get.",
            ("get", 200, get(board::device)),
        ),
        Op::new::<PlanStatus>(
            "/v1/devices/{name}/plan",
            "plan_device",
            "What tenants are to expect of a drive with another arbitration, or as it is; nothing is changed.",
            ("post", 200, post(board::plan)),
        )
        .takes::<PlanAsked>()
        .needs(ApiRole::Read),
        Op::new::<HistoryOverview>(
            "/v1/history",
            "history",
            "The last hour of all drives, tenants, exports and the store, minute by minute.",
            ("get", 200, get(board::overview)),
        )
        .always(),
        Op::new::<HistoryStatus>(
            "/v1/history/{kind}/{name}",
            "history_of",
            "The last hour of one of the devices, tenants, exports (NAME@nvme-tcp, NAME@SOCKET), stores (store) or store-namespaces (by number), a point each 10 s.",
            ("get", 200, get(board::history)),
        )
        .or(404, "There is nothing of that kind and name, or it has done nothing yet."),
        Op::new::<Map<String, Value>>("/openapi.json", "openapi", "This document.", ("get", 200, get(description))).always(),
    ]
}

async fn status(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.status()).await.map(Json)
}

async fn devices(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.devices()).await.map(Json)
}

async fn tenants(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.tenants()).await.map(Json)
}

async fn exports(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.exports()).await.map(Json)
}

async fn add_export(State(node): State<Node>, Body(export): Body<ExportAdd>) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_export(&export)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_export(State(node): State<Node>, Path(socket): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_export(&socket)).await.map(Json)
}

async fn pools(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.pools()).await.map(Json)
}

async fn add_pool_drive(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(drive): Body<PoolDriveAdd>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_pool_drive(&name, &drive)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_pool_drive(
    State(node): State<Node>,
    Path((name, device)): Path<(String, String)>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_pool_drive(&name, &device)).await.map(Json)
}

async fn take_out_pool_drive(
    State(node): State<Node>,
    Path((name, device)): Path<(String, String)>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.take_out_pool_drive(&name, &device)).await.map(Json)
}

async fn bring_back_pool_drive(
    State(node): State<Node>,
    Path((name, device)): Path<(String, String)>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.bring_back_pool_drive(&name, &device)).await.map(Json)
}

async fn replace_pool_drive(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(replace): Body<PoolDriveReplace>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.replace_pool_drive(&name, &replace)).await.map(Json)
}

async fn scrub_pool(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(scrub): Body<PoolScrub>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.scrub_pool(&name, &scrub)).await.map(Json)
}

async fn stop_scrub(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.stop_scrub(&name)).await.map(Json)
}

async fn empty_volume(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.empty_volume(&name)).await.map(Json)
}

async fn volumes(State(node): State<Node>) -> Answer<impl Serialize> {
    ask(node, |c| c.volumes()).await.map(Json)
}

async fn volume(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.volume(&name)).await.map(Json)
}

async fn volume_contents(State(node): State<Node>, Path(name): Path<String>, uri: Uri) -> Answer<impl Serialize> {
    let from = query_number(&uri, "from")?;
    ask(node, move |c| c.volume_contents(&name, from)).await.map(Json)
}

async fn add_volume(State(node): State<Node>, Body(volume): Body<VolumeAdd>) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_volume(&volume)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn set_volume(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(patch): Body<VolumePatch>,
) -> Answer<impl Serialize> {
    ask(node, move |c| c.set_volume(&name, &patch)).await.map(Json)
}

async fn remove_volume(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_volume(&name)).await.map(Json)
}

async fn add_snapshot(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(snapshot): Body<VolumeSnapshotAdd>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_snapshot(&name, &snapshot)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn add_clone(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(clone): Body<VolumeClone>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_clone(&name, &clone)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn roll_back(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.roll_back(&name)).await.map(Json)
}

async fn add_volume_export(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(export): Body<VolumeExport>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_volume_export(&name, &export)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn device(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    let found = ask(node, |c| c.devices()).await?;
    let names: Vec<String> = found.iter().map(|d| d.name.clone()).collect();
    found.into_iter().find(|d| d.name == name).map(Json).ok_or_else(|| missing("device", &name, &names))
}

async fn device_stats(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.device_stats(&name, false)).await.map(Json)
}

async fn reset_device_stats(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.device_stats(&name, true)).await.map(Json)
}

async fn tenant(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    let found = ask(node, |c| c.tenants()).await?;
    let names: Vec<String> = found.iter().map(|t| t.name.clone()).collect();
    found.into_iter().find(|t| t.name == name).map(Json).ok_or_else(|| missing("tenant", &name, &names))
}

fn missing(what: &str, name: &str, names: &[String]) -> Failure {
    Failure(StatusCode::NOT_FOUND, format!("there is no {what} \"{name}\"; there is {}", names.join(", ")))
}

async fn set_device(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(patch): Body<DevicePatch>,
) -> Answer<impl Serialize> {
    patch.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    ask(node, move |c| c.set_device(&name, &patch)).await.map(Json)
}

async fn power_cut(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.power_cut(&name)).await.map(Json)
}

async fn faults(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.faults(&name)).await.map(Json)
}

async fn add_fault(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(fault): Body<FaultAdd>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask(node, move |c| c.add_fault(&name, &fault)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_fault(State(node): State<Node>, Path((name, id)): Path<(String, String)>) -> Answer<impl Serialize> {
    let number = id.parse().map_err(|_| Failure(StatusCode::NOT_FOUND, format!("\"{id}\" is no rule's number")))?;
    ask(node, move |c| c.remove_fault(&name, number)).await.map(Json)
}

async fn set_tenant(
    State(node): State<Node>,
    Path(name): Path<String>,
    Body(patch): Body<TenantPatch>,
) -> Answer<impl Serialize> {
    patch.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    ask(node, move |c| c.set_tenant(&name, &patch)).await.map(Json)
}

async fn add_tenant(State(node): State<Node>, Body(tenant): Body<TenantAdd>) -> Result<impl IntoResponse, Failure> {
    tenant.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    let added = ask(node, move |c| c.add_tenant(&tenant)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn remove_tenant(State(node): State<Node>, Path(name): Path<String>) -> Answer<impl Serialize> {
    ask(node, move |c| c.remove_tenant(&name)).await.map(Json)
}

/// What is asked of the store of a node.
async fn ask_store<T: Send + 'static>(
    node: Node,
    call: impl FnOnce(&StoreControl) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Failure> {
    let none = || Refusal::NotFound("this node has no store: its configuration has no [store]".into());
    ask(node, move |c| call(c.store().ok_or_else(none)?)).await
}

async fn store(State(node): State<Node>) -> Answer<impl Serialize> {
    ask_store(node, StoreControl::status).await.map(Json)
}

async fn store_clients(State(node): State<Node>) -> Answer<impl Serialize> {
    ask_store(node, StoreControl::clients).await.map(Json)
}

async fn store_policies(State(node): State<Node>) -> Answer<impl Serialize> {
    ask_store(node, StoreControl::policies).await.map(Json)
}

async fn store_namespaces(State(node): State<Node>) -> Answer<impl Serialize> {
    ask_store(node, |store| Ok(store.status()?.namespaces)).await.map(Json)
}

async fn add_store_namespace(
    State(node): State<Node>,
    Body(namespace): Body<StoreNamespaceAdd>,
) -> Result<impl IntoResponse, Failure> {
    let added = ask_store(node, move |store| store.donate(&namespace)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

async fn set_store_namespace(
    State(node): State<Node>,
    Path(number): Path<String>,
    Body(patch): Body<StoreNamespacePatch>,
) -> Answer<impl Serialize> {
    let number = namespace_number(&number)?;
    ask_store(node, move |store| store.drain(number, patch)).await.map(Json)
}

async fn remove_store_namespace(State(node): State<Node>, Path(number): Path<String>) -> Answer<impl Serialize> {
    let number = namespace_number(&number)?;
    ask_store(node, move |store| store.remove(number)).await.map(Json)
}

fn namespace_number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure(StatusCode::NOT_FOUND, format!("\"{text}\" is no namespace's number")))
}

async fn upgrade_status(State(node): State<Node>) -> impl IntoResponse {
    Json(node.upgrade_status())
}

async fn upgrade(
    State(node): State<Node>,
    Extension(way): Extension<Way>,
    Body(start): Body<UpgradeStart>,
) -> Result<impl IntoResponse, Failure> {
    if way != Way::Socket && start.binary.is_some() {
        // The node would execute with its own rights whatever any user of the machine names.
        let what = "binary: a program may be named over the node's UNIX socket only; use that (--api unix:PATH), or leave binary out";
        return Err(Failure(StatusCode::FORBIDDEN, what.into()));
    }
    start.check().map_err(|e| Failure(StatusCode::BAD_REQUEST, e))?;
    let begun = ask(node, move |c| c.upgrade(&start)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// The node ends.
#[derive(Serialize, JsonSchema)]
struct Draining {
    /// As in a status.
    #[schemars(with = "String", extend("const" = "draining"))]
    state: NodeState,
}

async fn shutdown(State(node): State<Node>) -> impl IntoResponse {
    node.shutdown();
    (StatusCode::ACCEPTED, Json(Draining { state: NodeState::Draining }))
}

async fn config(State(node): State<Node>) -> Result<impl IntoResponse, Failure> {
    let text = ask(node, |c| c.config()).await?;
    Ok(([(header::CONTENT_TYPE, "application/toml")], text))
}

async fn prometheus(State(node): State<Node>) -> Result<impl IntoResponse, Failure> {
    let text = ask(node, |c| {
        let store = c.store().map(StoreControl::status);
        Ok(metrics::text((&c.status()?, &c.pools()?), &c.latencies()?, store.as_ref()))
    });
    let text = text.await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

async fn description() -> impl IntoResponse {
    Json(openapi::document())
}

async fn may(
    State(node): State<Node>,
    Extension(Granted(role)): Extension<Granted>,
    Extension(tokens): Extension<Arc<Tokens>>,
) -> Answer<impl Serialize> {
    let faults = ask(node, |c| Ok(c.may_inject())).await?;
    Ok(Json(AccessStatus { role: role.unwrap_or(ApiRole::Read), tokens: tokens.is_any(), faults }))
}

/// What was changed by the API is on the time line.
async fn note_change(Extension(live): Extension<Arc<Live>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = next.run(request).await;
    if method != Method::GET && answer.status().is_success() && !path.ends_with("/plan") {
        let subject = path.split('/').nth(3).unwrap_or("node").to_owned();
        live.changed(&subject, format!("{method} {path}"));
    }
    answer
}

async fn no_route(request: Request) -> Failure {
    let what = format!("there is no {}; GET /openapi.json lists what there is", request.uri().path());
    Failure(StatusCode::NOT_FOUND, what)
}

async fn no_method(request: Request) -> Failure {
    let what =
        format!("{} does not take {}; GET /openapi.json lists what does", request.uri().path(), request.method());
    Failure(StatusCode::METHOD_NOT_ALLOWED, what)
}
