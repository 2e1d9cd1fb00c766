//! A machine without an operating system under QEMU's software emulation: its firmware starts the drive by a driver of its own (SeaBIOS has
//! one for virtio-blk and one for NVMe) and runs the drive's first block, which writes, reads and compares blocks for ever. It is up in a second.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guest::host_program;
use crate::harness::{Env, Outcome, ensure};
use crate::process::{Finished, Process, until};
use crate::qmp::Monitor;

/// The first block of a drive.
///
/// ```text
///   start: cld; ax, ds, es, ss = 0; sp = 7c00h; [7000h] = dl; sti     the drive's number
///   again: inc word [7002h]; ax = [7002h]; call fill                  a buffer of this turn's number
///          [lba] = (ax & 63) + 1; ah = 43h; call disk                 written
///          ax = 0; call fill; ah = 42h; call disk                     zeroed, and read
///          ax = [7002h]; di = 8000h; cx = 256; repe scasw; jne bad    compared
///          out e9h, '.'; jmp again
///   bad:   out e9h, 'E'
///   stop:  hlt; jmp stop
///   fill:  di = 8000h; cx = 256; rep stosw; ret
///   disk:  si = packet; al = 0; dl = [7000h]; int 13h; jc bad; ret
///   packet: 16 bytes, one block, at 0:8000h, of 64 bits: lba
/// ```
const PROGRAM: [u8; 114] = [
    0xfc, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0x88, 0x16, 0x00, 0x70, 0xfb, // start
    0xff, 0x06, 0x02, 0x70, 0xa1, 0x02, 0x70, 0xe8, 0x30, 0x00, // again
    0x83, 0xe0, 0x3f, 0x40, 0xa3, 0x6a, 0x7c, 0xb4, 0x43, 0xe8, 0x2d, 0x00, // written
    0x31, 0xc0, 0xe8, 0x1f, 0x00, 0xb4, 0x42, 0xe8, 0x23, 0x00, // read
    0xa1, 0x02, 0x70, 0xbf, 0x00, 0x80, 0xb9, 0x00, 0x01, 0xf3, 0xaf, 0x75, 0x06, // compared
    0xb0, 0x2e, 0xe6, 0xe9, 0xeb, 0xcd, 0xb0, 0x45, 0xe6, 0xe9, 0xf4, 0xeb, 0xfd, // '.', bad, stop
    0xbf, 0x00, 0x80, 0xb9, 0x00, 0x01, 0xf3, 0xab, 0xc3, // fill
    0xbe, 0x62, 0x7c, 0xb0, 0x00, 0x8a, 0x16, 0x00, 0x70, 0xcd, 0x13, 0x72, 0xe3, 0xc3, // disk
    0x10, 0x00, 0x01, 0x00, 0x00, 0x80, 0x00, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, // packet
];

/// What a drive's first 512 bytes are to be.
pub fn boot_block() -> [u8; 512] {
    let mut block = [0; 512];
    block[..PROGRAM.len()].copy_from_slice(&PROGRAM);
    block[510..].copy_from_slice(&[0x55, 0xaa]);
    block
}

/// A running machine.
pub struct Machine {
    process: Process,
    /// Its monitor.
    pub monitor: Monitor,
    turns: PathBuf,
}

impl Machine {
    /// Starts one with these devices, room for more memory, and all memory in shared files.
    pub fn start(env: &Env, dir: &Path, devices: &[String]) -> Result<Self, String> {
        let (turns, socket) = (dir.join("turns"), dir.join("qmp"));
        let mut args: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-object",
            "memory-backend-memfd,id=mem,size=64M,share=on",
            "-machine",
            "q35,sata=off,smbus=off,usb=off,vmport=off,hpet=off,i8042=off,memory-backend=mem",
            "-m",
            "size=64M,slots=4,maxmem=1G",
            "-accel",
            "tcg",
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend(["-debugcon".into(), format!("file:{}", turns.display())]);
        args.extend(["-qmp".into(), format!("unix:{},server=on,wait=off", socket.display())]);
        args.extend(devices.iter().cloned());
        let process = Process::start(dir, "qemu", &host_program(env, "qemu")?, &args)?;
        let monitor = Monitor::connect(&socket);
        let monitor = monitor.map_err(|e| format!("{e}\n{}", process.stderr()))?;
        Ok(Self { process, monitor, turns })
    }

    /// Waits until the program has written and read some blocks more; all that were are right.
    pub fn turns(&mut self) -> Outcome {
        const SOME: usize = 20;
        let printed = || std::fs::read(&self.turns).unwrap_or_default();
        let before = printed().len();
        let process = &mut self.process;
        let what = "the machine writes and reads";
        until(Duration::from_secs(60), what, || {
            let now = printed();
            ensure(process.running(), || format!("QEMU has ended: {}", process.stderr()))?;
            ensure(now.iter().all(|byte| *byte == b'.'), || {
                "a block cannot be read, or is not what was written".into()
            })?;
            Ok((now.len() >= before + SOME).then_some(()))
        })
        .map_err(|e| format!("{e}; {before} blocks before\n{}", process.stderr()))
    }

    /// Waits for its end.
    pub fn ended(self) -> Result<Finished, String> {
        self.process.wait(Duration::from_secs(30))
    }
}
