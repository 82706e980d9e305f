//! Small guests in the text format: each is a role whose `start` does what the test says.

/// A component that exports `plant:role/lifecycle`.
pub struct Guest<'a> {
    /// The custom section `plant:role`, where there is one.
    pub manifest: Option<&'a str>,
    /// The version of the lifecycle that it exports.
    pub lifecycle: &'a str,
    /// Fields of the component before all others: its imports.
    pub imports: &'a str,
    /// Fields of the core module before all others: its imports.
    pub core_imports: &'a str,
    /// What the core module is instantiated with.
    pub with: &'a str,
    /// The core function `start`; it answers where its result lies: 0, where everything is zero, is `ok`.
    pub start: &'a str,
}

impl Default for Guest<'_> {
    fn default() -> Self {
        let start = "i32.const 0";
        Self { manifest: None, lifecycle: "1.0.0", imports: "", core_imports: "", with: "", start }
    }
}

impl Guest<'_> {
    /// The component's bytes.
    pub fn build(&self) -> Vec<u8> {
        let manifest = self.manifest.map(|text| format!("(@custom \"plant:role\" \"{}\")", text.escape_default()));
        let Self { lifecycle, imports, core_imports, with, start, .. } = self;
        let manifest = manifest.unwrap_or_default();
        let text = format!(
            r#"(component
                {imports}
                (core module $m
                    {core_imports}
                    (memory (export "memory") 1)
                    (data (i32.const 64) "no memory")
                    (func (export "start") (result i32) {start})
                    (func (export "stop")))
                (core instance $i (instantiate $m {with}))
                (func $start (result (result (error string)))
                    (canon lift (core func $i "start") (memory (core memory $i "memory"))))
                (func $stop (canon lift (core func $i "stop")))
                (instance $lifecycle (export "start" (func $start)) (export "stop" (func $stop)))
                (export "plant:role/lifecycle@{lifecycle}" (instance $lifecycle))
                {manifest})"#
        );
        wat::parse_str(&text).unwrap()
    }
}
