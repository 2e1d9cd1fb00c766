//! Whether a history is linearizable: an order of its requests in which each takes effect between its beginning and its end, and the model
//! gives the same answers (Wing and Gong, "Testing and Verifying Concurrent Objects", 1993).

use super::model::Model;
use crate::{EntryPath, NameAnswer, NameChange, NameQuery, NameReply, NameRequest};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use std::collections::hash_map::DefaultHasher;

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

/// States that are looked at before the checker gives up.
const STATES_MAX: usize = 20_000;

struct Search<'a> {
    calls: &'a [Call],
    seen: BTreeSet<u64>,
    /// The most requests that fitted, and what was left then.
    best: Vec<usize>,
    states: usize,
}

/// Why a history is not known to be linearizable.
#[derive(Clone, Debug)]
pub(super) enum Unexplained {
    /// No order explains these requests.
    Wrong(Vec<Call>),
    /// There are too many orders to look at.
    TooMany,
}

/// Whether an order explains the history.
pub(super) fn linearize(calls: &[Call]) -> Result<(), Unexplained> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.begin);
    let left: Vec<usize> = (0..calls.len()).collect();
    let mut search = Search { calls: &calls, seen: BTreeSet::new(), best: left.clone(), states: 0 };
    match search.explains(Model::new(), left) {
        true => Ok(()),
        false if search.states > STATES_MAX => Err(Unexplained::TooMany),
        false => Err(Unexplained::Wrong(search.best.iter().take(12).map(|at| calls[*at].clone()).collect())),
    }
}

impl Search<'_> {
    fn explains(&mut self, mut model: Model, mut left: Vec<usize>) -> bool {
        loop {
            let end = left.iter().map(|at| self.calls[*at].end).min().unwrap_or(0);
            let open: Vec<usize> = left.iter().copied().take_while(|at| self.calls[*at].begin < end).collect();
            // What fits and changes nothing can come first: it takes nothing away from the others.
            let fits = open.iter().copied().find(|at| {
                let (mut after, call) = (model.clone(), &self.calls[*at]);
                let is_query = matches!(call.request, NameRequest::Query(_)) || call.answer.is_err();
                is_query && after.accepts(&call.request, &call.answer) && after == model
            });
            let Some(at) = fits else {
                return self.branches(&mut model, left, &open);
            };
            left.retain(|other| *other != at);
            self.note(&left);
        }
    }

    fn branches(&mut self, model: &mut Model, left: Vec<usize>, open: &[usize]) -> bool {
        if left.is_empty() {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        (&*model, &left).hash(&mut hasher);
        self.states += 1;
        if self.states > STATES_MAX || !self.seen.insert(hasher.finish()) {
            return false;
        }
        for at in open {
            let (mut after, call) = (model.clone(), &self.calls[*at]);
            if after.accepts(&call.request, &call.answer) {
                let rest: Vec<usize> = left.iter().copied().filter(|other| other != at).collect();
                self.note(&rest);
                if self.explains(after, rest) {
                    return true;
                }
            }
        }
        false
    }

    fn note(&mut self, left: &[usize]) {
        if left.len() < self.best.len() {
            self.best = left.to_vec();
        }
    }
}
