use gantry_types::signal::Signal;

use super::*;

const KILLED: ExitStatus = ExitStatus::Signal(Signal::KILL);

fn ranks(text: &str) -> RankSet {
    text.parse().unwrap()
}

/// Node 0 of two nodes with two ranks each, which run two programs; or all four on one node.
fn world(of_all: bool) -> World {
    let parts = [ranks("0"), ranks("1-3")];
    let parts: Vec<&RankSet> = parts.iter().collect();
    let name = "gantry_abc".to_owned();
    match of_all {
        true => World::new(name, &[ranks("0-3")], &parts, &[0, 1, 2, 3].map(Rank)),
        false => World::new(name, &[ranks("0-1"), ranks("2-3")], &parts, &[0, 1].map(Rank)),
    }
}

fn hear(world: &mut World, rank: u32, text: &str) -> Heard {
    let (message, taken) = Message::take(text.as_bytes()).unwrap().expect("a message");
    assert_eq!(taken, text.len());
    world.hear(Rank(rank), &message)
}

#[track_caller]
fn ask(world: &mut World, rank: u32, text: &str) -> String {
    match hear(world, rank, &format!("{text}\n")) {
        Heard::Answer(answer) => String::from_utf8(answer).unwrap().trim_end().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// As [`ask`], in PMI-2.
#[track_caller]
fn ask_two(world: &mut World, rank: u32, text: &str) -> String {
    let text = format!("{:6}{text}", text.len());
    match hear(world, rank, &text) {
        Heard::Answer(answer) => String::from_utf8(answer).unwrap().split_off(6),
        other => panic!("{other:?}"),
    }
}

fn begin(world: &mut World, ranks: std::ops::Range<u32>) {
    for rank in ranks {
        let said = ask(world, rank, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(said, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
    }
}

#[track_caller]
fn enter(world: &mut World, rank: u32) -> oneshot::Receiver<Vec<u8>> {
    match hear(world, rank, "cmd=barrier_in\n") {
        Heard::Later(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_out(mut answer: oneshot::Receiver<Vec<u8>>) {
    assert_eq!(answer.try_recv().unwrap(), b"cmd=barrier_out rc=0\n");
}

/// Takes the world's only failure.
#[track_caller]
fn failure(world: &mut World) -> (u32, i32, String) {
    match world.take_deeds().as_slice() {
        [Deed::End(Failed { rank, code, why, .. })] => (rank.0, *code, why.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rank_learns_who_and_where_it_is() {
    let mut world = world(false);
    begin(&mut world, 0..2);
    for (question, answer) in [
        ("get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ("get_appnum", "cmd=appnum rc=0 appnum=1"),
        ("get_universe_size", "cmd=universe_size rc=0 size=4"),
        ("get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=gantry_abc"),
        ("get key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,2,2))"),
        ("get key=nothing", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
    ] {
        assert_eq!(ask(&mut world, 1, &format!("cmd={question}")), answer);
    }
    assert_eq!(ask(&mut world, 0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
    let refused = ask(&mut world, 0, "cmd=init pmi_version=3");
    assert!(refused.starts_with("cmd=response_to_init rc=-1"), "{refused}");
}

#[test]
fn what_ranks_of_one_node_put_is_there_after_the_fence_and_nobody_else_is_asked() {
    let mut world = world(true);
    begin(&mut world, 0..4);
    let waiting: Vec<_> = (0..4)
        .map(|rank| {
            let put = ask(&mut world, rank, &format!("cmd=put kvsname=x key=P{rank} value=at-{rank}"));
            assert_eq!(put, "cmd=put_result rc=0");
            enter(&mut world, rank)
        })
        .collect();
    waiting.into_iter().for_each(check_out);
    assert_eq!(ask(&mut world, 3, "cmd=get kvsname=x key=P0"), "cmd=get_result rc=0 value=at-0");
    assert_eq!(world.take_deeds(), []);
    // The next fence is a new one.
    let mut alone = enter(&mut world, 2);
    assert!(alone.try_recv().is_err());
    for rank in 0..4 {
        assert_eq!(ask(&mut world, rank, "cmd=finalize"), "cmd=finalize_ack rc=0");
        world.ended(Rank(rank), ExitStatus::Code(3));
    }
    assert_eq!(world.take_deeds(), [], "who has left ends as it likes");
}

#[test]
fn a_node_goes_to_the_fence_once_with_all_that_its_ranks_have_put() {
    let mut world = world(false);
    begin(&mut world, 0..2);
    for number in 0..2 {
        ask(&mut world, 0, &format!("cmd=put key=a value=one{number}"));
        ask(&mut world, 1, "cmd=put key=b value=");
        let first = enter(&mut world, 0);
        assert_eq!(world.take_deeds(), []);
        let second = enter(&mut world, 1);
        let deeds = world.take_deeds();
        let [Deed::Fence { number: told, by: Rank(0), puts }] = deeds.as_slice() else { panic!("{deeds:?}") };
        assert_eq!(
            (*told, String::from_utf8_lossy(puts)),
            (number, format!("4 1 a4 one{number}1 b0 ").into())
        );
        // The puts of all nodes, with those of the other node.
        let all = format!("2 {} {}12 2 1 c5 three", puts.len(), String::from_utf8_lossy(puts));
        world.fenced(all.as_bytes());
        check_out(first);
        check_out(second);
        assert_eq!(ask(&mut world, 0, "cmd=get key=c"), "cmd=get_result rc=0 value=three");
        assert_eq!(ask(&mut world, 0, "cmd=get key=b"), "cmd=get_result rc=0 value=");
    }
    assert_eq!(world.take_deeds(), []);
}

/// Node 1 of the second part of three: ranks 0 and 1 of that part are 3 and 4.
fn joined() -> World {
    let layout = [ranks("0-2"), ranks("3-4"), ranks("5")];
    let join =
        JoinWorld { name: "gantry_job_abc".to_owned(), layout: layout.to_vec(), first: Rank(3), part: 1 };
    World::joined(&join, &[0, 1].map(Rank))
}

#[test]
fn a_part_of_a_world_has_that_ones_numbers_and_takes_what_all_parts_have_put() {
    let mut world = joined();
    begin(&mut world, 0..2);
    assert_eq!(ask(&mut world, 1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=1");
    assert_eq!(ask(&mut world, 1, "cmd=get_universe_size"), "cmd=universe_size rc=0 size=6");
    let mapping = "cmd=get_result rc=0 value=(vector,(0,1,3),(1,1,2),(2,1,1))";
    assert_eq!(ask(&mut world, 0, "cmd=get key=PMI_process_mapping"), mapping);
    ask(&mut world, 0, "cmd=put key=a value=x");
    let waiting = [enter(&mut world, 0), enter(&mut world, 1)];
    assert!(matches!(world.take_deeds().as_slice(), [Deed::Fence { number: 0, .. }]));
    // Three parts of one node each.
    world.fenced(b"3 1 2 0 1 8 2 1 a1 x1 10 2 1 c3 yes");
    waiting.into_iter().for_each(check_out);
    assert_eq!(ask(&mut world, 0, "cmd=get key=c"), "cmd=get_result rc=0 value=yes");
    // Data of another level is malformed.
    drop([enter(&mut world, 0), enter(&mut world, 1)]);
    drop(world.take_deeds());
    world.fenced(b"1 8 2 1 a1 x");
    assert!(failure(&mut world).2.contains("malformed"));
}

#[test]
fn a_rank_of_a_part_is_named_by_both_of_its_numbers() {
    let mut world = joined();
    begin(&mut world, 0..2);
    drop(hear(&mut world, 1, "cmd=abort exitcode=7\n"));
    let why = "rank 1 (rank 4 of MPI_COMM_WORLD) called MPI_Abort with exit code 7".to_owned();
    let expected = Failed { rank: Rank(1), code: 7, why, end: MpiEnd::Aborted };
    assert_eq!(world.take_deeds(), [Deed::End(expected)]);
}

#[test]
fn what_another_node_sends_is_checked() {
    let check = |all: &[u8], what: &str| {
        let mut world = world(false);
        begin(&mut world, 0..2);
        let mut waiting = enter(&mut world, 0);
        drop(enter(&mut world, 1));
        drop(world.take_deeds());
        world.fenced(all);
        assert!(failure(&mut world).2.contains(what), "{what}");
        assert!(waiting.try_recv().is_err());
    };
    check(b"nonsense", "malformed");
    check(b"1 3 x y", "malformed");
    check(b"1 5 1 1 a", "malformed");
    check(format!("1 72 2 65 {}0 ", "k".repeat(65)).as_bytes(), "too large");
    check(b"1 6 2 0 0 ", "too large");
}

#[test]
fn a_rank_that_leaves_too_early_ends_the_world_with_its_name() {
    let of = |end: &dyn Fn(&mut World)| {
        let mut world = world(true);
        begin(&mut world, 0..3);
        end(&mut world);
        failure(&mut world)
    };
    let killed = of(&|world| {
        drop(enter(world, 0));
        drop(enter(world, 1));
        world.ended(Rank(1), KILLED);
        world.ended(Rank(2), KILLED);
    });
    assert_eq!(killed, (1, 137, "rank 1 ended before MPI_Finalize: killed by SIGKILL".to_owned()));
    // A rank that has not begun may end with any status, until others wait for it.
    let silent = of(&|world| {
        world.ended(Rank(3), ExitStatus::Code(5));
        assert_eq!(world.take_deeds(), []);
        drop(enter(world, 0));
    });
    assert_eq!(silent, (3, 5, "rank 3 ended (exit code 5), and the others wait for it".to_owned()));
    let early = of(&|world| {
        drop(enter(world, 0));
        world.ended(Rank(3), ExitStatus::Code(0));
    });
    assert_eq!((early.0, early.1), (3, 1));
    let left = of(&|world| {
        ask(world, 2, "cmd=finalize");
        drop(enter(world, 0));
    });
    assert_eq!(left.2, "rank 0 waits for all ranks, and rank 2 has left by MPI_Finalize");
}

#[test]
fn a_rank_that_leaves_with_0_ends_the_world_if_others_outlive_it() {
    let done = ExitStatus::Code(0);
    let mut world = world(true);
    begin(&mut world, 0..4);
    world.ended(Rank(1), done);
    assert_eq!(world.take_deeds(), [Deed::Outlive(Rank(1))]);
    world.outlive(Rank(1));
    assert_eq!(failure(&mut world), (1, 1, "rank 1 ended before MPI_Finalize: exit code 0".to_owned()));
    // Programs that end together without MPI_Finalize end well.
    let mut world = self::world(true);
    begin(&mut world, 0..4);
    (0..4).for_each(|rank| world.ended(Rank(rank), done));
    assert_eq!(world.take_deeds(), [0, 1, 2].map(|rank| Deed::Outlive(Rank(rank))));
    (0..3).for_each(|rank| world.outlive(Rank(rank)));
    assert_eq!(world.take_deeds(), []);
    // Those that have never begun, and those that have left by MPI_Finalize, wait for nobody and harm nobody.
    let mut world = self::world(true);
    begin(&mut world, 0..2);
    ask(&mut world, 0, "cmd=finalize");
    (0..3).for_each(|rank| world.ended(Rank(rank), done));
    assert_eq!(world.take_deeds(), []);
}

#[test]
fn an_abort_ends_the_world_with_its_code() {
    let check = |text: &str, code: i32| {
        let mut world = world(true);
        begin(&mut world, 0..4);
        assert!(matches!(hear(&mut world, 2, text), Heard::Nothing));
        let (rank, told, why) = failure(&mut world);
        assert_eq!((rank, told, why), (2, code, format!("rank 2 called MPI_Abort with exit code {code}")));
        world.ended(Rank(2), ExitStatus::Code(code));
        assert_eq!(world.take_deeds(), [], "it is told once");
    };
    check("cmd=abort exitcode=7\n", 7);
    check("cmd=abort exitcode=0 message=well\n", 0);
    check("cmd=abort\n", 1);
    check("cmd=abort exitcode=256\n", 255);
    check("    17cmd=abort;msg=no;", 1);
}

#[test]
fn ranks_that_break_the_rules_end_the_world_and_get_no_answer() {
    let check = |rank: u32, text: &str, what: &str| {
        let mut world = world(true);
        begin(&mut world, 0..3);
        assert!(matches!(hear(&mut world, rank, text), Heard::Nothing));
        let (told, code, why) = failure(&mut world);
        assert_eq!((told, code), (rank, 1));
        assert!(why.contains(what), "{why}");
        assert!(matches!(hear(&mut world, 0, "cmd=get_maxes\n"), Heard::Nothing), "it is over");
    };
    check(0, "cmd=dance\n", "does not know");
    check(0, "cmd=\n", "does not know");
    check(3, "cmd=get_maxes\n", "before it has begun");
    let mut world = world(true);
    begin(&mut world, 0..4);
    ask(&mut world, 1, "cmd=finalize");
    assert!(matches!(hear(&mut world, 1, "cmd=barrier_in\n"), Heard::Nothing));
    assert!(failure(&mut world).2.contains("after its end"));
}

#[test]
fn what_cannot_be_is_refused_and_the_world_goes_on() {
    let mut world = world(true);
    begin(&mut world, 0..1);
    let long = "v".repeat(MAX_VALUE_BYTES + 1);
    for question in [
        format!("cmd=put key=a value={long}"),
        format!("cmd=put key={} value=a", &long[..=MAX_KEY_BYTES]),
        "cmd=put key= value=a".to_owned(),
        "cmd=put value=a".to_owned(),
        "cmd=put key=PMI_process_mapping value=a".to_owned(),
        "cmd=lookup_name service=a".to_owned(),
        "mcmd=spawn\nnprocs=1\nendcmd".to_owned(),
    ] {
        let said = ask(&mut world, 0, &question);
        assert!(said.contains(" rc=-1 msg="), "{question}: {said}");
    }
    assert_eq!(ask(&mut world, 0, "cmd=put key=a value=b"), "cmd=put_result rc=0");
    // Its user is told of what only a launcher offers.
    let subjects = world.take_deeds().into_iter().map(|deed| match deed {
        Deed::Note(MpiNote { rank: Rank(0), subject, text }) => {
            (subject, text.contains("--launcher mpiexec"))
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(subjects.collect::<Vec<_>>(), [(MpiSubject::Names, true), (MpiSubject::Spawn, true)]);
}

#[test]
fn a_rank_that_enters_the_fence_twice_ends_the_world_and_opens_no_second_fence() {
    let mut world = world(false);
    begin(&mut world, 0..2);
    let _waiting = [0, 1].map(|rank| enter(&mut world, rank));
    assert!(matches!(world.take_deeds()[..], [Deed::Fence { .. }]));
    assert!(matches!(hear(&mut world, 0, "cmd=barrier_in\n"), Heard::Nothing));
    let deeds = world.take_deeds();
    assert!(matches!(&deeds[..], [Deed::End(failed)] if failed.why.contains("waits already")), "{deeds:?}");
}

#[test]
fn a_request_for_several_programs_gets_one_answer() {
    let mut world = world(true);
    begin(&mut world, 0..1);
    let part = |number| format!("mcmd=spawn\nnprocs=1\ntotspawns=2\nspawnssofar={number}\nendcmd");
    let first = format!("{}\n", part(1));
    assert!(matches!(hear(&mut world, 0, &first), Heard::Nothing));
    assert!(ask(&mut world, 0, &part(2)).starts_with("cmd=spawn_result rc=-1 msg="));
    assert_eq!(world.take_deeds().len(), 1);
}

#[test]
fn one_silent_rank_of_each_program_is_looked_at() {
    let layout = [ranks("0-4")];
    let programs = [ranks("0-1"), ranks("2-4")];
    let mine: Vec<Rank> = (0..5).map(Rank).collect();
    let mut world = World::new("w".to_owned(), &layout, &programs.iter().collect::<Vec<_>>(), &mine);
    assert_eq!(world.silent(), [Rank(0), Rank(2)]);
    begin(&mut world, 2..3);
    assert_eq!(world.silent(), [Rank(0), Rank(3)]);
    world.ended(Rank(3), ExitStatus::Code(0));
    begin(&mut world, 0..2);
    assert_eq!(world.silent(), [Rank(4)]);
    world.stop();
    assert_eq!(world.silent(), []);
    let alone = World::new("w".to_owned(), &[ranks("0")], &[&ranks("0")], &[Rank(0)]);
    assert_eq!(alone.silent(), [], "a single rank is a world anyway");
}

#[test]
fn there_is_an_end_to_what_ranks_may_put() {
    let mut world = world(true);
    begin(&mut world, 0..1);
    let value = "v".repeat(MAX_VALUE_BYTES);
    let refused = (0..20_000).find(|number| {
        let said = ask(&mut world, 0, &format!("cmd=put key=k{number} value={value}"));
        assert!(said == "cmd=put_result rc=0" || said == "cmd=put_result rc=-1 msg=no_room", "{said}");
        said.contains("no_room")
    });
    assert!(refused.is_some_and(|number| number > 5_000), "{refused:?}");
    // A second put of the same key takes no more room.
    let before = world.bytes;
    ask(&mut world, 0, "cmd=put key=k1 value=short");
    assert!(world.bytes <= before);
}

#[test]
fn a_second_put_of_the_same_key_takes_no_more_room() {
    let mut world = world(true);
    begin(&mut world, 0..1);
    for put in ["kvs-put", "info-putnodeattr"] {
        let room = [(); 2].map(|()| {
            let said = ask_two(&mut world, 0, &format!("cmd={put};key=a;value=b;"));
            assert_eq!(said, format!("cmd={put}-response;rc=0;"));
            world.bytes
        });
        assert_eq!(room[0], room[1], "{put}");
    }
}

#[test]
fn the_same_in_pmi_2() {
    let mut world = world(true);
    for rank in 0..4 {
        let said = ask(&mut world, rank, "cmd=init pmi_version=2 pmi_subversion=0");
        assert_eq!(said, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0");
        let said = ask_two(&mut world, rank, &format!("cmd=fullinit;pmirank={rank};threaded=FALSE;"));
        let part = u32::from(rank > 0);
        assert!(said.starts_with("cmd=fullinit-response;rc=0;pmi-version=2;"), "{said}");
        assert!(said.contains(&format!(";rank={rank};size=4;appnum={part};")), "{said}");
    }
    let said = ask_two(&mut world, 1, "cmd=job-getid;thrid=4;");
    assert_eq!(said, "cmd=job-getid-response;thrid=4;rc=0;jobid=gantry_abc;");
    let said = ask_two(&mut world, 1, "cmd=info-getjobattr;key=PMI_process_mapping;");
    assert_eq!(said, "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,4));");
    let said = ask_two(&mut world, 1, "cmd=info-getjobattr;key=PMI_hwloc_xmlfile;");
    assert_eq!(said, "cmd=info-getjobattr-response;rc=0;found=FALSE;");
    assert_eq!(ask_two(&mut world, 1, "cmd=kvs-put;key=a;value=b c;"), "cmd=kvs-put-response;rc=0;");
    let mut waiting: Vec<_> = (0..4)
        .map(|rank| match hear(&mut world, rank, "    14cmd=kvs-fence;") {
            Heard::Later(answer) => answer,
            other => panic!("{other:?}"),
        })
        .collect();
    for answer in &mut waiting {
        assert_eq!(answer.try_recv().unwrap(), b"    28cmd=kvs-fence-response;rc=0;");
    }
    let said = ask_two(&mut world, 3, "cmd=kvs-get;jobid=gantry_abc;srcid=1;key=a;");
    assert_eq!(said, "cmd=kvs-get-response;rc=0;found=TRUE;value=b c;");
    assert_eq!(ask_two(&mut world, 3, "cmd=finalize;"), "cmd=finalize-response;rc=0;");
}

#[test]
fn a_rank_of_pmi_2_waits_for_what_another_of_its_node_will_say() {
    let mut world = world(true);
    begin(&mut world, 0..4);
    let said = ask_two(&mut world, 0, "cmd=info-getnodeattr;key=shm;wait=FALSE;");
    assert_eq!(said, "cmd=info-getnodeattr-response;rc=0;found=FALSE;");
    let wait = "cmd=info-getnodeattr;key=shm;wait=TRUE;";
    let Heard::Later(mut answer) = hear(&mut world, 1, &format!("{:6}{wait}", wait.len())) else {
        panic!("an answer at once")
    };
    assert!(answer.try_recv().is_err());
    let said = ask_two(&mut world, 0, "cmd=info-putnodeattr;key=shm;value=/x;");
    assert_eq!(said, "cmd=info-putnodeattr-response;rc=0;");
    let said = answer.try_recv().unwrap();
    assert_eq!(&said[6..], b"cmd=info-getnodeattr-response;rc=0;found=TRUE;value=/x;");
    let said = ask_two(&mut world, 2, wait);
    assert_eq!(said, "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=/x;");
}

#[test]
fn without_a_frontend_only_a_fence_for_which_nothing_was_put_is_over() {
    let enter_all = |put: bool| {
        let mut world = world(false);
        begin(&mut world, 0..2);
        if put {
            ask(&mut world, 0, "cmd=put key=a value=b");
        }
        let waiting = [enter(&mut world, 0), enter(&mut world, 1)];
        drop(world.take_deeds());
        world.fence_alone();
        (world, waiting)
    };
    let (_, waiting) = enter_all(false);
    waiting.into_iter().for_each(check_out);
    let (mut world, _) = enter_all(true);
    assert!(failure(&mut world).2.contains("the tool that launched the app has ended"));
}
