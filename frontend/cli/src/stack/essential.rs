//! Reduces a call path to its author's functions. It drops start-up code, an interpreter's own functions, and callees
//! of a function that waits.

use super::step::Step;
use super::waiting::{is_start, is_team, waiting_name};

/// The name for waiting in an OpenMP runtime.
const TEAM: &str = "the OpenMP runtime";

/// The part of a path that its author knows.
pub(super) fn essential(steps: Vec<Step>) -> Vec<Step> {
    let (marks, mut steps): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| step.is_mark);
    if let Some(main) = steps.iter().position(|step| step.name == "main" && !step.is_script) {
        steps.drain(..main);
    }
    // Start-up code may have a caller without a name.
    let own = steps.iter().rposition(|step| is_start(&step.name)).map_or(0, |at| at + 1);
    if own < steps.len() {
        steps.drain(..own);
    }
    steps = without_interpreter(steps);
    let waiting = steps.iter().position(|step| step.waits).or_else(|| team(&steps));
    if let Some(waiting) = waiting {
        steps.truncate(waiting + 1);
        if let Some(step) = steps.last_mut() {
            step.waits = true;
            step.name = waiting_name(&step.name).unwrap_or_else(|| TEAM.to_owned());
            step.offset = None;
            // The line within a waiting library function is not useful to the reader.
            step.lines.clear();
            step.file = None;
        }
    }
    marks.into_iter().chain(steps).collect()
}

/// In a path with functions of scripts: keeps these, functions that wait, and functions with a source outside the
/// interpreter.
fn without_interpreter(mut steps: Vec<Step>) -> Vec<Step> {
    let Some(first) = steps.iter().position(|step| step.is_script) else { return steps };
    let last = steps.len() - 1;
    let mut at = 0;
    steps.retain(|step| {
        let (is_before, is_last) = (at < first, at == last);
        at += 1;
        match (step.is_script, step.file.as_deref()) {
            // The interpreter's frozen import machinery.
            (true, Some(file)) => !file.starts_with("<frozen "),
            (true, None) => true,
            _ if step.waits || step.left_out.is_some() => true,
            _ if is_interpreter(step) || is_start(&step.name) || is_before && step.file.is_none() => false,
            _ => is_last || step.offset.is_none(),
        }
    });
    steps
}

/// Whether a function is of the program or library that runs scripts.
fn is_interpreter(step: &Step) -> bool {
    let name = step.module.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}

/// Where a path enters an OpenMP runtime and never returns to the program: the thread waits for its team.
fn team(steps: &[Step]) -> Option<usize> {
    let is_inside = |step: &Step| step.module.as_deref().is_some_and(is_team);
    let outside = steps.iter().rposition(|step| !is_inside(step))?;
    (outside + 1 < steps.len()).then_some(outside + 1)
}

#[cfg(test)]
mod tests {
    use super::super::step::tests::step;
    use super::*;

    fn names(steps: Vec<Step>) -> Vec<String> {
        essential(steps).into_iter().map(|step| step.name).collect()
    }

    fn of(module: &str, name: &str) -> Step {
        Step { module: Some(module.to_owned()), ..step(name, 0) }
    }

    fn script(file: &str, name: &str) -> Step {
        Step { module: None, file: Some(file.to_owned()), is_script: true, ..step(name, 7) }
    }

    #[test]
    fn a_path_has_only_its_authors_functions() {
        let names =
            |steps: &[(&str, u32)]| names(steps.iter().map(|(name, line)| step(name, *line)).collect());
        let path = [
            ("_start", 0),
            ("__libc_start_main", 0),
            ("main", 3),
            ("solve", 7),
            ("PMPI_Wait", 1),
            ("poll", 0),
        ];
        assert_eq!(names(&path), ["main", "solve", "MPI_Wait"]);
        assert_eq!(names(&[("clone3", 0), ("start_thread", 0), ("work", 2)]), ["work"]);
        assert_eq!(names(&[("x+0x7", 0), ("__libc_start_main", 0), ("work", 2)]), ["work"]);
        assert_eq!(names(&[("_start", 0)]), ["_start"]);
    }

    #[test]
    fn a_path_of_python_has_none_of_the_interpreter() {
        let python = "/usr/bin/python3.11";
        let nameless = |module: &str| Step { offset: Some(7), ..of(module, "x+0x7") };
        let path = vec![
            of("/lib/libc.so.6", "__libc_start_main"),
            nameless(python),
            of(python, "_PyEval_EvalFrameDefault"),
            script("<frozen runpy>", "_run_code"),
            script("/job.py", "<module>"),
            script("/job.py", "main"),
            script("/job.py", "train"),
            of(python, "_PyObject_Vectorcall"),
            nameless("/usr/lib/MPI.cpython-311.so"),
            of("/usr/lib/libmpi.so.40", "PMPI_Allreduce"),
            of("/usr/lib/libopen-pal.so.40", "opal_progress"),
        ];
        assert_eq!(names(path), ["<module>", "main", "train", "MPI_Allreduce"]);
        // A program that embeds an interpreter has its own functions around it. The interpreter may be in a library
        // without symbols.
        let path = vec![
            step("main", 3),
            of("/usr/lib/libpython3.9.so.1.0", "PyRun_SimpleString"),
            script("/job.py", "<module>"),
            nameless("/usr/lib/kernel.so"),
        ];
        assert_eq!(names(path), ["main", "<module>", "x+0x7"]);
        // A computation in the interpreter counts as the script's function.
        assert_eq!(names(vec![script("/job.py", "train"), of(python, "long_mul")]), ["train"]);
    }

    #[test]
    fn a_team_waits_at_the_end_of_its_region() {
        let gomp = "/usr/lib/libgomp.so.1";
        let path = |below: Step| vec![step("main", 3), of(gomp, "GOMP_parallel"), below];
        assert_eq!(
            names(path(Step { offset: Some(7), ..of(gomp, "x+0x7") })),
            ["main", "the OpenMP runtime"]
        );
        assert_eq!(names(path(step("main._omp_fn.0", 9))), ["main", "GOMP_parallel", "main._omp_fn.0"]);
    }
}
