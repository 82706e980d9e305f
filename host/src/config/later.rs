//! Sections that belong to the contract and do nothing in this version: read for mistakes, and said so.
//!
//! Whoever prepares a configuration for them learns of slips of the hand now, and nobody believes that they work.

use super::raw::Section;

pub(super) fn accepted(root: &Section<'_>) {
    for (name, section) in root.named_sections("bus") {
        bus(name, section);
    }
    for (_, section) in root.named_sections("series") {
        let _ = section.required("format", "write how a code looks, such as \"INS-{n:06}\"");
        let _ = section.flag("gapless");
        section.finish();
    }
    if let Some(section) = root.section("alerts") {
        let _ = (section.text("webhook"), section.text("bus"));
        section.finish();
    }
    for key in ["bus", "series", "alerts"] {
        if root.has(key) {
            root.doubtful(key, "is read and has no effect in this version");
        }
    }
}

fn bus(name: &str, section: Section<'_>) {
    let wanted = "write the broker's address with nats://, tls://, mqtt:// or mqtts://";
    if let Some(url) = section.required("url", wanted) {
        let known = ["nats://", "tls://", "mqtt://", "mqtts://"];
        if !known.iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty())) {
            section.wrong("url", format!("is {:?}: {wanted}", super::database::without_password(url)));
        }
    }
    for key in ["creds_file", "ca_file", "user"] {
        let _ = section.text(key);
    }
    if section.has("password_env") {
        let _ = section.variable("password_env");
    }
    if name.parse::<crate::identity::RoleName>().is_err() {
        section.wrong_here(format!("{} has a wrong name: use letters, digits, '-' and '_'", section.path()));
    }
    section.finish();
}
