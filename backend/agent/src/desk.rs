//! The desk: where ranks that a launcher has started check in with their node's agent, and how the agent holds them.
//!
//! All ranks of a node check in, or none. The first one that fails ends the others, and the frontend gets that failure.
//! No rank goes on before all have checked in. So a launcher that starts only some of them leaves nothing running.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Duration;

use gantry_shared::wire::frame::{self, FrameBuffer, MAX_BUFFERED_BYTES};
use gantry_shared::wire::hold::{CheckIn, FromDesk, MAX_LOCAL_RANKS, ToDesk};
use gantry_shared::wire::message::Brought;
use gantry_shared::wire::message::RankReport;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{Pid, Rank};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout_at};

use crate::failure;
use crate::framed::{Framed, Limits};
use crate::process::follow::{Follower, Pattern};
use crate::process::thread::{RanksThread, Seized};
use crate::ranks::{self, Ranks};

/// How long the ranks of a node may take to check in, from the first one on, and then to execute their programs.
const DEADLINE: Duration = Duration::from_secs(60);

/// How often the agent checks that waiting ranks are still there.
///
/// A launcher that fails kills its ranks, and the agent has no other way to learn of it.
const LOOK: Duration = Duration::from_millis(100);

/// Frames bound the messages of ranks.
const WORDS: Limits = Limits { read: 1024, pending: MAX_BUFFERED_BYTES, exceeded: "" };

/// How long a process that connects may take to say what it wants.
const COLLECTOR_DEADLINE: Duration = Duration::from_secs(2);

/// Whether and where ranks are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Only until this agent has its place.
    No,
    /// At the first instruction of the program that the launcher starts.
    Yes,
    /// At the first instruction of the first matching program, among the started one and its descendants.
    At(Pattern),
}

/// Ranks that wait for permission to go on, and are traced.
enum Traced {
    Seized(Seized),
    Followed(Follower),
}

/// The ranks of a node, held or running, and the report about them.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The agent manages them from here on.
    pub(crate) ranks: Ranks,
    /// For the frontend.
    pub(crate) brought: Brought,
}

/// A rank that has checked in and waits.
#[derive(Debug)]
struct Waiting {
    rank: Rank,
    pid: i32,
    said: Framed<UnixStream>,
}

/// Accepts the processes that a launcher starts after a rank's end. They wait for this agent's end. Never ends.
///
/// `take` gets the socket on which each one waits.
pub(crate) async fn receive_collectors(listener: UnixListener, mut take: impl FnMut(UnixStream)) {
    loop {
        let (stream, _) = failure::accept(|| listener.accept()).await;
        let deadline = Instant::now() + COLLECTOR_DEADLINE;
        if let Some((it, ToDesk::RankEnded)) = meet(stream, deadline).await {
            take(it.said.stream);
        }
    }
}

/// Waits for all ranks of this node, and lets them execute their programs. Takes 2 minutes at most.
///
/// If the system allows it, the agent also holds ranks that are not to be held, until it has its place. Otherwise a
/// rank that ends at once would be gone before the frontend knew of it.
///
/// Never fails itself. A failure goes into the report for the frontend, and to the ranks, which then end.
pub(crate) async fn receive_ranks(listener: &UnixListener, hold: Hold, thread: &RanksThread) -> Entered {
    let mut waiting = Vec::new();
    let mut size = 0;
    let entered = async {
        gather(listener, &mut waiting, &mut size, Instant::now() + DEADLINE).await?;
        enter(&mut waiting, &hold, thread, Instant::now() + DEADLINE).await
    };
    let (ranks, told) = match entered.await {
        Ok((ranks, reports)) => (ranks, Ok(reports)),
        Err(failure) => {
            for it in &mut waiting {
                drop(it.say(&FromDesk::Refused(failure.clone())).await);
            }
            (Ranks::default(), Err(failure))
        }
    };
    Entered { ranks, brought: Brought { size, ranks: told } }
}

/// Waits until all ranks of the node have checked in. Their launcher says how many there are.
async fn gather(
    listener: &UnixListener,
    waiting: &mut Vec<Waiting>,
    size: &mut u32,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut expected = None;
    let mut look = interval(LOOK);
    // A process that sends nothing must not delay the ranks behind it.
    let mut greeted: JoinSet<Option<(Waiting, CheckIn)>> = JoinSet::new();
    while expected != Some(waiting.len()) {
        tokio::select! {
            biased;
            Some(met) = greeted.join_next() => {
                // Ignores a process of another user, and one that sends nothing.
                let Ok(Some((it, check_in))) = met else { continue };
                if waiting.is_empty() {
                    *size = check_in.size;
                    expected = usize::try_from(check_in.local_size).ok();
                }
                check(&check_in, waiting, *size, expected)?;
                waiting.push(it);
            }
            accepted = timeout_at(deadline, listener.accept()) => {
                let (stream, _) = accepted
                    .map_err(|_| late(waiting, expected))?
                    .map_err(|error| failure::from_io("accept a rank", &error))?;
                greeted.spawn(greet(stream, deadline));
            }
            _ = look.tick() => waiting.iter().try_for_each(Waiting::still_waits)?,
        }
    }
    waiting.sort_by_key(|it| it.rank);
    Ok(())
}

fn late(waiting: &[Waiting], expected: Option<usize>) -> Failure {
    let (have, all) = (waiting.len(), expected.unwrap_or(0));
    let message =
        format!("only {have} of {all} ranks of this node checked in within {} s", DEADLINE.as_secs());
    Failure::new(Kind::TimedOut, message)
}

/// Whether a rank's data fits the data of the others.
fn check(check_in: &CheckIn, waiting: &[Waiting], size: u32, expected: Option<usize>) -> Result<(), Failure> {
    let CheckIn { rank, local_size, .. } = *check_in;
    let fits = check_in.size == size
        && usize::try_from(local_size).ok() == expected
        && (1..=MAX_LOCAL_RANKS.min(size)).contains(&local_size)
        && rank.0 < size
        && waiting.iter().all(|it| it.rank != rank);
    if fits {
        return Ok(());
    }
    let message = format!(
        "the launcher told this rank that it is rank {rank} of {}, with {local_size} on this node, and told other ranks something else",
        check_in.size
    );
    Err(Failure::new(Kind::Protocol, message)
        .with_hint("start one launcher per command: two in one command cannot be told apart"))
}

async fn greet(stream: UnixStream, deadline: Instant) -> Option<(Waiting, CheckIn)> {
    match meet(stream, deadline).await? {
        (mut it, ToDesk::CheckIn(check_in)) => {
            it.rank = check_in.rank;
            Some((it, check_in))
        }
        // It is no rank.
        _ => None,
    }
}

/// Reads the first message of a process. None: it belongs to another user, or sends nothing.
async fn meet(stream: UnixStream, deadline: Instant) -> Option<(Waiting, ToDesk)> {
    let peer = getsockopt(&stream.as_fd(), PeerCredentials).ok()?;
    if peer.uid() != geteuid().as_raw() {
        return None;
    }
    let mut it =
        Waiting { rank: Rank(0), pid: peer.pid(), said: Framed::new(stream, FrameBuffer::new(), WORDS) };
    match timeout_at(deadline, it.said.next()).await {
        Ok(Ok(Some(said))) => Some((it, said)),
        Ok(Ok(None) | Err(_)) | Err(_) => None,
    }
}

/// Lets all ranks execute their programs, held or not.
async fn enter(
    waiting: &mut [Waiting],
    hold: &Hold,
    thread: &RanksThread,
    deadline: Instant,
) -> Result<(Ranks, Vec<RankReport>), Failure> {
    let pids: Vec<i32> = waiting.iter().map(|it| it.pid).collect();
    prepare(waiting, deadline).await?;
    let traced = match hold {
        Hold::At(pattern) => Follower::start(pids, pattern.clone()).await.map(Traced::Followed),
        Hold::Yes | Hold::No => thread.seize(pids).await.map(Traced::Seized),
    };
    let traced = match traced {
        Ok(traced) => Some(traced),
        Err(failure) if *hold == Hold::No && failure.error.is_refused() => None,
        Err(failure) => return Err(failure.into()),
    };
    for it in waiting.iter_mut() {
        it.say(&FromDesk::Go).await?;
    }
    // A rank's own report comes before the result of the hold.
    let held = async {
        match traced {
            Some(Traced::Seized(batch)) => batch.hold(deadline).await.map(|proofs| (None, proofs)),
            Some(Traced::Followed(follower)) => follower.hold(deadline).await.map(|held| {
                let (pids, proofs) = held.into_iter().unzip();
                (Some(pids), proofs)
            }),
            None => Ok((None, Vec::new())),
        }
    };
    let (started, held) = tokio::join!(all_started(waiting, deadline), held);
    started?;
    let (found, proofs): (Option<Vec<i32>>, _) = held?;
    let pids = found.unwrap_or_else(|| waiting.iter().map(|it| it.pid).collect());
    let pairs: Vec<(Rank, Pid)> = waiting
        .iter()
        .zip(pids)
        .map(|(it, pid)| Ok((it.rank, ranks::to_pid(pid)?)))
        .collect::<Result<_, Failure>>()?;
    let mut ranks = Ranks::default();
    let mut reports = ranks.entered(&pairs, &proofs)?;
    if *hold == Hold::No {
        reports.iter_mut().for_each(|report| report.held = None);
    }
    Ok((ranks, reports))
}

/// Has every rank allow this agent to trace it.
async fn prepare(waiting: &mut [Waiting], deadline: Instant) -> Result<(), Failure> {
    let agent = i32::try_from(std::process::id()).ok().and_then(Pid::new);
    let agent = agent.ok_or_else(|| Failure::new(Kind::Protocol, "this agent has no pid"))?;
    for it in waiting.iter_mut() {
        it.say(&FromDesk::Prepare { agent }).await?;
    }
    for it in waiting.iter_mut() {
        match timeout_at(deadline, it.said.next()).await {
            Ok(Ok(Some(ToDesk::Ready))) => {}
            said => return Err(it.gone(&format!("{said:?}"))),
        }
    }
    Ok(())
}

/// Waits until every rank executes its program. Then its end of the socket closes without a message.
async fn all_started(waiting: &mut [Waiting], deadline: Instant) -> Result<(), Failure> {
    for it in waiting.iter_mut() {
        match timeout_at(deadline, it.said.next()).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(ToDesk::NotStarted(failure)))) => return Err(failure),
            Ok(said) => return Err(it.gone(&format!("{said:?}"))),
            Err(_late) => {
                let message =
                    format!("rank {} has not become its program within {} s", it.rank, DEADLINE.as_secs());
                return Err(Failure::new(Kind::TimedOut, message));
            }
        }
    }
    Ok(())
}

impl Waiting {
    /// Whether the rank is there and silent, as it must be after it has checked in.
    fn still_waits(&self) -> Result<(), Failure> {
        match self.said.stream.try_read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(self.gone(&error.to_string())),
            Ok(0) => Err(self.gone("other ranks of this node had not checked in yet")),
            Ok(_) => Err(self.gone("it sent a message out of order")),
        }
    }

    async fn say(&mut self, message: &FromDesk) -> Result<(), Failure> {
        let bytes =
            frame::encode(message).map_err(|error| Failure::new(Kind::Protocol, error.to_string()))?;
        self.said.stream.write_all(&bytes).await.map_err(|error| self.gone(&error.to_string()))
    }

    fn gone(&self, what: &str) -> Failure {
        Failure::new(
            Kind::Lost,
            format!("rank {} (process {}) ended before it was its program: {what}", self.rank, self.pid),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::testing::{rerun_alone, without_descriptors};

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_process_that_sends_nothing_delays_no_rank() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("desk");
        let listener = UnixListener::bind(&path).unwrap();
        let silent = UnixStream::connect(&path).await.unwrap();
        let mut rank = UnixStream::connect(&path).await.unwrap();
        let check_in = CheckIn { rank: Rank(0), size: 1, local_size: 1 };
        rank.write_all(&frame::encode(&ToDesk::CheckIn(check_in)).unwrap()).await.unwrap();
        let (mut waiting, mut size) = (Vec::new(), 0);
        let gathered = gather(&listener, &mut waiting, &mut size, Instant::now() + 100 * SOON);
        tokio::time::timeout(SOON, gathered).await.unwrap().unwrap();
        assert_eq!((waiting.len(), size), (1, 1));
        drop(silent);
    }

    /// Once, no collector was received from then on.
    #[test]
    fn a_collector_is_received_after_descriptors_were_short() {
        if rerun_alone("desk::tests::a_collector_is_received_after_descriptors_were_short") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("desk");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (take, taken) = std::sync::mpsc::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                ready.send(()).unwrap();
                let received = receive_collectors(listener, |collector| take.send(collector).unwrap());
                drop(tokio::time::timeout(2 * SOON, received).await);
            });
        });
        is_ready.recv().unwrap();
        let mut stream = without_descriptors(|| std::os::unix::net::UnixStream::connect(&path).unwrap());
        stream.write_all(&frame::encode(&ToDesk::RankEnded).unwrap()).unwrap();
        drop(taken.recv_timeout(SOON).unwrap());
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is let go");
    }
}
