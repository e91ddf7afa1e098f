# shellcheck shell=bash
# What is compared.  To be sourced by test/bench/run.
#
# In the statements, {n} counts from 1 to 100 and starts again, {k} says for which time,
# {i} just counts.  Statements with "; " between them share a transaction.

# operation NAME BASE LABEL TRANSACTION...: single rows; BASE is what it is compared with.
define_operations() {
	local update='SET qty = qty + 1 WHERE id = {n}' check="SELECT fence.check('stock:' || {n}, 33)"
	local long

	printf -v long '%0497d' 0	# as in setup.sql

	operation plain '' 'plain `UPDATE`' "UPDATE one_plain $update"
	operation where plain '`WHERE token <= n` by hand' \
		'UPDATE one_plain SET qty = qty + 1, token = 33 WHERE id = {n} AND token <= 33'
	operation empty plain 'empty C row trigger' "UPDATE one_empty $update"
	operation compare plain 'C row trigger that compares' \
		'UPDATE one_compare SET qty = qty + 1, token = 33 WHERE id = {n}'
	operation compare_plpgsql plain 'the same in PL/pgSQL' \
		'UPDATE one_compare_plpgsql SET qty = qty + 1, token = 33 WHERE id = {n}'
	operation for_share plain '`SELECT mark ... FOR SHARE` first' \
		"SELECT mark FROM hand_mark WHERE name = 'stock:' || {n} FOR SHARE; UPDATE one_plain $update"
	operation advisory plain '`pg_advisory_xact_lock` first' \
		"SELECT pg_advisory_xact_lock({n}); UPDATE one_plain $update"
	operation advisory_where plain '`pg_advisory_xact_lock` in `WHERE`' \
		"UPDATE one_plain $update AND pg_advisory_xact_lock({n}) IS NOT NULL"
	operation set plain 'plain `UPDATE` that sets the token, too' \
		'UPDATE one_plain SET qty = qty + 1, token = 33 WHERE id = {n}'
	operation row plain '**row mark**' 'UPDATE one_row SET qty = qty + 1, token = 33 WHERE id = {n}'
	operation check plain '**`fence.check` first**, table without guard' "$check; UPDATE one_plain $update"
	operation check_where plain '**`fence.check` in `WHERE`**, table without guard' \
		"UPDATE one_plain $update AND fence.check('stock:' || {n}, 33)"
	operation resource plain '**resource mark**' "$check; UPDATE one_resource $update"
	operation both plain '**both marks**' "$check; UPDATE one_both $update"
	operation table plain '**plain name as template**' \
		"SELECT fence.check('stock:1', 33); UPDATE one_table $update"

	operation lease_hand '' 'lease table by hand: acquire, renew, release' \
		"INSERT INTO hand_lease AS l VALUES ('lease:' || {n}, 'me', 1, now() + '30 s')
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = l.token + 1,
			expires_at = excluded.expires_at WHERE l.expires_at < now() RETURNING token" \
		"UPDATE hand_lease SET expires_at = now() + '30 s'
			WHERE name = 'lease:' || {n} AND holder = 'me' AND expires_at > now()" \
		"UPDATE hand_lease SET expires_at = now() WHERE name = 'lease:' || {n} AND holder = 'me'"
	operation lease lease_hand '**`acquire`, `extend`, `release`**' \
		"SELECT acquired FROM fence.acquire('lease:' || {n}, 'me')" \
		"SELECT extended FROM fence.extend('lease:' || {n}, {k})" \
		"SELECT fence.release('lease:' || {n}, {k})"

	operation key_hand '' '`INSERT ... ON CONFLICT DO NOTHING`, `UPDATE` by hand' \
		"INSERT INTO hand_key (key) VALUES ('key:' || {i}) ON CONFLICT DO NOTHING; UPDATE hand_key SET response = '{\"ok\": true}' WHERE key = 'key:' || {i}"
	operation claim key_hand '**`claim`, `complete`**, fresh' \
		"SELECT fresh FROM fence.claim('key:' || {i}); SELECT fence.complete('key:' || {i}, '{\"ok\": true}')"
	operation admit key_hand '**`admit`, `complete`**, fresh' \
		"SELECT fresh FROM fence.admit('stock:' || {n}, 33, 'key:' || {i}); SELECT fence.complete('key:' || {i}, '{\"ok\": true}', 'stock:' || {n})"
	operation replay_hand '' 'primary-key `SELECT` by hand' \
		"SELECT response FROM hand_key WHERE key = 'done:' || {n}"
	operation replay replay_hand '**`claim`**, replay' "SELECT response FROM fence.claim('done:' || {n})"
	operation replay_value replay_hand '**`claim`**, replay, in the `SELECT` list' \
		"SELECT (fence.claim('done:' || {n})).response"
	operation admit_replay replay_hand '**`admit`**, replay' \
		"SELECT response FROM fence.admit('stock:' || {n}, 33, 'done')"

	operation check_long plain '**`fence.check` in `WHERE`**, names of 500 bytes' \
		"UPDATE one_plain $update AND fence.check('$long' || {n}, 33)"
	operation plain_columns '' 'plain `UPDATE`, 100 columns' "UPDATE columns_plain $update"
	operation row_columns plain_columns '**row mark**, 100 columns' \
		'UPDATE columns_row SET qty = qty + 1, token = 33 WHERE id = {n}'
	# last: the many locks leave a larger table of locks, and each transaction walks through that
	operation plain_partitions '' 'plain `UPDATE`, 64 partitions' "UPDATE parts_plain $update"
	operation row_partitions plain_partitions '**row mark**, 64 partitions' \
		'UPDATE parts_row SET qty = qty + 1, token = 33 WHERE id = {n}'
}

# bulk NAME BASE LABEL TRANSACTION: a thousand rows in each.
# copy NAME BASE LABEL FIRST: COPY into the table NAME, after the statements FIRST.
define_bulk() {
	local range='WHERE id BETWEEN {n} * 1000 - 999 AND {n} * 1000'
	local check="SELECT fence.check('stock:' || {n}, 33)"

	bulk many_plain '' 'plain `UPDATE`' "UPDATE many_plain SET qty = qty + 1 $range"
	bulk many_where many_plain '`WHERE token <= n` by hand' \
		"UPDATE many_plain SET qty = qty + 1, token = 33 $range AND token <= 33"
	bulk many_empty many_plain 'empty C row trigger' "UPDATE many_empty SET qty = qty + 1 $range"
	bulk many_compare many_plain 'C row trigger that compares' "UPDATE many_compare SET qty = qty + 1, token = 33 $range"
	bulk many_compare_plpgsql many_plain 'the same in PL/pgSQL' \
		"UPDATE many_compare_plpgsql SET qty = qty + 1, token = 33 $range"
	bulk many_row many_plain '**row mark**' "UPDATE many_row SET qty = qty + 1, token = 33 $range"
	bulk many_resource many_plain '**resource mark**' "$check; UPDATE many_resource SET qty = qty + 1 $range"
	bulk many_both many_plain '**both marks**' "$check; UPDATE many_both SET qty = qty + 1 $range"
	bulk many_table many_plain '**plain name as template**' \
		"SELECT fence.check('stock:1', 33); UPDATE many_table SET qty = qty + 1 $range"

	copy copy_plain '' 'plain `COPY`' ''
	copy copy_after copy_plain 'empty C trigger after each row' ''
	copy copy_transition copy_plain 'C trigger after the statement that looks at each row' ''
	copy copy_row copy_plain '**row mark**' ''
	copy copy_resource copy_plain '**resource mark**' "$check; "
	copy copy_both copy_plain '**both marks**' "$check; "
	copy copy_table copy_plain '**plain name as template**' "SELECT fence.check('stock:1', 33); "
}

# pair NAME BASE LABEL SCRIPT: what pgbench repeats of a session, timed against BASE,
# which is a case defined here before.
define_pairs() {
	local update='SET qty = qty + 1 WHERE id = :n' check="SELECT fence.check('stock:' || :n, 33)"
	local first="SELECT 1"

	pair t_plain '' 'plain `UPDATE`' "UPDATE one_plain $update;"
	pair t_where t_plain '`WHERE token <= n` by hand' \
		'UPDATE one_plain SET qty = qty + 1, token = 33 WHERE id = :n AND token <= 33;'
	pair t_empty t_plain 'empty C row trigger' "UPDATE one_empty $update;"
	pair t_compare t_plain 'C row trigger that compares' \
		'UPDATE one_compare SET qty = qty + 1, token = 33 WHERE id = :n;'
	pair t_compare_plpgsql t_plain 'the same in PL/pgSQL' \
		'UPDATE one_compare_plpgsql SET qty = qty + 1, token = 33 WHERE id = :n;'
	pair t_advisory_where t_plain '`pg_advisory_xact_lock` in `WHERE`' \
		"UPDATE one_plain $update AND pg_advisory_xact_lock(:n) IS NOT NULL;"
	pair t_row t_plain '**row mark**' 'UPDATE one_row SET qty = qty + 1, token = 33 WHERE id = :n;'
	pair t_check_where t_plain '**`fence.check` in `WHERE`**, table without guard' \
		"UPDATE one_plain $update AND fence.check('stock:' || :n, 33);"
	pair t_resource_where t_plain '**resource mark**, `fence.check` in `WHERE`' \
		"UPDATE one_resource $update AND fence.check('stock:' || :n, 33);"

	pair t_first '' 'plain `UPDATE` after `SELECT 1`' "BEGIN; $first; UPDATE one_plain $update; COMMIT;"
	pair t_for_share t_first '`SELECT mark ... FOR SHARE` first' \
		"BEGIN; SELECT mark FROM hand_mark WHERE name = 'stock:' || :n FOR SHARE; UPDATE one_plain $update; COMMIT;"
	pair t_advisory t_first '`pg_advisory_xact_lock` first' \
		"BEGIN; SELECT pg_advisory_xact_lock(:n); UPDATE one_plain $update; COMMIT;"
	pair t_check t_first '**`fence.check` first**, table without guard' "BEGIN; $check; UPDATE one_plain $update; COMMIT;"
	pair t_resource t_first '**resource mark**' "BEGIN; $check; UPDATE one_resource $update; COMMIT;"
	pair t_both t_first '**both marks**' "BEGIN; $check; UPDATE one_both $update; COMMIT;"
	pair t_table t_first '**plain name as template**' \
		"BEGIN; SELECT fence.check('stock:1', 33); UPDATE one_table $update; COMMIT;"

	pair t_lease_hand '' 'lease table by hand: acquire, renew, release' \
		"INSERT INTO hand_lease AS l VALUES ('lease:' || :own, 'me', 1, now() + '30 s') ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = l.token + 1, expires_at = excluded.expires_at WHERE l.expires_at < now() RETURNING token;
		UPDATE hand_lease SET expires_at = now() + '30 s' WHERE name = 'lease:' || :own AND holder = 'me' AND expires_at > now();
		UPDATE hand_lease SET expires_at = now() WHERE name = 'lease:' || :own AND holder = 'me';"
	pair t_lease t_lease_hand '**`acquire`, `extend`, `release`**' \
		"SELECT token FROM fence.acquire('lease:' || :own, 'me') \\gset
		SELECT extended FROM fence.extend('lease:' || :own, :token);
		SELECT fence.release('lease:' || :own, :token);"

	pair t_key_hand '' '`INSERT ... ON CONFLICT DO NOTHING`, `UPDATE` by hand' \
		"BEGIN; INSERT INTO hand_key (key) VALUES ('key:' || :any) ON CONFLICT DO NOTHING; UPDATE hand_key SET response = '{\"ok\": true}' WHERE key = 'key:' || :any; COMMIT;"
	pair t_claim t_key_hand '**`claim`, `complete`**, fresh' \
		"BEGIN; SELECT fresh FROM fence.claim('key:' || :any); SELECT fence.complete('key:' || :any, '{\"ok\": true}'); COMMIT;"
	pair t_replay_hand '' 'primary-key `SELECT` by hand' "SELECT response FROM hand_key WHERE key = 'done:' || :n;"
	pair t_replay t_replay_hand '**`claim`**, replay' "SELECT response FROM fence.claim('done:' || :n);"
}

# What is timed with statistics and without: one in a hundred presents a stale token, and
# catches the error, as pgbench would end that session.
define_statistics() {
	pair s_mixed '' '' "\\set late random(1, 100) = 1
		\\if :late
		SELECT bench.too_late('stock:' || :n, 32);
		\\else
		UPDATE one_resource SET qty = qty + 1 WHERE id = :n AND fence.check('stock:' || :n, 33);
		\\endif"
}

# whole NAME BASE LABEL STATEMENTS AFTER: one transaction over all rows of a table, timed
# against BASE; AFTER makes the table ready for the next.
define_whole() {
	local check="SELECT fence.check('stock:1', 33);"

	whole wide_plain '' 'plain `UPDATE`' 'UPDATE wide_plain SET qty = qty + 1;' "$(as_new wide_plain)"
	whole wide_where wide_plain '`WHERE token <= n` by hand' \
		'UPDATE wide_plain SET qty = qty + 1, token = 33 WHERE token <= 33;' "$(as_new wide_plain)"
	whole wide_empty wide_plain 'empty C row trigger' 'UPDATE wide_empty SET qty = qty + 1;' "$(as_new wide_empty)"
	whole wide_compare wide_plain 'C row trigger that compares' \
		'UPDATE wide_compare SET qty = qty + 1, token = 33;' "$(as_new wide_compare)"
	whole wide_compare_plpgsql wide_plain 'the same in PL/pgSQL' \
		'UPDATE wide_compare_plpgsql SET qty = qty + 1, token = 33;' "$(as_new wide_compare_plpgsql)"
	whole wide_row wide_plain '**row mark**' 'UPDATE wide_row SET qty = qty + 1, token = 33;' "$(as_new wide_row)"
	whole wide_resource wide_plain '**resource mark**' "$check UPDATE wide_resource SET qty = qty + 1;" \
		"$(as_new wide_resource)"
	whole wide_both wide_plain '**both marks**' "$check UPDATE wide_both SET qty = qty + 1;" "$(as_new wide_both)"
	whole wide_table wide_plain '**plain name as template**' "$check UPDATE wide_table SET qty = qty + 1;" \
		"$(as_new wide_table)"
	whole load_plain '' 'plain `COPY`' "COPY copy_plain FROM '$FENCE_TMP/rows';" 'TRUNCATE copy_plain'
	whole load_resource load_plain '**resource mark**' "$check COPY copy_resource FROM '$FENCE_TMP/rows';" \
		'TRUNCATE copy_resource'
	whole load_row load_plain '**row mark**' "COPY copy_row FROM '$FENCE_TMP/rows';" 'TRUNCATE copy_row'
	whole load_both load_plain '**both marks**' "$check COPY copy_both FROM '$FENCE_TMP/rows';" 'TRUNCATE copy_both'
	whole load_table load_plain '**plain name as template**' "$check COPY copy_table FROM '$FENCE_TMP/rows';" \
		'TRUNCATE copy_table'
}
