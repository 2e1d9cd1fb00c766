//! NVM Express: base specification, NVM and ZNS command sets, flexible data placement, fabrics, TCP transport.

pub mod controller_class;
pub mod entry;
pub mod fabrics;
pub mod fdp;
pub mod feature;
pub mod identify;
pub mod lba_status;
pub mod log;
pub mod maintenance;
pub mod namespace;
pub mod nvm;
pub mod opcode;
pub mod open_channel;
pub mod protection;
pub mod register;
pub mod reservation;
pub mod sanitize;
pub mod status;
pub mod tcp;
pub mod wire;
pub mod zns;

pub use entry::{Cqe, Sqe};
pub use opcode::{AdminOpcode, FabricsType, IoOpcode};
pub use status::Status;
