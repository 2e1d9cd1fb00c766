//! An image as a tar archive of an OCI image layout (image-spec 1.1): one layer, one manifest, one tag.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::files::{Files, gzip, hex};

/// What the image's program is started with.
#[derive(Clone, Debug)]
pub struct Image {
    /// The root file system.
    pub root: Files,
    /// The program, absolute.
    pub entrypoint: &'static str,
    /// Its arguments where `podman run` gives none.
    pub cmd: Vec<&'static str>,
    /// Ports that it listens on: `4420/tcp`.
    pub ports: Vec<&'static str>,
    /// The tag, as in `weir:TAG`.
    pub tag: String,
    /// `org.opencontainers.image.*` and their values.
    pub labels: Vec<(&'static str, String)>,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// Adds a blob; its descriptor.
fn blob(layout: &mut Files, media_type: &str, bytes: Vec<u8>) -> Value {
    let (digest, size) = (digest(&bytes), bytes.len());
    layout.data(&format!("blobs/{}", digest.replace(':', "/")), bytes);
    json!({ "mediaType": format!("application/vnd.oci.image.{media_type}"), "digest": digest, "size": size })
}

impl Image {
    /// The archive, the same bytes for the same contents and `epoch` (seconds since 1970). `created` is that time as RFC 3339.
    ///
    /// # Errors
    /// What a tar archive cannot hold.
    pub fn bytes(&self, epoch: u64, created: &str) -> Result<Vec<u8>, String> {
        let tar = self.root.tar("", epoch)?;
        let mut layout = Files::default();
        layout.data("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string());
        let diff_id = digest(&tar);
        let layer = blob(&mut layout, "layer.v1.tar+gzip", gzip(&tar)?);
        let labels: serde_json::Map<String, Value> = self
            .labels
            .iter()
            .map(|(name, value)| (format!("org.opencontainers.image.{name}"), json!(value)))
            .collect();
        let ports: serde_json::Map<String, Value> = self.ports.iter().map(|port| ((*port).into(), json!({}))).collect();
        let config = json!({
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": [self.entrypoint],
                "Cmd": self.cmd,
                "ExposedPorts": ports,
                "Labels": labels,
                "StopSignal": "SIGTERM",
            },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
            "history": [{ "created": created, "created_by": "cargo xtask dist" }],
        });
        let config = blob(&mut layout, "config.v1+json", config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
            "annotations": labels,
        });
        let mut manifest = blob(&mut layout, "manifest.v1+json", manifest.to_string().into_bytes());
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": self.tag });
        manifest["platform"] = json!({ "architecture": "amd64", "os": "linux" });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        layout.data("index.json", index.to_string());
        layout.tar("", epoch)
    }
}
