-- What the role `reader` keeps: production, machine states, connections.

CREATE TABLE machines (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    code       text NOT NULL UNIQUE,
    line       text NOT NULL,
    connection text NOT NULL
);

-- The counter value up to which production is booked. Moves in the booking's own transaction, by its sequence number.
CREATE TABLE counter_baselines (
    machine_id      integer     NOT NULL REFERENCES machines (id),
    counter         text        NOT NULL,
    sequence        bigint      NOT NULL,
    value           numeric(20) NOT NULL,
    booked          numeric(30) NOT NULL DEFAULT 0,
    owed            numeric(20) NOT NULL DEFAULT 0,
    last_reading_at timestamptz,
    PRIMARY KEY (machine_id, counter)
);

CREATE TABLE bookings (
    machine_id  integer     NOT NULL REFERENCES machines (id),
    counter     text        NOT NULL,
    sequence    bigint      NOT NULL,
    quantity    numeric(20) NOT NULL CHECK (quantity > 0),
    booked_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (machine_id, counter, sequence)
);

CREATE TABLE counter_anomalies (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine_id  integer     NOT NULL REFERENCES machines (id),
    counter     text        NOT NULL,
    kind        text        NOT NULL,
    baseline    numeric(20) NOT NULL,
    reading     numeric(20),
    quantity    numeric(20),
    detail      text        NOT NULL,
    seen_at     timestamptz NOT NULL,
    needs_decision boolean  NOT NULL DEFAULT false,
    decision    text,
    decided_by  text,
    why         text,
    decided_at  timestamptz,
    applied_at  timestamptz
);
