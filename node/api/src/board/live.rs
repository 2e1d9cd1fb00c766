//! Asks the node while pages are open, and tells them: the thread of [`Collector`].

use super::collector::{Collector, Sample};
use super::{HistoryOverview, HistoryStatus, Kind};
use crate::control::Control;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use weir_node::Refusal;

/// Between two pictures while a page is open, at least.
const PICTURE_INTERVAL: Duration = Duration::from_secs(1);
/// And at most, however dear one is.
const MOST_PICTURE_INTERVAL: Duration = Duration::from_secs(10);
/// Between two looks while none is: a point of the history.
const REST: Duration = Duration::from_secs(super::history::STEP_S);
/// A picture may take this part of the pause after it: 0.4 % of a core.
const DEARNESS: u32 = 250;
/// Pages that are told at the same time.
const MOST_STREAMS: usize = 32;

/// A picture as pages get it.
pub(crate) struct Picture {
    /// The board as JSON.
    pub(crate) json: String,
    made: Instant,
}

/// See the [module](self).
pub(crate) struct Live {
    control: Arc<dyn Control>,
    collector: Mutex<Collector>,
    newest: watch::Sender<Option<Arc<Picture>>>,
    /// One picture at a time.
    turn: tokio::sync::Mutex<()>,
    wanted: Notify,
    /// Something was changed since the newest picture.
    is_stale: AtomicBool,
    streams: AtomicUsize,
    stopped: watch::Receiver<bool>,
    /// What the last look took.
    took: Mutex<Duration>,
}

/// A stream's place; leaves it when it is dropped.
pub(crate) struct Stream {
    live: Arc<Live>,
    pictures: watch::Receiver<Option<Arc<Picture>>>,
    stopped: watch::Receiver<bool>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.live.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The API ends.
#[derive(Debug)]
pub(crate) struct StreamGone;

impl Stream {
    /// The next picture.
    pub(crate) async fn next(&mut self) -> Result<Arc<Picture>, StreamGone> {
        loop {
            tokio::select! {
                changed = self.pictures.changed() => changed.map_err(|_| StreamGone)?,
                _ = self.stopped.wait_for(|stopped| *stopped) => return Err(StreamGone),
            }
            if let Some(picture) = self.pictures.borrow_and_update().clone() {
                return Ok(picture);
            }
        }
    }
}

/// The machine's clock, in milliseconds since 1970-01-01 00:00 UTC.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Live {
    /// Of a node, until `stopped`.
    pub(crate) fn new(control: Arc<dyn Control>, stopped: watch::Receiver<bool>) -> Arc<Live> {
        Arc::new(Live {
            control,
            collector: Mutex::default(),
            newest: watch::channel(None).0,
            turn: tokio::sync::Mutex::new(()),
            wanted: Notify::new(),
            is_stale: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            stopped,
            took: Mutex::default(),
        })
    }

    fn collector(&self) -> MutexGuard<'_, Collector> {
        self.collector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks again and again, until the API ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut stopped = self.stopped.clone();
        loop {
            // A node that is stopping answers no more; pages see that for themselves.
            let _ = self.look().await;
            let pause = self.pause();
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = tokio::time::sleep(pause) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    fn pause(&self) -> Duration {
        if self.streams.load(Ordering::Relaxed) == 0 {
            return REST;
        }
        let took = *self.took.lock().unwrap_or_else(PoisonError::into_inner);
        took.saturating_mul(DEARNESS).clamp(PICTURE_INTERVAL, MOST_PICTURE_INTERVAL)
    }

    /// The newest picture where it is of this half second and nothing was changed since, else a new one.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) async fn look(self: &Arc<Self>) -> Result<Arc<Picture>, Refusal> {
        let _turn = self.turn.lock().await;
        let is_stale = self.is_stale.swap(false, Ordering::Relaxed);
        let is_new = |p: &Arc<Picture>| !is_stale && p.made.elapsed() < PICTURE_INTERVAL / 2;
        if let Some(newest) = self.newest.borrow().clone().filter(is_new) {
            return Ok(newest);
        }
        let live = self.clone();
        let made = tokio::task::spawn_blocking(move || live.make()).await;
        let picture = made.unwrap_or_else(|e| Err(Refusal::Unavailable(format!("a look at the node failed: {e}"))))?;
        self.newest.send_replace(Some(picture.clone()));
        Ok(picture)
    }

    fn make(&self) -> Result<Arc<Picture>, Refusal> {
        let begun = Instant::now();
        let sample: Sample = self.control.sample()?;
        let board = self.collector().apply(&sample);
        let json = serde_json::to_string(&board).map_err(|e| Refusal::Unavailable(e.to_string()))?;
        *self.took.lock().unwrap_or_else(PoisonError::into_inner) = begun.elapsed();
        Ok(Arc::new(Picture { json, made: Instant::now() }))
    }

    /// A page that is told from now on.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(crate) fn join(self: &Arc<Self>) -> Result<Stream, Refusal> {
        if self.streams.fetch_add(1, Ordering::Relaxed) >= MOST_STREAMS {
            self.streams.fetch_sub(1, Ordering::Relaxed);
            let what = format!("{MOST_STREAMS} pages are open, which is the most; close one");
            return Err(Refusal::Unavailable(what));
        }
        let mut stream =
            Stream { live: self.clone(), pictures: self.newest.subscribe(), stopped: self.stopped.clone() };
        // What there is is told at once.
        stream.pictures.mark_changed();
        self.wanted.notify_one();
        Ok(stream)
    }

    /// Something was changed by the API.
    pub(crate) fn changed(&self, subject: &str, text: String) {
        self.collector().changed(unix_ms(), subject, text);
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// The last hour of all drives, tenants and exports.
    pub(crate) fn overview(&self) -> HistoryOverview {
        self.collector().history.overview()
    }

    /// The last hour of one.
    pub(crate) fn history(&self, kind: Kind, name: &str) -> Option<HistoryStatus> {
        self.collector().history.of(kind, name)
    }
}
