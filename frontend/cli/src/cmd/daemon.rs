//! `gantry daemon`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_frontend::control::{Client, DaemonOrder, RemoteEvents, Text};
use gantry_frontend::{Event, request::parse_env_string};
use gantry_shared::search::folders;
use gantry_types::host_set::parse_host_list;
use gantry_types::id::{AppId, DaemonId};
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use nix::unistd::{AccessFlags, access};

use super::{absolute, reach, say};
use crate::args::Daemon;
use crate::exit::{self, Fault, Outcome};
use crate::view::{self, Page, Screen, Talk};

pub(super) async fn run(args: Daemon, json: bool) -> Outcome {
    let order = build_order(&args)?;
    let client = reach(Some(&args.app)).await?;
    let (app, timeout) = (client.app(), args.patience.timeout);
    tracing::debug!(%app, "starting a daemon");
    let talk = if json { Talk::Json } else { Talk::All };
    let screen = Screen::terminal(talk, true).map_err(|e| Fault::io("cannot pass output on", &e))?;
    if args.background {
        let started = start(client, order, timeout, &screen).await;
        let code = screen.finish(Ok(exit::SUCCESS)).await?;
        // The daemon continues without the connection.
        let (daemon, _events) = started?;
        tell_started(app, daemon, &args, json).await?;
        return Ok(code);
    }
    // The daemon ends with this connection. So a signal that ends this process ends the daemon, too.
    let outcome = follow(client, order, timeout, &screen).await;
    screen.flush();
    screen.finish(outcome).await
}

/// Starts the daemon and shows the progress of its files meanwhile.
async fn start(
    client: Client,
    order: DaemonOrder,
    timeout: Duration,
    screen: &Screen,
) -> Result<(DaemonId, RemoteEvents), Fault> {
    let sending = screen.watch_sending();
    let started = client.daemon(order, timeout, |event| {
        match &event {
            Event::Staging(staging) => sending.show(Some(staging.clone())),
            Event::Staged(end) => {
                sending.show(None);
                screen.note(&view::describe_end(end));
            }
            _ => {}
        }
        screen.event(&event);
    });
    let started = started.await;
    // The transfer may have ended before it was complete.
    sending.show(None);
    let (daemon, _left_out, events) = started?;
    Ok((daemon, events))
}

/// Starts the daemon and prints its output until it has ended on all nodes.
async fn follow(client: Client, order: DaemonOrder, timeout: Duration, screen: &Screen) -> Outcome {
    let (_, mut events) = start(client, order, timeout, screen).await?;
    let mut code = exit::SUCCESS;
    while let Some(event) = events.next().await {
        match event? {
            Event::Output(output) => screen.output(&output).await,
            event => {
                if let Event::DaemonExited { status, .. } = &event {
                    code = code.max(exit::of_ending(status));
                }
                screen.event(&event);
            }
        }
    }
    Ok(code)
}

async fn tell_started(app: AppId, daemon: DaemonId, args: &Daemon, json: bool) -> Result<(), Fault> {
    if !json {
        return say(&Page::line(daemon));
    }
    let info = reach(Some(app.as_str())).await?.info(args.patience.timeout).await?;
    for it in info.daemons.into_iter().filter(|it| it.daemon == daemon) {
        say(&Page::json(&Event::DaemonStarted { app: info.app, daemon, host: it.host, pid: it.pid }))?;
    }
    Ok(())
}

/// Builds the request with absolute paths: the app's frontend has another directory and another PATH.
fn build_order(args: &Daemon) -> Result<DaemonOrder, Fault> {
    let (program, rest) =
        args.command.split_first().ok_or_else(|| Fault::invalid("no command", "name a program"))?;
    let env = args.env.iter().map(|variable| {
        let (name, value) = parse_env_string(variable)?;
        Ok((name.into(), value.into()))
    });
    let hosts = args.nodes.as_deref().map(|list| {
        parse_host_list(list)
            .map_err(|e| Fault::invalid(format!("bad list of nodes '{list}': {e}"), "write n[1-4],login"))
    });
    Ok(DaemonOrder {
        program: find_program(program)?,
        args: rest.iter().map(Into::into).collect(),
        env: env.collect::<Result<_, Fault>>()?,
        hosts: hosts.transpose()?,
        files: all_absolute(&args.files.file)?,
        binaries: args
            .files
            .bin
            .iter()
            .map(|path| find_program(path.as_os_str()))
            .collect::<Result<_, _>>()?,
        libraries: args.files.lib.iter().map(find_library).collect::<Result<_, _>>()?,
        directories: all_absolute(&args.files.dir)?,
        without_dependencies: args.files.no_deps,
        allow_missing: args.files.allow_missing,
        leave_out: false,
        progress: true,
        forward: !args.background,
    })
}

fn all_absolute(paths: &[PathBuf]) -> Result<Vec<Text>, Fault> {
    paths.iter().map(|path| Ok(absolute(path)?.into())).collect()
}

/// A library by its absolute path. The frontend searches for a bare name.
fn find_library(library: &PathBuf) -> Result<Text, Fault> {
    match library.components().count() > 1 || library.is_absolute() {
        true => Ok(absolute(library)?.into()),
        false => Ok(library.into()),
    }
}

/// A program by its absolute path; a bare name is looked up in PATH. A missing program stays as it is: the frontend
/// refuses it with all reasons.
fn find_program(program: &OsStr) -> Result<Text, Fault> {
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return Ok(absolute(path)?.into());
    }
    let search = Machine.env("PATH").unwrap_or_default();
    let found = folders(&search)
        .map(|folder| folder.join(path))
        .find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok());
    Ok(match found {
        Some(found) => absolute(&found)?.into(),
        None => program.into(),
    })
}
