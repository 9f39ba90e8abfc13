//! The debugged app: its start, the orders to its daemons, and its end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gantry_dap::adapter::{Input, Start, Started};
use gantry_dap::args::{Attach, Launch};
use gantry_frontend::event::Exit;
use gantry_frontend::info::AppState;
use gantry_frontend::{Frontend, LaunchRequest, OutputTo, QueueNews};
use gantry_gdb::DAEMON;
use gantry_gdb::order::What;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedSender};

use super::super::gdbs::{Gdbs, Said};
use super::super::look::{Hand, Owner};
use super::super::queue::each_change;
use super::super::{END, doubt_of};
use super::lines::pass_on;
use crate::args::Hosts;
use crate::exit::{Fault, text_of};
use crate::stack::daemons::Silent;

/// The timeout for the start and for each answer of the nodes, unless one is configured.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout for gdbs to detach from their ranks.
const LEAVING: Duration = Duration::from_secs(10);

/// The debugged app.
pub(super) struct Debugged {
    owner: Owner,
    hand: Hand,
    orders: Sender<(What, Duration)>,
    left: Receiver<()>,
    timeout: Duration,
}

/// The result of a start.
pub(super) struct Begun {
    pub(super) debugged: Debugged,
    pub(super) started: Started,
}

/// Launches or attaches, and starts daemons beside the ranks.
pub(super) async fn begin(
    start: Start,
    hosts: Hosts,
    inputs: Sender<Input>,
    news: UnboundedSender<Input>,
) -> Result<Begun, Fault> {
    let common = match &start {
        Start::Launch(Launch { common, .. }) | Start::Attach(Attach { common, .. }) => common.clone(),
    };
    let timeout = common.timeout.map_or(TIMEOUT, Duration::from_secs);
    let note = |doubt| news.send(Input::Note(doubt)).unwrap_or_default();
    let owner = match start {
        Start::Launch(launch) => {
            let request = build_request(launch)?;
            let frontend = Frontend::new(hosts.config(common.wlm.as_ref(), Vec::new()));
            doubt_of(&frontend.choice_for(&request)?).map(note);
            let app = frontend.launch_with_news(request, tell_queue(news.clone()), timeout).await?;
            Owner::own(app, timeout)
        }
        Start::Attach(attach) => {
            let reach_args = attach.reach_args.into_iter().map(OsString::from).collect();
            let target = attach.target.map(|target| target.to_string()).unwrap_or_default();
            let frontend = Frontend::new(hosts.config(common.wlm.as_ref(), reach_args));
            Owner::reach(&frontend, &target, None, timeout, note).await?
        }
    };
    if let Some(output) = owner.app().and_then(|app| app.take_output()) {
        tokio::spawn(pass_on(output, inputs));
    }
    let hand = owner.hand();
    let info = hand.info().await?;
    let ranks: RankSet = info.ranks.iter().map(|rank| rank.rank).collect();
    let gdb = common.gdb.unwrap_or_else(|| "gdb".to_owned());
    let daemons = owner.start_daemons(DAEMON, gdb.into(), Silent::Fail, timeout).await?;
    let mut gdbs = Gdbs::new(daemons, hand.clone(), ranks.clone(), timeout);
    let said = gdbs.order(What::Wait { ranks: RankSet::new() }, Duration::ZERO).await?;
    let answers = said.answers;
    said.news.into_iter().for_each(|note| news.send(Input::Note(note)).unwrap_or_default());
    let program = info.ranks.first().map(|rank| rank.exe.clone()).unwrap_or_default();
    let (orders, waiting) = mpsc::channel(4);
    let (leave, left) = mpsc::channel(1);
    tokio::spawn(obey(gdbs, waiting, news.clone(), leave));
    tokio::spawn(tell_end(hand.clone(), news));
    let debugged = Debugged { owner, hand, orders, left, timeout };
    Ok(Begun { debugged, started: Started { ranks, answers, program } })
}

fn build_request(launch: Launch) -> Result<LaunchRequest, Fault> {
    let words = launch.launcher_args.into_iter().chain(launch.program).chain(launch.args);
    let mut request = LaunchRequest::new(words).hold(true).output(OutputTo::Stream);
    if let Some(launcher) = launch.launcher {
        request = request.launcher(launcher);
    }
    if let Some(cwd) = launch.cwd {
        request = request.cwd(PathBuf::from(cwd));
    }
    if let Some(seconds) = launch.queue_timeout {
        request = request.queue_timeout(Duration::from_secs(seconds));
    }
    for (name, value) in &launch.env {
        request = request.env_string(format!("{name}={value}"))?;
    }
    Ok(request)
}

/// Tells the editor what the launch waits for.
fn tell_queue(inputs: UnboundedSender<Input>) -> impl FnMut(&QueueNews) + Send {
    each_change(move |news, is_submitted| {
        let submitted = if is_submitted { format!("submitted job {}; ", news.job) } else { String::new() };
        inputs.send(Input::Note(format!("{submitted}{}", news.message))).unwrap_or_default();
    })
}

/// Gives orders to the daemons, one after the other.
async fn obey(
    mut gdbs: Gdbs,
    mut orders: Receiver<(What, Duration)>,
    inputs: UnboundedSender<Input>,
    leave: Sender<()>,
) {
    while let Some((what, patience)) = orders.recv().await {
        if what == What::Leave {
            // The end of the session ends a daemon that does not answer.
            drop(gdbs.order(what, patience).await);
            leave.send(()).await.unwrap_or_default();
            continue;
        }
        let answered = match gdbs.order(what, patience).await {
            Ok(Said { answers, news }) => {
                news.into_iter().for_each(|note| inputs.send(Input::Note(note)).unwrap_or_default());
                Ok(answers)
            }
            Err(fault) => Err(text_of(&fault)),
        };
        if inputs.send(Input::Answered(answered)).is_err() {
            return;
        }
    }
}

async fn tell_end(hand: Hand, inputs: UnboundedSender<Input>) {
    let ended = match hand.exit().await {
        Ok(Exit { code, .. }) => Ok(code),
        Err(fault) => Err(text_of(&fault)),
    };
    inputs.send(Input::Ended(ended)).unwrap_or_default();
}

impl Debugged {
    /// Queues an order for the daemons. Its result is an input of the state machine.
    pub(super) async fn order(&self, what: What, patience: Duration) {
        self.orders.send((what, patience)).await.unwrap_or_default();
    }

    /// A handle to act on the app.
    pub(super) fn hand(&self) -> Hand {
        self.hand.clone()
    }

    /// Detaches from the app. The ranks end, or stay as they were.
    pub(super) async fn end(mut self, terminate: bool) -> Result<(), Fault> {
        let is_over = self.hand.info().await.is_ok_and(|info| info.state == AppState::Ended);
        if !terminate && !is_over {
            self.order(What::Leave, LEAVING).await;
            // The end of the session ends gdbs that do not answer in time.
            tokio::time::timeout(LEAVING.saturating_add(self.timeout), self.left.recv())
                .await
                .unwrap_or_default();
        }
        let info = self.hand.info().await;
        let is_attached = info.as_ref().is_ok_and(|info| info.attached);
        if terminate && !is_over && (is_attached || self.owner.app().is_none()) {
            self.hand.signal(Signal::KILL, None).await?;
        }
        match self.owner.into_app() {
            Some(app) if !terminate && !is_attached && !is_over => Ok(app.detach(END).await?),
            Some(app) => Ok(app.close(END).await?),
            None => Ok(()),
        }
    }
}

/// Releases all held ranks, if there are any.
pub(super) async fn release(hand: Hand) -> Result<(), Fault> {
    match hand.info().await?.state {
        AppState::Held => hand.release().await,
        _ => Ok(()),
    }
}
