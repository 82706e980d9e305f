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
    system_identifier  bigint      NOT NULL DEFAULT 0,
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

-- Which history of which database this is. A promoted standby begins a new timeline; a restored dump has another system identifier.
CREATE FUNCTION plant_timeline() RETURNS integer
    LANGUAGE sql VOLATILE
    AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer $$;

CREATE FUNCTION plant_system() RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER
    AS $$ SELECT system_identifier FROM pg_control_system() $$;

-- The last statement of every commit. Raises when the role has moved on, or would be free to: a SELECT that finds nothing commits.
CREATE FUNCTION plant_fence(p_role text, p_partition text, p_timeline integer, p_epoch bigint, p_boot uuid) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
    AS $$
BEGIN
    -- Whoever raises the epoch waits for this lock, and so for this commit.
    PERFORM FROM plant_fences f
      WHERE f.role = p_role AND f.partition = p_partition
        AND f.timeline = p_timeline AND f.epoch = p_epoch AND f.boot_id = p_boot
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

-- Takes a lease, or raises the epoch of one that is held. One call, so that no client can freeze between its locks; the fence row is
-- locked first and the lease row second, here and everywhere.
--   p_lease_ms      how long it lasts; null: for ever
--   p_seen_epoch, p_seen_renewed_us   the lease as the caller has seen it unchanged for a whole lease of its own clock; or null
--   p_at_least      an epoch that the caller knows was issued
--   p_restart       only if it is the caller's own at p_seen_epoch
CREATE FUNCTION plant_acquire(
    p_role text, p_partition text, p_node text, p_boot uuid, p_lease_ms bigint,
    p_seen_epoch bigint, p_seen_renewed_us bigint, p_at_least bigint, p_restart boolean, p_module_sha256 text,
    OUT granted boolean, OUT timeline integer, OUT epoch bigint, OUT hold_back_us bigint, OUT cause text,
    OUT holder text, OUT holder_boot uuid, OUT renewed_us bigint, OUT expires_in_ms bigint
)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
    AS $$
#variable_conflict use_column
DECLARE
    fence    plant_fences;
    lease    plant_leases;
    present  boolean;
    instant  timestamptz;
    length   interval := make_interval(secs => p_lease_ms / 1000.0);
    held_off boolean := true;
    from_now timestamptz;
    line     integer := plant_timeline();
    system   bigint := plant_system();
    mine     boolean;
BEGIN
    INSERT INTO plant_fences (role, partition, system_identifier, timeline, epoch)
        VALUES (p_role, p_partition, system, line, 0) ON CONFLICT DO NOTHING;
    SELECT * INTO fence FROM plant_fences f WHERE f.role = p_role AND f.partition = p_partition FOR UPDATE;
    SELECT * INTO lease FROM plant_leases l WHERE l.role = p_role AND l.partition = p_partition FOR UPDATE;
    present := FOUND;
    instant := clock_timestamp();
    mine := present AND lease.node = p_node AND lease.boot_id = p_boot;
    granted := true;
    holder := lease.node;
    holder_boot := lease.boot_id;
    IF p_restart THEN
        granted := mine AND lease.epoch = p_seen_epoch AND lease.expires_at > instant;
        held_off := false;
        cause := 'restart';
    ELSIF NOT present THEN
        -- Nobody ever held it; or the row was deleted, and whoever held it is unknown and may still act.
        held_off := fence.epoch > 0;
        cause := CASE WHEN held_off THEN 'expiry' ELSE 'start' END;
    ELSIF lease.node IS NULL THEN
        held_off := false;
        cause := coalesce(lease.freed_by, 'release');
    ELSIF mine THEN
        cause := 'restart';
    ELSIF lease.expires_at <= instant
       OR (lease.epoch = p_seen_epoch AND round(extract(epoch FROM lease.renewed_at) * 1000000)::bigint = p_seen_renewed_us) THEN
        cause := 'expiry';
    ELSE
        granted := false;
    END IF;
    IF NOT granted THEN
        timeline := fence.timeline;
        epoch := coalesce(lease.epoch, fence.epoch);
        hold_back_us := 0;
        renewed_us := coalesce(round(extract(epoch FROM lease.renewed_at) * 1000000)::bigint, 0);
        expires_in_ms := plant_milliseconds_until(lease.expires_at, instant);
        RETURN;
    END IF;

    -- On another history of the database the last writes may be missing: nothing is known to have ended cleanly.
    held_off := held_off OR fence.timeline <> line OR fence.system_identifier <> system;
    -- From this takeover on, for a whole lease, and never less than what an earlier one said: later holders inherit it.
    from_now := CASE WHEN held_off AND p_lease_ms IS NOT NULL THEN instant + length ELSE '-infinity' END;
    fence.effects_not_before := greatest(fence.effects_not_before, from_now);
    timeline := line;
    epoch := greatest(fence.epoch, lease.epoch, p_at_least) + 1;

    UPDATE plant_fences f
       SET system_identifier = system, timeline = line, epoch = plant_acquire.epoch, node = p_node, boot_id = p_boot,
           module_sha256 = p_module_sha256, effects_not_before = fence.effects_not_before
     WHERE f.role = p_role AND f.partition = p_partition;
    INSERT INTO plant_leases AS l (role, partition, node, boot_id, epoch, acquired_at, renewed_at, expires_at)
        VALUES (p_role, p_partition, p_node, p_boot, plant_acquire.epoch, instant, instant,
                CASE WHEN p_lease_ms IS NULL THEN 'infinity' ELSE instant + length END)
        ON CONFLICT (role, partition) DO UPDATE
           SET node = excluded.node, boot_id = excluded.boot_id, epoch = excluded.epoch, acquired_at = excluded.acquired_at,
               renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, freed_by = NULL;
    IF NOT p_restart THEN
        INSERT INTO plant_takeovers (role, partition, from_node, to_node, from_epoch, to_epoch, cause, taken_at)
            VALUES (p_role, p_partition, coalesce(lease.node, fence.node), p_node, fence.epoch, plant_acquire.epoch, cause, instant);
    END IF;
    hold_back_us := greatest(0, extract(epoch FROM
        CASE WHEN fence.effects_not_before > instant THEN fence.effects_not_before - instant ELSE interval '0' END) * 1000000)::bigint;
    renewed_us := round(extract(epoch FROM instant) * 1000000)::bigint;
    expires_in_ms := coalesce(p_lease_ms, 9223372036854775807);
END
$$;

-- Milliseconds from `instant` until `until`, also for infinity.
CREATE FUNCTION plant_milliseconds_until(until timestamptz, instant timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN until IS NULL THEN 0 WHEN until = 'infinity' THEN 9223372036854775807
                WHEN until = '-infinity' THEN 0 ELSE round(extract(epoch FROM until - instant) * 1000)::bigint END
$$;

-- Lets go of a lease. Raises the epoch, so that a COMMIT that is still under way fails; a release that comes late, for an epoch that has
-- passed, frees nothing. An unclean one leaves the hold-back of unfenceable effects behind.
CREATE FUNCTION plant_release(
    p_role text, p_partition text, p_node text, p_boot uuid, p_epoch bigint, p_lease_ms bigint, p_clean boolean, p_cause text
) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
    AS $$
DECLARE
    instant timestamptz;
BEGIN
    PERFORM FROM plant_fences f WHERE f.role = p_role AND f.partition = p_partition FOR UPDATE;
    PERFORM FROM plant_leases l
      WHERE l.role = p_role AND l.partition = p_partition AND l.node = p_node AND l.boot_id = p_boot AND l.epoch = p_epoch
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    instant := clock_timestamp();
    UPDATE plant_fences f
       SET epoch = greatest(f.epoch, p_epoch) + 1, boot_id = NULL,
           effects_not_before = CASE WHEN p_clean OR p_lease_ms IS NULL THEN f.effects_not_before
               ELSE greatest(f.effects_not_before, instant + make_interval(secs => p_lease_ms / 1000.0)) END
     WHERE f.role = p_role AND f.partition = p_partition;
    UPDATE plant_leases l
       SET node = NULL, boot_id = NULL, epoch = p_epoch + 1, expires_at = instant, freed_by = p_cause
     WHERE l.role = p_role AND l.partition = p_partition;
    PERFORM pg_notify('plant_released', p_role || '/' || p_partition);
    RETURN true;
END
$$;
