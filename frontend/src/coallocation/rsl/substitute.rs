//! Replaces references with their values.

use std::collections::BTreeMap;

use super::{Position, Reference, Relation, RslError, Specification, Value};

/// The attribute that defines names.
const SUBSTITUTION: &str = "rsl_substitution";

/// Most bytes of all resulting texts: names can be doubled again and again.
const MOST_TEXT: usize = 16 << 20;

impl Specification {
    /// Replaces every reference of this specification; the result has only literals and sequences. `text` is its
    /// source, for errors. `given` are names that are defined outside of it, such as the environment's.
    ///
    /// `rsl_substitution=(NAME value)(NAME value)` defines names for everything after it in its request and nested
    /// requests. The attribute stays in its place. If one request defines a name twice, the first value counts.
    ///
    /// # Errors
    /// A name has neither a value nor a default; a name or a value is not a single text; the texts become too long.
    pub fn substitute(&self, text: &str, given: &BTreeMap<String, String>) -> Result<Self, RslError> {
        let mut scopes = Scopes { text, given, scopes: vec![BTreeMap::new()], left: MOST_TEXT };
        scopes.specification(self)
    }
}

struct Scopes<'a> {
    text: &'a str,
    given: &'a BTreeMap<String, String>,
    /// The innermost is last.
    scopes: Vec<BTreeMap<String, String>>,
    left: usize,
}

impl Scopes<'_> {
    fn specification(&mut self, specification: &Specification) -> Result<Specification, RslError> {
        let (parts, make): (_, fn(Vec<Specification>) -> Specification) = match specification {
            Specification::Relation(relation) => return self.relation(relation).map(Specification::Relation),
            Specification::Multi(parts) => (parts, Specification::Multi),
            Specification::Conjunction(parts) => (parts, Specification::Conjunction),
            Specification::Disjunction(parts) => (parts, Specification::Disjunction),
        };
        self.scopes.push(BTreeMap::new());
        let replaced: Result<Vec<_>, _> = parts.iter().map(|part| self.specification(part)).collect();
        self.scopes.pop();
        replaced.map(make)
    }

    fn relation(&mut self, relation: &Relation) -> Result<Relation, RslError> {
        let defines = relation.attribute.is(SUBSTITUTION);
        let mut values = Vec::with_capacity(relation.values.len());
        for value in &relation.values {
            let value = self.value(value, relation.at)?;
            if defines {
                self.define(relation, &value)?;
            }
            values.push(value);
        }
        Ok(Relation { values, ..relation.clone() })
    }

    fn define(&mut self, relation: &Relation, value: &Value) -> Result<(), RslError> {
        if let Value::Sequence(pair) = value
            && let [Value::Literal(name), Value::Literal(meaning)] = pair.as_slice()
        {
            if let Some(scope) = self.scopes.last_mut() {
                scope.entry(name.clone()).or_insert_with(|| meaning.clone());
            }
            return Ok(());
        }
        let message = format!("{SUBSTITUTION} takes pairs like (NAME value), found {value}");
        Err(self.error(relation.at, message))
    }

    fn value(&mut self, value: &Value, at: Position) -> Result<Value, RslError> {
        match value {
            Value::Sequence(values) => {
                let values: Result<_, _> = values.iter().map(|value| self.value(value, at)).collect();
                values.map(Value::Sequence)
            }
            simple => self.simple(simple, at).map(Value::Literal),
        }
    }

    /// The text of a `value` that is a single text. `at` is its position for errors.
    fn simple(&mut self, value: &Value, at: Position) -> Result<String, RslError> {
        match value {
            Value::Literal(text) => Ok(text.clone()),
            Value::Reference(reference) => self.reference(reference),
            Value::Concatenation(parts) => {
                let parts: Result<Vec<_>, _> = parts.iter().map(|part| self.simple(part, at)).collect();
                parts.map(|parts| parts.concat())
            }
            Value::Sequence(_) => {
                Err(self.error(at, format!("a text is wanted here, not the sequence {value}")))
            }
        }
    }

    fn reference(&mut self, reference: &Reference) -> Result<String, RslError> {
        let at = reference.at;
        let (name, default) = match reference.parts.as_slice() {
            [name] => (name, None),
            [name, default] => (name, Some(default)),
            _ => return Err(self.error(at, "a reference has a name and perhaps one default")),
        };
        let Value::Literal(name) = name else {
            return Err(self.error(at, format!("a reference's name is a plain text, not {name}")));
        };
        let known = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        let meaning = match (known.or_else(|| self.given.get(name)), default) {
            (Some(meaning), _) => meaning.clone(),
            (None, Some(default)) => self.simple(default, at)?,
            (None, None) => {
                let message =
                    format!("$({name}) has no meaning here: no {SUBSTITUTION} before it, no default");
                return Err(self.error(at, message));
            }
        };
        let left = self.left.checked_sub(meaning.len());
        let too_long = || format!("the substituted text is longer than {MOST_TEXT} bytes");
        self.left = left.ok_or_else(|| self.error(at, too_long()))?;
        Ok(meaning)
    }

    fn error(&self, at: Position, message: impl Into<String>) -> RslError {
        RslError::new(self.text, at, message)
    }
}
