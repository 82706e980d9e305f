-- What the role `reader` keeps: production, machine states, connections.
--
-- Counters are numbered, 0 good and 1 scrap: the hot path then sends nothing but columns of integers. People read the views
-- `production` and `anomalies`, which name them.

CREATE TABLE machines (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    code       text NOT NULL UNIQUE,
    line       text NOT NULL,
    connection text NOT NULL
);

-- The counter value up to which production is booked. Every change of a row raises `sequence` and names in `moved_from` the number that
-- it started from: a writer whose number is stale changes nothing. By number and not by value, since the value 0 comes back.
CREATE TABLE counter_baselines (
    machine_id      integer     NOT NULL REFERENCES machines (id),
    counter         integer     NOT NULL CHECK (counter IN (0, 1)),
    sequence        bigint      NOT NULL,
    moved_from      bigint      NOT NULL,
    value           numeric(20) NOT NULL,
    value_type      integer     NOT NULL,              -- 0 signed, 1 unsigned, 2 floating point, as the server sends it
    booked          numeric(30) NOT NULL DEFAULT 0,
    owed            numeric(20) NOT NULL DEFAULT 0,
    read_at         timestamptz,                       -- of the reading that is the baseline, by the clock in read_by
    read_by         integer     NOT NULL,              -- 0 source, 1 server, 2 the database at arrival
    seen_at         timestamptz NOT NULL,              -- the database's clock at the newest evidence for the value
    last_reading_at timestamptz,
    pending         text,                              -- JSON: a situation that is not decided yet, so that it outlives its holder
    PRIMARY KEY (machine_id, counter)
    -- Every row changes with every booking, and none of what changes is indexed: with room in its page a row moves without its index.
) WITH (fillfactor = 40);

-- One row for each counted difference. `sequence` is the baseline's number that it started from: gapless in commit order for one
-- counter but for moves that book nothing, so a reader of bookings keeps one cursor for each counter and needs no other index.
CREATE TABLE bookings (
    -- No foreign key: the baseline that a booking commits with has it, and a second check would double the price of every booking.
    machine_id  integer     NOT NULL,
    counter     integer     NOT NULL,
    sequence    bigint      NOT NULL,
    quantity    numeric(20) NOT NULL CHECK (quantity > 0),
    read_at     timestamptz NOT NULL,                  -- the reading's time as it came, by the clock in read_by
    read_by     integer     NOT NULL,
    booked_at   timestamptz NOT NULL,
    order_code  text,                                  -- null is unassigned production
    PRIMARY KEY (machine_id, counter, sequence)
);

-- What a counter did that no rule can book with certainty. `sequence` is the baseline's number when it was raised.
CREATE TABLE counter_anomalies (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine_id     integer     NOT NULL REFERENCES machines (id),
    counter        integer     NOT NULL,
    sequence       bigint      NOT NULL,
    kind           text        NOT NULL,
    baseline       numeric(20),
    reading        numeric(20),
    quantity       numeric(20),
    detail         text        NOT NULL,
    seen_at        timestamptz NOT NULL,
    needs_decision boolean     NOT NULL DEFAULT false,
    decision       text        CHECK (decision IN ('accept', 'reject')),
    decided_by     text,
    why            text,
    decided_at     timestamptz,
    applied_at     timestamptz
);
CREATE INDEX counter_anomalies_counter ON counter_anomalies (machine_id, counter, sequence);
CREATE INDEX counter_anomalies_to_apply ON counter_anomalies (id) WHERE decision IS NOT NULL AND applied_at IS NULL;

-- Late corrections by people; history itself is not edited.
CREATE TABLE corrections (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine_id integer     NOT NULL REFERENCES machines (id),
    counter    integer     NOT NULL CHECK (counter IN (0, 1)),
    quantity   numeric(20) NOT NULL CHECK (quantity <> 0),
    who        text        NOT NULL CHECK (who <> ''),
    why        text        NOT NULL CHECK (why <> ''),
    at         timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: add a row to corrections instead of changing history', TG_TABLE_NAME USING ERRCODE = '23000';
END $$;
CREATE TRIGGER bookings_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON bookings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER corrections_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON corrections
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a machine was doing. No row covers a time that is not known; an open row is the present.
CREATE TABLE machine_states (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine_id integer     NOT NULL REFERENCES machines (id),
    state      text        NOT NULL CHECK (state IN ('running', 'idle', 'down', 'setup')),
    code       bigint      NOT NULL,                   -- the number that the machine sent
    reason     text,                                   -- of a `down`: a reason's code, or unlabelled
    started_at timestamptz NOT NULL,
    started_by integer     NOT NULL,                   -- 0 source, 1 server, 2 the database at arrival
    ended_at   timestamptz,
    CHECK (state <> 'down' OR reason IS NOT NULL),
    CHECK (ended_at >= started_at),
    UNIQUE (machine_id, started_at),
    EXCLUDE USING gist (int4range(machine_id, machine_id, '[]') WITH &&, tstzrange(started_at, ended_at) WITH &&)
);
CREATE UNIQUE INDEX machine_states_open ON machine_states (machine_id) WHERE ended_at IS NULL;

-- Whether a machine could be heard. `started_at` is the last evidence for what was before, `detected_at` when it was noticed.
CREATE TABLE machine_connections (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine_id  integer     NOT NULL REFERENCES machines (id),
    state       text        NOT NULL CHECK (state IN ('connected', 'disconnected')),
    reason      text        NOT NULL,
    started_at  timestamptz NOT NULL,
    detected_at timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,                  -- a reader was watching at this time
    ended_at    timestamptz,
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

-- Units that the transaction which calls this has booked, for the record of takeovers: for each counter the booking that its baseline
-- was moved by, if this transaction wrote it. By the key, so that its price does not grow with the history.
CREATE FUNCTION plant_units_of_this_commit() RETURNS numeric
    LANGUAGE sql VOLATILE
    AS $$
    SELECT coalesce(sum(k.quantity), 0)
    FROM counter_baselines b
    JOIN bookings k ON k.machine_id = b.machine_id AND k.counter = b.counter AND k.sequence = b.moved_from
    WHERE k.xmin = pg_current_xact_id()::xid
$$;
