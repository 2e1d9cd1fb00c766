//! placeholder

pub mod config;

pub mod api;
pub mod holder;
