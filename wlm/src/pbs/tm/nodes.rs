//! The hosts of nodes. A mom reports only the nodes' numbers; their hosts are the lines of the node file, in the same
//! order.

use super::environment::Environment;
use super::id::NodeId;
use super::reply::Roots;

/// A node and its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its host, if the node file is known and has the right number of lines.
    pub host: Option<String>,
}

/// The nodes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// Combines the mom's answer and the node file. A file with another number of lines is ignored.
    #[must_use]
    pub fn new(roots: &Roots, environment: &Environment) -> Self {
        let hosts = environment.hosts.as_ref().filter(|hosts| hosts.len() == roots.nodes.len());
        let host = |index: usize| hosts.and_then(|hosts| hosts.get(index)).cloned();
        Self(roots.nodes.iter().enumerate().map(|(index, id)| Node { id: *id, host: host(index) }).collect())
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> &[Node] {
        &self.0
    }

    /// Their numbers, in order.
    #[must_use]
    pub fn ids(&self) -> Vec<NodeId> {
        self.0.iter().map(|node| node.id).collect()
    }

    /// The first node of each host, with the host's name. `None`: the hosts are unknown.
    #[must_use]
    pub fn one_per_host(&self) -> Option<Vec<(NodeId, &str)>> {
        let mut found: Vec<(NodeId, &str)> = Vec::new();
        for node in &self.0 {
            let host = node.host.as_deref()?;
            if found.iter().all(|(_, known)| *known != host) {
                found.push((node.id, host));
            }
        }
        Some(found)
    }

    /// The nodes on a host. Its name may have its domain or not.
    #[must_use]
    pub fn on_host(&self, name: &str) -> Vec<NodeId> {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let is_there = |node: &&Node| node.host.as_deref().is_some_and(|host| short(host) == short(name));
        self.0.iter().filter(is_there).map(|node| node.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::TaskId;
    use super::super::request::{Caller, Cookie};
    use super::*;

    fn nodes(count: i32, file: &str) -> Nodes {
        let caller = Caller { job: b"1.head".to_vec(), cookie: Cookie::new("AB"), task: TaskId::SCRIPT };
        let environment = Environment { caller, host_index: 0, port: 1, hosts: None, own_host: None };
        let roots = Roots { nodes: (0..count).map(NodeId).collect(), ..Roots::default() };
        Nodes::new(&roots, &environment.with_node_file(file))
    }

    #[test]
    fn a_host_with_several_nodes_is_there_once() {
        let nodes = nodes(4, "n001\nn001\nn002.site\nn001\n");
        assert_eq!(nodes.one_per_host(), Some(vec![(NodeId(0), "n001"), (NodeId(2), "n002.site")]));
        assert_eq!(nodes.on_host("N001.site"), [NodeId(0), NodeId(1), NodeId(3)]);
        assert_eq!(nodes.on_host("n002"), [NodeId(2)]);
        assert_eq!(nodes.on_host("n003"), []);
    }

    #[test]
    fn a_file_that_does_not_fit_is_not_believed() {
        let nodes = nodes(3, "n001\nn002\n");
        assert_eq!((nodes.one_per_host(), nodes.ids().len()), (None, 3));
        assert_eq!(nodes.on_host("n001"), []);
    }
}
