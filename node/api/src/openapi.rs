//! The API's description in OpenAPI 3.1, served at `/openapi.json`.
// tidy: long because every path and every type of the API is described here, each in a few lines

use serde_json::{Map, Value, json};

/// The document.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Control of a running node. Every answer that is not 2xx is an Error.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "paths": paths(),
        "components": { "schemas": schemas() },
    })
}

fn paths() -> Value {
    // tidy: long because it is a table.
    json!({
        "/v1/status": { "get": operation("status", "Everything at once.", "Status") },
        "/v1/devices": { "get": list("devices", "All drives.", "Device") },
        "/v1/devices/{name}": {
            "parameters": [name_parameter()],
            "get": named(operation("device", "One drive.", "Device")),
            "patch": patch(
                "set_device", "Change a drive's arbitration or size while I/O runs; what is left out stays.", "DevicePatch", "Device",
            ),
        },
        "/v1/devices/{name}/stats": {
            "parameters": [name_parameter()],
            "get": named(operation("device_stats", "How well a drive keeps its modelled times.", "DeviceStats")),
        },
        "/v1/devices/{name}/stats/reset": {
            "parameters": [name_parameter()],
            "post": named(operation(
                "reset_device_stats", "Begin to measure anew; the answer is what was measured until now.", "DeviceStats",
            )),
        },
        "/v1/devices/{name}/power-cut": {
            "parameters": [name_parameter()],
            "post": power_cut(),
        },
        "/v1/tenants": {
            "get": list("tenants", "All tenants.", "Tenant"),
            "post": add_tenant(),
        },
        "/v1/tenants/{name}": {
            "parameters": [name_parameter()],
            "get": named(operation("tenant", "One tenant.", "Tenant")),
            "patch": patch(
                "set_tenant", "Change a tenant's class, weight, floor, ceiling or service level while I/O runs; what is left out stays.", "TenantPatch", "Tenant",
            ),
            "delete": remove_tenant(),
        },
        "/v1/exports": {
            "get": list("exports", "All exports.", "Export"),
            "post": add_export(),
        },
        "/v1/exports/{name}": {
            "parameters": [name_parameter()],
            "delete": remove_export(),
        },
        "/v1/pools": { "get": list("pools", "All pools.", "Pool") },
        "/v1/pools/{name}/drives": {
            "parameters": [name_parameter()],
            "post": add_pool_drive(),
        },
        "/v1/pools/{name}/drives/{device}": {
            "parameters": [name_parameter(), device_parameter()],
            "delete": remove_pool_drive(),
        },
        "/v1/volumes": {
            "get": list("volumes", "All volumes, pool by pool, in the order in which they were made.", "Volume"),
            "post": add_volume(),
        },
        "/v1/volumes/{name}": {
            "parameters": [name_parameter()],
            "get": named(operation("volume", "One volume.", "Volume")),
            "patch": patch(
                "set_volume", "Another size for a volume while its hosts use it, or another name for one that is not exported.", "VolumePatch", "Volume",
            ),
            "delete": remove_volume(),
        },
        "/v1/volumes/{name}/exports": {
            "parameters": [name_parameter()],
            "post": add_volume_export(),
        },
        "/v1/upgrade": {
            "get": operation("upgrade_status", "How far the last upgrade is, or how it ended.", "Upgrade"),
            "post": upgrade(),
        },
        "/v1/shutdown": { "post": {
            "operationId": "shutdown",
            "summary": "Finish what is in flight, then end the process.",
            "responses": { "202": answer("Draining has begun.", &json!({
                "type": "object",
                "required": ["state"],
                "properties": { "state": { "const": "draining" } },
            })) },
        } },
        "/metrics": { "get": {
            "operationId": "metrics",
            "summary": "The Prometheus text format, version 0.0.4.",
            "responses": {
                "200": { "description": "Samples.", "content": { "text/plain": { "schema": { "type": "string" } } } },
                "503": error("The node is not answering."),
            },
        } },
        "/openapi.json": { "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": { "200": answer("OpenAPI 3.1.", &json!({ "type": "object" })) },
        } },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn answer(description: &str, schema: &Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn error(description: &str) -> Value {
    answer(description, &reference("Error"))
}

fn operation(id: &str, summary: &str, schema: &str) -> Value {
    answering(id, summary, &reference(schema))
}

fn list(id: &str, summary: &str, schema: &str) -> Value {
    answering(id, summary, &json!({ "type": "array", "items": reference(schema) }))
}

fn answering(id: &str, summary: &str, schema: &Value) -> Value {
    let responses = json!({ "200": answer(summary, schema), "503": error("The node is not answering.") });
    json!({ "operationId": id, "summary": summary, "responses": responses })
}

fn named(mut operation: Value) -> Value {
    operation["responses"]["404"] = error("There is nothing of that name.");
    operation
}

fn patch(id: &str, summary: &str, body: &str, schema: &str) -> Value {
    let mut operation = named(operation(id, summary, schema));
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference(body) } } });
    operation["responses"]["400"] = error("A value is out of range or unknown.");
    operation["responses"]["409"] = error("Not allowed in this state.");
    operation
}

fn add_tenant() -> Value {
    let mut operation = operation("add_tenant", "One more tenant while I/O runs.", "Tenant");
    let added = operation["responses"]["200"].take();
    operation["responses"] = json!({
        "201": added,
        "400": error("A value is out of range or unknown, or the name or a host is somebody else's."),
        "409": error("A promise to somebody could not be kept then."),
        "503": error("The node is not answering."),
    });
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference("TenantAdd") } } });
    operation
}

fn add_export() -> Value {
    let mut operation = operation("add_export", "A drive on one more vfio-user socket, while I/O runs.", "Export");
    let added = operation["responses"]["200"].take();
    operation["responses"] = json!({
        "201": added,
        "400": error("A value is out of range or unknown."),
        "404": error("There is no such drive or tenant."),
        "409": error("The socket is not to be had, the drive has as many controllers as it may have, or promises to tenants could not be kept then."),
        "503": error("The node is not answering."),
    });
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference("ExportAdd") } } });
    operation
}

fn upgrade() -> Value {
    let mut operation =
        operation("upgrade", "Replace the program that serves while I/O runs; ask how far it is by GET.", "Upgrade");
    let begun = operation["responses"]["200"].take();
    operation["responses"] = json!({
        "202": begun,
        "400": error("There is no such program, or it cannot be executed, or a time is out of range."),
        "403": error("A program is named, and not over the UNIX socket."),
        "409": error("The node has no keeper, or an upgrade is under way."),
        "503": error("The node is not answering."),
    });
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference("UpgradeStart") } } });
    operation
}

fn upgrade_start() -> Value {
    object(&[
        (
            "binary?",
            text(
                "The new program's path, over the UNIX socket only; what is now at the path of the one that was started if absent.",
            ),
        ),
        (
            "within_ns?",
            between(1_000_000, 3_600_000_000_000, "How long it may take to prepare, and to be ready; 10 s if absent."),
        ),
        (
            "probation_ns?",
            between(
                0,
                3_600_000_000_000,
                "One that dies within this time is replaced by the one before it; 10 s if absent.",
            ),
        ),
    ])
}

fn upgrade_status() -> Value {
    let states = [
        "none",
        "preparing",
        "handing-over",
        "taking-over",
        "probation",
        "renewing",
        "upgraded",
        "refused",
        "rolled-back",
    ];
    object(&[
        ("number", number("How many upgrades there were, this one included.")),
        ("state", words(&states)),
        ("binary", text("The new program.")),
        ("reason?", text("Why it was given up.")),
        ("prepare_ns?", number("From the start of the new program until it was prepared; the one before it serves.")),
        (
            "hand_over_ns?",
            number("From then until the one before it had nothing in flight any more; nobody is served from here on."),
        ),
        ("take_over_ns?", number("From then until the new one served.")),
        (
            "renew_ns?",
            number("How long the keeper's process took to go on as the new program; everybody is served meanwhile."),
        ),
        ("keeper?", text("Why the keeper's process goes on as the program before, where it does.")),
    ])
}

fn add_volume() -> Value {
    let mut operation = operation("add_volume", "A new volume, which reads as zeroes.", "Volume");
    let added = operation["responses"]["200"].take();
    operation["responses"] = json!({
        "201": added,
        "400": error("A value is out of range or unknown, or the name cannot be one."),
        "404": error("There is no such tenant or pool."),
        "409": error("The name is taken, or there is not so much room."),
        "503": error("The node is not answering, or its pool takes no changes."),
    });
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference("VolumeAdd") } } });
    operation
}

fn add_pool_drive() -> Value {
    let summary = "A device joins a pool: empty, and not exported by itself. The answer is the pool.";
    let mut operation = named(operation("add_pool_drive", summary, "Pool"));
    let added = operation["responses"]["200"].take();
    operation["responses"].as_object_mut().expect("responses are an object").remove("200");
    operation["responses"]["201"] = added;
    operation["responses"]["400"] = error("A key is unknown.");
    operation["responses"]["409"] = error("It is in use, not empty, or not of the pool's kind.");
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference("PoolDriveAdd") } } });
    operation
}

fn remove_pool_drive() -> Value {
    let summary = "A drive leaves its pool, if no volume lies on it. The answer is the pool.";
    let mut operation = named(operation("remove_pool_drive", summary, "Pool"));
    operation["responses"]["409"] = error("Volumes lie on it, or it is the pool's only drive.");
    operation
}

fn device_parameter() -> Value {
    json!({ "name": "device", "in": "path", "required": true, "schema": { "type": "string" } })
}

fn remove_volume() -> Value {
    let summary = "Delete a volume that is not exported, and what it holds; the answer is what it was.";
    let mut operation = named(operation("remove_volume", summary, "Volume"));
    operation["responses"]["409"] = error("It is exported.");
    operation
}

fn add_volume_export() -> Value {
    let mut operation = named(operation("add_volume_export", "A volume at one more door.", "Volume"));
    let added = operation["responses"]["200"].take();
    operation["responses"].as_object_mut().expect("responses are an object").remove("200");
    operation["responses"]["201"] = added;
    operation["responses"]["400"] = error("The door is none.");
    operation["responses"]["409"] = error("It is exported there already, or the socket is not to be had.");
    operation["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": reference("VolumeExport") } } });
    operation
}

fn volume() -> Value {
    object(&[
        ("name", text("Its name.")),
        ("uuid", text("Its UUID, for hosts.")),
        ("tenant", text("Whose it is.")),
        ("pool", text("The pool that it is a part of.")),
        ("size_bytes", number("Its size.")),
        ("drives", texts("The drives that it lies on, in its order.")),
        ("extents", number("Pieces that lie together.")),
        ("nqn?", text("The subsystem's name over NVMe/TCP, where it is exported there.")),
        ("exports", texts("The doors that it is exported at.")),
    ])
}

fn pool() -> Value {
    object(&[
        ("name", text("Its name.")),
        ("uuid", text("Its UUID, which is on its drives.")),
        ("size_bytes", number("What there is for volumes.")),
        ("free_bytes", number("What of it is free.")),
        ("volumes", number("Volumes.")),
        ("fault?", text("Why nothing is changed any more, if so.")),
        ("drives", array("PoolDrive")),
    ])
}

fn pool_drive() -> Value {
    object(&[
        ("device", text("The drive.")),
        ("number", number("Its number in the pool.")),
        ("uuid", text("Its UUID, which is on it.")),
        ("size_bytes", number("What there is for volumes.")),
        ("free_bytes", number("What of it is free.")),
        ("emptying_bytes", number("What was somebody's and is not emptied yet.")),
        ("largest_free_bytes", number("The largest free piece.")),
    ])
}

fn remove_export() -> Value {
    let summary = "End the export at this vfio-user socket, or of a volume at this socket or as nvme-tcp:VOLUME (percent-encoded); the answer is what it was.";
    let mut operation = named(operation("remove_export", summary, "Export"));
    operation["responses"]["409"] = error("Exports by other doors stay as long as the node runs.");
    operation
}

fn export_add() -> Value {
    object(&[
        ("device", text("The drive.")),
        ("socket", text("An absolute path at which nobody listens.")),
        ("tenant?", text("Whose queues they are; the only tenant where it is left out.")),
        ("class_from?", words(&["tenant", "qprio", "cattr", "peer"])),
        ("doorbells?", words(&["auto", "mmap", "trap"])),
        ("force?", flag("Do it even where promises to tenants cannot be kept then.")),
    ])
}

fn remove_tenant() -> Value {
    let summary = "Remove a tenant that has no hosts connected and no export; the answer is what it was.";
    let mut operation = named(operation("remove_tenant", summary, "Tenant"));
    operation["responses"]["409"] = error("Hosts are connected, or it has an export.");
    operation
}

fn power_cut() -> Value {
    let summary =
        "Cut a drive's power and bring it back: its controllers die, writes that were not flushed may be gone.";
    let mut operation = named(operation("power_cut", summary, "PowerCut"));
    operation["responses"]["409"] = error("The drive does not keep what that needs, or has no power already.");
    operation
}

fn name_parameter() -> Value {
    json!({ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } })
}

/// An object with all its properties required; a name that ends in `?` is optional.
fn object(properties: &[(&str, Value)]) -> Value {
    let mut all = Map::new();
    let mut required = Vec::new();
    for (name, schema) in properties {
        let bare = name.trim_end_matches('?');
        if bare.len() == name.len() {
            required.push(bare);
        }
        all.insert(bare.to_string(), schema.clone());
    }
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": all })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn words(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn number(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn real(description: &str) -> Value {
    json!({ "type": "number", "minimum": 0, "description": description })
}

fn between(least: u64, most: u64, description: &str) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

fn array(schema: &str) -> Value {
    json!({ "type": "array", "items": reference(schema) })
}

fn shares(value: &Value) -> Value {
    object(&[("high", value.clone()), ("medium", value.clone()), ("low", value.clone())])
}

fn shares_patch(value: &Value) -> Value {
    object(&[("high?", value.clone()), ("medium?", value.clone()), ("low?", value.clone())])
}

fn weight() -> Value {
    between(1, 256, "Commands a round.")
}

fn quantum() -> Value {
    between(4096, 1 << 30, "Bytes a round.")
}

fn burst() -> Value {
    json!({
        "type": ["integer", "null"], "minimum": 0, "maximum": 6,
        "description": "At most two to this power commands of a queue in one visit; null: no limit.",
    })
}

fn mechanism() -> Value {
    words(&["none", "rr", "wrr", "drr"])
}

fn ana() -> Value {
    words(&["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"])
}

fn device_patch() -> Value {
    object(&[
        ("mechanism?", mechanism()),
        ("weights?", shares_patch(&weight())),
        ("burst?", burst()),
        ("quanta?", shares_patch(&quantum())),
        ("capacity_bytes?", number("Size: whole blocks, at most the device's max_capacity.")),
        (
            "ana?",
            object(&[
                ("state", ana()),
                (
                    "host?",
                    text(
                        "The host's NQN; left out, and no port: all, and what was said of hosts and ports is forgotten.",
                    ),
                ),
                ("port?", text("All hosts that come by this listening address, like 10.0.0.1:4420; not with host.")),
            ]),
        ),
        ("spare_percent?", number("SMART's available spare is no more than this, 0 to 100.")),
        ("force?", flag("Do it even where promises to tenants cannot be kept then.")),
    ])
}

fn schemas() -> Value {
    // tidy: long because it is a list: a line for each type.
    json!({
        "Error": object(&[("error", text("What went wrong and what to do."))]),
        "Status": status(),
        "StartStep": object(&[
            ("name", text("What was done.")),
            ("ns", number("How long it took.")),
        ]),
        "Shard": object(&[
            ("core", number("The CPU it runs on.")),
            ("poll", flag("It never sleeps.")),
            ("cpu_s", real("CPU time used, in seconds.")),
            ("busy_pct", real("Percent of the last second in which it had something to do.")),
        ]),
        "Door": object(&[
            ("kind", text("nvme-tcp")),
            ("listen", texts("Addresses with the ports really bound.")),
            ("connections", number("Connections now.")),
            ("unconnected", number("Those of them that are no queue yet.")),
            ("pushed_out", number("Connections that were closed before Connect because others came.")),
            ("refused", number("Connects that found no room.")),
        ]),
        "Counters": object(&[
            ("reads", number("Read commands.")),
            ("writes", number("Write commands.")),
            ("others", number("Other I/O commands.")),
            ("read_bytes", number("Bytes read.")),
            ("written_bytes", number("Bytes written.")),
            ("errors", number("I/O commands that ended with an error.")),
        ]),
        "Arbitration": object(&[
            ("mechanism", mechanism()),
            ("weights", shares(&weight())),
            ("burst", burst()),
            ("quanta", shares(&quantum())),
        ]),
        "Device": device(),
        "Timing": timing(),
        "Flash": flash(),
        "DeviceStats": device_stats(),
        "CompletionError": completion_error(),
        "Quantiles": object(&[
            ("mean", real("Mean.")),
            ("p50", number("Median.")),
            ("p99", number("99 of 100 are no larger.")),
            ("p999", number("999 of 1000 are no larger.")),
            ("max", number("Largest.")),
        ]),
        "Client": client(),
        "Tenant": tenant(),
        "Export": export(),
        "Recovered": recovered(),
        "RecoveredSteps": recovered_steps(),
        "DevicePatch": device_patch(),
        "PowerCut": power_cut_done(),
        "TenantPatch": tenant_patch(),
        "TenantAdd": tenant_add(),
        "ExportAdd": export_add(),
        "Pool": pool(),
        "PoolDrive": pool_drive(),
        "Upgrade": upgrade_status(),
        "UpgradeStart": upgrade_start(),
        "Volume": volume(),
        "PoolDriveAdd": object(&[("device", text("The device; what is on it is gone."))]),
        "VolumeAdd": object(&[
            ("name", text("Its name: 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first.")),
            ("tenant?", text("Whose it is; the only tenant where it is left out.")),
            ("size_bytes", number("Its size; rounded up to whole MiB.")),
            ("pool?", text("The pool; the only one where it is left out.")),
        ]),
        "VolumePatch": object(&[
            ("size_bytes?", number("Another size; rounded up to whole MiB. A smaller one needs shrink.")),
            ("shrink?", flag("The size may be a smaller one: what lies behind it is lost.")),
            ("name?", text("Another name.")),
        ]),
        "VolumeExport": object(&[
            ("door", text("nvme-tcp, vhost-user:PATH or vfio-user:PATH; paths are absolute.")),
            ("max_controllers?", between(1, 65519, "Controllers at once, over all doors of the volume; with its first export only. 1024 if absent.")),
        ]),
        "Floor": floor(&number),
        "Ceiling": ceiling(&number),
        "Sla": sla(&number),
        "FloorPatch": floor(&changed),
        "CeilingPatch": ceiling(&changed),
        "SlaPatch": sla(&changed),
        "Attainment": attainment(),
        "Period": period(),
    })
}

fn power_cut_done() -> Value {
    object(&[
        ("name", text("The drive.")),
        ("lost_units", number("Units of 4 KiB whose newest writes are gone.")),
        ("lost_writes", number("Those writes.")),
        ("pages_read", number("Flash pages that were read to find the map again.")),
        ("rebuild_ns", number("How long the drive needs until it serves again.")),
        ("power_cycles", number("How often it was powered on.")),
        ("unsafe_shutdowns", number("How often it lost power without being shut down.")),
    ])
}

fn tenant_patch() -> Value {
    object(&[
        ("class?", words(&["urgent", "high", "medium", "low"])),
        ("weight?", between(1, 256, "Share among the tenants of its class.")),
        ("floor?", reference("FloorPatch")),
        ("ceiling?", reference("CeilingPatch")),
        ("sla?", reference("SlaPatch")),
        ("force?", flag("Do it even where promises to tenants cannot be kept then.")),
    ])
}

fn tenant_add() -> Value {
    object(&[
        ("name", text("Its name: 1 to 32 letters, digits, '-', '_' and '.', and nobody else's.")),
        ("hosts?", texts("NQNs of its hosts; *: all that are nobody else's.")),
        ("class?", words(&["urgent", "high", "medium", "low"])),
        ("weight?", between(1, 256, "Share among the tenants of its class.")),
        ("floor?", reference("FloorPatch")),
        ("ceiling?", reference("CeilingPatch")),
        ("sla?", reference("SlaPatch")),
        ("force?", flag("Do it even where promises to tenants cannot be kept then.")),
    ])
}

fn status() -> Value {
    object(&[
        ("node", text("The node's name.")),
        ("version", text("Weir's version.")),
        ("pid", number("Process id.")),
        ("state", words(&["serving", "draining"])),
        ("uptime_s", real("Seconds since it began to serve.")),
        ("start", array("StartStep")),
        ("api", texts("Where the API listens.")),
        ("shards", array("Shard")),
        ("doors", array("Door")),
        ("devices", array("Device")),
        ("tenants", array("Tenant")),
        ("exports", array("Export")),
    ])
}

fn device() -> Value {
    object(&[
        ("name", text("Its name.")),
        ("nqn", text("NVMe qualified name of its subsystem.")),
        ("serial", text("Serial number.")),
        ("media", text("Where the bytes are.")),
        ("interface", words(&["block", "zoned", "open-channel"])),
        ("profile?", text("Whose flash it has the times of; absent where it has no flash.")),
        ("capacity_bytes", number("Size.")),
        ("block_size", number("Logical block.")),
        ("latency_ns", number("Fixed service time; 0: none.")),
        ("slots", number("Commands that it works on at once.")),
        ("slots_busy", number("Commands that it works on now.")),
        ("slot_bytes", number("Bytes that it works on at once.")),
        ("arbitration", reference("Arbitration")),
        ("cost", words(&["bytes", "commands", "device-time"])),
        ("core", number("The CPU of its reactor.")),
        ("controllers", number("Controllers that exist now.")),
        ("queues", number("I/O queues that exist now.")),
        ("io", reference("Counters")),
        ("fault?", text("What has broken its media first; absent while all is well.")),
        ("timing?", reference("Timing")),
        ("flash?", reference("Flash")),
        ("clients", array("Client")),
    ])
}

fn timing() -> Value {
    object(&[
        ("state", words(&["on-time", "late", "overloaded", "starved"])),
        ("state_s", real("For how many seconds that has been so.")),
        ("late_pct", real("Percent of the last quarter of a second's completions that were over 5 us late.")),
        ("net_late_pct", real("The same, net of run-queue wait.")),
        ("completions", number("Completions that were measured.")),
        ("over_5us", number("Of these, over 5 us late.")),
        ("over_20us", number("Over 20 us late.")),
        ("net_over_5us", number("Over 5 us late, net of run-queue wait.")),
        ("net_over_20us", number("Over 20 us late, net of run-queue wait.")),
        ("overloads", number("How many times it was overloaded.")),
        ("overloaded_s", real("For how many seconds it was overloaded in all.")),
    ])
}

fn device_stats() -> Value {
    object(&[
        ("device", text("The drive.")),
        ("core", number("The CPU of its reactor.")),
        ("poll", flag("That reactor never sleeps.")),
        ("core_busy_pct", real("Percent of the last second in which that reactor had something to do.")),
        ("core_wait_s?", real("For how many seconds its thread has been ready to run without a core.")),
        ("timing?", reference("Timing")),
        ("completion_error?", reference("CompletionError")),
        ("flash?", reference("Flash")),
    ])
}

fn flash() -> Value {
    let parts = |what: &str| json!({ "type": "array", "items": real(what) });
    object(&[
        ("capacity_bytes", number("Bytes offered.")),
        ("over_provisioning", real("Flash beyond them, as a part of them.")),
        ("write_amplification", real("Bytes programmed over bytes written by the host.")),
        (
            "gc",
            object(&[
                ("victims", number("Blocks collected.")),
                ("page_reads", number("Pages read.")),
                ("page_programs", number("Pages programmed.")),
                ("moved_units", number("Units of 4 KiB moved.")),
                ("folded_units", number("Of these, out of pseudo-SLC blocks.")),
                ("wear_levelled_units", number("Of these, for static wear levelling.")),
                ("urgent", number("Times that a write had to wait for it.")),
            ]),
        ),
        ("erases", number("Blocks erased.")),
        (
            "wear",
            object(&[
                ("min", number("Erases of the least worn block.")),
                ("mean", real("Of the average block.")),
                ("max", number("Of the most worn block.")),
            ]),
        ),
        (
            "handles?",
            json!({ "type": "array", "items": object(&[
                ("written_units", number("Units of 4 KiB programmed for the host through this placement handle.")),
                ("moved_units", number("Units moved by collection out of blocks that hold its data alone.")),
                ("reclaim_units", number("Reclaim units that were filled or left.")),
            ]) }),
        ),
        ("page_reads", number("Pages read for the host.")),
        ("page_programs", number("Pages programmed for the host.")),
        ("padding_units", number("Units that stayed empty in them.")),
        ("unmapped_reads", number("Units read that have no contents.")),
        ("buffer_read_hits", number("Units read that the write buffer had.")),
        ("buffer_write_hits", number("Units written whose version before it still had.")),
        ("buffer_waits", number("Units that waited for room in it.")),
        ("map_hits", number("Look-ups that the map cache had.")),
        ("map_misses", number("Look-ups that it had not.")),
        ("refused", number("Writes refused because the drive is worn out.")),
        (
            "utilisation",
            object(&[
                ("dies", parts("The part of the time in which the die was busy.")),
                ("channels", parts("The part of the time in which the channel was busy.")),
            ]),
        ),
    ])
}

fn completion_error() -> Value {
    object(&[
        ("measured_s", real("For how many seconds has been measured.")),
        ("raw_ns", reference("Quantiles")),
        ("net_ns", reference("Quantiles")),
        (
            "buckets",
            json!({ "type": "array", "items": object(&[
                ("from_ns", number("Late by so much or more.")),
                ("to_ns?", number("And by less than this.")),
                ("raw", number("Completions.")),
                ("net", number("Completions, net of run-queue wait.")),
            ]) }),
        ),
    ])
}

fn client() -> Value {
    object(&[
        ("host", text("The host's NQN, or the vhost-user socket and the process at its other end.")),
        ("tenant", text("Its tenant.")),
        ("controller", number("Controller identifier (CNTLID).")),
        ("ready", flag("Enabled.")),
        ("ana", ana()),
        ("queues", number("I/O queues that exist now.")),
        ("classes", texts("The classes that these are in, highest first.")),
    ])
}

fn tenant() -> Value {
    object(&[
        ("name", text("Its name.")),
        ("class", words(&["urgent", "high", "medium", "low"])),
        ("urgent", flag("Its queues may be urgent.")),
        ("weight", between(1, 256, "Share among the tenants of its class.")),
        ("floor?", reference("Floor")),
        ("ceiling?", reference("Ceiling")),
        ("sla?", reference("Sla")),
        ("attainment", array("Attainment")),
        ("hosts", texts("Host NQNs; *: every host that is nobody else's.")),
        ("controllers", number("Controllers that exist now.")),
        ("queues", number("I/O queues that exist now.")),
        ("connections", number("Its hosts' connections over NVMe/TCP, one for each admin and I/O queue.")),
        (
            "admission?",
            texts(
                "What admission says of it: promises that cannot be kept, and drives of which nobody knows; after a forced change, of all tenants.",
            ),
        ),
        ("io", reference("Counters")),
    ])
}

fn floor(of: &dyn Fn(&str) -> Value) -> Value {
    object(&[
        ("iops?", of("Commands a second at least.")),
        ("bandwidth_bytes_per_s?", of("Bytes a second at least.")),
        ("catch_up_ns?", between(1_000_000, 10_000_000_000, "How much of what was missed may be made up for at once.")),
    ])
}

fn ceiling(of: &dyn Fn(&str) -> Value) -> Value {
    object(&[
        ("iops?", of("Commands a second at the most.")),
        ("bandwidth_bytes_per_s?", of("Bytes a second at the most.")),
        ("burst?", of("Commands at once; those of 10 ms where it is absent.")),
        ("burst_bytes?", of("Bytes at once; those of 10 ms where it is absent.")),
    ])
}

fn sla(of: &dyn Fn(&str) -> Value) -> Value {
    object(&[
        ("iops?", of("Commands a second that were promised.")),
        ("bandwidth_bytes_per_s?", of("Bytes a second that were promised.")),
        ("p50_ns?", of("Half of the commands take no longer.")),
        ("p99_ns?", of("99 of 100 take no longer.")),
        ("p999_ns?", of("999 of 1000 take no longer.")),
    ])
}

/// A number, or `null` to take it away.
fn changed(description: &str) -> Value {
    json!({ "type": ["integer", "null"], "minimum": 1, "description": description })
}

fn attainment() -> Value {
    object(&[
        ("device", text("The drive.")),
        ("state", words(&["met", "missed", "unjudged"])),
        ("since_s", number("For how many seconds that has been so.")),
        ("periods", number("Periods of a second in which the tenant asked for anything.")),
        ("missed", number("Those in which anything was missed.")),
        ("missed_rate", number("Those in which a rate was missed.")),
        ("missed_latency", number("Those in which a latency bound was missed.")),
        ("last?", reference("Period")),
    ])
}

fn period() -> Value {
    object(&[
        ("commands", number("Commands completed.")),
        ("iops", number("Commands started a second.")),
        ("bandwidth_bytes_per_s", number("Bytes started a second.")),
        ("p50_ns", number("Median from arrival to completion.")),
        ("p99_ns", number("99 of 100 took no longer.")),
        ("p999_ns", number("999 of 1000 took no longer.")),
        ("max_ns", number("The longest.")),
        ("missed_rate", flag("A rate was missed.")),
        ("missed_latency", flag("A latency bound was missed.")),
    ])
}

fn export() -> Value {
    object(&[
        ("device", text("The drive; nothing for a volume.")),
        ("volume?", text("The volume, if it is one.")),
        ("door", words(&["nvme-tcp", "vhost-user", "vfio-user"])),
        ("addresses", texts("Socket paths or IP:PORT.")),
        ("tenant?", text("The tenant of a socket.")),
        ("class_from", words(&["tenant", "qprio", "cattr", "peer"])),
        ("queues", number("I/O queues at most.")),
        ("read_only", flag("Writes are refused.")),
        ("clients", number("Clients connected now.")),
        ("recovered?", reference("Recovered")),
    ])
}

fn recovered() -> Value {
    object(&[
        (
            "queues",
            number("Queues that were in use when their server died or their front end went, and were recovered."),
        ),
        ("requests", number("Requests submitted again.")),
        ("rolled_back", number("Of these: had been done, and the driver did not know.")),
        ("closed", number("Requests that were done, and the driver knew.")),
        ("steps", reference("RecoveredSteps")),
    ])
}

fn recovered_steps() -> Value {
    object(&[
        ("idle", number("Queues with nothing in flight.")),
        ("merged", number("With a request just taken (step 5 of the journal's algorithm).")),
        ("marked", number("With a request just marked as in flight (step 6).")),
        ("in_flight", number("With requests at the drive (steps 7 to 9).")),
        ("counted", number("With a completion just counted (step 10).")),
        ("done", number("With completions not published yet (steps 11 and 12).")),
        ("published", number("With completions published and not struck out yet (step 13).")),
    ])
}
