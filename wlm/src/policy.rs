//! How a launch or an attachment handles hosts that cannot be reached.

use gantry_types::error::Failure;
use tokio::sync::mpsc::UnboundedSender;

/// Receives the hosts that the launch continues without. A missing receiver is no error.
#[derive(Debug, Clone, Default)]
pub struct LeftOut(Option<UnboundedSender<(String, Failure)>>);

impl LeftOut {
    /// `to` gets each host, with the reason.
    #[must_use]
    pub fn new(to: UnboundedSender<(String, Failure)>) -> Self {
        Self(Some(to))
    }

    /// Reports that `host` has no agent, and will not get one.
    pub fn tell(&self, host: String, why: Failure) {
        if let Some(to) = &self.0 {
            // The launch has ended if the receiver has gone.
            drop(to.send((host, why)));
        }
    }
}
