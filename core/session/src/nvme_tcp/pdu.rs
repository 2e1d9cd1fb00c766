//! A PDU that arrives cut anywhere, at either end of a connection: its header, padding, data and data digest.
//!
//! ```text
//!   Header ── begin() ─► Padding ─► Data ─► Digest ─► Data, of which nothing is left: is_done() ── finish() ─► Header
//! ```
//! Whoever receives acts on the header and puts the data where it belongs; what is counted and summed is here.

use weir_spec::nvme::tcp::{Body, CommonHeader, DIGEST_LEN, Digest, Fatal, Fes, Framing, HEADER_MAX, hlen, offset};

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduPhase {
    /// The header, or its digest.
    Header,
    /// Between the header and the data.
    Padding,
    /// The data.
    Data,
    /// The digest of the data.
    Digest,
}

/// The PDU in work; see the [module](self).
#[derive(Clone, Debug)]
pub struct PduProgress {
    /// What the next byte belongs to.
    pub phase: PduPhase,
    /// Its header or its data digest, as far as it is here.
    pub head: [u8; HEADER_MAX + DIGEST_LEN],
    /// How many bytes of these are here.
    pub have: usize,
    /// What is to come behind the header.
    pub body: Body,
    /// CRC32C of the data so far, where it has a digest.
    pub crc: u32,
}

impl Default for PduProgress {
    fn default() -> Self {
        let head = [0; HEADER_MAX + DIGEST_LEN];
        Self { phase: PduPhase::Header, head, have: 0, body: Body::default(), crc: 0 }
    }
}

impl PduProgress {
    /// The header is whole, and this comes behind it.
    #[inline]
    pub fn begin(&mut self, body: Body) {
        (self.body, self.have, self.crc, self.phase) = (body, 0, 0, PduPhase::Padding);
        self.settle();
    }

    /// The next byte is another PDU's.
    #[inline]
    pub fn finish(&mut self) {
        (self.phase, self.have) = (PduPhase::Header, 0);
    }

    /// Skips phases that have nothing to wait for.
    #[inline]
    pub fn settle(&mut self) {
        if self.phase == PduPhase::Padding && self.body.padding == 0 {
            self.phase = PduPhase::Data;
        }
        if self.phase == PduPhase::Data && self.body.data == 0 && self.body.digest {
            (self.phase, self.have) = (PduPhase::Digest, 0);
        }
    }

    /// Whether all of it has arrived.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.phase == PduPhase::Data && self.body.data == 0 && !self.body.digest
    }

    /// Skips padding: so many bytes were that.
    #[inline]
    pub fn skip_padding(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.body.padding as usize);
        self.body.padding -= n as u32;
        n
    }

    /// `n` bytes of data have arrived, which the caller has where `part` says, if they have a digest.
    #[inline]
    pub fn data_arrived<'a, D: Digest>(&mut self, n: usize, has_digest: bool, part: impl FnOnce() -> &'a [u8]) {
        if has_digest {
            self.crc = D::append(self.crc, part());
        }
        self.body.data -= n as u32;
    }

    /// Appends to the header or digest until that is `need` bytes: so many were used.
    #[inline]
    pub fn gather(&mut self, bytes: &[u8], need: usize) -> usize {
        let have = self.have;
        let n = bytes.len().min(need.saturating_sub(have));
        if let (Some(to), Some(from)) = (self.head.get_mut(have..have + n), bytes.get(..n)) {
            to.copy_from_slice(from);
        }
        self.have += n;
        n
    }

    /// Bytes of the data digest: how many were used, and, once it is whole, whether it is that of the data.
    pub fn digest(&mut self, bytes: &[u8]) -> (usize, Option<bool>) {
        let n = self.gather(bytes, DIGEST_LEN);
        if self.have < DIGEST_LEN {
            return (n, None);
        }
        (self.have, self.body.digest, self.phase) = (0, false, PduPhase::Data);
        let got = self.head.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
        (n, Some(got == self.crc))
    }
}

/// How long a header is, digest included; or why its PDU cannot be. `lawful`: one of its type may come.
#[inline]
pub fn header_len(framing: Framing, ch: &CommonHeader, lawful: bool) -> Result<usize, Fatal> {
    let kind = ch.pdu_type();
    let Some(expected) = hlen(kind) else { return Err(Fatal::field(offset::TYPE)) };
    if !lawful {
        return Err(Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE));
    }
    if ch.hlen != expected {
        return Err(Fatal::field(offset::HLEN));
    }
    Ok(framing.header_len(kind, ch.hlen))
}

/// The header of these bytes, behind which its digest may stand.
///
/// # Errors
/// That digest is another header's.
#[inline]
pub fn header_of<'a, D: Digest>(bytes: &'a [u8], ch: &CommonHeader) -> Result<&'a [u8], Fatal> {
    let (header, digest) = bytes.split_at(usize::from(ch.hlen).min(bytes.len()));
    match digest.first_chunk().map(|d| u32::from_le_bytes(*d)) {
        Some(got) if got != D::append(0, header) => Err(Fatal::new(Fes::HEADER_DIGEST_ERROR, got)),
        _ => Ok(header),
    }
}
