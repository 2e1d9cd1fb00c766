//! More blocks than one message or one commit has room for.

use super::{Memory, crc};
use crate::file::{FileEffect, FileEvent, FileIo, FileOpId, FileSetup, SectorSize};
use crate::protocol::{FRAME_MAX, Request, RequestNumber};
use crate::records::{BlockRecord, COPIES_MAX, MapChunk, blocks_per_chunk};
use crate::space::Epoch;
use crate::{Extent, Generation, InodeId, NamespaceId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_units::Nanos;

const FAR: Nanos = Nanos(u64::MAX);
const BLOCK: u32 = 64 << 10;
const WRITTEN: u64 = 10_000;

fn record(block: u64) -> BlockRecord {
    let copy = |n: usize| Extent {
        namespace: NamespaceId(n as u64),
        offset: (block * u64::from(BLOCK)).into(),
        length: u64::from(BLOCK).into(),
    };
    let index = (block % u64::from(blocks_per_chunk(BLOCK))) as u32;
    let (generation, is_unsettled) = (Generation(1), false);
    BlockRecord {
        index,
        generation,
        is_unsettled,
        copies: (0..COPIES_MAX).map(copy).collect(),
        checksums: alloc::vec![0],
    }
}

/// Ten thousand blocks with all copies that are written over between two flushes are several commits, none longer than a message may be.
#[test]
fn many_blocks_that_are_written_over_are_several_commits() {
    let (mut memory, mut effects) = (Memory::default(), Vec::new());
    let sectors = (0..COPIES_MAX as u64).map(|n| (NamespaceId(n), SectorSize::S512)).collect::<BTreeMap<_, _>>();
    let size = WRITTEN * u64::from(BLOCK);
    let mut file = FileIo::new(FileSetup { inode: InodeId(7), block: BLOCK, size, sectors, crc, lease: FAR });
    let (mut published, mut commits, mut answers) = (Vec::new(), 0, 0);
    for block in 0..=WRITTEN {
        let (id, at) = (FileOpId(block), block * u64::from(BLOCK));
        let event = match block {
            WRITTEN => FileEvent::Flush(id, false, FAR),
            _ => FileEvent::Write(id, at, BLOCK, FAR),
        };
        memory.callers.insert(id, alloc::vec![7; BLOCK as usize]);
        file.apply(Nanos(1), event, &mut memory, &mut effects);
        while let Some(effect) = effects.pop() {
            let event = match effect {
                FileEffect::Fetch(chunk) => {
                    let first = u64::from(chunk * blocks_per_chunk(BLOCK));
                    let blocks = (first..first + u64::from(blocks_per_chunk(BLOCK))).map(record).collect();
                    FileEvent::Chunk(chunk, Ok((MapChunk { blocks }, Epoch(1))))
                }
                FileEffect::Unsettle(block) => FileEvent::Unsettled(block, Ok(())),
                FileEffect::Read(ticket, ..) | FileEffect::Write(ticket, ..) | FileEffect::FlushDrive(ticket, _) => {
                    FileEvent::Done(ticket, Ok(()))
                }
                FileEffect::Publish(size, blocks) => {
                    published.extend(blocks.iter().map(|(block, _)| *block));
                    let request = Request::Publish { handle: 1, slot: 0, sequence: 1, size, blocks };
                    let frame = request.encode(RequestNumber(1)).expect("it is no longer than a message may be");
                    assert!(frame.len() < FRAME_MAX / 2, "{} bytes", frame.len());
                    commits += 1;
                    FileEvent::Published(Ok(()))
                }
                FileEffect::Answer(id, result) => {
                    assert!(result.is_ok());
                    memory.callers.remove(&id);
                    answers += 1;
                    continue;
                }
                other => panic!("{other:?}"),
            };
            file.apply(Nanos(1), event, &mut memory, &mut effects);
        }
    }
    assert_eq!((published, answers), ((0..WRITTEN).collect(), WRITTEN + 1));
    assert!(commits > 2, "{commits}");
}
