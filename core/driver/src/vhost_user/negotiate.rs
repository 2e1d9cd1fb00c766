//! The messages that bring a device up, without the socket.

use super::layout::QueueLayout;
use alloc::vec::Vec;
use core::fmt;
use weir_spec::vhost_user::{
    ConfigHeader, F_PROTOCOL_FEATURES, Header, Inflight, MemoryRegion, MemoryTableHeader, Request, VringAddress,
    VringFd, VringState, config_payload, protocol,
};
use weir_spec::virtio_blk::{Config, feature as blk};
use weir_spec::virtqueue::{PackedIndex, feature as ring};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// What the front end would like; it takes less where the device offers less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontEndOptions {
    /// Queues.
    pub queues: u16,
    /// Packed rings.
    pub packed: bool,
    /// EVENT_IDX.
    pub event_idx: bool,
    /// Indirect descriptors.
    pub indirect: bool,
    /// A region in which the back end keeps what is in flight, so that the rings survive it (INFLIGHT_SHMFD).
    pub inflight: bool,
}

impl Default for FrontEndOptions {
    fn default() -> Self {
        Self { queues: 1, packed: false, event_idx: true, indirect: false, inflight: false }
    }
}

/// What both agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Virtio features.
    pub features: u64,
    /// Protocol features.
    pub protocol: u64,
    /// Queues that the device has.
    pub queues: u16,
    /// Its configuration space.
    pub config: Config,
}

impl Negotiated {
    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        match self.config.blk_size.get() {
            n if self.features & blk::BLK_SIZE != 0 && n.is_power_of_two() && n >= 512 => n,
            _ => 512,
        }
    }

    /// Bytes of the disk.
    pub fn capacity(&self) -> u64 {
        self.config.capacity.get().saturating_mul(512)
    }
}

/// What travels beside a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Nothing.
    None,
    /// The memory file.
    Memory,
    /// The in-flight region.
    Inflight,
    /// The kick eventfd of a queue.
    Kick(u16),
    /// The call eventfd of a queue.
    Call(u16),
}

/// A message for the back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Which.
    pub request: Request,
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub attach: Attach,
    /// Whether an answer comes.
    pub answered: bool,
}

/// An answer that makes no sense, or is a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// To another message, or no answer at all.
    Unexpected(Request),
    /// Of the wrong length.
    Malformed(Request),
    /// The back end refused the message.
    Refused(Request),
    /// The back end lacks what a block device needs.
    Missing(&'static str),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(r) => write!(f, "the back end did not answer {r:?} but something else"),
            Self::Malformed(r) => write!(f, "the back end's answer to {r:?} is malformed"),
            Self::Refused(r) => write!(f, "the back end refused {r:?}"),
            Self::Missing(what) => write!(f, "the back end does not offer {what}"),
        }
    }
}

impl core::error::Error for ReplyError {}

fn outgoing(request: Request, payload: &[u8], attach: Attach, answered: bool, ack: bool) -> Outgoing {
    let mut header = Header::request(request, payload.len() as u32);
    if ack {
        header.flags = U32::new(header.flags.get() | Header::NEED_REPLY);
    }
    let mut bytes = Vec::with_capacity(size_of::<Header>() + payload.len());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(payload);
    Outgoing { request, bytes, attach, answered: answered || ack }
}

fn check(header: &Header, to: Request) -> Result<(), ReplyError> {
    if header.request.get() == to.0 && header.is_reply() && header.version() == Header::VERSION {
        Ok(())
    } else {
        Err(ReplyError::Unexpected(to))
    }
}

/// Judges the answer to a message of [`setup`].
///
/// # Errors
/// It is not the answer, or a no.
pub fn acknowledged(header: &Header, payload: &[u8], to: Request) -> Result<(), ReplyError> {
    check(header, to)?;
    match U64::read_from_bytes(payload) {
        Ok(v) if v.get() == 0 => Ok(()),
        Ok(_) => Err(ReplyError::Refused(to)),
        Err(_) => Err(ReplyError::Malformed(to)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Owner,
    Features,
    Protocol,
    SetProtocol,
    Queues,
    SetFeatures,
    Config,
    Done,
}

/// The first half: features and the configuration space.
#[derive(Debug)]
pub struct Hello {
    options: FrontEndOptions,
    step: Step,
    so_far: Negotiated,
}

impl Hello {
    /// A conversation that has not begun.
    pub fn new(options: FrontEndOptions) -> Self {
        Self { options, step: Step::Owner, so_far: Negotiated { queues: 1, ..Negotiated::default() } }
    }

    /// What was agreed on, once [`Hello::next_message`] has nothing more to send.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        (self.step == Step::Done).then_some(&self.so_far)
    }

    /// The next message. Where it is answered, [`Hello::reply`] comes before the next call.
    pub fn next_message(&mut self) -> Option<Outgoing> {
        let ask = |r| Some(outgoing(r, &[], Attach::None, true, false));
        let tell = |r, v: u64| Some(outgoing(r, U64::new(v).as_bytes(), Attach::None, false, false));
        match self.step {
            Step::Owner => {
                self.step = Step::Features;
                Some(outgoing(Request::SET_OWNER, &[], Attach::None, false, false))
            }
            Step::Features => ask(Request::GET_FEATURES),
            Step::Protocol => ask(Request::GET_PROTOCOL_FEATURES),
            Step::SetProtocol => {
                self.step = if self.has(protocol::MQ) { Step::Queues } else { Step::SetFeatures };
                tell(Request::SET_PROTOCOL_FEATURES, self.so_far.protocol)
            }
            Step::Queues => ask(Request::GET_QUEUE_NUM),
            Step::SetFeatures => {
                self.step = Step::Config;
                tell(Request::SET_FEATURES, self.so_far.features)
            }
            Step::Config => {
                let size = size_of::<Config>() - 12;
                let head = ConfigHeader { size: U32::new(size as u32), ..ConfigHeader::default() };
                let mut payload = head.as_bytes().to_vec();
                payload.resize(payload.len() + size, 0);
                Some(outgoing(Request::GET_CONFIG, &payload, Attach::None, true, false))
            }
            Step::Done => None,
        }
    }

    fn has(&self, bit: u64) -> bool {
        self.so_far.protocol & bit != 0
    }

    /// Takes the answer to the message before.
    ///
    /// # Errors
    /// It makes no sense, or the back end lacks something that is needed.
    pub fn reply(&mut self, header: &Header, payload: &[u8]) -> Result<(), ReplyError> {
        match self.step {
            Step::Features => {
                self.so_far.features = self.choose(number(header, payload, Request::GET_FEATURES)?)?;
                self.step = Step::Protocol;
            }
            Step::Protocol => {
                let offered = number(header, payload, Request::GET_PROTOCOL_FEATURES)?;
                let inflight = if self.options.inflight { protocol::INFLIGHT_SHMFD } else { 0 };
                self.so_far.protocol = offered & (protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG | inflight);
                if inflight & !offered != 0 {
                    return Err(ReplyError::Missing("to keep what is in flight (protocol feature INFLIGHT_SHMFD)"));
                }
                if offered & protocol::CONFIG == 0 {
                    return Err(ReplyError::Missing("its configuration space (protocol feature CONFIG)"));
                }
                self.step = Step::SetProtocol;
            }
            Step::Queues => {
                self.so_far.queues = number(header, payload, Request::GET_QUEUE_NUM)?.clamp(1, 256) as u16;
                self.step = Step::SetFeatures;
            }
            Step::Config => {
                check(header, Request::GET_CONFIG)?;
                let (_, data) = config_payload(payload).ok_or(ReplyError::Malformed(Request::GET_CONFIG))?;
                let mut whole = [0; size_of::<Config>()];
                let n = data.len().min(whole.len());
                whole[..n].copy_from_slice(&data[..n]);
                let mut config = Config::read_from_bytes(&whole).unwrap_or_default();
                config.keep(self.so_far.features);
                self.so_far.config = config;
                self.step = Step::Done;
            }
            Step::Owner | Step::SetProtocol | Step::SetFeatures | Step::Done => {
                return Err(ReplyError::Unexpected(Request(header.request.get())));
            }
        }
        Ok(())
    }

    fn choose(&self, offered: u64) -> Result<u64, ReplyError> {
        if offered & F_PROTOCOL_FEATURES == 0 {
            return Err(ReplyError::Missing("protocol features"));
        }
        let mut wanted = F_PROTOCOL_FEATURES
            | ring::VERSION_1
            | blk::SEG_MAX
            | blk::BLK_SIZE
            | blk::FLUSH
            | blk::MQ
            | blk::DISCARD
            | blk::WRITE_ZEROES
            | blk::RO;
        for (want, bit) in [
            (self.options.packed, ring::RING_PACKED),
            (self.options.event_idx, ring::EVENT_IDX),
            (self.options.indirect, ring::INDIRECT_DESC),
        ] {
            wanted |= if want { bit } else { 0 };
        }
        Ok(offered & wanted)
    }
}

/// Asks for an in-flight region; the answer brings its descriptor.
pub fn ask_inflight(layout: &QueueLayout, queues: u16) -> Outgoing {
    let (num_queues, queue_size) = (U16::new(queues), U16::new(layout.size));
    let payload = Inflight { num_queues, queue_size, ..Inflight::default() };
    outgoing(Request::GET_INFLIGHT_FD, payload.as_bytes(), Attach::None, true, false)
}

/// What the back end answered: how long the region is, and where it is in its file.
///
/// # Errors
/// It makes no sense, or there is no region.
pub fn inflight(header: &Header, payload: &[u8]) -> Result<Inflight, ReplyError> {
    let to = Request::GET_INFLIGHT_FD;
    check(header, to)?;
    let region = Inflight::read_from_bytes(payload).map_err(|_| ReplyError::Malformed(to))?;
    if region.mmap_size.get() == 0 { Err(ReplyError::Refused(to)) } else { Ok(region) }
}

fn number(header: &Header, payload: &[u8], to: Request) -> Result<u64, ReplyError> {
    check(header, to)?;
    U64::read_from_bytes(payload).map(U64::get).map_err(|_| ReplyError::Malformed(to))
}

/// The second half: hands over `len` bytes of memory at guest address `base` (its own address for us, too) and starts
/// `queues` queues, the memory of number `i` beginning at `base + i * stride`. With an in-flight region a back end takes up
/// where the last one has left off.
pub fn setup(
    negotiated: &Negotiated,
    layout: &QueueLayout,
    queues: u16,
    (base, stride, len): (u64, u64, u64),
    inflight: Option<&Inflight>,
) -> Vec<Outgoing> {
    let ack = negotiated.protocol & protocol::REPLY_ACK != 0;
    let mut out = Vec::new();
    let mut tell = |request, payload: &[u8], attach| out.push(outgoing(request, payload, attach, false, ack));
    let mut table = MemoryTableHeader { regions: U32::new(1), ..MemoryTableHeader::default() }.as_bytes().to_vec();
    let region = MemoryRegion {
        guest_address: U64::new(base),
        size: U64::new(len),
        user_address: U64::new(base),
        ..Default::default()
    };
    table.extend_from_slice(region.as_bytes());
    tell(Request::SET_MEM_TABLE, &table, Attach::Memory);
    if let Some(region) = inflight {
        tell(Request::SET_INFLIGHT_FD, region.as_bytes(), Attach::Inflight);
    }
    for i in 0..queues {
        let index = U32::new(u32::from(i));
        let state = |num: u32| VringState { index, num: U32::new(num) };
        let at = layout.addresses(base + u64::from(i) * stride);
        let start = PackedIndex::START.bits();
        let first = if layout.packed { u32::from(start) << 16 | u32::from(start) } else { 0 };
        let address = VringAddress {
            index,
            descriptor: U64::new(at.descriptors),
            used: U64::new(at.device),
            available: U64::new(at.driver),
            ..VringAddress::default()
        };
        let fd = VringFd(U64::new(u64::from(i)));
        tell(Request::SET_VRING_NUM, state(u32::from(layout.size)).as_bytes(), Attach::None);
        tell(Request::SET_VRING_BASE, state(first).as_bytes(), Attach::None);
        tell(Request::SET_VRING_ADDR, address.as_bytes(), Attach::None);
        tell(Request::SET_VRING_CALL, fd.as_bytes(), Attach::Call(i));
        tell(Request::SET_VRING_KICK, fd.as_bytes(), Attach::Kick(i));
        tell(Request::SET_VRING_ENABLE, state(1).as_bytes(), Attach::None);
    }
    out
}
