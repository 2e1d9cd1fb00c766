//! Extended attributes: those that the store keeps, and what it knows of a file itself.
//!
//! | name | value |
//! |---|---|
//! | `weir.class` | the classes of blocks to come, best first, with commas; empty: the store's. It can be set |
//! | `weir.copies` | copies of each block |
//! | `weir.block` | bytes of a block |
//! | `weir.demote_after` | of a file under a policy that demotes: how long it has to be left alone |
//! | `user.*`, `trusted.*` | as they were set: 4 KiB of names and values for each inode |

use crate::errors::Failed;
use fuser::Errno;
use weir_store::{ClassId, ClassName, Inode, InodeKind};

/// The classes of blocks to come.
pub const CLASS: &str = "weir.class";
/// The number of copies.
pub const COPIES: &str = "weir.copies";
/// The bytes of a block.
pub const BLOCK: &str = "weir.block";

/// Names that programs may set. Others, as ACLs and labels, would be enforced by the kernel only.
const KEPT: [&str; 2] = ["user.", "trusted."];

/// Whether the store keeps an attribute of that name.
pub fn is_kept(name: &str) -> bool {
    KEPT.iter().any(|prefix| name.starts_with(prefix))
}

/// The value of an attribute.
///
/// # Errors
/// `ENODATA`: there is none.
pub fn get(inode: &Inode, name: &str, classes: &[ClassName]) -> Result<Vec<u8>, Failed> {
    let known = match name {
        CLASS | COPIES | BLOCK if inode.kind == InodeKind::Symlink => None,
        CLASS => Some(class_text(inode, classes).into_bytes()),
        COPIES => Some(inode.copies.to_string().into_bytes()),
        BLOCK => Some(inode.block.to_string().into_bytes()),
        name => inode.attributes.get(name).cloned(),
    };
    known.ok_or(Failed::quiet(Errno::NO_XATTR))
}

/// All names, each with a NUL byte behind it.
pub fn list(inode: &Inode) -> Vec<u8> {
    let own: &[&str] = if inode.kind == InodeKind::Symlink { &[] } else { &[CLASS, COPIES, BLOCK] };
    let kept = inode.attributes.keys().map(String::as_str);
    own.iter().copied().chain(kept).flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect()
}

fn class_text(inode: &Inode, classes: &[ClassName]) -> String {
    let name = |class: &ClassId| classes.get(usize::from(class.0)).map_or("?", ClassName::as_str);
    inode.classes.iter().map(name).collect::<Vec<_>>().join(",")
}

/// The classes that a value of `weir.class` names.
///
/// # Errors
/// `EINVAL`: the store has no such class.
pub fn classes_of(value: &[u8], classes: &[ClassName]) -> Result<Vec<ClassId>, Failed> {
    let text = String::from_utf8_lossy(value);
    let class = |name: &str| {
        let at = classes.iter().position(|class| class.as_str() == name);
        at.and_then(|at| u16::try_from(at).ok()).map(ClassId).ok_or_else(|| {
            let all: Vec<&str> = classes.iter().map(ClassName::as_str).collect();
            let why = format!("{CLASS}: the store has no class {name:?}; it has {}", all.join(", "));
            Failed::because(Errno::EINVAL, why)
        })
    };
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Vec<ClassName> {
        ["dram", "flash"].map(|name| ClassName::new(name).expect("a class")).to_vec()
    }

    #[test]
    fn what_the_store_knows_is_told_beside_what_was_set() {
        let mut inode = Inode { kind: InodeKind::File, copies: 2, block: 65536, ..Inode::default() };
        inode.classes = vec![ClassId(1), ClassId(0)];
        inode.attributes.insert("user.a".into(), b"x".to_vec());
        let value = |name: &str| get(&inode, name, &classes()).map_err(|failed| i32::from(failed.errno));
        assert_eq!(value(CLASS), Ok(b"flash,dram".to_vec()));
        assert_eq!(value(COPIES), Ok(b"2".to_vec()));
        assert_eq!(value("user.a"), Ok(b"x".to_vec()));
        assert_eq!(value("user.b"), Err(i32::from(Errno::NO_XATTR)));
        assert_eq!(list(&inode), b"weir.class\0weir.copies\0weir.block\0user.a\0");
    }

    #[test]
    fn classes_are_named_as_the_store_names_them() {
        let of = |text: &str| classes_of(text.as_bytes(), &classes());
        assert_eq!(of("flash, dram").ok(), Some(vec![ClassId(1), ClassId(0)]));
        assert_eq!(of("").ok(), Some(Vec::new()));
        let refused = of("tape").expect_err("there is none");
        assert!(refused.reason.is_some_and(|why| why.contains("\"tape\"") && why.contains("dram, flash")));
        assert!(is_kept("user.a") && !is_kept("security.capability") && !is_kept("weir.class"));
    }
}
