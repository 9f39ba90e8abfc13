//! Many launches in a row: none may be lost, none may run before its release, and nothing may be left.
//!
//! `ENDURANCE_LAUNCHES` sets the number. Use 1000 before a release. The elapsed time is printed, not asserted.

use std::time::{Duration, Instant};

use gantry_frontend::{App, Event, LaunchRequest};
use gantry_tests::fds::Census;
use gantry_tests::{SOON, Site, on_this_machine, pids, proc, programs};

const LAUNCHES: u32 = 100;

/// Of 20 launches, 12 have 1 rank, 7 have 4 ranks and 1 has 64 ranks.
fn ranks_of(launch: u32) -> &'static str {
    match launch % 20 {
        19 => "64",
        12..=18 => "4",
        _ => "1",
    }
}

async fn held_and_released(site: &Site, launch: u32, say: &str) -> Vec<i32> {
    let count = ranks_of(launch);
    // Every third program has a loader and libraries. The others are as short as a program can be.
    let program = if launch.is_multiple_of(3) { say } else { "/bin/true" };
    let app: App = site.launch(LaunchRequest::new(["-n", count, program]).hold(true)).await;
    let mut events = app.events();
    let ranks = pids(&app);
    assert_eq!(ranks.len().to_string(), count, "launch {launch}");
    for pid in &ranks {
        assert_eq!(proc::why_not_held(*pid), None, "launch {launch}");
    }
    app.release(SOON).await.unwrap_or_else(|error| panic!("launch {launch}: {error}"));
    let exit = app.wait().await.unwrap_or_else(|error| panic!("launch {launch}: {error}"));
    assert_eq!(exit.code, 0, "launch {launch}: {exit:?}");
    assert!(exit.ranks.iter().all(|rank| rank.status.code == Some(0)), "launch {launch}: {exit:?}");
    app.close(SOON).await.unwrap_or_else(|error| panic!("launch {launch}: {error}"));
    let mut ended = 0;
    while let Some(event) = events.next().await {
        match event {
            Event::RankExited { .. } => ended += 1,
            Event::Held { .. } | Event::Released { .. } | Event::Exited(_) => {}
            other => panic!("launch {launch}: {other:?}"),
        }
    }
    assert_eq!(ended, ranks.len(), "launch {launch}");
    ranks
}

#[test]
fn launches_in_a_row_are_held_and_released() {
    on_this_machine(Duration::from_secs(900), async |site| {
        #[expect(clippy::disallowed_methods, reason = "the number of launches may be changed from outside")]
        let launches =
            std::env::var("ENDURANCE_LAUNCHES").map_or(Ok(LAUNCHES), |text| text.parse()).expect("a number");
        let say = programs::get("say").display().to_string();
        // The first launch opens descriptors that stay open: those of the runtime.
        held_and_released(site, 0, &say).await;
        let own = Census::take();
        let start = Instant::now();
        for launch in 0..launches {
            let ranks = held_and_released(site, launch, &say).await;
            if launch % 100 == 99 {
                // Other processes may have reused the pids, so search by the world's own tag.
                assert!(ranks.iter().all(|pid| !site.world.processes().contains(pid)), "launch {launch}");
            }
        }
        let took = start.elapsed();
        own.assert_no_growth(SOON);
        println!("measured: {launches} launches held and released in {:.1} s", took.as_secs_f64());
    });
}
