//! Collects the output of ranks as labelled lines and passes it on in batches.

use std::time::Duration;

use gantry_dap::adapter::Input;
use gantry_frontend::OutputStream;
use gantry_frontend::event::Output;
use gantry_types::output::Stream;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, timeout_at};

use crate::view::label::Labels;

/// How long lines are collected before an editor gets them.
const COLLECTING: Duration = Duration::from_millis(30);

/// The maximum size of a batch.
const MAX_BYTES: usize = 32 << 10;

/// Passes on the output of ranks until all of them have closed it. If the receiver is slow, the ranks wait.
pub(super) async fn pass_on(mut from: OutputStream, to: Sender<Input>) {
    let mut labels = Labels::default();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(output) = from.next().await {
        let until = Instant::now() + COLLECTING;
        take(&mut labels, &output, &mut out, &mut err);
        while out.len() + err.len() < MAX_BYTES {
            match timeout_at(until, from.next()).await {
                Ok(Some(output)) => take(&mut labels, &output, &mut out, &mut err),
                Ok(None) | Err(_) => break,
            }
        }
        if give(&to, &mut out, &mut err).await.is_none() {
            return;
        }
    }
    (out, err) = labels.finish();
    give(&to, &mut out, &mut err).await.unwrap_or_default();
}

fn take(labels: &mut Labels, output: &Output, out: &mut Vec<u8>, err: &mut Vec<u8>) {
    let lines = labels.push(output);
    if output.stream == Stream::Stdout { out } else { err }.extend(lines);
}

/// Sends a batch. `None`: the receiver has gone.
async fn give(to: &Sender<Input>, out: &mut Vec<u8>, err: &mut Vec<u8>) -> Option<()> {
    for (bytes, is_error) in [(out, false), (err, true)] {
        if bytes.is_empty() {
            continue;
        }
        let text = String::from_utf8_lossy(&std::mem::take(bytes)).into_owned();
        to.send(Input::Output { is_error, text }).await.ok()?;
    }
    Some(())
}
