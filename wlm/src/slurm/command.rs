//! Builds command lines for Slurm. They never contain secrets.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use gantry_types::host_set::fold_hosts;

use super::environment::build_export;
use super::reference::{JobId, JobName, Target};
use super::srun::SRUN;
use crate::launcher::{Part, rewrite};
use crate::{Error, Result};

/// The changes to the user's `srun` so that agents hold its ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holding<'a> {
    /// The words in front of each program: the agent's path on the nodes and its arguments.
    pub shim: &'a [OsString],
    /// Names of variables that the tasks must get. Their values are in srun's environment.
    pub variables: &'a [&'a str],
    /// A program that the node runs after each task has ended. It is one path: srun allows no arguments.
    pub task_epilog: Option<&'a Path>,
    /// The program of each part. The job or step is named after it, as without gantry.
    pub programs: &'a [OsString],
}

/// The arguments of an srun with held ranks, including the user's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// The arguments, without `srun`.
    pub args: Vec<OsString>,
    /// The user's task epilog, from an option or SLURM_TASK_EPILOG. gantry's epilog replaces it and has to run it.
    pub user_epilog: Option<OsString>,
}

/// The arguments of the user's srun with `holding` inserted into each part. `environment` is that of the srun.
///
/// # Errors
/// The user makes srun copy the program to the nodes (`--bcast`), which would copy the agent instead. Parts have
/// different task epilogs. A list of variables is not valid text.
pub(super) fn build_held(
    args: &[OsString],
    parts: &[Part],
    holding: &Holding<'_>,
    environment: &[(OsString, OsString)],
) -> Result<Held> {
    let variable =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str());
    let [first, ..] = parts else { return Err(Error::invalid("nothing to launch: no part")) };
    let epilog_of = |part: &'_ Part| {
        part.value("task-epilog").or_else(|| variable("SLURM_TASK_EPILOG")).map(OsStr::to_owned)
    };
    let user_epilog = epilog_of(first);
    for part in parts {
        if part.value("bcast").is_some() || variable("SLURM_BCAST").is_some() {
            return Err(Error::invalid_with(
                "--bcast would put gantry's program on the nodes instead of yours",
                "leave it out where the program's path is shared; else put it there with sbcast first",
            ));
        }
        if holding.task_epilog.is_some() && epilog_of(part) != user_epilog {
            return Err(Error::invalid_with(
                "the parts have different task epilogs, and gantry can run one after its own",
                "give all parts the same --task-epilog",
            ));
        }
    }
    let exported = variable("SRUN_EXPORT_ENV").or_else(|| variable("SLURM_EXPORT_ENV"));
    let exports = parts.iter().map(|part| export_of(part.value("export").or(exported), holding.variables));
    let exports = exports.collect::<Result<Vec<_>>>()?;
    // srun ignores the variable inside an allocation, where it names the batch job. Source: srun(1), SLURM_JOB_NAME.
    let named = variable("SLURM_JOB_NAME").is_some() && variable("SLURM_JOB_ID").is_none();
    let name_of = |index: usize| {
        let is_named = named || parts.get(index).is_some_and(|part| part.value("job-name").is_some());
        let program = holding.programs.get(index).filter(|_| !is_named)?;
        Some(option("--job-name=", Path::new(Path::new(program).file_name()?)))
    };
    let options = |index: usize| {
        let export = exports.get(index).cloned().flatten();
        let epilog = holding.task_epilog.map(|path| option("--task-epilog=", path));
        [name_of(index), export, epilog].into_iter().flatten().collect()
    };
    let user_epilog = user_epilog.filter(|_| holding.task_epilog.is_some());
    Ok(Held { args: rewrite(&SRUN, args, parts, options, holding.shim), user_epilog })
}

/// The additional `--export` that a part needs, if any.
fn export_of(current: Option<&OsStr>, variables: &[&str]) -> Result<Option<OsString>> {
    let bad = || Error::invalid("the list of --export is not UTF-8");
    let current = current.map(|list| list.to_str().ok_or_else(bad)).transpose()?;
    Ok(build_export(current, variables).map(|list| format!("--export={list}").into()))
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// A step of gantry inside a running job: one agent on each of some of its nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentStep<'a> {
    /// The job. For a heterogeneous job the leader: srun accepts only its number.
    pub job: JobId,
    /// The nodes: one group, or one for each component of a heterogeneous job that has some.
    pub groups: &'a [AgentGroup<'a>],
    /// The agent's absolute path on the nodes and its arguments. Nothing is looked up in PATH.
    pub agent: &'a [OsString],
    /// Names of variables that the agents must get. Others are not passed.
    pub variables: &'a [&'a str],
    /// Further options, those of the site.
    pub more: &'a [OsString],
}

/// Nodes of one component of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentGroup<'a> {
    /// The component. `None`: the job has no components.
    pub component: Option<u32>,
    /// The nodes, by their names in Slurm.
    pub hosts: &'a [String],
}

/// The arguments for `srun` to start agents in a step. The step shares CPUs, memory and devices: it does not wait for
/// them, and does not block them for others. So daemons can use the GPUs of their node. This was tested in an allocation
/// whose step had all of them, and with a later step that wanted all.
///
/// Standard input goes to every agent. With several groups it goes only to one of them: then a variable has to carry
/// the agents' data. The caller must remove from the environment the variables that
/// [`is_for_srun`](super::is_for_srun) names.
pub(super) fn build_agent_step(step: &AgentStep<'_>) -> Vec<OsString> {
    let mut command = words(&["srun"]);
    for (index, group) in step.groups.iter().enumerate() {
        if index > 0 {
            command.push(":".into());
        }
        command.extend(agent_options(step, group));
        command.push("--".into());
        command.extend_from_slice(step.agent);
    }
    command
}

/// The name of agents' steps, which distinguishes them from others.
pub(super) const AGENTS_LABEL: &str = "gantry-agents";

fn agent_options(step: &AgentStep<'_>, group: &AgentGroup<'_>) -> Vec<OsString> {
    let count = group.hosts.len();
    let export = build_export(Some("NONE"), step.variables).filter(|list| !list.is_empty());
    let mut options = words(&[
        "--quiet",
        &format!("--jobid={}", step.job),
        &format!("--job-name={AGENTS_LABEL}"),
        // Without this option the step waits until CPUs and memory of the job are free.
        "--overlap",
        "--mem=0",
        "--mpi=none",
        // With binding, an agent would share one core with one rank.
        "--cpu-bind=none",
        // One task per node is not sufficient: without these two options srun used only one node.
        &format!("--nodes={count}"),
        &format!("--ntasks={count}"),
        "--ntasks-per-node=1",
        &format!("--nodelist={}", fold_hosts(group.hosts)),
        // The agent's link reports its loss. It must not end the other agents.
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--quit-on-interrupt",
        "--input=all",
        "--unbuffered",
        &format!("--export={}", export.as_deref().unwrap_or("NONE")),
    ]);
    options.extend(group.component.map(|component| format!("--het-group={component}").into()));
    options.extend_from_slice(step.more);
    options
}

/// `scontrol`, which prints a job on one line. It prints all tasks of an array, and all components of a heterogeneous
/// job if its first one is named.
pub(super) fn build_job(job: JobName) -> Vec<OsString> {
    words(&["scontrol", "--oneliner", "show", "job", &job.to_string()])
}

/// `scontrol`, which prints a step or all steps of a job, one per line.
pub(super) fn build_step(target: &Target) -> Vec<OsString> {
    words(&["scontrol", "--oneliner", "show", "step", &target.to_string()])
}

/// `sattach`, which prints the tasks of a step on each node. It attaches to nothing.
pub(super) fn build_layout(step: &Target) -> Vec<OsString> {
    words(&["sattach", "--layout", &step.to_string()])
}

pub(super) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::locate;

    fn split(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn join(words: &[OsString]) -> String {
        words.join(" ".as_ref()).into_string().unwrap()
    }

    /// The rewritten arguments, a blank, `+`, the user's epilog; or the error.
    fn check_held(args: &str, environment: &str, epilog: bool, expected: std::result::Result<&str, &str>) {
        let args = split(args);
        let environment: Vec<(OsString, OsString)> = environment
            .split_whitespace()
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let parts = locate(&SRUN, &args, &environment).unwrap();
        let shim = split("/g/agent hold --");
        let holding = Holding {
            shim: &shim,
            variables: &["T"],
            task_epilog: epilog.then_some(Path::new("/g/agent")),
            programs: &[],
        };
        let found = build_held(&args, &parts, &holding, &environment)
            .map(|held| match held.user_epilog {
                Some(epilog) => format!("{} + {}", join(&held.args), epilog.to_str().unwrap()),
                None => join(&held.args),
            })
            .map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{args:?}");
    }

    #[test]
    fn held_ranks_get_their_variables_whatever_is_exported() {
        check_held("-n2 a b", "", false, Ok("-n2 /g/agent hold -- a b"));
        check_held("--export=ALL,X=1 a", "", false, Ok("--export=ALL,X=1 /g/agent hold -- a"));
        check_held("--export=NONE a", "", false, Ok("--export=NONE --export=T /g/agent hold -- a"));
        check_held("--export X a", "", false, Ok("--export X --export=X,T /g/agent hold -- a"));
        check_held("a", "SLURM_EXPORT_ENV=NONE", false, Ok("--export=T /g/agent hold -- a"));
        check_held("a", "SLURM_EXPORT_ENV=X SRUN_EXPORT_ENV=ALL", false, Ok("/g/agent hold -- a"));
        check_held("--export=ALL a", "SLURM_EXPORT_ENV=NONE", false, Ok("--export=ALL /g/agent hold -- a"));
        check_held(
            "--export=A a : -n2 -- b",
            "",
            false,
            Ok("--export=A --export=A,T /g/agent hold -- a : -n2 -- /g/agent hold -- b"),
        );
    }

    #[test]
    fn the_users_task_epilog_is_taken_over() {
        check_held("a", "", true, Ok("--task-epilog=/g/agent /g/agent hold -- a"));
        check_held(
            "--task-epilog=/e a",
            "SLURM_TASK_EPILOG=/v",
            true,
            Ok("--task-epilog=/e --task-epilog=/g/agent /g/agent hold -- a + /e"),
        );
        check_held("a", "SLURM_TASK_EPILOG=/v", true, Ok("--task-epilog=/g/agent /g/agent hold -- a + /v"));
        check_held(
            "--task-epilog=/e a : b",
            "",
            true,
            Err("the parts have different task epilogs, and gantry can run one after its own"),
        );
    }

    #[test]
    fn a_job_is_called_by_its_program_unless_the_user_names_it() {
        let check = |args: &str, environment: &[(&str, &str)], expected: &str| {
            let args = split(args);
            let environment: Vec<_> =
                environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let parts = locate(&SRUN, &args, &environment).unwrap();
            let programs: Vec<OsString> = parts.iter().map(|part| args[part.program].clone()).collect();
            let shim = split("/g/agent");
            let holding = Holding { shim: &shim, variables: &[], task_epilog: None, programs: &programs };
            let held = build_held(&args, &parts, &holding, &environment).unwrap();
            assert_eq!(join(&held.args), expected, "{args:?}");
        };
        check("-n2 ./x/heat 1", &[], "-n2 --job-name=heat /g/agent ./x/heat 1");
        check("a : -n2 -- b", &[], "--job-name=a /g/agent a : -n2 --job-name=b -- /g/agent b");
        check("-J mine a", &[], "-J mine /g/agent a");
        check("--job-name=mine a : b", &[], "--job-name=mine /g/agent a : --job-name=b /g/agent b");
        check("a", &[("SLURM_JOB_NAME", "mine")], "/g/agent a");
        let inside = [("SLURM_JOB_NAME", "batch"), ("SLURM_JOB_ID", "7")];
        check("a", &inside, "--job-name=a /g/agent a");
    }

    #[test]
    fn the_users_bcast_cannot_be_kept() {
        let error = "--bcast would put gantry's program on the nodes instead of yours";
        check_held("--bcast=/tmp/x a", "", false, Err(error));
        check_held("a", "SLURM_BCAST=/tmp/x", false, Err(error));
    }

    #[test]
    fn an_agents_step_says_all_that_srun_would_guess() {
        let hosts = ["n01".to_owned(), "n02".to_owned()];
        let agent = split("/g/agent serve");
        let groups = [AgentGroup { component: None, hosts: &hosts }];
        let step = AgentStep { job: JobId(7), groups: &groups, agent: &agent, variables: &["T"], more: &[] };
        let always =
            "--quiet --jobid=7 --job-name=gantry-agents --overlap --mem=0 --mpi=none --cpu-bind=none";
        let rest = "--kill-on-bad-exit=0 --wait=0 --quit-on-interrupt --input=all --unbuffered";
        let two = format!("{always} --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[01-02] {rest}");
        let one = format!("{always} --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n02 {rest}");
        let check =
            |step: &AgentStep<'_>, expected: String| assert_eq!(join(&build_agent_step(step)), expected);
        check(&step, format!("srun {two} --export=T -- /g/agent serve"));
        let more = split("--gres=none -q");
        let asked = AgentStep { more: &more, ..step };
        check(&asked, format!("srun {two} --export=T --gres=none -q -- /g/agent serve"));
        let bare = AgentStep { variables: &[], ..step };
        check(&bare, format!("srun {two} --export=NONE -- /g/agent serve"));
        let groups = [
            AgentGroup { component: Some(0), hosts: &hosts },
            AgentGroup { component: Some(2), hosts: &hosts[1..] },
        ];
        check(
            &AgentStep { groups: &groups, ..step },
            format!(
                "srun {two} --export=T --het-group=0 -- /g/agent serve : {one} --export=T --het-group=2 -- /g/agent serve"
            ),
        );
    }

    #[test]
    fn small_commands() {
        let step: Target = "7.0".parse().unwrap();
        assert_eq!(join(&build_job(JobName::ArrayTask(JobId(7), 1))), "scontrol --oneliner show job 7_1");
        assert_eq!(join(&build_step(&step)), "scontrol --oneliner show step 7.0");
        assert_eq!(join(&build_layout(&step)), "sattach --layout 7.0");
    }
}
