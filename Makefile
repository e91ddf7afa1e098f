# pg_fence: fencing tokens and leases, checked by the database

EXTENSION = pg_fence
EXTVERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(EXTENSION).control)

MODULE_big = pg_fence
OBJS = \
	src/args.o \
	src/audit.o \
	src/evict.o \
	src/forget.o \
	src/guard.o \
	src/lease.o \
	src/mark.o \
	src/merge.o \
	src/pg_fence.o \
	src/policy.o \
	src/present.o \
	src/protect.o \
	src/resource.o \
	src/template.o \
	src/verdict.o
PGFILEDESC = "pg_fence - fencing tokens and leases"

DATA = sql/$(EXTENSION)--$(EXTVERSION).sql

REGRESS =

ISOLATION =
ISOLATION_OPTS = --inputdir=$(srcdir)/test

TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

# The server's own headers are not clean under -Wextra; and clang warns about
# the headers and flags of a server that was built by gcc.
override PG_CFLAGS += -Wno-unused-parameter -Wno-ignored-attributes \
	-Wno-ignored-optimization-argument -Wno-unknown-warning-option

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
