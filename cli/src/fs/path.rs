//! Paths in the store, as users write them.

use crate::failure::CommandFailure;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A path in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePath {
    /// The store's address, where the path names it.
    pub store: Option<String>,
    /// From `/` on, without empty parts, `.`, and a `/` at its end.
    pub path: Vec<u8>,
    /// It ended in `/`: what is there is, or has to be, a folder.
    pub is_folder: bool,
}

impl StorePath {
    /// `/path`, `weir://HOST:PORT/path`, or several addresses with commas between them.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &OsStr) -> Result<StorePath, CommandFailure> {
        let shown = text.to_string_lossy();
        let bytes = text.as_bytes();
        let (store, path) = match bytes.strip_prefix(b"weir://") {
            None => (None, bytes),
            Some(rest) => {
                let at = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
                let (store, path) = rest.split_at(at);
                let address = std::str::from_utf8(store).ok().filter(|address| address.contains(':'));
                let wrong = || CommandFailure::usage(format_args!("{shown}: write weir://HOST:PORT/path"));
                (Some(address.ok_or_else(wrong)?.to_owned()), if path.is_empty() { &b"/"[..] } else { path })
            }
        };
        if !path.starts_with(b"/") {
            let what = if path.is_empty() { "an empty path".into() } else { shown };
            let why = format!("{what}: a path in the store is absolute; write it from / on");
            return Err(CommandFailure::usage(why));
        }
        let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
        let mut clean = Vec::with_capacity(path.len());
        for part in parts {
            clean.push(b'/');
            clean.extend_from_slice(part);
        }
        let is_folder = path.ends_with(b"/") || path.ends_with(b"/.");
        if clean.is_empty() {
            clean.push(b'/');
        }
        Ok(StorePath { store, path: clean, is_folder })
    }

    /// Another path of the same store.
    pub fn with(&self, path: Vec<u8>) -> StorePath {
        StorePath { store: self.store.clone(), path, is_folder: false }
    }
}

/// A name in a folder.
pub fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    [folder, b"/", name].concat()
}

/// The last name of a path; none of the root.
pub fn name_of(path: &[u8]) -> Option<&[u8]> {
    path.rsplit(|b| *b == b'/').next().filter(|name| !name.is_empty())
}

/// The folder that a path lies in; the root's is the root.
pub fn folder_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|b| *b == b'/') {
        None | Some(0) => b"/",
        Some(at) => &path[..at],
    }
}

/// As a message shows it.
pub fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Option<String>, String, bool), String> {
        let parsed = StorePath::parse(OsStr::new(text)).map_err(|e| e.text().to_owned())?;
        Ok((parsed.store, String::from_utf8(parsed.path).unwrap(), parsed.is_folder))
    }

    #[test]
    fn every_form() {
        let of = |store: Option<&str>, path: &str, folder| Ok((store.map(str::to_owned), path.to_owned(), folder));
        assert_eq!(parse("/"), of(None, "/", true));
        assert_eq!(parse("//a/./b//c"), of(None, "/a/b/c", false));
        assert_eq!(parse("/a/"), of(None, "/a", true));
        assert_eq!(parse("/a/../b"), of(None, "/a/../b", false), "what .. means is the store's to say");
        assert_eq!(parse("weir://h:1/a/b"), of(Some("h:1"), "/a/b", false));
        assert_eq!(parse("weir://h:1,i:2/a"), of(Some("h:1,i:2"), "/a", false));
        assert_eq!(parse("weir://[::1]:4430"), of(Some("[::1]:4430"), "/", true));
        for (bad, why) in [
            ("", "an empty path: a path in the store is absolute"),
            ("a/b", "a/b: a path in the store is absolute; write it from / on"),
            ("weir:///a", "weir:///a: write weir://HOST:PORT/path"),
            ("weir://host/a", "weir://host/a: write weir://HOST:PORT/path"),
        ] {
            assert!(parse(bad).unwrap_err().starts_with(why), "{bad}: {:?}", parse(bad));
        }
    }

    #[test]
    fn parts() {
        assert_eq!([join(b"/", b"a"), join(b"/a", b"b")], [b"/a".to_vec(), b"/a/b".to_vec()]);
        assert_eq!([name_of(b"/"), name_of(b"/a/b")], [None, Some(&b"b"[..])]);
        assert_eq!([folder_of(b"/"), folder_of(b"/a"), folder_of(b"/a/b")], [&b"/"[..], b"/", b"/a"]);
        assert_eq!(shown(b"/a\n\xff"), "/a\u{fffd}\u{fffd}");
    }
}
