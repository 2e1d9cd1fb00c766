use super::chain;
use super::guest::{Guest, RAM, RAM_LEN, SECTORS, USER, region};
use crate::memory::{Memory, MemoryFault};
use crate::vhost_user::{Action, Disk, Inbox, MAX_QUEUE_SIZE, Message, ProtocolError, Violation};
use alloc::vec;
use alloc::vec::Vec;
use weir_spec::vhost_user::{
    BackendRequest, ConfigHeader, Header, MAX_CONFIG, MemoryTableHeader, Request, VringFd, VringState, protocol,
};
use weir_spec::virtio_blk::{Config, RequestStatus, RequestType, feature as blk};
use weir_spec::virtqueue::feature;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

fn config_request(offset: u32, size: usize) -> Vec<u8> {
    let head = ConfigHeader { offset: U32::new(offset), size: U32::new(size as u32), flags: U32::ZERO };
    let mut payload = head.as_bytes().to_vec();
    payload.resize(payload.len() + size, 0);
    payload
}

fn config(g: &mut Guest) -> Config {
    let payload = g.call(Request::GET_CONFIG, &config_request(0, size_of::<Config>()), vec![]);
    Config::read_from_bytes(&payload[size_of::<ConfigHeader>()..]).unwrap()
}

#[test]
fn enable_is_not_start_and_kick_is() {
    let mut g = Guest::without(feature::RING_PACKED);
    g.configure(0, 8, 0);
    assert_eq!(g.state(Request::SET_VRING_ENABLE, 0, 1), 0);
    assert!(g.device.queue(0).is_none() && g.out.is_empty());
    assert_eq!(g.kick(0), 0);
    assert!(matches!(g.out[..], [Action::Kick { queue: 0, fd: Some(_) }, Action::Started(0)]));
    assert!(g.device.is_served(0));
}

#[test]
fn a_started_queue_waits_for_enable() {
    let mut g = Guest::without(feature::RING_PACKED);
    g.configure(0, 8, 0);
    assert_eq!(g.kick(0), 0);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    g.lay(0, &pieces);
    g.offer(0);
    assert_eq!(g.take(), Ok(vec![]));
    assert!(!g.device.is_served(0));
    assert_eq!(g.state(Request::SET_VRING_ENABLE, 0, 1), 0);
    assert!(matches!(g.out.last(), Some(Action::Poll(0))), "what came meanwhile is found without a kick");
    assert_eq!(g.take().unwrap().len(), 1);
    assert_eq!(g.state(Request::SET_VRING_ENABLE, 0, 2), 1);
}

#[test]
fn without_protocol_features_rings_are_enabled_from_the_start() {
    let mut g = Guest::without(feature::RING_PACKED);
    let features = g.device.features() & !weir_spec::vhost_user::F_PROTOCOL_FEATURES;
    g.send(Request::SET_FEATURES, U64::new(features).as_bytes(), vec![]);
    g.configure(0, 8, 0);
    assert_eq!(g.kick(0), 0);
    assert!(g.device.is_served(0));
}

#[test]
fn a_kick_without_a_descriptor_means_polling() {
    let mut g = Guest::without(feature::RING_PACKED);
    g.configure(0, 8, 0);
    assert_eq!(g.ask(Request::SET_VRING_KICK, VringFd(U64::new(VringFd::NO_FD)).as_bytes(), vec![]), 0);
    assert!(matches!(g.out[..], [Action::Kick { queue: 0, fd: None }, Action::Started(0)]));
    // A descriptor that is announced and missing, or the reverse.
    assert_eq!(g.ask(Request::SET_VRING_CALL, VringFd(U64::ZERO).as_bytes(), vec![]), 1);
    let fd = vec![g.ram.clone()];
    assert_eq!(g.ask(Request::SET_VRING_CALL, VringFd(U64::new(VringFd::NO_FD)).as_bytes(), fd), 1);
}

#[test]
fn get_vring_base_drains_first_and_returns_the_next_available_index() {
    let mut g = Guest::split(8, 0);
    for head in [0, 2] {
        let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
        g.lay(head, &pieces);
        g.offer(head);
    }
    let taken = g.take().unwrap();
    assert_eq!(taken.len(), 2);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    g.lay(4, &pieces);
    g.offer(4);
    g.out.clear();
    g.send(Request::GET_VRING_BASE, VringState::default().as_bytes(), vec![]);
    assert!(
        g.device.is_draining() && matches!(g.out[..], [Action::Poll(0)]),
        "two requests are in flight: {:?}",
        g.out
    );
    assert_eq!(g.take(), Ok(vec![]), "no more are taken");
    g.execute(&taken[0]);
    g.device.settle(&g.memory, &mut g.out);
    assert!(g.device.is_draining());
    g.execute(&taken[1]);
    g.device.settle(&g.memory, &mut g.out);
    assert!(!g.device.is_draining() && g.device.queue(0).is_none());
    assert_eq!(g.used_index(), 2, "published before the answer");
    assert!(g.out.iter().any(|a| matches!(a, Action::Stopped(0))));
    let answer = g.reply(Request::GET_VRING_BASE).unwrap();
    assert_eq!(VringState::read_from_bytes(&answer).unwrap().num.get(), 2);
    // And it goes on from there: the third request is not lost.
    g.start(0, 8, 2);
    assert_eq!(g.take().unwrap().len(), 1);
    assert_eq!(g.base_of(1), 0, "a queue that never started");
}

#[test]
fn a_broken_queue_drains_and_starts_again() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    g.lay(0, &pieces);
    g.offer(0);
    let taken = g.take().unwrap();
    g.offer(99);
    assert_eq!(g.broken(), Violation::OutOfRange);
    g.execute(&taken[0]);
    g.device.publish(&g.memory, 0);
    assert!(g.device.wants_signal(&g.memory, 0));
    assert_eq!(g.used_index(), 1, "what was in flight completes");
    assert_eq!(g.base_of(0), 1);
    g.start(0, 8, 2);
    assert!(g.device.is_served(0));
}

#[test]
fn set_vring_addr_takes_the_used_index_from_the_ring_again() {
    let mut g = Guest::split(8, 0);
    let used = Guest::places(0)[2];
    g.ram.write(used + 2, &5u16.to_le_bytes()).unwrap();
    assert_eq!(g.set_address(0), 0);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    g.lay(0, &pieces);
    g.offer(0);
    g.serve();
    assert_eq!((g.used_index(), g.used(5).0), (6, 0));
    // At a start, too: a back end before us may have left it there.
    g.base_of(0);
    g.ram.write(used + 2, &7u16.to_le_bytes()).unwrap();
    g.start(0, 8, 1);
    g.offer(0);
    g.serve();
    assert_eq!(g.used_index(), 8);
}

#[test]
fn a_new_capacity_is_announced_and_read_again() {
    let mut g = Guest::split(8, 0);
    assert_eq!(config(&mut g).capacity.get(), SECTORS);
    g.device.resize(2 * SECTORS, &mut g.out);
    assert!(!g.out.iter().any(|a| matches!(a, Action::Tell(_))), "there is no channel yet");
    let channel = vec![g.ram.clone()];
    assert_eq!(g.ask(Request::SET_BACKEND_REQ_FD, &[], channel), 0);
    assert!(matches!(g.out.last(), Some(Action::Channel(_))));
    g.device.resize(3 * SECTORS, &mut g.out);
    let Some(Action::Tell(bytes)) = g.out.last() else { panic!("the front end is told") };
    let header = Header::read_from_bytes(bytes).unwrap();
    assert_eq!((header.request.get(), header.size.get()), (BackendRequest::CONFIG_CHANGE_MSG.0, 0));
    assert!(!header.needs_reply() && !header.is_reply() && header.version() == 1);
    assert_eq!(config(&mut g).capacity.get(), 3 * SECTORS);
    let told = g.out.len();
    g.device.resize(3 * SECTORS, &mut g.out);
    assert_eq!(g.out.len(), told, "once");
    // Another disk of the same size is announced in the same way.
    g.device.renew("another", 7, &mut g.out);
    let Some(Action::Tell(bytes)) = g.out.last() else { panic!("the front end is told") };
    let header = Header::read_from_bytes(bytes).unwrap();
    assert_eq!((g.out.len(), header.request.get()), (told + 1, BackendRequest::CONFIG_CHANGE_MSG.0));
}

#[test]
fn without_the_config_feature_nobody_is_told() {
    let mut g = Guest::without(0);
    let features = Disk::PROTOCOL & !protocol::CONFIG;
    g.send(Request::SET_PROTOCOL_FEATURES, U64::new(features).as_bytes(), vec![]);
    let channel = vec![g.ram.clone()];
    g.ask(Request::SET_BACKEND_REQ_FD, &[], channel);
    g.device.resize(1, &mut g.out);
    assert!(!g.out.iter().any(|a| matches!(a, Action::Tell(_))));
}

#[test]
fn the_config_space_has_the_fields_of_negotiated_features_only() {
    let mut g = Guest::without(blk::DISCARD | blk::MQ);
    let c = config(&mut g);
    assert_eq!((c.max_discard_sectors.get(), c.max_discard_seg.get(), c.num_queues.get()), (0, 0, 0));
    assert_eq!((c.max_write_zeroes_seg.get(), c.seg_max.get(), c.blk_size.get()), (1, 126, 512));
    assert_eq!((c.writeback, c.size_max.get(), c.max_secure_erase_seg.get()), (0, 0, 0));
    let mut all = Guest::without(0);
    assert_eq!((config(&mut all).num_queues.get(), config(&mut all).max_discard_seg.get()), (16, 1));
}

#[test]
fn the_write_cache_switch_is_not_offered_and_not_writable() {
    let mut g = Guest::without(0);
    assert_eq!(g.device.disk().features() & blk::CONFIG_WCE, 0);
    assert_ne!(g.device.disk().features() & blk::FLUSH, 0);
    let mut payload = config_request(32, 1);
    *payload.last_mut().unwrap() = 1;
    assert_eq!(g.ask(Request::SET_CONFIG, &payload, vec![]), 1);
}

#[test]
fn get_config_of_a_disk_that_was_removed_is_answered() {
    let mut g = Guest::split(8, 0);
    g.device.resize(0, &mut g.out);
    assert_eq!(config(&mut g).capacity.get(), 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(super::guest::DATA + 4096, 512, true)]);
    assert_eq!(g.request(&pieces), RequestStatus::IOERR);
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    assert_eq!(g.request(&flush), RequestStatus::OK);
}

#[test]
fn config_requests_beyond_the_space_get_an_empty_answer() {
    let mut g = Guest::without(0);
    let whole = g.call(Request::GET_CONFIG, &config_request(0, MAX_CONFIG), vec![]);
    assert_eq!(whole.len(), size_of::<ConfigHeader>() + MAX_CONFIG);
    for bad in
        [config_request(1, MAX_CONFIG), config_request(u32::MAX, 1), vec![0; 3], config_request(0, 8)[..15].to_vec()]
    {
        assert!(g.call(Request::GET_CONFIG, &bad, vec![]).is_empty());
    }
}

#[test]
fn rem_mem_reg_may_carry_a_descriptor() {
    let mut g = Guest::split(8, 0);
    let wire = region(RAM, RAM_LEN, USER);
    let fd = vec![g.ram.clone()];
    let held = alloc::rc::Rc::strong_count(&g.ram);
    assert_eq!(g.ask(Request::REM_MEM_REG, wire.as_bytes(), fd), 0);
    assert!(alloc::rc::Rc::strong_count(&g.ram) < held, "it is closed");
    assert!(g.out.iter().any(|a| matches!(a, Action::Broken(0, Violation::Ring(MemoryFault::Unmapped)))));
    assert_eq!(g.ask(Request::REM_MEM_REG, wire.as_bytes(), vec![]), 1, "it is not there any more");
    // Back again, and the queue is restarted by its front end.
    assert_eq!(g.add_region(RAM, RAM_LEN, USER), 0);
    let base = g.base_of(0);
    g.start(0, 8, base);
    assert!(g.device.is_served(0));
}

#[test]
fn data_in_a_region_that_was_removed_is_an_error_of_that_request() {
    let mut g = Guest::split(8, 0);
    let (other, at) = (RAM + RAM_LEN + 0x1000, USER + RAM_LEN);
    let mut more = crate::memory::model::ModelMemory::new();
    more.add(other, 0x1000);
    let more = alloc::rc::Rc::new(more);
    assert_eq!(g.ask(Request::ADD_MEM_REG, region(other, 0x1000, at).as_bytes(), vec![more]), 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(other, 512, true)]);
    g.lay(0, &pieces);
    g.offer(0);
    let taken = g.take().unwrap();
    assert_eq!(g.ask(Request::REM_MEM_REG, region(other, 0x1000, at).as_bytes(), vec![]), 0);
    g.execute(&taken[0]);
    g.device.publish(&g.memory, 0);
    assert_eq!((g.used_index(), g.bytes(super::guest::DATA + 16, 1)[0]), (1, RequestStatus::IOERR.0));
    assert!(g.device.is_served(0));
}

#[test]
fn regions_are_checked_before_they_are_mapped() {
    let mut g = Guest::without(0);
    for (guest, len, user, why) in [
        (RAM, RAM_LEN, USER, "the same again"),
        (RAM - 0x1000, 0x1001, 0x1000, "overlaps for the guest"),
        (0x1000, 0x1000, USER + 0xfff, "overlaps for the front end"),
        (0x1000, 0, 0x1000, "empty"),
        (u64::MAX - 0xfff, 0x2000, 0x1000, "wraps for the guest"),
        (0x1000, 0x2000, u64::MAX - 0xfff, "wraps for the front end"),
    ] {
        assert_eq!(g.add_region(guest, len, user), 1, "{why}");
    }
    let wire = region(0x1000, 0x1000, 0x1000);
    assert_eq!(g.ask(Request::ADD_MEM_REG, wire.as_bytes(), vec![]), 1, "no descriptor");
    assert_eq!(g.ask(Request::ADD_MEM_REG, &wire.as_bytes()[1..], vec![]), 1, "too short");
    let fd = vec![g.ram.clone()];
    assert_eq!(g.ask(Request::ADD_MEM_REG, wire.as_bytes(), fd), 1, "the file is too short");
}

#[test]
fn a_memory_table_replaces_the_one_before() {
    let mut g = Guest::split(8, 0);
    let table = |count: u32, region: &[u8]| {
        let mut t = MemoryTableHeader { regions: U32::new(count), padding: U32::ZERO }.as_bytes().to_vec();
        t.extend_from_slice(region);
        t
    };
    let one = region(RAM, RAM_LEN, USER).region;
    let (fd, two) = (g.ram.clone(), [one.as_bytes(), one.as_bytes()].concat());
    assert_eq!(g.ask(Request::SET_MEM_TABLE, &table(1, one.as_bytes()), vec![fd.clone()]), 0);
    assert!(matches!(g.out.last(), Some(Action::Poll(0))), "the ring was found again");
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    assert_eq!(g.request(&pieces), RequestStatus::OK);
    assert_eq!(g.ask(Request::SET_MEM_TABLE, &table(2, one.as_bytes()), vec![fd.clone()]), 1, "too short");
    assert_eq!(g.ask(Request::SET_MEM_TABLE, &table(1, one.as_bytes()), vec![]), 1, "no descriptor");
    assert_eq!(g.ask(Request::SET_MEM_TABLE, &table(2, &two), vec![fd.clone(), fd]), 1, "they overlap");
    assert_eq!(g.request(&pieces), RequestStatus::OK, "a refused table changes nothing");
}

#[test]
fn failure_is_told_where_the_front_end_wants_to_know() {
    let mut g = Guest::without(0);
    assert_eq!(g.ask(Request::SET_VRING_NUM, &[0; 3], vec![]), 1);
    assert_eq!(g.ask(Request(999), &[], vec![]), 1);
    assert_eq!(g.ask(Request::GET_INFLIGHT_FD, &[0; 24], vec![]), 1);
    g.send(Request(999), &[], vec![]);
    assert!(matches!(g.out.last(), Some(Action::Close(ProtocolError::Failed(Request(999))))));
    // NEED_REPLY means nothing before it was negotiated.
    g.send(Request::SET_PROTOCOL_FEATURES, U64::ZERO.as_bytes(), vec![]);
    g.out.clear();
    let (payload, fds) = (U64::new(g.device.features()).as_bytes().to_vec(), vec![]);
    let message = Message { request: Request::SET_FEATURES, needs_reply: true, again: false, payload, fds };
    g.device.message(message, &mut g.memory, &mut g.out);
    assert!(g.out.is_empty());
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let mut g = Guest::without(0);
    for bit in [blk::CONFIG_WCE, feature::ACCESS_PLATFORM, 1 << 60] {
        assert_eq!(g.ask(Request::SET_FEATURES, U64::new(bit).as_bytes(), vec![]), 1);
    }
    let notifier = U64::new(protocol::HOST_NOTIFIER);
    assert_eq!(g.ask(Request::SET_PROTOCOL_FEATURES, notifier.as_bytes(), vec![]), 1);
    assert_eq!(g.ask(Request::GET_QUEUE_NUM, &[], vec![]), 16);
    assert!(g.ask(Request::GET_MAX_MEM_SLOTS, &[], vec![]) >= 8);
}

#[test]
fn queue_parameters_are_checked() {
    let mut g = Guest::without(feature::RING_PACKED);
    assert_eq!(g.state(Request::SET_VRING_NUM, 16, 8), 1, "there are 16");
    assert_eq!(g.state(Request::SET_VRING_NUM, 0, 0), 1);
    assert_eq!(g.state(Request::SET_VRING_NUM, 0, u32::from(MAX_QUEUE_SIZE) + 1), 1);
    assert_eq!(g.kick(0), 1, "no size, no address");
    g.configure(0, 6, 0);
    assert_eq!(g.kick(0), 1, "a split ring's size is a power of two");
    g.configure(0, 8, 0);
    assert_eq!(g.kick(0), 0);
    assert_eq!(g.state(Request::SET_VRING_NUM, 0, 16), 1, "it runs");
    assert_eq!(g.state(Request::SET_VRING_BASE, 0, 1), 1, "it runs");
    let features = U64::new(g.device.features() ^ feature::EVENT_IDX);
    assert_eq!(g.ask(Request::SET_FEATURES, features.as_bytes(), vec![]), 1, "it runs");
}

#[test]
fn a_reset_drops_what_is_in_flight() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    g.lay(0, &pieces);
    g.offer(0);
    let taken = g.take().unwrap();
    g.out.clear();
    assert_eq!(g.ask(Request::RESET_DEVICE, &[], vec![]), 0);
    assert!(matches!(g.out[..], [Action::Stopped(0)]));
    g.device.complete(&g.memory, taken[0].tag, RequestStatus::OK);
    g.device.publish(&g.memory, 0);
    assert!(!g.device.wants_signal(&g.memory, 0));
    assert_eq!((g.used_index(), g.device.features()), (0, 0));
    let features = U64::new(g.device.disk().features() & !feature::RING_PACKED);
    assert_eq!(g.ask(Request::SET_FEATURES, features.as_bytes(), vec![]), 0);
    g.start(0, 8, 0);
    assert_eq!(g.take().unwrap().len(), 1);
    assert_eq!(g.ask(Request::RESET_OWNER, &[], vec![]), 0);
    assert!(!g.device.is_served(0));
}

#[test]
fn the_inbox_takes_bytes_as_they_come() {
    let mut inbox = Inbox::<u8>::default();
    let header = Header::request(Request::SET_FEATURES, 8);
    let mut wire = header.as_bytes().to_vec();
    wire.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    wire.extend_from_slice(Header::request(Request::GET_FEATURES, 0).as_bytes());
    let mut got = Vec::new();
    for (i, b) in wire.iter().enumerate() {
        let space = inbox.space();
        space[0] = *b;
        got.extend(inbox.advance(1, (i == 0).then_some(7)).unwrap());
    }
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].request, &got[0].fds[..]), (Request::SET_FEATURES, &[7][..]));
    assert_eq!(got[0].payload, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((got[1].request, got[1].payload.len()), (Request::GET_FEATURES, 0));
}

#[test]
fn the_inbox_refuses_what_is_no_message() {
    let feed = |header: Header, fds: usize| {
        let mut inbox = Inbox::<u8>::default();
        inbox.space().copy_from_slice(header.as_bytes());
        inbox.advance(12, vec![0; fds]).map(|m| m.is_some())
    };
    let header = |flags: u32, size| Header { request: U32::new(1), flags: U32::new(flags), size: U32::new(size) };
    assert_eq!(feed(header(1, 0), 0), Ok(true));
    assert_eq!(feed(header(1, 1024), 0), Ok(false));
    assert_eq!(feed(header(0, 0), 0), Err(ProtocolError::Version(0)));
    assert_eq!(feed(header(2, 0), 0), Err(ProtocolError::Version(2)));
    assert_eq!(feed(header(1, 1025), 0), Err(ProtocolError::TooLong(1025)));
    assert_eq!(feed(header(1, u32::MAX), 0), Err(ProtocolError::TooLong(u32::MAX)));
    assert_eq!(feed(header(5, 0), 0), Err(ProtocolError::UnexpectedReply(Request::GET_FEATURES)));
    assert_eq!(feed(header(1, 0), 9), Err(ProtocolError::TooManyDescriptors));
}
