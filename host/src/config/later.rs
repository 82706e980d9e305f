//! What belongs to the contract and does nothing in this version: read for mistakes, and said so.
//!
//! Whoever prepares a configuration for it learns of slips of the hand now, and nobody believes that it works.

use super::raw::Section;

/// Keys of `[plant]`, and what becomes of them.
const OF_PLANT: [(&str, &str); 3] = [
    ("enterprise", "is told to roles and has no effect in this version: no bundled role publishes"),
    ("site", "is told to roles and has no effect in this version: no bundled role publishes"),
    ("timezone", "is told to roles and has no effect in this version: every time that is shown is UTC"),
];

/// Whole sections, and what becomes of them.
const SECTIONS: [(&str, &str); 3] = [
    ("tags", "is read and has no effect in this version: no tag is recorded"),
    ("reasons", "is read and has no effect in this version: no stop is given a reason"),
    ("series", "is read and has no effect in this version: no code or serial is given"),
];

pub(super) fn accepted(root: &Section<'_>) {
    for (_, section) in root.named_sections("series") {
        let _ = section.required("format", "write how a code looks, such as \"INS-{n:06}\"");
        let _ = section.flag("gapless");
        section.finish();
    }
    for (name, sentence) in SECTIONS {
        if root.has(name) {
            root.doubtful(name, sentence);
        }
    }
    if let Some(plant) = root.section("plant") {
        for (key, sentence) in OF_PLANT {
            if plant.has(key) {
                plant.doubtful(key, sentence);
            }
        }
    }
    for (_, connection) in root.named_sections("opc") {
        if connection.has("writer") {
            connection.doubtful("writer", "is read and has no effect in this version: no role can write to a server");
        }
    }
}
