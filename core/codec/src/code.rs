//! How values are written.

use crate::{Damaged, Reader, Writer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use weir_units::Nanos;

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
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(C::get(from)?);
        }
        Ok(list)
    }
    fn kind() -> String {
        format!("count {}, each {}", N::kind(), C::kind())
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

impl Code for String {
    fn put(&self, to: &mut Writer) {
        to.bytes(self.as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        core::str::from_utf8(from.bytes()?).map(Into::into).map_err(|_| Damaged)
    }
    fn kind() -> String {
        "length u32, text".into()
    }
}

impl<T: Code, const N: usize> Code for [T; N] {
    fn put(&self, to: &mut Writer) {
        self.iter().for_each(|value| value.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut list = Vec::new();
        for _ in 0..N {
            list.push(T::get(from)?);
        }
        list.try_into().map_err(|_| Damaged)
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
        self.iter().for_each(|value| value.put(to));
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

/// [`Code`] of a structure: its fields, in this order.
///
/// ```
/// struct Place { row: u16, column: u16 }
/// weir_codec::coded! { Place { row, column } }
/// ```
#[macro_export]
macro_rules! coded {
    ($($name:ident $(<$of:ty>)? { $($field:ident),* $(,)? })*) => { $(
        impl $crate::Code for $name $(<$of>)? {
            fn put(&self, to: &mut $crate::Writer) {
                let $name { $($field),* } = self;
                $($crate::Code::put($field, to);)*
            }
            fn get(from: &mut $crate::Reader<'_>) -> ::core::result::Result<Self, $crate::Damaged> {
                $(let $field = $crate::Code::get(from)?;)*
                Ok($name { $($field),* })
            }
            fn kind() -> $crate::String {
                stringify!($name).into()
            }
        }
    )* };
}

/// [`Code`] of a type that is written as another: how it becomes one, and how it comes of one, if it does.
///
/// ```
/// struct Id(u32);
/// weir_codec::coded_as! { Id: u32, |id| id.0, |number| Some(Id(number)) }
/// ```
#[macro_export]
macro_rules! coded_as {
    ($($name:ty: $other:ty, $to:expr, $back:expr);* $(;)?) => { $(
        impl $crate::Code for $name {
            fn put(&self, to: &mut $crate::Writer) {
                let of: fn(&$name) -> $other = $to;
                $crate::Code::put(&of(self), to);
            }
            fn get(from: &mut $crate::Reader<'_>) -> ::core::result::Result<Self, $crate::Damaged> {
                let back: fn($other) -> Option<$name> = $back;
                back($crate::Code::get(from)?).ok_or($crate::Damaged)
            }
            fn kind() -> $crate::String {
                <$other as $crate::Code>::kind()
            }
        }
    )* };
}

/// Two functions, and a table for tests: fields of a structure that is there, by name, in the order in which they are written. `as` names
/// a [`Coder`], where a field is not written as its type is.
///
/// ```
/// use weir_codec::{Ago, Reader, Writer, fields};
/// use weir_units::Nanos;
/// #[derive(Default)]
/// struct Seat { row: Row, since: Nanos, sold: u64 }
/// #[derive(Default)]
/// struct Row { number: u16 }
/// fields! { Seat: put_taken, get_taken, taken_rows {
///     row.number: "which row",
///     since as Ago: "when it was taken",
/// } }
/// let mut to = Writer::at(Nanos(50));
/// put_taken(&Seat { row: Row { number: 7 }, since: Nanos(20), sold: 1 }, &mut to);
/// let (bytes, mut seat) = (to.done(), Seat::default());
/// get_taken(&mut seat, &mut Reader::at(Nanos(1030), &bytes)).unwrap();
/// assert_eq!((seat.row.number, seat.since, seat.sold), (7, Nanos(1000), 0));
/// ```
#[macro_export]
macro_rules! fields {
    ($vis:vis $of:ty: $put:ident, $get:ident, $rows:ident { $($($field:tt).+ $(as $coder:ty)?: $meaning:literal),* $(,)? }) => {
        /// Writes them.
        $vis fn $put(of: &$of, to: &mut $crate::Writer) {
            $(<$crate::coder!($($coder)?) as $crate::Coder<_>>::put(&of.$($field).+, to);)*
        }
        /// Reads them; what fails leaves some of them as they were.
        $vis fn $get(of: &mut $of, from: &mut $crate::Reader<'_>) -> ::core::result::Result<(), $crate::Damaged> {
            $(of.$($field).+ = <$crate::coder!($($coder)?) as $crate::Coder<_>>::get(from)?;)*
            Ok(())
        }
        /// The lines of their table in `docs/reference/formats.md`.
        #[cfg(test)]
        $vis fn $rows() -> $crate::Vec<$crate::Row> {
            // A field's type is known where it is named.
            fn kind<T, C: $crate::Coder<T>>(_: fn(&$of) -> &T, _: ::core::marker::PhantomData<C>) -> $crate::String {
                C::kind()
            }
            $crate::Vec::from([$($crate::Row {
                name: stringify!($($field).+).replace(' ', ""),
                kind: kind(|of| &of.$($field).+, ::core::marker::PhantomData::<$crate::coder!($($coder)?)>),
                meaning: $meaning,
            }),*])
        }
    };
}

/// The coder that was named, or a type's own.
#[doc(hidden)]
#[macro_export]
macro_rules! coder {
    () => {
        $crate::Own
    };
    ($coder:ty) => {
        $coder
    };
}
