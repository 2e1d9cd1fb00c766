//! The machine with a faulty key-value store, several services and clients that hold maps, against what is on the drives.

mod mutants;
mod requests;
mod world;
