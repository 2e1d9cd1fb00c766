//! What a name of the store leads to.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weir_store::{ClassName, Content, Inode, InodeId, InodeKind};

/// What a name leads to.
#[pyclass(frozen, module = "weir._native")]
pub struct StoreEntry {
    name: Vec<u8>,
    number: InodeId,
    kind: InodeKind,
    /// Of a container that was listed nothing is told but its name.
    inode: Inode,
    classes: Vec<ClassName>,
}

impl StoreEntry {
    /// An inode under a name. `classes` are the store's.
    pub fn new(name: &[u8], number: InodeId, inode: Inode, classes: &[ClassName]) -> Self {
        let class = |id: &weir_store::ClassId| classes.get(usize::from(id.0)).cloned();
        let classes = inode.classes.iter().filter_map(class).collect();
        StoreEntry { name: name.into(), number, kind: inode.kind, inode, classes }
    }
}

#[pymethods]
impl StoreEntry {
    /// Its last name.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.name)
    }

    /// The number of its inode.
    #[getter]
    fn number(&self) -> u64 {
        self.number.0
    }

    /// `file`, `directory`, `link`, `multifile` or `table`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            InodeKind::File => "file",
            InodeKind::Directory => "directory",
            InodeKind::Symlink => "link",
            InodeKind::Multifile => "multifile",
            InodeKind::Table => "table",
        }
    }

    /// Bytes of a file.
    #[getter]
    fn size(&self) -> u64 {
        self.inode.size
    }

    /// Permissions.
    #[getter]
    fn mode(&self) -> u32 {
        self.inode.mode
    }

    /// Its owner.
    #[getter]
    fn uid(&self) -> u32 {
        self.inode.uid
    }

    /// Its group.
    #[getter]
    fn gid(&self) -> u32 {
        self.inode.gid
    }

    /// Nanoseconds since 1970 when it was made; 0 of a directory that was listed.
    #[getter]
    fn created_ns(&self) -> u64 {
        self.inode.created.0
    }

    /// Nanoseconds since 1970 when its bytes or names were changed last; 0 of a directory that was listed.
    #[getter]
    fn modified_ns(&self) -> u64 {
        self.inode.modified.0
    }

    /// Copies of each block.
    #[getter]
    fn copies(&self) -> u8 {
        self.inode.copies
    }

    /// Bytes of a block.
    #[getter]
    fn block(&self) -> u32 {
        self.inode.block
    }

    /// Names of the classes of its blocks, best first; none: those of the store.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.classes.iter().map(ToString::to_string).collect()
    }

    /// Where a symbolic link leads to.
    #[getter]
    fn target<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.inode.content {
            Content::Target(target) => Some(PyBytes::new(py, target)),
            _ => None,
        }
    }

    /// Extended attributes.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, value) in &self.inode.attributes {
            all.set_item(name, PyBytes::new(py, value))?;
        }
        Ok(all)
    }
}
