//! A way between a host and an NVMe/TCP target that can be slow: what comes from a host's older connections is handed on late, the end of a
//! connection included.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    open: Arc<AtomicBool>,
    /// Nothing is handed on, and no end is told.
    frozen: Arc<AtomicBool>,
    /// Both ends of each.
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// In front of a target. A slow connection hands on every piece of what its host says after `delay`.
    pub fn start(to: SocketAddr, delay: Duration) -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "a proxy's port".into())?;
        let port = listener.local_addr().context(|| "a proxy's port".into())?.port();
        let (count, slow) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (open, ends) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let frozen = Arc::new(AtomicBool::new(false));
        let proxy = Self {
            port,
            count: count.clone(),
            slow: slow.clone(),
            open: open.clone(),
            frozen: frozen.clone(),
            ends: ends.clone(),
        };
        thread::spawn(move || {
            for host in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                if !open.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(target) = TcpStream::connect(to) else { continue };
                let (Ok(back), Ok(answers)) = (host.try_clone(), target.try_clone()) else { continue };
                let both = [host.try_clone(), target.try_clone()];
                ends.lock().unwrap_or_else(PoisonError::into_inner).extend(both.into_iter().flatten());
                let slow = slow.clone();
                let is_slow = move || number < slow.load(Ordering::SeqCst);
                let (one, other) = (frozen.clone(), frozen.clone());
                thread::spawn(move || pump(host, target, &one, move || if is_slow() { delay } else { Duration::ZERO }));
                thread::spawn(move || pump(answers, back, &other, || Duration::ZERO));
            }
        });
        Ok(proxy)
    }

    /// Ends the connections that there are, at both ends; those to come are handed on only while it is `open`.
    pub fn cut(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
        let mut all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        for end in all.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Nothing goes either way, ends of connections included; or what has come meanwhile goes on its way.
    pub fn freeze(&self, is_frozen: bool) {
        self.frozen.store(is_frozen, Ordering::SeqCst);
    }

    /// Connections to come are handed on.
    pub fn let_in(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// The connections that there are become slow; those to come are not.
    pub fn slow_down(&self) {
        self.slow.store(self.count.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// Hands on what comes until the end, which is handed on as well, however it came.
fn pump(mut from: TcpStream, mut to: TcpStream, frozen: &AtomicBool, delay: impl Fn() -> Duration) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        thread::sleep(delay());
        while frozen.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(2));
        }
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
