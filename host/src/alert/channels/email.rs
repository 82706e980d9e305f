//! An alert as an e-mail.

use async_trait::async_trait;
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use super::{Channel, PATIENCE, SendError};
use crate::alert::Alert;
use crate::config::{Email, MailSecurity, MailServer, host_name};

/// A mail server, and who gets the mail.
pub(super) struct Mail {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    server: MailServer,
    from: Mailbox,
    to: Vec<Mailbox>,
}

impl Mail {
    /// Trusts what this box trusts, where the way to the server is encrypted.
    pub(super) fn new(email: &Email) -> Result<Self, String> {
        let server = &email.server;
        let parameters = || {
            TlsParameters::new(server.host.clone()).map_err(|error| {
                format!("TLS to the mail server of alerts.email.server cannot be set up ({error}): check its name")
            })
        };
        let tls = match server.security {
            MailSecurity::None => Tls::None,
            MailSecurity::StartTls => Tls::Required(parameters()?),
            MailSecurity::Tls => Tls::Wrapper(parameters()?),
        };
        let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(server.host.clone());
        let mut builder = builder.port(server.port).tls(tls).timeout(Some(PATIENCE));
        let name = host_name();
        if !name.is_empty() {
            builder = builder.hello_name(ClientId::Domain(name));
        }
        if let Some((user, password)) = &email.login {
            builder = builder.credentials(Credentials::new(user.clone(), password.clone()));
        }
        let (from, to) = (email.from.clone(), email.to.clone());
        Ok(Self { transport: builder.build(), server: server.clone(), from, to })
    }

    fn message(&self, alert: &Alert) -> Result<Message, lettre::error::Error> {
        // The same id for every try: a mailbox shows it once.
        let id = format!("<{}@{}>", alert.id, self.from.email.domain());
        let message = Message::builder().from(self.from.clone()).subject(subject(alert)).message_id(Some(id));
        let message = self.to.iter().cloned().fold(message, lettre::message::MessageBuilder::to);
        message.header(ContentType::TEXT_PLAIN).body(body(alert))
    }
}

#[async_trait]
impl Channel for Mail {
    fn name(&self) -> &'static str {
        "email"
    }

    async fn send(&self, alert: &Alert) -> Result<(), SendError> {
        let message = self.message(alert);
        let message = message.map_err(|error| SendError(format!("the e-mail cannot be written: {error}")))?;
        let sent = self.transport.send(message).await;
        sent.map(drop).map_err(|error| SendError(format!("the mail server {} did not take it: {error}", self.server)))
    }
}

fn subject(alert: &Alert) -> String {
    let about = alert.role.as_ref().map(|role| format!(", role {role}")).unwrap_or_default();
    let subject = format!("[{}] {}: {}{about}", alert.plant, alert.severity, alert.kind);
    // It is one line, whatever the plant is called.
    subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn body(alert: &Alert) -> String {
    let Alert { id, kind, severity, plant, node, partition, at, text, times, .. } = alert;
    let role = alert.role.as_ref().map_or("none", |role| role.as_str());
    let at = at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    format!(
        "{text}\n\nplant: {plant}\nnode: {node}\nrole: {role}\npartition: {partition}\nkind: {kind}\nseverity: {severity}\n\
         at: {at}\ntimes: {times}\nid: {id}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::samples::takeover;
    use super::*;

    #[test]
    fn a_mail_says_in_one_line_what_it_is_about_and_has_the_alerts_id() {
        let mut alert = takeover("reader");
        alert.plant = "bott\nling".to_owned();
        assert_eq!(subject(&alert), "[bott ling] warning: takeover, role reader");
        let server = MailServer { host: "127.0.0.1".to_owned(), port: 25, security: MailSecurity::None };
        let (from, to) = ("plant@example.com".parse().unwrap(), vec!["shift@example.com".parse().unwrap()]);
        let mail = Mail::new(&Email { server, from, to, login: None }).unwrap();
        let (once, again) = (mail.message(&alert).unwrap(), mail.message(&alert).unwrap());
        let written = String::from_utf8(once.formatted()).unwrap();
        for line in [format!("Message-ID: <{}@example.com>", alert.id), "To: shift@example.com".to_owned()] {
            assert!(written.contains(&line), "{line} in {written}");
            assert!(String::from_utf8(again.formatted()).unwrap().contains(&line));
        }
        assert!(written.contains("role reader moved"), "{written}");
    }
}
