//! Certificates as files: `own` is this host's, `trusted` and `rejected` are servers'.
//!
//! A server's certificate that nobody has looked at lands in `rejected`; a person trusts it by moving the file. The private key is
//! never readable by others, not even for a moment: the pair is made in a directory of its own, which then takes its place.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use opcua::core::comms::url::hostname_from_url;
use opcua::crypto::{CertificateStore, X509, X509Data};
use opcua::types::{ApplicationDescription, ApplicationType, EndpointDescription};

use super::connect::APPLICATION_URI;
use crate::config::OpcConnection;

/// This host's certificate, under the pki directory.
pub(super) const OWN_CERTIFICATE: &str = "own/host.der";
const OWN_KEY: &str = "own/host.pem";
/// Ten years: nobody renews it, and a plant must not stop on its birthday.
const VALID_DAYS: u32 = 3650;

/// Where this host's certificate and key are; absolute.
pub(super) struct Own {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// This host's certificate and key: the configured ones, or the generated ones, made when they are not there yet.
pub(super) fn own(config: &OpcConnection) -> Result<Own, String> {
    let failed = |what: &str, e: std::io::Error| format!("{what} {} failed: {e}", config.pki.display());
    let pki = std::path::absolute(&config.pki).map_err(|e| failed("finding", e))?;
    let own = match &config.certificate {
        Some(certificate) => {
            let certificate = std::path::absolute(certificate).map_err(|e| failed("finding", e))?;
            Own { key: certificate.with_extension("pem"), certificate }
        }
        None => {
            let own = Own { certificate: pki.join(OWN_CERTIFICATE), key: pki.join(OWN_KEY) };
            // Connections of one host share the pair; only one of them makes it.
            static MAKING: Mutex<()> = Mutex::new(());
            let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
            if !own.certificate.exists() && !own.key.exists() {
                generate(&pki).map_err(|e| format!("no key pair could be made in {}: {e}", pki.display()))?;
            }
            own
        }
    };
    for file in [&own.certificate, &own.key] {
        if !file.exists() {
            return Err(format!(
                "{} is missing: a certificate (.der) and its key (.pem) lie side by side",
                file.display()
            ));
        }
    }
    fs::set_permissions(&own.key, fs::Permissions::from_mode(0o600))
        .map_err(|e| format!("the mode of {} could not be set to 0600: {e}", own.key.display()))?;
    Ok(own)
}

fn generate(pki: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    fs::create_dir_all(pki).map_err(text)?;
    let making = pki.join(format!("own.{}.new", std::process::id()));
    let _ = fs::remove_dir_all(&making);
    fs::DirBuilder::new().mode(0o700).create(&making).map_err(text)?;
    let description = ApplicationDescription {
        application_uri: APPLICATION_URI.into(),
        application_name: "plant host".into(),
        application_type: ApplicationType::Client,
        ..Default::default()
    };
    let mut data = X509Data::from(description);
    data.certificate_duration_days = VALID_DAYS;
    let (certificate, key) = (making.join("host.der"), making.join("host.pem"));
    CertificateStore::create_certificate_and_key(&data, true, &certificate, &key)?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).map_err(text)?;
    let own = pki.join("own");
    // Takes the place of a missing or empty `own` in one step; another process may have been faster, and then its pair stays.
    if fs::rename(&making, &own).is_err() {
        if !own.join("host.der").exists() {
            fs::rename(&key, own.join("host.pem")).map_err(text)?;
            fs::rename(&certificate, own.join("host.der")).map_err(text)?;
        }
        fs::remove_dir_all(&making).map_err(text)?;
    }
    Ok(())
}

/// Whether the server's certificate is one that a person trusts, for the address that we use.
pub(super) fn check_server(
    store: &CertificateStore,
    endpoint: &EndpointDescription,
    config: &OpcConnection,
) -> Result<(), String> {
    let address = &config.endpoint;
    let certificate = X509::from_byte_string(&endpoint.server_certificate)
        .map_err(|e| format!("{address} shows no usable certificate: {e}"))?;
    let name = CertificateStore::cert_file_name(&certificate);
    let trusted = store.trusted_certs_dir().join(&name);
    let rejected = store.rejected_certs_dir().join(&name);
    if rejected.exists() || !trusted.exists() {
        if !rejected.exists() {
            store.store_rejected_cert(&certificate)?;
        }
        return Err(format!(
            "the certificate of {address} is not trusted: if it is the right server, move \"{}\" to \"{}\"",
            rejected.display(),
            trusted.parent().unwrap_or(&trusted).display()
        ));
    }
    let host = hostname_from_url(address).map_err(|e| format!("{address} is no usable address: {e}"))?;
    certificate.is_hostname_valid(&host).map_err(|_| {
        format!("the certificate of {address} does not name {host}: use a name in it as the endpoint, or have the server's certificate renewed")
    })?;
    certificate.is_time_valid(&chrono::Utc::now()).map_err(|_| {
        format!("the certificate of {address} is not valid at this time: check both clocks, or have it renewed")
    })
}
