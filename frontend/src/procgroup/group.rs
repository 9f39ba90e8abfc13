//! Groups in memory. A million processes take a few megabytes: every name is stored once, and consecutive processes
//! form one run.

use gantry_types::id::AppId;
use gantry_types::placement::StringTable;
use serde::{Deserialize, Serialize};

use super::attribute::{GroupAttribute, ProcessAttribute};
use super::query::Numbers;
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
        let (mut hosts, mut execs) = (StringTable::new(), StringTable::new());
        let mut runs: Vec<Run> = Vec::new();
        for rank in &info.ranks {
            let next = Run {
                rank: rank.rank.0,
                count: 1,
                pid: rank.pid.map_or(0, |pid| pid.get().unsigned_abs()),
                host: intern(&mut hosts, &rank.host),
                exec: intern(&mut execs, &rank.exe),
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
            hosts: hosts.iter().map(str::to_owned).collect(),
            execs: execs.iter().map(str::to_owned).collect(),
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

/// The index of a name. No process has as many names as there are indexes.
fn intern(names: &mut StringTable, name: &str) -> u32 {
    names.intern(name).unwrap_or(u32::MAX)
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
    pub(super) names: StringTable,
    pub(super) groups: Vec<Group>,
}

impl Groups {
    fn name(&self, index: u32) -> &str {
        self.names.get(index).unwrap_or_default()
    }

    /// Adds a group.
    ///
    /// # Errors
    /// The facts are inconsistent.
    pub fn push(&mut self, facts: &GroupFacts) -> Result<(), String> {
        let hosts: Vec<u32> = facts.hosts.iter().map(|host| intern(&mut self.names, host)).collect();
        let execs: Vec<u32> = facts.execs.iter().map(|exec| intern(&mut self.names, exec)).collect();
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
        let (submitter, wlm) =
            (intern(&mut self.names, &facts.submitter), intern(&mut self.names, &facts.wlm));
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
            GroupAttribute::Submitter => Some(self.name(group.submitter).to_owned()),
            GroupAttribute::Pgid => Some(group.pgid.to_string()),
            GroupAttribute::Totalprocs => Some(group.totalprocs.to_string()),
            GroupAttribute::State => Some(group.state.as_str().to_owned()),
            GroupAttribute::Wlm => Some(self.name(group.wlm).to_owned()),
            GroupAttribute::App => Some(group.app.to_string()),
            GroupAttribute::Session => (!group.sessions.is_empty()).then(|| group.sessions.to_string()),
            GroupAttribute::ExitCode => group.exit_code.map(|code| code.to_string()),
        }
    }

    /// The processes of the group at that place, in the order of their ranks.
    pub fn processes(&self, at: usize) -> impl Iterator<Item = Process<'_>> {
        let runs = self.groups.get(at).map(|group| group.runs.as_slice()).unwrap_or_default();
        runs.iter().flat_map(|run| {
            let (host, exec) = (self.name(run.host), self.name(run.exec));
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
        new.map(|run| self.name(run.host)).collect()
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
            ProcessAttribute::State => Some(self.state.as_str().into()),
        }
    }
}
