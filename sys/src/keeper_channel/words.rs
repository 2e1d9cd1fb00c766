//! The words between a worker and its keeper, and their bytes: one for the kind, and a text.

/// What a worker tells its keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToKeeper {
    /// It has read its configuration and waits; the layouts that it reads and writes, as `weir_keeper::Layouts`.
    Prepared(String),
    /// It serves.
    Ready,
    /// Hold these under that name, in place of what was held under it.
    Hold(String),
    /// Hold them no longer.
    Release(String),
    /// The connection of that number is over.
    Close(u64),
    /// Another program is to take over: which, and within what time, as JSON.
    Upgrade(String),
    /// It was told to hand over, has nothing under way any more and will touch nothing.
    Left,
    /// Once the threads of this roster are dead nothing of the worker touches anything any more: nothing that is held has anything under
    /// way in the kernel.
    Threads,
    /// It has heard that it is to go.
    Goes,
    /// What is held is mapped, or as good as that.
    Warm,
}

/// What a keeper tells a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToWorker {
    /// These are held under that name, or were by the worker before.
    Held(String),
    /// Nothing is held under that name any more.
    Dropped(String),
    /// That was all: serve. How many workers have gone before, from 0.
    Go(u64),
    /// A front end at a socket.
    Connection(Introduction),
    /// Finish what is in flight, leave everything open for the next worker, and end.
    HandOver,
    /// How far an upgrade is, or how it ended, as JSON.
    Upgrade(String),
    /// That is all that is held at the moment; changes follow.
    Told,
}

/// A front end at a socket; the stream with its messages comes beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Of the connection, in the life of the keeper.
    pub number: u64,
    /// The front end's process, where it is known.
    pub pid: Option<i32>,
    /// The socket.
    pub path: String,
}

impl ToKeeper {
    pub(super) fn parts(&self) -> (u8, String) {
        match self {
            ToKeeper::Prepared(layouts) => (0, layouts.clone()),
            ToKeeper::Ready => (1, String::new()),
            ToKeeper::Hold(name) => (2, name.clone()),
            ToKeeper::Release(name) => (3, name.clone()),
            ToKeeper::Close(number) => (4, number.to_string()),
            ToKeeper::Upgrade(what) => (5, what.clone()),
            ToKeeper::Left => (6, String::new()),
            ToKeeper::Threads => (7, String::new()),
            ToKeeper::Goes => (8, String::new()),
            ToKeeper::Warm => (9, String::new()),
        }
    }

    pub(super) fn read(kind: u8, text: String) -> Option<Self> {
        Some(match kind {
            0 => ToKeeper::Prepared(text),
            1 => ToKeeper::Ready,
            2 => ToKeeper::Hold(text),
            3 => ToKeeper::Release(text),
            4 => ToKeeper::Close(text.parse().ok()?),
            5 => ToKeeper::Upgrade(text),
            6 => ToKeeper::Left,
            7 => ToKeeper::Threads,
            8 => ToKeeper::Goes,
            9 => ToKeeper::Warm,
            _ => return None,
        })
    }
}

impl ToWorker {
    pub(super) fn parts(&self) -> (u8, String) {
        match self {
            ToWorker::Held(name) => (0, name.clone()),
            ToWorker::Go(generation) => (1, generation.to_string()),
            ToWorker::Connection(Introduction { number, pid, path }) => {
                (2, format!("{number} {} {path}", pid.unwrap_or(0)))
            }
            ToWorker::HandOver => (3, String::new()),
            ToWorker::Upgrade(state) => (4, state.clone()),
            ToWorker::Dropped(name) => (5, name.clone()),
            ToWorker::Told => (6, String::new()),
        }
    }

    pub(super) fn read(kind: u8, text: String) -> Option<Self> {
        Some(match kind {
            0 => ToWorker::Held(text),
            1 => ToWorker::Go(text.parse().ok()?),
            2 => {
                let (number, rest) = text.split_once(' ')?;
                let (pid, path) = rest.split_once(' ')?;
                let (number, pid) = (number.parse().ok()?, pid.parse::<i32>().ok()?);
                let (pid, path) = ((pid > 0).then_some(pid), path.to_owned());
                ToWorker::Connection(Introduction { number, pid, path })
            }
            3 => ToWorker::HandOver,
            4 => ToWorker::Upgrade(text),
            5 => ToWorker::Dropped(text),
            6 => ToWorker::Told,
            _ => return None,
        })
    }
}
