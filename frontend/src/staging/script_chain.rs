//! The dependencies of a script: the program that starts it, through `env` if necessary, and all that this needs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::closure::{Closure, Dependency, How, Missing, Need, Why};
use super::resolver::Resolver;
use super::script::{Shebang, find_in_path};
use super::walk::Walk;
use crate::error::{Error, Result};

/// The kernel's limit for nested scripts.
const MAX_SCRIPTS: usize = 5;

impl Resolver {
    /// The dependencies of the script `binary` with the first line `shebang`.
    ///
    /// # Errors
    /// Scripts are nested too deeply.
    pub(super) fn script_closure(&self, binary: &Path, shebang: Shebang) -> Result<Closure> {
        let mut closure = Closure { binary: binary.to_owned(), ..Closure::default() };
        let mut by = binary.to_owned();
        let mut next = Some(shebang);
        let mut scripts = 0;
        while let Some(shebang) = next.take() {
            scripts += 1;
            if scripts > MAX_SCRIPTS {
                return Err(Error::invalid(format!(
                    "{}: its program is a script of a script, too many times",
                    binary.display()
                )));
            }
            let mut steps = vec![(
                shebang.interpreter.clone().into_os_string(),
                Some(shebang.interpreter.clone()),
                How::Absolute,
            )];
            if let Some(name) = shebang.env_program() {
                let path = find_in_path(name, self.path(), |file| self.is_program(file));
                steps.push((name.to_owned(), path, How::Path));
            }
            for (name, path, how) in steps {
                let Some(program) = self.add_program(&mut closure, &by, &name, path, how) else {
                    return Ok(closure);
                };
                next = self.shebang_of(&program)?;
                by = program;
            }
        }
        Ok(closure)
    }

    /// Adds a program, and its dependencies if it is not a script. None: it is missing.
    fn add_program(
        &self,
        closure: &mut Closure,
        by: &Path,
        name: &OsString,
        path: Option<PathBuf>,
        how: How,
    ) -> Option<PathBuf> {
        let found = path.filter(|path| self.is_program(path));
        let file = found.as_ref().and_then(|path| self.root.locate(path).ok());
        let (Some(path), Some(file)) = (found, file) else {
            let why = Why::NotFound { looked_in: Vec::new(), other_machine: Vec::new() };
            closure.missing.push(Missing { name: name.clone(), needed_by: by.to_owned(), why });
            return None;
        };
        closure.script.push(path.clone());
        let mut dependency = Dependency {
            name: name.clone(),
            other_names: Vec::new(),
            path: path.clone(),
            file,
            needed_by: by.to_owned(),
            how,
            is_glibc: false,
            build_id: self.open(&path, None).ok().and_then(|it| it.elf.build_id.clone()),
            needs: Vec::new(),
        };
        match Walk::begin(self, &path).and_then(Walk::finish) {
            Ok(inner) => absorb(closure, dependency, inner),
            // A script, or a file that cannot start; the next round shows which.
            Err(_) => {
                dependency.needs = Vec::new();
                closure.needs.push(Need { name: name.clone(), found: Some(closure.needed.len()) });
                closure.needed.push(dependency);
            }
        }
        Some(path)
    }
}

/// Merges a program and its closure into that of a script. Common dependencies occur once.
fn absorb(closure: &mut Closure, mut program: Dependency, inner: Closure) {
    let place = closure.needed.len();
    closure.needs.push(Need { name: program.name.clone(), found: Some(place) });
    let mut places = Vec::with_capacity(inner.needed.len());
    let mut next = place + 1;
    for dependency in &inner.needed {
        let known = closure.needed.iter().position(|it| it.file == dependency.file);
        places.push(known.unwrap_or(next));
        next += usize::from(known.is_none());
    }
    let moved = |needs: Vec<Need>| {
        let place = |need: Need| Need { found: need.found.and_then(|at| places.get(at).copied()), ..need };
        needs.into_iter().map(place).collect::<Vec<_>>()
    };
    program.needs = moved(inner.needs);
    closure.needed.push(program);
    for (dependency, at) in inner.needed.into_iter().zip(&places) {
        if *at >= closure.needed.len() {
            closure.needed.push(Dependency { needs: moved(dependency.needs.clone()), ..dependency });
        }
    }
    closure.missing.extend(inner.missing);
    closure.optional.extend(inner.optional);
    closure.interpreter = inner.interpreter.or(closure.interpreter.take());
    if inner.libc.newest >= closure.libc.newest {
        closure.libc = inner.libc;
    }
}
