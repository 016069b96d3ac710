-- The Redis that is paired with this archive, and its addresses.
ALTER TABLE meta ADD COLUMN redis_id text;
ALTER TABLE meta ADD COLUMN redis_places text[] NOT NULL DEFAULT '{}';
