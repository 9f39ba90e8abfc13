//! Events as a stream.

use tokio::sync::mpsc;

use crate::event::Event;

/// What happens to an app, in order. Each stream is independent of the others; one that is kept and not read keeps what it missed.
#[derive(Debug)]
pub struct Events {
    from: mpsc::UnboundedReceiver<Event>,
}

impl Events {
    pub(crate) fn new(from: mpsc::UnboundedReceiver<Event>) -> Self {
        Self { from }
    }

    /// The next event; none when the app is gone. Waits for it; may be cancelled without loss.
    pub async fn next(&mut self) -> Option<Event> {
        self.from.recv().await
    }
}
