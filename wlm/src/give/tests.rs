//! Real shells on this machine stand in for nodes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::host::Machine;

const AGENT: &str = "#!/bin/sh\n[ \"$*$GANTRY_GIVEN\" = 'serve told x' ] || exit 1\n[ \"$GANTRY_SENT_AGENT\" ] || exit 43\nrm -r \"$(dirname \"$GANTRY_SENT_AGENT\")\" && exit 42\n";

const ARGS: [&str; 3] = ["serve", "told", "x"];

/// A directory with an agent, and one into which nodes fetch it.
struct Place {
    folder: tempfile::TempDir,
    agent: PathBuf,
    taken: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (agent, taken) = (folder.path().join("the agent"), folder.path().join("taken"));
        fs::create_dir(&taken).unwrap();
        fs::write(&agent, AGENT).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, agent, taken }
    }

    async fn start(&self, takers: usize) -> Giver {
        Giver::start(&self.agent, &["127.0.0.1".to_owned()], takers, &Machine).await.unwrap()
    }

    /// Runs a node's command, which puts the agent into the directory. Returns its exit code.
    async fn run(&self, command: Vec<OsString>, given: &str) -> Option<i32> {
        #[expect(clippy::disallowed_methods, reason = "a real shell runs the script under test")]
        let mut shell = std::process::Command::new(&command[0]);
        shell.args(&command[1..]).env(GANTRY_GIVEN, given).env("TMPDIR", &self.taken);
        let status = tokio::task::spawn_blocking(move || shell.status().unwrap()).await.unwrap();
        status.code()
    }

    async fn fetch(&self, given: &str) -> Option<i32> {
        self.run(Giver::build_command(&ARGS), given).await
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(&self.agent, fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[tokio::test]
async fn what_is_fetched_is_executed_if_it_is_what_was_meant() {
    let place = Place::new();
    let giver = place.start(3).await;
    let (given, other) = (giver.give_word(2).unwrap(), giver.give_word(1).unwrap());
    assert_eq!(place.fetch(&given).await, Some(42));
    // The word of another node is not valid for this number.
    let mut words: Vec<&str> = other.split(' ').collect();
    words[1] = "0";
    assert_eq!(place.fetch(&words.join(" ")).await, Some(SPOILED));
    assert_eq!(place.fetch(&other).await, Some(42));
    assert_eq!(place.fetch(&given).await, Some(42));
    // All nodes have the agent, and the giver has ended.
    assert_eq!(place.fetch(&given).await, Some(UNREACHABLE));
    assert_eq!(fs::read_dir(&place.taken).unwrap().count(), 0, "something is left");
    assert!([NO_PLACE, UNREACHABLE, SPOILED].iter().all(|it| explain_status(*it).is_some()));
    assert!(explain_status(1).is_none());
}

#[tokio::test]
async fn an_agent_from_a_process_without_the_word_is_not_executed() {
    let place = Place::new();
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let impostor = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            if !matches!(hear(&mut stream).await, Ok(number) if number == "0\n") {
                continue;
            }
            let hash = hash(AGENT.as_bytes());
            let said = format!("challenge\n{hash} {hash}\n{AGENT}");
            drop(stream.write_all(said.as_bytes()).await);
        }
    });
    let given = format!("{port} 0 {} {} 127.0.0.1", "0".repeat(64), AGENT.len());
    assert_eq!(place.fetch(&given).await, Some(SPOILED));
    impostor.abort();
}

#[tokio::test]
async fn what_was_overheard_opens_nothing() {
    let place = Place::new();
    let giver = place.start(1).await;
    let given = giver.give_word(1).unwrap();
    let words: Vec<&str> = given.split(' ').collect();
    let [port, number, word, ..] = words[..] else { panic!("{words:?}") };
    let dial = async || {
        let mut stream =
            BufReader::new(TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.unwrap());
        stream.write_all(format!("{number}\n").as_bytes()).await.unwrap();
        let mut challenge = String::new();
        stream.read_line(&mut challenge).await.unwrap();
        (stream, challenge.trim_end().to_owned())
    };
    let (mut honest, challenge) = dial().await;
    let answer = format!("{}  -\n", hash(format!("{challenge}{word}").as_bytes()));
    let (mut replay, other) = dial().await;
    assert_ne!(other, challenge);
    replay.write_all(answer.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    replay.read_to_end(&mut heard).await.ok();
    assert!(heard.is_empty(), "{heard:?}");
    honest.write_all(answer.as_bytes()).await.unwrap();
    honest.read_to_end(&mut heard).await.unwrap();
    assert!(heard.ends_with(AGENT.as_bytes()), "{heard:?}");
}

#[tokio::test]
async fn an_agent_of_the_same_length_at_the_same_path_is_taken_as_it_is_and_another_is_not() {
    let place = Place::new();
    let giver = place.start(9).await;
    let given = giver.give_word(9).unwrap();
    let look = async |giver: &Giver| place.run(giver.build_careful_command(&ARGS), &given).await;
    assert_eq!(look(&giver).await, Some(43), "taken as it is");
    place.set_mode(0o757);
    assert_eq!(look(&giver).await, Some(42), "others can change it");
    place.set_mode(0o755);
    let mut longer = place.start(9).await;
    longer.bytes += 1;
    assert_eq!(look(&longer).await, Some(42), "another build");
    place.set_mode(0o644);
    assert_eq!(look(&giver).await, Some(42), "not to be executed");
    assert!(place.folder.path().exists());
}

#[tokio::test]
async fn a_crowd_that_says_nothing_keeps_no_node_from_the_agent() {
    let place = Place::new();
    let giver = place.start(1).await;
    let given = giver.give_word(1).unwrap();
    let mut crowd = Vec::new();
    for at in 0..400 {
        let mut stranger = TcpStream::connect(("127.0.0.1", giver.port)).await.unwrap();
        if at % 2 == 0 {
            stranger.write_all(b"0\n").await.ok();
        }
        crowd.push(stranger);
    }
    let fetched = timeout(Duration::from_secs(20), place.fetch(&given)).await;
    assert_eq!(fetched.expect("within 20 s"), Some(42));
}
