//! The minimum time of a machine for agents' work. The smallest program that does this work runs on every node. Benches
//! show its time next to gantry's.
//!
//! All nodes of a testbed share this machine's cores. So a time that grows with the number of nodes means little by
//! itself: the kernel needs most of it to start and end so many processes, and to load their libraries.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::programs;

const PROGRAM: &str = "bare_node";

/// The timeout for all nodes to connect, or to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An order to all bare nodes: one or two processes on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Start a process.
    Start,
    /// End all started processes, and wait for their end.
    End,
    /// Start two that are held at their first instruction.
    Hold,
    /// Let those go.
    LetGo,
    /// Wait for those to end.
    Collect,
}

impl Order {
    fn byte(self) -> u8 {
        match self {
            Self::Start => b's',
            Self::End => b'k',
            Self::Hold => b'h',
            Self::LetGo => b'c',
            Self::Collect => b'e',
        }
    }
}

/// Small programs that wait for orders, one on each node. They end when this is dropped.
#[derive(Debug)]
pub struct BareNodes {
    links: Vec<TcpStream>,
    launcher: Child,
}

/// Compiles the program. Call this with write access to the target folder, which a testbed's user does not have.
pub fn prepare() {
    drop(programs::get(PROGRAM));
}

impl BareNodes {
    /// Starts them. `launcher` is the command that starts a program on every node; this adds the program's arguments.
    /// The programs connect to `here`, an address of this machine.
    ///
    /// # Panics
    /// They do not connect in time.
    #[must_use]
    pub fn start(launcher: &mut Command, here: SocketAddr, nodes: u16) -> Self {
        let listener = TcpListener::bind(here).expect("a socket for bare nodes");
        let at = listener.local_addr().expect("its address");
        launcher.arg(programs::get(PROGRAM)).args([at.ip().to_string(), at.port().to_string()]);
        let launcher = launcher.spawn().expect("the launcher of bare nodes");
        let accept = || {
            let (link, _) = listener.accept().expect("a bare node");
            link.set_nodelay(true).and_then(|()| link.set_read_timeout(Some(PATIENCE))).expect("a link");
            link
        };
        Self { links: (0..nodes).map(|_| accept()).collect(), launcher }
    }

    /// Gives an order to all, waits until each one has executed it, and returns the time for that.
    ///
    /// # Panics
    /// One of them cannot execute it.
    pub fn time(&mut self, order: Order) -> Duration {
        let start = Instant::now();
        for link in &mut self.links {
            link.write_all(&[order.byte()]).expect("a bare node takes an order");
        }
        for link in &mut self.links {
            let mut answer = [0];
            link.read_exact(&mut answer).expect("a bare node answers");
            assert_eq!(answer, *b"y", "{order:?}");
        }
        start.elapsed()
    }
}

impl Drop for BareNodes {
    fn drop(&mut self) {
        self.links.clear();
        // They see the end of their links, and the launcher theirs.
        drop(self.launcher.wait());
    }
}
