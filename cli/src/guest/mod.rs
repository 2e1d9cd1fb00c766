//! `weir guest`: a virtual machine with a drive or volume of a node, in one command.
//!
//! ```text
//!   mod        the command: which export, which machine, what is run
//!   kernel     a kernel of this machine, and the modules that its drivers are in
//!   initramfs  a root of busybox, these modules and a script, as the kernel takes it
//!   qemu       which QEMU, and its arguments
//! ```

mod initramfs;
mod kernel;
mod qemu;

use crate::client::ApiClient;
use crate::connect::quoted;
use crate::failure::CommandFailure;
use crate::output;
use clap::Args;
use initramfs::Initramfs;
use kernel::Kernel;
use qemu::{Boot, Machine, Qemu};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_api::ExportStatus;
use weir_units::{Bytes, parse};

/// See the [module](self).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir guest                               a shell in a machine with the only socket of the running node
  weir guest gold-0                        with that volume, or drive
  weir guest /run/weir/ssd0.sock --run check.sh    runs a script, and ends with its exit status
  weir guest gold-0 --disk debian.qcow2    boots a disk image of yours
  weir guest gold-0 --print                prints the line, for changes of your own

The machine has a kernel of this one's /boot, its modules for NVMe and virtio disks, and busybox (package busybox-static). Ctrl-A X ends it.")]
pub struct GuestArgs {
    /// A drive or volume of the running node, or the socket of an export: PATH, vfio-user:PATH, vhost-user:PATH [default: the only one]
    export: Option<String>,
    /// Run this shell script instead of a shell, and end; $DISK is the disk, its exit status this command's
    #[arg(long, value_name = "FILE", conflicts_with = "disk")]
    run: Option<PathBuf>,
    /// Boot this disk image, raw or qcow2
    #[arg(long, value_name = "IMAGE")]
    disk: Option<PathBuf>,
    /// The kernel [default: the newest /boot/vmlinuz-*]
    #[arg(long, value_name = "FILE", conflicts_with = "disk")]
    kernel: Option<PathBuf>,
    /// Its modules [default: /lib/modules/VERSION of the kernel's name]
    #[arg(long, value_name = "FOLDER", conflicts_with = "disk")]
    modules: Option<PathBuf>,
    /// A busybox that needs no libraries [default: the one on PATH]
    #[arg(long, value_name = "FILE", conflicts_with = "disk")]
    busybox: Option<PathBuf>,
    /// Its memory
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = |text: &str| parse::bytes(text))]
    memory: Bytes,
    /// Its CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,
    /// kvm or tcg (software emulation) [default: kvm where /dev/kvm can be opened]
    #[arg(long, value_parser = ["kvm", "tcg"])]
    accel: Option<String>,
    /// The emulator [default: qemu-system-x86_64 on PATH]
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
    /// Print the command, with the initramfs made for it, instead of starting it
    #[arg(long)]
    print: bool,
    /// More arguments for QEMU
    #[arg(last = true, value_name = "ARGUMENT")]
    more: Vec<String>,
}

/// Boots the machine; its exit status where a script was run.
///
/// # Errors
/// There is no such export, QEMU, kernel or busybox; QEMU fails.
pub fn run(
    client: impl FnOnce() -> Result<ApiClient, CommandFailure>,
    args: &GuestArgs,
    json: bool,
) -> Result<ExitCode, CommandFailure> {
    let failed = |text: String| CommandFailure::new(format_args!("guest: {text}"));
    let socket = match args.export.as_deref().and_then(Socket::named) {
        Some(socket) => socket,
        None => Socket::choose(&client()?.get::<Vec<ExportStatus>>("/v1/exports")?, args.export.as_deref())
            .map_err(failed)?,
    };
    socket.check().map_err(failed)?;
    let qemu = Qemu::find(args.qemu.as_deref()).map_err(failed)?;
    qemu.check(&socket).map_err(failed)?;
    let folder = Folder::new().map_err(failed)?;
    let boot = match &args.disk {
        Some(image) => Boot::Disk(absolute(image).map_err(failed)?),
        None => own_boot(args, &folder).map_err(failed)?,
    };
    let machine = Machine {
        memory: args.memory,
        cpus: args.cpus,
        accel: args.accel.clone().unwrap_or_else(|| qemu::accelerator().into()),
        socket,
        boot,
    };
    let arguments: Vec<String> = machine.arguments().into_iter().chain(args.more.iter().cloned()).collect();
    if args.print {
        let words: Vec<String> = std::iter::once(qemu.path().display().to_string()).chain(arguments).collect();
        if json {
            output::json(&serde_json::json!({ "command": words }))?;
        } else {
            output::text(&(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ") + "\n"))?;
        }
        folder.keep();
        return Ok(ExitCode::SUCCESS);
    }
    let status = qemu.run(&arguments).map_err(failed)?;
    if args.run.is_none() {
        return if status.success() { Ok(ExitCode::SUCCESS) } else { Err(failed(format!("QEMU: {status}"))) };
    }
    let told = std::fs::read_to_string(folder.status()).unwrap_or_default();
    match told.trim().parse::<u8>() {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(_) => {
            Err(failed(format!("the machine ended before the script did (QEMU: {status}); its console is above")))
        }
    }
}

/// The kernel of this machine with an initramfs, made in that folder.
fn own_boot(args: &GuestArgs, folder: &Folder) -> Result<Boot, String> {
    let kernel = Kernel::find(args.kernel.as_deref(), args.modules.as_deref())?;
    let script = match &args.run {
        Some(file) => Some(std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?),
        None => None,
    };
    let busybox = initramfs::find_busybox(args.busybox.as_deref())?;
    let initrd = folder.0.join("initramfs.cpio");
    let file = std::fs::File::create(&initrd).map_err(|e| format!("{}: {e}", initrd.display()))?;
    let content = Initramfs { busybox, modules: kernel.modules()?, script };
    content.write(std::io::BufWriter::new(file)).map_err(|e| format!("{}: {e}", initrd.display()))?;
    Ok(Boot::Kernel { image: kernel.image().to_owned(), initrd, status: folder.status() })
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))
}

/// What a machine connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// An NVMe controller.
    VfioUser(PathBuf),
    /// A virtio disk.
    VhostUser(PathBuf),
}

impl Socket {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Socket::VfioUser(path) | Socket::VhostUser(path) => path,
        }
    }

    /// One that says its door itself; none: the running node is asked.
    fn named(text: &str) -> Option<Socket> {
        let of = |door: &str| text.strip_prefix(door).map(PathBuf::from);
        of("vfio-user:").map(Socket::VfioUser).or_else(|| of("vhost-user:").map(Socket::VhostUser))
    }

    fn of_export(export: &ExportStatus) -> Option<Socket> {
        let path = PathBuf::from(export.addresses.first()?);
        match export.door.as_str() {
            "vfio-user" => Some(Socket::VfioUser(path)),
            "vhost-user" => Some(Socket::VhostUser(path)),
            _ => None,
        }
    }

    /// The export that is wanted, by the name of its drive or volume or by its socket; none named: the only one.
    fn choose(exports: &[ExportStatus], wanted: Option<&str>) -> Result<Socket, String> {
        let name = |export: &ExportStatus| export.volume.clone().unwrap_or_else(|| export.device.clone());
        let sockets: Vec<(String, Socket)> =
            exports.iter().filter_map(|export| Some((name(export), Socket::of_export(export)?))).collect();
        let fits = |(name, socket): &&(String, Socket)| {
            wanted.is_none_or(|wanted| wanted == name || Path::new(wanted) == socket.path())
        };
        let found: Vec<&(String, Socket)> = sockets.iter().filter(fits).collect();
        if let [(_, socket)] = found[..] {
            return Ok(socket.clone());
        }
        let list = |of: Vec<String>| of.join(", ");
        let all = list(sockets.iter().map(|(name, socket)| format!("{name} at {}", socket.path().display())).collect());
        match (sockets.is_empty(), wanted) {
            (true, _) => Err("the node serves no machine; `weir export vfio-user DRIVE SOCKET` or `weir export volume NAME vhost-user:SOCKET` \
                              does"
                .into()),
            (_, Some(wanted)) if found.is_empty() => Err(format!("nothing called \"{wanted}\" has a socket; there is {all}")),
            _ => Err(format!("which one? There is {all}")),
        }
    }

    /// Somebody has to listen: QEMU says no more than that it failed.
    fn check(&self) -> Result<(), String> {
        let path = self.path();
        match std::os::unix::fs::FileTypeExt::is_socket(
            &std::fs::metadata(path).map_err(|e| format!("{}: {e}; is the node running?", path.display()))?.file_type(),
        ) {
            true => Ok(()),
            false => Err(format!("{}: no socket", path.display())),
        }
    }
}

/// A folder for the initramfs, which goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("weir-guest-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    /// What the machine says of its script.
    fn status(&self) -> PathBuf {
        self.0.join("status")
    }

    /// What is printed uses it.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is in a place for what may be lost.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(device: &str, volume: Option<&str>, door: &str, address: &str) -> ExportStatus {
        serde_json::from_value(serde_json::json!({
            "device": device, "volume": volume, "door": door, "addresses": [address], "class_from": "tenant", "queues": 1,
            "read_only": false, "clients": 0,
        }))
        .unwrap()
    }

    #[test]
    fn an_export_is_found_by_name_by_socket_or_because_it_is_the_only_one() {
        let drive = export("ssd0", None, "vfio-user", "/run/weir/ssd0.sock");
        let volume = export("", Some("gold-0"), "vhost-user", "/run/weir/gold-0.sock");
        let tcp = export("ssd0", None, "nvme-tcp", "127.0.0.1:4420");
        let only = [tcp.clone(), drive.clone()];
        let of_drive = Ok(Socket::VfioUser("/run/weir/ssd0.sock".into()));
        assert_eq!(Socket::choose(&only, None), of_drive);
        let both = [tcp.clone(), drive, volume];
        assert_eq!(Socket::choose(&both, Some("ssd0")), of_drive);
        assert_eq!(
            Socket::choose(&both, Some("/run/weir/gold-0.sock")),
            Ok(Socket::VhostUser("/run/weir/gold-0.sock".into()))
        );
        let which = Socket::choose(&both, None).unwrap_err();
        assert_eq!(which, "which one? There is ssd0 at /run/weir/ssd0.sock, gold-0 at /run/weir/gold-0.sock");
        assert!(Socket::choose(&both, Some("gold")).unwrap_err().starts_with("nothing called \"gold\" has a socket"));
        assert!(Socket::choose(&[tcp], None).unwrap_err().contains("weir export vfio-user"));
        assert_eq!(Socket::named("vhost-user:/a"), Some(Socket::VhostUser("/a".into())));
        assert_eq!(Socket::named("gold-0"), None);
    }
}
