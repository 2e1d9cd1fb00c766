//! Sequential streams over the size of an operation: buffered, one operation after the other, and direct with 128 in flight.

use super::{MACHINE, StoreAccess, StoreDrive, StoreLoad, bytes, in_turn, ours};
use crate::reproduce::numbers::median;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};

const BUFFERED: &str = "The buffered stream reaches line speed at a transfer size of around 1KB";
const DIRECT: &str = "The direct stream reaches line speed at around 128KB with 128 outstanding operations.";
const SLIGHTLY: &str = "shows only slightly slower performance when compared to the DRAM tier buffered stream.";
const NO_COPY: &str = "Here no copy operation is performed for transfer size greater than 512Byte (sector size).";
const ONE_COPY: &str =
    "for sizes smaller than 1KB the buffered stream is limited by the copy speed to fill the application buffer.";

/// Of the most that a stream gives: from there on it has reached it.
const REACHED: f64 = 0.9;
/// Of the stream on memory: what "slightly slower" is held to.
const SLIGHT: f64 = 0.8;
/// Bytes of checksums and labels beside those of the file.
const HARDLY: f64 = 0.01;

const DIRECT_DEPTH: u32 = 128;

/// A stream of the figure.
#[derive(Clone, Copy, PartialEq)]
enum Stream {
    Buffered,
    Direct,
}

impl Stream {
    const fn name(self) -> &'static str {
        match self {
            Stream::Buffered => "buffered",
            Stream::Direct => "direct",
        }
    }

    fn load(self, write: bool, size: u32, effort: &Effort) -> StoreLoad {
        let operations = (effort.bytes / u64::from(size)).clamp(64, effort.most);
        let (access, depth) = match self {
            Stream::Buffered => (StoreAccess::Stream, 1),
            Stream::Direct => (StoreAccess::File, DIRECT_DEPTH),
        };
        StoreLoad { access, write, random: false, size, depth, operations }
    }
}

/// How thoroughly.
struct Effort {
    sizes: &'static [u32],
    rounds: usize,
    /// Bytes of a run, and operations at the most.
    bytes: u64,
    most: u64,
    writes: &'static [bool],
}

impl Effort {
    fn of(live: &dyn LiveMeasurements) -> Effort {
        const ALL: [u32; 13] =
            [128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288];
        match live.is_full() {
            true => Effort { sizes: &ALL, rounds: 7, bytes: 256 << 20, most: 200_000, writes: &[false, true] },
            false => {
                Effort { sizes: &[512, 1024, 8192, 131_072], rounds: 3, bytes: 32 << 20, most: 8_000, writes: &[false] }
            }
        }
    }

    /// Those that a stream can have: a direct one moves whole sectors, or it reads each sector again and again.
    fn of_stream(&self, stream: Stream) -> impl Iterator<Item = u32> {
        self.sizes.iter().copied().filter(move |size| stream == Stream::Buffered || *size >= 512)
    }
}

fn label(drive: StoreDrive, write: bool, stream: Stream, what: &str) -> String {
    format!("{}, {} {}, {what}", drive.name(), stream.name(), if write { "write" } else { "read" })
}

/// One stream on one drive: what it gives by size, where it reaches the most, and copies.
fn stream_rows(
    live: &mut dyn LiveMeasurements,
    drive: StoreDrive,
    write: bool,
    (stream, effort): (Stream, &Effort),
) -> Result<Vec<Row>, String> {
    let (mut rows, mut given, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for size in effort.of_stream(stream) {
        let found = &in_turn(live, drive, &[stream.load(write, size, effort)], effort.rounds)?[0];
        let megabytes = median(found.iter().map(|seen| seen.bandwidth / 1e6).collect());
        // A transfer above the sector's size, in the paper's words.
        if size > 512 {
            copies.push(median(found.iter().map(|seen| seen.copies).collect()));
        }
        given.push((size, megabytes));
        rows.push(Row::told(label(drive, write, stream, &bytes(size)), megabytes, "MB/s", "no operation failed"));
    }
    let most = given.iter().map(|(_, megabytes)| *megabytes).fold(0.0, f64::max);
    let reached = given.iter().find(|(_, megabytes)| *megabytes >= REACHED * most).map_or(0, |(size, _)| *size);
    let (bound, quote) = match stream {
        Stream::Buffered => (1024.0, BUFFERED),
        Stream::Direct => (131_072.0, DIRECT),
    };
    let at = label(drive, write, stream, "90 % of its most reached at");
    rows.push(Row::printed(at, f64::from(reached), "B", bound, PrintedBound::Below, quote));
    let (wanted, quote) = match stream {
        Stream::Buffered => (1.0, ONE_COPY),
        Stream::Direct => (0.0, NO_COPY),
    };
    let text = format!("{wanted}, counted in the client: \"{quote}\"");
    let most = copies.iter().copied().fold(0.0, f64::max);
    let holds = (most - wanted).abs() <= HARDLY;
    rows.push(Row::relation(label(drive, write, stream, "copies a byte, most of all sizes"), most, "", holds, text));
    let last = copies.last().copied().unwrap_or(0.0);
    rows.push(Row::told(label(drive, write, stream, "copies a byte, largest size"), last, "", "counted in the client"));
    Ok(rows)
}

/// The stream on flash beside that on memory, at the size where it has reached its most.
fn slightly(rows: &[Row], write: bool) -> Row {
    let of = |drive| ours(rows, &label(drive, write, Stream::Buffered, &bytes(1024))).unwrap_or(f64::NAN);
    let ratio = of(StoreDrive::Flash) / of(StoreDrive::Dram);
    let text = format!("at least {SLIGHT}, which is not in the paper: \"{SLIGHTLY}\"");
    let label = label(StoreDrive::Flash, write, Stream::Buffered, "1 KiB, over DRAM");
    Row::relation(label, ratio, "x", ratio >= SLIGHT, text)
}

/// Makes it.
pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let effort = Effort::of(live);
    let drives = [StoreDrive::Dram, StoreDrive::Flash];
    let (mut rows, mut done) = (Vec::new(), 0.0);
    for write in effort.writes {
        for drive in drives {
            for stream in [Stream::Buffered, Stream::Direct] {
                rows.extend(stream_rows(live, drive, *write, (stream, &effort))?);
                done += 1.0 / (4 * effort.writes.len()) as f64;
                live.progress(f64::min(done, 1.0));
            }
        }
        rows.push(slightly(&rows, *write));
    }
    live.stores().leave();
    let curve = |write: bool, drive: StoreDrive, stream: Stream| {
        let points = effort.of_stream(stream).map(|size| (f64::from(size), label(drive, write, stream, &bytes(size))));
        Curve::of_rows(format!("{}, {}", drive.name(), stream.name()), &rows, points)
    };
    let chart = |write: bool| {
        let curves = [Stream::Buffered, Stream::Direct].into_iter();
        let curves = curves.flat_map(|stream| drives.map(|drive| curve(write, drive, stream))).collect();
        let title = if write { "Writes" } else { "Reads" };
        Chart {
            title,
            axes: ("bytes of an operation", "MB/s"),
            scales: (Scale::Log, Scale::Log),
            curves,
            marks: Vec::new(),
        }
    };
    let charts = effort.writes.iter().map(|write| chart(*write)).collect();
    let about = vec![
        MACHINE.into(),
        format!(
            "Medians of {} runs of at most {} operations. Direct: 128 operations in flight. Buffered: one operation after the other through \
             a stream that has eight slices of 512 KiB under way; the paper's has 32. \"Reached\" is {:.0} % of the most that the stream gives \
             here, since there is no line.",
            effort.rounds,
            effort.most,
            REACHED * 100.0
        ),
        "Copies are counted where the client makes them: between its own buffers and the caller's, and where bytes of a drive come in \
         behind a header into the buffer that headers are received in. What the kernel copies is not among them."
            .into(),
    ];
    Ok(Figure { subject: Subject::CrailStreams, about, rows, notes: Vec::new(), charts })
}
