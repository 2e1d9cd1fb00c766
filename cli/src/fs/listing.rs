//! `ls`, `stat` and `du`.

use super::args::{DuArgs, LsArgs};
use super::files::{Entry, Files};
use super::operands::{Found, Operands};
use super::path::{join, shown};
use super::text::{kind, permissions, size, time};
use crate::failure::CommandFailure;
use crate::output;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use weir_store::{ClassId, Content, Inode, InodeKind};
use weir_store_node::client::ClientError;

/// A line of a list.
struct Line {
    name: Vec<u8>,
    path: Vec<u8>,
    kind: InodeKind,
    inode: Option<Inode>,
    /// Names of the inode's classes.
    classes: Vec<String>,
}

/// `weir fs ls`.
pub fn ls(operands: &mut Operands<'_>, args: &LsArgs, json: bool) -> Result<(), CommandFailure> {
    let found = operands.or_root(&args.paths)?;
    let titled = found.len() > 1 || args.recursive;
    let (mut plain, mut folders) = (Vec::new(), Vec::new());
    for one in found {
        // As ls: a link that is named leads on, unless it is looked at itself.
        let follow = !args.long && !args.directory;
        match one.files.stat(&one.at.path, follow) {
            Ok(inode) if inode.kind.is_container() && !args.directory => folders.push(one),
            Ok(inode) => plain.push((one, inode)),
            Err(e) => operands.fail(e),
        }
    }
    let mut list = List { args, json, all: Vec::new(), out: Vec::new(), blank: false };
    let line = |(one, inode): (Found, Inode)| {
        let (path, classes) = (one.at.path, class_names(&one.files.class_names(), &inode));
        Line { name: path.clone(), path, kind: inode.kind, inode: Some(inode), classes }
    };
    let plain: Vec<Line> = plain.into_iter().map(line).collect();
    if !plain.is_empty() {
        list.put(None, plain);
    }
    for folder in folders {
        list.folder(operands, &folder, titled);
    }
    list.finish()
}

struct List<'a> {
    args: &'a LsArgs,
    json: bool,
    all: Vec<Value>,
    out: Vec<u8>,
    /// Something stands above what comes next.
    blank: bool,
}

impl List<'_> {
    /// What is in a folder, and with `-R` in those below it.
    fn folder(&mut self, operands: &mut Operands<'_>, folder: &Found, titled: bool) {
        let mut left = vec![folder.at.path.clone()];
        while let Some(path) = left.pop() {
            match self.lines(&*folder.files, &path) {
                Ok(lines) => {
                    if self.args.recursive {
                        let below = lines.iter().filter(|line| line.kind == InodeKind::Directory);
                        let below: Vec<_> = below.map(|line| line.path.clone()).collect();
                        left.extend(below.into_iter().rev());
                    }
                    self.put(titled.then_some(&path), lines);
                }
                Err(e) => operands.fail(e),
            }
        }
    }

    fn lines(&self, files: &dyn Files, path: &[u8]) -> Result<Vec<Line>, ClientError> {
        let needs_inode = self.args.long || self.args.by_time || self.args.by_size || self.json;
        let (mut lines, names) = (Vec::new(), files.class_names());
        for entry in files.list(path)? {
            let Entry { name, kind, inode } = entry?;
            let path = join(path, &name);
            let inode = match inode {
                None if needs_inode => match files.stat(&path, false) {
                    Ok(inode) => Some(inode),
                    // Removed since it was listed.
                    Err(e) if e.is_not_found() => continue,
                    Err(e) => return Err(e),
                },
                inode => inode,
            };
            let classes = inode.as_ref().map(|inode| class_names(&names, inode)).unwrap_or_default();
            lines.push(Line { name, path, kind, inode, classes });
        }
        Ok(lines)
    }

    fn put(&mut self, title: Option<&[u8]>, mut lines: Vec<Line>) {
        let of = |line: &Line, what: fn(&Inode) -> u64| line.inode.as_ref().map_or(0, what);
        if self.args.by_time {
            lines.sort_by_key(|line| std::cmp::Reverse(of(line, |inode| inode.modified.0)));
        }
        if self.args.by_size {
            lines.sort_by_key(|line| std::cmp::Reverse(of(line, |inode| inode.size)));
        }
        if self.args.reverse {
            lines.reverse();
        }
        if self.json {
            let value = |line: &Line| match &line.inode {
                Some(inode) => value(&line.path, inode, &line.classes),
                None => json!({ "path": String::from_utf8_lossy(&line.path), "kind": kind(line.kind) }),
            };
            self.all.extend(lines.iter().map(value));
            return;
        }
        if std::mem::replace(&mut self.blank, true) && title.is_some() {
            self.out.push(b'\n');
        }
        if let Some(title) = title {
            self.out.extend([name(title).as_slice(), b":\n"].concat());
        }
        let columns: Vec<[String; 5]> =
            if self.args.long { lines.iter().map(|line| self.columns(line)).collect() } else { Vec::new() };
        let width = |at: usize| columns.iter().map(|row| row[at].len()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4].map(width);
        for (i, line) in lines.iter().enumerate() {
            if let Some([mode, copies, owner, bytes, time]) = columns.get(i) {
                let [_, copies_width, owner_width, bytes_width, _] = widths;
                let text =
                    format!("{mode} {copies:>copies_width$} {owner:<owner_width$} {bytes:>bytes_width$} {time} ");
                self.out.extend(text.into_bytes());
            }
            self.out.extend(name(&line.name));
            if let (true, Some(Content::Target(target))) = (self.args.long, line.inode.as_ref().map(|i| &i.content)) {
                self.out.extend([b" -> ", name(target).as_slice()].concat());
            }
            self.out.push(b'\n');
        }
    }

    fn columns(&self, line: &Line) -> [String; 5] {
        let Some(inode) = &line.inode else { return Default::default() };
        let copies = if inode.kind == InodeKind::File { inode.copies.to_string() } else { "-".into() };
        [
            permissions(inode.kind, inode.mode),
            copies,
            format!("{}:{}", inode.uid, inode.gid),
            size(inode.size, self.args.human_readable),
            time(inode.modified, false),
        ]
    }

    fn finish(self) -> Result<(), CommandFailure> {
        if self.json { output::json(&self.all) } else { output::raw(&self.out) }
    }
}

/// A name as it is; on a terminal without what would move the cursor.
fn name(bytes: &[u8]) -> Vec<u8> {
    if !std::io::stdout().is_terminal() {
        return bytes.to_vec();
    }
    let plain = String::from_utf8_lossy(bytes);
    plain.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into_bytes()
}

/// The classes that new blocks of an inode are of, best first, among the names of all; none: those of the store.
fn class_names(all: &[String], inode: &Inode) -> Vec<String> {
    let name = |id: &ClassId| all.get(usize::from(id.0)).cloned().unwrap_or_else(|| format!("class {}", id.0));
    inode.classes.iter().map(name).collect()
}

/// What JSON says of a path.
fn value(path: &[u8], inode: &Inode, classes: &[String]) -> Value {
    let mut value = json!({
        "path": String::from_utf8_lossy(path), "kind": kind(inode.kind), "size": inode.size, "mode": inode.mode,
        "uid": inode.uid, "gid": inode.gid, "copies": inode.copies, "classes": classes, "block_bytes": inode.block,
        "created_ns": inode.created.0, "modified_ns": inode.modified.0, "changed_ns": inode.changed.0,
        "location": inode.location.as_str(), "version": inode.version,
    });
    if let (Content::Target(target), Some(fields)) = (&inode.content, value.as_object_mut()) {
        fields.insert("target".into(), String::from_utf8_lossy(target).into());
    }
    value
}

/// `weir fs stat`.
pub fn stat(operands: &mut Operands<'_>, follow: bool, json: bool) -> Result<(), CommandFailure> {
    let (mut all, mut out) = (Vec::new(), String::new());
    for one in operands.expanded()? {
        let inode = match one.files.stat(&one.at.path, follow) {
            Ok(inode) => inode,
            Err(e) => {
                operands.fail(e);
                continue;
            }
        };
        let classes = class_names(&one.files.class_names(), &inode);
        if json {
            all.push(value(&one.at.path, &inode, &classes));
        } else {
            let gap = if out.is_empty() { "" } else { "\n" };
            out += &format!("{gap}{}", describe(&one.at.path, &inode, &classes));
        }
    }
    if json { output::json(&all) } else { output::text(&out) }
}

fn describe(path: &[u8], inode: &Inode, classes: &[String]) -> String {
    let mut lines = vec![("path", shown(path)), ("kind", kind(inode.kind).to_owned())];
    if let Content::Target(target) = &inode.content {
        lines.push(("target", shown(target)));
    }
    if inode.kind == InodeKind::File {
        let place = if matches!(inode.content, Content::Inline(_)) { ", in the metadata" } else { "" };
        lines.push(("size", format!("{}{place}", inode.size)));
        lines.push(("copies", inode.copies.to_string()));
        lines.push(("classes", if classes.is_empty() { "default".into() } else { classes.join(" ") }));
        lines.push(("block", weir_units::Bytes(inode.block.into()).to_string()));
    }
    lines.push(("mode", format!("{:04o} {}", inode.mode, permissions(inode.kind, inode.mode))));
    lines.push(("owner", format!("{}:{}", inode.uid, inode.gid)));
    if !inode.location.as_str().is_empty() {
        lines.push(("location", inode.location.as_str().to_owned()));
    }
    for (what, at) in [("created", inode.created), ("modified", inode.modified), ("changed", inode.changed)] {
        lines.push((what, format!("{} UTC", time(at, true))));
    }
    lines.iter().map(|(what, text)| format!("{what:<8}  {text}\n")).collect()
}

/// `weir fs du`.
pub fn du(operands: &mut Operands<'_>, args: &DuArgs, json: bool) -> Result<(), CommandFailure> {
    let mut sums = Vec::new();
    for one in operands.or_root(&args.paths)? {
        let begin = sums.len();
        match one.files.stat(&one.at.path, true) {
            Ok(inode) if inode.kind.is_container() => {
                let total = below(operands, &one, &one.at.path, &mut sums);
                if args.summarize {
                    sums.truncate(begin);
                    sums.push((one.at.path.clone(), total));
                }
            }
            Ok(inode) => sums.push((one.at.path.clone(), inode.size)),
            Err(e) => operands.fail(e),
        }
    }
    if json {
        let value = |(path, bytes): &(Vec<u8>, u64)| json!({ "path": String::from_utf8_lossy(path), "bytes": bytes });
        return output::json(&sums.iter().map(value).collect::<Vec<_>>());
    }
    let mut out = Vec::new();
    for (path, bytes) in &sums {
        // Writing to memory does not fail.
        let _ = write!(out, "{}\t", size(*bytes, args.human_readable));
        out.extend(name(path));
        out.push(b'\n');
    }
    output::raw(&out)
}

/// A folder whose names are being gone through.
struct Open {
    path: Vec<u8>,
    entries: super::files::Entries,
    sum: u64,
}

/// Bytes of the files below a folder; each folder's own sum goes to `sums`, those within it first.
fn below(operands: &mut Operands<'_>, one: &Found, path: &[u8], sums: &mut Vec<(Vec<u8>, u64)>) -> u64 {
    let mut open: Vec<Open> = Vec::new();
    let mut next = Some(path.to_vec());
    loop {
        if let Some(path) = next.take() {
            match one.files.list(&path) {
                Ok(entries) => open.push(Open { path, entries, sum: 0 }),
                Err(e) => operands.fail(e),
            }
        }
        let Some(folder) = open.last_mut() else { return 0 };
        match folder.entries.next() {
            Some(Ok(entry)) if entry.kind.is_container() => next = Some(join(&folder.path, &entry.name)),
            Some(Ok(entry)) => folder.sum += entry.inode.filter(|i| i.kind == InodeKind::File).map_or(0, |i| i.size),
            Some(Err(e)) => {
                operands.fail(e);
                // What follows is not known either.
                folder.entries = Box::new(std::iter::empty());
            }
            None => {
                let Some(Open { path, sum, .. }) = open.pop() else { return 0 };
                sums.push((path, sum));
                match open.last_mut() {
                    Some(above) => above.sum += sum,
                    None => return sum,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_a_file_are_shown() {
        let all = ["dram", "flash"].map(String::from);
        let mut file = Inode { kind: InodeKind::File, copies: 1, ..Inode::default() };
        let shown = |file: &Inode| {
            let classes = class_names(&all, file);
            let text = describe(b"/a", file, &classes);
            let line = text.lines().find(|line| line.starts_with("classes")).map(str::to_owned);
            (line, value(b"/a", file, &classes)["classes"].clone())
        };
        assert_eq!(shown(&file), (Some("classes   default".into()), json!([])));
        file.classes = vec![ClassId(1), ClassId(0), ClassId(7)];
        assert_eq!(shown(&file), (Some("classes   flash dram class 7".into()), json!(["flash", "dram", "class 7"])));
        file.kind = InodeKind::Directory;
        assert_eq!(shown(&file).0, None);
    }
}
