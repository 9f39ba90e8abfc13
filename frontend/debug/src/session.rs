//! The state and place of all ranks, and the ranks that a command is for.

use gantry_gdb::answer::{Answer, State};
use gantry_types::rank_set::RankSet;
use serde::Serialize;

use crate::round::Outcome;
use crate::sets::{NoSet, Sets};

/// Everything known about the ranks.
#[derive(Debug, Clone, Default)]
pub struct Session {
    sets: Sets,
    /// Ranks that were held and have been released.
    gone_on: RankSet,
    /// Ranks that were held when they got their gdb.
    were_held: RankSet,
}

/// Ranks in the same state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// The ranks.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub ranks: RankSet,
    /// Their state.
    pub state: String,
}

impl Session {
    /// A session with these ranks; the current set is all of them.
    #[must_use]
    pub fn new(all: RankSet) -> Self {
        Self { sets: Sets::new(all), gone_on: RankSet::new(), were_held: RankSet::new() }
    }

    /// The names of sets.
    #[must_use]
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// The names of sets, for changes.
    pub fn sets_mut(&mut self) -> &mut Sets {
        &mut self.sets
    }

    /// The current set.
    #[must_use]
    pub fn focus(&self) -> &RankSet {
        &self.sets.focus
    }

    /// Makes another set the current one.
    ///
    /// # Errors
    /// The text does not name a set.
    pub fn set_focus(&mut self, text: &str) -> Result<&RankSet, NoSet> {
        self.sets.focus = self.sets.resolve(text)?;
        Ok(&self.sets.focus)
    }

    /// The ranks that a command is for.
    ///
    /// # Errors
    /// The text does not name a set.
    pub fn meant(&self, set: Option<&str>) -> Result<RankSet, NoSet> {
        set.map_or_else(|| Ok(self.sets.focus.clone()), |set| self.sets.resolve(set))
    }

    /// The prompt.
    #[must_use]
    pub fn prompt(&self) -> String {
        format!("[{}] (gdb) ", self.sets.focus)
    }

    /// Takes the new state of the ranks. Ranks of nodes that have not answered keep their old state.
    pub fn take(&mut self, answers: &[(Answer, RankSet)]) {
        let told = answers.iter().fold(RankSet::new(), |all, (_, ranks)| all.union(ranks));
        let mut states: Vec<(State, RankSet)> = Vec::new();
        let before = std::mem::take(&mut self.sets.states);
        let kept = before.into_iter().map(|(state, ranks)| (state, ranks.difference(&told)));
        let now =
            answers.iter().map(|(answer, ranks)| (answer.state.clone(), ranks.intersection(&self.sets.all)));
        for (state, ranks) in kept.chain(now).filter(|(_, ranks)| !ranks.is_empty()) {
            match states.iter_mut().find(|(it, _)| *it == state) {
                Some((_, all)) => *all = all.union(&ranks),
                None => states.push((state, ranks)),
            }
        }
        self.sets.states = states;
        self.were_held = self.were_held.union(&self.sets.of_states(|state| *state == State::Held));
        // A rank that gdb stopped on attach has no stop reason.
        let running = self.sets.of_states(|state| match state {
            State::Running | State::Ended(_) => true,
            State::Stopped(stop) => !stop.why.is_empty(),
            State::Held | State::Free | State::Coming | State::Away(_) => false,
        });
        self.gone_on = self.gone_on.union(&running);
    }

    /// Takes the classes of an answer. Users refer to them as `class 2`.
    pub fn take_classes(&mut self, outcome: &Outcome) {
        self.sets.classes = outcome.classes.iter().map(|class| class.ranks.clone()).collect();
    }

    /// Whether all held ranks have continued, so that no rank has to be held any more.
    #[must_use]
    pub fn all_have_gone_on(&self) -> bool {
        !self.were_held.is_empty() && self.were_held.difference(&self.gone_on).is_empty()
    }

    /// Why no rank can be asked any more. `None`: some can.
    #[must_use]
    pub fn end(&self) -> Option<&'static str> {
        let is_all = |ranks: RankSet| ranks == self.sets.all;
        if is_all(self.sets.of_states(|state| matches!(state, State::Ended(_)))) {
            return Some("all ranks have ended");
        }
        let over = self.sets.of_states(|state| matches!(state, State::Ended(_) | State::Away(_)));
        is_all(over).then_some("no rank can be asked any more: gantry's daemons have ended")
    }

    /// The states of some ranks, the odd ones first.
    #[must_use]
    pub fn standings(&self, of: &RankSet) -> Vec<Standing> {
        let mut standings: Vec<Standing> = Vec::new();
        for (state, ranks) in &self.sets.states {
            let (ranks, state) = (ranks.intersection(of), describe(state));
            match standings.iter_mut().find(|it| it.state == state) {
                _ if ranks.is_empty() => {}
                Some(it) => it.ranks = it.ranks.union(&ranks),
                None => standings.push(Standing { ranks, state }),
            }
        }
        standings.sort_by_key(|it| (it.ranks.len(), it.ranks.first()));
        standings
    }
}

fn describe(state: &State) -> String {
    match state {
        State::Held => "held before the first instruction".to_owned(),
        State::Free => "running, without gdb".to_owned(),
        State::Coming => "gdb is being started".to_owned(),
        State::Running => "running".to_owned(),
        State::Stopped(stop) => format!("stopped: {stop}"),
        State::Ended(how) => format!("ended: {how}"),
        State::Away(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use gantry_gdb::answer::Stop;

    use super::*;

    fn set(text: &str) -> RankSet {
        text.parse().unwrap()
    }

    fn now(session: &mut Session, states: &[(State, &str)]) {
        let answers: Vec<(Answer, RankSet)> = states
            .iter()
            .map(|(state, ranks)| (Answer { state: state.clone(), reply: None }, set(ranks)))
            .collect();
        session.take(&answers);
    }

    #[test]
    fn the_current_set_is_in_the_prompt_and_gets_the_commands() {
        let mut session = Session::new(RankSet::first_n(64));
        assert_eq!(session.prompt(), "[0-63] (gdb) ");
        session.set_focus("0,8-15").unwrap();
        assert_eq!(session.prompt(), "[0,8-15] (gdb) ");
        assert_eq!(session.meant(None).unwrap(), set("0,8-15"));
        assert_eq!(session.meant(Some("3")).unwrap(), set("3"));
        assert!(session.set_focus("64").is_err());
        assert_eq!(session.focus(), &set("0,8-15"));
    }

    #[test]
    fn it_is_known_who_stands_where() {
        let mut session = Session::new(RankSet::first_n(4));
        let stop = |line| {
            State::Stopped(Stop {
                function: "main".to_owned(),
                file: "/x/a.c".to_owned(),
                line,
                ..Stop::default()
            })
        };
        now(&mut session, &[(stop(3), "0-2"), (State::Running, "3")]);
        // The other nodes do not answer.
        now(&mut session, &[(stop(4), "0")]);
        let standings: Vec<String> =
            session.standings(&set("0-3")).iter().map(|it| format!("{} {}", it.ranks, it.state)).collect();
        assert_eq!(standings, ["0 stopped: main at a.c:4", "3 running", "1-2 stopped: main at a.c:3"]);
        assert_eq!(session.sets().resolve("at main").unwrap(), set("0-2"));
        assert_eq!(session.standings(&set("3")).len(), 1);
    }

    #[test]
    fn nothing_is_held_any_more_when_all_have_gone_on() {
        let mut session = Session::new(RankSet::first_n(2));
        now(&mut session, &[(State::Free, "0-1")]);
        assert!(!session.all_have_gone_on());
        let mut session = Session::new(RankSet::first_n(2));
        now(&mut session, &[(State::Held, "0-1")]);
        now(&mut session, &[(State::Running, "0"), (State::Held, "1")]);
        assert!(!session.all_have_gone_on());
        // A held rank whose daemon has ended is still held.
        let mut without_daemon = session.clone();
        now(&mut without_daemon, &[(State::Away("no daemon".to_owned()), "0-1")]);
        assert!(!without_daemon.all_have_gone_on() && without_daemon.end().is_some());
        now(&mut session, &[(State::Stopped(Stop::default()), "0-1")]);
        assert!(!session.all_have_gone_on());
        now(
            &mut session,
            &[(State::Stopped(Stop { why: "breakpoint-hit".to_owned(), ..Stop::default() }), "1")],
        );
        assert!(session.all_have_gone_on() && session.end().is_none());
        now(&mut session, &[(State::Ended(String::new()), "0-1")]);
        assert_eq!(session.end(), Some("all ranks have ended"));
    }
}
