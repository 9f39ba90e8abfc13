//! The suite's program as a spawned task: it sends requests to its own mom, on any host.

use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use gantry_wlm::host::Machine;
use gantry_wlm::pbs::PbsExtras;
use gantry_wlm::pbs::tm::environment::NODE_FILE;
use gantry_wlm::pbs::tm::{Client, Command, Environment, Framing, NodeId, Spawn, TmError};

/// For a request.
pub const SOON: Duration = Duration::from_secs(20);

/// For a request that is not answered.
const SHORT: Duration = Duration::from_secs(2);

/// The exit code of a successful task.
pub const DONE: i32 = 42;

/// This task's environment for its mom, from the variables of this process.
///
/// # Errors
/// When it is in no job.
pub fn environment() -> Result<Environment, TmError> {
    let mut environment =
        Environment::from_variables(|name| std::env::var_os(name).map(OsStringExt::into_vec))?;
    if let Some(text) = std::env::var_os(NODE_FILE).and_then(|path| std::fs::read_to_string(path).ok()) {
        environment = environment.with_node_file(&text);
    }
    Ok(environment)
}

/// The tasks of this process's job: host and number of each.
///
/// # Errors
/// This process is in no job.
pub async fn list() -> Result<Vec<(String, u32)>, String> {
    let listed = PbsExtras.tasks(&Machine, SOON).await.map_err(|error| error.to_string())?;
    Ok(listed.into_iter().map(|(host, task)| (host, task.id.0)).collect())
}

/// Checks requests while the mom of the last host dies: writes `ready` in a folder, waits for `dead` there, and
/// continues.
///
/// # Errors
/// The first wrong result.
pub async fn outlive(folder: &Path) -> Result<(), String> {
    const LAST: NodeId = NodeId(4);
    let said = |error: TmError| error.to_string();
    let environment = environment().map_err(said)?;
    let client = Client::connect(&environment, Framing::Packets, SOON).await.map_err(said)?;
    let lost = client.spawn(LAST, Spawn::new(["/bin/sleep", "300"]), SOON).await.map_err(said)?;
    let other = client.spawn(NodeId(2), Spawn::new(["/bin/sleep", "300"]), SOON).await.map_err(said)?;
    let end = client.obit(lost);
    tokio::pin!(end);
    std::fs::write(folder.join("ready"), "").map_err(|error| error.to_string())?;
    while !folder.join("dead").exists() {
        tokio::time::sleep(SHORT / 40).await;
    }
    for command in
        [Command::Tasks { node: LAST }, Spawn::new(["true"]).on(LAST), Command::Resources { node: LAST }]
    {
        match client.ask_by(command, SHORT).await {
            Err(TmError::TimedOut { asked, .. }) if asked.node == Some(LAST) => {}
            other => return Err(format!("of the dead host was heard: {other:?}")),
        }
        // The other hosts still answer.
        client.task_info(NodeId(0), SOON).await.map_err(said)?;
        client.task_info(NodeId(2), SOON).await.map_err(said)?;
    }
    if let Ok(end) = tokio::time::timeout(SHORT, &mut end).await {
        return Err(format!("of the dead host's task was heard: {end:?}"));
    }
    client.kill(other, libc::SIGKILL, SOON).await.map_err(said)?;
    match client.obit(other).await.map_err(said)? {
        265 => Ok(()),
        status => Err(format!("a task of a living host ended with {status}")),
    }
}

/// Plays a part, named by its first word. Returns the exit status.
///
/// # Errors
/// The mom's error.
pub async fn play(words: &[String]) -> Result<i32, TmError> {
    let client = Client::connect(&environment()?, Framing::Packets, SOON).await?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // Starts a task on node 0 and ends as it does.
        ["back"] => {
            let task = client.spawn(NodeId(0), Spawn::new(["sh", "-c", "exit 42"]), SOON).await?;
            client.obit(task).await
        }
        // Publishes a text under a name for other tasks, and waits until it is killed.
        ["publish", name, text] => {
            client.publish(name.as_bytes(), text.as_bytes(), SOON).await?;
            std::future::pending().await
        }
        // Checks this task's parent.
        ["parent", node, task] => {
            let roots = client.roots();
            let is = (roots.parent_node.to_string(), roots.parent_task.to_string());
            Ok(if is == (node.to_owned(), task.to_owned()) { DONE } else { 1 })
        }
        // Checks a variable.
        ["variable", name, value] => {
            Ok(if std::env::var_os(name).is_some_and(|is| is == value) { DONE } else { 1 })
        }
        // As a variable names this task's mom, so does the parent's not.
        ["not-variable", name, value] => {
            Ok(if std::env::var_os(name).is_some_and(|is| is != value) { DONE } else { 1 })
        }
        _ => Ok(2),
    }
}
