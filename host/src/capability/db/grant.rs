//! What a role may do with the database.
//!
//! Until roles are granted tables one by one, the roles that come with the host may use the plant's database and no other role may.

/// One role's grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// Nothing: every `begin` is refused.
    Nothing,
    /// The plant's tables.
    Plant,
}

impl Grant {
    /// Whether a transaction may be opened.
    ///
    /// # Errors
    /// The sentence that the guest is told.
    pub fn check(self) -> Result<(), String> {
        match self {
            Self::Plant => Ok(()),
            Self::Nothing => {
                Err("this role has no grant for the database: only the roles that come with the host have one; \
                 keep the role's data in its configuration or its log"
                    .to_owned())
            }
        }
    }
}
