//! Looks around in a server's address space, for people who set up a plant.
