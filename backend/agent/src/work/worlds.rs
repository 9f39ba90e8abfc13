//! The MPI world of this node's ranks.
//!
//! Either it is the app's own world, known before the ranks start. Or the frontend announces it when all its apps are
//! there.

use std::os::fd::OwnedFd;

use gantry_shared::wire::message::Notice;
use gantry_shared::wire::mpi::{JoinWorld, MpiNote, MpiSubject};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use gantry_wlm::host::explain_open_files;

use super::{Agent, Event};
use crate::failure;
use crate::pmi::{Server, Upcoming, Wish, World};
use crate::pmix;

impl Agent {
    /// The started ranks exist, and have these sockets, or the server of a library.
    pub(super) fn serve_started(
        &mut self,
        sockets: Vec<(Rank, OwnedFd)>,
        server: Option<pmix::Started>,
    ) -> Result<(), Failure> {
        match std::mem::replace(&mut self.world, Upcoming::None) {
            Upcoming::Known(world) => match server {
                Some(server) => {
                    self.mpi = Some(Server::start_library(*world, server, self.build_wish()));
                    Ok(())
                }
                None => self.serve_mpi(*world, sockets),
            },
            Upcoming::Told(_) => {
                self.world = Upcoming::Told(sockets);
                Ok(())
            }
            Upcoming::None => Ok(()),
        }
    }

    /// A launcher's rank asks for an MPI server.
    pub(super) fn serve_mpi_rank(&mut self, rank: Rank, socket: OwnedFd) {
        match (&mut self.world, &mut self.mpi) {
            (Upcoming::Told(sockets), _) => {
                if sockets.iter().all(|(known, _)| *known != rank) {
                    sockets.push((rank, socket));
                }
            }
            (_, Some(server)) => {
                if let Err(error) = server.serve(rank, socket) {
                    self.up.notice(Notice::MpiNote(build_unserved(rank, &error)));
                }
            }
            // Dropping the socket tells the rank that there is no server.
            (_, None) => {}
        }
    }

    /// A rank's connection was not accepted: nearly always this process has no descriptor left.
    pub(super) fn tell_not_accepted(&self, error: &std::io::Error) {
        // Whose connection it was is not known.
        let Some(rank) = self.ranks.all().first().copied() else { return };
        let hint = explain_open_files(error).map(|hint| format!(". {hint}")).unwrap_or_default();
        let text = format!(
            "{} has no room for a rank's connection ({error}). Ranks that connect wait until there is some{hint}",
            self.ticket.host
        );
        self.up.notice(Notice::MpiNote(MpiNote { rank, subject: MpiSubject::Unserved, text }));
    }

    /// The world is known: numbers its ranks, and lets them begin.
    pub(super) fn join_world(&mut self, join: &JoinWorld) -> Result<(), Failure> {
        let Upcoming::Told(sockets) = std::mem::replace(&mut self.world, Upcoming::None) else {
            let why = "join an MPI world: the ranks of this node wait for none";
            return Err(Failure::new(Kind::Protocol, why));
        };
        let world = World::joined(join, &self.ranks.all());
        self.ranks.renumber(join.first, world.size())?;
        self.serve_mpi(world, sockets)?;
        if let Some(server) = &mut self.mpi {
            self.ranks.ended().for_each(|(rank, status)| server.ended(rank, status));
        }
        Ok(())
    }

    /// Ranks that are MPI programs begin to run.
    pub(super) fn look_at_mpi(&mut self) {
        if let Some(server) = &mut self.mpi {
            server.look_at(self.ranks.pids());
        }
    }

    /// Serves ranks that are MPI programs.
    fn serve_mpi(&mut self, world: World, sockets: Vec<(Rank, OwnedFd)>) -> Result<(), Failure> {
        let server = Server::start(world, sockets, self.build_wish());
        self.mpi = Some(server.map_err(|e| failure::from_io("serve MPI programs", &e))?);
        self.look_at_mpi();
        Ok(())
    }

    /// Takes what a server asks of the agent.
    fn build_wish(&self) -> impl Fn(Wish) + 'static {
        let events = self.events.clone();
        // After the agent has left, the event has no receiver.
        move |wish| match wish {
            Wish::Ask(request) => drop(events.send(Event::Rendezvous(request))),
            Wish::End(failed) => drop(events.send(Event::MpiFailed(failed))),
            Wish::Note(note) => drop(events.send(Event::MpiNote(note))),
        }
    }
}

fn build_unserved(rank: Rank, error: &std::io::Error) -> MpiNote {
    let text = format!(
        "rank {rank} is not served as an MPI program ({error}). Its MPI_Init fails, or makes a world of its own"
    );
    MpiNote { rank, subject: MpiSubject::Unserved, text }
}
