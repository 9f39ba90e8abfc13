//! What a WLM says of an app: its name for it, and why it has ended it.

use gantry_wlm::EndCause;

use super::{Launcher, State};
use crate::event::Event;

impl State {
    /// The WLM has ended the app, or a part of it.
    pub(super) fn ended_by(&mut self, cause: EndCause, events: &mut Vec<Event>) {
        if let Some(exit) = &mut self.exit {
            exit.cause = Some(cause.clone());
        }
        self.cause = Some(cause.clone());
        events.push(Event::EndedBy { app: self.identity.app, cause: cause.kind, message: cause.message });
    }

    /// Whether only the WLM knows why the app has ended: it was attached to, or has ended badly and had no launcher.
    pub(crate) fn needs_cause(&self) -> bool {
        let badly = self.exit.as_ref().is_some_and(|exit| exit.code != 0);
        self.identity.attached || (badly && self.launcher == Launcher::None)
    }

    /// The WLM's name for what runs, where it has one.
    pub(crate) fn job(&self) -> Option<&str> {
        self.identity.job.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::id::{Pid, Rank};
    use gantry_shared::placement::PlacementBuilder;
    use gantry_shared::status::ExitStatus;
    use gantry_shared::wire::message::RankReport;
    use gantry_wlm::CauseKind;

    use super::super::{Happening, Identity};
    use super::*;

    /// An app of one rank, which runs.
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
        // What was attached to has no launcher of ours: the cause is known later.
        let late = shown(&state.handle(Happening::EndedBy(limit())));
        assert_eq!(late[0]["event"], "ended_by");
        assert_eq!(state.exit().unwrap().cause, Some(limit()));
        assert_eq!(state.info().job.as_deref(), Some("7.0"));
    }
}
