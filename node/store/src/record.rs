//! What programs asked of a store, as their clients record it ([`ClientOptions::record`](crate::client::ClientOptions::record)) and
//! `weir fs bench replay` reads it: a text file a process, a line a call, without the bytes. docs/reference/formats.md has the columns.
//!
//! ```text
//!   Client ─ call ─► RecordLine ─ put ─► file ─► Record::read ─► replay
//! ```

mod line;
mod text;

pub use line::{RecordLine, RecordPath, RecordedCall, kind_name, kind_of, made_kind, made_of};

use line::COLUMNS;
use std::fmt;
use std::io::{BufRead, Read};
use text::{decode, encode};

/// How a record begins; the number is the version.
const MAGIC: &str = "# weir store record ";
/// Of what is written here.
const VERSION: u32 = 1;
/// The last line of a record whose process has closed its clients, or ended.
const END: &str = "# end";
/// The longest line: two paths, all of whose bytes take three.
const LONGEST_LINE: u64 = 64 << 10;
/// The errno of a read or write that its program did not wait for (`ECANCELED`).
pub const UNWAITED: i32 = 125;

/// Which process a record is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// Its program.
    pub program: String,
    /// Its number.
    pub process: u32,
    /// Its machine.
    pub host: String,
    /// When its times begin: nanoseconds since 1970.
    pub began: u64,
}

impl RecordHead {
    /// The lines before the first call.
    pub fn put(&self, to: &mut Vec<u8>) {
        let [program, host] = [&self.program, &self.host].map(|text| encode(text.as_bytes()));
        let Self { process, began, .. } = self;
        let text = format!(
            "{MAGIC}{VERSION}\n# program={program} process={process} host={host} began_ns={began}\n{}\n",
            COLUMNS.join(",")
        );
        to.extend_from_slice(text.as_bytes());
    }

    fn parse(line: &str) -> Result<Self, String> {
        let mut head = Self::default();
        let words = line.strip_prefix("# ").ok_or("the line that names the process is missing")?;
        for word in words.split(' ') {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("\"{word}\" is no key=value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{key}: \"{value}\" is no number"));
            let name = || decode(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            match key {
                "program" => head.program = name()?,
                "host" => head.host = name()?,
                "process" => head.process = u32::try_from(number()?).map_err(|_| "process: too large".to_owned())?,
                "began_ns" => head.began = number()?,
                _ => {}
            }
        }
        Ok(head)
    }
}

/// A record as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its process.
    pub head: RecordHead,
    /// Its calls, each when it was over.
    pub lines: Vec<RecordLine>,
    /// Whether the process has closed its clients, or ended. Else it was killed or its disk was full, and calls may be missing at the end.
    pub is_whole: bool,
    /// Calls that are missing because the file could not be written as fast as they came.
    pub lost: u64,
}

/// What is wrong with a record, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// From 1 on.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// The lines of a file, with their numbers.
struct Lines<R> {
    from: R,
    number: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// The next line that has an end; none at the end of the file, where a line without one was cut off.
    fn next(&mut self) -> Result<Option<&str>, RecordError> {
        self.bytes.clear();
        self.number += 1;
        let read = self.from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|e| RecordError { line: self.number, what: e.to_string() })?;
        if self.bytes.last() != Some(&b'\n') {
            return if read as u64 == LONGEST_LINE { Err(self.wrong("it is too long")) } else { Ok(None) };
        }
        self.bytes.pop();
        let text = std::str::from_utf8(&self.bytes);
        text.map(Some).map_err(|_| RecordError { line: self.number, what: "it is no text".into() })
    }

    fn wrong(&self, what: impl Into<String>) -> RecordError {
        RecordError { line: self.number, what: what.into() }
    }

    fn must(&mut self) -> Result<&str, RecordError> {
        let end = RecordError { line: self.number + 1, what: "the file ends here".into() };
        self.next()?.ok_or(end)
    }
}

impl Record {
    /// Reads a record to its end.
    ///
    /// # Errors
    /// It is none, of another version, or damaged; what is cut off at the end is left out.
    pub fn read(from: impl BufRead) -> Result<Self, RecordError> {
        let mut lines = Lines { from, number: 0, bytes: Vec::new() };
        let version = lines.next()?.and_then(|line| line.strip_prefix(MAGIC).map(str::to_owned));
        match version.as_deref() {
            None => return Err(lines.wrong("it is no record of a store's client")),
            Some(version) if version != VERSION.to_string() => {
                return Err(lines.wrong(format!("a record of version {version}; this program reads version {VERSION}")));
            }
            Some(_) => {}
        }
        let head = RecordHead::parse(lines.must()?).map_err(|what| lines.wrong(what))?;
        if lines.must()? != COLUMNS.join(",") {
            return Err(lines.wrong(format!("the columns are not {}", COLUMNS.join(","))));
        }
        let mut record = Record { head, ..Record::default() };
        while let Some(text) = lines.next()? {
            record.take(text).map_err(|what| lines.wrong(what))?;
        }
        Ok(record)
    }

    fn take(&mut self, text: &str) -> Result<(), String> {
        if self.is_whole {
            return Err("a line behind the end".into());
        }
        match text.strip_prefix("# lost=") {
            Some(lost) => self.lost += lost.parse::<u64>().map_err(|_| format!("lost: \"{lost}\" is no number"))?,
            None if text == END => self.is_whole = true,
            None => self.lines.push(RecordLine::parse(text)?),
        }
        Ok(())
    }

    /// The line that says that calls are missing.
    pub fn put_lost(lost: u64, to: &mut Vec<u8>) {
        to.extend_from_slice(format!("# lost={lost}\n").as_bytes());
    }

    /// The last line.
    pub fn put_end(to: &mut Vec<u8>) {
        to.extend_from_slice(format!("{END}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(call: RecordedCall, path: &[u8]) -> RecordLine {
        RecordLine { call, path: RecordPath::Absolute(path.into()), ..RecordLine::default() }
    }

    fn record() -> Record {
        let head = RecordHead { program: "a b,c".into(), process: 7, host: "n\u{e9}".into(), began: 1 << 60 };
        let opened = RecordLine { file: 3, length: 9, took: 5, ..line(RecordedCall::Open, b"/a,b#c%\n\xff") };
        let renamed = RecordLine { detail: b"/@x".into(), ..line(RecordedCall::Rename, b"/@y") };
        let inode = RecordPath::Entry { container: 12, name: b"n/ame".into() };
        let looked_up = RecordLine { path: inode, inode: 44, errno: 2, ..line(RecordedCall::Lookup, b"") };
        let read = RecordLine { path: RecordPath::Inode(5), offset: u64::MAX, ..line(RecordedCall::Read, b"") };
        Record { head, lines: vec![opened, renamed, looked_up, read], is_whole: true, lost: 0 }
    }

    fn text(record: &Record) -> Vec<u8> {
        let mut text = Vec::new();
        record.head.put(&mut text);
        record.lines.iter().for_each(|line| line.put(&mut text));
        if record.lost > 0 {
            Record::put_lost(record.lost, &mut text);
        }
        if record.is_whole {
            Record::put_end(&mut text);
        }
        text
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (is_whole, lost) in [(true, 0), (false, 0), (true, 9)] {
            let record = Record { is_whole, lost, ..record() };
            assert_eq!(Record::read(&text(&record)[..]).unwrap(), record);
        }
    }

    #[test]
    fn golden_bytes_of_version_1() {
        let golden = "# weir store record 1\n# program=weir process=7 host=n1 began_ns=9\n\
                      start_ns,took_ns,called_ns,thread,client,call,path,detail,file,offset,length,done,inode,errno\n\
                      10,20,15,1,1,open,/a%20b,r,3,0,4096,0,12,0\n30,5,5,1,1,read,,,3,0,100,100,0,0\n\
                      40,5,5,2,1,lookup,@1/x,,0,0,0,0,0,2\n# end\n";
        let record = Record::read(golden.as_bytes()).unwrap();
        assert_eq!((record.lines.len(), record.is_whole, record.head.process), (3, true, 7));
        assert_eq!(record.lines[0].path, RecordPath::Absolute(b"/a b".into()));
        assert_eq!(record.lines[2].path, RecordPath::Entry { container: 1, name: b"x".into() });
        assert_eq!(String::from_utf8(text(&record)).unwrap(), golden);
    }

    #[test]
    fn a_record_that_is_cut_off_has_its_whole_lines() {
        let all = text(&record());
        let first = all.len() - "# end\n".len();
        let cut = Record::read(&all[..first - 3]).unwrap();
        assert_eq!((cut.lines.len(), cut.is_whole), (3, false));
        assert_eq!(Record::read(&all[..first]).unwrap().lines.len(), 4);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let head = || {
            let mut text = Vec::new();
            record().head.put(&mut text);
            String::from_utf8(text).unwrap()
        };
        let good = "1,2,2,1,1,read,,,3,0,9,9,0,0\n";
        for (text, what) in [
            (String::new(), "line 1: it is no record of a store's client"),
            ("time_us,op,offset,length\n".into(), "line 1: it is no record of a store's client"),
            (head().replacen("record 1", "record 2", 1), "line 1: a record of version 2; this program reads version 1"),
            (head().lines().next().unwrap().to_owned() + "\n", "line 2: the file ends here"),
            (head().replacen("process=7", "process=x", 1), "line 2: process: \"x\" is no number"),
            (head().replacen("start_ns", "start", 1), "line 3: the columns are not start_ns,"),
            (head() + good + "1,2,3\n", "line 5: 3 columns, and there are 14"),
            (head() + &good.replace("read", "reads"), "line 4: there is no call \"reads\""),
            (head() + &good.replace(",3,0,9", ",3,-1,9"), "line 4: offset: \"-1\" is no number"),
            (
                head() + &good.replace("read,,", "read,/a%2,"),
                "line 4: path: \"/a%2\": % without two hexadecimal digits",
            ),
            (head() + &good.replace("read,,", "read,@x/a,"), "line 4: path: \"@x/a\" is no inode"),
            (head() + "# end\n" + good, "line 5: a line behind the end"),
            (head() + &"1".repeat(70_000), "line 4: it is too long"),
        ] {
            let said = Record::read(text.as_bytes()).unwrap_err().to_string();
            assert!(said.starts_with(what), "{said}, not {what}");
        }
        assert_eq!(Record::read(&b"\xff\n"[..]).unwrap_err().to_string(), "line 1: it is no text");
    }
}
