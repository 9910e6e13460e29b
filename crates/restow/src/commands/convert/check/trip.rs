//! The way of objects to another version and back, as API servers convert them.

use restow_convert::rules::{self, ConversionRules};
use restow_convert::{Chain, Convertible as _, Pruning, Validation, lost_fields};
use serde_json::Value;

use super::live;
use super::pairs::Pairs;
use crate::commands::convert::webhook::{Webhook, WebhookError};
use crate::error::{CliError, chain};

/// What converts.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// Nothing but apiVersion changes.
    ApiServer,
    Webhook(&'a Webhook),
    Rules(&'a Chain, &'a ConversionRules),
}

/// Converts objects to another version and back.
pub(super) struct Trip<'a> {
    pub(super) way: Way<'a>,
    pub(super) pruning: &'a Pruning,
    pub(super) validation: &'a Validation,
}

impl Trip<'_> {
    /// Has objects make the trip; what they lose, or why they cannot make it, is added to the pairs.
    pub(super) async fn make(
        &self,
        pairs: &mut Pairs,
        (from, to): (&str, &str),
        objects: &[Value],
    ) -> Result<(), CliError> {
        pairs.counted(from, to, objects.len() as u64);
        let there = self.convert(objects, to, |name, why| pairs.refused(from, to, name, why)).await?;
        for (before, after) in with_their_former(objects, &there) {
            let problems = self.validation.new_problems((before, from), (after, to));
            if !problems.is_empty() {
                let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
                pairs.refused(from, to, &live::name(before), &format!("in {to}, {}", words.join("; ")));
            }
        }
        let back = self.convert(&there, from, |name, why| pairs.refused(from, to, name, why)).await?;
        for (before, after) in with_their_former(objects, &back) {
            let mut lost = lost_fields(before, after);
            if let Way::Rules(_, rules) = self.way {
                let accepted = rules::accepted_losses(&rules.spec, from, to);
                lost.retain(|place| !accepted.contains(place));
            }
            pairs.lost(from, to, &live::name(before), lost);
        }
        Ok(())
    }

    /// Converts what can be converted; the rest is reported.
    pub(super) async fn convert(
        &self,
        objects: &[Value],
        to: &str,
        mut refused: impl FnMut(&str, &str),
    ) -> Result<Vec<Value>, CliError> {
        let each: Vec<Result<Value, String>> = match self.way {
            Way::ApiServer => self.one_by_one(objects, |object| self.pruning.convert(object, to)),
            Way::Rules(rules, _) => self.one_by_one(objects, |object| rules.convert(object, to)),
            Way::Webhook(webhook) => {
                let mut each = Vec::new();
                for result in webhook.convert_each(objects, to).await {
                    each.push(match result {
                        // A webhook that is down says nothing about objects.
                        Err(error @ WebhookError::Call(_)) => return Err(CliError::failed(chain(&error))),
                        result => result.map_err(|error| chain(&error)),
                    });
                }
                each
            }
        };
        let mut converted = Vec::new();
        for (object, result) in objects.iter().zip(each) {
            match result {
                Ok(mut object) => {
                    self.pruning.prune(&mut object, to);
                    converted.push(object);
                }
                Err(why) => refused(&live::name(object), &why),
            }
        }
        Ok(converted)
    }

    fn one_by_one(
        &self,
        objects: &[Value],
        convert: impl Fn(Value) -> Result<Value, restow_convert::Error>,
    ) -> Vec<Result<Value, String>> {
        objects.iter().map(|object| convert(object.clone()).map_err(|error| chain(&error))).collect()
    }
}

/// Each object that came through, with what it was before.
fn with_their_former<'a>(
    before: &'a [Value],
    after: &'a [Value],
) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    // Those that were refused are missing, and the order is the same.
    let mut before = before.iter();
    after.iter().filter_map(move |after| {
        let is_it = |before: &&Value| before["metadata"]["uid"] == after["metadata"]["uid"];
        before.find(is_it).map(|before| (before, after))
    })
}
