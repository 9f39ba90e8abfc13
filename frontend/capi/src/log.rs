//! Logs, where a tool asks for them: `dbglog_HOST.PID.log` in its log directory, as the reference names it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, Once};

use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tracing_subscriber::fmt::MakeWriter;

use crate::attributes::Attributes;
use crate::table::lock;

/// The file that is written to, and its name.
static FILE: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

static BEGUN: Once = Once::new();

/// Where a line of the log goes at the moment.
#[derive(Debug, Clone, Copy)]
struct Current;

impl Write for Current {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match lock(&FILE).as_mut() {
            Some((_, file)) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Current {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

/// Writes logs to where the attributes say now, or no more. A log that cannot be written is none: nothing fails for it.
pub(crate) fn follow(attributes: &Attributes) {
    let path = attributes
        .log_dir()
        .map(|dir| dir.join(format!("dbglog_{}.{}.log", Machine.hostname(), std::process::id())));
    let mut current = lock(&FILE);
    if current.as_ref().map(|(path, _)| path) == path.as_ref() {
        return;
    }
    *current = path.and_then(|path| Some((path.clone(), open(&path).ok()?)));
    let is_on = current.is_some();
    drop(current);
    if is_on {
        BEGUN.call_once(|| {
            let log = tracing_subscriber::fmt().with_writer(Current).with_ansi(false);
            // The library has a `tracing` of its own, so nobody else's subscriber can be there.
            log.with_max_level(tracing::Level::DEBUG).try_init().unwrap_or_default();
        });
    }
}

/// Opens a log that only this user can read. The directory may be everybody's: a link that somebody else has put there is not followed.
fn open(path: &std::path::Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options.open(path)
}
