//! Features (base 2.0, 5.27; NVM 1.0, 4.1.3) and the vendor feature that holds the quanta of deficit round robin.

use super::wire::{bits, wire};
use zerocopy::little_endian::U32;

/// FID values (base 2.0, Figure 317).
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power management.
    pub const POWER: u8 = 0x02;
    /// Temperature threshold.
    pub const TEMPERATURE: u8 = 0x04;
    /// Error recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile write cache.
    pub const WRITE_CACHE: u8 = 0x06;
    /// Number of queues.
    pub const QUEUES: u8 = 0x07;
    /// Interrupt coalescing.
    pub const COALESCING: u8 = 0x08;
    /// Interrupt vector configuration.
    pub const VECTOR: u8 = 0x09;
    /// Write atomicity normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous event configuration.
    pub const ASYNC_EVENTS: u8 = 0x0b;
    /// Autonomous power state transition.
    pub const AUTONOMOUS_POWER: u8 = 0x0c;
    /// Host memory buffer.
    pub const HOST_MEMORY_BUFFER: u8 = 0x0d;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep alive timer.
    pub const KEEP_ALIVE: u8 = 0x0f;
    /// Host controlled thermal management.
    pub const THERMAL_MANAGEMENT: u8 = 0x10;
    /// Non-operational power state configuration.
    pub const NON_OPERATIONAL: u8 = 0x11;
    /// Read recovery level configuration.
    pub const READ_RECOVERY: u8 = 0x12;
    /// Predictable latency mode configuration.
    pub const PREDICTABLE_LATENCY: u8 = 0x13;
    /// Predictable latency mode window.
    pub const PREDICTABLE_WINDOW: u8 = 0x14;
    /// LBA status information attributes.
    pub const LBA_STATUS: u8 = 0x15;
    /// Host behaviour support.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// Sanitize configuration.
    pub const SANITIZE: u8 = 0x17;
    /// Endurance group event configuration.
    pub const ENDURANCE_EVENTS: u8 = 0x18;
    /// I/O command set profile.
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    /// Flexible data placement (base 2.1, 5.1.25.1.20).
    pub const FDP: u8 = 0x1d;
    /// FDP events (base 2.1, 5.1.25.1.21).
    pub const FDP_EVENTS: u8 = 0x1e;
    /// Software progress marker.
    pub const SOFTWARE_PROGRESS: u8 = 0x80;
    /// Host identifier.
    pub const HOST_ID: u8 = 0x81;
    /// Reservation notification mask.
    pub const RESERVATION_MASK: u8 = 0x82;
    /// Reservation persistence.
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
    /// Namespace write protection.
    pub const WRITE_PROTECT: u8 = 0x84;
    /// Vendor specific: the quanta of deficit round robin ([`super::Quanta`]).
    pub const QUANTA: u8 = 0xc1;
}

/// Bits of CDW11 of feature 0Bh (base 2.0, Figure 326).
pub mod async_config {
    /// SMART critical warnings, bits 7:0.
    pub const SMART: u32 = 0xff;
    /// The one of the temperature.
    pub const TEMPERATURE: u32 = 1 << 1;
    /// Namespace attribute notices.
    pub const NAMESPACE: u32 = 1 << 8;
    /// Firmware activation notices.
    pub const FIRMWARE: u32 = 1 << 9;
    /// Telemetry log notices.
    pub const TELEMETRY: u32 = 1 << 10;
    /// Asymmetric namespace access change notices.
    pub const ANA: u32 = 1 << 11;
    /// LBA status information notices.
    pub const LBA_STATUS: u32 = 1 << 13;
    /// Endurance group event aggregate log change notices.
    pub const ENDURANCE: u32 = 1 << 14;
    /// Discovery log page change.
    pub const DISCOVERY: u32 = 1 << 31;
}

/// SEL of Get Features (base 2.0, Figure 191).
pub mod select {
    /// Current value.
    pub const CURRENT: u32 = 0;
    /// Default value.
    pub const DEFAULT: u32 = 1;
    /// Saved value.
    pub const SAVED: u32 = 2;
    /// Supported capabilities: bit 0 saveable, 1 namespace specific, 2 changeable.
    pub const SUPPORTED: u32 = 3;
}

bits! {
    /// CDW10 of Get Features and Set Features.
    FeatureDw10: u32 {
        /// Feature identifier.
        fid, with_fid: 7, 0;
        /// Select (Get Features).
        sel, with_sel: 10, 8;
        /// Save (Set Features).
        sv, with_sv: 31, 31;
    }
}

bits! {
    /// Arbitration, feature 01h (base 2.0, Figure 318). Weights are 0-based.
    Arbitration: u32 {
        /// Burst as a power of two; 111b is no limit.
        ab, with_ab: 2, 0;
        /// Low priority weight, 0-based.
        lpw, with_lpw: 15, 8;
        /// Medium priority weight, 0-based.
        mpw, with_mpw: 23, 16;
        /// High priority weight, 0-based.
        hpw, with_hpw: 31, 24;
    }
}

bits! {
    /// Number of queues, feature 07h (base 2.0, Figure 322); both 0-based.
    Queues: u32 {
        /// Submission queues.
        nsq, with_nsq: 15, 0;
        /// Completion queues.
        ncq, with_ncq: 31, 16;
    }
}

bits! {
    /// Interrupt coalescing, feature 08h (base 2.0, Figure 323).
    Coalescing: u32 {
        /// Aggregation threshold in completions a vector, 0-based.
        thr, with_thr: 7, 0;
        /// Aggregation time, in 100 µs; 0 is no delay.
        time, with_time: 15, 8;
    }
}

bits! {
    /// Temperature threshold, feature 04h (base 2.0, Figure 320).
    TemperatureThreshold: u32 {
        /// Threshold, K.
        tmpth, with_tmpth: 15, 0;
        /// Sensor: 0 composite, 1 to 8, 1111b all (set).
        tmpsel, with_tmpsel: 19, 16;
        /// 0 over, 1 under.
        thsel, with_thsel: 21, 20;
    }
}

wire! {
    /// Vendor feature C1h, Deficit Round Robin Quanta: what a class may spend in bytes a round. Set Features takes CDW11 (high),
    /// CDW12 (medium) and CDW13 (low) and no data; Get Features returns this structure as data and `high` in DW0.
    /// A quantum of 0 is Invalid Field in Command.
    Quanta: 16 {
        /// Bytes a round of the high class.
        high: U32 = 0,
        /// Of the medium class.
        medium: U32 = 4,
        /// Of the low class.
        low: U32 = 8,
        /// Reserved.
        rsvd12: U32 = 12,
    }
}

bits! {
    /// Power management, feature 02h (base 2.0, Figure 319).
    Power: u32 {
        /// Power state.
        ps, with_ps: 4, 0;
        /// Workload hint.
        wh, with_wh: 7, 5;
    }
}

/// ITPS of an entry of feature 0Ch: the power state that is gone to (base 2.0, Figure 330).
pub const fn transition_state(entry: u64) -> u8 {
    (entry >> 3) as u8 & 0x1f
}

/// ITPT of an entry of feature 0Ch: the milliseconds of idleness before; 0 is never.
pub const fn transition_idle_ms(entry: u64) -> u32 {
    (entry >> 8) as u32 & 0xff_ffff
}

wire! {
    /// Timestamp, feature 0Eh: 8 bytes (base 2.0, Figures 333 and 334).
    Timestamp: 8 {
        /// Milliseconds since the beginning of 1970.
        ms: [u8; 6] = 0,
        /// Where the value comes from: bits 3:1, 000b a reset, 001b Set Features.
        attributes: u8 = 6,
        /// Reserved.
        rsvd7: u8 = 7,
    }
}

impl Timestamp {
    /// So many milliseconds (48 bits of them), of that origin.
    pub fn new(ms: u64, origin: u8) -> Self {
        let [a, b, c, d, e, f, ..] = ms.to_le_bytes();
        Self { ms: [a, b, c, d, e, f], attributes: origin << 1, rsvd7: 0 }
    }
    /// Milliseconds.
    pub const fn milliseconds(&self) -> u64 {
        let [a, b, c, d, e, f] = self.ms;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

wire! {
    /// Host behaviour support, feature 16h: 512 bytes (base 2.1, Figure 401).
    HostBehavior: 512 {
        /// Advanced command retry: 1 enabled.
        acre: u8 = 0,
        /// Extended telemetry data area 4.
        etdas: u8 = 1,
        /// LBA format extensions.
        lbafee: u8 = 2,
        /// Host dispersed namespace support.
        hdisns: u8 = 3,
        /// Copy descriptor formats enabled.
        cdfe: [u8; 2] = 4,
        /// Reserved.
        rsvd6: [u8; 506] = 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_and_transitions() {
        let t = Timestamp::new(0x0123_4567_89ab, 1);
        assert_eq!(zerocopy::IntoBytes::as_bytes(&t), [0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 2, 0]);
        assert_eq!(t.milliseconds(), 0x0123_4567_89ab);
        let entry = 100 << 8 | 3 << 3;
        assert_eq!((transition_state(entry), transition_idle_ms(entry)), (3, 100));
    }

    #[test]
    fn arbitration_as_nvme_cli_prints_it() {
        let a = Arbitration(0).with_ab(7).with_lpw(7).with_mpw(15).with_hpw(31);
        assert_eq!(a.0, 0x1f0f_0707);
        assert_eq!(FeatureDw10(0x8000_03c1).sv(), 1);
        assert_eq!(FeatureDw10(0x8000_03c1).sel(), 3);
    }
}
