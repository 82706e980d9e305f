//! Log macros: `info!("{n} items")`, `warn!("no answer"; "connection" => name)`. Role, partition, node and epoch are added by the host.

/// Writes a line at a level; the others are shorthand for it.
#[macro_export]
macro_rules! write_log {
    ($level:ident, $format:literal $(, $argument:expr)* $(; $($key:literal => $value:expr),+)?) => {
        $crate::log::log(
            $crate::log::Level::$level,
            &::std::format!($format $(, $argument)*),
            &[$($((::std::string::String::from($key), ::std::string::ToString::to_string(&$value))),+)?],
        )
    };
}

/// Something that only its author wants to see.
#[macro_export]
macro_rules! debug { ($($rest:tt)*) => { $crate::write_log!(Debug, $($rest)*) }; }

/// Something that an operator may want to see.
#[macro_export]
macro_rules! info { ($($rest:tt)*) => { $crate::write_log!(Info, $($rest)*) }; }

/// Something that an operator should look at when there is time.
#[macro_export]
macro_rules! warn { ($($rest:tt)*) => { $crate::write_log!(Warn, $($rest)*) }; }

/// Something that does not work.
#[macro_export]
macro_rules! error { ($($rest:tt)*) => { $crate::write_log!(Error, $($rest)*) }; }
