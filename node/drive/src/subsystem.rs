//! What a drive's machine is made with, by its configuration.

use weir_config::{ClassFrom, Config, Cost, DeviceConfig, DoorConfig, ExportConfig, MediaConfig, TenantConfig};
use weir_controller as controller;

/// What the drive's machine is made with.
pub fn subsystem_config(config: &Config, device: &DeviceConfig) -> controller::SubsystemConfig {
    let index = config.devices.iter().position(|d| d.name == device.name);
    let export = index.and_then(|i| tcp_export(config, i));
    let class_from = export.map_or(device.class_from, |e| e.class_from);
    // Hosts of NVMe, by whatever door; a vhost-user device's queues are its own.
    let hosts = |e: &&ExportConfig| Some(e.device) == index && !matches!(e.door, DoorConfig::VhostUser { .. });
    let queues = config.exports.iter().filter(hosts).map(|e| e.queues.min(device.queues)).max();
    controller::SubsystemConfig {
        tenants: config.tenants.iter().map(|t| machine_tenant(t, class_from)).collect(),
        in_capsule: config.nvme_tcp.in_capsule.get() as u32,
        ana_ports: config.nvme_tcp.ana_ports(),
        faults: config.node.faults,
        max_io_queues: queues.unwrap_or(device.queues),
        ..machine_config(device)
    }
}

/// A tenant as the machine of a drive with that `class_from` knows it.
pub fn machine_tenant(t: &TenantConfig, class_from: ClassFrom) -> controller::TenantConfig {
    let any = t.any_host.then(|| "*".to_string());
    controller::TenantConfig {
        name: t.name.clone(),
        class: t.class,
        urgent: t.urgent,
        class_from: class_of(class_from),
        weight: t.weight,
        placement: t.placement,
        floor: t.floor,
        ceiling: t.ceiling,
        sla: t.sla,
        hosts: t.hosts.iter().cloned().chain(any).collect(),
    }
}

/// Who may wish for a class at a drive, as its doors have it.
pub fn class_from(config: &Config, device: usize) -> ClassFrom {
    tcp_export(config, device).map_or(config.devices[device].class_from, |e| e.class_from)
}

fn tcp_export(config: &Config, device: usize) -> Option<&ExportConfig> {
    config.exports.iter().find(|e| e.device == device && e.door == DoorConfig::NvmeTcp)
}

/// What a drive's machine is made with, but for tenants and namespaces.
pub fn machine_config(device: &DeviceConfig) -> controller::SubsystemConfig {
    controller::SubsystemConfig {
        serial: device.serial.clone(),
        arbitration: device.arbitration.into(),
        cost: match device.cost {
            Cost::Bytes => controller::Cost::Bytes,
            Cost::Commands => controller::Cost::Commands,
            Cost::DeviceTime => controller::Cost::DeviceTime,
        },
        slots: device.slots.into(),
        slot_bytes: device.slot_bytes.get(),
        latency: device.latency,
        max_queue_entries: device.queue_depth.into(),
        max_io_queues: device.queues,
        max_controllers: device.max_controllers,
        cmb: device.cmb.map_or(0, weir_units::Bytes::get),
        reads_zeroes: device.media != MediaConfig::Null || device.read_zeroes,
        ..controller::SubsystemConfig::new(&device.nqn)
    }
}

/// The same as the machine has it.
pub fn class_of(from: ClassFrom) -> controller::ClassFrom {
    match from {
        ClassFrom::Tenant => controller::ClassFrom::Tenant,
        ClassFrom::Qprio => controller::ClassFrom::Qprio,
        ClassFrom::Cattr => controller::ClassFrom::Cattr,
        ClassFrom::Peer => controller::ClassFrom::Peer,
    }
}
