//! Commands on their way to drives: carried out, lost with their association, given up and carried out late.

use super::history::BLOCK;
use super::world::{InFlight, KEPT_ALIVE_EVERY, World, WorldEvent};
use crate::client::{ClientEvent, CommandId, DriveCommand, DriveId, MemoryId};
use crate::file::{DriveFailure, FileBuffer};
use alloc::vec::Vec;
use weir_units::Nanos;

impl World {
    pub fn hears(&self, client: usize, drive: usize) -> bool {
        self.cut[client].1[drive] <= self.now && self.drives[drive].down_until <= self.now
    }

    pub fn keep_alive(&mut self) {
        for client in 0..self.clients.len() {
            let process = &self.clients[client];
            if !process.holds(self.now) || process.paused_until > self.now {
                continue;
            }
            let (life, drives) = (process.life, process.drives.values().copied().collect::<Vec<_>>());
            for drive in drives {
                if self.hears(client, drive) {
                    self.drives[drive].hear(life, self.now);
                }
            }
        }
        self.after(KEPT_ALIVE_EVERY, WorldEvent::KeepAlive);
    }

    pub fn submit(&mut self, client: usize, id: DriveId, number: CommandId, memory: MemoryId, command: DriveCommand) {
        let process = &mut self.clients[client];
        let (life, drive) = (process.life, process.drives[&id]);
        let bytes = match command {
            DriveCommand::Write(_, len, from) => process.memory.bytes(memory, from, len).to_vec(),
            DriveCommand::Read(..) | DriveCommand::Flush => Vec::new(),
        };
        let association = if self.hears(client, drive) { self.drives[drive].hear(life, self.now) } else { 0 };
        self.totals.beside += u64::from(self.has_write_beside((life, drive), memory, &command));
        let command =
            InFlight { client, drive, association, memory, command, bytes, is_executed: false, is_given_up: false };
        self.commands.insert((life, number), command);
        let time = self.drive_time(drive);
        self.after(time, WorldEvent::Execute(life, number));
    }

    /// Whether the drive has another write of the same file that is no farther away than a block is long.
    fn has_write_beside(&self, (life, drive): (u64, usize), memory: MemoryId, command: &DriveCommand) -> bool {
        let DriveCommand::Write(at, _, FileBuffer::Caller(op, _)) = *command else { return false };
        let mut others = self.commands.range((life, CommandId(0))..=(life, CommandId(u64::MAX)));
        others.any(|(_, other)| match other.command {
            DriveCommand::Write(place, _, FileBuffer::Caller(of, _)) => {
                of != op
                    && (other.drive, other.memory) == (drive, memory)
                    && !other.is_executed
                    && place.abs_diff(at) < BLOCK
            }
            _ => false,
        })
    }

    pub fn drive_time(&mut self, drive: usize) -> Nanos {
        match self.slow_until[drive] > self.now {
            true => self.micros(1000, 400_000),
            false => self.micros(20, 400),
        }
    }

    pub fn execute(&mut self, life: u64, number: CommandId) {
        let Some(command) = self.commands.get(&(life, number)).cloned() else { return };
        let (client, drive) = (command.client, command.drive);
        let back = self.cut[client].1[drive].max(self.drives[drive].down_until);
        if back > self.now {
            let time = self.micros(100, 20_000);
            return self.at(back.saturating_add(time), WorldEvent::Execute(life, number));
        }
        let is_there = self.is_life(client, life);
        if !self.drives[drive].is_associated(life, command.association, self.now) {
            // The client's association of before has ended, so what it had there will not be carried out. A command that is not given up is sent
            // again, or has failed.
            if !is_there || command.is_given_up {
                self.commands.remove(&(life, number));
                return;
            }
            let process = &self.clients[client];
            let may_again = process.holds(self.now) && process.paused_until <= self.now;
            if may_again && self.random.below(2) == 0 {
                let association = self.drives[drive].hear(life, self.now);
                if let Some(command) = self.commands.get_mut(&(life, number)) {
                    command.association = association;
                }
                let time = self.drive_time(drive);
                return self.after(time, WorldEvent::Execute(life, number));
            }
            let time = self.micros(100, 100_000);
            return self.after(time, WorldEvent::Complete(life, number, Err(DriveFailure)));
        }
        let read = match command.command {
            DriveCommand::Write(offset, ..) => {
                self.drives[drive].write(offset, &command.bytes);
                Vec::new()
            }
            DriveCommand::Read(offset, len, _) => self.drives[drive].read(offset, len as usize),
            DriveCommand::Flush => Vec::new(),
        };
        if !is_there || command.is_given_up {
            self.commands.remove(&(life, number));
            return;
        }
        if let Some(command) = self.commands.get_mut(&(life, number)) {
            (command.is_executed, command.bytes) = (true, read);
        }
        let time = self.drive_time(drive);
        self.after(time, WorldEvent::Complete(life, number, Ok(())));
    }

    pub fn complete(&mut self, life: u64, number: CommandId, result: Result<(), DriveFailure>) {
        let Some(command) = self.commands.get(&(life, number)).cloned() else { return };
        let client = command.client;
        if !self.is_life(client, life) {
            self.commands.remove(&(life, number));
            return;
        }
        // Given up meanwhile: its end is told once.
        if !command.is_given_up {
            self.commands.remove(&(life, number));
        } else if result.is_ok() {
            return;
        }
        if let (DriveCommand::Read(_, len, to), Ok(())) = (command.command, result) {
            self.clients[client].memory.bytes(command.memory, to, len).copy_from_slice(&command.bytes);
        }
        self.give(client, ClientEvent::Done(number, result));
    }

    /// A client gives a command up. A write takes its association with it, and may be carried out until that has ended.
    pub fn abort(&mut self, client: usize, id: DriveId, number: CommandId) {
        let life = self.clients[client].life;
        let coin = self.random.below(2);
        let Some(command) = self.commands.get_mut(&(life, number)) else { return };
        if command.is_executed || command.is_given_up {
            return;
        }
        let drive = command.drive;
        let is_write = matches!(command.command, DriveCommand::Write(..));
        command.is_given_up = true;
        let until = self.drives[drive].lives_until(life, command.association).filter(|until| *until > self.now);
        let (Some(until), true, 0) = (until, is_write, coin) else {
            // It will not be carried out.
            command.association = 0;
            return self.after(Nanos::from_micros(10), WorldEvent::Complete(life, number, Err(DriveFailure)));
        };
        let left = (until.get() - self.now.get()) / 1000;
        let late = Nanos::from_micros(self.random.below(left as u32).into());
        *self.clients[client].doubts.entry(id).or_default() += 1;
        self.give(client, ClientEvent::Doubt(id, true));
        // Not the one that it comes to by itself: that has another number.
        self.last += 1;
        let ghost = CommandId(u64::MAX - self.last);
        if let Some(command) = self.commands.get(&(life, number)).cloned() {
            self.commands.insert((life, ghost), command);
        }
        if let Some(command) = self.commands.get_mut(&(life, number)) {
            command.association = 0;
        }
        self.after(late, WorldEvent::Execute(life, ghost));
        self.after(Nanos::from_micros(10), WorldEvent::Complete(life, number, Err(DriveFailure)));
        self.at(until.saturating_add(Nanos(1)), WorldEvent::DoubtOver(client, life, id));
    }
}
