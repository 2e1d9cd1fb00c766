//! Commands and log pages of a drive's upkeep: firmware, self-test, telemetry, persistent events, lockdown, asymmetric access
//! (base 2.0).

use super::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64, U128};

bits! {
    /// CDW10 of Firmware Commit (base 2.0, Figure 176).
    CommitDw10: u32 {
        /// Firmware slot; 0: the controller chooses.
        fs, with_fs: 2, 0;
        /// [`commit`] action.
        ca, with_ca: 5, 3;
        /// Boot partition.
        bpid, with_bpid: 31, 31;
    }
}

/// CA of Firmware Commit.
pub mod commit {
    /// The downloaded image goes to the slot.
    pub const REPLACE: u32 = 0;
    /// And is activated at the next reset.
    pub const REPLACE_AND_ACTIVATE: u32 = 1;
    /// The slot's image is activated at the next reset.
    pub const ACTIVATE: u32 = 2;
    /// Without a reset.
    pub const ACTIVATE_NOW: u32 = 3;
}

/// STC of Device Self-test (base 2.0, Figure 164).
pub mod self_test {
    /// Short.
    pub const SHORT: u8 = 1;
    /// Extended.
    pub const EXTENDED: u8 = 2;
    /// Abort the one under way.
    pub const ABORT: u8 = 0xf;
    /// DSTO bit 0: one at a time in the whole subsystem.
    pub const ONE_AT_A_TIME: u8 = 1;
}

/// Bits 3:0 of a self-test's result (base 2.0, Figure 213).
pub mod self_test_result {
    /// Passed.
    pub const PASSED: u8 = 0;
    /// Aborted by a Device Self-test command.
    pub const ABORTED: u8 = 1;
    /// Aborted by a controller level reset.
    pub const ABORTED_BY_RESET: u8 = 2;
    /// Its namespace has gone.
    pub const ABORTED_BY_REMOVAL: u8 = 3;
    /// Aborted by Format NVM.
    pub const ABORTED_BY_FORMAT: u8 = 4;
    /// A segment failed that the entry names.
    pub const SEGMENT_FAILED: u8 = 7;
    /// Aborted by a sanitize operation.
    pub const ABORTED_BY_SANITIZE: u8 = 9;
    /// The entry is not used.
    pub const UNUSED: u8 = 0xf;
}

wire! {
    /// A self-test's result: 28 bytes (base 2.0, Figure 213).
    SelfTestResult: 28 {
        /// [`self_test_result`] in 3:0, the self-test code in 7:4.
        status: u8 = 0,
        /// The first segment that failed.
        segment: u8 = 1,
        /// What of the following is valid: bit 0 `nsid`, 1 `failing_lba`, 2 `sct`, 3 `sc`.
        valid: u8 = 2,
        /// Reserved.
        rsvd3: u8 = 3,
        /// Power on hours when it ended.
        poh: U64 = 4,
        /// The namespace that failed.
        nsid: U32 = 12,
        /// The block that failed.
        failing_lba: U64 = 16,
        /// Status code type.
        sct: u8 = 24,
        /// Status code.
        sc: u8 = 25,
        /// Vendor specific.
        vs: [u8; 2] = 26,
    }
}

wire! {
    /// Device self-test log: 564 bytes (base 2.0, Figure 212).
    SelfTestLog: 564 {
        /// The self-test code under way; 0: none.
        current: u8 = 0,
        /// Percent of it that is done.
        completion: u8 = 1,
        /// Reserved.
        rsvd2: [u8; 2] = 2,
        /// Newest first.
        results: [SelfTestResult; 20] = 4,
    }
}

wire! {
    /// The head of a telemetry log page: 512 bytes (base 2.0, Figures 214 and 218).
    TelemetryHeader: 512 {
        /// LID.
        lid: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 4] = 1,
        /// IEEE OUI.
        ieee: [u8; 3] = 5,
        /// The last block of data area 1, in 512 bytes; 0: it is empty.
        area1: U16 = 8,
        /// Of data area 2.
        area2: U16 = 10,
        /// Of data area 3.
        area3: U16 = 12,
        /// Reserved.
        rsvd14: [u8; 2] = 14,
        /// Of data area 4.
        area4: U32 = 16,
        /// Reserved.
        rsvd20: [u8; 361] = 20,
        /// Generation of the host-initiated data.
        host_generation: u8 = 381,
        /// Controller-initiated data is available.
        available: u8 = 382,
        /// Generation of the controller-initiated data.
        generation: u8 = 383,
        /// Why it was saved.
        reason: [u8; 128] = 384,
    }
}

/// Telemetry is read in units of so many bytes.
pub const TELEMETRY_BLOCK: usize = 512;

wire! {
    /// The head of the persistent event log: 512 bytes (base 2.0, Figure 224).
    PersistentHeader: 512 {
        /// LID.
        lid: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 3] = 1,
        /// Events.
        tnev: U32 = 4,
        /// Bytes of the whole log.
        tll: U64 = 8,
        /// Revision: 2.
        revision: u8 = 16,
        /// Reserved.
        rsvd17: u8 = 17,
        /// Bytes of this head behind this field.
        header_length: U16 = 18,
        /// As the timestamp feature has it.
        timestamp: U64 = 20,
        /// Power on hours.
        poh: U128 = 28,
        /// Power cycles.
        power_cycles: U64 = 44,
        /// PCI vendor ID.
        vid: U16 = 52,
        /// PCI subsystem vendor ID.
        ssvid: U16 = 54,
        /// Serial number.
        sn: [u8; 20] = 56,
        /// Model number.
        mn: [u8; 40] = 76,
        /// NQN of the subsystem.
        subnqn: [u8; 256] = 116,
        /// Generation: moves with every reporting context that differs.
        generation: U16 = 372,
        /// Whose context it is.
        rci: U32 = 374,
        /// Reserved.
        rsvd378: [u8; 102] = 378,
        /// Event types that there can be, a bit each.
        supported: [u8; 32] = 480,
    }
}

wire! {
    /// The head of a persistent event: 24 bytes (base 2.0, Figure 225).
    PersistentEventHeader: 24 {
        /// [`persistent`] event type.
        kind: u8 = 0,
        /// Revision of its data.
        revision: u8 = 1,
        /// Bytes of this head behind this field: 21.
        header_length: u8 = 2,
        /// Reserved.
        rsvd3: u8 = 3,
        /// The controller.
        cntlid: U16 = 4,
        /// As the timestamp feature has it.
        timestamp: U64 = 6,
        /// Port.
        port: U16 = 14,
        /// Reserved.
        rsvd16: [u8; 4] = 16,
        /// Bytes of vendor specific information.
        vsil: U16 = 20,
        /// Bytes of data behind this head, that information included.
        length: U16 = 22,
    }
}

wire! {
    /// Data of [`persistent::NAMESPACE`]: a namespace was created or deleted (base 2.0, 5.16.1.14.1.6).
    NamespaceEvent: 48 {
        /// DW10 of the Namespace Management command.
        cdw10: U32 = 0,
        /// Reserved.
        rsvd4: [u8; 4] = 4,
        /// Size in blocks; this and what follows, up to the identifier, is of the namespace that was created or deleted.
        nsze: U64 = 8,
        /// Reserved.
        rsvd16: [u8; 8] = 16,
        /// Capacity in blocks.
        ncap: U64 = 24,
        /// Format.
        flbas: u8 = 32,
        /// Protection information.
        dps: u8 = 33,
        /// Sharing.
        nmic: u8 = 34,
        /// Reserved.
        rsvd35: u8 = 35,
        /// ANA group.
        anagrpid: U32 = 36,
        /// NVM set.
        nvmsetid: U16 = 40,
        /// Reserved.
        rsvd42: [u8; 2] = 42,
        /// The namespace; FFFFFFFFh where all were deleted.
        nsid: U32 = 44,
    }
}

wire! {
    /// Data of [`persistent::FORMAT_START`] (base 2.0, 5.16.1.14.1.7).
    FormatStartEvent: 12 {
        /// The namespace, FFFFFFFFh for all.
        nsid: U32 = 0,
        /// Format NVM Attributes, as Identify Controller has them.
        fna: u8 = 4,
        /// Reserved.
        rsvd5: [u8; 3] = 5,
        /// DW10 of the Format NVM command.
        cdw10: U32 = 8,
    }
}

wire! {
    /// Data of [`persistent::FORMAT_END`] (base 2.0, 5.16.1.14.1.8).
    FormatEndEvent: 12 {
        /// The namespace, FFFFFFFFh for all.
        nsid: U32 = 0,
        /// How much was left when it ended, of the namespace with the least left: percent.
        smallest_fpi: u8 = 4,
        /// Bit 0: the command has failed; bit 1: a namespace is not formatted whole.
        outcome: u8 = 5,
        /// Vendor's information.
        information: U16 = 6,
        /// The status field of the command's completion, without its phase.
        status: U32 = 8,
    }
}

/// Types of persistent events (base 2.0, Figure 226).
pub mod persistent {
    /// SMART / health log snapshot.
    pub const SMART: u8 = 0x01;
    /// Firmware commit.
    pub const FIRMWARE: u8 = 0x02;
    /// Timestamp change.
    pub const TIMESTAMP: u8 = 0x03;
    /// Power-on or reset.
    pub const RESET: u8 = 0x04;
    /// NVM subsystem hardware error.
    pub const HARDWARE_ERROR: u8 = 0x05;
    /// Change namespace.
    pub const NAMESPACE: u8 = 0x06;
    /// Format NVM start.
    pub const FORMAT_START: u8 = 0x07;
    /// Format NVM completion.
    pub const FORMAT_END: u8 = 0x08;
    /// Sanitize start.
    pub const SANITIZE_START: u8 = 0x09;
    /// Sanitize completion.
    pub const SANITIZE_END: u8 = 0x0a;
    /// Set feature.
    pub const FEATURE: u8 = 0x0b;
    /// Telemetry log created.
    pub const TELEMETRY: u8 = 0x0c;
    /// Thermal excursion.
    pub const THERMAL: u8 = 0x0d;
}

/// Action of Get Log Page for the persistent event log: bits 1:0 of LSP (base 2.0, Figure 223).
pub mod persistent_action {
    /// Read from the context.
    pub const READ: u8 = 0;
    /// Establish a context, and read.
    pub const ESTABLISH: u8 = 1;
    /// Release the context.
    pub const RELEASE: u8 = 2;
}

wire! {
    /// The head of the asymmetric namespace access log: 16 bytes (base 2.0, Figure 221).
    AnaHeader: 16 {
        /// Changes so far.
        change_count: U64 = 0,
        /// Group descriptors that follow.
        groups: U16 = 8,
        /// Reserved.
        rsvd10: [u8; 6] = 10,
    }
}

wire! {
    /// An ANA group: 32 bytes, its namespaces' NSIDs follow (base 2.0, Figure 222).
    AnaGroup: 32 {
        /// Group identifier.
        id: U32 = 0,
        /// NSIDs that follow.
        namespaces: U32 = 4,
        /// Changes of this group so far.
        change_count: U64 = 8,
        /// [`ana`] state.
        state: u8 = 16,
        /// Reserved.
        rsvd17: [u8; 15] = 17,
    }
}

/// States of an ANA group, and bits of ANACAP.
pub mod ana {
    /// Optimized.
    pub const OPTIMIZED: u8 = 1;
    /// Non-optimized.
    pub const NON_OPTIMIZED: u8 = 2;
    /// Inaccessible.
    pub const INACCESSIBLE: u8 = 3;
    /// Persistent loss.
    pub const PERSISTENT_LOSS: u8 = 4;
    /// Change.
    pub const CHANGE: u8 = 0xf;
    /// ANACAP: all five states can be reported, and a namespace's group never changes.
    pub const CAPABILITIES: u8 = 0x1f | 1 << 6;
    /// CMIC bit 3: it is reported.
    pub const CMIC: u8 = 1 << 3;
    /// LSP bit 0 of Get Log Page: groups only.
    pub const GROUPS_ONLY: u8 = 1;
}

bits! {
    /// CDW10 of Lockdown (base 2.0, Figure 184).
    LockdownDw10: u32 {
        /// Scope: [`lockdown`].
        scp, with_scp: 3, 0;
        /// Prohibit (1) or allow (0).
        prhbt, with_prhbt: 4, 4;
        /// Interface: 00b the admin submission queue.
        ifc, with_ifc: 6, 5;
        /// Opcode or feature identifier.
        ofi, with_ofi: 15, 8;
    }
}

/// Scopes of Lockdown, and contents of its log.
pub mod lockdown {
    /// Admin command opcodes.
    pub const ADMIN: u32 = 0;
    /// Feature identifiers of Set Features.
    pub const FEATURE: u32 = 2;
    /// Contents: what can be prohibited.
    pub const SUPPORTED: u8 = 0;
    /// Contents: what is prohibited on the admin submission queue.
    pub const PROHIBITED: u8 = 1;
    /// Contents: what is prohibited out of band.
    pub const OUT_OF_BAND: u8 = 2;
}

wire! {
    /// Command and feature lockdown log: 512 bytes (base 2.0, Figure 259).
    LockdownLog: 512 {
        /// Scope in 3:0, contents in 5:4.
        attributes: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 2] = 1,
        /// Identifiers that follow.
        length: u8 = 3,
        /// Opcodes or feature identifiers, ascending.
        list: [u8; 508] = 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_nvme_cli_puts_them() {
        let commit = CommitDw10(0).with_fs(2).with_ca(commit::ACTIVATE_NOW);
        assert_eq!(commit.0, 0x1a);
        let lockdown = LockdownDw10(0).with_ofi(0x84).with_prhbt(1).with_scp(lockdown::ADMIN);
        assert_eq!(lockdown.0, 0x8410);
        assert_eq!(size_of::<PersistentEventHeader>(), 3 + 21);
    }
}
