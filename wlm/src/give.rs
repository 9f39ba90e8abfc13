//! Sends the agent to nodes that do not have it. A node runs a script in the agent's place. The script connects to this
//! process, fetches the agent, and execs it.
//!
//! ```text
//!  the node                                      this process
//!  NUMBER of its word                   ------->
//!                                       <-------  CHALLENGE, random
//!  HASH of CHALLENGE and WORD           ------->
//!                                       <-------  HASH of the agent, HASH of WORD, CHALLENGE and that
//!                                       <-------  the agent's bytes
//! ```
//!
//! The word is in the script's environment, which only the user and root can read. It never crosses the network. So an
//! eavesdropper learns only the agent's bytes, which are not secret, and nothing that can be used again. It cannot
//! replace the agent either: a node accepts no hash that was computed without the word. The agent is read and hashed
//! only when a node asks for it. So a launch whose nodes have the agent pays only for a socket.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blake2::{Blake2b512, Digest};
use gantry_link::door::admission::{Limits, Stage};
use gantry_link::door::{Arrival, Gate, Reason, Seat, TcpEar};
use gantry_link::greeting::STRANGERS;
use gantry_link::tcp::listen;
use gantry_shared::secret::Secret;
use gantry_shared::wire::hold::to_hex;
use gantry_types::error::{Failure, Kind};
use gantry_types::launch::SendAgent;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{timeout, timeout_at};
use zeroize::Zeroizing;

use crate::aside::aside;
use crate::host::Host;
use crate::job::AppRef;
use crate::launch::{AgentCommand, ProcessOwner, StepStart};
use crate::safe::SAFE;
use crate::{Error, Result};

/// The shell that runs the script.
pub(crate) const SHELL: &str = "/bin/bash";

/// The node's parameters: `PORT NUMBER WORD BYTES ADDRESS...`.
pub(crate) const GANTRY_GIVEN: &str = "GANTRY_GIVEN";

/// The timeout for a node's proof that it has a word. A busy node may be slow.
const PROOF: Duration = Duration::from_secs(60);

/// The timeout for sending the agent to one node.
const PATIENCE: Duration = Duration::from_secs(120);

/// The timeout for nodes to fetch the agent, if there is no deadline for agents.
const FETCHED_WITHIN: Duration = Duration::from_secs(120);

/// The maximum number of concurrent transfers. The other nodes wait.
const AT_ONCE: usize = 32;

/// The longest line of the script: a hash, and the text that b2sum adds.
const MAX_LINE: usize = 160;

/// Exit codes of the script if it fails to exec the agent.
const NO_PLACE: i32 = 21;
const UNREACHABLE: i32 = 22;
const SPOILED: i32 = 23;

/// Defines `good PROGRAM BYTES`. True if the program has that length and other users cannot change it. It sets `$real`
/// to the program's path.
const GOOD: &str = r#"good() { real=$(cd "${1%/*}/" 2>/dev/null && pwd -P) && real=${real%/}/${1##*/} && [ -f "$real" ] && [ -x "$real" ] && safe "$real" 0 && [ "$(wc -c <"$real")" -eq "$2" ]; }"#;

/// A login shell or a job's script may have no PATH.
const PATH: &str = "PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}";

/// Execs the agent at `$1` if it is good and has `$2` bytes, else the script `$3`. The rest are the agent's arguments.
const LOOK: [&str; 5] = [
    PATH,
    SAFE,
    GOOD,
    r#"agent=$1 bytes=$2 fetch=$3; shift 3; if good "$agent" "$bytes"; then unset GANTRY_GIVEN; exec "$real" "$@"; fi"#,
    r#"exec /bin/bash -c "$fetch" gantry "$@""#,
];

/// Creates a directory `$into` where programs may be executed. Removes it if the script fails.
const PLACE: [&str; 6] = [
    PATH,
    SAFE,
    r#"fail() { echo "gantry: $2" >&2; exit "$1"; }; set -f; old=$(umask); umask 077; into=; for place in "$TMPDIR" /tmp /var/tmp "$XDG_RUNTIME_DIR" /dev/shm "$HOME"; do case $place in /*) ;; *) continue;; esac; real=$(cd "$place" 2>/dev/null && pwd -P) && safe "$real" 2 || continue; place=${real%/}"#,
    r#"into=$(mktemp -d "$place/gantry-agent-XXXXXXXXXX") || continue; trap 'rm -rf "$into"' 0; trap 'exit 1' 1 2 13 15"#,
    r#"printf '#!/bin/sh\nexit 0\n' >"$into/try" && chmod 700 "$into/try" && "$into/try" && break; rm -rf "$into"; into=; done 2>/dev/null"#,
    r#"[ "$into" ] || fail 21 'no directory for the agent is writable, allows execution and is safe from other users'; rm -f "$into/try""#,
];

/// Defines `fetch FILE GIVEN`.
///
/// It retries a connection that was cut before its turn. A write to a closed connection must not end the script.
const FETCH: [&str; 6] = [
    r#"fetch() { file=$1; read -r port number word bytes addresses <<<"$2"; trap '' 13; for pause in 0.1 0.3 1 3 none; do way=; for at in $addresses; do timeout 5 /bin/bash -c ": <>/dev/tcp/$at/$port" </dev/null 2>/dev/null && { exec 3<>"/dev/tcp/$at/$port"; } 2>/dev/null && way=$at && break; done"#,
    r#"[ "$way" ] || fail 22 'the agent cannot be fetched: no connection to the host that gantry runs on'; addresses=$way; challenge=; hash=; mac="#,
    r#"{ printf '%s\n' "$number" >&3; IFS= read -r -t 60 challenge <&3; printf '%s%s' "$challenge" "$word" | b2sum >&3; read -r -t 60 hash mac <&3; } 2>/dev/null"#,
    r#"if [ "$hash" ] && [ "$(printf '%s%s%s' "$word" "$challenge" "$hash" | b2sum)" = "$mac  -" ]; then head -c "$bytes" <&3 >"$file"; exec 3>&-; [ "$(b2sum <"$file")" = "$hash  -" ] && break; fi; exec 3>&-"#,
    r#"[ "$pause" = none ] && fail 23 'the fetched file is not the agent, or b2sum or disk space is missing'; sleep "$pause"; done"#,
    r#"chmod 700 "$file"; }"#,
];

/// Execs the fetched agent. The agent removes itself and the directory as soon as it runs.
const BECOME: [&str; 3] = [
    r#"given=$GANTRY_GIVEN; unset GANTRY_GIVEN; fetch "$into/gantry-agent" "$given""#,
    r#"trap - 0 1 2 13 15; umask "$old""#,
    r#"GANTRY_SENT_AGENT=$file exec "$file" "$@""#,
];

/// Fetches a starter and the agent into the same directory. Prints that directory.
const FETCH_BOTH: [&str; 2] = [
    r#"fetch "$into/$1" "$GANTRY_GIVEN_STARTER"; fetch "$into/gantry-agent" "$GANTRY_GIVEN""#,
    r#"trap - 0 1 2 13 15; printf '%s\n' "$into""#,
];

/// The prefix of a directory for fetched files.
pub const FETCHED: &str = "gantry-agent-";

fn build_fetch(then: &[&str]) -> String {
    [&PLACE[..], &FETCH, then].concat().join("; ")
}

/// Serves the files that the job of a launch fetches, until it is dropped.
#[derive(Debug, Default)]
pub struct Gifts {
    _givers: Vec<Giver>,
}

/// The first part of a script that runs on one node. It sets `$starter` to the program at that path, or to the fetched
/// one. It sets `$sent` to `sent` if the program was fetched, else to the text of `send`. The agent is in the starter's
/// directory. The node can fetch files as long as [`Gifts`] exist. The script contains secrets.
///
/// # Errors
/// A program does not exist, no port can be opened, or a path is not valid text.
pub async fn build_starter_script(
    starter: &Path,
    agent: &Path,
    send: SendAgent,
    addresses: &[String],
    host: &dyn Host,
) -> Result<(Zeroizing<String>, Gifts)> {
    let (path, name) = (quote(starter.as_os_str())?, quote(starter.file_name().unwrap_or_default())?);
    let mut script = Zeroizing::new(format!("starter={path} sent={send}\n"));
    if send == SendAgent::Never {
        return Ok((script, Gifts::default()));
    }
    let gifts =
        [Giver::start(starter, addresses, 1, host).await?, Giver::start(agent, addresses, 1, host).await?];
    let [starters, agents] = &gifts;
    let test = match send {
        SendAgent::Always => "false".to_owned(),
        _ => {
            script.push_str(&[PATH, SAFE, GOOD].join("; "));
            script.push('\n');
            format!(
                "good \"$starter\" {} && good {} {}",
                starters.bytes,
                quote(agent.as_os_str())?,
                agents.bytes
            )
        }
    };
    let fetch = quote(build_fetch(&FETCH_BOTH).as_ref())?;
    let (first, second) = (starters.give_word(1)?, agents.give_word(1)?);
    // Only the shell that fetches has the words in its environment.
    let given = Zeroizing::new(format!("GANTRY_GIVEN_STARTER='{}' {GANTRY_GIVEN}='{}'", *first, *second));
    script.push_str("if ");
    script.push_str(&test);
    script.push_str("; then :; else sent=sent; into=$(");
    script.push_str(&given);
    script.push_str(&format!(
        " {SHELL} -c {fetch} gantry {name} </dev/null) || exit; starter=$into/{name}; fi\n"
    ));
    Ok((script, Gifts { _givers: gifts.into() }))
}

/// Quotes a word for a shell.
///
/// # Errors
/// The word is not valid text, or contains a line break.
pub(crate) fn quote(word: &OsStr) -> Result<String> {
    let text = word.to_str().filter(|text| !text.contains('\n'));
    let text = text.ok_or_else(|| {
        let message = format!("{} cannot be written into a job's script", word.to_string_lossy());
        Error::invalid_with(message, "install gantry in a folder with a plain name")
    })?;
    Ok(format!("'{}'", text.replace('\'', "'\\''")))
}

/// Sends the agent to nodes that have a word, until all of them have it.
#[derive(Debug)]
pub(crate) struct Giver {
    agent: PathBuf,
    bytes: u64,
    port: u16,
    addresses: String,
    parcel: Arc<Parcel>,
    serving: JoinHandle<()>,
}

/// The files to give, and the receiving hosts.
#[derive(Debug)]
struct Parcel {
    agent: PathBuf,
    /// By number.
    words: Mutex<Vec<Word>>,
    /// The agent's hash and bytes.
    content: OnceCell<(String, Vec<u8>)>,
    at_once: Semaphore,
}

#[derive(Debug)]
struct Word {
    text: Zeroizing<String>,
    /// The number of nodes that have not used it yet.
    open: usize,
}

impl Giver {
    /// Starts serving. `addresses` are names or addresses at which nodes reach this host. `takers` is the maximum
    /// number of nodes.
    ///
    /// # Errors
    /// The agent does not exist, or no port can be opened.
    pub(crate) async fn start(
        agent: &Path,
        addresses: &[String],
        takers: usize,
        host: &dyn Host,
    ) -> Result<Self> {
        let missing = || Error::Read { path: agent.to_owned(), source: io::ErrorKind::NotFound.into() };
        let bytes = host.file_version(agent).ok_or_else(missing)?.bytes;
        // The machine may have no IPv6.
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into())
            .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into()))
            .map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let limits = Limits { handshake: PROOF, ..Limits::with_places(takers.saturating_add(STRANGERS)) };
        let gate = Gate::new(TcpEar::new(listener), limits);
        let parcel = Arc::new(Parcel {
            agent: agent.to_owned(),
            words: Mutex::default(),
            content: OnceCell::new(),
            at_once: Semaphore::new(AT_ONCE),
        });
        let serving = tokio::spawn(serve(gate, Arc::clone(&parcel), takers));
        Ok(Self { agent: agent.to_owned(), bytes, port, addresses: addresses.join(" "), parcel, serving })
    }

    /// The value of [`GANTRY_GIVEN`] for `nodes` nodes, with a new word. It is a secret.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn give_word(&self, nodes: usize) -> Result<Zeroizing<String>> {
        let secret = Secret::random().map_err(|error| failed(io::Error::other(error)))?;
        let text = to_hex(secret.expose());
        let mut words = self.parcel.words();
        let Self { port, bytes, addresses, .. } = self;
        let given = format!("{port} {} {} {bytes} {addresses}", words.len(), *text);
        words.push(Word { text, open: nodes });
        Ok(Zeroizing::new(given))
    }

    /// The command that fetches the agent and execs it with these arguments.
    pub(crate) fn build_command(args: &[&str]) -> Vec<OsString> {
        let fetch = [SHELL, "-c", &build_fetch(&BECOME), "gantry"].map(OsString::from);
        fetch.into_iter().chain(args.iter().map(OsString::from)).collect()
    }

    /// As [`Giver::build_command`], but a node uses its own agent if that has the same path and the same length.
    pub(crate) fn build_careful_command(&self, args: &[&str]) -> Vec<OsString> {
        let look = ["/bin/sh", "-c", &LOOK.join("; "), "gantry"].map(OsString::from);
        let given =
            [self.agent.clone().into_os_string(), self.bytes.to_string().into(), build_fetch(&BECOME).into()];
        look.into_iter().chain(given).chain(args.iter().map(OsString::from)).collect()
    }

    /// The giver of an app's agents. `None`: agents are not sent.
    ///
    /// # Errors
    /// As [`Giver::start`].
    async fn of_agents(agent: &AgentCommand, app: &AppRef, host: &dyn Host) -> Result<Option<Self>> {
        if agent.send == SendAgent::Never {
            return Ok(None);
        }
        let addresses: Vec<String> = agent.addresses.iter().map(ToString::to_string).collect();
        Self::start(&agent.program, &addresses, app.hosts.len(), host).await.map(Some)
    }

    /// Continues until `until`, or until all nodes have the agent.
    pub(crate) fn go_on_until(self, until: Instant) {
        tokio::spawn(async move {
            let mut giver = self;
            drop(timeout_at(until.into(), &mut giver.serving).await);
        });
    }
}

/// The arguments of an agent that a WLM starts. The guard is not above it, so it gets a keeper.
const SERVE: [&str; 2] = ["serve", "step"];

/// The command of a node's agent, and the variable with the secret by which nodes fetch it, if they may have to.
pub(crate) struct AgentGift {
    /// The command.
    pub command: Vec<OsString>,
    /// The value of [`GANTRY_GIVEN`].
    pub word: Option<Zeroizing<String>>,
}

impl AgentGift {
    /// Puts the variable into an environment, in place of one that is there.
    pub(crate) fn put_into(&self, environment: &mut Vec<(OsString, OsString)>) {
        environment.retain(|(name, _)| name != GANTRY_GIVEN);
        environment.extend(self.word.iter().map(|word| (GANTRY_GIVEN.into(), word.as_str().into())));
    }
}

/// Plans the steps that start an app's agents. May run programs of the WLM.
pub(crate) type PlanSteps = fn(&AppRef, &AgentCommand, &AgentGift, &dyn Host) -> Result<Vec<StepStart>>;

/// Starts the steps of an app's agents, and sends the agent to nodes that lack it. `plan` gets the agent's command.
///
/// # Errors
/// As [`Giver::start`]; a step cannot be planned or started.
pub(crate) async fn start_steps(
    app: &AppRef,
    agent: &AgentCommand,
    host: &dyn Host,
    owner: &dyn ProcessOwner,
    plan: PlanSteps,
) -> Result<()> {
    let giver = Giver::of_agents(agent, app, host).await?;
    let command = match &giver {
        None => std::iter::once(agent.program.as_os_str())
            .chain(SERVE.map(OsStr::new))
            .map(OsStr::to_owned)
            .collect(),
        Some(_) if agent.send == SendAgent::Always => Giver::build_command(&SERVE),
        Some(giver) => giver.build_careful_command(&SERVE),
    };
    let word = giver.as_ref().map(|giver| giver.give_word(app.hosts.len())).transpose()?;
    let (of, by, gift) = (app.clone(), agent.clone(), AgentGift { command, word });
    for start in aside(host, move |host| plan(&of, &by, &gift, host)).await? {
        owner.start_step(start).await?;
    }
    if let Some(giver) = giver {
        giver.go_on_until(agent.deadline.unwrap_or_else(|| Instant::now() + FETCHED_WITHIN));
    }
    Ok(())
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn failed(error: io::Error) -> Error {
    let what = format!("listen for hosts that fetch the agent: {error}");
    Error::Failed(Failure::new(Kind::Unsupported, what))
}

/// The meaning of the script's exit code. `None`: the code is not the script's.
pub(crate) fn explain_status(status: i32) -> Option<Failure> {
    Some(match status {
        NO_PLACE => Failure::new(
            Kind::NoAccess,
            "no directory for the agent is writable, allows execution and is safe from other users",
        )
        .with_hint("one of TMPDIR, /tmp, /var/tmp, /dev/shm and HOME has to be"),
        UNREACHABLE => {
            Failure::new(Kind::Lost, "it cannot connect to the host that gantry runs on, to fetch the agent")
                .with_hint("install gantry at a path that all hosts of the job see")
        }
        SPOILED => {
            Failure::new(Kind::Protocol, "the fetched file is not the agent, or b2sum is missing to check it")
                .with_hint("see whether its disk is full")
        }
        _ => return None,
    })
}

fn hash(bytes: &[u8]) -> String {
    to_hex(&Blake2b512::digest(bytes)).to_string()
}

/// Serves until `takers` nodes have the agent.
async fn serve(mut gate: Gate<TcpEar>, parcel: Arc<Parcel>, takers: usize) {
    let mut giving = JoinSet::new();
    let mut served = 0;
    while served < takers {
        tokio::select! {
            biased;
            Some(over) = giving.join_next() => {
                served += usize::from(over.ok().flatten().is_some_and(|number| parcel.used(number)));
            }
            Arrival { stream, seat, eviction } = gate.next() => {
                let parcel = Arc::clone(&parcel);
                giving.spawn(async move {
                    let given = async {
                        let proven = parcel.prove(stream, &seat).await?;
                        let number = proven.number;
                        let given = parcel.give(proven).await;
                        given.inspect_err(|error| tracing::debug!(%error, "an agent was not fetched")).ok()?;
                        Some(number)
                    };
                    eviction.or(given).await.flatten()
                });
            }
        }
    }
}

/// A node that has proven that it has a word.
struct Proven {
    stream: TcpStream,
    number: usize,
    challenge: Zeroizing<String>,
    word: Zeroizing<String>,
}

impl Parcel {
    fn words(&self) -> MutexGuard<'_, Vec<Word>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a node has used that word. False: all its uses are spent.
    fn used(&self, number: usize) -> bool {
        let mut words = self.words();
        let Some(word) = words.get_mut(number).filter(|word| word.open > 0) else { return false };
        word.open -= 1;
        true
    }

    /// Makes a connecting node prove that it has a word.
    async fn prove(&self, stream: TcpStream, seat: &Seat) -> Option<Proven> {
        if !seat.hears(&stream).await {
            return None;
        }
        let stream = BufReader::with_capacity(MAX_LINE, stream);
        match timeout_at(seat.proof_by(), self.challenge(stream)).await {
            Ok(Ok(proven)) => return seat.reach(Stage::Proven).then_some(proven),
            Ok(Err(reason)) => seat.judge(reason),
            Err(_late) => seat.judge(Reason::Unfinished),
        }
        None
    }

    async fn challenge(&self, mut stream: BufReader<TcpStream>) -> std::result::Result<Proven, Reason> {
        let number: usize = hear(&mut stream).await?.trim_end().parse().map_err(|_| Reason::Garbage)?;
        let word = self.words().get(number).map(|word| word.text.clone()).ok_or(Reason::WrongSecret)?;
        let challenge = to_hex(Secret::random().map_err(|_| Reason::Left)?.expose());
        let line = format!("{}\n", *challenge);
        stream.write_all(line.as_bytes()).await.map_err(|_| Reason::Left)?;
        let expected = hash(format!("{}{}", *challenge, *word).as_bytes());
        if hear(&mut stream).await?.split(' ').next() != Some(expected.as_str()) {
            return Err(Reason::WrongSecret);
        }
        Ok(Proven { stream: stream.into_inner(), number, challenge, word })
    }

    async fn give(&self, node: Proven) -> io::Result<()> {
        let Proven { mut stream, challenge, word, .. } = node;
        let (hash, bytes) = self.content.get_or_try_init(|| read(&self.agent)).await?;
        let mac = self::hash(format!("{}{}{hash}", *word, *challenge).as_bytes());
        let line = format!("{hash} {mac}\n");
        timeout(PATIENCE, stream.write_all(line.as_bytes())).await??;
        let _turn = self.at_once.acquire().await.map_err(io::Error::other)?;
        timeout(PATIENCE, async {
            stream.write_all(bytes).await?;
            stream.shutdown().await
        })
        .await?
    }
}

/// Reads the agent when the first node asks for it.
async fn read(agent: &Path) -> io::Result<(String, Vec<u8>)> {
    tracing::info!(agent = %agent.display(), "nodes do not have gantry's agent: it is sent to them");
    let agent = agent.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let bytes = std::fs::read(agent)?;
        Ok((hash(&bytes), bytes))
    });
    reading.await.map_err(io::Error::other)?
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
mod tests;
