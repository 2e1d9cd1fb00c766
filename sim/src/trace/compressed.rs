//! Traces as they are kept: gzip and Zstandard are told by a file's first bytes, not by its name, and are read as they go.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// What a file's first bytes are (RFC 1952, section 2.3.1; RFC 8878, section 3.1.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// The lines of a file, whatever it is compressed with.
///
/// # Errors
/// It cannot be read.
pub fn lines(file: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(BUFFER, file);
    let head = file.fill_buf()?;
    Ok(if head.starts_with(&GZIP) {
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file)))
    } else if head.starts_with(&ZSTANDARD) {
        Box::new(BufReader::with_capacity(BUFFER, Frames { state: State::Between(file) }))
    } else {
        Box::new(file)
    })
}

/// The frames of a Zstandard file, one behind the other.
struct Frames<R: Read> {
    state: State<R>,
}

/// Where a file is being read.
enum State<R: Read> {
    /// Before a frame, or at the end.
    Between(R),
    /// In a frame.
    Within(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
    /// A frame could not be read; nothing more is.
    Failed,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Failed) {
                State::Between(mut file) => {
                    if file.fill_buf()?.is_empty() {
                        self.state = State::Between(file);
                        return Ok(0);
                    }
                    let frame = StreamingDecoder::new(file).map_err(io::Error::other)?;
                    self.state = State::Within(Box::new(frame));
                }
                State::Within(mut frame) => match frame.read(buffer)? {
                    0 => self.state = State::Between(frame.into_inner()),
                    n => {
                        self.state = State::Within(frame);
                        return Ok(n);
                    }
                },
                State::Failed => return Err(io::Error::other("what was read before is damaged")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    const TEXT: &str = "time_us,op,offset,length\n0,read,0,4096\n";

    fn read(bytes: Vec<u8>) -> io::Result<String> {
        let mut text = String::new();
        lines(Cursor::new(bytes))?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        file.write_all(text.as_bytes()).unwrap();
        file.finish().unwrap()
    }

    fn zstandard(text: &str) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn all_kinds_are_read() {
        assert_eq!(read(TEXT.into()).unwrap(), TEXT);
        for compress in [gzip, zstandard] {
            assert_eq!(read(compress(TEXT)).unwrap(), TEXT);
            // Files that were joined are one.
            assert_eq!(
                read([compress(TEXT), compress("1,write,0,512\n")].concat()).unwrap(),
                format!("{TEXT}1,write,0,512\n")
            );
        }
        assert_eq!(read(Vec::new()).unwrap(), "");
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_an_error() {
        let long: String = (0..20_000).map(|i| format!("{i},read,{},4096\n", i * 7919 % 1_000_003)).collect();
        for compress in [gzip, zstandard] {
            let whole = compress(&long);
            assert_eq!(read(whole.clone()).unwrap(), long);
            for keep in [whole.len() / 2, whole.len() - 1, 5] {
                assert!(read(whole[..keep].to_vec()).is_err(), "{keep} of {} bytes", whole.len());
            }
        }
        let mut damaged = gzip(&long);
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0xff;
        assert!(read(damaged).is_err());
        assert!(read([zstandard(TEXT), b"rubbish".to_vec()].concat()).is_err());
    }
}
