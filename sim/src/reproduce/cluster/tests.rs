use super::*;
use crate::reproduce::datasheets;

const MACHINES: Machines = Machines { count: 2, drives: 2, link: 1 << 30, round_trip: Nanos(10_000) };

fn cluster() -> Cluster {
    Cluster::new(MACHINES, &datasheets::config("960pro"), Precondition::Fresh)
}

fn in_memory(count: usize, compute: u64) -> Vec<Work> {
    let place = Some(Place::Memory { machine: 0 });
    vec![Work { read: place, compute: Nanos(compute), write: None }; count]
}

/// What a piece takes of the link: 128 KiB at 1 GiB a second.
const ON_LINK: u64 = 122_070;

#[test]
fn a_task_that_computes_longer_than_it_reads_waits_for_its_first_piece_only() {
    let spent = cluster().run(vec![Task::new(in_memory(100, 1_000_000))], Vec::new());
    assert_eq!(spent.computing, Nanos(100_000_000));
    assert_eq!(spent.elapsed, Nanos(100_000_000 + ON_LINK + 10_000));
    assert_eq!(spent.waiting, Nanos(ON_LINK + 10_000));
}

#[test]
fn tasks_that_read_faster_than_the_link_share_it() {
    let spent = cluster().run((0..4).map(|_| Task::new(in_memory(100, 1000))).collect(), Vec::new());
    let least = 400 * ON_LINK;
    assert!((least..least + 200_000).contains(&spent.elapsed.0), "{spent:?}");
    assert_eq!(spent.computing, Nanos(400_000));
}

#[test]
fn a_drive_is_slower_than_memory_and_all_of_them_are_used() {
    let mut cluster = cluster();
    let mut space = Space::new(2, 4, 0, cluster.drive_bytes());
    let blocks: Vec<Block> = (0..64).filter_map(|_| space.take()).collect();
    let works = |blocks: &[Block]| -> Vec<Work> {
        let pieces = blocks.iter().flat_map(|block| block.pieces());
        pieces.map(|place| Work { read: None, compute: Nanos(0), write: Some(place) }).collect()
    };
    let written = cluster.run(vec![Task::new(works(&blocks))], Vec::new());
    let memory = Work { read: None, compute: Nanos(0), write: Some(Place::Memory { machine: 1 }) };
    let faster = cluster.run(vec![Task::new(vec![memory; 64 * 8])], Vec::new());
    // Two machines' links bring the bytes to the drives, one the others.
    assert!(written.elapsed.0 * 2 > faster.elapsed.0, "{written:?} {faster:?}");
    let drives: std::collections::BTreeSet<usize> = blocks
        .iter()
        .flat_map(|block| block.pieces())
        .filter_map(|place| match place {
            Place::Drive { drive, .. } => Some(drive),
            Place::Memory { .. } => None,
        })
        .collect();
    assert_eq!(drives.len(), 4);
}

#[test]
fn what_runs_beside_ends_with_the_job_and_is_not_counted() {
    let mut cluster = cluster();
    let alone = cluster.run(vec![Task::new(in_memory(100, 1000))], Vec::new());
    let beside = cluster.run(vec![Task::new(in_memory(100, 1000))], vec![Task::new(in_memory(100_000, 1000))]);
    assert_eq!(beside.computing, alone.computing);
    // Both have half of the link, but for the pieces that the job has asked for first.
    let twice = 2 * alone.elapsed.0;
    assert!((twice - 8 * ON_LINK..=twice).contains(&beside.elapsed.0), "{beside:?} {alone:?}");
}

#[test]
fn memory_is_used_up_before_the_first_block_of_a_drive() {
    let mut space = Space::new(2, 4, 10 * BLOCK, 3 * BLOCK);
    let is_on_drive = |block: Block| block.pieces().all(|place| matches!(place, Place::Drive { .. }));
    let blocks: Vec<bool> = std::iter::from_fn(|| space.take()).map(is_on_drive).collect();
    assert_eq!(blocks.len(), 10 + 4 * 3);
    assert!(blocks[..10].iter().all(|on_drive| !on_drive) && blocks[10..].iter().all(|on_drive| *on_drive));
}

#[test]
fn at_most_so_many_reads_and_writes_of_a_task_are_under_way() {
    let place = Place::Memory { machine: 0 };
    let work = Work { read: Some(place), compute: Nanos(5), write: Some(place) };
    let mut task = Task::new(vec![work; 40]);
    let mut reads = 0;
    while let Some(action) = task.next_action() {
        assert!(matches!(action, task::Action::Read { .. }), "{action:?}");
        reads += 1;
    }
    assert_eq!(reads, 8);
    let (mut writes, mut now) = (0, 0);
    for work in 0..9 {
        task.apply(Nanos(now), Done::Answered { work, is_write: false });
        while let Some(action) = task.next_action() {
            now += 5;
            match action {
                task::Action::Compute(_) => task.apply(Nanos(now), Done::Computed),
                task::Action::Write { .. } => writes += 1,
                task::Action::Read { .. } => {}
            }
        }
    }
    assert_eq!((writes, task.computed()), (8, Nanos(45)), "the ninth is computed and waits for a write to end");
    task.apply(Nanos(now), Done::Answered { work: 0, is_write: true });
    assert!(matches!(task.next_action(), Some(task::Action::Write { work: 8, .. })));
}

#[test]
fn a_run_is_the_same_twice() {
    let run = || {
        let mut cluster = cluster();
        let mut space = Space::new(2, 4, 4 * BLOCK, cluster.drive_bytes());
        let works: Vec<Work> = (0..32)
            .filter_map(|_| space.take())
            .flat_map(Block::pieces)
            .map(|place| Work { read: None, compute: Nanos(50_000), write: Some(place) })
            .collect();
        cluster.run(works.chunks(64).map(|works| Task::new(works.to_vec())).collect(), Vec::new())
    };
    assert_eq!(run(), run());
}
