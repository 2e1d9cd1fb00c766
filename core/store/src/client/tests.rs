//! Clients, a service, drives: what each goes through, and everything at random against a model.

mod chaos;
mod drives;
mod elsewhere;
mod files;
mod full;
mod random;
mod session;
mod world;
