//! What guests may do: one folder for each WIT package, all of one shape.
