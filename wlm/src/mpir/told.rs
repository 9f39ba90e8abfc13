//! The table of a launcher on another machine: gantry's agent there reads it and reports it on its standard output,
//! in frames. Pure, except for the two ends.

use std::error::Error as _;
use std::io::Write;
use std::path::Path;

use gantry_shared::wire::frame::{FrameBuffer, FrameError, write_frame};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::placement::{Placement, PlacementBuilder};
use serde::{Deserialize, Serialize};

use super::proctable::MOST_RANKS;
use super::{MpirError, TableError, read_running};
use crate::beneath::Beneath;
use crate::host::{Host, check_process};
use crate::launcher::proxies::{Proxies, Started, find_below, find_proxies};
use crate::{Error, Result, pmix};

/// Ranks per frame. Their names fit into it, unless they are longer than on any real machine.
const PART: usize = 4096;

/// The report.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The next ranks.
    Ranks(Placement),
    /// The end of the ranks, with the launcher machine's own name.
    All { host: String },
    /// The launcher does not know the ranks. They are below these proxies.
    Proxies { proxies: Proxies, host: String },
    /// The ranks of this host, below a proxy.
    Below(Vec<Beneath>),
    /// The ranks could not be found.
    Failed { not_yet: bool, failure: Failure },
}

/// The report of a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The ranks, and the launcher machine's own name.
    Ranks(Placement, String),
    /// The hosts with the launcher's proxies, and the name of the launcher's machine.
    Proxies(Proxies, String),
    /// The ranks of one host.
    Below(Vec<Beneath>),
}

/// Finds the ranks of the running launcher `pid` of this machine: by its table, or by the PMIx server in it. `agent`
/// is the program that queries such a server.
///
/// # Errors
/// There is no such process, it is another user's, or it shows no ranks; [`Error::NotYet`]: it does not show them
/// yet.
pub(crate) fn find_ranks(pid: Pid, agent: &Path, host: &dyn Host) -> Result<Heard> {
    check_process(pid, host)?;
    let error = match read_running(pid, host) {
        Ok(table) => return Ok(Heard::Ranks(table.placement, host.hostname())),
        Err(error) => error,
    };
    if let MpirError::NotALauncher { .. } = error {
        if let Some(library) = pmix::find_library(pid, host) {
            let ranks = pmix::ask_ranks(pid, &library, agent, host)?;
            return Ok(Heard::Ranks(ranks, host.hostname()));
        }
        if let Some(Started { mut proxies, by }) = find_proxies(pid, host) {
            for starter in by {
                let table = read_running(starter, host).map_err(to_error)?;
                proxies.hosts.extend(table.placement.hosts().map(|name| Some(name.to_owned())));
            }
            return Ok(Heard::Proxies(proxies, host.hostname()));
        }
    }
    Err(to_error(error))
}

fn to_error(error: MpirError) -> Error {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    if matches!(error, MpirError::Table(TableError::Empty | TableError::Missing { .. })) {
        let hint = "wait for them with --wait; some launchers only publish the ranks of MPI programs";
        return Error::not_yet(message, hint, false);
    }
    Failure::new(error.kind(), message).with_hint_of(error.hint()).into()
}

/// Reports to `out` where the ranks of the launcher `pid` of this machine are, or why that is unknown. The report
/// consists of frames for the other side.
///
/// # Errors
/// Writing failed.
pub fn tell_ranks(
    pid: Pid,
    agent: &Path,
    host: &dyn Host,
    out: &mut impl Write,
) -> std::result::Result<(), FrameError> {
    let (placement, own) = match find_ranks(pid, agent, host) {
        Ok(Heard::Ranks(placement, own)) => (placement, own),
        Ok(Heard::Proxies(proxies, host)) => return write_frame(out, &Told::Proxies { proxies, host }),
        Ok(Heard::Below(ranks)) => return write_frame(out, &Told::Below(ranks)),
        Err(error) => return tell_failure(&error, out),
    };
    let mut part = PlacementBuilder::new();
    let mut count = 0;
    for place in placement.iter() {
        // As many as there are here fit into a placement.
        if part.push(place.host, place.pid, place.exe).is_ok() {
            count += 1;
        }
        if count == PART {
            write_frame(out, &Told::Ranks(std::mem::take(&mut part).build()))?;
            count = 0;
        }
    }
    write_frame(out, &Told::Ranks(part.build()))?;
    write_frame(out, &Told::All { host: own })
}

/// Reports to `out` which ranks are below the launcher's proxy with that port on this machine, as [`tell_ranks`]
/// does.
///
/// # Errors
/// Writing failed.
pub fn tell_below(port: &str, host: &dyn Host, out: &mut impl Write) -> std::result::Result<(), FrameError> {
    match find_below(port, host) {
        Ok(ranks) => write_frame(out, &Told::Below(ranks)),
        Err(error) => tell_failure(&error, out),
    }
}

fn tell_failure(error: &Error, out: &mut impl Write) -> std::result::Result<(), FrameError> {
    let not_yet = matches!(error, Error::NotYet { .. });
    write_frame(out, &Told::Failed { not_yet, failure: error.to_failure() })
}

/// Decodes the report of [`tell_ranks`] from another machine.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    frames: FrameBuffer,
    ranks: PlacementBuilder,
    count: u32,
}

impl Telling {
    /// Takes the next bytes. Returns the report when it is complete.
    ///
    /// # Errors
    /// The reported failure, as an error of this side; or bytes that are not a valid report.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<Heard>> {
        let strange = |why: String| Error::Failed(Failure::new(Kind::Protocol, why));
        self.frames.push(bytes).map_err(|error| strange(error.to_string()))?;
        while let Some(told) = self.frames.next_message().map_err(|error| strange(error.to_string()))? {
            match told {
                Told::Ranks(part) => self.add(&part).map_err(strange)?,
                Told::All { host } => {
                    return Ok(Some(Heard::Ranks(std::mem::take(&mut self.ranks).build(), host)));
                }
                Told::Proxies { proxies, host } => return Ok(Some(Heard::Proxies(proxies, host))),
                Told::Below(ranks) => return Ok(Some(Heard::Below(ranks))),
                Told::Failed { not_yet: true, failure } => {
                    return Err(Error::NotYet { failure, queued: false });
                }
                Told::Failed { failure, .. } => return Err(failure.into()),
            }
        }
        Ok(None)
    }

    fn add(&mut self, part: &Placement) -> std::result::Result<(), String> {
        self.count = self.count.saturating_add(part.rank_count());
        if self.count > MOST_RANKS {
            return Err(format!("more than {MOST_RANKS} ranks"));
        }
        for place in part.iter() {
            self.ranks.push(place.host, place.pid, place.exe).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    /// Decodes a report in pieces of this size.
    fn take_all(bytes: &[u8], piece: usize) -> Result<Option<Heard>> {
        let mut telling = Telling::default();
        for piece in bytes.chunks(piece) {
            if let Some(all) = telling.take(piece)? {
                return Ok(Some(all));
            }
        }
        Ok(None)
    }

    #[test]
    fn ranks_are_told_in_parts_and_put_together() {
        let build = |ranks: std::ops::Range<i32>| {
            let mut part = PlacementBuilder::new();
            for pid in ranks {
                let host = if pid % 2 == 0 { "even" } else { "odd" };
                part.push(host, Pid::new(pid), "/bin/app").unwrap();
            }
            part.build()
        };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &Told::Ranks(build(1..11))).unwrap();
        write_frame(&mut bytes, &Told::Ranks(build(11..21))).unwrap();
        assert!(take_all(&bytes, 7).unwrap().is_none());
        write_frame(&mut bytes, &Told::All { host: "n1".into() }).unwrap();
        for piece in [1, 7, bytes.len()] {
            assert_eq!(take_all(&bytes, piece).unwrap(), Some(Heard::Ranks(build(1..21), "n1".into())));
        }
    }

    #[test]
    fn the_reason_for_no_ranks_is_reported_too() {
        let foreign = FakeHost::default().with_file("/proc/5/status", "Uid:\t0\t0\t0\t0\n");
        let check = |pid: i32, kind: Kind, text: &str| {
            let mut bytes = Vec::new();
            tell_ranks(Pid::new(pid).unwrap(), Path::new("/g/agent"), &foreign, &mut bytes).unwrap();
            let error = take_all(&bytes, 16).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
        };
        check(77, Kind::NotFound, "there is no process 77 on fake");
        check(5, Kind::NoAccess, "process 5 belongs to another user");
        let empty = to_error(MpirError::Table(TableError::Empty));
        assert!(matches!(empty, Error::NotYet { .. }), "{empty:?}");
        let mut bytes = Vec::new();
        tell_failure(&empty, &mut bytes).unwrap();
        let error = take_all(&bytes, 16).unwrap_err();
        assert!(matches!(error, Error::NotYet { .. }), "{error:?}");
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let error = take_all(b"Welcome to a cluster", 20).unwrap_err();
        assert_eq!(error.kind(), Kind::Protocol);
    }
}
