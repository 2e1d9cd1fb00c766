//! A failover in a stock Linux guest: one drive by two ports, of which one is optimized, under the kernel's own multipath.

use super::test;
use crate::guest::{Guest, section};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    vec![test("guest_ana", "two_ports_fail_over_under_load", fails_over)]
}

/// Connects by both ports, and waits for states of paths while a load runs.
const SCRIPT: &str = r#"
states() { # a line for each path: its address, its state
  for c in /sys/class/nvme/nvme[0-9]*; do echo "$(cat $c/address), $(cat $c/nvme*c*n*/ana_state)"; done
}
have() { # have STATE STATE: waits until the first port is in the one state and the second in the other
  i=0; until states | grep -q "trsvcid=$ONE,.* $1\$" && states | grep -q "trsvcid=$TWO,.* $2\$"; do
    i=$((i + 1)); [ $i -lt 300 ] || { echo "not $1 and $2:"; states; dmesg | tail; exit 1; }; sleep 0.1
  done
  kill -0 $load || { cat /tmp/load.out; exit 1; }
  dd if=/dev/nvme0n1 of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null
}
for port in $ONE $TWO; do nvme connect -t tcp -a 10.0.2.2 -s $port -n $NQN -i 1; done
i=0; while ! [ -b /dev/nvme0n1 ]; do
  i=$((i + 1)); [ $i -lt 100 ] || { echo "no disk"; dmesg | tail; exit 1; }; sleep 0.1
done
section multipath; cat /sys/module/nvme_core/parameters/multipath; ls /dev/nvme*n*
(while ! [ -e /tmp/enough ]; do verify /dev/nvme0n1 1 randrw 8m; done; echo "load verified") >/tmp/load.out 2>&1 & load=$!
have optimized inaccessible; echo "state 0"
have inaccessible optimized
section subsystem; nvme list-subsys /dev/nvme0n1
section states; echo "state 1"
have optimized non-optimized; echo "state 2"
have inaccessible optimized; echo "state 3"
have inaccessible non-optimized; echo "state 4"
have optimized optimized
touch /tmp/enough; wait $load || { cat /tmp/load.out; exit 1; }
section load; cat /tmp/load.out
section kernel; dmesg | grep -iE 'nvme|block' | grep -iE 'i/o error|timeout|reset|reconnect|failing' || true
section end
"#;

fn fails_over(env: &Env) -> Outcome {
    let second = env.free_port()?;
    let whole = format!(
        r#"
[node]
name = "e2e"
api = "unix:weir.sock"
cores = [0]
keeper = true
[[device]]
name = "ssd0"
nqn = "{NQN}"
media = "ram"
capacity = "256MiB"
[[tenant]]
name = "all"
class = "medium"
hosts = ["*"]
[[export]]
device = "ssd0"
door = "nvme-tcp"
[door.nvme-tcp]
listen = ["127.0.0.1:PORT", "127.0.0.1:{second}"]
inaccessible = "127.0.0.1:{second}"
"#
    );
    with_node(env, &Setup { whole, ..Setup::default() }, |node| {
        let first = node.port;
        let script = format!("ONE={first}; TWO={second}; NQN={NQN}\n{SCRIPT}");
        let guest = Guest { cpus: 2, net: true, qemu: &[], limit: if env.full { 400 } else { 200 } };
        let marks = ["state 0", "state 1", "state 2", "state 3", "state 4"];
        let out = guest.run_along(env, &script, &marks, |at| exchange(node, at, (first, second)))?;
        let multipath = section(&out, "multipath")?;
        ensure(multipath.contains('Y') && !multipath.contains("nvme1n1"), || format!("one disk: {multipath}"))?;
        let subsystem = section(&out, "subsystem")?;
        let path = |port: u16, state: &str| {
            subsystem.lines().any(|l| l.contains(&format!("trsvcid={port}")) && l.ends_with(&format!(" {state}")))
        };
        ensure(path(first, "inaccessible") && path(second, "optimized"), || format!("paths: {subsystem}"))?;
        ensure(section(&out, "load")?.contains("load verified"), || out.clone())?;
        let kernel = section(&out, "kernel")?;
        ensure(kernel.is_empty(), || format!("the kernel complains: {kernel}"))
    })
}

/// What is said of the ports once the guest has seen what was said before.
fn exchange(node: &Node, at: usize, (first, second): (u16, u16)) -> Outcome {
    let say = |port: u16, state: &str| {
        node.cli_ok(&["device", "set", "ssd0", "--ana", state, "--ana-port", &format!("127.0.0.1:{port}")])
    };
    match at {
        0 | 2 => {
            say(first, "inaccessible")?;
            say(second, "optimized")?;
        }
        1 => {
            say(second, "non-optimized")?;
            say(first, "optimized")?;
        }
        3 => {
            // The other program knows what this one was told.
            node.cli_ok(&["upgrade", "--probation", "0s"])?;
            say(second, "non-optimized")?;
        }
        _ => {
            node.cli_ok(&["device", "set", "ssd0", "--ana", "optimized"])?;
        }
    }
    Ok(())
}
