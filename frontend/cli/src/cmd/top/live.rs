//! The screen of `gantry top`: passes keys and news to the model, and carries out the model's actions.

use std::io::stdout;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_frontend::info::{AppInfo, AppState};
use gantry_shared::deadline::{LONGEST, bounded};
use gantry_stack::orders::Orders;
use gantry_types::error::{Failure, Kind};
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use super::super::child;
use super::super::interrupts::{Interrupt, Interrupts};
use super::super::look::{Hand, Loads, Looking};
use super::super::starts::{Starts, not_started};
use super::taking::{figures_of, take};
use crate::args::Top;
use crate::exit::{self, Fault, Outcome};
use crate::stack::html;
use crate::stack::report::Findings;
use crate::top::canvas::Canvas;
use crate::top::draw::{draw, follow_cursors};
use crate::top::keyboard::{Keyboard, Typed};
use crate::top::model::{Action, Model};

/// The timeout for pending work when the user leaves.
const LEAVING: Duration = Duration::from_secs(2);

/// A request to the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Loads,
    Stacks,
}

/// Takes requests. One pending request of each kind is enough, so a second one is dropped.
#[derive(Clone)]
struct Asks {
    loads: mpsc::Sender<()>,
    stacks: mpsc::Sender<()>,
}

/// The pending requests.
struct Asked {
    loads: mpsc::Receiver<()>,
    stacks: mpsc::Receiver<()>,
}

impl Asks {
    fn new() -> (Self, Asked) {
        let (loads, asked_loads) = mpsc::channel(1);
        let (stacks, asked_stacks) = mpsc::channel(1);
        (Self { loads, stacks }, Asked { loads: asked_loads, stacks: asked_stacks })
    }

    fn ask(&self, ask: Ask) {
        let queue = match ask {
            Ask::Loads => &self.loads,
            Ask::Stacks => &self.stacks,
        };
        queue.try_send(()).unwrap_or_default();
    }
}

impl Asked {
    /// Waits for a request. `None`: all [`Asks`] are dropped.
    async fn next(&mut self) -> Option<Ask> {
        tokio::select! {
            Some(()) = self.stacks.recv() => Some(Ask::Stacks),
            Some(()) = self.loads.recv() => Some(Ask::Loads),
            else => None,
        }
    }
}

/// The result of a request.
enum News {
    Loads(Loads, Box<AppInfo>),
    Found(Findings),
    /// A message for the user.
    Said(String),
    /// New daemons cannot start. Those that run go on.
    NotStarted(Failure),
    Failed(Fault),
}

/// The parts of the screen.
struct Live {
    model: Arc<Mutex<Model>>,
    canvas: Canvas,
    keyboard: Keyboard,
    hand: Hand,
    asks: Asks,
    signals: mpsc::Sender<(Signal, RankSet)>,
}

/// Shows the screen until the user leaves it.
pub(super) async fn stay(
    looking: Looking,
    orders: Orders,
    args: &Top,
    interrupts: &mut Interrupts,
) -> (Option<Looking>, Outcome) {
    let hand = looking.hand();
    let title = match hand.info().await {
        Ok(info) => describe(&args.target, &info),
        Err(fault) => return (Some(looking), Err(fault)),
    };
    let model = Arc::new(Mutex::new(Model::new(title, figures_of(&looking, &orders))));
    lock(&model).is_looking = true;
    let painted = Arc::clone(&model);
    let opened = Canvas::open(stdout(), move |area, buffer| {
        let mut model = lock(&painted);
        follow_cursors(&mut model, area);
        draw(&model, area, buffer);
    });
    let opened = opened.and_then(|canvas| Ok((canvas, Keyboard::open()?)));
    let ((canvas, failed), (keyboard, typed)) = match opened {
        Ok(opened) => opened,
        Err(error) => return (Some(looking), Err(Fault::io("cannot use the terminal", &error))),
    };
    let (asks, asked) = Asks::new();
    let (news, told) = mpsc::channel(16);
    let (stop, stopped) = oneshot::channel();
    let worker = tokio::spawn(work(looking, orders, args.every, asked, news.clone(), stopped));
    let (signals, to_be_sent) = mpsc::channel(8);
    let sending = tokio::spawn(send_signals(hand.clone(), to_be_sent, news, asks.clone()));
    let mut live = Live { model, canvas, keyboard, hand, asks, signals };
    let done = live.follow(args, typed, told, failed, interrupts).await;
    drop((live, stop));
    // Send the signals that the user has typed.
    drop(tokio::time::timeout(args.look.timeout, sending).await);
    let looking = tokio::time::timeout(LEAVING, worker).await.ok().and_then(Result::ok);
    (looking, done)
}

/// Asks the nodes, one request after the other. Where a node takes no orders, it starts daemons anew. The first `pause`
/// after a failure of that doubles each time.
async fn work(
    mut looking: Looking,
    orders: Orders,
    pause: Duration,
    mut asked: Asked,
    news: mpsc::Sender<News>,
    stopped: oneshot::Receiver<()>,
) -> Looking {
    let working = async {
        // The first order came with the daemons.
        let mut is_ordered = true;
        let mut ask = Some(Ask::Stacks);
        let mut starts = Starts::new(pause);
        while let Some(mut next) = ask {
            if looking.has_backlog() && starts.is_due(Instant::now()) {
                match looking.start_anew(&orders).await {
                    Ok(()) => {
                        starts.succeeded();
                        (is_ordered, next) = (true, Ask::Stacks);
                    }
                    Err(Fault(failure)) => {
                        starts.failed(Instant::now());
                        if news.send(News::NotStarted(failure)).await.is_err() {
                            break;
                        }
                    }
                }
            }
            let answer = match next {
                Ask::Loads => loads(&mut looking).await,
                Ask::Stacks => {
                    let ordered = if is_ordered { Ok(()) } else { looking.again(&orders).await };
                    is_ordered = false;
                    match ordered {
                        Ok(()) => looking.findings(&orders, false).await.map(News::Found),
                        Err(fault) => Err(fault),
                    }
                }
            };
            if news.send(answer.unwrap_or_else(News::Failed)).await.is_err() {
                break;
            }
            ask = asked.next().await;
        }
    };
    tokio::select! {
        () = working => {}
        // Do not wait for an answer when the user leaves.
        _ = stopped => {}
    }
    looking
}

/// Sends signals in the background, in the order in which they were typed. SIGCONT releases ranks that are held
/// before their first instruction.
async fn send_signals(
    hand: Hand,
    mut signals: mpsc::Receiver<(Signal, RankSet)>,
    news: mpsc::Sender<News>,
    asks: Asks,
) {
    while let Some((signal, ranks)) = signals.recv().await {
        let sent = match (hand.info().await, signal) {
            (Ok(info), Signal::CONT) if info.state == AppState::Held => hand.release().await,
            _ => hand.signal(signal, Some(&ranks)).await,
        };
        if let Err(Fault(failure)) = sent {
            // The screen may have gone.
            drop(news.send(News::Said(failure.message().to_owned())).await);
        }
        asks.ask(Ask::Loads);
    }
}

async fn loads(looking: &mut Looking) -> Result<News, Fault> {
    let loads = looking.loads().await?;
    let info = looking.hand().info().await?;
    Ok(News::Loads(loads, Box::new(info)))
}

impl Live {
    async fn follow(
        &mut self,
        args: &Top,
        mut typed: mpsc::Receiver<Typed>,
        mut told: mpsc::Receiver<News>,
        mut failed: oneshot::Receiver<String>,
        interrupts: &mut Interrupts,
    ) -> Outcome {
        let mut ticks = interval(args.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // Without a pause, the call paths are read for a key only.
        let pause = if args.stacks.is_zero() { LONGEST } else { bounded(args.stacks) };
        let mut looks = interval_at(Instant::now() + bounded(pause), pause);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut end = Box::pin(self.hand.clone().end());
        let mut has_ended = false;
        self.canvas.changed();
        loop {
            let action = tokio::select! {
                typed = typed.recv() => match typed {
                    Some(Typed::Key(key)) => lock(&self.model).take_key(key),
                    Some(Typed::Resized) => None,
                    None => return Err(gone("the terminal")),
                },
                Some(news) = told.recv() => {
                    // The ranks are left alone for the whole time between two looks.
                    if matches!(news, News::Found(_)) {
                        looks.reset();
                    }
                    self.take(news, has_ended);
                    None
                }
                _ = ticks.tick() => {
                    self.ask(Ask::Loads, has_ended);
                    None
                }
                _ = looks.tick() => {
                    self.ask(Ask::Stacks, has_ended);
                    None
                }
                ended = &mut end, if !has_ended => {
                    has_ended = true;
                    ended?;
                    let mut model = lock(&self.model);
                    model.has_ended = true;
                    model.say("the job has ended; q leaves");
                    None
                }
                why = &mut failed => {
                    let why = why.unwrap_or_default();
                    return Err(Fault(Failure::new(Kind::Internal, why)));
                }
                interrupt = interrupts.next() => return Ok(interrupt.code(true)),
            };
            if let Some(code) = self.act(action, has_ended, interrupts).await? {
                return Ok(code);
            }
            self.canvas.changed();
        }
    }

    fn take(&self, news: News, has_ended: bool) {
        let mut model = lock(&self.model);
        match news {
            News::Loads(loads, info) => model.take_figures(|figures| take(figures, loads, &info)),
            News::Found(found) => model.take_found(found),
            News::Said(word) => model.say(&word),
            // A failure is expected once the app has ended.
            News::NotStarted(_) if has_ended => {}
            News::NotStarted(failure) => model.say(&not_started(&failure)),
            News::Failed(_) if has_ended => model.is_looking = false,
            News::Failed(Fault(failure)) => {
                model.is_looking = false;
                model.say(failure.message());
            }
        }
    }

    fn ask(&self, ask: Ask, has_ended: bool) {
        if !has_ended {
            self.asks.ask(ask);
        }
    }

    /// Carries out an action of the model. Some: the end, with its exit code.
    async fn act(
        &mut self,
        action: Option<Action>,
        has_ended: bool,
        interrupts: &mut Interrupts,
    ) -> Result<Option<u8>, Fault> {
        match action {
            None => {}
            Some(Action::Quit) => return Ok(Some(exit::SUCCESS)),
            Some(Action::Look) => {
                lock(&self.model).is_looking = !has_ended;
                self.ask(Ask::Stacks, has_ended);
            }
            Some(Action::Signal(signal, ranks)) => self.send(signal, ranks),
            Some(Action::WriteHtml(path)) => self.write_html(&path),
            Some(Action::Debug(ranks)) => {
                if let Some(Interrupt::End(number)) = self.debug(&ranks, interrupts).await? {
                    return Ok(Some(exit::of_signal(number)));
                }
            }
        }
        Ok(None)
    }

    fn send(&self, signal: Signal, ranks: RankSet) {
        // The queue is bounded: signals that are typed faster than they are sent are dropped, with a message.
        if self.signals.try_send((signal, ranks)).is_err() {
            lock(&self.model).say("the signals before are still on their way");
        }
    }

    fn write_html(&self, path: &Path) {
        let mut model = lock(&self.model);
        let Some(found) = &model.found else { return };
        let said = match std::fs::write(path, html::write(found)) {
            Ok(()) => format!("written to {}", path.display()),
            Err(error) => format!("cannot write {}: {error}", path.display()),
        };
        model.say(&said);
    }

    /// Gives the terminal to the debugger of these ranks. Some: an interrupt that ends the command.
    async fn debug(
        &mut self,
        ranks: &RankSet,
        interrupts: &mut Interrupts,
    ) -> Result<Option<Interrupt>, Fault> {
        let app = self.hand.info().await?.app.to_string();
        let own = Machine.read_link(Path::new("/proc/self/exe"));
        let own = own.map_err(|error| Fault::io("cannot find gantry", &error))?;
        self.keyboard.pause();
        self.canvas.pause();
        let ended =
            child::run_at_terminal(&own, &["gdb", "--ranks", &ranks.to_string(), &app], interrupts).await;
        self.canvas.resume().map_err(|error| Fault::io("cannot use the terminal", &error))?;
        self.keyboard.resume();
        match ended {
            Ok(interrupt) => Ok(interrupt),
            Err(error) => {
                lock(&self.model).say(&format!("cannot run {}: {error}", own.display()));
                Ok(None)
            }
        }
    }
}

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone(what: &str) -> Fault {
    gantry_frontend::Error::Gone { what: what.to_owned() }.into()
}

/// The headline: the app and its programs.
fn describe(target: &str, info: &AppInfo) -> String {
    let job = info.job.as_ref().map(|job| format!(" job {job}")).unwrap_or_default();
    let mut programs: Vec<&str> = info.ranks.iter().map(|rank| rank.exe.as_str()).collect();
    programs.dedup();
    programs.truncate(3);
    format!("gantry top {target}: app {} by {}{job}: {}", info.app, info.wlm, programs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_of_one_kind_never_takes_the_place_of_the_other() {
        let (asks, mut asked) = Asks::new();
        (0..9).for_each(|_| asks.ask(Ask::Loads));
        asks.ask(Ask::Stacks);
        let mut both = [asked.next().await, asked.next().await];
        both.sort_by_key(|ask| *ask == Some(Ask::Stacks));
        assert_eq!(both, [Some(Ask::Loads), Some(Ask::Stacks)]);
        drop(asks);
        assert_eq!(asked.next().await, None);
    }
}
