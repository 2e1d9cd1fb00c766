//! `weir store fsck`: what is wrong in the metadata of a store.

use super::store_args::{EtcdArgs, FsckArgs};
use crate::failure::CommandFailure;
use crate::output;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use weir_config::{EtcdAccess, EtcdMeta, EtcdUser, PemPair, StoreMeta};
use weir_store::fsck::{Finding, Repair};
use weir_store_node::fsck::{FsckReport, FsckStep, fsck};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// Where the metadata are: as `meta` of `[store]` has it, or a file without anything before it.
///
/// # Errors
/// What is wrong with an etcd's members or prefix.
pub fn place(text: &str) -> Result<StoreMeta, String> {
    match text.split_once(':') {
        Some(("etcd", urls)) => urls.parse().map(StoreMeta::Etcd),
        Some(("redb", file)) => Ok(StoreMeta::Redb(file.into())),
        _ => Ok(StoreMeta::Redb(text.into())),
    }
}

/// The same, with what lets the command into an etcd.
///
/// # Errors
/// What of it does not go with the metadata.
fn with_access(meta: &StoreMeta, access: &EtcdArgs) -> Result<StoreMeta, CommandFailure> {
    let EtcdArgs { etcd_ca, etcd_cert, etcd_key, etcd_user, etcd_password_file } = access;
    let identity = etcd_cert.clone().zip(etcd_key.clone()).map(|(cert, key)| PemPair { cert, key });
    let user = etcd_user.clone().zip(etcd_password_file.clone());
    let user = user.map(|(name, password_file)| EtcdUser { name, password_file });
    let access = EtcdAccess { ca: etcd_ca.clone(), identity, user };
    match meta {
        StoreMeta::Etcd(etcd) => {
            let etcd = EtcdMeta { access, ..etcd.clone() };
            etcd.check().map_err(|wrong| CommandFailure::usage(format_args!("--etcd-{}: {wrong}", wrong.key())))?;
            Ok(StoreMeta::Etcd(etcd))
        }
        StoreMeta::Redb(_) | StoreMeta::Memory if access == EtcdAccess::default() => Ok(meta.clone()),
        StoreMeta::Redb(_) | StoreMeta::Memory => {
            Err(CommandFailure::usage(format_args!("{meta} is no etcd; leave the options --etcd-… out")))
        }
    }
}

/// Checks the metadata there, and with `--repair` puts right what can be.
///
/// # Errors
/// Something was found, or it cannot be checked.
pub fn run(FsckArgs { meta, repair, access }: &FsckArgs, json: bool) -> Result<(), CommandFailure> {
    let (meta, repairs) = (&with_access(meta, access)?, *repair);
    let (is_watched, mut shown, mut is_open) = (std::io::stderr().is_terminal(), Instant::now(), false);
    let mut watch = |step: FsckStep| {
        if is_watched && shown.elapsed() >= PROGRESS {
            (shown, is_open) = (Instant::now(), true);
            // Nobody is told where the terminal is gone.
            let _ = match step {
                FsckStep::Waits => write!(std::io::stderr(), "\rlooking for a live metadata service"),
                FsckStep::Reads(records) => write!(std::io::stderr(), "\x1b[2K\r{records} records"),
            };
        }
    };
    let report = fsck(meta, repairs, &mut watch);
    if is_open {
        let _ = writeln!(std::io::stderr());
    }
    let report = report.map_err(CommandFailure::new)?;
    match json {
        true => output::json(&value(&report))?,
        false => output::text(&text(&report))?,
    }
    let (repaired, left) = (report.findings.repaired.len(), report.findings.left.len());
    let about = match meta {
        StoreMeta::Redb(file) => file.display().to_string(),
        StoreMeta::Etcd(_) | StoreMeta::Memory => meta.to_string(),
    };
    match (repaired, left, repairs) {
        (0, 0, _) => Ok(()),
        (_, 0, true) => {
            Err(CommandFailure::new(format_args!("{about}: {repaired} things were put right; nothing is left")))
        }
        (_, _, true) => {
            Err(CommandFailure::new(format_args!("{about}: {repaired} things were put right, {left} are left")))
        }
        (_, _, false) => {
            Err(CommandFailure::new(format_args!("{about}: {left} things are wrong; --repair puts right what can be")))
        }
    }
}

fn text(report: &FsckReport) -> String {
    let mut text = format!("{} records\n", report.records);
    for finding in &report.findings.repaired {
        text += &format!("repaired  {finding}\n");
    }
    for finding in &report.findings.left {
        text += &format!("found     {finding}\n");
    }
    text
}

fn value(report: &FsckReport) -> Value {
    let finding = |finding: &Finding| {
        let instead = match finding.repair {
            Repair::Writes(_) => Value::Null,
            Repair::Refused(what) => what.into(),
        };
        json!({ "kind": finding.kind.name(), "about": finding.about, "not_repaired": instead })
    };
    let all = |findings: &[Finding]| findings.iter().map(finding).collect::<Vec<_>>();
    json!({
        "records": report.records,
        "repaired": all(&report.findings.repaired),
        "left": all(&report.findings.left),
    })
}
