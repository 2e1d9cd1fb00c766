//! NVM Express: base specification, NVM command set, fabrics, TCP transport.

pub mod entry;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nvm;
pub mod opcode;
pub mod register;
pub mod status;
pub mod tcp;
pub mod wire;

pub use entry::{Cqe, Sqe};
pub use opcode::{AdminOpcode, FabricsType, IoOpcode};
pub use status::Status;
