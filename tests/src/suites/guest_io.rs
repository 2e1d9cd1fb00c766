//! The rarer I/O commands and reservations: nvme-cli in a stock Linux guest, as one host and as two, and pairs by hand, which no
//! tool sends.

use serde_json::Value;

use super::test;
use crate::guest::{Guest, connect_script, json, section};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::raw::nvme_tcp::{Data, Host, capsule, kind, sqe};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "guest_io";
    vec![
        test(S, "commands_of_nvme_cli", commands),
        test(S, "reservations_of_two_hosts", reservations),
        test(S, "pairs_by_hand", |env| on_each_medium(env, pairs)),
        test(S, "copies_and_unreadable_blocks_by_hand", |env| on_each_medium(env, copies)),
        test(S, "copies_between_namespaces_by_hand", |env| on_each_medium(env, copies_between)),
    ]
}

fn boot(env: &Env, script: &str) -> Result<String, String> {
    Guest { cpus: 1, net: true, qemu: &[], limit: if env.full { 300 } else { 150 } }.run(env, script)
}

/// Every command, and what it changed.
const COMMANDS: &str = r#"
C=/dev/nvme0; N=/dev/nvme0n1
fails() { # fails TEXT COMMAND…: the command is refused with these words
  text=$1; shift
  if "$@" >/tmp/out 2>&1; then echo "it succeeds: $*"; exit 1; fi
  grep -qi "$text" /tmp/out || { echo "$*: not '$text' but:"; cat /tmp/out; exit 1; }
}
put() { nvme write $N -s $1 -c $2 -z $((($2 + 1) * 512)) -d $3 >/dev/null; }
get() { rm -f /tmp/r; nvme read $N -s $1 -c $2 -z $((($2 + 1) * 512)) -d /tmp/r >/dev/null; }
section ctrl; nvme id-ctrl $C -o json
section ns; nvme id-ns $N -o json
section nvm; nvme nvm-id-ctrl $C -o json
for f in a b c; do dd if=/dev/urandom of=/tmp/$f bs=512 count=8 2>/dev/null; done
dd if=/dev/zero of=/tmp/zero bs=512 count=8 2>/dev/null
put 100 7 /tmp/a; put 200 7 /tmp/b; put 300 7 /tmp/c
# compare
nvme compare $N -s 100 -c 7 -z 4096 -d /tmp/a
fails "compare failure" nvme compare $N -s 100 -c 7 -z 4096 -d /tmp/b
# copy: three ranges of both formats, behind one another
nvme copy $N -d 400 -s 200,100,300 -b 1,7,3 -F 0
dd if=/tmp/b bs=512 count=2 2>/dev/null >/tmp/x; cat /tmp/a >>/tmp/x; dd if=/tmp/c bs=512 count=4 2>/dev/null >>/tmp/x
get 400 13; cmp /tmp/x /tmp/r
nvme copy $N -d 500 -s 100,200 -b 7,7 -F 1
cat /tmp/a /tmp/b >/tmp/x; get 500 15; cmp /tmp/x /tmp/r
fails "0x4183\|size limit\|0x183" nvme copy $N -d 1000 -s 0 -b 8192
fails "0x4187\|overlap\|0x187" nvme copy $N -d 104 -s 100 -b 7
get 100 7; cmp /tmp/a /tmp/r
fails "range" nvme copy $N -d 99999999 -s 0 -b 0
# verify and write uncorrectable
nvme verify $N -s 100 -c 7
nvme write-uncor $N -s 102 -c 1
fails "unrecovered read" nvme read $N -s 100 -c 7 -z 4096 -d /tmp/r
fails "unrecovered read" nvme verify $N -s 102 -c 0
fails "unrecovered read" nvme compare $N -s 103 -c 0 -z 512 -d /tmp/a
fails "unrecovered read" nvme copy $N -d 600 -s 100 -b 7
nvme verify $N -s 104 -c 3
# what cannot be read is listed
section status; nvme get-lba-status $N -n 1 -s 0 -m 31 -a 0x11 -l 0
section more; nvme get-lba-status $N -n 1 -s 103 -m 31 -a 0x10 -l 0
section rest
fails "range" nvme get-lba-status $N -n 1 -s 99999999 -m 31 -a 0x11 -l 0
fails "invalid field" nvme get-lba-status $N -n 1 -s 0 -m 31 -a 0x2 -l 0
get 100 1; head -c 1024 /tmp/a >/tmp/x; cmp /tmp/x /tmp/r
put 102 0 /tmp/b; get 102 0; head -c 512 /tmp/b >/tmp/x; cmp /tmp/x /tmp/r
fails "unrecovered read" nvme verify $N -s 100 -c 7
nvme write-zeroes $N -s 103 -c 0; nvme verify $N -s 100 -c 7
nvme write-uncor $N -s 300 -c 7
nvme dsm $N -d -s 300 -b 8; get 300 7; cmp /tmp/zero /tmp/r
# write zeroes, with and without deallocation
nvme write-zeroes $N -s 200 -c 3; get 200 7
head -c 2048 /tmp/zero >/tmp/x; tail -c 2048 /tmp/b >>/tmp/x; cmp /tmp/x /tmp/r
nvme write-zeroes $N -s 200 -c 7 --deac; get 200 7; cmp /tmp/zero /tmp/r
# several ranges of dataset management
put 100 7 /tmp/a; put 200 7 /tmp/b
nvme dsm $N -d -s 100,200 -b 4,4
get 100 7; head -c 2048 /tmp/zero >/tmp/x; tail -c 2048 /tmp/a >>/tmp/x; cmp /tmp/x /tmp/r
get 200 7; head -c 2048 /tmp/zero >/tmp/x; tail -c 2048 /tmp/b >>/tmp/x; cmp /tmp/x /tmp/r
# flush
nvme flush $N
# a directive that is not enabled
fails "invalid field" nvme write $N -s 0 -c 0 -z 512 -d /tmp/a --dir-type=1 --dir-spec=1
section effects; nvme effects-log $C -H
section kernel; dmesg | grep -iE 'nvme.*(timeout|reset|controller is down)' || true
"#;

fn commands(env: &Env) -> Outcome {
    with_node(env, &Setup::default().device("block_size = 512"), |node| {
        let out = boot(env, &(connect_script(node.port, "-i 1") + COMMANDS + "\nsection end\n"))?;
        let (ctrl, ns, nvm) = (json(&out, "ctrl")?, json(&out, "ns")?, json(&out, "nvm")?);
        let n = |v: &Value, key: &str| v[key].as_u64().unwrap_or(u64::MAX);
        // Compare, write uncorrectable, DSM, write zeroes, save and select, reservations, verify, copy.
        ensure(n(&ctrl, "oncs") & 0x1bf == 0x1bf && n(&ctrl, "fuses") == 1, || format!("ONCS, FUSES: {ctrl}"))?;
        ensure(n(&ctrl, "acwu") == 0 && n(&ctrl, "awun") == 255 && n(&ctrl, "awupf") == 0, || format!("{ctrl}"))?;
        ensure(n(&ns, "nacwu") == 7 && n(&ns, "nawun") == 2047 && n(&ns, "rescap") == 0xff, || format!("{ns}"))?;
        ensure((n(&ns, "mssrl"), n(&ns, "mcl"), n(&ns, "msrc")) == (8192, 32768, 127), || format!("copy: {ns}"))?;
        ensure(n(&nvm, "vsl") == n(&ctrl, "mdts"), || format!("VSL: {nvm}"))?;
        let effects = section(&out, "effects")?;
        for name in ["Copy", "Verify", "Write Uncorrectable", "Reservation Acquire"] {
            ensure(effects.contains(name), || format!("{name} is not in the effects log: {effects}"))?;
        }
        for (name, block, blocks) in [("status", "66", "0x000001"), ("more", "67", "00000000")] {
            let listed = section(&out, name)?;
            let shown = format!("DSLBA: 0x000000000000{block}, NLB: {blocks}, Status: 0x3");
            ensure(listed.contains(&shown), || format!("not {shown}: {listed}"))?;
        }
        let kernel = section(&out, "kernel")?;
        ensure(kernel.is_empty(), || format!("the kernel complains: {kernel}"))
    })
}

/// Two hosts of one guest: /dev/nvme0 and /dev/nvme1.
const TWO_HOSTS: &str = r#"
A=/dev/nvme0; B=/dev/nvme1
conflict() { if "$@" >/tmp/out 2>&1; then echo "it succeeds: $*"; exit 1; fi
  grep -qi "conflict" /tmp/out || { echo "$*: no conflict but:"; cat /tmp/out; exit 1; }; }
register() { nvme resv-register $1 -n 1 --nrkey=$2 --rrega=0 --cptpl=0 >/dev/null; }
acquire() { nvme resv-acquire $1 -n 1 --crkey=$2 --rtype=$3 --racqa=0 >/dev/null; }
put() { nvme io-passthru $1 -n 1 --opcode=1 --cdw10=$2 --data-len=512 --write --input-file=/tmp/a >/dev/null; }
get() { nvme io-passthru $1 -n 1 --opcode=2 --cdw10=$2 --data-len=512 --read --raw-binary >/tmp/r; }
dd if=/dev/urandom of=/tmp/a bs=512 count=1 2>/dev/null
register $A 1; register $B 2
section registered; nvme resv-report $A -n 1 --eds -o json
# write exclusive: B reads and does not write
acquire $A 1 1
put $A 0; get $B 0; cmp /tmp/a /tmp/r; conflict put $B 0; conflict nvme flush $B -n 1
conflict nvme resv-acquire $B -n 1 --crkey=2 --rtype=1 --racqa=0
section we; nvme resv-report $B -n 1 --eds -o json
nvme resv-release $A -n 1 --crkey=1 --rtype=1 --rrela=0 >/dev/null
put $B 0
# exclusive access: B does neither; with registrants only, B does both
acquire $A 1 2; conflict get $B 0; conflict put $B 0
nvme resv-release $A -n 1 --crkey=1 --rtype=2 --rrela=0 >/dev/null
acquire $A 1 4; put $B 0; get $B 0; cmp /tmp/a /tmp/r
# B is told of the release
nvme resv-release $A -n 1 --crkey=1 --rtype=4 --rrela=0 >/dev/null
section released; nvme resv-notif-log $B -o json
# B takes over what A holds, and A is told
acquire $A 1 3
nvme resv-acquire $B -n 1 --crkey=2 --prkey=1 --rtype=2 --racqa=1 >/dev/null
conflict put $A 0; conflict get $A 0; put $B 0
section preempted; nvme resv-report $B -n 1 --eds -o json
section told; nvme resv-notif-log $A -o json
# a mask keeps the next one away
nvme set-feature $A -f 0x82 -n 1 -V 0x8 >/dev/null
section mask; nvme get-feature $A -f 0x82 -n 1
register $A 5
nvme resv-release $B -n 1 --crkey=2 --rrela=1 >/dev/null
section cleared; nvme resv-report $A -n 1 --eds -o json
section masked; nvme resv-notif-log $A -o json
put $A 0; get $A 0; cmp /tmp/a /tmp/r
# preempt and abort, all registrants, replaced and ignored keys
register $A 5; register $B 6; acquire $A 5 6
put $B 0
nvme resv-acquire $B -n 1 --crkey=6 --prkey=0 --rtype=1 --racqa=2 >/dev/null
conflict put $A 0
nvme resv-register $B -n 1 --nrkey=7 --rrega=2 --iekey >/dev/null
conflict nvme resv-release $B -n 1 --crkey=6 --rtype=1 --rrela=0
section last; nvme resv-report $B -n 1 --eds -o json
nvme resv-register $B -n 1 --crkey=7 --rrega=1 >/dev/null
put $A 0
section end
"#;

fn reservations(env: &Env) -> Outcome {
    with_node(env, &Setup::default().device("block_size = 512"), |node| {
        let connect = |tenant: &str, id: char| {
            let id: String = "00000000-0000-0000-0000-00000000000x".replace('x', &id.to_string());
            let (host, port) = (host_nqn(tenant), node.port);
            format!("nvme connect -t tcp -a 10.0.2.2 -s {port} -n {NQN} -i 1 --hostnqn {host} --hostid {id}\n")
        };
        let wait = "i=0; while ! [ -c /dev/nvme1 ] || ! nvme list-ns /dev/nvme1 >/dev/null 2>&1; do
            i=$((i + 1)); [ $i -lt 100 ] || { echo 'no second controller'; dmesg | tail; exit 1; }; sleep 0.1; done\n";
        let out = boot(env, &(connect("gold", '1') + &connect("silver", '2') + wait + TWO_HOSTS))?;
        let n = |v: &Value, key: &str| v[key].as_u64().unwrap_or(u64::MAX);
        let holds = |name: &str, rtype: u64, holders: &[(u64, u64)]| -> Outcome {
            let report = json(&out, name)?;
            let list = report["regctlext"].as_array().cloned().unwrap_or_default();
            let found: Vec<(u64, u64)> = list.iter().map(|r| (n(r, "rkey"), n(r, "rcsts") & 1)).collect();
            ensure(n(&report, "rtype") == rtype && found == holders, || format!("{name}: {report}"))
        };
        holds("registered", 0, &[(1, 0), (2, 0)])?;
        holds("we", 1, &[(1, 1), (2, 0)])?;
        holds("preempted", 2, &[(2, 1)])?;
        holds("cleared", 0, &[])?;
        holds("last", 1, &[(7, 1)])?;
        let told = |name: &str, what: u64| -> Outcome {
            let log = json(&out, name)?;
            let kind = log["rn_log_type"].as_u64().unwrap_or_else(|| n(&log, "type"));
            ensure(kind == what, || format!("{name}: notification {what} expected: {log}"))
        };
        told("released", 2)?;
        told("told", 1)?;
        told("masked", 0)?;
        let mask = section(&out, "mask")?;
        ensure(mask.contains("0x000008") || mask.contains("0x8") || mask.contains("00000008"), || mask.into())
    })
}

fn on_each_medium(env: &Env, run: fn(&Env, &mut Node) -> Outcome) -> Outcome {
    let dir = env.folder()?;
    for media in ["ram".into(), format!("file:{}", dir.join("io.img").display())] {
        let setup = Setup { media, capacity: "16MiB".into(), ..Setup::default() }.device("block_size = 512");
        let done = with_node(env, &setup, |node| run(env, node));
        done.map_err(|e| format!("media {}: {e}", setup.media))?;
    }
    Ok(())
}

/// An I/O queue by hand.
fn queue(node: &Node, tenant: &str) -> Result<(Host, Host), String> {
    let host = host_nqn(tenant);
    let (admin, cntlid) = Host::admin(node.address(), &host, 30_000)?;
    Ok((admin, Host::io_queue(node.address(), &host, cntlid, 1)?))
}

/// A command of opcode, first block and CDW12 with its data in the capsule; its status.
fn ask(queue: &mut Host, opcode: u8, lba: u32, cdw12: u32, data: &[u8]) -> Result<u16, String> {
    let data = if data.is_empty() { Data::None } else { Data::InCapsule(data) };
    queue.send(&capsule(&sqe(opcode, 9, 1, [lba, 0, cdw12, 0, 0, 0], data), data))?;
    Ok(queue.expect(kind::RESPONSE)?.status())
}

fn read(queue: &mut Host, lba: u32) -> Result<Vec<u8>, String> {
    let data = Data::Transport(512);
    queue.send(&capsule(&sqe(0x02, 9, 1, [lba, 0, 0, 0, 0, 0], data), data))?;
    let data = queue.expect(kind::C2H_DATA)?;
    // SUCCESS in the header's flags: no response follows.
    if data.bytes[1] & 8 == 0 {
        queue.success()?;
    }
    Ok(data.bytes[usize::from(data.bytes[3])..].to_vec())
}

/// Compare and write, fused, in one piece: both statuses.
fn compare_and_write(queue: &mut Host, lba: u32, old: &[u8], new: &[u8]) -> Result<(u16, u16), String> {
    let half = |opcode, cid, fuse: u8, data| {
        let mut entry = sqe(opcode, cid, 1, [lba, 0, 0, 0, 0, 0], Data::InCapsule(data));
        entry[1] |= fuse;
        capsule(&entry, Data::InCapsule(data))
    };
    queue.send(&[half(0x05, 1, 1, old), half(0x01, 2, 2, new)].concat())?;
    let answers = [queue.expect(kind::RESPONSE)?, queue.expect(kind::RESPONSE)?];
    let of = |cid: u16| answers.iter().find(|a| a.u16(20) == cid).map(|a| a.status());
    match (of(1), of(2)) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(format!("two answers: {answers:02x?}")),
    }
}

const COMPARE_FAILURE: u16 = 0x285;
const FAILED_FUSED: u16 = 0x009;
const MISSING_FUSED: u16 = 0x00a;

fn code(status: u16) -> u16 {
    status & 0x7ff
}

/// Four hosts increase one counter by compare and write, as locks in shared storage are taken.
fn pairs(_: &Env, node: &mut Node) -> Outcome {
    const HOSTS: usize = 4;
    const EACH: u64 = 50;
    let block = |n: u64| [&n.to_le_bytes()[..], &[0; 504]].concat();
    let node = &*node;
    let counted: Vec<Result<u64, String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..HOSTS)
            .map(|i| {
                scope.spawn(move || {
                    let (_admin, mut queue) = queue(node, ["gold", "silver", "bronze", "gold"][i])?;
                    let (mut seen, mut lost) = (0u64, 0u64);
                    for _ in 0..EACH {
                        loop {
                            let (first, second) = compare_and_write(&mut queue, 7, &block(seen), &block(seen + 1))?;
                            match (code(first), code(second)) {
                                (0, 0) => break,
                                (COMPARE_FAILURE, FAILED_FUSED) => {
                                    lost += 1;
                                    let held = read(&mut queue, 7)?;
                                    seen = u64::from_le_bytes(held[..8].try_into().context(|| "8 bytes".into())?);
                                }
                                (a, b) => return Err(format!("statuses {a:#x} and {b:#x}")),
                            }
                        }
                        seen += 1;
                    }
                    Ok(lost)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a host panicked".into()))).collect()
    });
    let lost: u64 = counted.into_iter().collect::<Result<Vec<_>, _>>()?.iter().sum();
    let (_admin, mut queue) = queue(node, "gold")?;
    let held = read(&mut queue, 7)?;
    ensure(held == block(HOSTS as u64 * EACH), || format!("the counter says {:?}", &held[..8]))?;
    println!("    {} increments, {lost} lost races", HOSTS as u64 * EACH);
    // A second one alone, and a first one with something else behind it.
    let zero = block(0);
    let mut alone = sqe(0x01, 3, 1, [7, 0, 0, 0, 0, 0], Data::InCapsule(&zero));
    alone[1] |= 2;
    queue.send(&capsule(&alone, Data::InCapsule(&zero)))?;
    let status = queue.expect(kind::RESPONSE)?.status();
    ensure(code(status) == MISSING_FUSED, || format!("a second command alone: {status:#x}"))?;
    alone[0] = 0x05;
    alone[1] = 0x41;
    queue.send(&capsule(&alone, Data::InCapsule(&zero)))?;
    queue.send(&capsule(&sqe(0x00, 4, 1, [0; 6], Data::None), Data::None))?;
    let answers = [queue.expect(kind::RESPONSE)?, queue.expect(kind::RESPONSE)?];
    let found: Vec<(u16, u16)> = answers.iter().map(|a| (a.u16(20), code(a.status()))).collect();
    ensure(found == [(3, MISSING_FUSED), (4, 0)], || format!("a first command alone: {found:x?}"))?;
    ensure(read(&mut queue, 7)? == held, || "nothing of that was carried out".into())
}

/// Copies and unreadable blocks, on media that answer at once and on files.
fn copies(_: &Env, node: &mut Node) -> Outcome {
    let (_admin, mut q) = queue(node, "gold")?;
    let block = |n: u32| [&n.to_le_bytes()[..], &[n as u8; 508]].concat();
    for n in 0..6u32 {
        let status = ask(&mut q, 0x01, 100 + n, 0, &block(n))?;
        ensure(status == 0, || format!("write: {status:#x}"))?;
    }
    let range = |slba: u64, blocks: u16| {
        let mut range = [0u8; 32];
        range[8..16].copy_from_slice(&slba.to_le_bytes());
        range[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
        range
    };
    let list = [range(103, 3), range(100, 2)].concat();
    let status = ask(&mut q, 0x19, 900, 1, &list)?;
    ensure(status == 0, || format!("copy: {status:#x}"))?;
    for (at, n) in [(900, 3), (901, 4), (902, 5), (903, 0), (904, 1)] {
        ensure(read(&mut q, at)? == block(n), || format!("block {at} is a copy of {n}"))?;
    }
    // 2 MiB in eight pieces, force unit access.
    let status = ask(&mut q, 0x19, 8192, 1 << 30, &range(100, 4096))?;
    ensure(status == 0, || format!("a long copy: {status:#x}"))?;
    for (at, n) in [(8192, 0), (8197, 5), (8192 + 800, 3), (8192 + 804, 1)] {
        ensure(read(&mut q, at)? == block(n), || format!("block {at} of the long copy"))?;
    }
    for (what, opcode, lba, data, expected) in [
        ("write uncorrectable", 0x04, 102, vec![], 0),
        ("a copy of it", 0x19, 910, range(102, 1).to_vec(), 0x281),
        ("verify", 0x0c, 102, vec![], 0x281),
        ("verify beside it", 0x0c, 103, vec![], 0),
        ("a copy over it", 0x19, 102, range(105, 1).to_vec(), 0),
        ("verify again", 0x0c, 102, vec![], 0),
    ] {
        let status = ask(&mut q, opcode, lba, 0, &data)?;
        ensure(code(status) == expected, || format!("{what}: {status:#x}"))?;
    }
    ensure(read(&mut q, 102)? == block(5), || "the copy is there".into())
}

/// A command with all of its dwords, its data in the capsule; its answer's first dword.
fn command(queue: &mut Host, opcode: u8, nsid: u32, dwords: [u32; 6], data: &[u8]) -> Result<u32, String> {
    let data = if data.is_empty() { Data::None } else { Data::InCapsule(data) };
    queue.send(&capsule(&sqe(opcode, 9, nsid, dwords, data), data))?;
    let answer = queue.expect(kind::RESPONSE)?;
    ensure(answer.status() == 0, || format!("{opcode:#x} of namespace {nsid}: {:#x}", answer.status()))?;
    Ok(answer.u32(8))
}

/// A plain namespace, and one with protection information of 64-bit guards: a copy inserts it, another one strips it. Linux lets nobody
/// ask for these formats of a copy, so this is done by hand.
fn copies_between(_: &Env, node: &mut Node) -> Outcome {
    const BLOCKS: u32 = 512;
    const PRACT: u32 = 0b1000;
    const CHECKS: u32 = 0b0111;
    let host = host_nqn("gold");
    let (mut admin, cntlid) = Host::admin(node.address(), &host, 30_000)?;
    let mut q = Host::io_queue(node.address(), &host, cntlid, 1)?;
    // LBA format extensions, copy descriptor formats 2h and 3h.
    let mut behavior = [0; 512];
    (behavior[2], behavior[4]) = (1, 0b1100);
    command(&mut admin, 0x09, 0, [0x16, 0, 0, 0, 0, 0], &behavior)?;
    command(&mut admin, 0x0d, 1, [1, 0, 0, 0, 0, 0], &[])?;
    for (nsid, flbas, dps) in [(1, 1, 0), (2, 0x15, 1)] {
        let mut fields = vec![0; 4096];
        fields[..4].copy_from_slice(&BLOCKS.to_le_bytes());
        fields[8..12].copy_from_slice(&BLOCKS.to_le_bytes());
        (fields[26], fields[29], fields[30]) = (flbas, dps, 1);
        let made = command(&mut admin, 0x0d, 0, [0; 6], &fields)?;
        ensure(made == nsid, || format!("namespace {made}, not {nsid}"))?;
        let mut list = vec![0; 4096];
        list[0] = 1;
        list[2..4].copy_from_slice(&cntlid.to_le_bytes());
        command(&mut admin, 0x15, nsid, [0; 6], &list)?;
    }
    let block = |n: u8| [&[n; 4095][..], &[0xfe]].concat();
    for n in 0..8u8 {
        command(&mut q, 0x01, 1, [u32::from(n), 0, 0, 0, 0, 0], &block(n))?;
    }
    let range = |nsid: u32, slba: u64, blocks: u16| {
        let mut range = [0u8; 40];
        range[..4].copy_from_slice(&nsid.to_le_bytes());
        range[8..16].copy_from_slice(&slba.to_le_bytes());
        range[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
        range[28..36].copy_from_slice(&slba.to_be_bytes());
        range
    };
    // Blocks 4 to 7, then 0 to 3, to 100; back to 200.
    let list = [range(1, 4, 4), range(1, 0, 4)].concat();
    command(&mut q, 0x19, 2, [100, 0, 1 | 3 << 8 | PRACT << 26, 0, 100, 0], &list)?;
    command(&mut q, 0x19, 1, [200, 0, 3 << 8 | (PRACT | CHECKS) << 12, 0, 0, 0], &range(2, 100, 8))?;
    let mut read = |nsid: u32, lba: u32, dw12: u32| {
        let data = Data::Transport(4096);
        q.send(&capsule(&sqe(0x02, 9, nsid, [lba, 0, dw12, 0, lba, 0], data), data))?;
        let data = q.expect(kind::C2H_DATA)?;
        if data.bytes[1] & 8 == 0 {
            q.success()?;
        }
        Ok::<_, String>(data.bytes[usize::from(data.bytes[3])..].to_vec())
    };
    for (i, n) in [4, 5, 6, 7, 0, 1, 2, 3].into_iter().enumerate() {
        let (inserted, stripped) = (100 + i as u32, 200 + i as u32);
        let checked = read(2, inserted, (PRACT | CHECKS) << 26)?;
        ensure(checked == block(n), || format!("block {inserted} of namespace 2 is a copy of {n}"))?;
        ensure(read(1, stripped, 0)? == block(n), || format!("block {stripped} of namespace 1 is a copy of {n}"))?;
    }
    Ok(())
}
