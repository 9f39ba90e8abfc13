//! The agent's side of a PMIx server: starts its process, and keeps the directory of its files.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;

use gantry_shared::storage::choose_app_dir_name;
use gantry_shared::wire::mpi::PmixServer;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, Rank};
use gantry_types::rank_set::RankSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::facts::name_apart;
use super::message::{FromServer, Setup, ToServer, build_message, take_message};
use crate::failure;
use crate::process::cores;
use crate::process::hold::Hold;
use crate::process::spawn::ProcessSpec;
use crate::process::thread::RanksThread;
use crate::session::{AppDir, AppDirName, StageBase};

/// How long the library may take to start.
const START_WITHIN: Duration = Duration::from_secs(30);

/// The library's name, where the system looks for libraries.
const LIBRARY: &str = "libpmix.so.2";

/// Variables that say where ranks of Open MPI 4 and 5 share memory. By itself, Open MPI names these files by the machine
/// and the rank's number there, so that two nodes on one machine would disturb each other.
const SHARED_MEMORY: [&str; 3] = [
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
];

/// Makes ranks of Open MPI yield the processor while they wait. Open MPI's own launchers have the same effect where there
/// are more ranks than processors. Otherwise a rank that waits uses the processor that the others need.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// What a server is for.
#[derive(Debug)]
pub(crate) struct Job {
    /// The app.
    pub(crate) app: AppId,
    /// The job's name.
    pub(crate) name: String,
    /// This node.
    pub(crate) node: NodeId,
    /// The library, and the names of the nodes.
    pub(crate) server: PmixServer,
    /// The ranks of each node.
    pub(crate) layout: Vec<RankSet>,
    /// The ranks of each program.
    pub(crate) parts: Vec<RankSet>,
    /// The requested place of files.
    pub(crate) base: Option<OsString>,
    /// The environment of the ranks' programs, by which the library finds its own files and settings.
    pub(crate) env: Vec<CString>,
}

/// A server that runs. Dropping it ends the server.
#[derive(Debug)]
pub(crate) struct Started {
    /// The process.
    pub(crate) pid: i32,
    /// The socket to it, and what has arrived already.
    pub(crate) socket: UnixStream,
    /// What has arrived already.
    pub(crate) inbox: Vec<u8>,
    /// The library.
    pub(crate) library: String,
    /// The directory of its files and of the ranks' own.
    pub(crate) directory: AppDir,
    /// The variables of each rank.
    pub(crate) variables: BTreeMap<Rank, Vec<(OsString, OsString)>>,
}

impl Started {
    /// Sets the variables of each rank in the specification of its process.
    ///
    /// # Errors
    /// The library has given no variables for a rank.
    pub(crate) fn set_variables(&self, specs: &mut [ProcessSpec], ranks: &[Rank]) -> Result<(), Failure> {
        let mut defaults = SHARED_MEMORY.map(|name| (name, self.directory.path().as_os_str())).to_vec();
        if cores::count().is_some_and(|processors| processors < specs.len()) {
            defaults.push((YIELD, OsStr::new("1")));
        }
        for (spec, rank) in specs.iter_mut().zip(ranks) {
            // A value of the user's own stays.
            for (name, value) in &defaults {
                let begin = [name.as_bytes(), b"="].concat();
                if !spec.env.iter().any(|entry| entry.as_bytes().starts_with(&begin)) {
                    spec.env.extend(CString::new([&begin, value.as_bytes()].concat()));
                }
            }
            let of_rank = self.variables.get(rank);
            let of_rank = of_rank.ok_or_else(|| {
                Failure::new(
                    Kind::Unsupported,
                    format!("start rank {rank}: {} does not know it", self.library),
                )
            })?;
            for (name, value) in of_rank {
                let begin = [name.as_bytes(), b"="].concat();
                spec.env.retain(|entry| !entry.as_bytes().starts_with(&begin));
                // The library's texts have no zero inside.
                spec.env.extend(CString::new([&begin, value.as_bytes()].concat()));
            }
        }
        Ok(())
    }
}

/// Starts a server, as a process of the thread `ranks`. Call it in a local set.
///
/// # Errors
/// The node has no such library, or it does not start in time.
pub(crate) async fn start(job: Job, ranks: &RanksThread) -> Result<Started, Failure> {
    let deadline = Instant::now() + START_WITHIN;
    let failed = |error: io::Error| failure::from_io("start a PMIx server", &error);
    let (app, node, base) = (job.app, job.node, job.base);
    let made = tokio::task::spawn_blocking(move || make_directory(app, node, base.as_deref().map(Path::new)));
    let directory = match timeout_at(deadline, made).await {
        Ok(made) => made.unwrap_or_else(|panic| Err(failed(io::Error::other(panic))))?,
        Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
    };
    let (ours, theirs) = StdStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let mut socket = UnixStream::from_std(ours).map_err(failed)?;
    let spec = build_spec(job.env, theirs.into()).map_err(failed)?;
    let started = ranks.start(vec![spec], Hold::No, deadline).await?;
    let pid = started.first().map_or(0, |it| it.process.pid);
    let libraries: Vec<OsString> = job.server.library.into_iter().chain([LIBRARY.into()]).collect();
    let setup = Setup {
        libraries,
        namespace: job.name,
        node: job.node.0,
        hosts: name_apart(&job.server.hosts),
        layout: job.layout,
        parts: job.parts,
        directory: directory.path().as_os_str().to_owned(),
    };
    let tried = show(&setup.libraries);
    let message = build_message(&ToServer::Setup(setup), &[]).map_err(failed)?;
    let mut inbox = Vec::new();
    let begun = async {
        socket.write_all(&message).await.map_err(|error| error.to_string())?;
        hear_all(&mut socket, &mut inbox).await
    };
    let why = match timeout_at(deadline, begun).await {
        Ok(Ok((library, variables))) => {
            return Ok(Started { pid, socket, inbox, library, directory, variables });
        }
        Ok(Err(why)) => why,
        Err(_) => format!("{tried} has not started within {} s", START_WITHIN.as_secs()),
    };
    Err(Failure::new(Kind::Unsupported, format!("start a PMIx server for ranks of Open MPI: {why}"))
        .with_hint(
            "install the PMIx library of that Open MPI on the node, or name its launcher: --launcher mpirun",
        ))
}

/// Makes a directory of its own, which is removed as that of a session. In memory, because ranks share memory there.
fn make_directory(app: AppId, node: NodeId, asked: Option<&Path>) -> Result<AppDir, Failure> {
    let name = choose_app_dir_name(app);
    let name = name.map_err(|error| Failure::new(Kind::System, error.to_string()))?;
    let name = AppDirName::parse(app, name)?;
    let places = match StageBase::in_memory() {
        Some(base) => vec![base],
        None => StageBase::find_all(asked)?,
    };
    StageBase::first_with_room(&places, |base| AppDir::create(base, &name, node))
}

/// The process. It outlives this agent for a moment, to clean up.
fn build_spec(mut env: Vec<CString>, stdin: OwnedFd) -> io::Result<ProcessSpec> {
    // Variables of another server would lead the library there.
    env.retain(|entry| !is_foreign(entry.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default()));
    let null = || std::fs::File::options().write(true).open("/dev/null").map(OwnedFd::from);
    Ok(ProcessSpec {
        program: c"/proc/self/exe".to_owned(),
        argv: vec![c"gantry-agent".to_owned(), c"pmix".to_owned(), c"serve".to_owned()],
        env,
        cwd: Some(c"/".to_owned()),
        stdin,
        stdout: null()?,
        stderr: null()?,
        served: None,
        die_with_parent: false,
        nofile: None,
        cores: None,
    })
}

/// A rank's variables by the names of Open MPI's own launcher: programs read them. The server's own come later.
///
/// Open MPI 4 takes a program outside of the workload managers that it knows for a single process, and looks for no
/// server. One of its components decides that, `orte` of the framework `schizo`. It is left out.
pub(crate) fn build_variables(
    (rank, size): (Rank, u32),
    (local, locals): (usize, usize),
) -> [(&'static str, String); 6] {
    [
        ("OMPI_COMM_WORLD_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_SIZE", size.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", local.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", locals.to_string()),
        ("OMPI_COMM_WORLD_NODE_RANK", local.to_string()),
        ("OMPI_MCA_schizo", "ompi".to_owned()),
    ]
}

/// Whether a variable of that name tells of another launcher's server, or of a rank there.
pub(crate) fn is_foreign(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"PMI_FD",
        b"PMI_RANK",
        b"PMI_SIZE",
        b"PMIX_NAMESPACE",
        b"PMIX_RANK",
        b"PMIX_HOSTNAME",
        b"PMIX_GDS_MODULE",
        b"PMIX_SECURITY_MODE",
        b"PMIX_KEEPALIVE_PIPE",
    ];
    const BEGINNINGS: [&[u8]; 7] = [
        b"PMIX_SERVER_",
        b"PMIX_LAUNCHER_",
        b"OMPI_MCA_ess",
        b"OMPI_MCA_orte_ess_",
        b"OMPI_MCA_orte_hnp_",
        b"OMPI_MCA_orte_launch",
        b"OMPI_MCA_orte_local_daemon_",
    ];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

/// Hears all messages until the server is ready.
async fn hear_all(
    socket: &mut UnixStream,
    inbox: &mut Vec<u8>,
) -> Result<(String, BTreeMap<Rank, Vec<(OsString, OsString)>>), String> {
    let mut variables = BTreeMap::new();
    loop {
        while let Some((message, _)) = take_message(inbox).map_err(|what| format!("the message {what}"))? {
            match message {
                FromServer::Variables(rank, of_rank) => drop(variables.insert(rank, of_rank)),
                FromServer::Ready(library) => return Ok((library, variables)),
                FromServer::Failed(why) => return Err(why),
                _ => return Err("it speaks before it is ready".to_owned()),
            }
        }
        if socket.read_buf(inbox).await.map_err(|error| error.to_string())? == 0 {
            return Err("its process has ended".to_owned());
        }
    }
}

fn show(libraries: &[OsString]) -> String {
    libraries.first().map(|library| library.display().to_string()).unwrap_or_default()
}
