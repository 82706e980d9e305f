//! Guests that misbehave beside a reader that counts: it counts on, exactly and on time, and each of them ends by itself with its reason.

use std::time::{Duration, Instant};

use anyhow::Context;
use harness::node::host;
use harness::plant::{books, head, line, role, text, total, wait_until_booked, wait_until_read, wait_until_reading};
use harness::process::{probe, wait_until};
use harness::{Node, Plant, Simulator};

/// While neighbours misbehave, the books may stand still for so long at most: a slow machine needs much less, a stalled host for ever.
const ON_TIME: Duration = Duration::from_secs(5);

#[test]
fn a_guest_that_loops_and_one_that_eats_memory_end_alone_and_the_reader_counts_on_time() -> anyhow::Result<()> {
    let roles = "\n[roles.looper]\nmodule = \"probe\"\nconfig = { mode = \"loop-in-timer\" }\nlimits = { call = \"1s\" }\n\
                 \n[roles.eater]\nmodule = \"probe\"\nconfig = { mode = \"eat-memory\" }\nlimits = { memory = \"32MiB\" }\n";
    let simulator = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = plant_with(&simulator, roles)?;
    plant.with_module("probe", &probe()?)?;
    let node = plant.node("a")?;
    wait_until_reading(&node, "a")?;
    wait_until_read(&node, 12)?;
    simulator.resume()?;

    ends_in_backoff(&node, "looper", "took longer than 1s")?;
    ends_in_backoff(&node, "eater", "of memory and may have 32 MiB")?;
    let longest = longest_pause(&node, Duration::from_secs(6))?;
    println!("the books stood still for {longest:?} at most");
    assert!(longest < ON_TIME, "the books stood still for {longest:?}");
    // They were tried again meanwhile, and the reader was not.
    let log = node.log();
    let ended = |role: &str| log.lines().filter(|l| l.contains("its instance ended") && l.contains(role)).count();
    assert!(ended("looper") > 1 && ended("eater") > 1, "{log}");
    assert_eq!(ended("role=reader"), 0, "{log}");
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)
}

#[test]
fn modules_that_are_none_are_refused_by_name_and_the_reader_counts() -> anyhow::Result<()> {
    let wrong = [
        ("corrupt", "it is no WebAssembly"),
        ("core", "it is a core module and must be a component"),
        ("empty", "the file is empty"),
        ("cut", "it is damaged or cut short"),
        ("stranger", "it imports `acme:teleport/beam@1.0.0`, which this host does not have"),
    ];
    let roles: String = wrong.iter().map(|(name, _)| format!("\n[roles.{name}]\n")).collect();
    let simulator = Simulator::start(&["--speed", "20", "--paused"])?;
    let plant = plant_with(&simulator, &roles)?;
    let folder = plant.guests()?;
    std::fs::write(folder.join("corrupt.wasm"), "this is no module")?;
    std::fs::write(folder.join("core.wasm"), wat::parse_str("(module)")?)?;
    std::fs::write(folder.join("empty.wasm"), "")?;
    let whole = std::fs::read(probe()?)?;
    std::fs::write(folder.join("cut.wasm"), &whole[..whole.len() / 2])?;
    std::fs::write(folder.join("stranger.wasm"), wat::parse_str(STRANGER)?)?;
    std::fs::write(folder.join("stranger.toml"), "name = \"stranger\"\nversion = \"1.0.0\"\n")?;

    let listed = host(plant.path(), &["role", "list"])?;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let line = |name: &str| listed.output.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("reader").ends_with("runnable"), "{}", listed.output);

    let node = plant.node("a")?;
    let log = node.log();
    for (name, reason) in wrong {
        let reason = format!("refused: {reason}");
        assert!(line(name).contains(&reason), "{name}: {}", listed.output);
        let said = log.lines().find(|line| line.contains(&format!("role {name} cannot run")));
        assert!(said.is_some_and(|line| line.contains(&reason)), "{name}: {log}");
        let state = text(&role(&node, name)?, "state").to_owned();
        assert!(state != "running" && state != "promoting", "{name} is {state}");
    }
    wait_until_reading(&node, "a")?;
    wait_until_read(&node, 12)?;
    simulator.resume()?;
    wait_until("counts go on", Duration::from_secs(30), || Ok(total(&books(&node)?) > 50))?;
    simulator.pause()?;
    wait_until_booked(&node, &simulator.truth()?)
}

/// A role in everything but what it wants of the host.
const STRANGER: &str = r#"(component
    (import "acme:teleport/beam@1.0.0" (instance $beam (export "up" (func))))
    (core module $m
        (func (export "start") (result i32) i32.const 0)
        (func (export "stop"))
        (memory (export "memory") 1))
    (core instance $i (instantiate $m))
    (func $start (result (result (error string))) (canon lift (core func $i "start") (memory (core memory $i "memory"))))
    (func $stop (canon lift (core func $i "stop")))
    (instance $lifecycle (export "start" (func $start)) (export "stop" (func $stop)))
    (export "plant:role/lifecycle@1.0.0" (instance $lifecycle)))"#;

fn plant_with(simulator: &Simulator, roles: &str) -> anyhow::Result<Plant> {
    Plant::from_text(&(head("sqlite://plant.db", &simulator.url(), "", None) + roles + &line("")), 0)
}

fn ends_in_backoff(node: &Node, name: &str, reason: &str) -> anyhow::Result<()> {
    wait_until(&format!("{name} is in backoff since it {reason}"), Duration::from_secs(60), || {
        let role = role(node, name)?;
        Ok(text(&role, "state") == "backoff" && text(&role, "reason").contains(reason))
    })
    .with_context(|| format!("{:?}\n{}", role(node, name), node.log()))
}

/// The longest time within `during` that the books stood still.
fn longest_pause(node: &Node, during: Duration) -> anyhow::Result<Duration> {
    let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    let mut booked = total(&books(node)?);
    while start.elapsed() < during {
        let now = total(&books(node)?);
        if now > booked {
            (booked, last) = (now, Instant::now());
        }
        longest = longest.max(last.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(longest)
}
