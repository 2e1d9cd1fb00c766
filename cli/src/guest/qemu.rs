//! Which QEMU, and its arguments.

use super::Socket;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use weir_units::Bytes;

const PROGRAM: &str = "qemu-system-x86_64";
/// The first with a device `vfio-user-pci`.
const VFIO_USER_SINCE: Version = Version { major: 10, minor: 1 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// Of `QEMU emulator version 11.1.0 (Debian ...)`.
    fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.lines().next()?.split("version ").nth(1)?.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next()?.parse().ok();
        Some(Version { major: next()?, minor: next()? })
    }
}

/// An emulator of this machine.
pub struct Qemu {
    path: PathBuf,
    version: Version,
}

impl Qemu {
    /// That program, or the one on PATH.
    ///
    /// # Errors
    /// It is not there, or does not say its version.
    pub fn find(path: Option<&Path>) -> Result<Qemu, String> {
        let path = path.unwrap_or(Path::new(PROGRAM)).to_owned();
        let output = Command::new(&path).arg("--version").output();
        let output = output.map_err(|e| {
            format!("{}: {e}; install it (Debian: apt install qemu-system-x86) or name one with --qemu", path.display())
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = Version::parse(&text)
            .ok_or_else(|| format!("{} --version prints {:?}, which names no version", path.display(), text.trim()))?;
        Ok(Qemu { path, version })
    }

    /// What was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can connect to such a socket.
    ///
    /// # Errors
    /// It is too old.
    pub fn check(&self, socket: &Socket) -> Result<(), String> {
        if matches!(socket, Socket::VhostUser(_)) || self.version >= VFIO_USER_SINCE {
            return Ok(());
        }
        Err(format!(
            "{} is version {}, and vfio-user needs {VFIO_USER_SINCE} or newer (Debian 13: from trixie-backports); name another one with \
             --qemu, or export a volume by vhost-user",
            self.path.display(),
            self.version
        ))
    }

    /// Runs it on this terminal.
    ///
    /// # Errors
    /// It does not start.
    pub fn run(&self, arguments: &[String]) -> Result<ExitStatus, String> {
        Command::new(&self.path).args(arguments).status().map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

/// Hardware's, where it can be had.
pub fn accelerator() -> &'static str {
    let can = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if can { "kvm" } else { "tcg" }
}

/// What a machine starts from.
pub enum Boot {
    /// A kernel with a root in memory.
    Kernel {
        /// Which kernel.
        image: PathBuf,
        /// The root.
        initrd: PathBuf,
        /// Where the second serial port's output goes: a script's exit status.
        status: PathBuf,
    },
    /// A disk image.
    Disk(PathBuf),
}

/// A virtual machine.
pub struct Machine {
    /// Its memory, which the node reaches.
    pub memory: Bytes,
    /// Its CPUs.
    pub cpus: u32,
    /// `kvm` or `tcg`.
    pub accel: String,
    /// Where its drive is.
    pub socket: Socket,
    /// What it starts from.
    pub boot: Boot,
}

impl Machine {
    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let size = format!("{}", self.memory.get());
        let mut all: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| all.extend(words.iter().map(|word| (*word).to_string()));
        add(&["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "mon:stdio"]);
        add(&["-machine", &format!("q35,accel={},memory-backend=mem", self.accel), "-m", &format!("size={size}B")]);
        add(&[
            "-object",
            &format!("memory-backend-memfd,id=mem,size={size}B,share=on"),
            "-smp",
            &self.cpus.to_string(),
        ]);
        match &self.boot {
            Boot::Kernel { image, initrd, status } => {
                let (image, initrd) = (image.display().to_string(), initrd.display().to_string());
                add(&["-kernel", &image, "-initrd", &initrd, "-append", "console=ttyS0 quiet panic=-1"]);
                add(&[
                    "-chardev",
                    &format!("file,id=status,path={}", commas_doubled(status)),
                    "-serial",
                    "chardev:status",
                ]);
            }
            Boot::Disk(image) => {
                let format = if is_qcow2(image) { "qcow2" } else { "raw" };
                let file = commas_doubled(image);
                add(&["-drive", &format!("id=boot,if=none,format={format},file={file}")]);
                add(&["-device", "virtio-blk-pci,drive=boot,bootindex=0"]);
            }
        }
        match &self.socket {
            Socket::VfioUser(path) => {
                let socket = serde_json::json!({ "type": "unix", "path": path });
                add(&["-device", &serde_json::json!({ "driver": "vfio-user-pci", "socket": socket }).to_string()]);
            }
            Socket::VhostUser(path) => {
                add(&["-chardev", &format!("socket,id=weir,path={}", commas_doubled(path))]);
                add(&["-device", &format!("vhost-user-blk-pci,chardev=weir,num-queues={}", self.cpus)]);
            }
        }
        all
    }
}

/// As QEMU's option lists take it.
fn commas_doubled(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

fn is_qcow2(image: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    std::fs::File::open(image).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"QFI\xfb"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let debian = "QEMU emulator version 11.1.0 (Debian 1:11.1.0+ds-1~bpo13+1)\nCopyright (c) ...";
        assert_eq!(Version::parse(debian), Some(Version { major: 11, minor: 1 }));
        assert_eq!(Version::parse("qemu 11"), None);
        let of = |major, minor| Qemu { path: "q".into(), version: Version { major, minor } };
        let (nvme, disk) = (Socket::VfioUser("/a".into()), Socket::VhostUser("/a".into()));
        assert!(of(10, 1).check(&nvme).is_ok() && of(11, 0).check(&nvme).is_ok() && of(7, 2).check(&disk).is_ok());
        assert!(of(10, 0).check(&nvme).unwrap_err().contains("is version 10.0, and vfio-user needs 10.1 or newer"));
        assert!(Qemu::find(Some(Path::new("/nowhere/qemu"))).err().unwrap().contains("apt install qemu-system-x86"));
    }

    #[test]
    fn arguments_are_what_the_sockets_need() {
        let machine = |socket, boot| Machine { memory: Bytes(1 << 29), cpus: 2, accel: "tcg".into(), socket, boot };
        let kernel = Boot::Kernel { image: "/boot/vmlinuz-6".into(), initrd: "/tmp/i".into(), status: "/tmp/s".into() };
        let text = machine(Socket::VfioUser("/run/a,b.sock".into()), kernel).arguments().join(" ");
        assert!(
            text.contains(r#"-device {"driver":"vfio-user-pci","socket":{"path":"/run/a,b.sock","type":"unix"}}"#),
            "{text}"
        );
        assert!(text.contains("memory-backend-memfd,id=mem,size=536870912B,share=on -smp 2 -kernel /boot/vmlinuz-6"));
        let disk = Boot::Disk("/var/a,b.img".into());
        let text = machine(Socket::VhostUser("/run/a,b.sock".into()), disk).arguments().join(" ");
        assert!(text.contains("-chardev socket,id=weir,path=/run/a,,b.sock -device"), "{text}");
        assert!(text.contains("if=none,format=raw,file=/var/a,,b.img") && !text.contains("-kernel"));
    }
}
