//! Values that go to and come from a database, in the shapes of `plant:db`.

/// One parameter or one column's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// A truth value.
    Boolean(bool),
    /// A whole number of up to 64 bits, signed.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An exact number, as text.
    Decimal(String),
    /// Nanoseconds since the Unix epoch, UTC.
    Timestamp(i64),
    /// A UUID: its high and low 64 bits.
    Uuid(u64, u64),
    /// JSON text.
    Json(String),
    /// Type name and text form of anything else.
    Other(String, String),
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The database's name for its type.
    pub type_name: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rowset {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a value for every column.
    pub rows: Vec<Vec<Value>>,
}

/// Many values of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Truth values.
    Booleans(Vec<bool>),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Reals(Vec<f64>),
    /// Exact numbers, as text.
    Decimals(Vec<String>),
    /// Texts.
    Texts(Vec<String>),
    /// Nanoseconds since the Unix epoch, UTC.
    Timestamps(Vec<i64>),
    /// Values of any kinds.
    Values(Vec<Value>),
    /// Type name and text forms of anything else.
    Other(String, Vec<String>),
}

/// One parameter's values for many runs of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnData {
    /// A value for each run.
    pub values: Array,
    /// The positions that are NULL; their value in `values` is ignored.
    pub nulls: Vec<u32>,
}

/// A statement's parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Params {
    /// Run once.
    Row(Vec<Value>),
    /// Run once for each position.
    Columns(Vec<ColumnData>),
}

/// A statement with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// SQL with `$1`, `$2`, …
    pub sql: String,
    /// What they stand for.
    pub params: Params,
}
