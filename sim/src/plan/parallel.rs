//! Simulations that know nothing of each other, on several cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Threads at the most.
pub(crate) const THREADS: usize = 2;

/// Works on every item, on as many threads as the machine has cores and two at the most; the answers are in the items' order, and the
/// same whatever the number of threads. `done` hears of each item on the caller's thread.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(),
) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(THREADS).min(items.len());
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    let mut answers: Vec<Option<R>> = items.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    if sender.send((at, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (at, answer) in receiver {
            answers[at] = Some(answer);
            done();
        }
    });
    answers.into_iter().map(|answer| answer.expect("every item was worked on")).collect()
}

#[cfg(test)]
mod tests {
    use super::in_parallel;

    #[test]
    fn answers_are_in_the_items_order() {
        let items: Vec<u64> = (0..100).collect();
        let mut heard = 0;
        let squares = in_parallel(&items, |n| n * n, || heard += 1);
        assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(heard, 100);
        assert!(in_parallel(&[] as &[u64], |n| *n, || {}).is_empty());
    }
}
