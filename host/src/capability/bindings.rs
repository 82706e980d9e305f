//! The Rust side of the WIT packages: types and traits made from `wit/`, and nothing else.
//!
//! What a guest imports is one world, because the host offers all of it to everybody. What a guest exports is one world for each
//! interface, because the host probes for each: a guest that exports no timers is a whole guest.

/// What guests import, and its types.
#[expect(missing_docs, reason = "the documentation is in the WIT packages")]
pub mod imports {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "plant:role/imports",
        imports: { default: async | trappable },
        with: { "plant:db/db.transaction": crate::capability::db::OpenTransaction },
    });
}

/// `plant:role/lifecycle`, which every guest exports.
#[expect(missing_docs, reason = "the documentation is in the WIT packages")]
pub mod lifecycle {
    wasmtime::component::bindgen!({
        path: "../wit",
        inline: "package host:lifecycle; world lifecycle { export plant:role/lifecycle@1.0.0; }",
        exports: { default: async },
    });
}

/// `plant:timer/timers`, which a guest with timers exports.
#[expect(missing_docs, reason = "the documentation is in the WIT packages")]
pub mod timers {
    wasmtime::component::bindgen!({
        path: "../wit",
        inline: "package host:timers; world timers { export plant:timer/timers@1.0.0; }",
        exports: { default: async },
        with: { "plant:types/types@1.0.0": super::imports::plant::types::types },
    });
}

/// `plant:opc/samples`, which a guest that subscribes exports.
#[expect(missing_docs, reason = "the documentation is in the WIT packages")]
pub mod samples {
    wasmtime::component::bindgen!({
        path: "../wit",
        inline: "package host:samples; world samples { export plant:opc/samples@1.0.0; }",
        exports: { default: async },
        with: {
            "plant:types/types@1.0.0": super::imports::plant::types::types,
            "plant:opc/opc@1.0.0": super::imports::plant::opc::opc,
        },
    });
}

/// `plant:opc/connections`, which a guest exports that wants to know when it is blind.
#[expect(missing_docs, reason = "the documentation is in the WIT packages")]
pub mod connections {
    wasmtime::component::bindgen!({
        path: "../wit",
        inline: "package host:connections; world connections { export plant:opc/connections@1.0.0; }",
        exports: { default: async },
        with: { "plant:types/types@1.0.0": super::imports::plant::types::types },
    });
}
