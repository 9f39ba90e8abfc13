//! `gantry launch`.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;

use gantry_frontend::{Config, Event, Frontend, HoldMethod, Input, LaunchRequest, OutputTo, QueueNews};

use super::doubt_of;
use super::input::{self, Enter};
use super::queue::each_change;
use super::stay::{Plan, stay};
use crate::args::{Launch, Stay};
use crate::exit::{Fault, Outcome};
use crate::starter::Debugger;
use crate::view::Screen;

pub(super) async fn run(mut args: Launch, debugger: Option<Debugger>, json: bool) -> Outcome {
    args.label = wants_labels(&args)?;
    let (stdin, enter) = input::choose(args.input.as_deref(), args.hold)?;
    let failed = |e| Fault::io("cannot pass output on", &e);
    // On a terminal, output must make room for the table.
    let on_terminal = io::stdout().is_terminal() || io::stderr().is_terminal();
    let output = match json || args.label || on_terminal {
        true => OutputTo::Stream,
        false => pass_through().map_err(failed)?,
    };
    let screen = Arc::new(Screen::terminal(args.stay.talk(json), args.label).map_err(failed)?);
    let outcome =
        launch(args, Surroundings { stdin, enter, output, debugger, screen: Arc::clone(&screen) }).await;
    screen.finish(outcome).await
}

/// Whether ranks' output is labelled: by gantry's option, or by one of `mpiexec` before the program.
pub(super) fn wants_labels(args: &Launch) -> Result<bool, Fault> {
    let mut request = LaunchRequest::new(args.launcher_args.clone());
    if let Some(launcher) = &args.launcher {
        request = request.launcher(launcher);
    }
    let frontend = Frontend::new(Config { wlm: args.wlm.clone(), ..Config::default() });
    Ok(args.label || frontend.wants_labels(&request)?)
}

fn pass_through() -> io::Result<OutputTo> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(OutputTo::Fds { stdout, stderr: io::stderr().as_fd().try_clone_to_owned()? })
}

/// The process around a launch: its screen and its input.
pub(super) struct Surroundings {
    pub(super) stdin: Input,
    pub(super) enter: Option<Enter>,
    pub(super) output: OutputTo,
    pub(super) debugger: Option<Debugger>,
    pub(super) screen: Arc<Screen>,
}

/// Launches and stays until the app ends.
pub(super) async fn launch(args: Launch, around: Surroundings) -> Outcome {
    let mut plan = Plan::new(args.daemons, args.stay.timeout)?;
    plan.hold = args.hold || args.hold_for_daemons || args.hold_at.is_some();
    plan.for_daemons = args.hold_for_daemons;
    plan.enter = around.enter;
    let mut interrupts = plan.take_debugger(around.debugger, !args.hold && !args.hold_for_daemons)?;
    plan.linger = args.linger;
    // Daemons start before the app begins.
    let hold = plan.hold || !plan.daemons.is_empty();
    let mut request =
        LaunchRequest::new(args.launcher_args).hold(hold).stdin(around.stdin).output(around.output);
    if let Some(pattern) = args.hold_at {
        request = request.hold_at(pattern);
    }
    if let Some(launcher) = args.launcher {
        request = request.launcher(launcher);
    }
    request = request.hold_method(match args.hold_method.as_deref() {
        Some("mpir") => HoldMethod::Mpir,
        Some("mpir-stop") => HoldMethod::MpirStop,
        Some(_) => HoldMethod::Exec,
        None => HoldMethod::Detect,
    });
    request = request.linger(args.linger);
    if let Some(timeout) = args.queue_timeout {
        request = request.queue_timeout(timeout);
    }
    for variable in &args.env {
        request = request.env_string(variable)?;
    }
    if let Some(cwd) = args.cwd {
        request = request.cwd(cwd);
    }
    let stage_base = args.stay.stage_dir.clone();
    let config = args.hosts.config(args.wlm.as_ref(), Vec::new());
    let frontend = Frontend::new(Config { stage_base, ..config });
    let choice = frontend.choice_for(&request)?;
    if let Some(doubt) = doubt_of(&choice) {
        around.screen.note(&doubt);
    }
    tracing::debug!(hold, "launching");
    let news = tell_job(Arc::clone(&around.screen), choice.wlm);
    let app = tokio::select! {
        app = frontend.launch_with_news(request, news, args.stay.timeout) => app?,
        interrupt = interrupts.next() => return Ok(interrupt.code(false)),
    };
    stay(app, plan, around.screen, &mut interrupts).await
}

/// Reports why a queued job waits.
fn tell_job(screen: Arc<Screen>, wlm: &'static str) -> impl FnMut(&QueueNews) + Send {
    each_change(move |news, is_submitted| {
        let QueueNews { job, message, .. } = news;
        if is_submitted {
            screen.event(&Event::Submitted { job: job.clone(), wlm: wlm.to_owned() });
            screen.note(&format!("submitted job {job}"));
        }
        screen.event(&Event::Waiting { job: job.clone(), message: message.clone() });
        screen.note(message);
    })
}

pub(super) fn frontend(wlm: Option<String>, stay: &Stay) -> Frontend {
    Frontend::new(Config { wlm, stage_base: stay.stage_dir.clone(), ..Config::default() })
}
