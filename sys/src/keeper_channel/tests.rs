//! Tests of the conversation between a worker and its keeper.

use super::*;

fn met(pid: Option<i32>, path: &str) -> Introduction {
    Introduction { number: 9, pid, path: path.into() }
}

#[test]
fn words_are_heard_as_they_are_said() {
    let (channel, theirs) = Channel::pair().unwrap();
    let (kept, held) = (fds::eventfd().unwrap(), fds::eventfd().unwrap());
    let worker = std::thread::spawn(move || {
        let keep = Keep::join(theirs, "a=1", |_| None).unwrap();
        assert_eq!(keep.upgrade(), Some("{}"));
        assert!(keep.is_kept() && keep.generation() == 3 && keep.take("nothing").is_none());
        assert_eq!((keep.take("two").unwrap().len(), keep.take_one("two").is_none()), (2, true));
        let there = keep.take_connections();
        assert_eq!((there.len(), &there[0].0, keep.take_connections().len()), (1, &met(None, "there"), 0));
        keep.hold("new", &[held.as_fd()]).unwrap();
        keep.hold_text("config", "a = 1\n").unwrap();
        keep.let_go("two").unwrap();
        for word in [ToKeeper::Ready, ToKeeper::Close(5), ToKeeper::Upgrade("/x".into()), ToKeeper::Left] {
            keep.say(&word, &[]).unwrap();
        }
        keep.release("new").unwrap();
        keep.begin().unwrap();
        keep.let_go("one").unwrap();
        keep.begin().unwrap();
        let (word, fds) = keep.hear().unwrap().unwrap();
        assert_eq!((word, fds.len()), (ToWorker::Connection(met(Some(7), "/run/a b.sock")), 1));
        assert_eq!(keep.hear().unwrap().unwrap().0, ToWorker::Connection(met(None, "x")));
        assert_eq!(keep.hear().unwrap().unwrap().0, ToWorker::HandOver);
        assert_eq!(keep.hear().unwrap().unwrap().0, ToWorker::Upgrade("{1}".into()));
        assert!(keep.hear().unwrap().is_none());
    });
    let next = || loop {
        if let Some(heard) = channel.hear().unwrap() {
            return heard;
        }
        std::thread::yield_now();
    };
    assert_eq!(next().0, ToKeeper::Prepared("a=1".into()));
    channel.tell(&ToWorker::Upgrade("{}".into()), &[]).unwrap();
    channel.tell(&ToWorker::Held("two".into()), &[kept.as_fd(), kept.as_fd()]).unwrap();
    channel.tell(&ToWorker::Told, &[]).unwrap();
    assert_eq!(next().0, ToKeeper::Warm, "there is nothing to map");
    channel.tell(&ToWorker::Connection(met(None, "there")), &[kept.as_fd()]).unwrap();
    channel.tell(&ToWorker::Go(3), &[]).unwrap();
    assert_eq!(next().0, ToKeeper::Goes);
    let (word, fds) = next();
    assert_eq!((word, fds.len()), (ToKeeper::Hold("new".into()), 1));
    let (word, mut fds) = next();
    assert_eq!(word, ToKeeper::Hold("config".into()));
    // Another worker reads it again, from the start.
    for _ in 0..2 {
        let held =
            BTreeMap::from([("config".to_owned(), Held { fds: vec![fds[0].try_clone().unwrap()], mapped: None })]);
        let shared = Shared {
            channel: fds::eventfd().unwrap(),
            held: Mutex::new(held),
            connections: Mutex::default(),
            later: Mutex::new(None),
            generation: 0,
            upgrade: None,
            keeper: 1,
        };
        assert_eq!(Keep(Some(Arc::new(shared))).take_text("config").unwrap().unwrap(), "a = 1\n");
    }
    fds.clear();
    assert_eq!(next().0, ToKeeper::Ready);
    assert_eq!(next().0, ToKeeper::Close(5));
    assert_eq!(next().0, ToKeeper::Upgrade("/x".into()));
    assert_eq!(next().0, ToKeeper::Left);
    assert_eq!(next().0, ToKeeper::Release("new".into()));
    // Let go earlier, held until the worker began to serve; from then on at once.
    assert_eq!(next().0, ToKeeper::Release("two".into()));
    assert_eq!(next().0, ToKeeper::Release("one".into()));
    channel.tell(&ToWorker::Connection(met(Some(7), "/run/a b.sock")), &[kept.as_fd()]).unwrap();
    channel.tell(&ToWorker::Connection(met(None, "x")), &[]).unwrap();
    channel.tell(&ToWorker::HandOver, &[]).unwrap();
    channel.tell(&ToWorker::Upgrade("{1}".into()), &[]).unwrap();
    drop(channel);
    worker.join().unwrap();
}

#[test]
fn what_begins_alike_is_taken_at_once() {
    let (channel, theirs) = Channel::pair().unwrap();
    let file = sealed("x", b"abc").unwrap();
    for name in ["c:1", "c:2", "d"] {
        channel.tell(&ToWorker::Held(name.into()), &[file.as_fd()]).unwrap();
    }
    channel.tell(&ToWorker::Go(0), &[]).unwrap();
    let keep = Keep::join(theirs, "", |_| None).unwrap();
    let taken = keep.take_all("c:");
    assert_eq!(taken.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["c:1", "c:2"]);
    for (_, mut fds) in taken {
        assert_eq!(contents(fds.remove(0)).unwrap(), b"abc");
    }
    assert!(keep.take("c:1").is_none() && keep.take("d").is_some());
    assert!(Keep::none().take_all("").is_empty());
}

#[test]
fn what_is_heard_of_early_is_mapped_and_forgotten_again() {
    const SCHEMA: Schema = Schema { name: "test", version: 1 };
    let (channel, theirs) = Channel::pair().unwrap();
    let mut arena = Arena::create("test", SCHEMA, 3 << 20, crate::arena::Pages::Small).unwrap();
    arena.reserve(0..9).unwrap();
    arena.payload_mut()[8] = 7;
    for name in ["region:a", "region:b", "other"] {
        channel.tell(&ToWorker::Held(name.into()), &[arena.fd()]).unwrap();
    }
    // No region, though its name says so: that is found out when it is taken.
    channel.tell(&ToWorker::Held("region:c".into()), &[sealed("x", b"abc").unwrap().as_fd()]).unwrap();
    channel.tell(&ToWorker::Dropped("region:b".into()), &[]).unwrap();
    channel.tell(&ToWorker::Told, &[]).unwrap();
    channel.tell(&ToWorker::Go(1), &[]).unwrap();
    let keep = Keep::join(theirs, "", |name| name.starts_with("region:").then_some(SCHEMA)).unwrap();
    assert!(keep.take_region("region:b", SCHEMA).is_none());
    for name in ["region:a", "other"] {
        assert_eq!(keep.take_region(name, SCHEMA).unwrap().unwrap().payload()[8], 7);
    }
    assert!(keep.take_region("region:c", SCHEMA).unwrap().is_err());
}

#[test]
fn without_a_keeper_nothing_is_held() {
    let keep = Keep::none();
    keep.hold_text("config", "x").unwrap();
    assert!(!keep.is_kept() && keep.take("config").is_none() && keep.hear().unwrap().is_none());
}

/// A worker that does not listen keeps the keeper from nothing; when it listens again it hears all of it in order.
#[test]
fn what_a_worker_does_not_take_is_sent_later() {
    let (channel, theirs) = Channel::pair().unwrap();
    let with = fds::eventfd().unwrap();
    let mut said = 0;
    // More than a socket has room for.
    while said < 5000 {
        channel.tell(&ToWorker::Held(format!("{said}")), &[with.as_fd()]).unwrap();
        said += 1;
    }
    let unheard = channel.unheard_since().unwrap();
    channel.flush().unwrap();
    assert_eq!(channel.unheard_since(), Some(unheard), "nothing was taken");
    for number in 0..said {
        let (kind, text, fds) = receive(&theirs).unwrap().unwrap();
        assert_eq!((ToWorker::read(kind, text), fds.len()), (Some(ToWorker::Held(format!("{number}"))), 1));
        channel.flush().unwrap();
    }
    assert_eq!(channel.unheard_since(), None);
    drop(theirs);
    assert!(channel.tell(&ToWorker::Told, &[]).is_err(), "it has gone");
}
