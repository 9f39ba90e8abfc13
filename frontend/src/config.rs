//! Settings of a tool, and [`Frontend`], which holds them.

use std::ffi::OsString;
use std::path::PathBuf;

use gantry_types::launch::{HostsPolicy, SendAgent};

/// Settings of a tool for all its apps.
#[derive(Debug, Clone)]
pub struct Config {
    /// The workload manager's name. Default: GANTRY_WLM, CTI_WLM_IMPL, else the detected one.
    pub wlm: Option<String>,
    /// Directory for session storage on the nodes, the same on all of them. Default: the first of GANTRY_STAGE_DIR,
    /// TMPDIR, `/tmp` and `/var/tmp` that is writable and not mounted noexec on every node.
    pub stage_base: Option<PathBuf>,
    /// Most children of one agent in the tree. Default: [`DEFAULT_RADIX`].
    pub radix: u32,
    /// The most nodes that one node feeds with bulk data. Default: [`DEFAULT_BULK_RADIX`]. With 0, bulk data follows
    /// the tree of orders; use that if nodes cannot reach each other.
    pub bulk_radix: u32,
    /// Whether gantry's agent is sent to the nodes. Default: GANTRY_SEND_AGENT, else [`SendAgent::Auto`].
    pub send_agent: Option<SendAgent>,
    /// How many hosts must be reached, for transports with one connection per host. Default: all.
    pub hosts_policy: HostsPolicy,
    /// Options by which [`Frontend::attach`] reaches hosts, as for a launch by the same WLM: the number of connections
    /// at a time, for instance. Default: none.
    pub reach_args: Vec<OsString>,
    /// The name of a program that starts ranks on the nodes, such as a container's starter: its first child is the
    /// rank. A process without that program as its parent is a rank itself. Default: none.
    pub rank_wrapper: Option<String>,
    /// Directory of the control sockets. Default: GANTRY_RUNTIME_DIR, `$XDG_RUNTIME_DIR/gantry`,
    /// `/tmp/gantry-runtime-UID`.
    pub runtime_dir: Option<PathBuf>,
    /// Whether other commands of this user reach the apps through a control socket. Default: yes.
    pub control: bool,
}

/// The default for the most children of one agent. It is wide, because orders and answers are small.
pub const DEFAULT_RADIX: u32 = 64;

/// The default for the number of nodes that one node feeds with bulk data. It is small, because they share the node's
/// bandwidth. Two cost half of it, and reach ten thousand nodes within thirteen links.
pub const DEFAULT_BULK_RADIX: u32 = 2;

impl Default for Config {
    fn default() -> Self {
        Self {
            wlm: None,
            stage_base: None,
            radix: DEFAULT_RADIX,
            bulk_radix: DEFAULT_BULK_RADIX,
            send_agent: None,
            hosts_policy: HostsPolicy::All,
            reach_args: Vec::new(),
            rank_wrapper: None,
            runtime_dir: None,
            control: true,
        }
    }
}

/// The entry point of the library. It holds settings only; apps are independent of it.
///
/// ```no_run
/// use std::time::Duration;
/// use gantry_frontend::{Config, Frontend, LaunchRequest};
///
/// # async fn tool() -> gantry_frontend::Result<()> {
/// let minute = Duration::from_secs(60);
/// let frontend = Frontend::new(Config::default());
/// let app = frontend.launch(LaunchRequest::new(["-n", "4", "./solver"]).hold(true), minute).await?;
/// for rank in app.info().ranks {
///     println!("rank {} is process {:?} on {}", rank.rank, rank.pid, rank.host);
/// }
/// app.release(minute).await?;
/// let exit = app.wait().await?;
/// app.close(minute).await?;
/// assert_eq!(exit.code, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Frontend {
    pub(crate) config: Config,
}
