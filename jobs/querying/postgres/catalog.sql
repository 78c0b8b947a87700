-- What PostgreSQL's clients look up, over DuckDB's own catalog. Each piece is one definition; a
-- statement gets the pieces whose names it has, and those that these need.

-- The jobs. Their tables are registered in temp.main; a table at a moment is none of its own.
CREATE VIEW retally_tables AS
SELECT view_name AS name, CAST(md5_number_lower(view_name) % 2000000000 + 16384 AS UINTEGER) AS oid
FROM duckdb_views()
WHERE database_name = 'temp' AND NOT internal AND NOT contains(view_name, ' ');

CREATE VIEW retally_columns AS
SELECT t.name, t.oid, c.column_name, c.column_index AS number, c.data_type,
  retally_type(c.data_type) AS type, c.numeric_precision AS digits, c.numeric_scale AS scale
FROM duckdb_columns() AS c JOIN retally_tables AS t ON c.table_name = t.name
WHERE c.database_name = 'temp';

CREATE MACRO retally_type(written) AS CASE
  WHEN written LIKE '%[]' THEN CASE written
    WHEN 'BOOLEAN[]' THEN 1000 WHEN 'TINYINT[]' THEN 1005 WHEN 'SMALLINT[]' THEN 1005
    WHEN 'INTEGER[]' THEN 1007 WHEN 'BIGINT[]' THEN 1016 WHEN 'FLOAT[]' THEN 1021
    WHEN 'DOUBLE[]' THEN 1022 WHEN 'VARCHAR[]' THEN 1009 WHEN 'BLOB[]' THEN 1001
    WHEN 'DATE[]' THEN 1182 WHEN 'TIME[]' THEN 1183 WHEN 'TIMESTAMP[]' THEN 1115
    WHEN 'TIMESTAMP WITH TIME ZONE[]' THEN 1185
    ELSE CASE WHEN written LIKE 'DECIMAL%' THEN 1231 ELSE 114 END END
  WHEN written LIKE 'DECIMAL%' THEN 1700
  WHEN written LIKE 'STRUCT%' OR written LIKE 'MAP%' THEN 114
  ELSE CASE written
    WHEN 'BOOLEAN' THEN 16 WHEN 'TINYINT' THEN 21 WHEN 'SMALLINT' THEN 21 WHEN 'INTEGER' THEN 23
    WHEN 'BIGINT' THEN 20 WHEN 'FLOAT' THEN 700 WHEN 'DOUBLE' THEN 701 WHEN 'BLOB' THEN 17
    WHEN 'DATE' THEN 1082 WHEN 'TIME' THEN 1083 WHEN 'TIMESTAMP' THEN 1114
    WHEN 'TIMESTAMP WITH TIME ZONE' THEN 1184 ELSE 25 END END;

CREATE VIEW pg_namespace AS
SELECT * FROM (VALUES (2200::UINTEGER, 'public'), (11, 'pg_catalog'), (13000, 'information_schema'))
  AS n(oid, nspname), (SELECT 10::UINTEGER AS nspowner, NULL::VARCHAR[] AS nspacl);

CREATE VIEW pg_class AS
SELECT oid, name AS relname, 2200::UINTEGER AS relnamespace, 0::UINTEGER AS reltype,
  0::UINTEGER AS reloftype, 10::UINTEGER AS relowner, 2::UINTEGER AS relam,
  0::UINTEGER AS relfilenode,
  0::UINTEGER AS reltablespace, 0 AS relpages, -1::FLOAT AS reltuples, 0 AS relallvisible,
  0::UINTEGER AS reltoastrelid, false AS relhasindex, false AS relisshared, 'p' AS relpersistence,
  'r' AS relkind, (SELECT count(*) FROM retally_columns AS c WHERE c.oid = t.oid) AS relnatts,
  0 AS relchecks, false AS relhasrules, false AS relhastriggers, false AS relhassubclass,
  false AS relrowsecurity, false AS relforcerowsecurity, true AS relispopulated,
  'd' AS relreplident, false AS relispartition, 0::UINTEGER AS relrewrite, 0 AS relfrozenxid,
  0 AS relminmxid, NULL::VARCHAR[] AS relacl, NULL::VARCHAR[] AS reloptions,
  NULL::VARCHAR AS relpartbound, false AS relhasoids
FROM retally_tables AS t;

CREATE VIEW pg_attribute AS
SELECT oid AS attrelid, column_name AS attname, type::UINTEGER AS atttypid, -1 AS attstattarget,
  -1 AS attlen, number AS attnum, 0 AS attndims,
  CASE WHEN type = 1700 THEN digits * 65536 + scale + 4 ELSE -1 END AS atttypmod,
  false AS attnotnull, false AS atthasdef, false AS atthasmissing, '' AS attidentity,
  '' AS attgenerated, false AS attisdropped, true AS attislocal, 0 AS attinhcount,
  0::UINTEGER AS attcollation, 'p' AS attstorage, '' AS attcompression, NULL::VARCHAR[] AS attacl,
  NULL::VARCHAR[] AS attoptions, NULL::VARCHAR[] AS attfdwoptions
FROM retally_columns;

CREATE VIEW pg_type AS
SELECT t.oid::UINTEGER AS oid, t.typname, 11::UINTEGER AS typnamespace, 10::UINTEGER AS typowner,
  t.typlen, t.typlen BETWEEN 1 AND 8 AS typbyval, 'b' AS typtype, t.typcategory,
  false AS typispreferred, true AS typisdefined, ',' AS typdelim, 0::UINTEGER AS typrelid,
  t.typelem::UINTEGER AS typelem, t.typarray::UINTEGER AS typarray, '-' AS typinput,
  '-' AS typoutput,
  '-' AS typreceive, 'i' AS typalign, 'p' AS typstorage, false AS typnotnull,
  0::UINTEGER AS typbasetype, -1 AS typtypmod, 0 AS typndims, 0::UINTEGER AS typcollation,
  NULL::VARCHAR AS typdefault, NULL::VARCHAR[] AS typacl
FROM (VALUES
  (16, 'bool', 1, 'B', 0, 1000), (17, 'bytea', -1, 'U', 0, 1001), (18, 'char', 1, 'Z', 0, 1002),
  (19, 'name', 64, 'S', 18, 1003), (20, 'int8', 8, 'N', 0, 1016), (21, 'int2', 2, 'N', 0, 1005),
  (23, 'int4', 4, 'N', 0, 1007), (25, 'text', -1, 'S', 0, 1009), (26, 'oid', 4, 'N', 0, 1028),
  (114, 'json', -1, 'U', 0, 199), (700, 'float4', 4, 'N', 0, 1021),
  (701, 'float8', 8, 'N', 0, 1022), (705, 'unknown', -2, 'X', 0, 0),
  (1042, 'bpchar', -1, 'S', 0, 1014), (1043, 'varchar', -1, 'S', 0, 1015),
  (1082, 'date', 4, 'D', 0, 1182), (1083, 'time', 8, 'D', 0, 1183),
  (1114, 'timestamp', 8, 'D', 0, 1115), (1184, 'timestamptz', 8, 'D', 0, 1185),
  (1186, 'interval', 16, 'T', 0, 1187), (1700, 'numeric', -1, 'N', 0, 1231),
  (2950, 'uuid', 16, 'U', 0, 2951), (3802, 'jsonb', -1, 'U', 0, 3807),
  (199, '_json', -1, 'A', 114, 0), (1000, '_bool', -1, 'A', 16, 0),
  (1001, '_bytea', -1, 'A', 17, 0), (1005, '_int2', -1, 'A', 21, 0),
  (1007, '_int4', -1, 'A', 23, 0), (1009, '_text', -1, 'A', 25, 0),
  (1015, '_varchar', -1, 'A', 1043, 0), (1016, '_int8', -1, 'A', 20, 0),
  (1021, '_float4', -1, 'A', 700, 0), (1022, '_float8', -1, 'A', 701, 0),
  (1115, '_timestamp', -1, 'A', 1114, 0), (1182, '_date', -1, 'A', 1082, 0),
  (1183, '_time', -1, 'A', 1083, 0), (1185, '_timestamptz', -1, 'A', 1184, 0),
  (1187, '_interval', -1, 'A', 1186, 0), (1231, '_numeric', -1, 'A', 1700, 0)
) AS t(oid, typname, typlen, typcategory, typelem, typarray);

CREATE MACRO format_type(type, modifier) AS coalesce((
  SELECT CASE
    WHEN type = 1700 AND modifier > 4 THEN
      'numeric(' || ((modifier - 4) // 65536) || ',' || ((modifier - 4) % 65536) || ')'
    ELSE CASE ltrim(typname, '_')
      WHEN 'bool' THEN 'boolean' WHEN 'int2' THEN 'smallint' WHEN 'int4' THEN 'integer'
      WHEN 'int8' THEN 'bigint' WHEN 'float4' THEN 'real' WHEN 'float8' THEN 'double precision'
      WHEN 'timestamp' THEN 'timestamp without time zone'
      WHEN 'timestamptz' THEN 'timestamp with time zone'
      WHEN 'time' THEN 'time without time zone' WHEN 'varchar' THEN 'character varying'
      ELSE ltrim(typname, '_') END || CASE WHEN typelem > 0 AND typlen < 0 THEN '[]' ELSE '' END
    END
  FROM pg_type AS found WHERE found.oid = type), '???');

CREATE VIEW pg_database AS
SELECT 5::UINTEGER AS oid, current_database() AS datname, 10::UINTEGER AS datdba, 6 AS encoding,
  'C' AS datcollate, 'C' AS datctype, false AS datistemplate, true AS datallowconn,
  -1 AS datconnlimit, 1663::UINTEGER AS dattablespace, NULL::VARCHAR[] AS datacl,
  'c' AS datlocprovider, NULL::VARCHAR AS daticulocale, 0 AS datfrozenxid;

CREATE VIEW pg_roles AS
SELECT 10::UINTEGER AS oid, current_user() AS rolname, false AS rolsuper, true AS rolinherit,
  false AS rolcreaterole, false AS rolcreatedb, true AS rolcanlogin, false AS rolreplication,
  -1 AS rolconnlimit, NULL::TIMESTAMPTZ AS rolvaliduntil, false AS rolbypassrls,
  NULL::VARCHAR[] AS rolconfig, '********' AS rolpassword;
CREATE VIEW pg_user AS
SELECT rolname AS usename, oid AS usesysid, false AS usecreatedb, false AS usesuper FROM pg_roles;
CREATE VIEW pg_auth_members AS
SELECT 0::UINTEGER AS roleid, 0::UINTEGER AS member, 0::UINTEGER AS grantor, false AS admin_option
WHERE false;
CREATE VIEW pg_am AS SELECT 2::UINTEGER AS oid, 'heap' AS amname, '-' AS amhandler, 't' AS amtype;
CREATE VIEW pg_settings AS
SELECT name, setting, NULL::VARCHAR AS unit, 'retally' AS category, '' AS short_desc,
  'string' AS vartype, 'default' AS source, 'user' AS context, setting AS boot_val,
  setting AS reset_val, NULL::VARCHAR[] AS enumvals
FROM (VALUES ('server_version', '15.0'), ('server_encoding', 'UTF8'), ('client_encoding', 'UTF8'),
  ('DateStyle', 'ISO, MDY'), ('TimeZone', 'UTC'), ('standard_conforming_strings', 'on'),
  ('max_index_keys', '32'), ('search_path', 'public')) AS s(name, setting);
CREATE VIEW pg_tables AS
SELECT 'public' AS schemaname, name AS tablename, current_user() AS tableowner,
  NULL::VARCHAR AS tablespace, false AS hasindexes, false AS hasrules, false AS hastriggers,
  false AS rowsecurity
FROM retally_tables;

-- Nothing of the kind is here.
CREATE VIEW pg_index AS
SELECT 0::UINTEGER AS indexrelid, 0::UINTEGER AS indrelid, 0 AS indnatts, 0 AS indnkeyatts,
  false AS indisunique, false AS indisprimary, false AS indisexclusion, false AS indimmediate,
  false AS indisclustered, false AS indisvalid, false AS indisreplident, false AS indisready,
  false AS indislive, false AS indnullsnotdistinct, []::UINTEGER[] AS indkey,
  []::UINTEGER[] AS indcollation, []::UINTEGER[] AS indclass, []::UINTEGER[] AS indoption,
  '' AS indexprs, '' AS indpred
WHERE false;
CREATE VIEW pg_constraint AS
SELECT 0::UINTEGER AS oid, '' AS conname, 0::UINTEGER AS connamespace, '' AS contype,
  false AS condeferrable, false AS condeferred, false AS convalidated, 0::UINTEGER AS conrelid,
  0::UINTEGER AS contypid, 0::UINTEGER AS conindid, 0::UINTEGER AS conparentid,
  0::UINTEGER AS confrelid,
  '' AS confupdtype, '' AS confdeltype, '' AS confmatchtype, false AS conislocal,
  0 AS coninhcount, false AS connoinherit, []::UINTEGER[] AS conkey, []::UINTEGER[] AS confkey,
  '' AS conbin
WHERE false;
CREATE VIEW pg_description AS
SELECT 0::UINTEGER AS objoid, 0::UINTEGER AS classoid, 0 AS objsubid, '' AS description WHERE false;
CREATE VIEW pg_shdescription AS
SELECT 0::UINTEGER AS objoid, 0::UINTEGER AS classoid, '' AS description WHERE false;
CREATE VIEW pg_attrdef AS
SELECT 0::UINTEGER AS oid, 0::UINTEGER AS adrelid, 0 AS adnum, '' AS adbin WHERE false;
CREATE VIEW pg_collation AS
SELECT 0::UINTEGER AS oid, '' AS collname, 0::UINTEGER AS collnamespace, '' AS collprovider,
  true AS collisdeterministic, '' AS collcollate, '' AS collctype
WHERE false;
CREATE VIEW pg_inherits AS
SELECT 0::UINTEGER AS inhrelid, 0::UINTEGER AS inhparent, 0 AS inhseqno, false AS inhdetachpending
WHERE false;
CREATE VIEW pg_policy AS
SELECT 0::UINTEGER AS oid, '' AS polname, 0::UINTEGER AS polrelid, '' AS polcmd,
  false AS polpermissive, []::UINTEGER[] AS polroles, '' AS polqual, '' AS polwithcheck
WHERE false;
CREATE VIEW pg_statistic_ext AS
SELECT 0::UINTEGER AS oid, 0::UINTEGER AS stxrelid, '' AS stxname, 0::UINTEGER AS stxnamespace,
  ['']::VARCHAR[] AS stxkind, 0 AS stxstattarget, []::UINTEGER[] AS stxkeys
WHERE false;
CREATE VIEW pg_publication AS
SELECT 0::UINTEGER AS oid, '' AS pubname, false AS puballtables WHERE false;
CREATE VIEW pg_publication_rel AS
SELECT 0::UINTEGER AS oid, 0::UINTEGER AS prpubid, 0::UINTEGER AS prrelid, '' AS prqual,
  []::UINTEGER[] AS prattrs
WHERE false;
CREATE VIEW pg_publication_namespace AS
SELECT 0::UINTEGER AS oid, 0::UINTEGER AS pnpubid, 0::UINTEGER AS pnnspid WHERE false;
CREATE VIEW pg_trigger AS
SELECT 0::UINTEGER AS oid, 0::UINTEGER AS tgrelid, '' AS tgname, 0::UINTEGER AS tgfoid,
  '' AS tgenabled,
  false AS tgisinternal, 0::UINTEGER AS tgparentid, 0::UINTEGER AS tgconstraint
WHERE false;
CREATE VIEW pg_rewrite AS
SELECT 0::UINTEGER AS oid, '' AS rulename, 0::UINTEGER AS ev_class, '' AS ev_enabled WHERE false;
CREATE VIEW pg_foreign_table AS
SELECT 0::UINTEGER AS ftrelid, 0::UINTEGER AS ftserver, ['']::VARCHAR[] AS ftoptions WHERE false;
CREATE VIEW pg_foreign_server AS
SELECT 0::UINTEGER AS oid, '' AS srvname, 0::UINTEGER AS srvowner WHERE false;
CREATE VIEW pg_partitioned_table AS
SELECT 0::UINTEGER AS partrelid, '' AS partstrat WHERE false;
CREATE VIEW pg_enum AS
SELECT 0::UINTEGER AS oid, 0::UINTEGER AS enumtypid, 0 AS enumsortorder, '' AS enumlabel
WHERE false;
CREATE VIEW pg_range AS
SELECT 0::UINTEGER AS rngtypid, 0::UINTEGER AS rngsubtype, 0::UINTEGER AS rngmultitypid WHERE false;
CREATE VIEW pg_extension AS
SELECT 0::UINTEGER AS oid, '' AS extname, '' AS extversion, 0::UINTEGER AS extnamespace WHERE false;
CREATE VIEW pg_sequence AS
SELECT 0::UINTEGER AS seqrelid, 0::UINTEGER AS seqtypid, 0 AS seqstart, 0 AS seqincrement,
  0 AS seqmax, 0 AS seqmin, 0 AS seqcache, false AS seqcycle
WHERE false;
CREATE VIEW pg_depend AS
SELECT 0::UINTEGER AS classid, 0::UINTEGER AS objid, 0 AS objsubid, 0::UINTEGER AS refclassid,
  0::UINTEGER AS refobjid, 0 AS refobjsubid, '' AS deptype
WHERE false;
CREATE VIEW pg_proc AS
SELECT 0::UINTEGER AS oid, '' AS proname, 0::UINTEGER AS pronamespace, '' AS prokind,
  0::UINTEGER AS prorettype, []::UINTEGER[] AS proargtypes
WHERE false;
CREATE VIEW pg_opclass AS
SELECT 0::UINTEGER AS oid, '' AS opcname, 0::UINTEGER AS opcmethod, true AS opcdefault WHERE false;
CREATE VIEW pg_language AS SELECT 0::UINTEGER AS oid, '' AS lanname WHERE false;
CREATE VIEW pg_matviews AS
SELECT '' AS schemaname, '' AS matviewname, '' AS matviewowner, '' AS definition WHERE false;
CREATE VIEW pg_views AS
SELECT '' AS schemaname, '' AS viewname, '' AS viewowner, '' AS definition WHERE false;
CREATE VIEW pg_locks AS SELECT '' AS locktype, 0::UINTEGER AS relation, 0 AS pid WHERE false;
CREATE VIEW pg_stat_activity AS
SELECT 0 AS pid, '' AS datname, '' AS usename, '' AS state, '' AS query WHERE false;

-- The information schema, which statements name `info`.
CREATE VIEW info.schemata AS
SELECT current_database() AS catalog_name, nspname AS schema_name,
  current_user() AS schema_owner
FROM pg_namespace;
CREATE VIEW info.tables AS
SELECT current_database() AS table_catalog, 'public' AS table_schema, name AS table_name,
  'BASE TABLE' AS table_type, 'NO' AS is_insertable_into, 'NO' AS is_typed,
  NULL::VARCHAR AS commit_action
FROM retally_tables;
CREATE VIEW info.views AS
SELECT '' AS table_catalog, '' AS table_schema, '' AS table_name, '' AS view_definition
WHERE false;
CREATE VIEW info.columns AS
SELECT current_database() AS table_catalog, 'public' AS table_schema, name AS table_name,
  column_name, number AS ordinal_position, NULL::VARCHAR AS column_default,
  'YES' AS is_nullable,
  CASE WHEN typcategory = 'A' THEN 'ARRAY' ELSE format_type(type, -1) END AS data_type,
  NULL::INTEGER AS character_maximum_length,
  digits AS numeric_precision, scale AS numeric_scale, NULL::INTEGER AS datetime_precision,
  'pg_catalog' AS udt_schema, typname AS udt_name, 'NO' AS is_identity, 'NEVER' AS is_generated,
  'NO' AS is_updatable
FROM retally_columns AS c JOIN pg_type AS t ON t.oid = c.type;
CREATE VIEW info.table_constraints AS
SELECT '' AS constraint_catalog, '' AS constraint_schema, '' AS constraint_name,
  '' AS table_catalog, '' AS table_schema, '' AS table_name, '' AS constraint_type
WHERE false;
CREATE VIEW info.key_column_usage AS
SELECT '' AS constraint_catalog, '' AS constraint_schema, '' AS constraint_name,
  '' AS table_catalog, '' AS table_schema, '' AS table_name, '' AS column_name,
  0 AS ordinal_position
WHERE false;
CREATE MACRO info._pg_expandarray(list) AS {'x': list[1], 'n': 1};
CREATE VIEW info.routines AS
SELECT '' AS routine_schema, '' AS routine_name, '' AS routine_type WHERE false;

CREATE MACRO version() AS 'PostgreSQL 15.0 (retally)';
CREATE MACRO current_database() AS 'retally';
CREATE MACRO current_catalog() AS 'retally';
CREATE MACRO current_user() AS '{user}';
CREATE MACRO session_user() AS '{user}';
CREATE MACRO current_role() AS '{user}';
CREATE MACRO current_schema() AS 'public';
CREATE MACRO current_schemas(implicit) AS
  CASE WHEN implicit THEN ['pg_catalog', 'public'] ELSE ['public'] END;
CREATE MACRO retally_setting(wanted) AS CASE lower(wanted)
  WHEN 'server_version_num' THEN '150000' WHEN 'server_version' THEN '15.0'
  WHEN 'search_path' THEN 'public' WHEN 'timezone' THEN 'UTC' WHEN 'datestyle' THEN 'ISO, MDY'
  WHEN 'client_encoding' THEN 'UTF8' WHEN 'server_encoding' THEN 'UTF8'
  WHEN 'standard_conforming_strings' THEN 'on' WHEN 'transaction_read_only' THEN 'on' END;
CREATE MACRO current_setting(wanted) AS retally_setting(wanted),
  (wanted, missing_ok) AS retally_setting(wanted);
CREATE MACRO set_config(setting, value, of_transaction) AS value;
CREATE MACRO pg_advisory_unlock_all() AS NULL;
CREATE MACRO pg_backend_pid() AS 1;
CREATE MACRO pg_is_in_recovery() AS false;
CREATE MACRO pg_get_userbyid(role) AS current_user();
CREATE MACRO pg_encoding_to_char(encoding) AS 'UTF8';
CREATE MACRO pg_table_is_visible(relation) AS true;
CREATE MACRO pg_type_is_visible(type) AS true;
CREATE MACRO pg_relation_is_publishable(relation) AS false;
CREATE MACRO to_regtype(given) AS (SELECT max(t.oid) FROM pg_type AS t WHERE t.typname = given);
CREATE MACRO pg_get_function_result(function) AS NULL::VARCHAR;
CREATE MACRO pg_get_function_arguments(function) AS NULL::VARCHAR;
CREATE MACRO pg_get_function_identity_arguments(function) AS NULL::VARCHAR;
CREATE MACRO pg_get_partkeydef(relation) AS NULL::VARCHAR;
CREATE MACRO pg_get_statisticsobjdef_columns(object) AS NULL::VARCHAR;
CREATE MACRO pg_get_serial_sequence(relation, of_column) AS NULL::VARCHAR;
CREATE MACRO pg_get_expr(expression, relation) AS expression,
  (expression, relation, pretty) AS expression;
CREATE MACRO pg_get_indexdef(index) AS NULL::VARCHAR,
  (index, number, pretty) AS NULL::VARCHAR;
CREATE MACRO pg_get_constraintdef(relation) AS NULL::VARCHAR,
  (relation, pretty) AS NULL::VARCHAR;
CREATE MACRO pg_get_viewdef(relation) AS NULL::VARCHAR, (relation, pretty) AS NULL::VARCHAR;
CREATE MACRO pg_get_ruledef(rule, pretty) AS NULL::VARCHAR;
CREATE MACRO pg_get_triggerdef(object, pretty) AS NULL::VARCHAR;
CREATE MACRO pg_total_relation_size(relation) AS 0::BIGINT;
CREATE MACRO pg_relation_size(relation) AS 0::BIGINT, (relation, fork) AS 0::BIGINT;
CREATE MACRO pg_table_size(relation) AS 0::BIGINT;
CREATE MACRO pg_database_size(database) AS 0::BIGINT;
CREATE MACRO pg_tablespace_location(space) AS '';
CREATE MACRO obj_description(object) AS NULL::VARCHAR, (object, catalog) AS NULL::VARCHAR;
CREATE MACRO shobj_description(object, catalog) AS NULL::VARCHAR;
CREATE MACRO col_description(relation, number) AS NULL::VARCHAR;
CREATE MACRO quote_ident(given) AS
  CASE WHEN regexp_full_match(given, '[a-z_][a-z0-9_]*') THEN given
  ELSE '"' || replace(given, '"', '""') || '"' END;
CREATE MACRO parse_ident(given) AS str_split(replace(given, '"', ''), '.');
CREATE MACRO string_to_array(given, separator) AS TABLE
  SELECT str_split(given, separator) AS s;
CREATE MACRO array_upper(list, dimension) AS len(list);
CREATE MACRO array_lower(list, dimension) AS CASE WHEN len(list) > 0 THEN 1 END;
CREATE MACRO to_regclass(given) AS (
  SELECT max(t.oid) FROM retally_tables AS t
  WHERE t.name = replace(regexp_replace(given, '^"?public"?[.]', ''), '"', ''));
CREATE MACRO retally_oid(written) AS
  coalesce(TRY_CAST(written AS UINTEGER), to_regclass(written),
    CASE WHEN contains(written, 'pg_') THEN 0
    ELSE error('relation "' || written || '" does not exist') END);

CREATE TYPE regclass AS VARCHAR;
CREATE TYPE regtype AS VARCHAR;
CREATE TYPE regproc AS VARCHAR;
CREATE TYPE regnamespace AS VARCHAR;
CREATE TYPE name AS VARCHAR;
