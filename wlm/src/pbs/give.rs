//! Sending the agent to hosts of a job that see no path of it. PBS copies nothing there, so a task fetches it: a script, for bash as that can open connections, dials this process, takes the agent, and
//! becomes it.
//!
//! Each host is told a word of its own, on the way on which the job's cookie goes, and the agent's hash. The word never goes over the network: the script names its number, is given a
//! random challenge, and answers with a hash of both. So a listener on the network learns the agent, which is no secret, and nothing that it can use again. Nobody there can put
//! another program in the agent's place, as the hash would differ.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blake2::{Blake2b512, Digest};
use gantry_shared::error::{Failure, Kind};
use gantry_shared::secret::Secret;
use gantry_shared::wire::door::admission::{Limits, Stage};
use gantry_shared::wire::door::{Arrival, Gate, Reason, Seat, TcpEar};
use gantry_shared::wire::greeting::STRANGERS;
use gantry_shared::wire::hold::to_hex;
use gantry_shared::wire::tcp::listen;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{timeout, timeout_at};
use zeroize::Zeroizing;

use super::tm::Spawn;
use crate::host::Host;
use crate::safe::SAFE;
use crate::{Error, Result};

/// What fetches.
pub(super) const SHELL: &str = "/bin/bash";

/// Where it is dialled, the number of the host's word and the word, and length and hash of what comes.
const GANTRY_GIVEN: &str = "GANTRY_GIVEN";

/// How long the script may take until it has proven its word: its host may be busy.
const PROOF: Duration = Duration::from_secs(60);

/// How long the agent may take to one host.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many fetch at a time; the others wait.
const AT_ONCE: usize = 32;

/// The longest line that the script says: a hash, and what b2sum writes behind it.
const MAX_LINE: usize = 160;

/// What the script ends with where it does not become the agent.
const NO_PLACE: i32 = 21;
const UNREACHABLE: i32 = 22;
const SPOILED: i32 = 23;

/// Finds a place where programs may be executed, and fetches the agent there. The agent removes both as soon as it runs.
///
/// A connection that was cut before it had its turn is made again. A write to one that is closed must not end the script.
const FETCH: [&str; 10] = [
    SAFE,
    r#"set -f; old=$(umask); umask 077; into=; for place in "$TMPDIR" /tmp /var/tmp "$XDG_RUNTIME_DIR" /dev/shm "$HOME"; do case $place in /*) ;; *) continue;; esac; real=$(cd "$place" && pwd -P) && safe "$real" 2 || continue; place=${real%/}"#,
    r#"into=$(mktemp -d "$place/gantry-agent-XXXXXXXXXX") || continue; trap 'rm -rf "$into"' 0; trap 'exit 1' 1 2 13 15"#,
    r#"printf '#!/bin/sh\nexit 0\n' >"$into/try" && chmod 700 "$into/try" && "$into/try" && break; rm -rf "$into"; into=; done 2>/dev/null"#,
    r#"[ "$into" ] || exit 21; rm -f "$into/try"; file=$into/gantry-agent; set -- $GANTRY_GIVEN; unset GANTRY_GIVEN"#,
    r#"status=22; trap '' 13; for pause in 0.1 0.3 1 3 none; do { exec 3<>"/dev/tcp/$1/$2"; } 2>/dev/null || exit "$status"; status=23"#,
    r#"{ printf '%s\n' "$3" >&3; IFS= read -r challenge <&3; printf '%s%s' "$challenge" "$4" | b2sum >&3; head -c "$5" <&3 >"$file"; } 2>/dev/null"#,
    r#"exec 3>&-; [ "$(b2sum <"$file")" = "$6  -" ] && break; [ "$pause" = none ] && exit 23; sleep "$pause"; done"#,
    r#"chmod 700 "$file"; trap - 0 1 2 13 15; umask "$old""#,
    r#"GANTRY_SENT_AGENT=$file exec "$file" serve told pbs"#,
];

/// Gives the agent to those that have a word, until so many have it.
#[derive(Debug)]
pub(super) struct Giver {
    /// Where it is dialled.
    place: String,
    agent: Arc<Agent>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Agent {
    bytes: Vec<u8>,
    /// By number.
    words: Mutex<Vec<Zeroizing<String>>>,
    at_once: Semaphore,
}

impl Giver {
    /// Begins. `name` is what hosts of the job call this one, `takers` how many will come.
    ///
    /// # Errors
    /// The agent cannot be read, or there is no port.
    pub(super) async fn start(agent: &Path, name: &str, takers: usize, host: &dyn Host) -> Result<Self> {
        let bytes = host.read(agent).map_err(|source| Error::Read { path: agent.to_owned(), source })?;
        // There may be no IPv6.
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into())
            .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into()))
            .map_err(failed)?;
        let place = format!("{name} {}", listener.local_addr().map_err(failed)?.port());
        let limits = Limits { handshake: PROOF, ..Limits::with_places(takers.saturating_add(STRANGERS)) };
        let gate = Gate::new(TcpEar::new(listener), limits);
        let agent = Arc::new(Agent { bytes, words: Mutex::default(), at_once: Semaphore::new(AT_ONCE) });
        let serving = tokio::spawn(serve(gate, Arc::clone(&agent), takers));
        Ok(Self { place, agent, serving })
    }

    /// The task of one host, which fetches the agent and becomes it.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn build_task(&self) -> Result<Spawn> {
        let given = self.give_word()?;
        Ok(Spawn::new([SHELL, "-c", &FETCH.join("; ")]).variable(GANTRY_GIVEN, given.as_str()))
    }

    /// What one host is told.
    fn give_word(&self) -> Result<Zeroizing<String>> {
        let Agent { bytes, words, .. } = &*self.agent;
        let word = Secret::random().map_err(|error| failed(io::Error::other(error)))?.to_hex();
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        let number = words.len();
        let given = format!("{} {number} {} {} {}", self.place, *word, bytes.len(), hash(bytes));
        words.push(word);
        Ok(Zeroizing::new(given))
    }
}

fn failed(error: io::Error) -> Error {
    let what = format!("listen for hosts that fetch the agent: {error}");
    Error::Refused(Failure::new(Kind::Unsupported, what))
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What the end of a task means that was to fetch the agent, if it did not come so far.
pub(super) fn explain_status(status: i32) -> Option<Failure> {
    Some(match status {
        NO_PLACE => Failure::new(
            Kind::NoAccess,
            "there is no place for the agent that may be written and executed, and that others cannot change",
        )
        .with_hint("one of TMPDIR, /tmp, /var/tmp, /dev/shm and HOME has to be"),
        UNREACHABLE => {
            Failure::new(Kind::Lost, "it cannot connect to the host that gantry runs on, to fetch the agent")
                .with_hint("have gantry at a path that all hosts of the job see")
        }
        SPOILED => {
            Failure::new(Kind::Protocol, "what it fetched is not the agent, or there is no b2sum to tell")
                .with_hint("see whether its disk is full")
        }
        _ => return None,
    })
}

fn hash(bytes: &[u8]) -> String {
    to_hex(&Blake2b512::digest(bytes)).to_string()
}

/// Serves until so many words have been used.
async fn serve(mut gate: Gate<TcpEar>, agent: Arc<Agent>, takers: usize) {
    let mut giving = JoinSet::new();
    let mut served = BTreeSet::new();
    while served.len() < takers {
        tokio::select! {
            biased;
            Some(over) = giving.join_next() => served.extend(over.ok().flatten()),
            Arrival { stream, seat, eviction } = gate.next() => {
                let agent = Arc::clone(&agent);
                giving.spawn(async move {
                    let given = async {
                        let (stream, number) = agent.prove(stream, &seat).await?;
                        let given = timeout(PATIENCE, agent.give(stream)).await;
                        matches!(given, Ok(Ok(()))).then_some(number)
                    };
                    eviction.or(given).await.flatten()
                });
            }
        }
    }
}

impl Agent {
    /// Lets a dialler prove that it has a word: gives the word's number.
    async fn prove(&self, stream: TcpStream, seat: &Seat) -> Option<(TcpStream, usize)> {
        if !seat.hears(&stream).await {
            return None;
        }
        let mut stream = BufReader::with_capacity(MAX_LINE, stream);
        match timeout_at(seat.proof_by(), self.challenge(&mut stream)).await {
            Ok(Ok(number)) => return seat.reach(Stage::Proven).then(|| (stream.into_inner(), number)),
            Ok(Err(reason)) => seat.judge(reason),
            Err(_late) => seat.judge(Reason::Unfinished),
        }
        None
    }

    async fn challenge(&self, stream: &mut BufReader<TcpStream>) -> std::result::Result<usize, Reason> {
        let number: usize = hear(stream).await?.trim_end().parse().map_err(|_| Reason::Garbage)?;
        let word = self.words.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned();
        let word = word.ok_or(Reason::WrongSecret)?;
        let challenge = Secret::random().map_err(|_| Reason::Left)?.to_hex();
        let line = format!("{}\n", *challenge);
        stream.write_all(line.as_bytes()).await.map_err(|_| Reason::Left)?;
        let expected = hash(format!("{}{}", *challenge, *word).as_bytes());
        let said = hear(stream).await?;
        if said.split(' ').next() == Some(expected.as_str()) { Ok(number) } else { Err(Reason::WrongSecret) }
    }

    async fn give(&self, mut stream: TcpStream) -> io::Result<()> {
        let _turn = self.at_once.acquire().await.map_err(io::Error::other)?;
        stream.write_all(&self.bytes).await?;
        stream.shutdown().await
    }
}

async fn hear(stream: &mut BufReader<TcpStream>) -> std::result::Result<String, Reason> {
    let mut line = Vec::new();
    match stream.take(MAX_LINE as u64).read_until(b'\n', &mut line).await {
        Ok(_) if line.ends_with(b"\n") => String::from_utf8(line).map_err(|_| Reason::Garbage),
        Ok(_) if line.len() == MAX_LINE => Err(Reason::Garbage),
        Ok(_) | Err(_) => Err(Reason::Left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;

    /// Fetches as a task would, into that folder, what it is told to; how that ended.
    async fn fetch(given: &str, folder: &Path) -> Option<i32> {
        #[expect(clippy::disallowed_methods, reason = "the script is judged by a real shell")]
        let mut shell = std::process::Command::new(SHELL);
        shell.args(["-c", &FETCH.join("; ")]).env(GANTRY_GIVEN, given).env("TMPDIR", folder);
        let status = tokio::task::spawn_blocking(move || shell.status().unwrap()).await.unwrap();
        status.code()
    }

    #[tokio::test]
    async fn what_is_fetched_is_executed_if_it_is_what_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, taken) = (folder.path().join("agent"), folder.path().join("taken"));
        std::fs::create_dir(&taken).unwrap();
        let script = "#!/bin/sh\n[ \"$*\" = 'serve told pbs' ] && rm -r \"$(dirname \"$GANTRY_SENT_AGENT\")\" && exit 42\n";
        std::fs::write(&agent, script).unwrap();
        let giver = Giver::start(&agent, "127.0.0.1", 2, &Machine).await.unwrap();
        let (given, other) = (giver.give_word().unwrap(), giver.give_word().unwrap());
        assert_eq!(fetch(&given, &taken).await, Some(42));
        // The word of another host opens nothing under this number.
        let mut words: Vec<&str> = other.split(' ').collect();
        words[2] = "0";
        assert_eq!(fetch(&words.join(" "), &taken).await, Some(SPOILED));
        let spoiled = given.replace(&hash(script.as_bytes()), &hash(b"another"));
        assert_eq!(fetch(&spoiled, &taken).await, Some(SPOILED));
        assert_eq!(fetch(&other, &taken).await, Some(42));
        // Both hosts have it, and nobody listens any more.
        assert_eq!(fetch(&given, &taken).await, Some(UNREACHABLE));
        assert_eq!(std::fs::read_dir(&taken).unwrap().count(), 0, "something is left");
        assert!([NO_PLACE, UNREACHABLE, SPOILED].iter().all(|it| explain_status(*it).is_some()));
        assert!(explain_status(1).is_none());
    }

    #[tokio::test]
    async fn what_was_overheard_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let agent = folder.path().join("agent");
        std::fs::write(&agent, "an agent").unwrap();
        let giver = Giver::start(&agent, "127.0.0.1", 1, &Machine).await.unwrap();
        let given = giver.give_word().unwrap();
        let words: Vec<&str> = given.split(' ').collect();
        let [_, port, number, word, ..] = words[..] else { panic!("{words:?}") };
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
        assert_eq!(heard, b"an agent");
    }

    #[tokio::test]
    async fn a_crowd_that_says_nothing_keeps_no_host_from_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, taken) = (folder.path().join("agent"), folder.path().join("taken"));
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(&agent, "#!/bin/sh\nrm -r \"$(dirname \"$GANTRY_SENT_AGENT\")\" && exit 42\n")
            .unwrap();
        let giver = Giver::start(&agent, "127.0.0.1", 1, &Machine).await.unwrap();
        let given = giver.give_word().unwrap();
        let port: u16 = given.split(' ').nth(1).unwrap().parse().unwrap();
        let mut crowd = Vec::new();
        for at in 0..400 {
            let mut stranger = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            if at % 2 == 0 {
                stranger.write_all(b"0\n").await.ok();
            }
            crowd.push(stranger);
        }
        let fetched = timeout(Duration::from_secs(20), fetch(&given, &taken)).await;
        assert_eq!(fetched.expect("within 20 s"), Some(42));
    }
}
