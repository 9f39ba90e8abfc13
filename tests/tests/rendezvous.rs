//! Ranks exchange data through their agents: many real processes, all sizes, deaths, late ranks, and garbage at the
//! agent's socket.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use gantry_backend::rendezvous::Handle;
use gantry_frontend::rendezvous::{Data, Limits, Multijob, Standing};
use gantry_frontend::{App, LaunchRequest, OutputTo};
use gantry_tests::fds::may_open;
use gantry_tests::rendezvous::item_of;
use gantry_tests::{SOON, Site, binaries, on_this_machine, pids, require};

const LIMIT: Duration = Duration::from_secs(240);

fn request(nodes: u32, ranks: u32, words: &[&str]) -> LaunchRequest {
    let probe = binaries().dir.join("rendezvous_probe").display().to_string();
    let (nodes, ranks) = (nodes.to_string(), ranks.to_string());
    let mut args = vec!["-N".to_owned(), nodes, "-n".to_owned(), ranks, probe];
    args.extend(words.iter().map(|word| (*word).to_owned()));
    LaunchRequest::new(args).output(OutputTo::Stream)
}

/// The ranks' output, for failure messages.
async fn words_of(app: &App) -> String {
    let Some(mut output) = app.take_output() else { return String::new() };
    let mut said = Vec::new();
    while let Some(piece) = output.next().await {
        said.extend_from_slice(&piece.data.0);
    }
    String::from_utf8_lossy(&said).into_owned()
}

async fn ends_well(app: App) {
    let said = words_of(&app).await;
    let exit = app.wait().await.expect("the end");
    assert_eq!(exit.code, 0, "{said}");
    app.close(SOON).await.expect("close");
}

async fn run(site: &Site, nodes: u32, ranks: u32, words: &[&str]) {
    ends_well(site.launch(request(nodes, ranks, words)).await).await;
}

#[test]
fn five_hundred_and_twelve_processes_exchange_items_of_all_sizes() {
    require!(may_open(2048));
    on_this_machine(LIMIT, async |site| {
        let app = site.launch(request(1, 512, &["all"])).await;
        let data = app.rendezvous().wait(LIMIT).await.expect("the aggregate");
        let data = Data::decode(1, &data, Limits::default()).expect("data of level 1");
        let items = data.as_group().expect("items");
        assert_eq!(items.len(), 512);
        assert!((0..).zip(items).all(|(rank, item)| item.as_item() == Some(&item_of(rank))));
        ends_well(app).await;
    });
}

#[test]
fn ranks_of_several_nodes_exchange_data_over_a_deep_tree() {
    on_this_machine(LIMIT, async |site| {
        let config = gantry_frontend::Config { radix: 2, ..site.config() };
        let frontend = gantry_frontend::Frontend::new(config);
        ends_well(frontend.launch(request(7, 21, &["all"]), SOON).await.expect("a launch")).await;
    });
}

#[test]
fn latecomers_have_it_at_once() {
    on_this_machine(LIMIT, async |site| run(site, 3, 9, &["late"]).await);
}

#[test]
fn a_single_item_is_there_before_all_are() {
    on_this_machine(LIMIT, async |site| run(site, 2, 12, &["items"]).await);
}

#[test]
fn a_second_registration_is_refused_by_name_and_changes_nothing() {
    on_this_machine(LIMIT, async |site| run(site, 2, 6, &["twice"]).await);
}

#[test]
fn processes_create_rendezvous_of_their_own_by_name() {
    on_this_machine(LIMIT, async |site| run(site, 2, 8, &["named", "5"]).await);
}

#[test]
fn a_rank_that_ends_before_it_registers_breaks_it_for_all_and_is_named() {
    on_this_machine(LIMIT, async |site| {
        for dying in [0_u32, 13, 15] {
            let app = site.launch(request(3, 16, &["dies", &dying.to_string()])).await;
            let error = app.rendezvous().wait(SOON).await.expect_err("broken").to_string();
            assert!(error.contains(&format!("rank {dying}")) && error.contains("ended before"), "{error}");
            ends_well(app).await;
        }
    });
}

#[test]
fn a_rank_that_is_killed_breaks_it_for_all_and_is_named() {
    on_this_machine(LIMIT, async |site| {
        let app = site.launch(request(2, 8, &["dies", "5"]).hold(true)).await;
        let victim = nix::unistd::Pid::from_raw(pids(&app)[5]);
        nix::sys::signal::kill(victim, nix::sys::signal::Signal::SIGKILL).expect("a kill");
        app.release(SOON).await.expect("release");
        let error = app.rendezvous().wait(SOON).await.expect_err("broken").to_string();
        assert!(error.contains("rank 5") && error.contains("SIGKILL"), "{error}");
        let said = words_of(&app).await;
        assert_eq!(said, "");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn three_apps_have_a_rendezvous_above_them() {
    on_this_machine(LIMIT, async |site| {
        let multijob = Multijob::new(3).expect("a multijob");
        let mut apps = Vec::new();
        for (number, size) in [(0, 3), (1, 5), (2, 4)] {
            let request = request(2, size, &["multijob", "3,5,4", "2"]).subjob(&multijob, number);
            apps.push(site.launch(request).await);
        }
        let data = multijob.wait(SOON).await.expect("the aggregate");
        let data = Data::decode(2, &data, Limits::default()).expect("data of level 2");
        assert_eq!(data.get(&[1, 4]).and_then(Data::as_item), Some(&item_of(4)[..]));
        for app in apps {
            ends_well(app).await;
        }
        assert_eq!(multijob.status().standing, Standing::Complete);
    });
}

/// What broke: data of a refused rank was taken for the next bytes of rank 0, whose data became malformed.
#[test]
fn refused_ranks_do_not_spoil_the_registration_of_rank_0_above() {
    on_this_machine(LIMIT, async |site| {
        let multijob = Multijob::new(1).expect("a multijob");
        let app = site.launch(request(3, 6, &["meddle"]).subjob(&multijob, 0)).await;
        let data = multijob.wait(SOON).await.expect("the aggregate");
        let data = Data::decode(2, &data, Limits::default()).expect("data of level 2");
        assert!((0..6).all(|rank| {
            let item = usize::try_from(rank).ok().and_then(|rank| data.get(&[0, rank]));
            item.and_then(Data::as_item) == Some(&item_of(rank))
        }));
        ends_well(app).await;
    });
}

#[test]
fn there_may_be_further_levels() {
    on_this_machine(LIMIT, async |site| {
        let multijob = Multijob::new(2).expect("a multijob");
        let above = Multijob::of_level(3, 1).expect("a level above");
        let top = Multijob::of_level(4, 1).expect("another one");
        multijob.join(&above, 0).expect("a place");
        above.join(&top, 0).expect("a place");
        assert!(multijob.join(&top, 0).is_err() && multijob.join(&above, 0).is_err());
        let mut apps = Vec::new();
        for number in 0..2 {
            let request = request(1, 2, &["multijob", "2,2", "4"]).subjob(&multijob, number);
            apps.push(site.launch(request).await);
        }
        assert!(top.wait(SOON).await.expect("the aggregate").starts_with(b"1 1 2 2 0 "));
        for app in apps {
            ends_well(app).await;
        }
    });
}

#[test]
fn an_app_that_ends_too_early_breaks_the_rendezvous_above() {
    on_this_machine(LIMIT, async |site| {
        let multijob = Multijob::new(2).expect("a multijob");
        let above = Multijob::of_level(3, 1).expect("a level above");
        multijob.join(&above, 0).expect("a place");
        let bad = LaunchRequest::new(["-n", "1", "x", "--of"]).subjob(&multijob, 2);
        let error = site.frontend().launch(bad, SOON).await.expect_err("no such place").to_string();
        assert!(error.contains("subjob 2 is not one of them"), "{error}");
        let first = site.launch(request(1, 3, &["dies", "2"]).subjob(&multijob, 0)).await;
        let error = multijob.wait(SOON).await.expect_err("broken").to_string();
        assert!(error.contains("subjob 0") && error.contains("rank 2 ended before"), "{error}");
        let error = above.wait(SOON).await.expect_err("broken").to_string();
        assert!(error.contains("subjob 0") && error.contains("rank 2 ended before"), "{error}");
        ends_well(first).await;
        // A used place is not assigned again. A place whose launch failed is.
        let taken = site.frontend().launch(request(1, 1, &["all"]).subjob(&multijob, 0), SOON).await;
        assert!(taken.is_err());
        for _ in 0..2 {
            let bad = LaunchRequest::new(["-n", "0", "x"]).subjob(&multijob, 1);
            let error = site.frontend().launch(bad, SOON).await.expect_err("no ranks").to_string();
            assert!(!error.contains("subjob"), "{error}");
        }
    });
}

/// The handle in a rank's environment.
fn handle_of(app: &App, name: &str) -> Handle {
    let environment = std::fs::read(format!("/proc/{}/environ", pids(app)[0])).expect("an environment");
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let value = environment.split('\0').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {environment}")).parse().expect("a handle")
}

fn knock(handle: &Handle) -> UnixStream {
    let address = SocketAddr::from_abstract_name(&handle.service).expect("a name");
    let stream = UnixStream::connect_addr(&address).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    stream
}

#[test]
fn garbage_at_the_socket_disturbs_no_rank() {
    on_this_machine(LIMIT, async |site| {
        let app = site.launch(request(1, 64, &["all"]).hold(true)).await;
        let handle = handle_of(&app, "GANTRY_JOB_HANDLE");
        assert_eq!(handle, handle_of(&app, "GLOBUS_GRAM_JOB_HANDLE"));
        // Some clients send nothing, some start a request and never end it, some close their sending side.
        let mut silent: Vec<UnixStream> = (0..200).map(|_| knock(&handle)).collect();
        for (number, stream) in silent.iter_mut().enumerate().filter(|(number, _)| number % 3 > 0) {
            let begun: &[u8] = if number % 3 == 1 { &[0, 0] } else { &[0, 0, 0, 90, 1, 2] };
            stream.write_all(begun).expect("a write");
            if number % 2 == 0 {
                stream.shutdown(std::net::Shutdown::Write).expect("half a close");
            }
        }
        // Lengths that are too large, bytes that are no request, and a request with more bytes after it.
        for garbage in [&[0xff; 4][..], &[0x7f, 0xff, 0xff, 0xff, 1], &[0, 0, 16, 1, 1], &item_of(1)[..5000]]
        {
            let mut stream = knock(&handle);
            // After a refusal, the agent may not read the bytes.
            drop(stream.write_all(garbage));
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            assert!(answer.len() < 4096, "{} bytes", answer.len());
        }
        app.release(SOON).await.expect("release");
        ends_well(app).await;
        drop(silent);
    });
}

#[test]
fn other_processes_may_look_and_not_register() {
    on_this_machine(LIMIT, async |site| {
        let app = site.launch(request(1, 2, &["all"]).hold(true)).await;
        let handle = handle_of(&app, "GANTRY_JOB_HANDLE");
        let looked = tokio::task::spawn_blocking(move || {
            let outside = gantry_backend::rendezvous::Rendezvous::at(handle);
            let refused = outside.register(b"x", SOON).expect_err("no rank").to_string();
            let late = outside.wait(Duration::from_millis(100)).expect_err("it is held");
            let status = outside.status(SOON).expect("a status");
            // The ranks end when they have all data. A later request may find no agent.
            (refused, late, status, outside.subscribe(SOON).expect("a subscription"))
        });
        let (_, late, status, subscription) = looked.await.expect("a thread");
        assert!(matches!(late, gantry_backend::Error::TimedOut { .. }), "{late}");
        assert_eq!((status.expected, status.registered, status.level), (2, 0, 1));
        app.release(SOON).await.expect("release");
        let waiting = tokio::task::spawn_blocking(move || subscription.wait());
        waiting.await.expect("a thread").expect("the aggregate");
        ends_well(app).await;
    });
}

/// The ranks need none of the data: the last one has ended long before the data is through.
#[test]
fn large_data_on_its_way_to_another_process_is_complete_when_the_ranks_have_ended() {
    on_this_machine(LIMIT, async |site| {
        let agent = binaries().agent.display().to_string();
        let text = format!(
            "#!/bin/sh\nset -e\nhead -c 15000000 /dev/zero | {agent} rendezvous put\n{agent} rendezvous wait\n"
        );
        let script = site.world.executable("puts", text.as_bytes()).display().to_string();
        let request = LaunchRequest::new(["-n", "4", &script]).cwd(site.world.work_dir());
        let app = site.launch(request.output(OutputTo::Stream).hold(true)).await;
        let handle = handle_of(&app, "GANTRY_JOB_HANDLE");
        let subscribe = move || gantry_backend::rendezvous::Rendezvous::at(handle).subscribe(LIMIT / 2);
        let subscribed = tokio::task::spawn_blocking(subscribe).await.expect("a thread");
        app.release(SOON).await.expect("release");
        let waiting = tokio::task::spawn_blocking(move || subscribed.expect("a subscription").wait());
        let data = waiting.await.expect("a thread").expect("the aggregate");
        assert!(data.len() > 60_000_000, "{} bytes", data.len());
        ends_well(app).await;
    });
}

#[test]
fn waiting_callers_learn_of_the_apps_end() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let handle = handle_of(&app, "GANTRY_JOB_HANDLE");
        let outside = gantry_backend::rendezvous::Rendezvous::at(handle);
        let begun = Instant::now();
        let subscription = outside.subscribe(SOON).expect("a subscription");
        let waiting = tokio::task::spawn_blocking(move || subscription.wait());
        app.close(SOON).await.expect("close");
        waiting.await.expect("a thread").expect_err("the app is over");
        assert!(begun.elapsed() < SOON);
    });
}

#[test]
fn scripts_have_a_command() {
    on_this_machine(LIMIT, async |site| {
        let agent = binaries().agent.display().to_string();
        let text = format!(
            "#!/bin/sh\nA='{agent} rendezvous'\nset -e\n\
             printf 'of %s' $GANTRY_RANK | $A put --rank $GANTRY_RANK\n\
             $A wait --timeout 60\n\
             test \"$($A get)\" = '3 4 of 04 of 14 of 2'\n\
             test \"$($A get --item 2)\" = 'of 2'\n\
             $A get out.$GANTRY_RANK\n\
             test \"$(cat out.$GANTRY_RANK)\" = '3 4 of 04 of 14 of 2'\n\
             $A list | grep -q '^job.*3 of 3.*complete'\n\
             code=0; echo again | $A put 2> err.$GANTRY_RANK || code=$?\n\
             test $code = 6 && grep -q \"rank $GANTRY_RANK.*already\" err.$GANTRY_RANK\n\
             code=0; echo x | $A put --rank 7 --name b --expected 1 2>/dev/null || code=$?; test $code = 6\n\
             code=0; $A wait --name b --expected 1 --timeout 0.2 2>/dev/null || code=$?; test $code = 4\n\
             code=0; $A push 2>/dev/null || code=$?; test $code = 2\n\
             code=0; GANTRY_JOB_HANDLE= $A wait 2>/dev/null || code=$?; test $code = 5\n"
        );
        let script = site.world.executable("script", text.as_bytes()).display().to_string();
        let request = LaunchRequest::new(["-n", "3", &script]).cwd(site.world.work_dir());
        ends_well(site.launch(request.output(OutputTo::Stream)).await).await;
        let text = format!(
            "#!/bin/sh\ntest $GANTRY_RANK = 1 && exit 0\n{agent} rendezvous wait 2>err.$GANTRY_RANK\ntest $? = 3 && grep -q 'rank 1 ended' err.$GANTRY_RANK\n"
        );
        let script = site.world.executable("breaks", text.as_bytes()).display().to_string();
        let request = LaunchRequest::new(["-n", "3", &script]).cwd(site.world.work_dir());
        ends_well(site.launch(request.output(OutputTo::Stream)).await).await;
    });
}
