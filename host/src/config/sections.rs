//! A hash for each section that has to be the same on every node, so that nodes whose `plant.toml` has drifted apart find out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// What decides which roles run, what they do and for how long they may. Addresses (`store`, `serve`, `opc`) may differ from box to box.
const SHARED: [&str; 8] = ["plant", "redundancy", "bus", "roles", "machines", "tags", "reasons", "series"];
/// Enough that two versions of one section have never the same.
const HASH_BYTES: usize = 8;

/// The hashes of a document's shared sections; a section that is left out has none. How it is written (order of keys, comments, spaces)
/// makes no difference.
pub(super) fn hashes(text: &str) -> BTreeMap<String, String> {
    let Ok(document) = text.parse::<toml::Table>() else { return BTreeMap::new() };
    let hash = |name: &str| Some((name.to_owned(), hash(document.get(name)?)));
    SHARED.into_iter().filter_map(hash).collect()
}

fn hash(value: &toml::Value) -> String {
    // Keys of tables come in their order.
    short(&value.to_string())
}

/// A short hash of a text, in hexadecimal.
fn short(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(HASH_BYTES).fold(String::new(), |mut hex, byte| {
        // Writing into a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// What tells two keys apart and gives neither away: too short to try keys against.
#[must_use]
pub fn key_check(key: &str) -> String {
    short(&format!("the key of a plant: {key}")).chars().take(4).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "[plant]\nname = \"p\"\n[roles.reader]\n[roles.other]\nconfig = { a = 1, b = 2 }\n[store]\nurl = \"x\"\n";

    #[test]
    fn the_order_of_keys_and_comments_makes_no_difference() {
        let other = "# mine\n[store]\nurl = \"y\"\n[roles.other]\nconfig = { b = 2, a = 1 }\n[roles.reader]\n[plant]\nname = \"p\"\n";
        assert_eq!(hashes(ONE), hashes(other));
        assert_eq!(hashes(ONE).keys().collect::<Vec<_>>(), ["plant", "roles"]);
    }

    #[test]
    fn a_value_does() {
        let (one, other) = (hashes(ONE), hashes(&ONE.replace("b = 2", "b = 3")));
        assert_eq!(one["plant"], other["plant"]);
        assert_ne!(one["roles"], other["roles"]);
    }

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(key_check("one").len(), 4);
        assert_ne!(key_check("one"), key_check("two"));
    }
}
