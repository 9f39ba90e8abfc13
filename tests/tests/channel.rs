//! The channel between a tool and its daemons, with real agents and daemons on this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_frontend::channel::{Member, Missing};
use gantry_frontend::filter::{Filter, PrefixTree, Reduce, concatenate, key_ranks, numbers, ranks};
use gantry_frontend::{
    App, Channel, Config, Daemon, DaemonRequest, Error, Frontend, LaunchRequest, OutputTo, Policy, Session,
};
use gantry_shared::wire::channel::CHANNEL_WINDOW_BYTES;
use gantry_tests::{SOON, Site, binaries, eventually, on_this_machine, proc};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use gantry_types::rank_set::RankSet;
use nix::sys::signal::Signal;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_secs(2);

/// An app on this many nodes, with a session.
async fn on_nodes(site: &mut Site, nodes: u32) -> (App, Session) {
    let count = nodes.to_string();
    let app = site.held(["-N", &count, "-n", &count, "/bin/true"]).await;
    let session = app.session(SOON).await.expect("a session");
    (app, session)
}

/// Like [`on_nodes`], in a tree with at most two children per agent.
async fn on_deep_tree(site: &mut Site, nodes: u32) -> (App, Session) {
    let count = nodes.to_string();
    let config = Config { radix: 2, bulk_radix: 2, ..site.config() };
    let request =
        LaunchRequest::new(["-N", &count, "-n", &count, "/bin/sleep", "1000"]).output(OutputTo::Null);
    let app = Frontend::new(config).launch(request, SOON).await.expect("an app");
    let session = app.session(SOON).await.expect("a session");
    (app, session)
}

/// Starts a daemon that performs these steps.
async fn start(session: &Session, steps: impl IntoIterator<Item = &str>) -> Daemon {
    let request =
        DaemonRequest::new(binaries().dir.join("channel_daemon")).args(steps.into_iter().map(str::to_owned));
    let started = session.manifest().exec_daemon(request, SOON).await;
    started.unwrap_or_else(|error| panic!("start a daemon: {error}, hint {:?}", error.hint()))
}

fn kill(daemon: &Daemon, node: u32) {
    let process = daemon.processes().iter().find(|(at, _)| at.0 == node).expect("a daemon there");
    proc::send(process.1.get(), Signal::SIGKILL);
}

fn nodes_of(missing: &[Missing]) -> Vec<u32> {
    missing.iter().map(|missing| missing.member.node.0).collect()
}

fn by_node(parts: BTreeMap<Member, Vec<u8>>) -> Vec<(u32, Vec<u8>)> {
    parts.into_iter().map(|(member, bytes)| (member.node.0, bytes)).collect()
}

#[test]
fn every_daemon_is_heard_and_the_messages_of_each_come_in_order() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 4).await;
        let daemon = start(&session, ["gather:1:1000", "send:3:100", "echo:2", "gather:1:5", "wait"]).await;
        let channel = session.channel();
        assert_eq!(channel.members().len(), 4);
        let gathered = channel.gather(1, Policy::All, SOON).await.expect("contributions");
        assert!(gathered.missing.is_empty());
        let expected = |bytes| {
            (0..4_u32).map(|node| (node, vec![u8::try_from(node).unwrap(); bytes])).collect::<Vec<_>>()
        };
        assert_eq!(by_node(gathered.parts), expected(1000));
        assert_eq!(channel.broadcast(2, b"hello", SOON).await.expect("delivered"), []);
        assert!(
            by_node(channel.gather(2, Policy::All, SOON).await.expect("echoes").parts)
                .iter()
                .all(|(_, bytes)| bytes == b"hello")
        );
        assert_eq!(
            by_node(channel.gather(1, Policy::All, SOON).await.expect("the second ones").parts),
            expected(5)
        );
        let (mut messages, mut next) = (channel.messages(3), [0_u32; 4]);
        for _ in 0..400 {
            let message = timeout(SOON, messages.next()).await.expect("in time").expect("a message");
            let expected = &mut next[message.member.node.index()];
            assert_eq!(message.bytes, expected.to_be_bytes());
            *expected += 1;
        }
        drop(daemon);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn scattered_and_sent_messages_reach_their_receivers() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 4).await;
        let _daemon = start(&session, ["echo:1", "echo:2", "wait"]).await;
        let channel = session.channel();
        let text = |node: u32| format!("for {node}").into_bytes();
        // One part is larger than a frame.
        let parts = |node: u32| if node == 2 { vec![7; 3_000_000] } else { text(node) };
        let each = channel.members().into_iter().map(|member| (member, parts(member.node.0)));
        let sent = channel.scatter(1, each, SOON).await;
        assert_eq!(sent.expect("sent"), []);
        let echoes = by_node(channel.gather(1, Policy::All, SOON).await.expect("echoes").parts);
        assert!(echoes == (0..4).map(|node| (node, parts(node))).collect::<Vec<_>>());
        for member in channel.members() {
            channel.send(member, 2, &text(member.node.0), SOON).await.expect("sent");
        }
        let echoes = by_node(channel.gather(2, Policy::All, SOON).await.expect("echoes").parts);
        assert_eq!(echoes, (0..4).map(|node| (node, text(node))).collect::<Vec<_>>());
        let stranger = Member { node: NodeId(9), daemon: channel.members()[0].daemon };
        assert!(matches!(channel.send(stranger, 1, b"", SOON).await, Err(Error::Invalid { .. })));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn tags_are_apart_and_operations_with_different_tags_run_at_once() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 2).await;
        // Daemons contribute in another order than the tool asks, and receive messages in another order than it sent
        // them.
        let _daemon = start(&session, ["echo:3", "echo:2", "echo:1", "wait"]).await;
        let channel = session.channel();
        for tag in 1..=3 {
            channel.broadcast(tag, &tag.to_be_bytes(), SOON).await.expect("delivered");
        }
        let (first, second, third) = tokio::join!(
            channel.gather(1, Policy::All, SOON),
            channel.gather(2, Policy::All, SOON),
            channel.gather(3, Policy::All, SOON)
        );
        for (tag, gathered) in [(1_u32, first), (2, second), (3, third)] {
            assert!(gathered.expect("contributions").parts.values().all(|bytes| *bytes == tag.to_be_bytes()));
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn two_sessions_have_two_channels() {
    on_this_machine(LIMIT, async |site| {
        let (app, one) = on_nodes(site, 2).await;
        let other = app.session(SOON).await.expect("a session");
        let _daemons = (start(&one, ["echo:1", "wait"]).await, start(&other, ["echo:1", "wait"]).await);
        let (one, other) = (one.channel(), other.channel());
        one.broadcast(1, b"one", SOON).await.expect("delivered");
        other.broadcast(1, b"other", SOON).await.expect("delivered");
        let (one, other) = tokio::join!(one.gather(1, Policy::All, SOON), other.gather(1, Policy::All, SOON));
        assert!(one.expect("contributions").parts.into_values().eq([b"one"; 2]));
        assert!(other.expect("contributions").parts.into_values().eq([b"other"; 2]));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_contribution_before_an_immediate_end_counts() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 2).await;
        let daemon = start(&session, ["gather:1:10"]).await;
        daemon.wait().await;
        let channel = session.channel();
        assert_eq!(channel.members(), []);
        assert_eq!(channel.gather(1, Policy::All, SOON).await.expect("contributions").parts.len(), 2);
        // They have left nothing for a second gather.
        let empty = channel.gather(1, Policy::BestEffort, SOON).await.expect("no member is missing");
        assert_eq!((empty.parts.len(), empty.missing.len()), (0, 0));
        let error = channel.gather(1, Policy::All, SOON).await.expect_err("no member is left");
        assert!(error.to_string().contains("all daemons had ended before"), "{error}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn filters_merge_on_the_way_up_a_deep_tree() {
    on_this_machine(LIMIT, async |site| {
        const NODES: u32 = 14;
        let (app, session) = on_deep_tree(site, NODES).await;
        let filters = ["numbers", "numbers", "numbers", "ranks", "keys", "tree", "any"];
        let steps: Vec<String> =
            (1..).zip(filters).map(|(tag, filter)| format!("give:{tag}:{filter}")).collect();
        let _daemon = start(&session, steps.iter().map(String::as_str).chain(["wait"])).await;
        let channel = session.channel();
        let reduce = async |tag, filter| {
            let reduced = channel.reduce(tag, filter, Policy::All, SOON).await.expect("a result");
            assert_eq!((reduced.contributed, reduced.missing.len()), (u64::from(NODES), 0));
            reduced.bytes
        };
        let numbers = |bytes: &[u8]| numbers::Numbers::decode(bytes).expect("numbers").expect("some");
        let integers = |values: [i64; 2]| numbers::Numbers::Integers(values.to_vec());
        assert_eq!(numbers(&reduce(1, Filter::Sum).await), integers([91, 14]));
        assert_eq!(numbers(&reduce(2, Filter::Min).await), integers([0, 1]));
        assert_eq!(numbers(&reduce(3, Filter::Max).await), integers([13, 1]));
        let all = RankSet::first_n(NODES);
        assert_eq!(ranks::decode(&reduce(4, Filter::RankSetUnion).await).expect("ranks"), all);
        let keys = key_ranks::decode(&reduce(5, Filter::KeyRanks).await).expect("keys");
        assert_eq!((keys.len(), &keys[b"odd".as_slice()]), (2, &"1,3,5,7,9,11,13".parse().expect("ranks")));
        let tree = PrefixTree::decode(&reduce(6, Filter::PrefixTree).await).expect("a tree");
        assert_eq!((tree.len(), tree.ranks()), (3, all));
        let parts = concatenate::decode(&reduce(7, Filter::Concatenate).await).expect("parts");
        assert!(
            parts
                .iter()
                .zip(0..)
                .all(|(part, node)| part.member.node == NodeId(node) && part.bytes.len() == node as usize)
        );
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn trees_of_megabytes_are_merged_on_the_way_while_others_are_answered() {
    on_this_machine(LIMIT, async |site| {
        const NODES: usize = 4;
        const MODULES: usize = 20;
        let (app, trees) = on_deep_tree(site, 4).await;
        let asks = app.session(SOON).await.expect("a session");
        let _daemons = (
            start(&trees, [&format!("large:1:{MODULES}"), "wait"]).await,
            start(&asks, ["echoes:1", "wait"]).await,
        );
        let (trees, asks) = (trees.channel(), asks.channel());
        let (reduced, ()) = tokio::join!(trees.reduce(1, Filter::PrefixTree, Policy::All, LIMIT), async {
            for _ in 0..20 {
                asks.broadcast(1, b"are you there?", SOON).await.expect("delivered");
                asks.gather(1, Policy::All, SOON).await.expect("answers");
            }
        });
        let reduced = reduced.expect("a tree");
        assert_eq!((reduced.contributed, reduced.missing.len()), (4, 0));
        assert!(reduced.bytes.len() > 1_000_000, "{} bytes", reduced.bytes.len());
        let tree = PrefixTree::decode(&reduced.bytes).expect("a tree");
        // Of 20 functions, 19 are common to all nodes and one belongs to a single node.
        let functions = MODULES * (950 + 50 * NODES);
        assert_eq!((tree.len(), tree.ranks()), (MODULES + functions, RankSet::first_n(80)));
        for module in tree.outermost() {
            assert_eq!((module.ranks().len(), module.calls().len()), (NODES as u64, 950 + 50 * NODES));
            assert!(module.calls().all(|function| matches!(function.ranks().len(), 1 | 4)));
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn sixty_four_nodes_make_one_sum() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_deep_tree(site, 64).await;
        let _daemon = start(&session, ["give:1:numbers", "gather:2:1000", "wait"]).await;
        let channel = session.channel();
        let reduced = channel.reduce(1, Filter::Sum, Policy::All, SOON).await.expect("a sum");
        let sum = numbers::Numbers::decode(&reduced.bytes).expect("numbers");
        assert_eq!(sum, Some(numbers::Numbers::Integers(vec![64 * 63 / 2, 64])));
        assert_eq!(channel.gather(2, Policy::All, SOON).await.expect("contributions").parts.len(), 64);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn parts_that_cannot_be_merged_are_reported() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 4).await;
        let _daemon = start(&session, ["on:2:give:1:any", "give:1:numbers", "wait"]).await;
        let reduced = session
            .channel()
            .reduce(1, Filter::Sum, Policy::BestEffort, SOON)
            .await
            .expect("the others' sum");
        assert_eq!((reduced.contributed, nodes_of(&reduced.missing)), (3, vec![2]));
        assert!(
            matches!(reduced.missing[0].why.kind(), Kind::Protocol | Kind::Invalid),
            "{:?}",
            reduced.missing
        );
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemon_that_is_killed_in_the_middle_is_named_and_the_policy_decides() {
    on_this_machine(LIMIT, async |site| {
        let (app, _) = on_nodes(site, 4).await;
        for (policy, succeeds) in [
            (Policy::All, false),
            (Policy::Quorum(4), false),
            (Policy::Quorum(3), true),
            (Policy::BestEffort, true),
        ] {
            let session = app.session(SOON).await.expect("a session");
            let daemon = start(&session, ["on:2:wait", "gather:1:100", "give:2:numbers", "wait"]).await;
            let channel = session.channel();
            let (gathered, reduced, ()) = tokio::join!(
                channel.gather(1, policy, SOON),
                channel.reduce(2, Filter::Sum, policy, SOON),
                async { kill(&daemon, 2) }
            );
            let named = |missing: &[Missing]| {
                assert_eq!((nodes_of(missing), missing[0].why.kind()), (vec![2], Kind::Gone), "{missing:?}");
            };
            match (gathered, reduced) {
                (Ok(gathered), Ok(reduced)) if succeeds => {
                    assert_eq!((gathered.parts.len(), reduced.contributed), (3, 3));
                    named(&gathered.missing);
                    named(&reduced.missing);
                }
                (Err(Error::Incomplete { members: 4, missing, .. }), Err(Error::Incomplete { .. }))
                    if !succeeds =>
                {
                    named(&missing);
                }
                other => panic!("{policy:?}: {other:?}"),
            }
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_node_that_is_lost_takes_its_subtree_along_and_the_rest_is_summed() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_deep_tree(site, 14).await;
        // Nodes 4, 5, 10, 11, 12 and 13 are below node 1.
        let agent = app.info().ranks[1]
            .pid
            .map(|pid| proc::stat(pid.get()).expect("a rank").parent)
            .expect("an agent");
        let daemon = start(&session, ["on:1:wait", "give:1:numbers", "gather:2:10", "wait"]).await;
        let channel = session.channel();
        let (reduced, gathered, ()) = tokio::join!(
            channel.reduce(1, Filter::Sum, Policy::BestEffort, SOON),
            channel.gather(2, Policy::Quorum(7), SOON),
            async { proc::send(agent, Signal::SIGKILL) }
        );
        let reduced = reduced.expect("what is left");
        let lost = vec![1, 4, 5, 10, 11, 12, 13];
        assert_eq!(nodes_of(&reduced.missing), lost);
        let sum = numbers::Numbers::decode(&reduced.bytes).expect("numbers");
        assert_eq!(
            sum,
            Some(numbers::Numbers::Integers(vec![
                91 - lost.iter().map(|node| i64::from(*node)).sum::<i64>(),
                7
            ]))
        );
        let gathered = gathered.expect("what is left");
        // Contributions that arrived before the loss count.
        assert_eq!(gathered.parts.len() + gathered.missing.len(), 14);
        assert!(nodes_of(&gathered.missing).contains(&1));
        drop(daemon);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn late_members_are_named_the_others_are_merged_and_late_parts_are_dropped() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_deep_tree(site, 14).await;
        let _daemon =
            start(&session, ["on:5:echo:9", "give:1:numbers", "gather:2:10", "gather:2:20", "wait"]).await;
        let channel = session.channel();
        let (reduced, gathered) = tokio::join!(
            channel.reduce(1, Filter::Sum, Policy::Quorum(13), SHORT),
            channel.gather(2, Policy::All, SHORT)
        );
        let reduced = reduced.expect("the others' sum");
        assert_eq!((reduced.contributed, nodes_of(&reduced.missing)), (13, vec![5]));
        assert_eq!(reduced.missing[0].why.kind(), Kind::TimedOut);
        let sum = numbers::Numbers::decode(&reduced.bytes).expect("numbers");
        assert_eq!(sum, Some(numbers::Numbers::Integers(vec![91 - 5, 13])));
        match gathered {
            Err(Error::Incomplete { missing, .. }) => assert_eq!(nodes_of(&missing), [5]),
            other => panic!("{other:?}"),
        }
        let late = channel.members().into_iter().find(|member| member.node == NodeId(5)).expect("it");
        channel.send(late, 9, b"go on", SOON).await.expect("sent");
        let second = channel.gather(2, Policy::All, SOON).await.expect("the second ones");
        assert!(second.parts.len() == 14 && second.parts.values().all(|bytes| bytes.len() == 20));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_hundred_megabytes_come_to_every_daemon_and_are_never_held_whole() {
    on_this_machine(LIMIT, async |site| {
        const BYTES: usize = 100_000_000;
        let (app, session) = on_deep_tree(site, 3).await;
        let daemon = start(&session, ["hash:1", "echo:2", "wait"]).await;
        let channel = session.channel();
        let noise: Vec<u8> = (0..BYTES / 8)
            .flat_map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .collect();
        let expected = format!("{BYTES} {}", blake3::hash(&noise).to_hex());
        let (sent, gathered) =
            tokio::join!(channel.broadcast_from(1, &noise[..], LIMIT), channel.gather(1, Policy::All, LIMIT));
        assert_eq!(sent.expect("sent"), []);
        assert!(gathered.expect("hashes").parts.into_values().all(|hash| hash == expected.as_bytes()));
        for (node, pid) in daemon.processes() {
            let agent = proc::stat(pid.get()).expect("a daemon").parent;
            assert!(
                proc::peak_memory_kib(agent) < 32 * 1024,
                "agent of node {node}: {} KiB",
                proc::peak_memory_kib(agent)
            );
            assert!(
                proc::peak_memory_kib(pid.get()) < 32 * 1024,
                "daemon of node {node}: {} KiB",
                proc::peak_memory_kib(pid.get())
            );
        }
        channel.broadcast(2, b"after", SOON).await.expect("sent");
        assert!(
            channel
                .gather(2, Policy::All, SOON)
                .await
                .expect("echoes")
                .parts
                .into_values()
                .all(|echo| echo == b"after")
        );
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn contributions_of_64_mib_come_through_and_agents_hold_little() {
    on_this_machine(LIMIT, async |site| {
        const BYTES: usize = 64 * 1024 * 1024;
        let (app, session) = on_deep_tree(site, 3).await;
        let daemon = start(&session, [&format!("gather:1:{BYTES}"), "gather:2:1", "wait"]).await;
        let channel = session.channel();
        let gathered = channel.gather(1, Policy::All, LIMIT).await.expect("contributions");
        assert!(by_node(gathered.parts).into_iter().all(|(node, bytes)| {
            bytes.len() == BYTES && bytes.iter().all(|byte| u32::from(*byte) == node)
        }));
        for (node, pid) in daemon.processes() {
            let agent = proc::stat(pid.get()).expect("a daemon").parent;
            assert!(
                proc::peak_memory_kib(agent) < 32 * 1024,
                "agent of node {node}: {} KiB",
                proc::peak_memory_kib(agent)
            );
        }
        assert_eq!(channel.gather(2, Policy::All, SOON).await.expect("small ones").parts.len(), 3);
        // No gather requests this contribution. The exit of its daemon must do no harm.
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemon_that_does_not_read_stops_only_its_senders() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 2).await;
        let daemon = start(&session, ["gather:2:1", "slow:1", "wait"]).await;
        let channel = session.channel();
        channel.gather(2, Policy::All, SOON).await.expect("both are there");
        let members = channel.members();
        let slow = daemon.processes().iter().find(|(node, _)| node.0 == 1).expect("a daemon").1.get();
        channel.broadcast(0, b"", SOON).await.expect("delivered");
        proc::send(slow, Signal::SIGSTOP);
        let bytes = vec![1; 60_000];
        let late = loop {
            match channel.broadcast(1, &bytes, SHORT).await {
                Ok(missing) => assert_eq!(missing, []),
                Err(error) => break error,
            }
        };
        let host = app.placement().host(NodeId(1)).expect("a host").to_owned();
        assert!(matches!(&late, Error::TimedOut { missing, .. } if *missing == [host]), "{late}");
        for _ in 0..100 {
            channel.send(members[0], 1, &bytes, SOON).await.expect("the other one reads");
        }
        assert!(channel.send(members[1], 1, &bytes, SHORT).await.is_err());
        proc::send(slow, Signal::SIGCONT);
        channel.broadcast(1, b"", SOON).await.expect("delivered");
        let counts = channel.gather(1, Policy::All, SOON).await.expect("counts").parts;
        let count =
            |member: Member| u32::from_be_bytes(counts[&member].as_slice().try_into().expect("a number"));
        // A message that timed out was sent either to no member or, later, to all of them.
        let (fast, slow) = (count(members[0]), count(members[1]));
        assert!(slow >= 4 && (fast == slow + 100 || fast == slow + 99), "{fast} and {slow}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_tool_that_does_not_take_messages_stops_their_sender_and_nothing_else() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 2).await;
        let daemon = start(&session, ["on:1:flood:7:1000", "gather:1:10", "gather:2:10", "wait"]).await;
        let channel = session.channel();
        // The daemon blocks when a full window is in flight. It then uses no CPU time.
        let flooding = daemon.processes().iter().find(|(node, _)| node.0 == 1).expect("a daemon").1.get();
        eventually(SOON, "the flood's end", || proc::stat(flooding).is_some_and(|stat| stat.state == 'S'));
        let gathered = channel.gather(1, Policy::BestEffort, SHORT).await.expect("the other's");
        assert_eq!(gathered.parts.len(), 1);
        let mut messages = channel.messages(7);
        let more_than_a_window = 10 * CHANNEL_WINDOW_BYTES / 1000;
        for _ in 0..more_than_a_window {
            let message = timeout(SOON, messages.next()).await.expect("in time").expect("a message");
            assert_eq!((message.member.node, message.bytes.len()), (NodeId(1), 1000));
        }
        app.close(SOON).await.expect("close");
        while messages.next().await.is_some() {}
    });
}

/// A filter that keeps the longest part and counts the parts it gets.
struct Longest(Vec<u8>, std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Reduce for Longest {
    fn take(&mut self, part: &[u8]) -> Result<(), Failure> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if part.len() > self.0.len() {
            self.0 = part.to_vec();
        }
        Ok(())
    }

    fn give(self: Box<Self>) -> Result<Vec<u8>, Failure> {
        Ok(self.0)
    }
}

/// Registers the filter "longest". Returns the counter of the parts that it gets.
fn register_longest(channel: &Channel) -> std::sync::Arc<std::sync::atomic::AtomicUsize> {
    let parts = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let counted = std::sync::Arc::clone(&parts);
    channel.register_filter("longest", Box::new(move || Box::new(Longest(Vec::new(), counted.clone()))));
    parts
}

#[test]
fn a_tools_own_filter_merges_in_daemons_in_the_tool_or_in_both() {
    on_this_machine(LIMIT, async |site| {
        let (app, _) = on_deep_tree(site, 6).await;
        let longest = || Filter::Custom("longest".to_owned());
        // Which daemons serve the filter, and how many parts are left for the tool.
        for (serve, left) in
            [("serve:longest", 2), ("on:0:serve:longest", 2), ("fail:longest", 6), ("on:9:wait", 6)]
        {
            let session = app.session(SOON).await.expect("a session");
            // Daemons perform the steps in order. Once tag 2 is gathered, they serve the filter.
            let _daemon = start(&session, [serve, "gather:2:1", "give:1:any", "give:1:any", "wait"]).await;
            let channel = session.channel();
            channel.gather(2, Policy::All, SOON).await.expect("all are there");
            if serve == "on:9:wait" {
                let error =
                    channel.reduce(1, longest(), Policy::All, SOON).await.expect_err("no daemon merges");
                assert!(error.kind() == Kind::Unsupported && error.hint().is_some(), "{error}");
            }
            let parts = register_longest(&channel);
            let reduced = channel.reduce(1, longest(), Policy::All, SOON).await.expect("a result");
            assert_eq!((reduced.bytes.len(), reduced.contributed), (5, 6), "{serve}");
            let parts = parts.load(std::sync::atomic::Ordering::SeqCst);
            assert_eq!(parts, if serve == "on:0:serve:longest" { 4 } else { left }, "{serve}");
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn nothing_hangs_when_a_session_ends_in_the_middle() {
    on_this_machine(LIMIT, async |site| {
        let (app, session) = on_nodes(site, 2).await;
        let _daemon = start(&session, ["wait"]).await;
        let (channel, mut messages) = (session.channel(), session.channel().messages(1));
        let gathering = tokio::spawn(async move { channel.gather(1, Policy::BestEffort, LIMIT).await });
        session.destroy(SOON).await.expect("destroyed");
        let gathered = timeout(SOON, gathering).await.expect("in time").expect("no panic");
        assert!(matches!(gathered, Err(Error::Gone { .. }) | Err(Error::Invalid { .. })), "{gathered:?}");
        assert_eq!(timeout(SOON, messages.next()).await.expect("in time"), None);
        app.close(SOON).await.expect("close");
    });
}
