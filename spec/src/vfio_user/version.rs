//! What VERSION carries behind its numbers: a JSON text with the capabilities of its sender.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// Nothing that is needed lies deeper than the third level; nothing is read that lies deeper than this.
const DEPTH: u32 = 16;

/// The capabilities of one side. What the sender leaves out has the protocol's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Most descriptors that the sender takes with one message.
    pub max_msg_fds: u64,
    /// Most bytes that one message may ask it to read or write.
    pub max_data_xfer_size: u64,
    /// Most DMA regions at a time.
    pub max_dma_maps: u64,
    /// Page sizes of DMA regions, a bit each.
    pub pgsizes: u64,
    /// REGION_WRITE_MULTI is understood.
    pub write_multiple: bool,
    /// Commands of the server may travel over a socket of their own (`twin_socket.supported`).
    pub twin_socket: bool,
}

impl Default for Capabilities {
    /// What holds of a sender that says nothing.
    fn default() -> Self {
        Self {
            max_msg_fds: 1,
            max_data_xfer_size: 1 << 20,
            max_dma_maps: 65535,
            pgsizes: 4096,
            write_multiple: false,
            twin_socket: false,
        }
    }
}

/// What is wrong with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionError {
    /// No NUL at its end, or no UTF-8.
    Text,
    /// No JSON, at this byte.
    Json(usize),
    /// A capability that is not of its type, at this byte.
    Type(usize),
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionError::Text => f.write_str("the capabilities are no UTF-8 text that ends with NUL"),
            VersionError::Json(at) => write!(f, "the capabilities are no JSON at byte {at}"),
            VersionError::Type(at) => write!(f, "a capability has a value of the wrong type at byte {at}"),
        }
    }
}

impl core::error::Error for VersionError {}

impl Capabilities {
    /// Reads what follows [`Version`](super::Version): nothing at all, or a JSON text with a NUL behind it.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(data: &[u8]) -> Result<Self, VersionError> {
        let mut caps = Self::default();
        if data.is_empty() {
            return Ok(caps);
        }
        let end = data.iter().position(|b| *b == 0).ok_or(VersionError::Text)?;
        let text = core::str::from_utf8(&data[..end]).map_err(|_| VersionError::Text)?;
        let mut json = Json { text: text.as_bytes(), at: 0 };
        json.members(DEPTH, &mut |key, json, depth| match key {
            b"capabilities" => json.members(depth, &mut |key, json, depth| caps.take(key, json, depth)),
            _ => json.skip(depth),
        })?;
        json.space();
        if json.at == json.text.len() { Ok(caps) } else { Err(VersionError::Json(json.at)) }
    }

    fn take(&mut self, key: &[u8], json: &mut Json<'_>, depth: u32) -> Result<(), VersionError> {
        match key {
            b"max_msg_fds" => self.max_msg_fds = json.number()?,
            b"max_data_xfer_size" => self.max_data_xfer_size = json.number()?,
            b"max_dma_maps" => self.max_dma_maps = json.number()?,
            b"pgsizes" => self.pgsizes = json.number()?,
            b"write_multiple" => self.write_multiple = json.boolean()?,
            b"twin_socket" => {
                return json.members(depth, &mut |key, json, depth| {
                    if key == b"supported" {
                        self.twin_socket = json.boolean()?;
                        return Ok(());
                    }
                    json.skip(depth)
                });
            }
            _ => return json.skip(depth),
        }
        Ok(())
    }

    /// The text with its NUL. `twin_socket` is left out where it is not supported.
    pub fn text(&self) -> String {
        let twin = if self.twin_socket { ",\"twin_socket\":{\"supported\":true,\"fd_index\":0}" } else { "" };
        format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{},\"max_data_xfer_size\":{},\"max_dma_maps\":{},\"pgsizes\":{},\
             \"write_multiple\":{}{twin}}}}}\0",
            self.max_msg_fds, self.max_data_xfer_size, self.max_dma_maps, self.pgsizes, self.write_multiple
        )
    }
}

/// As much of JSON (RFC 8259) as it takes to find a few members and to walk over the rest.
struct Json<'a> {
    text: &'a [u8],
    at: usize,
}

type Member<'m, 'a> = &'m mut dyn FnMut(&[u8], &mut Json<'a>, u32) -> Result<(), VersionError>;

impl<'a> Json<'a> {
    fn wrong<T>(&self) -> Result<T, VersionError> {
        Err(VersionError::Json(self.at))
    }

    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no white space; it is not taken.
    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Result<(), VersionError> {
        if self.take(byte) { Ok(()) } else { self.wrong() }
    }

    /// A string as it is written, escapes included: no name that is looked for has any.
    fn string(&mut self) -> Result<&'a [u8], VersionError> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(0x20..) => self.at += 1,
                _ => return self.wrong(),
            }
        }
        let text = self.text;
        self.at += 1;
        Ok(&text[start..self.at - 1])
    }

    /// An object's members, each given to `f`, which takes the value.
    fn members(&mut self, depth: u32, f: Member<'_, 'a>) -> Result<(), VersionError> {
        if self.peek() != Some(b'{') {
            return Err(VersionError::Type(self.at));
        }
        let Some(depth) = depth.checked_sub(1) else { return self.wrong() };
        self.at += 1;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            f(key, self, depth)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    /// A whole number.
    fn number(&mut self) -> Result<u64, VersionError> {
        self.space();
        let start = self.at;
        let digits = self.scalar();
        let number = core::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
        number.filter(|_| digits[0] != b'+').ok_or(VersionError::Type(start))
    }

    fn boolean(&mut self) -> Result<bool, VersionError> {
        self.space();
        let start = self.at;
        match self.scalar() {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err(VersionError::Type(start)),
        }
    }

    /// What numbers, true, false and null are made of.
    fn scalar(&mut self) -> &'a [u8] {
        let (text, start) = (self.text, self.at);
        while matches!(text.get(self.at), Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.')) {
            self.at += 1;
        }
        &text[start..self.at]
    }

    /// Walks over a value.
    fn skip(&mut self, depth: u32) -> Result<(), VersionError> {
        match self.peek() {
            Some(b'{') => self.members(depth, &mut |_, json, depth| json.skip(depth)),
            Some(b'[') => {
                let Some(depth) = depth.checked_sub(1) else { return self.wrong() };
                self.at += 1;
                if self.take(b']') {
                    return Ok(());
                }
                loop {
                    self.skip(depth)?;
                    if self.take(b']') {
                        return Ok(());
                    }
                    self.expect(b',')?;
                }
            }
            Some(b'"') => self.string().map(|_| ()),
            _ if self.scalar().is_empty() => self.wrong(),
            _ => Ok(()),
        }
    }
}
