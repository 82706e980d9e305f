//! Sections that belong to the contract and do nothing in this version: read for mistakes, and said so.
//!
//! Whoever prepares a configuration for them learns of slips of the hand now, and nobody believes that they work.

use super::raw::Section;

pub(super) fn accepted(root: &Section<'_>) {
    for (_, section) in root.named_sections("series") {
        let _ = section.required("format", "write how a code looks, such as \"INS-{n:06}\"");
        let _ = section.flag("gapless");
        section.finish();
    }
    if root.has("series") {
        root.doubtful("series", "is read and has no effect in this version");
    }
}
