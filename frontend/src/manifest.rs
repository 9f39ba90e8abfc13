//! Manifests: the files to make available in a session.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::message::{Place, Program, StartDaemon};
use gantry_types::output::DaemonOutput;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tokio::time::{Instant, timeout_at};
use walkdir::WalkDir;

use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::request::{DaemonRequest, build_program_env};
use crate::session::inner::Inner;
use crate::staging::find::{absolute, file_name, find_program, readable_file};
use crate::staging::gather::{Wanted, cannot_read, gather};
use crate::staging::ledger::Ledger;
use crate::staging::needs::SystemResolver;
use crate::staging::plan::{self, Plan, build_plan, clash};
pub use crate::staging::send::Staged;
use crate::staging::send::{in_time, send};
use crate::staging::want::Target;

/// A list of files for a session. Fill it, then consume it by [`Manifest::send`] or [`Manifest::exec_daemon`].
///
/// Programs and libraries bring their needs: the libraries that the loader would find for them on this machine, and the
/// interpreters of scripts. If a node has a file with the same content at the same path, it links that file. Other
/// files are sent. This machine's C library is used only on nodes whose own is too old.
///
/// Two files of one name are an error, unless they have the same content. Libraries are an exception: a second library
/// of one name goes to a separate folder. The daemons of this manifest search that folder first.
#[derive(Debug)]
pub struct Manifest {
    session: Arc<Inner>,
    wanted: BTreeMap<Target, Named>,
    with_needs: bool,
    allow_missing: bool,
}

impl Manifest {
    pub(crate) fn new(session: Arc<Inner>) -> Self {
        Self { session, wanted: BTreeMap::new(), with_needs: true, allow_missing: false }
    }

    /// Adds further files without their needs, for nodes that have those, or if you add them yourself.
    pub fn without_dependencies(&mut self) -> &mut Self {
        self.with_needs = false;
        self
    }

    /// Allows needed libraries to be missing on this machine: nodes have them, or they are never used. Otherwise that
    /// is an error. A library of that name in the session's `lib` does not count as missing: daemons look there first.
    pub fn allow_missing(&mut self) -> &mut Self {
        self.allow_missing = true;
        self
    }

    /// Adds an executable to the session's `bin`: a path, or a name that is looked up in PATH on this machine. Also
    /// adds its needs.
    ///
    /// # Errors
    /// It is not found, is no executable file, or clashes with another one of its name.
    pub fn add_binary(&mut self, program: impl AsRef<Path>) -> Result<()> {
        self.add_program(program.as_ref()).map(drop)
    }

    /// As [`Manifest::add_binary`]. Returns the path that was found.
    pub(crate) fn add_program(&mut self, program: &Path) -> Result<PathBuf> {
        let source = find_program(program, &Machine)?;
        self.add(Place::Bin, &source, self.with_needs)?;
        Ok(source)
    }

    /// Adds a library to the session's `lib`, which is first in the daemons' LD_LIBRARY_PATH. It is a path, or a name
    /// without a slash that is searched as the loader does. Also adds the libraries that it needs.
    ///
    /// # Errors
    /// It is not found, is no readable file, or clashes with another one of this manifest.
    pub fn add_library(&mut self, library: impl AsRef<Path>) -> Result<()> {
        let library = library.as_ref();
        let source = match library.as_os_str().as_encoded_bytes().contains(&b'/') {
            true => readable_file(library)?,
            false => readable_file(&SystemResolver::new().find_library(library.as_os_str())?)?,
        };
        self.add(Place::Lib, &source, self.with_needs)
    }

    /// Adds a file, to the session's root.
    ///
    /// # Errors
    /// It is no readable file, or clashes with another one of its name.
    pub fn add_file(&mut self, file: impl AsRef<Path>) -> Result<()> {
        let source = readable_file(file.as_ref())?;
        if plan::is_reserved(file_name(&source)?) {
            return Err(Error::Invalid {
                message: format!("{} has the name of one of a session's own directories", source.display()),
                hint: Some("rename it".to_owned()),
            });
        }
        self.add(Place::Root, &source, false)
    }

    /// Adds a directory with all files below it to the session's `lib`, under the directory's own name. Hidden files
    /// are included, empty directories are not. Links are replaced by the files that they refer to. The needs of these
    /// files are not added. Two directories of one name become one.
    ///
    /// # Errors
    /// It is not a readable directory, has no file, has circular links, has an entry that is neither file nor
    /// directory, or a file clashes with another one of its name. Then the manifest is unchanged.
    pub fn add_lib_dir(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let root = absolute(directory.as_ref())?;
        let base = file_name(&root)?;
        if !std::fs::metadata(&root).map_err(|e| cannot_read(&root, e))?.is_dir() {
            return Err(Error::Invalid {
                message: format!("{} is not a directory", root.display()),
                hint: Some("name a directory, or add it as a file or a library".to_owned()),
            });
        }
        let mut files = Vec::new();
        for found in WalkDir::new(&root).follow_links(true).sort_by_file_name() {
            let found = found.map_err(|e| Error::io(format!("cannot read {}", root.display()), e.into()))?;
            if found.file_type().is_dir() {
                continue;
            }
            let source = readable_file(found.path())?;
            let below = source.strip_prefix(&root).map_err(|e| Error::invalid(e.to_string()))?;
            files.push((Path::new(base).join(below), source));
        }
        if files.is_empty() {
            return Err(Error::Invalid {
                message: format!("{} has no file", root.display()),
                hint: Some("leave it out: empty directories are not sent".to_owned()),
            });
        }
        let before: BTreeSet<Target> = self.wanted.keys().cloned().collect();
        let mut files = files.iter();
        let added =
            files.try_for_each(|(name, source)| self.add_as(Place::Lib, name.as_os_str(), source, false));
        if added.is_err() {
            self.wanted.retain(|target, _| before.contains(target));
        }
        added
    }

    /// Adds a file to the session's `lib`, at a relative path there. Does not add its needs.
    ///
    /// # Errors
    /// It is no readable file, the path leads elsewhere, or another file has it.
    pub fn add_lib_file(&mut self, file: impl AsRef<Path>, at: impl AsRef<Path>) -> Result<()> {
        let (source, at) = (readable_file(file.as_ref())?, at.as_ref());
        if at.components().next().is_none() || !at.components().all(|it| matches!(it, Component::Normal(_))) {
            return Err(Error::Invalid {
                message: format!("{} is no path below a directory", at.display()),
                hint: Some("name a relative path without '..'".to_owned()),
            });
        }
        self.add_as(Place::Lib, at.components().as_path().as_os_str(), &source, false)
    }

    /// Makes all files available on every node of the session that can be reached, and waits for it.
    ///
    /// # Errors
    /// A needed library is not on this machine, a node cannot take a file, or a file changes while it is sent. Files on
    /// the other nodes stay in the session. If the future is dropped early, nodes may have some of the files.
    pub async fn send(self, timeout: Duration) -> Result<Staged> {
        self.stage(Instant::now() + bounded(timeout)).await.map(|(staged, _)| staged)
    }

    /// Makes everything available and starts a daemon: one on every node, or one on each requested node. Waits until it
    /// runs.
    ///
    /// # Errors
    /// A node cannot get a file or cannot start the daemon. Then it runs on no node. If the future is dropped early, it
    /// runs on no node either.
    pub async fn exec_daemon(mut self, request: DaemonRequest, timeout: Duration) -> Result<Daemon> {
        let deadline = Instant::now() + bounded(timeout);
        let source = self.add_program(Path::new(&request.program))?;
        self.exec_added(&source, request, deadline).await
    }

    /// As [`Manifest::exec_daemon`], of a program that was added and found there. Blocks for no file system.
    pub(crate) async fn exec_added(
        self,
        source: &Path,
        request: DaemonRequest,
        deadline: Instant,
    ) -> Result<Daemon> {
        let name = file_name(source)?.to_owned();
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
        let (_, plan) = self.stage(deadline).await?;
        let (env, chosen) = build_program_env(Machine.environment(), &request.env);
        let order = StartDaemon {
            daemon: session.core.new_daemon(),
            session: session.id,
            lib_dirs: plan.lib_dirs_of(&name),
            program: Program { program: name, args: request.args, env, chosen, cwd: None },
            output: absolute_log(request.output)?,
            container: request.container,
        };
        let id = order.daemon;
        let daemon = Daemon::start(&session.core, nodes.clone(), order, deadline).await?;
        session.end.join(id, nodes);
        Ok(daemon)
    }

    async fn stage(self, deadline: Instant) -> Result<(Staged, Plan)> {
        let session = &self.session;
        session.check_alive()?;
        if self.wanted.is_empty() {
            return Ok((Staged::default(), Plan::default()));
        }
        let started = Instant::now();
        let Ok(_turn) = timeout_at(deadline, session.staging.lock()).await else {
            return Err(Error::TimedOut {
                phase: "waiting for another manifest of the session",
                after: deadline.saturating_duration_since(started),
                missing: Vec::new(),
            });
        };
        let contents = Arc::clone(&session.core.contents);
        let wanted = build_wanted(self.wanted);
        let items = in_time(deadline, move || gather(wanted, &mut SystemResolver::new(), &contents)).await?;
        let mut plan = build_plan(&items, &lock(&session.ledger))?;
        if !self.allow_missing {
            let needs = items.iter().filter_map(|item| item.needs.as_ref());
            plan::check_missing(needs.flat_map(|needs| &needs.missing), &plan.ledger)?;
        }
        drop(items);
        let sending = Sending { session, planned: Some(std::mem::take(&mut plan.ledger)) };
        let staged = send(session, &mut plan, deadline).await?;
        sending.done();
        Ok((staged, plan))
    }

    fn add(&mut self, place: Place, source: &Path, with_needs: bool) -> Result<()> {
        self.add_as(place, file_name(source)?, source, with_needs)
    }

    fn add_as(&mut self, place: Place, name: &OsStr, source: &Path, with_needs: bool) -> Result<()> {
        self.session.check_alive()?;
        let target = (place, Arc::from(name));
        if let Some(known) = self.wanted.get_mut(&target) {
            check_same(&self.session, &known.source, source)?;
            known.with_needs |= with_needs;
            return Ok(());
        }
        let there = lock(&self.session.ledger).everywhere(place, name).map(|it| Arc::clone(&it.source));
        if let Some(known) = there {
            let same = check_same(&self.session, &known.path, source);
            // A library may go to another folder. One that lies in no folder was named explicitly.
            if place != Place::Lib || name.as_encoded_bytes().contains(&b'/') {
                same?;
            }
        }
        self.wanted.insert(target, Named { source: source.into(), with_needs });
        Ok(())
    }
}

/// A plan on its way to the nodes. If it fails or is dropped, the session's ledger says that nodes may have its files.
struct Sending<'a> {
    session: &'a Inner,
    planned: Option<Ledger>,
}

impl Sending<'_> {
    fn done(mut self) {
        if let Some(planned) = self.planned.take() {
            *lock(&self.session.ledger) = planned;
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(planned) = &self.planned {
            lock(&self.session.ledger).failed(planned);
        }
    }
}

/// A source for a target name.
#[derive(Debug)]
struct Named {
    source: Box<Path>,
    with_needs: bool,
}

fn build_wanted(all: BTreeMap<Target, Named>) -> impl Iterator<Item = Wanted> + Send {
    let wanted = |((place, name), Named { source, with_needs }): (Target, Named)| Wanted {
        place,
        name,
        source,
        with_needs,
    };
    all.into_iter().map(wanted)
}

/// Refuses two files of one name, unless they are the same or have the same content. Reads both to compare.
fn check_same(session: &Inner, known: &Path, source: &Path) -> Result<()> {
    if known == source {
        return Ok(());
    }
    let look = |path: &Path| session.core.contents.look(path).map_err(|error| cannot_read(path, error));
    match look(known)?.content == look(source)?.content {
        true => Ok(()),
        false => Err(clash(known, source)),
    }
}

fn absolute_log(output: DaemonOutput) -> Result<DaemonOutput> {
    match output {
        DaemonOutput::Log(directory) => {
            Ok(DaemonOutput::Log(absolute(Path::new(&directory))?.into_os_string()))
        }
        other => Ok(other),
    }
}
