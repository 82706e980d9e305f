//! Proves that every rule of the lease protocol has a test: each rule is broken in turn, in the SQL that decides, and the tests of
//! the leases have to notice.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};

use crate::{layout, test};

/// What breaks one rule: its name, how the modules begin whose tests are asked first, and a text that stands once in the migration with
/// what stands there instead.
type Mutant = (&'static str, &'static str, &'static str, &'static str);

/// The tests of the leases.
const SUITES: &str = "binary(lease_rules) + binary(lease_postgres)";

const MIGRATION: &str = "migrations/postgres/0001_leases.sql";

const MUTANTS: [Mutant; 42] = [
    ("the fence locks its row", "commit", "AND f.boot_id = p_boot\n        FOR SHARE;", "AND f.boot_id = p_boot;"),
    ("the fence compares the boot", "commit", "AND f.epoch = p_epoch AND f.boot_id = p_boot", "AND f.epoch = p_epoch"),
    (
        "the fence compares the epoch",
        "commit",
        "f.timeline = p_timeline AND f.epoch = p_epoch AND",
        "f.timeline = p_timeline AND",
    ),
    (
        "the fence compares the lease's boot",
        "commit",
        "AND l.boot_id = p_boot AND l.epoch = p_epoch AND l.expires_at > clock_timestamp();",
        "AND l.epoch = p_epoch AND l.expires_at > clock_timestamp();",
    ),
    (
        "the fence compares the lease's epoch",
        "commit",
        "AND l.boot_id = p_boot AND l.epoch = p_epoch AND l.expires_at > clock_timestamp();",
        "AND l.boot_id = p_boot AND l.expires_at > clock_timestamp();",
    ),
    (
        "nothing is granted against what people want",
        "placing",
        "ELSIF plant_barred(p_role, p_partition, p_node) IS NOT NULL THEN",
        "ELSIF false THEN",
    ),
    ("a hold bars", "placing", "WHEN p.held_until > clock_timestamp() THEN 'hold'", "WHEN false THEN 'hold'"),
    ("a pin bars the others", "placing", "WHEN p.pinned_to <> p_node THEN 'pin'", "WHEN false THEN 'pin'"),
    (
        "a move ends in time",
        "placing",
        "p.moved_to <> p_node AND p.move_until > clock_timestamp() AND",
        "p.moved_to <> p_node AND",
    ),
    (
        "a move is over once it was taken",
        "placing",
        "t.to_node = p.moved_to AND t.taken_at >= p.moved_at\n",
        "t.to_node = p.moved_to AND false\n",
    ),
    (
        "the fence raises",
        "commit",
        "IF NOT FOUND THEN\n        RAISE EXCEPTION 'lease-lost: % is not at",
        "IF false THEN\n        RAISE EXCEPTION 'lease-lost: % is not at",
    ),
    ("the fence asks for the timeline", "histories", "IF plant_timeline() <> p_timeline THEN", "IF false THEN"),
    (
        "the fence looks at the expiry",
        "commit",
        "AND l.boot_id = p_boot AND l.epoch = p_epoch AND l.expires_at > clock_timestamp();",
        "AND l.boot_id = p_boot AND l.epoch = p_epoch;",
    ),
    (
        "the fence looks at the clock at the commit",
        "commit",
        "AND l.epoch = p_epoch AND l.expires_at > clock_timestamp();",
        "AND l.epoch = p_epoch AND l.expires_at > now();",
    ),
    (
        "every acquisition raises the epoch",
        "acquire",
        "epoch := greatest(fence.epoch, lease.epoch, p_at_least) + 1;",
        "epoch := greatest(fence.epoch, lease.epoch, p_at_least);",
    ),
    (
        "epochs go on from what the node has seen",
        "histories",
        "greatest(fence.epoch, lease.epoch, p_at_least) + 1",
        "greatest(fence.epoch, lease.epoch) + 1",
    ),
    (
        "epochs go on from the fence",
        "hold_back",
        "greatest(fence.epoch, lease.epoch, p_at_least) + 1",
        "greatest(lease.epoch, p_at_least) + 1",
    ),
    (
        "a hold-back is never lowered",
        "hold_back",
        "fence.effects_not_before := greatest(fence.effects_not_before, instant + length);",
        "fence.effects_not_before := instant + length;",
    ),
    (
        "a hold-back counts from the takeover",
        "hold_back",
        "greatest(fence.effects_not_before, instant + length);",
        "greatest(fence.effects_not_before, lease.renewed_at + length);",
    ),
    (
        "an unclean takeover holds effects back",
        "hold_back",
        "IF unclean AND p_lease_ms IS NOT NULL THEN",
        "IF false THEN",
    ),
    (
        "a missing lease is an unknown holder",
        "hold_back",
        "> 0 THEN 'expiry' ELSE 'start' END;\n",
        "> 0 THEN 'expiry' ELSE 'start' END;\n        unclean := fence.epoch = 0;\n",
    ),
    (
        "another history ends nothing cleanly",
        "histories",
        "OR fence.epoch = 0 OR fence.timeline <> line OR fence.system_identifier <> system;",
        "OR fence.epoch = 0;",
    ),
    ("unchanged means not renewed", "acquire", " AND renewed_us IS NOT DISTINCT FROM p_seen_renewed_us;", ";"),
    (
        "what is unchanged for a lease can be taken",
        "acquire",
        "ELSIF lease.expires_at <= instant OR unchanged THEN",
        "ELSIF lease.expires_at <= instant THEN",
    ),
    (
        "what has expired can be taken",
        "acquire",
        "ELSIF lease.expires_at <= instant OR unchanged THEN",
        "ELSIF unchanged THEN",
    ),
    ("what is held is not taken", "acquire", "        granted := mine;\n", "        granted := true;\n"),
    ("another boot of the name is another node", "acquire", " AND lease.boot_id IS NOT DISTINCT FROM p_boot;", ";"),
    (
        "a proved death frees the lease",
        "deaths",
        "ELSIF NOT mine AND EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = lease.boot_id) THEN",
        "ELSIF false THEN",
    ),
    (
        "a dead boot is granted nothing",
        "deaths",
        "IF EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = p_boot) THEN",
        "IF false THEN",
    ),
    ("a restart is of one's own lease", "acquir", "granted := mine AND fence.timeline", "granted := fence.timeline"),
    (
        "a restart is of the epoch that is held",
        "acquir",
        "AND lease.epoch = p_seen_epoch AND lease.expires_at > instant;",
        "AND lease.expires_at > instant;",
    ),
    (
        "a restart is of a lease that lasts",
        "acquir",
        "AND lease.epoch = p_seen_epoch AND lease.expires_at > instant;",
        "AND lease.epoch = p_seen_epoch;",
    ),
    (
        "a takeover is recorded",
        "acquir",
        "IF cause <> 'restart' THEN\n        INSERT INTO plant_takeovers",
        "IF false THEN\n        INSERT INTO plant_takeovers",
    ),
    (
        "a release raises the epoch",
        "release",
        "SELECT greatest(f.epoch, p_epoch) + 1 INTO next",
        "SELECT greatest(f.epoch, p_epoch) INTO next",
    ),
    (
        "a release by another boot frees nothing",
        "release",
        "AND l.node = p_node AND l.boot_id = p_boot AND l.epoch = p_epoch\n        FOR UPDATE;",
        "AND l.node = p_node AND l.epoch = p_epoch\n        FOR UPDATE;",
    ),
    (
        "a late release frees nothing",
        "release",
        "AND l.node = p_node AND l.boot_id = p_boot AND l.epoch = p_epoch\n        FOR UPDATE;",
        "AND l.node = p_node AND l.boot_id = p_boot\n        FOR UPDATE;",
    ),
    (
        "an unclean release holds effects back",
        "hold_back",
        "CASE WHEN p_clean OR p_lease_ms IS NULL THEN f.effects_not_before",
        "CASE WHEN true THEN f.effects_not_before",
    ),
    (
        "a clean release forgets no hold-back",
        "hold_back",
        "CASE WHEN p_clean OR p_lease_ms IS NULL THEN f.effects_not_before",
        "CASE WHEN p_clean OR p_lease_ms IS NULL THEN '-infinity'::timestamptz",
    ),
    ("a release is heard of", "release", "PERFORM pg_notify('plant_released', p_role || '/' || p_partition);", ""),
    (
        "a release of another history frees nothing",
        "histories",
        "AND f.partition = p_partition AND f.timeline = p_timeline FOR UPDATE;",
        "AND f.partition = p_partition FOR UPDATE;",
    ),
    (
        "the fence row is locked first",
        "acquire",
        "    SELECT * INTO fence FROM plant_fences f WHERE f.role = p_role AND f.partition = p_partition FOR UPDATE;\n\
         \x20   SELECT * INTO lease FROM plant_leases l WHERE l.role = p_role AND l.partition = p_partition FOR UPDATE;\n\
         \x20   present := FOUND;\n",
        "    SELECT * INTO lease FROM plant_leases l WHERE l.role = p_role AND l.partition = p_partition FOR UPDATE;\n\
         \x20   present := FOUND;\n\
         \x20   SELECT * INTO fence FROM plant_fences f WHERE f.role = p_role AND f.partition = p_partition FOR UPDATE;\n",
    ),
    (
        "an acquisition waits for commits",
        "acquire",
        "f.partition = p_partition FOR UPDATE;\n    SELECT * INTO lease",
        "f.partition = p_partition;\n    SELECT * INTO lease",
    ),
];

/// Breaks each rule whose name contains `only`, or all of them.
pub fn mutants(only: Option<&str>) -> anyhow::Result<()> {
    let migration = fs::read_to_string(layout::root()?.join(MIGRATION))?;
    let directory = tempfile::tempdir()?;
    let mut survived = Vec::new();
    for (rule, first, text, instead) in MUTANTS.iter().filter(|(rule, ..)| only.is_none_or(|only| rule.contains(only)))
    {
        let file = directory.path().join("mutant.sql");
        fs::write(&file, mutant(&migration, text, instead).with_context(|| format!("{rule:?}"))?)?;
        // Most are noticed by the few tests of their own part; the others cost a run of everything.
        let noticed = match notice(&file, &format!("({SUITES}) & test(/^{first}/)"))? {
            None => notice(&file, SUITES)?,
            noticed => noticed,
        };
        match noticed {
            Some(test) => println!("noticed   {rule}, by {test}"),
            None => {
                println!("SURVIVED  {rule}");
                survived.push(*rule);
            }
        }
    }
    ensure!(survived.is_empty(), "no test notices when these are broken: {}", survived.join("; "));
    Ok(())
}

/// The test that fails first with this mutant, if any does. Whoever doubts that it is the rule's test can look.
fn notice(mutant: &Path, tests: &str) -> anyhow::Result<Option<String>> {
    let ran = test::nextest_of(tests)?.env("PLANT_MUTANT", mutant).stdin(Stdio::null()).output()?;
    if ran.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let failed = said.lines().find(|line| ["FAIL [", "TIMEOUT [", "SIGABRT ["].iter().any(|word| line.contains(word)));
    let test = failed.and_then(|line| line.rsplit(' ').next());
    // No test at all, or none that could be built, has noticed nothing.
    test.map(|test| Some(test.to_owned())).with_context(|| format!("{tests}: the run itself failed: {said}"))
}

/// The function that holds `text`, with `instead` in its place, as a statement that replaces it in a database.
fn mutant(migration: &str, text: &str, instead: &str) -> anyhow::Result<String> {
    ensure!(migration.matches(text).count() == 1, "{text:?} does not stand once in {MIGRATION}");
    for part in migration.split("\nCREATE FUNCTION ").skip(1) {
        let function = part.split_once("\n$$;").map_or(part, |(function, _)| function);
        if function.contains(text) {
            let broken = function.replace(text, instead);
            // Replacing a function forgets where it looks for tables.
            let ending = migration.split_once("\nDO $$").context("the migration's last block is gone")?.1;
            return Ok(format!("CREATE OR REPLACE FUNCTION {broken}\n$$;\nDO $${ending}"));
        }
    }
    bail!("{text:?} stands in no function")
}
