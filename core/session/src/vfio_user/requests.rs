//! What the server asks of its client: memory that it cannot map is read and written by messages (DMA_READ, DMA_WRITE), several
//! at a time, each of no more bytes than the client takes.

use super::inbox::ProtocolError;
use super::{LEAST_TRANSFER, MAX_TRANSFER};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_spec::vfio_user::{Command, DmaAccess, Header, errno};
use weir_units::Nanos;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// What the asker calls a request; several may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DmaTicket(pub u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct DmaRequest {
    pub ticket: DmaTicket,
    pub command: Command,
    pub address: u64,
    pub len: u32,
    pub since: Nanos,
}

/// The client's answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    /// Whose request it answers.
    pub ticket: DmaTicket,
    /// DMA_READ or DMA_WRITE.
    pub command: Command,
    /// Of what.
    pub address: u64,
    /// The bytes of a read; nothing of a write. Or the client's error number.
    pub result: Result<Vec<u8>, u32>,
}

/// Most requests without an answer, those that nobody waits for any more included: half of the identifiers that there are.
pub(super) const MOST: usize = 1 << 15;

/// Requests on their way.
#[derive(Debug)]
pub struct Requests {
    /// By message identifier.
    pending: BTreeMap<u16, DmaRequest>,
    next: u16,
    most: u32,
}

impl Default for Requests {
    fn default() -> Self {
        Self { pending: BTreeMap::new(), next: 0, most: MAX_TRANSFER }
    }
}

impl Requests {
    /// The ticket of abandoned requests.
    pub(super) const NOBODY: DmaTicket = NOBODY;

    /// By message identifier.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, &DmaRequest)> {
        self.pending.iter().map(|(id, request)| (*id, request))
    }

    /// The identifier that is tried next.
    pub(super) fn next_id(&self) -> u16 {
        self.next
    }

    /// The identifier that is to be tried next.
    pub(super) fn go_on_with(&mut self, next: u16) {
        self.next = next;
    }

    /// One that was made before; `None` where there is one of that identifier.
    pub(super) fn put_back(&mut self, id: u16, request: DmaRequest) -> Option<()> {
        self.pending.insert(id, request).is_none().then_some(())
    }

    /// No message asks for more bytes than this from now on.
    pub(super) fn limit(&mut self, most: u64) {
        self.most = most.clamp(LEAST_TRANSFER.into(), MAX_TRANSFER.into()) as u32;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Since when the client owes the oldest answer.
    pub fn oldest(&self) -> Option<Nanos> {
        self.pending.values().map(|r| r.since).min()
    }

    /// The client has been able to answer from now on only.
    pub fn begin_anew(&mut self, now: Nanos) {
        self.pending.values_mut().for_each(|request| request.since = now);
    }

    /// Forgets a ticket's requests; their answers, when they come, are nobody's.
    pub fn abandon(&mut self, is: impl Fn(DmaTicket) -> bool) {
        for request in self.pending.values_mut().filter(|r| is(r.ticket)) {
            request.ticket = NOBODY;
        }
    }

    /// Most bytes of one request.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// The message that reads `len` bytes, at most [`most`](Self::most), from `address` on. `None`: the client owes too many answers.
    pub fn read(&mut self, now: Nanos, ticket: DmaTicket, address: u64, len: u32) -> Option<Vec<u8>> {
        self.message(now, ticket, Command::DMA_READ, (address, len), &[])
    }

    /// The message that writes bytes, at most [`most`](Self::most), from `address` on. `None`: the client owes too many answers.
    pub fn write(&mut self, now: Nanos, ticket: DmaTicket, address: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        self.message(now, ticket, Command::DMA_WRITE, (address, bytes.len() as u32), bytes)
    }

    fn message(
        &mut self,
        since: Nanos,
        ticket: DmaTicket,
        command: Command,
        (address, len): (u64, u32),
        data: &[u8],
    ) -> Option<Vec<u8>> {
        if self.pending.len() >= MOST {
            return None;
        }
        while self.pending.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.pending.insert(id, DmaRequest { ticket, command, address, len, since });
        let access = DmaAccess { address: U64::new(address), count: U64::new(len.into()) };
        let mut bytes = Header::command(id, command, size_of::<DmaAccess>() + data.len()).as_bytes().to_vec();
        bytes.extend_from_slice(access.as_bytes());
        bytes.extend_from_slice(data);
        Some(bytes)
    }

    /// Takes a reply; `None` where nobody waits for it any more.
    ///
    /// # Errors
    /// It answers nothing that was asked, or something else.
    pub(super) fn answer(&mut self, header: &Header, payload: &[u8]) -> Result<Option<Answered>, ProtocolError> {
        let id = header.id.get();
        let wrong = ProtocolError::UnexpectedReply(id);
        let request = self.pending.get(&id).copied().filter(|r| r.command.0 == header.command.get()).ok_or(wrong)?;
        let result = match header.failed() {
            // Some servers' clients forget to say which.
            true => Err(if header.error.get() == 0 { errno::EINVAL } else { header.error.get() }),
            false => {
                let (access, data) = DmaAccess::read_from_prefix(payload).map_err(|_| wrong)?;
                let want = if request.command == Command::DMA_READ { request.len as usize } else { 0 };
                let asked = (request.address, u64::from(request.len));
                if (access.address.get(), access.count.get()) != asked || data.len() != want {
                    return Err(wrong);
                }
                Ok(data.to_vec())
            }
        };
        self.pending.remove(&id);
        let DmaRequest { ticket, command, address, .. } = request;
        Ok((ticket != NOBODY).then_some(Answered { ticket, command, address, result }))
    }
}

/// The ticket of abandoned requests.
const NOBODY: DmaTicket = DmaTicket(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn header_of(message: &[u8]) -> (Header, DmaAccess, Vec<u8>) {
        let (header, rest) = Header::read_from_prefix(message).unwrap();
        assert_eq!(header.size.get() as usize, message.len());
        let (access, data) = DmaAccess::read_from_prefix(rest).unwrap();
        (header, access, data.to_vec())
    }

    fn reply(message: &[u8], data: &[u8]) -> (Header, Vec<u8>) {
        let (header, access, _) = header_of(message);
        (Header::reply(&header, 16 + data.len()), [access.as_bytes(), data].concat())
    }

    #[test]
    fn answers_come_in_any_order() {
        let mut requests = Requests::default();
        requests.limit(1000);
        assert_eq!(requests.most(), 1000);
        let out = [
            requests.read(Nanos(5), DmaTicket(1), 0x1_0000, 1000),
            requests.read(Nanos(6), DmaTicket(1), 0x1_03e8, 500),
            requests.write(Nanos(4), DmaTicket(2), 0x5000, &[7; 1000]),
        ]
        .map(Option::unwrap);
        let asked: Vec<_> = out.iter().map(|m| header_of(m)).collect();
        let places: Vec<_> = asked.iter().map(|(_, a, _)| (a.address.get(), a.count.get())).collect();
        assert_eq!(places, [(0x1_0000, 1000), (0x1_03e8, 500), (0x5000, 1000)]);
        assert_eq!(asked.iter().map(|(_, _, data)| data.len()).collect::<Vec<_>>(), [0, 0, 1000]);
        assert_eq!((requests.len(), requests.oldest()), (3, Some(Nanos(4))));
        for (i, data) in [(1, vec![2; 500]), (0, vec![1; 1000])] {
            let (header, payload) = reply(&out[i], &data);
            let answered = requests.answer(&header, &payload).unwrap().unwrap();
            let (ticket, command, address) = (DmaTicket(1), Command::DMA_READ, places[i].0);
            assert_eq!(answered, Answered { ticket, command, address, result: Ok(data) });
            // Twice is once too often.
            assert_eq!(requests.answer(&header, &payload), Err(ProtocolError::UnexpectedReply(header.id.get())));
        }
        let no = Header::error(&header_of(&out[2]).0, 14);
        let failed = requests.answer(&no, &[]).unwrap().unwrap();
        assert_eq!((failed.ticket, failed.command, failed.result), (DmaTicket(2), Command::DMA_WRITE, Err(14)));
        assert!(requests.is_empty() && requests.oldest().is_none());
        let message = requests.write(Nanos(7), DmaTicket(3), 0x5000, &[7; 10]).unwrap();
        let (header, payload) = reply(&message, &[]);
        assert_eq!(requests.answer(&header, &payload).unwrap().unwrap().result, Ok(Vec::new()));
    }

    /// Who asks and gives up again and again gets no further than that, and does not look for an identifier for ever.
    #[test]
    fn what_nobody_waits_for_any_more_counts() {
        let mut requests = Requests::default();
        let mut last = Vec::new();
        for n in 0..MOST as u64 {
            last = requests.read(Nanos(n), DmaTicket(n / 1000), 0x1000, 16).unwrap();
            requests.abandon(|_| n % 1000 == 999);
        }
        assert_eq!(requests.read(Nanos(0), DmaTicket(1), 0x1000, 16), None);
        assert_eq!(requests.write(Nanos(0), DmaTicket(1), 0x1000, &[1; 16]), None);
        assert_eq!((requests.len(), requests.oldest()), (MOST, Some(Nanos(0))));
        let (header, payload) = reply(&last, &[0; 16]);
        requests.answer(&header, &payload).unwrap();
        assert!(requests.read(Nanos(0), DmaTicket(1), 0x1000, 16).is_some());
        requests.begin_anew(Nanos(7));
        assert_eq!(requests.oldest(), Some(Nanos(7)));
    }

    #[test]
    fn answers_to_something_else_are_none() {
        let mut requests = Requests::default();
        let message = requests.read(Nanos(0), DmaTicket(1), 0x1000, 16).unwrap();
        let (header, payload) = reply(&message, &[0; 16]);
        let wrong = Err(ProtocolError::UnexpectedReply(header.id.get()));
        assert_eq!(requests.answer(&header, &payload[..31]), wrong);
        assert_eq!(requests.answer(&header, &[&payload[..], &[0]].concat()), wrong);
        assert_eq!(requests.answer(&header, &payload[..8]), wrong);
        let mut elsewhere = payload.clone();
        elsewhere[0] ^= 1;
        assert_eq!(requests.answer(&header, &elsewhere), wrong);
        let write = Header { command: Command::DMA_WRITE.0.into(), ..header };
        assert_eq!(requests.answer(&write, &payload), wrong);
        // Who gave up is not told any more, and the client is not wrong to answer.
        requests.abandon(|t| t == DmaTicket(1));
        assert_eq!(requests.answer(&header, &payload), Ok(None));
        assert!(requests.is_empty());
    }
}
