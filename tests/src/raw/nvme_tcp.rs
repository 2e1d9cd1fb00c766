//! An NVMe/TCP host by hand (NVMe/TCP transport 1.0, section 3; NVMe over Fabrics, section 3).

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::{Context, ensure};
use crate::node::NQN;

/// PDU types.
pub mod kind {
    pub const IC_REQ: u8 = 0;
    pub const IC_RESP: u8 = 1;
    pub const C2H_TERM: u8 = 3;
    pub const CAPSULE: u8 = 4;
    pub const RESPONSE: u8 = 5;
    pub const H2C_DATA: u8 = 6;
    pub const C2H_DATA: u8 = 7;
    pub const R2T: u8 = 9;
}

/// A PDU that arrived.
#[derive(Debug)]
pub struct Pdu {
    pub kind: u8,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

impl Pdu {
    /// 16 bits at an offset.
    pub fn u16(&self, at: usize) -> u16 {
        self.bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    }

    /// 32 bits at an offset.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    /// Identifier of a response capsule's command.
    pub fn cid(&self) -> u16 {
        self.u16(20)
    }

    /// Status of a response capsule, without phase.
    pub fn status(&self) -> u16 {
        self.u16(22) >> 1
    }
}

/// A PDU: header of `hlen` bytes (its first 8 are filled in), then data.
pub fn pdu(kind: u8, flags: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
    let hlen = 8 + header.len();
    let pdo = if data.is_empty() { 0 } else { hlen as u8 };
    let mut bytes = vec![kind, flags, hlen as u8, pdo];
    bytes.extend(((hlen + data.len()) as u32).to_le_bytes());
    bytes.extend(header);
    bytes.extend(data);
    bytes
}

/// ICReq without digests.
pub fn ic_req() -> Vec<u8> {
    pdu(kind::IC_REQ, 0, &[0; 120], &[])
}

/// Where a command's data is.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    None,
    InCapsule(&'a [u8]),
    /// Fetched or sent by PDUs of their own.
    Transport(u32),
}

/// A submission queue entry: opcode, command identifier, namespace, dwords 10 to 15.
pub fn sqe(opcode: u8, cid: u16, nsid: u32, dwords: [u32; 6], data: Data<'_>) -> [u8; 64] {
    let mut e = [0; 64];
    e[0] = opcode;
    e[1] = 0x40;
    e[2..4].copy_from_slice(&cid.to_le_bytes());
    e[4..8].copy_from_slice(&nsid.to_le_bytes());
    let (len, sgl) = match data {
        Data::None => (0, 0x5a),
        Data::InCapsule(d) => (d.len() as u32, 0x01),
        Data::Transport(len) => (len, 0x5a),
    };
    e[32..36].copy_from_slice(&len.to_le_bytes());
    e[39] = sgl;
    for (i, dword) in dwords.iter().enumerate() {
        e[40 + 4 * i..44 + 4 * i].copy_from_slice(&dword.to_le_bytes());
    }
    e
}

/// A command capsule.
pub fn capsule(entry: &[u8; 64], data: Data<'_>) -> Vec<u8> {
    pdu(kind::CAPSULE, 0, entry, if let Data::InCapsule(d) = data { d } else { &[] })
}

/// Connect (NVMe over Fabrics, section 3.3).
pub fn connect(cid: u16, qid: u16, cntlid: u16, kato_ms: u32, host: &str, subsystem: &str) -> Vec<u8> {
    let mut data = [0; 1024];
    // Each host is its own: identifier from the name.
    for (i, b) in host.bytes().rev().take(16).enumerate() {
        data[i] = b;
    }
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    let sqsize = if qid == 0 { 31u32 } else { 127 };
    let entry = sqe(0x7f, cid, 0x01, [u32::from(qid) << 16, sqsize, kato_ms, 0, 0, 0], Data::InCapsule(&data));
    capsule(&entry, Data::InCapsule(&data))
}

/// Connect of an admin queue with this identifier and HOSTNQN of the host.
pub fn connect_as(hostid: &[u8; 16], hostnqn: &[u8; 256], subsystem: &str) -> Vec<u8> {
    let mut pdu = connect(1, 0, 0xffff, 0, "", subsystem);
    // Behind the header and the entry.
    let data = pdu.len() - 1024;
    pdu[data..data + 16].copy_from_slice(hostid);
    pdu[data + 512..data + 768].copy_from_slice(hostnqn);
    pdu
}

/// Property Set of a 4-byte register.
pub fn property_set(cid: u16, offset: u32, value: u32) -> Vec<u8> {
    capsule(&sqe(0x7f, cid, 0x00, [0, offset, value, 0, 0, 0], Data::None), Data::None)
}

/// Property Get.
pub fn property_get(cid: u16, offset: u32, wide: bool) -> Vec<u8> {
    capsule(&sqe(0x7f, cid, 0x04, [u32::from(wide), offset, 0, 0, 0, 0], Data::None), Data::None)
}

/// Identify Controller.
pub fn identify(cid: u16) -> Vec<u8> {
    let data = Data::Transport(4096);
    capsule(&sqe(0x06, cid, 0, [1, 0, 0, 0, 0, 0], data), data)
}

/// Read or write of `blocks` blocks at `lba`.
pub fn io(opcode: u8, cid: u16, lba: u32, blocks: u32, data: Data<'_>) -> Vec<u8> {
    capsule(&sqe(opcode, cid, 1, [lba, 0, blocks - 1, 0, 0, 0], data), data)
}

/// H2CData.
pub fn h2c_data(cid: u16, ttag: u16, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(cid.to_le_bytes());
    header.extend(ttag.to_le_bytes());
    header.extend(offset.to_le_bytes());
    header.extend((data.len() as u32).to_le_bytes());
    header.extend([0; 4]);
    pdu(kind::H2C_DATA, if last { 4 } else { 0 }, &header, data)
}

/// CC with EN and the entry sizes.
pub const CC_ENABLE: u32 = 0x0046_0001;
/// The same with all I/O command sets, for zones.
pub const CC_ALL_SETS: u32 = CC_ENABLE | 6 << 4;

/// A connection.
pub struct Host {
    stream: TcpStream,
}

impl Host {
    /// A TCP connection on which nothing was said yet.
    pub fn open(address: SocketAddr) -> Result<Self, String> {
        let stream =
            TcpStream::connect_timeout(&address, Duration::from_secs(5)).context(|| format!("connect {address}"))?;
        stream.set_nodelay(true).context(|| "TCP_NODELAY".into())?;
        let limit = Some(Duration::from_secs(5));
        stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)).context(|| "timeouts".into())?;
        Ok(Self { stream })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes; an error when the other side has closed.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).context(|| "send".into())
    }

    /// The next PDU; `None` when the other side has closed.
    pub fn receive(&mut self) -> Result<Option<Pdu>, String> {
        let mut head = [0; 8];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return Ok(None),
            Err(e) => return Err(format!("no PDU came: {e}")),
        }
        let plen = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        ensure((8..=1 << 24).contains(&plen), || format!("a PDU of {plen} bytes"))?;
        let mut bytes = head.to_vec();
        bytes.resize(plen, 0);
        match self.stream.read_exact(&mut bytes[8..]) {
            Ok(()) => Ok(Some(Pdu { kind: head[0], bytes })),
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => Ok(None),
            Err(e) => Err(format!("half a PDU came: {e}")),
        }
    }

    /// The next PDU, of this kind.
    pub fn expect(&mut self, kind: u8) -> Result<Pdu, String> {
        match self.receive()? {
            Some(pdu) if pdu.kind == kind => Ok(pdu),
            other => Err(format!("expected a PDU of type {kind}, not {other:02x?}")),
        }
    }

    /// A response capsule with status 0.
    pub fn success(&mut self) -> Result<Pdu, String> {
        let response = self.expect(kind::RESPONSE)?;
        ensure(response.status() == 0, || format!("status {:#x}", response.status()))?;
        Ok(response)
    }

    /// An enabled admin queue; the controller's identifier.
    pub fn admin(address: SocketAddr, host: &str, kato_ms: u32) -> Result<(Self, u16), String> {
        Self::admin_of(NQN, address, host, kato_ms)
    }

    /// The same of any subsystem.
    pub fn admin_of(nqn: &str, address: SocketAddr, host: &str, kato_ms: u32) -> Result<(Self, u16), String> {
        Self::admin_with(CC_ENABLE, nqn, address, host, kato_ms)
    }

    /// The same by another CC.
    pub fn admin_with(
        cc: u32,
        nqn: &str,
        address: SocketAddr,
        host: &str,
        kato_ms: u32,
    ) -> Result<(Self, u16), String> {
        let mut this = Self::open(address)?;
        this.send(&ic_req())?;
        this.expect(kind::IC_RESP)?;
        this.send(&connect(1, 0, 0xffff, kato_ms, host, nqn))?;
        let cntlid = this.success()?.u16(8);
        this.send(&property_set(2, 0x14, cc))?;
        this.success()?;
        for cid in 3..1000 {
            this.send(&property_get(cid, 0x1c, false))?;
            if this.success()?.u32(8) & 1 == 1 {
                return Ok((this, cntlid));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err("the controller does not get ready".into())
    }

    /// An I/O queue of that controller.
    pub fn io_queue(address: SocketAddr, host: &str, cntlid: u16, qid: u16) -> Result<Self, String> {
        Self::io_queue_of(NQN, address, host, cntlid, qid)
    }

    /// The same of any subsystem.
    pub fn io_queue_of(nqn: &str, address: SocketAddr, host: &str, cntlid: u16, qid: u16) -> Result<Self, String> {
        let mut this = Self::open(address)?;
        this.send(&ic_req())?;
        this.expect(kind::IC_RESP)?;
        this.send(&connect(1, qid, cntlid, 0, host, nqn))?;
        this.success().map_err(|e| format!("connect of I/O queue {qid}: {e}"))?;
        Ok(this)
    }

    /// Reads until the other side closes; the PDUs that came before. An error when it stays open.
    pub fn until_closed(&mut self) -> Result<Vec<Pdu>, String> {
        let mut seen = Vec::new();
        while let Some(pdu) =
            self.receive().map_err(|e| format!("the connection stays open: {e}; came: {seen:02x?}"))?
        {
            seen.push(pdu);
        }
        Ok(seen)
    }

    /// Reads until the other side says that it gives up, and then hangs up as the standard wants it: after a C2HTermReq the
    /// controller waits for the host to close. The PDUs that came, a C2HTermReq last unless the connection just ended.
    pub fn until_terminated(&mut self) -> Result<Vec<Pdu>, String> {
        let mut seen = Vec::new();
        while let Some(pdu) = self.receive().map_err(|e| format!("no C2HTermReq and no end: {e}; came: {seen:02x?}"))? {
            seen.push(pdu);
            if seen.last().is_some_and(|p| p.kind == kind::C2H_TERM) {
                break;
            }
        }
        Ok(seen)
    }
}
