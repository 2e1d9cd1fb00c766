//! An NVMe/TCP target on a real socket, as small as can be: the project's own connection machine and a drive that answers at once.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use weir_session::nvme_tcp::{Budget, Connection, ConnectionSettings, ConnectionState, ReadyCommand};
use weir_spec::nvme::fabrics::{CATTR_DISABLE_SQ_FLOW, Connect, ConnectData, Property};
use weir_spec::nvme::identify::{IdentifyController, IdentifyNamespace, LbaFormat};
use weir_spec::nvme::register::{CAP, CSTS, Cap};
use weir_spec::nvme::{AdminOpcode, Cqe, FabricsType, IoOpcode, Status};
use weir_sys::crc::Crc32c;
use weir_units::Nanos;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

pub const NQN: &str = "nqn.2026-11.io.weir:model";

type Target = Connection<Crc32c>;

struct Drive {
    disk: Mutex<Vec<u8>>,
    sector: usize,
    controllers: AtomicU32,
    /// Every so many reads and writes the connection ends before the answer; 0: never.
    hang_up_every: AtomicU32,
    commands: AtomicU32,
    /// Nobody is let in.
    is_away: AtomicBool,
    /// Reads are not answered.
    is_stuck: AtomicBool,
    /// What was asked about associations of before, and whether the answer says nothing.
    asked: AtomicU32,
    is_unclear: AtomicBool,
    /// It says that it has a volatile write cache; and flushes that came.
    has_cache: AtomicBool,
    flushes: AtomicU32,
    streams: Mutex<Vec<TcpStream>>,
    hosts: Mutex<BTreeSet<[u8; 16]>>,
}

pub struct ModelTarget {
    address: SocketAddr,
    drive: Arc<Drive>,
}

impl ModelTarget {
    pub fn new(bytes: usize, sector: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let drive = Arc::new(Drive {
            disk: Mutex::new(vec![0x5a; bytes]),
            sector,
            controllers: AtomicU32::new(0),
            hang_up_every: AtomicU32::new(0),
            commands: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            is_unclear: AtomicBool::new(false),
            has_cache: AtomicBool::new(false),
            flushes: AtomicU32::new(0),
            streams: Mutex::default(),
            hosts: Mutex::default(),
        });
        let shared = drive.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), drive) = (stream, shared.clone()) else { return };
                if drive.is_away.load(Ordering::Relaxed) {
                    continue;
                }
                drive.streams.lock().unwrap().push(stream.try_clone().unwrap());
                thread::spawn(move || {
                    connection(&stream, &drive);
                    // A clone of it is in the list.
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, drive }
    }

    pub fn url(&self) -> String {
        format!("nvme-tcp://{}/{NQN}?ns=1", self.address)
    }

    pub fn hang_up_every(&self, commands: u32) {
        self.drive.hang_up_every.store(commands, Ordering::Relaxed);
    }

    pub fn get_stuck(&self, is_stuck: bool) {
        self.drive.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// It does not say what became of associations of before.
    pub fn says_nothing(&self) {
        self.drive.is_unclear.store(true, Ordering::Relaxed);
    }

    /// It has a volatile write cache, or says so, for connections to come.
    pub fn set_cache(&self, has_cache: bool) {
        self.drive.has_cache.store(has_cache, Ordering::Relaxed);
    }

    /// Flushes that it was sent.
    pub fn flushes(&self) -> u32 {
        self.drive.flushes.load(Ordering::Relaxed)
    }

    /// How often it was asked about them.
    pub fn asked(&self) -> u32 {
        self.drive.asked.load(Ordering::Relaxed)
    }

    /// It goes away, or comes back.
    pub fn go_away(&self, is_away: bool) {
        self.drive.is_away.store(is_away, Ordering::Relaxed);
        if is_away {
            self.drive.streams.lock().unwrap().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
    }

    /// Associations so far, and host identifiers.
    pub fn associations(&self) -> (u32, usize) {
        (self.drive.controllers.load(Ordering::Relaxed), self.drive.hosts.lock().unwrap().len())
    }
}

fn connection(mut stream: &TcpStream, drive: &Drive) {
    stream.set_nodelay(true).unwrap();
    let settings = ConnectionSettings { maxh2cdata: 16384, ..ConnectionSettings::default() };
    let (mut target, mut budget) = (Target::new(Nanos(0), settings), Budget::new(4 << 20));
    let (mut bytes, mut is_admin) = (vec![0; 100_000], true);
    while matches!(target.state(), ConnectionState::AwaitsIcReq | ConnectionState::Running) {
        match stream.read(&mut bytes) {
            Ok(n) if n > 0 => target.receive(Nanos(0), &bytes[..n], &mut budget),
            _ => return,
        }
        while let Some(command) = target.next_command() {
            let answer = match is_admin || command.sqe.opcode == AdminOpcode::FABRICS.0 {
                true => admin(&mut target, &command, drive, &mut is_admin),
                false => {
                    if drive.is_stuck.load(Ordering::Relaxed) && command.sqe.opcode == IoOpcode::READ.0 {
                        continue;
                    }
                    let answer = io(&mut target, &command, drive);
                    let (count, every) = (&drive.commands, drive.hang_up_every.load(Ordering::Relaxed));
                    if every > 0 && count.fetch_add(1, Ordering::Relaxed) % every == every - 1 {
                        // It was carried out, and the host is not told; it is of those before.
                        while !target.ready().is_empty() {
                            let Ok(n) = stream.write(target.ready()) else { return };
                            target.sent(Nanos(0), n, &mut budget);
                        }
                        return;
                    }
                    answer
                }
            };
            let mut cqe = answer;
            cqe.cid = command.sqe.cid;
            target.respond(command.tag, &cqe, &mut budget);
            target.grant(&mut budget);
        }
        while !target.ready().is_empty() {
            let Ok(n) = stream.write(target.ready()) else { return };
            target.sent(Nanos(0), n, &mut budget);
        }
    }
}

fn status(status: Status) -> Cqe {
    let mut cqe = Cqe::default();
    cqe.set_status(status);
    cqe
}

fn admin(target: &mut Target, c: &ReadyCommand, drive: &Drive, is_admin: &mut bool) -> Cqe {
    let ok = Cqe::default();
    let data = match AdminOpcode(c.sqe.opcode) {
        AdminOpcode::FABRICS => return fabrics(target, c, drive, is_admin),
        AdminOpcode::IDENTIFY if c.sqe.cdw10.get() == 1 => {
            let vwc = drive.has_cache.load(Ordering::Relaxed).into();
            let id = IdentifyController { mdts: 5, ioccsz: U32::new((64 + 8192) / 16), vwc, ..Default::default() };
            id.as_bytes().to_vec()
        }
        AdminOpcode::IDENTIFY => {
            let blocks = drive.disk.lock().unwrap().len() / drive.sector;
            let mut id = IdentifyNamespace { nsze: U64::new(blocks as u64), ..Default::default() };
            id.lbaf[0] = LbaFormat { lbads: drive.sector.ilog2() as u8, ..LbaFormat::default() };
            id.as_bytes().to_vec()
        }
        AdminOpcode::SET_FEATURES => return Cqe { dw0: U32::new(3 << 16 | 3), ..ok },
        AdminOpcode::KEEP_ALIVE => return ok,
        _ => return status(Status::INVALID_OPCODE),
    };
    target.write_data(c.tag, 0, &data).map_or_else(status, |()| ok)
}

fn fabrics(target: &mut Target, c: &ReadyCommand, drive: &Drive, is_admin: &mut bool) -> Cqe {
    let ok = Cqe::default();
    match FabricsType(c.sqe.nsid.get() as u8) {
        FabricsType::CONNECT => {
            let connect = Connect::from(c.sqe);
            let (data, _) = ConnectData::read_from_prefix(target.data(c.tag).unwrap()).unwrap();
            if connect.qid.get() == 0xffff {
                drive.asked.fetch_add(1, Ordering::Relaxed);
                if drive.is_unclear.load(Ordering::Relaxed) {
                    return status(Status::INVALID_FIELD);
                }
                // It is asked about an association, and has none that has ended.
                return Cqe { dw0: U32::new(1 << 16 | 16), ..status(Status::CONNECT_INVALID_PARAMETERS) };
            }
            drive.hosts.lock().unwrap().insert(data.hostid);
            *is_admin = connect.qid.get() == 0;
            if *is_admin {
                drive.controllers.fetch_add(1, Ordering::Relaxed);
            }
            target.connected(u32::from(connect.sqsize.get()) + 1, connect.cattr & CATTR_DISABLE_SQ_FLOW == 0);
            Cqe { dw0: U32::new(drive.controllers.load(Ordering::Relaxed)), ..ok }
        }
        FabricsType::PROPERTY_SET => ok,
        FabricsType::PROPERTY_GET => match Property::from(c.sqe).ofst.get() {
            CAP => {
                let cap = Cap(0).with_mqes(63).with_to(1).0;
                Cqe { dw0: U32::new(cap as u32), dw1: U32::new((cap >> 32) as u32), ..ok }
            }
            CSTS => Cqe { dw0: U32::new(1), ..ok },
            _ => status(Status::INVALID_FIELD),
        },
        _ => status(Status::INVALID_FIELD),
    }
}

fn io(target: &mut Target, c: &ReadyCommand, drive: &Drive) -> Cqe {
    let mut disk = drive.disk.lock().unwrap();
    let (at, len) = (c.sqe.slba() as usize * drive.sector, c.sqe.blocks() as usize * drive.sector);
    let result = match IoOpcode(c.sqe.opcode) {
        IoOpcode::READ => target.write_data(c.tag, 0, &disk[at..at + len]),
        IoOpcode::WRITE => target.read_data(c.tag, 0, &mut disk[at..at + len]),
        IoOpcode::FLUSH => {
            drive.flushes.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        _ => Err(Status::INVALID_OPCODE),
    };
    status(result.err().unwrap_or(Status::SUCCESS))
}
