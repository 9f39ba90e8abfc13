//! `gantry attach`.

use std::sync::Arc;

use gantry_frontend::control::Registry;
use gantry_frontend::{Config, Frontend};

use super::stay::{Plan, stay};
use super::{app_of_process, doubt_about};
use crate::args::Attach;
use crate::exit::{Fault, Outcome};
use crate::starter::Debugger;
use crate::view::Screen;

pub(super) async fn run(args: Attach, debugger: Option<Debugger>, json: bool) -> Outcome {
    let screen = Screen::terminal(args.stay.talk(json), false).map_err(|e| Fault::io("cannot start", &e))?;
    let screen = Arc::new(screen);
    let outcome = attach(args, debugger, Arc::clone(&screen)).await;
    screen.finish(outcome).await
}

/// Attaches, and stays until the processes end or Ctrl-C detaches.
pub(super) async fn attach(args: Attach, debugger: Option<Debugger>, screen: Arc<Screen>) -> Outcome {
    if let Some(app) = app_of_process(&Registry::open(None)?, &args.target).await {
        let message = format!("process {} is gantry, and not a rank or a launcher", args.target);
        return Err(Fault::invalid(message, &format!("its app is {app}: see gantry daemon {app}")));
    }
    let mut plan = Plan::new(args.daemons, args.stay.timeout)?;
    plan.attached = true;
    let mut interrupts = plan.take_debugger(debugger, false)?;
    let stage_base = args.stay.stage_dir.clone();
    let config = args.hosts.config(args.wlm.as_ref(), args.reach_args);
    let frontend = Frontend::new(Config { stage_base, ..config });
    let attached = async {
        match args.wait {
            true => frontend.attach_when_there(&args.target, args.stay.timeout).await,
            false => frontend.attach(&args.target, args.stay.timeout).await,
        }
    };
    let app = tokio::select! {
        app = attached => app?,
        interrupt = interrupts.next() => return Ok(interrupt.code(true)),
    };
    if let Some(doubt) = doubt_about(&args.target, &frontend) {
        screen.note(&doubt);
    }
    stay(app, plan, screen, &mut interrupts).await
}
