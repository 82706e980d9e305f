//! What stands in the line, and how each machine's PLC speaks: the widths of its counters, the numbers of its states, its names.
//!
//! The machines differ on purpose, as those of a real line do: each is a case that a reader has to get right.

use opcua::types::{DataTypeId, Variant};

/// How wide a counter is. It wraps around to zero after its highest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 0 to 65,535: rolls over within the hour at full speed.
    Uint16,
    /// 0 to 2,147,483,647, as PackML has it.
    Int32,
    /// 0 to 4,294,967,295.
    Uint32,
    /// 0 to 2⁶⁴ − 1.
    Uint64,
}

impl Width {
    /// The value after the highest.
    #[must_use]
    pub const fn modulus(self) -> u128 {
        match self {
            Self::Uint16 => 1 << 16,
            Self::Int32 => 1 << 31,
            Self::Uint32 => 1 << 32,
            Self::Uint64 => 1 << 64,
        }
    }

    /// What a client reads for a register that holds `register`, taken modulo the width.
    #[must_use]
    pub fn variant(self, register: u64) -> Variant {
        #[expect(clippy::cast_possible_truncation, reason = "a register wraps around: that is what it is here for")]
        match self {
            Self::Uint16 => Variant::UInt16(register as u16),
            Self::Int32 => Variant::Int32((register as i32) & i32::MAX),
            Self::Uint32 => Variant::UInt32(register as u32),
            Self::Uint64 => Variant::UInt64(register),
        }
    }

    /// Its OPC UA data type.
    #[must_use]
    pub const fn data_type(self) -> DataTypeId {
        match self {
            Self::Uint16 => DataTypeId::UInt16,
            Self::Int32 => DataTypeId::Int32,
            Self::Uint32 => DataTypeId::UInt32,
            Self::Uint64 => DataTypeId::UInt64,
        }
    }
}

/// What a machine does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It could work, and has nothing to work on or nowhere to put it.
    Idle,
    /// It works.
    Running,
    /// It is out of order.
    Down,
}

/// How a machine's state node numbers its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// 4 Idle, 6 Execute, 9 Aborted.
    PackMl,
    /// 0 idle, 1 running, 4 down: a vendor's own.
    Own,
}

impl Numbers {
    /// The number of a state.
    #[must_use]
    pub const fn number(self, state: State) -> i32 {
        match (self, state) {
            (Self::PackMl, State::Idle) | (Self::Own, State::Down) => 4,
            (Self::PackMl, State::Running) => 6,
            (Self::PackMl, State::Down) => 9,
            (Self::Own, State::Idle) => 0,
            (Self::Own, State::Running) => 1,
        }
    }
}

/// One machine of the line.
#[derive(Debug)]
pub struct Station {
    /// Its code.
    pub code: &'static str,
    /// The counter of good pieces.
    pub good: Width,
    /// What that counter and the one of scrap show at the start: they have counted for years.
    pub first: (u64, u64),
    /// How its states are numbered.
    pub numbers: Numbers,
    /// Out of a million pieces, how many it spoils.
    pub scrap_per_million: u32,
    /// The name of its analogue value.
    pub value: &'static str,
    /// What that value is in.
    pub unit: &'static str,
    /// Around what it moves, and about how far.
    pub value_around: (f64, f64),
}

/// The counter of scrap is as wide on every machine.
pub const SCRAP: Width = Width::Uint32;

/// The line, in the order in which a bottle passes through it.
pub const STATIONS: [Station; 6] = [
    Station {
        code: "LOAD01",
        good: Width::Uint32,
        first: (412_905, 431),
        numbers: Numbers::PackMl,
        scrap_per_million: 1_000,
        value: "InfeedPressure",
        unit: "bar",
        value_around: (6.2, 0.1),
    },
    Station {
        code: "RINSE01",
        good: Width::Uint32,
        first: (398_120, 822),
        numbers: Numbers::PackMl,
        scrap_per_million: 2_000,
        value: "WaterTemperature",
        unit: "°C",
        value_around: (62.0, 0.8),
    },
    Station {
        code: "FILL01",
        good: Width::Uint16,
        first: (12_480, 3_120),
        numbers: Numbers::Own,
        scrap_per_million: 8_000,
        value: "FillWeight",
        unit: "g",
        value_around: (502.0, 1.5),
    },
    Station {
        code: "CAP01",
        good: Width::Int32,
        first: (1_204_377, 4_790),
        numbers: Numbers::PackMl,
        scrap_per_million: 4_000,
        value: "CapTorque",
        unit: "N·m",
        value_around: (1.85, 0.06),
    },
    Station {
        code: "LABEL01",
        good: Width::Uint32,
        first: (377_450, 3_801),
        numbers: Numbers::PackMl,
        scrap_per_million: 10_000,
        value: "LabelOffset",
        unit: "mm",
        value_around: (0.0, 0.3),
    },
    Station {
        code: "PACK01",
        good: Width::Uint64,
        first: (5_000_000_017, 188),
        numbers: Numbers::PackMl,
        scrap_per_million: 500,
        value: "GlueTemperature",
        unit: "°C",
        value_around: (165.0, 1.2),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_shows_its_highest_value_and_then_zero() {
        let highest = [
            (Width::Uint16, Variant::UInt16(65_535), Variant::UInt16(0)),
            (Width::Int32, Variant::Int32(2_147_483_647), Variant::Int32(0)),
            (Width::Uint32, Variant::UInt32(4_294_967_295), Variant::UInt32(0)),
        ];
        for (width, last, first) in highest {
            let modulus = u64::try_from(width.modulus()).unwrap();
            assert_eq!((width.variant(modulus - 1), width.variant(modulus)), (last, first));
        }
        assert_eq!(Width::Uint64.variant(u64::MAX), Variant::UInt64(u64::MAX));
    }
}
