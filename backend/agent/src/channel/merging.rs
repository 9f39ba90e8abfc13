//! Merges parts on this node: by a built-in filter as they arrive, or by a daemon of the tool that serves a filter.
//!
//! Of a large part only the first chunk arrives without a request. The agent requests the rest when it has room, one
//! large part after the other. So an agent holds its merged result, one part that arrives or is being merged, and first
//! chunks. When the daemon that merges fails, parts go up unmerged. An agent further up merges them, or else the
//! frontend.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gantry_shared::wire::assembly::Assembly;
use gantry_shared::wire::channel::{MAX_PART_BYTES, MemberSet};
use gantry_types::error::Failure;
use gantry_types::filter::Filter;
use gantry_types::id::DaemonId;

use super::filtering::{Filtering, Merged, Step};
use super::outcome::{Job, Out, PartKey};

/// How many bytes of parts the agent gathers before it asks a daemon to merge them.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// Merging on one node.
pub(super) struct Merging {
    by: By,
    coming: BTreeMap<PartKey, Assembly>,
    /// Large parts that wait for room. The first one is being requested.
    large: VecDeque<PartKey>,
}

enum By {
    Filter(Filtering),
    Daemon(Served),
    /// No merging: these parts, and all later ones, go up unmerged.
    Nobody(Vec<(MemberSet, Arc<Vec<u8>>)>),
}

/// Parts that a daemon is to merge.
struct Served {
    daemon: DaemonId,
    filter: String,
    parts: Vec<(MemberSet, Arc<Vec<u8>>)>,
    bytes: usize,
    running: Option<Running>,
}

struct Running {
    parts: Vec<(MemberSet, Arc<Vec<u8>>)>,
    result: Vec<u8>,
}

impl std::fmt::Debug for Merging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merging").field("coming", &self.coming).finish_non_exhaustive()
    }
}

impl Merging {
    /// None if this node cannot merge: the parts must stay apart, or no daemon here serves the filter.
    pub(super) fn start(filter: &Filter, server: Option<DaemonId>) -> Option<Self> {
        let by = match (filter, server) {
            // The result is as long as all parts together, so an agent passes them on and does not hold them.
            (Filter::Concatenate, _) | (Filter::Custom(_), None) => return None,
            (Filter::Custom(name), Some(daemon)) => By::Daemon(Served {
                daemon,
                filter: name.clone(),
                parts: Vec::new(),
                bytes: 0,
                running: None,
            }),
            (filter, _) => By::Filter(Filtering::start(filter.start().ok()?)),
        };
        Some(Self { by, coming: BTreeMap::new(), large: VecDeque::new() })
    }

    /// Whether part of it has arrived.
    pub(super) fn is_coming(&self, key: PartKey) -> bool {
        self.coming.contains_key(&key)
    }

    /// Whether a part of the members `of` may begin while the members `owed` are missing. Each member is in one part.
    pub(super) fn has_room(&self, of: &MemberSet, owed: &MemberSet) -> bool {
        !of.is_empty() && of.difference(owed).is_empty() && (self.coming.len() as u64) < owed.len()
    }

    /// A part begins. Returns it if it is complete.
    pub(super) fn begin(
        &mut self,
        key: PartKey,
        of: MemberSet,
        total: u64,
        bytes: Vec<u8>,
        out: &mut Out,
    ) -> Option<(MemberSet, Vec<u8>)> {
        if bytes.len() as u64 >= total {
            return Some((of, bytes));
        }
        if total <= MAX_PART_BYTES {
            self.coming.insert(key, Assembly::begin(of, total, bytes));
            self.large.push_back(key);
            self.grant(out);
        }
        None
    }

    /// Takes the next bytes of a part. Returns the part when it is complete.
    pub(super) fn feed(&mut self, key: PartKey, bytes: &[u8], out: &mut Out) -> Option<(MemberSet, Vec<u8>)> {
        // Without an assembly: the rest of a part that this agent has given up.
        match self.coming.get_mut(&key)?.take(bytes) {
            Ok(true) => {
                // The caller grants the next large part its turn after it has used this one.
                let whole = self.coming.remove(&key)?;
                self.large.retain(|it| *it != key);
                return Some(whole.finish());
            }
            Ok(false) => self.grant(out),
            // It came without credit.
            Err(_) => {}
        }
        None
    }

    /// Requests more of the part whose turn it is.
    fn grant(&mut self, out: &mut Out) {
        if matches!(&self.by, By::Filter(filtering) if filtering.is_full()) {
            return;
        }
        let Some(key) = self.large.front() else { return };
        if let Some(more) = self.coming.get_mut(key).and_then(Assembly::ask) {
            out.credit.push((*key, more));
        }
    }

    /// Takes a complete part.
    pub(super) fn consume(&mut self, of: MemberSet, part: Vec<u8>, out: &mut Out) {
        match &mut self.by {
            By::Filter(filtering) => filtering.take(of, part, &mut out.missing),
            By::Daemon(served) => served.hold(of, Arc::new(part)),
            By::Nobody(parts) => parts.push((of, Arc::new(part))),
        }
    }

    /// Returns what goes up now. `complete`: no more parts will arrive.
    pub(super) fn go_on(&mut self, complete: bool, out: &mut Out) -> Vec<(MemberSet, Vec<u8>)> {
        let up = self.act(complete, out);
        self.grant(out);
        up
    }

    fn act(&mut self, complete: bool, out: &mut Out) -> Vec<(MemberSet, Vec<u8>)> {
        match &mut self.by {
            By::Filter(filtering) => match filtering.go_on(complete, &mut out.missing) {
                Step::Wait => Vec::new(),
                Step::Give(result) => result.into_iter().collect(),
                Step::Merge(batch) => {
                    out.batch = Some(batch);
                    Vec::new()
                }
            },
            By::Daemon(served) if served.running.is_none() => {
                if served.parts.len() > 1 && (complete || served.bytes >= BATCH_BYTES) {
                    out.job = Some(served.start());
                    Vec::new()
                } else if complete {
                    give_all(&mut served.parts)
                } else {
                    Vec::new()
                }
            }
            By::Daemon(_) => Vec::new(),
            By::Nobody(parts) => give_all(parts),
        }
    }

    /// Forgets incomplete parts.
    pub(super) fn forget(&mut self, which: impl Fn(PartKey) -> bool, out: &mut Out) {
        self.coming.retain(|key, _| !which(*key));
        self.large.retain(|key| !which(*key));
        self.grant(out);
    }

    /// Takes the result of a [`Batch`](super::filtering::Batch). Returns what goes up.
    pub(super) fn batch_merged(&mut self, merged: Merged, out: &mut Out) -> Option<(MemberSet, Vec<u8>)> {
        match &mut self.by {
            By::Filter(filtering) => filtering.back(merged, &mut out.missing),
            By::Daemon(_) | By::Nobody(_) => None,
        }
    }

    /// Takes a daemon's result, or the next bytes of it. True when the operation can go on.
    pub(super) fn merged(&mut self, daemon: DaemonId, bytes: Result<Vec<u8>, Failure>, last: bool) -> bool {
        let By::Daemon(served) = &mut self.by else { return false };
        let Some(running) = served.running.as_mut().filter(|_| served.daemon == daemon) else { return false };
        match bytes {
            Ok(bytes) if (running.result.len() + bytes.len()) as u64 <= MAX_PART_BYTES => {
                running.result.extend_from_slice(&bytes);
                if last && let Some(done) = served.running.take() {
                    let of = done.parts.iter().fold(MemberSet::default(), |all, (of, _)| all.union(of));
                    served.hold(of, Arc::new(done.result));
                }
                last
            }
            // Its result is too long, or it could not merge.
            Ok(_) | Err(_) => {
                self.give_up_job();
                true
            }
        }
    }

    /// A daemon has stopped merging.
    pub(super) fn server_over(&mut self, daemon: DaemonId) {
        if matches!(&self.by, By::Daemon(served) if served.daemon == daemon) {
            self.give_up_job();
        }
    }

    /// Stops merging here: parts go up unmerged from now on.
    pub(super) fn give_up_job(&mut self) {
        let By::Daemon(served) = &mut self.by else { return };
        let running = served.running.take().map(|it| it.parts).unwrap_or_default();
        let parts: Vec<_> = running.into_iter().chain(std::mem::take(&mut served.parts)).collect();
        self.by = By::Nobody(parts);
    }
}

impl Served {
    fn hold(&mut self, of: MemberSet, part: Arc<Vec<u8>>) {
        self.bytes += part.len();
        self.parts.push((of, part));
    }

    fn start(&mut self) -> Job {
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        let job = Job {
            daemon: self.daemon,
            filter: self.filter.clone(),
            parts: parts.iter().map(|(_, part)| Arc::clone(part)).collect(),
        };
        self.running = Some(Running { parts, result: Vec::new() });
        job
    }
}

fn give_all(parts: &mut Vec<(MemberSet, Arc<Vec<u8>>)>) -> Vec<(MemberSet, Vec<u8>)> {
    std::mem::take(parts).into_iter().map(|(of, part)| (of, Arc::unwrap_or_clone(part))).collect()
}
