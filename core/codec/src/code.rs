//! How values are written.

use crate::{Damaged, Reader, Writer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use weir_spec::nvme::{Cqe, Sqe, Status};
use weir_spec::vfio_user::Command;
use weir_spec::vhost_user::{MemoryRegion, Request, VringAddress};
use weir_units::Nanos;
use zerocopy::{FromBytes, IntoBytes};

/// What can be written and read again.
pub trait Code: Sized {
    /// Appends it.
    fn put(&self, to: &mut Writer);

    /// Reads what [`put`](Self::put) has written.
    ///
    /// # Errors
    /// The bytes end too early or are nothing of the kind.
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged>;

    /// How it is written, for a table.
    fn kind() -> String;
}

/// A way to write a `T` that is not its own, or of a type that has none.
pub trait Coder<T> {
    /// Appends it.
    fn put(value: &T, to: &mut Writer);

    /// Reads what [`put`](Self::put) has written.
    ///
    /// # Errors
    /// The bytes end too early or are nothing of the kind.
    fn get(from: &mut Reader<'_>) -> Result<T, Damaged>;

    /// How it is written, for a table.
    fn kind() -> String;
}

/// A type's own [`Code`].
#[derive(Debug)]
pub struct Own;

impl<T: Code> Coder<T> for Own {
    fn put(value: &T, to: &mut Writer) {
        value.put(to);
    }
    fn get(from: &mut Reader<'_>) -> Result<T, Damaged> {
        T::get(from)
    }
    fn kind() -> String {
        T::kind()
    }
}

/// A time that is to come: how long until then, ns; all ones for never.
#[derive(Debug)]
pub struct Left;

impl Coder<Nanos> for Left {
    fn put(until: &Nanos, to: &mut Writer) {
        to.u64(if *until == Nanos::NEVER { u64::MAX } else { until.saturating_sub(to.now()).get() });
    }
    fn get(from: &mut Reader<'_>) -> Result<Nanos, Damaged> {
        Ok(match from.u64()? {
            u64::MAX => Nanos::NEVER,
            left => from.now().saturating_add(Nanos(left)),
        })
    }
    fn kind() -> String {
        "u64: ns until then, all ones for never".into()
    }
}

/// A time that has passed: how long ago it was, ns.
#[derive(Debug)]
pub struct Ago;

impl Coder<Nanos> for Ago {
    fn put(since: &Nanos, to: &mut Writer) {
        to.u64(to.now().saturating_sub(*since).get());
    }
    fn get(from: &mut Reader<'_>) -> Result<Nanos, Damaged> {
        Ok(from.now().saturating_sub(Nanos(from.u64()?)))
    }
    fn kind() -> String {
        "u64: ns since then".into()
    }
}

/// A pair, each of the two by its own.
impl<A, B, X: Coder<A>, Y: Coder<B>> Coder<(A, B)> for (X, Y) {
    fn put(value: &(A, B), to: &mut Writer) {
        X::put(&value.0, to);
        Y::put(&value.1, to);
    }
    fn get(from: &mut Reader<'_>) -> Result<(A, B), Damaged> {
        Ok((X::get(from)?, Y::get(from)?))
    }
    fn kind() -> String {
        format!("{}, {}", X::kind(), Y::kind())
    }
}

/// What may be absent, with room for it all the same: whether it is there, and a value, by `C`, that counts only then.
#[derive(Debug)]
pub struct Always<C = Own>(PhantomData<C>);

impl<T: Default, C: Coder<T>> Coder<Option<T>> for Always<C> {
    fn put(value: &Option<T>, to: &mut Writer) {
        to.u8(value.is_some().into());
        match value {
            Some(value) => C::put(value, to),
            None => C::put(&T::default(), to),
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Option<T>, Damaged> {
        let is_there = bool::get(from)?;
        let value = C::get(from)?;
        Ok(is_there.then_some(value))
    }
    fn kind() -> String {
        format!("whether it is there u8, {}", C::kind())
    }
}

/// Whether something is there, of which the rest is written elsewhere: it is read as an empty one.
#[derive(Debug)]
pub struct IsThere;

impl<T: Default> Coder<Option<T>> for IsThere {
    fn put(value: &Option<T>, to: &mut Writer) {
        to.put(&value.is_some());
    }
    fn get(from: &mut Reader<'_>) -> Result<Option<T>, Damaged> {
        Ok(bool::get(from)?.then(T::default))
    }
    fn kind() -> String {
        bool::kind()
    }
}

/// What may be absent, and then is the `N` that no value is written as.
#[derive(Debug)]
pub struct Unless<N, const NONE: u64>(PhantomData<N>);

impl<N: Code + TryFrom<u64> + Into<u64>, T: Code, const NONE: u64> Coder<Option<T>> for Unless<N, NONE> {
    fn put(value: &Option<T>, to: &mut Writer) {
        match (value, N::try_from(NONE)) {
            (Some(value), _) => value.put(to),
            (None, Ok(none)) => none.put(to),
            (None, Err(_)) => {}
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Option<T>, Damaged> {
        let mut ahead = from.clone();
        if N::get(&mut ahead)?.into() != NONE {
            return T::get(from).map(Some);
        }
        *from = ahead;
        Ok(None)
    }
    fn kind() -> String {
        format!("{}; {} for none", T::kind(), if NONE == 0 { "0" } else { "all ones" })
    }
}

/// Flags as an `N`, the first one in bit 0. Another bit is set in no flags.
#[derive(Debug)]
pub struct Flags<N>(PhantomData<N>);

impl<N: Code + TryFrom<u64> + Into<u64>, const COUNT: usize> Coder<[bool; COUNT]> for Flags<N> {
    fn put(flags: &[bool; COUNT], to: &mut Writer) {
        const { assert!(COUNT <= 8 * size_of::<N>()) };
        let bits = (0..).zip(flags).fold(0, |all, (bit, is)| all | u64::from(*is) << bit);
        N::try_from(bits).iter().for_each(|bits| bits.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<[bool; COUNT], Damaged> {
        let bits: u64 = N::get(from)?.into();
        let flags = core::array::from_fn(|bit| bits >> bit & 1 == 1);
        if (bits as u128) >> COUNT == 0 { Ok(flags) } else { Err(Damaged) }
    }
    fn kind() -> String {
        format!("{}, a bit each from bit 0 on", N::kind())
    }
}

/// A number of bytes or places, as an `N`.
#[derive(Debug)]
pub struct Count<N>(PhantomData<N>);

impl<N: Code + TryFrom<usize> + Into<u64>> Coder<usize> for Count<N> {
    fn put(count: &usize, to: &mut Writer) {
        N::try_from((*count).min(most::<N>())).iter().for_each(|count| count.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<usize, Damaged> {
        N::get(from)?.into().try_into().map_err(|_| Damaged)
    }
    fn kind() -> String {
        N::kind()
    }
}

/// Bytes, and so many zeroes behind them that they are `LEN`.
#[derive(Debug)]
pub struct Padded<const LEN: usize>;

impl<const LEN: usize, const N: usize> Coder<[u8; N]> for Padded<LEN> {
    fn put(bytes: &[u8; N], to: &mut Writer) {
        const { assert!(N <= LEN) };
        to.array(bytes);
        (N..LEN).for_each(|_| to.u8(0));
    }
    fn get(from: &mut Reader<'_>) -> Result<[u8; N], Damaged> {
        let bytes = from.array()?;
        from.take(LEN - N)?;
        Ok(bytes)
    }
    fn kind() -> String {
        <[u8; LEN]>::kind()
    }
}

/// A list whose length is an `N`, each of its values by `C`.
#[derive(Debug)]
pub struct Counted<N, C = Own>(PhantomData<(N, C)>);

impl<N: Code + TryFrom<usize> + Into<u64>, T, C: Coder<T>> Coder<Vec<T>> for Counted<N, C> {
    fn put(list: &Vec<T>, to: &mut Writer) {
        // A list that is longer than its count can say is cut off, as it is read.
        let cut = list.iter().take(most::<N>());
        if let Ok(count) = N::try_from(cut.len()) {
            count.put(to);
            cut.for_each(|value| C::put(value, to));
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Vec<T>, Damaged> {
        let count: u64 = N::get(from)?.into();
        (0..count).map(|_| C::get(from)).collect()
    }
    fn kind() -> String {
        format!("count {}, each {}", N::kind(), C::kind())
    }
}

/// Text whose length in bytes is an `N`.
impl<N: Code + TryFrom<usize> + Into<u64>> Coder<String> for Counted<N> {
    fn put(text: &String, to: &mut Writer) {
        // A longer one is cut off, as a list is.
        let cut = text.len().min(most::<N>());
        <Count<N> as Coder<usize>>::put(&cut, to);
        to.many(&text.as_bytes()[..cut]);
    }
    fn get(from: &mut Reader<'_>) -> Result<String, Damaged> {
        let len = <Count<N> as Coder<usize>>::get(from)?;
        core::str::from_utf8(from.take(len)?).map(Into::into).map_err(|_| Damaged)
    }
    fn kind() -> String {
        format!("length {}, text", N::kind())
    }
}

fn most<N>() -> usize {
    match size_of::<N>() {
        1 => u8::MAX.into(),
        2 => u16::MAX.into(),
        _ => u32::MAX as usize,
    }
}

/// Text, or another value that text stands for.
#[derive(Debug)]
pub struct Text;

impl<T: core::str::FromStr + alloc::string::ToString> Coder<Option<T>> for Text {
    fn put(value: &Option<T>, to: &mut Writer) {
        to.bytes(value.as_ref().map(T::to_string).unwrap_or_default().as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Option<T>, Damaged> {
        match core::str::from_utf8(from.bytes()?).map_err(|_| Damaged)? {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| Damaged),
        }
    }
    fn kind() -> String {
        "length u32, text; empty for none".into()
    }
}

macro_rules! integers {
    ($($kind:ident)*) => { $(
        impl Code for $kind {
            fn put(&self, to: &mut Writer) {
                to.array(&self.to_le_bytes());
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                from.array().map($kind::from_le_bytes)
            }
            fn kind() -> String {
                stringify!($kind).into()
            }
        }
    )* };
}
integers!(u8 u16 u32 u64);

impl Code for bool {
    fn put(&self, to: &mut Writer) {
        to.u8((*self).into());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }
    fn kind() -> String {
        "u8, 0 or 1".into()
    }
}

impl Code for Nanos {
    fn put(&self, to: &mut Writer) {
        to.u64(self.get());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        from.u64().map(Nanos)
    }
    fn kind() -> String {
        "u64, ns".into()
    }
}

crate::coded_as! {
    Status: u16, |status| status.field(), |field| Some(Status::from_field(field));
    Request: u32, |request| request.0, |number| Some(Request(number));
    Command: u16, |command| command.0, |number| Some(Command(number));
}

/// Structures of the standards are written as they are there.
macro_rules! standards {
    ($($kind:ident)*) => { $(
        impl Code for $kind {
            fn put(&self, to: &mut Writer) {
                to.array(self.as_bytes());
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                $kind::read_from_bytes(from.take(size_of::<$kind>())?).map_err(|_| Damaged)
            }
            fn kind() -> String {
                format!("{} bytes", size_of::<$kind>())
            }
        }
    )* };
}
standards!(Sqe Cqe MemoryRegion VringAddress);

impl Code for String {
    fn put(&self, to: &mut Writer) {
        Counted::<u32>::put(self, to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Counted::<u32>::get(from)
    }
    fn kind() -> String {
        <Counted<u32> as Coder<String>>::kind()
    }
}

impl<T: Code, const N: usize> Code for [T; N] {
    fn put(&self, to: &mut Writer) {
        to.many(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        from.many(N as u64)?.try_into().map_err(|_| Damaged)
    }
    fn kind() -> String {
        format!("{N} × {}", T::kind())
    }
}

impl<A: Code, B: Code> Code for (A, B) {
    fn put(&self, to: &mut Writer) {
        self.0.put(to);
        self.1.put(to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok((A::get(from)?, B::get(from)?))
    }
    fn kind() -> String {
        format!("{}, {}", A::kind(), B::kind())
    }
}

impl<T: Code> Code for Option<T> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
    fn kind() -> String {
        format!("whether it is there u8, and then {}", T::kind())
    }
}

impl<T: Code> Code for Vec<T> {
    fn put(&self, to: &mut Writer) {
        Counted::<u32>::put(self, to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Counted::<u32>::get(from)
    }
    fn kind() -> String {
        <Counted<u32> as Coder<Vec<T>>>::kind()
    }
}

impl<T: Code> Code for VecDeque<T> {
    fn put(&self, to: &mut Writer) {
        to.u32(self.len() as u32);
        to.many(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Vec::get(from).map(Into::into)
    }
    fn kind() -> String {
        Vec::<T>::kind()
    }
}

/// In order, and none twice.
impl<K: Code + Ord, V: Code> Code for BTreeMap<K, V> {
    fn put(&self, to: &mut Writer) {
        to.u32(self.len() as u32);
        for (key, value) in self {
            key.put(to);
            value.put(to);
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let all: Vec<(K, V)> = Vec::get(from)?;
        if !all.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(Damaged);
        }
        Ok(all.into_iter().collect())
    }
    fn kind() -> String {
        Vec::<(K, V)>::kind()
    }
}
