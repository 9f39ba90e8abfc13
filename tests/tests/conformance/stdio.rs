//! Input and output of ranks.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use gantry_frontend::{App, Event, Input, LaunchRequest, OutputTo};
use gantry_tests::{SOON, Site, on_every_wlm, programs};
use gantry_types::output::Stream;

const LIMIT: Duration = Duration::from_secs(90);

/// Bytes of which no two neighbourhoods look alike, in lines of that width.
fn pattern(length: u32, width: u32) -> Vec<u8> {
    let byte = |i: u32| match u8::try_from((i.wrapping_mul(2_654_435_761) >> 23) & 0xff).unwrap_or(0) {
        b'\n' => b' ',
        other => other,
    };
    // A launcher that labels lines cuts long ones, and ends the last one.
    (1..=length).map(|i| if i % width == 0 || i == length { b'\n' } else { byte(i) }).collect()
}

/// The standard output of each rank, and the app's end.
async fn collect(site: &Site, app: App) -> (Vec<Vec<u8>>, i32) {
    let texts = site.texts(&app).await;
    let code = app.wait().await.expect("the end").code;
    app.close(SOON).await.expect("close");
    (texts, code)
}

async fn cat(site: &Site, count: &str, input: Input) -> Vec<Vec<u8>> {
    let program = programs::get("cat").display().to_string();
    let app =
        site.launch(LaunchRequest::new(["-n", count, &program]).stdin(input).output(OutputTo::Stream)).await;
    let (texts, code) = collect(site, app).await;
    assert_eq!(code, 0);
    texts
}

#[test]
fn a_file_is_read_to_its_end_by_those_that_are_to_read_it() {
    on_every_wlm(LIMIT, async |site| {
        let path = site.world.work_dir().join("input");
        for length in [0, 1, 70_000, site.much(3_000_000)] {
            let bytes = pattern(length, site.line_width());
            std::fs::write(&path, &bytes).expect("a file");
            let texts = cat(site, "3", Input::File(path.clone())).await;
            let (read, other) = texts.split_at(site.readers(3));
            for text in read {
                assert!(
                    site.uncut(text) == site.uncut(&bytes),
                    "{} of {length} bytes came, or others",
                    text.len()
                );
            }
            assert!(other.iter().all(Vec::is_empty));
        }
    });
}

#[test]
fn a_descriptor_is_read_as_it_comes() {
    on_every_wlm(LIMIT, async |site| {
        let (theirs, mut ours) = std::io::pipe().expect("a pipe");
        let program = programs::get("cat").display().to_string();
        let args = [site.input_at_once(), &["-n", "2", &program]].concat();
        let request = LaunchRequest::new(args).stdin(Input::Fd(theirs.into())).output(OutputTo::Stream);
        let app = site.launch(request).await;
        let mut stream = app.take_output().expect("the output");
        for piece in ["one", "two", "three"] {
            ours.write_all(format!("{piece}\n").as_bytes()).expect("a write");
            let echoes = site.readers(2);
            assert_eq!(site.lines(&mut stream, echoes).await, vec![piece; echoes]);
        }
        drop(ours);
        assert!(stream.next().await.is_none());
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn without_input_ranks_read_nothing() {
    on_every_wlm(LIMIT, async |site| {
        assert!(cat(site, "2", Input::Null).await.iter().all(Vec::is_empty));
    });
}

#[test]
fn a_held_rank_gets_its_input_when_it_runs() {
    on_every_wlm(LIMIT, async |site| {
        let path = site.world.work_dir().join("input");
        let bytes = pattern(500_000, site.line_width());
        std::fs::write(&path, &bytes).expect("a file");
        let program = programs::get("cat").display().to_string();
        let request = LaunchRequest::new(["-n", "2", &program]).hold(true);
        let app = site.launch(request.stdin(Input::File(path)).output(OutputTo::Stream)).await;
        app.release(SOON).await.expect("release");
        let (texts, code) = collect(site, app).await;
        let bytes = site.uncut(&bytes);
        assert!(texts[..site.readers(2)].iter().all(|text| site.uncut(text) == bytes) && code == 0);
    });
}

#[test]
fn input_without_a_reader_stops_nothing() {
    on_every_wlm(LIMIT, async |site| {
        let path = site.world.work_dir().join("input");
        std::fs::write(&path, pattern(site.much(3_000_000), site.line_width())).expect("a file");
        let app = site.launch(LaunchRequest::new(["-n", "2", "/bin/true"]).stdin(Input::File(path))).await;
        let code = app.wait().await.expect("the end").code;
        assert!(site.codes_without_reader().contains(&code), "{code}");
        app.close(SOON).await.expect("close");
        // The other end of an open pipe is not the app's to wait for either.
        let (theirs, ours) = std::io::pipe().expect("a pipe");
        let app =
            site.launch(LaunchRequest::new(["-n", "1", "/bin/true"]).stdin(Input::Fd(theirs.into()))).await;
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
        drop(ours);
    });
}

#[test]
fn output_goes_to_the_descriptors_that_were_given() {
    on_every_wlm(LIMIT, async |site| {
        let folder = site.world.work_dir();
        let file = |name: &str| OwnedFd::from(File::create(folder.join(name)).expect("a file"));
        let [rank, ..] = site.rank_variables();
        let script = format!("#!/bin/sh\necho out ${rank}\necho err ${rank} >&2\n");
        let script = site.world.executable("both", script.as_bytes());
        let output = OutputTo::Fds { stdout: file("out"), stderr: file("err") };
        let app = site
            .launch(LaunchRequest::new(["-n".as_ref(), "4".as_ref(), script.as_os_str()]).output(output))
            .await;
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
        let lines = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).expect("text");
            let ranks = text.lines().filter(|line| !site.is_launchers(line));
            let mut lines: Vec<String> = ranks.map(|line| site.unlabelled(line).to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines("out"), ["out 0", "out 1", "out 2", "out 3"]);
        assert_eq!(lines("err"), ["err 0", "err 1", "err 2", "err 3"]);
    });
}

#[test]
fn much_output_of_many_ranks_is_neither_lost_nor_torn() {
    on_every_wlm(2 * LIMIT, async |site| {
        /// The program's lines.
        const LINE: usize = 64;
        let bytes = site.much(2_000_000) as usize;
        let program = programs::get("flood").display().to_string();
        let request = LaunchRequest::new(["-n", "4", &program, &bytes.to_string()]).output(OutputTo::Stream);
        let (texts, code) = collect(site, site.launch(request).await).await;
        assert_eq!(code, 0);
        let width = site.uncut(&[[b'x'; LINE - 1].as_slice(), b"\n"].concat()).len();
        for text in texts {
            let text = site.uncut(&text);
            assert_eq!(text.len(), bytes / LINE * width);
            for (index, line) in text.chunks(width).enumerate() {
                assert!(line.starts_with(format!("{:016x}", index * LINE).as_bytes()), "line {index}");
            }
        }
    });
}

#[test]
fn a_reader_that_is_slow_stops_the_writers_and_one_that_goes_away_frees_them() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("flood").display().to_string();
        let request = LaunchRequest::new(["-n", "2", &program, &site.much(20_000_000).to_string()])
            .output(OutputTo::Stream);
        let app = site.launch(request).await;
        let mut stream = app.take_output().expect("the output");
        drop(stream.next().await.expect("a piece"));
        assert!(app.info().exit.is_none(), "20 MB cannot all be in between");
        drop(stream);
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn descriptors_whose_reader_is_gone_stop_nothing() {
    on_every_wlm(LIMIT, async |site| {
        let (mut theirs, ours) = std::io::pipe().expect("a pipe");
        let (_, closed) = std::io::pipe().expect("a pipe");
        let program = programs::get("flood").display().to_string();
        let output = OutputTo::Fds { stdout: ours.into(), stderr: closed.into() };
        let app = site
            .launch(
                LaunchRequest::new(["-n", "2", &program, &site.much(3_000_000).to_string()]).output(output),
            )
            .await;
        let mut few = [0; 100];
        theirs.read_exact(&mut few).expect("some output");
        drop(theirs);
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn output_that_cannot_be_written_is_an_event_once_for_each_stream_and_a_closed_pipe_is_none() {
    on_every_wlm(LIMIT, async |site| {
        let script = site.world.executable("both", b"#!/bin/sh\necho out; echo out; echo err >&2\n");
        let full = || OwnedFd::from(File::create("/dev/full").expect("the device"));
        let closed = || OwnedFd::from(std::io::pipe().expect("a pipe").1);
        for (stdout, stderr, expected) in [
            (full(), full(), vec![Stream::Stdout, Stream::Stderr]),
            (closed(), full(), vec![Stream::Stderr]),
            (closed(), closed(), Vec::new()),
        ] {
            // A launcher writes to the descriptor of standard output itself.
            let by_launcher = |stream| stream == Stream::Stdout && site.comes_by_one_pipe();
            let expected: Vec<_> = expected.into_iter().filter(|stream| !by_launcher(*stream)).collect();
            let request = LaunchRequest::new(["-n".as_ref(), "2".as_ref(), script.as_os_str()]);
            let app = site.launch(request.output(OutputTo::Fds { stdout, stderr })).await;
            let mut events = app.events();
            assert_eq!(app.wait().await.expect("the end").code, 0);
            app.close(SOON).await.expect("close");
            let mut lost = Vec::new();
            while let Some(event) = events.next().await {
                if let Event::OutputLost { stream, message, .. } = event {
                    assert_eq!(message, "No space left on device (os error 28)");
                    lost.push(stream);
                }
            }
            lost.sort();
            assert_eq!(lost, expected);
        }
    });
}

#[test]
fn output_that_is_not_wanted_stops_nothing() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("flood").display().to_string();
        let app =
            site.launch(LaunchRequest::new(["-n", "2", &program, &site.much(3_000_000).to_string()])).await;
        assert!(app.take_output().is_none());
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
    });
}
