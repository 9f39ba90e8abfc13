//! Why an app has ended that has no launcher of ours.

use std::time::Duration;

use gantry_wlm::host::Machine;
use tokio::time::Instant;

use super::core::Core;
use super::state::Happening;

/// How long a WLM may take to say why it has ended something: it does so when it has ended all of it, also what takes a signal's time.
const CAUSE_PATIENCE: Duration = Duration::from_secs(15);

/// How often it is asked meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Asks the WLM why something has ended that has no launcher of ours, which would have said so.
pub(super) async fn tell_cause(core: &Core) {
    let Some(ended) = core.state().needs_cause() else { return };
    let Some(jobs) = core.wlm.capabilities().jobs else { return };
    let until = Instant::now() + CAUSE_PATIENCE;
    loop {
        let asked = ended.clone();
        let asking = tokio::task::spawn_blocking(move || jobs.find_cause(&asked, &Machine));
        match tokio::time::timeout_at(until, asking).await {
            Ok(Ok(Ok(Some(cause)))) => return core.happened(Happening::EndedBy(cause)),
            Ok(Ok(Err(gantry_wlm::Error::NotYet { .. }))) if Instant::now() + ASK_EVERY < until => {
                tokio::time::sleep(ASK_EVERY).await;
            }
            // It ended by itself, or nobody knows.
            _ => return,
        }
    }
}
