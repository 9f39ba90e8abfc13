//! `gantry gdb`: gets the ranks, carries out the typed commands, and leaves the ranks in the right state.

mod debugger;
mod prompt;
mod show;

use std::sync::Arc;

use gantry_debug::input::{Input, Line};
use gantry_frontend::event::Event;
use gantry_frontend::{App, Frontend, LaunchRequest, OutputTo};
use gantry_gdb::DAEMON;
use gantry_types::error::Kind;
use tokio::task::JoinHandle;

use self::debugger::{Debugger, Done, complain};
use self::prompt::{Prompt, Typed};
use super::interrupts::{Interrupt, Interrupts};
use super::look::Owner;
use super::queue::note_changes;
use super::stay::describe_mpi_failure;
use super::{END, doubt_of};
use crate::args::Gdb;
use crate::exit::{self, Fault, Outcome, text_of};
use crate::stack::daemons::Silent;
use crate::view::{self, Screen, Talk};

/// The maximum nesting depth of scripts.
const MAX_SCRIPTS: usize = 16;

pub(super) async fn run(args: Gdb, json: bool) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let talk = if json { Talk::Json } else { Talk::Quiet };
    let screen = Arc::new(Screen::terminal(talk, true).map_err(|e| Fault::io("cannot start", &e))?);
    let owner = tokio::select! {
        owner = reach(&args) => owner?,
        // The guard detaches from all ranks that were attached by then.
        interrupt = interrupts.next() => return Ok(interrupt.code(false)),
    };
    let printing = owner.app().and_then(|app| print_output(app, Arc::clone(&screen)));
    let done = debug(&owner, &args, json, &mut interrupts).await;
    let ending = async {
        let closed = match owner.into_app() {
            Some(app) => app.close(END).await.map_err(Fault::from),
            None => Ok(()),
        };
        if let Some(printing) = printing {
            // All output has arrived when the app is closed. A foreign process may keep the pipe open for ever.
            drop(tokio::time::timeout(END, printing).await);
        }
        closed
    };
    let closed = tokio::select! {
        closed = ending => closed,
        // The guard and the agents finish the work.
        _ = interrupts.next() => {
            screen.hurry();
            Ok(())
        }
    };
    // Report the first failure, not the one of closing.
    screen.finish(done.and_then(|code| closed.map(|()| code))).await
}

async fn reach(args: &Gdb) -> Result<Owner, Fault> {
    let reach_args = if args.target.is_some() { args.rest.clone() } else { Vec::new() };
    let frontend = Frontend::new(args.hosts.config(args.wlm.as_ref(), reach_args));
    match &args.target {
        Some(target) => Owner::reach(&frontend, target, None, args.timeout, |doubt| view::note(&doubt)).await,
        None => {
            let mut request = LaunchRequest::new(args.rest.clone()).hold(true).output(OutputTo::Stream);
            if let Some(timeout) = args.queue_timeout {
                request = request.queue_timeout(timeout);
            }
            if let Some(doubt) = doubt_of(&frontend.choice_for(&request)?) {
                view::note(&doubt);
            }
            let app = frontend.launch_with_news(request, note_changes(), args.timeout).await?;
            Ok(Owner::own(app, args.timeout))
        }
    }
}

/// Prints the output of ranks, labelled.
fn print_output(app: &App, screen: Arc<Screen>) -> Option<JoinHandle<()>> {
    let mut stream = app.take_output()?;
    Some(tokio::spawn(async move {
        while let Some(output) = stream.next().await {
            screen.output(&output).await;
        }
    }))
}

/// Tells a failure of MPI, if there is one, until the ranks have ended.
fn tell_failure(app: &App, json: bool) -> JoinHandle<()> {
    let mut events = app.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Event::MpiFailed { message, .. } => drop(complain(&describe_mpi_failure(&message), json)),
                Event::Exited(_) => return,
                _ => {}
            }
        }
    })
}

async fn debug(owner: &Owner, args: &Gdb, json: bool, interrupts: &mut Interrupts) -> Outcome {
    let debugger = tokio::select! {
        debugger = start(owner, args, json) => debugger?,
        // No rank has a gdb yet. The daemons end with their session.
        interrupt = interrupts.next() => return Ok(interrupt.code(false)),
    };
    // The owner of an app that ran before tells its failures.
    let launched = owner.app().filter(|_| args.target.is_none());
    let mut telling = launched.map(|app| tell_failure(app, json));
    let mut talking = Talking { debugger, interrupts, is_batch: args.batch, has_failed: false };
    let done = talking.talk(args).await;
    if let Some(telling) = &mut telling {
        if talking.debugger.has_ended() {
            // The reason may come after the ranks' end.
            tokio::select! {
                ended = tokio::time::timeout(END, &mut *telling) => drop(ended),
                _ = talking.interrupts.next() => {}
            }
        }
        // Ranks that are killed because the user leaves are no failure.
        telling.abort();
    }
    // A launched app ends as it is.
    if args.target.is_some() {
        tokio::select! {
            () = talking.debugger.leave() => {}
            // The end of the daemons does the same.
            _ = talking.interrupts.next() => {}
        }
    }
    done
}

async fn start(owner: &Owner, args: &Gdb, json: bool) -> Result<Debugger, Fault> {
    let hand = owner.hand();
    let ranks = hand.info().await?.ranks.iter().map(|rank| rank.rank).collect();
    let daemons = owner.start_daemons(DAEMON, args.gdb.clone(), Silent::Fail, args.timeout).await?;
    let mut debugger = Debugger::new(hand, daemons, ranks, args, json);
    debugger.look().await?;
    if let Some(ranks) = &args.ranks {
        debugger.focus_on(&ranks.to_string())?;
    }
    Ok(debugger)
}

/// The command loop.
struct Talking<'a> {
    debugger: Debugger,
    interrupts: &'a mut Interrupts,
    is_batch: bool,
    has_failed: bool,
}

impl Talking<'_> {
    /// Runs everything: options, scripts and the prompt.
    async fn talk(&mut self, args: &Gdb) -> Outcome {
        for script in &args.scripts {
            let done = self.follow_script(&script.to_string_lossy(), 0).await;
            if let Some(code) = self.outlive(done)? {
                return Ok(code);
            }
        }
        for command in &args.commands {
            let done = self.follow(command, 0).await;
            if let Some(code) = self.outlive(done)? {
                return Ok(code);
            }
        }
        match args.batch {
            true => Ok(if self.has_failed { exit::UNFIT } else { exit::SUCCESS }),
            false => self.prompt().await,
        }
    }

    /// Executes the commands of a file. Some: the session ends, with that code.
    async fn follow_script(&mut self, path: &str, depth: usize) -> Result<Option<u8>, Fault> {
        if depth >= MAX_SCRIPTS {
            return Err(Fault::invalid(
                format!("{path}: scripts call each other"),
                "look for 'script' in it",
            ));
        }
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Fault::io(&format!("cannot read {path}"), &error))?;
        for line in text.lines() {
            if let Some(code) = Box::pin(self.follow(line, depth + 1)).await? {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// Executes a line. Some: the session ends, with that code.
    async fn follow(&mut self, text: &str, depth: usize) -> Result<Option<u8>, Fault> {
        let line = match Line::parse(text) {
            Ok(line) => line,
            Err(bad) => return self.refuse(&bad.to_string()),
        };
        match &line.input {
            Input::Quit => {
                return Ok(Some(if self.has_failed && self.is_batch { exit::UNFIT } else { exit::SUCCESS }));
            }
            Input::Script(path) => return self.follow_script(path, depth).await,
            _ => {}
        }
        match self.debugger.carry_out(text, &line, self.interrupts).await? {
            Done::Well => {}
            Done::Badly => self.has_failed = true,
            Done::Refused(why) => return self.refuse(&why),
            Done::Interrupted(Interrupt::End(number)) => return Ok(Some(exit::of_signal(number))),
            // The ranks are stopped now. The rest of the script expected something else.
            Done::Interrupted(Interrupt::Ask) if self.is_batch => {
                return Ok(Some(exit::of_signal(libc::SIGINT)));
            }
            Done::Interrupted(Interrupt::Ask) => {}
        }
        Ok(None)
    }

    /// A failure ends the line that was typed. It ends the session in a batch, and when the ranks are out of reach.
    fn outlive(&mut self, done: Result<Option<u8>, Fault>) -> Result<Option<u8>, Fault> {
        match done {
            Err(fault) if !self.is_batch && !matches!(fault.0.kind(), Kind::Gone | Kind::Lost) => {
                self.refuse(&text_of(&fault))
            }
            done => done,
        }
    }

    fn refuse(&mut self, why: &str) -> Result<Option<u8>, Fault> {
        self.has_failed = true;
        self.debugger.complain(why)?;
        Ok(None)
    }

    /// Executes typed lines until the user quits.
    async fn prompt(&mut self) -> Outcome {
        let mut prompt = Prompt::open().map_err(|error| Fault::io("cannot use the terminal", &error))?;
        let mut end = Box::pin(self.debugger.hand().clone().end());
        let mut has_ended = false;
        loop {
            prompt.ask(self.debugger.prompt());
            let typed = loop {
                tokio::select! {
                    typed = prompt.typed() => break typed,
                    ended = &mut end, if !has_ended => {
                        has_ended = true;
                        ended?;
                        // The daemons still run for a moment. Only they know how the ranks have ended.
                        drop(self.debugger.look().await);
                        self.debugger.complain("all ranks have ended; quit leaves")?;
                    }
                    interrupt = self.interrupts.next() => if let Interrupt::End(number) = interrupt {
                        return Ok(exit::of_signal(number));
                    },
                }
            };
            match typed {
                Typed::Line(line) => {
                    let done = self.follow(&line, 0).await;
                    if let Some(code) = self.outlive(done)? {
                        return Ok(code);
                    }
                }
                Typed::Nothing => {}
                Typed::Garbled => self.debugger.complain("the line is not UTF-8")?,
                Typed::End => return Ok(exit::SUCCESS),
                Typed::Failed(error) => return Err(Fault::io("cannot read commands", &error)),
            }
        }
    }
}
