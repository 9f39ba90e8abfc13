//! Reads the proctable that a launcher keeps for debuggers, while the launcher runs. The guard reads it for the tool:
//! a launcher's parent may read its memory where others may not.

use gantry_shared::wire::frame;
use gantry_types::id::Pid;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::{MpirError, RunningTable};
use gantry_wlm::pmix::find_library;

use gantry_guard::protocol::{FromGuard, LauncherTable};

/// Remembers the address of the table: finding it takes longer than reading it, and the first read is often too
/// early.
#[derive(Debug, Default)]
pub(crate) struct TableReader {
    known: Option<(Pid, RunningTable)>,
}

impl TableReader {
    /// Reads the proctable of a live launcher. `wrapped`: of one that `launcher` starts.
    pub(crate) fn read(&mut self, launcher: Option<Pid>, wrapped: bool) -> FromGuard {
        let never = |why: String| FromGuard::Table(LauncherTable::Never(why));
        let Some(pid) = launcher else { return never("the launcher has ended".to_owned()) };
        let told = match self.find(pid, wrapped).and_then(RunningTable::read) {
            Ok(table) => FromGuard::Table(LauncherTable::There(table.placement)),
            // A table that is being filled may be inconsistent.
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
            // Do not remember the launcher below a wrapper: the wrapper may start another one.
            None if wrapped => RunningTable::find_below(pid, &Machine)?,
            None => RunningTable::find(pid, &Machine)?,
        };
        Ok(&self.known.insert((pid, table)).1)
    }
}
