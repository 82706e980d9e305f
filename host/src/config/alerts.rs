//! `[alerts]`: whom the plant tells when something needs a person, and over which channels.

use std::collections::BTreeMap;
use std::fmt;

use lettre::message::Mailbox;

use super::raw::Section;
use super::{Bus, bus};

const WEBHOOK: &str = "write where alerts are posted, such as \"http://127.0.0.1:9000/alerts\"";
const BUS: &str = "write a connection and a subject, such as \"main:alerts\"";
const SERVER: &str = "write the mail server as \"smtps://HOST\", \"smtp+starttls://HOST\" or \"smtp://HOST\", \
                      with :PORT where it is not 465, 587 or 25";
const FROM: &str = "write who the e-mail is from, such as \"plant@example.com\"";
const TO: &str = "list who gets the e-mail, such as [\"shift@example.com\"]";

/// `[alerts]`: the channels that every alert is sent over.
#[derive(Clone, Default)]
pub struct Alerts {
    /// Alerts are posted there, `http://` or `https://`; it may have a secret in it.
    pub webhook: Option<String>,
    /// Alerts are published there: a NATS connection and a subject.
    pub bus: Option<(Bus, String)>,
    /// Alerts are mailed.
    pub email: Option<Email>,
}

/// Shows no password, and of the webhook only its host: the rest may be a secret.
impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Alerts");
        shown.field("webhook", &self.webhook.as_deref().map(host)).field("bus", &self.bus);
        shown.field("email", &self.email).finish()
    }
}

/// Where mail goes.
#[derive(Clone)]
pub struct Email {
    /// The server that takes it.
    pub server: MailServer,
    /// Who it is from.
    pub from: Mailbox,
    /// Who gets it; at least one.
    pub to: Vec<Mailbox>,
    /// User name and password, where the server wants them.
    pub login: Option<(String, String)>,
}

/// Shows no password.
impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Email");
        shown.field("server", &self.server).field("to", &self.to);
        shown.field("user", &self.login.as_ref().map(|(name, _)| name)).finish_non_exhaustive()
    }
}

/// A mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the way to it is secured.
    pub security: MailSecurity,
}

/// How the way to a mail server is secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// Not at all: `smtp://`.
    None,
    /// TLS is asked for on a plain connection, and nothing is sent without it: `smtp+starttls://`.
    StartTls,
    /// TLS from the first byte: `smtps://`.
    Tls,
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Every channel that is written well enough to be used.
pub(super) fn alerts(root: &Section<'_>, buses: &BTreeMap<String, Bus>) -> Alerts {
    let Some(section) = root.section("alerts") else { return Alerts::default() };
    if !["webhook", "bus", "email"].into_iter().any(|key| section.has(key)) {
        section.doubtful_here("alerts names no channel, so that nobody is told of anything: add webhook, email or bus");
    }
    let alerts = Alerts { webhook: webhook(&section), bus: subject(&section, buses), email: email(&section) };
    section.finish();
    alerts
}

/// The host of a URL, with its port; empty where there is none.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn webhook(section: &Section<'_>) -> Option<String> {
    let url = section.text("webhook")?;
    let has_scheme = url.starts_with("http://") || url.starts_with("https://");
    let usable = has_scheme && !host(url).is_empty() && url.parse::<ureq::http::Uri>().is_ok();
    if !usable {
        section.wrong("webhook", format!("is no address to post to (its host is {:?}): {WEBHOOK}", host(url)));
    }
    usable.then(|| url.to_owned())
}

fn subject(section: &Section<'_>, buses: &BTreeMap<String, Bus>) -> Option<(Bus, String)> {
    let seen = section.text("bus")?;
    let Some((name, subject)) = seen.split_once(':') else {
        section.wrong("bus", format!("is {seen:?}: {BUS}"));
        return None;
    };
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '*' | '>');
    if subject.split('.').any(|level| level.is_empty() || !level.chars().all(plain)) {
        section.wrong(
            "bus",
            format!("is {seen:?}: after the colon write one subject, of levels with dots between them and without spaces, * and >"),
        );
        return None;
    }
    let bus = bus::named(section, "bus", seen, name, buses)?;
    bus::is_nats(section, "bus", bus).then(|| (bus.clone(), subject.to_owned()))
}

fn email(section: &Section<'_>) -> Option<Email> {
    let section = section.section("email")?;
    let server = section.required("server", SERVER).and_then(|seen| {
        let server = server(seen);
        if server.is_none() {
            section.wrong("server", format!("is {seen:?}: {SERVER}"));
        }
        server
    });
    let from = section.required("from", FROM).and_then(|seen| mailbox(&section, "from", seen, FROM));
    let to = to(&section);
    let login = login(&section, server.as_ref());
    section.finish();
    Some(Email { server: server?, from: from?, to: to?, login: login.ok()? })
}

fn mailbox(section: &Section<'_>, key: &str, seen: &str, wanted: &str) -> Option<Mailbox> {
    let mailbox: Option<Mailbox> = seen.parse().ok();
    if mailbox.is_none() {
        section.wrong(key, format!("is {seen:?}, which is no e-mail address: {wanted}"));
    }
    mailbox
}

fn to(section: &Section<'_>) -> Option<Vec<Mailbox>> {
    if !section.has("to") {
        section.wrong("to", format!("is missing: {TO}"));
    }
    let to = section.texts("to")?;
    if to.is_empty() {
        section.wrong("to", format!("is empty: {TO}"));
        return None;
    }
    // Each that is wrong is reported.
    let mailboxes: Vec<Option<Mailbox>> = to.into_iter().map(|seen| mailbox(section, "to", seen, TO)).collect();
    mailboxes.into_iter().collect()
}

/// What was wrong was reported.
struct Reported;

fn login(section: &Section<'_>, server: Option<&MailServer>) -> Result<Option<(String, String)>, Reported> {
    match (section.has("user"), section.has("password_env")) {
        (false, false) => Ok(None),
        (true, false) => {
            section.wrong("user", "is there without password_env: name there the variable that holds the password");
            Err(Reported)
        }
        (false, true) => {
            section.wrong("password_env", "is there without user: add the user's name");
            Err(Reported)
        }
        (true, true) => {
            if server.is_some_and(|server| server.security == MailSecurity::None) {
                section.doubtful(
                    "user",
                    "sends its password over a connection that is not encrypted: use smtps:// or smtp+starttls://",
                );
            }
            let user = section.required("user", "write the user's name, or remove user and password_env");
            let password = section.variable("password_env");
            let login = user.zip(password).map(|(user, password)| (user.to_owned(), password));
            login.map(Some).ok_or(Reported)
        }
    }
}

fn server(seen: &str) -> Option<MailServer> {
    const KINDS: [(&str, MailSecurity, u16); 3] = [
        ("smtp://", MailSecurity::None, 25),
        ("smtp+starttls://", MailSecurity::StartTls, 587),
        ("smtps://", MailSecurity::Tls, 465),
    ];
    let (rest, security, usual) =
        KINDS.into_iter().find_map(|(scheme, security, port)| Some((seen.strip_prefix(scheme)?, security, port)))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok().filter(|port| *port > 0)?),
        _ => (rest, usual),
    };
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let usable = match in_brackets {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(plain),
    };
    usable.then(|| MailServer { host: in_brackets.unwrap_or(host).to_owned(), port, security })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_has_the_port_that_its_kind_usually_has() {
        let of = |seen: &str| server(seen).map(|server| (server.to_string(), server.security));
        assert_eq!(of("smtp://mail"), Some(("mail:25".to_owned(), MailSecurity::None)));
        assert_eq!(of("smtp+starttls://mail.example"), Some(("mail.example:587".to_owned(), MailSecurity::StartTls)));
        assert_eq!(of("smtps://10.0.0.1:2465/"), Some(("10.0.0.1:2465".to_owned(), MailSecurity::Tls)));
        assert_eq!(server("smtp://[::1]:25").map(|server| server.host), Some("::1".to_owned()));
        assert_eq!(server("smtp://[::1]").map(|server| server.port), Some(25));
    }

    #[test]
    fn what_is_no_mail_server_is_none() {
        for seen in ["mail", "smtp://", "smtp://:25", "smtp://mail:0", "smtp://mail:x", "smtp://u:p@mail", "smtp://::1"]
        {
            assert_eq!(server(seen), None, "{seen}");
        }
    }

    #[test]
    fn the_host_of_a_url_is_all_that_is_shown_of_it() {
        assert_eq!(host("https://user:secret@hooks.example:8443/T0/secret?key=secret"), "hooks.example:8443");
        assert_eq!(host("nonsense"), "");
        let alerts = Alerts { webhook: Some("https://hooks.example/secret".to_owned()), ..Alerts::default() };
        assert!(!format!("{alerts:?}").contains("secret"));
    }
}
