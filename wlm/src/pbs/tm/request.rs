//! Requests to a mom, as bytes and from bytes.
//!
//! The client encodes. The decoder is for servers: a stand-in for a mom, and tests of recordings.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use super::dis::{DisError, Reader, put_bytes, put_signed, put_unsigned};
use super::id::{EventId, NodeId, TaskId};

/// The number of the protocol.
pub const PROTOCOL: i32 = 2;
/// Its version.
pub const VERSION: i32 = 2;

/// The most bytes of a string in a request.
const MOST_BYTES: usize = super::packet::LARGEST_REPLY_BYTES;

/// The credential of a job: its holder can start programs as the job's owner. `Debug` does not show it, and it is
/// wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie(Vec<u8>);

impl Cookie {
    /// A cookie from `PBS_JOBCOOKIE`.
    #[must_use]
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self(text.into())
    }

    /// No cookie, for an attach.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Whether there is no cookie.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes. Use them only in a request.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}

/// The sender of requests: a task of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The job's id, in full.
    pub job: Vec<u8>,
    /// The job's cookie.
    pub cookie: Cookie,
    /// The requesting task.
    pub task: TaskId,
}

/// The kinds of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// The caller's place, and the list of nodes.
    Init,
    /// List the tasks on a node.
    Tasks,
    /// Start a task.
    Spawn,
    /// Send a signal to a task.
    Signal,
    /// Report when a task has ended.
    Obit,
    /// The properties of a node and the resources of the job.
    Resources,
    /// Store bytes under a name.
    Publish,
    /// Read the data that a task has stored under a name.
    Subscribe,
    /// Make a running session a task.
    Attach,
    /// A command that no PBS supports.
    Other(
        /// Its number.
        i32,
    ),
}

impl Verb {
    /// Its number.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Init => 100,
            Self::Tasks => 101,
            Self::Spawn => 102,
            Self::Signal => 103,
            Self::Obit => 104,
            Self::Resources => 105,
            Self::Publish => 106,
            Self::Subscribe => 107,
            Self::Attach => 113,
            Self::Other(number) => number,
        }
    }

    /// The verb of that number.
    #[must_use]
    pub fn from_number(number: i32) -> Self {
        let known = [
            Self::Init,
            Self::Tasks,
            Self::Spawn,
            Self::Signal,
            Self::Obit,
            Self::Resources,
            Self::Publish,
            Self::Subscribe,
            Self::Attach,
        ];
        known.into_iter().find(|verb| verb.number() == number).unwrap_or(Self::Other(number))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "init",
            Self::Tasks => "taskinfo",
            Self::Spawn => "spawn",
            Self::Signal => "kill",
            Self::Obit => "obit",
            Self::Resources => "rescinfo",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Attach => "attach",
            Self::Other(number) => return write!(f, "command {number}"),
        })
    }
}

/// A command.
#[derive(Clone, PartialEq, Eq)]
pub enum Command {
    /// The caller's place, and the list of nodes.
    Init,
    /// List the tasks on a node.
    Tasks {
        /// The node.
        node: NodeId,
    },
    /// Start a task.
    Spawn {
        /// The node.
        node: NodeId,
        /// The program and its arguments, in any bytes but zero.
        argv: Vec<Vec<u8>>,
        /// Variables as `NAME=value`, in place of the mom's values.
        variables: Vec<Vec<u8>>,
    },
    /// Send a signal to all processes of a task's session.
    Signal {
        /// A node of the task's host.
        node: NodeId,
        /// The task.
        task: TaskId,
        /// The signal's number.
        signal: i32,
    },
    /// Report when a task has ended.
    Obit {
        /// A node of the task's host.
        node: NodeId,
        /// The task.
        task: TaskId,
    },
    /// The properties of a node and the resources of the job.
    Resources {
        /// The node.
        node: NodeId,
    },
    /// Store bytes under a name.
    Publish {
        /// The name.
        name: Vec<u8>,
        /// The bytes.
        info: Vec<u8>,
    },
    /// Read the data that a task has stored under a name.
    Subscribe {
        /// A node of the task's host.
        node: NodeId,
        /// The task.
        task: TaskId,
        /// The name.
        name: Vec<u8>,
    },
    /// Make the session of a process a task of the job.
    Attach {
        /// The caller.
        uid: i32,
        /// The process.
        pid: i32,
    },
    /// A command that no PBS supports. A mom reads it up to its node before it refuses.
    Other {
        /// Its number.
        number: i32,
        /// The node.
        node: NodeId,
    },
}

impl Command {
    /// Its kind.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Self::Init => Verb::Init,
            Self::Tasks { .. } => Verb::Tasks,
            Self::Spawn { .. } => Verb::Spawn,
            Self::Signal { .. } => Verb::Signal,
            Self::Obit { .. } => Verb::Obit,
            Self::Resources { .. } => Verb::Resources,
            Self::Publish { .. } => Verb::Publish,
            Self::Subscribe { .. } => Verb::Subscribe,
            Self::Attach { .. } => Verb::Attach,
            Self::Other { number, .. } => Verb::Other(*number),
        }
    }

    /// The node that it is for.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Tasks { node }
            | Self::Spawn { node, .. }
            | Self::Signal { node, .. }
            | Self::Obit { node, .. }
            | Self::Resources { node }
            | Self::Subscribe { node, .. }
            | Self::Other { node, .. } => Some(*node),
            Self::Init | Self::Publish { .. } | Self::Attach { .. } => None,
        }
    }

    /// Builds the message, without a packet. It is wiped when dropped, because it contains the cookie.
    ///
    /// # Errors
    /// [`DisError::Overflow`] if a length does not fit.
    pub fn encode(&self, caller: &Caller, event: EventId) -> Result<Zeroizing<Vec<u8>>, DisError> {
        // A reallocation would leave a copy of the cookie behind.
        let mut out = Zeroizing::new(Vec::with_capacity(self.bytes() + caller.job.len() + 256));
        put_signed(&mut out, PROTOCOL);
        put_signed(&mut out, VERSION);
        put_bytes(&mut out, &caller.job)?;
        put_bytes(&mut out, caller.cookie.expose())?;
        put_signed(&mut out, self.verb().number());
        put_signed(&mut out, event.0);
        put_unsigned(&mut out, caller.task.0);
        self.put_rest(&mut out)?;
        Ok(out)
    }

    /// An upper bound of its size.
    fn bytes(&self) -> usize {
        let of = |list: &[Vec<u8>]| list.iter().map(|text| text.len() + 16).sum::<usize>();
        match self {
            Self::Spawn { argv, variables, .. } => of(argv) + of(variables),
            Self::Publish { name, info } => name.len() + info.len(),
            Self::Subscribe { name, .. } => name.len(),
            _ => 0,
        }
    }

    fn put_rest(&self, out: &mut Vec<u8>) -> Result<(), DisError> {
        if let Some(node) = self.node() {
            put_signed(out, node.0);
        }
        match self {
            Self::Init | Self::Tasks { .. } | Self::Resources { .. } | Self::Other { .. } => {}
            Self::Spawn { argv, variables, .. } => {
                put_signed(out, i32::try_from(argv.len()).map_err(|_| DisError::Overflow)?);
                for text in argv.iter().chain(variables) {
                    put_bytes(out, text)?;
                }
                put_bytes(out, b"")?;
            }
            Self::Signal { task, signal, .. } => {
                put_unsigned(out, task.0);
                put_signed(out, *signal);
            }
            Self::Obit { task, .. } => put_unsigned(out, task.0),
            Self::Publish { name, info } => {
                put_bytes(out, name)?;
                put_bytes(out, info)?;
            }
            Self::Subscribe { task, name, .. } => {
                put_unsigned(out, task.0);
                put_bytes(out, name)?;
            }
            Self::Attach { uid, pid } => {
                put_signed(out, *uid);
                put_signed(out, *pid);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Command {
    /// Omits arguments, variables and published bytes, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verb())?;
        match self {
            Self::Spawn { argv, variables, .. } => {
                write!(f, " {} arguments, {} variables", argv.len(), variables.len())?;
            }
            Self::Signal { task, signal, .. } => write!(f, " {task} signal {signal}")?,
            Self::Obit { task, .. } | Self::Subscribe { task, .. } => write!(f, " {task}")?,
            Self::Attach { uid, pid } => write!(f, " process {pid} of user {uid}")?,
            Self::Publish { info, .. } => write!(f, " {} bytes", info.len())?,
            _ => {}
        }
        self.node().map_or(Ok(()), |node| write!(f, " on {node}"))
    }
}

/// The head of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The number of the protocol.
    pub protocol: i32,
    /// Its version.
    pub version: i32,
    /// The caller.
    pub caller: Caller,
    /// The command.
    pub verb: Verb,
    /// The request's name.
    pub event: EventId,
}

impl Head {
    /// Decodes it from the front of a message.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DisError> {
        let protocol = reader.signed()?;
        let version = reader.signed()?;
        let job = reader.string(MOST_BYTES)?.to_vec();
        let cookie = Cookie::new(reader.string(MOST_BYTES)?);
        let verb = Verb::from_number(reader.signed()?);
        let event = EventId(reader.signed()?);
        let task = TaskId(reader.unsigned()?);
        Ok(Self { protocol, version, caller: Caller { job, cookie, task }, verb, event })
    }
}

impl Command {
    /// Decodes a command's own values, which follow its head.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn decode(verb: Verb, reader: &mut Reader<'_>) -> Result<Self, DisError> {
        Ok(match verb {
            Verb::Init => Self::Init,
            Verb::Tasks => Self::Tasks { node: node(reader)? },
            Verb::Spawn => {
                let (node, count) = (node(reader)?, reader.unsigned()?);
                let mut argv = Vec::new();
                for _ in 0..count {
                    argv.push(reader.string(MOST_BYTES)?.to_vec());
                }
                let mut variables = Vec::new();
                loop {
                    match reader.string(MOST_BYTES)? {
                        [] => break Self::Spawn { node, argv, variables },
                        text => variables.push(text.to_vec()),
                    }
                }
            }
            Verb::Signal => {
                let (node, task) = (node(reader)?, TaskId(reader.unsigned()?));
                Self::Signal { node, task, signal: reader.signed()? }
            }
            Verb::Obit => Self::Obit { node: node(reader)?, task: TaskId(reader.unsigned()?) },
            Verb::Resources => Self::Resources { node: node(reader)? },
            Verb::Publish => {
                let name = reader.string(MOST_BYTES)?.to_vec();
                Self::Publish { name, info: reader.bytes(MOST_BYTES)?.to_vec() }
            }
            Verb::Subscribe => {
                let (node, task) = (node(reader)?, TaskId(reader.unsigned()?));
                Self::Subscribe { node, task, name: reader.string(MOST_BYTES)?.to_vec() }
            }
            Verb::Attach => Self::Attach { uid: reader.signed()?, pid: reader.signed()? },
            Verb::Other(number) => Self::Other { number, node: node(reader)? },
        })
    }
}

/// Decodes a node. Moms read it as a number of zero or more.
fn node(reader: &mut Reader<'_>) -> Result<NodeId, DisError> {
    let number = reader.unsigned()?;
    i32::try_from(number).map(NodeId).map_err(|_| DisError::Overflow)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(1_u8.., 0..20)
    }

    fn commands() -> impl Strategy<Value = Command> {
        let node = (0..i32::MAX).prop_map(NodeId);
        let task = any::<u32>().prop_map(TaskId);
        prop_oneof![
            Just(Command::Init),
            node.clone().prop_map(|node| Command::Tasks { node }),
            (node.clone(), vec(text(), 0..5), vec(vec(1_u8.., 1..20), 0..5))
                .prop_map(|(node, argv, variables)| Command::Spawn { node, argv, variables }),
            (node.clone(), task.clone(), any::<i32>()).prop_map(|(node, task, signal)| Command::Signal {
                node,
                task,
                signal
            }),
            (node.clone(), task.clone()).prop_map(|(node, task)| Command::Obit { node, task }),
            node.clone().prop_map(|node| Command::Resources { node }),
            (text(), any::<Vec<u8>>()).prop_map(|(name, info)| Command::Publish { name, info }),
            (node.clone(), task, text()).prop_map(|(node, task, name)| Command::Subscribe {
                node,
                task,
                name
            }),
            any::<(i32, i32)>().prop_map(|(uid, pid)| Command::Attach { uid, pid }),
            (200_i32.., node).prop_map(|(number, node)| Command::Other { number, node }),
        ]
    }

    proptest! {
        #[test]
        fn requests_go_round(command in commands(), job in text(), cookie in text(), task: u32, event: i32) {
            let caller = Caller { job, cookie: Cookie::new(cookie), task: TaskId(task) };
            let message = command.encode(&caller, EventId(event)).unwrap();
            let mut reader = Reader::new(&message);
            let head = Head::decode(&mut reader).unwrap();
            prop_assert_eq!((&head.caller, head.event, head.verb), (&caller, EventId(event), command.verb()));
            prop_assert_eq!(&Command::decode(head.verb, &mut reader).unwrap(), &command);
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn a_request_that_is_cut_off_waits_for_more(command in commands(), cut: prop::sample::Index) {
            let caller = Caller { job: b"1.head".to_vec(), cookie: Cookie::new("AB"), task: TaskId::SCRIPT };
            let message = command.encode(&caller, EventId(1)).unwrap();
            let mut reader = Reader::new(&message[..cut.index(message.len())]);
            let read = Head::decode(&mut reader).and_then(|head| Command::decode(head.verb, &mut reader));
            // A command without values is complete as soon as its head is.
            prop_assert!(read == Err(DisError::Short), "{read:?}");
        }
    }

    #[test]
    fn nothing_of_a_cookie_or_a_program_is_shown() {
        let caller = Caller { job: b"1.head".to_vec(), cookie: Cookie::new("C0FFEE"), task: TaskId(1) };
        let command = Command::Spawn {
            node: NodeId(0),
            argv: vec![b"C0FFEE".to_vec()],
            variables: vec![b"A=C0FFEE".to_vec()],
        };
        let shown = format!("{caller:?} {command:?}");
        assert!(!shown.contains("C0FFEE"), "{shown}");
        assert!(shown.contains("spawn 1 arguments, 1 variables on node 0"), "{shown}");
    }

    #[test]
    fn a_verb_is_its_number() {
        for number in 90..120 {
            assert_eq!(Verb::from_number(number).number(), number);
        }
        assert_eq!(Verb::from_number(112), Verb::Other(112));
    }
}
