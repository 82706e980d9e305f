//! `host opc browse` and `host init` against an OPC UA server that is not our own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use harness::asyncua::{Asyncua, Setup};
use host::cli::arguments::{Init, Login};
use host::cli::{init, opc};
use host::config::Config;
use serde_json::json;
use tempfile::TempDir;

fn bottling() -> Asyncua {
    let mut server = Asyncua::start(Setup::default()).unwrap();
    let nodes = [
        json!({"do": "add-object", "node": "s=L1", "name": "line-1"}),
        json!({"do": "add-object", "node": "s=FILL01", "name": "FILL01", "parent": "s=L1"}),
        json!({"do": "add", "node": "s=FILL01.Good", "name": "GoodCount", "parent": "s=FILL01", "type": "UInt32", "value": 7}),
        json!({"do": "add", "node": "s=FILL01.Scrap", "name": "ScrapCount", "parent": "s=FILL01", "type": "UInt32", "value": 1}),
        json!({"do": "add", "node": "s=FILL01.State", "name": "State", "parent": "s=FILL01", "type": "Int32", "value": 4}),
        json!({"do": "add", "node": "s=FILL01.Weight", "name": "FillWeight", "parent": "s=FILL01", "type": "Double", "value": 1.5}),
        json!({"do": "add-object", "node": "s=PACK01", "name": "PACK 01", "parent": "s=L1"}),
        json!({"do": "add", "node": "i=71", "name": "ProdProcessedCount", "parent": "s=PACK01", "type": "Int32", "value": 3}),
        json!({"do": "add", "node": "i=72", "name": "ProdDefectiveCount", "parent": "s=PACK01", "type": "Int32", "value": 0}),
        json!({"do": "add", "node": "i=73", "name": "StateCurrent", "parent": "s=PACK01", "type": "Int32", "value": 6}),
        json!({"do": "add", "node": "i=74", "name": "Recipe", "parent": "s=PACK01", "type": "String", "value": "cola"}),
    ];
    for node in nodes {
        server.command(&node).unwrap();
    }
    server
}

fn arguments(from: String, directory: &TempDir) -> Init {
    let (output, login) = (directory.path().join("plant.toml"), Login::default());
    Init { from, login, output, yes: true, force: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn init_writes_a_plant_that_passes_the_check_and_overwrites_nothing_unasked() {
    let server = bottling();
    let directory = TempDir::new().unwrap();
    init::run(arguments(server.url(), &directory)).await.unwrap();
    let file = directory.path().join("plant.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let config = Config::load(&file).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let machines: Vec<_> = config
        .machines
        .iter()
        .map(|m| {
            let node =
                |counter: &Option<host::config::Counter>| counter.as_ref().map(|c| c.node.clone()).unwrap_or_default();
            (m.code.as_str(), m.line.as_str(), node(&m.good), node(&m.scrap), m.state.is_some())
        })
        .collect();
    let id = |rest: &str| format!("nsu=urn:plant:test;{rest}");
    assert_eq!(
        machines,
        [
            ("FILL01", "line-1", id("s=FILL01.Good"), id("s=FILL01.Scrap"), false),
            ("PACK-01", "line-1", id("i=71"), id("i=72"), true),
        ]
    );
    assert!(
        text.contains("# The state is 4 now.")
            && text.contains("# state = { node = \"nsu=urn:plant:test;s=FILL01.State\""),
        "an unknown state is left to a person:\n{text}"
    );
    assert_eq!(
        config.tags.iter().map(|t| (t.name.as_str(), t.node.clone())).collect::<Vec<_>>(),
        [("FILL01.FillWeight", id("s=FILL01.Weight"))]
    );

    let again = init::run(arguments(server.url(), &directory)).await.unwrap_err().to_string();
    assert!(again.contains("exists already: pass --force"), "{again}");
    std::fs::write(&file, "mine").unwrap();
    init::run(Init { force: true, ..arguments(server.url(), &directory) }).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn browsing_finds_nodes_by_id_and_by_path_with_type_and_value() {
    let server = bottling();
    let config = opc::address(&server.url(), &Login::default(), Path::new(".")).unwrap();
    for start in ["nsu=urn:plant:test;s=FILL01", "/line-1/FILL01"] {
        let tree = opc::look(&config, Some(start), 1).await.unwrap();
        let found: Vec<_> = tree
            .nodes
            .iter()
            .map(|n| {
                let variable = n.variable.as_ref().unwrap();
                format!("{} {} {} {}", n.name, n.node, variable.data_type, opc::with_status(&variable.now))
            })
            .collect();
        assert_eq!(
            found,
            [
                "GoodCount nsu=urn:plant:test;s=FILL01.Good UInt32 7",
                "ScrapCount nsu=urn:plant:test;s=FILL01.Scrap UInt32 1",
                "State nsu=urn:plant:test;s=FILL01.State Int32 4",
                "FillWeight nsu=urn:plant:test;s=FILL01.Weight Double 1.5",
            ]
        );
    }
    let lost = opc::look(&config, Some("/line-9"), 1).await.unwrap_err().to_string();
    assert!(lost.contains("\"/line-9\" leads nowhere"), "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_one_clear_sentence() {
    let port = harness::process::free_port().unwrap();
    let directory = TempDir::new().unwrap();
    let error = init::run(arguments(format!("opc.tcp://127.0.0.1:{port}"), &directory)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("opc.tcp://127.0.0.1:{port} is not reachable: is the server running and the port right?")
    );
    assert!(!directory.path().join("plant.toml").exists());
}
