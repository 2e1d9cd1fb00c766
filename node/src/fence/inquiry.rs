//! Asks a target, on a thread of its own, whether associations of before have ended.

use crate::target::{self, Identity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use weir_driver::TransportError;
use weir_driver::nvme_tcp::Association;
use weir_sys::sched;

/// The least and the most between questions; in between a quarter of the time that it has taken so far.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(500));

/// Ends with its drop, at the next answer.
#[derive(Debug)]
pub struct Inquiry(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_dropped: AtomicBool,
    answer: AtomicU8,
}

impl Inquiry {
    /// Asks until all have ended; none where no thread can be had.
    pub fn start(target: &str, of: Vec<Identity>) -> Option<Self> {
        let target = target.to_owned();
        Self::with(of, move |identity| target::association(&target, identity))
    }

    fn with(
        of: Vec<Identity>,
        ask: impl Fn(Identity) -> Result<Association, TransportError> + Send + 'static,
    ) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let inquiry = Self(shared.clone());
        let run = move || {
            sched::as_the_process();
            run(of, ask, &shared);
        };
        match std::thread::Builder::new().name("weir-fence".into()).spawn(run) {
            Ok(_) => Some(inquiry),
            Err(e) => {
                tracing::warn!("the target is not asked about associations of before: {e}");
                None
            }
        }
    }

    /// The answer for all of them: one that lives counts before one that is not clear. `None`: the target has not been heard yet.
    pub fn answer(&self) -> Option<Association> {
        decode(self.0.answer.load(Ordering::Acquire))
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        self.0.is_dropped.store(true, Ordering::Release);
    }
}

const ANSWERS: [Association; 3] = [Association::Ended, Association::Unclear, Association::Lives];

fn decode(answer: u8) -> Option<Association> {
    ANSWERS.get(usize::from(answer.checked_sub(1)?)).copied()
}

fn run(mut of: Vec<Identity>, ask: impl Fn(Identity) -> Result<Association, TransportError>, shared: &Shared) {
    let begun = Instant::now();
    while !shared.is_dropped.load(Ordering::Acquire) {
        let answers: Vec<_> = of.iter().map(|identity| ask(*identity)).collect();
        if answers.iter().all(Result::is_ok) {
            let place = |answer: Association| ANSWERS.iter().position(|a| *a == answer).unwrap_or(0) as u8;
            let worst = answers.iter().flatten().map(|answer| place(*answer)).max().unwrap_or(0);
            shared.answer.store(worst + 1, Ordering::Release);
        }
        let mut answers = answers.iter();
        of.retain(|_| !matches!(answers.next(), Some(Ok(Association::Ended))));
        if of.is_empty() {
            shared.answer.store(1, Ordering::Release);
            return;
        }
        std::thread::sleep((begun.elapsed() / 4).clamp(PAUSE.0, PAUSE.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use weir_units::Nanos;

    #[test]
    fn each_association_is_asked_about_until_it_has_ended() {
        let identity = |cntlid| Identity { cntlid, number: 0, kato: Nanos::from_secs(15) };
        let ended = Arc::new(Mutex::new(Vec::<u16>::new()));
        let seen = ended.clone();
        let inquiry = Inquiry::with(vec![identity(3), identity(4)], move |identity| {
            let ended = seen.lock().unwrap();
            Ok(if ended.contains(&identity.cntlid) { Association::Ended } else { Association::Lives })
        });
        let inquiry = inquiry.unwrap();
        let wait = |answer| {
            while inquiry.answer() != Some(answer) {
                std::thread::yield_now();
            }
        };
        wait(Association::Lives);
        ended.lock().unwrap().push(4);
        std::thread::sleep(Duration::from_millis(20));
        wait(Association::Lives);
        *ended.lock().unwrap() = vec![3];
        wait(Association::Ended);
    }

    #[test]
    fn a_target_that_cannot_be_asked_has_not_answered() {
        let unreachable = || Err(TransportError::Unreachable("t".into()));
        let identity = Identity { cntlid: 1, number: 0, kato: Nanos(0) };
        let inquiry = Inquiry::with(vec![identity], move |_| unreachable()).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(inquiry.answer(), None);
        let unclear = Inquiry::with(vec![identity], |_| Ok(Association::Unclear)).unwrap();
        while unclear.answer() != Some(Association::Unclear) {
            std::thread::yield_now();
        }
    }
}
