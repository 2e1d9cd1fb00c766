//! A client that takes its answers late.

use super::*;
use crate::device::{Device, Drives};
use crate::directory::Directory;
use crate::door::vfio_user::{Door, Export, ExportConfig, owner};
use std::io::Write;
use std::sync::Arc;
use weir_config::DeviceConfig;
use weir_controller::{Attach, ClassFrom, SubsystemConfig, TransportModel};
use weir_spec::vfio_user::{Command, Header};
use weir_sys::keeper_channel::Keep;
use zerocopy::IntoBytes;

/// More has come than is answered at once; nothing says that a second time.
#[test]
fn what_came_while_answers_waited_is_read_when_they_have_gone() {
    let (mut reactor, mut drives) = (Reactor::new().unwrap(), Drives::default());
    let config = DeviceConfig::from_query("null", "capacity=16MiB").unwrap();
    drives.push(Device::open(&config, SubsystemConfig::new("nqn.2026-01.test.weir:a"), reactor.now()).unwrap());
    let attach = Attach { tenant: 0, owner: owner(0), model: TransportModel::Rings, host: "a".into() };
    let controller = drives.get(0).attach(reactor.now(), attach).unwrap();
    let (directory, keep) = (Arc::new(Directory::new(Vec::new())), Keep::none());
    let (mut arrivals, mut moves) = (Vec::new(), Vec::new());
    let (drives, arrivals, moves) = (&mut drives, &mut arrivals, &mut moves);
    let now = reactor.now();
    let reactor = &mut reactor;
    let mut cx = Cx { now, shard: 0, reactor, drives, directory: &directory, arrivals, keep: &keep, moves };

    let (mut client, socket) = UnixStream::pair().unwrap();
    let shape = DeviceShape { vectors: 2, mapped_doorbells: false, buffer: 0, serial: 1 };
    let conn = Conn::new(socket, 7, shape, None, &mut cx).unwrap();
    let config = ExportConfig {
        path: "/a".into(),
        drive: 0,
        tenant: 0,
        tenant_name: "gold".into(),
        class_from: ClassFrom::Tenant,
        doorbells: Way::Trap,
        serial: 1,
        journal: false,
    };
    let mut door = Door::new();
    door.put(0, Export { config, listener: None, controller, conn: Some(Box::new(conn)), generation: 0 });
    fn conn_of(door: &mut Door) -> &mut Conn {
        door.exports[0].as_mut().unwrap().conn.as_mut().unwrap()
    }
    conn_of(&mut door).answers.push_back(Unsent { bytes: vec![0; ANSWERS + 1], sent: 0, with: None });
    let version = [&[0, 0, 1, 0][..], b"{}\0"].concat();
    client.write_all(Header::command(1, Command::VERSION, version.len()).as_bytes()).unwrap();
    client.write_all(&version).unwrap();
    door.listen_to(0, &mut cx);
    assert_eq!(conn_of(&mut door).answers.len(), 1, "its message waits");
    assert!(!door.poll(&mut cx), "nobody asks again and again");
    // The client takes all of them as fast as they come.
    conn_of(&mut door).answers.clear();
    door.flush(&mut cx);
    assert!(door.poll(&mut cx));
    assert_eq!(conn_of(&mut door).answers.len(), 1, "it is answered");
}
