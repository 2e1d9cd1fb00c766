//! Under what names the keeper holds clients that go on when a process is killed.

/// Names of clients that go on when a process is killed: the path of the socket follows.
pub(super) const LIVE_CLIENTS: &str = "live:vfio-user-client:";
/// Names of the descriptors that they have handed over: the path of the socket follows, and a number.
const LIVE_FILES: &str = "live:vfio-user-file:";

/// The name of a descriptor of a client that goes on when a process is killed.
pub(super) fn live_file(path: &str, name: u64) -> String {
    format!("{LIVE_FILES}{path}:{name}")
}

/// What such names begin with at a socket.
pub(super) fn live_files(path: &str) -> String {
    format!("{LIVE_FILES}{path}:")
}
