//! Whether objects survive the conversions that a rewrite makes, for `restow retire`.

use restow_convert::{Pruning, Unchanged, Validation};
use restow_core::controller::retirement::{Survival, lost_fields};
use restow_core::resource::inventory::Resource;
use restow_migrate::client::Server;
use restow_migrate::definition::Definition;

use super::live::Live;
use super::pairs::Pairs;
use super::trip::{Trip, Way};
use crate::commands::convert::source::{Source, typed};
use crate::error::CliError;

/// Converts every object from each of these versions to another one and back, as the cluster does, and compares.
pub(in crate::commands) async fn survival(
    server: &Server,
    resource: &Resource,
    definition: &Definition,
    (from, to): (&[String], &str),
    webhook_url: Option<&str>,
) -> Result<Survival, CliError> {
    let source = Source::of(server, definition, None, webhook_url).await?;
    source.explain();
    let crd = typed(definition)?;
    if matches!(source, Source::None { .. }) && Unchanged::of(&crd).is_ok() {
        return Ok(Survival::Proven);
    }
    let (pruning, validation) = (Pruning::of(&crd), Validation::of(&crd));
    let way = match &source {
        Source::Rules { chain, rules, .. } => Way::Rules(chain, rules),
        Source::Webhook(webhook) => Way::Webhook(webhook),
        Source::None { .. } => Way::ApiServer,
        Source::Unreachable(why) => return Ok(Survival::Unknown(why.with_hint())),
    };
    let trip = Trip { way, pruning: &pruning, validation: &validation };
    let mut pairs = Pairs::new(resource.name.to_string(), source.name());
    for from in from {
        match walk(&mut pairs, server, resource, definition, &trip, (from, to)).await {
            Ok(()) => {}
            Err(Halted::Dead(why)) => return Ok(Survival::Unknown(why)),
            Err(Halted::Failed(error)) => return Err(error),
        }
    }
    Ok(match pairs.losses() {
        losses if losses.is_empty() => Survival::Proven,
        losses => Survival::Lossy(losses),
    })
}

/// Why objects could not be converted.
enum Halted {
    /// Nothing converts them now.
    Dead(String),
    /// The objects could not be read.
    Failed(CliError),
}

/// Has all objects of one version make the trip.
async fn walk(
    pairs: &mut Pairs,
    server: &Server,
    resource: &Resource,
    definition: &Definition,
    trip: &Trip<'_>,
    (from, to): (&str, &str),
) -> Result<(), Halted> {
    let is_served = resource.served.iter().any(|served| served.version == from);
    let dead = |error: CliError| Halted::Dead(error.with_hint());
    if !is_served && matches!(trip.way, Way::ApiServer) {
        // Read through another version, objects lack the very fields that would be lost.
        let find = |name: &str| definition.versions().iter().find(|one| one["name"] == name);
        if let (Some(older), Some(newer)) = (find(from), find(to)) {
            let object = format!("objects that are stored in {from}, which is not served,");
            pairs.lost(from, to, &object, lost_fields(older, newer));
        }
        return Ok(());
    }
    let mut live = match is_served {
        true => Live::in_version(server, &resource.name, from),
        false => match Live::of(server, resource) {
            Some(live) => live,
            None => return Ok(()),
        },
    };
    while let Some(mut page) = live.next().await.map_err(Halted::Failed)? {
        if !is_served {
            let refused = |name: &str, why: &str| pairs.refused(from, to, name, why);
            page = trip.convert(&page, from, refused).await.map_err(dead)?;
        }
        trip.make(pairs, (from, to), &page).await.map_err(dead)?;
    }
    Ok(())
}
