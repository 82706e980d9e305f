//! `[bus.NAME]`: a message broker. In this version only the lease store `nats` uses one.

use std::collections::BTreeMap;
use std::path::Path;

use super::database::without_password;
use super::raw::Section;
use super::{Bus, Leases, Redundancy};
use crate::identity::RoleName;

const WANTED: &str = "write the broker's address with nats://, tls://, mqtt:// or mqtts://";
const SCHEMES: [&str; 4] = ["nats://", "tls://", "mqtt://", "mqtts://"];

/// Every broker that is written well enough to be used, by name.
pub(super) fn buses(root: &Section<'_>, directory: &Path) -> BTreeMap<String, Bus> {
    let buses = root.named_sections("bus").into_iter().filter_map(|(name, section)| one(name, section, directory));
    buses.map(|bus| (bus.name.clone(), bus)).collect()
}

/// Says that a broker is of no use yet, where it is none.
pub(super) fn unused(root: &Section<'_>, redundancy: Option<&Redundancy>) {
    let used = redundancy.is_some_and(|redundancy| matches!(redundancy.leases, Leases::Nats { .. }));
    if root.has("bus") && !used {
        root.doubtful("bus", "is read and has no effect in this version");
    }
}

/// The URLs without their passwords. A comma that stands in a password makes no second URL.
pub(super) fn shown(url: &str) -> String {
    if url.split(',').all(known) {
        url.split(',').map(|url| without_password(url.trim())).collect::<Vec<_>>().join(",")
    } else {
        without_password(url)
    }
}

fn known(url: &str) -> bool {
    SCHEMES.iter().any(|scheme| url.trim().strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}

fn one(name: &str, section: Section<'_>, directory: &Path) -> Option<Bus> {
    let url = section.required("url", WANTED);
    if let Some(url) = url.filter(|url| !url.split(',').all(known)) {
        section.wrong("url", format!("is {:?}: {WANTED}", shown(url)));
    }
    let file = |key| section.text(key).map(|file| directory.join(file));
    let (creds_file, ca_file) = (file("creds_file"), file("ca_file"));
    let user = section.text("user");
    let password = if section.has("password_env") { section.variable("password_env") } else { None };
    if name.parse::<RoleName>().is_err() {
        section.wrong_here(format!("{} has a wrong name: use letters, digits, '-' and '_'", section.path()));
    }
    section.finish();
    let login = user.map(|user| (user.to_owned(), password.unwrap_or_default()));
    Some(Bus { name: name.to_owned(), url: url?.to_owned(), login, creds_file, ca_file })
}
