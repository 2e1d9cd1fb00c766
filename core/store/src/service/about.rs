//! What a request is about, for the text of its refusal: a path, an inode, a handle, a namespace with its target.

use crate::Extent;
use crate::id::{InodeId, NamespaceId, SessionId};
use crate::name::EntryName;
use crate::protocol::{Request, SessionWish};
use crate::tree::{EntryPath, NameChange};
use alloc::format;
use alloc::string::String;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) enum About {
    /// The service, or all that it has.
    Service,
    Client(String),
    Session(Option<SessionId>),
    /// A path from there, of so many names.
    Path(InodeId, usize),
    Inode(InodeId),
    Entry(EntryPath),
    Rename(EntryPath, EntryPath),
    /// An open file, if it is one.
    Handle(u64, Option<InodeId>),
    /// Blocks: the first, and how many extents there are.
    Extents(Option<Extent>, usize),
    Target(String),
    Namespace(NamespaceId),
}

impl About {
    /// What a request of a session is about; `open` tells the file of a handle.
    pub fn of(request: &Request, session: Option<SessionId>, open: impl Fn(u64) -> Option<InodeId>) -> Self {
        let handle = |handle: u64| About::Handle(handle, open(handle));
        match request {
            Request::Hello { session: SessionWish::Resume(session, _), .. } => About::Session(Some(*session)),
            // A name that is too long is not repeated.
            Request::Hello { client, .. } => About::Client(client.chars().take(32).collect()),
            Request::Renew { .. } | Request::Bye {} => About::Session(session),
            Request::Resolve { from, names, .. } => About::Path(*from, names.len()),
            Request::Stat { at } | Request::Open { at, .. } => About::Inode(at.inode),
            Request::List { container, .. } => About::Inode(*container),
            Request::Change { change, .. } => About::of_change(change),
            Request::OpenNew { entry, .. } => About::Entry(entry.clone()),
            Request::Close { handle: number }
            | Request::Map { handle: number, .. }
            | Request::Grant { handle: number, .. }
            | Request::GrantShort { handle: number, .. }
            | Request::Unsettle { handle: number, .. }
            | Request::MarkOut { handle: number, .. }
            | Request::Publish { handle: number, .. } => handle(*number),
            Request::Return { extents } => About::Extents(extents.first().copied(), extents.len()),
            Request::Namespaces {}
            | Request::Status {}
            | Request::Sessions {}
            | Request::Services {}
            | Request::Movement {}
            | Request::Tiering {} => About::Service,
            Request::Donate { donation } => About::Target(donation.target.chars().take(200).collect()),
            Request::Drain { namespace, .. } | Request::Remove { namespace } => About::Namespace(*namespace),
        }
    }

    /// As text; `target` tells where a namespace is reached.
    pub fn text(&self, target: impl Fn(NamespaceId) -> Option<String>) -> String {
        let at_target = |namespace| target(namespace).map(|target| format!(" [{target}]")).unwrap_or_default();
        match self {
            About::Service => "the metadata service".into(),
            About::Client(name) => format!("client \"{name}\""),
            About::Session(Some(session)) => format!("session {session}"),
            About::Session(None) => "a connection without a session".into(),
            About::Path(from, names) => format!("a path of {names} names from inode {from}"),
            About::Inode(inode) => format!("inode {inode}"),
            About::Entry(entry) => entry_text(entry),
            About::Rename(from, to) => format!("{} to {}", entry_text(from), entry_text(to)),
            About::Handle(handle, Some(inode)) => format!("inode {inode}, handle {handle}"),
            About::Handle(handle, None) => format!("handle {handle}"),
            About::Extents(None, _) => "no extents".into(),
            About::Extents(Some(first), 1) => format!("{first}{}", at_target(first.namespace)),
            About::Extents(Some(first), count) => {
                format!("{count} extents, the first {first}{}", at_target(first.namespace))
            }
            About::Target(target) => target.clone(),
            About::Namespace(namespace) => format!("namespace {namespace}{}", at_target(*namespace)),
        }
    }

    /// Where a rename leads to, if it is one.
    pub fn renames(&self) -> Option<&EntryPath> {
        match self {
            About::Rename(_, to) => Some(to),
            _ => None,
        }
    }

    fn of_change(change: &NameChange) -> Self {
        match change {
            NameChange::Create(entry, _) | NameChange::Delete { entry, .. } | NameChange::PutValue(entry, _) => {
                About::Entry(entry.clone())
            }
            NameChange::Rename { from, to, .. } => About::Rename(from.clone(), to.clone()),
            NameChange::HardLink(at, _)
            | NameChange::SetAttributes(at, _)
            | NameChange::SetExtended(at, ..)
            | NameChange::WriteInline(at, _) => About::Inode(at.inode),
            NameChange::File(_) => About::Service,
        }
    }
}

fn entry_text(entry: &EntryPath) -> String {
    format!("\"{}\" in inode {}", entry.name, entry.container)
}

/// A path from an inode, as text.
pub(super) fn path_text(from: InodeId, names: &[EntryName]) -> String {
    let mut text = if from == InodeId::ROOT { String::new() } else { format!("inode {from}") };
    for name in names {
        text.push('/');
        text.push_str(&format!("{name}"));
    }
    if text.is_empty() { "/".into() } else { text }
}
