//! Finds out why an app without a launcher of ours has ended.

use std::time::Duration;

use tokio::time::Instant;

use super::asking::ask;
use super::core::Core;
use super::state::Happening;
use crate::error::{Error, WlmError};

/// How long to wait for the WLM to say why it ended an app. It says so only when every process is gone, which takes a
/// while after a signal.
const CAUSE_PATIENCE: Duration = Duration::from_secs(15);

/// How often to ask the WLM meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Asks the WLM why an app without a launcher of ours has ended.
pub(super) async fn tell_cause(core: &Core) {
    let Some(ended) = core.state().needs_cause() else { return };
    let Some(jobs) = core.wlm.capabilities().jobs else { return };
    let until = Instant::now() + CAUSE_PATIENCE;
    loop {
        let asked = ended.clone();
        let asking = ask(move |host| jobs.find_cause(&asked, host));
        match tokio::time::timeout_at(until, asking).await {
            Ok(Ok(Some(cause))) => return core.happened(Happening::EndedBy(cause)),
            Ok(Err(Error::Wlm(WlmError(error))))
                if error.is_temporary() && Instant::now() + ASK_EVERY < until =>
            {
                tokio::time::sleep(ASK_EVERY).await;
            }
            // The app ended by itself, or the cause is unknown.
            _ => return,
        }
    }
}
