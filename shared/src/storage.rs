//! The layout of an app's storage on a node, and the environment variables that refer to it.
//!
//! The agent creates these directories and sets these variables, daemons and ranks read them, and the frontend packs
//! archives for them. The names are defined here once.

use std::path::Path;

use gantry_types::id::{AppId, NoRandomness, NodeId, SessionId, random_text};
use gantry_types::session_dirs::SessionDirs;

/// The prefix of every app's directory: `gantry-<app>-<random>` below the staging base.
pub const APP_DIR_PREFIX: &str = "gantry-";
/// In the app's directory: a file that the living agent keeps locked, and that identifies the agent.
pub const LEASE_FILE: &str = "lease";

/// In a session's directory: the C library and its loader, where the node's own is too old.
pub const LOADER_DIR: &str = "loader";
/// Given to ranks: the app's id.
pub const GANTRY_APP: &str = "GANTRY_APP";
/// Given to ranks: the rank, from 0.
pub const GANTRY_RANK: &str = "GANTRY_RANK";
/// Given to ranks: how many ranks the app has.
pub const GANTRY_SIZE: &str = "GANTRY_SIZE";
/// Given to ranks: the rank's place among those of its node, from 0.
pub const GANTRY_LOCAL_RANK: &str = "GANTRY_LOCAL_RANK";
/// Given to ranks: the node's number, from 0.
pub const GANTRY_NODE: &str = "GANTRY_NODE";

/// Given to ranks: the handle of their app's rendezvous.
pub const GANTRY_JOB_HANDLE: &str = "GANTRY_JOB_HANDLE";
/// Given to ranks of a multijob's app: the handle of the multijob's rendezvous.
pub const GANTRY_MULTIJOB_HANDLE: &str = "GANTRY_MULTIJOB_HANDLE";
/// Given to ranks of a multijob's app: the app's number in the multijob, from 0.
pub const GANTRY_SUBJOB_RANK: &str = "GANTRY_SUBJOB_RANK";
/// As [`GANTRY_JOB_HANDLE`], for programs that were written for GT4.
pub const GLOBUS_GRAM_JOB_HANDLE: &str = "GLOBUS_GRAM_JOB_HANDLE";
/// As [`GANTRY_MULTIJOB_HANDLE`], for programs that were written for GT4.
pub const GLOBUS_GRAM_MULTIJOB_HANDLE: &str = "GLOBUS_GRAM_MULTIJOB_HANDLE";
/// As [`GANTRY_SUBJOB_RANK`], for programs that were written for GT4.
pub const GLOBUS_GRAM_SUBJOB_RANK: &str = "GLOBUS_GRAM_SUBJOB_RANK";

/// Given to daemons: path of the socket of their agent.
pub const GANTRY_BACKEND_SOCKET: &str = "GANTRY_BACKEND_SOCKET";
/// Given to daemons: the session's number.
pub const GANTRY_SESSION: &str = "GANTRY_SESSION";
/// Given to daemons: the session's directory on this node.
pub const GANTRY_SESSION_DIR: &str = "GANTRY_SESSION_DIR";
/// Given to daemons: the number of the order that started them.
pub const GANTRY_DAEMON: &str = "GANTRY_DAEMON";
/// Given to daemons: the token by which their agent distinguishes them from the app's ranks.
pub const GANTRY_DAEMON_TOKEN: &str = "GANTRY_DAEMON_TOKEN";

/// Given to daemons of C tools, for those that know CTI's variables: that they are daemons.
pub const CTI_IAMBACKEND: &str = "CTI_IAMBACKEND";
/// Given to daemons that have [`CTI_IAMBACKEND`]: the session's directory, and those for programs, libraries and files.
pub const CTI_DIRS: [&str; 4] = ["CTI_ROOT_DIR", "CTI_BIN_DIR", "CTI_LIB_DIR", "CTI_FILE_DIR"];
/// Given to daemons of C tools: the app's id.
pub const CTI_APID: &str = "CTI_APID";
/// Given to daemons of C tools: the WLM's number in [`cti`](crate::cti).
pub const CTI_WLM: &str = "CTI_WLM";

/// Set by users: the WLM to use instead of the detected one.
pub const GANTRY_WLM: &str = "GANTRY_WLM";
/// Set by users: the directory on nodes in which apps' directories are made.
pub const GANTRY_STAGE_DIR: &str = "GANTRY_STAGE_DIR";
/// Set by users: the directory on the login side for the sockets of live apps.
pub const GANTRY_RUNTIME_DIR: &str = "GANTRY_RUNTIME_DIR";
/// Set by users: where gantry is installed, to find its agent and guard.
pub const GANTRY_INSTALL_DIR: &str = "GANTRY_INSTALL_DIR";
/// Set by users: the launcher to use, a name or a path.
pub const GANTRY_LAUNCHER: &str = "GANTRY_LAUNCHER";
/// Set by users: whether gantry's agent is sent to nodes: `auto`, `always` or `never`.
pub const GANTRY_SEND_AGENT: &str = "GANTRY_SEND_AGENT";
/// Set by users of CTI: the launcher to use, where [`GANTRY_LAUNCHER`] is not set.
pub const CTI_LAUNCHER_NAME: &str = "CTI_LAUNCHER_NAME";
/// Set by users of CTI: the WLM to use, where [`GANTRY_WLM`] is not set.
pub const CTI_WLM_IMPL: &str = "CTI_WLM_IMPL";
/// Set by users of CTI: the directory on nodes in which apps' directories are made, where [`GANTRY_STAGE_DIR`] is not
/// set.
pub const CTI_BACKEND_TMPDIR: &str = "CTI_BACKEND_TMPDIR";
/// Set by users of CTI: a directory for what a frontend keeps on the login side, where [`GANTRY_RUNTIME_DIR`] is not
/// set.
pub const CTI_CFG_DIR: &str = "CTI_CFG_DIR";
/// Set by users of CTI: a script to use as the launcher, where neither [`GANTRY_LAUNCHER`] nor [`CTI_LAUNCHER_NAME`] is
/// set.
pub const CTI_LAUNCHER_SCRIPT: &str = "CTI_LAUNCHER_SCRIPT";
/// Set by users of CTI: where it is installed, where [`GANTRY_INSTALL_DIR`] is not set.
pub const CTI_INSTALL_DIR: &str = "CTI_INSTALL_DIR";

/// Set by users of CTI: a command, with arguments, that the launcher's own is given to.
pub const CTI_LAUNCHER_WRAPPER: &str = "CTI_LAUNCHER_WRAPPER";
/// Set by users of CTI: the name of a program that stands around each rank on the nodes.
pub const CTI_BACKEND_WRAPPER: &str = "CTI_BACKEND_WRAPPER";
/// Set by users of CTI: the container instance in which daemons are started.
pub const CTI_CONTAINER_INSTANCE: &str = "CTI_CONTAINER_INSTANCE";

/// How many random characters stand at the end of the name of an app's directory: 80 bits.
const RANDOM_CHARS: usize = 16;

/// How many characters `mkdtemp(3)` adds.
const MKDTEMP_CHARS: usize = 6;

/// As many, behind the digits of the kernel's id of this boot: [`app_dir_prefix_now`].
const NEW_CHARS: usize = 32 + MKDTEMP_CHARS;

/// The prefix of an app's directory while an agent creates it. `mkdtemp(3)` adds six characters. The name tells a sweep
/// whether the agent works on the sweep's own kernel. `boot` is the kernel's id of this boot.
#[must_use]
pub fn app_dir_prefix_now(app: AppId, boot: &str) -> String {
    app_dir_prefix(app) + &boot.replace('-', "")
}

/// Whether an agent has begun to create a directory of that name since this boot.
#[must_use]
pub fn is_new_since(boot: &str, app_dir_name: &str) -> bool {
    app_dir_name.len().checked_sub(MKDTEMP_CHARS).and_then(|end| app_dir_name.get(..end)).is_some_and(
        |prefix| parse_app_dir_name(app_dir_name).is_some_and(|app| prefix == app_dir_prefix_now(app, boot)),
    )
}

/// The prefix of an app's directory: `gantry-<app>-`.
#[must_use]
pub fn app_dir_prefix(app: AppId) -> String {
    format!("{APP_DIR_PREFIX}{app}-")
}

/// Chooses a name for the app's directory that no other user can guess. It is the same on every node.
///
/// # Errors
/// When the system has no random numbers.
pub fn choose_app_dir_name(app: AppId) -> Result<String, NoRandomness> {
    Ok(app_dir_prefix(app) + &random_text::<RANDOM_CHARS>()?)
}

/// The name of the socket in the app's directory on which daemons reach the agent of that node. Several nodes can be
/// one machine.
#[must_use]
pub fn agent_socket_name(node: NodeId) -> String {
    format!("agent-{node}.sock")
}

/// The app whose directory has that name. `None`: no agent gives such a name.
///
/// A sweep for dead agents checks this first, so that it never touches anything else.
#[must_use]
pub fn parse_app_dir_name(name: &str) -> Option<AppId> {
    let (app, unique) = name.strip_prefix(APP_DIR_PREFIX)?.split_once('-')?;
    let is_ours = matches!(unique.len(), MKDTEMP_CHARS | NEW_CHARS | RANDOM_CHARS);
    (is_ours && unique.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| app.parse().ok())?
}

/// The name of a session's directory in its app's directory: `s<id>`.
#[must_use]
pub fn session_dir_name(session: SessionId) -> String {
    format!("s{session}")
}

/// The paths of a session's directories in its app's directory. Creates none.
#[must_use]
pub fn session_dirs(app_dir: &Path, session: SessionId) -> SessionDirs {
    SessionDirs::new(app_dir.join(session_dir_name(session)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_agents_give_are_app_directories() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(parse_app_dir_name(name).map(|app| app.to_string()).as_deref(), expected, "{name:?}");
        };
        check("gantry-3kx9w0fz-aB3xY9", Some("3kx9w0fz"));
        check("gantry-3kx9w0fz-", None);
        check("gantry-3kx9w0fz", None);
        check("gantry-3kx9w0fz-aB3xY", None);
        check("gantry-3kx9w0fz-../../", None);
        check("gantry-mine-aB3xY9", None);
        check("xgantry-3kx9w0fz-aB3xY9", None);
        let app = "3kx9w0fz".parse().unwrap();
        check(&(app_dir_prefix(app) + "abcdef"), Some("3kx9w0fz"));
        let (boot, other) = ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "4f2504e0-4f89-11d3-9a0c-0305e82c3301");
        let new = app_dir_prefix_now(app, boot) + "abcdef";
        check(&new, Some("3kx9w0fz"));
        assert!(is_new_since(boot, &new) && !is_new_since(other, &new) && !is_new_since(boot, "gantry"));
        let chosen = choose_app_dir_name(app).unwrap();
        check(&chosen, Some("3kx9w0fz"));
        assert_ne!(chosen, choose_app_dir_name(app).unwrap());
    }
}
