-- What the role `reader` keeps: production, machine states, connections. The same tables as on PostgreSQL.
--
-- TIMESTAMP columns hold microseconds since the epoch; BLOB columns (which convert nothing) hold an exact number: an INTEGER, or TEXT
-- where it is above 2^63 - 1.

CREATE TABLE machines (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    code       TEXT NOT NULL UNIQUE,
    line       TEXT NOT NULL,
    connection TEXT NOT NULL
);

-- Every change of a row raises `sequence` and names in `moved_from` the number that it started from.
CREATE TABLE counter_baselines (
    machine_id      INTEGER   NOT NULL REFERENCES machines (id),
    counter         INTEGER   NOT NULL CHECK (counter IN (0, 1)),
    sequence        INTEGER   NOT NULL,
    moved_from      INTEGER   NOT NULL,
    value           BLOB      NOT NULL,
    value_type      INTEGER   NOT NULL,
    booked          BLOB      NOT NULL DEFAULT 0,
    owed            BLOB      NOT NULL DEFAULT 0,
    read_at         TIMESTAMP,
    read_by         INTEGER   NOT NULL,
    seen_at         TIMESTAMP NOT NULL,
    last_reading_at TIMESTAMP,
    pending         TEXT,
    PRIMARY KEY (machine_id, counter)
) WITHOUT ROWID;

-- One row for each counted difference, by the baseline's number that it started from.
CREATE TABLE bookings (
    machine_id  INTEGER   NOT NULL REFERENCES machines (id),
    counter     INTEGER   NOT NULL,
    sequence    INTEGER   NOT NULL,
    quantity    BLOB      NOT NULL CHECK (quantity > 0),
    read_at     TIMESTAMP NOT NULL,
    read_by     INTEGER   NOT NULL,
    booked_at   TIMESTAMP NOT NULL,
    order_code  TEXT,
    PRIMARY KEY (machine_id, counter, sequence)
) WITHOUT ROWID;

CREATE TABLE counter_anomalies (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id     INTEGER   NOT NULL REFERENCES machines (id),
    counter        INTEGER   NOT NULL,
    sequence       INTEGER   NOT NULL,
    kind           TEXT      NOT NULL,
    baseline       BLOB,
    reading        BLOB,
    quantity       BLOB,
    detail         TEXT      NOT NULL,
    seen_at        TIMESTAMP NOT NULL,
    needs_decision BOOLEAN   NOT NULL DEFAULT FALSE,
    decision       TEXT      CHECK (decision IN ('accept', 'reject')),
    decided_by     TEXT,
    why            TEXT,
    decided_at     TIMESTAMP,
    applied_at     TIMESTAMP
);
CREATE INDEX counter_anomalies_counter ON counter_anomalies (machine_id, counter, sequence);
CREATE INDEX counter_anomalies_to_apply ON counter_anomalies (id) WHERE decision IS NOT NULL AND applied_at IS NULL;

CREATE TABLE corrections (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id INTEGER   NOT NULL REFERENCES machines (id),
    counter    INTEGER   NOT NULL CHECK (counter IN (0, 1)),
    quantity   BLOB      NOT NULL CHECK (quantity <> 0),
    who        TEXT      NOT NULL CHECK (who <> ''),
    why        TEXT      NOT NULL CHECK (why <> ''),
    at         TIMESTAMP NOT NULL
);

CREATE TRIGGER bookings_refuse_update BEFORE UPDATE ON bookings
BEGIN SELECT RAISE(ABORT, 'bookings is append-only: add a row to corrections instead of changing history'); END;
CREATE TRIGGER bookings_refuse_delete BEFORE DELETE ON bookings
BEGIN SELECT RAISE(ABORT, 'bookings is append-only: add a row to corrections instead of changing history'); END;
CREATE TRIGGER corrections_refuse_update BEFORE UPDATE ON corrections
BEGIN SELECT RAISE(ABORT, 'corrections is append-only: add a row to corrections instead of changing history'); END;
CREATE TRIGGER corrections_refuse_delete BEFORE DELETE ON corrections
BEGIN SELECT RAISE(ABORT, 'corrections is append-only: add a row to corrections instead of changing history'); END;

CREATE TABLE machine_states (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id INTEGER   NOT NULL REFERENCES machines (id),
    state      TEXT      NOT NULL CHECK (state IN ('running', 'idle', 'down', 'setup')),
    code       INTEGER   NOT NULL,
    reason     TEXT,
    started_at TIMESTAMP NOT NULL,
    started_by INTEGER   NOT NULL,
    ended_at   TIMESTAMP,
    CHECK (state <> 'down' OR reason IS NOT NULL),
    CHECK (ended_at >= started_at),
    UNIQUE (machine_id, started_at)
);
CREATE UNIQUE INDEX machine_states_open ON machine_states (machine_id) WHERE ended_at IS NULL;
-- A row with the same start is the one that an upsert is about to change.
CREATE TRIGGER machine_states_refuse_overlap BEFORE INSERT ON machine_states
WHEN EXISTS (SELECT 1 FROM machine_states s WHERE s.machine_id = NEW.machine_id AND s.started_at <> NEW.started_at
             AND s.started_at < coalesce(NEW.ended_at, 9223372036854775807)
             AND coalesce(s.ended_at, 9223372036854775807) > NEW.started_at)
BEGIN SELECT RAISE(ABORT, 'the state overlaps another one of the same machine'); END;
CREATE TRIGGER machine_states_refuse_overlap_later BEFORE UPDATE OF machine_id, started_at, ended_at ON machine_states
WHEN EXISTS (SELECT 1 FROM machine_states s WHERE s.machine_id = NEW.machine_id AND s.id <> NEW.id
             AND s.started_at < coalesce(NEW.ended_at, 9223372036854775807)
             AND coalesce(s.ended_at, 9223372036854775807) > NEW.started_at)
BEGIN SELECT RAISE(ABORT, 'the state overlaps another one of the same machine'); END;

CREATE TABLE machine_connections (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id  INTEGER   NOT NULL REFERENCES machines (id),
    state       TEXT      NOT NULL CHECK (state IN ('connected', 'disconnected')),
    reason      TEXT      NOT NULL,
    started_at  TIMESTAMP NOT NULL,
    detected_at TIMESTAMP NOT NULL,
    seen_at     TIMESTAMP NOT NULL,
    ended_at    TIMESTAMP,
    UNIQUE (machine_id, started_at)
);
CREATE UNIQUE INDEX machine_connections_open ON machine_connections (machine_id) WHERE ended_at IS NULL;

CREATE VIEW production AS
SELECT m.code AS machine, m.line, CASE b.counter WHEN 0 THEN 'good' ELSE 'scrap' END AS counter, b.booked, b.owed,
       b.value AS baseline, b.last_reading_at,
       (SELECT count(*) FROM counter_anomalies a WHERE a.machine_id = b.machine_id AND a.counter = b.counter) AS anomalies,
       (SELECT count(*) FROM counter_anomalies a WHERE a.machine_id = b.machine_id AND a.counter = b.counter
                                                   AND a.needs_decision AND a.decision IS NULL) AS undecided
FROM counter_baselines b JOIN machines m ON m.id = b.machine_id;

CREATE VIEW anomalies AS
SELECT a.id, m.code AS machine, m.line, CASE a.counter WHEN 0 THEN 'good' ELSE 'scrap' END AS counter, a.kind, a.baseline, a.reading,
       a.quantity, a.detail, a.seen_at, a.needs_decision, a.decision, a.decided_by, a.why, a.decided_at, a.applied_at
FROM counter_anomalies a JOIN machines m ON m.id = a.machine_id;
