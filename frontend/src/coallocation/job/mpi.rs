//! The MPI world of a job's parts: its members, and what happens to them when it fails.

use std::collections::BTreeMap;

use gantry_shared::wire::mpi::MpiEnd;

use super::Keeper;
use crate::coallocation::mpi_failure::MpiFailure;
use crate::coallocation::state::{Act, StartType, SubjobId};
use crate::coallocation::world;
use crate::error::Result;
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
