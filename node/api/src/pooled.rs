//! The JSON of pools and volumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Volume")]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its UUID, for hosts.
    pub uuid: String,
    /// Whose it is.
    pub tenant: String,
    /// The pool that it is a part of.
    pub pool: String,
    /// Its size.
    pub size_bytes: u64,
    /// The drives that it lies on, in its order.
    pub drives: Vec<String>,
    /// Pieces that lie together.
    pub extents: u32,
    /// What of it lies on lost drives: what is asked of it fails.
    #[serde(default)]
    pub missing_bytes: u64,
    /// What of it was lost, and lies on drives that have taken the place of lost ones: it fails until the volume is emptied.
    #[serde(default)]
    pub replaced_bytes: u64,
    /// How many drives have each chunk.
    #[serde(default = "one")]
    pub copies: u8,
    /// What of it has one copy, as the other one lies on a lost drive.
    #[serde(default)]
    pub alone_bytes: u64,
    /// What of it has one copy, from which the other one is being rebuilt.
    #[serde(default)]
    pub rebuilding_bytes: u64,
    /// Of a snapshot, which is called `VOLUME@NAME`: the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_of: Option<String>,
    /// What it has of the pool's drives that no other volume has: what deleting it gives back.
    #[serde(default)]
    pub own_bytes: u64,
    /// The subsystem's name over NVMe/TCP, where it is exported there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// The doors that it is exported at.
    pub exports: Vec<String>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Pool")]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its UUID, which is on its drives.
    pub uuid: String,
    /// What there is for volumes.
    pub size_bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
    /// Volumes.
    pub volumes: u32,
    /// Why nothing is changed any more, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Drives that it serves without; it is degraded then.
    #[serde(default)]
    pub lost: Vec<LostPoolDrive>,
    /// The comparison of its volumes' copies that is under way, or was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubStatus>,
    /// Its drives.
    pub drives: Vec<PoolDrive>,
}

/// A comparison of the copies of a pool's volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Scrub")]
pub struct ScrubStatus {
    /// It is under way.
    pub running: bool,
    /// Where copies differ, the second one is written anew.
    pub repair: bool,
    /// Bytes of volumes whose copies were compared.
    pub compared_bytes: u64,
    /// Those of them in pieces that differ.
    pub differing_bytes: u64,
    /// Bytes of chunks that a drive did not give.
    pub failed_bytes: u64,
}

/// `POST /v1/pools/NAME/scrub`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolScrub {
    /// Where copies differ, the second one is written anew.
    #[serde(default)]
    pub repair: bool,
}

/// A drive that a pool serves without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostPoolDrive {
    /// Its number in the pool.
    pub number: u16,
    /// Its UUID, which is on it.
    pub uuid: String,
    /// Its size.
    pub size_bytes: u64,
    /// The device that it was when it was there.
    pub device: String,
}

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolDrive {
    /// The drive.
    pub device: String,
    /// Its number in the pool.
    pub number: u16,
    /// Its UUID, which is on it.
    pub uuid: String,
    /// What there is for volumes.
    pub size_bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
    /// What was somebody's and is not emptied yet.
    pub emptying_bytes: u64,
    /// The largest free piece.
    pub largest_free_bytes: u64,
}

/// `POST /v1/pools/NAME/drives`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolDriveAdd {
    /// The device; what is on it is gone.
    pub device: String,
}

/// `POST /v1/pools/NAME/replace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolDriveReplace {
    /// The lost drive: its number, its UUID, or the device that it was.
    pub lost: String,
    /// The device that takes its place; what is on it is gone.
    pub device: String,
}

/// What of a volume may be other than zeroes. Drives in memory and in files know; of another drive all counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeContents {
    /// Whole MiB, in their order; no two ranges touch. What lies between them, up to `next_bytes`, reads as zeroes.
    pub ranges: Vec<DataRange>,
    /// Where the rest begins that was not looked at: ask again with `?from=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_bytes: Option<u64>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataRange {
    /// Where they begin.
    pub offset_bytes: u64,
    /// How many.
    pub size_bytes: u64,
}

/// `POST /v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeAdd {
    /// Its name: 1 to 64 letters, digits, `.`, `_` and `-`, a letter or digit first.
    pub name: String,
    /// Whose it is; the only tenant where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its size; rounded up to whole MiB.
    pub size_bytes: u64,
    /// The pool; the only one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How many drives have each chunk, 1 or 2; as the pool has it where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u8>,
}

fn one() -> u8 {
    1
}

/// `PATCH /v1/volumes/NAME`: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumePatch {
    /// Another size; rounded up to whole MiB. A smaller one needs `shrink`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The size may be a smaller one: what lies behind it is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shrink: bool,
    /// Another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `POST /v1/volumes/NAME/snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSnapshotAdd {
    /// Its name; the snapshot is called `VOLUME@NAME` then.
    pub name: String,
}

/// `POST /v1/volumes/VOLUME@NAME/clones`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeClone {
    /// The name of the new volume.
    pub name: String,
    /// Whose it is; the snapshot's tenant's where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// `POST /v1/volumes/NAME/exports`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeExport {
    /// `nvme-tcp`, `vhost-user:PATH` or `vfio-user:PATH`; paths are absolute.
    pub door: String,
    /// Controllers at once, over all doors of the volume, 1 to 65519; with its first export only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65519))]
    pub max_controllers: Option<u32>,
    /// For copying all of the volume, by `vhost-user:PATH` only: the volume is exported nowhere else, and this export ends when its client goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageAccess>,
}

/// What an export is for that serves to copy a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageAccess {
    /// A volume or a snapshot is read.
    Read,
    /// A volume is written.
    Write,
}
