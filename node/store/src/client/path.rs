//! Paths.

use super::error::{ClientError, ClientErrorKind};
use weir_store::EntryName;

/// The names of an absolute path; none are those of the root.
pub(super) fn names(path: &[u8]) -> Result<Vec<EntryName>, ClientError> {
    if path.first() != Some(&b'/') {
        let text = "a path in the store begins with \"/\"".into();
        return Err(ClientError::new(ClientErrorKind::Usage(text)).at(path));
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(|part| EntryName::new(part).map_err(|error| ClientError::from(error).at(path))).collect()
}

/// The path of what a path is in; none for the root.
pub(super) fn parent(path: &[u8]) -> Option<Vec<u8>> {
    let end = path.iter().rposition(|byte| *byte != b'/')?;
    let slash = path[..=end].iter().rposition(|byte| *byte == b'/')?;
    Some(if slash == 0 { b"/".to_vec() } else { path[..slash].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute() {
        let text = |path: &[u8]| names(path).map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(text(b"/").unwrap(), Vec::<String>::new());
        assert_eq!(text(b"//a//b/").unwrap(), ["a", "b"]);
        for bad in [&b""[..], b"a/b", b"/a/../b", b"/a/.", b"/a\0b"] {
            assert!(text(bad).is_err(), "{bad:?}");
        }
        for (path, above) in [("/a/b", Some("/a")), ("/a", Some("/")), ("/a//b//", Some("/a/")), ("/", None)] {
            assert_eq!(parent(path.as_bytes()), above.map(|p| p.as_bytes().to_vec()), "{path}");
        }
    }
}
