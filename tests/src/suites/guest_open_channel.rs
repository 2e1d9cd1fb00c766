//! A stock Linux host with nvme-cli and a drive that shows its flash by physical addresses, over NVMe/TCP.

use super::test;
use crate::guest::{Guest, connect_script, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    vec![test("guest_open_channel", "nvme_cli_on_physical_addresses", open_channel)]
}

/// Four dies on two channels; chunks of 32 blocks, write units of 2. An address: channel, die, 5 bits of chunk, 5 of block.
const DRIVE: &str = "kind = \"flash\"\nblock_size = 4096\nchannels = 2\nways = 2\nplanes = 1\nblocks = 32\npages = 16\npage_size = \"8KiB\"\n\
                     open_channel = { max_open = 8, early_reset = false }";

const SCRIPT: &str = r#"
D=/dev/nvme0; N=/dev/nvme0n1
refused() { # refused STATUS COMMAND...: it must fail with that status
  what=$1; shift
  if "$@" >/tmp/refused 2>&1; then echo "$* succeeds"; exit 1; fi
  grep -qi "$what" /tmp/refused || { echo "$*: not $what:"; cat /tmp/refused; exit 1; }
}
state() { # state CHUNK: CS and write pointer of its entry in the log
  nvme get-log $D --log-id=0xca --namespace-id=1 --log-len=4096 -b >/tmp/log
  dd if=/tmp/log bs=1 skip=$(($1 * 32)) count=1 2>/dev/null | od -An -tu1
  dd if=/tmp/log bs=1 skip=$(($1 * 32 + 24)) count=1 2>/dev/null | od -An -tu1
}
nvme admin-passthru $D --opcode=0xe2 --namespace-id=1 --data-len=4096 -r -b >/tmp/geometry
section lbaf; dd if=/tmp/geometry bs=1 skip=8 count=4 2>/dev/null | od -An -tu1
section counts; dd if=/tmp/geometry bs=1 skip=64 count=12 2>/dev/null | od -An -tu1
section size; cat /sys/block/nvme0n1/size
dd if=/dev/urandom of=/tmp/a bs=4096 count=2 2>/dev/null; dd if=/dev/zero of=/tmp/zero bs=4096 count=2 2>/dev/null
nvme write $N -s 0x20 -c 1 -z 8192 -d /tmp/a
refused 'f2' nvme write $N -s 0x20 -c 1 -z 8192 -d /tmp/a
refused 'f2' nvme write $N -s 0x24 -c 1 -z 8192 -d /tmp/a
nvme read $N -s 0x20 -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
section open; state 1
# Pairs of a page move: 20h to 420h, 21h to 421h, that is chunk 1 of the next die.
printf '\040\0\0\0\0\0\0\0\040\004\0\0\0\0\0\0\041\0\0\0\0\0\0\0\041\004\0\0\0\0\0\0' >/tmp/pairs
nvme io-passthru $N --opcode=0x95 --namespace-id=1 --cdw12=1 --data-len=32 --input-file=/tmp/pairs -w >/dev/null
nvme read $N -s 0x420 -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/a /tmp/r
# A vector read of one address needs no list; over a network there is no place for one.
nvme io-passthru $N --opcode=0x92 --namespace-id=1 --cdw10=0x421 --data-len=4096 -r -b >/tmp/one
dd if=/tmp/a bs=4096 skip=1 count=1 2>/dev/null | cmp - /tmp/one
refused 'invalid field' nvme io-passthru $N --opcode=0x92 --namespace-id=1 --cdw10=0x1000 --cdw12=1 --data-len=8192 -r -b
refused 'c1' nvme io-passthru $N --opcode=0x90 --namespace-id=1 --cdw10=0x20
for i in 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30; do nvme write $N -s $((0x20 + i)) -c 1 -z 8192 -d /tmp/a; done
section closed; state 1
nvme io-passthru $N --opcode=0x90 --namespace-id=1 --cdw10=0x20 >/dev/null
section free; state 1
nvme read $N -s 0x20 -c 1 -z 8192 -d /tmp/r >/dev/null; cmp /tmp/zero /tmp/r
section kernel; dmesg | grep -iE 'nvme.*timeout' || true
"#;

fn open_channel(env: &Env) -> Outcome {
    let mut setup = Setup::default().device(DRIVE);
    setup.capacity = "8MiB".into();
    with_node(env, &setup, |node| {
        let out = boot(env, node)?;
        let numbers = |name: &str| -> Result<Vec<u32>, String> {
            Ok(section(&out, name)?.split_whitespace().filter_map(|n| n.parse().ok()).collect())
        };
        let is = |name: &str, expected: &[u32]| {
            let found = numbers(name)?;
            ensure(found == expected, || format!("{name}: {found:?} instead of {expected:?}\n{out}"))
        };
        is("lbaf", &[1, 1, 5, 5])?;
        is("counts", &[2, 0, 2, 0, 32, 0, 0, 0, 32, 0, 0, 0])?;
        is("size", &[4096 * 8])?;
        is("open", &[4, 2])?;
        is("closed", &[2, 32])?;
        is("free", &[1, 0])?;
        let kernel = section(&out, "kernel")?;
        ensure(!kernel.contains("timeout"), || format!("the kernel complains: {kernel}"))
    })
}

fn boot(env: &Env, node: &Node) -> Result<String, String> {
    let connect = connect_script(node.port, "-i 2");
    let script = connect + SCRIPT + "\nnvme disconnect -n " + NQN + "\nsection end\n";
    Guest { cpus: 2, net: true, qemu: &[], limit: 240 }.run(env, &script)
}
