# A claim without a response does not get past the end of its transaction, whichever way that
# ends: simple, extended, function-call protocol, pipeline (case 25), PREPARE (26), COMMIT in a
# procedure (27), DO and cursors (28), AND CHAIN (29), many savepoints (24), parallel plans (30).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('claim_commit');
my $watch = session($node);
my $session = session($node);

sql($node, q{CREATE TABLE effect (key text)});

# Refused with PF103, and nothing is left: the key is free, and the session goes on.
sub refused
{
	my ($state, $test_name, $goes_on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($state, 'PF103', $test_name);
	gives($watch, q{SELECT (SELECT count(*) FROM fence.idempotency_key), (SELECT count(*) FROM effect)}, '0|0', '... leaves nothing');
	$goes_on //= sqlstate($session, q{BEGIN; SELECT fence.claim('next'); SELECT fence.complete('next'); ROLLBACK});
	is($goes_on, '', '... and the session goes on');
	return;
}

# Accepted, and a replay afterwards; then it is removed.
sub accepted
{
	my ($state, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($state, '', $test_name);
	gives($watch, q{SELECT fresh, response, (SELECT count(*) FROM effect) FROM fence.claim('k')}, 'f|1|1', '... is there');
	$watch->does('TRUNCATE effect, fence.idempotency_key');
	return;
}

my $claim = q{SELECT fence.claim('k')};
my $work = q{INSERT INTO effect VALUES ('k')};
my $complete = q{SELECT fence.complete('k', '1')};

# The protocol, spoken by ourselves: psql has no pipeline and no function calls.
package Wire
{
	use IO::Socket::UNIX;

	sub connect
	{
		my ($class, $node) = @_;
		my $self = bless { socket => IO::Socket::UNIX->new($node->host . '/.s.PGSQL.' . $node->port) }, $class;
		my $startup = pack('N', 196608) . join("\0", user => scalar getpwuid($<), database => 'postgres') . "\0\0";

		$self->{socket}->print(pack('N', 4 + length $startup) . $startup);
		return $self->answer ? undef : $self;
	}

	sub message { return $_[0] . pack('N', 4 + length $_[1]) . $_[1]; }

	# Messages of the extended protocol for one statement, without Sync
	sub statement
	{
		my ($sql) = @_;

		return message('P', "\0$sql\0" . pack('n', 0)) . message('B', "\0\0" . pack('nnn', 0, 0, 0)) . message('E', "\0" . pack('N', 0));
	}

	sub query { return $_[0]->exchange(message('Q', "$_[1]\0")); }

	sub pipeline { my ($self, @sql) = @_; return $self->exchange(join('', map { statement($_) } @sql) . message('S', '')); }

	# Arguments and result as text
	sub call
	{
		my ($self, $oid, @arguments) = @_;
		my $values = join '', map { defined $_ ? pack('N/a*', $_) : pack('N', 0xffffffff) } @arguments;

		return $self->exchange(message('F', pack('NnnnA*', $oid, 1, 0, scalar @arguments, '') . $values . pack('n', 0)));
	}

	sub exchange
	{
		my ($self, $messages) = @_;

		$self->{socket}->print($messages);
		$self->{socket}->flush;
		return $self->answer;
	}

	# Up to ReadyForQuery; returns the SQLSTATE of the first error or ''.
	sub answer
	{
		my ($self) = @_;
		my $state = '';

		$self->{rows} = 0;
		for (;;)
		{
			my ($type, $len) = unpack 'aN', $self->take(5);
			my $body = $self->take($len - 4);

			$self->{rows}++ if $type eq 'D' || $type eq 'V';
			($state) = $body =~ /(?:\A|\0)C(\w{5})\0/ if $type eq 'E' && $state eq '';
			return $state if $type eq 'Z';
		}
	}

	sub take
	{
		my ($self, $len) = @_;
		my $bytes = '';

		while (length $bytes < $len)
		{
			$self->{socket}->read($bytes, $len - length $bytes, length $bytes) or die 'the server has closed the connection';
		}
		return $bytes;
	}
}

my $wire = Wire->connect($node) or die 'no connection';
my $claim_oid = sql($node, q{SELECT oid FROM pg_proc WHERE proname = 'claim' AND pronamespace = 'fence'::regnamespace});

sub goes_on { return $wire->query("BEGIN; $claim; $complete; ROLLBACK"); }

# 25: the client has had the rows when the error comes.
refused($wire->query($claim), '25: simple protocol, autocommit', goes_on());
refused($wire->query("$work; $claim"), '25: several statements in one message', goes_on());
refused($wire->query("BEGIN; $claim; $work; COMMIT"), '25: simple protocol, transaction', goes_on());
refused($wire->pipeline($claim), '25: extended protocol, autocommit', goes_on());
$wire->pipeline($claim);
is($wire->{rows}, 1, '... the row was there before the error');
$wire->pipeline($_) foreach 'BEGIN', $claim, $work;
refused($wire->pipeline('COMMIT'), '25: extended protocol, transaction', goes_on());
refused($wire->pipeline($claim, $work), '25: pipeline up to Sync', goes_on());
refused($wire->pipeline('BEGIN', $claim, $work, 'COMMIT'), '25: pipeline with a transaction', goes_on());
refused($wire->pipeline('BEGIN', $claim, 'COMMIT', $work), '25: pipeline that goes on after it', goes_on());
refused($wire->call($claim_oid, 'k', '', undef, '1 hour'), '25: function-call protocol', goes_on());
is($wire->query("BEGIN; $work"), '', 'a transaction');
is($wire->call($claim_oid, 'k', '', undef, '1 hour'), '', '... with a function call');
is($wire->{rows}, 1, '... that has an answer');
refused($wire->query('COMMIT'), '25: ... and its commit', goes_on());

accepted($wire->query("$work; $claim; $complete"), '25: with a response, in one message');
accepted($wire->pipeline($claim, $work, $complete), '25: in a pipeline');
accepted($wire->pipeline('BEGIN', $claim, $work, $complete, 'COMMIT'), '25: in a pipeline with a transaction');
$wire->query("BEGIN; $work");
$wire->call($claim_oid, 'k', '', undef, '1 hour');
accepted($wire->query("$complete; COMMIT"), '25: by function call');

# 25: other statements that run it
refused(sqlstate($session, 'CREATE TABLE made AS SELECT * FROM fence.claim(\'k\')'), '25: CREATE TABLE AS');
gives($watch, q{SELECT to_regclass('made') IS NULL}, 't', '... there is no table');
refused(sqlstate($session, 'COPY (SELECT fence.claim(\'k\')) TO STDOUT'), '25: COPY');
refused(sqlstate($session, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $claim"), '25: EXPLAIN ANALYZE');
is(sqlstate($session, "EXPLAIN (COSTS OFF) $claim"), '', '... EXPLAIN claims nothing');
$session->does("PREPARE p AS $claim");
refused(sqlstate($session, 'EXECUTE p'), '25: EXECUTE');

# 25: deferred triggers fire before the check
$session->does(q{
	CREATE FUNCTION claim_late() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM fence.claim(NEW.key);
		RETURN NULL;
	END $$;
	CREATE FUNCTION complete_late() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM fence.complete(NEW.key, '1');
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER a AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION claim_late()});
refused(sqlstate($session, $work), '25: claimed by a deferred trigger');
$session->does(q{
	CREATE CONSTRAINT TRIGGER b AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION complete_late()});
accepted(sqlstate($session, $work), '25: claimed and completed by deferred triggers');
$session->does('DROP TRIGGER a ON effect; DROP TRIGGER b ON effect');

# 26: PREPARE TRANSACTION
refused(sqlstate($session, "BEGIN; $claim; $work; PREPARE TRANSACTION 'p'"), '26: PREPARE');
gives($watch, 'SELECT count(*) FROM pg_prepared_xacts', 0, '... nothing is prepared');
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	foreach my $restart ('', 'fast', 'immediate')
	{
		foreach my $decision ('ROLLBACK', 'COMMIT')
		{
			my $name = "26: $level, $decision PREPARED" . ($restart ? " after a restart ($restart)" : '');
			my $waiter;

			sql($node, "BEGIN ISOLATION LEVEL $level; $claim; $work; $complete; PREPARE TRANSACTION 'p'");
			if ($restart)
			{
				$node->stop($restart);
				$_->quit foreach $session, $watch;
				$node->start;
				($session, $watch) = (session($node), session($node));
			}
			refuses($session, q{SET lock_timeout = '50ms'; SELECT fence.claim('k')}, '55P03', "$name: a duplicate waits");
			$session->does('RESET lock_timeout');
			gives($session, q{SELECT response FROM fence.lookup('k', '')}, '', '... there is no response yet');

			$waiter = session($node);
			$waiter->does("BEGIN ISOLATION LEVEL $level");
			$waiter->send(q{SELECT fresh, response FROM fence.claim('k')});
			waits_for_lock($watch, $waiter);
			sql($node, "$decision PREPARED 'p'");
			$waiter->wait;
			is($waiter->sqlstate || $waiter->output,
				$decision eq 'ROLLBACK' ? 't|' : $level eq 'READ COMMITTED' ? 'f|1' : '40001', '... and goes on when it is decided');
			$waiter->does('ROLLBACK');
			gives($waiter, "BEGIN ISOLATION LEVEL $level; SELECT fresh, response FROM fence.claim('k'); ROLLBACK",
				$decision eq 'ROLLBACK' ? 't|' : 'f|1', '... so does the next one');
			$waiter->quit;
			$watch->does('TRUNCATE effect, fence.idempotency_key');
		}
	}
}

# 27: COMMIT in a procedure
$session->does(q{
	CREATE PROCEDURE across() LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES ('k');
		PERFORM fence.claim('k');
		COMMIT;
		PERFORM fence.complete('k', '1');
	END $$;
	CREATE PROCEDURE within() LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 3 LOOP
			PERFORM fence.claim('k' || i);
			PERFORM fence.complete('k' || i, to_jsonb(i));
			IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$});
refused(sqlstate($session, 'CALL across()'), '27: a claim across COMMIT');
is(sqlstate($session, 'CALL within()'), '', '27: claims within their transactions');
gives($session, q{SELECT array_agg((SELECT response FROM fence.lookup('k' || i, ''))) FROM generate_series(1, 3) i}, '{1,NULL,3}', '... each as it ended');
$watch->does('TRUNCATE fence.idempotency_key');

# 28: DO, cursors, several rows
refused(sqlstate($session, q{DO $$ BEGIN PERFORM fence.claim('k'); INSERT INTO effect VALUES ('k'); END $$}), '28: DO');
accepted(sqlstate($session, qq{DO \$\$ BEGIN PERFORM fence.claim('k'); $work; PERFORM fence.complete('k', '1'); END \$\$}), '28: DO with a response');
refused(sqlstate($session, q{SELECT fence.claim('k' || i) FROM generate_series(1, 3) i}), '28: several rows');
refused(sqlstate($session, q{
	BEGIN;
	SELECT fence.claim('k' || i) FROM generate_series(1, 3) i;
	SELECT fence.complete('k' || i) FROM generate_series(1, 2) i;
	COMMIT}), '28: several rows, one of them without a response');
is(sqlstate($session, q{SELECT fence.complete('k' || i) FROM generate_series(1, 3) i, fence.claim('k' || i)}), '', '28: several rows with a response');
gives($session, q{SELECT bool_or(fresh) FROM generate_series(1, 3) i, fence.claim('k' || i)}, 'f', '... are there');
$watch->does('TRUNCATE fence.idempotency_key');
$session->does(q{BEGIN; DECLARE c CURSOR FOR SELECT i, fresh FROM generate_series(1, 3) i, fence.claim('k' || i)});
gives($session, 'FETCH 2 FROM c', "1|t\n2|t", '28: a cursor');
gives($session, 'SELECT fence.complete(\'k\' || i) FROM generate_series(1, 2) i; COMMIT; SELECT count(*) FROM fence.idempotency_key',
	"null\nnull\n2", '... has claimed what was fetched, and no more');
$watch->does('TRUNCATE fence.idempotency_key');
refused(sqlstate($session, "BEGIN; DECLARE c CURSOR WITH HOLD FOR $claim; COMMIT"), '28: a holdable cursor, which runs at COMMIT');

# 29: AND CHAIN
refused(sqlstate($session, "BEGIN; $claim; $work; COMMIT AND CHAIN"), '29: COMMIT AND CHAIN');
$session->ask('ROLLBACK');
is(sqlstate($session, "BEGIN; $claim; ROLLBACK AND CHAIN; $work; COMMIT"), '', '29: ROLLBACK AND CHAIN ends the claim');
$watch->does('TRUNCATE effect');
is(sqlstate($session, "BEGIN; $claim; $complete; $work; COMMIT AND CHAIN; SELECT 1; COMMIT"), '', '29: COMMIT AND CHAIN with a response');
accepted('', '29: ... which');

# 24: a hundred levels; those that are rolled back leave nothing, the others all.
my $deep = join '', map { "SAVEPOINT s$_; SELECT fence.claim('k$_'); SELECT fence.complete('k$_');" } 1 .. 100;
is(sqlstate($session, "BEGIN; $deep ROLLBACK TO s51; COMMIT"), '', '24: a hundred savepoints, half of them rolled back');
gives($watch, q{SELECT count(*) FROM fence.idempotency_key}, 50, '... the other half is there');
$watch->does('TRUNCATE fence.idempotency_key');
is(sqlstate($session, "BEGIN; $deep " . join('', map { "RELEASE s$_;" } reverse 1 .. 100) . 'COMMIT'), '', '24: all released');
gives($watch, q{SELECT count(*) FROM fence.idempotency_key}, 100, '... all are there');
$watch->does('TRUNCATE fence.idempotency_key');
my $open = join '', map { "SAVEPOINT s$_; SELECT fence.claim('k$_');" } 1 .. 100;
refused(sqlstate($session, "BEGIN; $open COMMIT"), '24: all of them without a response');
refused(sqlstate($session, "BEGIN; $open ROLLBACK TO s2; COMMIT"), '24: all but the outermost rolled back');
is(sqlstate($session, "BEGIN; $open ROLLBACK TO s1; COMMIT"), '', '24: all rolled back');
gives($watch, q{SELECT count(*) FROM fence.idempotency_key}, 0, '... nothing is there');

# 30: parallel plans.  The planner does not put it into one; a function that lies about itself does.
my $force = $node->pg_version < 16 ? 'force_parallel_mode' : 'debug_parallel_query';
$session->does(q{
	CREATE FUNCTION lies() RETURNS boolean LANGUAGE sql PARALLEL SAFE AS $$ SELECT fence.once('k') $$;
	CREATE FUNCTION lies_much() RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN fence.once('k'); END $$});
$session->does("SET $force = on");
gives($session, q{SELECT fence.once('not parallel')}, 't', '30: not in a parallel plan');
refuses($session, 'SELECT lies_much()', '25000', '30: refused in one');
$session->does("RESET $force");
gives($watch, q{SELECT count(*) FROM fence.idempotency_key WHERE key = 'k'}, 0, '... which leaves nothing');

$_->quit foreach $session, $watch;
finish($node);
