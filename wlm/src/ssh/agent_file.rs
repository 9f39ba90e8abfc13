//! The agent's file on this machine. Hosts without an agent get a copy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use tokio::sync::OnceCell;

use crate::host::Host;
use crate::{Error, Result};

/// How long an agent may take to print its identity. It hashes its own file for that.
const IDENTITY_DEADLINE: Duration = Duration::from_secs(20);

/// The agent on this machine.
#[derive(Debug)]
pub(super) struct AgentFile {
    /// Its path.
    pub(super) path: PathBuf,
    /// The identity that it prints.
    pub(super) identity: String,
    /// Its length.
    pub(super) bytes: u64,
    content: OnceCell<Vec<u8>>,
}

impl AgentFile {
    /// Asks the agent on this machine for its identity.
    ///
    /// # Errors
    /// It cannot be read, or does not print its identity.
    pub(super) fn look(program: PathBuf, host: &dyn Host) -> Result<Self> {
        let bytes = std::fs::metadata(&program)
            .map_err(|source| Error::Read { path: program.clone(), source })?
            .len();
        let asked = host.ask(&[program.clone().into(), "id".into()], IDENTITY_DEADLINE);
        let unfit = |why: String| {
            Error::Failed(Failure::new(Kind::Unsupported, format!("{}: {why}", program.display())))
        };
        let asked = asked.map_err(|e| unfit(e.to_string()))?;
        match asked.stdout.trim() {
            "" => Err(unfit(format!("does not say what it is: {}", asked.stderr.trim()))),
            identity => Ok(Self::new(program, identity.to_owned(), bytes)),
        }
    }

    /// The agent at `path` with this identity.
    pub(super) fn new(path: PathBuf, identity: String, bytes: u64) -> Self {
        Self { path, identity, bytes, content: OnceCell::new() }
    }

    /// Its bytes, read when the first host needs them.
    pub(super) async fn content(&self) -> io::Result<&[u8]> {
        let read = || async {
            let path = self.path.clone();
            let read = tokio::task::spawn_blocking(move || std::fs::read(path));
            let content = read.await.map_err(io::Error::other)??;
            match content.len() as u64 == self.bytes {
                true => Ok(content),
                false => Err(io::Error::other("it has just been replaced")),
            }
        };
        self.content.get_or_try_init(read).await.map(Vec::as_slice)
    }
}
