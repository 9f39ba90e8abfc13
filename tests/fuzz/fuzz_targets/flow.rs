//! Messages of peers about flows. The beginning of a frame and the whole frame must agree on whether it is a flow, and
//! on its id. A receiver must not accept more than it has granted.
#![no_main]

use gantry_shared::wire::flow::{FlowId, Inflow, Word};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{Down, Notice, Order, Up};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Up::Notice { node, notice: Notice::Flow { flow, .. } }) = frame::decode(bytes) {
        assert_eq!(Up::peek_flow(bytes), Some((node, flow)));
    } else if frame::decode::<Up>(bytes).is_ok() {
        assert_eq!(Up::peek_flow(bytes), None);
    }
    if let Ok(down) = frame::decode::<Down>(bytes) {
        let flow = matches!(down.order, Order::Flow { .. });
        assert_eq!(Down::peek_flow(bytes), flow.then_some(down.to));
    }
    let flow = FlowId::Link(0);
    let (mut inflow, mut came, mut granted) = (Inflow::down(flow), 0_u64, u64::from(flow.window_down()));
    let mut rest = bytes;
    // One word after the other, as a peer sends them: data, or its acknowledgement.
    while let Some(word) = frame::peek(rest) {
        match word {
            Word::Data { bytes, .. } => {
                let fits = came + bytes.0.len() as u64 <= granted;
                assert_eq!(inflow.arrive(bytes.0.len()).is_ok(), fits);
                came += if fits { bytes.0.len() as u64 } else { 0 };
            }
            Word::Credit(taken) => granted += inflow.take(taken as usize).map_or(0, u64::from),
            Word::Open(_) | Word::Drain | Word::End => {}
        }
        rest = rest.get(1..).unwrap_or_default();
    }
});
