use std::ffi::OsString;

use gantry_shared::wire::message::HeldProof;
use gantry_shared::wire::mpi::{MpiNote, MpiSubject};
use gantry_types::placement::PlacementBuilder;
use gantry_types::signal::Signal;

use super::*;

fn state(attached: bool) -> State {
    let mut placement = PlacementBuilder::new();
    for host in ["a", "a", "b"] {
        placement.push(host, None, "").unwrap();
    }
    let identity = Identity {
        app: "abcdefgh".parse().unwrap(),
        wlm: "none",
        attached,
        owner: Pid::new(1).unwrap(),
        command: Vec::new(),
        job: None,
    };
    State::new(identity, placement.build())
}

fn there(ranks: std::ops::Range<u32>, held: bool) -> Happening {
    let held = held.then_some(HeldProof { pc: 1, state: 'T' });
    let report = |rank: u32| RankReport {
        rank: Rank(rank),
        pid: Pid::new(100 + i32::try_from(rank).unwrap()).unwrap(),
        exe: OsString::from("/bin/app"),
        held,
    };
    Happening::RanksThere(ranks.map(report).collect())
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

#[test]
fn held_when_the_last_rank_is_and_released_when_the_last_node_has() {
    let mut state = state(false);
    assert_eq!(names(&state.handle(there(0..2, true))), [""; 0]);
    assert_eq!(state.app_state(), AppState::Starting);
    assert_eq!(names(&state.handle(there(2..3, true))), ["held"]);
    assert_eq!(state.app_state(), AppState::Held);
    assert_eq!(names(&state.handle(Happening::Released(nodes("0")))), [""; 0]);
    assert_eq!(state.app_state(), AppState::Held);
    assert_eq!(names(&state.handle(Happening::Released(nodes("1")))), ["released"]);
    assert_eq!(state.app_state(), AppState::Running);
    assert_eq!(names(&state.handle(Happening::Released(nodes("0-1")))), [""; 0]);
}

#[test]
fn a_failed_mpi_world_gives_the_app_its_code_and_is_told_once() {
    let mut state = state(false);
    let failed = |rank, code| Happening::MpiFailed(Rank(rank), code, "why".to_owned());
    // Ranks that are not held may fail before the report that they exist.
    assert_eq!(names(&state.handle(failed(1, 7))), ["mpi_failed"]);
    assert_eq!(names(&state.handle(there(0..3, false))), ["started"]);
    assert_eq!(names(&state.handle(failed(2, 137))), [""; 0]);
    assert_eq!(names(state.findings()), ["mpi_failed"]);
    for rank in 0..3 {
        drop(state.handle(Happening::RankExited(Rank(rank), ExitStatus::Signal(Signal::KILL))));
    }
    assert_eq!(state.exit().unwrap().code, 7);
    assert_eq!(names(&state.handle(failed(0, 1))), [""; 0]);
}

#[test]
fn a_note_about_the_mpi_world_is_told_once_for_each_subject() {
    let mut state = state(false);
    let note =
        |rank, subject| Happening::MpiNote(MpiNote { rank: Rank(rank), subject, text: "why".to_owned() });
    assert_eq!(names(&state.handle(note(1, MpiSubject::Foreign))), ["mpi_note"]);
    assert_eq!(names(&state.handle(note(2, MpiSubject::Foreign))), [""; 0]);
    assert_eq!(names(&state.handle(note(2, MpiSubject::Spawn))), ["mpi_note"]);
    assert_eq!(names(state.findings()), ["mpi_note"; 2]);
}

#[test]
fn the_release_is_told_before_the_end_of_a_rank_that_was_quicker_than_its_nodes_answer() {
    let mut state = state(false);
    drop(state.handle(there(0..3, true)));
    assert_eq!(names(&state.handle(Happening::Releasing)), [""; 0]);
    assert_eq!(
        names(&state.handle(Happening::RankExited(Rank(2), ExitStatus::Code(0)))),
        ["released", "rank_exited"]
    );
    assert_eq!(names(&state.handle(Happening::Released(nodes("0-1")))), [""; 0]);
    assert_eq!(state.app_state(), AppState::Running);
}

#[test]
fn a_rank_that_is_killed_after_a_failed_release_was_not_released() {
    let mut state = state(false);
    drop(state.handle(there(0..3, true)));
    drop(state.handle(Happening::Releasing));
    drop(state.handle(Happening::NotReleased));
    assert_eq!(names(&state.handle(Happening::RankExited(Rank(2), ExitStatus::Code(0)))), ["rank_exited"]);
}

#[test]
fn the_exit_code_is_the_highest_and_signals_count() {
    let mut state = state(false);
    drop(state.handle(there(0..3, false)));
    drop(state.handle(Happening::RankExited(Rank(0), ExitStatus::Code(3))));
    drop(state.handle(Happening::RankExited(Rank(2), ExitStatus::Signal(Signal::KILL))));
    let end = state.handle(Happening::RankExited(Rank(1), ExitStatus::Code(0)));
    assert_eq!(names(&end), ["rank_exited", "exited"]);
    assert_eq!(state.exit().unwrap().code, 137);
    assert_eq!(names(&state.handle(Happening::RankExited(Rank(1), ExitStatus::Code(0)))), [""; 0]);
}

#[test]
fn a_rank_that_ends_before_the_others_are_there_is_not_the_apps_end() {
    let mut state = state(false);
    drop(state.handle(there(0..2, false)));
    assert_eq!(names(&state.handle(Happening::RankExited(Rank(0), ExitStatus::Code(0)))), ["rank_exited"]);
    assert_eq!(
        names(&state.handle(Happening::RankExited(Rank(2), ExitStatus::Code(0)))),
        ["started", "rank_exited"]
    );
    // A report about a rank that has already ended brings its pid and no new state.
    drop(state.handle(there(2..3, false)));
    assert_eq!(
        names(&state.handle(Happening::RankExited(Rank(1), ExitStatus::Code(0)))),
        ["rank_exited", "exited"]
    );
}

#[test]
fn a_lost_node_takes_its_ranks_and_daemons_and_spoils_the_code() {
    let mut state = state(false);
    drop(state.handle(there(0..3, false)));
    let daemon = DaemonId(1);
    let places = vec![(NodeId(0), Pid::new(7).unwrap()), (NodeId(1), Pid::new(8).unwrap())];
    assert_eq!(names(&state.handle(Happening::DaemonThere(daemon, places))), ["daemon_started"; 2]);
    let lost = state.handle(Happening::NodesLost(nodes("1"), "cut".into()));
    assert_eq!(names(&lost), ["nodes_lost", "daemon_exited"]);
    assert_eq!(state.live_nodes(), nodes("0"));
    drop(state.handle(Happening::RankExited(Rank(0), ExitStatus::Code(0))));
    drop(state.handle(Happening::RankExited(Rank(1), ExitStatus::Code(0))));
    assert_eq!(state.exit().unwrap().code, 1);
}

#[test]
fn an_app_with_a_launcher_is_over_when_that_is_and_has_its_code() {
    let mut state = state(false).with_launcher();
    drop(state.handle(there(0..3, false)));
    for rank in 0..3 {
        let ended = state.handle(Happening::RankExited(Rank(rank), ExitStatus::Unknown));
        assert_eq!(names(&ended), ["rank_exited"]);
    }
    assert_eq!(names(&state.handle(Happening::LauncherEnded(ExitStatus::Code(7), None))), ["exited"]);
    assert_eq!(state.exit().unwrap().code, 7);
}

#[test]
fn agents_that_end_with_their_launcher_are_no_loss() {
    let mut state = state(false).with_launcher();
    drop(state.handle(there(0..3, false)));
    drop(state.handle(Happening::DaemonThere(DaemonId(1), vec![(NodeId(0), Pid::new(9).unwrap())])));
    assert_eq!(names(&state.handle(Happening::LauncherEnded(ExitStatus::Code(0), None))), [""; 0]);
    let lost = state.handle(Happening::NodesLost(nodes("0-1"), "cut".into()));
    assert_eq!(names(&lost), ["daemon_exited", "exited"]);
    assert_eq!(state.exit().unwrap().code, 0);
}

#[test]
fn nodes_without_ranks_are_those_whose_ranks_have_ended() {
    let mut state = state(false);
    state.handle(there(0..4, false));
    assert_eq!(state.nodes_without_ranks(&nodes("0-1")), nodes(""));
    for rank in state.placement().ranks_on(NodeId(1)).iter().collect::<Vec<_>>() {
        state.handle(Happening::RankExited(rank, ExitStatus::Unknown));
    }
    assert_eq!(state.nodes_without_ranks(&nodes("0-1")), nodes("1"));
    assert_eq!(state.nodes_without_ranks(&nodes("0")), nodes(""));
}

#[test]
fn agents_that_leave_as_told_are_no_loss() {
    let mut state = state(true);
    drop(state.handle(there(0..3, false)));
    drop(state.handle(Happening::DaemonThere(DaemonId(1), vec![(NodeId(0), Pid::new(9).unwrap())])));
    assert_eq!(names(&state.handle(Happening::AgentsLeft(nodes("0-1")))), ["daemon_exited", "exited"]);
    assert_eq!(names(&state.handle(Happening::NodesLost(nodes("0-1"), "late".into()))), [""; 0]);
}

#[test]
fn a_daemon_that_ends_before_its_start_is_answered_is_still_told_in_order() {
    let mut state = state(true);
    assert_eq!(names(&state.handle(there(0..3, false))), ["attached"]);
    let daemon = DaemonId(4);
    assert_eq!(
        names(&state.handle(Happening::DaemonExited(NodeId(0), daemon, ExitStatus::Code(2)))),
        [""; 0]
    );
    let started = state.handle(Happening::DaemonThere(daemon, vec![(NodeId(0), Pid::new(9).unwrap())]));
    assert_eq!(names(&started), ["daemon_started", "daemon_exited"]);
    assert_eq!(state.daemon_ends(daemon), Some(vec![(NodeId(0), ExitStatus::Code(2))]));
}
