//! Manifests: what is to be made available in a session.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::error::{Failure, Kind};
use gantry_shared::wire::message::{
    Answer, Content, DaemonOutput, Entry, Mark, Order, Place, Program, StartDaemon,
};
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tokio::time::Instant;
use walkdir::WalkDir;

use crate::app::core::lock;
use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::request::{DaemonRequest, merge_env};
use crate::session;

/// Most bytes of names in one order; an order must fit into a frame with room to spare.
const ORDER_BYTES: usize = 256 * 1024;

/// What is to be made available in a session. It is filled, and then consumed by [`Manifest::send`] or [`Manifest::exec_daemon`]: what
/// was sent cannot be changed any more.
///
/// Two things of one name are refused here, unless they are the same thing.
#[derive(Debug)]
pub struct Manifest {
    session: Arc<session::Inner>,
    wanted: Vec<Wanted>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    place: Place,
    name: OsString,
    source: PathBuf,
}

impl Manifest {
    pub(crate) fn new(session: Arc<session::Inner>) -> Self {
        Self { session, wanted: Vec::new() }
    }

    /// Adds an executable, to the session's `bin`: a path, or a name that is looked up in PATH on this machine.
    ///
    /// # Errors
    /// It is not found, is no executable file, or clashes with another one of its name.
    pub fn add_binary(&mut self, program: impl AsRef<Path>) -> Result<()> {
        let source = find_program(program.as_ref(), &Machine)?;
        self.add(Place::Bin, &source)
    }

    /// Adds a library, to the session's `lib`, which is first in the daemons' LD_LIBRARY_PATH.
    ///
    /// # Errors
    /// It is no readable file, or clashes with another one of its name.
    pub fn add_library(&mut self, library: impl AsRef<Path>) -> Result<()> {
        self.add(Place::Lib, &readable_file(library.as_ref())?)
    }

    /// Adds a file, to the session's root.
    ///
    /// # Errors
    /// It is no readable file, or clashes with another one of its name.
    pub fn add_file(&mut self, file: impl AsRef<Path>) -> Result<()> {
        self.add(Place::Root, &readable_file(file.as_ref())?)
    }

    /// Adds a directory with all that is below it, to the session's `lib`, under the directory's own name.
    ///
    /// # Errors
    /// It is no readable directory, holds something that is neither file nor directory, or clashes with what is there.
    pub fn add_lib_dir(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let root = absolute(directory.as_ref())?;
        let base = file_name(&root)?.to_owned();
        for found in WalkDir::new(&root).follow_links(true).sort_by_file_name() {
            let found = found.map_err(|e| Error::io(format!("cannot read {}", root.display()), e.into()))?;
            if found.file_type().is_dir() {
                continue;
            }
            let source = readable_file(found.path())?;
            let below = source.strip_prefix(&root).map_err(|e| Error::invalid(e.to_string()))?;
            self.add_as(Place::Lib, Path::new(&base).join(below).into_os_string(), &source)?;
        }
        Ok(())
    }

    /// Makes everything available on every node of the session that can be reached. Waits until it is.
    ///
    /// # Errors
    /// A node cannot have something; what the other nodes got stays in the session.
    pub async fn send(self, deadline: Duration) -> Result<()> {
        self.send_until(Instant::now() + deadline).await
    }

    /// Makes everything available and starts a daemon: one on every node, or on those that the request names. Waits until it runs.
    ///
    /// # Errors
    /// A node cannot have something or cannot start the daemon; nowhere does it run then. Nor does it when the future is dropped before.
    pub async fn exec_daemon(mut self, request: DaemonRequest, deadline: Duration) -> Result<Daemon> {
        let deadline = Instant::now() + deadline;
        let source = find_program(Path::new(&request.program), &Machine)?;
        self.add(Place::Bin, &source)?;
        let name = file_name(&source)?.to_owned();
        let session = Arc::clone(&self.session);
        let nodes = match request.nodes {
            None => session.live_nodes(),
            Some(nodes) if nodes.is_empty() => return Err(Error::invalid("a daemon for no node")),
            Some(nodes) => match nodes.difference(&session.nodes).first() {
                None => nodes,
                Some(node) => {
                    return Err(Error::invalid(format!("the session has no node of number {node}")));
                }
            },
        };
        self.send_until(deadline).await?;
        let order = StartDaemon {
            daemon: session.core.new_daemon(),
            session: session.id,
            program: Program {
                program: name,
                args: request.args,
                env: merge_env(Machine.environment(), &request.env),
                cwd: None,
            },
            output: absolute_log(request.output)?,
            lib_dirs: Vec::new(),
        };
        Daemon::start(&session.core, nodes, order, deadline).await
    }

    async fn send_until(self, deadline: Instant) -> Result<()> {
        self.session.check_alive()?;
        if self.wanted.is_empty() {
            return Ok(());
        }
        let wanted = self.wanted.clone();
        let read =
            tokio::task::spawn_blocking(move || wanted.iter().map(build_entry).collect::<Result<Vec<_>>>());
        let entries = read.await.map_err(|e| Error::Protocol(e.to_string()))??;
        for entries in in_portions(entries) {
            self.provide(entries, deadline).await?;
        }
        let mut sent = lock(&self.session.sent);
        sent.extend(self.wanted.into_iter().map(|wanted| ((wanted.place, wanted.name), wanted.source)));
        Ok(())
    }

    async fn provide(&self, entries: Vec<Entry>, deadline: Instant) -> Result<()> {
        let sources: Vec<PathBuf> = entries.iter().map(|entry| PathBuf::from(&entry.source)).collect();
        let order = Order::Provide { session: self.session.id, entries, libc: None };
        let core = &self.session.core;
        let nodes = self.session.live_nodes();
        for (node, answer) in core.ask(&nodes, order, "making files available", deadline).await? {
            let Answer::Missing(missing) = answer else {
                return Err(Error::Protocol(format!("an agent answered {answer:?} to a manifest")));
            };
            if let Some(source) = missing.first().and_then(|index| sources.get(index.0 as usize)) {
                let message = format!("it does not have {} as it is here", source.display());
                let failure = Failure::new(Kind::NotFound, message)
                    .with_hint("put it at the same path on every node, with the same content");
                return Err(Error::Node { hosts: vec![core.state().host(node)], failure });
            }
        }
        Ok(())
    }

    fn add(&mut self, place: Place, source: &Path) -> Result<()> {
        let name = file_name(source)?.to_owned();
        self.add_as(place, name, source)
    }

    fn add_as(&mut self, place: Place, name: OsString, source: &Path) -> Result<()> {
        self.session.check_alive()?;
        let here =
            self.wanted.iter().find(|it| it.place == place && it.name == name).map(|it| it.source.clone());
        let there = || lock(&self.session.sent).get(&(place, name.clone())).cloned();
        match here.or_else(there) {
            None => {
                self.wanted.push(Wanted { place, name, source: source.to_owned() });
                Ok(())
            }
            Some(known) if known == source => Ok(()),
            Some(known) => Err(Error::Invalid {
                message: format!(
                    "{} and {} have the same name in the session",
                    known.display(),
                    source.display()
                ),
                hint: Some("use two sessions, or rename one of them".to_owned()),
            }),
        }
    }
}

/// Path of a program, with links resolved in its folder only: its own name is the one that was asked for.
fn find_program(program: &Path, host: &dyn Host) -> Result<PathBuf> {
    if program.as_os_str().is_empty() {
        return Err(Error::invalid("an empty program name"));
    }
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return executable_file(&absolute(program)?);
    }
    let path = host.env("PATH").unwrap_or_default();
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        match executable_file(&absolute(&folder.join(program))?) {
            Ok(found) => return Ok(found),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Node {
        hosts: Vec::new(),
        failure: Failure::new(Kind::NotFound, format!("program '{}' is not in PATH", program.display()))
            .with_hint("give its path, or add its folder to PATH"),
    }))
}

fn executable_file(path: &Path) -> Result<PathBuf> {
    let source = readable_file(path)?;
    let mode = std::fs::metadata(&source).map_err(|e| cannot_read(path, e))?.permissions().mode();
    if mode & 0o111 == 0 {
        let denied = io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable");
        return Err(Error::io(format!("cannot use {} as a program", path.display()), denied));
    }
    Ok(source)
}

/// The absolute path of a file that can be read.
fn readable_file(path: &Path) -> Result<PathBuf> {
    let path = absolute(path)?;
    let kind = std::fs::metadata(&path).map_err(|e| cannot_read(&path, e))?.file_type();
    if !kind.is_file() {
        return Err(Error::Invalid {
            message: format!("{} is not a regular file", path.display()),
            hint: Some("name a file; directories go to the session's lib as a whole".to_owned()),
        });
    }
    File::open(&path).map_err(|e| cannot_read(&path, e))?;
    Ok(path)
}

fn cannot_read(path: &Path, error: io::Error) -> Error {
    Error::io(format!("cannot read {}", path.display()), error)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(format!("cannot tell where {} is", path.display()), e))
}

fn absolute_log(output: DaemonOutput) -> Result<DaemonOutput> {
    match output {
        DaemonOutput::Log(directory) => {
            Ok(DaemonOutput::Log(absolute(Path::new(&directory))?.into_os_string()))
        }
        other => Ok(other),
    }
}

fn file_name(path: &Path) -> Result<&OsStr> {
    path.file_name().ok_or_else(|| Error::invalid(format!("{} has no name of its own", path.display())))
}

/// Size and content of what is wanted, read now.
fn build_entry(wanted: &Wanted) -> Result<Entry> {
    let mut file = File::open(&wanted.source).map_err(|e| cannot_read(&wanted.source, e))?;
    let mut hasher = blake3::Hasher::new();
    let size = io::copy(&mut file, &mut hasher).map_err(|e| cannot_read(&wanted.source, e))?;
    Ok(Entry {
        place: wanted.place,
        name: wanted.name.clone(),
        source: wanted.source.clone().into_os_string(),
        content: Content { size, mark: Mark::Blake3(*hasher.finalize().as_bytes()) },
    })
}

/// Cuts a long list so that every portion fits into an order.
fn in_portions(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut portions: Vec<Vec<Entry>> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let length = entry.name.len() + entry.source.len() + 64;
        match portions.last_mut() {
            Some(portion) if bytes + length <= ORDER_BYTES => {
                bytes += length;
                portion.push(entry);
            }
            _ => {
                bytes = length;
                portions.push(vec![entry]);
            }
        }
    }
    portions
}
