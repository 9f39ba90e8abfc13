//! The MPI world of a job's parts: its members, and what happens to them when it fails.

use std::collections::BTreeMap;

use gantry_shared::wire::mpi::MpiEnd;

use super::Keeper;
use crate::coallocation::info::SubjobInfo;
use crate::coallocation::mpi_failure::MpiFailure;
use crate::coallocation::state::{Act, StartType, SubjobId};
use crate::coallocation::subjob::Planned;
use crate::coallocation::world;
use crate::error::{Error, Result};
use crate::lock::lock;

impl Keeper {
    /// Handles the failure of a part's MPI world. The part's start type decides whether the others continue;
    /// `MPI_Abort` ends all.
    ///
    /// A library that loses its connection to a rank ends its own ranks. Its report may arrive before that of the first
    /// rank's end. Then the later report is the cause.
    pub(super) fn mpi_failed(&mut self, id: SubjobId, failure: MpiFailure) {
        let is_cause = match &self.failure {
            None => true,
            Some((first, told)) => {
                *first != id && told.end != MpiEnd::Killed && failure.end == MpiEnd::Killed
            }
        };
        if !is_cause {
            return;
        }
        let MpiFailure { code, why, end } = failure.clone();
        self.explain(id, &why, code);
        if end != MpiEnd::Aborted && self.members.get(&id) != Some(&StartType::StrictBarrier) {
            return;
        }
        self.failure = Some((id, failure));
        let why = format!("subjob {}: {why}", self.label(id));
        let others: Vec<SubjobId> = self.members.keys().copied().filter(|other| *other != id).collect();
        others.iter().for_each(|other| self.explain(*other, &why, code));
        let acts = self.state.end_some(&others);
        self.carry_out(acts);
    }

    /// Chooses the network of a new part of the world. MPI libraries need the same choice in all parts.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the part is of another manager, and parts that run already use their own manager's network.
    pub(super) fn choose_transport(&mut self, id: SubjobId, planned: &mut Planned) -> Result<()> {
        let is_mixed = self.managers.iter().any(|manager| *manager != planned.wlm);
        if is_mixed {
            let seen = lock(&self.board.seen);
            let runs = |id: &&SubjobId| seen.subjobs.get(id).is_some_and(|(info, _)| !info.state.is_over());
            if let Some((before, _)) = self.native.iter().find(runs).and_then(|id| seen.subjobs.get(id)) {
                return Err(refuse_late(planned.wlm, before));
            }
            planned.use_common_transport();
        } else if !planned.has_transport() {
            self.native.insert(id);
        }
        Ok(())
    }

    /// Notes why a running part ends.
    fn explain(&self, id: SubjobId, why: &str, code: i32) {
        self.know(id, |(info, _)| {
            if !info.state.is_over() {
                (info.why, info.code) = (Some(why.to_owned()), Some(code));
            }
        });
    }

    pub(super) fn label(&self, id: SubjobId) -> String {
        let seen = lock(&self.board.seen);
        seen.subjobs.get(&id).map_or_else(|| id.0.to_string(), |(info, _)| info.label.clone())
    }

    /// Assigns places in the job's MPI world to the parts that are to be released now.
    pub(super) fn form_world(&self, acts: &[Act]) -> Result<BTreeMap<SubjobId, Box<world::Seat>>> {
        let released = |id: &SubjobId| acts.contains(&Act::Release(*id));
        let seen = lock(&self.board.seen);
        let member = |id: &SubjobId| {
            let (info, app) = seen.subjobs.get(id)?;
            Some((*id, (info.label.clone(), app.clone()?)))
        };
        let members = self.members.keys().filter(|id| released(id)).filter_map(member);
        let (ids, parts): (Vec<_>, Vec<_>) = members.unzip();
        drop(seen);
        Ok(ids.into_iter().zip(world::form(&parts)?.into_iter().map(Box::new)).collect())
    }
}

/// The error for a part whose ranks would not reach those of a part that runs already.
fn refuse_late(wlm: &str, before: &SubjobInfo) -> Error {
    let [set, _] = world::TRANSPORT.map(|(name, value)| format!("{name}={value}"));
    let SubjobInfo { label, wlm: first, .. } = before;
    Error::Invalid {
        message: format!(
            "the part is of {wlm}, and subjob {label} was started with the network of {first} alone: their MPI libraries would not find a common one"
        ),
        hint: Some(format!(
            "name parts of several managers from the beginning, or set {set} in your shell before"
        )),
    }
}
