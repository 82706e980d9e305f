//! Samples are delivered in order, and again when they were refused.

use host::opc::{ConnectionChange, Sample, Value};

use crate::plant::Plant;

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_refused_is_delivered_again_while_timers_go_on() -> anyhow::Result<()> {
    let plant = Plant::start(&[("reader", "{ mode = \"count\", refuse = 4 }")]).await?;
    plant.leases.grant("reader").await?;
    plant.until("it has started", |plant| plant.probe("reader", "ticks") > 0).await?;
    let ticks = plant.probe("reader", "ticks");
    let queue = plant.queues.of("reader");
    queue.push_connection(change(true));
    queue.push_samples([sample(1), sample(2)]);
    plant.until("the samples are taken", |plant| plant.probe("reader", "samples") == 2).await?;
    assert_eq!(plant.probe("reader", "refusals"), 4);
    assert_eq!((plant.probe("reader", "changes"), plant.probe("reader", "batches")), (1, 1));
    assert_eq!(plant.figure("host_samples_delivered_total{role=\"reader\",partition=\"\"}"), 2);
    assert!(plant.probe("reader", "ticks") > ticks, "no tick came while the batch waited");
    plant
        .until("the reading is shown", |plant| plant.report("reader").is_some_and(|r| r.last_reading_at == Some(2)))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_too_much_at_once_is_taken_in_parts() -> anyhow::Result<()> {
    let plant = Plant::start(&[("reader", "{ mode = \"count\", most = 700 }")]).await?;
    plant.leases.grant("reader").await?;
    plant.until("it has started", |plant| plant.probe("reader", "ticks") > 0).await?;
    plant.queues.of("reader").push_samples((0..10_000).map(sample));
    plant.until("all are taken", |plant| plant.probe("reader", "samples") == 10_000).await?;
    assert_eq!(plant.figure("host_samples_delivered_total{role=\"reader\",partition=\"\"}"), 10_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_backlog_is_delivered_in_batches() -> anyhow::Result<()> {
    let plant = Plant::start(&[("reader", "{ mode = \"count\" }")]).await?;
    plant.leases.grant("reader").await?;
    plant.until("it has started", |plant| plant.probe("reader", "ticks") > 0).await?;
    plant.queues.of("reader").push_samples((0..25_000).map(sample));
    plant.until("all are taken", |plant| plant.probe("reader", "samples") == 25_000).await?;
    assert!(plant.probe("reader", "batches") >= 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gauge_of_an_instance_goes_with_it() -> anyhow::Result<()> {
    let plant = Plant::start(&[("reader", "{ mode = \"count\" }")]).await?;
    plant.leases.grant("reader").await?;
    plant.until("it has started", |plant| plant.probe("reader", "ticks") > 0).await?;
    plant.queues.of("reader").push_connection(change(true));
    plant.until("it shows the connection", |plant| plant.figure("role_reader_connected") == 1).await?;
    plant.leases.lose("reader");
    plant.until("it shows nothing", |plant| plant.figure("role_reader_connected") == 0).await
}

fn sample(n: i64) -> Sample {
    Sample { item: 0, value: Value::Int(n), status: 0, source: Some(n), server: None, data_type: None }
}

fn change(connected: bool) -> ConnectionChange {
    ConnectionChange { connection: "line".to_owned(), connected, since: 1, detected: 2, reason: "a test".to_owned() }
}
