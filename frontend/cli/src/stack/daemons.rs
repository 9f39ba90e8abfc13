//! Daemons on an app's nodes and requests to them. An app of this process has a channel; another tool's app is
//! reached through its control socket.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gantry_frontend::control::{Client, DaemonOrder, RemoteChannel};
use gantry_frontend::{AppHandle, DaemonRequest, Error, Policy, Session};
use gantry_guard::helpers::find_helper;
use gantry_shared::wire::channel::{CHANNEL_WINDOW_BYTES, MAX_MESSAGE_BYTES, cost_of};
use gantry_types::error::Kind;
use gantry_types::filter::{Filter, PrefixTree, key_ranks};
use gantry_types::id::DaemonId;
use gantry_types::rank_set::RankSet;
use gantry_wlm::host::Machine;

use crate::exit::Fault;

/// This part of a timeout is enough for nodes that work, where others may have to wait for one that does not.
const LATE: u32 = 4;

/// What to do about a node that gives no sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silent {
    /// There are no daemons at all without it.
    Fail,
    /// The others get theirs.
    LeaveOut,
}

/// Running daemons.
pub(crate) struct Daemons {
    link: Link,
    id: DaemonId,
    left_out: Missing,
    untaken: Untaken,
}

/// The cost of the messages that some node may not have taken yet. They occupy the window of all daemons.
#[derive(Debug, Default)]
struct Untaken(u32);

impl Untaken {
    /// Takes the fate of a message of that many bytes: all nodes have taken it, or a node is late. Returns whether it
    /// is on its way to that node.
    fn add(&mut self, bytes: usize, is_taken: bool, is_late: bool) -> bool {
        if is_taken {
            // Messages keep their order, so all nodes have taken the earlier ones.
            self.0 = 0;
            return false;
        }
        // What has no room in the window, or is no single message, goes to no node at all.
        let all = self.0.saturating_add(cost_of(bytes));
        let is_sent = is_late && bytes <= MAX_MESSAGE_BYTES && all <= CHANNEL_WINDOW_BYTES;
        if is_sent {
            self.0 = all;
        }
        is_sent
    }

    /// Whether there may soon be no room for another message.
    fn is_large(&self) -> bool {
        self.0 > CHANNEL_WINDOW_BYTES / 2
    }
}

enum Link {
    /// A session of this process.
    Own(Session),
    /// A session that the app's own tool keeps for us.
    Kept(RemoteChannel),
}

/// The daemons' answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) tree: PrefixTree,
    pub(crate) missing: Missing,
}

/// Nodes without an answer, and why.
pub(crate) type Missing = Vec<(String, String)>;

impl Daemons {
    /// Starts them in an app of ours: the helper of that name, with an argument.
    pub(crate) async fn start(
        app: &AppHandle,
        name: &str,
        argument: OsString,
        silent: Silent,
        timeout: Duration,
    ) -> Result<Self, Fault> {
        let session = match silent {
            Silent::Fail => app.session(timeout).await?,
            Silent::LeaveOut => app.session_where_answered(timeout).await?,
        };
        let left_out = without_life(session.left_out());
        let request = DaemonRequest::new(program(name)?).args([argument]);
        let id = session.manifest().exec_daemon(request, timeout).await?.id();
        Ok(Self { link: Link::Own(session), id, left_out, untaken: Untaken::default() })
    }

    /// The same in another tool's app.
    pub(crate) async fn start_in(
        client: Client,
        name: &str,
        argument: OsString,
        silent: Silent,
        timeout: Duration,
    ) -> Result<Self, Fault> {
        let order = DaemonOrder {
            program: program(name)?.into(),
            args: vec![argument.into()],
            leave_out: silent == Silent::LeaveOut,
            ..DaemonOrder::default()
        };
        let channel = client.channel(order, timeout).await?;
        let left_out = without_life(channel.left_out());
        Ok(Self { id: channel.daemon(), link: Link::Kept(channel), left_out, untaken: Untaken::default() })
    }

    /// Their number in the app.
    pub(crate) fn id(&self) -> DaemonId {
        self.id
    }

    /// The nodes that have none, because they gave no sign of life.
    pub(crate) fn left_out(&self) -> &Missing {
        &self.left_out
    }

    /// Whether a node has not taken so many messages that there may soon be no room for those of the others.
    pub(crate) fn have_backlog(&self) -> bool {
        self.untaken.is_large()
    }

    /// Puts files at paths below the `lib` of their session. False: another tool keeps the session, so it cannot.
    pub(crate) async fn send_files(
        &self,
        files: Vec<(PathBuf, PathBuf)>,
        timeout: Duration,
    ) -> Result<bool, Fault> {
        let Link::Own(session) = &self.link else { return Ok(false) };
        let mut manifest = session.manifest();
        files.iter().try_for_each(|(file, at)| manifest.add_lib_file(file, at))?;
        manifest.send(timeout).await?;
        Ok(true)
    }

    /// Sends all of them a message. A node that does not take it soon is no failure: it may take the message later. If
    /// it does not answer either, the next reduction reports it as missing.
    pub(crate) async fn tell(&mut self, tag: u32, message: &[u8], timeout: Duration) -> Result<(), Fault> {
        let timeout = timeout / LATE;
        let (told, is_late) = match &mut self.link {
            Link::Own(session) => {
                let told = session.channel().broadcast(tag, message, timeout).await.map(drop);
                let is_late = matches!(told, Err(Error::TimedOut { .. }));
                (told, is_late)
            }
            Link::Kept(channel) => {
                let told = channel.broadcast(tag, message, timeout).await;
                // The tool itself is not late: it reports that a node is.
                let is_late =
                    matches!(&told, Err(Error::Node { failure, .. }) if failure.kind() == Kind::TimedOut);
                (told, is_late)
            }
        };
        if self.untaken.add(message.len(), told.is_ok(), is_late) {
            return Ok(());
        }
        Ok(told?)
    }

    /// Gets one tree, merged from all daemons. A tree without the ranks of a lost node is better than none.
    pub(crate) async fn ask(&mut self, tag: u32, timeout: Duration) -> Result<Answer, Fault> {
        let (bytes, missing) = self.reduce(tag, Filter::PrefixTree, timeout).await?;
        Ok(Answer { tree: PrefixTree::decode(&bytes).map_err(Fault)?, missing })
    }

    /// Gets from all daemons the ranks that share a text. Texts that do not parse are left out.
    pub(crate) async fn ask_by<K>(
        &mut self,
        tag: u32,
        parse: impl Fn(&str) -> Option<K>,
        timeout: Duration,
    ) -> Result<(Vec<(K, RankSet)>, Missing), Fault> {
        self.ask_by_bytes(tag, |key| parse(str::from_utf8(key).ok()?), timeout).await
    }

    /// The same, by bytes.
    pub(crate) async fn ask_by_bytes<K>(
        &mut self,
        tag: u32,
        parse: impl Fn(&[u8]) -> Option<K>,
        timeout: Duration,
    ) -> Result<(Vec<(K, RankSet)>, Missing), Fault> {
        let (bytes, missing) = self.reduce(tag, Filter::KeyRanks, timeout).await?;
        let by_key = key_ranks::decode(&bytes).map_err(Fault)?;
        let parsed = by_key.into_iter().filter_map(|(key, ranks)| Some((parse(&key)?, ranks)));
        Ok((parsed.collect(), missing))
    }

    async fn reduce(
        &mut self,
        tag: u32,
        filter: Filter,
        timeout: Duration,
    ) -> Result<(Vec<u8>, Missing), Fault> {
        let reduced = match &mut self.link {
            Link::Own(session) => session.channel().reduce(tag, filter, Policy::BestEffort, timeout).await?,
            Link::Kept(channel) => channel.reduce(tag, filter, timeout).await?,
        };
        let missing = reduced.missing.into_iter().map(|missing| (missing.host, missing.why.to_string()));
        Ok((reduced.bytes, missing.collect()))
    }
}

/// The timeout for an answer. Nodes that were missing in the one before are not waited for as long again.
pub(crate) fn timeout_after(timeout: Duration, were_missing: bool) -> Duration {
    if were_missing { timeout / LATE } else { timeout }
}

/// Adds nodes that have read the ranks, but have not answered a question about names.
pub(crate) fn add_nameless(missing: &mut Missing, nodes: Missing) {
    for (host, why) in nodes {
        if missing.iter().all(|(known, _)| *known != host) {
            missing.push((host, format!("{why}; names of functions may be missing")));
        }
    }
}

fn without_life(hosts: &[String]) -> Missing {
    hosts.iter().map(|host| (host.clone(), "it gives no sign of life".to_owned())).collect()
}

fn program(name: &str) -> Result<PathBuf, Fault> {
    find_helper(name, &Machine).map_err(Fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_room_is_on_its_way_to_no_node() {
        let (mut untaken, bytes) = (Untaken::default(), MAX_MESSAGE_BYTES);
        let room = CHANNEL_WINDOW_BYTES / cost_of(bytes);
        assert!((0..room).all(|_| untaken.add(bytes, false, true)));
        // None of them is taken meanwhile.
        assert!((0..3).all(|_| !untaken.add(bytes, false, true)));
        assert!(!untaken.add(1, true, false) && untaken.add(bytes, false, true));
        assert!(!untaken.add(MAX_MESSAGE_BYTES + 1, false, true), "it is no single message");
        assert!(!untaken.add(1, false, false), "another failure");
    }

    #[test]
    fn messages_that_a_node_does_not_take_are_many_before_there_is_no_room() {
        let (mut untaken, bytes) = (Untaken::default(), 100);
        let looks =
            (0..10_000).take_while(|_| untaken.add(bytes, false, true) && !untaken.is_large()).count();
        assert!(
            looks > 100 && untaken.is_large() && untaken.add(MAX_MESSAGE_BYTES / 2, false, true),
            "{looks}"
        );
        untaken.add(bytes, true, false);
        assert!(!untaken.is_large());
    }

    #[test]
    fn a_node_without_an_answer_is_named_once() {
        let node = |host: &str, why: &str| (host.to_owned(), why.to_owned());
        let mut missing = vec![node("n1", "lost")];
        add_nameless(&mut missing, vec![node("n1", "late"), node("n2", "late"), node("n2", "late")]);
        assert_eq!(missing, [node("n1", "lost"), node("n2", "late; names of functions may be missing")]);
    }
}
