//! Connections between clients and the service: they are made, carry messages in order, and end.

use super::client::ClientProcess;
use super::world::{AUDITOR, Link, World, WorldEvent, number_of};
use crate::StoreError;
use crate::client::{ClientEffect, ClientEvent, ClientMachine, ClientSetup};
use crate::file::tests::crc;
use crate::location::Location;
use crate::protocol::{Answer, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish};
use crate::service::{ConnectionId, ServiceEvent};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use std::println;
use weir_units::Nanos;

impl World {
    pub fn arrival(&mut self, link: u64, to_client: bool) -> Option<Nanos> {
        let time = if self.random.below(50) == 0 { self.micros(1000, 40_000) } else { self.micros(30, 300) };
        let link = self.links.get_mut(&link).filter(|link| !link.is_cut)?;
        let last = &mut link.last[usize::from(to_client)];
        *last = self.now.saturating_add(time).max(last.saturating_add(Nanos(1)));
        Some(*last)
    }

    pub fn send_request(&mut self, link: u64, number: RequestNumber, request: Request) {
        if let Some(at) = self.arrival(link, false) {
            self.at(at, WorldEvent::ToService(link, number, Box::new(request)));
        }
    }

    pub fn send_answer(&mut self, link: u64, number: RequestNumber, answer: Answer) {
        if let Some(at) = self.arrival(link, true) {
            self.at(at, WorldEvent::ToClient(link, number, Box::new(answer)));
        }
    }

    /// A connection ends: what is on its way is lost, and both ends hear of it by and by.
    pub fn cut_link(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.is_cut) else { return };
        link.is_cut = true;
        let (client, life) = (link.client, link.life);
        let (first, second) = (self.micros(10, 200_000), self.micros(10, 50_000));
        self.after(first, WorldEvent::ServiceLost(number));
        self.after(second, WorldEvent::ClientLost(client, life, number));
    }

    pub fn start_client(&mut self, client: usize) {
        self.last += 1;
        let life = self.last;
        let tasks = if client == AUDITOR { 1 } else { 2 };
        self.clients[client] = ClientProcess::new(life, self.clients[client].clock, tasks);
        self.next_service(client);
        self.connect(client, SessionWish::New);
    }

    pub fn connect(&mut self, client: usize, wish: SessionWish) {
        let life = self.clients[client].life;
        let at = self.clients[client].service;
        if self.services[at].service.is_none() {
            self.next_service(client);
            let time = self.micros(5000, 20_000);
            return self.after(time, WorldEvent::Connect(client, life, wish));
        }
        self.last += 1;
        let number = self.last;
        let link = Link { client, life, service: self.services[at].life, is_cut: false, last: [self.now; 2] };
        self.links.insert(number, link);
        self.clients[client].link = Some(number);
        self.clients[client].greeting = Some(self.clients[client].clock.read(self.now));
        let mut token = [3; 16];
        token[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        self.give_service(at, ServiceEvent::Connected(ConnectionId(number), token));
        let hello = Request::Hello {
            magic: PROTOCOL_MAGIC,
            version: PROTOCOL_VERSION,
            client: format!("client {client}"),
            location: Location::default(),
            session: wish,
        };
        self.send_request(number, RequestNumber(0), hello);
    }

    /// A client tries the service that it was referred to, or any.
    fn next_service(&mut self, client: usize) {
        if !self.is_shared() {
            return;
        }
        let any = self.random.below(self.services.len() as u32) as usize;
        self.clients[client].service = self.clients[client].referred.take().unwrap_or(any);
    }

    pub fn client_lost(&mut self, client: usize, life: u64, link: u64) {
        if !self.is_life(client, life) || self.clients[client].link != Some(link) {
            return;
        }
        self.clients[client].link = None;
        match self.clients[client].greeting.take() {
            // The machine was never there, or waits for the connection still.
            Some(_) => {
                self.next_service(client);
                let wish = self.clients[client].machine.as_ref().map_or(SessionWish::New, |machine| {
                    let welcome = machine.welcome();
                    welcome.session.map_or(SessionWish::New, |session| SessionWish::Resume(session, welcome.token))
                });
                let time = self.micros(5000, 50_000);
                self.after(time, WorldEvent::Connect(client, life, wish));
            }
            None => {
                self.next_service(client);
                self.give(client, ClientEvent::Disconnected("connection reset".into()));
            }
        }
    }

    pub fn answer(&mut self, link: u64, number: RequestNumber, answer: Answer) {
        let Some(known) = self.links.get(&link).copied().filter(|link| !link.is_cut) else { return };
        let client = known.client;
        if !self.is_life(client, known.life) || self.clients[client].link != Some(link) {
            return;
        }
        let Some(sent) = self.clients[client].greeting.take() else {
            if let Answer::Opened { handle, at, .. } = &answer {
                self.clients[client].handles.insert(*handle, at.inode);
            }
            return self.give(client, ClientEvent::Answer(number, answer));
        };
        match (answer, self.clients[client].machine.is_some()) {
            (Answer::Welcome { welcome }, true) => self.give(client, ClientEvent::Connected(Box::new(welcome))),
            (Answer::Welcome { welcome }, false) => {
                let setup = ClientSetup { crc, room_timeout: Nanos::from_secs(5) };
                match ClientMachine::new(setup, welcome, sent) {
                    Ok(machine) => {
                        let machine = machine.with_mutant(self.mutant);
                        // Every other client publishes what it writes at every moment.
                        let machine = if client % 2 == 1 { machine.with_publish_behind(0) } else { machine };
                        self.clients[client].machine = Some(machine);
                    }
                    Err(why) => self.wrong = Some(why),
                }
                self.give(client, ClientEvent::Tick);
                for task in 0..self.clients[client].script.tasks.len() {
                    self.schedule_script(client, task);
                }
            }
            (Answer::Failed { error: StoreError::SessionGone, .. }, true) => {
                self.clients[client].link = None;
                self.give(client, ClientEvent::Refused);
            }
            (Answer::Standby { addresses }, _) => {
                self.totals.referred += 1;
                self.clients[client].greeting = Some(sent);
                self.cut_link(link);
                let named = addresses.first().and_then(|address| address.strip_prefix("service:"));
                self.clients[client].referred = named.and_then(|at| at.parse().ok());
            }
            (_, _) => {
                self.clients[client].greeting = Some(sent);
                self.cut_link(link);
            }
        }
    }

    /// Something happens to a client's machine.
    pub fn give(&mut self, client: usize, event: ClientEvent) {
        let now = self.now;
        let process = &mut self.clients[client];
        let Some(machine) = &mut process.machine else { return };
        let mut effects = Vec::new();
        if self.is_traced {
            println!("T {:>12} client {client}: {:.3000}", now.get() / 1000, format!("{event:?}"));
        }
        machine.apply(process.clock.read(now), event, &mut process.memory, &mut effects);
        machine.check();
        let due = process.clock.when(machine.due()).max(now.saturating_add(Nanos::from_micros(50)));
        if due < process.tick_at {
            process.tick_at = due;
            let life = process.life;
            self.at(due, WorldEvent::ClientTick(client, life));
        }
        for effect in effects {
            self.carry_out(client, effect);
        }
    }

    pub fn carry_out(&mut self, client: usize, effect: ClientEffect) {
        let life = self.clients[client].life;
        if !matches!(effect, ClientEffect::Send(..)) {
            self.trace(|| format!("client {client}: {effect:?}"));
        }
        match effect {
            ClientEffect::Connect(wish) => {
                let time = self.micros(100, 20_000);
                self.after(time, WorldEvent::Connect(client, life, wish));
            }
            ClientEffect::Send(number, request) => {
                if let Request::Publish { handle, size, .. } = &request {
                    self.publishes(client, *handle, *size);
                }
                if let Some(link) = self.clients[client].link {
                    self.send_request(link, number, request);
                }
            }
            ClientEffect::OpenDrive(drive, info) => {
                let found = number_of(&info.target);
                self.clients[client].drives.insert(drive, found);
            }
            ClientEffect::CloseDrive(drive) => {
                if let Some(at) = self.clients[client].drives.remove(&drive) {
                    self.drives[at].leave(life);
                }
            }
            ClientEffect::Submit(drive, command, memory, what) => self.submit(client, drive, command, memory, what),
            ClientEffect::Abort(drive, command) => self.abort(client, drive, command),
            ClientEffect::Finish(work, outcome) => self.finished(client, work, outcome),
        }
    }
}
