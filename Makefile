# pg_fence: fencing tokens and leases, checked by the database

EXTENSION = pg_fence
EXTVERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(EXTENSION).control)

MODULE_big = pg_fence
OBJS = \
	src/acquire.o \
	src/args.o \
	src/attempt.o \
	src/audit.o \
	src/canonical.o \
	src/canonical_form.o \
	src/claim.o \
	src/claim_row.o \
	src/claimed.o \
	src/constraint.o \
	src/counters.o \
	src/digest.o \
	src/evict.o \
	src/execution.o \
	src/fast_update.o \
	src/forget.o \
	src/guard.o \
	src/guard_key.o \
	src/histogram.o \
	src/history.o \
	src/idempotency.o \
	src/judge.o \
	src/key.o \
	src/lease.o \
	src/lease_end.o \
	src/mark.o \
	src/merge.o \
	src/pg_fence.o \
	src/policy.o \
	src/present.o \
	src/protect.o \
	src/prune.o \
	src/redis_breaker.o \
	src/redis_conn.o \
	src/redis_lease.o \
	src/redis_reply.o \
	src/redis_server.o \
	src/redis_tls.o \
	src/rejection.o \
	src/resource.o \
	src/row_name.o \
	src/sequence.o \
	src/shmem.o \
	src/statement.o \
	src/stats.o \
	src/stats_view.o \
	src/table.o \
	src/template.o \
	src/unique.o \
	src/verdict.o \
	src/wait_queue.o
PGFILEDESC = "pg_fence - fencing tokens and leases"

DATA = sql/$(EXTENSION)--$(EXTVERSION).sql

REGRESS = \
	install \
	arguments \
	canonical \
	lease \
	lease_many \
	check \
	subtransactions \
	prepared \
	isolation_levels \
	guard_resource \
	guard_row \
	guard_both \
	writes \
	partitions \
	attach \
	protect \
	hand_made \
	guard_ddl \
	names \
	triggers \
	foreign_keys \
	observe \
	bypass \
	fast_update \
	pool \
	privileges \
	search_path \
	audit \
	errors \
	histogram \
	history \
	forget \
	claim \
	claim_errors \
	claim_many \
	sequence \
	admit \
	prune \
	key_column \
	key_writes \
	drop

# prepared comes last: what it leaves behind when it fails would hold up the rest
ISOLATION = \
	deferred \
	equal_tokens \
	external_tokens \
	f_fast_update \
	heartbeat \
	i_admit \
	i_key_column \
	i_order \
	i_savepoint \
	i_sequence \
	i_serializable \
	i_twins \
	i_where \
	isolation_levels \
	lease_races \
	lock_order \
	open_across \
	p1_order \
	p2_row_and_resource \
	p2_row_tokens \
	p3_issue \
	p4_commit_never_waits \
	p5_holder_undisturbed \
	p5_just_ended \
	p5_lost_race \
	p6_lease_excludes \
	raise_mark \
	request_id \
	resource_mark \
	savepoint \
	tombstone \
	upsert \
	x_acquire_many \
	x_audit \
	x_cascade \
	x_forget \
	x_hand_over \
	x_merge \
	x_observe \
	x_partition \
	x_rewrite \
	prepared
ISOLATION_OPTS = --inputdir=$(srcdir)/test --load-extension=$(EXTENSION)

TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

# The server's own headers are not clean under -Wextra; and clang warns about
# the headers and flags of a server that was built by gcc.
override PG_CFLAGS += -Wno-unused-parameter -Wno-ignored-attributes \
	-Wno-ignored-optimization-argument -Wno-unknown-warning-option

# What is hashed is hashed by OpenSSL.
SHLIB_LINK = -lhiredis -lcrypto

# hiredis has TLS from version 1.0 on, in a library of its own; what it is to
# accept is told to OpenSSL.
ifeq ($(shell $(CC) -E -include hiredis/hiredis_ssl.h -include openssl/ssl.h -x c /dev/null >/dev/null 2>&1 && echo yes),yes)
PG_CPPFLAGS += -DFENCE_HAVE_TLS
SHLIB_LINK += -lhiredis_ssl -lssl -lcrypto
endif

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
