-- Who is there, who may work, and at which epoch.

-- One row for each node's newest boot.
CREATE TABLE plant_nodes (
    node         text        PRIMARY KEY,
    boot_id      uuid        NOT NULL,
    address      text        NOT NULL,
    version      text        NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL
);

-- The fence: changes only when a role changes hands or an instance starts. One row each, never deleted, epochs never lowered.
CREATE TABLE plant_fences (
    role               text        NOT NULL,
    partition          text        NOT NULL,
    timeline           integer     NOT NULL,
    epoch              bigint      NOT NULL,
    node               text,
    boot_id            uuid,
    module_sha256      text,
    effects_not_before timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (role, partition)
);

-- The heartbeat: changes with every renewal.
CREATE TABLE plant_leases (
    role        text        NOT NULL,
    partition   text        NOT NULL,
    node        text,
    boot_id     uuid,
    epoch       bigint      NOT NULL,
    acquired_at timestamptz NOT NULL,
    renewed_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (role, partition)
);

-- What changed hands, when and why. Append-only.
CREATE TABLE plant_takeovers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role            text        NOT NULL,
    partition       text        NOT NULL,
    from_node       text,
    to_node         text        NOT NULL,
    from_epoch      bigint      NOT NULL,
    to_epoch        bigint      NOT NULL,
    cause           text        NOT NULL,
    taken_at        timestamptz NOT NULL
);

-- What each node says of each role that it may run; written at most once a second, while it changes.
CREATE TABLE plant_role_reports (
    role            text        NOT NULL,
    partition       text        NOT NULL,
    node            text        NOT NULL,
    boot_id         uuid        NOT NULL,
    state           text        NOT NULL,
    reason          text        NOT NULL,
    module_version  text,
    module_sha256   text,
    last_reading_at timestamptz,
    reported_at     timestamptz NOT NULL,
    PRIMARY KEY (role, partition, node)
);
