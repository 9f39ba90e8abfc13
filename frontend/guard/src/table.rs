//! The table of ranks that a launcher keeps for debuggers, read for the tool by the one process that may: a launcher's parent may look into it where
//! others may not. The launcher goes on meanwhile.

use gantry_shared::wire::frame;
use gantry_types::id::Pid;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::{MpirError, RunningTable};
use gantry_wlm::pmix::find_library;

use gantry_guard::protocol::{FromGuard, LauncherTable};

/// Remembers where the table is: that takes longer than to read it, and the first look is often too early.
#[derive(Debug, Default)]
pub(crate) struct TableReader {
    known: Option<(Pid, RunningTable)>,
}

impl TableReader {
    /// Reads the table of a launcher that lives; `wrapped`: of one that `launcher` starts.
    pub(crate) fn read(&mut self, launcher: Option<Pid>, wrapped: bool) -> FromGuard {
        let never = |why: String| FromGuard::Table(LauncherTable::Never(why));
        let Some(pid) = launcher else { return never("the launcher has ended".to_owned()) };
        let told = match self.find(pid, wrapped).and_then(RunningTable::read) {
            Ok(table) => FromGuard::Table(LauncherTable::There(table.placement)),
            // Read while it is being filled it may make no sense yet.
            Err(error @ MpirError::Table(_)) => FromGuard::Table(LauncherTable::NotYet(error.to_string())),
            Err(error) => match find_library(pid, &Machine).filter(|_| !wrapped) {
                Some(library) => FromGuard::Table(LauncherTable::ByPmix { launcher: pid, library }),
                None => never(error.to_string()),
            },
        };
        // What does not fit would end the connection.
        match frame::encode(&told) {
            Ok(_) => told,
            Err(error) => never(format!("the launcher's proctable cannot be sent: {error}")),
        }
    }

    fn find(&mut self, pid: Pid, wrapped: bool) -> Result<&RunningTable, MpirError> {
        let known = self.known.take().filter(|(known, _)| *known == pid && !wrapped);
        let table = match known {
            Some((_, table)) => table,
            // What a wrapper has started is not ours to wait for: it may be another one the next time.
            None if wrapped => RunningTable::find_below(pid, &Machine)?,
            None => RunningTable::find(pid, &Machine)?,
        };
        Ok(&self.known.insert((pid, table)).1)
    }
}
