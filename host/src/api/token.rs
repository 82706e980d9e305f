//! Who may write: whoever has the bearer token of `[serve] token_env`, until people sign in.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use super::{AppState, Problem};

impl AppState {
    /// Lets a write pass, or says what it lacks.
    pub(super) fn may_write(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(wanted) = &self.0.config.serve.token else {
            let detail =
                "this plant takes no writes over HTTP, because it has no token: set serve.token_env in plant.toml";
            return Err(Problem::new(StatusCode::FORBIDDEN, "writes_disabled", detail));
        };
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
        let given = match given.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
            _ => b"",
        };
        if same(given, wanted.as_bytes()) {
            return Ok(());
        }
        let detail = if given.is_empty() {
            "this needs the plant's token: send it as `Authorization: Bearer …`"
        } else {
            "the token is not this plant's: send the one that serve.token_env names"
        };
        Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail))
    }
}

/// Compares in a time that depends on neither: hashes are of one length, and all their bytes are looked at.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = Sha256::digest(a).iter().zip(Sha256::digest(b).iter()).fold(0_u8, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0
}
