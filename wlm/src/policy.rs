//! What becomes of a launch, or an attachment, when some of its hosts cannot be reached.

use gantry_types::error::Failure;
use tokio::sync::mpsc::UnboundedSender;

/// Receives the hosts that the launch does without. A missing receiver is no error.
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
            // The receiver is gone, and with it the launch.
            drop(to.send((host, why)));
        }
    }
}
