//! Questions that block, asked within an asynchronous function.

use gantry_types::error::{Failure, Kind};

use crate::host::Host;
use crate::{Error, Result};

/// Asks on a blocking thread. If the caller gives up meanwhile, `host` ends the programs that run for the question.
pub(crate) async fn aside<T: Send + 'static>(
    host: &dyn Host,
    question: impl FnOnce(&dyn Host) -> Result<T> + Send + 'static,
) -> Result<T> {
    let host = host.share();
    let asked = tokio::task::spawn_blocking(move || question(&*host)).await;
    asked.map_err(|error| Error::Failed(Failure::new(Kind::Internal, error.to_string())))?
}
