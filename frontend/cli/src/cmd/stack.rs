//! `gantry stack`.

use std::os::fd::AsFd;
use std::path::Path;

use gantry_frontend::{Frontend, LaunchRequest, OutputTo};
use gantry_stack::orders::Orders;

use super::interrupts::Interrupts;
use super::look::{Looking, failure_of_look};
use super::notes::Notes;
use super::queue::note_changes;
use super::{close, doubt_of, say};
use crate::args::Stack;
use crate::exit::{self, Fault, Outcome};
use crate::stack::report::{Findings, Report};
use crate::stack::{dot, folded, html, svg, text};
use crate::view::{self, Page};

pub(super) async fn run(args: Stack, json: bool) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let orders = Orders {
        samples: args.samples,
        every: args.every,
        threads: args.look.threads,
        ranks: args.look.ranks.clone(),
    };
    match &args.target {
        Some(target) => {
            let looking = Looking::at(target, &args.rest, &orders, &args.look);
            let looking = tokio::select! {
                looking = looking => looking?,
                // The guard detaches from all that was attached by then.
                interrupt = interrupts.next() => return Ok(interrupt.code(false)),
            };
            look(looking, &orders, &args, json, &mut interrupts).await
        }
        None => launch(&args, &orders, json, &mut interrupts).await,
    }
}

/// Looks once, prints the result, and detaches.
async fn look(
    mut looking: Looking,
    orders: &Orders,
    args: &Stack,
    json: bool,
    interrupts: &mut Interrupts,
) -> Outcome {
    let shown = tokio::select! {
        found = looking.findings(orders, args.full) => {
            found.map_err(failure_of_look).and_then(|found| show(&found, args, json))
        }
        interrupt = interrupts.next() => Ok(interrupt.code(false)),
    };
    looking.close(shown, interrupts).await
}

/// Launches, looks, and stays until the end.
async fn launch(args: &Stack, orders: &Orders, json: bool, interrupts: &mut Interrupts) -> Outcome {
    let descriptor = |error| Fault::io("cannot pass output on", &error);
    let errors = std::io::stderr().as_fd().try_clone_to_owned().map_err(descriptor)?;
    let stdout = match json {
        true => errors.try_clone(),
        false => std::io::stdout().as_fd().try_clone_to_owned(),
    };
    let output = OutputTo::Fds { stdout: stdout.map_err(descriptor)?, stderr: errors };
    let mut request = LaunchRequest::new(args.rest.clone()).output(output);
    if let Some(timeout) = args.queue_timeout {
        request = request.queue_timeout(timeout);
    }
    let frontend = Frontend::new(args.look.hosts.config(args.look.wlm.as_ref(), Vec::new()));
    if let Some(doubt) = doubt_of(&frontend.choice_for(&request)?) {
        view::note(&doubt);
    }
    let app = tokio::select! {
        app = frontend.launch_with_news(request, note_changes(), args.look.timeout) => app?,
        interrupt = interrupts.next() => return Ok(interrupt.code(false)),
    };
    let handle = (*app).clone();
    let stopped = tokio::select! {
        () = tokio::time::sleep(args.after) => None,
        _ended = handle.wait() => None,
        interrupt = interrupts.next() => Some(interrupt),
    };
    if let Some(interrupt) = stopped {
        close(app, interrupts).await?;
        return Ok(interrupt.code(false));
    }
    let mut looking = tokio::select! {
        looking = Looking::at_app(app, orders, args.look.timeout) => looking?,
        // The guard ends the ranks.
        interrupt = interrupts.next() => return Ok(interrupt.code(false)),
    };
    let stay = async {
        show(&looking.findings(orders, args.full).await?, args, json)?;
        Ok::<u8, Fault>(exit::of_app(handle.wait().await?.code))
    };
    let done = tokio::select! {
        done = stay => done,
        interrupt = interrupts.next() => Ok(interrupt.code(false)),
    };
    looking.close(done, interrupts).await
}

/// Prints the findings and writes the requested files.
fn show(found: &Findings, args: &Stack, json: bool) -> Outcome {
    let page = match json {
        true => Page::json(&Report::new(found)),
        false => text::build_page(found, view::colours(&std::io::stdout())),
    };
    say(&page)?;
    if !json {
        Notes::default().gaps(found);
    }
    write(args.html.as_deref(), || html::write(found))?;
    write(args.svg.as_deref(), || svg::write(found))?;
    write(args.dot.as_deref(), || dot::write(found))?;
    write(args.flame.as_deref(), || folded::write(found))?;
    Ok(exit::SUCCESS)
}

/// Writes a file if the user asked for it.
fn write(path: Option<&Path>, build: impl FnOnce() -> String) -> Result<(), Fault> {
    path.map_or(Ok(()), |path| {
        let written = std::fs::write(path, build());
        written.map_err(|error| Fault::io(&format!("cannot write {}", path.display()), &error))
    })
}
