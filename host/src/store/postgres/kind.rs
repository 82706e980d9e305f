//! PostgreSQL's types as this store tells them apart, and their numbers and names on the wire.

use sqlx::TypeInfo;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

/// A type whose binary form is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    /// Text, and everything whose binary form is its text: varchar, bpchar, name, enums.
    Text,
    Bytes,
    Numeric,
    TimestampTz,
    Timestamp,
    Uuid,
    Json,
    Jsonb,
    Date,
    Time,
    /// A known name, an unknown form.
    Unknown,
}

impl Kind {
    /// What a type is; a domain is what it is made of.
    pub(super) fn of(info: &PgTypeInfo) -> Self {
        match info.kind() {
            PgTypeKind::Domain(base) => return Self::of(base),
            PgTypeKind::Enum(_) => return Self::Text,
            _ => {}
        }
        match info.name() {
            "BOOL" => Self::Bool,
            "INT2" => Self::Int2,
            "INT4" => Self::Int4,
            "INT8" => Self::Int8,
            "FLOAT4" => Self::Float4,
            "FLOAT8" => Self::Float8,
            "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN" | "\"CHAR\"" | "citext" | "XML" => Self::Text,
            "BYTEA" => Self::Bytes,
            "NUMERIC" => Self::Numeric,
            "TIMESTAMPTZ" => Self::TimestampTz,
            "TIMESTAMP" => Self::Timestamp,
            "UUID" => Self::Uuid,
            "JSON" => Self::Json,
            "JSONB" => Self::Jsonb,
            "DATE" => Self::Date,
            "TIME" => Self::Time,
            _ => Self::Unknown,
        }
    }

    /// The type's number in the catalogue, for an array's header.
    pub(super) fn oid(self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Bytes => 17,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text | Self::Unknown => 25,
            Self::Json => 114,
            Self::Float4 => 700,
            Self::Float8 => 701,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::TimestampTz => 1184,
            Self::Numeric => 1700,
            Self::Uuid => 2950,
            Self::Jsonb => 3802,
        }
    }

    /// The number of the type of its arrays.
    pub(super) fn array_oid(self) -> u32 {
        match self {
            Self::Json => 199,
            Self::Bool => 1000,
            Self::Bytes => 1001,
            Self::Int2 => 1005,
            Self::Int4 => 1007,
            Self::Text | Self::Unknown => 1009,
            Self::Int8 => 1016,
            Self::Float4 => 1021,
            Self::Float8 => 1022,
            Self::Timestamp => 1115,
            Self::Date => 1182,
            Self::Time => 1183,
            Self::TimestampTz => 1185,
            Self::Numeric => 1231,
            Self::Uuid => 2951,
            Self::Jsonb => 3807,
        }
    }

    /// The type's name in SQL.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Bytes => "bytea",
            Self::Int8 => "bigint",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Text | Self::Unknown => "text",
            Self::Json => "json",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Date => "date",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::TimestampTz => "timestamptz",
            Self::Numeric => "numeric",
            Self::Uuid => "uuid",
            Self::Jsonb => "jsonb",
        }
    }
}

/// A statement's parameter as the server described it.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// What it is.
    pub(super) kind: Kind,
    /// Its name, lower-case, as SQL accepts it in a CAST.
    pub(super) name: String,
    /// Its description, for the driver.
    pub(super) info: PgTypeInfo,
    /// A type of the plant's own (an enum, a domain): nothing becomes one without a CAST.
    pub(super) own: bool,
}

impl Target {
    /// From the server's description.
    pub(super) fn of(info: &PgTypeInfo) -> Self {
        let kind = Kind::of(info);
        let own = matches!(info.kind(), PgTypeKind::Enum(_) | PgTypeKind::Domain(_));
        let name = if own { format!("\"{}\"", info.name().replace('"', "\"\"")) } else { spelled(info.name()) };
        Self { kind, name, info: info.clone(), own }
    }
}

/// A built-in type's name as people write it.
pub(super) fn spelled(name: &str) -> String {
    match name {
        // The driver calls bpchar so; `char` in SQL would cut to one character.
        "CHAR" => "bpchar".to_owned(),
        name => name.to_lowercase(),
    }
}
