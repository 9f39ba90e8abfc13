//! `gantry pm`.

use std::io::{self, BufRead, Read};
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
        None => answer_input(&manager, args.patience.timeout).await,
    }
}

/// Answers the messages on standard input, which end as on the socket: with a zero byte, or with the input.
async fn answer_input(manager: &ProcessManager, timeout: Duration) -> Outcome {
    let mut input = io::stdin().lock();
    let mut is_first = true;
    loop {
        let mut message = Vec::new();
        // Read one byte beyond the limit, so that the parser can refuse a message that is too long.
        let read = input.by_ref().take(MAX_BYTES as u64 + 1).read_until(0, &mut message);
        read.map_err(|e| Fault::io("cannot read standard input", &e))?;
        let is_last = message.pop_if(|end| *end == 0).is_none();
        if is_last && !is_first && message.trim_ascii().is_empty() {
            return Ok(exit::SUCCESS);
        }
        let mut text = answer(manager, &message, timeout).await;
        if !is_last {
            text.push(0);
        }
        say(&Page::data(String::from_utf8_lossy(&text).into_owned()))?;
        if is_last {
            return Ok(exit::SUCCESS);
        }
        is_first = false;
    }
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
