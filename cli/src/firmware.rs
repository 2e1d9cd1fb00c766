//! `weir device firmware-image`: an image that Firmware Image Download takes.

use crate::failure::CommandFailure;
use crate::output;
use serde::Serialize;
use std::path::Path;
use weir_controller::firmware_image;

#[derive(Serialize)]
struct Made {
    file: String,
    revision: String,
    bytes: usize,
}

/// Writes the image.
///
/// # Errors
/// The revision is none, the payload cannot be read or is too large, or the file cannot be written.
pub fn run(revision: &str, payload: Option<&Path>, out: &Path, json: bool) -> Result<(), CommandFailure> {
    let good = !revision.is_empty() && revision.len() <= 8 && revision.bytes().all(|b| b.is_ascii_graphic());
    if !good {
        return Err(CommandFailure::usage(format_args!(
            "device firmware-image: {revision:?} is no revision: 1 to 8 ASCII characters without spaces"
        )));
    }
    let failed = |path: &Path, e: std::io::Error| CommandFailure::new(format_args!("{}: {e}", path.display()));
    let payload = match payload {
        Some(path) => std::fs::read(path).map_err(|e| failed(path, e))?,
        None => Vec::new(),
    };
    let image = firmware_image(revision, &payload).ok_or_else(|| {
        CommandFailure::new("device firmware-image: the payload is too large: an image has at most 4 MiB")
    })?;
    output::file(out, &image).map_err(|e| failed(out, e))?;
    let made = Made { file: out.display().to_string(), revision: revision.into(), bytes: image.len() };
    if json {
        return output::json(&made);
    }
    output::text(&format!("{}: revision {}, {} bytes\n", made.file, made.revision, made.bytes))
}
