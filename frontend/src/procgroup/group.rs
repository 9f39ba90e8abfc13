//! Groups in memory. A million processes take a few megabytes: every name is stored once, and consecutive processes
//! form one run.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_types::id::AppId;
use serde::{Deserialize, Serialize};

use super::attribute::{GroupAttribute, ProcessAttribute};
use super::query::{GROUP_STATES, Numbers, PROCESS_STATES, name_of};
use crate::event::StateName;
use crate::info::{AppInfo, AppState};

/// A group, as its frontend reports it and as its record is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Its number: unique among the user's groups on this machine, and constant as long as the group is known.
    pub pgid: u32,
    /// The id of its app.
    pub app: AppId,
    /// Its submitter.
    pub submitter: String,
    /// How many processes it was started with.
    pub totalprocs: u32,
    /// Its state.
    pub state: AppState,
    /// The workload manager that runs it.
    pub wlm: String,
    /// Its sessions so far.
    pub sessions: Numbers,
    /// Its exit code, when it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<u32>,
    /// Names of hosts, each once.
    pub hosts: Vec<String>,
    /// Programs, each once.
    pub execs: Vec<String>,
    /// Its processes, in the order of their ranks.
    pub runs: Vec<Run>,
}

/// Consecutive processes on one host: ranks and pids count up, everything else is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RunForm", into = "RunForm")]
pub struct Run {
    /// The first one's rank.
    pub rank: u32,
    /// The number of processes.
    pub count: u32,
    /// The first one's pid. 0: no pid is known.
    pub pid: u32,
    /// The index of the host.
    pub host: u32,
    /// The index of the program.
    pub exec: u32,
    /// The state of all of them.
    pub state: StateName,
}

/// On the wire a run is a list: field names would be most of it.
type RunForm = (u32, u32, u32, u32, u32, StateName);

impl From<RunForm> for Run {
    fn from((rank, count, pid, host, exec, state): RunForm) -> Self {
        Self { rank, count, pid, host, exec, state }
    }
}

impl From<Run> for RunForm {
    fn from(run: Run) -> Self {
        (run.rank, run.count, run.pid, run.host, run.exec, run.state)
    }
}

/// One process of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process<'a> {
    /// Its rank.
    pub rank: u32,
    /// Its pid on its host, when it is known.
    pub pid: Option<u32>,
    /// Its host.
    pub host: &'a str,
    /// Its program.
    pub exec: &'a str,
    /// Its state.
    pub state: StateName,
}

impl GroupFacts {
    /// Makes a group with this number from an app.
    #[must_use]
    pub fn of_app(info: &AppInfo, pgid: u32, submitter: &str, sessions: Numbers) -> Self {
        let (mut hosts, mut execs) = (Names::default(), Names::default());
        let mut runs: Vec<Run> = Vec::new();
        for rank in &info.ranks {
            let next = Run {
                rank: rank.rank.0,
                count: 1,
                pid: rank.pid.map_or(0, |pid| pid.get().unsigned_abs()),
                host: hosts.intern(&rank.host),
                exec: execs.intern(&rank.exe),
                state: rank.state,
            };
            match runs.last_mut() {
                Some(last) if last.goes_on_with(&next) => last.count += 1,
                _ => runs.push(next),
            }
        }
        let code = info.exit.as_ref().map(|exit| exit.code.unsigned_abs());
        Self {
            pgid,
            app: info.app,
            submitter: submitter.to_owned(),
            totalprocs: u32::try_from(info.ranks.len()).unwrap_or(u32::MAX),
            state: info.state,
            wlm: info.wlm.clone(),
            sessions,
            exit_code: code,
            hosts: hosts.into_list(),
            execs: execs.into_list(),
            runs,
        }
    }
}

impl Run {
    fn goes_on_with(&self, next: &Self) -> bool {
        let same = (self.host, self.exec, self.state) == (next.host, next.exec, next.state);
        let pids = match self.pid {
            0 => next.pid == 0,
            first => first.checked_add(self.count) == Some(next.pid),
        };
        same && pids && self.rank.checked_add(self.count) == Some(next.rank)
    }
}

/// Names, each with its own number.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    list: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Names {
    pub(super) fn intern(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let (name, number) = (Arc::<str>::from(name), u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(super) fn get(&self, number: u32) -> &str {
        self.list.get(number as usize).map_or("", |name| name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(self.list.iter().map(|name| &**name))
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn into_list(self) -> Vec<String> {
        self.list.iter().map(|name| name.to_string()).collect()
    }
}

/// A group with indexes into the names of all groups.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) pgid: u32,
    pub(super) app: AppId,
    pub(super) submitter: u32,
    pub(super) totalprocs: u32,
    pub(super) state: AppState,
    pub(super) wlm: u32,
    pub(super) sessions: Numbers,
    pub(super) exit_code: Option<u32>,
    pub(super) runs: Vec<Run>,
}

/// Groups, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    pub(super) names: Names,
    pub(super) groups: Vec<Group>,
}

impl Groups {
    /// Adds a group.
    ///
    /// # Errors
    /// The facts are inconsistent.
    pub fn push(&mut self, facts: &GroupFacts) -> Result<(), String> {
        let hosts: Vec<u32> = facts.hosts.iter().map(|host| self.names.intern(host)).collect();
        let execs: Vec<u32> = facts.execs.iter().map(|exec| self.names.intern(exec)).collect();
        let mut runs = Vec::with_capacity(facts.runs.len());
        let mut next = 0;
        for run in &facts.runs {
            let (host, exec) = (hosts.get(run.host as usize), execs.get(run.exec as usize));
            let (Some(host), Some(exec)) = (host, exec) else {
                return Err(format!("group {}: a process without a host or a program", facts.pgid));
            };
            let ends = (run.rank.checked_add(run.count), run.pid.checked_add(run.count));
            let (Some(end), Some(_)) = ends else {
                return Err(format!("group {}: numbers of processes beyond all bounds", facts.pgid));
            };
            if run.count == 0 || run.rank < next {
                return Err(format!("group {}: processes out of order", facts.pgid));
            }
            next = end;
            runs.push(Run { host: *host, exec: *exec, ..*run });
        }
        let (submitter, wlm) = (self.names.intern(&facts.submitter), self.names.intern(&facts.wlm));
        self.groups.push(Group {
            pgid: facts.pgid,
            app: facts.app,
            submitter,
            totalprocs: facts.totalprocs,
            state: facts.state,
            wlm,
            sessions: facts.sessions.clone(),
            exit_code: facts.exit_code,
            runs,
        });
        Ok(())
    }

    /// How many groups there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The number of the group at that place.
    #[must_use]
    pub fn pgid(&self, at: usize) -> Option<u32> {
        self.groups.get(at).map(|group| group.pgid)
    }

    /// The app of the group at that place.
    #[must_use]
    pub fn app(&self, at: usize) -> Option<AppId> {
        self.groups.get(at).map(|group| group.app)
    }

    /// An attribute of the group at that place, as text. None: the group has no value for it.
    #[must_use]
    pub fn attribute(&self, at: usize, attribute: GroupAttribute) -> Option<String> {
        let group = self.groups.get(at)?;
        match attribute {
            GroupAttribute::Submitter => Some(self.names.get(group.submitter).to_owned()),
            GroupAttribute::Pgid => Some(group.pgid.to_string()),
            GroupAttribute::Totalprocs => Some(group.totalprocs.to_string()),
            GroupAttribute::State => Some(name_of(group.state, &GROUP_STATES).to_owned()),
            GroupAttribute::Wlm => Some(self.names.get(group.wlm).to_owned()),
            GroupAttribute::App => Some(group.app.to_string()),
            GroupAttribute::Session => (!group.sessions.is_empty()).then(|| group.sessions.to_string()),
            GroupAttribute::ExitCode => group.exit_code.map(|code| code.to_string()),
        }
    }

    /// The processes of the group at that place, in the order of their ranks.
    pub fn processes(&self, at: usize) -> impl Iterator<Item = Process<'_>> {
        let runs = self.groups.get(at).map(|group| group.runs.as_slice()).unwrap_or_default();
        runs.iter().flat_map(|run| {
            let (host, exec) = (self.names.get(run.host), self.names.get(run.exec));
            (0..run.count).map(move |step| Process {
                rank: run.rank + step,
                pid: (run.pid != 0).then(|| run.pid + step),
                host,
                exec,
                state: run.state,
            })
        })
    }

    /// The hosts of the group at that place, each once, in the order of its ranks.
    #[must_use]
    pub fn hosts(&self, at: usize) -> Vec<&str> {
        let mut seen = std::collections::HashSet::new();
        let runs = self.groups.get(at).map(|group| group.runs.as_slice()).unwrap_or_default();
        let new = runs.iter().filter(|run| seen.insert(run.host));
        new.map(|run| self.names.get(run.host)).collect()
    }
}

impl Process<'_> {
    /// An attribute of the process, as text. None: the process has no value for it.
    #[must_use]
    pub fn attribute(&self, attribute: ProcessAttribute) -> Option<std::borrow::Cow<'_, str>> {
        match attribute {
            ProcessAttribute::Pid => self.pid.map(|pid| pid.to_string().into()),
            ProcessAttribute::Exec => Some(self.exec.into()),
            ProcessAttribute::Host => Some(self.host.into()),
            ProcessAttribute::Rank => Some(self.rank.to_string().into()),
            ProcessAttribute::State => Some(name_of(self.state, &PROCESS_STATES).into()),
        }
    }
}
