//! A drive in this process, in virtual time: the drive that a node serves (`weir_node::device`), with one host that sends it one
//! command at a time and waits for its end. Time passes only there, and where the caller lets it.

use crate::error::{config_error, failed};
use crate::host::CapsuleHost;
use crate::result::flash_figures;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use std::path::Path;
use std::sync::mpsc;
use weir_config::{DeviceConfig, Document};
use weir_controller::{ConnectRequest, Event, Owner, SqHandle, Tag, TenantConfig};
use weir_fault::FaultRule;
use weir_node::device::Device;
use weir_spec::nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property};
use weir_spec::nvme::opcode::{AdminOpcode, FabricsType};
use weir_spec::nvme::{Cqe, Sqe, register};
use weir_sys::reactor::{Reactor, Ready};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32, U64};

/// Who the host is.
const HOST_NQN: &str = "nqn.2026-11.io.weir:host:python";
/// The owners of its two queues.
const ADMIN: Owner = Owner(0);
const IO: Owner = Owner(1);
/// Entries of its I/O queue: it has one command in flight.
const ENTRIES: u16 = 2;
/// The one namespace.
const NSID: u32 = 1;
/// A drive that does as many steps without an end of the command, and without time passing, goes in a circle.
const MOST_STEPS: u32 = 1_000_000;

/// The queues of a host.
#[derive(Clone, Copy)]
struct Queues {
    admin: SqHandle,
    io: SqHandle,
}

/// A drive and its host.
#[pyclass(unsendable, module = "weir._native")]
pub struct Drive {
    device: Device,
    reactor: Reactor,
    ready: Vec<Ready>,
    host: CapsuleHost,
    queues: Option<Queues>,
    now: Nanos,
    tags: u32,
}

/// How a command ended.
type Ended = (u16, String, u64, Py<PyBytes>, u64);

#[pymethods]
impl Drive {
    /// Opens the one `[[device]]` of a TOML text, with its `[[fault]]` rules. Paths in it start from `base`.
    #[staticmethod]
    fn open(py: Python<'_>, text: &str, base: &str) -> PyResult<Drive> {
        let config = |error: weir_config::ConfigError| config_error(py, &error, false);
        let document = Document::parse(text, "", Path::new(base)).map_err(config)?;
        let read = document.read(|root| {
            let devices = weir_config::devices(root, document.base(), "python", 0);
            if devices.len() != 1 {
                root.fault("device", format_args!("{} drives where one is opened", devices.len()));
            }
            let faults = weir_config::faults(root, &devices);
            root.finish();
            let device = devices.into_iter().next()?;
            Some((device, faults.into_iter().map(|fault| fault.rule).collect::<Vec<_>>()))
        });
        let (device, faults) = read.map_err(config)?.ok_or_else(|| failed("no drive was read"))?;
        Drive::of(&device, &faults)
    }

    /// Virtual time in nanoseconds since it was opened.
    #[getter]
    fn now_ns(&self) -> u64 {
        self.now.get()
    }

    /// Bytes of its namespace.
    #[getter]
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    /// Bytes of a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.device.block_size()
    }

    /// Lets time pass.
    fn advance(&mut self, ns: u64) -> PyResult<()> {
        let until = self.now.saturating_add(Nanos(ns));
        self.pass(until, |_| false)?;
        self.now = until;
        Ok(())
    }

    /// Sends a command and waits for its end: its status (0 is success), the status in words, DW0 and DW1 of its completion, the
    /// bytes that it brought, and the nanoseconds that it took. `data` is what it takes along, `length` what it is to bring;
    /// `dwords` are NSID and CDW10 to CDW15.
    #[pyo3(signature = (opcode, dwords, data, length, is_admin))]
    fn command(
        &mut self,
        py: Python<'_>,
        opcode: u8,
        dwords: [u32; 7],
        data: Option<&[u8]>,
        length: usize,
        is_admin: bool,
    ) -> PyResult<Ended> {
        let [nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15] = dwords.map(U32::new);
        let sqe = Sqe { opcode, flags: SGL, nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() };
        let bytes = data.map_or_else(|| vec![0; length], <[u8]>::to_vec);
        let begun = self.now;
        let (cqe, bytes) = self.answer(is_admin, sqe, bytes)?;
        let brought = if data.is_none() && cqe.status().is_success() { &bytes[..] } else { &[] };
        let words = u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32;
        let status = cqe.status();
        let code = u16::from(status.sct()) << 8 | u16::from(status.sc());
        let took = self.now.saturating_sub(begun).get();
        Ok((code, status.to_string(), words, PyBytes::new(py, brought).unbind(), took))
    }

    /// Cuts the power and brings it back; returns what that did as JSON. The host connects again.
    fn power_cut(&mut self) -> PyResult<String> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.device.power_cut(self.now, reply, &mut self.host, &mut self.reactor);
        self.queues = None;
        let mut outcome = None;
        self.pass(Nanos::NEVER, |_| {
            outcome = outcome.take().or_else(|| answer.try_recv().ok());
            outcome.is_some()
        })?;
        let cut = outcome.ok_or_else(|| failed("the drive did not come back"))?.map_err(failed)?;
        let up = self.now.saturating_add(cut.rebuild);
        self.pass(up, |_| false)?;
        self.now = up;
        Ok(json!({
            "lost_units": cut.lost_units,
            "lost_writes": cut.lost_writes,
            "pages_read": cut.pages_read,
            "rebuild_s": cut.rebuild.as_secs_f64(),
            "power_cycles": cut.power_cycles,
            "unsafe_shutdowns": cut.unsafe_shutdowns,
        })
        .to_string())
    }

    /// Adds a rule of failures, as `weir fault add` takes it, from now on; its number.
    fn add_fault(&mut self, rule: &str) -> PyResult<u32> {
        let wrong = |e: weir_fault::RuleError| PyValueError::new_err(format!("fault \"{rule}\": {e}"));
        let rule = FaultRule::parse(rule).map_err(wrong)?;
        let now = self.now;
        self.device.machine_mut().add_fault(now, rule).map_err(wrong)
    }

    /// Removes a rule; whether there was one.
    fn remove_fault(&mut self, number: u32) -> bool {
        self.device.machine_mut().remove_fault(number).is_some()
    }

    /// The rules, each with its number.
    fn faults(&self) -> Vec<(u32, String)> {
        self.device.machine().faults().iter().map(|planned| (planned.id, planned.rule.to_string())).collect()
    }

    /// The zones as JSON; None where the drive has none. Offsets and lengths are in bytes.
    fn zones(&self) -> Option<String> {
        let zones = self.device.machine().zones(NSID)?;
        let block = u64::from(self.device.block_size());
        let one = |(at, zone): (usize, weir_flash::Zone)| {
            let start = zones.start(at as u32) * block;
            json!({
                "start": start,
                "capacity": u64::from(zones.config().capacity) * block,
                "write_pointer": start + u64::from(zone.wp) * block,
                "state": state_of(zone.state),
            })
        };
        Some(zones.iter().enumerate().map(one).collect::<serde_json::Value>().to_string())
    }

    /// What its flash did, as JSON; None where it has none.
    fn flash(&self) -> Option<String> {
        self.device.flash().map(|flash| flash_figures(&flash.figures(self.now)).to_string())
    }
}

/// PSDT: data is where an SGL says.
const SGL: u8 = 1 << 6;

fn state_of(state: weir_flash::ZoneState) -> &'static str {
    use weir_flash::ZoneState as State;
    match state {
        State::Empty => "empty",
        State::ImplicitlyOpened => "implicitly opened",
        State::ExplicitlyOpened => "explicitly opened",
        State::Closed => "closed",
        State::ReadOnly => "read only",
        State::Full => "full",
        State::Offline => "offline",
    }
}

impl Drive {
    fn of(config: &DeviceConfig, faults: &[FaultRule]) -> PyResult<Drive> {
        let mut machine = weir_drive::machine_config(config);
        machine.tenants = vec![TenantConfig::new("python", Class::Medium)];
        let device = Device::open(config, machine, Nanos(0)).map_err(failed)?;
        let device = device.with_faults(faults.iter(), Nanos(0)).map_err(failed)?;
        let reactor = Reactor::new().map_err(failed)?;
        Ok(Drive {
            device,
            reactor,
            ready: Vec::with_capacity(64),
            host: CapsuleHost::default(),
            queues: None,
            now: Nanos(0),
            tags: 0,
        })
    }

    /// Connects both queues and enables the controller.
    fn connect(&mut self) -> PyResult<Queues> {
        let subnqn = self.device.machine().config().subnqn.clone();
        let mut data = ConnectData::new(&subnqn, HOST_NQN, [1; 16], CNTLID_DYNAMIC);
        let queue = |drive: &mut Drive, owner: Owner, entries: u16, data: &ConnectData| {
            let command = Connect {
                opcode: AdminOpcode::FABRICS.0,
                fctype: FabricsType::CONNECT.0,
                qid: U16::new(owner.0 as u16),
                sqsize: U16::new(entries - 1),
                ..Connect::default()
            };
            let request = ConnectRequest::new(&Sqe::from(command), data, owner);
            let refused = |e| failed(format_args!("the drive refuses the connection: {e}"));
            drive.device.machine_mut().connect(drive.now, &request).map_err(refused)
        };
        let admin = queue(self, ADMIN, 32, &data)?;
        data.cntlid = U16::new(admin.cntlid);
        self.queues = Some(Queues { admin: admin.queue, io: admin.queue });
        let all = register::Cap(self.property(register::CAP)?).css() & register::css_supported::ALL != 0;
        let css = if all { register::css::ALL } else { register::css::NVM };
        let cc = register::Cc(0).with_en(1).with_css(css).with_iosqes(6).with_iocqes(4);
        let (ofst, value) = (U32::new(register::CC), U64::new(cc.0.into()));
        self.succeeds(Property { opcode: AdminOpcode::FABRICS.0, ofst, value, ..Property::default() })?;
        let io = queue(self, IO, ENTRIES, &data)?;
        let queues = Queues { admin: admin.queue, io: io.queue };
        self.queues = Some(queues);
        Ok(queues)
    }

    /// Property Get of 8 bytes.
    fn property(&mut self, offset: u32) -> PyResult<u64> {
        let fctype = FabricsType::PROPERTY_GET.0;
        let opcode = AdminOpcode::FABRICS.0;
        let cqe =
            self.succeeds(Property { opcode, fctype, attrib: 1, ofst: U32::new(offset), ..Property::default() })?;
        Ok(u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32)
    }

    fn succeeds(&mut self, property: Property) -> PyResult<Cqe> {
        let (cqe, _) = self.answer(true, property.into(), Vec::new())?;
        match cqe.status() {
            status if status.is_success() => Ok(cqe),
            status => Err(failed(format_args!("the controller cannot be enabled: {status}"))),
        }
    }

    /// A command's completion, and its bytes.
    fn answer(&mut self, is_admin: bool, sqe: Sqe, bytes: Vec<u8>) -> PyResult<(Cqe, Vec<u8>)> {
        let queues = match self.queues {
            Some(queues) => queues,
            None => self.connect()?,
        };
        self.tags += 1;
        let tag = Tag(self.tags);
        self.host.begin(tag, bytes);
        let queue = if is_admin { queues.admin } else { queues.io };
        let sqe = Sqe { cid: U16::new(self.tags as u16), ..sqe };
        self.device.apply(self.now, Event::Capsule { queue, sqe, tag }, &mut self.host);
        let ended = self.pass(Nanos::NEVER, |host| host.is_answered(tag));
        let (cqe, bytes) = self.host.end(tag);
        ended?;
        let unanswered =
            "the drive does not answer, and nothing more will happen: a rule of failures, or a queue that it closed";
        match cqe {
            Some(cqe) => Ok((cqe, bytes)),
            // Its host has to connect again, as after any loss of the connection.
            None => {
                self.disconnect();
                Err(failed(unanswered))
            }
        }
    }

    fn disconnect(&mut self) {
        for queue in self.queues.take().into_iter().flat_map(|queues| [queues.io, queues.admin]) {
            self.device.machine_mut().disconnect(self.now, queue);
        }
    }

    /// Lets happen what is due until then, or until `is_over`.
    fn pass(&mut self, until: Nanos, mut is_over: impl FnMut(&CapsuleHost) -> bool) -> PyResult<()> {
        let mut steps = 0;
        loop {
            if self.reactor.files_in_flight() > 0 {
                self.reactor.turn(&mut self.ready);
                for event in self.ready.drain(..) {
                    if let Ready::File(done) = event {
                        self.device.file_done(done, self.now, &mut self.host, &mut self.reactor);
                    }
                }
            }
            self.device.run(self.now, &mut self.host, &mut self.reactor, Nanos::NEVER);
            self.device.deadlines().forget();
            if is_over(&self.host) {
                return Ok(());
            }
            let due = self.device.due();
            if due > self.now {
                // The media works in real time, and virtual time waits for it.
                if self.reactor.files_in_flight() > 0 {
                    std::thread::yield_now();
                    continue;
                }
                if due > until || due == Nanos::NEVER {
                    return Ok(());
                }
                (self.now, steps) = (due, 0);
            }
            steps += 1;
            if steps > MOST_STEPS {
                return Err(failed("the drive does not come to rest"));
            }
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.device.close(self.now);
    }
}
