//! What a change leaves that comes to nothing half way.

use super::*;
use crate::device::ChunkContents;
use crate::node::Node;
use crate::snapshot::{DataRange, VolumeContents};
use weir_pool::ChunkRun;

#[test]
fn a_volume_that_cannot_grow_is_as_large_as_before() {
    let dir = std::env::temp_dir().join(format!("weir-grow-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = "[[device]]\nname = \"a\"\ncapacity = \"16MiB\"\n[[device]]\nname = \"b\"\ncapacity = \"16MiB\"\n\
                [[volume]]\nname = \"v\"\nsize = \"10MiB\"\nexport = \"vhost-user:v.sock\"\n";
    let node = Node::start(Config::parse(text, "test.toml", &dir).unwrap()).unwrap();
    let (volumes, config) = (node.volumes(), node.config());
    let facts = || {
        let pool = volumes.pools(config).unwrap().remove(0);
        let free: u64 = pool.drives.iter().map(|drive| drive.free.get()).sum();
        (volumes.one(config, "v").unwrap().size.get(), free, pool.fault)
    };
    let before = facts();
    assert_eq!((before.0, &before.2), (10 * CHUNK, &None));
    // The drive that it would grow to takes no more controllers.
    let fill = |s: &mut Shard| {
        let now = s.reactor.now();
        let one = |_| s.drives.add_guest(0, 1, (0, "somebody".into()), now).ok().map(|(number, _)| number);
        std::iter::repeat(()).map_while(one).collect::<Vec<u32>>()
    };
    let guests = volumes.at(0, fill).unwrap();
    let why = volumes.resize(config, "v", 20 * CHUNK, false).unwrap_err();
    assert!(matches!(why, Refusal::Conflict(_)), "{why}");
    assert_eq!(facts(), before, "{why}");
    let empty = move |s: &mut Shard| {
        let now = s.reactor.now();
        guests.into_iter().for_each(|guest| s.drives.remove_guest(guest, now));
    };
    volumes.at(0, empty).unwrap();
    assert_eq!(volumes.resize(config, "v", 20 * CHUNK, false).unwrap().size.get(), 20 * CHUNK);
    node.stop();
    std::fs::remove_dir_all(&dir).unwrap();
}

fn range(offset: u64, len: u64) -> DataRange {
    DataRange { offset: Bytes(offset * CHUNK), len: Bytes(len * CHUNK) }
}

/// Puts bytes on the medium of a drive where a volume has a chunk.
fn put(volumes: &Volumes, volume: &str, chunk: u32, at: u64) {
    let found = volumes.find(volume).unwrap();
    let pieces = volumes.pieces(found.pool, found.id).unwrap();
    let of = |lies: &&places::Lies| (lies.segment.logical..lies.segment.logical + lies.segment.len).contains(&chunk);
    let lies = pieces.iter().find(of).unwrap();
    let (drive, offset) =
        (lies.first.unwrap(), u64::from(lies.segment.start + chunk - lies.segment.logical) * CHUNK + at);
    let file = volumes.at(drive.shard, move |s| s.drives.device(drive.drive).contents(ChunkRun { start: 0, len: 1 }));
    match file.unwrap() {
        ChunkContents::In(file) => _ = rustix::io::pwrite(&file, &[1; 512], offset).unwrap(),
        other => panic!("a drive in a file says {other:?}"),
    }
}

#[test]
fn what_a_volume_has_is_told_chunk_by_chunk() {
    let dir = std::env::temp_dir().join(format!("weir-contents-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let drive =
        |name: &str| format!("[[device]]\nname = \"{name}\"\nmedia = \"file:{name}.img\"\ncapacity = \"32MiB\"\n");
    let text = ["a", "b"].map(drive).concat()
        + "[[volume]]\nname = \"w\"\nsize = \"4MiB\"\ncopies = 2\n[[volume]]\nname = \"v\"\nsize = \"40MiB\"\n";
    let node = Node::start(Config::parse(&text, "test.toml", &dir).unwrap()).unwrap();
    let (volumes, config) = (node.volumes(), node.config());
    let ranges = |name: &str, from: u64| volumes.contents(name, from).unwrap().ranges;
    assert_eq!(volumes.contents("v", 0).unwrap(), VolumeContents { ranges: vec![], next: None });
    // The last bytes of a chunk, the first of another one, and two that lie beside each other, of both drives.
    put(volumes, "v", 3, CHUNK - 512);
    put(volumes, "v", 10, 0);
    (34..36).for_each(|chunk| put(volumes, "v", chunk, 5 * 4096));
    assert_eq!(ranges("v", 0), [range(3, 1), range(10, 1), range(34, 2)]);
    assert_eq!(ranges("v", 4 * CHUNK - 1), ranges("v", 0), "the chunk of that byte");
    assert_eq!(ranges("v", 4 * CHUNK), [range(10, 1), range(34, 2)]);
    assert_eq!(ranges("v", 35 * CHUNK), [range(35, 1)]);
    assert_eq!(ranges("v", 40 * CHUNK), []);
    let why = volumes.contents("v", 40 * CHUNK + 1).unwrap_err();
    assert!(matches!(&why, Refusal::Invalid(text) if text.contains("behind its end")), "{why}");
    assert!(matches!(volumes.contents("x", 0), Err(Refusal::NotFound(_))));
    // A snapshot has the same chunks.
    volumes.snapshot(config, "v", "s").unwrap();
    assert_eq!(ranges("v@s", 0), ranges("v", 0));
    // Of two copies either; and where one is lost nobody knows.
    put(volumes, "w", 2, 0);
    assert_eq!(ranges("w", 0), [range(2, 1)]);
    volumes.take_out(config, &config.pools[0].name, "b").unwrap();
    assert_eq!(ranges("w", 0), [range(0, 4)]);
    let v = ranges("v", 0);
    assert!(v.iter().any(|r| r.len.get() > 4 * CHUNK), "what is lost has to be read, and fails: {v:?}");
    node.stop();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn memory_knows_what_was_written() {
    let dir = std::env::temp_dir().join(format!("weir-contents-ram-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = "[[device]]\nname = \"a\"\ncapacity = \"16MiB\"\n[[volume]]\nname = \"v\"\nsize = \"8MiB\"\n";
    let node = Node::start(Config::parse(text, "test.toml", &dir).unwrap()).unwrap();
    let volumes = node.volumes();
    assert_eq!(volumes.contents("v", 0).unwrap().ranges, []);
    let found = volumes.find("v").unwrap();
    let start = volumes.pieces(found.pool, found.id).unwrap()[0].segment.start;
    // Memory is taken up to within the third chunk of the volume, by writing it.
    let bytes = u64::from(start + 2) * CHUNK + 5;
    volumes.at(0, move |s| s.drives.device_mut(0).allocate(bytes)).unwrap().unwrap();
    assert_eq!(volumes.contents("v", 0).unwrap().ranges, [range(0, 3)]);
    node.stop();
    std::fs::remove_dir_all(&dir).unwrap();
}
