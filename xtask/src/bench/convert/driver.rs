//! Sends reviews to a webhook as API servers do: over HTTP/1.1, with some connections that stay open.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use serde_json::Value;

use super::webhooks::Webhook;
use crate::bench::link::{Call, Link, Protocol, apart};
use crate::bench::machine;
use crate::bench::restow::peak_memory;

/// What is sent: some reviews of the same size, several at a time.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) review: Bytes,
    pub(super) objects: usize,
    pub(super) reviews: usize,
    pub(super) at_once: usize,
}

/// What a webhook did with a load.
#[derive(Clone, Copy)]
pub(super) struct Done {
    /// Reviews in a second.
    pub(super) rate: f64,
    /// The median time of a review when it is alone, as the client sees it, in seconds.
    pub(super) alone: f64,
    /// The processor time of the webhook for a review, in seconds.
    pub(super) processor: f64,
    /// Its peak memory, in bytes.
    pub(super) memory: u64,
    /// The median time from the last byte of a review to the answer, in seconds, if it measures that.
    pub(super) server: Option<f64>,
}

/// How many reviews are sent one after the other.
const ALONE: usize = 9;

/// Sends a load to a webhook that has just been started.
pub(super) async fn drive(webhook: &Webhook, load: Load) -> Result<Done> {
    let (pid, endpoint) = (webhook.pid()?, webhook.endpoint.clone());
    apart(move || async move {
        let mut links = endpoint.links(Protocol::Http1, load.at_once).await?;
        let first = links.first_mut().context("there is a connection")?;
        check(&send(first, &load).await?, load.objects)?;
        let mut alone = Vec::new();
        let mut server = Vec::new();
        for _ in 0..ALONE {
            let before = converting(first).await;
            let began = Instant::now();
            send(first, &load).await?;
            alone.push(began.elapsed().as_secs_f64());
            server.extend(before.zip(converting(first).await).map(|(before, after)| after - before));
        }
        let (began, before) = (Instant::now(), machine::seconds(pid)?);
        let share = load.reviews.div_ceil(load.at_once);
        let work = links.into_iter().map(|mut link| {
            let load = load.clone();
            async move {
                for _ in 0..share {
                    send(&mut link, &load).await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(work).await?;
        let reviews = (share * load.at_once) as f64;
        let rate = reviews / began.elapsed().max(Duration::from_millis(1)).as_secs_f64();
        let processor = (machine::seconds(pid)? - before) / reviews;
        let memory = peak_memory(pid).context("the webhook has ended")?;
        let median = |times: &[f64]| crate::bench::report::median(times.iter().copied());
        let server = (!server.is_empty()).then(|| median(&server));
        Ok(Done { rate, alone: median(&alone), processor, memory, server })
    })
    .await
}

async fn send(link: &mut Link, load: &Load) -> Result<Bytes> {
    let call = Call::write(Method::POST, "/convert".to_owned(), "application/json", load.review.clone());
    link.expect(call).await
}

/// The seconds that the webhook has spent on conversions, if it says so.
async fn converting(link: &mut Link) -> Option<f64> {
    let (_, text) = link.send(Call::get("/metrics".to_owned(), "*/*")).await.ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line =
        text.lines().find_map(|line| line.strip_prefix("restow_webhook_conversion_duration_seconds_sum "))?;
    line.parse().ok()
}

/// Checks that all objects were converted.
fn check(answer: &[u8], objects: usize) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let response = &answer["response"];
    ensure!(response["result"]["status"] == "Success", "the review failed: {}", response["result"]);
    let converted = response["convertedObjects"].as_array().context("the answer has no objects")?;
    ensure!(converted.len() == objects, "{} of {objects} objects came back", converted.len());
    for (number, object) in converted.iter().enumerate() {
        let spec = &object["spec"];
        let right = object["apiVersion"] == "example.com/v1"
            && object["metadata"]["name"] == format!("backup-{number}")
            && spec["colour"] == "red"
            && spec["host"] == format!("host-{number}")
            && spec["port"] == 80
            && spec["env"].as_array().is_some_and(|env| env.len() == 132)
            && object["metadata"]["annotations"].to_string().contains("kept");
        ensure!(right, "object {number} came back as {object}");
    }
    Ok(())
}
