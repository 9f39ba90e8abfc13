//! `gantry submit`.

use std::sync::Arc;

use gantry_frontend::Event;

use super::doubt_of;
use super::interrupts::Interrupts;
use super::launch::frontend;
use super::stay::{Plan, stay};
use crate::args::Submit;
use crate::exit::{Fault, Outcome};
use crate::view::Screen;

pub(super) async fn run(args: Submit, json: bool) -> Outcome {
    let screen = Screen::terminal(args.stay.talk(json), false).map_err(|e| Fault::io("cannot start", &e))?;
    let screen = Arc::new(screen);
    let outcome = submit(args, Arc::clone(&screen)).await;
    screen.finish(outcome).await
}

/// Submits, attaches when there are ranks, and stays until they end or Ctrl-C detaches.
pub(super) async fn submit(args: Submit, screen: Arc<Screen>) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let mut plan = Plan::new(args.daemons, args.stay.timeout)?;
    plan.attached = true;
    let frontend = frontend(args.wlm, &args.stay);
    if let Some(doubt) = doubt_of(&frontend.choice()?) {
        screen.note(&doubt);
    }
    let mut batch = tokio::select! {
        batch = frontend.submit(args.batch_args, args.stay.timeout) => batch?,
        interrupt = interrupts.next() => {
            screen.note("cancelling the submission");
            return Ok(interrupt.code(false));
        }
    };
    if let Some(timeout) = args.queue_timeout {
        batch = batch.queue_timeout(timeout);
    }
    let job = batch.job().to_owned();
    screen.event(&Event::Submitted { job: job.clone(), wlm: batch.wlm().to_owned() });
    screen.note(&format!("submitted job {job}"));
    let news = {
        let (screen, job) = (Arc::clone(&screen), job.clone());
        let mut last = String::new();
        move |message: &str| {
            if message != last {
                message.clone_into(&mut last);
                screen.event(&Event::Waiting { job: job.clone(), message: message.to_owned() });
                screen.note(message);
            }
        }
    };
    let waited = {
        // Dropping it cancels the job.
        let attached = batch.attach(args.stay.timeout, news);
        tokio::pin!(attached);
        tokio::select! {
            app = &mut attached => Ok(app?),
            interrupt = interrupts.next() => Err(interrupt),
        }
    };
    match waited {
        Ok(app) => stay(app, plan, screen, &mut interrupts).await,
        Err(interrupt) => {
            screen.note(&format!("cancelling job {job}"));
            Ok(interrupt.code(false))
        }
    }
}
