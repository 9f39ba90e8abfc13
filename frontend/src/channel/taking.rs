//! Takes an operation's complete parts: keeps them apart, or merges them into one.

use std::collections::BTreeMap;
use std::future::pending;

use gantry_shared::wire::channel::Member;
use gantry_types::error::{Failure, Kind};
use gantry_types::filter::{Filter, Reduce, concatenate};

use super::collecting::Part;

/// Up to this total, built-in filters merge parts at once. Beyond it a blocking thread merges, so that the tool's tasks
/// continue meanwhile.
const AT_ONCE_BYTES: usize = 256 * 1024;

/// Takes complete parts, one after the other.
pub(super) trait Taking: Send {
    fn take(&mut self, part: Part) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Parts that are kept apart. Nothing merges them on the way, so each part belongs to one member.
impl Taking for BTreeMap<Member, Vec<u8>> {
    async fn take(&mut self, part: Part) -> Result<(), Failure> {
        if let Some(member) = part.of.iter().next() {
            self.insert(member, part.bytes);
        }
        Ok(())
    }
}

/// Merges parts into one.
pub(super) struct Merge {
    filter: Filter,
    by: By,
    bytes: usize,
}

enum By {
    Reduce(Box<dyn Reduce>),
    /// The filter is not known here. A single part needs no merge, so it is kept as it is.
    Nobody(Option<Vec<u8>>),
}

impl Merge {
    /// Merges with `reduce`. None: the filter is not known here.
    pub(super) fn new(filter: Filter, reduce: Option<Box<dyn Reduce>>) -> Self {
        Self { filter, by: reduce.map_or(By::Nobody(None), By::Reduce), bytes: 0 }
    }

    /// The merged result.
    pub(super) async fn finish(self) -> Result<Vec<u8>, Failure> {
        let may_block = self.may_block();
        match self.by {
            By::Reduce(reduce) if may_block => aside(move || reduce.give()).await,
            By::Reduce(reduce) => reduce.give(),
            By::Nobody(alone) => Ok(alone.unwrap_or_default()),
        }
    }

    /// Whether the filter may keep its thread for long. One of the tool's own may even wait for this library's tasks.
    fn may_block(&self) -> bool {
        matches!(self.filter, Filter::Custom(_)) || self.bytes > AT_ONCE_BYTES
    }
}

impl Taking for Merge {
    async fn take(&mut self, part: Part) -> Result<(), Failure> {
        let bytes = if self.filter == Filter::Concatenate { label(part)? } else { part.bytes };
        self.bytes = self.bytes.saturating_add(bytes.len());
        let may_block = self.may_block();
        // A placeholder while the blocking thread has the reduction.
        match std::mem::replace(&mut self.by, By::Nobody(None)) {
            By::Reduce(mut reduce) => {
                let taken;
                (reduce, taken) = if may_block {
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

/// Runs long work on a thread that may block.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            // A filter of the tool's own has panicked: pass the panic to the tool, as if the filter had run here.
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this task with it.
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

    /// Reports the thread that called it.
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
    async fn much_is_merged_on_another_thread_and_so_is_all_by_a_filter_of_the_tools_own() {
        let here = thread::current().id();
        let own = Filter::Custom("own".to_owned());
        for (filter, bytes, is_here) in
            [(Filter::Sum, AT_ONCE_BYTES / 2, true), (Filter::Sum, AT_ONCE_BYTES + 1, false), (own, 1, false)]
        {
            let (told, threads) = mpsc::channel();
            let mut taking = Merge::new(filter.clone(), Some(Box::new(Told(told))));
            let of = MemberSet::of(Member { node: NodeId(0), daemon: DaemonId(1) });
            taking.take(Part { of, bytes: vec![0; bytes] }).await.unwrap();
            assert_eq!(taking.finish().await.unwrap(), [1]);
            let threads: Vec<bool> = threads.iter().map(|thread| thread == here).collect();
            assert_eq!(threads, [is_here; 2], "{bytes} bytes by {filter:?}");
        }
    }
}
