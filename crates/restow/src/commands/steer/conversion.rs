//! `restow retry` of Conversions.

use kube::ResourceExt as _;
use restow_api::ConversionConditionType as Condition;
use restow_api::{Conversion, RETRY, StorageVersionMigration};
use restow_core::rewrite::progress::End;
use restow_migrate::client::Server;
use serde_json::json;

use crate::error::CliError;
use crate::objects::{WriteMode, bare, list, list_if_defined, patch, typed_name};
use crate::output::print;
use crate::watch;

/// The names that are not those of Conversions, and the Conversions of the others.
pub(super) async fn among(
    server: &Server,
    names: &[String],
) -> Result<(Vec<String>, Vec<Conversion>), CliError> {
    let migrations: Vec<StorageVersionMigration> = list(server).await?;
    let may_be = |typed: &&String| match typed.split_once('/') {
        Some((kind, _)) => kind.starts_with("conversion") || kind == "cnv",
        None => migrations.iter().all(|migration| migration.name_any() != **typed),
    };
    // Whoever retries migrations needs no permission to list Conversions.
    if !names.iter().any(|name| may_be(&name)) {
        return Ok((names.to_vec(), Vec::new()));
    }
    let conversions: Vec<Conversion> = list_if_defined(server).await?;
    let (mut others, mut found) = (Vec::new(), Vec::new());
    for typed in names {
        let named = conversions.iter().find(|object| object.name_any() == bare(typed));
        match named.filter(|_| may_be(&typed)) {
            Some(object) => found.push(object.clone()),
            None => others.push(typed.clone()),
        }
    }
    Ok((others, found))
}

/// Fails unless all of them can be retried.
pub(super) fn check(conversions: &[Conversion]) -> Result<(), CliError> {
    let failed =
        |object: &Conversion| object.status.as_ref().is_some_and(|status| status.is(Condition::Failed));
    match conversions.iter().find(|object| !failed(object)) {
        None => Ok(()),
        Some(other) => {
            let phase = other.status.as_ref().and_then(|status| status.phase.clone());
            let phase = phase.unwrap_or_else(|| "not begun".to_owned());
            Err(CliError::usage(format!(
                "{} is {phase}: only a failed Conversion can be retried",
                other.name_any()
            )))
        }
    }
}

/// Requests a retry of a Conversion; none if somebody has changed it since it was read.
pub(crate) async fn retry_conversion(
    server: &Server,
    object: &Conversion,
) -> Result<Option<Conversion>, CliError> {
    check(std::slice::from_ref(object))?;
    request(server, object, WriteMode::Persist).await
}

async fn request(
    server: &Server,
    object: &Conversion,
    mode: WriteMode,
) -> Result<Option<Conversion>, CliError> {
    let change = json!({"metadata": {"annotations": {RETRY: restow_clock::now().to_string()}}});
    patch(server, object, change, mode).await
}

/// Requests retries, and says so.
pub(super) async fn retry_all(
    server: &Server,
    conversions: Vec<Conversion>,
    mode: WriteMode,
    only_names: bool,
) -> Result<Vec<Conversion>, CliError> {
    let mut changed = Vec::new();
    for object in conversions {
        let name = object.name_any();
        let retried = request(server, &object, mode).await?;
        let retried = retried
            .ok_or_else(|| CliError::failed(format!("somebody else has changed {name}; try again")))?;
        let dry = if mode == WriteMode::DryRun { " (dry run)" } else { "" };
        match only_names {
            true => print(&format!("{}\n", typed_name::<Conversion>(&name))),
            false => print(&format!("{name}: will be retried from its check on{dry}\n")),
        }
        changed.push(retried);
    }
    Ok(changed)
}

/// Waits until a retried Conversion has ended; returns how, and a line about it.
pub(super) async fn until_done(server: &Server, before: &Conversion) -> Result<(End, String), CliError> {
    let name = before.name_any();
    let ask = |now: Option<&Conversion>| {
        let Some(now) = now.filter(|now| now.uid() == before.uid()) else {
            return Some((End::Failed, format!("{name}: deleted meanwhile")));
        };
        let status = now.status.as_ref().filter(|_| now.is_finished())?;
        let (end, condition) = match status.is(Condition::Succeeded) {
            true => (End::Succeeded, Condition::Succeeded),
            false if !status.quarantined.is_empty() => (End::ObjectsLeft, Condition::Failed),
            false => (End::Failed, Condition::Failed),
        };
        let message = status.condition(condition).map(|one| one.message.clone()).unwrap_or_default();
        Some((end, format!("{name}: {}: {message}", condition.name())))
    };
    watch::until(server, &name, ask).await
}
