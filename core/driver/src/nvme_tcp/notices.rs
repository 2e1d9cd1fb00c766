//! What a controller says of a namespace by itself: an Asynchronous Event Request that is always outstanding, and the log page that an event
//! names.
//!
//! ```text
//!   next() ─► Asynchronous Event Request ─► answered(): ANA change ─► next(): Get Log Page, ANA ─► answered(): its state ─► take()
//!     ▲                                     └─────────► answered(): attributes changed ────────────────────────────────────┘  │
//!     └───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

use super::command;
use super::connection::DataTransfer;
use crate::NamespaceNotice;
use weir_spec::nvme::log::{AsyncEvent, lid};
use weir_spec::nvme::maintenance::{AnaGroup, AnaHeader, ana};
use weir_spec::nvme::{Cqe, Sqe};
use zerocopy::FromBytes;

/// Bytes of the ANA log that are read: groups beyond it are not looked for.
pub const LOG_LEN: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A request for events is to be sent.
    Request,
    /// The ANA log page is to be read.
    Log,
    /// One of them is on its way.
    Sent(Sent),
    /// The controller takes no such request.
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Request,
    Log,
}

/// See the [module](self).
#[derive(Debug)]
pub struct NamespaceWatch {
    nsid: u32,
    step: Step,
    notice: Option<NamespaceNotice>,
}

impl NamespaceWatch {
    /// Of one namespace; nothing was sent.
    pub fn new(nsid: u32) -> Self {
        Self { nsid, step: Step::Request, notice: None }
    }

    /// The admin command to send now, if there is one; [`answered`](Self::answered) comes before the next one.
    pub fn next_command(&mut self) -> Option<(Sqe, DataTransfer)> {
        let (sent, command) = match self.step {
            Step::Request => (Sent::Request, (command::async_event_request(), DataTransfer::None)),
            Step::Log => (Sent::Log, (command::log_page(lid::ANA, 0, LOG_LEN), DataTransfer::ToHost(LOG_LEN))),
            Step::Sent(_) | Step::Off => return None,
        };
        self.step = Step::Sent(sent);
        Some(command)
    }

    /// The completion of the command, and the log page if it was one.
    pub fn answered(&mut self, cqe: &Cqe, page: &[u8]) {
        let is_ok = cqe.status().is_success();
        self.step = match self.step {
            Step::Sent(Sent::Request) if is_ok => self.event(AsyncEvent::from_dw0(cqe.dw0.get())),
            // Most likely it takes none at all.
            Step::Sent(Sent::Request) => Step::Off,
            Step::Sent(Sent::Log) => {
                let state = is_ok.then(|| state_of(page, self.nsid)).flatten();
                if let Some(state) = state {
                    let is_accessible = matches!(state, ana::OPTIMIZED | ana::NON_OPTIMIZED);
                    self.notice = Some(NamespaceNotice::AccessChanged { is_accessible });
                }
                Step::Request
            }
            step => step,
        };
    }

    fn event(&mut self, event: AsyncEvent) -> Step {
        if event == AsyncEvent::ANA_CHANGE {
            return Step::Log;
        }
        if event == AsyncEvent::NAMESPACE_ATTRIBUTE {
            self.notice = Some(NamespaceNotice::AttributesChanged);
        }
        // Whatever else there is stays masked until its log page is read, and is of no interest.
        Step::Request
    }

    /// What was said since the last call.
    pub fn take(&mut self) -> Option<NamespaceNotice> {
        self.notice.take()
    }
}

/// The ANA state of a namespace (base 2.0, 5.16.1.13); `None`: the page does not have it.
fn state_of(page: &[u8], nsid: u32) -> Option<u8> {
    let (header, mut rest) = AnaHeader::read_from_prefix(page).ok()?;
    for _ in 0..header.groups.get() {
        let (group, list) = AnaGroup::read_from_prefix(rest).ok()?;
        let len = (group.namespaces.get() as usize).checked_mul(4)?;
        let own = list.get(..len)?;
        if own.chunks_exact(4).any(|id| id == nsid.to_le_bytes()) {
            return Some(group.state);
        }
        rest = &list[len..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use weir_spec::nvme::Status;
    use zerocopy::IntoBytes;
    use zerocopy::little_endian::{U16, U32};

    fn page(groups: &[(u8, &[u32])]) -> Vec<u8> {
        let header = AnaHeader { groups: U16::new(groups.len() as u16), ..AnaHeader::default() };
        let mut bytes = header.as_bytes().to_vec();
        for (state, ids) in groups {
            let group = AnaGroup { namespaces: U32::new(ids.len() as u32), state: *state, ..AnaGroup::default() };
            bytes.extend_from_slice(group.as_bytes());
            ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
        }
        bytes
    }

    fn event(event: AsyncEvent) -> Cqe {
        let mut cqe = Cqe { dw0: U32::new(event.dw0()), ..Cqe::default() };
        cqe.set_status(Status::SUCCESS);
        cqe
    }

    #[test]
    fn the_state_of_a_namespace_among_groups() {
        let two = page(&[(ana::OPTIMIZED, &[3, 4]), (ana::INACCESSIBLE, &[1])]);
        assert_eq!([1, 3, 4, 2].map(|nsid| state_of(&two, nsid)), [Some(3), Some(1), Some(1), None]);
        for cut in 0..two.len() {
            assert_eq!(state_of(&two[..cut], 1), None, "cut at {cut}");
        }
        let mut lies = page(&[(ana::OPTIMIZED, &[1])]);
        lies[16 + 4..16 + 8].fill(0xff);
        assert_eq!(state_of(&lies, 1), None);
    }

    #[test]
    fn a_change_of_access_is_told_with_the_state_of_the_log() {
        let mut watch = NamespaceWatch::new(1);
        for (state, is_accessible) in
            [(ana::INACCESSIBLE, false), (ana::CHANGE, false), (ana::NON_OPTIMIZED, true), (ana::OPTIMIZED, true)]
        {
            assert_eq!(watch.next_command(), Some((command::async_event_request(), DataTransfer::None)));
            assert_eq!(watch.next_command(), None, "one at a time");
            watch.answered(&event(AsyncEvent::ANA_CHANGE), &[]);
            let log = command::log_page(lid::ANA, 0, LOG_LEN);
            assert_eq!(watch.next_command(), Some((log, DataTransfer::ToHost(LOG_LEN))));
            watch.answered(&Cqe::default(), &page(&[(state, &[1])]));
            assert_eq!(watch.take(), Some(NamespaceNotice::AccessChanged { is_accessible }));
            assert_eq!(watch.take(), None);
        }
    }

    #[test]
    fn other_events() {
        let mut watch = NamespaceWatch::new(1);
        watch.next_command();
        watch.answered(&event(AsyncEvent::NAMESPACE_ATTRIBUTE), &[]);
        assert_eq!(watch.take(), Some(NamespaceNotice::AttributesChanged));
        watch.next_command();
        watch.answered(&event(AsyncEvent::SPARE), &[]);
        assert_eq!(watch.take(), None);
        assert!(watch.next_command().is_some());
        let mut refused = Cqe::default();
        refused.set_status(Status::INVALID_OPCODE);
        watch.answered(&refused, &[]);
        assert_eq!(
            (watch.next_command(), watch.take()),
            (None, None),
            "a controller without events is not asked again"
        );
    }
}
