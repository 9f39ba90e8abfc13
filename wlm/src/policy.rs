//! What becomes of a launch, or an attachment, when some of its hosts cannot be reached.

use gantry_types::error::Failure;
use tokio::sync::mpsc::UnboundedSender;

/// Is told of hosts without which it goes on. That nobody listens is fine.
#[derive(Debug, Clone, Default)]
pub struct LeftOut(Option<UnboundedSender<(String, Failure)>>);

impl LeftOut {
    /// Each host, with the reason, is sent there.
    #[must_use]
    pub fn new(to: UnboundedSender<(String, Failure)>) -> Self {
        Self(Some(to))
    }

    /// There is no agent on `host`, and will be none.
    pub fn tell(&self, host: String, why: Failure) {
        if let Some(to) = &self.0 {
            // Nobody listens any more: then nobody goes on.
            drop(to.send((host, why)));
        }
    }
}
