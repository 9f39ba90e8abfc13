//! This node's part of an MPI world: the answers to its ranks, their puts, and the ranks in the fence.
//!
//! The world decides and never waits. Work for others is a [`Deed`], and the caller takes the deeds after each input.
//! The world trusts nothing that ranks or other nodes send: it checks lengths, numbers and the order of messages. A
//! rank ends the world if it violates the protocol, or if it leaves while other ranks need it.

use std::collections::BTreeMap;

use gantry_shared::foreign_mpi::ForeignMpi;
use gantry_shared::wire::mpi::{JoinWorld, MpiEnd, MpiNote, MpiSubject};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use gantry_types::rendezvous::codec::{Head, write_item};
use gantry_types::rendezvous::{Data, Limits};
use gantry_types::status::ExitStatus;
use tokio::sync::oneshot;

use super::mapping::build_mapping;
use super::message::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES, Message, Reply, Wire};

mod library;

/// The most bytes of all keys and values that a node keeps.
const MAX_SPACE_BYTES: usize = 256 * 1024 * 1024;

/// The cost of a key and its value, beyond their bytes.
const PAIR_BYTES: usize = 64;

/// The most bytes that a node's ranks may put between two fences: half the limit for an item of a rendezvous.
const MAX_FRESH_BYTES: usize = 8 * 1024 * 1024;

/// The prefix of keys that only the server answers.
const RESERVED: &[u8] = b"PMI_";

/// Work that the world's owner must do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// All ranks of this node have entered a fence. `puts` is for all nodes. `by` speaks for this node.
    Fence {
        /// The fence's number.
        number: u32,
        /// The rank that speaks for this node.
        by: Rank,
        /// What ranks have put since the last fence: keys and values as data of level 1.
        puts: Vec<u8>,
    },
    /// The fence of a library's ranks is complete, with this data.
    Answer(Vec<u8>),
    /// The world cannot go on.
    End(Failed),
    /// This rank has left with 0 without MPI_Finalize: [`World::outlive`] is due after a while.
    Outlive(Rank),
    /// The user should know this.
    Note(MpiNote),
}

/// A kind of request that gantry does not serve.
struct Unserved {
    subject: MpiSubject,
    /// What the rank asks for.
    call: &'static str,
    /// What gantry does not do.
    why: &'static str,
}

const SPAWN: Unserved =
    Unserved { subject: MpiSubject::Spawn, call: "MPI_Comm_spawn", why: "start further processes" };

const NAMES: Unserved = Unserved { subject: MpiSubject::Names, call: "a published name", why: "keep names" };

/// Why a world cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The rank that has caused or noticed the failure.
    pub(crate) rank: Rank,
    /// The exit code of the app.
    pub(crate) code: i32,
    /// The reason.
    pub(crate) why: String,
    /// The kind of failure.
    pub(crate) end: MpiEnd,
}

/// The result of a message.
#[derive(Debug)]
pub(super) enum Heard {
    /// The answer.
    Answer(Vec<u8>),
    /// The answer arrives here. It never does if the world has ended.
    Later(oneshot::Receiver<Vec<u8>>),
    /// No answer.
    Nothing,
}

/// The progress of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has sent nothing. A program without MPI stays in this state.
    Silent,
    /// It has sent `init`.
    Joined,
    /// It has left in good order, by MPI_Finalize.
    Left,
    /// Its process has ended without MPI_Finalize.
    Ended(ExitStatus),
}

#[derive(Debug)]
struct Member {
    /// Which of the app's programs it runs.
    part: u32,
    stage: Stage,
}

/// The world, as far as this node sees it.
#[derive(Debug)]
pub(crate) struct World {
    name: String,
    size: u32,
    /// The number of the app's rank 0 in this world. Ranks have the app's numbers here, and the world's in answers.
    first: u32,
    /// The level of the data that a fence returns.
    level: u8,
    /// How many nodes have ranks.
    nodes: usize,
    /// A library speaks to the ranks.
    by_library: bool,
    mapping: Option<String>,
    members: BTreeMap<Rank, Member>,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    /// What this node's ranks have put since the last fence: keys and values in turn, and the count of these items.
    fresh: Vec<u8>,
    fresh_items: u64,
    /// Values that only the ranks of this node share, and the ranks that wait for one.
    local: BTreeMap<Vec<u8>, Vec<u8>>,
    asking: Vec<(Vec<u8>, Reply, oneshot::Sender<Vec<u8>>)>,
    fences: u32,
    /// The ranks in the fence, with the answer for each.
    inside: BTreeMap<Rank, (Vec<u8>, oneshot::Sender<Vec<u8>>)>,
    over: bool,
    deeds: Vec<Deed>,
}

impl World {
    /// The world with this name. `layout` has the ranks by node, `parts` by program; `mine` are this node's.
    pub(crate) fn new(name: String, layout: &[RankSet], parts: &[&RankSet], mine: &[Rank]) -> Self {
        let member = |rank: &Rank| {
            let part = (0..).zip(parts).find(|(_, ranks)| ranks.contains(*rank));
            (*rank, Member { part: part.map_or(0, |(part, _)| part), stage: Stage::Silent })
        };
        Self::of_members(name, layout, mine.iter().map(member).collect())
    }

    /// A world of several apps, which is announced once the ranks exist. `mine` are all ranks of this node.
    /// What a fence returns is one level higher there: all apps, and the nodes of each.
    pub(crate) fn joined(join: &JoinWorld, mine: &[Rank]) -> Self {
        let member = |rank: &Rank| (*rank, Member { part: join.part, stage: Stage::Silent });
        let members = mine.iter().map(member).collect();
        Self { first: join.first.0, level: 2, ..Self::of_members(join.name.clone(), &join.layout, members) }
    }

    fn of_members(name: String, layout: &[RankSet], members: BTreeMap<Rank, Member>) -> Self {
        Self {
            name,
            first: 0,
            level: 1,
            size: layout.iter().map(|ranks| u32::try_from(ranks.len()).unwrap_or(u32::MAX)).sum(),
            nodes: layout.iter().filter(|ranks| !ranks.is_empty()).count(),
            by_library: false,
            mapping: build_mapping(layout),
            members,
            pairs: BTreeMap::new(),
            bytes: 0,
            fresh: Vec::new(),
            fresh_items: 0,
            local: BTreeMap::new(),
            asking: Vec::new(),
            fences: 0,
            inside: BTreeMap::new(),
            over: false,
            deeds: Vec::new(),
        }
    }

    /// Takes the work that has gathered.
    pub(super) fn take_deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }

    /// Takes a rank's message.
    pub(super) fn hear(&mut self, rank: Rank, message: &Message<'_>) -> Heard {
        let Some(Member { part, stage }) = self.members.get(&rank) else { return Heard::Nothing };
        let (part, stage) = (*part, *stage);
        let command = message.command();
        if self.over {
            return Heard::Nothing;
        }
        if stage != Stage::Joined && !matches!(command, b"init" | b"abort") {
            return self.refuse(rank, "speaks before it has begun, or after its end");
        }
        let answer = |name: &str| Reply::ok(message, name);
        let reply = match command {
            b"init" => return self.begin(rank, message),
            b"fullinit" => answer("fullinit-response")
                .with("pmi-version", 2)
                .with("pmi-subversion", 0)
                .with("rank", self.first.saturating_add(rank.0))
                .with("size", self.size)
                .with("appnum", part)
                .with("debugged", "FALSE")
                .with("pmiverbose", "FALSE"),
            b"get_maxes" => answer("maxes")
                .with("kvsname_max", MAX_NAME_BYTES)
                .with("keylen_max", MAX_KEY_BYTES)
                .with("vallen_max", MAX_VALUE_BYTES),
            b"get_appnum" => answer("appnum").with("appnum", part),
            b"get_universe_size" => answer("universe_size").with("size", self.size),
            b"get_my_kvsname" => answer("my_kvsname").with("kvsname", &self.name),
            b"job-getid" => answer("job-getid-response").with("jobid", &self.name),
            b"put" => self.put(message, "put_result"),
            b"kvs-put" => self.put(message, "kvs-put-response"),
            b"get" => self.get(message, "get_result"),
            b"kvs-get" => self.get(message, "kvs-get-response"),
            b"info-getjobattr" => self.get(message, "info-getjobattr-response"),
            b"info-putnodeattr" => self.put_local(message),
            b"info-getnodeattr" => return self.get_local(message),
            b"barrier_in" => return self.enter(rank, answer("barrier_out")),
            b"kvs-fence" => return self.enter(rank, answer("kvs-fence-response")),
            b"finalize" => return Heard::Answer(self.finalize(rank, message)),
            b"abort" => return self.abort(rank, message.get_number(b"exitcode")),
            // A request for several programs has a message for each, and one answer.
            b"spawn" if is_unfinished(message) => return Heard::Nothing,
            b"spawn" => self.refuse_more(rank, message, &SPAWN),
            b"publish_name" | b"unpublish_name" | b"lookup_name" => self.refuse_more(rank, message, &NAMES),
            b"name-publish" | b"name-unpublish" | b"name-lookup" => self.refuse_more(rank, message, &NAMES),
            _ => return self.refuse(rank, "has a command that gantry does not know"),
        };
        Heard::Answer(reply.into_bytes())
    }

    /// Refuses a request that only the library's own launcher serves, and tells the user.
    fn refuse_more(&mut self, rank: Rank, message: &Message<'_>, what: &Unserved) -> Reply {
        let Unserved { subject, call, why } = *what;
        let text = format!(
            "{} asks for {call}, and gantry does not {why}: use the library's launcher, --launcher mpiexec",
            self.name_of(rank)
        );
        self.deeds.push(Deed::Note(MpiNote { rank, subject, text }));
        let command = String::from_utf8_lossy(message.command());
        let answer = match message.wire {
            Wire::One => format!("{}_result", command.trim_end_matches("_name")),
            Wire::Two => format!("{command}-response"),
        };
        Reply::refused(message, &answer, "gantry_does_not_start_or_join_further_processes:_use_mpiexec")
    }

    /// A rank of each program that has not spoken yet. Empty for a world of one rank, which needs nobody to find others.
    pub(super) fn silent(&self) -> Vec<Rank> {
        let mut silent: BTreeMap<u32, Rank> = BTreeMap::new();
        for (rank, member) in self.members.iter().rev().filter(|_| self.size > 1 && !self.over) {
            if member.stage == Stage::Silent {
                silent.insert(member.part, *rank);
            }
        }
        silent.into_values().collect()
    }

    /// A rank that has not spoken yet uses a library that does not speak PMI.
    pub(super) fn foreign(&mut self, rank: Rank, library: &str, whose: &ForeignMpi) {
        let (name, size, ForeignMpi { vendor, remedy, .. }) = (self.name_of(rank), self.size, whose);
        let text = format!(
            "{name} has loaded {vendor} ({library}), which does not speak PMI: each of the {size} ranks that calls MPI_Init is a world of its own: {remedy}"
        );
        self.deeds.push(Deed::Note(MpiNote { rank, subject: MpiSubject::Foreign, text }));
    }

    /// A rank has sent something invalid.
    pub(super) fn refuse(&mut self, rank: Rank, what: &str) -> Heard {
        self.end(rank, 1, format!("{} broke the rules of PMI: its message {what}", self.name_of(rank)));
        Heard::Nothing
    }

    /// A rank's process has ended. The caller has passed in all its messages before.
    pub(super) fn ended(&mut self, rank: Rank, status: ExitStatus) {
        let Some(member) = self.members.get_mut(&rank) else { return };
        let before = member.stage;
        if before == Stage::Left {
            return;
        }
        member.stage = Stage::Ended(status);
        self.inside.remove(&rank);
        if before == Stage::Joined && !status.is_success() {
            let why = format!("{} ended before MPI_Finalize: {status}", self.name_of(rank));
            let end = match status {
                ExitStatus::Signal(signal) if signal.number() != libc::SIGABRT => MpiEnd::Killed,
                _ => MpiEnd::Left,
            };
            return self.end_with(Failed { rank, code: code_of(status), why, end });
        }
        if !self.inside.is_empty() || (before == Stage::Silent && self.waits_for_silent()) {
            self.miss(rank, status);
        } else if before == Stage::Joined && !self.over && self.others_run() {
            self.deeds.push(Deed::Outlive(rank));
        }
    }

    /// A rank has left with 0 without MPI_Finalize a while ago. Ends the world if others still run: they cannot end by
    /// MPI_Finalize without that rank, and may wait for it.
    pub(super) fn outlive(&mut self, rank: Rank) {
        if self.others_run() {
            self.end(
                rank,
                1,
                format!("{} ended before MPI_Finalize: {}", self.name_of(rank), ExitStatus::Code(0)),
            );
        }
    }

    /// Whether ranks of the world run here, or may run on other nodes.
    fn others_run(&self) -> bool {
        self.nodes > 1 || self.members.values().any(|member| member.stage == Stage::Joined)
    }

    /// The fence is complete. `all` is what all nodes have put.
    pub(super) fn fenced(&mut self, all: &[u8]) {
        let taken = match self.by_library {
            true => self.join_puts(all),
            false => self.take_pairs(all).map(|()| self.open_fence()),
        };
        if let Err(what) = taken {
            self.end(self.first_member(), 1, format!("what ranks have put came back {what}"));
        }
    }

    /// The fence has failed on another node.
    pub(super) fn fence_failed(&mut self, why: &str) {
        self.end(self.first_member(), 1, format!("the ranks' fence broke: {why}"));
    }

    /// The tool is gone, which carries puts between nodes. The fence succeeds only if no rank here has put anything.
    pub(super) fn fence_alone(&mut self) {
        if self.fresh.is_empty() && self.by_library {
            self.answer_library(Vec::new());
        } else if self.fresh.is_empty() {
            self.open_fence();
        } else {
            self.fence_failed(
                "the tool that launched the app has ended, and nodes do not reach each other without it",
            );
        }
    }

    /// The agent is about to kill all ranks. How they end is no failure then.
    pub(super) fn stop(&mut self) {
        self.over = true;
    }

    fn begin(&mut self, rank: Rank, message: &Message<'_>) -> Heard {
        let version = message.get_number(b"pmi_version");
        let reply = match version {
            Some(1) => {
                Reply::ok(message, "response_to_init").with("pmi_version", 1).with("pmi_subversion", 1)
            }
            Some(2) => {
                Reply::ok(message, "response_to_init").with("pmi_version", 2).with("pmi_subversion", 0)
            }
            _ => Reply::refused(message, "response_to_init", "gantry_speaks_PMI_1_and_2"),
        };
        if let Some(member) = self.members.get_mut(&rank) {
            member.stage = Stage::Joined;
        }
        Heard::Answer(reply.into_bytes())
    }

    fn put(&mut self, message: &Message<'_>, name: &str) -> Reply {
        let Some((key, value)) = find_pair(message) else {
            return Reply::refused(message, name, "key_or_value_missing_or_too_long");
        };
        if key.starts_with(RESERVED) {
            return Reply::refused(message, name, "keys_that_begin_with_PMI_are_reserved");
        }
        if self.fresh.len() > MAX_FRESH_BYTES || !self.has_room(key, value) {
            return Reply::refused(message, name, "no_room");
        }
        for item in [key, value] {
            // A write to memory cannot fail.
            drop(write_item(&mut self.fresh, item));
        }
        self.fresh_items += 2;
        insert(&mut self.pairs, &mut self.bytes, key, value);
        Reply::ok(message, name)
    }

    fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        self.bytes + cost_of(key, value) <= MAX_SPACE_BYTES
    }

    fn get(&self, message: &Message<'_>, name: &str) -> Reply {
        let key = message.get(b"key").unwrap_or_default();
        let number;
        let value = match key {
            b"PMI_process_mapping" => self.mapping.as_deref().map(str::as_bytes),
            b"universeSize" if message.wire == Wire::Two => {
                number = self.size.to_string();
                Some(number.as_bytes())
            }
            _ => self.pairs.get(key).map(Vec::as_slice),
        };
        found(message, name, value)
    }

    fn put_local(&mut self, message: &Message<'_>) -> Reply {
        const NAME: &str = "info-putnodeattr-response";
        let Some((key, value)) = find_pair(message) else {
            return Reply::refused(message, NAME, "key_or_value_missing_or_too_long");
        };
        if !self.has_room(key, value) {
            return Reply::refused(message, NAME, "no_room");
        }
        insert(&mut self.local, &mut self.bytes, key, value);
        for (_, reply, told) in self.asking.extract_if(.., |(wanted, ..)| wanted == key) {
            // The waiting rank may have ended.
            drop(told.send(reply.with("found", "TRUE").with_bytes("value", value).into_bytes()));
        }
        Reply::ok(message, NAME)
    }

    fn get_local(&mut self, message: &Message<'_>) -> Heard {
        const NAME: &str = "info-getnodeattr-response";
        let key = message.get(b"key").unwrap_or_default();
        let value = self.local.get(key).map(Vec::as_slice);
        if value.is_none() && message.get(b"wait") == Some(b"TRUE") {
            let (told, answer) = oneshot::channel();
            self.asking.push((key.to_vec(), Reply::ok(message, NAME), told));
            return Heard::Later(answer);
        }
        Heard::Answer(found(message, NAME, value).into_bytes())
    }

    fn enter(&mut self, rank: Rank, answer: Reply) -> Heard {
        if self.inside.contains_key(&rank) {
            return self.refuse(rank, "enters the fence in which the rank waits already");
        }
        let (told, later) = oneshot::channel();
        self.inside.insert(rank, (answer.into_bytes(), told));
        let gone = self.members.iter().find_map(|(rank, member)| match member.stage {
            Stage::Ended(status) => Some((*rank, Some(status))),
            Stage::Left => Some((*rank, None)),
            Stage::Silent | Stage::Joined => None,
        });
        match gone {
            Some((gone, Some(status))) => self.miss(gone, status),
            Some((gone, None)) => {
                let [waits, left] = [rank, gone].map(|rank| self.name_of(rank));
                let why = format!("{waits} waits for all ranks, and {left} has left by MPI_Finalize");
                self.end(rank, 1, why);
            }
            None if self.inside.len() < self.members.len() => {}
            None if self.nodes > 1 => {
                let by = self.first_member();
                let puts = [Head::new(self.fresh_items).as_bytes(), &self.fresh].concat();
                self.deeds.push(Deed::Fence { number: self.fences, by, puts });
            }
            None => self.open_fence(),
        }
        Heard::Later(later)
    }

    /// The ranks in the fence wait for a rank that has ended: ends the world.
    fn miss(&mut self, rank: Rank, status: ExitStatus) {
        let why = format!("{} ended ({status}), and the others wait for it", self.name_of(rank));
        self.end(rank, code_of(status), why);
    }

    fn open_fence(&mut self) {
        self.fences = self.fences.wrapping_add(1);
        (self.fresh, self.fresh_items) = (Vec::new(), 0);
        for (answer, told) in std::mem::take(&mut self.inside).into_values() {
            // The waiting rank may have ended.
            drop(told.send(answer));
        }
    }

    /// Takes what all nodes have put.
    fn take_pairs(&mut self, all: &[u8]) -> Result<(), &'static str> {
        let all = Data::decode(self.level, all, Limits::default()).map_err(|_| "malformed")?;
        let nodes = all.as_group().unwrap_or_default();
        if self.level == 1 {
            return nodes.iter().try_for_each(|node| self.take_node(node));
        }
        nodes.iter().flat_map(|app| app.as_group().unwrap_or_default()).try_for_each(|it| self.take_node(it))
    }

    /// Takes what one node has put.
    fn take_node(&mut self, node: &Data<'_>) -> Result<(), &'static str> {
        let items = Data::decode(1, node.as_item().unwrap_or_default(), Limits::default());
        let items = items.map_err(|_| "malformed")?;
        for pair in items.as_group().unwrap_or_default().chunks(2) {
            let [Data::Item(key), Data::Item(value)] = pair else { return Err("malformed") };
            if !fits(key, value) || !self.has_room(key, value) {
                return Err("too large");
            }
            insert(&mut self.pairs, &mut self.bytes, key, value);
        }
        Ok(())
    }

    /// The rank that speaks for this node.
    fn first_member(&self) -> Rank {
        self.members.keys().next().copied().unwrap_or(Rank(0))
    }

    /// The size of the world.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// A rank's name for users.
    fn name_of(&self, rank: Rank) -> String {
        match self.level {
            1 => format!("rank {rank}"),
            _ => format!("rank {rank} (rank {} of MPI_COMM_WORLD)", self.first.saturating_add(rank.0)),
        }
    }

    fn finalize(&mut self, rank: Rank, message: &Message<'_>) -> Vec<u8> {
        if let Some(member) = self.members.get_mut(&rank) {
            member.stage = Stage::Left;
        }
        let name = if message.wire == Wire::One { "finalize_ack" } else { "finalize-response" };
        Reply::ok(message, name).into_bytes()
    }

    fn abort(&mut self, rank: Rank, code: Option<i32>) -> Heard {
        let code = ExitStatus::Code(code.unwrap_or(1)).code().unwrap_or(1);
        let why = format!("{} called MPI_Abort with exit code {code}", self.name_of(rank));
        self.end_with(Failed { rank, code: code.into(), why, end: MpiEnd::Aborted });
        Heard::Nothing
    }

    fn end(&mut self, rank: Rank, code: i32, why: String) {
        self.end_with(Failed { rank, code, why, end: MpiEnd::Left });
    }

    fn end_with(&mut self, failed: Failed) {
        if !std::mem::replace(&mut self.over, true) {
            self.deeds.push(Deed::End(failed));
        }
    }
}

/// The exit code of an app that fails because a rank has ended with `status`.
fn code_of(status: ExitStatus) -> i32 {
    status.code().filter(|code| *code != 0).unwrap_or(1).into()
}

/// Inserts a pair, and keeps `bytes` the cost of all pairs.
fn insert(pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>, bytes: &mut usize, key: &[u8], value: &[u8]) {
    *bytes += cost_of(key, value);
    if let Some(before) = pairs.insert(key.to_vec(), value.to_vec()) {
        *bytes -= cost_of(key, &before);
    }
}

/// How much of a node's room a key and its value take.
fn cost_of(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + PAIR_BYTES
}

fn fits(key: &[u8], value: &[u8]) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len()) && value.len() <= MAX_VALUE_BYTES
}

/// The key and the value of a message that puts something.
fn find_pair<'a>(message: &Message<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let pair = (message.get(b"key")?, message.get(b"value").unwrap_or_default());
    fits(pair.0, pair.1).then_some(pair)
}

/// Whether further messages follow that belong to the same request.
fn is_unfinished(message: &Message<'_>) -> bool {
    let [at, of] = [b"spawnssofar".as_slice(), b"totspawns"].map(|name| message.get_number(name));
    at.is_some_and(|at| of.is_some_and(|of| at < of))
}

/// The answer to a query for a value.
fn found(message: &Message<'_>, name: &str, value: Option<&[u8]>) -> Reply {
    match (value, message.wire) {
        (Some(value), Wire::One) => Reply::ok(message, name).with_bytes("value", value),
        (None, Wire::One) => Reply::refused(message, name, "key_not_found").with("value", "unknown"),
        (Some(value), Wire::Two) => Reply::ok(message, name).with("found", "TRUE").with_bytes("value", value),
        (None, Wire::Two) => Reply::ok(message, name).with("found", "FALSE"),
    }
}

#[cfg(test)]
mod tests;
