//! What a controller says of a namespace by itself: an Asynchronous Event Request that is always outstanding, and the log page that an event
//! names.
//!
//! ```text
//!   next_command() ─► Asynchronous Event Request ─► answered() ─┬─ ANA change ─────────► Get Log Page, ANA ────────────────┐
//!     ▲                                                         └─ attributes changed ─► Get Log Page, changed namespaces ─┤
//!     └──────────────────────────────────────────────── take() ◄───────────────────────────────────────────── answered() ◄─┘
//! ```
//! A controller does not tell an event again before its log page was read (base 2.0, 5.2).

use super::command;
use super::connection::DataTransfer;
use crate::NamespaceNotice;
use weir_spec::nvme::log::{AsyncEvent, lid};
use weir_spec::nvme::maintenance::{AnaGroup, AnaHeader, ana};
use weir_spec::nvme::{Cqe, Sqe};
use zerocopy::FromBytes;

/// Bytes of a log that are read. ANA groups beyond it are not looked for; the changed namespace list is not longer.
pub const LOG_LEN: u32 = 4096;
/// The entry of a changed namespace list that stands for more namespaces than fit (base 2.0, 5.16.1.5).
const TOO_MANY: u32 = 0xffff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A request for events is to be sent.
    Request,
    /// A log page is to be read.
    Log(Page),
    /// One of them is on its way.
    Sent(Sent),
    /// The controller takes no such request.
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Request,
    Log(Page),
}

/// The log page that an event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Ana,
    ChangedNamespaces,
}

impl Page {
    fn lid(self) -> u8 {
        match self {
            Self::Ana => lid::ANA,
            Self::ChangedNamespaces => lid::CHANGED_NAMESPACES,
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct NamespaceWatch {
    nsid: u32,
    step: Step,
    has_changed: bool,
    is_accessible: Option<bool>,
}

impl NamespaceWatch {
    /// Of one namespace; nothing was sent.
    pub fn new(nsid: u32) -> Self {
        Self { nsid, step: Step::Request, has_changed: false, is_accessible: None }
    }

    /// The admin command to send now, if there is one; [`answered`](Self::answered) comes before the next one.
    pub fn next_command(&mut self) -> Option<(Sqe, DataTransfer)> {
        let (sent, command) = match self.step {
            Step::Request => (Sent::Request, (command::async_event_request(), DataTransfer::None)),
            Step::Log(page) => {
                (Sent::Log(page), (command::log_page(page.lid(), 0, LOG_LEN), DataTransfer::ToHost(LOG_LEN)))
            }
            Step::Sent(_) | Step::Off => return None,
        };
        self.step = Step::Sent(sent);
        Some(command)
    }

    /// The completion of the command, and the log page if it was one.
    pub fn answered(&mut self, cqe: &Cqe, page: &[u8]) {
        let is_ok = cqe.status().is_success();
        self.step = match self.step {
            Step::Sent(Sent::Request) if is_ok => event(AsyncEvent::from_dw0(cqe.dw0.get())),
            // Most likely it takes none at all.
            Step::Sent(Sent::Request) => Step::Off,
            Step::Sent(Sent::Log(Page::Ana)) => {
                if let Some(state) = is_ok.then(|| state_of(page, self.nsid)).flatten() {
                    self.is_accessible = Some(matches!(state, ana::OPTIMIZED | ana::NON_OPTIMIZED));
                }
                Step::Request
            }
            // Without the list it may be this one.
            Step::Sent(Sent::Log(Page::ChangedNamespaces)) => {
                self.has_changed |= !is_ok || lists(page, self.nsid);
                Step::Request
            }
            step => step,
        };
    }

    /// Whether [`take`](Self::take) has something.
    pub fn has_notice(&self) -> bool {
        self.has_changed || self.is_accessible.is_some()
    }

    /// What was said since the last call; more than once until there is nothing. A namespace that has changed comes first: it is looked at
    /// anew as a whole.
    pub fn take(&mut self) -> Option<NamespaceNotice> {
        if core::mem::take(&mut self.has_changed) {
            return Some(NamespaceNotice::AttributesChanged);
        }
        self.is_accessible.take().map(|is_accessible| NamespaceNotice::AccessChanged { is_accessible })
    }
}

/// What to do about an event. Others than these stay masked until their log page is read, and are of no interest.
fn event(event: AsyncEvent) -> Step {
    match event {
        AsyncEvent::ANA_CHANGE => Step::Log(Page::Ana),
        AsyncEvent::NAMESPACE_ATTRIBUTE => Step::Log(Page::ChangedNamespaces),
        _ => Step::Request,
    }
}

/// Whether a changed namespace list names a namespace (base 2.0, 5.16.1.5).
fn lists(page: &[u8], nsid: u32) -> bool {
    let mut entries = page.chunks_exact(4).filter_map(|id| id.try_into().ok()).map(u32::from_le_bytes);
    entries.any(|id| id == nsid || id == TOO_MANY)
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
    use alloc::vec;
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

    /// The event comes again only after its log page was read.
    #[test]
    fn a_change_of_the_namespace_is_told_after_the_list_was_read() {
        let changed = Some(NamespaceNotice::AttributesChanged);
        let lists: [(&[u32], Option<NamespaceNotice>); 4] =
            [(&[1, 0], changed), (&[2, 3, 0], None), (&[TOO_MANY, 0], changed), (&[], None)];
        let mut watch = NamespaceWatch::new(1);
        for (list, notice) in lists {
            watch.next_command();
            watch.answered(&event(AsyncEvent::NAMESPACE_ATTRIBUTE), &[]);
            assert_eq!(watch.take(), None, "not yet");
            let log = command::log_page(lid::CHANGED_NAMESPACES, 0, LOG_LEN);
            assert_eq!(watch.next_command(), Some((log, DataTransfer::ToHost(LOG_LEN))));
            let bytes: Vec<u8> = list.iter().flat_map(|id| id.to_le_bytes()).collect();
            watch.answered(&Cqe::default(), &bytes);
            assert_eq!((watch.has_notice(), watch.take()), (notice.is_some(), notice), "{list:?}");
        }
    }

    #[test]
    fn two_notices_are_told_one_after_the_other() {
        let mut watch = NamespaceWatch::new(1);
        let pages = [(AsyncEvent::NAMESPACE_ATTRIBUTE, vec![1, 0, 0, 0]), (AsyncEvent::ANA_CHANGE, page(&[(1, &[1])]))];
        for (of, bytes) in pages {
            watch.next_command();
            watch.answered(&event(of), &[]);
            watch.next_command();
            watch.answered(&Cqe::default(), &bytes);
        }
        let access = NamespaceNotice::AccessChanged { is_accessible: true };
        assert_eq!(
            [watch.take(), watch.take(), watch.take()],
            [Some(NamespaceNotice::AttributesChanged), Some(access), None]
        );
    }

    #[test]
    fn other_events() {
        let mut watch = NamespaceWatch::new(1);
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
