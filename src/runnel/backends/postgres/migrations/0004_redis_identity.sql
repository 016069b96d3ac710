-- Which Redis this is the archive of, and by which addresses it was named.
ALTER TABLE meta ADD COLUMN redis_id text;
ALTER TABLE meta ADD COLUMN redis_places text[] NOT NULL DEFAULT '{}';
