//! Whether a history of names is linearizable: against the [`Model`].

use super::model::Model;
use crate::linearizable::{self, Unexplained};
use crate::{EntryPath, NameAnswer, NameChange, NameQuery, NameReply, NameRequest};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A request that was answered.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub client: usize,
    /// Moments of the history: each begin and each end has another one.
    pub begin: u64,
    pub end: u64,
    pub request: NameRequest,
    pub answer: NameAnswer,
}

/// In one line, for a failure.
pub(super) fn brief(call: &Call) -> String {
    let entry = |entry: &EntryPath| format!("{}/{}", entry.container, entry.name);
    let what = match &call.request {
        NameRequest::Query(NameQuery::Lookup(at)) => format!("lookup {}", entry(at)),
        NameRequest::Query(NameQuery::Stat(at) | NameQuery::File(at)) => format!("stat {}", at.inode),
        NameRequest::Query(NameQuery::List { container, .. }) => format!("list {container}"),
        NameRequest::Change(_, change) => match change {
            NameChange::Create(at, new) => format!("create {} {:?}", entry(at), new.kind),
            NameChange::HardLink(..) => "link".into(),
            NameChange::Rename { from, to, replace } => {
                format!("rename {} {} replace {replace}", entry(from), entry(to))
            }
            NameChange::Delete { entry: at, recursive } => format!("delete {} recursive {recursive}", entry(at)),
            NameChange::SetAttributes(at, _) => format!("set {}", at.inode),
            NameChange::SetExtended(at, ..) => format!("extend {}", at.inode),
            NameChange::WriteInline(at, bytes) => format!("write {} {bytes:?}", at.inode),
            NameChange::PutValue(at, bytes) => format!("put {} {bytes:?}", entry(at)),
            NameChange::File(change) => format!("{change:?}"),
        },
    };
    let told = match &call.answer {
        Ok(NameReply::Found(record, _)) => format!("{} {:?}", record.inode, record.kind),
        Ok(NameReply::Inode(_, inode)) => format!("{:?} {:o} {:?}", inode.kind, inode.mode, inode.content),
        Ok(NameReply::Page { version, entries, .. }) => {
            let names: Vec<String> = entries.iter().map(|e| format!("{} {}", e.name, e.record.inode)).collect();
            format!("version {version}: {names:?}")
        }
        Ok(NameReply::Changed(changed)) => format!("{} version {}", changed.inode, changed.version),
        Err(error) => format!("{error:?}"),
    };
    format!("{:>6}..{:<6} client {}: {what}: {told}", call.begin, call.end, call.client)
}

/// Whether an order explains the history.
pub(super) fn linearize(calls: &[Call]) -> Result<(), Unexplained<Call>> {
    linearizable::linearize(Model::new(), calls)
}

impl linearizable::Model for Model {
    type Call = Call;
    fn span(call: &Call) -> (u64, u64) {
        (call.begin, call.end)
    }
    fn accepts(&mut self, call: &Call) -> bool {
        Model::accepts(self, &call.request, &call.answer)
    }
    fn is_query(call: &Call) -> bool {
        matches!(call.request, NameRequest::Query(_)) || call.answer.is_err()
    }
}
