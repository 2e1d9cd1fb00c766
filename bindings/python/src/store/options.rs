//! What new files are made with.

use pyo3::prelude::*;
use weir_store_node::client::CreateOptions;

/// What new files are made with: names of classes, copies (1 to 4; 0: the policy's), bytes of a block (0: the store's), permissions, and whether directories on
/// the way are made where they are missing.
#[pyclass(frozen, module = "weir._native")]
pub struct StoreOptions(CreateOptions);

#[pymethods]
impl StoreOptions {
    #[new]
    #[pyo3(signature = (*, classes, copies, block, mode, parents))]
    fn new(classes: Vec<String>, copies: u8, block: u32, mode: u32, parents: bool) -> Self {
        let block = Some(block).filter(|block| *block > 0);
        StoreOptions(CreateOptions { classes, copies, block, mode, parents, ..CreateOptions::default() })
    }
}

impl StoreOptions {
    /// As the client takes them; `exclusive`: that the name is there is an error.
    pub fn create(&self, exclusive: bool) -> CreateOptions {
        CreateOptions { exclusive, ..self.0.clone() }
    }
}
