//! Completes what is typed: commands, flags, and the names of resources and migrations.

use std::time::Duration;

use clap::FromArgMatches as _;
use restow_api::StorageVersionMigration;

use crate::args::Connection;
use crate::connect::connect;
use crate::objects;

/// How long completion waits for the cluster.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// What may come next on the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Words(Vec<String>),
    /// The name of a resource.
    Resources,
    /// The name of a migration.
    Migrations,
}

/// The possible last words, given all words after the program's name.
pub(crate) async fn complete(root: &clap::Command, words: &[String]) -> Vec<String> {
    let next = next(root, words);
    let names = match next {
        Next::Words(words) => words,
        Next::Resources | Next::Migrations => tokio::time::timeout(QUERY_TIMEOUT, ask(root, &next, words))
            .await
            .ok()
            .flatten()
            .unwrap_or_default(),
    };
    let begun = words.last().map(String::as_str).unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(begun)).collect()
}

/// Queries the cluster that the connection flags among the words name.
async fn ask(root: &clap::Command, next: &Next, words: &[String]) -> Option<Vec<String>> {
    let typed = std::iter::once("restow").chain(words.iter().map(String::as_str));
    let matches = root.clone().ignore_errors(true).try_get_matches_from(typed).ok()?;
    let cluster = connect(&Connection::from_arg_matches(&matches).ok()?).await.ok()?;
    if *next == Next::Migrations {
        let all: Vec<StorageVersionMigration> = objects::list(cluster.server()).await.ok()?;
        return Some(all.iter().map(kube::ResourceExt::name_any).collect());
    }
    let inventory = cluster.inventory(true).await.ok()?;
    let migratable = inventory.resources.iter().filter(|resource| resource.obstacle.is_none());
    Some(migratable.map(|resource| resource.name.to_string()).collect())
}

/// What the last of the words may be.
pub(crate) fn next(root: &clap::Command, words: &[String]) -> Next {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let mut command = root;
    let mut valued: Option<&clap::Arg> = None;
    for word in before {
        if valued.take().is_some() {
            continue;
        }
        match word.strip_prefix('-') {
            Some(_) => valued = flag(command, word),
            None => command = command.find_subcommand(word).unwrap_or(command),
        }
    }
    if let Some(arg) = valued {
        return Next::Words(values(arg));
    }
    let shown = |arg: &&clap::Arg| !arg.is_hide_set();
    if last.starts_with('-') {
        let flags = command.get_arguments().filter(shown).filter_map(clap::Arg::get_long);
        return Next::Words(flags.map(|flag| format!("--{flag}")).collect());
    }
    match command.get_name() {
        "plan" | "migrate" | "retire" | "init" | "install" => Next::Resources,
        "status" | "suspend" | "resume" | "retry" | "cancel" => Next::Migrations,
        _ => {
            let commands = command.get_subcommands().filter(|one| !one.is_hide_set());
            let mut words: Vec<String> = commands.map(|one| one.get_name().to_owned()).collect();
            words.extend(command.get_positionals().flat_map(values));
            Next::Words(words)
        }
    }
}

/// The flag of this name, if its value is the next word.
fn flag<'c>(command: &'c clap::Command, word: &str) -> Option<&'c clap::Arg> {
    let is_it = |arg: &&clap::Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        short.as_deref() == Some(word) || long.as_deref() == Some(word)
    };
    let found = command.get_arguments().find(is_it)?;
    found.get_action().takes_values().then_some(found).filter(|arg| !arg.is_require_equals_set())
}

/// The possible values of an argument, if they are known.
fn values(arg: &clap::Arg) -> Vec<String> {
    arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

/// The completion script of a shell.
pub(crate) fn script(shell: clap_complete::Shell, root: &mut clap::Command) -> String {
    if let Some(script) = asking_script(shell) {
        return script.to_owned();
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, root, "restow", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A script with which a shell asks `restow __complete`.
fn asking_script(shell: clap_complete::Shell) -> Option<&'static str> {
    match shell {
        clap_complete::Shell::Bash => Some(
            r#"_restow() {
    local IFS=$'\n'
    COMPREPLY=($(restow __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 0 ]] && compopt -o default
}
complete -F _restow restow
"#,
        ),
        clap_complete::Shell::Zsh => Some(
            r#"#compdef restow
_restow() {
    local -a found
    found=("${(@f)$(restow __complete -- "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _restow restow
"#,
        ),
        clap_complete::Shell::Fish => Some(
            r#"function __restow_complete
    set -l words (commandline -opc)
    restow __complete -- $words[2..] (commandline -ct) 2>/dev/null
end
complete -c restow -f -a '(__restow_complete)'
"#,
        ),
        _ => None,
    }
}
