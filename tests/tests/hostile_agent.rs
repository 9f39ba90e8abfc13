//! One agent of an app knows the secret and breaks the rules, in every way that `hostile_agent` implements. The tool
//! and the other nodes must continue, the error must name the node, memory must be bounded, and nothing may be left.
//!
//! There are four nodes with a rank each. One node is hostile. In a chain, which is the deepest tree, it is below an
//! honest node or has honest nodes below it.

#![expect(clippy::print_stdout, reason = "the test prints how much memory a flood took")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use gantry_link::LinkError;
use gantry_tests::fault::{Tool, is_keeper, numbers, running};
use gantry_tests::hostile_frontend::overrun_input;
use gantry_tests::{SOON, World, becomes_true, binaries, copy_program, proc, programs, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(180);

/// The most additional memory of a flooded tool. Up to 22 MiB were seen on a busy machine. Without a bound it is more
/// than 60 MiB.
const MORE_KIB: u64 = 48 * 1024;

/// The shape of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// All nodes are children of the frontend.
    Flat,
    /// Each node is the child of the one before.
    Chain,
}

/// A tool with a hostile agent installed in place of the real one.
struct Scene {
    // Fields are dropped in this order: the tool is killed before the world looks for leaks.
    tool: Tool,
    host: String,
    world: World,
}

impl Scene {
    fn new(mode: &str, shape: Shape, hostile_node: u32) -> Self {
        // Only a wait for a message that never arrives takes this long.
        Self::with_timeout(mode, shape, hostile_node, 15)
    }

    /// The timeout of each of the tool's commands is this many seconds.
    fn with_timeout(mode: &str, shape: Shape, hostile_node: u32, seconds: u32) -> Self {
        let world = World::new();
        let (dir, real) = (world.work_dir().join("bin"), &binaries().dir);
        fs::create_dir(&dir).expect("a folder");
        for (from, to) in [
            ("fault_tool", "fault_tool"),
            ("gantry-guard", "gantry-guard"),
            ("hostile_agent", "gantry-agent"),
        ] {
            copy_program(real.join(from), dir.join(to));
        }
        let name = nix::unistd::gethostname().expect("a name").into_string().expect("a name in UTF-8");
        let host = format!("{name}.{hostile_node}");
        let mut command = world.command(dir.join("fault_tool"));
        command.env("GANTRY_INSTALL_DIR", &dir).env("GANTRY_WLM", "localhost");
        command.env("HOSTILE_MODE", mode).env("HOSTILE_NODE", &host);
        command.env("HOSTILE_REAL", real.join("gantry-agent")).env("HOSTILE_GO", world.work_dir().join("go"));
        command.env("FAULT_TOOL_SECONDS", seconds.to_string());
        if shape == Shape::Chain {
            command.env("FAULT_TOOL_RADIX", "1");
        }
        let tool = Tool::spawn(&world, command);
        Self { tool, host, world }
    }

    fn order(&self, how: &str) -> String {
        let program = programs::get("touch_and_wait").display().to_string();
        format!("{how} -N 4 -n 4 {program} {}", self.world.work_dir().join("ran.%").display())
    }

    fn launched(mode: &str, shape: Shape, hostile_node: u32) -> Self {
        Self::launched_by("launch", mode, shape, hostile_node)
    }

    fn launched_by(how: &str, mode: &str, shape: Shape, hostile_node: u32) -> Self {
        let mut scene = Self::new(mode, shape, hostile_node);
        scene.tool.ask(&scene.order(how));
        scene.assert_ranks(3);
        scene
    }

    /// From now on the hostile agent breaks the rules.
    fn go(&self) {
        fs::write(self.world.work_dir().join("go"), "").expect("a file");
    }

    fn done(&self) -> PathBuf {
        self.world.work_dir().join("go.done")
    }

    /// This many ranks of the honest nodes must run.
    #[track_caller]
    fn assert_ranks(&self, count: usize) {
        let there = becomes_true(SOON, || running(&self.world, "touch_and_wait").len() == count);
        assert!(there, "{:?}", running(&self.world, "touch_and_wait"));
    }

    /// The nodes and the reason of the next loss.
    fn lost(&mut self) -> (Vec<String>, String) {
        let event = self.tool.event("nodes_lost");
        let hosts = event["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        (hosts.map(str::to_owned).collect(), event["reason"].as_str().unwrap_or_default().to_owned())
    }

    fn hostile_runs(&self) -> bool {
        let program = self.world.work_dir().join("bin/gantry-agent");
        let is_it = |pid: &i32| !is_keeper(*pid) && proc::exe(*pid).is_some_and(|exe| exe == program);
        self.world.processes().iter().any(is_it)
    }

    /// The frontend or the parent has closed the link of the hostile agent, so the agent ends.
    fn hostile_is_cut_off(&self) {
        assert!(becomes_true(SOON, || !self.hostile_runs()), "the hostile agent still runs");
    }

    /// The tool still gets events of other nodes' ranks.
    fn others_are_heard(&mut self) {
        let ranks = running(&self.world, "touch_and_wait");
        proc::send(ranks[0], Signal::SIGKILL);
        self.tool.event("rank_exited");
    }

    /// The tool returns from main, and leaves nothing behind.
    fn tool_ends(mut self) {
        self.tool.run.close_stdin();
        assert_eq!(self.tool.run.wait(SOON).code(), 0);
        self.world.finish();
    }

    /// Honest nodes still obey, and nothing is left.
    fn others_go_on(mut self, ranks: usize) {
        self.assert_ranks(ranks);
        self.tool.ask("close");
        self.tool.assert_alone(&self.world);
        self.tool_ends();
    }
}

/// A lie is detected, the error names the node, and the others continue. `NODE0` in `said` stands for the name of the
/// first node.
fn lies(mode: &'static str, said: &'static str) {
    within(LIMIT, move || {
        let mut scene = Scene::launched(mode, Shape::Flat, 1);
        scene.go();
        let (hosts, reason) = scene.lost();
        assert_eq!(hosts, [scene.host.as_str()]);
        let first = scene.host.replace(".1", ".0");
        let said = said.replace("NODE0", &first);
        assert_eq!(reason, format!("{} {said}: its link was closed", scene.host));
        scene.hostile_is_cut_off();
        scene.others_go_on(3);
    });
}

#[test]
fn a_node_that_sends_the_exit_of_anothers_rank_is_lost() {
    lies("lie-exit-of-another", "sent an exit of rank 0, which runs on NODE0");
}

#[test]
fn a_node_that_sends_the_exit_of_a_rank_that_does_not_exist_is_lost() {
    lies("lie-exit-of-none", "sent an exit of rank 999, which does not exist");
}

#[test]
fn a_node_that_sends_an_exit_twice_is_lost() {
    lies("replay-exit", "sent a second exit of rank 1");
}

#[test]
fn a_node_that_sends_output_of_anothers_rank_is_lost() {
    lies("lie-output-of-another", "sent output of rank 0, which runs on NODE0");
}

#[test]
fn a_node_that_tells_of_the_loss_of_another_is_lost() {
    lies("lie-loss-of-another", "said that NODE0 is lost, which is not below it");
}

#[test]
fn a_node_that_claims_a_child_is_lost() {
    lies("lie-child", "said that node 0 joined it, which is not its child");
}

#[test]
fn a_node_that_sends_the_exit_of_a_daemon_that_it_has_not_is_lost() {
    lies("lie-daemon", "sent an exit of daemon 77, which was not started there");
}

#[test]
fn a_node_that_takes_standard_input_that_was_not_sent_is_lost() {
    lies("lie-stdin", "spoke on standard input of rank 1, for which it was not asked");
}

#[test]
fn a_node_that_speaks_as_another_is_lost() {
    lies("lie-as-another", "spoke for NODE0, which is not below it");
}

#[test]
fn a_node_that_answers_for_another_is_lost() {
    lies("lie-answer-of-another", "answered for NODE0, which is not below it");
}

#[test]
fn a_node_that_answers_without_a_request_is_lost() {
    lies("lie-answer-unasked", "answered request 1099511627776, which was never made");
}

#[test]
fn a_node_that_speaks_on_a_link_that_is_not_open_is_lost() {
    lies("lie-link", "spoke on link 9, which is not open");
}

#[test]
fn a_node_that_sends_a_message_of_a_daemon_that_it_has_not_is_lost() {
    lies("lie-message", "sent a message of daemon 77, which was not started there");
}

#[test]
fn a_node_that_contributes_to_nothing_is_lost() {
    lies("lie-contribution", "contributed to operation 9, which does not exist");
}

#[test]
fn a_node_that_sends_output_unasked_is_lost() {
    // The tool has launched without output.
    lies("flood-output", "spoke on output of its ranks, for which it was not asked");
}

/// Like [`lies`], with output that the tool has requested and does not read.
fn lies_in_output(mode: &'static str, said: &'static str) {
    within(LIMIT, move || {
        let mut scene = Scene::launched_by("unread", mode, Shape::Flat, 1);
        let before = proc::peak_memory_kib(scene.tool.run.pid());
        scene.go();
        let (hosts, reason) = scene.lost();
        assert_eq!(hosts, [scene.host.as_str()]);
        assert!(reason.starts_with(&format!("{} {said}", scene.host)), "{reason}");
        let used = proc::peak_memory_kib(scene.tool.run.pid()) - before;
        assert!(used < MORE_KIB, "{used} KiB more than {before} KiB");
        scene.others_go_on(3);
    });
}

#[test]
fn a_node_that_sends_output_beyond_its_window_is_lost() {
    lies_in_output("flood-output", "overran its window for output of its ranks: ");
}

#[test]
fn a_node_that_sends_output_in_more_pieces_than_its_window_has_room_for_is_lost() {
    lies_in_output("flood-small-output", "overran its window for output of its ranks: ");
}

#[test]
fn a_node_that_ends_an_output_twice_is_lost() {
    lies_in_output("replay-output-end", "spoke on output of its ranks, which is not open");
}

#[test]
fn a_node_that_sends_items_beyond_its_window_is_lost() {
    lies("flood-items", "overran its window for rendezvous items: 131072 bytes where 0 were left");
}

#[test]
fn a_node_whose_flow_cannot_be_read_is_lost_and_the_agents_that_passed_it_on_are_not() {
    within(LIMIT, || {
        let mut scene = Scene::launched("lie-in-no-language", Shape::Chain, 3);
        scene.go();
        let (hosts, reason) = scene.lost();
        assert_eq!(hosts, [scene.host.as_str()]);
        let said = "sent a word of a flow that cannot be read: its link was closed";
        assert_eq!(reason, format!("{} {said}", scene.host));
        scene.hostile_is_cut_off();
        scene.others_go_on(3);
    });
}

#[test]
fn a_node_that_sends_a_reason_of_a_megabyte_is_lost() {
    lies("flood-reasons", "sent a reason of 1000000 bytes");
}

#[test]
fn an_agent_that_is_killed_is_lost_and_the_others_go_on() {
    within(LIMIT, || {
        let mut scene = Scene::launched("end-at-once", Shape::Flat, 1);
        scene.go();
        assert_eq!(scene.lost().0, [scene.host.as_str()]);
        scene.others_go_on(3);
    });
}

#[test]
fn held_ranks_of_other_nodes_stay_held_and_are_released() {
    within(LIMIT, || {
        let mut scene = Scene::new("lie-exit-of-another", Shape::Flat, 1);
        scene.tool.ask(&scene.order("hold"));
        scene.assert_ranks(3);
        scene.go();
        assert_eq!(scene.lost().0, [scene.host.as_str()]);
        let ran = |scene: &Scene| {
            (0..4).filter(|rank| scene.world.work_dir().join(format!("ran.{rank}")).exists()).count()
        };
        assert_eq!(ran(&scene), 0, "a held rank ran");
        scene.tool.ask("release");
        assert!(becomes_true(SOON, || ran(&scene) == 3));
        scene.others_go_on(3);
    });
}

/// An invalid message before the ranks exist ends the launch. The error names the node.
fn spoils_the_launch(mode: &'static str, said: &'static str) {
    within(LIMIT, move || {
        let mut scene = Scene::new(mode, Shape::Flat, 1);
        let order = scene.order("launch");
        let failed = scene.tool.refused(&order);
        let message = failed["message"].as_str().unwrap_or_default();
        assert_ne!(failed["kind"], "timed-out", "{message}");
        assert!(message.contains(&scene.host), "{message}");
        assert!(message.contains(said), "{message}");
        scene.tool.assert_alone(&scene.world);
        scene.tool_ends();
    });
}

#[test]
fn a_report_of_anothers_rank_ends_the_launch_and_names_the_node() {
    spoils_the_launch("lie-report-of-another", "reported rank 0, which runs on");
}

#[test]
fn a_report_of_a_rank_that_does_not_exist_ends_the_launch_and_names_the_node() {
    spoils_the_launch("lie-report-of-none", "reported rank 999, which does not exist");
}

#[test]
fn a_report_that_names_a_rank_twice_ends_the_launch_and_names_the_node() {
    spoils_the_launch("lie-report-twice", "reported rank 1 twice");
}

#[test]
fn a_report_without_the_nodes_ranks_ends_the_launch_and_names_the_node() {
    spoils_the_launch("lie-report-short", "did not report ranks 1");
}

#[test]
fn an_agent_that_goes_when_it_has_its_place_ends_the_launch_and_is_named() {
    spoils_the_launch("end-before-ranks", "");
}

#[test]
fn an_agent_that_goes_as_soon_as_it_has_its_place_ends_the_launch_and_is_named() {
    spoils_the_launch("end-after-its-place", "");
}

#[test]
fn an_agent_that_goes_before_it_has_said_anything_ends_the_launch() {
    // The agent has no link yet, so the guard's report is the only evidence.
    spoils_the_launch("end-before-hello", "gantry-agent: ended before it reported: exit code 0");
}

#[test]
fn an_agent_that_goes_when_it_has_said_its_name_ends_the_launch() {
    // The agent may have a link by then. The guard's report and the cut link arrive in either order.
    spoils_the_launch("end-after-hello", "");
}

#[test]
fn second_answers_change_nothing() {
    within(LIMIT, || {
        let mut scene = Scene::new("replay-answers", Shape::Flat, 1);
        let launched = scene.tool.ask(&scene.order("launch"));
        assert_eq!(numbers(&launched["pids"]).len(), 4, "{launched}");
        scene.others_are_heard();
        assert!(scene.hostile_runs(), "it was cut off");
        scene.others_go_on(2);
    });
}

/// While one node floods the tool, the others answer, and the tool's memory is bounded.
fn floods(mode: &'static str) {
    within(LIMIT, move || {
        let mut scene = Scene::launched(mode, Shape::Flat, 1);
        let before = proc::peak_memory_kib(scene.tool.run.pid());
        scene.go();
        proc::wait_file(&scene.done(), LIMIT);
        let used = proc::peak_memory_kib(scene.tool.run.pid()) - before;
        let end = fs::read_to_string(scene.done()).expect("how it ended");
        println!("{mode}: {end}; {used} KiB more than {before} KiB");
        assert!(used < MORE_KIB, "{used} KiB more than {before} KiB");
        scene.assert_ranks(3);
        scene.others_are_heard();
        scene.tool_ends();
    });
}

#[test]
fn questions_whose_answers_are_not_read_do_not_pile_up() {
    floods("flood-asked-refused");
}

#[test]
fn waits_for_messages_that_never_come_do_not_pile_up() {
    floods("flood-asked-get");
}

#[test]
fn endless_signs_of_life_do_not_pile_up() {
    floods("flood-alive");
}

#[test]
fn endless_items_that_are_refused_do_not_pile_up() {
    floods("flood-asked-put");
}

#[test]
fn endless_puts_for_a_fence_do_not_pile_up() {
    floods("flood-asked-fence");
}

#[test]
fn half_a_frame_stops_its_own_node_only() {
    within(LIMIT, || {
        let mut scene = Scene::launched("stall-half-a-frame", Shape::Flat, 1);
        scene.go();
        proc::wait_file(&scene.done(), LIMIT);
        scene.assert_ranks(3);
        scene.others_are_heard();
        scene.tool_ends();
    });
}

#[test]
fn an_honest_parent_cuts_off_a_child_that_speaks_as_another() {
    within(LIMIT, || {
        let mut scene = Scene::launched("lie-as-another", Shape::Chain, 2);
        scene.go();
        let (hosts, reason) = scene.lost();
        // The last node is below the hostile one.
        assert_eq!(hosts, [scene.host.clone(), scene.host.replace(".2", ".3")]);
        assert_eq!(reason, "it spoke for node 0, which is not below it: its link was closed");
        scene.others_go_on(2);
    });
}

#[test]
fn a_child_of_an_honest_parent_that_lies_of_another_is_cut_off_and_named() {
    within(LIMIT, || {
        let mut scene = Scene::launched("lie-exit-of-another", Shape::Chain, 3);
        scene.go();
        let (hosts, reason) = scene.lost();
        assert_eq!(hosts, [scene.host.as_str()]);
        let first = scene.host.replace(".3", ".0");
        let said =
            format!("{} sent an exit of rank 0, which runs on {first}: its link was closed", scene.host);
        assert_eq!(reason, said);
        scene.hostile_is_cut_off();
        scene.others_go_on(3);
    });
}

#[test]
fn a_hostile_parent_is_lost_with_those_below_it_and_those_above_go_on() {
    within(LIMIT, || {
        let mut scene = Scene::launched("lie-exit-of-another", Shape::Chain, 1);
        scene.go();
        let (hosts, _) = scene.lost();
        let all: Vec<String> = (1..4).map(|node| scene.host.replace(".1", &format!(".{node}"))).collect();
        assert_eq!(hosts, all);
        scene.others_go_on(1);
    });
}

/// A launch waits for a silent node until its timeout. The error names the node.
fn stalls(mode: &'static str) {
    within(LIMIT, move || {
        let mut scene = Scene::with_timeout(mode, Shape::Flat, 1, 3);
        let order = scene.order("launch");
        let failed = scene.tool.refused(&order);
        assert_eq!(failed["kind"], "timed-out", "{failed}");
        assert!(failed["message"].as_str().unwrap_or_default().contains(&scene.host), "{failed}");
        scene.tool.assert_alone(&scene.world);
        scene.tool_ends();
    });
}

#[test]
fn an_agent_that_says_nothing_is_named_when_time_is_up() {
    stalls("stall-before-hello");
}

#[test]
fn an_agent_that_stops_in_the_handshake_is_named_when_time_is_up() {
    stalls("stall-in-the-handshake");
}

#[test]
fn an_agent_that_listens_at_ten_thousand_addresses_is_refused_and_named_when_time_is_up() {
    stalls("flood-addresses");
}

/// The message arrives before or after the agent has its place in the tree.
#[test]
fn an_agent_that_speaks_before_it_has_its_place_is_refused_and_named() {
    spoils_the_launch("lie-early", "");
}

#[test]
fn an_agent_that_sends_garbage_is_named_when_time_is_up() {
    stalls("flood-garbage");
}

#[test]
fn an_agent_that_claims_another_name_is_missed_when_time_is_up() {
    stalls("lie-name");
}

#[test]
fn an_agent_that_stops_when_it_has_its_place_is_named_when_time_is_up() {
    stalls("stall-after-hello");
}

#[test]
fn an_agent_that_never_reports_its_ranks_is_named_when_time_is_up() {
    stalls("stall-before-ranks");
}

#[test]
fn a_session_that_one_node_never_opens_fails_in_time_and_the_app_goes_on() {
    within(LIMIT, || {
        let mut scene = Scene::launched("stall-before-a-session", Shape::Flat, 1);
        let failed = scene.tool.refused("session");
        assert_eq!(failed["kind"], "timed-out", "{failed}");
        assert!(failed["message"].as_str().unwrap_or_default().contains(&scene.host), "{failed}");
        scene.assert_ranks(3);
        scene.tool_ends();
    });
}

#[test]
fn an_agent_closes_the_link_of_a_frontend_that_overruns_a_ranks_standard_input() {
    within(LIMIT, || {
        let world = World::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let end = runtime.block_on(overrun_input(&world));
        let LinkError::Refused { reason, .. } = &end else { panic!("{end:?}") };
        assert!(reason.starts_with("standard input of rank 0 overran its window: "), "{reason}");
        world.finish();
    });
}
