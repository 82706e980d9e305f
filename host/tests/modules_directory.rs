//! Which modules a node finds, which it refuses and with which words, and that one bad module stops no other.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod guests;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use guests::Guest;
use host::cli::role::list;
use host::config::{Limits, Role};
use host::engine::{Compiler, Engine};
use host::identity::RoleName;
use host::role::bundled::{Bundled, Roles};
use host::role::directory::{Catalogue, Directory};
use host::role::module::Origin;
use serde_json::{Value, json};
use wasmtime::component::Linker;

const LABEL: &str = "name = \"label\"\nversion = \"1.2.0\"\n";
const READER: &str = "name = \"reader\"\nversion = \"1.0.0\"\n";

struct Plant {
    folder: tempfile::TempDir,
    engine: Engine,
    roles: BTreeMap<RoleName, Role>,
    bundled: Vec<u8>,
    dev: bool,
}

impl Plant {
    /// A folder for modules, and a bundled `reader`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::with_compiler(&folder.path().join("cache"), Compiler::InProcess).unwrap();
        fs::create_dir(folder.path().join("guests")).unwrap();
        let bundled = Guest { manifest: Some(READER), ..Guest::default() }.build();
        Self { folder, engine, roles: BTreeMap::new(), bundled, dev: false }
    }

    fn put(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join("guests").join(file), bytes).unwrap();
    }

    fn role(&mut self, name: &str, sha256: Option<&str>, config: Value) {
        let role = Role {
            module: name.to_owned(),
            sha256: sha256.map(str::to_owned),
            partitions: vec![String::new()],
            config,
            limits: Limits::default(),
            timers: BTreeMap::new(),
        };
        self.roles.insert(name.parse().unwrap(), role);
    }

    async fn load(&self, only_used: bool) -> Catalogue {
        let modules = [Bundled { name: "reader", wasm: &self.bundled }];
        let bundled = Roles { names: &["reader", "floor"], modules: &modules };
        let guests = self.folder.path().join("guests");
        let directory = Directory { path: Some(&guests), bundled, roles: &self.roles, dev: self.dev, only_used };
        let mut linker = Linker::<()>::new(self.engine.wasmtime());
        let mut log = linker.instance("plant:log/log@1.0.0").unwrap();
        log.func_wrap("log", |_, (_line,): (String,)| Ok(())).unwrap();
        directory.load(&self.engine, &linker).await
    }

    async fn reason(&self, name: &str) -> String {
        match find(&self.load(false).await, name) {
            Err(refusal) => refusal,
            Ok(origin) => panic!("{name} from {origin} was not refused"),
        }
    }

    fn for_role(&self, catalogue: &Catalogue, name: &str) -> Result<String, String> {
        let name: RoleName = name.parse().unwrap();
        catalogue.for_role(&name, &self.roles[&name]).map(|module| module.sha256.clone())
    }
}

/// Where a module of the catalogue comes from, or why it is refused.
fn find(catalogue: &Catalogue, name: &str) -> Result<Origin, String> {
    let (_, found) = catalogue.iter().find(|(known, _)| *known == name).unwrap();
    found.as_ref().map(|module| module.origin.clone()).map_err(|refusal| refusal.reason.clone())
}

fn label() -> Guest<'static> {
    Guest { manifest: Some(LABEL), ..Guest::default() }
}

fn importing(import: &str, functions: &str) -> Vec<u8> {
    let imports = format!("(import \"{import}\" (instance {functions}))");
    Guest { imports: &imports, ..label() }.build()
}

fn file(plant: &Plant, name: &str) -> Origin {
    Origin::File(plant.folder.path().join("guests").join(name))
}

#[tokio::test]
async fn a_bad_module_is_refused_by_name_and_the_others_go_on() {
    let plant = Plant::new();
    let good = label().build();
    plant.put("label.wasm", &good);
    plant.put("a-garbage.wasm", "this is no module");
    plant.put("b-core.wasm", wat::parse_str("(module)").unwrap());
    // In its core module, and one byte before its end.
    plant.put("c-cut.wasm", &good[..40]);
    plant.put("c-last.wasm", &good[..good.len() - 1]);
    plant.put("d-empty.wasm", "");
    plant.put("e-later.wasm", b"\0asm\x63\x00\x02\x00");
    plant.put("notes.txt", "not a module at all");
    let catalogue = plant.load(false).await;
    let reason = |name| find(&catalogue, name).unwrap_err();
    assert_eq!(reason("a-garbage"), "it is no WebAssembly: put a component here");
    assert!(reason("b-core").starts_with("it is a core module and must be a component: "), "{}", reason("b-core"));
    assert!(reason("c-cut").starts_with("it is damaged or cut short: "), "{}", reason("c-cut"));
    assert!(reason("c-last").starts_with("it is damaged or cut short: "), "{}", reason("c-last"));
    assert_eq!(reason("d-empty"), "the file is empty: build it again");
    assert!(reason("e-later").starts_with("it is WebAssembly of an unknown version"), "{}", reason("e-later"));
    assert_eq!(find(&catalogue, "label"), Ok(file(&plant, "label.wasm")));
    assert_eq!(find(&catalogue, "reader"), Ok(Origin::Bundled));
    assert_eq!(catalogue.iter().count(), 8);

    let shown = list(&catalogue);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("label").contains("1.2.0") && line("label").ends_with("runnable"), "{shown}");
    assert!(line("reader").contains("bundled") && line("b-core").contains("refused: it is a core module"), "{shown}");
}

#[tokio::test]
async fn a_module_without_the_lifecycle_or_with_another_one_is_refused() {
    let plant = Plant::new();
    let manifest = LABEL.escape_default();
    plant.put("label.wasm", wat::parse_str(format!("(component (@custom \"plant:role\" \"{manifest}\"))")).unwrap());
    assert!(plant.reason("label").await.starts_with("it does not export `plant:role/lifecycle@1.0.0`"));
    plant.put("label.wasm", Guest { lifecycle: "2.0.0", ..label() }.build());
    assert!(plant.reason("label").await.starts_with("it does not export `plant:role/lifecycle@1.0.0`"));
    let wrong = format!(
        r#"(component (instance $l) (export "plant:role/lifecycle@1.0.0" (instance $l)) (@custom "plant:role" "{manifest}"))"#
    );
    plant.put("label.wasm", wat::parse_str(wrong).unwrap());
    assert!(plant.reason("label").await.starts_with("its `plant:role/lifecycle` has not the functions"));
    plant.put("label.wasm", Guest { lifecycle: "1.4.0", ..label() }.build());
    assert!(find(&plant.load(false).await, "label").is_ok());
}

#[tokio::test]
async fn an_import_that_the_host_does_not_have_is_named_with_what_it_has() {
    let plant = Plant::new();
    plant.put("label.wasm", importing("plant:log/log@1.0.0", r#"(export "log" (func (param "line" string)))"#));
    assert!(find(&plant.load(false).await, "label").is_ok());

    plant.put("label.wasm", importing("acme:mill/mill@1.0.0", r#"(export "grind" (func))"#));
    let reason = plant.reason("label").await;
    let wanted = "it imports `acme:mill/mill@1.0.0`, which this host does not have: it has plant:lease/lease@1.0.0, ";
    assert!(reason.starts_with(wanted), "{reason}");

    plant.put("label.wasm", importing("plant:log/log@2.0.0", r#"(export "log" (func (param "line" string)))"#));
    let reason = plant.reason("label").await;
    let wanted = "it imports `plant:log/log@2.0.0` and this host has `plant:log/log@1.0.0`, which does not fit: use a newer host";
    assert!(reason.starts_with(wanted), "{reason}");

    plant.put("label.wasm", importing("plant:log/log@1.1.0", r#"(export "flush" (func))"#));
    let reason = plant.reason("label").await;
    assert!(reason.contains("`flush`") && reason.contains("this host has `plant:log/log@1.0.0`"), "{reason}");
}

#[tokio::test]
async fn a_manifest_may_lie_beside_a_module_and_is_then_part_of_its_identity() {
    let plant = Plant::new();
    plant.put("label.wasm", Guest::default().build());
    assert!(plant.reason("label").await.starts_with("it has no manifest: "));
    let mut hashes = Vec::new();
    for manifest in [LABEL, "name = \"label\"\nversion = \"1.3.0\"\n"] {
        plant.put("label.toml", manifest);
        let catalogue = plant.load(false).await;
        let (_, module) = catalogue.iter().find(|(name, _)| *name == "label").unwrap();
        hashes.push(module.as_ref().unwrap().sha256.clone());
    }
    assert_ne!(hashes[0], hashes[1]);

    plant.put("label.toml", "name = \"labels\"\nversion = \"1.2.0\"\n");
    let reason = plant.reason("label").await;
    assert_eq!(reason, "its manifest calls it \"labels\" and its file \"label\": give both one name");
    plant.put("label.toml", "name = \"label\"\nversion = \"1.2.0\"\ncolour = \"red\"\n");
    assert!(plant.reason("label").await.contains("unknown field `colour`"));
}

#[tokio::test]
async fn a_file_takes_the_place_of_a_bundled_role_only_when_that_was_said() {
    let mut plant = Plant::new();
    plant.put("reader.wasm", &plant.bundled);
    let catalogue = plant.load(false).await;
    assert_eq!((find(&catalogue, "reader"), catalogue.warnings), (Ok(Origin::Bundled), Vec::new()));

    plant.put("reader.wasm", Guest { manifest: Some(READER), start: "nop i32.const 0", ..Guest::default() }.build());
    let catalogue = plant.load(false).await;
    assert_eq!(find(&catalogue, "reader"), Ok(Origin::Bundled));
    let warning = catalogue.warnings.join("\n");
    assert!(warning.contains("reader.wasm is ignored, since reader is a bundled role: "), "{warning}");
    let its = warning.split('"').nth(1).unwrap().to_owned();
    assert_eq!(its.len(), 64, "{warning}");

    plant.role("reader", Some(&its.to_uppercase()), Value::Null);
    let catalogue = plant.load(false).await;
    assert_eq!(find(&catalogue, "reader"), Ok(file(&plant, "reader.wasm")));
    assert_eq!(plant.for_role(&catalogue, "reader"), Ok(its));

    plant.role("reader", None, Value::Null);
    plant.dev = true;
    assert_eq!(find(&plant.load(false).await, "reader"), Ok(file(&plant, "reader.wasm")));
}

#[tokio::test]
async fn a_file_that_goes_by_the_name_of_a_role_the_host_was_built_without_is_refused_until_it_is_pinned() {
    let mut plant = Plant::new();
    plant.put("floor.wasm", Guest { manifest: Some("name = \"floor\"\nversion = \"1\""), ..Guest::default() }.build());
    let reason = plant.reason("floor").await;
    assert!(
        reason.starts_with("floor is a role that comes with the host, and this one was built without it"),
        "{reason}"
    );
    let its = reason.split('"').nth(1).unwrap().to_owned();
    plant.role("floor", Some(&its), Value::Null);
    assert_eq!(plant.for_role(&plant.load(false).await, "floor"), Ok(its));
}

#[tokio::test]
async fn a_module_that_is_not_the_pinned_one_is_refused_with_both_hashes() {
    let mut plant = Plant::new();
    plant.put("label.wasm", label().build());
    plant.role("label", None, Value::Null);
    let its = plant.for_role(&plant.load(false).await, "label").unwrap();
    let pinned = "0".repeat(64);
    plant.role("label", Some(&pinned), Value::Null);
    let error = plant.for_role(&plant.load(false).await, "label").unwrap_err();
    assert!(error.contains(&format!("`roles.label.sha256` is {pinned} and the module")), "{error}");
    assert!(error.contains(&format!("has {its}: ")), "{error}");
}

#[tokio::test]
async fn a_role_hears_of_a_missing_or_refused_module_and_of_a_wrong_configuration() {
    let mut plant = Plant::new();
    let schema = "[config.schema]\nrequired = [\"printer\"]\n";
    let manifest = format!("{LABEL}{schema}");
    plant.put("label.wasm", Guest { manifest: Some(&manifest), ..Guest::default() }.build());
    plant.put("broken.wasm", "");
    plant.role("label", None, json!({}));
    plant.role("broken", None, Value::Null);
    plant.role("absent", None, Value::Null);
    let catalogue = plant.load(false).await;
    let error = |name| plant.for_role(&catalogue, name).unwrap_err();
    assert!(error("label").starts_with("role label cannot run: `config` is not what the module label 1.2.0 wants: "));
    assert!(error("broken").contains("is refused: the file is empty"), "{}", error("broken"));
    assert!(
        error("absent").contains("there is no module \"absent\" (found: broken, label, reader)"),
        "{}",
        error("absent")
    );
}

#[tokio::test]
async fn a_role_hears_of_a_timer_that_its_module_does_not_have() {
    let mut plant = Plant::new();
    plant.put("label.wasm", label().build());
    plant.role("label", None, Value::Null);
    for role in plant.roles.values_mut() {
        role.timers.insert("tack".to_owned(), std::time::Duration::from_secs(1));
    }
    let error = plant.for_role(&plant.load(false).await, "label").unwrap_err();
    assert!(
        error.starts_with("role label cannot run: `roles.label.timers.tack` is no timer of module label, which has: "),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_loads_only_what_its_roles_use() {
    let mut plant = Plant::new();
    plant.put("label.wasm", label().build());
    plant.role("label", None, Value::Null);
    let catalogue = plant.load(true).await;
    assert_eq!(catalogue.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["label"]);
}

#[tokio::test]
async fn a_folder_that_is_not_there_holds_no_modules() {
    let plant = Plant::new();
    let roles = BTreeMap::new();
    let path = Some(Path::new("/nonexistent/guests"));
    let directory =
        Directory { path, bundled: Roles { names: &[], modules: &[] }, roles: &roles, dev: false, only_used: false };
    let catalogue = directory.load(&plant.engine, &Linker::<()>::new(plant.engine.wasmtime())).await;
    assert_eq!((catalogue.iter().count(), catalogue.warnings.len()), (0, 0));
}
