//! Opens sessions: chooses one path for an app's sessions on every node.
//!
//! The name of the app's directory is random. Its base is the default of the nodes, if they all have the same one.
//! Then opening costs one order, as creating the session anyway does. If they differ (a `TMPDIR` that only some nodes
//! have), the bases that they name are tried in turn.

use std::path::{Path, PathBuf};

use gantry_shared::storage::choose_app_dir_name;
use gantry_shared::wire::message::{Answer, Order, Reply};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, SessionId};
use gantry_types::rank_set::NodeSet;
use gantry_types::session_dirs::SessionDirs;
use tokio::time::{Instant, timeout_at};

use super::place::{Chosen, Place};
use crate::app::DAEMON_GRACE;
use crate::app::core::Core;
use crate::error::{Error, Result};

/// The last candidates.
const USUAL: [&str; 2] = ["/tmp", "/var/tmp"];

impl Place {
    /// Creates a session's directories on these nodes. On failure the caller must remove the directories that some
    /// nodes have created.
    pub(super) async fn open(
        &self,
        core: &Core,
        session: SessionId,
        nodes: &NodeSet,
        deadline: Instant,
    ) -> Result<SessionDirs> {
        let asked = Instant::now();
        let Ok(mut place) = timeout_at(deadline, self.0.lock()).await else {
            // Another call opens the first session, and its nodes do not answer.
            let (phase, after) = ("opening a session", Instant::now() - asked);
            return Err(Error::TimedOut { phase, after, missing: Vec::new() });
        };
        let opening = Opening { core, session, nodes, deadline };
        if let Some(chosen) = place.clone() {
            drop(place);
            let answers = opening.ask(&chosen.name, Some(&chosen.base)).await?;
            return one_root(&roots(core.accept(answers)?)?).ok_or_else(differ);
        }
        let (name, dirs) = opening.choose(core.app).await?;
        if let Some(base) = dirs.root.ancestors().nth(2) {
            *place = Some(Chosen { name, base: base.to_owned() });
        }
        Ok(dirs)
    }
}

/// A session that is being opened.
struct Opening<'a> {
    core: &'a Core,
    session: SessionId,
    nodes: &'a NodeSet,
    deadline: Instant,
}

impl Opening<'_> {
    async fn ask(&self, name: &str, base: Option<&Path>) -> Result<Vec<(NodeId, Reply)>> {
        let base = base.map(|base| base.as_os_str().to_owned());
        let order = Order::OpenSession { session: self.session, app_dir: name.to_owned(), base };
        self.core.ask_each(self.nodes, order, "opening a session", self.deadline).await
    }

    /// Makes the nodes remove their part of it.
    async fn take_back(&self) -> Result<()> {
        let order = Order::CloseSession { session: self.session, grace: DAEMON_GRACE };
        // Nodes without it report that.
        self.core.ask_each(self.nodes, order, "opening a session", self.deadline).await.map(drop)
    }

    /// Finds a base that works on all nodes, and creates the directories there.
    async fn choose(&self, app: AppId) -> Result<(String, SessionDirs)> {
        let name = choose_app_dir_name(app).map_err(|error| Error::Node {
            hosts: Vec::new(),
            failure: Failure::new(Kind::Unsupported, error.to_string()),
        })?;
        let roots = roots(self.core.accept(self.ask(&name, None).await?)?)?;
        if let Some(dirs) = one_root(&roots) {
            return Ok((name, dirs));
        }
        let (mut reasons, mut kinds) = (Vec::new(), Vec::new());
        for base in candidates(&roots) {
            self.take_back().await?;
            let answers = self.ask(&name, Some(&base)).await?;
            let refused = answers.iter().find_map(|(node, answer)| Some((*node, answer.as_ref().err()?)));
            match refused {
                Some((node, failure)) => {
                    let host = self.core.state().host(node);
                    reasons.push(format!("{host}: {}", failure.message()));
                    kinds.push(failure.kind());
                }
                None => {
                    let dirs = one_root(&self::roots(self.core.accept(answers)?)?).ok_or_else(differ)?;
                    return Ok((name, dirs));
                }
            }
        }
        let message = format!("no directory for sessions will do on every node: {}", reasons.join("; "));
        let is_full = kinds.iter().all(|kind| *kind == Kind::System);
        let failure = Failure::new(if is_full { Kind::System } else { Kind::NoAccess }, message)
            .with_hint("name one that every node has: --stage-dir, or GANTRY_STAGE_DIR");
        Err(Error::Node { hosts: Vec::new(), failure })
    }
}

/// The candidates: the nodes' bases in the order of node numbers, then the usual ones.
fn candidates(roots: &[PathBuf]) -> Vec<PathBuf> {
    let named = roots.iter().filter_map(|root| root.ancestors().nth(2));
    let mut bases: Vec<PathBuf> = Vec::new();
    for base in named.chain(USUAL.map(Path::new)) {
        if !bases.iter().any(|known| known == base) {
            bases.push(base.to_owned());
        }
    }
    bases
}

fn roots(answers: Vec<(NodeId, Answer)>) -> Result<Vec<PathBuf>> {
    let root = |(_, answer)| match answer {
        Answer::Session(root) => Ok(PathBuf::from(root)),
        other => Err(Error::Protocol(format!("an agent answered {other:?} to a session"))),
    };
    answers.into_iter().map(root).collect()
}

/// The session's directories, if all nodes have the same path.
fn one_root(roots: &[PathBuf]) -> Option<SessionDirs> {
    let first = roots.first()?;
    roots.iter().all(|root| root == first).then(|| SessionDirs::new(first))
}

fn differ() -> Error {
    Error::Protocol("agents created a session in another directory than requested".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bases_of_nodes_are_tried_in_order_and_the_usual_last() {
        let check = |roots: &[&str], expected: &[&str]| {
            let roots: Vec<PathBuf> =
                roots.iter().map(|base| Path::new(base).join("gantry-x-y/s1")).collect();
            assert_eq!(candidates(&roots), expected.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        check(&["/scratch/1", "/tmp", "/scratch/1"], &["/scratch/1", "/tmp", "/var/tmp"]);
        check(&["/var/tmp", "/a"], &["/var/tmp", "/a", "/tmp"]);
    }

    #[test]
    fn one_path_is_one_path_on_every_node() {
        let one = PathBuf::from("/tmp/gantry-x-y/s1");
        assert_eq!(one_root(&[one.clone(), one.clone()]).unwrap().root, one);
        assert!(one_root(&[one, "/var/tmp/gantry-x-y/s1".into()]).is_none());
        assert!(one_root(&[]).is_none());
    }
}
