//! The latest events in a memory file that the keeper holds, so that they outlive the process that serves. See docs/reference/formats.md, "Events".
//!
//! ```text
//!   0    "WEIREVTS", version, size of a slot, slots, CRC32C of that
//!   64   slot 0: length, CRC32C, number, JSON …    an event's slot is its number modulo the slots
//! ```
//! A slot that was being written when its writer was killed fails its checksum and is left out. Whoever serves writes; the keeper does while
//! no worker does.

use super::event::NodeEvent;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use weir_sys::crc::{crc32c, crc32c_append};

/// Under which name the keeper holds it.
pub const NAME: &str = "events";
/// Events that are kept.
pub const SLOTS: u64 = 256;
/// Raised with every change of the layout; a ring of another version is begun anew.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"WEIREVTS";
/// Bytes of a slot, its head included.
const SLOT: u64 = 1024;
/// Bytes before the first slot.
const HEADER: u64 = 64;
/// Bytes before a slot's JSON: length, CRC, number.
const SLOT_HEAD: usize = 16;
/// Longest JSON of an event.
const MOST: usize = SLOT as usize - SLOT_HEAD;
/// What a text is cut down to where an event would not fit.
const CUT: usize = 120;

/// See the [module](self).
#[derive(Debug)]
pub struct EventRing {
    file: File,
}

fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for word in [VERSION, SLOT as u32, SLOTS as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes.resize(HEADER as usize, 0);
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn checksum(number: u64, json: &[u8]) -> u32 {
    crc32c_append(crc32c(&number.to_le_bytes()), json)
}

/// A text without what goes beyond so many bytes.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// An event's JSON, its texts cut down where they would not fit.
fn json(event: &NodeEvent) -> Option<Vec<u8>> {
    let whole = serde_json::to_vec(event).ok()?;
    if whole.len() <= MOST {
        return Some(whole);
    }
    let mut short = event.clone();
    cut(&mut short.text, CUT);
    let names = [&mut short.evidence, &mut short.device, &mut short.pool, &mut short.tenant];
    names.into_iter().flatten().for_each(|text| cut(text, CUT));
    serde_json::to_vec(&short).ok().filter(|bytes| bytes.len() <= MOST)
}

impl EventRing {
    /// An empty one in this file, which is empty.
    ///
    /// # Errors
    /// No memory is left.
    pub fn create(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        file.set_len(HEADER + SLOTS * SLOT)?;
        file.write_all_at(&header(), 0)?;
        Ok(Self { file })
    }

    /// One that another process made, with what is in it, in the order of the numbers. One of another version is emptied.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(fd: OwnedFd) -> io::Result<(Self, Vec<NodeEvent>)> {
        let file = File::from(fd);
        let mut bytes = vec![0; (HEADER + SLOTS * SLOT) as usize];
        let is_whole = file.metadata()?.len() == bytes.len() as u64;
        if is_whole {
            file.read_exact_at(&mut bytes, 0)?;
        }
        if !is_whole || bytes[..HEADER as usize] != header()[..] {
            file.set_len(0)?;
            return Ok((Self::create(file.into())?, Vec::new()));
        }
        let slots = bytes[HEADER as usize..].chunks(SLOT as usize);
        let mut events: Vec<NodeEvent> = slots.filter_map(event).collect();
        events.sort_by_key(|event| event.number);
        Ok((Self { file }, events))
    }

    /// Writes an event, which has its number, over the oldest one.
    ///
    /// # Errors
    /// It is too long, or no memory is left.
    pub fn write(&self, event: &NodeEvent) -> io::Result<()> {
        let json = json(event).ok_or_else(|| io::Error::other("an event is too long to outlive the process"))?;
        let mut slot = (json.len() as u32).to_le_bytes().to_vec();
        slot.extend(checksum(event.number, &json).to_le_bytes());
        slot.extend(event.number.to_le_bytes());
        slot.extend(json);
        self.file.write_all_at(&slot, HEADER + event.number % SLOTS * SLOT)
    }

    /// The file, for the keeper.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// What is in a slot, if it is whole.
fn event(slot: &[u8]) -> Option<NodeEvent> {
    let (length, crc) = (word(slot, 0) as usize, word(slot, 4));
    let number = u64::from_le_bytes(slot.get(8..SLOT_HEAD)?.try_into().ok()?);
    let json = slot.get(SLOT_HEAD..SLOT_HEAD.checked_add(length)?)?;
    let event: NodeEvent = serde_json::from_slice(json).ok().filter(|_| number > 0 && crc == checksum(number, json))?;
    (event.number == number).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{EventLevel, kind};
    use weir_sys::keeper_channel::memory_file;

    fn numbered(number: u64) -> NodeEvent {
        NodeEvent { number, unix_ms: 7, kind: kind::WORKER.into(), what: "serving".into(), ..NodeEvent::default() }
    }

    fn ring() -> EventRing {
        EventRing::create(memory_file("events-test").unwrap()).unwrap()
    }

    fn again(ring: &EventRing) -> Vec<NodeEvent> {
        EventRing::open(ring.file().try_clone().unwrap().into()).unwrap().1
    }

    #[test]
    fn the_latest_are_kept_in_order() {
        let ring = ring();
        (1..=SLOTS + 10).for_each(|number| ring.write(&numbered(number)).unwrap());
        let numbers: Vec<u64> = again(&ring).iter().map(|event| event.number).collect();
        assert_eq!(numbers, (11..=SLOTS + 10).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_torn_is_left_out() {
        let ring = ring();
        (1..=3).for_each(|number| ring.write(&numbered(number)).unwrap());
        ring.file().write_all_at(b"x", HEADER + 2 * SLOT + 20).unwrap();
        assert_eq!(again(&ring).iter().map(|event| event.number).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn one_of_another_version_is_begun_anew() {
        let ring = ring();
        ring.write(&numbered(1)).unwrap();
        ring.file().write_all_at(&2u32.to_le_bytes(), 8).unwrap();
        assert_eq!(again(&ring), []);
        ring.write(&numbered(2)).unwrap();
        assert_eq!(again(&ring).len(), 1, "it is used from then on");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let ring = ring();
        let text = "ä".repeat(2000);
        ring.write(&NodeEvent { text, evidence: Some("e".repeat(500)), ..numbered(1) }).unwrap();
        let found = again(&ring).remove(0);
        assert!(found.text.starts_with("ää") && found.text.ends_with('…') && found.text.len() <= CUT + 4);
    }

    /// The bytes of version 1: a program of today's writes them, and later ones read them.
    #[test]
    fn golden_bytes_of_version_1() {
        let ring = ring();
        ring.write(&NodeEvent { level: EventLevel::Warning, text: "t".into(), ..numbered(1) }).unwrap();
        let mut bytes = vec![0; (HEADER + 2 * SLOT) as usize];
        ring.file().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..20], *b"WEIREVTS\x01\0\0\0\0\x04\0\0\0\x01\0\0");
        let json = br#"{"number":1,"unix_ms":7,"kind":"worker","what":"serving","level":"warning","text":"t"}"#;
        let at = (HEADER + SLOT) as usize;
        assert_eq!(word(&bytes, at) as usize, json.len());
        assert_eq!(bytes[at + 8..at + 16], 1u64.to_le_bytes());
        assert_eq!(&bytes[at + 16..at + 16 + json.len()], json, "{}", String::from_utf8_lossy(&bytes[at + 16..]));
        assert_eq!(word(&bytes, at + 4), crc32c(&bytes[at + 8..at + 16 + json.len()]));
    }
}
