//! Who is there, who holds what, and whether this node is ready: the cluster as the database has it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::config::{PAIR, Scope};
use crate::role;
use crate::store::queries::{self, NodeRow, ReportRow, RoleRow};
use crate::store::reports::FORGOTTEN;

use super::latest::Answer;
use super::local::HaRole;
use super::shapes::{Drift, Health, ModuleStatus, NodeRole, NodeStatus, Placement, Ready, RoleStatus, Status, micros};
use super::{AppState, Problem};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What one look at the database brings.
#[derive(Default)]
pub(super) struct Cluster {
    nodes: Vec<NodeRow>,
    roles: Vec<RoleRow>,
    reports: Vec<ReportRow>,
}

/// Whether the process serves: 200 while it does, whatever else is wrong.
#[utoipa::path(get, path = "/api/health", responses((status = 200, body = Health)))]
pub(super) async fn health(State(state): State<AppState>) -> Json<Health> {
    Json(Health { status: "ok", node: state.0.me.node.to_string(), version: VERSION })
}

#[derive(Debug, Deserialize)]
pub(super) struct ReadyQuery {
    role: Option<String>,
}

/// Whether this node can serve; with `role`, whether it is the one that runs that role.
#[utoipa::path(
    get,
    path = "/api/ready",
    params(("role" = Option<String>, Query, description = "200 only on the node that runs this role")),
    responses(
        (status = 200, body = Ready),
        (status = 503, body = Ready),
        (status = 400, body = Problem),
        (status = 404, body = Problem, description = "the plant has no such role"),
    )
)]
pub(super) async fn ready(
    State(state): State<AppState>,
    query: Result<Query<ReadyQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let local = &state.0.local;
    let ready = match query.role {
        Some(role) => {
            if !state.0.config.roles.keys().any(|name| name.as_str() == role) {
                return Err(Problem::not_found(format!(
                    "the plant has no role {role:?}: look at /api/status for its roles"
                )));
            }
            let states = local.reports().into_iter().filter(|report| report.key.role.as_str() == role);
            role_ready(states.map(|report| report.state))
        }
        None => match local.ha().detail {
            // The pair has one place to send people to; elsewhere every node that can serve is one.
            Some(detail) if state.is_pair() => Ready { ready: detail.role == HaRole::Active, role: detail.role },
            Some(detail) => Ready { ready: detail.serving, role: detail.role },
            None => Ready { ready: true, role: HaRole::Active },
        },
    };
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(ready)).into_response())
}

fn role_ready(states: impl Iterator<Item = role::State>) -> Ready {
    let mut promoting = false;
    for state in states {
        match state {
            role::State::Running | role::State::Draining | role::State::Backoff => {
                return Ready { ready: true, role: HaRole::Active };
            }
            role::State::Promoting => promoting = true,
            role::State::Standby | role::State::Held | role::State::Vacant => {}
        }
    }
    Ready { ready: false, role: if promoting { HaRole::Promoting } else { HaRole::Standby } }
}

/// Nodes and roles, as any node answers them; while the database is away from what was known last.
#[utoipa::path(get, path = "/api/status", responses((status = 200, body = Status)))]
pub(super) async fn status(State(state): State<AppState>) -> Json<Status> {
    Json(state.status().await)
}

impl AppState {
    /// Whether all roles are in one place, of two.
    pub(super) fn is_pair(&self) -> bool {
        self.0.config.redundancy.as_ref().is_some_and(|redundancy| redundancy.scope == Scope::Node)
    }

    /// How a node is reached, as it said itself.
    pub(super) async fn address_of(&self, node: &str) -> Option<String> {
        let cluster = self.cluster().await?;
        cluster.value.nodes.iter().find(|row| row.node == node).map(|row| row.address.clone())
    }

    async fn cluster(&self) -> Option<Answer<Cluster>> {
        let inner = &self.0;
        let look = async {
            Ok(Cluster {
                nodes: queries::nodes(&inner.pool).await?,
                roles: queries::roles(&inner.pool).await?,
                reports: queries::reports(&inner.pool, FORGOTTEN).await?,
            })
        };
        inner.cluster.get(&inner.database, look).await.ok()
    }

    async fn status(&self) -> Status {
        let inner = &self.0;
        let answer = self.cluster().await;
        let stale = answer.as_ref().is_none_or(|answer| answer.stale);
        let age = answer.as_ref().map(|answer| answer.age);
        let nothing = Cluster::default();
        let cluster = answer.as_ref().map_or(&nothing, |answer| answer.value.as_ref());
        let view = View { state: self, cluster, stale, age: age.unwrap_or_default() };
        Status {
            plant: inner.config.plant.name.clone(),
            simulated: inner.config.plant.simulated,
            node: inner.me.node.to_string(),
            boot_id: inner.me.boot.to_string(),
            version: VERSION.to_owned(),
            stale,
            age_ms: age.map(whole_millis),
            database: inner.database.state(),
            nodes: view.nodes(),
            roles: view.roles(),
            drift: view.drift(),
            buffers: inner.local.buffers(),
            connections: inner.local.connections(),
            why_not: inner.local.why_not(),
            ha: inner.local.ha(),
        }
    }
}

pub(super) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// One answer in the making.
struct View<'a> {
    state: &'a AppState,
    cluster: &'a Cluster,
    stale: bool,
    age: Duration,
}

impl View<'_> {
    /// How old a heartbeat may be: a node that could renew no lease would hold none.
    fn heartbeat_us(&self) -> i64 {
        let lease = self.state.0.config.redundancy.as_ref().map_or(FORGOTTEN, |redundancy| redundancy.lease);
        i64::try_from(lease.as_micros()).unwrap_or(i64::MAX)
    }

    fn is_me(&self, node: &str, boot: &str) -> bool {
        let me = &self.state.0.me;
        me.node.as_str() == node && me.boot.to_string() == boot
    }

    fn live(&self, row: &NodeRow) -> bool {
        self.is_me(&row.node, &row.boot_id) || (!row.is_dead && row.heartbeat_age_us < self.heartbeat_us())
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let inner = &self.state.0;
        let mut nodes: Vec<NodeStatus> = self.cluster.nodes.iter().map(|row| self.node(row)).collect();
        if !nodes.iter().any(|node| self.is_me(&node.node, &node.boot_id)) {
            nodes.push(NodeStatus {
                node: inner.me.node.to_string(),
                boot_id: inner.me.boot.to_string(),
                address: inner.address.clone(),
                version: VERSION.to_owned(),
                live: true,
                since: micros(inner.started_at.timestamp_micros()),
                drained: false,
                could_take_over: None,
                why_not: None,
            });
            nodes.sort_by(|a, b| a.node.cmp(&b.node));
        }
        nodes
    }

    fn node(&self, row: &NodeRow) -> NodeStatus {
        let live = self.live(row);
        let gone = match (live, row.is_dead) {
            (true, _) => None,
            (false, true) => Some("it has died".to_owned()),
            (false, false) => Some("it does not say any more that it lives".to_owned()),
        };
        let why_not =
            gone.or_else(|| row.is_drained.then(|| "it is drained: `host node undrain` ends that".to_owned()));
        let could_take_over = if why_not.is_some() { Some(false) } else { row.could_take_over };
        let why_not = why_not.or_else(|| row.why_not.clone());
        NodeStatus {
            node: row.node.clone(),
            boot_id: row.boot_id.clone(),
            address: row.address.clone(),
            version: row.version.clone(),
            live,
            since: micros(row.started_at),
            drained: row.is_drained,
            could_take_over,
            why_not,
        }
    }

    /// Sections in which live nodes differ from this one.
    fn drift(&self) -> Vec<Drift> {
        let mine = &self.state.0.config.sections;
        let mut differ: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in self.cluster.nodes.iter().filter(|row| self.live(row) && !self.is_me(&row.node, &row.boot_id)) {
            let Some(theirs) = row.sections.as_deref().and_then(|json| serde_json::from_str(json).ok()) else {
                continue;
            };
            let theirs: BTreeMap<String, String> = theirs;
            for section in mine.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
                if mine.get(section) != theirs.get(section) {
                    differ.entry(section.clone()).or_default().push(row.node.clone());
                }
            }
        }
        differ.into_iter().map(|(section, nodes)| Drift { section, nodes }).collect()
    }

    fn roles(&self) -> Vec<RoleStatus> {
        let configured = self.state.0.config.roles.iter();
        let mut keys: BTreeSet<(String, String)> = configured
            .flat_map(|(name, role)| role.partitions.iter().map(|partition| (name.to_string(), partition.clone())))
            .collect();
        // The pair's lease is shown as who is active; nothing runs under it but the roles.
        let is_role = |row: &&RoleRow| !(self.state.is_pair() && row.role == PAIR);
        keys.extend(self.cluster.roles.iter().filter(is_role).map(|row| (row.role.clone(), row.partition.clone())));
        let own = self.state.0.local.reports();
        keys.into_iter().map(|key| self.role(key, &own)).collect()
    }

    fn role(&self, (role, partition): (String, String), own: &[role::Report]) -> RoleStatus {
        let row = self.cluster.roles.iter().find(|row| row.role == role && row.partition == partition);
        let age_ms = i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX);
        let expires_in_ms = row.and_then(|row| row.expires_in_ms).map(|left| left.saturating_sub(age_ms));
        let held = row.filter(|row| row.holder.is_some() && expires_in_ms.is_none_or(|left| left > 0));
        let reports =
            || self.cluster.reports.iter().filter(|report| report.role == role && report.partition == partition);
        let report = held.and_then(|row| {
            let of_holder = |report: &&ReportRow| {
                Some(&report.node) == row.holder.as_ref() && Some(&report.boot_id) == row.boot_id.as_ref()
            };
            reports().find(of_holder)
        });
        let mut status = RoleStatus {
            holder: held.and_then(|row| row.holder.clone()),
            epoch: row.and_then(|row| u64::try_from(row.epoch).ok()).unwrap_or(0),
            expires_in_ms: held.and(expires_in_ms),
            here: held.is_some_and(|row| {
                self.is_me(row.holder.as_deref().unwrap_or_default(), row.boot_id.as_deref().unwrap_or_default())
            }),
            state: held_state(held.is_some(), report, row.is_some_and(|row| row.is_held)),
            reason: report.map(|report| report.reason.clone()),
            module: report.map(|report| ModuleStatus {
                version: report.module_version.clone(),
                sha256: report.module_sha256.clone(),
            }),
            last_reading_at: report.and_then(|report| report.last_reading_at).map(micros),
            placement: row.and_then(placement),
            nodes: self.states_on_nodes(reports()),
            role,
            partition,
        };
        // While the database is away, and where nothing expires, this process knows its own roles better.
        if (self.stale || self.state.0.config.redundancy.is_none())
            && let Some(own) =
                own.iter().find(|own| own.key.role.as_str() == status.role && own.key.partition == status.partition)
        {
            self.say_own(&mut status, own);
        }
        status
    }

    fn states_on_nodes<'a>(&self, reports: impl Iterator<Item = &'a ReportRow>) -> Vec<NodeRole> {
        let lives = |report: &&ReportRow| {
            let of = |node: &&NodeRow| node.node == report.node && node.boot_id == report.boot_id;
            self.cluster.nodes.iter().find(of).is_some_and(|node| self.live(node))
        };
        let said = |report: &ReportRow| NodeRole {
            node: report.node.clone(),
            state: report.state.clone(),
            reason: report.reason.clone(),
        };
        reports.filter(lives).map(said).collect()
    }

    fn say_own(&self, status: &mut RoleStatus, own: &role::Report) {
        let me = self.state.0.me.node.to_string();
        let word = crate::store::reports::word(own.state);
        status.nodes.retain(|node| node.node != me);
        status.nodes.push(NodeRole { node: me.clone(), state: word.to_owned(), reason: own.reason.clone() });
        match own.state {
            role::State::Promoting | role::State::Running | role::State::Draining | role::State::Backoff => {
                status.holder = Some(me);
                status.here = true;
                status.state = word.to_owned();
                status.reason = Some(own.reason.clone());
                status.epoch = own.epoch.map_or(status.epoch, |epoch| epoch.number);
                status.last_reading_at = own.last_reading_at.map(|nanos| micros(nanos.div_euclid(1_000)));
                let (version, sha256) = (own.module_version.clone(), own.module_sha256.clone());
                status.module = Some(ModuleStatus { version, sha256 });
            }
            role::State::Standby | role::State::Held | role::State::Vacant => {
                if status.here {
                    status.holder = None;
                    status.here = false;
                    status.expires_in_ms = None;
                    status.state = if own.state == role::State::Held { "held" } else { "vacant" }.to_owned();
                    status.reason = Some(own.reason.clone());
                }
            }
        }
    }
}

/// What people have said of where it runs; `None` where they have said nothing that counts now.
fn placement(row: &RoleRow) -> Option<Placement> {
    let said = Placement {
        held: row.is_held,
        held_until: row.held_until.filter(|_| row.is_held).map(micros),
        held_why: row.held_why.clone().filter(|_| row.is_held),
        pinned_to: row.pinned_to.clone(),
    };
    (row.is_held || said.pinned_to.is_some()).then_some(said)
}

fn held_state(held: bool, report: Option<&ReportRow>, forbidden: bool) -> String {
    let state = match (held, report) {
        // What the holder wrote before it became the holder says nothing of the instance that it is starting.
        (true, Some(report)) if !matches!(report.state.as_str(), "standby" | "vacant" | "held") => &report.state,
        (true, _) => "promoting",
        (false, _) if forbidden => "held",
        (false, _) => "vacant",
    };
    state.to_owned()
}
