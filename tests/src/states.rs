//! An app of the command line in each of its states, for tests that kill something under it.

use std::time::Duration;

use crate::slurm::Cluster;
use crate::{Run, SOON};

/// How far an app is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its ranks are held.
    Held,
    /// Its ranks run.
    Running,
    /// Its ranks are held, and a daemon runs on each node.
    DaemonRunning,
}

/// All states.
pub const STATES: [State; 3] = [State::Held, State::Running, State::DaemonRunning];

/// How long the end of an app may take: nodes that are gone are noticed by silence.
pub const SILENCE: Duration = Duration::from_secs(100);

/// Brings an app of four ranks on two nodes into that state, by a launch with these options, `act`s on it, and waits for its end.
/// Nothing may be left on any host. The ranks run `/bin/sleep 1000`.
///
/// # Panics
/// When it does not come into that state, does not end, or leaves something.
#[track_caller]
pub fn act_in(cluster: &Cluster, state: State, options: &[&str], act: &dyn Fn(&Cluster, &mut Run)) {
    let daemon: &[&str] = if state == State::DaemonRunning { &["--daemon", "/bin/sleep 999"] } else { &[] };
    let (mut run, app) = cluster.held(&[daemon, &["--"], options, &["/bin/sleep", "1000"]].concat());
    cluster.assert_held("/bin/sleep 1000", 4);
    match state {
        State::Held => {}
        State::Running => drop(cluster.ask(&["release", &app])),
        State::DaemonRunning => {
            run.next_event("daemon_started", SOON);
            run.next_event("daemon_started", SOON);
        }
    }
    act(cluster, &mut run);
    run.exited(SILENCE);
    drop(run);
    // The owners of the app's control socket may be dead; the next command removes it.
    cluster.ask(&["ps", "--json"]);
    cluster.bed.assert_nothing_left(SOON);
}
