//! The MPI world of a job's parts: who is in it, and what becomes of them when it cannot go on.

use std::collections::BTreeMap;

use gantry_shared::wire::mpi::MpiEnd;

use super::Keeper;
use crate::coallocation::mpi_failure::MpiFailure;
use crate::coallocation::state::{Act, StartType, SubjobId};
use crate::coallocation::world;
use crate::error::Result;
use crate::lock::lock;

impl Keeper {
    /// The MPI world of that part cannot go on. Whether the others can, its start type says; `MPI_Abort` is for all.
    ///
    /// A library that loses the way to a rank ends its own, and may be heard before the end of that rank is. Then that one is the reason.
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

    /// Notes why a part ends that has not ended.
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

    /// The places in the job's MPI world of the parts that are to be released now.
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
