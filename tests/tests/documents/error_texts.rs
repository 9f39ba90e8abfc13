//! Finds the error texts in the sources, and whether each has a hint.
//!
//! The search knows the functions that make errors. It follows a text through functions that pass it on. It knows no
//! types, so it misses texts that are built in other ways. It also misses texts of one word.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Expr, ExprCall, ExprMethodCall, ExprStruct, FnArg, Item, Lit, Local, Pat, Signature,
    Stmt, Token,
};

/// The most functions that a text is followed through, up to the one that makes an error of it.
const DEEPEST: usize = 2;

/// Constructors of errors: the end of the path, the argument with the text, and whether a hint comes with it.
const MAKERS: [(&str, &str, usize, bool); 15] = [
    ("Failure", "new", 1, false),
    ("Error", "invalid", 0, false),
    ("Error", "invalid_with", 0, true),
    ("Error", "not_found", 0, true),
    ("Error", "no_access", 0, true),
    ("Error", "not_yet", 0, true),
    ("Error", "io", 0, true),
    ("Fault", "invalid", 0, true),
    ("Fault", "io", 0, true),
    ("failure", "from_io", 0, true),
    ("RslError", "new", 2, true),
    ("Error", "other", 0, false),
    ("Error", "new", 1, false),
    ("Error", "Protocol", 0, true),
    ("Error", "custom", 0, false),
];

/// The text of an error, with variable parts in braces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ErrorText {
    /// The source file, relative to the root of the repository.
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) has_hint: bool,
}

/// A function that makes an error of its text argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Maker {
    argument: usize,
    has_hint: bool,
}

/// Functions of one file that make errors, by name.
type Makers = BTreeMap<String, BTreeSet<Maker>>;

/// All error texts of the product, sorted.
pub(crate) fn error_texts(root: &Path) -> Vec<ErrorText> {
    let mut found = BTreeSet::new();
    for folder in super::PRODUCT {
        let files = sources(&root.join(folder));
        // A function that makes errors is known by name in its own file. In other files it is known if its name is
        // unique.
        let mut makers: BTreeMap<usize, Makers> = BTreeMap::new();
        let mut texts = BTreeSet::new();
        for _ in 0..=DEEPEST {
            texts.clear();
            let mut learned = makers.clone();
            for (index, (path, file)) in files.iter().enumerate() {
                let mut reader = Reader::new(&makers, index);
                reader.visit_file(file);
                let known = learned.entry(index).or_default();
                for (name, more) in reader.learned {
                    known.entry(name).or_default().extend(more);
                }
                let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
                let own = reader.found.into_iter();
                texts.extend(own.map(|(text, has_hint)| ErrorText { file: name.clone(), text, has_hint }));
            }
            if learned == makers {
                break;
            }
            makers = learned;
        }
        found.extend(texts);
    }
    found.into_iter().collect()
}

/// The sources of a folder, without those that are only for tests.
fn sources(folder: &Path) -> Vec<(PathBuf, syn::File)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
            let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if entry.is_dir() && name != "tests" {
                folders.push(entry);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "fake.rs" {
                let text = fs::read_to_string(&entry).expect("a source");
                let file =
                    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", entry.display()));
                found.push((entry, file));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

/// The origin of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    Literal(String),
    Parameter(usize),
}

/// A function or closure that is being read.
#[derive(Default)]
struct Scope {
    /// The function's name. None for an unnamed closure.
    name: Option<String>,
    parameters: Vec<Option<String>>,
    texts: BTreeMap<String, Vec<Origin>>,
    /// Variables that get a hint later.
    hinted: BTreeSet<String>,
}

struct Reader<'a> {
    makers: &'a BTreeMap<usize, Makers>,
    index: usize,
    scopes: Vec<Scope>,
    constants: BTreeMap<String, String>,
    /// Variants for which a function `hint` has an answer, by type.
    answered: BTreeMap<String, BTreeSet<String>>,
    is_hinted: bool,
    closure: Option<String>,
    learned: Makers,
    found: Vec<(String, bool)>,
}

impl<'a> Reader<'a> {
    fn new(makers: &'a BTreeMap<usize, Makers>, index: usize) -> Self {
        Self {
            makers,
            index,
            scopes: Vec::new(),
            constants: BTreeMap::new(),
            answered: BTreeMap::new(),
            is_hinted: false,
            closure: None,
            learned: Makers::new(),
            found: Vec::new(),
        }
    }

    fn makers_named(&self, kind: Option<&str>, name: &str) -> BTreeSet<Maker> {
        let is_it = |(of, it, ..): &&(&str, &str, usize, bool)| Some(*of) == kind && *it == name;
        if let Some((_, _, argument, has_hint)) = MAKERS.iter().find(is_it) {
            return BTreeSet::from([Maker { argument: *argument, has_hint: *has_hint }]);
        }
        if let Some(own) = self.makers.get(&self.index).and_then(|own| own.get(name)) {
            return own.clone();
        }
        if ["new", "from", "of", "io", "invalid", "other"].contains(&name) {
            return BTreeSet::new();
        }
        let mut others = self.makers.values().filter_map(|makers| makers.get(name));
        match (others.next(), others.next()) {
            (Some(only), None) => only.clone(),
            _ => BTreeSet::new(),
        }
    }

    /// The origins of an expression's text, as far as they are visible.
    fn origins(&self, expr: &Expr) -> Vec<Origin> {
        match expr {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => vec![Origin::Literal(text.value())],
                _ => Vec::new(),
            },
            Expr::Macro(it) => self.template(&it.mac),
            Expr::MethodCall(call) => match call.method.to_string().as_str() {
                "to_owned" | "into" | "to_string" | "clone" | "as_str" | "as_ref" => {
                    self.origins(&call.receiver)
                }
                "unwrap_or" | "unwrap_or_else" | "map_or" | "map_or_else" | "unwrap_or_default" => {
                    call.args.iter().chain([&*call.receiver]).flat_map(|arg| self.origins(arg)).collect()
                }
                _ => Vec::new(),
            },
            Expr::Call(call) => match &*call.func {
                Expr::Path(path)
                    if path.path.segments.last().is_some_and(|last| {
                        last.ident == "from"
                            || last.ident == "Some"
                            || last.ident == "Borrowed"
                            || last.ident == "Owned"
                    }) =>
                {
                    call.args.iter().flat_map(|arg| self.origins(arg)).collect()
                }
                _ => Vec::new(),
            },
            Expr::Reference(it) => self.origins(&it.expr),
            Expr::Paren(it) => self.origins(&it.expr),
            Expr::Closure(it) => self.origins(&it.body),
            Expr::Block(it) => self.last(&it.block),
            Expr::If(it) => {
                let other = it.else_branch.iter().flat_map(|(_, other)| self.origins(other));
                self.last(&it.then_branch).into_iter().chain(other).collect()
            }
            Expr::Match(it) => it.arms.iter().flat_map(|arm| self.origins(&arm.body)).collect(),
            Expr::Path(path) => {
                path.path.get_ident().map(|name| self.variable(&name.to_string())).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// The origins of one element of a tuple.
    fn places(&self, expr: &Expr, index: usize) -> Vec<Origin> {
        match expr {
            Expr::Tuple(it) => it.elems.get(index).map(|it| self.origins(it)).unwrap_or_default(),
            Expr::Match(it) => it.arms.iter().flat_map(|arm| self.places(&arm.body, index)).collect(),
            Expr::If(it) => {
                let last = |block: &Block| match block.stmts.last() {
                    Some(Stmt::Expr(expr, None)) => self.places(expr, index),
                    _ => Vec::new(),
                };
                let other = it.else_branch.iter().flat_map(|(_, other)| self.places(other, index));
                last(&it.then_branch).into_iter().chain(other).collect()
            }
            Expr::Block(it) => match it.block.stmts.last() {
                Some(Stmt::Expr(expr, None)) => self.places(expr, index),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn last(&self, block: &Block) -> Vec<Origin> {
        match block.stmts.last() {
            Some(Stmt::Expr(expr, None)) => self.origins(expr),
            Some(Stmt::Macro(it)) if it.semi_token.is_none() => self.template(&it.mac),
            _ => Vec::new(),
        }
    }

    fn variable(&self, name: &str) -> Vec<Origin> {
        for scope in self.scopes.iter().rev() {
            if let Some(texts) = scope.texts.get(name) {
                return texts.clone();
            }
            if let Some(index) = scope.parameters.iter().position(|it| it.as_deref() == Some(name)) {
                return if scope.name.is_some() { vec![Origin::Parameter(index)] } else { Vec::new() };
            }
        }
        self.constants.get(name).map(|text| vec![Origin::Literal(text.clone())]).unwrap_or_default()
    }

    /// The text of `format!`. If it has no words, the texts of its arguments.
    fn template(&self, mac: &syn::Macro) -> Vec<Origin> {
        let is_text = mac.path.segments.last().is_some_and(|last| {
            last.ident == "format" || last.ident == "format_args" || last.ident == "concat"
        });
        let Ok(parts) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(mac.tokens.clone()) else {
            return Vec::new();
        };
        let Some(Expr::Lit(first)) = parts.first().filter(|_| is_text) else { return Vec::new() };
        let Lit::Str(text) = &first.lit else { return Vec::new() };
        let text = text.value();
        if has_words(&text) {
            return vec![Origin::Literal(text)];
        }
        let named = text.split('{').skip(1).filter_map(|rest| rest.split(['}', ':']).next());
        let named = named.flat_map(|name| self.variable(name));
        named.chain(parts.iter().skip(1).flat_map(|part| self.origins(part))).collect()
    }

    /// Records that an error is made of this text.
    fn made(&mut self, text: &Expr, has_hint: bool) {
        for origin in self.origins(text) {
            match origin {
                Origin::Literal(text) if is_sentence(&text) => {
                    self.found.push((text, has_hint || self.is_hinted))
                }
                Origin::Literal(_) => {}
                Origin::Parameter(argument) => {
                    let name = self.scopes.iter().rev().find_map(|scope| scope.name.clone());
                    let maker = Maker { argument, has_hint: has_hint || self.is_hinted };
                    self.learned.entry(name.unwrap_or_default()).or_default().insert(maker);
                }
            }
        }
    }

    fn called(&mut self, makers: &BTreeSet<Maker>, args: &[&Expr]) {
        let has_remedy = args.iter().any(|arg| kind_has_remedy(arg));
        let is_left_out = args.iter().any(|arg| matches!(arg, Expr::Path(it) if it.path.is_ident("None")));
        for maker in makers {
            if let Some(text) = args.get(maker.argument) {
                self.made(text, (maker.has_hint && !is_left_out) || has_remedy);
            }
        }
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let parameters = signature.inputs.iter().map(|input| match input {
            FnArg::Typed(it) => Some(pattern_name(&it.pat).unwrap_or_default()),
            FnArg::Receiver(_) => None,
        });
        let parameters = parameters.flatten().map(Some).collect();
        let mut hinted = Hinted::default();
        hinted.visit_block(block);
        let scope = Scope {
            name: Some(signature.ident.to_string()),
            parameters,
            hinted: hinted.0,
            ..Scope::default()
        };
        self.scopes.push(scope);
        self.visit_block(block);
        self.scopes.pop();
    }
}

/// Whether this is a kind of error that has its own hint in `gantry_frontend::Error::hint`.
fn kind_has_remedy(expr: &Expr) -> bool {
    let Expr::Path(path) = expr else { return false };
    let words: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let [.., of, kind] = &words[..] else { return false };
    of == "Kind" && ["TimedOut", "Protocol", "Lost", "Gone"].contains(&kind.as_str())
}

fn pattern_name(pattern: &Pat) -> Option<String> {
    match pattern {
        Pat::Ident(it) => Some(it.ident.to_string()),
        Pat::Type(it) => pattern_name(&it.pat),
        Pat::Reference(it) => pattern_name(&it.pat),
        _ => None,
    }
}

/// Whether a text is more than a name.
fn is_sentence(text: &str) -> bool {
    has_words(text) && text.contains(' ')
}

/// Whether a template has words outside its braces.
fn has_words(template: &str) -> bool {
    let mut depth = 0;
    template.chars().any(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0 && c.is_alphabetic()
    })
}

/// Variables on which `with_hint` is called.
#[derive(Default)]
struct Hinted(BTreeSet<String>);

impl<'ast> Visit<'ast> for Hinted {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "with_hint"
            && let Expr::Path(path) = &*call.receiver
            && let Some(name) = path.path.get_ident()
        {
            self.0.insert(name.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg"));
        list.is_some_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        for item in &file.items {
            if let Item::Const(it) = item
                && let Expr::Lit(lit) = &*it.expr
                && let Lit::Str(text) = &lit.lit
            {
                self.constants.insert(it.ident.to_string(), text.value());
            }
            if let Item::Impl(it) = item
                && let syn::Type::Path(of) = &*it.self_ty
            {
                let of = of.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
                for method in &it.items {
                    if let syn::ImplItem::Fn(method) = method
                        && method.sig.ident == "hint"
                    {
                        let mut answers = Answers::default();
                        answers.visit_block(&method.block);
                        self.answered.entry(of.clone()).or_default().extend(answers.0);
                    }
                }
            }
        }
        visit::visit_file(self, file);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Mod(it) => &it.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.function(&it.sig, &it.block);
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_for_tests(&it.attrs) {
            self.function(&it.sig, &it.block);
        }
    }

    fn visit_item_enum(&mut self, it: &'ast syn::ItemEnum) {
        let answered = self.answered.get(&it.ident.to_string()).cloned().unwrap_or_default();
        for variant in &it.variants {
            let has_hint = answered.contains(&variant.ident.to_string());
            self.found.extend(error_attribute(&variant.attrs).map(|text| (text, has_hint)));
        }
    }

    fn visit_item_struct(&mut self, it: &'ast syn::ItemStruct) {
        let has_hint = self.answered.contains_key(&it.ident.to_string());
        self.found.extend(error_attribute(&it.attrs).map(|text| (text, has_hint)));
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let name = pattern_name(&local.pat);
        let Some(init) = &local.init else { return };
        let was_hinted = self.is_hinted;
        if let Some(name) = &name {
            self.is_hinted |= self.scopes.iter().any(|scope| scope.hinted.contains(name));
            if matches!(*init.expr, Expr::Closure(_)) {
                self.closure = Some(name.clone());
            }
        }
        visit::visit_local(self, local);
        self.is_hinted = was_hinted;
        self.closure = None;
        let origins = self.origins(&init.expr);
        if let (Some(name), Some(scope)) = (name, self.scopes.last_mut()) {
            scope.texts.remove(&name);
            if !origins.is_empty() && !matches!(*init.expr, Expr::Closure(_)) {
                scope.texts.insert(name, origins);
            }
        }
        // `let (message, hint) = match ..`: each element of the tuple.
        if let Pat::Tuple(names) = &local.pat {
            for (index, name) in names.elems.iter().enumerate() {
                let origins = self.places(&init.expr, index);
                if let (Some(name), Some(scope)) = (pattern_name(name), self.scopes.last_mut()) {
                    scope.texts.insert(name, origins);
                }
            }
        }
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let name = self.closure.take();
        let parameters = closure.inputs.iter().map(pattern_name).collect();
        self.scopes.push(Scope { name, parameters, ..Scope::default() });
        visit::visit_expr_closure(self, closure);
        self.scopes.pop();
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(path) = &*call.func {
            let words: Vec<String> =
                path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let kind = words.len().checked_sub(2).map(|index| words[index].as_str());
            let makers = self.makers_named(kind, words.last().map(String::as_str).unwrap_or_default());
            let args: Vec<&Expr> = call.args.iter().collect();
            self.called(&makers, &args);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let makers = self.makers_named(None, &call.method.to_string());
        let args: Vec<&Expr> = call.args.iter().collect();
        self.called(&makers, &args);
        let was_hinted = self.is_hinted;
        // Where an error becomes a failure, its own hint goes along.
        self.is_hinted |= call.method == "with_hint" || call.method == "with_hint_of";
        self.visit_expr(&call.receiver);
        self.is_hinted = was_hinted;
        call.args.iter().for_each(|arg| self.visit_expr(arg));
    }

    fn visit_expr_struct(&mut self, it: &'ast ExprStruct) {
        let words: Vec<String> = it.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let is_error = words.iter().any(|word| {
            word == "Error"
                || word == "Self"
                || word.ends_with("Error")
                || word == "Failure"
                || word == "Missed"
        });
        let field = |name: &str| {
            it.fields
                .iter()
                .find(|field| matches!(&field.member, syn::Member::Named(it) if it == name))
                .map(|field| &field.expr)
        };
        if is_error {
            let last = words.last().map(String::as_str).unwrap_or_default();
            let answered = self.answered.values().any(|names| names.contains(last));
            let has_hint = field("hint")
                .map_or(answered, |hint| !matches!(hint, Expr::Path(it) if it.path.is_ident("None")));
            let has_hint = has_hint || ["Lost", "HelperUnfit", "Gone", "Io"].contains(&last);
            for name in ["message", "reason"] {
                if let Some(text) = field(name) {
                    self.made(text, has_hint);
                }
            }
        }
        visit::visit_expr_struct(self, it);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let parts = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(mac.tokens.clone());
        for part in parts.into_iter().flatten() {
            Visit::visit_expr(self, &part);
        }
    }
}

/// Variants for which a function `hint` has an answer.
#[derive(Default)]
struct Answers(BTreeSet<String>);

impl<'ast> Visit<'ast> for Answers {
    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !matches!(&*arm.body, Expr::Path(it) if it.path.is_ident("None")) {
            let mut names = Names::default();
            names.visit_pat(&arm.pat);
            self.0.extend(names.0);
        }
    }
}

/// Names of variants in a pattern.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.extend(path.segments.last().map(|last| last.ident.to_string()));
    }
}

/// The text in `#[error("..")]`.
fn error_attribute(attributes: &[Attribute]) -> impl Iterator<Item = String> {
    let lists = attributes.iter().filter_map(|attribute| attribute.meta.require_list().ok());
    let texts = lists.filter(|list| list.path.is_ident("error")).filter_map(|list| {
        let parts = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(list.tokens.clone());
        match parts.ok()?.into_iter().next() {
            Some(Expr::Lit(lit)) => match lit.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => {
                // `.hosts` is not an expression, so the parser fails. The text is the first token.
                let first = list.tokens.clone().into_iter().next()?;
                syn::parse_str::<syn::LitStr>(&first.to_string()).ok().map(|text| text.value())
            }
        }
    });
    texts.filter(|text| is_sentence(text)).collect::<Vec<_>>().into_iter()
}
