//! Filters of the tool's own: a daemon merges the parts that come up to its node.

use std::time::Duration;

use gantry_shared::wire::channel::{FromDaemon, MAX_PART_BYTES, chunks_of};
use gantry_types::error::{Failure, Kind};

use super::Channel;
use crate::Error;
use crate::dialogue::Patience;

/// Parts to merge: contributions, or results of the same filter. At least two.
pub type Parts = Vec<Vec<u8>>;

/// The timeout of one message to the agent.
const WORD: Duration = Duration::from_secs(30);

impl Channel {
    /// Announces that this daemon will serve a filter.
    ///
    /// Later messages, such as a contribution, come after the announcement, so no later reduction begins without this
    /// daemon. Then call [`serve_filter`](Channel::serve_filter) on any thread; parts wait for it. Does not wait for
    /// the agent.
    ///
    /// # Errors
    /// [`Error::Refused`] when the agent cuts this daemon off, [`Error::Lost`] when the connection breaks.
    pub fn offer_filter(&self, name: &str) -> Result<(), Error> {
        self.say(FromDaemon::Serve { filter: name.to_owned() }, WORD)
    }

    /// Merges for this node's agent, until the channel ends: `merge` gets parts of reductions by the custom filter
    /// `name`, and returns one part. Blocks; run it on a separate thread to do other work meanwhile.
    ///
    /// A part is a daemon's contribution, or a result of `merge` from below; the result must not depend on the grouping
    /// and order of parts. If no daemon of a node serves the filter, or `merge` fails, parts are passed on unmerged, in
    /// the end to the tool.
    ///
    /// # Errors
    /// [`Error::Refused`] when the agent cuts this daemon off, [`Error::Lost`] when the connection breaks. The
    /// session's orderly end is `Ok`.
    pub fn serve_filter(
        &self,
        name: &str,
        mut merge: impl FnMut(Parts) -> Result<Vec<u8>, Failure>,
    ) -> Result<(), Error> {
        self.offer_filter(name)?;
        loop {
            let patience = Patience::new("wait for parts", Duration::MAX);
            let job = match self.dialogue.until(patience, |state| state.next_job(name).map(Ok)) {
                Err(Error::Lost(None)) => return Ok(()),
                job => job?,
            };
            let operation = job.operation;
            let merged = merge(job.parts).and_then(|bytes| {
                if bytes.len() as u64 <= MAX_PART_BYTES {
                    return Ok(bytes);
                }
                Err(Failure::new(
                    Kind::Invalid,
                    format!("merge parts to {} bytes: that is too long", bytes.len()),
                ))
            });
            match merged {
                Ok(bytes) => chunks_of(&bytes).try_for_each(|(bytes, last)| {
                    self.say(FromDaemon::Merged { operation, bytes: Ok(bytes), last }, WORD)
                })?,
                Err(why) => {
                    let merged = FromDaemon::Merged { operation, bytes: Err(why), last: true };
                    self.say(merged, WORD)?;
                }
            }
        }
    }
}
