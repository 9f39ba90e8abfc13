//! Daemons on an app's nodes and requests to them. An app of this process has a channel; another tool's app is
//! reached through its control socket.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gantry_frontend::control::{Client, DaemonOrder, RemoteChannel};
use gantry_frontend::{App, DaemonRequest, Policy, Session};
use gantry_guard::helpers::find_helper;
use gantry_stack::tags;
use gantry_types::filter::{Filter, PrefixTree, key_ranks};
use gantry_types::id::DaemonId;
use gantry_types::rank_set::RankSet;
use gantry_wlm::host::Machine;

use crate::exit::Fault;

/// Running daemons.
pub(crate) struct Daemons {
    link: Link,
    id: DaemonId,
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
        app: &App,
        name: &str,
        argument: OsString,
        timeout: Duration,
    ) -> Result<Self, Fault> {
        let session = app.session(timeout).await?;
        let request = DaemonRequest::new(program(name)?).args([argument]);
        let id = session.manifest().exec_daemon(request, timeout).await?.id();
        Ok(Self { link: Link::Own(session), id })
    }

    /// The same in another tool's app.
    pub(crate) async fn start_in(
        client: Client,
        name: &str,
        argument: OsString,
        timeout: Duration,
    ) -> Result<Self, Fault> {
        let order = DaemonOrder {
            program: program(name)?.into(),
            args: vec![argument.into()],
            ..DaemonOrder::default()
        };
        let channel = client.channel(order, timeout).await?;
        Ok(Self { id: channel.daemon(), link: Link::Kept(channel) })
    }

    /// Their number in the app.
    pub(crate) fn id(&self) -> DaemonId {
        self.id
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

    /// Sends all of them a message.
    pub(crate) async fn tell(&mut self, tag: u32, message: &[u8], timeout: Duration) -> Result<(), Fault> {
        match &mut self.link {
            // A node that does not get the message does not answer either; it is then reported as missing.
            Link::Own(session) => drop(session.channel().broadcast(tag, message, timeout).await?),
            Link::Kept(channel) => channel.broadcast(tag, message, timeout).await?,
        }
        Ok(())
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

    /// The call paths that were ordered, and the files in them.
    pub(crate) async fn stacks(&mut self, timeout: Duration) -> Result<(Answer, PrefixTree), Fault> {
        let stacks = self.ask(tags::STACKS, timeout).await?;
        let modules = self.ask(tags::MODULES, timeout).await?;
        Ok((stacks, modules.tree))
    }
}

fn program(name: &str) -> Result<PathBuf, Fault> {
    find_helper(name, &Machine).map_err(Fault)
}
