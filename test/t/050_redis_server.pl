# Servers of fence_redis: which options there are, who may use a server, and who gets to see
# a password.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;

my $node = fence_node('server', conf => "log_min_messages = debug1\nlog_error_verbosity = verbose");
my $redis = redis('plain');
my $session = session($node);

# ---------------------------------------------------------------- options

sub create
{
	my ($options) = @_;

	return "BEGIN; CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS ($options); ROLLBACK";
}

sub create_mapping
{
	my ($options) = @_;

	return "BEGIN; CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS (host 'h');"
	  . "CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS ($options); ROLLBACK";
}

# 'a', 'b' means: OPTIONS (a), OPTIONS (b)
foreach my $options (
	"host 'redis.example'",
	"host '127.0.0.1', port '1'",
	"host '::1', port '65535'",
	"socket '/run/redis/redis.sock'",
	"sentinel 'a:26379', master_name 'm'",
	"sentinel '127.0.0.1:1,[::1]:65535, c.example:26379', master_name 'm'",
	"host 'h', db '0', timeout_ms '1', margin_ms '0', breaker_ms '0'",
	"host 'h', db '15', timeout_ms '300000', margin_ms '86400000', breaker_ms '86400000'",
	"host 'h', allow_no_expiry 'true', key_prefix 'lock:%s ', tls 'false'",
	map({ "host 'h', layout '$_'" } qw(string prefix hash zset)),
	map({ "host 'h', validate '$_'" } qw(write commit both)),
	map({ "host 'h', on_unreachable '$_'" } qw(reject allow)))
{
	is(sqlstate($session, create($options)), '', "server: $options");
	$session->ask('ROLLBACK');
}

my $nowhere = "HINT: .*\"host\", \"socket\" and \"sentinel\"";
my $valid = 'HINT:  Valid options in this context are: ' . join '', map({ "(?=.*\\b$_\\b)" }
	qw(host port socket db tls ca_file sentinel master_name layout key_prefix timeout_ms margin_ms allow_no_expiry),
	qw(validate on_unreachable breaker_ms));
my %bad = (
	# no address, or more than one
	"timeout_ms '100'" => [ '22023', $nowhere ],
	"port '6379'" => [ '22023', $nowhere ],
	"host 'h', socket '/s'" => [ '22023', $nowhere ],
	"host 'h', sentinel 'a:1', master_name 'm'" => [ '22023', $nowhere ],
	"socket '/s', sentinel 'a:1', master_name 'm'" => [ '22023', $nowhere ],
	"socket '/s', port '6379'" => ['22023'],
	"sentinel 'a:1', master_name 'm', port '6379'" => ['22023'],
	"sentinel 'a:1'" => [ '22023', '"master_name"' ],
	"host 'h', master_name 'm'" => [ '22023', '"sentinel"' ],
	map({ ("sentinel '$_', master_name 'm'" => ['22023']) }
		'', 'a', 'a:', ':1', 'a:0', 'a:65536', 'a:1,', ',a:1', 'a:1,,b:1', 'a:1;b:1', 'a:x', "a:1\n"),
	"socket '/" . 'x' x 107 . "'" => ['22023'],
	# values
	map({ ("host 'h', port '$_'" => [ '22023', 'between 1 and 65535' ]) }
		'0', '-1', '65536', '', 'x', '1x', '1.5', '99999999999999999999', '4294967297'),
	map({ ("host 'h', timeout_ms '$_'" => [ '22023', 'between 1 and 300000' ]) }
		'0', '-1', '300001', '2147483648', '', '1 s'), # D06
	map({ ("host 'h', margin_ms '$_'" => ['22023']) } '-1', '86400001', ''),
	map({ ("host 'h', breaker_ms '$_'" => ['22023']) } '-1', '86400001', ''),
	map({ ("host 'h', db '$_'" => ['22023']) } '-1', '65536', 'main'),
	map({ ("host 'h', allow_no_expiry '$_'" => ['22023']) } '', 'maybe'),
	"host 'h', tls 'maybe'" => ['22023'],
	"host 'h', layout 'list'" => [ '22023', '"string", "prefix", "hash", "zset"' ],
	"host 'h', layout 'STRING'" => ['22023'],
	"host 'h', validate 'never'" => [ '22023', '"write", "commit", "both"' ],
	"host 'h', on_unreachable ''" => [ '22023', '"reject", "allow"' ],
	"host ''" => ['22023'],
	"host 'h', key_prefix ''" => ['22023'],
	"host 'h', ca_file '/etc/hostname'" => [ '22023', '"tls"' ],
	# names
	"host 'h', timeout '1'" => [ 'HV00D', $valid ],
	"host 'h', \"Port\" '1'" => [ 'HV00D', $valid ],
	"host 'h', username 'u'" => [ 'HV00D', $valid ],
	"host 'h', password 'p'" => [ 'HV00D', $valid ]);
foreach my $options (sort keys %bad)
{
	my ($state, $text) = @{ $bad{$options} };
	my $said = says($session, create($options));

	like($said, qr/^(psql:.*)?ERROR:  $state: /, "no server: $options");
	like($said, qr/$text/, '... and it says what there is') if $text;
	$session->ask('ROLLBACK');
}

foreach my $options ("password 'p'", "username 'u', password 'p'")
{
	is(sqlstate($session, create_mapping($options)), '', "mapping: $options");
}
%bad = (
	"username 'u'" => [ '22023', '"password"' ],
	"username '', password 'p'" => ['22023'],
	"password ''" => ['22023'],
	"user 'u', password 'hidden'" => [ 'HV00D', 'HINT:  Valid options in this context are: username, password\.' ],
	"host 'h', password 'hidden'" => [ 'HV00D', 'username, password' ]);
foreach my $options (sort keys %bad)
{
	my ($state, $text) = @{ $bad{$options} };
	my $said = says($session, create_mapping($options));

	like($said, qr/^(psql:.*)?ERROR:  $state: /, "no mapping: $options");
	like($said, qr/$text/, '... and it says what there is') if $text;
	unlike($said, qr/hidden/, '... but not the password');
	$session->ask('ROLLBACK');
}

refuses($session, q{ALTER FOREIGN DATA WRAPPER fence_redis OPTIONS (host 'h')}, 'HV00D', 'the wrapper has no options');
redis_server($session, 's', { host => 'h', timeout_ms => 200 });
refuses($session, "ALTER SERVER s OPTIONS ($_)", '22023', "ALTER SERVER is checked, too: $_")
  foreach "ADD socket '/s'", 'DROP host', "SET timeout_ms '-1'", "ADD port '0'";
is(sqlstate($session, q{ALTER SERVER s OPTIONS (DROP host, ADD socket '/s')}), '', 'one address for another');
gives($session, q{SELECT srvoptions FROM pg_foreign_server}, '{timeout_ms=200,socket=/s}', 'and that is all there is to see');
refuses($session, q{CREATE FOREIGN TABLE f (a int) SERVER s OPTIONS (key 'k')}, 'HV00D', 'tables have no options');
refuses($session, q{CREATE FOREIGN TABLE f (a int) SERVER s; SELECT * FROM f}, '55000', '... and nothing can be read');
$session->does('DROP SERVER s CASCADE');
$session->does(q{CREATE SERVER postgres FOREIGN DATA WRAPPER fence_redis OPTIONS (host 'h')});
gives($session, q{SELECT count(*) FROM fence.audit() WHERE severity = 'error' AND remedy = 'ALTER SERVER postgres RENAME TO ...;'}, 1,
	'a server that nobody would ask');
$session->does('ALTER SERVER postgres RENAME TO other_name');
gives($session, q{SELECT count(*) FROM fence.audit() WHERE problem LIKE '%server%'}, 0, '... has another name now');
$session->does('DROP SERVER other_name');

# ---------------------------------------------------------------- who may

redis_server($session, 's', $redis);
redis_server($session, 'later', $redis, validate => 'commit');
$session->does(q{
	CREATE ROLE writer LOGIN;
	CREATE ROLE stranger LOGIN;
	SELECT fence.grant_writer('writer');
	SELECT fence.grant_writer('stranger');
	GRANT USAGE ON FOREIGN SERVER s, later TO writer;
	CREATE FOREIGN DATA WRAPPER other;
	CREATE SERVER o FOREIGN DATA WRAPPER other;
	CREATE TABLE mine (id int);
	ALTER TABLE mine OWNER TO stranger});
$redis->does('SET', 'stock', 'a', 'PX', 60000);

my $may = q{SELECT fence.check('stock', 1, 'a', '%s')};
my $as_stranger = session($node);
my $as_writer = session($node);
$as_stranger->does('SET ROLE stranger');
$as_writer->does('SET ROLE writer');
gives($as_writer, sprintf($may, 's'), 't', 'USAGE is enough');
refuses($as_stranger, sprintf($may, 's'), '42501', 'without USAGE, no question is asked');
refuses($as_stranger, sprintf($may, 'later'), '42501', '... nor would be at commit');
refuses($as_writer, sprintf($may, 'nowhere'), '42704', 'no such server');
refuses($as_writer, sprintf($may, 'S'), '42704', '... whose name is compared as it is');
refuses($as_writer, sprintf($may, 'o'), '42809', 'a server of another wrapper');
refuses($as_writer, sprintf($may, 'x' x 100), '22023', 'no name of a server');
refuses($as_stranger, q{SELECT fence.protect('mine', 'r', lease => 's')}, '42501', 'protect(): no USAGE');
refuses($session, q{SELECT fence.protect('mine', 'r', lease => 'nowhere')}, '42704', '... no such server');
refuses($session, q{SELECT fence.protect('mine', 'r', lease => 'o')}, '42809', '... of another wrapper');
refuses($as_stranger, q{SELECT * FROM fence.acquire('stock', 'x', lease => 's')}, '42501', 'acquire(): no USAGE');
refuses($as_writer, q{SELECT * FROM fence.acquire('new', 'x', lease => 'nowhere')}, '42704', '... no such server');
refuses($as_writer, q{SELECT * FROM fence.acquire('new', 'x', lease => 'o')}, '42809', '... of another wrapper');
refuses($as_writer, q{CREATE SERVER mine FOREIGN DATA WRAPPER fence_redis OPTIONS (host 'h')}, '42501', 'who uses a server makes none');
refuses($as_writer, q{ALTER SERVER s OPTIONS (SET socket '/tmp/other')}, '42501', '... nor changes one');

$session->does('REVOKE USAGE ON FOREIGN SERVER s, later FROM writer');
refuses($as_writer, sprintf($may, 's'), '42501', 'USAGE can be taken away');
$session->does('GRANT USAGE ON FOREIGN SERVER s, later TO writer');

# The rights and the credentials are those of whoever presented the token, although a
# function that does so for others has long returned when the transaction commits.
$session->does(q{
	CREATE FUNCTION present() RETURNS boolean SECURITY DEFINER LANGUAGE sql
		AS $$SELECT fence.check('stock', 1, 'a', 'later')$$;
	ALTER FUNCTION present() OWNER TO writer;
	GRANT CREATE ON SCHEMA public TO writer});
is(sqlstate($as_stranger, 'BEGIN; SELECT present(); COMMIT'), '', 'at commit, the rights are those of whoever presented');
is(sqlstate($session, "BEGIN; SET LOCAL ROLE writer; " . sprintf($may, 'later') . '; SET LOCAL ROLE stranger; COMMIT'),
	'', '... also after SET ROLE');
$_->quit foreach $as_stranger, $as_writer;

# ---------------------------------------------------------------- credentials (D08)

# Everything that a password could have been written to is looked through at the end.
my $password = 's3cret';
my $wrong = 'wr0ngpw';
my @seen;

sub said
{
	my ($where, $sql) = @_;
	my $said = says($where, $sql);

	push @seen, $said;
	return $said =~ /(?:ERROR|WARNING):  (\w{5}): / ? $1 : '';
}

my $secured = redis('secured');
$secured->does(qw(ACL SETUSER default on), ">$password");
$secured->does(qw(ACL SETUSER least on), ">$password", qw(~lock:* resetchannels -@all +eval +evalsha +getex +pttl));
$secured->does(qw(ACL SETUSER noget on), ">$password", qw(~* resetchannels -@all +eval +evalsha));
$secured->does(qw(ACL SETUSER noscript on), ">$password", qw(~* resetchannels -@all +get +getex +pttl));
$secured->does(qw(ACL SETUSER nokey on), ">$password", qw(~other:* resetchannels +@all));
$secured->does(qw(ACL SETUSER off off), ">$password", qw(~* resetchannels +@all));
$secured->does('ACL', 'SETUSER', 'odd%s', 'on', ">pass %s '\"\\ \r\n word", '~*', 'resetchannels', '+@all');
$secured->does('SET', 'lock:stock', 'a', 'PX', 600000);

redis_server($session, 'c', $secured, key_prefix => 'lock:', breaker_ms => 0, timeout_ms => 2000);
my $offset = -s $node->logfile;
my $check = q{SELECT fence.check('stock', 1, 'a', 'c')};

sub credentials
{
	my ($list) = @_;

	$session->does('DROP USER MAPPING IF EXISTS FOR PUBLIC SERVER c');
	$session->does("CREATE USER MAPPING FOR PUBLIC SERVER c OPTIONS ($list)") if $list;
	return;
}

is(said($session, $check), 'PF007', 'NOAUTH: no credentials, but needed');
like($seen[-1], qr/NOAUTH/, '... says so');
credentials("password '$password'");
is(said($session, $check), '', 'the password of the default user');
credentials("username 'default', password '$password'");
is(said($session, $check), '', 'the default user by name');
credentials("password '$wrong'");
is(said($session, $check), 'PF007', 'WRONGPASS: wrong password');
like($seen[-1], qr/WRONGPASS/, '... says so');
credentials("username 'nobody', password '$password'");
is(said($session, $check), 'PF007', 'no such user');
credentials("username 'off', password '$password'");
is(said($session, $check), 'PF007', 'a user that is off');
credentials("username 'noget', password '$password'");
is(said($session, $check), 'PF007', 'NOPERM: a user that may not read');
like($seen[-1], qr/NOPERM|can't run|no permissions/, '... says so');
credentials("username 'noscript', password '$password'");
is(said($session, $check), 'PF007', 'NOPERM: a user that may not run scripts');
credentials("username 'nokey', password '$password'");
is(said($session, $check), 'PF007', 'NOPERM: a user that may not see the key');
credentials("username 'least', password '$password'");
is(said($session, $check), '', 'the least rights that are enough');
credentials(qq{username 'odd%s', password E'pass %s ''"\\\\ \\r\\n word'});
is(said($session, $check), '', 'names and passwords are bytes');

# No retry storm: what is wrong stays wrong until somebody changes it.
alter_server($session, 'c', breaker_ms => 60000);
credentials("password '$wrong'");
my $before = $secured->info('total_connections_received');
is(said($session, $check), 'PF007', 'wrong password') foreach 1 .. 10;
cmp_ok($secured->info('total_connections_received') - $before, '<=', 1, '... tried once');
credentials("password '$password'");
is(said($session, $check), '', '... and again once the password has been changed');

# A server that has no AUTH tells the arguments of what it does not know.
my $tells = redis('tells', conf => [ '--rename-command', 'AUTH', '' ]);
redis_server($session, 't', $tells, breaker_ms => 0);
$session->does(qq{CREATE USER MAPPING FOR PUBLIC SERVER t OPTIONS (password '$password')});
is(said($session, q{SELECT fence.check('stock', 1, 'a', 't')}), 'PF007', 'a server without AUTH');
$session->does('DROP USER MAPPING FOR PUBLIC SERVER t');
$session->does(qq{CREATE USER MAPPING FOR PUBLIC SERVER t OPTIONS (username 'u', password '$password')});
is(said($session, q{SELECT fence.check('stock', 1, 'a', 't')}), 'PF007', '... given a user, too');
my $open = redis('open');
alter_server($session, 't', $open->address);
is(said($session, q{SELECT fence.check('stock', 1, 'a', 't')}), 'PF007', 'a server that knows no such user');

# Two roles with different credentials in one session
$session->does(qq{
	GRANT USAGE ON FOREIGN SERVER c TO writer, stranger;
	DROP USER MAPPING FOR PUBLIC SERVER c;
	CREATE USER MAPPING FOR writer SERVER c OPTIONS (username 'least', password '$password');
	CREATE USER MAPPING FOR stranger SERVER c OPTIONS (username 'noget', password '$password')});
alter_server($session, 'c', breaker_ms => 0);
foreach my $round (1, 2)
{
	is(said($session, "SET ROLE writer; $check; RESET ROLE"), '', 'one role has the right');
	is(said($session, "SET ROLE stranger; $check"), 'PF007', '... another one does not get its connection');
	$session->does('RESET ROLE');
	is(said($session, $check), 'PF007', '... and who has no mapping gets none of them');
}

# While a question is being asked, and a session may look at others
$session->does(qq{
	DROP USER MAPPING FOR writer SERVER c;
	DROP USER MAPPING FOR stranger SERVER c;
	CREATE USER MAPPING FOR PUBLIC SERVER c OPTIONS (password '$password');
	GRANT pg_monitor TO writer});
alter_server($session, 'c', timeout_ms => 60000);
$secured->freeze;
my $asking = session($node);
my $backend = $asking->backend;
$asking->send($check);
my $watch = session($node);
wait_for($watch, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $backend");
push @seen, $watch->does('SELECT * FROM pg_stat_activity');
push @seen, join ' ', map { slurp_file("/proc/$backend/$_") } qw(cmdline environ);
$secured->thaw;
is($asking->wait->output, 't', 'the question has been asked');
$asking->quit;

# What a role with USAGE gets to see; a mapping of its own it may look at, PUBLIC's it may not.
$watch->does('SET ROLE writer');
push @seen, $watch->does("SELECT * FROM $_")
  foreach qw(pg_foreign_server pg_foreign_data_wrapper pg_user_mappings information_schema.user_mapping_options), 'pg_settings';
refuses($watch, 'SELECT * FROM pg_user_mapping', '42501', 'the catalog with the passwords is closed');
$watch->quit;

foreach my $seen (@seen, server_log($node, $offset))
{
	next unless $seen =~ /$password|$wrong/;
	fail('a password has been seen');
	diag $seen;
}
pass('looked for passwords in ' . @seen . ' places');
$session->quit;

finish($node);
