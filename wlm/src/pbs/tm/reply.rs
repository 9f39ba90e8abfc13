//! Replies: a mom's answers, from bytes and as bytes.

use super::code::Code;
use super::dis::{DisError, Reader, put_bytes, put_signed, put_unsigned};
use super::id::{EventId, NodeId, TaskId};
use super::request::{PROTOCOL, VERSION, Verb};

/// The code of a good reply.
const OKAY: i32 = 0;
/// The code of a failure; the error number follows.
const ERROR: i32 = 999;

/// The most bytes of a string in a reply.
const MOST_BYTES: usize = super::packet::LARGEST_REPLY_BYTES;

/// The content of a successful reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Verb::Init`].
    Init(Roots),
    /// To [`Verb::Tasks`]: all tasks, including ended ones.
    Tasks(Vec<TaskId>),
    /// To [`Verb::Spawn`] and [`Verb::Attach`]: the new task.
    Task(TaskId),
    /// To [`Verb::Signal`] and [`Verb::Publish`].
    Done,
    /// To [`Verb::Obit`]: an exit code up to 255, or 256 and a signal's number.
    Status(i32),
    /// To [`Verb::Resources`].
    Resources(Vec<u8>),
    /// To [`Verb::Subscribe`].
    Info(Vec<u8>),
}

/// A task's place in its job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roots {
    /// Every node of the job.
    pub nodes: Vec<NodeId>,
    /// The job that started the task.
    pub parent_job: Vec<u8>,
    /// The node of the task that started it. Negative: none.
    pub parent_node: i32,
    /// The task that started it; 0: PBS itself.
    pub parent_task: u32,
}

impl Roots {
    /// Whether the task was attached: then it can send requests only to its own host.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.parent_node == NodeId::NONE.0 && self.parent_task == TaskId::SCRIPT.0
    }
}

/// The head of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// The number of the protocol.
    pub protocol: i32,
    /// Its version: the request's.
    pub version: i32,
    /// 0 means success.
    pub code: i32,
    /// The request's name.
    pub event: EventId,
}

impl ReplyHead {
    /// Decodes it from the front of a message.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DisError> {
        Ok(Self {
            protocol: reader.signed()?,
            version: reader.signed()?,
            code: reader.signed()?,
            event: EventId(reader.signed()?),
        })
    }

    /// Whether it has the supported protocol.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.protocol == PROTOCOL && self.version == VERSION
    }
}

/// Decodes the rest of an answer to `verb`: the answer, or the error number.
///
/// # Errors
/// The bytes are something else.
pub fn decode_rest(
    verb: Verb,
    head: ReplyHead,
    reader: &mut Reader<'_>,
) -> Result<Result<Answer, Code>, DisError> {
    match head.code {
        OKAY => Answer::decode(verb, reader).map(Ok),
        ERROR => Ok(Err(Code(reader.signed()?))),
        // A mom that could not fork puts the error into the code itself, and still sends a task number.
        code if verb == Verb::Spawn => reader.unsigned().map(|_| Err(Code(code))),
        code => Ok(Err(Code(code))),
    }
}

impl Answer {
    fn decode(verb: Verb, reader: &mut Reader<'_>) -> Result<Self, DisError> {
        Ok(match verb {
            Verb::Init => {
                let count = reader.unsigned()?;
                let mut nodes = Vec::new();
                for _ in 0..count {
                    nodes.push(NodeId(reader.signed()?));
                }
                let parent_job = reader.string(MOST_BYTES)?.to_vec();
                let (parent_node, parent_task) = (reader.signed()?, reader.unsigned()?);
                Self::Init(Roots { nodes, parent_job, parent_node, parent_task })
            }
            Verb::Tasks => {
                let mut tasks = Vec::new();
                loop {
                    match TaskId(reader.unsigned()?) {
                        TaskId::NONE => break Self::Tasks(tasks),
                        task => tasks.push(task),
                    }
                }
            }
            Verb::Spawn | Verb::Attach => Self::Task(TaskId(reader.unsigned()?)),
            Verb::Signal | Verb::Publish | Verb::Other(_) => Self::Done,
            Verb::Obit => Self::Status(reader.signed()?),
            Verb::Resources => Self::Resources(reader.string(MOST_BYTES)?.to_vec()),
            Verb::Subscribe => Self::Info(reader.bytes(MOST_BYTES)?.to_vec()),
        })
    }
}

/// Builds the message of a reply, without a packet, as a mom would write it.
///
/// # Errors
/// [`DisError::Overflow`] if a length does not fit.
pub fn encode(event: EventId, outcome: &Result<Answer, Code>) -> Result<Vec<u8>, DisError> {
    let mut out = Vec::new();
    put_signed(&mut out, PROTOCOL);
    put_signed(&mut out, VERSION);
    put_signed(&mut out, if outcome.is_ok() { OKAY } else { ERROR });
    put_signed(&mut out, event.0);
    match outcome {
        Err(code) => put_signed(&mut out, code.0),
        Ok(Answer::Done) => {}
        Ok(Answer::Init(roots)) => {
            put_unsigned(&mut out, u32::try_from(roots.nodes.len()).map_err(|_| DisError::Overflow)?);
            roots.nodes.iter().for_each(|node| put_signed(&mut out, node.0));
            put_bytes(&mut out, &roots.parent_job)?;
            put_signed(&mut out, roots.parent_node);
            put_unsigned(&mut out, roots.parent_task);
        }
        Ok(Answer::Tasks(tasks)) => {
            tasks.iter().chain([&TaskId::NONE]).for_each(|task| put_unsigned(&mut out, task.0));
        }
        Ok(Answer::Task(task)) => put_unsigned(&mut out, task.0),
        Ok(Answer::Status(status)) => put_signed(&mut out, *status),
        Ok(Answer::Resources(bytes) | Answer::Info(bytes)) => put_bytes(&mut out, bytes)?,
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn outcomes() -> impl Strategy<Value = (Verb, Result<Answer, Code>)> {
        let text = || vec(1_u8.., 0..20);
        let roots = (vec(any::<i32>().prop_map(NodeId), 0..9), text(), any::<i32>(), any::<u32>());
        let init = roots.prop_map(|(nodes, parent_job, parent_node, parent_task)| {
            Answer::Init(Roots { nodes, parent_job, parent_node, parent_task })
        });
        let tasks = vec((1_u32..).prop_map(TaskId), 0..9);
        prop_oneof![
            init.prop_map(|answer| (Verb::Init, Ok(answer))),
            tasks.prop_map(|tasks| (Verb::Tasks, Ok(Answer::Tasks(tasks)))),
            any::<u32>().prop_map(|task| (Verb::Spawn, Ok(Answer::Task(TaskId(task))))),
            Just((Verb::Signal, Ok(Answer::Done))),
            any::<i32>().prop_map(|status| (Verb::Obit, Ok(Answer::Status(status)))),
            text().prop_map(|text| (Verb::Resources, Ok(Answer::Resources(text)))),
            any::<Vec<u8>>().prop_map(|info| (Verb::Subscribe, Ok(Answer::Info(info)))),
            any::<i32>().prop_map(|code| (Verb::Obit, Err(Code(code)))),
        ]
    }

    proptest! {
        #[test]
        fn replies_go_round((verb, outcome) in outcomes(), event: i32, cut: prop::sample::Index) {
            let message = encode(EventId(event), &outcome).unwrap();
            let read = |bytes: &[u8]| {
                let mut reader = Reader::new(bytes);
                let head = ReplyHead::decode(&mut reader)?;
                let rest = decode_rest(verb, head, &mut reader)?;
                reader.end().map(|()| (head.event, rest))
            };
            prop_assert_eq!(read(&message), Ok((EventId(event), outcome)));
            prop_assert_eq!(read(&message[..cut.index(message.len())]), Err(DisError::Short));
        }
    }

    #[test]
    fn a_code_of_its_own_is_no_task() {
        let mut reader = Reader::new(b"+2+25+17000+1+9");
        let head = ReplyHead::decode(&mut reader).unwrap();
        assert_eq!(decode_rest(Verb::Spawn, head, &mut reader), Ok(Err(Code::SYSTEM)));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn a_count_that_is_not_true_takes_no_memory() {
        let mut reader = Reader::new(b"+2+2+0+1210+4294967295+0");
        let head = ReplyHead::decode(&mut reader).unwrap();
        assert_eq!(decode_rest(Verb::Init, head, &mut reader), Err(DisError::Short));
    }
}
