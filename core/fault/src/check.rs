//! Whether a rule can ever apply to a drive, and fits beside the others.

use crate::effect::{Access, FaultEffect, access};
use crate::plan::PlannedFault;
use crate::rule::{FaultRule, FaultTarget};
use crate::words::RuleError;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_spec::nvme::IoOpcode;

/// A namespace, as far as rules ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// NSID.
    pub nsid: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// Its blocks lie where their addresses say: no zones, no commands of a vendor's own.
    pub plain: bool,
}

/// The flash of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashShape {
    /// Channels.
    pub channels: u32,
    /// Dies, over all channels.
    pub dies: u32,
    /// Blocks of a plane.
    pub blocks: u32,
    /// Pages of a block.
    pub pages: u32,
    /// It is known where each block of a namespace lies.
    pub mapped: bool,
}

/// What a rule is held against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveFacts {
    /// Namespaces that there are.
    pub namespaces: Vec<NamespaceFacts>,
    /// Names of its tenants, by their places.
    pub tenants: Vec<String>,
    /// I/O queues of a controller at the most.
    pub queues: u16,
    /// Its flash; `None`: it has none inside.
    pub flash: Option<FlashShape>,
}

/// Checks a rule.
///
/// # Errors
/// Names the key and what to do.
pub(crate) fn check_rule(rule: &FaultRule, drive: &DriveFacts, rules: &[PlannedFault]) -> Result<(), RuleError> {
    check_target(&rule.target, drive)?;
    check_place(rule, drive)?;
    check_opcodes(rule)?;
    check_scope(rule)?;
    check_effect(rule, drive)?;
    check_schedule(rule)?;
    check_others(rule, rules)
}

fn wrong<T>(key: &str, what: String) -> Result<T, RuleError> {
    Err(RuleError::new(key, &what))
}

fn list(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

/// The namespaces that a target is about.
fn named<'a>(target: &'a FaultTarget, drive: &'a DriveFacts) -> impl Iterator<Item = &'a NamespaceFacts> {
    drive.namespaces.iter().filter(|ns| target.nsid.is_none_or(|nsid| nsid == ns.nsid))
}

fn check_target(target: &FaultTarget, drive: &DriveFacts) -> Result<(), RuleError> {
    if let (Some(nsid), None) = (target.nsid, named(target, drive).next()) {
        let known = list(drive.namespaces.iter().map(|ns| ns.nsid.to_string()));
        return wrong("nsid", format!("the drive has no namespace {nsid}; it has {known}"));
    }
    let blocks = named(target, drive).map(|ns| ns.blocks).max().unwrap_or(0);
    if let Some(span) = target.lba.filter(|span| span.last >= blocks) {
        let what =
            format!("block {} is behind the end; the namespace has blocks 0 to {}", span.last, blocks.max(1) - 1);
        return wrong("lba", what);
    }
    if let Some(name) = target.tenant.as_ref().filter(|name| !drive.tenants.contains(name)) {
        let known = list(drive.tenants.iter().cloned());
        return wrong("tenant", format!("the drive has no tenant \"{name}\"; it has {known}"));
    }
    match target.queue {
        Some(queue) if queue > drive.queues => {
            wrong("queue", format!("controllers of this drive have I/O queues 1 to {}", drive.queues))
        }
        _ => Ok(()),
    }
}

fn check_place(rule: &FaultRule, drive: &DriveFacts) -> Result<(), RuleError> {
    let place = &rule.target.place;
    let parts = [("channel", place.channel), ("die", place.die), ("block", place.block), ("page", place.page)];
    let Some((key, _)) = parts.iter().find(|(_, part)| part.is_some()) else { return Ok(()) };
    let Some(flash) = &drive.flash else {
        return wrong(key, "the drive has no flash inside; give it a profile, or name blocks by lba".into());
    };
    let of = [flash.channels, flash.dies, flash.blocks, flash.pages];
    if let Some(((key, _), most)) = parts.iter().zip(of).find(|((_, part), most)| part.is_some_and(|n| n >= *most)) {
        return wrong(key, format!("the flash has {key}s 0 to {}", most.max(1) - 1));
    }
    let slow = matches!(rule.effect, FaultEffect::SlowDie { .. });
    if slow && (place.block.is_some() || place.page.is_some()) {
        return wrong("effect", "slow-die is about dies; leave block and page out, and write die or channel".into());
    }
    if !slow && !flash.mapped {
        return wrong(key, "this flash keeps no map of where blocks lie; name blocks by lba".into());
    }
    let reads = (0..=u8::MAX).any(|opcode| access(opcode) == Access::Read && rule.effect.befalls(opcode));
    if !slow && (!reads || rule.effect.is_condition()) {
        return wrong(
            key,
            "a place in the flash is where reads go, and this effect is not about reads; leave it out".into(),
        );
    }
    let writes = |opcode: &u8| access(*opcode) != Access::Read;
    if !slow && rule.target.io.iter().any(writes) {
        return wrong("op", format!("where a write goes is decided when it is programmed; with {key} leave it read"));
    }
    Ok(())
}

fn check_opcodes(rule: &FaultRule) -> Result<(), RuleError> {
    let FaultTarget { io, admin, lba, place, .. } = &rule.target;
    if !admin.is_empty() {
        let takes = matches!(rule.effect, FaultEffect::Status(_) | FaultEffect::Latency(_) | FaultEffect::Hang);
        if !takes && !rule.effect.is_condition() {
            return wrong("admin", "this effect befalls I/O commands; leave it out".into());
        }
        if !io.is_empty() {
            return wrong("admin", "a rule is about I/O or about admin commands; leave op or admin out".into());
        }
        if lba.is_some() || place.is_some() {
            return wrong("admin", "an admin command has no blocks; leave lba and the place in the flash out".into());
        }
    }
    match io.iter().find(|opcode| !rule.effect.befalls(**opcode)) {
        Some(opcode) => wrong("op", format!("this effect cannot befall {:?}; leave it out", IoOpcode(*opcode))),
        None => Ok(()),
    }
}

/// A condition that begins by itself has only keys that say what it is about; those of one that a command triggers choose the command as well.
fn check_scope(rule: &FaultRule) -> Result<(), RuleError> {
    if !rule.effect.is_condition() || rule.is_triggered() {
        return Ok(());
    }
    let FaultTarget { nsid, tenant, queue, .. } = &rule.target;
    let keys = [("nsid", nsid.is_some()), ("tenant", tenant.is_some()), ("queue", queue.is_some())];
    match keys.into_iter().find(|(key, there)| *there && !rule.effect.scope().contains(key)) {
        Some((key, _)) => wrong(key, format!("this effect is not about one {key}; leave it out")),
        None => Ok(()),
    }
}

fn check_effect(rule: &FaultRule, drive: &DriveFacts) -> Result<(), RuleError> {
    let target = &rule.target;
    let plain = named(target, drive).any(|ns| ns.plain);
    match &rule.effect {
        FaultEffect::CorrectableError { .. } | FaultEffect::SlowDie { .. } if drive.flash.is_none() => {
            wrong("effect", "the drive has no flash inside; give it a profile, or use latency".into())
        }
        FaultEffect::TornWrite { .. } | FaultEffect::Misdirected { .. } | FaultEffect::NamespaceResized { .. }
            if !plain =>
        {
            wrong(
                "effect",
                "the blocks of this namespace are written in order or by address; use another effect".into(),
            )
        }
        FaultEffect::Misdirected { by } => {
            let fits = named(target, drive).any(|ns| by.unsigned_abs() < ns.blocks);
            if fits { Ok(()) } else { wrong("by", format!("{by} leaves the namespace; write a smaller number")) }
        }
        FaultEffect::NamespaceResized { .. } | FaultEffect::NamespaceIdentity | FaultEffect::NamespaceGone
            if named(target, drive).count() != 1 =>
        {
            wrong("nsid", "missing; say which namespace changes".into())
        }
        FaultEffect::NamespaceResized { blocks } => {
            let now = named(target, drive).map(|ns| ns.blocks).max().unwrap_or(0);
            if *blocks < now {
                return Ok(());
            }
            wrong("blocks", format!("the namespace has {now} blocks; write fewer"))
        }
        _ => Ok(()),
    }
}

fn check_schedule(rule: &FaultRule) -> Result<(), RuleError> {
    if rule.effect.is_condition() && rule.schedule.count.is_some() {
        return wrong("count", "this effect holds for a while; say for how long with lasts, or leave it out".into());
    }
    Ok(())
}

/// Whether two conditions of a group are about the same thing.
fn meet(a: &FaultTarget, b: &FaultTarget) -> bool {
    let apart = |a: Option<u32>, b: Option<u32>| matches!((a, b), (Some(a), Some(b)) if a != b);
    let queues = apart(a.queue.map(u32::from), b.queue.map(u32::from));
    let dies = apart(a.place.die, b.place.die) || apart(a.place.channel, b.place.channel);
    let tenants = matches!((&a.tenant, &b.tenant), (Some(a), Some(b)) if a != b);
    !(apart(a.nsid, b.nsid) || queues || dies || tenants)
}

/// Whether a rule takes every I/O command that another one can befall, as far as opcodes say.
fn takes_opcodes_of(a: &FaultRule, b: &FaultRule) -> bool {
    let takes = |rule: &FaultRule, opcode: u8| {
        let of_place = !rule.target.place.is_some() || access(opcode) == Access::Read;
        of_place && rule.effect.befalls(opcode) && (rule.target.io.is_empty() || rule.target.io.contains(&opcode))
    };
    !b.target.admin.is_empty() || (0..=u8::MAX).all(|opcode| !takes(b, opcode) || takes(a, opcode))
}

fn check_others(rule: &FaultRule, rules: &[PlannedFault]) -> Result<(), RuleError> {
    let hides = |p: &&PlannedFault| {
        rule.effect.is_final()
            && p.rule.effect.is_final()
            && p.rule.schedule.is_always()
            && p.rule.target.covers(&rule.target)
            && takes_opcodes_of(&p.rule, rule)
    };
    if let Some(p) = rules.iter().find(hides) {
        let what = format!("rule {} ({}) takes every command that this one is about; remove it first", p.id, p.rule);
        return wrong("effect", what);
    }
    let group = rule.effect.group();
    let clashes =
        |p: &&PlannedFault| group.is_some() && p.rule.effect.group() == group && meet(&p.rule.target, &rule.target);
    match rules.iter().find(clashes) {
        Some(p) => wrong("effect", format!("contradicts rule {} ({}); remove that first", p.id, p.rule)),
        None => Ok(()),
    }
}
