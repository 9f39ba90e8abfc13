//! Groups that a message starts: checks the message, converts it into a launch, and starts the process that owns the
//! group.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use gantry_wlm::Host;
use gantry_wlm::host::{Machine, spawn_orphan};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time;

use super::query::Number;
use super::request::{CreateGroup, ProcessSpec};
use crate::control::protocol::Answer;
use crate::error::{Error, Result};
use crate::helpers;
use crate::request::{Mixed, MixedPart};

/// The program that owns groups: the command line.
const OWNER: &str = "gantry";

/// The hidden option for that.
pub const OWNER_OPTION: &str = "--group-owner";

/// How many specifications a group may have: each carries an environment of its own.
const MAX_SPECS: usize = 1_000;

/// How many processes a group may have.
const MAX_PROCESSES: u32 = 1_000_000;

/// How much longer the client waits than the owner may take.
const ANSWER_SLACK: Duration = Duration::from_secs(10);

/// The order for an owner on its standard input, as a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    /// The group.
    pub(super) create: CreateGroup,
    /// The directory of the requesting process.
    pub(super) dir: PathBuf,
    /// The directory of the groups' sockets.
    pub(super) runtime_dir: PathBuf,
    /// The timeout of the start, in milliseconds.
    pub(super) timeout_ms: u64,
}

/// Starts an owner, and returns the number of its group when the group runs.
///
/// # Errors
/// The message is not valid, or the group cannot start; then nothing of it runs.
pub(super) async fn create(create: &CreateGroup, runtime_dir: &Path, timeout: Duration) -> Result<u32> {
    // Find mistakes before a process is started.
    plan(create, Path::new("/"))?;
    let failed = |e| Error::io("cannot start the group's owner", e);
    let program = helpers::find(OWNER)?;
    let order = Order {
        create: create.clone(),
        dir: Machine.current_dir().map_err(failed)?,
        runtime_dir: std::path::absolute(runtime_dir).map_err(failed)?,
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    spawn_orphan(&program, &[OWNER_OPTION], OwnedFd::from(theirs)).map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let (from, mut to) = tokio::net::UnixStream::from_std(ours).map_err(failed)?.into_split();
    let mut line = serde_json::to_vec(&order).map_err(|e| failed(e.into()))?;
    line.push(b'\n');
    let asking = async {
        to.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(from).read_line(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = time::timeout(timeout.saturating_add(ANSWER_SLACK), asking).await;
    let late = || Error::TimedOut { phase: "starting a process group", after: timeout, missing: Vec::new() };
    let answer = answer.map_err(|_| late())?.map_err(failed)?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Ok(pgid)) => Ok(pgid),
        Ok(Answer::Error(failure)) => Err(Error::Node { hosts: Vec::new(), failure }),
        Err(_) => Err(Error::Lost {
            what: vec!["the group's owner".to_owned()],
            reason: "it ended before the group was there".to_owned(),
        }),
    }
}

/// Converts a group into a launch. Relative directories are based on `dir`.
///
/// # Errors
/// The part of the message that is not valid.
pub(super) fn plan(create: &CreateGroup, dir: &Path) -> Result<Mixed> {
    if create.specs.len() > MAX_SPECS {
        return Err(Error::invalid(format!("more than {MAX_SPECS} specifications of processes")));
    }
    let total = count(create)?;
    let mut parts = Vec::with_capacity(create.specs.len());
    let mut left = RankSet::first_n(total);
    for spec in &create.specs {
        let ranks = ranks_of(spec, total)?;
        let known = ranks.intersection(&left);
        if known != ranks {
            let twice = range_text(&ranks.difference(&left));
            return Err(Error::invalid(format!("processes {twice} are specified twice")));
        }
        left = left.difference(&ranks);
        check_user(spec)?;
        let cwd = spec.cwd.as_ref().map(|cwd| dir.join(cwd));
        parts.push(MixedPart {
            ranks,
            program: program_of(&spec.exec, cwd.as_deref().unwrap_or(dir))?,
            args: spec.args.iter().map(OsString::from).collect(),
            env: environment(spec),
            cwd,
        });
    }
    if !left.is_empty() {
        return Err(Error::invalid(format!("processes {} are not specified", range_text(&left))));
    }
    Ok(Mixed { parts, hosts: hosts_of(create, total)? })
}

/// A path is relative to the directory in which the process starts. A name is looked up on its node.
pub(super) fn program_of(program: &str, dir: &Path) -> Result<OsString> {
    if !program.contains('/') {
        return Ok(program.into());
    }
    let path = std::path::absolute(dir.join(program));
    let path = path.map_err(|e| Error::io(format!("cannot find the absolute path of {program}"), e))?;
    Ok(path.into_os_string())
}

/// How many processes the group has.
fn count(create: &CreateGroup) -> Result<u32> {
    let last = |spec: &ProcessSpec| {
        let range = spec.range.as_ref()?;
        range.ranges().map(|range| range.end().0).max()
    };
    let highest = create.specs.iter().filter_map(last).max();
    let total = create.totalprocs.or(highest).unwrap_or(1);
    if total > MAX_PROCESSES {
        return Err(Error::invalid(format!("more than {MAX_PROCESSES} processes in one group")));
    }
    match highest {
        Some(highest) if highest > total => {
            Err(Error::invalid(format!("process {highest} is specified, and there are {total} in all")))
        }
        _ => Ok(total),
    }
}

/// Converts process numbers, which count from 1, to ranks, which count from 0.
fn ranks_of(spec: &ProcessSpec, total: u32) -> Result<RankSet> {
    let Some(range) = &spec.range else { return Ok(RankSet::first_n(total)) };
    let mut ranks = RankSet::new();
    for range in range.ranges() {
        let (Number(first), Number(last)) = (*range.start(), *range.end());
        let first = first.checked_sub(1).ok_or_else(|| Error::invalid("processes are counted from 1"))?;
        ranks.insert_range(Rank(first)..=Rank(last - 1));
    }
    Ok(ranks)
}

/// Ranks in a message's numbers.
fn range_text(ranks: &RankSet) -> String {
    let mut range = super::query::Numbers::new();
    for ranks in ranks.ranges() {
        range.insert_range(Number(ranks.start().0 + 1)..=Number(ranks.end().0 + 1));
    }
    range.to_string()
}

/// The host of every process: the named hosts, in turn if there are fewer.
fn hosts_of(create: &CreateGroup, total: u32) -> Result<Vec<String>> {
    let total = total as usize;
    match create.hosts.len() {
        named if named > total => {
            Err(Error::invalid(format!("{named} hosts are named for {total} processes")))
        }
        _ => Ok(create.hosts.iter().cycle().take(total).cloned().collect()),
    }
}

/// Processes must run as the requesting user.
fn check_user(spec: &ProcessSpec) -> Result<()> {
    let Some(wanted) = &spec.user else { return Ok(()) };
    let uid = nix::unistd::geteuid().as_raw();
    let name = crate::control::user_name(uid);
    if *wanted == name || *wanted == uid.to_string() {
        return Ok(());
    }
    let message = format!("processes of user '{wanted}' cannot be started by {name}");
    let failure = Failure::new(Kind::NoAccess, message).with_hint("leave out 'user', or have that user ask");
    Err(Error::Node { hosts: Vec::new(), failure })
}

/// `path` becomes PATH, unless the specification sets PATH itself.
fn environment(spec: &ProcessSpec) -> Vec<(OsString, OsString)> {
    let path = spec.path.iter().map(|path| ("PATH".into(), path.into()));
    path.chain(spec.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procgroup::Request;
    use crate::procgroup::xml::parse_request;

    fn planned(inside: &str, attributes: &str) -> Result<Mixed> {
        let xml = format!("<create-process-group {attributes}>{inside}</create-process-group>");
        match parse_request(xml.as_bytes()) {
            Ok(Request::Create(create)) => plan(&create, Path::new("/here")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_process_gets_its_specification_and_its_host() {
        let mixed = planned(
            "<process-spec exec='master' range='1' cwd='sub' path='/bin'><env name='A' val='b'/></process-spec>
             <process-spec exec='slave' range='2-3,5'/><process-spec exec='./odd' range='4'/>
             <host-spec>n%d:1-2,2</host-spec>",
            "totalprocs='5'",
        )
        .unwrap();
        let parts: Vec<(String, &OsString)> =
            mixed.parts.iter().map(|part| (part.ranks.to_string(), &part.program)).collect();
        assert_eq!(
            parts,
            [
                ("0".into(), &"master".into()),
                ("1-2,4".into(), &"slave".into()),
                ("3".into(), &"/here/odd".into())
            ]
        );
        assert_eq!(mixed.parts[0].cwd, Some("/here/sub".into()));
        assert_eq!(mixed.parts[0].env, [("PATH".into(), "/bin".into()), ("A".into(), "b".into())]);
        // With fewer hosts than processes, the hosts are used in turn.
        assert_eq!(mixed.hosts, ["n1", "n2", "n2", "n1", "n2"]);
        let all = planned("<process-spec exec='a'/>", "totalprocs='3'").unwrap();
        assert_eq!((all.size(), all.hosts.len()), (3, 0));
        assert_eq!(planned("<process-spec exec='a' range='1-7'/>", "").unwrap().size(), 7);
    }

    #[test]
    fn an_invalid_part_is_named() {
        let check = |inside: &str, attributes: &str, part: &str| {
            let error = planned(inside, attributes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(
            "<process-spec exec='a' range='1-3'/><process-spec exec='b' range='3-4'/>",
            "",
            "processes 3 are specified twice",
        );
        check(
            "<process-spec exec='a'/><process-spec exec='b'/>",
            "totalprocs='2'",
            "processes 1-2 are specified twice",
        );
        check("<process-spec exec='a' range='1,3'/>", "totalprocs='4'", "processes 2,4 are not specified");
        check(
            "<process-spec exec='a' range='9'/>",
            "totalprocs='4'",
            "process 9 is specified, and there are 4",
        );
        check("<process-spec exec='a'/>", "totalprocs='2000000'", "more than 1000000 processes in one group");
        check("<process-spec exec='a'/><host-spec>a b</host-spec>", "", "2 hosts are named for 1 processes");
        check("<process-spec exec='a' user='no-such-user'/>", "", "cannot be started by");
        check(&"<process-spec exec='a'/>".repeat(1_001), "", "more than 1000 specifications");
    }
}
