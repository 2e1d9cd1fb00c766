//! Every format by example, and what is refused.

use super::*;
use weir_workload::JobRegion;

fn trace(stream: Option<&str>, format: Option<TraceFormat>) -> Trace {
    Trace { file: "t".into(), format, stream: stream.map(String::from), known: Vec::new() }
}

fn reader(trace: &Trace, text: &'static str) -> Result<Reader, TraceError> {
    Reader::new(trace, Box::new(text.as_bytes()))
}

fn all(trace: &Trace, text: &'static str) -> Result<Vec<(u64, Op, u64, u64)>, String> {
    let mut reader = reader(trace, text).map_err(|e| e.to_string())?;
    let mut records = Vec::new();
    while let Some(r) = reader.next_record().map_err(|e| e.to_string())? {
        records.push((r.at.0, r.op, r.offset, r.len));
    }
    Ok(records)
}

fn read(text: &'static str) -> Vec<(u64, Op, u64, u64)> {
    all(&trace(None, None), text).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn fio_version_2_waits() {
    let text = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a wait 5\n/dev/a read 0 4096\n\
                /dev/a write 8192 512\n/dev/a wait 100 0\n/dev/a sync 0 0\n/dev/a trim 4096 4096\n/dev/a close\n";
    let want = [
        (5_000, Op::Read, 0, 4096),
        (5_000, Op::Write, 8192, 512),
        (105_000, Op::Flush, 0, 0),
        (105_000, Op::Deallocate, 4096, 4096),
    ];
    assert_eq!(read(text), want);
}

#[test]
fn fio_version_3_has_times() {
    let text =
        "fio version 3 iolog\n7 /dev/a add\n10 /dev/a read 0 4096\n25 /dev/b write 512 512\n20 /dev/a datasync 0 0\n";
    let want = [(0, Op::Read, 0, 4096), (15_000, Op::Write, 512, 512), (15_000, Op::Flush, 0, 0)];
    assert_eq!(read(text), want, "time does not run backwards");
    let b = all(&trace(Some("/dev/b"), None), text).unwrap();
    assert_eq!(b, [(15_000, Op::Write, 512, 512)], "the clock is the whole trace's");
}

#[test]
fn blkparse_text() {
    let text = "  8,0    1        1     0.000000000  1234  Q   R 223490 + 8 [fio]
  8,0    1        2     0.000001000  1234  G   R 223490 + 8 [fio]
  8,0    1        3     0.000001500  1234  P   N [fio]
  8,0    1        4     0.000001600  1234  U   N [fio] 1
  8,0    0        0     0.000001700     0  m   N cfq1234 insert_request
  8,0    1        5     0.000002000  1234  Q WFS 16 + 16 [jbd2 sda 1]
  8,0    1        6     0.000003000  1234  Q  WS 64 + 1 [x]
  8,16   1        7     1.500000000  1234  Q   D 1024 + 2048 [x]
  8,0    1        8     2.000000001  1234  Q FWS [x]
CPU0 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           2,        8KiB
";
    let want = [
        (0, Op::Read, 223_490 * 512, 4096),
        (2_000, Op::Write, 8192, 8192),
        (3_000, Op::Write, 32_768, 512),
        (1_500_000_000, Op::Deallocate, 524_288, 1 << 20),
        (2_000_000_001, Op::Flush, 0, 0),
    ];
    assert_eq!(read(text), want);
    let issued = all(&trace(None, Some(TraceFormat::Blkparse('D'))), text).unwrap_err();
    assert!(issued.contains("no request with action D"), "{issued}");
    let other = all(&trace(Some("8,16"), None), text).unwrap();
    assert_eq!(other, [(1_500_000_000, Op::Deallocate, 524_288, 1 << 20)]);
    let mut r = reader(&trace(None, None), text).unwrap();
    let fua: Vec<bool> = std::iter::from_fn(|| r.next_record().unwrap()).map(|r| r.fua).collect();
    assert_eq!(fua, [false, true, false, false, false]);
}

#[test]
fn msr_cambridge() {
    let text = "128166372003061629,usr,0,Read,7014609920,24576,41286\r\n\
                128166372016382155,usr,1,Write,1317441536,8192,1963\r\n";
    let want = [(0, Op::Read, 7_014_609_920, 24_576), (1_332_052_600, Op::Write, 1_317_441_536, 8192)];
    assert_eq!(read(text), want);
    assert_eq!(all(&trace(Some("usr_1"), None), text).unwrap(), want[1..]);
}

#[test]
fn csv_by_its_header() {
    let text = "# of last night\ntenant,time_us,op,lba,blocks\ngold,10,read,8,8\n\ntin,12.5,W,16,1\ngold,13,flush,,\n";
    let want = [(0, Op::Read, 4096, 4096), (2_500, Op::Write, 8192, 512), (3_000, Op::Flush, 0, 0)];
    assert_eq!(read(text), want);
    assert_eq!(all(&trace(Some("tin"), None), text).unwrap(), want[1..2]);
    assert!(reader(&trace(None, None), "op,offset,length,tenant\n").unwrap().has_tenants());
    assert_eq!(read("op,offset,length\nr,0,1\nT,5,6"), [(0, Op::Read, 0, 1), (0, Op::Deallocate, 5, 6)]);
    let mut known = trace(Some("gold"), None);
    known.known = vec!["gold".into()];
    assert!(all(&known, text).unwrap_err().contains("t:5: there is no tenant \"tin\"; the simulation has gold"));
}

#[test]
fn what_does_not_parse_is_named_with_its_line() {
    for (text, says) in [
        ("", "t: is empty"),
        ("\n\n", "t:2: is empty"),
        ("hello\n", "t:1: is no trace of a known format"),
        ("fio version 4 iolog\n", "t:1: \"fio version 4 iolog\": versions 2 and 3"),
        ("fio version 2 iolog\n", "t:1: there is no request in it"),
        ("fio version 2 iolog\n/dev/a\n", "t:2: is not FILE ACTION"),
        ("fio version 2 iolog\n/dev/a read 0\n", "t:2: read takes OFFSET and LENGTH"),
        ("fio version 2 iolog\n/dev/a read x 1\n", "t:2: \"x\" where its offset is wanted"),
        ("fio version 2 iolog\n/dev/a erase 0 1\n", "t:2: unknown action \"erase\""),
        ("fio version 2 iolog\n/dev/a read 0 0\n", "t:2: a request of 0 bytes"),
        ("fio version 3 iolog\n1 /dev/a wait 1 1\n", "t:2: unknown action \"wait\" of fio version 3"),
        ("fio version 3 iolog\n/dev/a read 0 1\n", "t:2: \"/dev/a\" where its time stamp is wanted"),
        ("8,0 1 1 0.0 1 Q R 1 + 8\n8,0 1 2 0.0 1 Q R 1 + \n", "t:2: has no SECTOR + SECTORS"),
        ("8,0 1 1 0.0 1 Q R 1 + 8\n8,0 1 2 zero 1 Q R 1 + 8\n", "t:2: \"zero\" where its time is wanted"),
        ("8,0 1 1 0.0 1 Q R 1 + 8\nfoo\n", "t:2: does not begin with a device"),
        ("1,usr,0,Read,0,512,1\n2,usr,0,Erase,0,512,1\n", "t:2: the Type is \"Erase\""),
        ("1,usr,0,Read,0,512,1\n2,usr,0\n", "t:2: is not Timestamp,"),
        ("1,usr,0,Read,18446744073709551615,512,1\n", "t:1: a request that ends behind"),
        ("op,offset,length,color\n", "t:1: unknown column \"color\"; there is time_s"),
        ("op,offset,lba,length\n", "t:1: offset or lba: keep one"),
        ("op,offset\n", "t:1: there is no column length or blocks"),
        ("op,op,offset,length\n", "t:1: the column op stands twice"),
        ("op,offset,length\nread,1\n", "t:2: has 2 columns, and the header has 3"),
        ("op,offset,length\nfly,1,1\n", "t:2: the op is \"fly\""),
        ("op,lba,length\nr,18446744073709551615,1\n", "t:2: the offset is too large"),
        ("op,offset,length,time_s\nr,0,1,1.\n", "t:2: \"1.\" where its time is wanted"),
    ] {
        let got = all(&trace(None, None), text).expect_err(text);
        assert!(got.starts_with(says), "{text:?}: {got}");
    }
    let long: &'static str = Box::leak("a".repeat(70_000).into_boxed_str());
    assert!(all(&trace(None, None), long).unwrap_err().contains("t:1: a line of more than 65536 bytes"));
    let named = all(&trace(None, Some(TraceFormat::Fio(0))), "1,usr,0,Read,0,512,1\n").unwrap_err();
    assert!(named.starts_with("t:1: does not begin with \"fio version"), "{named}");
}

fn replay(text: &'static str, timing: ReplayTiming, fit: Fit) -> Result<Vec<(u64, u64, u32)>, String> {
    let region = JobRegion { offset: 1 << 20, len: 64 << 10 };
    let path = std::env::temp_dir().join(format!("weir-replay-{}-{:p}", std::process::id(), text.as_ptr()));
    std::fs::write(&path, text).unwrap();
    let file = Trace { file: path.clone(), ..trace(None, None) };
    let result = (|| {
        let mut replay = Replay::open(&file, (timing, fit), region, 4096, Nanos(1000))?;
        let mut draws = Vec::new();
        while replay.due() != Nanos::NEVER {
            let draw = replay.take().expect("one is due");
            draws.push((draw.due.0, draw.offset - region.offset, draw.len));
        }
        replay.error().cloned().map_or(Ok(draws), Err)
    })();
    std::fs::remove_file(&path).unwrap();
    result.map_err(|e| e.to_string())
}

#[test]
fn replay_fits_time_and_place() {
    let text = "time_ns,op,offset,length\n5,read,100,100\n25,write,69632,8192\n45,read,131071,1\n";
    let original = ReplayTiming::Original { speed: 1.0 };
    let error = replay(text, original, Fit::Strict).unwrap_err();
    assert!(error.contains(":3: a request ends at byte 77824, behind the 64KiB there are; write fit ="), "{error}");
    let wrapped = replay(text, original, Fit::Wrap).unwrap();
    assert_eq!(wrapped, [(1000, 0, 4096), (1020, 4096, 8192), (1040, 61_440, 4096)], "in whole blocks");
    let scaled = replay(text, ReplayTiming::Original { speed: 2.0 }, Fit::Scale { span: 131_072 }).unwrap();
    assert_eq!(scaled, [(1000, 0, 4096), (1010, 32_768, 8192), (1020, 61_440, 4096)]);
    let fast = replay(text, ReplayTiming::Fast, Fit::Wrap).unwrap();
    assert!(fast.iter().all(|(due, ..)| *due == 1000));
    let error = replay("op,offset,length\nt,0,1000000\n", original, Fit::Wrap).unwrap_err();
    assert!(error.contains("does not fit into 64KiB"), "{error}");
}
