//! `[bus.NAME]`: a message broker. In this version the lease store `nats` and alerts use one.

use std::collections::BTreeMap;
use std::path::Path;

use super::database::without_password;
use super::raw::Section;
use super::{Alerts, Bus, Leases, Redundancy};
use crate::identity::RoleName;

const WANTED: &str = "write the broker's address with nats://, tls://, mqtt:// or mqtts://";
const SCHEMES: [&str; 4] = ["nats://", "tls://", "mqtt://", "mqtts://"];

/// Every broker that is written well enough to be used, by name.
pub(super) fn buses(root: &Section<'_>, directory: &Path) -> BTreeMap<String, Bus> {
    let buses = root.named_sections("bus").into_iter().filter_map(|(name, section)| one(name, section, directory));
    buses.map(|bus| (bus.name.clone(), bus)).collect()
}

/// Says that a broker is of no use yet, where it is none.
pub(super) fn unused(root: &Section<'_>, redundancy: Option<&Redundancy>, alerts: &Alerts) {
    let keeps_leases = redundancy.is_some_and(|redundancy| matches!(redundancy.leases, Leases::Nats { .. }));
    if root.has("bus") && !keeps_leases && alerts.bus.is_none() {
        root.doubtful("bus", "is read and has no effect in this version: neither leases nor alerts name it");
    }
}

/// The broker of a name that stands at a key whose whole value is `seen`; reported where there is none.
pub(super) fn named<'b>(
    section: &Section<'_>,
    key: &str,
    seen: &str,
    name: &str,
    buses: &'b BTreeMap<String, Bus>,
) -> Option<&'b Bus> {
    let bus = buses.get(name);
    if bus.is_none() {
        let known = if buses.is_empty() { "there is none".to_owned() } else { format!("there are {}", names(buses)) };
        section.wrong(key, format!("is {seen:?}, and there is no usable [bus.{name}]: {known}"));
    }
    bus
}

/// The names of all of them.
pub(super) fn names(buses: &BTreeMap<String, Bus>) -> String {
    buses.keys().cloned().collect::<Vec<_>>().join(", ")
}

/// Whether a broker is NATS, with addresses that can be read; reported at the key that needs it where it is not.
pub(super) fn is_nats(section: &Section<'_>, key: &str, bus: &Bus) -> bool {
    let url = bus.shown();
    if !bus.servers().all(|url| ["nats://", "tls://"].iter().any(|scheme| url.starts_with(scheme))) {
        section.wrong(key, format!("needs NATS, and bus.{}.url is {url:?}: use nats:// or tls://", bus.name));
        return false;
    }
    if let Some(error) = bus.servers().find_map(|url| url.parse::<async_nats::ServerAddr>().err()) {
        section
            .wrong(key, format!("needs NATS, and bus.{}.url is {url:?} ({error}): write nats://HOST:4222", bus.name));
        return false;
    }
    true
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
