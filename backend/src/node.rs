//! A daemon's view of its node: connects once, then sends requests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_shared::storage::{GANTRY_BACKEND_SOCKET, GANTRY_DAEMON, GANTRY_DAEMON_TOKEN, GANTRY_SESSION};
use gantry_shared::wire::backend::{Ask, NodeFacts, Tell, VERSION};
use gantry_shared::wire::channel::Member;
use gantry_types::id::{AppId, DaemonId, NodeId, Rank, SessionId};
use gantry_types::placement::LocalRank;

use crate::Error;
use crate::channel::Channel;
use crate::link::Link;

/// Timeout of [`Backend::connect`], and of every request after it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The address of a daemon's agent, and the daemon's identity there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The agent's socket.
    pub socket: PathBuf,
    /// The session that the daemon belongs to.
    pub session: SessionId,
    /// The order that started the daemon.
    pub daemon: DaemonId,
    /// The token that the daemon was given (`GANTRY_DAEMON_TOKEN`).
    pub token: String,
}

impl Address {
    /// Connects, and says hello.
    fn connect(&self, timeout: Duration) -> Result<(Link, NodeFacts), Error> {
        let Self { ref socket, session, daemon, ref token } = *self;
        let link = Link::connect(socket, timeout)?;
        let hello = Ask::Hello { version: VERSION, session, daemon, token: token.clone() };
        match link.exchange(&hello, "say hello to this node's agent", timeout)? {
            Tell::Node(facts) => Ok((link, facts)),
            _ => Err(Error::Unusable { reason: "the answer does not match the question" }),
        }
    }

    /// The address in the environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment is how a daemon gets its address; this is the only place that reads it"
    )]
    fn from_environment() -> Result<Self, Error> {
        parse_address(&|name| std::env::var_os(name))
    }
}

fn parse_address(env: &dyn Fn(&str) -> Option<OsString>) -> Result<Address, Error> {
    let socket = env(GANTRY_BACKEND_SOCKET)
        .filter(|value| !value.is_empty())
        .ok_or(Error::NotStartedByGantry { variable: GANTRY_BACKEND_SOCKET })?;
    // The socket is set and these are not: gantry has started the process, and a program has changed them since.
    let number = |variable| {
        let value = env(variable).unwrap_or_default();
        let parsed = value.to_str().and_then(|text| text.parse().ok());
        parsed.ok_or(Error::BadEnvironment { variable, value })
    };
    Ok(Address {
        socket: socket.into(),
        session: SessionId(number(GANTRY_SESSION)?),
        daemon: DaemonId(number(GANTRY_DAEMON)?),
        token: env(GANTRY_DAEMON_TOKEN).and_then(|token| token.into_string().ok()).unwrap_or_default(),
    })
}

/// A tool daemon's connection to its node's agent.
///
/// It learns constant facts when it connects, and requests ranks anew each time. Dropping it just closes the
/// connection.
#[derive(Debug)]
pub struct Backend {
    address: Address,
    facts: NodeFacts,
    timeout: Duration,
    /// Empty after an error: the next message might be the answer to an earlier request.
    link: Mutex<Option<Link>>,
}

impl Backend {
    /// Connects to the agent that started this process. Waits for at most [`DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    /// [`Error::NotStartedByGantry`] if the environment names no agent, and all errors of [`Backend::connect_to`].
    pub fn connect() -> Result<Self, Error> {
        Self::connect_to(&Address::from_environment()?, DEFAULT_TIMEOUT)
    }

    /// Connects to the agent at a known address. Waits for at most `timeout`, and so does every request after it.
    ///
    /// # Errors
    /// No agent listens there, or it belongs to another user. Or it does not know this session and daemon, or does not
    /// answer in time.
    pub fn connect_to(address: &Address, timeout: Duration) -> Result<Self, Error> {
        let (link, facts) = address.connect(timeout)?;
        Ok(Self { address: address.clone(), facts, timeout, link: Mutex::new(Some(link)) })
    }

    /// Opens this daemon's end of the channel to its tool, on a separate connection.
    ///
    /// Call it once, and keep the channel as long as the daemon sends or receives messages.
    ///
    /// # Errors
    /// As [`Backend::connect_to`]; [`Error::Refused`] when this daemon has opened it before.
    pub fn channel(&self) -> Result<Channel, Error> {
        let (link, _) = self.address.connect(self.timeout)?;
        let member = Member { node: self.facts.node, daemon: self.address.daemon };
        Channel::open(link, member, self.timeout)
    }

    /// The workload manager's name, as the frontend's events give it.
    #[must_use]
    pub fn wlm(&self) -> &str {
        &self.facts.wlm
    }

    /// The app.
    #[must_use]
    pub fn app(&self) -> AppId {
        self.facts.app
    }

    /// This node's name as the WLM knows it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.facts.host
    }

    /// This node's number among those of the app, from 0.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.facts.node
    }

    /// How many nodes the app has.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        self.facts.nodes
    }

    /// How many ranks the app has, on all nodes together.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        self.facts.size
    }

    /// The ranks of this node as they are now, with those that have ended, in the order of their numbers. Waits for the
    /// agent's answer.
    ///
    /// # Errors
    /// [`Error::Lost`] when the agent has ended, [`Error::TimedOut`] when it does not answer. After an error the
    /// connection cannot be used any more: connect again.
    pub fn ranks(&self) -> Result<Vec<LocalRank>, Error> {
        match self.ask(&Ask::Ranks, "ask for this node's ranks")? {
            Tell::Ranks(mut ranks) => {
                ranks.sort_by_key(|rank| rank.rank);
                Ok(ranks)
            }
            _ => Err(Error::Unusable { reason: "the answer does not match the question" }),
        }
    }

    /// Number of ranks of this node, with those that have ended. Waits as [`Backend::ranks`].
    ///
    /// # Errors
    /// As [`Backend::ranks`].
    pub fn local_rank_count(&self) -> Result<usize, Error> {
        Ok(self.ranks()?.len())
    }

    /// The lowest rank of this node, `None` if it has none. Waits as [`Backend::ranks`].
    ///
    /// # Errors
    /// As [`Backend::ranks`].
    pub fn first_rank(&self) -> Result<Option<Rank>, Error> {
        Ok(self.ranks()?.first().map(|first| first.rank))
    }

    pub(crate) fn facts(&self) -> &NodeFacts {
        &self.facts
    }

    fn ask(&self, ask: &Ask, phase: &'static str) -> Result<Tell, Error> {
        let mut slot = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out first: only a valid answer puts it back.
        let link = slot.take().ok_or(Error::Unusable { reason: "the connection failed before" })?;
        let answer = link.exchange(ask, phase, self.timeout)?;
        *slot = Some(link);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
