//! Live migration's dirty log over vhost-user-blk: what the server writes into a front end's memory is marked in its bitmap, while
//! requests run; a bitmap that cannot be is refused.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::raw::Rng;
use crate::raw::vhost_user::{
    AVAIL, DATA, DESC, Front, GUEST, HEADER, MEMORY, NEXT, STATUS, USED, USER, WRITE, desc, pair, request, words,
};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "dirty_log";
    vec![test(S, "what_is_written_is_marked", marked), test(S, "a_log_that_cannot_be_is_refused", refused)]
}

const PAGE: u64 = 4096;
/// A bit for each page up to the end of the memory.
const LOG: u64 = (GUEST + MEMORY) / PAGE / 8;
const LOG_ALL: u64 = 1 << 26;
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 28;
/// LOG_SHMFD and CONFIG.
const PROTOCOL: u64 = 1 << 1 | 1 << 9;

fn setup() -> Setup {
    Setup { sockets: vec![("gold.sock".into(), "gold".into())], ..Setup::default() }
}

/// A front end with a started ring, which has agreed on the log.
fn front(node: &Node) -> Result<Front, String> {
    let mut front = Front::open(&node.socket("gold.sock"))?;
    front.tell(request::SET_OWNER, &[], &[])?;
    let offered = front.ask_u64(request::GET_FEATURES)?;
    ensure(offered & (FEATURES | LOG_ALL) == FEATURES | LOG_ALL, || format!("features {offered:#x}"))?;
    let protocol = front.ask_u64(request::GET_PROTOCOL_FEATURES)?;
    ensure(protocol & PROTOCOL == PROTOCOL, || format!("protocol features {protocol:#x}"))?;
    front.tell(request::SET_PROTOCOL_FEATURES, &words(&[PROTOCOL]), &[])?;
    front.tell(request::SET_FEATURES, &words(&[FEATURES]), &[])?;
    for (bytes, fd) in front.setup_messages() {
        front.send(&bytes, fd.as_slice())?;
    }
    Ok(front)
}

fn bitmap(len: u64) -> Result<File, String> {
    let file: File = memfd_create("log", MemfdFlags::CLOEXEC).context(|| "memfd".into())?.into();
    file.set_len(len).context(|| "memfd".into())?;
    Ok(file)
}

/// The bits of the memory's pages, which are taken away.
fn take(log: &File) -> Result<Vec<bool>, String> {
    let (from, count) = (GUEST / PAGE / 8, (MEMORY / PAGE / 8) as usize);
    let mut bytes = vec![0; count];
    log.read_exact_at(&mut bytes, from).context(|| "pread".into())?;
    log.write_all_at(&vec![0; count], from).context(|| "pwrite".into())?;
    Ok((0..8 * count).map(|page| bytes[page / 8] >> (page % 8) & 1 != 0).collect())
}

fn whole(front: &Front) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; MEMORY as usize];
    front.memory.read_exact_at(&mut bytes, 0).context(|| "pread".into())?;
    Ok(bytes)
}

/// A request whose buffer is there; its status.
fn ask(front: &mut Front, kind: u32, sector: u64, at: u64, len: u32) -> Result<u8, String> {
    front.header(kind, sector)?;
    let data = if kind == 0 { NEXT | WRITE } else { NEXT };
    let descs = [desc(GUEST + HEADER, 16, NEXT, 1), desc(GUEST + at, len, data, 2), desc(GUEST + STATUS, 1, WRITE, 0)];
    front.table(DESC, &descs)?;
    front.offer(0)?;
    front.completion(Duration::from_secs(5))?.ok_or("a request does not complete")?;
    Ok(front.get::<1>(STATUS)?[0])
}

fn marked(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut front = front(node)?;
        // Something to read that is not there already.
        for sector in 0..64u64 {
            front.put(DATA, &vec![sector as u8 + 1; 512])?;
            ensure(ask(&mut front, 1, sector, DATA, 512)? == 0, || "a write fails".into())?;
        }
        let log = bitmap(LOG)?;
        front.tell(request::SET_LOG_BASE, &words(&[LOG, 0]), &[log.as_fd()])?;
        let answer = front.reply(request::SET_LOG_BASE)?;
        ensure(answer.is_empty(), || format!("{answer:02x?} as the answer to request::SET_LOG_BASE"))?;
        front.tell(request::SET_FEATURES, &words(&[FEATURES | LOG_ALL]), &[])?;
        let places = words(&[USER + DESC, USER + USED, USER + AVAIL, GUEST + USED]);
        front.tell(request::SET_VRING_ADDR, &[pair(0, 1), places].concat(), &[])?;
        // Answered, so what came before it counts.
        front.ask_u64(request::GET_FEATURES)?;
        take(&log)?;
        let mut rng = Rng::new(7);
        for round in 0..200 {
            let sectors = 1 + rng.below(32) as u32;
            let at = DATA + rng.below((MEMORY - DATA - 32 * 512) as usize) as u64;
            let before = whole(&front)?;
            let status = ask(&mut front, 0, rng.below(32) as u64, at, 512 * sectors)?;
            ensure(status == 0, || format!("round {round}: status {status}"))?;
            let (after, bits) = (whole(&front)?, take(&log)?);
            for (page, bit) in bits.iter().enumerate() {
                let bytes = page * PAGE as usize..(page + 1) * PAGE as usize;
                // The front end itself writes tables, available ring, header: in pages of their own but for the status byte's.
                let own = (page as u64) * PAGE != USED && (page as u64) * PAGE < DATA && page as u64 != STATUS / PAGE;
                let changed = before[bytes.clone()] != after[bytes];
                ensure(own || *bit || !changed, || format!("round {round}: page {page} changed and is not marked"))?;
                ensure(!own || !*bit, || format!("round {round}: page {page} is marked, which nobody wrote"))?;
            }
            let status_bit = bits[(STATUS / PAGE) as usize];
            ensure(status_bit && bits[(USED / PAGE) as usize], || format!("round {round}: status or ring unmarked"))?;
        }
        // It ends as it began.
        front.tell(request::SET_FEATURES, &words(&[FEATURES]), &[])?;
        front.tell(request::SET_VRING_ADDR, &Front::vring_addr(), &[])?;
        front.ask_u64(request::GET_FEATURES)?;
        take(&log)?;
        ensure(ask(&mut front, 0, 0, DATA, 512)? == 0, || "a read fails".into())?;
        ensure(take(&log)?.iter().all(|bit| !bit), || "marked after the end".into())
    })
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        for (len, offset, file) in
            [(LOG, 0, PAGE), (0, 0, LOG), (u64::MAX, 0, LOG), (8, u64::MAX - 7, LOG), (8, 1, LOG)]
        {
            let mut front = front(node)?;
            ensure(front.read_sector()? == 0, || "a read fails".into())?;
            let log = bitmap(file)?;
            front.tell(request::SET_LOG_BASE, &words(&[len, offset]), &[log.as_fd()])?;
            let limit = Duration::from_secs(5);
            ensure(front.closed(limit), || format!("{len} bytes at {offset} of {file} are taken for a log"))?;
        }
        // A file that shrinks under it costs nobody anything.
        let mut front = front(node)?;
        let log = bitmap(LOG)?;
        front.tell(request::SET_LOG_BASE, &words(&[LOG, 0]), &[log.as_fd()])?;
        front.reply(request::SET_LOG_BASE)?;
        front.tell(request::SET_FEATURES, &words(&[FEATURES | LOG_ALL]), &[])?;
        front.ask_u64(request::GET_FEATURES)?;
        log.set_len(0).context(|| "truncate".into())?;
        ensure(front.read_sector()? == 0, || "a read fails where the log has gone".into())?;
        ensure(front.read_sector()? == 0, || "and the next one".into())
    })
}
