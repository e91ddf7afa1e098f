# Settings of the session and of the database: the prefix pg_fence is reserved (G10), time
# zones change no verdict (F03), and neither do search_path and the like.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('settings');

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0);
	SELECT fence.protect('stock', 'stock')});
acquire($node, 'stock', 'a', '1 hour');

# G10: before the library is loaded, a name under the prefix is a placeholder like any
# other; loading removes it with a warning, and the session goes on.
foreach my $load ([ 'a call', q{SELECT fence.mark('stock')}, '' ], [ 'a guarded write', 'UPDATE stock SET qty = 1', 'PF002' ])
{
	my ($how, $statement, $state) = @$load;
	my $session = session($node);

	$session->does(q{SET pg_fence.nonsense = 'on'});
	$session->does(q{SET pg_fence.token = '1'});
	gives($session, 'SHOW pg_fence.nonsense', 'on', "before $how loads the library, the prefix is free");
	is(sqlstate($session, $statement), $state, "... $how works, or is refused, as ever");
	my $warnings = () = $session->errors =~ /WARNING: +42602/g;
	is($warnings, 2, '... with a warning for each');
	refuses($session, 'SHOW pg_fence.nonsense', '42704', '... they are gone');
	refuses($session, q{SET pg_fence.nonsense = 'on'}, '42602', '... and cannot be set any more');
	refuses($session, 'UPDATE stock SET qty = 1', 'PF002', 'a setting is no token');
	$session->quit;
}
$node->append_conf('postgresql.conf', q{pg_fence.in_file = 'x'});
$node->restart;
my $offset = -s $node->logfile;
sql($node, q{ALTER DATABASE postgres SET pg_fence.of_database = 'x'});
my $session = session($node);
refuses($session, 'UPDATE stock SET qty = 1', 'PF002', 'settings from the file and the database change nothing');
is(sqlstate($session, q{BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 2; COMMIT}), '', '... and hinder nobody');
$session->quit;
unlike(server_log($node, $offset), qr/FATAL/, '... nor end a session');
sql($node, 'ALTER DATABASE postgres RESET pg_fence.of_database');
$node->append_conf('postgresql.conf', sprintf(q{shared_preload_libraries = '%s'}, fence_library()));
$node->restart;
is(sqlstate($node, q{BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 3; COMMIT}), '', 'the same with the library preloaded');
refuses($node, 'SET pg_fence.nonsense = 1', '42602', '... where the prefix is reserved from the start');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->restart;

# F03: holder, rival and whoever looks live in different zones.
my @zones = qw(Asia/Tokyo America/New_York UTC Pacific/Kiritimati Asia/Kolkata);
my %session;
foreach my $zone (@zones)
{
	$session{$zone} = session($node, options => "-c TimeZone=$zone -c DateStyle=German,DMY -c IntervalStyle=iso_8601");
	$session{$zone}->does("SET lc_messages = 'C'");
}
foreach my $zone (@zones)
{
	is(acquire($session{$zone}, "in $zone", 'a', '10 seconds'), 1, "acquired in $zone");
}
foreach my $zone (@zones)
{
	my $seen = $session{$zone};

	foreach my $where (@zones)
	{
		my $resource = "in $where";
		gives($seen, qq{
			SELECT acquired, reason, remaining > interval '1 s', remaining <= interval '10 s' FROM fence.acquire('$resource', 'b')},
			'f|held|t|t', "$resource, seen from $zone: held");
		gives($seen, qq{SELECT fence.check('$resource', 1, 'a', 'postgres')}, 't', '... alive');
		gives($seen, qq{
			SELECT extended, expires_at > clock_timestamp(), remaining <= interval '10 s' FROM fence.extend('$resource', 1, '10 s')},
			't|t|t', '... and can be extended');
	}
	gives($seen, q{
		SELECT count(*), bool_and(extract(epoch FROM expires_at - clock_timestamp()) BETWEEN 0 AND 10)
		FROM fence.leases WHERE resource LIKE 'in %' AND state = 'held'}, scalar(@zones) . '|t', "fence.leases in $zone");
}
# What is over is over everywhere.
sql($session{UTC}, q{SELECT fence.acquire('over', 'a', '1 ms')});
wait_for($node, q{SELECT state = 'expired' FROM fence.leases WHERE resource = 'over'});
foreach my $zone (@zones)
{
	gives($session{$zone}, q{SELECT extended, reason FROM fence.extend('over', 1)}, 'f|expired', "over, seen from $zone: over");
	refuses($session{$zone}, q{SELECT fence.check('over', 1, lease => 'postgres')}, 'PF005', '... for check');
}
is(acquire($session{'Asia/Tokyo'}, 'over', 'b'), 2, '... for acquire');
# A zone that changes within the session, and the session's zone in the year's longest day
foreach my $zone ('Europe/Berlin', 'Australia/Lord_Howe', '+14', '-12')
{
	$session{UTC}->does("SET TimeZone = '$zone'");
	gives($session{UTC}, q{SELECT state, remaining <= interval '10 s' FROM fence.leases WHERE resource = 'in UTC'}, 'held|t',
		"a lease that was granted in another zone than $zone");
}
$_->quit foreach values %session;
gives($node, q{
	SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.relnamespace = 'fence'::regnamespace AND a.atttypid IN ('timestamp'::regtype, 'date'::regtype)}, 0,
	'no column holds a time without a zone');

# Other settings that a session or a database can have
foreach my $setting ('search_path=', 'search_path=pg_temp', 'default_transaction_isolation=serializable',
	'default_transaction_isolation=repeatable\ read', 'row_security=off', 'enable_indexscan=off',
	'force_parallel_mode=on', 'debug_parallel_query=on', 'jit_above_cost=0', 'extra_float_digits=0', 'standard_conforming_strings=off',
	'default_transaction_deferrable=on', 'synchronous_commit=off', 'client_encoding=SQL_ASCII', 'array_nulls=off',
	'transform_null_equals=on', 'check_function_bodies=off', 'bytea_output=escape')
{
	# the parallel one has two names
	next if $setting =~ /^force_parallel/ && $node->pg_version >= 16;
	next if $setting =~ /^debug_parallel/ && $node->pg_version < 16;

	my $resource = "under $setting";
	$resource =~ s/\\//g;
	$session = session($node, options => "-c $setting");
	is(acquire($session, $resource, 'x', '1 hour'), 1, "under $setting: acquire");
	gives($session, qq{SELECT acquired, reason FROM fence.acquire('$resource', 'y')}, 'f|held', '... refused');
	refuses($session, 'UPDATE public.stock SET qty = 5', 'PF002', '... a write without token');
	is(sqlstate($session, q{BEGIN; SELECT fence.check('stock', 1); UPDATE public.stock SET qty = 6; COMMIT}), '', '... with one');
	refuses($session, qq{SELECT fence.check('$resource', 2)}, 'PF004', '... with one that was never issued');
	gives($session, qq{SELECT extended FROM fence.extend('$resource', 1)}, 't', '... extend');
	gives($session, qq{SELECT fence.mark('$resource'), fence.release('$resource', 1)}, '1|t', '... release');
	$session->quit;
}

finish($node);
