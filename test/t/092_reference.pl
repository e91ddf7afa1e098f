# The reference tables of README.md say what a server says: signatures with their defaults and
# results, columns of the views, settings with default and range, options of lease servers with
# the rights that they need in Redis, the SQLSTATEs of the source; and the errors that README
# shows are those that a session gets.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $readme = slurp_file("$root/README.md");
my $node = fence_node('reference', conf => fence_shared());
my $session = session($node);

# Rows of the tables in README between two headings, as lists of cells.
sub table_rows
{
	my ($from, $to) = @_;
	my ($chapter) = $readme =~ /^\Q$from\E\n(.*?)^\Q$to\E\n/ms or die "README has no chapter $from";

	return map { [ split / *\| */, $_ ] } $chapter =~ /^\| (.*?) \|$/mg;
}

# ---------------------------------------------------------------- functions

# What is for views, the audit and triggers only is named in README, no more.
my %inner = map { $_ => 1 } qw(home trigger_arguments policy_problem stored_above_mark stat_resources stat_tables
  stat_redis rejections guard redis_validator);

my %told = map { $_->[0] =~ /^`fence\.(\w+)\((.*)\)`$/ ? ($1 => [ $2, $_->[1] // '' ]) : () }
  table_rows('### Functions', '### Arguments of fence.protect');

foreach my $line (split /\n/, sql($node, q{
	SELECT concat_ws('|', p.proname, pg_get_function_arguments(p.oid),
		CASE WHEN p.prorettype = 'void'::regtype THEN ''
			WHEN 't' = ANY (p.proargmodes) OR 'o' = ANY (p.proargmodes) THEN (
				SELECT string_agg('`' || name || '`', ', ' ORDER BY i)
				FROM unnest(p.proargnames, p.proargmodes) WITH ORDINALITY a (name, mode, i) WHERE mode <> 'i')
			WHEN t.typrelid <> 0 THEN (
				SELECT string_agg('`' || attname || '`', ', ' ORDER BY attnum)
				FROM pg_attribute WHERE attrelid = t.typrelid)
			ELSE format_type(p.prorettype, NULL) END)
	FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
	WHERE p.pronamespace = 'fence'::regnamespace
	ORDER BY 1}))
{
	my ($name, $arguments, $result) = split /\|/, $line, -1;

	if ($inner{$name})
	{
		like($readme, qr/`fence\.$name\(\)`/, "README names fence.$name()");
		next;
	}
	$arguments = join ', ', map { s/^(?:IN|INOUT) //r } grep { !/^(?:OUT|TABLE) / } split /, /, $arguments;
	$arguments =~ s/ DEFAULT (NULL|'[^']*'|\d+)(?:::[\w ]+(?:\[\])?)?/ = $1/g;
	$arguments =~ s/'00:00:30'/'30 seconds'/;
	$arguments =~ s/'00:00:00'/'0'/;
	$arguments =~ s/'24:00:00'/'24 hours'/;
	is($told{$name}[0], $arguments, "arguments of fence.$name");
	is($told{$name}[1], $result, "result of fence.$name");
	delete $told{$name};
}
is(join(' ', sort keys %told), '', 'README has no function that is not there');

# The arguments of protect have a table of their own.
my @arguments = split /\n/, sql($node, q{
	SELECT unnest(proargnames) FROM pg_proc WHERE oid::regproc::text = 'fence.protect'});
is(join(' ', map { $_->[0] =~ /^`(\w+)`$/ ? $1 : () } table_rows('### Arguments of fence.protect', '### Marks')),
	"@arguments", 'arguments of fence.protect, one by one');

# ---------------------------------------------------------------- views

my %view = map { $_->[0] =~ /^`fence\.(\w+)`$/ ? ($1 => $_->[2]) : () } table_rows('### Views', '### Settings');

foreach my $line (split /\n/, sql($node, q{
	SELECT c.relname || '|' || string_agg(a.attname, ' ' ORDER BY a.attnum)
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind = 'v'
	GROUP BY c.relname ORDER BY 1}))
{
	my ($name, $columns) = split /\|/, $line;
	my $text = delete $view{$name} // '';

	$text =~ s/ \([^)]*\)//g;
	$text =~ s/`pf001` to `pf007`/join ', ', map { "`pf00$_`" } 1 .. 7/e;
	is(join(' ', $text =~ /`(\w+)`/g), $columns, "columns of fence.$name");
}
is(join(' ', sort keys %view), '', 'README has no view that is not there');

# ---------------------------------------------------------------- settings

my %setting = map { $_->[0] =~ /^`(pg_fence\.\w+)`$/ ? ($1 => $_) : () } table_rows('### Settings', '## Recipes');

foreach my $line (split /\n/, sql($node, q{
	SELECT fence.mark('loads the library');
	SELECT concat_ws('|', name, CASE WHEN name LIKE '%max_re%s' THEN boot_val ELSE current_setting(name) END,
		CASE vartype WHEN 'bool' THEN 'on, off' ELSE concat_ws(' ', min_val || ' to ' || max_val, unit) END,
		CASE WHEN context IN ('postmaster', 'sighup') THEN 'server start' ELSE context END)
	FROM pg_settings WHERE name LIKE 'pg\_fence.%' ORDER BY 1}))
{
	next if $line eq '';
	my ($name, @rest) = split /\|/, $line;

	is(join(' | ', @{ $setting{$name} // [] }[ 1 .. 3 ]), join(' | ', @rest), "setting $name");
	delete $setting{$name};
}
is(join(' ', sort keys %setting), '', 'README has no setting that is not there');

# ---------------------------------------------------------------- options of lease servers

my @options = map { $_->[0] =~ /^`/ ? $_->[0] =~ /`(\w+)`/g : () } table_rows('### Options', '### Leases of our own there');
my @valid = says($session, q{CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS (nonsense '1')}) =~
  /Valid options in this context are: (.*)\./;
is(join(' ', sort @options), join(' ', sort split /, /, $valid[0] // ''), 'options of a server');

# With the rights that README gives, and no others, each layout can be verified.
my $redis = redis('reference');
my %right = map { $_->[1] =~ /^`\+/ ? ($_->[0] => [ $_->[1] =~ /(\+\w+)/g ]) : () }
  table_rows('### Options', '### Leases of our own there');
my %held = (
	string => [qw(SET stock me PX 600000)],
	prefix => [qw(SET stock me-and-more PX 600000)],
	hash => [qw(HSET stock me 1)],
	zset => [ qw(ZADD stock), 4e12, 'me', 4e12, '__write__' ]);

acquire($node, 'stock', 'me', '1 hour');
redis_server($session, 's', $redis, breaker_ms => 0, timeout_ms => 5000, db => 1);
$session->does(q{CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (username 'u', password 'pw')});
foreach my $layout (sort keys %held)
{
	my ($for) = grep { /`$layout`/ } keys %right;
	my $client = $redis->client;

	$client->does(qw(ACL SETUSER u reset on >pw ~stock -@all), @{ $right{$for} }, @{ $right{'option `db`'} });
	$client->does(qw(SELECT 1));
	$client->does(qw(DEL stock));
	$client->does(@{ $held{$layout} });
	$client->does(qw(PEXPIRE stock 600000));
	alter_server($session, 's', layout => $layout);
	unlike(says($session, q{SELECT fence.check('stock', 1, 'me', 's')}), qr/PF00/, "rights for layout $layout");
}
$redis->does(qw(ACL SETUSER u reset on >pw ~own -@all), map { @$_ }
	  @right{ 'layouts `string` and `prefix`', 'option `db`', 'leases of our own' });
alter_server($session, 's', layout => 'string');
gives($session, q{SELECT acquired FROM fence.acquire('own', 'a', lease => 's')}, 't', 'rights for leases of our own: acquire');
unlike(says($session, q{SELECT fence.check('own', 1, lease => 's')}), qr/PF00/, '... check');
gives($session, q{SELECT extended FROM fence.extend('own', 1, '1 hour')}, 't', '... extend');
unlike(says($session, q{SELECT fence.release('own', 1)}), qr/WARNING|ERROR/, '... release');

# ---------------------------------------------------------------- SQLSTATEs

chomp(my $include = `pg_config --includedir-server`);
my %code = (slurp_file("$include/utils/errcodes.h") . slurp_file("$root/src/errors.h"))
  =~ /^#define (ERRCODE_\w+)\s+MAKE_SQLSTATE\((.*)\)$/mg;
my $known = join ' ', map { $_->[0] } table_rows('### Errors', '### Views');
my %used;

foreach my $file (glob "$root/src/*.c")
{
	$used{$_} = 1 foreach slurp_file($file) =~ /(ERRCODE_\w+)/g;
}
delete $used{ERRCODE_INTERNAL_ERROR};
cmp_ok(scalar keys %used, '>', 30, 'the source has SQLSTATEs');
foreach my $name (sort keys %used)
{
	my $state = join '', ($code{$name} // '') =~ /'(\w)'/g;

	like($known, qr/\b$state\b/, "README explains $state, $name");
}

# ---------------------------------------------------------------- the errors that are shown

# Text of the error of a statement, without instants.
sub error_text
{
	my ($text) = @_;

	$text =~ s/\d{4}-\d\d-\d\d [\d:.+-]+/INSTANT/g;
	return join "\n", $text =~ /^(?:psql:\S+ )?((?:ERROR|DETAIL|HINT): .*)$/mg;
}

my @shown = map { error_text($_) } grep { /^ERROR/ } $readme =~ /^```text\n(.*?)^```$/msg;
my $story = session($node);

$story->does(q{\set VERBOSITY default});
$story->does(q{
	CREATE TABLE inventory (warehouse_id text, sku text, qty integer, PRIMARY KEY (warehouse_id, sku));
	INSERT INTO inventory VALUES ('warehouse-42', 'A', 1);
	SELECT fence.protect('inventory', 'stock-sync:{warehouse_id}');
	SELECT fence.raise_mark('stock-sync:warehouse-42', 33);
	SELECT fence.acquire('stock-sync:warehouse-42', 'worker-b')});
$story->ask(q{UPDATE inventory SET qty = 6 WHERE sku = 'A' AND fence.check('stock-sync:warehouse-42', 33)});
my $late = error_text($story->errors);
$story->ask(q{UPDATE inventory SET qty = 6 WHERE sku = 'A'});
my $without = error_text($story->errors);
is_deeply(\@shown, [ $late, $without ], 'the errors that README shows');

$story->quit;
$session->quit;
finish($node);
