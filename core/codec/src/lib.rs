//! Saved state as bytes, for the next process: a hand-over, an upgrade, a start after a loss of power.
//!
//! ```text
//!   magic, 8 bytes │ version u32 │ length u32 of all │ the state … │ CRC32C u32 of all before          all of it little-endian
//! ```
//! A [`SavedFormat`] is what stands around a state. Inside it, a type that is carried as a whole implements [`Code`]; [`coded`] does that for a
//! structure, by naming its fields once. Of a larger structure [`fields`] carries those that it names, each by its own `Code` or by a
//! [`Coder`] such as [`Left`], and gives the [`Row`]s of `docs/reference/formats.md` at the same time.
//!
//! Nothing in the bytes is trusted: reading ends in [`Damaged`] and reserves no memory for what is only promised. Times are carried
//! relative to now ([`Left`], [`Ago`]), since the clock of the next process may be another.
//! State that lies in shared memory and is changed in place is not written by this: see `docs/reference/formats.md`, "Memory regions".

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod code;
mod format;
mod macros;

pub use code::{Ago, Always, Code, Coder, Count, Counted, Flags, IsThere, Left, Own, Padded, Text, Unless};
pub use format::{SavedError, SavedFormat};

#[doc(hidden)]
pub use alloc::string::String;
use alloc::string::ToString;
#[doc(hidden)]
pub use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;

/// Bytes that are nothing of the kind, or that contradict themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// What a field is: a line of a table in `docs/reference/formats.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name in the source.
    pub name: String,
    /// How it is written, such as `u32`.
    pub kind: String,
    /// What it says.
    pub meaning: &'static str,
}

impl Row {
    /// Of a field that a coder writes.
    #[doc(hidden)]
    pub fn of_field<O, T, C: Coder<T>>(name: &str, _: fn(&O) -> &T, meaning: &'static str) -> Self {
        // As the compiler spells it, with blanks; several fields are a list.
        let name = name.split_whitespace().collect::<String>().replace(',', ", ");
        Row { name, kind: C::kind(), meaning: meaning.trim() }
    }

    /// Of several fields that a coder writes as one value.
    #[doc(hidden)]
    pub fn of_value<O, T, C: Coder<T>>(name: &str, _: fn(&O) -> T, meaning: &'static str) -> Self {
        Self::of_field::<T, T, C>(name, |value| value, meaning)
    }
}

impl fmt::Display for Row {
    /// As it stands there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| `{}` | {} | {} |", self.name, self.kind, self.meaning)
    }
}

/// Those of these states that a page does not show as they are, with the lines that it should have.
pub fn undocumented<'a>(page: &str, states: impl IntoIterator<Item = (&'a str, Vec<Row>)>) -> String {
    let mut missing = String::new();
    for (state, rows) in states {
        let lines: String = rows.iter().map(ToString::to_string).collect();
        if !page.contains(&lines) {
            missing += &alloc::format!("{state}:\n{lines}");
        }
    }
    missing
}

/// Collects bytes, little-endian.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    now: Nanos,
}

impl Writer {
    /// An empty one; times are relative to `now`.
    pub fn at(now: Nanos) -> Self {
        Self { bytes: Vec::new(), now }
    }

    /// An empty one with the same time.
    pub fn part(&self) -> Self {
        Self::at(self.now)
    }

    /// What was written.
    pub fn done(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The time that times are relative to.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A value.
    pub fn put<T: Code>(&mut self, value: &T) {
        value.put(self);
    }

    /// Values, one behind the other.
    pub fn many<'a, T: Code + 'a>(&mut self, values: impl IntoIterator<Item = &'a T>) {
        values.into_iter().for_each(|value| value.put(self));
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.put(&value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.put(&value);
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.put(&value);
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.put(&value);
    }

    /// Four bytes each.
    pub fn words<const N: usize>(&mut self, words: [u32; N]) {
        self.put(&words);
    }

    /// A length in 32 bits, and so many bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.array(bytes);
    }

    /// Bytes whose number the reader knows.
    pub fn array(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

/// Takes bytes apart; nothing in them is trusted.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    now: Nanos,
}

impl<'a> Reader<'a> {
    /// Of these bytes, where no time is among them.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::at(Nanos(0), bytes)
    }

    /// Of these bytes; times are relative to `now`.
    pub fn at(now: Nanos, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, now }
    }

    /// Of other bytes, with the same time.
    pub fn part<'b>(&self, bytes: &'b [u8]) -> Reader<'b> {
        Reader::at(self.now, bytes)
    }

    /// The time that times are relative to.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A value.
    ///
    /// # Errors
    /// The bytes end too early, or are no such value. So it is with all that follow.
    pub fn get<T: Code>(&mut self) -> Result<T, Damaged> {
        T::get(self)
    }

    /// So many values; nothing is reserved for those that are only promised.
    #[allow(clippy::missing_errors_doc)]
    pub fn many<T: Code>(&mut self, count: impl Into<u64>) -> Result<Vec<T>, Damaged> {
        (0..count.into()).map(|_| T::get(self)).collect()
    }

    /// The next `len` bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Damaged)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.take(N)?.try_into().map_err(|_| Damaged)
    }

    /// One byte.
    #[allow(clippy::missing_errors_doc)]
    pub fn u8(&mut self) -> Result<u8, Damaged> {
        self.get()
    }

    /// Two bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn u16(&mut self) -> Result<u16, Damaged> {
        self.get()
    }

    /// Four bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn u32(&mut self) -> Result<u32, Damaged> {
        self.get()
    }

    /// Eight bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn u64(&mut self) -> Result<u64, Damaged> {
        self.get()
    }

    /// What [`Writer::bytes`] wrote.
    #[allow(clippy::missing_errors_doc)]
    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// All that follows.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// That everything was read.
    #[allow(clippy::missing_errors_doc)]
    pub fn end(&self) -> Result<(), Damaged> {
        if self.is_empty() { Ok(()) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests;
