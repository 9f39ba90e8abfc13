//! What becomes of an operation's parts when they are there: they stay apart, or become one.

use std::collections::BTreeMap;
use std::future::pending;

use gantry_shared::wire::channel::Member;
use gantry_types::error::{Failure, Kind};
use gantry_types::filter::{Filter, Reduce, concatenate};

use super::collecting::Part;

/// What all parts of a reduction may have to be merged as they come. Beyond that a thread of its own merges, and the tool's tasks go on meanwhile.
const AT_ONCE_BYTES: usize = 256 * 1024;

/// Takes parts, one after the other.
pub(super) enum Taking {
    /// Nothing merges them on the way, so each is one member's.
    Apart(BTreeMap<Member, Vec<u8>>),
    Merge(Merge),
}

/// Parts that become one.
pub(super) struct Merge {
    filter: Filter,
    by: By,
    bytes: usize,
}

enum By {
    Reduce(Box<dyn Reduce>),
    /// Nobody here knows the filter: that is well as long as nothing has to be merged.
    Nobody(Option<Vec<u8>>),
}

impl Taking {
    /// Merges; None: the filter is not known here.
    pub(super) fn merge(filter: Filter, reduce: Option<Box<dyn Reduce>>) -> Self {
        let by = reduce.map_or(By::Nobody(None), By::Reduce);
        Self::Merge(Merge { filter, by, bytes: 0 })
    }

    /// A whole part.
    pub(super) async fn take(&mut self, part: Part) -> Result<(), Failure> {
        match self {
            Self::Apart(parts) => {
                if let Some(member) = part.of.iter().next() {
                    parts.insert(member, part.bytes);
                }
                Ok(())
            }
            Self::Merge(merge) => merge.take(part).await,
        }
    }

    /// What was kept apart.
    pub(super) fn into_parts(self) -> BTreeMap<Member, Vec<u8>> {
        match self {
            Self::Apart(parts) => parts,
            Self::Merge(_) => BTreeMap::new(),
        }
    }

    /// What all have become.
    pub(super) async fn into_one(self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Merge(Merge { by: By::Reduce(reduce), bytes, .. }) if bytes > AT_ONCE_BYTES => {
                aside(move || reduce.give()).await
            }
            Self::Merge(Merge { by: By::Reduce(reduce), .. }) => reduce.give(),
            Self::Merge(Merge { by: By::Nobody(alone), .. }) => Ok(alone.unwrap_or_default()),
            Self::Apart(_) => Ok(Vec::new()),
        }
    }
}

impl Merge {
    async fn take(&mut self, part: Part) -> Result<(), Failure> {
        let bytes = if self.filter == Filter::Concatenate { label(part)? } else { part.bytes };
        self.bytes = self.bytes.saturating_add(bytes.len());
        // Where it stands while somebody else has the reduction.
        match std::mem::replace(&mut self.by, By::Nobody(None)) {
            By::Reduce(mut reduce) => {
                let taken;
                (reduce, taken) = if self.bytes > AT_ONCE_BYTES {
                    aside(move || {
                        let taken = reduce.take(&bytes);
                        (reduce, taken)
                    })
                    .await
                } else {
                    let taken = reduce.take(&bytes);
                    (reduce, taken)
                };
                self.by = By::Reduce(reduce);
                taken
            }
            By::Nobody(None) => {
                self.by = By::Nobody(Some(bytes));
                Ok(())
            }
            By::Nobody(Some(_)) => Err(unknown(&self.filter)),
        }
    }
}

/// Does what takes long on a thread that may block.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            // A filter of the tool's own has panicked: that is the tool's to see, as if it had been called right here.
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_) => pending().await,
        },
    }
}

fn label(part: Part) -> Result<Vec<u8>, Failure> {
    let Some(member) = part.of.iter().next() else { return Ok(Vec::new()) };
    concatenate::encode(&[concatenate::Part { member, bytes: part.bytes }])
}

fn unknown(filter: &Filter) -> Failure {
    let message = format!("merge contributions: the tool has registered no filter for {filter:?}");
    Failure::new(Kind::Unsupported, message)
        .with_hint("register it with the channel, or have a daemon on every node serve it")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use gantry_shared::wire::channel::MemberSet;
    use gantry_types::id::{DaemonId, NodeId};

    use super::*;

    /// Says which thread has called it.
    struct Told(mpsc::Sender<ThreadId>);

    impl Reduce for Told {
        fn take(&mut self, _: &[u8]) -> Result<(), Failure> {
            self.0.send(thread::current().id()).unwrap();
            Ok(())
        }

        fn give(self: Box<Self>) -> Result<Vec<u8>, Failure> {
            self.0.send(thread::current().id()).unwrap();
            Ok(vec![1])
        }
    }

    #[tokio::test]
    async fn much_is_merged_on_another_thread_and_little_right_here() {
        let here = thread::current().id();
        for (bytes, is_here) in [(AT_ONCE_BYTES / 2, true), (AT_ONCE_BYTES + 1, false)] {
            let (told, threads) = mpsc::channel();
            let mut taking = Taking::merge(Filter::Sum, Some(Box::new(Told(told))));
            let of = MemberSet::of(Member { node: NodeId(0), daemon: DaemonId(1) });
            taking.take(Part { of, bytes: vec![0; bytes] }).await.unwrap();
            assert_eq!(taking.into_one().await.unwrap(), [1]);
            let threads: Vec<bool> = threads.iter().map(|thread| thread == here).collect();
            assert_eq!(threads, [is_here; 2], "{bytes} bytes");
        }
    }
}
