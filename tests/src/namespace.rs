//! A network of its own for one node, with a cable that can be pulled: a network namespace, and a pair of virtual interfaces to it.
//!
//! A cable that is pulled says no goodbye: neither side's kernel is told, and packets are lost in silence. That is what closing a proxy
//! cannot show.

use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, bail};

/// So many were made by this process: each has a network of its own.
static MADE: AtomicU8 = AtomicU8::new(0);

/// A namespace with its cable; both are gone when this is dropped.
pub struct Namespace {
    name: String,
    cable: String,
    network: String,
}

impl Namespace {
    /// Makes one; where this machine or user can not, inside, why.
    ///
    /// # Errors
    /// When it was begun and not finished.
    pub fn new() -> anyhow::Result<Result<Self, String>> {
        let (id, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (name, cable) = (format!("plant-{id}-{number}"), format!("pl{id}x{number}"));
        // Of the range for tests of networks, which no real one uses; by the process, since several tests run at once.
        let network = format!("198.{}.{}.{}", 18 + (id >> 14) % 2, (id >> 6) % 256, (id % 64) * 4);
        if let Err(refused) = ip(&["netns", "add", &name]) {
            return Ok(Err(format!("no network namespace can be made: {refused:#}")));
        }
        let namespace = Self { name, cable, network };
        namespace.plug_in()?;
        Ok(Ok(namespace))
    }

    fn plug_in(&self) -> anyhow::Result<()> {
        let (name, near, far) = (self.name.as_str(), self.cable.as_str(), format!("{}n", self.cable));
        let (here, there) = (format!("{}/30", self.near()), format!("{}/30", self.far()));
        ip(&["link", "add", near, "type", "veth", "peer", "name", &far, "netns", name])?;
        ip(&["address", "add", &here, "dev", near])?;
        ip(&["link", "set", near, "up"])?;
        ip(&["-n", name, "address", "add", &there, "dev", &far])?;
        ip(&["-n", name, "link", "set", &far, "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])
    }

    fn address(&self, more: u32) -> String {
        let (net, last) = self.network.rsplit_once('.').unwrap_or_default();
        format!("{net}.{}", last.parse::<u32>().unwrap_or(0) + more)
    }

    /// The address of this side, which both sides reach.
    #[must_use]
    pub fn near(&self) -> String {
        self.address(1)
    }

    /// The address of the other side.
    #[must_use]
    pub fn far(&self) -> String {
        self.address(2)
    }

    /// What `ip` is told before a command that runs there.
    #[must_use]
    pub fn inside(&self) -> [&str; 3] {
        ["netns", "exec", &self.name]
    }

    /// Pulls the cable: whatever is sent is lost, and nobody is told.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut(&self) -> anyhow::Result<()> {
        // The far end stays up, with its addresses and routes: a switch between the two has lost its power.
        ip(&["link", "set", &self.cable, "down"])
    }

    /// Puts it back.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn mend(&self) -> anyhow::Result<()> {
        ip(&["link", "set", &self.cable, "up"])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The cable goes with the namespace.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let ran = Command::new("ip").args(arguments).output().context("cannot start ip (of iproute2)")?;
    if !ran.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&ran.stderr).trim());
    }
    Ok(())
}
