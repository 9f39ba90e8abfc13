//! `gantry completions`, and the completion of queries that its scripts ask for.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap_complete::Shell;
use gantry_frontend::procgroup::text::names;
use gantry_frontend::procgroup::{GroupAttribute, ProcessAttribute, ProcessManager, Query, Told};

use super::say;
use crate::args::{Cli, Completions};
use crate::exit::{self, Outcome};
use crate::view::Page;

/// bash ends a word at `=`. The script joins the parts and strips the first part from each completion. bash inserts a
/// completion as it is, so the script quotes it: names of programs and hosts may contain shell metacharacters. zsh
/// and fish quote by themselves.
const BASH: &str = r#"
_gantry_live() {
    _gantry "$@"
    case "${COMP_WORDS[1]}" in ps|kill|signal) ;; *) return ;; esac
    local word="${COMP_WORDS[COMP_CWORD]}" before="" offer offers=()
    case "$word" in -*) return ;; esac
    if [[ "$word" == "=" ]]; then
        before="${COMP_WORDS[COMP_CWORD-1]}="; word=""
    elif [[ "${COMP_WORDS[COMP_CWORD-1]}" == "=" ]]; then
        before="${COMP_WORDS[COMP_CWORD-2]}="
    fi
    mapfile -t offers < <("${COMP_WORDS[0]}" --complete-query "$before${word//\\/}" 2>/dev/null)
    COMPREPLY=()
    for offer in "${offers[@]#"$before"}"; do
        printf -v offer %q "$offer"
        COMPREPLY+=("$offer")
    done
    compopt -o nospace 2>/dev/null || :
}
complete -F _gantry_live -o bashdefault -o default gantry
"#;

const ZSH: &str = r#"
_gantry_live() {
    if (( CURRENT > 2 )) && [[ ${words[2]} == (ps|kill|signal) && ${words[CURRENT]} != -* ]]; then
        local -a offers
        offers=(${(f)"$(${words[1]} --complete-query "${(Q)words[CURRENT]}" 2>/dev/null)"})
        compadd -S '' -- $offers
    else
        _gantry "$@"
    fi
}
compdef _gantry_live gantry
"#;

const FISH: &str = r#"
complete -c gantry -n '__fish_seen_subcommand_from ps kill signal' -f -a '(gantry --complete-query (commandline -ct) 2>/dev/null)'
"#;

pub(super) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gantry", &mut script);
    let live = match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    };
    say(&Page::data((String::from_utf8_lossy(&script) + live).into_owned()))?;
    Ok(exit::SUCCESS)
}

/// Prints the completions of a query word: names of terms, ids of live apps, and after a name the values that live
/// groups have.
pub(super) async fn complete_query(word: &str) -> Outcome {
    let all = Query { patterns: vec![gantry_frontend::procgroup::Pattern::default()] };
    let told = ProcessManager::open(None)?.select(&all).await?;
    let offers = offer(word, &told);
    let mut page = Page::default();
    offers.iter().for_each(|offer| page.add(offer));
    say(&page)?;
    Ok(exit::SUCCESS)
}

fn offer(word: &str, told: &Told) -> BTreeSet<String> {
    let offers: Vec<String> = match word.split_once('=') {
        None => {
            let ids =
                told.found.iter().filter_map(|found| told.groups.attribute(found.at, GroupAttribute::App));
            names().map(|name| format!("{name}=")).chain(ids).collect()
        }
        Some((name, _)) => values(name, told).into_iter().map(|value| format!("{name}={value}")).collect(),
    };
    offers.into_iter().filter(|offer| offer.starts_with(word)).collect()
}

fn values(name: &str, told: &Told) -> BTreeSet<String> {
    let each = told.found.iter().map(|found| found.at);
    if let Some(attribute) = GroupAttribute::of_name(name) {
        return each.filter_map(|at| told.groups.attribute(at, attribute)).collect();
    }
    match ProcessAttribute::of_name(name) {
        Some(ProcessAttribute::Host) => {
            each.flat_map(|at| told.groups.hosts(at)).map(str::to_owned).collect()
        }
        Some(ProcessAttribute::Exec) => each
            .flat_map(|at| told.groups.processes(at))
            .filter_map(|process| process.exec.rsplit('/').next().map(str::to_owned))
            .collect(),
        // There are too many numbers to choose from.
        _ => BTreeSet::new(),
    }
}
