//! What a message does, as far as it can be seen without doing it: whether it has to wait for others, and whether it can be heard again.

use super::device::{VfioUserDevice, read};
use super::{DOORBELLS, DOORBELLS_END, Message};
use weir_spec::vfio_user::{Command, Header, RegionAccess, region, small_writes};
use zerocopy::little_endian::{U32, U64};

impl VfioUserDevice {
    /// Whether what the message does must wait until every [`Action::Register`](super::Action::Register) before it has had its effect.
    pub fn must_follow<F>(message: &Message<F>) -> bool {
        // A write to configuration space may be a reset, and one to the memory buffer may be what a command waits for.
        if message.header.kind() == Header::REPLY {
            return false;
        }
        match Command(message.header.command.get()) {
            Command::REGION_WRITE => {
                !read::<RegionAccess>(&message.payload).is_ok_and(|(access, _)| access.region.get() == region::BAR0)
            }
            Command::REGION_WRITE_MULTI => {
                let mut writes = small_writes(&message.payload).into_iter().flatten();
                writes.any(|write| write.region.get() != region::BAR0)
            }
            _ => true,
        }
    }

    /// Whether all that the message does is to ring doorbells of I/O queues: heard again, it says the same and is answered the same.
    pub fn only_rings<F>(message: &Message<F>) -> bool {
        // Behind the pair of the admin queues.
        let rings = |region: U32, offset: U64, count: U32| {
            let (begin, end) = (offset.get(), offset.get().saturating_add(count.get().into()));
            region.get() == region::BAR0 && begin >= DOORBELLS + 8 && end <= DOORBELLS_END
        };
        if message.header.kind() == Header::REPLY {
            return false;
        }
        match Command(message.header.command.get()) {
            Command::REGION_WRITE => read::<RegionAccess>(&message.payload)
                .is_ok_and(|(access, _)| rings(access.region, access.offset, access.count)),
            Command::REGION_WRITE_MULTI => small_writes(&message.payload)
                .is_some_and(|writes| writes.iter().all(|write| rings(write.region, write.offset, write.count))),
            _ => false,
        }
    }
}
