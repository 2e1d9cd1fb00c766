//! Sizes, times and permissions as people read them.

use weir_store::{InodeKind, UnixNanos};

/// As `ls -h`: 1023, 1.5K, 20M; rounded up.
pub fn human(bytes: u64) -> String {
    let (mut unit, mut scale) = (0, 1_u64);
    while bytes >= scale.saturating_mul(1024) && unit < UNITS.len() - 1 {
        (unit, scale) = (unit + 1, scale * 1024);
    }
    if unit == 0 {
        return bytes.to_string();
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(scale));
    match tenths {
        0..100 => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit]),
        100..10_240 => format!("{}{}", tenths.div_ceil(10), UNITS[unit]),
        // Rounded up to a whole one of the next unit.
        _ => format!("1.0{}", UNITS.get(unit + 1).unwrap_or(&"K")),
    }
}

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// A number of bytes, or the same for people.
pub fn size(bytes: u64, for_people: bool) -> String {
    if for_people { human(bytes) } else { bytes.to_string() }
}

/// `drwxr-xr-x`.
pub fn permissions(kind: InodeKind, mode: u32) -> String {
    let kind = match kind {
        InodeKind::File => '-',
        InodeKind::Directory => 'd',
        InodeKind::Symlink => 'l',
        InodeKind::Multifile => 'm',
        InodeKind::Table => 't',
    };
    let bit = |at: u32, c: char| if mode >> at & 1 == 1 { c } else { '-' };
    let last = |at: u32, special: u32, [with, without]: [char; 2]| match (mode >> special & 1, mode >> at & 1) {
        (1, 1) => with,
        (1, _) => without,
        _ => bit(at, 'x'),
    };
    let own = [bit(8, 'r'), bit(7, 'w'), last(6, 11, ['s', 'S'])];
    let group = [bit(5, 'r'), bit(4, 'w'), last(3, 10, ['s', 'S'])];
    let others = [bit(2, 'r'), bit(1, 'w'), last(0, 9, ['t', 'T'])];
    std::iter::once(kind).chain(own).chain(group).chain(others).collect()
}

/// The word for a kind, also in JSON.
pub fn kind(kind: InodeKind) -> &'static str {
    match kind {
        InodeKind::File => "file",
        InodeKind::Directory => "directory",
        InodeKind::Symlink => "symlink",
        InodeKind::Multifile => "multifile",
        InodeKind::Table => "table",
    }
}

/// `2026-11-26 19:25`, with `seconds` `2026-11-26 19:25:41`; UTC.
pub fn time(at: UnixNanos, seconds: bool) -> String {
    let all = at.0 / 1_000_000_000;
    let (days, rest) = (all / 86_400, all % 86_400);
    let (year, month, day) = crate::calendar::date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let text = format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}");
    if seconds { format!("{text}:{second:02}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_coreutils_write_it() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_239, "10K"),
            (10_240, "10K"),
            (1_048_575, "1.0M"),
            (20 << 20, "20M"),
            (1023 << 20, "1023M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
        for (kind, mode, text) in [
            (InodeKind::Directory, 0o755, "drwxr-xr-x"),
            (InodeKind::File, 0o640, "-rw-r-----"),
            (InodeKind::Symlink, 0o777, "lrwxrwxrwx"),
            (InodeKind::File, 0o7755, "-rwsr-sr-t"),
            (InodeKind::File, 0o7644, "-rwSr-Sr-T"),
        ] {
            assert_eq!(permissions(kind, mode), text);
        }
    }

    #[test]
    fn days_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (1_795_721_141, "2026-11-26 19:25:41"),
        ] {
            assert_eq!(time(UnixNanos(seconds * 1_000_000_000), true), text);
        }
    }
}
