//! The hall: the namespaces that contain all hosts of a bed. It has the switch between them, and their shared files.
//!
//! It has its own namespaces (processes, mounts, network, names, IPC); those of the hosts are inside them. Its init
//! watches the bed's owner and ends when the owner ends. The kernel then ends every process in the hall. With the last
//! of them its mounts and interfaces disappear. So nothing of a bed can outlive the hall's init, even if it is killed.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;

use super::command::{Result, complete, complete_with, err};
use super::config::{Config, UID};
use super::init::{self, Signals, reap, report};
use super::place::{HALL, Place};
use super::{cgroup, files, flux};
use crate::proc::Pidfd;

/// The switch's name in the hall.
pub(crate) const SWITCH: &str = "switch";

const NOTHING: Option<&str> = None;

/// Opens the hall; returns when it is ready. Without an owner it continues until a request to end.
///
/// This process enters the hall's namespaces for that, and cannot be used for anything else afterwards.
pub(crate) fn open(place: &Place, owner: Option<i32>) -> Result<()> {
    let owner = owner.map(Pidfd::open).transpose().map_err(err("the owner of the bed"))?;
    let stdin = owner.map_or_else(Stdio::null, |owner| OwnedFd::from(owner).into());
    unshare(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC,
    )
    .map_err(err("unshare"))?;
    init::start(place, HALL, stdin).map(drop)
}

/// The main function of the hall's init. Its stdin is a pidfd of the owner, or /dev/null.
pub(crate) fn run(place: &Place) -> Result<()> {
    // This /proc is still that of the machine: it has the number by which the machine knows this process.
    let own = fs::read_link("/proc/self").map_err(err("/proc/self"))?;
    let own: i32 = own.to_str().and_then(|pid| pid.parse().ok()).ok_or("/proc/self is no pid")?;
    place.set_hall(own)?;
    let signals = Signals::block()?;
    let config = place.config()?;
    let outcome = furnish(place, &config);
    report(&outcome)?;
    let served = outcome.and_then(|()| signals.serve(owner().as_ref().map(AsFd::as_fd)));
    served.and(close(place))
}

/// Standard input, when it is a pidfd.
fn owner() -> Option<OwnedFd> {
    let kind = fs::read_link("/proc/self/fd/0").ok()?;
    kind.to_string_lossy().contains("pidfd").then(|| io::stdin().as_fd().try_clone_to_owned().ok())?
}

fn furnish(place: &Place, config: &Config) -> Result<()> {
    nix::unistd::sethostname(HALL).map_err(err("hostname"))?;
    mount(NOTHING, "/", NOTHING, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NOTHING).map_err(err("/"))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NOTHING).map_err(err("/proc"))?;
    mount_etc(place)?;
    write_etc(config)?;
    make_home(&home(place))?;
    make_host_keys(config)?;
    if let Some(installation) = &config.flux {
        flux::make_key(installation)?;
    }
    if files::needs_cgroup(config) {
        cgroup::claim(config)?;
    }
    ip(&format!("link set lo up\nlink add {SWITCH} type bridge\nlink set {SWITCH} up\n"))
}

/// Puts a writable layer over this machine's `/etc`, for this bed only.
fn mount_etc(place: &Place) -> Result<()> {
    let own = place.mount_point();
    mount(Some("testbed"), &own, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))
        .map_err(err(own.display()))?;
    for name in ["etc", "work"] {
        fs::create_dir(own.join(name)).map_err(err(name))?;
    }
    let (upper, work) = (own.join("etc"), own.join("work"));
    let options = format!("lowerdir=/etc,upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("testbed"), "/etc", Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .map_err(err("an overlay over /etc"))
}

fn write_etc(config: &Config) -> Result<()> {
    const FOLDERS: [&str; 6] = [
        "/etc/slurm",
        "/etc/munge",
        "/etc/flux",
        "/etc/flux/security/conf.d",
        "/etc/flux/imp/conf.d",
        files::HOST_KEYS,
    ];
    for folder in FOLDERS {
        fs::create_dir_all(folder).map_err(err(folder))?;
    }
    for (path, text) in files::build_etc(config) {
        // Some machines have a link there that leads into a /run that hosts do not have.
        drop(fs::remove_file(path));
        fs::write(path, text).map_err(err(path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(err(path))?;
    }
    fs::set_permissions("/etc/shadow", fs::Permissions::from_mode(0o600)).map_err(err("/etc/shadow"))?;
    let mut key = vec![0; 128];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut key))
        .map_err(err("random bytes"))?;
    drop(fs::remove_file(files::MUNGE_KEY));
    fs::write(files::MUNGE_KEY, key).map_err(err(files::MUNGE_KEY))?;
    for (path, mode) in [(files::MUNGE_KEY, 0o400), ("/etc/munge", 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(err(path))?;
        chown(path, Some(files::MUNGE_UID), Some(files::MUNGE_UID)).map_err(err(path))?;
    }
    Ok(())
}

/// Where the user's home is made; hosts mount it, or a copy, where the user has it.
pub(crate) fn home(place: &Place) -> PathBuf {
    place.mount_point().join("home")
}

/// A home with a key that opens every node.
fn make_home(home: &Path) -> Result<()> {
    let ssh = home.join(".ssh");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&ssh).map_err(err(ssh.display()))?;
    let key = ssh.join("id_ed25519");
    complete(keygen(&key))?;
    fs::copy(ssh.join("id_ed25519.pub"), ssh.join("authorized_keys")).map_err(err("authorized_keys"))?;
    for name in ["", ".ssh", ".ssh/id_ed25519", ".ssh/id_ed25519.pub", ".ssh/authorized_keys"] {
        let path = home.join(name);
        chown(&path, Some(UID), Some(UID)).map_err(err(path.display()))?;
    }
    Ok(())
}

fn keygen(path: &Path) -> Command {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f"]).arg(path).stdin(Stdio::null());
    command
}

/// A host key for every node, all made at once, and the file in which the user's ssh finds them.
fn make_host_keys(config: &Config) -> Result<()> {
    let path = |node: &str| Path::new(files::HOST_KEYS).join(node);
    let nodes = config.node_names();
    let making: io::Result<Vec<_>> = nodes.iter().map(|node| keygen(&path(node)).spawn()).collect();
    for mut child in making.map_err(err("ssh-keygen"))? {
        let status = child.wait().map_err(err("ssh-keygen"))?;
        if !status.success() {
            return Err(format!("ssh-keygen: {status}"));
        }
    }
    let mut keys = Vec::new();
    for node in nodes {
        let public = path(&node).with_extension("pub");
        let key = fs::read_to_string(&public).map_err(err(public.display()))?;
        keys.push((node, key));
    }
    fs::write("/etc/ssh/ssh_known_hosts", files::build_known_hosts(&keys)).map_err(err("ssh_known_hosts"))
}

/// Runs a list of `ip` commands. `ip` stops at the first one that fails.
pub(crate) fn ip(commands: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]);
    complete_with(ip, commands)
}

/// The orderly end: kills all other processes in the hall, and removes the remains on the machine.
fn close(place: &Place) -> Result<()> {
    // From process 1 of a namespace this means everybody in it.
    match kill(Pid::from_raw(-1), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(format!("kill: {error}")),
    }
    while reap(WaitPidFlag::empty()) {}
    let gone = place.config().map_or(Ok(()), |config| cgroup::remove(&config));
    umount2(&place.mount_point(), MntFlags::MNT_DETACH).map_err(err("umount"))?;
    gone.and(place.remove())
}
