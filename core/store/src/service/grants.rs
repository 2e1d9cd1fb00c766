//! Grants that are sent again, because their answer was lost with the connection: they get what they got first.
//!
//! What was granted stays with the session, and it may have only so much ahead: a block that is granted anew for each lost answer would be missed until the session
//! ends. A service that was started again does not know what it has answered.

use crate::file::NewBlock;
use crate::id::SessionId;
use crate::protocol::RequestNumber;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Grants of a session that are remembered: those with the highest numbers.
const REMEMBERED: usize = 64;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Grants(BTreeMap<(SessionId, RequestNumber), Vec<NewBlock>>);

impl Grants {
    fn of(&self, session: SessionId) -> impl Iterator<Item = RequestNumber> + '_ {
        let all = (session, RequestNumber(0))..=(session, RequestNumber(u64::MAX));
        self.0.range(all).map(|((_, number), _)| *number)
    }

    /// What that request was answered with.
    pub fn get(&self, session: SessionId, number: RequestNumber) -> Option<&Vec<NewBlock>> {
        self.0.get(&(session, number))
    }

    /// A session is over.
    pub fn forget(&mut self, session: SessionId) {
        let numbers: Vec<RequestNumber> = self.of(session).collect();
        numbers.into_iter().for_each(|number| drop(self.0.remove(&(session, number))));
    }

    /// A request was answered with these blocks.
    pub fn remember(&mut self, session: SessionId, number: RequestNumber, blocks: &[NewBlock]) {
        self.0.insert((session, number), blocks.to_vec());
        let lowest = self.of(session).next().filter(|_| self.of(session).count() > REMEMBERED);
        lowest.map(|lowest| self.0.remove(&(session, lowest)));
    }
}
