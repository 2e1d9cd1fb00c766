//! What a node is to do, as it was checked.

use super::api::ApiConfig;
use super::device::DeviceConfig;
use super::door::NvmeTcpConfig;
use super::export::ExportConfig;
use super::fault::FaultConfig;
use super::node::NodeConfig;
use super::pool::{PoolConfig, VolumeConfig};
use super::store::StoreConfig;
use super::tenant::TenantConfig;

/// A whole node. Devices, tenants and exports keep the order of the file; exports refer to the others by index.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[node]`.
    pub node: NodeConfig,
    /// `[api]`.
    pub api: ApiConfig,
    /// `[[device]]`, at least one.
    pub devices: Vec<DeviceConfig>,
    /// `[[tenant]]`, at least one.
    pub tenants: Vec<TenantConfig>,
    /// `[[export]]`; none beside a pool, where [default exports](NodeConfig::default_exports) are off, or where all were ended.
    pub exports: Vec<ExportConfig>,
    /// `[door.nvme-tcp]`.
    pub nvme_tcp: NvmeTcpConfig,
    /// `[[pool]]`.
    pub pools: Vec<PoolConfig>,
    /// `[[volume]]`.
    pub volumes: Vec<VolumeConfig>,
    /// `[store]`: a metadata service in this node.
    pub store: Option<StoreConfig>,
    /// `[[fault]]`; none unless [`faults`](NodeConfig::faults) are allowed.
    pub faults: Vec<FaultConfig>,
}
