//! Four nodes: 0 and 1 are the frontend's children, 2 and 3 are children of 0. Each has two ranks: node 0 has 0 and 1,
//! and so on.

use std::num::NonZeroU32;

use gantry_shared::wire::channel::{
    CHANNEL_WINDOW_BYTES, CHUNK_BYTES, ChannelNotice, ChannelOrder, FIRST_MADE, Member, MemberSet,
};
use gantry_shared::wire::flow::{message_label, output_label, output_of};
use gantry_shared::wire::message::{Blob, OUTPUT_WINDOW_BYTES, Program, RankReport, StartDaemon, StartRanks};
use gantry_shared::wire::mpi::{MpiEnd, MpiNote, MpiSubject};
use gantry_shared::wire::rendezvous::{Gate, ITEM_WINDOW_BYTES, RendezvousNotice};
use gantry_shared::wire::window::cost_of;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::launch::Bind;
use gantry_types::output::Stream;
use gantry_types::rendezvous::Resource;
use gantry_types::status::ExitStatus;

use super::violation::MAX_TEXT_BYTES;
use super::*;

const SESSION: SessionId = SessionId(1);
const DAEMON: DaemonId = DaemonId(7);

struct Root(Admission);

impl Root {
    /// Ranks are ordered and exist, and a daemon runs on all nodes. All may send output.
    fn new() -> Self {
        let tree = Tree::new(4, NonZeroU32::new(2).unwrap());
        let hosts = ["n0", "n1", "n2", "n3"].map(str::to_owned).to_vec();
        let mut root = Self(Admission::new(tree, hosts));
        let layout = (0..4).map(|node| RankSet::from_range(Rank(2 * node)..=Rank(2 * node + 1))).collect();
        root.order(Order::StartRanks(StartRanks {
            programs: Vec::new(),
            size: 8,
            layout,
            hold: false,
            stdin: Some(Rank(0)),
            output: true,
            bind: Bind::None,
            joins: false,
            pmix: None,
        }));
        root
    }

    fn running() -> Self {
        let mut root = Self::new();
        for node in 0..4 {
            root.0.answered(NodeId(node), &ranks([2 * node, 2 * node + 1])).unwrap();
        }
        root.order(Order::StartDaemon(daemon(DaemonOutput::Forward)));
        root
    }

    fn order(&mut self, order: Order) {
        self.0.ordered(&NodeSet::first_n(4), &order);
    }

    fn say(&mut self, node: u32, notice: Notice) -> Admitted {
        self.0.noticed(NodeId(node), &notice)
    }

    #[track_caller]
    fn believed(&mut self, node: u32, notice: Notice) {
        assert_eq!(self.say(node, notice), Ok(Verdict::News));
    }

    #[track_caller]
    fn refused(&mut self, node: u32, notice: Notice, why: &str) {
        assert_eq!(self.say(node, notice).map_err(|violation| violation.to_string()), Err(why.to_owned()));
    }
}

fn ranks(ranks: impl IntoIterator<Item = u32>) -> Answer {
    let report =
        |rank| RankReport { rank: Rank(rank), pid: Pid::new(9).unwrap(), exe: "/bin/app".into(), held: None };
    Answer::Ranks(ranks.into_iter().map(report).collect())
}

fn daemon(output: DaemonOutput) -> StartDaemon {
    let program = Program { program: "d".into(), args: Vec::new(), env: Vec::new(), chosen: 0, cwd: None };
    StartDaemon { daemon: DAEMON, session: SESSION, program, output, lib_dirs: Vec::new(), container: None }
}

fn exited(rank: u32) -> Notice {
    Notice::RankExited { rank: Rank(rank), status: ExitStatus::Code(0) }
}

fn flow(flow: FlowId, word: Word) -> Notice {
    Notice::Flow { flow, word }
}

/// Output. No bytes: the end.
fn output(source: Source, bytes: usize) -> Notice {
    let label = output_label(source, Stream::Stdout);
    let data = Word::Data { label, bytes: Blob(vec![b'x'; bytes]) };
    flow(output_of(source), if bytes == 0 { Word::End } else { data })
}

fn told(flow: FlowId, word: Word) -> Order {
    Order::Flow { flow, word }
}

fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn lost(text: &str) -> Notice {
    Notice::NodesLost { nodes: nodes(text), reason: "cut".to_owned() }
}

#[test]
fn a_rank_exits_once_on_its_node_and_not_before_it_was_there() {
    let mut root = Root::new();
    root.refused(0, exited(0), "sent an exit of rank 0 before it was there");
    root.0.answered(NodeId(0), &ranks([0, 1])).unwrap();
    root.refused(1, exited(0), "sent an exit of rank 0, which runs on n0");
    root.refused(2, exited(0), "sent an exit of rank 0, which runs on n0");
    root.refused(0, exited(99), "sent an exit of rank 99, which does not exist");
    root.believed(0, exited(0));
    root.refused(0, exited(0), "sent a second exit of rank 0");
    root.believed(0, exited(1));
}

#[test]
fn who_has_started_ranks_says_that_their_mpi_world_has_failed() {
    let failed = |rank, why: &str| Notice::MpiFailed {
        rank: Rank(rank),
        code: 1,
        why: why.to_owned(),
        end: MpiEnd::Left,
    };
    let mut root = Root::running();
    root.refused(0, failed(2, "x"), "reported the failed MPI world of rank 2, which runs on n1");
    assert!(root.say(0, failed(0, &"x".repeat(MAX_TEXT_BYTES + 1))).is_err());
    root.believed(0, failed(1, "x"));
    // A node must not be able to have ranks killed that a launcher started, or that were attached to.
    let mut admission = Admission::new(Tree::new(1, NonZeroU32::MIN), vec!["n0".to_owned()]);
    admission.bring(vec![RankSet::first_n(2)]);
    let refused = admission.noticed(NodeId(0), &failed(1, "x")).unwrap_err();
    assert_eq!(refused.to_string(), "reported a failed MPI world, and serves none");
}

#[test]
fn a_note_about_an_mpi_world_is_short_and_about_a_rank_of_its_node() {
    let note = |rank, text: &str| {
        Notice::MpiNote(MpiNote { rank: Rank(rank), subject: MpiSubject::Foreign, text: text.to_owned() })
    };
    let mut root = Root::running();
    root.refused(0, note(2, "x"), "sent a note about the MPI world of rank 2, which runs on n1");
    root.refused(0, note(0, &"x".repeat(MAX_TEXT_BYTES + 1)), "sent a note of 16385 bytes");
    root.believed(0, note(1, "x"));
}

#[test]
fn nodes_have_no_ranks_before_they_are_told_of_them() {
    let tree = Tree::new(1, NonZeroU32::MIN);
    let mut admission = Admission::new(tree, vec!["n0".to_owned()]);
    assert!(admission.noticed(NodeId(0), &exited(0)).is_err());
    assert!(admission.answered(NodeId(0), &ranks([0])).is_err());
    admission.bring(vec![RankSet::first_n(2)]);
    assert_eq!(admission.noticed(NodeId(0), &exited(1)), Ok(Verdict::News), "it was brought, so it is there");
}

#[test]
fn a_report_is_of_all_ranks_of_its_node_and_of_no_other() {
    let check = |reported: &[u32], why: &str| {
        let refused = Root::new().0.answered(NodeId(1), &ranks(reported.iter().copied())).unwrap_err();
        assert_eq!(refused.to_string(), why);
    };
    check(&[2, 3, 4], "reported rank 4, which runs on n2");
    check(&[2, 3, 8], "reported rank 8, which does not exist");
    check(&[2, 3, 2], "reported rank 2 twice");
    check(&[2], "did not report ranks 3, which are to run there");
    assert_eq!(Root::new().0.answered(NodeId(1), &ranks([3, 2])), Ok(()));
    assert_eq!(Root::new().0.answered(NodeId(1), &Answer::Done), Ok(()));
}

#[test]
fn a_node_tells_of_the_loss_of_its_own_subtree() {
    let mut root = Root::running();
    root.believed(0, lost("2"));
    root.believed(0, lost("0,3"));
    root.refused(0, lost("1"), "said that n1 is lost, which is not below it");
    root.refused(2, lost("0"), "said that n0 is lost, which is not below it");
    root.refused(0, lost("2,4"), "said that node 4 is lost, which is not below it");
    let long = Notice::NodesLost { nodes: nodes("2"), reason: "x".repeat(MAX_TEXT_BYTES + 1) };
    root.refused(0, long, "sent a reason of 16385 bytes");
}

#[test]
fn a_node_tells_of_its_own_children() {
    let mut root = Root::running();
    root.believed(0, Notice::ChildJoined { child: NodeId(2) });
    root.believed(0, Notice::ChildJoined { child: NodeId(3) });
    for child in [0, 1, 4] {
        let why = format!("said that node {child} joined it, which is not its child");
        root.refused(0, Notice::ChildJoined { child: NodeId(child) }, &why);
    }
}

#[test]
fn a_daemon_ends_once_where_it_was_started() {
    let mut root = Root::running();
    let ended = |daemon| Notice::DaemonExited { daemon, status: ExitStatus::Code(0) };
    root.believed(3, ended(DAEMON));
    root.refused(3, ended(DAEMON), "sent a second exit of daemon 7");
    root.believed(2, ended(DAEMON));
    root.refused(2, ended(DaemonId(8)), "sent an exit of daemon 8, which was not started there");
    let only = Order::StartDaemon(StartDaemon { daemon: DaemonId(8), ..daemon(DaemonOutput::Drop) });
    root.0.ordered(&nodes("1"), &only);
    root.refused(2, ended(DaemonId(8)), "sent an exit of daemon 8, which was not started there");
    root.refused(
        1,
        output(Source::Daemon(DaemonId(8)), 1),
        "spoke on output of daemon 8, for which it was not asked",
    );
    root.believed(1, ended(DaemonId(8)));
}

#[test]
fn output_is_of_the_nodes_own_processes_and_ends_once() {
    let mut root = Root::running();
    let rank = |rank| Source::Rank(Rank(rank));
    root.believed(0, output(rank(0), 10));
    root.refused(0, output(rank(2), 10), "sent output of rank 2, which runs on n1");
    root.refused(
        0,
        output(Source::Daemon(DaemonId(9)), 10),
        "sent output of daemon 9, which was not started there",
    );
    let strange = Word::Data { label: u64::MAX, bytes: Blob(vec![0]) };
    let why = "sent output of its ranks under a label that stands for nothing";
    root.refused(0, flow(FlowId::Output(None), strange), why);
    root.believed(0, output(rank(0), 0));
    root.refused(0, output(rank(0), 0), "spoke on output of its ranks, which is not open");
    root.refused(0, output(rank(1), 1), "spoke on output of its ranks, which is not open");
    root.believed(1, output(rank(2), 1));
    root.believed(0, output(Source::Daemon(DAEMON), 0));
    root.believed(1, output(Source::Daemon(DAEMON), 5));
    root.refused(0, output(Source::Daemon(DAEMON), 5), "spoke on output of daemon 7, which is not open");
}

#[test]
fn output_keeps_to_the_window_of_its_node_and_group() {
    let mut root = Root::running();
    let (rank, most) = (Source::Rank(Rank(0)), OUTPUT_WINDOW_BYTES as usize - cost_of(0) as usize);
    root.believed(0, output(rank, most));
    root.refused(
        0,
        output(rank, 1),
        "overran its window for output of its ranks: 65 bytes where 0 were left",
    );
    root.believed(0, output(Source::Daemon(DAEMON), most));
    root.believed(1, output(Source::Rank(Rank(2)), most));
    root.0.ordered(&nodes("0"), &told(FlowId::Output(None), Word::Credit(65)));
    root.believed(0, output(rank, 1));
    assert!(root.say(0, output(Source::Rank(Rank(1)), 1)).is_err(), "all ranks of a node share a window");
    assert!(root.say(0, output(Source::Daemon(DAEMON), 1)).is_err());
}

#[test]
fn a_node_is_given_room_back_for_many_messages_at_once() {
    let mut root = Root::running();
    let (flow, mut credit, mut words) = (FlowId::Output(None), 0, 0);
    for _ in 0..1000 {
        root.believed(0, output(Source::Rank(Rank(0)), 1000));
        if let Some(due) = root.0.taken(NodeId(0), flow, 1000) {
            root.0.ordered(&nodes("0"), &told(flow, Word::Credit(due)));
            (credit, words) = (credit + due, words + 1);
        }
    }
    let sent = 1000 * cost_of(1000);
    assert!((sent - OUTPUT_WINDOW_BYTES / 4..=sent).contains(&credit) && words < 20, "{credit} in {words}");
    assert_eq!(root.0.taken(NodeId(0), FlowId::Link(1), 1 << 20), None, "it has closed");
}

#[test]
fn no_more_standard_input_is_taken_than_was_sent() {
    let mut root = Root::running();
    let input = FlowId::Input(Rank(0));
    let taken = |bytes| flow(input, Word::Credit(bytes));
    root.refused(0, taken(1), "spoke on standard input of rank 0, for which it was not asked");
    root.0.ordered(&nodes("0"), &told(input, Word::data(vec![0; 10])));
    root.refused(1, taken(1), "acknowledged standard input of rank 0, which runs on n0");
    root.believed(0, taken(7));
    root.refused(0, taken(4), "took too much on standard input of rank 0: 4 bytes where 3 were left");
    let bytes = Word::data(vec![0]);
    root.refused(
        0,
        flow(input, bytes),
        "overran its window for standard input of rank 0: 1 bytes where 0 were left",
    );
    root.believed(0, flow(input, Word::End));
    root.refused(0, taken(1), "spoke on standard input of rank 0, which is not open");
}

#[test]
fn rendezvous_items_are_of_the_nodes_ranks_and_keep_to_its_window() {
    let mut root = Root::running();
    let of = Gate { resource: Resource::Job, expected: None };
    let put = |rank| {
        let (of, rank) = (of.clone(), Rank(rank));
        Notice::Rendezvous(RendezvousNotice::Put { item: 1, of, rank, bytes: 1 })
    };
    let piece = |bytes| flow(FlowId::Items, Word::data(vec![0; bytes]));
    root.believed(0, put(1));
    root.refused(0, put(2), "sent rendezvous data of rank 2, which runs on n1");
    root.refused(0, piece(0), "sent an empty message on rendezvous items");
    root.believed(0, piece(ITEM_WINDOW_BYTES as usize));
    root.refused(0, piece(1), "overran its window for rendezvous items: 1 bytes where 0 were left");
    root.0.ordered(&nodes("0"), &told(FlowId::Items, Word::Credit(2)));
    root.believed(0, piece(2));
    assert!(root.say(0, piece(1)).is_err());
}

#[test]
fn a_node_enters_a_fence_for_itself_and_for_those_below_it() {
    let mut root = Root::running();
    let fence = |node| {
        let puts = vec![(NodeId(node), Blob(vec![0]))];
        Notice::Rendezvous(RendezvousNotice::Fence { number: 0, puts })
    };
    root.believed(0, fence(0));
    root.refused(1, fence(0), "sent a put of node 0, which is not below it");
}

#[test]
fn a_link_is_opened_before_it_is_used_and_keeps_to_its_credit() {
    let mut root = Root::running();
    let up = |link, word| flow(FlowId::Link(link), word);
    let down = |link, word| told(FlowId::Link(link), word);
    let bytes = |count| Word::data(vec![0; count]);
    root.refused(0, up(1, Word::Credit(1)), "spoke on link 1, which is not open");
    root.refused(0, up(1, Word::Open(Rank(2))), "opened a link of rank 2, which runs on n1");
    root.believed(0, up(1, Word::Open(Rank(0))));
    root.refused(0, up(1, Word::Open(Rank(0))), "opened link 1 twice, or too many links");
    root.refused(1, up(1, bytes(1)), "spoke on link 1, which is not open");
    root.refused(0, up(1, bytes(1)), "overran its window for link 1: 1 bytes where 0 were left");
    root.0.ordered(&nodes("0"), &down(1, Word::Credit(10)));
    root.believed(0, up(1, bytes(10)));
    root.refused(0, up(1, Word::Credit(1)), "took too much on link 1: 1 bytes where 0 were left");
    root.0.ordered(&nodes("0"), &down(1, bytes(5)));
    root.believed(0, up(1, Word::Credit(5)));
    // Both ends may close at once.
    root.0.ordered(&nodes("0"), &down(1, Word::End));
    root.believed(0, up(1, Word::End));
    root.refused(0, up(1, Word::End), "spoke on link 1, which is not open");
    for link in 2..2 + 2 + 4096 {
        root.believed(0, up(link, Word::Open(Rank(1))));
    }
    assert!(root.say(0, up(9999, Word::Open(Rank(1)))).is_err());
    root.believed(1, up(9999, Word::Open(Rank(2))));
}

fn message(session: SessionId, daemon: DaemonId, bytes: usize) -> Notice {
    let (label, bytes) = (message_label(session, 1), Blob(vec![0; bytes]));
    flow(FlowId::Messages(daemon), Word::Data { label, bytes })
}

#[test]
fn messages_are_of_daemons_of_the_session_and_keep_to_their_window() {
    let mut root = Root::running();
    root.refused(
        0,
        message(SESSION, DaemonId(8), 1),
        "sent a message of daemon 8, which was not started there",
    );
    root.refused(0, message(SessionId(2), DAEMON, 1), "sent a message of daemon 7 to another session");
    root.refused(0, message(SESSION, DAEMON, 200_000), "sent a message of 200000 bytes");
    let half = CHANNEL_WINDOW_BYTES as usize / 2 - 64;
    root.believed(0, message(SESSION, DAEMON, half));
    root.believed(0, message(SESSION, DAEMON, half));
    let why = "overran its window for messages of daemon 7: 64 bytes where 0 were left";
    root.refused(0, message(SESSION, DAEMON, 0), why);
    root.believed(1, message(SESSION, DAEMON, half));
    root.0.ordered(&nodes("0"), &told(FlowId::Messages(DAEMON), Word::Credit(64)));
    root.believed(0, message(SESSION, DAEMON, 0));
}

fn members(nodes: impl IntoIterator<Item = u32>) -> MemberSet {
    nodes.into_iter().map(|node| Member { node: NodeId(node), daemon: DAEMON }).collect()
}

fn part(operation: u64, part: u32, of: MemberSet, bytes: usize) -> Notice {
    let (total, bytes) = (1 << 20, Blob(vec![0; bytes]));
    Notice::Channel(ChannelNotice::Part { operation, part, of, total, bytes })
}

fn collect(operation: u64) -> Order {
    let (session, of, tag, filter) = (SESSION, members(0..4), 1, None);
    Order::Channel(ChannelOrder::Collect { session, operation, tag, of, filter })
}

#[test]
fn contributions_are_asked_for_and_come_on_credit() {
    let mut root = Root::running();
    let own = |node| part(1, DAEMON.0, members([node]), CHUNK_BYTES);
    root.refused(0, own(0), "contributed to operation 1, which does not exist");
    root.order(collect(1));
    root.refused(0, own(1), "spoke for daemons of node 1, which is not below it");
    root.refused(0, part(1, 8, members([0]), 1), "sent a contribution of daemon 8, which is not asked");
    root.refused(
        0,
        part(1, DAEMON.0, members([0]), CHUNK_BYTES + 1),
        "began a contribution with 65537 bytes",
    );
    root.believed(0, own(0));
    root.refused(0, own(0), "began contribution 7 twice");
    let id = FlowId::Part { operation: 1, part: DAEMON.0 };
    let rest = |bytes| flow(id, Word::data(vec![0; bytes]));
    let what = "contribution 7 to operation 1";
    root.refused(0, rest(1), &format!("overran its window for {what}: 1 bytes where 0 were left"));
    root.0.ordered(&nodes("0"), &told(id, Word::Credit(5)));
    root.believed(0, rest(5));
    assert!(root.say(0, rest(1)).is_err());
    let closed = format!("spoke on {what}, which is not open, or not of data");
    root.refused(1, rest(1), &closed);
    root.refused(0, flow(id, Word::End), &closed);
    root.order(Order::Channel(ChannelOrder::End { operation: 1 }));
    assert_eq!(root.say(0, rest(1)), Ok(Verdict::Old));
}

#[test]
fn a_node_makes_no_more_contributions_than_there_are_below_it() {
    let mut root = Root::running();
    root.order(collect(1));
    root.believed(0, part(1, FIRST_MADE, members([0]), 1));
    root.believed(0, part(1, FIRST_MADE + 1, members([2]), 1));
    root.believed(0, part(1, FIRST_MADE + 2, members([3]), 1));
    let why = "sent more contributions than the 3 that it has";
    root.refused(0, part(1, FIRST_MADE + 3, members([2]), 1), why);
}

#[test]
fn a_member_is_missed_once() {
    let mut root = Root::running();
    root.order(collect(1));
    let missing = |nodes: &[u32], why: &str| {
        let (of, why) = (members(nodes.iter().copied()), Failure::new(Kind::Gone, why));
        Notice::Channel(ChannelNotice::Missing { operation: 1, of, why })
    };
    root.believed(0, missing(&[2], "ended"));
    assert_eq!(root.say(0, missing(&[2], "ended")), Ok(Verdict::Old));
    root.believed(0, missing(&[0, 2], "ended"));
    root.refused(0, missing(&[1], "ended"), "spoke for daemons of node 1, which is not below it");
}
