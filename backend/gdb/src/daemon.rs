//! The daemon: starts a gdb for a rank on demand, forwards commands, and contributes their results.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_backend::types::error::Failure;
use gantry_backend::types::filter::key_ranks;
use gantry_backend::types::rank_set::RankSet;
use gantry_backend::{Backend, Channel, Error as BackendError, LocalRank, Rank, RankState};
use gantry_gdb::answer::{Answer, MAX_SAID_BYTES, Reply, State};
use gantry_gdb::order::{Order, What};
use gantry_gdb::{decode, encode, tags};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::desk::Desk;
use crate::dialogue::Asks;
use crate::gdb::Gdb;
use crate::process::{self, Process};
use crate::program;
use crate::symbols;
use crate::watcher::Watcher;

/// Timeout for the collection of a contribution.
const HOUR: Duration = Duration::from_secs(3600);

/// Timeout for a gdb to detach from its rank. The agent waits longer than this for a daemon that is to end.
const FAREWELL: Duration = Duration::from_secs(6);

/// Timeout for interrupted ranks to stop. After it the daemon reports the state of all ranks.
const MOST_PATIENCE: Duration = Duration::from_secs(60);

/// Why the daemon ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent is gone, or does not answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The answers exceed the room of a contribution.
    #[error(transparent)]
    Answers(Failure),
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// State of the daemon.
struct Daemon {
    backend: Backend,
    channel: Channel,
    program: OsString,
    path: OsString,
    desk: Arc<Desk>,
    processes: BTreeMap<Rank, Process>,
    watcher: Watcher,
    /// Ranks that got no gdb for the last order, with the reason.
    refused: BTreeMap<Rank, Reply>,
}

/// Carries out orders until the session ends. Then releases all ranks.
///
/// # Errors
/// It was not started by gantry, or its agent is gone.
pub fn run(program: &OsStr) -> Result<(), Error> {
    // Before any thread exists, and before any descriptor is open that the watcher would share.
    let watcher = Watcher::start()?;
    // As early, so that no thread gets the signal.
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_block().map_err(io::Error::from)?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let ended = SignalFd::with_flags(&set, flags).map_err(io::Error::from)?;
    #[expect(clippy::disallowed_methods, reason = "the debugger's search path; nothing else here reads it")]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let backend = Backend::connect()?;
    let channel = backend.channel()?;
    let mut daemon = Daemon {
        backend,
        channel,
        program: program.to_owned(),
        path,
        desk: Arc::default(),
        processes: BTreeMap::new(),
        watcher,
        refused: BTreeMap::new(),
    };
    let done = daemon.serve(&ended);
    daemon.say_farewell();
    done
}

impl Daemon {
    fn serve(&mut self, ended: &SignalFd) -> Result<(), Error> {
        loop {
            match self.channel.receive_any(Duration::ZERO) {
                Ok((tags::ORDER, order)) => {
                    // Bytes that are not an order get no answer.
                    if let Some(order) = decode::<Order>(&order) {
                        self.obey(&order)?;
                    }
                }
                Ok(_) => {}
                Err(BackendError::TimedOut { .. }) => {
                    let flags = PollFlags::POLLIN;
                    let mut news =
                        [PollFd::new(self.channel.as_fd(), flags), PollFd::new(ended.as_fd(), flags)];
                    match poll(&mut news, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(error) => return Err(io::Error::from(error).into()),
                    }
                    if news[1].any().unwrap_or(false) {
                        return Ok(());
                    }
                }
                Err(BackendError::Lost(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn obey(&mut self, order: &Order) -> Result<(), Error> {
        let patience = order.patience().min(MOST_PATIENCE);
        let ranks = self.backend.ranks()?;
        match &order.what {
            What::Words { rank, from } => return self.give_words(*rank, *from),
            What::Lack { ranks: asked } => return self.name_lacks(&ranks, asked),
            What::Tell { ranks: told, line } => {
                self.tell(&ranks, told, |gdb| gdb.tell(line));
                self.wait(told, patience);
            }
            What::Ask { ranks: asked, commands, room_bytes, without } => {
                let room = usize::try_from(*room_bytes).unwrap_or(usize::MAX).min(MAX_SAID_BYTES);
                let asks =
                    || Asks { commands: commands.iter().cloned().collect(), room, without: without.clone() };
                self.tell(&ranks, asked, |gdb| gdb.ask(asks()));
                self.wait(asked, patience);
            }
            What::Stand { ranks: awaited } => self.wait_until_standing(awaited, patience),
            What::Leave => self.say_farewell(),
            What::Wait { ranks: awaited } => self.wait(awaited, patience),
            What::Interrupt { ranks: stopped } => {
                self.desk.change(|gdbs| {
                    gdbs.iter_mut()
                        .filter(|(rank, _)| stopped.contains(**rank))
                        .for_each(|(_, gdb)| gdb.interrupt());
                });
                self.wait_until_standing(stopped, patience);
            }
        }
        // Ranks that have ended by now are reported as ended.
        self.contribute(&self.backend.ranks()?)
    }

    /// Gives the gdbs of these ranks a task. Ranks without a gdb get one first.
    fn tell(&mut self, ranks: &[LocalRank], told: &RankSet, give: impl Fn(&mut Gdb)) {
        self.refused.clear();
        for rank in ranks.iter().filter(|rank| told.contains(rank.rank)) {
            if rank.state.is_over() {
                let ended = Reply { error: Some("the rank has ended".to_owned()), ..Reply::default() };
                self.refused.insert(rank.rank, ended);
                continue;
            }
            let is_there =
                self.desk.change(|gdbs| gdbs.get(&rank.rank).is_some_and(|gdb| !gdb.dialogue.is_over()));
            if !is_there {
                self.end_one(rank.rank, Duration::ZERO);
                if let Err(why) = self.start(rank) {
                    self.refused.insert(rank.rank, why);
                    continue;
                }
            }
            self.desk.change_one(rank.rank, &give);
        }
    }

    fn start(&mut self, rank: &LocalRank) -> Result<(), Reply> {
        let host = self.backend.host();
        let program: PathBuf = program::find(&self.program, &self.path, host)?;
        let pid = rank.pid.get();
        let files = symbols::Files::find(pid, &self.backend.dirs().lib);
        let started =
            process::start(&program, rank.rank, pid, alone(rank), &files, &self.desk, &self.watcher);
        let process = started.map_err(|error| Reply {
            error: Some(format!("cannot start {} on {host}: {error}", program.display())),
            ..Reply::default()
        })?;
        self.processes.insert(rank.rank, process);
        Ok(())
    }

    /// Waits until these ranks have carried out their commands.
    fn wait(&self, awaited: &RankSet, patience: Duration) {
        self.desk.wait(patience, |gdbs| {
            gdbs.iter().all(|(rank, gdb)| !awaited.contains(*rank) || !gdb.dialogue.is_busy())
        });
    }

    /// Waits until none of these ranks runs.
    fn wait_until_standing(&self, awaited: &RankSet, patience: Duration) {
        self.desk.wait(patience, |gdbs| {
            gdbs.iter().all(|(rank, gdb)| !awaited.contains(*rank) || !gdb.dialogue.is_running())
        });
    }

    fn contribute(&self, ranks: &[LocalRank]) -> Result<(), Error> {
        let mut by_answer: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
        self.desk.change(|gdbs| {
            for rank in ranks {
                let mut answer = match gdbs.get(&rank.rank) {
                    Some(gdb) => gdb.dialogue.answer(),
                    None => Answer { state: alone(rank), reply: None },
                };
                // gdb knows best how the rank has ended; otherwise the agent does.
                if rank.state.is_over() && !matches!(answer.state, State::Ended(_)) {
                    answer.state = alone(rank);
                }
                if let Some(refused) = self.refused.get(&rank.rank) {
                    answer.reply = Some(refused.clone());
                }
                by_answer.entry(encode(&answer)).or_default().insert(rank.rank);
            }
        });
        let part = key_ranks::encode(&by_answer).map_err(Error::Answers)?;
        Ok(self.channel.contribute(tags::ANSWER, &part, HOUR)?)
    }

    fn give_words(&self, rank: Rank, from: u64) -> Result<(), Error> {
        let piece = self.desk.change(|gdbs| gdbs.get(&rank).map(|gdb| gdb.words.piece(from)));
        let ranks: RankSet = std::iter::once(rank).collect();
        let by_key = piece.map(|piece| (encode(&piece), ranks)).into_iter().collect();
        let part = key_ranks::encode(&by_key).map_err(Error::Answers)?;
        Ok(self.channel.contribute(tags::ANSWER, &part, HOUR)?)
    }

    fn name_lacks(&self, ranks: &[LocalRank], asked: &RankSet) -> Result<(), Error> {
        let mut by_lack: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
        for rank in ranks.iter().filter(|rank| asked.contains(rank.rank) && !rank.state.is_over()) {
            // A rank that has ended by now needs nothing.
            if let Some(lack) = symbols::find_lacks(rank.pid.get()) {
                by_lack.entry(encode(&lack)).or_default().insert(rank.rank);
            }
        }
        let part = key_ranks::encode(&by_lack).map_err(Error::Answers)?;
        Ok(self.channel.contribute(tags::ANSWER, &part, HOUR)?)
    }

    /// Ends a rank's gdb, if there is one.
    fn end_one(&mut self, rank: Rank, patience: Duration) {
        if let Some(process) = self.processes.remove(&rank) {
            self.desk.change_one(rank, |gdb| gdb.close());
            process.end(&self.desk, rank, patience);
        }
    }

    /// Releases all ranks.
    fn say_farewell(&mut self) {
        self.desk.change(|gdbs| {
            for gdb in gdbs.values_mut() {
                gdb.close();
                gdb.interrupt();
            }
        });
        for (rank, process) in std::mem::take(&mut self.processes) {
            process.end(&self.desk, rank, FAREWELL);
        }
    }
}

/// The state of a rank without a gdb.
fn alone(rank: &LocalRank) -> State {
    match rank.state {
        RankState::Held => State::Held,
        RankState::Exited(status) => State::Ended(status.to_string()),
        _ => State::Free,
    }
}
