-- Who works, and at which epoch. A file has one node, so leases never expire here and there is nobody to take over from; the tables
-- are those of PostgreSQL so that both are asked in one way. TIMESTAMP columns hold microseconds since the epoch.

CREATE TABLE plant_nodes (
    node         TEXT      PRIMARY KEY,
    boot_id      TEXT      NOT NULL,
    address      TEXT      NOT NULL,
    version      TEXT      NOT NULL,
    started_at   TIMESTAMP NOT NULL,
    heartbeat_at TIMESTAMP NOT NULL
);

-- The fence: changes only when an instance starts or ends. Epochs are never lowered.
CREATE TABLE plant_fences (
    role               TEXT    NOT NULL,
    partition          TEXT    NOT NULL,
    timeline           INTEGER NOT NULL,
    epoch              INTEGER NOT NULL,
    node               TEXT,
    boot_id            TEXT,
    module_sha256      TEXT,
    PRIMARY KEY (role, partition)
);

-- Always empty.
CREATE TABLE plant_leases (
    role        TEXT      NOT NULL,
    partition   TEXT      NOT NULL,
    node        TEXT,
    boot_id     TEXT,
    epoch       INTEGER   NOT NULL,
    acquired_at TIMESTAMP NOT NULL,
    renewed_at  TIMESTAMP NOT NULL,
    expires_at  TIMESTAMP NOT NULL,
    PRIMARY KEY (role, partition)
);

CREATE TABLE plant_takeovers (
    id         INTEGER   PRIMARY KEY AUTOINCREMENT,
    role       TEXT      NOT NULL,
    partition  TEXT      NOT NULL,
    from_node  TEXT,
    to_node    TEXT      NOT NULL,
    from_epoch INTEGER   NOT NULL,
    to_epoch   INTEGER   NOT NULL,
    cause      TEXT      NOT NULL,
    taken_at   TIMESTAMP NOT NULL,
    -- Nobody takes over from anybody here, so these stay null.
    lease_ms        INTEGER,
    last_commit_at  TIMESTAMP,
    first_commit_at TIMESTAMP,
    owed            INTEGER,
    owed_booked_at  TIMESTAMP
);

CREATE TABLE plant_role_reports (
    role            TEXT      NOT NULL,
    partition       TEXT      NOT NULL,
    node            TEXT      NOT NULL,
    boot_id         TEXT      NOT NULL,
    state           TEXT      NOT NULL,
    reason          TEXT      NOT NULL,
    module_version  TEXT,
    module_sha256   TEXT,
    last_reading_at TIMESTAMP,
    reported_at     TIMESTAMP NOT NULL,
    PRIMARY KEY (role, partition, node)
);
