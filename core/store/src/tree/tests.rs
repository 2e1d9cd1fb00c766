//! The names of two services on a key-value store that answers late, twice, or not knowing: every history is checked.

mod basics;
mod checker;
mod histories;
mod model;
mod mutants;
mod state;
mod world;
