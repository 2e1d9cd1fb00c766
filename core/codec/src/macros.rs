//! Fields, listed once: from a list come writing, reading, and the lines of a table.

/// [`Code`](crate::Code) of a structure: its fields, in this order. `as` names a [`Coder`](crate::Coder), where a field is not written as its type is. Where they say what
/// they mean, `rows` gives the lines of their table in `docs/reference/formats.md`, for tests.
///
/// ```
/// struct Place { row: u16, column: u16 }
/// weir_codec::coded! { Place { row: "counted from the engine", column: "from the left" } }
/// ```
#[macro_export]
macro_rules! coded {
    ($($name:ident $(<$of:ty>)? { $($field:ident $(as $coder:ty)? $(: $meaning:literal)?),* $(,)? })*) => { $(
        impl $crate::Code for $name $(<$of>)? {
            fn put(&self, to: &mut $crate::Writer) {
                let $name { $($field),* } = self;
                $(<$crate::coder!($($coder)?) as $crate::Coder<_>>::put($field, to);)*
            }
            fn get(from: &mut $crate::Reader<'_>) -> ::core::result::Result<Self, $crate::Damaged> {
                $(let $field = <$crate::coder!($($coder)?) as $crate::Coder<_>>::get(from)?;)*
                Ok($name { $($field),* })
            }
            fn kind() -> $crate::String {
                stringify!($name).into()
            }
        }
        $crate::rows! { $name $(<$of>)? { $($field $(as $coder)? $(: $meaning)?),* } }
    )* };
}

/// The rows of a structure whose fields say what they mean.
#[doc(hidden)]
#[macro_export]
macro_rules! rows {
    ($of:ty { $($field:ident $(as $coder:ty)?: $meaning:literal),+ }) => {
        #[cfg(test)]
        impl $of {
            /// The lines of its table in `docs/reference/formats.md`.
            pub(crate) fn rows() -> $crate::Vec<$crate::Row> {
                [$($crate::row!($of, $crate::coder!($($coder)?), $meaning, $field)),*].into()
            }
        }
    };
    ($($other:tt)*) => {};
}

/// A structure that is there to be written: it, its [`Code`](crate::Code), and the rows of its table, which say what its fields' comments say.
///
/// ```
/// weir_codec::record! {
///     /// A seat.
///     pub struct Place {
///         /// Counted from the engine.
///         pub row: u16,
///         /// When it was sold.
///         pub since: weir_units::Nanos as weir_codec::Ago,
///     }
/// }
/// ```
#[macro_export]
macro_rules! record {
    ($(
        $(#[doc = $about:literal])* $vis:vis struct $name:ident {
            $(#[doc = $meaning:literal] $of:vis $field:ident: $kind:ty $(as $coder:ty)?),* $(,)?
        }
    )*) => { $(
        $(#[doc = $about])*
        #[derive(Debug)]
        $vis struct $name {
            $(#[doc = $meaning] $of $field: $kind,)*
        }
        $crate::coded! { $name { $($field $(as $coder)?: $meaning),* } }
    )* };
}

/// [`Code`](crate::Code) of an enumeration: the number of each of its values, and the type of the number.
///
/// ```
/// enum Colour { Red, Green }
/// weir_codec::numbered! { Colour: u8 { Red = 1, Green = 2 } }
/// ```
#[macro_export]
macro_rules! numbered {
    ($($name:ident: $number:ty { $($value:ident = $code:literal),* $(,)? })*) => { $(
        impl $crate::Code for $name {
            fn put(&self, to: &mut $crate::Writer) {
                let code: $number = match self { $($name::$value => $code),* };
                to.put(&code);
            }
            fn get(from: &mut $crate::Reader<'_>) -> ::core::result::Result<Self, $crate::Damaged> {
                match from.get::<$number>()? {
                    $($code => Ok($name::$value),)*
                    _ => Err($crate::Damaged),
                }
            }
            fn kind() -> $crate::String {
                concat!(stringify!($number) $(, ", ", $code, " ", stringify!($value))*).into()
            }
        }
    )* };
}

/// [`Code`](crate::Code) of a type that is written as another: how it becomes one, and how it comes of one, if it does.
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
/// a [`Coder`](crate::Coder), where a field is not written as its type is; one of several fields takes them as an array, or as a pair.
///
/// ```
/// use weir_codec::{Ago, Flags, Reader, Writer, fields};
/// use weir_units::Nanos;
/// #[derive(Default)]
/// struct Seat { row: Row, since: Nanos, sold: u64, free: bool }
/// #[derive(Default)]
/// struct Row { number: u16, first_class: bool }
/// fields! { Seat: put_taken, get_taken, taken_rows {
///     row.number: "which row",
///     [row.first_class, free] as Flags<u8>: "first class, free",
///     since as Ago: "when it was taken",
/// } }
/// let mut to = Writer::at(Nanos(50));
/// put_taken(&Seat { row: Row { number: 7, first_class: true }, since: Nanos(20), sold: 1, free: false }, &mut to);
/// let (bytes, mut seat) = (to.done(), Seat::default());
/// get_taken(&mut seat, &mut Reader::at(Nanos(1030), &bytes)).unwrap();
/// assert_eq!((seat.row.number, seat.row.first_class, seat.since, seat.sold), (7, true, Nanos(1000), 0));
/// ```
#[macro_export]
macro_rules! fields {
    ($vis:vis $of:ty: $put:ident, $get:ident, $rows:ident { $($($field:tt).+ $(as $coder:ty)?: $meaning:literal),* $(,)? }) => {
        /// Writes them.
        $vis fn $put(of: &$of, to: &mut $crate::Writer) {
            $(<$crate::coder!($($coder)?) as $crate::Coder<_>>::put(&$crate::place!(of $($field).+), to);)*
        }
        /// Reads them; what fails leaves some of them as they were.
        $vis fn $get(of: &mut $of, from: &mut $crate::Reader<'_>) -> ::core::result::Result<(), $crate::Damaged> {
            $($crate::place!(of $($field).+) = <$crate::coder!($($coder)?) as $crate::Coder<_>>::get(from)?;)*
            Ok(())
        }
        /// The lines of their table in `docs/reference/formats.md`.
        #[cfg(test)]
        $vis fn $rows() -> $crate::Vec<$crate::Row> {
            [$($crate::row!($of, $crate::coder!($($coder)?), $meaning, $($field).+)),*].into()
        }
    };
}

/// A field, or several of them as one value.
#[doc(hidden)]
#[macro_export]
macro_rules! place {
    ($of:ident [$($($field:tt).+),*]) => {
        [$($of.$($field).+),*]
    };
    ($of:ident ($($($field:tt).+),*)) => {
        ($($of.$($field).+),*)
    };
    ($of:ident $($field:tt).+) => {
        $of.$($field).+
    };
}

/// The row of a field, or of several: the types are known where they are named.
#[doc(hidden)]
#[macro_export]
macro_rules! row {
    ($of:ty, $coder:ty, $meaning:literal, [$($fields:tt)*]) => {
        $crate::Row::of_value::<$of, _, $coder>(stringify!($($fields)*), |of| $crate::place!(of [$($fields)*]), $meaning)
    };
    ($of:ty, $coder:ty, $meaning:literal, ($($fields:tt)*)) => {
        $crate::Row::of_value::<$of, _, $coder>(stringify!($($fields)*), |of| $crate::place!(of ($($fields)*)), $meaning)
    };
    ($of:ty, $coder:ty, $meaning:literal, $($field:tt).+) => {
        $crate::Row::of_field::<$of, _, $coder>(stringify!($($field).+), |of| &of.$($field).+, $meaning)
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
