//! The API on a real socket over real databases: one program, so that it is linked once.

#[cfg(test)]
mod plant;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod status;
#[cfg(test)]
mod writes;
