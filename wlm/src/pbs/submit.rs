//! The user's own batch jobs, and jobs of launches from outside: a script that starts the agents, given to qsub on
//! its standard input.
//!
//! The script contains the app's secret. Only root and the job's owner can read PBS's copy of a script. All users can
//! see the arguments of qsub and the job's variables, which do not contain the secret. gantry writes it to no file.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use gantry_types::error::{Failure, Kind};
use zeroize::Zeroizing;

use super::ask::{ask, find_command, refused};
use super::command::Options;
use super::qstat::Job;
use crate::caps::batch::{ANSWER_WITHIN, BatchJobs};
use crate::caps::queue::UNREACHABLE;
use crate::give::explain_status;
use crate::host::Host;
use crate::{Error, JobRef, JobStarter, Result, Submission};

/// Marks the end of the starter's input in the script.
const END: &str = "GANTRY_END";

/// The longest name of a job that PBS accepts. Source: pbs_ifl.h, `PBS_MAXJOBNAME`.
const MAX_JOB_NAME: usize = 230;

/// The name of a job if no character of the program's name is allowed at the beginning of a job's name.
const NAMELESS: &str = "gantry";

/// The remedy for missing programs.
const SHARED: &str = "install gantry at a path that all hosts of the job see; with '-o FILE' the script's output goes to a file";

/// The remedy where only the script's output tells more.
const SEE_OUTPUT: &str = "give the job an output file, as by '-o FILE'";

/// qsub's options that do not submit a single script that starts by itself, with the reason.
const REFUSED: [(&str, &str); 7] = [
    ("-I", "an interactive job has no script"),
    ("-X", "an interactive job has no script"),
    ("-J", "an array is many jobs"),
    ("-z", "the job's name has to be known"),
    ("-S", "the job's script is gantry's own"),
    ("-C", "the job's script is gantry's own"),
    ("-G", "an interactive job has no script"),
];

/// The user's batch jobs.
#[derive(Debug)]
pub(super) struct PbsBatch;

impl BatchJobs for PbsBatch {
    fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef> {
        let mut command = vec![find_command(OsStr::new("qsub"), host)?, "-f".into()];
        if submission.args.first().is_some_and(|first| first == "-I") {
            return Err(Error::invalid_with("an interactive job has no script", "run gantry in it"));
        }
        refuse_block(&submission.args)?;
        if submission.held.is_some() {
            let hint = "leave out the hold, or launch held with options of qsub instead of a script";
            return Err(Error::invalid_with(
                "gantry cannot hold a batch script: PBS does not tell which programs it launches",
                hint,
            ));
        }
        command.extend(name_variables(submission)?);
        command.extend(submission.args.iter().cloned());
        // A script may ask for a qsub that stays until the job's end: #PBS -W block=true.
        let is_answer = |line: &str| parse_submitted(line).is_some();
        let said =
            host.ask_for_line(submission.cwd.as_ref(), &command, &submission.env, is_answer, ANSWER_WITHIN);
        let said = said.map_err(|error| Error::not_run(&command, &error))?;
        match parse_submitted(&said.stdout) {
            Some(job) => Ok(JobRef(job.to_owned())),
            None => Err(refused(&command, &said)),
        }
    }

    fn check_cancel(&self, host: &dyn Host) -> Result<()> {
        find_command(OsStr::new("qdel"), host).map(drop)
    }

    fn cancel(&self, job: &JobRef, host: &dyn Host) -> Result<()> {
        let (command, said) = ask(&["qdel".into(), job.0.clone().into()], host)?;
        if said.stderr.trim().is_empty() { Ok(()) } else { Err(refused(&command, &said)) }
    }
}

/// Makes qsub give the job its additional variables. qsub takes their values from its own environment, so they are in
/// no argument.
fn name_variables(submission: &Submission) -> Result<Vec<OsString>> {
    let says =
        |option: &str| submission.args.iter().any(|it| it.as_encoded_bytes().starts_with(option.as_bytes()));
    if submission.env.is_empty() || says("-V") {
        return Ok(Vec::new());
    }
    if says("-v") {
        let hint = "give all of them to qsub, or all of them to the submission";
        return Err(Error::invalid_with(
            "qsub's option '-v' cannot be combined with variables of the submission",
            hint,
        ));
    }
    let mut names = OsString::new();
    for (name, _) in &submission.env {
        if !names.is_empty() {
            names.push(",");
        }
        names.push(name);
    }
    Ok(vec!["-v".into(), names])
}

/// Submits the job of a launch.
///
/// # Errors
/// An invalid option; there is no qsub, or it refuses.
pub(super) fn submit_starter(options: &Options, starter: &JobStarter, host: &dyn Host) -> Result<JobRef> {
    let mut command = vec![find_command(OsStr::new("qsub"), host)?];
    command.extend(build_options(&options.qsub, options.common.first_program())?);
    let script = build_script(&starter.prepare, &starter.input);
    let said = host.ask_with(starter.cwd.as_ref(), &command, script.as_bytes(), ANSWER_WITHIN);
    let said = said.map_err(|error| Error::not_run(&command, &error))?;
    match parse_submitted(&said.stdout) {
        Some(job) => Ok(JobRef(job.to_owned())),
        None => Err(refused(&command, &said)),
    }
}

/// qsub's arguments: the user's, with defaults for missing ones. The job has the name of the program unless the user
/// names it.
fn build_options(options: &[OsString], program: &OsStr) -> Result<Vec<OsString>> {
    for (option, why) in REFUSED {
        if options.iter().any(|it| it == option) {
            let message = format!("qsub's option '{option}' cannot be used here: {why}");
            return Err(Error::invalid_with(message, "leave it out, or launch inside of such a job"));
        }
    }
    refuse_block(options)?;
    let says = |letters: &[&str]| options.iter().any(|it| letters.iter().any(|letter| it == letter));
    // Without -f a qsub process stays in the background to speed up the next one.
    let mut all: Vec<OsString> = ["-f", "-S", "/bin/sh"].map(OsString::from).to_vec();
    if !says(&["-N"]) {
        all.extend(["-N".into(), build_job_name(program).into()]);
    }
    if !says(&["-o", "-e", "-j", "-k", "-R"]) {
        all.extend(["-j", "oe", "-o", "/dev/null"].map(OsString::from));
    }
    all.extend(options.iter().cloned());
    Ok(all)
}

/// Converts a program's name to one that PBS accepts for a job. Allowed are ASCII letters, digits and four other
/// characters. Other characters become underscores. The name must start with a letter or a digit.
fn build_job_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_+.".contains(c);
    let name: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name: String = name.chars().take(MAX_JOB_NAME).collect();
    if name.is_empty() { NAMELESS.to_owned() } else { name }
}

/// Refuses options that make qsub wait for the job's end.
fn refuse_block(options: &[OsString]) -> Result<()> {
    let blocks = |pair: &[OsString]| pair[0] == "-W" && pair[1].to_string_lossy().contains("block=");
    let blocks_at_once =
        |it: &OsString| it.to_string_lossy().strip_prefix("-W").is_some_and(|it| it.contains("block="));
    if options.windows(2).any(blocks) || options.iter().any(blocks_at_once) {
        let hint = "leave it out: gantry waits for the job's ranks by itself";
        return Err(Error::invalid_with("qsub's option '-W block' cannot be used here", hint));
    }
    Ok(())
}

/// A script for any `sh`. `prepare` finds the starter, which then reads `input`.
fn build_script(prepare: &str, input: &str) -> Zeroizing<String> {
    let mut script = Zeroizing::new(String::with_capacity(prepare.len() + input.len() + 256));
    script.push_str("#!/bin/sh\n");
    script.push_str(prepare);
    script.push_str("exec \"$starter\" start pbs \"$sent\" <<'");
    script.push_str(END);
    script.push_str("'\n");
    script.push_str(input);
    script.push('\n');
    script.push_str(END);
    script.push('\n');
    script
}

/// The job's name: `7.head`, or `7[].head` for an array. qsub prints nothing else, but a site's own qsub may.
fn parse_submitted(stdout: &str) -> Option<&str> {
    stdout.lines().map(str::trim).find(|line| {
        let number = line.split('.').next().unwrap_or_default();
        let number = number.strip_suffix("[]").unwrap_or(number);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && !line.contains(char::is_whitespace)
    })
}

/// The error for a job that ended before its agents connected.
pub(super) fn ended_early(job: &Job) -> Error {
    let status = job.exit_status.and_then(|status| i32::try_from(status).ok());
    if let Some(failure) = status.and_then(explain_status) {
        let message = format!("{}, and its agents were not there: {}", job.describe(), failure.message());
        return Error::Failed(
            Failure::new(failure.kind(), message).with_hint(failure.hint().unwrap_or(SHARED)),
        );
    }
    // Exit codes: a shell's for a program that it cannot execute, and those of gantry's program.
    let (why, hint) = match job.exit_status {
        Some(126) => ("gantry may not be executed on its first host", SHARED),
        Some(127) => ("gantry is not where it is here on its first host", SHARED),
        Some(status) if status == i64::from(UNREACHABLE) => (
            "they could not connect to this machine",
            "see whether nodes may open connections to this machine, or launch in a job",
        ),
        _ => ("see the output of its script", SEE_OUTPUT),
    };
    let message = format!("{}, and its agents were not there: {why}", job.describe());
    Error::Failed(Failure::new(Kind::Gone, message).with_hint(hint))
}

/// As [`ended_early`], for a job of which the server keeps no record.
pub(super) fn ended_unseen(job: &JobRef) -> Error {
    let message =
        format!("job {} has ended before its agents were there, and the server keeps no record of it", job.0);
    Error::Failed(Failure::new(Kind::Gone, message).with_hint(SEE_OUTPUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn starter() -> JobStarter {
        JobStarter {
            program: "/opt/g".into(),
            prepare: Zeroizing::new("starter=/opt/g sent=never\n".to_owned()),
            input: Zeroizing::new("c0ffee".to_owned()),
            cwd: "/w".into(),
        }
    }

    fn check(options: &str, stdout: &str, stderr: &str, expected: std::result::Result<&str, &str>) {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qsub", "");
        let line = format!("/bin/qsub -f -S /bin/sh -N app -j oe -o /dev/null {options}");
        let host = host.with_answer(&line, stdout, stderr);
        let words: Vec<OsString> = options.split(' ').chain(["./app"]).map(OsString::from).collect();
        let options = super::super::command::parse_args(&words).unwrap();
        match (submit_starter(&options, &starter(), &host), expected) {
            (Ok(job), Ok(expected)) => assert_eq!(job.0, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_or_qsubs_own_words() {
        check("-l select=2", "7.head\n", "", Ok("7.head"));
        check("-l select=2", "5.2 GB of quota are left\n7.head\nyour balance is 3\n", "", Ok("7.head"));
        let words = "qsub: Unknown resource Resource_List.bogus";
        check("-l bogus=1", "", words, Err(words));
        check("-l bogus=1", "", words, Err("(command: /bin/qsub -f -S /bin/sh -N app"));
        check("-I", "", "", Err("'-I' cannot be used here: an interactive job has no script"));
        check("-W block=true", "", "", Err("'-W block' cannot be used here"));
    }

    #[test]
    fn a_batch_job_is_qsubs_own() {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qsub", "");
        let words = "qsub: script file:: No such file or directory";
        let host = host.with_answer("/bin/qsub -f -l select=2 job.sh", "8.head\n", "");
        let host =
            host.with_answer("/bin/qsub -f -J 1-9 job.sh", "2 jobs wait\n9[].head\nyour balance is 3\n", "");
        let host = host.with_answer("/bin/qsub -f none.sh", "", words);
        let ask = |args: &str| {
            let args = args.split(' ').map(OsString::from).collect();
            PbsBatch
                .submit(&Submission { args, held: None, env: Vec::new(), cwd: "/w".into() }, &host)
                .map(|job| job.0)
                .map_err(|it| it.to_string())
        };
        assert_eq!(ask("-l select=2 job.sh"), Ok("8.head".to_owned()));
        assert_eq!(ask("-J 1-9 job.sh"), Ok("9[].head".to_owned()));
        assert!(ask("-Wblock=true x").unwrap_err().contains("cannot be"));
        assert!(ask("none.sh").unwrap_err().contains(words));
        assert!(ask("-I").unwrap_err().contains("has no script"));
        assert!(ask("-W block=true x").unwrap_err().contains("cannot be"));
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_again_to_delete_a_job() {
        let check = |stderr: &str, expected: Option<bool>| {
            let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qdel", "");
            let host = host.with_answer("/bin/qdel 7.head", "", stderr);
            let again =
                PbsBatch.cancel(&JobRef("7.head".to_owned()), &host).err().map(|error| error.is_temporary());
            assert_eq!(again, expected, "{stderr}");
        };
        check("", None);
        check("qdel: cannot connect to server head (errno=111)", Some(true));
        check("qdel: the moon is full", Some(true));
        check("qdel: Unknown Job Id 7.head", Some(false));
        check("qdel: Unauthorized Request  7.head", Some(false));
        check("qdel: Job has finished 7.head", Some(false));
        check("qdel: Request invalid for state of job 7.head", Some(false));
    }

    #[test]
    fn a_job_that_ended_early_says_why() {
        let check = |status, expected: &str| {
            let error = ended_early(&Job { exit_status: status, ..Job::default() }).to_string();
            assert!(error.contains(expected), "{status:?}: {error}");
        };
        check(Some(127), "with 127, and its agents were not there: gantry is not where it is here");
        check(Some(126), "may not be executed");
        check(Some(69), "they could not connect to this machine");
        check(Some(1), "see the output");
        check(None, "see the output");
    }

    #[test]
    fn the_users_options_take_precedence() {
        let options: Vec<OsString> = ["-o", "out", "-N", "mine"].map(OsString::from).to_vec();
        let all = build_options(&options, OsStr::new("app")).unwrap();
        assert_eq!(all, ["-f", "-S", "/bin/sh", "-o", "out", "-N", "mine"]);
    }

    #[test]
    fn a_job_is_named_by_its_program_as_far_as_pbs_takes_the_name() {
        let check = |program: &str, expected: &str| assert_eq!(build_job_name(OsStr::new(program)), expected);
        check("./app", "app");
        check("/opt/x/a+b_c-d.out", "a+b_c-d.out");
        check("2d heat:ü", "2d_heat__");
        check("./.hidden", "hidden");
        check("..", "gantry");
        check("ü", "gantry");
        check(&"x".repeat(300), &"x".repeat(230));
    }

    #[test]
    fn the_script_has_the_secret_and_the_arguments_do_not() {
        let script = build_script("starter=/g sent=never\n", "c0ffee");
        let expected = "#!/bin/sh\nstarter=/g sent=never\nexec \"$starter\" start pbs \"$sent\" <<'GANTRY_END'\nc0ffee\nGANTRY_END\n";
        assert_eq!(*script, expected);
        assert!(!format!("{:?}", starter()).contains("c0ffee"));
    }
}
