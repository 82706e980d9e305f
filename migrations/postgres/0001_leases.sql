-- Who is there, who may work, and at which epoch.

-- Which history of which database this is. A promoted standby begins a new timeline; a restored dump has another system identifier.
CREATE FUNCTION plant_timeline() RETURNS integer
    LANGUAGE sql VOLATILE
    AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer $$;

CREATE FUNCTION plant_system() RETURNS bigint
    LANGUAGE sql VOLATILE
    AS $$ SELECT system_identifier FROM pg_control_system() $$;

-- One row for each node's newest boot.
CREATE TABLE plant_nodes (
    node         text        PRIMARY KEY,
    boot_id      uuid        NOT NULL,
    address      text        NOT NULL,
    version      text        NOT NULL,
    -- The advisory lock that the boot holds while it lives.
    lock_key     bigint,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    -- What the node says of itself: a hash for each section of its plant.toml, what tells its key from another one, and whether it
    -- could take a role over.
    sections     jsonb,
    key_check    text,
    could_take_over boolean,
    why_not      text,
    -- When it tried that last, and since when it does not reach an OPC UA server that a role of its needs.
    proved_at    timestamptz,
    opc_down_since timestamptz
);

-- Boots whose death was proved: their lock was seen held and then let go, by one and the same session. None of them comes back.
CREATE TABLE plant_deaths (
    boot_id uuid        PRIMARY KEY,
    node    text        NOT NULL,
    died_at timestamptz NOT NULL
);

-- The fence: changes only when a role changes hands or an instance starts. One row each, never deleted, epochs never lowered.
CREATE TABLE plant_fences (
    role               text        NOT NULL,
    partition          text        NOT NULL,
    system_identifier  bigint      NOT NULL DEFAULT plant_system(),
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
    -- Why it is free, while it is.
    freed_by    text,
    PRIMARY KEY (role, partition)
);

-- What changed hands, when and why. Append-only; the database writes it as it hands a lease over.
CREATE TABLE plant_takeovers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role            text        NOT NULL,
    partition       text        NOT NULL,
    from_node       text,
    to_node         text        NOT NULL,
    from_epoch      bigint      NOT NULL,
    to_epoch        bigint      NOT NULL,
    cause           text        NOT NULL,
    taken_at        timestamptz NOT NULL,
    lease_ms        bigint,                            -- null where a lease never expires
    last_commit_at  timestamptz,                       -- the newest note in plant_commits at the takeover
    first_commit_at timestamptz,                       -- the new holder's first commit that changed something
    -- Units in the new holder's first commit that booked any, and when that was: what was owed at the takeover and what was made until
    -- that commit's readings. Null until then, and for roles that book nothing.
    owed            numeric,
    owed_booked_at  timestamptz
);
CREATE INDEX plant_takeovers_newest ON plant_takeovers (role, partition, id);

-- When a role last committed, noted within such a commit, by the database's clock. A holder notes at most four a second, so the last
-- commit may be up to a quarter of a second younger than this; one that commits less often than that has each of them noted.
CREATE TABLE plant_commits (
    role         text        NOT NULL,
    partition    text        NOT NULL,
    committed_at timestamptz NOT NULL,
    PRIMARY KEY (role, partition)
) WITH (fillfactor = 40);

CREATE INDEX plant_takeovers_role ON plant_takeovers (role, partition, taken_at);

-- Where people want a role to run; no row: anywhere.
CREATE TABLE plant_placements (
    role       text NOT NULL,
    partition  text NOT NULL,
    -- Nobody runs it until then; 'infinity' until somebody says otherwise.
    held_until timestamptz,
    held_why   text,
    -- This node alone runs it.
    pinned_to  text,
    -- This node is to take it next, and nobody else before `move_until`.
    moved_to   text,
    moved_at   timestamptz,
    move_until timestamptz,
    PRIMARY KEY (role, partition)
);

-- Nodes that are to run nothing.
CREATE TABLE plant_drained_nodes (
    node  text        PRIMARY KEY,
    since timestamptz NOT NULL
);

-- Who has said what about where roles run. Append-only.
CREATE TABLE plant_audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text        NOT NULL CHECK (who <> ''),
    action    text        NOT NULL,
    role      text,
    partition text,
    node      text,
    until     timestamptz,
    why       text
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

-- Milliseconds from `instant` until `until`, also for infinity.
CREATE FUNCTION plant_milliseconds_until(until timestamptz, instant timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN until IS NULL OR until = '-infinity' THEN 0
                WHEN until = 'infinity' THEN 9223372036854775807
                ELSE round(extract(epoch FROM until - instant) * 1000)::bigint END
$$;

-- The last statement of every commit. Raises when the role has moved on, or would be free to: a SELECT that finds nothing commits.
CREATE FUNCTION plant_fence(p_role text, p_partition text, p_timeline integer, p_epoch bigint, p_boot uuid) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    AS $$
BEGIN
    -- Whoever raises the epoch waits for this lock, and so for this commit.
    PERFORM FROM plant_fences f
      WHERE f.role = p_role AND f.partition = p_partition
        AND f.system_identifier = plant_system() AND f.timeline = p_timeline AND f.epoch = p_epoch AND f.boot_id = p_boot
        FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease-lost: % is not at epoch % of boot % any more', p_role, p_epoch, p_boot USING ERRCODE = '40001';
    END IF;
    IF plant_timeline() <> p_timeline THEN
        RAISE EXCEPTION 'lease-lost: the database went on to timeline %', plant_timeline() USING ERRCODE = '40001';
    END IF;
    -- Not locked: renewals must not wait for commits. A holder that froze past its lease commits nothing, though nobody took over.
    PERFORM FROM plant_leases l
      WHERE l.role = p_role AND l.partition = p_partition
        AND l.boot_id = p_boot AND l.epoch = p_epoch AND l.expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease-lost: the lease of % has run out', p_role USING ERRCODE = '40001';
    END IF;
END
$$;

-- Why people do not want this node to run the role: `hold`, `pin`, `move` or `drain`; null where they do not mind.
CREATE FUNCTION plant_barred(p_role text, p_partition text, p_node text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(
        (SELECT CASE
                    WHEN p.held_until > clock_timestamp() THEN 'hold'
                    WHEN p.pinned_to <> p_node THEN 'pin'
                    -- Until the other node has had it once, or too much time has passed.
                    WHEN p.moved_to <> p_node AND p.move_until > clock_timestamp() AND NOT EXISTS (
                        SELECT FROM plant_takeovers t
                         WHERE t.role = p_role AND t.partition = p_partition AND t.to_node = p.moved_to AND t.taken_at >= p.moved_at
                    ) THEN 'move'
                END
           FROM plant_placements p WHERE p.role = p_role AND p.partition = p_partition),
        (SELECT 'drain' FROM plant_drained_nodes d WHERE d.node = p_node))
$$;

-- Notes that a commit is under way, before its fence: what the fence refuses is not noted. Not called by every commit.
--   p_books   this commit books production
CREATE FUNCTION plant_note_commit(p_role text, p_partition text, p_books boolean) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    AS $$
DECLARE
    instant timestamptz := clock_timestamp();
BEGIN
    INSERT INTO plant_commits AS c (role, partition, committed_at) VALUES (p_role, p_partition, instant)
        ON CONFLICT (role, partition) DO UPDATE SET committed_at = excluded.committed_at;
    UPDATE plant_takeovers t
       SET first_commit_at = coalesce(t.first_commit_at, instant),
           owed = CASE WHEN p_books THEN plant_units_of_this_commit() END,
           owed_booked_at = CASE WHEN p_books THEN instant END
     WHERE t.id = (SELECT max(n.id) FROM plant_takeovers n WHERE n.role = p_role AND n.partition = p_partition)
       AND t.owed_booked_at IS NULL AND (p_books OR t.first_commit_at IS NULL);
END
$$;

-- Takes a lease, or raises the epoch of one that is held. One call, so that no client can freeze between its locks; the fence row is
-- locked first and the lease row second, here and everywhere.
--   p_lease_ms    how long it lasts; null: for ever
--   p_seen_...    the lease as the caller has seen it unchanged for a whole lease of its own clock; or null
--   p_at_least    the highest epoch that the caller knows was issued
--   p_restart     only if it is the caller's own at p_seen_timeline and p_seen_epoch
--   p_module      the SHA-256 of the module that the caller would run
CREATE FUNCTION plant_acquire(
    p_role text, p_partition text, p_node text, p_boot uuid, p_lease_ms bigint,
    p_seen_timeline integer, p_seen_epoch bigint, p_seen_renewed_us bigint, p_at_least bigint, p_restart boolean, p_module text,
    OUT granted boolean, OUT timeline integer, OUT epoch bigint, OUT hold_back_us bigint, OUT cause text,
    OUT holder text, OUT holder_boot uuid, OUT renewed_us bigint, OUT expires_in_ms bigint
)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    AS $$
#variable_conflict use_column
DECLARE
    fence     plant_fences;
    lease     plant_leases;
    present   boolean;
    mine      boolean;
    unchanged boolean;
    instant   timestamptz;
    -- Unfenceable effects of an earlier holder may still be on their way.
    unclean   boolean := true;
    line      integer := plant_timeline();
    system    bigint := plant_system();
    length    interval := make_interval(secs => p_lease_ms / 1000.0);
BEGIN
    PERFORM plant_keep_in_log();
    INSERT INTO plant_fences (role, partition, system_identifier, timeline, epoch)
        VALUES (p_role, p_partition, system, line, 0) ON CONFLICT DO NOTHING;
    SELECT * INTO fence FROM plant_fences f WHERE f.role = p_role AND f.partition = p_partition FOR UPDATE;
    SELECT * INTO lease FROM plant_leases l WHERE l.role = p_role AND l.partition = p_partition FOR UPDATE;
    present := FOUND;
    instant := clock_timestamp();
    mine := present AND lease.node IS NOT DISTINCT FROM p_node AND lease.boot_id IS NOT DISTINCT FROM p_boot;
    renewed_us := coalesce(round(extract(epoch FROM lease.renewed_at) * 1000000)::bigint, 0);
    -- Compared here, under the locks: it may have been renewed since it was looked at.
    unchanged := present AND fence.timeline IS NOT DISTINCT FROM p_seen_timeline
        AND lease.epoch IS NOT DISTINCT FROM p_seen_epoch AND renewed_us IS NOT DISTINCT FROM p_seen_renewed_us;
    holder := coalesce(lease.node, fence.node);
    holder_boot := coalesce(lease.boot_id, fence.boot_id);

    IF EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = p_boot) THEN
        -- Whoever was taken for dead has lost everything, and goes on as another boot.
        granted := false;
    ELSIF p_restart THEN
        unclean := false;
        cause := 'restart';
        granted := mine AND fence.timeline = p_seen_timeline AND lease.epoch = p_seen_epoch AND lease.expires_at > instant;
    ELSIF plant_barred(p_role, p_partition, p_node) IS NOT NULL THEN
        granted := false;
    ELSIF NOT present THEN
        -- Nobody ever held it; or the row was deleted, and whoever held it is unknown and may still act. Which of the two it is, the
        -- database cannot know.
        cause := CASE WHEN greatest(fence.epoch, p_at_least) > 0 THEN 'expiry' ELSE 'start' END;
        granted := true;
    ELSIF lease.node IS NULL THEN
        -- An unclean release has left its hold-back behind.
        unclean := false;
        cause := coalesce(lease.freed_by, 'release');
        granted := true;
    ELSIF NOT mine AND EXISTS (SELECT FROM plant_deaths d WHERE d.boot_id = lease.boot_id) THEN
        cause := 'death';
        granted := true;
    ELSIF lease.expires_at <= instant OR unchanged THEN
        -- A lease that never expires is taken by the one node there is, at its start.
        cause := CASE WHEN p_lease_ms IS NULL THEN 'start' ELSE 'expiry' END;
        granted := true;
    ELSE
        -- Mine: an earlier answer was lost.
        cause := 'restart';
        granted := mine;
    END IF;
    IF NOT granted THEN
        cause := NULL;
        timeline := fence.timeline;
        epoch := coalesce(lease.epoch, fence.epoch);
        holder := lease.node;
        holder_boot := lease.boot_id;
        hold_back_us := 0;
        expires_in_ms := plant_milliseconds_until(lease.expires_at, instant);
        RETURN;
    END IF;

    -- On another history of the database the last writes may be missing: nothing is known to have ended cleanly.
    -- Neither where the fence is new: what an earlier one held back is forgotten with it.
    unclean := unclean OR fence.epoch = 0 OR fence.timeline <> line OR fence.system_identifier <> system;
    -- From this takeover on, for a whole lease, and never less than what an earlier one said: later holders inherit it.
    IF unclean AND p_lease_ms IS NOT NULL THEN
        fence.effects_not_before := greatest(fence.effects_not_before, instant + length);
    END IF;
    timeline := line;
    epoch := greatest(fence.epoch, lease.epoch, p_at_least) + 1;

    UPDATE plant_fences f
       SET system_identifier = system, timeline = line, epoch = plant_acquire.epoch, node = p_node, boot_id = p_boot,
           module_sha256 = p_module, effects_not_before = fence.effects_not_before
     WHERE f.role = p_role AND f.partition = p_partition;
    INSERT INTO plant_leases AS l (role, partition, node, boot_id, epoch, acquired_at, renewed_at, expires_at)
        VALUES (p_role, p_partition, p_node, p_boot, plant_acquire.epoch, instant, instant, coalesce(instant + length, 'infinity'))
        ON CONFLICT (role, partition) DO UPDATE
           SET node = excluded.node, boot_id = excluded.boot_id, epoch = excluded.epoch, acquired_at = excluded.acquired_at,
               renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, freed_by = NULL;
    IF cause <> 'restart' THEN
        INSERT INTO plant_takeovers (role, partition, from_node, to_node, from_epoch, to_epoch, cause, taken_at,
                                     lease_ms, last_commit_at)
            VALUES (p_role, p_partition, holder, p_node, fence.epoch, plant_acquire.epoch, cause, instant, p_lease_ms,
                    (SELECT c.committed_at FROM plant_commits c WHERE c.role = p_role AND c.partition = p_partition));
    END IF;
    hold_back_us := CASE WHEN fence.effects_not_before > instant
        THEN ceil(extract(epoch FROM fence.effects_not_before - instant) * 1000000)::bigint ELSE 0 END;
    renewed_us := round(extract(epoch FROM instant) * 1000000)::bigint;
    expires_in_ms := coalesce(p_lease_ms, 9223372036854775807);
END
$$;

-- Lets go of a lease. Raises the epoch, so that a COMMIT that is still under way fails; a release that comes late, for an epoch or a
-- history that has passed, frees nothing. An unclean one leaves the hold-back of unfenceable effects behind.
CREATE FUNCTION plant_release(
    p_role text, p_partition text, p_node text, p_boot uuid, p_timeline integer, p_epoch bigint, p_lease_ms bigint,
    p_clean boolean, p_cause text
) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    AS $$
DECLARE
    instant timestamptz;
    next    bigint;
BEGIN
    PERFORM plant_keep_in_log();
    SELECT greatest(f.epoch, p_epoch) + 1 INTO next FROM plant_fences f
      WHERE f.role = p_role AND f.partition = p_partition AND f.timeline = p_timeline FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM FROM plant_leases l
      WHERE l.role = p_role AND l.partition = p_partition AND l.node = p_node AND l.boot_id = p_boot AND l.epoch = p_epoch
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    instant := clock_timestamp();
    UPDATE plant_fences f
       SET epoch = next,
           effects_not_before = CASE WHEN p_clean OR p_lease_ms IS NULL THEN f.effects_not_before
               ELSE greatest(f.effects_not_before, instant + make_interval(secs => p_lease_ms / 1000.0)) END
     WHERE f.role = p_role AND f.partition = p_partition;
    UPDATE plant_leases l
       SET node = NULL, boot_id = NULL, epoch = next, expires_at = instant, freed_by = p_cause
     WHERE l.role = p_role AND l.partition = p_partition;
    PERFORM pg_notify('plant_released', p_role || '/' || p_partition);
    RETURN true;
END
$$;

-- An epoch that was answered must outlive a crash of the database, whatever the database's default for commits is: an epoch that a
-- crash took back would be issued again.
CREATE FUNCTION plant_keep_in_log() RETURNS void
    LANGUAGE sql VOLATILE
    AS $$ SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off' $$;

-- What runs with its owner's rights looks for tables in this schema only: a caller's temporary table of the same name would come first
-- otherwise. And only the host's login may call it: who may take a lease could take any.
DO $$
DECLARE
    callable regprocedure;
BEGIN
    FOREACH callable IN ARRAY ARRAY[
        'plant_fence(text, text, integer, bigint, uuid)',
        'plant_note_commit(text, text, boolean)',
        'plant_acquire(text, text, text, uuid, bigint, integer, bigint, bigint, bigint, boolean, text)',
        'plant_release(text, text, text, uuid, integer, bigint, bigint, boolean, text)'
    ]::regprocedure[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', callable, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', callable);
    END LOOP;
END
$$;
