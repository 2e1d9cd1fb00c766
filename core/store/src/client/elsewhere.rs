//! Reads do not wait for a drive that does not answer where another copy can be read.
//!
//! A drive does not answer when this client cannot reach it, as its connection says, or when nothing is known of that yet and the service cannot. What is
//! not to be had elsewhere waits for it, and so does what is written: a drive may be back in a moment.

use super::drives::Command;
use super::event::{ClientEffect, ClientMemory, CommandId, DriveCommand, DriveId};
use super::machine::{ClientMachine, Out};
use super::open_file::OpenFile;
use crate::id::NamespaceId;
use crate::protocol::NamespaceState;
use alloc::string::String;
use alloc::vec::Vec;

impl ClientMachine {
    /// Whether a namespace answers, as far as it is known.
    fn answers(&self, namespace: NamespaceId) -> bool {
        match (self.drives.trouble_of(namespace), self.namespaces.get(&namespace)) {
            (Some(has_trouble), _) => !has_trouble,
            (None, Some(info)) => matches!(info.state, NamespaceState::Up | NamespaceState::Draining),
            // It is asked for.
            (None, None) => true,
        }
    }

    /// Whether a command can be done at another copy, of a namespace that answers.
    fn is_elsewhere(&self, command: &Command) -> bool {
        let file = self.files.get(&command.file).filter(|file| file.memory == command.memory);
        let may = |namespace| namespace != command.namespace && self.answers(namespace);
        file.and_then(OpenFile::io).is_some_and(|io| io.may_read_elsewhere(command.ticket, may))
    }

    /// Whether a command is not to wait for its namespace.
    pub(super) fn goes_elsewhere(&self, whose: &Command, command: &DriveCommand) -> bool {
        matches!(command, DriveCommand::Read(..)) && !self.answers(whose.namespace) && self.is_elsewhere(whose)
    }

    /// What is wrong with a drive's connection has changed: reads that wait for it go elsewhere, where they can.
    pub(super) fn trouble<M: ClientMemory>(&mut self, id: DriveId, why: Option<String>, out: &mut Out<'_, M>) {
        let is_lost = why.is_some();
        let Some(namespace) = self.drives.set_trouble(id, why).filter(|_| is_lost) else { return };
        let of = |(_, command): &(&CommandId, &Command)| command.namespace == namespace && self.is_elsewhere(command);
        let reads: Vec<CommandId> = self.drives.commands().filter(of).map(|(id, _)| *id).collect();
        out.effects.extend(reads.into_iter().map(|command| ClientEffect::Abort(id, command)));
    }
}
