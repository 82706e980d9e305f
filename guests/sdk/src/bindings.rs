//! The code that `wit-bindgen` generates, once for everything a role imports and once for each interface that it may export.
//!
//! They are separate worlds because a component must export all of its world: a role without timers must not promise any.

/// What the host offers.
#[expect(missing_docs, reason = "generated: the WIT packages carry the documentation")]
pub mod imports {
    wit_bindgen::generate!({ path: "../../wit", world: "plant:role/imports", generate_all });
}

/// `plant:role/lifecycle`, which every role exports.
#[expect(missing_docs, reason = "generated: the WIT packages carry the documentation")]
pub mod lifecycle {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package plant:sdk-lifecycle; world lifecycle { export plant:role/lifecycle@1.0.0; }",
        pub_export_macro: true,
        export_macro_name: "export_lifecycle",
        generate_all,
    });
}

/// `plant:timer/timers`.
#[expect(missing_docs, reason = "generated: the WIT packages carry the documentation")]
pub mod timers {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package plant:sdk-timers; world timers { export plant:timer/timers@1.0.0; }",
        pub_export_macro: true,
        export_macro_name: "export_timers",
        with: { "plant:types/types@1.0.0": crate::types },
        generate_all,
    });
}

/// `plant:opc/samples`.
#[expect(missing_docs, reason = "generated: the WIT packages carry the documentation")]
pub mod samples {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package plant:sdk-samples; world samples { export plant:opc/samples@1.0.0; }",
        pub_export_macro: true,
        export_macro_name: "export_samples",
        with: { "plant:types/types@1.0.0": crate::types, "plant:opc/opc@1.0.0": crate::opc },
        generate_all,
    });
}

/// `plant:opc/connections`.
#[expect(missing_docs, reason = "generated: the WIT packages carry the documentation")]
pub mod connections {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package plant:sdk-connections; world connections { export plant:opc/connections@1.0.0; }",
        pub_export_macro: true,
        export_macro_name: "export_connections",
        with: { "plant:types/types@1.0.0": crate::types },
        generate_all,
    });
}
