//! `host migrate`: brings the plant's schema to the version of this binary, and says what it did.

use crate::config::Config;
use crate::store;

/// Runs the migrations of the plant's database.
///
/// # Errors
/// A sentence that says what to do, when the database cannot be reached or its schema is not one that this binary may change.
pub async fn migrate(config: &Config) -> anyhow::Result<()> {
    let done = store::migrate(&config.store).await?;
    if done.from == done.to {
        println!("the schema is at version {} already", done.to);
    } else {
        println!("the schema went from version {} to {}", done.from, done.to);
    }
    Ok(())
}
