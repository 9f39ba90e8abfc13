//! One host of a bed: the login node or a compute node. It is a set of namespaces inside the hall, with its daemons.
//!
//! The login node sees this machine's files but has its own `/etc`, `/run` and logs. A compute node also has its own
//! `/tmp` and similar folders. No host sees another host's processes, as on a real cluster: a program that takes a pid
//! for a local one does not find the process.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::command::{Result, complete, err};
use super::config::{Config, HOME, LOGIN, address};
use super::hall::{self, SWITCH, ip};
use super::init::{self, Signals, report};
use super::place::Place;
use super::{files, flux, logs, pbs};
use crate::binaries::clone_folders;
use crate::proc::{self, becomes_true};

const NOTHING: Option<&str> = None;

/// How long a daemon may take until it can be used.
const STARTING: Duration = Duration::from_secs(30);

/// Folders that every host has for itself, and their modes.
const OWN: [(&str, &str); 3] = [("/run", "0755"), ("/var/log", "0755"), ("/var/spool", "0755")];
/// Folders that are private to a compute node, in addition.
pub(crate) const OWN_OF_NODES: [(&str, &str); 3] =
    [("/tmp", "1777"), ("/var/tmp", "1777"), ("/dev/shm", "1777")];

/// Starts a host from inside the hall; returns when its daemons are ready.
///
/// This process enters the host's namespaces for that, and cannot be used for anything else afterwards.
pub(crate) fn open(place: &Place, name: &str) -> Result<()> {
    let address = address(name).ok_or_else(|| format!("{name} is not the name of a host"))?;
    let hall = File::open("/proc/1/ns/net").map_err(err("the hall's network"))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(err("unshare"))?;
    // Process 1 is the hall's init. So the other end of the cable is in the hall's network, with the host's name.
    ip(&format!(
        "link set lo up\nlink add eth0 type veth peer name {name} netns 1\n\
         addr add {address}/16 dev eth0\nlink set eth0 up\n"
    ))?;
    let mut plug_in = Command::new("nsenter");
    plug_in.arg(format!("--net=/proc/{}/fd/{}", std::process::id(), hall.as_raw_fd()));
    plug_in.args(["ip", "link", "set", name, "master", SWITCH, "up"]);
    complete(plug_in)?;
    unshare(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC,
    )
    .map_err(err("unshare"))?;
    init::start(place, name, Stdio::null()).map(drop)
}

/// The main function of a host's init.
pub(crate) fn run(place: &Place, name: &str) -> Result<()> {
    let outcome = place.config().and_then(|config| {
        nix::unistd::sethostname(name).map_err(err("hostname"))?;
        mount_own(place, &config, name)?;
        start_daemons(&config, name)
    });
    // The host's logs go with it when this ends.
    let outcome = outcome.map_err(|why| format!("{why}{}", logs::of_host(name, Path::new("/"))));
    report(&outcome)?;
    outcome?;
    Signals::block()?.serve(None)
}

/// A folder of before the mounts, to be mounted in their midst.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    folder: File,
}

impl Kept {
    fn open_all(paths: &[PathBuf]) -> Result<Vec<Self>> {
        paths.iter().map(|path| Self::open(path)).collect()
    }

    fn open(path: &Path) -> Result<Self> {
        let folder = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
        Ok(Self { path: path.to_path_buf(), folder: folder.map_err(err(path.display()))? })
    }

    /// By its descriptor: its path may have been hidden meanwhile.
    fn source(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.folder.as_raw_fd())
    }

    fn mount_at(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(err(path.display()))?;
        mount(Some(self.source().as_str()), path, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING)
            .map_err(err(path.display()))
    }

    /// Makes the path visible on the host. It may be hidden by a folder that is private to the host, or by one that
    /// only its owner may enter. An empty folder replaces the latter.
    fn show(&self) -> Result<()> {
        let above: Vec<&Path> = self.path.ancestors().skip(1).collect();
        for folder in above.into_iter().rev() {
            if fs::metadata(folder).is_ok_and(|it| it.mode() & 0o001 == 0) {
                mount_empty(folder, "0755")?;
            }
        }
        let (here, meant) = (fs::metadata(&self.path), self.folder.metadata().map_err(err("fstat"))?);
        if here.is_ok_and(|here| (here.dev(), here.ino()) == (meant.dev(), meant.ino())) {
            return Ok(());
        }
        self.mount_at(&self.path)
    }
}

fn mount_own(place: &Place, config: &Config, name: &str) -> Result<()> {
    let is_login = name == LOGIN;
    let home = Kept::open(&hall::home(place))?;
    let shared: &[PathBuf] = if is_login { &[] } else { &config.share };
    let shared = Kept::open_all(shared)?;
    let shown = Kept::open_all(&find_shown(place, config, is_login))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NOTHING).map_err(err("/proc"))?;
    let terminals = Some("newinstance,ptmxmode=0666,mode=620,gid=5");
    mount(Some("devpts"), "/dev/pts", Some("devpts"), MsFlags::empty(), terminals)
        .map_err(err("/dev/pts"))?;
    let own_of_nodes: &[(&str, &str)] = if is_login { &[] } else { &OWN_OF_NODES };
    for (path, mode) in OWN.iter().chain(own_of_nodes) {
        mount_empty(Path::new(path), mode)?;
    }
    shown.iter().try_for_each(Kept::show)?;
    if !is_login {
        for path in &config.hide {
            mount_empty(path, "0755")?;
        }
    }
    for folder in &shared {
        folder.mount_at(&folder.path)?;
    }
    if !is_login && config.own_homes() {
        fs::create_dir_all(HOME).map_err(err(HOME))?;
        let mut copy = Command::new("cp");
        copy.args(["-a", &format!("{}/.", home.source()), HOME]);
        return complete(copy);
    }
    home.mount_at(Path::new(HOME))
}

/// Folders of this machine that every host sees independent of their parents, outer ones first: this clone, its build
/// results, and the installations of the workload managers. The login node also sees the folder of the tests' worlds.
fn find_shown(place: &Place, config: &Config, is_login: bool) -> Vec<PathBuf> {
    let mut shown = clone_folders();
    shown.extend(
        config
            .pbs
            .iter()
            .chain(&config.flux)
            .chain(&config.other_slurm)
            .filter_map(|path| path.canonicalize().ok()),
    );
    shown.extend(place.dir().parent().filter(|_| is_login).map(Path::to_path_buf));
    shown.sort_unstable();
    shown.dedup();
    shown
}

/// Mounts an empty folder over an existing one.
fn mount_empty(path: &Path, mode: &str) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let mode = format!("mode={mode}");
    mount(Some("testbed"), path, Some("tmpfs"), MsFlags::empty(), Some(mode.as_str()))
        .map_err(err(path.display()))
}

fn start_daemons(config: &Config, name: &str) -> Result<()> {
    make_dir("/run/lock", 0o1777, 0)?;
    let is_of_flux = config.flux_nodes().iter().any(|node| node == name);
    let is_login = name == LOGIN;
    let slurm_nodes = config.slurm_nodes();
    let is_of_slurm = slurm_nodes.iter().any(|node| node == name) || (is_login && !slurm_nodes.is_empty());
    let signs_for_flux = config.flux.as_deref().is_some_and(flux::is_for_all) && (is_of_flux || is_login);
    if is_of_slurm || signs_for_flux {
        start_munged(config)?;
    }
    if let Some(installation) = config.flux.as_ref().filter(|_| is_of_flux || name == LOGIN) {
        flux::start_broker(installation)?;
        if is_of_flux {
            return start_sshd(config, name);
        }
    }
    if let Some(installation) = &config.pbs {
        if name == LOGIN {
            pbs::start_server(installation, config)?;
        } else if config.pbs_nodes().iter().any(|node| node == name) {
            pbs::start_mom(installation, name)?;
            return start_sshd(config, name);
        }
    }
    if config.slurm_nodes().is_empty() {
        return Ok(());
    }
    if name == LOGIN {
        make_dir("/var/spool/slurmctld", 0o700, files::SLURM_UID)?;
        let log = fs::File::create("/var/log/slurmctld.log").map_err(err("/var/log/slurmctld.log"))?;
        std::os::unix::fs::fchown(log, Some(files::SLURM_UID), Some(files::SLURM_UID))
            .map_err(err("slurmctld.log"))?;
        begin(daemon(config, "slurmctld"))?;
        return listening("slurmctld", files::SLURMCTLD_PORT);
    }
    start_slurmd(config)?;
    start_sshd(config, name)
}

fn start_sshd(config: &Config, name: &str) -> Result<()> {
    make_dir("/run/sshd", 0o755, 0)?;
    let key = Path::new(files::HOST_KEYS).join(name);
    let mut sshd = daemon(config, "/usr/sbin/sshd");
    sshd.args(["-f", files::SSHD_CONFIG, "-h"]).arg(key);
    begin(sshd)?;
    listening("sshd", 22)
}

/// Every host has its own munged, as on a real cluster: each remembers for itself which credentials it has seen.
fn start_munged(config: &Config) -> Result<()> {
    for folder in ["/run/munge", "/var/log/munge"] {
        make_dir(folder, 0o755, files::MUNGE_UID)?;
    }
    let mut munged = daemon(config, "setpriv");
    munged.args(["--reuid=munge", "--regid=munge", "--clear-groups", "--", "munged"]);
    munged.args(["--socket=/run/munge/munge.socket.2", "--pid-file=/run/munge/munged.pid"]);
    munged.args(["--seed-file=/run/munge/munged.seed", "--log-file=/var/log/munge/munged.log"]);
    munged.arg(format!("--key-file={}", files::MUNGE_KEY));
    begin(munged)
}

/// Starts slurmd. It registers with slurmctld as soon as it can.
fn start_slurmd(config: &Config) -> Result<()> {
    make_dir("/var/spool/slurmd", 0o755, 0)?;
    begin(daemon(config, "slurmd"))
}

/// A command with a daemon's environment, independent of this process's environment.
fn daemon(config: &Config, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", config.path()).stdin(Stdio::null());
    // An init's stdout carries its report, so daemons write to the host's log.
    if let Ok(log) = io::stderr().as_fd().try_clone_to_owned() {
        command.stdout(log);
    }
    command
}

/// Waits until a daemon has gone into the background. The daemon keeps its descriptors open, so its output is not read
/// to the end here.
fn begin(mut daemon: Command) -> Result<()> {
    let status = daemon.status().map_err(|error| format!("{daemon:?}: {error}"))?;
    status.success().then_some(()).ok_or_else(|| format!("{daemon:?}: {status}"))
}

fn make_dir(path: &str, mode: u32, owner: u32) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(err(path))?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).map_err(err(path))?;
    chown(path, Some(owner), Some(owner)).map_err(err(path))
}

/// Waits until a daemon accepts connections on its port of this host, or has died.
fn listening(name: &str, port: u16) -> Result<()> {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let answers = || TcpStream::connect_timeout(&here, Duration::from_secs(1)).is_ok();
    let lives = || proc::all().into_iter().any(|pid| proc::stat(pid).is_some_and(|stat| stat.comm == name));
    let mut came = false;
    let _settled = becomes_true(STARTING, || {
        came = answers();
        came || !lives()
    });
    came.then_some(()).ok_or_else(|| format!("{name} does not listen at port {port}"))
}
