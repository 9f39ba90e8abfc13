use proptest::prelude::*;

use super::*;

const FLOWS: [FlowId; 6] = [
    FlowId::Messages(DaemonId(3)),
    FlowId::Output(None),
    FlowId::Output(Some(DaemonId(3))),
    FlowId::Items,
    FlowId::Input(Rank(0)),
    FlowId::Link(7),
];

#[test]
fn a_label_of_output_tells_whose_it_is() {
    for source in [Source::Rank(Rank(0)), Source::Rank(Rank(u32::MAX)), Source::Daemon(DaemonId(3))] {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let FlowId::Output(group) = output_of(source) else { panic!("{source:?}") };
            assert_eq!(parse_output_label(group, output_label(source, stream)), Some((source, stream)));
        }
    }
    for label in [(SessionId(0), 0), (SessionId(u32::MAX), 7), (SessionId(7), u32::MAX)] {
        assert_eq!(parse_message_label(message_label(label.0, label.1)), label);
    }
    assert_eq!(parse_output_label(None, u64::MAX), None, "there is no such rank");
    assert_eq!(parse_output_label(Some(DaemonId(3)), 2), None, "a daemon has two streams on a node");
}

#[test]
fn a_receiver_takes_its_window_and_no_byte_more() {
    let mut inflow = Inflow::down(FlowId::Input(Rank(0)));
    let window = OUTPUT_WINDOW_BYTES as usize;
    assert_eq!(inflow.arrive(window), Ok(()));
    assert!(inflow.arrive(1).is_err());
    assert_eq!(inflow.take(window / 4), Some(OUTPUT_WINDOW_BYTES / 4));
    assert_eq!((inflow.arrive(window / 4), inflow.arrive(1).is_err()), (Ok(()), true));
}

proptest! {
    /// A whole flow, checked against a model that keeps every byte. All bytes arrive in their order, never more than a
    /// window is in flight, and a sender whose bytes are taken is never stuck.
    #[test]
    fn a_flow_is_a_pipe_with_a_window(
        which in 0..FLOWS.len(),
        sends in proptest::collection::vec(1_usize..400_000, 1..40),
        lazy in proptest::collection::vec(any::<bool>(), 1..40),
    ) {
        let flow = FLOWS[which];
        let window = flow.window_up().max(flow.window_down());
        let mut out = Outflow::new(window, flow.overhead());
        let (mut room, mut owed) = (Receiver::new(window), Owed::of(window));
        let mut on_way = std::collections::VecDeque::new();
        let (mut sent, mut taken, mut lazy) = (0_u64, 0_u64, lazy.into_iter().cycle());
        for bytes in sends {
            let mut left = bytes;
            while left > 0 {
                let now = out.fits(left.min(32 * 1024));
                if now > 0 {
                    out.send(now);
                    prop_assert!(room.take(flow.cost_of(now)).is_ok(), "it overran");
                    on_way.push_back((sent, now));
                    (sent, left) = (sent + now as u64, left - now);
                }
                // The consumer may be slow, but must take something in the end.
                if now == 0 || !lazy.next().unwrap_or(false) {
                    let Some((at, count)) = on_way.pop_front() else {
                        return Err(TestCaseError::fail("stuck with nothing on its way"));
                    };
                    prop_assert_eq!(at, taken, "in its order");
                    taken += count as u64;
                    if let Some(due) = owed.take(flow.cost_of(count)) {
                        room.grant(due);
                        prop_assert!(out.earn_back(due).is_ok(), "it returned more than was sent");
                    }
                }
                prop_assert!(sent - taken <= u64::from(window));
            }
        }
        taken += on_way.iter().map(|(_, count)| *count as u64).sum::<u64>();
        prop_assert_eq!(sent, taken);
    }

    /// A peer may mix data and false credit in any way: a receiver lets no more through than it has granted.
    #[test]
    fn a_peer_that_breaks_the_rules_is_found(steps in proptest::collection::vec((any::<bool>(), 0_usize..300_000), 0..200)) {
        let flow = FlowId::Link(1);
        let (mut inflow, mut came, mut granted) = (Inflow::down(flow), 0_u64, u64::from(flow.window_down()));
        for (data, bytes) in steps {
            if data {
                let fits = came + bytes as u64 <= granted;
                prop_assert_eq!(inflow.arrive(bytes).is_ok(), fits);
                came += if fits { bytes as u64 } else { 0 };
            } else if let Some(due) = inflow.take(bytes) {
                granted += u64::from(due);
            }
        }
    }
}
