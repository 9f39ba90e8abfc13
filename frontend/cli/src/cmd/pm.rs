//! `gantry pm`.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use gantry_frontend::procgroup::ProcessManager;
use gantry_frontend::procgroup::serve::{Service, answer};
use gantry_frontend::procgroup::xml::MAX_BYTES;

use super::interrupts::Interrupts;
use super::say;
use crate::args::Pm;
use crate::exit::{self, Fault, Outcome};
use crate::view::Page;

pub(super) async fn run(args: Pm) -> Outcome {
    let manager = ProcessManager::open(None)?;
    match &args.listen {
        Some(socket) => listen(&manager, socket, args.patience.timeout).await,
        None => answer_one(&manager, args.patience.timeout).await,
    }
}

async fn answer_one(manager: &ProcessManager, timeout: Duration) -> Outcome {
    let mut message = Vec::new();
    // Read one byte beyond the limit, so that the parser can refuse a message that is too long.
    let read = io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut message);
    read.map_err(|e| Fault::io("cannot read standard input", &e))?;
    let text = answer(manager, &message, timeout).await;
    say(&Page::data(String::from_utf8_lossy(&text).into_owned()))?;
    Ok(exit::SUCCESS)
}

async fn listen(manager: &ProcessManager, socket: &Path, timeout: Duration) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let mut service = Service::bind(socket).await?;
    tokio::select! {
        () = service.run(manager, timeout) => {}
        interrupt = interrupts.next() => tracing::debug!(?interrupt, "asked to end"),
    }
    Ok(exit::SUCCESS)
}
