//! The traits that a role implements, and how they become a component's exports.

use std::cell::RefCell;

use crate::Change;
use crate::opc::Sample;
use crate::types::Instant;

/// Every role. An `Err` is one sentence for the person who runs the plant.
pub trait Role: Sized {
    /// Called once, when the lease is held. An error is a failed start: the host backs off, or gives the role to another node.
    ///
    /// # Errors
    /// Why the role cannot work here.
    fn start() -> Result<Self, String>;

    /// Called once before a clean release, with a grace period. Not called when the lease is lost.
    fn stop(&mut self) {}
}

/// A role with timers; they are declared in its manifest.
pub trait Timers: Role {
    /// A timer is due. Ticks that were missed are not made up for: `missed` counts them.
    ///
    /// # Errors
    /// Why the work was not done; the host reports it, and the next tick comes all the same.
    fn on_timer(&mut self, name: &str, due: Instant, missed: u32) -> Result<(), String>;
}

/// A role that subscribes to OPC UA items.
pub trait Samples: Role {
    /// Samples have arrived, in order for each item.
    ///
    /// # Errors
    /// Why they could not be dealt with: the batch is kept, and delivered again after a pause.
    fn on_samples(&mut self, batch: &[Sample]) -> Result<(), String>;
}

/// A role that wants to know when it is blind.
pub trait Connections: Role {
    /// A connection came up or went down.
    ///
    /// # Errors
    /// Why it could not be dealt with: the change is delivered again after a pause.
    fn on_connection(&mut self, change: &Change) -> Result<(), String>;
}

/// Where a component keeps its role between calls.
#[doc(hidden)]
pub struct Slot<T>(RefCell<Option<T>>);

impl<T: Role> Slot<T> {
    /// An instance that has not started.
    #[must_use]
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Starts the role.
    ///
    /// # Errors
    /// The role's own.
    pub fn start(&self) -> Result<(), String> {
        self.0.replace(Some(T::start()?));
        Ok(())
    }

    /// Stops the role, where it has started.
    pub fn stop(&self) {
        if let Some(role) = self.0.borrow_mut().as_mut() {
            role.stop();
        }
    }

    /// Hands the role to `work`.
    ///
    /// # Errors
    /// The work's own, or that the role has not started.
    pub fn with(&self, work: impl FnOnce(&mut T) -> Result<(), String>) -> Result<(), String> {
        self.0.borrow_mut().as_mut().map_or_else(|| Err("the role has not started".to_owned()), work)
    }
}

impl<T: Role> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes a component of a role: `export_role!(Label)`, or with the handlers that it has, `export_role!(Reader: timers, samples, connections)`.
///
/// On other targets than WebAssembly it only checks that the traits are implemented.
#[macro_export]
macro_rules! export_role {
    ($role:ty $(: $($handler:ident),+ $(,)?)?) => {
        const _: () = {
            const fn is_role<T: $crate::Role>() {}
            is_role::<$role>();
            $($($crate::__check_handler!($handler $role);)+)?
        };

        #[cfg(target_family = "wasm")]
        #[expect(unsafe_code, reason = "a component's exports are symbols with fixed names")]
        const _: () = {
            ::std::thread_local! { static SLOT: $crate::Slot<$role> = const { $crate::Slot::new() }; }

            struct Exported;

            impl $crate::bindings::lifecycle::exports::plant::role::lifecycle::Guest for Exported {
                fn start() -> ::std::result::Result<(), ::std::string::String> {
                    SLOT.with($crate::Slot::start)
                }
                fn stop() {
                    SLOT.with($crate::Slot::stop);
                }
            }
            $crate::bindings::lifecycle::export_lifecycle!(Exported with_types_in $crate::bindings::lifecycle);
            $($($crate::__export_handler!($handler);)+)?
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __check_handler {
    (timers $role:ty) => {{
        const fn is<T: $crate::Timers>() {}
        is::<$role>();
    }};
    (samples $role:ty) => {{
        const fn is<T: $crate::Samples>() {}
        is::<$role>();
    }};
    (connections $role:ty) => {{
        const fn is<T: $crate::Connections>() {}
        is::<$role>();
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_handler {
    (timers) => {
        impl $crate::bindings::timers::exports::plant::timer::timers::Guest for Exported {
            fn on_timer(
                name: ::std::string::String,
                due: $crate::types::Instant,
                missed: u32,
            ) -> ::std::result::Result<(), ::std::string::String> {
                SLOT.with(|slot| slot.with(|role| $crate::Timers::on_timer(role, &name, due, missed)))
            }
        }
        $crate::bindings::timers::export_timers!(Exported with_types_in $crate::bindings::timers);
    };
    (samples) => {
        impl $crate::bindings::samples::exports::plant::opc::samples::Guest for Exported {
            fn on_samples(
                batch: ::std::vec::Vec<$crate::opc::Sample>,
            ) -> ::std::result::Result<(), ::std::string::String> {
                SLOT.with(|slot| slot.with(|role| $crate::Samples::on_samples(role, &batch)))
            }
        }
        $crate::bindings::samples::export_samples!(Exported with_types_in $crate::bindings::samples);
    };
    (connections) => {
        impl $crate::bindings::connections::exports::plant::opc::connections::Guest for Exported {
            fn on_connection(change: $crate::Change) -> ::std::result::Result<(), ::std::string::String> {
                SLOT.with(|slot| slot.with(|role| $crate::Connections::on_connection(role, &change)))
            }
        }
        $crate::bindings::connections::export_connections!(Exported with_types_in $crate::bindings::connections);
    };
}
