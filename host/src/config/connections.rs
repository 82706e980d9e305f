//! `[opc.NAME]`: the OPC UA servers that machines and tags are read through.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::identity::RoleName;

use super::raw::Section;
use super::{OpcConnection, Role, Security, suggest};

/// A small PLC needs 3 to 10 s for the cryptography of one session.
const CONNECT: Duration = Duration::from_secs(15);

pub(super) fn opc(
    root: &Section<'_>,
    directory: &Path,
    roles: &BTreeMap<RoleName, Role>,
) -> BTreeMap<String, OpcConnection> {
    let connections = root.named_sections("opc").into_iter();
    connections.filter_map(|(name, section)| Some((name.to_owned(), connection(section, directory, roles)?))).collect()
}

fn connection(section: Section<'_>, directory: &Path, roles: &BTreeMap<RoleName, Role>) -> Option<OpcConnection> {
    let endpoint = endpoint(&section);
    let security = section.choice("security", &Security::WORDS).unwrap_or(Security::None);
    let connect = section.duration("connect").unwrap_or(CONNECT);
    if !(Duration::from_secs(1)..=Duration::from_secs(60)).contains(&connect) {
        section.wrong(
            "connect",
            "must be between 1s and 60s: leave it out for 15s, which suits most servers, and make it longer for a slow PLC",
        );
    }
    let publish = section.duration("publish").unwrap_or(Duration::from_millis(200));
    let sampling = section.duration("sampling").unwrap_or(Duration::from_millis(100));
    let silence = section.duration("silence").unwrap_or(Duration::from_secs(6));
    if silence <= publish {
        section.wrong(
            "silence",
            "must be longer than publish, else every pause looks like a dead connection: make it several times as long",
        );
    }
    let connection = OpcConnection {
        endpoint: endpoint.unwrap_or_default().to_owned(),
        security,
        connect,
        publish,
        sampling,
        silence,
        writer: writer(&section, roles),
        user: user(&section, security),
        pki: directory.join("pki"),
        certificate: section.text("certificate").map(|file| directory.join(file)),
    };
    section.finish();
    endpoint.map(|_| connection)
}

fn endpoint<'a>(section: &Section<'a>) -> Option<&'a str> {
    let wanted = "write the server's address, such as \"opc.tcp://192.168.0.10:4840\"";
    let endpoint = section.required("endpoint", wanted)?;
    let host = endpoint.strip_prefix("opc.tcp://").map(|rest| rest.split('/').next().unwrap_or_default());
    if host.is_none_or(|host| host.is_empty() || host.starts_with(':')) || endpoint.contains(char::is_whitespace) {
        section.wrong("endpoint", format!("is {endpoint:?}: {wanted}"));
        return None;
    }
    Some(endpoint)
}

fn writer(section: &Section<'_>, roles: &BTreeMap<RoleName, Role>) -> Option<RoleName> {
    let name = section.text("writer")?;
    let found = roles.keys().find(|role| role.as_str() == name);
    if found.is_none() {
        let hint = match suggest::nearest(name, roles.keys().map(RoleName::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("add a section [roles.{name}], or leave writer out"),
        };
        section.wrong("writer", format!("is {name:?}, and no role has that name: {hint}"));
    }
    found.cloned()
}

fn user(section: &Section<'_>, security: Security) -> Option<(String, String)> {
    match (section.has("user"), section.has("password_env")) {
        (false, false) => None,
        (true, false) => {
            section.wrong(
                "user",
                "is there without password_env: name there the environment variable that holds the password",
            );
            None
        }
        (false, true) => {
            section.wrong("password_env", "is there without user: add the user's name");
            None
        }
        (true, true) => {
            if security == Security::None {
                section.doubtful("user", "sends its password over a connection that is not encrypted: set security");
            }
            let user = section.required("user", "write the user's name, or remove user and password_env");
            let password = section.variable("password_env");
            Some((user?.to_owned(), password?))
        }
    }
}
