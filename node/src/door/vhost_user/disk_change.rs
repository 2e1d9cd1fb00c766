//! A disk that changes while front ends use it: its size, or which one it is.

use super::Door;
use crate::door::context::Cx;

impl Door {
    /// A drive has another size now, 0 if it has gone: its front ends are told.
    pub fn resized(&mut self, drive: u32, bytes: u64, cx: &mut Cx) {
        for at in 0..self.exports.len() as u16 {
            let export = &mut self.exports[usize::from(at)];
            if export.config.drive == drive && !export.ended {
                if let Some(conn) = &mut export.conn {
                    conn.resize(bytes / 512);
                    self.act(at, cx);
                }
            }
        }
    }

    /// A drive is about to be another one: a worker that dies now finds the journals of its front ends to be the new one's.
    pub fn leave_medium(&mut self, drive: u32) {
        let of = self.exports.iter_mut().filter(|e| e.config.drive == drive && !e.ended);
        of.filter_map(|e| e.conn.as_mut()).for_each(|conn| conn.leave_medium());
    }

    /// A drive is another one from now on: front ends hear of it, and read this serial.
    pub fn renewed(&mut self, drive: u32, serial: &str, cx: &mut Cx) {
        let medium = cx.drives.device(drive).medium();
        for at in 0..self.exports.len() as u16 {
            let export = &mut self.exports[usize::from(at)];
            if export.config.drive == drive && !export.ended {
                export.config.serial = serial.into();
                if let Some(conn) = &mut export.conn {
                    conn.renew(serial, medium);
                    self.act(at, cx);
                }
            }
        }
    }
}
