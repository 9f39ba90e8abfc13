//! What a WLM says about an app: its name, and why the WLM ended it.

use gantry_types::signal::Signal;
use gantry_types::status::{EndCause, ExitStatus, RankState};
use gantry_wlm::{EndedApp, JobRef};

use super::{Launcher, State};
use crate::event::Event;

impl State {
    /// Records that the WLM ended the app or a part of it.
    pub(super) fn ended_by(&mut self, cause: EndCause, events: &mut Vec<Event>) {
        if let Some(exit) = &mut self.exit {
            exit.cause = Some(cause.clone());
        }
        self.cause = Some(cause.clone());
        events.push(Event::EndedBy { app: self.identity.app, cause: cause.kind, message: cause.message });
    }

    /// The question for the WLM, if only it knows why the app ended: the app was attached to, or failed without a
    /// launcher.
    pub(crate) fn needs_cause(&self) -> Option<EndedApp> {
        let badly = self.exit.as_ref().is_some_and(|exit| exit.code != 0);
        let asked = self.identity.attached || (badly && self.launcher == Launcher::None);
        let job = self.identity.job.as_ref().filter(|_| asked)?;
        let is_torn = |state: &RankState| {
            let ended = [Signal::TERM, Signal::KILL].map(ExitStatus::Signal);
            *state == RankState::Lost || state.exit_status().is_some_and(|status| ended.contains(&status))
        };
        let torn = self.ranks.iter().any(is_torn);
        Some(EndedApp { job: JobRef(job.clone()), lost: self.hosts(&self.lost), torn })
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::message::RankReport;
    use gantry_types::id::{NodeId, Pid, Rank};
    use gantry_types::placement::PlacementBuilder;
    use gantry_types::status::CauseKind;

    use super::super::{Happening, Identity};
    use super::*;

    /// A running app of one rank.
    fn running() -> State {
        let mut placement = PlacementBuilder::new();
        placement.push("a", None, "").unwrap();
        let identity = Identity {
            app: "abcdefgh".parse().unwrap(),
            wlm: "none",
            attached: false,
            owner: Pid::new(1).unwrap(),
            command: Vec::new(),
            job: Some("7.0".to_owned()),
        };
        let mut state = State::new(identity, placement.build()).with_launcher();
        let report =
            RankReport { rank: Rank(0), pid: Pid::new(100).unwrap(), exe: "/bin/app".into(), held: None };
        drop(state.handle(Happening::RanksThere(vec![report])));
        state
    }

    fn limit() -> EndCause {
        EndCause { kind: CauseKind::TimeLimit, message: "too long".to_owned() }
    }

    /// Checks an attached app of two ranks on two hosts. The ranks end with `ends`, unless they are lost with their
    /// host.
    #[track_caller]
    fn check_asked(ends: [Option<ExitStatus>; 2], lost: &[&str], torn: bool) {
        let mut placement = PlacementBuilder::new();
        placement.push("a", None, "").unwrap();
        placement.push("b", None, "").unwrap();
        let mut state = running();
        let identity = Identity { attached: true, ..state.identity.clone() };
        state = State::new(identity, placement.build());
        for (rank, end) in (0..).zip(ends) {
            drop(state.handle(match end {
                Some(status) => Happening::RankExited(Rank(rank), status),
                None => Happening::NodesLost([NodeId(rank)].into_iter().collect(), "cut".to_owned()),
            }));
        }
        let asked = state.needs_cause().unwrap();
        assert_eq!(
            (asked.job.0.as_str(), asked.lost, asked.torn),
            ("7.0", lost.iter().map(|it| (*it).to_owned()).collect(), torn)
        );
    }

    #[test]
    fn what_was_torn_is_told_from_what_has_ended() {
        let code = |code| Some(ExitStatus::Code(code));
        let signal = |signal| Some(ExitStatus::Signal(signal));
        check_asked([code(0), code(3)], &[], false);
        check_asked([code(0), signal(Signal::HUP)], &[], false);
        check_asked([code(0), signal(Signal::TERM)], &[], true);
        check_asked([signal(Signal::KILL), code(0)], &[], true);
        check_asked([code(0), None], &["b"], true);
    }

    fn shown(events: &[Event]) -> Vec<serde_json::Value> {
        events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
    }

    #[test]
    fn the_cause_is_told_before_the_end_and_is_part_of_it() {
        let mut state = running();
        drop(state.handle(Happening::RankExited(Rank(0), ExitStatus::Code(9))));
        let end = shown(&state.handle(Happening::LauncherEnded(ExitStatus::Code(143), Some(limit()))));
        assert_eq!(end[0]["event"], "ended_by");
        assert_eq!((&end[0]["cause"], &end[0]["message"]), (&"time_limit".into(), &"too long".into()));
        assert_eq!((&end[1]["event"], &end[1]["cause"]["kind"]), (&"exited".into(), &"time_limit".into()));
    }

    #[test]
    fn a_launcher_that_ended_well_was_ended_by_nobody() {
        let mut state = running();
        drop(state.handle(Happening::RankExited(Rank(0), ExitStatus::Code(0))));
        let end = shown(&state.handle(Happening::LauncherEnded(ExitStatus::Code(0), Some(limit()))));
        assert_eq!(end.len(), 1);
        assert!(end[0].get("cause").is_none(), "{end:?}");
        // An attached app has no launcher of ours: the cause becomes known later.
        let late = shown(&state.handle(Happening::EndedBy(limit())));
        assert_eq!(late[0]["event"], "ended_by");
        assert_eq!(state.exit().unwrap().cause, Some(limit()));
        assert_eq!(state.info().job.as_deref(), Some("7.0"));
    }
}
