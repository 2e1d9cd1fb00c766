//! A kernel of this machine, and the modules that its drivers are in.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a machine's disks need. What is built into the kernel is in no module.
const DRIVERS: [&str; 3] = ["virtio_pci", "virtio_blk", "nvme"];

/// A module, unpacked.
#[derive(Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, as `lsmod` writes it.
    pub name: String,
    /// What `insmod` loads.
    pub bytes: Vec<u8>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// These files, or the newest kernel of /boot with its modules.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn find(image: Option<&Path>, modules: Option<&Path>) -> Result<Kernel, String> {
        let image = match image {
            Some(image) => image.to_owned(),
            None => newest(Path::new("/boot"))?,
        };
        std::fs::File::open(&image).map_err(|e| {
            format!("{}: {e}; name a kernel that you may read with --kernel (and its --modules)", image.display())
        })?;
        let modules = match (modules, version(&image)) {
            (Some(modules), _) => modules.to_owned(),
            (None, Some(version)) => Path::new("/lib/modules").join(version),
            (None, None) => {
                return Err(format!(
                    "{}: its name ends in no version; name its modules with --modules",
                    image.display()
                ));
            }
        };
        Ok(Kernel { image, modules })
    }

    /// What QEMU boots.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The modules of the disks' drivers, each after those that it needs.
    ///
    /// # Errors
    /// A driver is neither there nor built in, or cannot be read.
    pub fn modules(&self) -> Result<Vec<Module>, String> {
        let list = |name: &str| {
            let file = self.modules.join(name);
            std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))
        };
        let (dependencies, builtin) = (list("modules.dep")?, list("modules.builtin"));
        let names = load_order(&dependencies, &builtin.unwrap_or_default(), &DRIVERS);
        let names = names.map_err(|driver| {
            format!("{}: neither has a module {driver} nor is it built in", self.modules.display())
        })?;
        names.into_iter().map(|file| unpacked(&self.modules.join(file))).collect()
    }
}

/// The kernel with the highest version.
fn newest(folder: &Path) -> Result<PathBuf, String> {
    let files = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let kernels = files.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| version(path).is_some());
    let newest = kernels.max_by_key(|path| numbers(version(path).unwrap_or_default()));
    newest.ok_or_else(|| {
        format!("{}: no vmlinuz-*; name a kernel with --kernel, and its modules with --modules", folder.display())
    })
}

/// What its name says after `vmlinuz-` or `vmlinux-`.
fn version(image: &Path) -> Option<&str> {
    let name = image.file_name().and_then(OsStr::to_str)?;
    name.strip_prefix("vmlinuz-").or_else(|| name.strip_prefix("vmlinux-"))
}

/// The numbers of a version, to compare it by.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// `nvme-core` of `kernel/drivers/nvme/host/nvme-core.ko.xz`, as `lsmod` writes it.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or_default();
    name.split(".ko").next().unwrap_or_default().replace('-', "_")
}

/// The files of these drivers in the order in which they are loaded.
///
/// # Errors
/// The driver that is nowhere.
fn load_order<'a>(dependencies: &'a str, builtin: &str, drivers: &[&str]) -> Result<Vec<&'a str>, String> {
    let line = |line: &'a str| {
        let (file, needs) = line.split_once(':')?;
        Some((module_name(file), (file, needs)))
    };
    let all: HashMap<String, (&str, &str)> = dependencies.lines().filter_map(line).collect();
    let mut order: Vec<&str> = Vec::new();
    for driver in drivers {
        let Some((file, needs)) = all.get(*driver) else {
            if builtin.lines().any(|file| module_name(file) == *driver) {
                continue;
            }
            return Err((*driver).to_string());
        };
        // depmod lists what is needed first last.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.contains(&file) {
                order.push(file);
            }
        }
    }
    Ok(order)
}

/// A module's bytes, whatever it is packed by.
fn unpacked(file: &Path) -> Result<Module, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", file.display());
    let name = module_name(&file.to_string_lossy());
    let packed = std::fs::read(file).map_err(wrong)?;
    let mut bytes = Vec::new();
    match file.extension().and_then(OsStr::to_str) {
        Some("gz") => _ = flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).map_err(wrong)?,
        Some("zst") => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]);
            let mut decoder = decoder.map_err(|e| format!("{}: {e}", file.display()))?;
            decoder.read_to_end(&mut bytes).map_err(wrong)?;
        }
        Some("xz") => {
            let done = Command::new("xz").arg("-dc").arg(file).stderr(Stdio::inherit()).output();
            let done = done.map_err(|e| format!("xz, to unpack {}: {e}; install xz-utils", file.display()))?;
            if !done.status.success() {
                return Err(format!("xz cannot unpack {}", file.display()));
            }
            bytes = done.stdout;
        }
        _ => bytes = packed,
    }
    Ok(Module { name, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
kernel/drivers/nvme/host/nvme.ko.xz: kernel/drivers/nvme/host/nvme-core.ko.xz kernel/drivers/nvme/common/nvme-auth.ko.xz
kernel/drivers/nvme/host/nvme-core.ko.xz: kernel/drivers/nvme/common/nvme-auth.ko.xz
kernel/drivers/nvme/common/nvme-auth.ko.xz:
kernel/drivers/block/virtio_blk.ko.xz:
";

    #[test]
    fn modules_come_after_those_that_they_need() {
        let builtin = "kernel/drivers/virtio/virtio_pci.ko\n";
        let order = load_order(DEPENDENCIES, builtin, &DRIVERS).unwrap();
        assert_eq!(
            order.into_iter().map(module_name).collect::<Vec<_>>(),
            ["virtio_blk", "nvme_auth", "nvme_core", "nvme"]
        );
        assert_eq!(load_order(DEPENDENCIES, "", &DRIVERS), Err("virtio_pci".into()));
    }

    #[test]
    fn the_newest_kernel_is_by_its_numbers() {
        let folder = std::env::temp_dir().join(format!("weir-kernels-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(newest(&folder).unwrap_err().contains("--kernel"));
        for name in ["vmlinuz-6.9.1", "vmlinuz-6.12.0-1", "config-6.99", "vmlinuz-6.12.0"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(newest(&folder).unwrap().file_name().unwrap(), "vmlinuz-6.12.0-1");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn packed_modules_are_unpacked() {
        let folder = std::env::temp_dir().join(format!("weir-modules-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = b"ELF of a module".repeat(100);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &text).unwrap();
        let zstandard = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
        for (name, bytes) in
            [("a-b.ko.gz", gzip.finish().unwrap()), ("a-b.ko.zst", zstandard), ("a-b.ko", text.clone())]
        {
            let file = folder.join(name);
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(unpacked(&file), Ok(Module { name: "a_b".into(), bytes: text.clone() }), "{name}");
        }
        let file = folder.join("torn.ko.gz");
        std::fs::write(&file, [0x1f, 0x8b, 8, 0]).unwrap();
        assert!(unpacked(&file).unwrap_err().contains("torn.ko.gz"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
