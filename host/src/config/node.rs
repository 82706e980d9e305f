//! `[plant]` and `[serve]`: what the plant is called, and how its nodes are reached.

use std::net::IpAddr;
use std::path::Path;

use super::raw::Section;
use super::{Plant, Serve};

const ZONES: &str = "/usr/share/zoneinfo";

pub(super) fn plant(root: &Section<'_>) -> Option<Plant> {
    let Some(section) = root.section("plant") else {
        if !root.has("plant") {
            root.wrong("plant", "is missing: begin the file with [plant] and a name");
        }
        return None;
    };
    let name = section.required("name", "give the plant a name, such as \"bottling\"");
    let plant = Plant {
        name: name.unwrap_or_default().to_owned(),
        enterprise: topic_level(&section, "enterprise").unwrap_or_else(|| "enterprise".to_owned()),
        site: topic_level(&section, "site").unwrap_or_else(|| "site".to_owned()),
        timezone: timezone(&section).unwrap_or_else(|| "UTC".to_owned()),
        simulated: section.flag("simulated").unwrap_or(false),
    };
    section.finish();
    name.map(|_| plant)
}

/// Enterprise and site become levels of topics and subjects, where these characters have a meaning.
fn topic_level(section: &Section<'_>, key: &'static str) -> Option<String> {
    let text = section.text(key)?;
    let special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '/' | '+' | '#' | '*' | '>');
    if text.is_empty() || text.contains(special) {
        section.wrong(key, format!("is {text:?}: write one level of a topic, without spaces and . / + # * >"));
    }
    Some(text.to_owned())
}

fn timezone(section: &Section<'_>) -> Option<String> {
    let zone = section.text("timezone")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+');
    let known = !Path::new(ZONES).is_dir() || Path::new(ZONES).join(zone).is_file();
    if zone.is_empty() || zone.starts_with('/') || !zone.chars().all(plain) || !known {
        section.wrong("timezone", format!("is {zone:?}: use an IANA time zone, such as \"Europe/Berlin\" or \"UTC\""));
    }
    Some(zone.to_owned())
}

pub(super) fn serve(root: &Section<'_>) -> Option<Serve> {
    let mut serve =
        Serve { bind: "127.0.0.1".to_owned(), api_port: 8080, advertise: None, secret_key: None, token: None };
    let Some(section) = root.section("serve") else { return (!root.has("serve")).then_some(serve) };
    if let Some(bind) = section.text("bind") {
        if bind.parse::<IpAddr>().is_err() {
            section.wrong(
                "bind",
                format!("is {bind:?}: use an IP address of this box, such as 127.0.0.1, or 0.0.0.0 for all"),
            );
        }
        bind.clone_into(&mut serve.bind);
    }
    let port = section.whole("api_port", 0..=65535, "use a port from 1 to 65535, or 0 for any free one");
    serve.api_port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(serve.api_port);
    serve.advertise = section.text("advertise").map(|url| {
        let address = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
        if address.trim_end_matches('/').is_empty() || address.contains(char::is_whitespace) {
            section.wrong(
                "advertise",
                format!("is {url:?}: write how others reach this node, such as \"http://plant-a:8080\""),
            );
        }
        url.trim_end_matches('/').to_owned()
    });
    if section.has("secret_key_env") {
        serve.secret_key = section.variable("secret_key_env");
    }
    if section.has("token_env") {
        serve.token = section.variable("token_env");
    }
    for (key, value) in [("secret_key_env", &serve.secret_key), ("token_env", &serve.token)] {
        if value.as_ref().is_some_and(|value| value.len() < 16) {
            section
                .doubtful(key, "names a variable with fewer than 16 characters: a long random value cannot be guessed");
        }
    }
    section.finish();
    Some(serve)
}
