//! What a change leaves that comes to nothing half way.

use super::*;
use crate::node::Node;

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
