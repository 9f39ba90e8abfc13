//! Attaches to running launchers: the named launcher, on this machine or on another one, reports where its ranks are,
//! and agents follow there by ssh.
//!
//! On another machine, gantry's agent reads the launcher's table. The agent is sent as for a launch, and ends after its
//! report. A launcher without a table may have proxies: then the agent runs on each of their hosts. A host's own name
//! may differ from the user's name for it. ssh reaches it by the user's name. So ranks on the launcher's machine are
//! placed on the host that the user named.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_link::greeting::build_mark;
use gantry_types::error::{Failure, Kind};
use gantry_types::host_name::HostName;
use gantry_types::id::{AppId, Pid};
use gantry_types::launch::HostsPolicy;
use gantry_types::placement::{Placement, PlacementBuilder};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::agent_file::AgentFile;
use super::client::find_client;
use super::command::{Reaching, parse_login};
use super::fan_out::{FanOut, reach_one};
use crate::beneath::{Beneath, check_complete};
use crate::host::Host;
use crate::launch::Reports;
use crate::launcher::proxies::{Proxies, find_below};
use crate::mpir::{Heard, Telling, find_ranks};
use crate::{Error, JobRef, Result};

/// How long a host may take to report about a launcher, once an agent is there.
const TELLING_DEADLINE: Duration = Duration::from_secs(30);

/// The size of one read.
const PIECE_BYTES: usize = 64 * 1024;

/// How a launcher is written.
const FORM: &str = "write ssh:HOST:PID or ssh:USER@HOST:PID for a launcher that runs on a host, ssh:PID for one of this machine";

/// A launcher as the user names it: `HOST:PID`, `USER@HOST:PID`, or `PID` on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The login name on all hosts, if given.
    pub(super) login: Option<String>,
    /// The launcher's host. `None`: this machine.
    pub(super) host: Option<HostName>,
    pid: Pid,
}

impl Named {
    /// # Errors
    /// The text has another form.
    pub(super) fn parse(job: &JobRef) -> Result<Self> {
        let text = job.0.as_str();
        let wrong = || Error::invalid_with(format!("'{text}' names no launcher"), FORM);
        let (place, pid) = text.rsplit_once(':').map_or((None, text), |(place, pid)| (Some(place), pid));
        let pid = pid.parse().ok().and_then(Pid::new).ok_or_else(wrong)?;
        let Some(place) = place else { return Ok(Self { login: None, host: None, pid }) };
        let (login, host) = place.rsplit_once('@').map_or((None, place), |(login, host)| (Some(login), host));
        // An IPv6 address may be in brackets, as in a URL.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = HostName::new(host).map_err(|error| Error::invalid_with(error.to_string(), FORM))?;
        let login = login.map(|login| parse_login(OsStr::new(login))).transpose()?;
        Ok(Self { login, host: Some(host), pid })
    }

    /// How to reach its hosts, according to the options.
    ///
    /// # Errors
    /// The options name another user than the target.
    pub(super) fn reaching(&self, wlm_data: &[String]) -> Result<Reaching> {
        let reaching = Reaching::from_words(wlm_data);
        match (&self.login, &reaching.login) {
            (Some(one), Some(other)) if one != other => {
                let message = format!("the login names '{one}' and '{other}' are both given");
                Err(Error::invalid_with(message, "leave out one of them"))
            }
            (Some(_), _) => Ok(Reaching { login: self.login.clone(), ..reaching }),
            (None, _) => Ok(reaching),
        }
    }
}

/// Finds the ranks of a launcher. `agent` is the agent's path on this machine.
///
/// # Errors
/// A host cannot be reached; the errors of [`find_ranks`] there.
pub(super) async fn find(
    job: &JobRef,
    wlm_data: &[String],
    agent: &Path,
    host: &dyn Host,
) -> Result<Placement> {
    let named = Named::parse(job)?;
    let reaching = named.reaching(wlm_data)?;
    let heard = match &named.host {
        None => find_ranks(named.pid, agent, host)?,
        Some(there) => {
            let errand = ["ranks".to_owned(), named.pid.to_string()];
            ask(&prepare(errand, reaching.clone(), agent, host)?, there).await?
        }
    };
    match heard {
        Heard::Ranks(placement, own) => {
            let name = named.host.as_ref().map_or(own.as_str(), HostName::as_str);
            Ok(rename_own(&placement, &own, name))
        }
        Heard::Proxies(proxies, own) => {
            proxies.check()?;
            let beside = named.host.map_or_else(|| Beside::Here(own), Beside::There);
            let errand = ["below".to_owned(), proxies.port.clone()];
            let common = prepare(errand, reaching, agent, host)?;
            gather(proxies, &beside, common, host).await
        }
        Heard::Below(_) => Err(strange()),
    }
}

/// The launcher's own machine.
enum Beside {
    /// This machine, by its own name.
    Here(String),
    /// A host, as the user named it.
    There(HostName),
}

/// Asks every host with a proxy of the launcher for its ranks, and merges them.
async fn gather(proxies: Proxies, beside: &Beside, common: FanOut, host: &dyn Host) -> Result<Placement> {
    let common = Arc::new(common);
    let window = Arc::new(Semaphore::new(common.reaching.window as usize));
    let mut asking = JoinSet::new();
    let mut found: Vec<(String, Beneath)> = Vec::new();
    for there in &proxies.hosts {
        let there = match (there, beside) {
            (Some(name), _) => HostName::new(name).map_err(|error| Error::invalid(error.to_string()))?,
            (None, Beside::There(named)) => named.clone(),
            (None, Beside::Here(own)) => {
                found.extend(find_below(&proxies.port, host)?.into_iter().map(|it| (own.clone(), it)));
                continue;
            }
        };
        let (common, window) = (Arc::clone(&common), Arc::clone(&window));
        asking.spawn(async move {
            // The semaphore is never closed.
            let _turn = window.acquire().await;
            (ask(&common, &there).await, there)
        });
    }
    while let Some(asked) = asking.join_next().await {
        let (heard, there) = asked.map_err(|_panicked| strange())?;
        let Heard::Below(ranks) = heard? else { return Err(strange()) };
        found.extend(ranks.into_iter().map(|it| (there.to_string(), it)));
    }
    put_together(found)
}

/// The ranks of all hosts, in order.
fn put_together(mut found: Vec<(String, Beneath)>) -> Result<Placement> {
    found.sort_by_key(|(_, it)| it.rank);
    let told: Vec<(u32, Option<u32>)> = found.iter().map(|(_, it)| (it.rank, it.size)).collect();
    check_complete(&told).map_err(|why| {
        Error::not_yet(
            format!("the processes below the launcher's proxies {why}"),
            "wait for them with --wait; ranks that have ended do not come back",
            false,
        )
    })?;
    let mut placement = PlacementBuilder::with_capacity(found.len());
    for (host, it) in &found {
        placement.push(host, Some(it.pid), &it.exe).map_err(|error| Error::invalid(error.to_string()))?;
    }
    Ok(placement.build())
}

fn strange() -> Error {
    Error::Failed(Failure::new(Kind::Protocol, "the agent on the launcher's host reports something else"))
}

/// The shared settings of all hosts on which an agent reports.
fn prepare(errand: [String; 2], reaching: Reaching, agent: &Path, host: &dyn Host) -> Result<FanOut> {
    let client = find_client(host, agent)?;
    tracing::info!("hosts are reached by {client}");
    let app = AppId::random().map_err(|error| Error::invalid(format!("cannot make an id: {error}")))?;
    Ok(FanOut {
        mark: build_mark(app),
        client: Arc::new(client),
        reaching,
        agent: AgentFile::look(agent.to_owned(), host)?,
        errand: errand.into(),
        until: None,
        policy: HostsPolicy::All,
        watch: Reports::default(),
        links: Reports::default(),
    })
}

/// Runs an agent with the errand on that host.
async fn ask(common: &FanOut, there: &HostName) -> Result<Heard> {
    let reached = reach_one(common, there).await;
    let mut connection = reached.map_err(|failure| on_host(there, Error::Failed(failure)))?;
    let until = Instant::now() + TELLING_DEADLINE;
    let mut telling = Telling::default();
    let mut bytes = std::mem::take(&mut connection.unread);
    loop {
        if let Some(told) = telling.take(&bytes).map_err(|error| on_host(there, error))? {
            return Ok(told);
        }
        bytes.resize(PIECE_BYTES, 0);
        match timeout_at(until, connection.stream.read(&mut bytes)).await {
            Err(_late) => {
                let after = TELLING_DEADLINE.as_secs();
                let message = format!("it did not report the hosts of the launcher's ranks within {after} s");
                return Err(on_host(there, Error::Failed(Failure::new(Kind::TimedOut, message))));
            }
            Ok(Ok(0) | Err(_)) => {
                let words = timeout_at(until, connection.all_said()).await;
                let words = words.map(|words| words.last_lines()).unwrap_or_default();
                let message =
                    format!("it ended without reporting the hosts of the launcher's ranks: {words}");
                return Err(on_host(there, Error::Failed(Failure::new(Kind::Lost, message))));
            }
            Ok(Ok(read)) => bytes.truncate(read),
        }
    }
}

/// Adds the host to an error.
fn on_host(host: &str, error: Error) -> Error {
    match error {
        Error::Failed(failure) => failure.at(host).into(),
        Error::NotYet { failure, queued } => Error::NotYet { failure: failure.at(host), queued },
        other => other,
    }
}

/// Moves the ranks on the launcher's machine, which calls itself `own`, to the host `named`.
fn rename_own(placement: &Placement, own: &str, named: &str) -> Placement {
    let mut renamed = PlacementBuilder::with_capacity(placement.rank_count() as usize);
    for place in placement.iter() {
        let host = if is_own(place.host, own) { named } else { place.host };
        // The placement has the same size as before.
        drop(renamed.push(host, place.pid, place.exe));
    }
    renamed.build()
}

/// Whether a launcher on the machine `own` means that machine by `host`.
fn is_own(host: &str, own: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    // Two names are the same machine if at least one lacks its domain. Two different domains are two machines.
    let one_is_short = !host.contains('.') || !own.contains('.');
    host == own
        || ["localhost", "127.0.0.1", "::1"].contains(&host)
        || (one_is_short && first(host) == first(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_named_by_host_and_pid() {
        let check = |text: &str, login: Option<&str>, host: Option<&str>| {
            let named = Named::parse(&JobRef(text.to_owned())).unwrap();
            assert_eq!((named.login.as_deref(), named.host.as_deref()), (login, host), "{text}");
            assert_eq!(named.pid.get(), 42);
        };
        check("42", None, None);
        check("n1:42", None, Some("n1"));
        check("me@n1.example.org:42", Some("me"), Some("n1.example.org"));
        check("me@realm@n1:42", Some("me@realm"), Some("n1"));
        check("[fe80::1]:42", None, Some("fe80::1"));
        check("2001:db8::1:42", None, Some("2001:db8::1"));
        for wrong in [
            "",
            "n1",
            "n1:",
            "n1:x",
            "n1:0",
            ":42",
            "@n1:42",
            "-x@n1:42",
            "-n1:42",
            "n 1:42",
            "$(id):42",
            "$(id)@n1:42",
            "me@-oProxyCommand=x:42",
        ] {
            let error = Named::parse(&JobRef(wrong.to_owned())).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn how_hosts_are_reached_is_told_beside_the_launchers_name() {
        let named = |text: &str| Named::parse(&JobRef(text.to_owned())).unwrap();
        let told = Reaching { login: Some("me".to_owned()), window: 3, ..Reaching::default() };
        let words = told.to_words();
        assert_eq!(named("n1:42").reaching(&words).unwrap(), told);
        assert_eq!(named("me@n1:42").reaching(&words).unwrap(), told);
        assert_eq!(named("you@n1:42").reaching(&[]).unwrap().login.as_deref(), Some("you"));
        let error = named("you@n1:42").reaching(&words).unwrap_err();
        assert_eq!(error.to_string(), "the login names 'you' and 'me' are both given");
    }

    #[test]
    fn ranks_of_all_proxies_are_put_in_order_and_must_be_all() {
        let rank = |host: &str, rank: u32, size: u32| {
            let pid = Pid::new(100 + rank.cast_signed()).unwrap();
            (host.to_owned(), Beneath { rank, size: Some(size), pid, exe: "/bin/app".to_owned() })
        };
        let placement = put_together(vec![rank("n2", 1, 3), rank("n1", 2, 3), rank("n1", 0, 3)]).unwrap();
        let hosts: Vec<&str> = placement.iter().map(|place| place.host).collect();
        assert_eq!(hosts, ["n1", "n2", "n1"]);
        for missing in [vec![rank("n1", 0, 3), rank("n1", 1, 3)], vec![rank("n1", 1, 2)], Vec::new()] {
            let error = put_together(missing).unwrap_err();
            assert!(matches!(error, Error::NotYet { .. }), "{error}");
        }
    }

    #[test]
    fn ranks_beside_the_launcher_are_on_the_host_that_was_named() {
        let mut table = PlacementBuilder::new();
        for host in ["n1", "n2", "localhost", "n1.cluster", "n10"] {
            table.push(host, Pid::new(7), "/bin/app").unwrap();
        }
        let renamed = rename_own(&table.build(), "n1", "login");
        let hosts: Vec<&str> = renamed.iter().map(|place| place.host).collect();
        assert_eq!(hosts, ["login", "n2", "login", "login", "n10"]);
        assert!(!is_own("n1.a", "n1.b"));
    }
}
