//! The native part of `io.weir.hadoop`: the store for Java, by JNI over the Rust client.
//!
//! ```text
//!   WeirFileSystem, streams (bindings/java/hadoop) ─► Native ─► natives ─┬─ Store    the client; a new one when its session is over
//!                                                                       ├─ streams  OpenReader, OpenWriter; memory of the Java machine
//!                                                                       ├─ entries  inodes and names as bytes
//!                                                                       ├─ copies   how many a store offers
//!                                                                       ├─ locations  hosts that a file lies on
//!                                                                       └─ failure  exceptions
//! ```
//! Java keeps numbers ([`handles`]), no addresses: what is closed twice, or used after that, is an exception.
//! A panic is an exception too. Paths are bytes of UTF-8; a direct buffer's memory is read and written in place.
//!
//! It lies on the client and not on the C API (`weir_store.h`): one layer fewer to cross, and errors keep their kind.

mod copies;
mod directories;
mod entries;
mod failure;
mod handles;
mod locations;
mod natives;
mod store;
mod streams;
