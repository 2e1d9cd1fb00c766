//! A way between a host and an NVMe/TCP target that can be slow: what comes from a host's older connections is handed on late, the end of a
//! connection included.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::Context;

/// See the [module](self). It ends with the program.
pub struct Proxy {
    /// Where hosts connect.
    pub port: u16,
    /// Connections so far.
    count: Arc<AtomicU64>,
    /// Those before this one are slow.
    slow: Arc<AtomicU64>,
}

impl Proxy {
    /// In front of a target. A slow connection hands on every piece of what its host says after `delay`.
    pub fn start(to: SocketAddr, delay: Duration) -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "a proxy's port".into())?;
        let port = listener.local_addr().context(|| "a proxy's port".into())?.port();
        let (count, slow) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let proxy = Self { port, count: count.clone(), slow: slow.clone() };
        thread::spawn(move || {
            for host in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let Ok(target) = TcpStream::connect(to) else { continue };
                let (Ok(back), Ok(answers)) = (host.try_clone(), target.try_clone()) else { continue };
                let slow = slow.clone();
                let is_slow = move || number < slow.load(Ordering::SeqCst);
                thread::spawn(move || pump(host, target, move || if is_slow() { delay } else { Duration::ZERO }));
                thread::spawn(move || pump(answers, back, || Duration::ZERO));
            }
        });
        Ok(proxy)
    }

    /// The connections that there are become slow; those to come are not.
    pub fn slow_down(&self) {
        self.slow.store(self.count.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// Hands on what comes until the end, which is handed on as well, however it came.
fn pump(mut from: TcpStream, mut to: TcpStream, delay: impl Fn() -> Duration) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        thread::sleep(delay());
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
