//! The loop to beat: what the reader does with a batch of counters, in Rust, with nothing between it and the store.
//!
//! It sends the reader's own statements, with columns of the same types and sizes, in the same transactions under the same fence. It knows
//! nothing of falls, jumps, states, times or failures: what the reader's rules cost is part of the comparison.

use std::sync::Arc;

use anyhow::{Context, bail};
use host::lease::Held;
use host::opc::{Batch, EventQueue, Sample, Value};
use host::store::{Array, ColumnData, Database, Options, Params, Statement};

/// The most samples of one batch, as for a guest.
const MOST_SAMPLES: usize = 10_000;

/// Books what comes out of a queue whose item numbers are the counters' places.
pub struct Native {
    held: Held,
    database: Arc<dyn Database>,
    queue: Arc<EventQueue>,
    baselines: String,
    bookings: String,
    counters: Vec<Counter>,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    machine: i64,
    sequence: i64,
    /// The number in the database.
    committed: i64,
    value: Option<i64>,
    booked: i64,
}

impl Native {
    /// For the good counters of these machines, with the texts of a transaction of the reader.
    ///
    /// # Errors
    /// When the texts are not those of the baselines and the bookings.
    pub fn new(
        held: Held,
        database: Arc<dyn Database>,
        queue: Arc<EventQueue>,
        machines: &[i64],
        texts: &[String],
    ) -> anyhow::Result<Self> {
        let [baselines, bookings] = texts else { bail!("the reader sent {} statements, not two", texts.len()) };
        let counter = |machine: &i64| Counter { machine: *machine, sequence: 0, committed: 0, value: None, booked: 0 };
        let counters = machines.iter().map(counter).collect();
        Ok(Self { held, database, queue, baselines: baselines.clone(), bookings: bookings.clone(), counters })
    }

    /// Books batches until one fails.
    ///
    /// # Errors
    /// The first failure.
    pub async fn run(mut self) -> anyhow::Result<()> {
        loop {
            if let Batch::Samples(batch) = self.queue.next(MOST_SAMPLES).await {
                self.book(&batch).await?;
            }
        }
    }

    async fn book(&mut self, batch: &[Sample]) -> anyhow::Result<()> {
        let mut transaction = self.database.begin(&self.held, Options::default()).await?;
        let now = transaction.now();
        let (mut moved, mut booked) = (Columns::<13>::new(batch.len()), Columns::<7>::new(batch.len()));
        let mut touched = Vec::with_capacity(batch.len());
        for sample in batch {
            let place = usize::try_from(sample.item)?;
            let counter = self.counters.get_mut(place).context("an unknown item")?;
            let Value::Uint(value) = sample.value else { bail!("a value that is no counter's") };
            let (value, at) = (i64::try_from(value)?, sample.source.unwrap_or(now));
            if counter.sequence == counter.committed {
                touched.push((place, at));
            }
            if let Some(before) = counter.value.replace(value) {
                booked.row([counter.machine, 0, counter.sequence, value - before, at, 0, now]);
                counter.booked += value - before;
            }
            counter.sequence += 1;
        }
        // A counter's baseline is written once, however often it changed.
        for (place, at) in touched {
            let counter = self.counters.get_mut(place).context("an unknown item")?;
            let Counter { machine, sequence, committed, value, booked } = *counter;
            moved.row([machine, 0, sequence, committed, value.unwrap_or(0), 1, booked, 0, at, 0, now, at, 0]);
            counter.committed = sequence;
        }
        let (rows, bookings) = (moved.rows(), booked.rows());
        let mut work = vec![Statement { sql: self.baselines.clone(), params: moved.finish(&[8, 10, 11], Some(12)) }];
        if bookings > 0 {
            work.push(Statement { sql: self.bookings.clone(), params: booked.finish(&[4, 6], None) });
        }
        let affected = transaction.execute(work).await?;
        if affected.iter().zip([rows, bookings]).any(|(done, wanted)| *done != wanted as u64) {
            bail!("a baseline had moved meanwhile");
        }
        Ok(transaction.commit().await?)
    }
}

/// Rows of whole numbers, column by column.
struct Columns<const N: usize>([Vec<i64>; N]);

impl<const N: usize> Columns<N> {
    fn new(rows: usize) -> Self {
        Self(std::array::from_fn(|_| Vec::with_capacity(rows)))
    }

    fn row(&mut self, row: [i64; N]) {
        for (column, value) in self.0.iter_mut().zip(row) {
            column.push(value);
        }
    }

    fn rows(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    /// The parameters: some columns are times, and one may be texts that are all NULL.
    fn finish(self, times: &[usize], texts: Option<usize>) -> Params {
        let column = |(place, values): (usize, Vec<i64>)| {
            if texts == Some(place) {
                let nulls = (0..).take(values.len()).collect();
                return ColumnData { values: Array::Texts(vec![String::new(); values.len()]), nulls };
            }
            let values = if times.contains(&place) { Array::Timestamps(values) } else { Array::Ints(values) };
            ColumnData { values, nulls: Vec::new() }
        };
        Params::Columns(self.0.into_iter().enumerate().map(column).collect())
    }
}
