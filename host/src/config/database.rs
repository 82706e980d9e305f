//! `[store]`: one file, or PostgreSQL with its standbys; passwords come from files or variables.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

use super::Store;
use super::raw::Section;

const WANTED: &str = "use \"sqlite://plant.db\" or \"postgres://USER@HOST/DATABASE\"";
const DEFAULT_FILE: &str = "plant.db";

pub(super) fn store(root: &Section<'_>, directory: &Path) -> Option<Store> {
    let Some(section) = root.section("store") else {
        return (!root.has("store")).then(|| Store::Sqlite { path: directory.join(DEFAULT_FILE) });
    };
    let password = section.text("password_file").and_then(|file| password(&section, &directory.join(file)));
    let store = one_store(&section, directory, password.as_deref());
    if matches!(store, Some(Store::Sqlite { .. })) {
        for key in ["password_file", "migrate_url_env"] {
            if section.has(key) {
                section.wrong(key, "is only for PostgreSQL, and store.url is SQLite: remove it");
            }
        }
    }
    section.finish();
    store
}

fn one_store(section: &Section<'_>, directory: &Path, password: Option<&str>) -> Option<Store> {
    let given: Vec<&str> = ["url", "urls", "url_env"].into_iter().filter(|key| section.has(key)).collect();
    match given.as_slice() {
        [] => Some(Store::Sqlite { path: directory.join(DEFAULT_FILE) }),
        ["url"] => one_url(section, "url", section.required("url", WANTED)?, directory, password),
        ["url_env"] => one_url(section, "url_env", &section.variable("url_env")?, directory, password),
        ["urls"] => {
            let urls = section.texts("urls")?;
            if urls.is_empty() {
                section.wrong("urls", "is empty: list the primary and its standbys, each as \"postgres://…\"");
                return None;
            }
            let checked = urls.iter().map(|url| postgres(section, "urls", url, password)).collect::<Vec<_>>();
            postgres_store(section, checked.into_iter().collect::<Option<_>>()?, password)
        }
        [first, .., last] => {
            section
                .wrong(last, format!("and {} are both there: keep one of url, urls and url_env", section.key(first)));
            None
        }
        [_] => None,
    }
}

fn one_url(section: &Section<'_>, key: &'static str, url: &str, at: &Path, password: Option<&str>) -> Option<Store> {
    if let Some(file) = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")) {
        if file.is_empty() || file.contains(['?', '#']) || file == ":memory:" {
            section.wrong(key, format!("is {url:?}: name a file without options, such as \"sqlite://plant.db\""));
            return None;
        }
        return Some(Store::Sqlite { path: at.join(file) });
    }
    let url = postgres(section, key, url, password)?;
    postgres_store(section, vec![url], password)
}

fn postgres_store(section: &Section<'_>, urls: Vec<String>, password: Option<&str>) -> Option<Store> {
    let migrate_url = match section.optional_variable("migrate_url_env") {
        Some(url) => Some(postgres(section, "migrate_url_env", &url, password)?),
        None => None,
    };
    Some(Store::Postgres { urls, migrate_url })
}

/// A PostgreSQL URL, with the password put in where it has none.
fn postgres(section: &Section<'_>, key: &'static str, url: &str, password: Option<&str>) -> Option<String> {
    let shown = without_password(url);
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let usable = rest.is_some_and(|rest| !rest.is_empty()) && PgConnectOptions::from_str(url).is_ok();
    if !usable {
        section.wrong(key, format!("is {shown:?}: {WANTED}"));
        return None;
    }
    let has_password = shown != url;
    match password {
        Some(_) if has_password && key != "migrate_url_env" => {
            section.wrong(key, "has a password and store.password_file is there too: keep one of the two");
            None
        }
        Some(password) if !has_password => Some(with_password(url, password)),
        _ => {
            if has_password && matches!(key, "url" | "urls") {
                section.doubtful(
                    key,
                    "has a password in it, which everybody reads who reads this file: use url_env or password_file",
                );
            }
            Some(url.to_owned())
        }
    }
}

/// Where the authority of a URL is: between `://` and the path.
fn authority(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    Some((scheme, authority, path))
}

/// The URL as it may be shown.
pub(super) fn without_password(url: &str) -> String {
    let hidden = authority(url).and_then(|(scheme, authority, path)| {
        let (login, host) = authority.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:…@{host}{path}"))
    });
    hidden.unwrap_or_else(|| url.to_owned())
}

fn with_password(url: &str, password: &str) -> String {
    let with = authority(url).and_then(|(scheme, authority, path)| {
        let (user, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://{user}:{}@{host}{path}", percent_encoded(password)))
    });
    with.unwrap_or_else(|| url.to_owned())
}

fn percent_encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn password(section: &Section<'_>, file: &PathBuf) -> Option<String> {
    let read = std::fs::read_to_string(file);
    let password = read.as_ref().map(|text| text.lines().next().unwrap_or_default().to_owned());
    match password {
        Ok(password) if !password.is_empty() => Some(password),
        Ok(_) => {
            section.wrong("password_file", "names an empty file: put the password in its first line");
            None
        }
        Err(error) => {
            section.wrong(
                "password_file",
                format!("cannot be read ({error}): name a file with the password in its first line"),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_put_into_the_url_so_that_no_character_of_it_breaks_the_url() {
        let url = with_password("postgres://plant@db.example:5433/bottling?sslmode=require", "a/b@c:d%");
        assert_eq!(url, "postgres://plant:a%2Fb%40c%3Ad%25@db.example:5433/bottling?sslmode=require");
        assert!(PgConnectOptions::from_str(&url).is_ok());
    }

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(without_password("postgres://plant:secret@db/x"), "postgres://plant:…@db/x");
        assert_eq!(without_password("postgres://plant@db/x"), "postgres://plant@db/x");
    }
}
