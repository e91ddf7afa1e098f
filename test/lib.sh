# shellcheck shell=bash
# Functions that test/all, test/demo and their like share: packages, a temporary
# folder, an unprivileged user, builds, private servers.  To be sourced by bash.
#
# Nothing outside the temporary folder is written, apart from Debian packages that
# are missing.  In particular the machine's own PostgreSQL is never touched: the
# extension is installed below the temporary folder (DESTDIR), and the servers we
# start find it there through a setting.  KEEP=1 keeps that folder.

FENCE_ROOT=$(CDPATH="" cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

FENCE_TMP=		# the temporary folder
FENCE_USER=		# who builds and runs the servers
FENCE_CHILD=	# process group of the running suite, if any
FENCE_UNDO=()	# files, and a folder, to remove again once packages are installed
FENCE_UNDO_DIR=
FENCE_PIDS=()	# more processes to end on exit

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# ---------------------------------------------------------------- packages

# The PostgreSQL major version to use: PG_MAJOR, else what pg_config says, else Debian 12's.
pg_major() {
	if [ -n "${PG_MAJOR:-}" ]; then
		printf '%s' "$PG_MAJOR"
	elif command -v pg_config >/dev/null; then
		pg_config --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'
	else
		printf 15
	fi
}

is_installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need_packages NAME...: install those that are missing.
need_packages() {
	local missing=() name

	command -v dpkg-query >/dev/null || die "needs Debian or a system derived from it"
	for name; do
		is_installed "$name" || missing+=("$name")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" -eq 0 ] || die "these packages are missing, run with sudo to install them: ${missing[*]}"

	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	quiet_apt update || say "apt-get update failed (one source that cannot be reached is enough); going on"
	hold_services
	quiet_apt install -y --no-install-recommends "${missing[@]}" || die "apt-get install failed"
	release_services
}

# apt-get that shows its output only when it fails.  The lock is waited for: on a
# fresh machine unattended-upgrades often holds it.
quiet_apt() {
	local log
	log=$(mktemp)
	if apt-get -q -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null; then
		rm -f "$log"
	else
		tail -n 30 "$log" >&2
		rm -f "$log"
		return 1
	fi
}

# A server package starts its service and, in PostgreSQL's case, creates a cluster
# first.  We want the programs only, so both are forbidden until release_services.
hold_services() {
	local policy=/usr/sbin/policy-rc.d conf=/etc/postgresql-common/createcluster.conf
	local dir=/etc/postgresql-common/createcluster.d

	if [ ! -e "$policy" ]; then
		FENCE_UNDO+=("$policy")
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	# Without the line that Debian ships, this machine would not read the folder below.
	if [ -e "$conf" ] && ! grep -q "^include_dir '$dir'" "$conf"; then
		printf 'create_main_cluster = false # pg_fence tests\n' >>"$conf"
	fi
	if [ ! -d "$dir" ]; then
		FENCE_UNDO_DIR=$dir
		mkdir -p "$dir"
	fi
	FENCE_UNDO+=("$dir/99-pg_fence-tests.conf")
	printf 'create_main_cluster = false\n' >"$dir/99-pg_fence-tests.conf"
}

release_services() {
	local conf=/etc/postgresql-common/createcluster.conf

	[ ${#FENCE_UNDO[@]} -gt 0 ] || return 0
	rm -f "${FENCE_UNDO[@]}"
	FENCE_UNDO=()
	if [ -e "$conf" ]; then
		sed -i '/# pg_fence tests$/d' "$conf"
	fi
	if [ -n "$FENCE_UNDO_DIR" ]; then
		rmdir "$FENCE_UNDO_DIR"
		FENCE_UNDO_DIR=
	fi
}

# ---------------------------------------------------------------- folder, user, cleanup

# prepare [FOLDER]: temporary folder in there, user, PATH.  Call it once, after need_packages.
prepare() {
	PG_BIN=/usr/lib/postgresql/$(pg_major)/bin
	[ -x "$PG_BIN/postgres" ] || die "no PostgreSQL server in $PG_BIN"

	# initdb refuses to run as root
	FENCE_USER=$(id -un)
	if [ "$(id -u)" -eq 0 ]; then
		FENCE_USER=postgres
		id -u postgres >/dev/null 2>&1 || FENCE_USER=nobody
	fi

	# Short, because it will hold unix sockets, whose paths may have 107 bytes.
	# Closed to others, because the servers trust whoever reaches their socket.
	FENCE_TMP=$(mktemp -d "${1:-/tmp}/pg_fence.XXXXXX")
	mkdir "$FENCE_TMP/home"
	[ "$(id -u)" -ne 0 ] || chown -R "$FENCE_USER:" "$FENCE_TMP"
}

cleanup() {
	local status=$?

	trap - EXIT
	trap '' HUP INT TERM
	release_services
	stop_child
	stop_servers
	[ ${#FENCE_PIDS[@]} -eq 0 ] || kill -KILL "${FENCE_PIDS[@]}" 2>/dev/null
	if [ -n "${KEEP:-}" ]; then
		[ -z "$FENCE_TMP" ] || say "kept $FENCE_TMP" >&2
	elif [ -n "$FENCE_TMP" ]; then
		rm -rf -- "$FENCE_TMP"
	fi
	exit "$status"
}

trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# as_user COMMAND...: run it as the unprivileged user with a small, known environment;
# FENCE_ENV holds more variables, NAME=value.  exec_as_user replaces the shell, so that
# "exec_as_user COMMAND &" leaves the command's own pid in $!.
FENCE_ENV=()
as_user() {
	(exec_as_user "$@")
}

exec_as_user() {
	local become=()

	if [ "$(id -u)" -eq 0 ]; then
		become=(setpriv "--reuid=$FENCE_USER" "--regid=$(id -g "$FENCE_USER")" --init-groups --)
	fi
	exec "${become[@]}" env -i \
		PATH="$PG_BIN:/usr/local/bin:/usr/bin:/bin" HOME="$FENCE_TMP/home" USER="$FENCE_USER" \
		LC_ALL=C "${FENCE_ENV[@]}" "$@"
}

# ---------------------------------------------------------------- source, build

# The files of the checkout, each ended by a NUL: what git knows and what it would
# add; without git, all but build products.
list_files() {
	local list=(git -c safe.directory='*' -C "$FENCE_ROOT" ls-files -z -co --exclude-standard)

	if command -v git >/dev/null && "${list[@]}" >/dev/null 2>&1; then
		"${list[@]}"
	else
		(cd "$FENCE_ROOT" && find . \( -name .git -o -path ./results -o -path ./log \
			-o -path ./tmp_check -o -path ./output_iso \) -prune \
			-o \( -type f -o -type l \) ! -name '*.o' ! -name '*.so' ! -name '*.bc' -print0)
	fi
}

# Files that are deleted but not yet committed are still listed.
list_existing_files() {
	local file

	while IFS= read -r -d '' file; do
		if [ -e "$FENCE_ROOT/$file" ]; then
			printf '%s\0' "$file"
		fi
	done < <(list_files)
}

# copy_source NAME: a copy of the checkout in $FENCE_TMP/NAME, owned by the user.
copy_source() {
	as_user mkdir -p "$FENCE_TMP/$1" || return
	list_existing_files | tar -C "$FENCE_ROOT" --null -T - -cf - | as_user tar -C "$FENCE_TMP/$1" -xf -
}

# make_in NAME ARGUMENT...: make in $FENCE_TMP/NAME.  No LLVM bitcode, which would need
# exactly the clang that the server was built with (field case G02).
make_in() {
	local dir=$FENCE_TMP/$1
	shift
	as_user make --no-print-directory -C "$dir" PG_CONFIG="$PG_BIN/pg_config" with_llvm=no "$@"
}

# ---------------------------------------------------------------- servers

# extension_conf DESTDIR: settings that let a server find an extension installed there.
# Debian patches a setting into its servers; PostgreSQL 18 has two of its own.
extension_conf() {
	if [ "$(pg_major)" -ge 18 ]; then
		printf "extension_control_path = '%s:\$system'\n" "$1$("$PG_BIN/pg_config" --sharedir)"
		printf "dynamic_library_path = '%s:\$libdir'\n" "$1$("$PG_BIN/pg_config" --pkglibdir)"
	else
		printf "extension_destdir = '%s'\n" "$1"
	fi
}

# start_server NAME CONF [INITDB OPTION...]: a server in $FENCE_TMP/NAME, reached by
# unix socket only.  CONF is text for its postgresql.conf.  Sets PGHOST, PGPORT, PGUSER.
start_server() {
	local dir=$FENCE_TMP/$1 conf=$2
	shift 2

	as_user mkdir -p "$dir" || return
	as_user initdb -D "$dir/data" -U postgres -A trust --no-sync "$@" >"$dir.initdb" 2>&1 ||
		{ cat "$dir.initdb" >&2; return 1; }
	as_user tee -a "$dir/data/postgresql.conf" >/dev/null <<-END
		listen_addresses = ''
		unix_socket_directories = '$dir'
		port = 5432
		fsync = off
		max_prepared_transactions = 10
		log_line_prefix = '%m [%p] %q%a '
		$conf
	END
	as_user pg_ctl -D "$dir/data" -l "$dir/log" -w -t 60 start >/dev/null ||
		{ tail -n 20 "$dir/log" >&2; return 1; }
	export PGHOST=$dir PGPORT=5432 PGUSER=postgres
}

# stop_servers: end every server whose data lies in the temporary folder.  The pid in a
# file can be an old one, so it must be a process that lives in that very folder.
stop_servers() {
	local file pid

	[ -n "$FENCE_TMP" ] || return 0
	while IFS= read -r -d '' file; do
		pid=$(head -n 1 "$file")
		case $pid in '' | *[!0-9]*) continue ;; esac
		[ "$(readlink "/proc/$pid/cwd")" = "${file%/*}" ] || continue
		end_process "$pid" QUIT
	done < <(find "$FENCE_TMP" -name postmaster.pid -print0 2>/dev/null)
}

# start_daemon NAME COMMAND...: another kind of server, which stays in the foreground.
# Its output goes into $FENCE_TMP/NAME.log.  Ended by stop_daemons, or on exit.
start_daemon() {
	local name=$1
	shift

	exec_as_user "$@" </dev/null >"$FENCE_TMP/$name.log" 2>&1 &
	FENCE_PIDS+=("$!")
	disown # or bash would report its end
}

# wait_for_daemon NAME COMMAND...: until COMMAND succeeds.
wait_for_daemon() {
	local name=$1 i
	shift

	for ((i = 0; i < 300; i++)); do
		if as_user "$@" >/dev/null 2>&1; then
			return 0
		fi
		kill -0 "${FENCE_PIDS[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	tail -n 20 "$FENCE_TMP/$name.log" >&2
	return 1
}

# start_redis NAME: without persistence, reached by the unix socket $FENCE_TMP/NAME.sock only.
start_redis() {
	local socket=$FENCE_TMP/$1.sock

	start_daemon "$1" redis-server --port 0 --unixsocket "$socket" --dir "$FENCE_TMP/home" \
		--save '' --appendonly no
	wait_for_daemon "$1" redis-cli -e -s "$socket" ping
}

# start_pgbouncer NAME DATABASE: transaction pooling in front of the running server, in the
# folder $FENCE_TMP/NAME, port 6432; the same with statement pooling is DATABASE_statements.
# A server that has just crashed is tried again at once.
start_pgbouncer() {
	local dir=$FENCE_TMP/$1

	as_user mkdir -p "$dir" || return
	printf '"postgres" ""\n"worker" ""\n' | as_user tee "$dir/users" >/dev/null
	as_user tee "$dir/ini" >/dev/null <<-END
		[databases]
		$2 = host=$PGHOST port=$PGPORT
		$2_statements = host=$PGHOST port=$PGPORT dbname=$2 pool_mode=statement
		[pgbouncer]
		listen_addr =
		listen_port = 6432
		unix_socket_dir = $dir
		auth_type = trust
		auth_file = $dir/users
		admin_users = postgres
		pool_mode = transaction
		default_pool_size = 4
		max_client_conn = 200
		server_login_retry = 0.1
		ignore_startup_parameters = extra_float_digits
	END
	start_daemon "$1" /usr/sbin/pgbouncer "$dir/ini"
	wait_for_daemon "$1" psql -X -h "$dir" -p 6432 -U postgres -d pgbouncer -c 'SHOW VERSION'
}

stop_daemons() {
	local pid

	for pid in "${FENCE_PIDS[@]}"; do
		end_process "$pid" TERM
	done
	FENCE_PIDS=()
}

# end_process PID SIGNAL: ask, wait up to ten seconds, then kill.
end_process() {
	local i

	kill "-$2" "$1" 2>/dev/null || return 0
	kill -CONT "$1" 2>/dev/null
	for ((i = 0; i < 100; i++)); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null
}

# ---------------------------------------------------------------- long commands

# run_group SECONDS COMMAND...: run it in a process group of its own and wait, so that a
# signal to us is acted upon at once and ends all of it.  The same after SECONDS.
run_group() {
	local limit=$1 status
	shift

	set -m
	"$@" </dev/null &
	FENCE_CHILD=$!
	set +m
	(
		exec >/dev/null 2>&1
		for ((i = 0; i < limit; i++)); do sleep 1; kill -0 -- "-$FENCE_CHILD" || exit; done
		kill -TERM -- "-$FENCE_CHILD"
	) &
	wait "$FENCE_CHILD"
	status=$?
	kill "$!" 2>/dev/null
	FENCE_CHILD=
	return "$status"
}

stop_child() {
	local i

	[ -n "$FENCE_CHILD" ] || return 0
	kill -TERM -- "-$FENCE_CHILD" 2>/dev/null
	for ((i = 0; i < 100; i++)); do # what runs there may have to clean up, too
		kill -0 -- "-$FENCE_CHILD" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL -- "-$FENCE_CHILD" 2>/dev/null
	FENCE_CHILD=
}
